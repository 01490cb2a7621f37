// The cluster in numbers: how many outputs have which verdict, why some are unknown, what is
// foreign, and since when the oldest difference is pending. It is a sum of what each Service adds,
// so that whoever follows the cluster can keep the sum and replace what a Service added when that
// changes (tally.ts). What cannot be seen at a moment is laid over the sum, and so is what is
// judged on nodes.

import type { Snapshot } from '../model/objects.ts';
import type { Finding } from './finding/catalogue.ts';
import type { Unknown, Verdict } from './finding/verdicts.ts';
import type { NodesSummary } from './node/nodes.ts';
import type { NodeVerdict } from './node/verdicts.ts';
import type { Ledger } from './service/auditor.ts';
import type { Written } from './service/enqueue.ts';
import type { Audited } from './service/reconcile.ts';
import type { Judged, Stale } from './service/verdict.ts';
import {
  isForeign,
  isStale,
  nothingStale,
  reasonOf,
  verdictOf,
  written,
} from './service/verdict.ts';

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

/** What one Service, or a name without one, adds to the summary while all that it needs is seen. */
export interface ServiceShare {
  readonly exists: boolean;
  readonly foreign: boolean;
  /** null: nobody has to write the output. */
  readonly verdicts: Readonly<Record<Written, Verdict | null>>;
  /** Why a verdict is unknown; null where it is another. */
  readonly reasons: Readonly<Record<Written, Unknown | null>>;
  /** Start of the oldest difference that is pending, per output; absent where none is. */
  readonly pendingSince: Readonly<Partial<Record<Written, number>>>;
  /** Something is pending, so that time alone may change this. */
  readonly hasPending: boolean;
  /** A finding stands. */
  readonly open: boolean;
}

export function shareOf(snapshot: Snapshot, audited: Audited): ServiceShare {
  const verdicts = { endpoints: null, endpointslices: null, mirrored: null } as Record<
    Written,
    Verdict | null
  >;
  const reasons = { endpoints: null, endpointslices: null, mirrored: null } as Record<
    Written,
    Unknown | null
  >;
  for (const output of written) {
    const verdict = verdictOf(snapshot, audited, output);
    verdicts[output] = verdict;
    if (verdict === 'unknown') reasons[output] = reasonOf(audited, output, nothingStale);
  }
  const pendingSince: Partial<Record<Written, number>> = {};
  let restless = false;
  let open = false;
  for (const items of audited.items.values()) {
    for (const { output, openedAt, since } of items) {
      if (openedAt !== null) open = true;
      else restless = true;
      if (openedAt !== null || output === 'input' || output === 'node') continue;
      pendingSince[output] = Math.min(pendingSince[output] ?? Infinity, since);
    }
  }
  const exists = audited.record.service !== null;
  const foreign = isForeign(snapshot, audited);
  return { exists, foreign, verdicts, reasons, pendingSince, hasPending: restless, open };
}

/** The sum of shares. */
export interface SummaryTotals {
  services: number;
  foreign: number;
  readonly verdicts: Readonly<Record<Written, Record<Verdict, number>>>;
  readonly unknown: Readonly<Record<Written, Partial<Record<Unknown, number>>>>;
}

export function createTotals(): SummaryTotals {
  return {
    services: 0,
    foreign: 0,
    verdicts: { endpoints: none(), endpointslices: none(), mirrored: none() },
    unknown: { endpoints: {}, endpointslices: {}, mirrored: {} },
  };
}

/** Adds a share, or takes away one that was added. */
export function addShare(totals: SummaryTotals, share: ServiceShare, by: 1 | -1): void {
  if (share.exists) totals.services += by;
  if (share.foreign) totals.foreign += by;
  for (const output of written) {
    const verdict = share.verdicts[output];
    if (verdict !== null) totals.verdicts[output][verdict] += by;
    const reason = share.reasons[output];
    if (reason === null) continue;
    const reasons = totals.unknown[output];
    reasons[reason] = (reasons[reason] ?? 0) + by;
  }
}

type Within = (one: { readonly namespace: string }) => boolean;

const everywhere: Within = () => true;

/** What is about a whole node concerns every namespace. */
export const concerns =
  (within: Within) =>
  (finding: Finding): boolean =>
    within(finding) || (finding.node !== null && finding.namespace === '');

