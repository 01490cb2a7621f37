// Counts the cluster: outputs by verdict, reasons for unknown verdicts, foreign endpoints, and the
// oldest pending difference. The summary is a sum of one share for each Service, so a caller can
// keep the sum and replace the share of a Service that changed (auditor/totals.ts). Stale resources
// and the verdicts on nodes are added at the end.

import type { Listers } from '../model/objects.ts';
import type { Finding } from './finding/catalogue.ts';
import type { UnknownReason, Verdict } from './finding/verdicts.ts';
import type { NodesSummary } from './node/nodes.ts';
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

type ReasonCounts = Partial<Record<UnknownReason, number>>;

export interface Summary {
  /** Services that exist. */
  readonly services: number;
  readonly verdicts: Readonly<Record<VerdictOutput, Record<Verdict, number>>>;
  /** Service ports of each node by verdict. */
  readonly nodes: readonly (Readonly<Record<Verdict, number>> & { readonly node: string })[];
  /** Outputs with an unknown verdict, and unreadable Services, by reason. */
  readonly unknown: Readonly<ReasonCounts>;
  /** Services, or names without a Service, with endpoints of another client. */
  readonly foreign: number;
  /** Open findings, worst first. */
  readonly findings: readonly Finding[];
  /** Start of the oldest pending difference of each output. */
  readonly pendingSince: Readonly<Partial<Record<VerdictOutput, number>>>;
}

const none = (): Record<Verdict, number> => ({ conform: 0, pending: 0, different: 0, unknown: 0 });

/** The summary before the first audit. */
export const emptySummary: Summary = {
  services: 0,
  verdicts: { endpoints: none(), endpointslices: none(), mirrored: none(), node: none() },
  nodes: [],
  unknown: {},
  foreign: 0,
  findings: [],
  pendingSince: {},
};

const ofOutputs = <T>(value: (output: ServiceOutput) => T): Record<ServiceOutput, T> => ({
  endpoints: value('endpoints'),
  endpointslices: value('endpointslices'),
  mirrored: value('mirrored'),
});

export type ServiceShare = ReturnType<typeof shareOf>;

/** The share of one Service, or of a name without a Service, without stale resources. */
export function shareOf(listers: Listers, audited: ServiceAudit) {
  const verdicts = ofOutputs((output) => verdictOf(listers, audited, output));
  const reasons = ofOutputs((output) =>
    verdicts[output] === 'unknown' ? unknownReason(audited, output, noStaleResources) : null,
  );
  const items = [...audited.items.values()].flat();
  const pendingSince: Partial<Record<ServiceOutput, number>> = {};
  for (const { output, openedAt, since } of items) {
    if (openedAt !== null || output === 'input' || output === 'node') continue;
    pendingSince[output] = Math.min(pendingSince[output] ?? Infinity, since);
  }
  return {
    exists: audited.record.service !== null,
    foreign: isForeign(listers, audited),
    /** null if no controller must write the output. */
    verdicts,
    /** Of unknown verdicts; null for others. */
    reasons,
    /** Start of the oldest pending difference of each output. */
    pendingSince,
    /** A difference is pending, so time alone may change the share. */
    hasPending: items.some(({ openedAt }) => openedAt === null),
    /** A finding is open. */
    open: items.some(({ openedAt }) => openedAt !== null),
  };
}

/** The sum of shares. */
export type SummaryTotals = ReturnType<typeof createTotals>;

export const createTotals = () => ({
  services: 0,
  foreign: 0,
  verdicts: ofOutputs(none),
  unknown: ofOutputs((): ReasonCounts => ({})),
});

/** Adds a share, or subtracts it. */
export function addShare(totals: SummaryTotals, share: ServiceShare, by: 1 | -1): void {
  if (share.exists) totals.services += by;
  if (share.foreign) totals.foreign += by;
  for (const output of serviceOutputs) {
    const verdict = share.verdicts[output];
    if (verdict !== null) totals.verdicts[output][verdict] += by;
    addReason(totals.unknown[output], share.reasons[output], by);
  }
}

function addReason(counts: ReasonCounts, reason: UnknownReason | null, by: number): void {
  if (reason !== null) counts[reason] = (counts[reason] ?? 0) + by;
}

