// Counts the cluster: outputs by verdict, reasons for unknown verdicts, foreign endpoints, and the
// oldest pending difference. The summary is a sum of one share for each Service, so a caller can
// replace the share of a Service that changed (auditor/totals.ts).

import { addCounts, recordOf } from '../model/collections.ts';
import { type Finding, severities } from './finding/catalogue.ts';
import type { UnknownReason, Verdict } from './finding/verdicts.ts';
import type { NodesSummary } from './node/nodes.ts';
import { serviceOfPort } from './node/service-health.ts';
import type { ServiceAuditor } from './service/auditor.ts';
import type { AuditContext } from './service/cache.ts';
import type { ServiceOutput } from './service/enqueue.ts';
import type { ServiceAudit } from './service/reconcile.ts';
import { unservedReason, unservedReasons } from './service/unserved.ts';
import type { StaleResources, VerdictOutput } from './service/verdict.ts';
import {
  isForeign,
  isStale,
  noStaleResources,
  serviceOutputs,
  lossReason,
  unknownReason,
  verdictOf,
  verdictOutputs,
} from './service/verdict.ts';

type ReasonCounts = Partial<Record<UnknownReason, number>>;

export interface Summary extends Readonly<ReturnType<typeof summaryOf>> {
  readonly findings: readonly Finding[];
}

const none = (): Record<Verdict, number> => ({ conform: 0, pending: 0, different: 0, unknown: 0 });

export const emptySummary: Summary = {
  services: 0,
  verdicts: recordOf(verdictOutputs, none),
  nodes: [],
  unknown: {},
  foreign: 0,
  findings: [],
  pendingSince: {},
  unserved: recordOf(unservedReasons, () => 0),
};

export type ServiceShare = ReturnType<typeof shareOf>;

/** The share of one Service, or of a name without a Service, without stale resources. */
export function shareOf(context: AuditContext, audited: ServiceAudit) {
  const { listers } = context;
  const verdicts = recordOf(serviceOutputs, (output) => verdictOf(listers, audited, output));
  const reasons = recordOf(serviceOutputs, (output) =>
    verdicts[output] === 'unknown' ? unknownReason(audited, output) : null,
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
    /** null unless the verdict is unknown. */
    reasons,
    pendingSince,
    /** Why it cannot receive traffic; null if it can, or if that is unknown. */
    unserved: unservedReason(context, audited),
    /** A difference is pending, so time alone may change the share. */
    hasPending: items.some(({ openedAt }) => openedAt === null),
    open: items.some(({ openedAt }) => openedAt !== null),
  };
}

export type SummaryTotals = ReturnType<typeof createTotals>;

export const createTotals = () => ({
  services: 0,
  foreign: 0,
  verdicts: recordOf(serviceOutputs, none),
  unknown: recordOf(serviceOutputs, (): ReasonCounts => ({})),
  unserved: recordOf(unservedReasons, () => 0),
});

export function addShare(totals: SummaryTotals, share: ServiceShare, by: 1 | -1): void {
  if (share.exists) totals.services += by;
  if (share.foreign) totals.foreign += by;
  if (share.unserved !== null) totals.unserved[share.unserved] += by;
  for (const output of serviceOutputs) {
    const verdict = share.verdicts[output];
    if (verdict !== null) totals.verdicts[output][verdict] += by;
    const reason = share.reasons[output];
    if (reason !== null) addCounts<ReasonCounts>(totals.unknown[output], { [reason]: 1 }, by);
  }
}

/** Selects Services by namespace and name; the name is null if it could not be read. */
export type Within = (namespace: string, service: string | null) => boolean;

/** Selects findings by Service; a finding about a whole node concerns every Service. */
export const concerns =
  (within: Within) =>
  (finding: Finding): boolean =>
    within(finding.namespace, finding.service) ||
    (finding.node !== null && finding.namespace === '');