interface SummaryOptions {
  readonly within?: Within;
  readonly stale?: Stale;
  /** null: no node's rules were told of. */
  readonly nodes?: NodesSummary | null;
}

/**
 * The summary of a ledger without its findings; `restless` are at least those shares of `totals` in
 * which something is pending. Outputs that rest on a resource that is `stale` are unknown.
 */
export function summaryOf(
  ledger: Ledger,
  totals: SummaryTotals,
  restless: Iterable<ServiceShare>,
  { within = everywhere, stale = nothingStale, nodes = null }: SummaryOptions,
): Omit<Summary, 'findings'> {
  const verdicts = { ...emptySummary.verdicts, node: none() };
  const unknown: Partial<Record<Unknown, number>> = {};
  const count = (reason: Unknown, more: number): void => {
    if (more > 0) unknown[reason] = (unknown[reason] ?? 0) + more;
  };
  for (const output of written) {
    const counts = totals.verdicts[output];
    if (isStale(output, stale)) {
      const { conform, pending, different, unknown: before } = counts;
      const all = conform + pending + different + before;
      verdicts[output] = { ...none(), unknown: all };
      count('input-stale', all);
    } else {
      verdicts[output] = { ...counts };
      const reasons = Object.entries(totals.unknown[output]) as [Unknown, number][];
      for (const [reason, outputs] of reasons) count(reason, outputs);
    }
  }
  count('object-unreadable', unreadServices(ledger, within));
  const pendingSince: Partial<Record<Judged, number>> = {};
  for (const share of restless) {
    for (const output of written) {
      const since = Math.min(
        share.pendingSince[output] ?? Infinity,
        pendingSince[output] ?? Infinity,
      );
      if (since < Infinity) pendingSince[output] = since;
    }
  }
  const seen = isStale('node', stale) ? unseen(nodes) : nodes;
  const byNode = countNodes(seen, within, (verdict, reason) => {
    verdicts.node[verdict]++;
    if (reason !== null) count(reason, 1);
  });
  if (nodes !== null && nodes.pendingSince !== null) pendingSince.node = nodes.pendingSince;
  const { services, foreign } = totals;
  return { services, verdicts, nodes: byNode, unknown, foreign, pendingSince };
}

/** What a node should do is not known while what it is told cannot be seen. */
function unseen(nodes: NodesSummary | null): NodesSummary | null {
  if (nodes === null) return null;
  const verdicts = [...nodes.verdicts].map(([node, ports]) => {
    return [node, ports.map(asUnknown)] as const;
  });
  return { ...nodes, verdicts: new Map(verdicts) };
}

const asUnknown = (port: NodeVerdict): NodeVerdict =>
  port.verdict === 'unknown' ? port : { ...port, verdict: 'unknown', reason: 'input-stale' };

/** What is counted of each node; `each` is told of every verdict. */
function countNodes(
  nodes: NodesSummary | null,
  within: Within,
  each: (verdict: Verdict, reason: Unknown | null) => void,
): Summary['nodes'] {
  return [...(nodes?.verdicts ?? [])].map(([node, ports]) => {
    const counts = none();
    for (const { namespace, port, verdict, reason } of ports) {
      if (port !== '' && !within({ namespace })) continue;
      counts[verdict]++;
      each(verdict, reason);
    }
    return { node, ...counts };
  });
}

/**
 * Counts the whole ledger, or the namespaces that `within` admits; linear in the number of
 * Services.
 */
export function summarize(ledger: Ledger, options: SummaryOptions = {}): Summary {
  const { within = everywhere } = options;
  const totals = createTotals();
  const restless: ServiceShare[] = [];
  for (const audited of ledger.audited.values()) {
    if (!within(audited.record)) continue;
    const share = shareOf(ledger.snapshot, audited);
    addShare(totals, share, 1);
    if (share.hasPending) restless.push(share);
  }
  const findings = inOrder(ledger.settle.open().filter(concerns(within)));
  return { ...summaryOf(ledger, totals, restless, options), findings };
}

/** What is written for such a Service has no verdict, so the Service itself is counted. */
function unreadServices({ lost, snapshot }: Ledger, within: Within): number {
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
