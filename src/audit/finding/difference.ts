// A difference between what a controller should have written and what the API server stores.

import type { Code, Severity } from './catalogue.ts';
import type { Cause } from './causes.ts';

/** One difference, before time has told whether it is a finding. */
export interface Difference {
  readonly code: Code;
  /** Where it is not the one of the catalogue. */
  readonly severity: Severity | null;
  /** `Kind namespace/name` of the API object that differs. */
  readonly object: string;
  readonly field: string;
  /** Tells differences of one code at one place apart; not shown. */
  readonly subject: string;
  readonly expected: string | null;
  readonly actual: string | null;
  /** No traffic suffers: where upstream's sleep explains it, it is information. */
  readonly quiet: boolean;
  /** Shown by the input as it is now. */
  readonly cause: Cause | null;
  /** Shown by the input too, but what history shows comes first. */
  readonly hindrance: Cause | null;
  /** Stands in where there is no history that could show the cause. */
  readonly likelyCause: Cause | null;
}

export function difference(
  code: Code,
  object: string,
  field: string,
  expected: string | null,
  actual: string | null,
  more: Partial<Difference> = {},
): Difference {
  const subject = '';
  const rest = { severity: null, quiet: false, cause: null, hindrance: null, likelyCause: null };
  return { code, object, field, subject, expected, actual, ...rest, ...more };
}
