// The cluster in numbers: how many outputs have which verdict, why some are unknown, what is
// foreign, and since when the oldest difference is pending.

import type { Finding } from './findings.ts';
import type { Ledger } from './ledger.ts';
import type { Written } from './touch.ts';
import type { Stale, Unknown, Verdict } from './verdict.ts';
import { isForeign, nothingStale, reasonOf, verdictOf, written } from './verdict.ts';

export interface Summary {
  /** Services that exist. */
  readonly services: number;
  readonly verdicts: Readonly<Record<Written, Record<Verdict, number>>>;
  /** Outputs that cannot be judged, and Services that no version could be read of, by reason. */
  readonly unknown: Readonly<Partial<Record<Unknown, number>>>;
  /** Services, or names without a Service, whose endpoints somebody else writes. */
  readonly foreign: number;
  /** Standing findings, worst first. */
  readonly findings: readonly Finding[];
  /** Start of the oldest difference that is pending, per output; absent where none is. */
  readonly pendingSince: Readonly<Partial<Record<Written, number>>>;
}

const none = (): Record<Verdict, number> => ({ conform: 0, pending: 0, different: 0, unknown: 0 });

/** What is known before anything is. */
export const emptySummary: Summary = {
  services: 0,
  verdicts: { endpoints: none(), endpointslices: none(), mirrored: none() },
  unknown: {},
  foreign: 0,
  findings: [],
  pendingSince: {},
};

/**
 * Counts the whole ledger, or the namespaces that `within` admits; linear in the number of
 * Services. Outputs that rest on a resource that is `stale` are unknown.
 */
export function summarize(
  ledger: Ledger,
  within: (one: { readonly namespace: string }) => boolean = () => true,
  stale: Stale = nothingStale,
): Summary {
  const { snapshot } = ledger;
  const verdicts = { endpoints: none(), endpointslices: none(), mirrored: none() };
  const unknown: Partial<Record<Unknown, number>> = {};
  const pendingSince: Partial<Record<Written, number>> = {};
  let foreign = 0;
  let services = 0;
  for (const audited of ledger.audited.values()) {
    if (!within(audited.record)) continue;
    if (audited.record.service !== null) services++;
    if (isForeign(snapshot, audited)) foreign++;
    for (const output of written) {
      const verdict = verdictOf(snapshot, audited, output, stale);
      if (verdict === null) continue;
      verdicts[output][verdict]++;
      const reason = verdict === 'unknown' ? reasonOf(audited, output, stale) : null;
      if (reason !== null) unknown[reason] = (unknown[reason] ?? 0) + 1;
    }
    for (const items of audited.items.values()) {
      for (const { output, openedAt, since } of items) {
        if (openedAt !== null || output === 'input' || output === 'node') continue;
        pendingSince[output] = Math.min(pendingSince[output] ?? Infinity, since);
      }
    }
  }
  const unread = unreadServices(ledger, within);
  if (unread > 0) unknown['object-unreadable'] = (unknown['object-unreadable'] ?? 0) + unread;
  return {
    services,
    verdicts,
    unknown,
    foreign,
    findings: inOrder(ledger.settle.open().filter(within)),
    pendingSince,
  };
}

/** What is written for such a Service has no verdict, so the Service itself is counted. */
function unreadServices(
  { lost, snapshot }: Ledger,
  within: (one: { readonly namespace: string }) => boolean,
): number {
  let count = 0;
  for (const { resource, namespace, name } of lost.values()) {
    if (resource !== 'services' || (namespace !== null && !within({ namespace }))) continue;
    if (!snapshot.services.has(`${namespace ?? ''}/${name ?? ''}`)) count++;
  }
  return count;
}

const rank = { critical: 0, warning: 1, info: 2 } as const;

type Named = Pick<Finding, 'severity' | 'namespace' | 'service' | 'output' | 'code'>;

/** A finding that stands is one object until it changes. */
const keys = new WeakMap<Named, string>();

function keyOf(finding: Named): string {
  const known = keys.get(finding);
  if (known !== undefined) return known;
  const { severity, namespace, service, output, code } = finding;
  const key = `${rank[severity]} ${namespace}/${service} ${output} ${code}`;
  keys.set(finding, key);
  return key;
}

/** Findings worst first, then by name, so that two reports of one state are equal. */
export function inOrder<T extends Named>(findings: readonly T[]): T[] {
  return findings
    .map((finding) => ({ finding, key: keyOf(finding) }))
    .sort((a, b) => (a.key < b.key ? -1 : 1))
    .map(({ finding }) => finding);
}
