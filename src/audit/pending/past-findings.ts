// What a checkpoint of a recording has of findings beside the differences that are open: those that
// are resolved, and of an open one the differences that have ended.

import { hasForms, isFlag, isListOf, isNumber, isText } from '../../model/collections.ts';
import type { Finding, Output, Severity } from '../finding/catalogue.ts';
import type { Cause } from '../finding/causes.ts';
import type { Difference } from '../finding/difference.ts';
import { isCause, isDifference, isOutput, isSeverity } from '../finding/saved-finding.ts';

/** What a finding shows of a difference that has ended. */
interface EndedDifference {
  readonly difference: Difference;
  readonly output: Output;
  readonly severity: Severity;
  readonly cause: Cause | null;
  readonly proven?: boolean;
  readonly since: number;
  readonly openedAt: number | null;
}

/** What an open finding had before. */
export interface PastOfOpen {
  readonly key: string;
  readonly worst: Severity;
  /** The first differences that it had, as far as they have ended. */
  readonly ended: readonly EndedDifference[];
}

export interface PastFindings {
  /** The oldest first. */
  readonly resolved: readonly Finding[];
  readonly forgotten: number;
  readonly open: readonly PastOfOpen[];
}

interface OpenFinding {
  readonly key: string;
  readonly node: string | null;
  readonly worst: Severity;
  readonly all: readonly EndedDifference[];
  readonly items: ReadonlySet<EndedDifference>;
}

/** None if the differences that it has now show the same. Those of nodes are saved with them. */
export function pastOfOpen({ key, node, worst, all, items }: OpenFinding): PastOfOpen[] {
  if (node !== null) return [];
  const ended = all.filter((it) => !items.has(it));
  if (ended.length === 0 && [...items].some(({ severity }) => severity === worst)) return [];
  const shown = ended.map(({ difference, output, severity, cause, since, openedAt, ...it }) => {
    return { difference, output, severity, cause, proven: it.proven === true, since, openedAt };
  });
  return [{ key, worst, ended: shown }];
}

export const isPastOfOpen = hasForms({
  key: isText,
  worst: isSeverity,
  ended: isListOf(
    hasForms({
      difference: isDifference,
      output: isOutput,
      severity: isSeverity,
      cause: isCause,
      proven: isFlag,
      since: isNumber,
      openedAt: isNumber,
    }),
  ),
});