interface SummaryOptions {
  readonly within?: Within;
  readonly stale?: StaleResources;
  /** null if no rules of nodes are known. */
  readonly nodes?: NodesSummary | null;
}

/** `pending` are at least the shares of `totals` with a pending difference. */
export function summaryOf(
  serviceAuditor: ServiceAuditor,
  totals: SummaryTotals,
  pending: Iterable<ServiceShare>,
  { within = () => true, stale = noStaleResources, nodes = null }: SummaryOptions,
) {
  const verdicts = recordOf(verdictOutputs, none);
  const unknown: ReasonCounts = {};
  const count = (reason: UnknownReason | null, outputs: number): void => {
    if (outputs > 0 && reason !== null) unknown[reason] = (unknown[reason] ?? 0) + outputs;
  };
  for (const output of serviceOutputs) {
    const counts = totals.verdicts[output];
    const all = Object.values(counts).reduce((sum, outputs) => sum + outputs, 0);
    const isUnseen = isStale(output, stale);
    const reasons = isUnseen ? { 'input-stale': all } : totals.unknown[output];
    addCounts(verdicts[output], isUnseen ? { ...none(), unknown: all } : counts, 1);
    for (const [reason, sum] of Object.entries(reasons)) count(reason as UnknownReason, sum);
  }
  for (const lost of unreadServices(serviceAuditor, within)) count(lossReason(lost), 1);
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
      const service = serviceOfPort(port).slice(namespace.length + 1);
      if (port !== '' && !within(namespace, service)) continue;
      const isNew = isUnseen && known.verdict !== 'unknown';
      counts[isNew ? 'unknown' : known.verdict]++;
      count(isNew ? 'input-stale' : known.reason, 1);
    }
    addCounts(verdicts.node, counts, 1);
    return { node, ...counts };
  });
  if (nodes !== null && nodes.pendingSince !== null) pendingSince.node = nodes.pendingSince;
  return {
    services: totals.services,
    verdicts,
    nodes: byNode,
    /** Outputs with an unknown verdict, and unreadable Services, by reason. */
    unknown,
    /** Services, or names without a Service, with endpoints of another client. */
    foreign: totals.foreign,
    pendingSince,
    /** Services that cannot receive traffic, by reason. */
    unserved: { ...totals.unserved },
  };
}

/** Counts every Service, or those that `within` takes. */
export function summarize(serviceAuditor: ServiceAuditor, options: SummaryOptions = {}): Summary {
  const { within = () => true } = options;
  const totals = createTotals();
  const audited = [...serviceAuditor.audited.values()].filter(({ record }) =>
    within(record.namespace, record.name),
  );
  const shares = audited.map((service) => shareOf(serviceAuditor.context, service));
  for (const share of shares) addShare(totals, share, 1);
  const findings = inOrder(serviceAuditor.settle.open().filter(concerns(within)));
  return { ...summaryOf(serviceAuditor, totals, shares, options), findings };
}

/** Unreadable Services without a cached version: they have no share. */
const unreadServices = ({ unreadable, listers }: ServiceAuditor, within: Within) =>
  [...unreadable.values()].filter(
    ({ resource, namespace, name }) =>
      resource === 'services' &&
      // Its labels are unknown.
      (namespace === null || within(namespace, null)) &&
      !listers.services.has(`${namespace ?? ''}/${name ?? ''}`),
  );

type Named = Pick<Finding, 'severity' | 'namespace' | 'service' | 'output' | 'code' | 'node'>;

/** Sorts findings worst first, then by name, so that two reports of one state are equal. */
export const inOrder = <T extends Named>(findings: readonly T[]): T[] =>
  findings
    .map((finding) => {
      const { severity, namespace, service, output, node, code } = finding;
      const rank = severities.indexOf(severity);
      return { finding, key: `${rank} ${namespace}/${service} ${output} ${node ?? ''} ${code}` };
    })
    .sort((a, b) => (a.key < b.key ? -1 : 1))
    .map(({ finding }) => finding);
