// The differences and findings of the reference auditor: all open differences of one Service,
// output, code and cause are one finding (docs/decisions/0028).

import type { Finding, Output, Severity } from '../../src/audit/finding/catalogue.ts';
import { isWorse } from '../../src/audit/finding/catalogue.ts';
import type { Cause } from '../../src/audit/finding/causes.ts';
import type { Difference } from '../../src/audit/finding/difference.ts';
import type { Key } from '../../src/model/objects.ts';
import type { Located } from './cluster.ts';

/** A difference while it exists. */
export interface Known extends Located {
  difference: Difference;
  readonly key: Key;
  severity: Severity;
  cause: Cause | null;
  /** Whether the state shows the cause, which ends with that state. */
  shown: boolean;
  proven: boolean;
  causeAt: number;
  /** Since when the difference exists, or the trouble that it continues. */
  clock: number;
  /** Seconds of the window that do not count. */
  unseen: number;
  /** The clocks of lesser harm at this address, which a later difference may continue. */
  lesser: readonly Known[];
  /** When its window ends. */
  due: number;
  openedAt: number | null;
  /** When changes were missed that may hide its end, while it was open; -Infinity: none were. */
  doubtedAt: number;
  finding: ExpectedFinding | null;
}

export interface ExpectedFinding {
  readonly key: Key;
  readonly output: Output;
  readonly code: string;
  readonly cause: Cause | null;
  readonly openedAt: number;
  /** The earliest of the differences that it opened with. */
  sinceAtOpen: number;
  /** The earliest of all differences that it had. */
  since: number;
  severity: Severity;
  resolvedAt: number | null;
  readonly open: Set<Known>;
  differences: number;
}

/** Opens differences at a moment: each joins its finding, or is the first of a new one. */
export function openAll(findings: ExpectedFinding[], all: readonly Known[], at: number): void {
  for (const one of all) {
    const { key, output, cause, severity } = one;
    const { code } = one.difference;
    one.openedAt = at;
    let finding = findings.findLast(
      (other) =>
        other.resolvedAt === null &&
        other.key === key &&
        other.output === output &&
        other.code === code &&
        other.cause === cause,
    );
    if (finding === undefined) {
      finding = {
        key,
        output,
        code,
        cause,
        openedAt: at,
        sinceAtOpen: one.clock,
        since: one.clock,
        severity,
        resolvedAt: null,
        open: new Set(),
        differences: 0,
      };
      findings.push(finding);
    }
    if (finding.openedAt === at) finding.sinceAtOpen = Math.min(finding.sinceAtOpen, one.clock);
    finding.since = Math.min(finding.since, one.clock);
    finding.open.add(one);
    finding.differences++;
    if (isWorse(severity, finding.severity)) finding.severity = severity;
    one.finding = finding;
  }
}

/** The difference is over, or goes on as another one. */
export function close(one: Known, at: number): void {
  const { finding } = one;
  if (finding === null) return;
  finding.open.delete(one);
  if (finding.open.size === 0) finding.resolvedAt = at;
  Object.assign(one, { finding: null, openedAt: null });
}

/** A finding as it is printed. */
export const findingText = (one: Finding | ExpectedFinding): string => {
  const key = 'key' in one ? one.key : `${one.namespace}/${one.service}`;
  return `${key} ${one.output} ${one.code} ${one.cause ?? '-'}`;
};
