// The state of an auditor at one moment, for whoever asks the server: readiness with its reasons,
// the numbers of /metrics, and one Service in full.
//
// The auditor is ready when every list is complete and judged, and no input that is needed has been
// out of sight for a minute. Until then, nobody should take silence for health.

import type { Fleet } from '../agent/client/scraper.ts';
import type { Finding } from '../audit/finding/catalogue.ts';
import type { UnknownReason, Verdict } from '../audit/finding/verdicts.ts';
import { fillGroups } from '../audit/measure/fill.ts';
import type { NodeVerdict } from '../audit/node/verdicts.ts';
import { slicesOf } from '../audit/service/cache.ts';
import type { ServiceAudit } from '../audit/service/reconcile.ts';
import { unknownReason, verdictOf, serviceOutputs } from '../audit/service/verdict.ts';
import { emptySummary, inOrder } from '../audit/summary.ts';
import { version } from '../model/program-version.ts';
import type { AuditorQueries, NodeStatus } from '../output/http/server.ts';
import type { AgentMetrics, MetricsState, WatchMetrics } from '../output/metrics/state.ts';
import { noAgents, noHintCounts } from '../output/metrics/state.ts';
import type { ServiceNumbers } from '../output/metrics/service-families.ts';
import type { PerServiceOptions, ServiceSeries } from '../output/metrics/service-rows.ts';
import { createServiceRows, noServiceSeries } from '../output/metrics/service-rows.ts';
import type { UnsettledDifference, ServiceStatus } from '../output/page/service-status.ts';
import type { PageStatus } from '../output/page/status.ts';
import type { TracingCounts } from '../output/traces/sender.ts';
import { noTracingCounts } from '../output/traces/tracing.ts';
import type { Auditor } from './auditor.ts';
import { explainWords, nodeView, serviceView } from './explanations.ts';
import { lagReportOf } from './reports.ts';

/** Seconds without sight of a needed resource after which the auditor is not ready. */
const unseenLimit = 60;

/** What is known of live input besides what the auditor knows; without it, nothing. */
export interface LiveStatus {
  readonly stuck: () => string | null;
  readonly counters: () => WatchMetrics['counters'];
  /** What became of traces; absent: none are sent. */
  readonly tracing?: TracingCounts;
  /** The agents of nodes; null: they are not asked. */
  readonly fleet: Fleet | null;
}

/** Input that is not live. */
export const notLive: LiveStatus = { stuck: () => null, counters: () => new Map(), fleet: null };

/** What the server asks; `source` as PageStatus has it. */
export function answersOf(
  auditor: Auditor,
  source: string,
  live: LiveStatus = notLive,
  perService: PerServiceOptions = { mode: 'off', max: 0 },
): AuditorQueries {
  const now = (): number => auditor.now() ?? 0;
  const rows = createServiceRows(perService);
  const service = (namespace: string, name: string): ServiceStatus | null =>
    serviceStatus(auditor, `${namespace}/${name}`, now());
  return {
    status: () => statusOf(auditor, source, live),
    beat: () => ({ revision: revisionOf(auditor), now: now() }),
    services() {
      auditor.measured.refresh();
      const serviceAuditor = auditor.serviceAuditor();
      return serviceAuditor === null ? [] : servicesOf(auditor);
    },
    servicePage(namespace, name, from) {
      const status = service(namespace, name);
      return status === null ? null : serviceView(auditor, status, from);
    },
    explain: (words, namespace) => explainWords(auditor, words, namespace),
    nodePage: (node, port) => nodeView(auditor, node, port),
    scrape: () => scrape(auditor, live, rows),
    service,
    lag: () => lagReportOf(auditor),
    nodes: () => nodeStatuses(auditor, live.fleet),
    notReady: () => whyNotReady(auditor, now()),
    stuck: live.stuck,
  };
}

