// A difference between what a controller should have written and what the API server stores.

import type { Code, DifferenceDetail, Severity } from './catalogue.ts';
import type { Cause } from './causes.ts';

/** The values are `null` if the field is absent. */
export type ComparedField = readonly [name: string, expected: string | null, actual: string | null];

/** One difference, which becomes a finding if it lasts. */
export interface Difference {
  readonly code: Code;
  /** `null` for the severity of the catalogue. */
  readonly severity: Severity | null;
  /** `Kind namespace/name` of the API object that differs. */
  readonly object: string;
  readonly field: string;
  /** Distinguishes differences of one code at one place; not shown. */
  readonly subject: string;
  readonly expected: string | null;
  readonly actual: string | null;
  /** The address of the entry; `null` if it is about no single address. */
  readonly address: string | null;
  /** `namespace/name` of the entry's pod; `null` if it has none. */
  readonly pod: string | null;
  /** What differs, field by field; `null` if that is `field` with `expected` and `actual`. */
  readonly fields: readonly ComparedField[] | null;
  /** Affects no traffic: its severity is `info` if a proven blind spot of upstream explains it. */
  readonly quiet: boolean;
  /** The cause that the current input shows. */
  readonly cause: Cause | null;
  /** A cause that the current input makes likely; a cause from history takes precedence. */
  readonly hindrance: Cause | null;
  /** The cause if no history can show another one. */
  readonly likelyCause: Cause | null;
}

export function difference(
  code: Code,
  object: string,
  field: string,
  expected: string | null,
  actual: string | null,
  extra: Partial<Difference> = {},
): Difference {
  const subject = '';
  const place = { address: null, pod: null, fields: null };
  const rest = { severity: null, quiet: false, cause: null, hindrance: null, likelyCause: null };
  return { code, object, field, subject, expected, actual, ...place, ...rest, ...extra };
}

/** The details of a difference, one for each field. */
export function detailsOf(difference: Difference): DifferenceDetail[] {
  const { code, address, pod, object, field, expected, actual, fields } = difference;
  return (fields ?? [[field, expected, actual] as const]).map(([name, want, got]) => {
    return { code, address, pod, field: name, expected: want, actual: got, object };
  });
}
