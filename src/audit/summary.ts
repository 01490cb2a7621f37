// The cluster in numbers: how many outputs have which verdict, why some are unknown, what is
// foreign, and since when the oldest difference is pending. It is a sum of what each Service adds,
// so that whoever follows the cluster can keep the sum and replace what a Service added when that
// changes (tally.ts). What cannot be seen at a moment is laid over the sum, and so is what is
// judged on nodes.

import type { Listers } from '../model/objects.ts';
import type { Finding } from './finding/catalogue.ts';
import type { UnknownReason, Verdict } from './finding/verdicts.ts';
import type { NodesSummary } from './node/nodes.ts';
import type { NodeVerdict } from './node/verdicts.ts';
import type { ServiceAuditor } from './service/auditor.ts';
import type { ServiceOutput } from './service/enqueue.ts';
import type { ServiceAudit } from './service/reconcile.ts';
import type { VerdictOutput, StaleResources } from './service/verdict.ts';
import {
  isForeign,
  isStale,
  noStaleResources,
  unknownReason,
  verdictOf,
  serviceOutputs,
} from './service/verdict.ts';

export interface Summary {
  /** Services that exist. */
  readonly services: number;
  readonly verdicts: Readonly<Record<VerdictOutput, Record<Verdict, number>>>;
  /** Service ports by verdict, of each node whose rules are known; one that is not is unknown. */
  readonly nodes: readonly (Readonly<Record<Verdict, number>> & { readonly node: string })[];
  /** Outputs that cannot be judged, and Services that no version could be read of, by reason. */
  readonly unknown: Readonly<Partial<Record<UnknownReason, number>>>;
  /** Services, or names without a Service, whose endpoints somebody else writes. */
  readonly foreign: number;
  /** Standing findings, worst first. */
  readonly findings: readonly Finding[];
  /** Start of the oldest difference that is pending, per output; absent where none is. */
  readonly pendingSince: Readonly<Partial<Record<VerdictOutput, number>>>;
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
  readonly verdicts: Readonly<Record<ServiceOutput, Verdict | null>>;
  /** Why a verdict is unknown; null where it is another. */
  readonly reasons: Readonly<Record<ServiceOutput, UnknownReason | null>>;
  /** Start of the oldest difference that is pending, per output; absent where none is. */
  readonly pendingSince: Readonly<Partial<Record<ServiceOutput, number>>>;
  /** Something is pending, so that time alone may change this. */
  readonly hasPending: boolean;
  /** A finding stands. */
  readonly open: boolean;
}

export function shareOf(listers: Listers, audited: ServiceAudit): ServiceShare {
  const verdicts = { endpoints: null, endpointslices: null, mirrored: null } as Record<
    ServiceOutput,
    Verdict | null
  >;
  const reasons = { endpoints: null, endpointslices: null, mirrored: null } as Record<
    ServiceOutput,
    UnknownReason | null
  >;
  for (const output of serviceOutputs) {
    const verdict = verdictOf(listers, audited, output);
    verdicts[output] = verdict;
    if (verdict === 'unknown') reasons[output] = unknownReason(audited, output, noStaleResources);
  }
  const pendingSince: Partial<Record<ServiceOutput, number>> = {};
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
  const foreign = isForeign(listers, audited);
  return { exists, foreign, verdicts, reasons, pendingSince, hasPending: restless, open };
}

/** The sum of shares. */
export interface SummaryTotals {
  services: number;
  foreign: number;
  readonly verdicts: Readonly<Record<ServiceOutput, Record<Verdict, number>>>;
  readonly unknown: Readonly<Record<ServiceOutput, Partial<Record<UnknownReason, number>>>>;
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
  for (const output of serviceOutputs) {
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
  readonly stale?: StaleResources;
  /** null: no node's rules were told of. */
  readonly nodes?: NodesSummary | null;
}

/**
 * The summary of a ledger without its findings; `restless` are at least those shares of `totals` in
 * which something is pending. Outputs that rest on a resource that is `stale` are unknown.
 */
export function summaryOf(
  serviceAuditor: ServiceAuditor,
  totals: SummaryTotals,
  restless: Iterable<ServiceShare>,
  { within = everywhere, stale = noStaleResources, nodes = null }: SummaryOptions,
): Omit<Summary, 'findings'> {
  const verdicts = { ...emptySummary.verdicts, node: none() };
  const unknown: Partial<Record<UnknownReason, number>> = {};
  const count = (reason: UnknownReason, more: number): void => {
    if (more > 0) unknown[reason] = (unknown[reason] ?? 0) + more;
  };
  for (const output of serviceOutputs) {
    const counts = totals.verdicts[output];
    if (isStale(output, stale)) {
      const { conform, pending, different, unknown: before } = counts;
      const all = conform + pending + different + before;
      verdicts[output] = { ...none(), unknown: all };
      count('input-stale', all);
    } else {
      verdicts[output] = { ...counts };
      const reasons = Object.entries(totals.unknown[output]) as [UnknownReason, number][];
      for (const [reason, outputs] of reasons) count(reason, outputs);
    }
  }
  count('object-unreadable', unreadServices(serviceAuditor, within));
  const pendingSince: Partial<Record<VerdictOutput, number>> = {};
  for (const share of restless) {
    for (const output of serviceOutputs) {
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
  each: (verdict: Verdict, reason: UnknownReason | null) => void,
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
export function summarize(serviceAuditor: ServiceAuditor, options: SummaryOptions = {}): Summary {
  const { within = everywhere } = options;
  const totals = createTotals();
  const restless: ServiceShare[] = [];
  for (const audited of serviceAuditor.audited.values()) {
    if (!within(audited.record)) continue;
    const share = shareOf(serviceAuditor.listers, audited);
    addShare(totals, share, 1);
    if (share.hasPending) restless.push(share);
  }
  const findings = inOrder(serviceAuditor.settle.open().filter(concerns(within)));
  return { ...summaryOf(serviceAuditor, totals, restless, options), findings };
}

/** What is written for such a Service has no verdict, so the Service itself is counted. */
function unreadServices({ unreadable, listers }: ServiceAuditor, within: Within): number {
  let count = 0;
  for (const { resource, namespace, name } of unreadable.values()) {
    if (resource !== 'services' || (namespace !== null && !within({ namespace }))) continue;
    if (!listers.services.has(`${namespace ?? ''}/${name ?? ''}`)) count++;
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