/** The state at this moment, whatever the input has told so far. */
function statusOf(auditor: Auditor, source: string, live: LiveStatus): PageStatus {
  const { findings } = auditor;
  const { listers } = auditor.store;
  const metrics = metricsOf(auditor, live, noServiceSeries);
  const { summary } = metrics;
  return {
    // People read the worst first.
    metrics: { ...metrics, summary: { ...summary, findings: inOrder(summary.findings) } },
    resolved: findings.resolved(),
    forgotten: findings.forgotten(),
    notReady: whyNotReady(auditor, metrics.now),
    clusterNodes: listers.knows('nodes') ? listers.nodes.size : null,
    source,
    kubernetes: auditor.kubernetes(),
    revision: revisionOf(auditor),
    lag: auditor.measured.history.series(),
  };
}

/** Every entry that is taken in, every finding and every watch may change what a page shows. */
function revisionOf(auditor: Auditor): string {
  const { measured, findings, progress } = auditor;
  const { full, change } = measured.durations;
  const open = findings.open().length;
  const gone = findings.resolved().length + findings.forgotten();
  const watches = [...progress.inputs.values()].map(({ state }) => state).join(' ');
  return [
    full.count,
    change.count,
    open,
    gone,
    String(auditor.serviceAuditor() === null),
    watches,
  ].join(' ');
}

/** Services that exist; of a name that something is left of, it is the page of the findings. */
function* servicesOf({ measured }: Auditor): Generator<ServiceNumbers> {
  for (const numbers of measured.tally.services.values()) if (numbers.share.exists) yield numbers;
}

/** What /metrics shows, in steps; the numbers of the cluster are those of the last. */
function* scrape(
  auditor: Auditor,
  live: LiveStatus,
  rows: ReturnType<typeof createServiceRows>,
): Generator<undefined, MetricsState> {
  auditor.measured.refresh();
  const { services, open } = auditor.measured.tally;
  // What differs on a node is no number of the Service, and comes and goes without it.
  const findings = (): Finding[] => auditor.findings.open().filter(({ node }) => node === null);
  const perService = yield* rows({ services, open, findings, stale: auditor.stale() });
  return metricsOf(auditor, live, perService);
}

/** The findings of its summary are in no order. */
function metricsOf(
  auditor: Auditor,
  { counters, tracing, fleet }: LiveStatus,
  perService: ServiceSeries,
): MetricsState {
  const serviceAuditor = auditor.serviceAuditor();
  const { measured, findings, progress, confirmer } = auditor;
  measured.refresh();
  const { tally } = measured;
  const now = auditor.now() ?? 0;
  const summary =
    serviceAuditor === null
      ? emptySummary
      : {
          ...tally.summary(serviceAuditor, auditor.stale(), auditor.nodes()),
          findings: findings.open(),
        };
  return {
    ...measured,
    summary,
    conditions: tally.conditions,
    capacity: tally.capacity,
    hints: serviceAuditor === null ? noHintCounts() : tally.hints(serviceAuditor),
    dropped: auditor.dropped(),
    now,
    startedAt: auditor.startedAt() ?? now,
    releaseMinor: auditor.release().minor,
    version,
    ready: whyNotReady(auditor, now) === null,
    agents: fleet === null ? noAgents : agentsOf(auditor, fleet),
    watches: { inputs: progress.inputs, confirmations: confirmer.counts, counters: counters() },
    tracing: tracing ?? noTracingCounts(),
    perService,
  };
}

/** Whose agents answer, and what they have told. */
function agentsOf(auditor: Auditor, { status, visits, bytes }: Fleet): AgentMetrics {
  const states = { ...noAgents.states };
  let oldest = Infinity;
  for (const { state, seenAt } of status().values()) {
    states[state]++;
    if (state === 'answering') oldest = Math.min(oldest, seenAt ?? Infinity);
  }
  return {
    states,
    oldestSeenAt: oldest === Infinity ? null : oldest,
    divergent: auditor.divergent(),
    visits,
    bytes: bytes(),
  };
}

/** Why too little is known, a reason a line; null: it is enough. */
function whyNotReady(auditor: Auditor, now: number): string | null {
  const { progress } = auditor;
  if (auditor.serviceAuditor() === null) {
    const awaited = auditor.awaited();
    const what = awaited.length === 0 ? 'judged yet' : `complete: ${awaited.join(', ')}`;
    return `The first lists are not ${what}`;
  }
  const reasons = [...progress.unseenFor(unseenLimit, now)].map((resource) => {
    const input = progress.inputs.get(resource);
    const seconds = Math.round(now - (input?.blindSince ?? now));
    return `${resource} not seen for ${seconds} s (${input?.state ?? 'off'})`;
  });
  return reasons.length === 0 ? null : reasons.join('\n');
}

