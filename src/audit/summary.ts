// The cluster in numbers: how many outputs have which verdict, why some are unknown, what is
// foreign, and since when the oldest difference is pending.

import type { Finding } from './findings.ts';
import type { Ledger } from './ledger.ts';
import type { NodesSummary } from './nodes.ts';
import type { Judged, Stale, Unknown, Verdict } from './verdict.ts';
import { isForeign, nothingStale, reasonOf, verdictOf, written } from './verdict.ts';

export interface Summary {
  /** Services that exist. */
  readonly services: number;
  readonly verdicts: Readonly<Record<Judged, Record<Verdict, number>>>;
  /** Service ports by verdict, of each node whose rules are known; one that is not is unknown. */
  readonly nodes: readonly (Readonly<Record<Verdict, number>> & { readonly node: string })[];
  /** Outputs that cannot be judged, and Services that no version could be read of, by reason. */
  readonly unknown: Readonly<Partial<Record<Unknown, number>>>;
  /** Services, or names without a Service, whose endpoints somebody else writes. */
  readonly foreign: number;
  /** Standing findings, worst first. */
  readonly findings: readonly Finding[];
  /** Start of the oldest difference that is pending, per output; absent where none is. */
  readonly pendingSince: Readonly<Partial<Record<Judged, number>>>;
}

const none = (): Record<Verdict, number> => ({ conform: 0, pending: 0, different: 0, unknown: 0 });

/** What is known before anything is. */
export const emptySummary: Summary = {
  services: 0,
  verdicts: { endpoints: none(), endpointslices: none(), mirrored: none(), node: none() },
  nodes: [],
  unknown: {},
  foreign: 0,
  findings: [],
  pendingSince: {},
};

interface SummaryOptions {
  readonly within?: (one: { readonly namespace: string }) => boolean;
  readonly stale?: Stale;
  readonly nodes?: NodesSummary | null;
}

/** What is about a whole node concerns every namespace. */
export const concerns =
  (within: (one: { readonly namespace: string }) => boolean) =>
  (finding: Finding): boolean =>
    within(finding) || (finding.node !== null && finding.namespace === '');

/**
 * Counts the whole ledger, or the namespaces that `within` admits; linear in the number of
 * Services. Outputs that rest on a resource that is `stale` are unknown.
 */
export function summarize(
  ledger: Ledger,
  { within = () => true, stale = nothingStale, nodes = null }: SummaryOptions = {},
): Summary {
  const { snapshot } = ledger;
  const verdicts = {
    endpoints: none(),
    endpointslices: none(),
    mirrored: none(),
    node: none(),
  };
  const unknown: Partial<Record<Unknown, number>> = {};
  const pendingSince: Partial<Record<Judged, number>> = {};
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
  const byNode = countNodes(nodes, within, verdicts.node, unknown);
  if (nodes !== null && nodes.pendingSince !== null) pendingSince.node = nodes.pendingSince;
  return {
    services,
    verdicts,
    nodes: byNode,
    unknown,
    foreign,
    findings: inOrder(ledger.settle.open().filter(concerns(within))),
    pendingSince,
  };
}

/** Adds to `total` and `unknown` what is counted of each node. */
function countNodes(
  nodes: NodesSummary | null,
  within: (one: { readonly namespace: string }) => boolean,
  total: Record<Verdict, number>,
  unknown: Partial<Record<Unknown, number>>,
): Summary['nodes'] {
  return [...(nodes?.verdicts ?? [])].map(([node, ports]) => {
    const counts = none();
    for (const { namespace, port, verdict, reason } of ports) {
      if (port !== '' && !within({ namespace })) continue;
      counts[verdict]++;
      total[verdict]++;
      if (reason !== null) unknown[reason] = (unknown[reason] ?? 0) + 1;
    }
    return { node, ...counts };
  });
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

type Named = Pick<Finding, 'severity' | 'namespace' | 'service' | 'output' | 'code' | 'node'>;

/** A finding that stands is one object until it changes. */
const keys = new WeakMap<Named, string>();

function keyOf(finding: Named): string {
  const known = keys.get(finding);
  if (known !== undefined) return known;
  const { severity, namespace, service, output, node, code } = finding;
  const key = `${rank[severity]} ${namespace}/${service} ${output} ${node ?? ''} ${code}`;
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