/** Selects namespaces. */
type Within = (object: { readonly namespace: string }) => boolean;

const everywhere: Within = () => true;

/** Selects findings by namespace; a finding about a whole node concerns every namespace. */
export const concerns =
  (within: Within) =>
  (finding: Finding): boolean =>
    within(finding) || (finding.node !== null && finding.namespace === '');

interface SummaryOptions {
  readonly within?: Within;
  readonly stale?: StaleResources;
  /** null if no rules of nodes are known. */
  readonly nodes?: NodesSummary | null;
}

/**
 * The summary without findings; `pending` are at least the shares of `totals` with a pending
 * difference. Outputs that depend on a stale resource are unknown.
 */
export function summaryOf(
  serviceAuditor: ServiceAuditor,
  totals: SummaryTotals,
  pending: Iterable<ServiceShare>,
  { within = everywhere, stale = noStaleResources, nodes = null }: SummaryOptions,
): Omit<Summary, 'findings'> {
  const verdicts = { ...emptySummary.verdicts, node: none() };
  const unknown: ReasonCounts = {};
  const count = (reason: UnknownReason | null, outputs: number): void => {
    if (outputs > 0) addReason(unknown, reason, outputs);
  };
  for (const output of serviceOutputs) {
    const counts = totals.verdicts[output];
    if (isStale(output, stale)) {
      const all = Object.values(counts).reduce((sum, outputs) => sum + outputs, 0);
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
  for (const share of pending) {
    for (const output of serviceOutputs) {
      const since = share.pendingSince[output] ?? Infinity;
      if (since < (pendingSince[output] ?? Infinity)) pendingSince[output] = since;
    }
  }
  const isUnseen = isStale('node', stale);
  const byNode = [...(nodes?.verdicts ?? [])].map(([node, ports]) => {
    const counts = none();
    for (const { namespace, port, ...known } of ports) {
      if (port !== '' && !within({ namespace })) continue;
      const isNew = isUnseen && known.verdict !== 'unknown';
      const { verdict, reason } = isNew ? staleVerdict : known;
      counts[verdict]++;
      verdicts.node[verdict]++;
      count(reason, 1);
    }
    return { node, ...counts };
  });
  if (nodes !== null && nodes.pendingSince !== null) pendingSince.node = nodes.pendingSince;
  const { services, foreign } = totals;
  return { services, verdicts, nodes: byNode, unknown, foreign, pendingSince };
}

const staleVerdict = { verdict: 'unknown', reason: 'input-stale' } as const;

/** Counts every Service, or those of the namespaces that `within` takes. */
export function summarize(serviceAuditor: ServiceAuditor, options: SummaryOptions = {}): Summary {
  const { within = everywhere } = options;
  const totals = createTotals();
  const audited = [...serviceAuditor.audited.values()].filter(({ record }) => within(record));
  const shares = audited.map((service) => shareOf(serviceAuditor.listers, service));
  for (const share of shares) addShare(totals, share, 1);
  const findings = inOrder(serviceAuditor.settle.open().filter(concerns(within)));
  return { ...summaryOf(serviceAuditor, totals, shares, options), findings };
}

/** Unreadable Services without a cached version: they have no share. */
const unreadServices = ({ unreadable, listers }: ServiceAuditor, within: Within): number =>
  [...unreadable.values()].filter(
    ({ resource, namespace, name }) =>
      resource === 'services' &&
      (namespace === null || within({ namespace })) &&
      !listers.services.has(`${namespace ?? ''}/${name ?? ''}`),
  ).length;

const rank = { critical: 0, warning: 1, info: 2 } as const;

type Named = Pick<Finding, 'severity' | 'namespace' | 'service' | 'output' | 'code' | 'node'>;

const sortKey = ({ severity, namespace, service, output, node, code }: Named): string =>
  `${rank[severity]} ${namespace}/${service} ${output} ${node ?? ''} ${code}`;

/** Sorts findings worst first, then by name, so that two reports of one state are equal. */
export const inOrder = <T extends Named>(findings: readonly T[]): T[] =>
  findings
    .map((finding) => ({ finding, key: sortKey(finding) }))
    .sort((a, b) => (a.key < b.key ? -1 : 1))
    .map(({ finding }) => finding);