function pendingOf({ items }: ServiceAudit): UnsettledDifference[] {
  return [...items.values()].flat().flatMap(({ difference, openedAt, output, cause, since }) => {
    if (openedAt !== null) return [];
    const { code, object, field, expected, actual } = difference;
    return [{ code, output, object, field, expected, actual, cause, since }];
  });
}

function nodeStatuses(auditor: Auditor, fleet: Fleet | null): NodeStatus[] {
  const serviceAuditor = auditor.serviceAuditor();
  if (serviceAuditor === null) return [];
  const agents = fleet?.status();
  const { tally } = auditor.measured;
  const { nodes } = tally.summary(serviceAuditor, auditor.stale(), auditor.nodes());
  return nodes.map(({ node, ...verdicts }) => {
    return { node, verdicts, agent: agents?.get(node) ?? null };
  });
}

/** From the worst, as far as something is known. */
const worstFirst = ['different', 'pending', 'unknown', 'conform'] as const;

/** Nodes that are listed of one Service. */
const listedNodes = 100;

/** How a Service fares on the nodes. */
function onNodes(
  auditor: Auditor,
  namespace: string,
  name: string,
): Pick<ServiceStatus, 'nodes' | 'notConform'> {
  const verdicts = auditor.nodes()?.verdicts;
  if (verdicts === undefined) return { nodes: null, notConform: [] };
  const isIts = ({ port }: NodeVerdict): boolean =>
    port === '' ||
    port.startsWith(`${namespace}/${name}:`) ||
    port.startsWith(`${namespace}/${name} `);
  const nodes = { conform: 0, pending: 0, different: 0, unknown: 0 };
  const found: { node: string; verdict: Verdict; reason: UnknownReason | null }[] = [];
  for (const [node, ports] of verdicts) {
    const own = ports.filter(isIts);
    const verdict = worstFirst.find((one) => own.some((port) => port.verdict === one));
    if (verdict === undefined) continue;
    nodes[verdict]++;
    const { reason = null } = own.find((port) => port.verdict === verdict) ?? {};
    if (verdict !== 'conform') found.push({ node, verdict, reason });
  }
  const rank = ({ verdict }: { verdict: Verdict }): number => worstFirst.indexOf(verdict);
  const sorted = found.sort((a, b) => rank(a) - rank(b));
  return { nodes, notConform: sorted.slice(0, listedNodes) };
}

/** One Service in full; null where there is none of that name. */
function serviceStatus(auditor: Auditor, key: string, now: number): ServiceStatus | null {
  const audited = auditor.serviceAuditor()?.audited.get(key);
  if (audited === undefined || audited.record.service === null) return null;
  const { namespace, name } = audited.record;
  const stale = auditor.stale();
  const { findings, store, progress } = auditor;
  const isIts = (finding: Finding): boolean =>
    finding.namespace === namespace && finding.service === name;
  return {
    format: 1,
    now,
    namespace,
    service: name,
    outputs: serviceOutputs.flatMap((output) => {
      const verdict = verdictOf(store.listers, audited, output, stale);
      if (verdict === null) return [];
      const reason = verdict === 'unknown' ? unknownReason(audited, output, stale) : null;
      return [{ output, verdict, reason }];
    }),
    ...onNodes(auditor, namespace, name),
    fill: fillGroups(
      slicesOf(store.listers, audited.record, 'controller'),
      auditor.maxEndpointsPerSlice,
    ),
    pending: pendingOf(audited),
    standing: findings.open().filter(isIts),
    resolved: findings.resolved().filter(isIts),
    inputs: Object.fromEntries(
      [...progress.inputs].map(([resource, { state, blindSince }]) => [
        resource,
        { state, unseenSeconds: Math.max(0, now - (blindSince ?? now)) },
      ]),
    ),
  };
}
