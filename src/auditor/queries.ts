// Answers of a running auditor: readiness, the state for /metrics and pages, and the reports.

import type { Scraper } from '../agent/client/scraper.ts';
import { parseTarget } from '../audit/explain/target.ts';
import { concerns, emptySummary, inOrder, summarize } from '../audit/summary.ts';
import { version } from '../model/program-version.ts';
import type {
  PerServiceOptions,
  ServiceNumbers,
  ServiceSeries,
} from '../output/metrics/service-rows.ts';
import { createServiceRows, noServiceSeries } from '../output/metrics/service-rows.ts';
import type { AgentMetrics, MetricsState, WatchMetrics } from '../output/metrics/state.ts';
import { noAgents, noHintCounts } from '../output/metrics/state.ts';
import { createLagReport } from '../output/text/lag.ts';
import { type AuditReport, summarizeMeasures } from '../output/text/report.ts';
import { noTracingCounts } from '../output/traces/settings.ts';
import { nameOf, unverifiedReasons } from '../shadow/release.ts';
import type { Auditor } from './auditor.ts';
import { explainTarget, nodeView, serviceStatus, serviceView } from './explanations.ts';
import { countHints, summaryOfTotals } from './totals.ts';

/** The auditor is not ready if a required resource was not seen for this many seconds. */
const unseenLimit = 60;

/** State of live input that the auditor does not have. */
export type LiveStatus = Readonly<typeof notLive>;

export const notLive = {
  stuck: (): string | null => null,
  counters: (): WatchMetrics['counters'] => new Map(),
  tracing: noTracingCounts(),
  /** The agents of nodes; `null` if they are not scraped. */
  fleet: null as Scraper | null,
};

export type AuditorQueries = ReturnType<typeof createQueries>;

/** `source` describes the input to people. Probes are frequent and have cheap queries. */
export function createQueries(
  auditor: Auditor,
  source: string,
  live: LiveStatus = notLive,
  perService: PerServiceOptions = { mode: 'off', max: 0 },
) {
  const now = (): number => auditor.now() ?? 0;
  const rows = createServiceRows(perService);
  return {
    status: () => pageStatus(auditor, source, live),
    /** The revision of the status, and the input's clock; called once a second. */
    beat: () => ({ revision: revisionOf(auditor), now: now() }),
    services(): Iterable<ServiceNumbers> {
      const services = [...auditor.refreshTotals().services.values()];
      return auditor.serviceAuditor() === null ? [] : services.filter(({ share }) => share.exists);
    },
    /** `from` is the first row of the table; null if the Service does not exist. */
    servicePage: (namespace: string, name: string, from: number) =>
      serviceView(auditor, `${namespace}/${name}`, from),
    /** As on the command line; null before the first audit. Throws for invalid words. */
    explain: (words: readonly string[], namespace: string | null) =>
      explainTarget(auditor, parseTarget(words, namespace)),
    /** `port` is the Service port of the traced packets; null if the node is unknown. */
    nodePage: (node: string, port: string | null) => nodeView(auditor, node, port),
    /** The state for /metrics, in small steps, between which other work can run. */
    *scrape(): Generator<undefined, MetricsState> {
      const { services, open } = auditor.refreshTotals();
      // Findings of nodes are not part of a Service.
      const findings = () => auditor.findings.open().filter(({ node }) => node === null);
      const stale = auditor.stale();
      const series = yield* rows({ services, open, findings, stale });
      return metricsState(auditor, live, series);
    },
    /** The status of one Service; null if it does not exist. */
    service: (namespace: string, name: string) => serviceStatus(auditor, `${namespace}/${name}`),
    lag: () => createLagReport(auditor),
    nodes: () => nodeStatuses(auditor, live.fleet),
    /** Why the auditor is not ready, for people, one reason per line; null if it is ready. */
    notReady: () => whyNotReady(auditor, now()),
    stuck: live.stuck,
  };
}

export type PageStatus = ReturnType<typeof pageStatus>;

function pageStatus(auditor: Auditor, source: string, live: LiveStatus) {
  const { findings } = auditor;
  const { listers } = auditor.store;
  const state = metricsState(auditor, live, noServiceSeries);
  const summary = { ...state.summary, findings: inOrder(state.summary.findings) };
  const metrics: MetricsState = { ...state, summary };
  return {
    metrics,
    /** Cached resolved findings, oldest first; `forgotten` counts the evicted ones. */
    resolved: findings.resolved(),
    forgotten: findings.forgotten(),
    notReady: whyNotReady(auditor, metrics.now),
    /** The number of nodes of the cluster, with known rules or not; null if it is unknown. */
    clusterNodes: listers.knows('nodes') ? listers.nodes.size : null,
    source,
    kubernetes: auditor.kubernetes(),
    revision: revisionOf(auditor),
    lag: auditor.samples.history.series(),
  };
}

/** Why the verdicts are not verified; empty if they are. A pass over all Nodes. */
export function unverifiedIn(auditor: Auditor): string[] {
  const nodes = [...auditor.store.listers.nodes.values()];
  const { release } = auditor.released();
  const audited = auditor.nodes()?.verdicts;
  const kubelets = nodes.flatMap(({ kubeletMinor }) => kubeletMinor ?? []);
  const proxied = audited === undefined ? [] : nodes.filter(({ name }) => audited.has(name));
  const proxies = proxied.map(({ kubeletMinor }) => kubeletMinor ?? release.minor);
  return unverifiedReasons(release, auditor.kubernetes(), kubelets, proxies);
}

/** A text that changes with every entry, every finding and every watch state. */
function revisionOf(auditor: Auditor): string {
  const { samples, findings, progress } = auditor;
  const { full, change } = samples.durations;
  const open = findings.open().length;
  const gone = findings.resolved().length + findings.forgotten();
  const watches = [...progress.inputs.values()].map(({ state }) => state);
  const isWaiting = String(auditor.serviceAuditor() === null);
  return [full.count, change.count, open, gone, isWaiting, watches.join(' ')].join(' ');
}

/** The findings of its summary are not sorted. */
function metricsState(
  auditor: Auditor,
  { counters, tracing, fleet }: LiveStatus,
  perService: ServiceSeries,
): MetricsState {
  const services = auditor.serviceAuditor();
  const { findings, progress, confirmer, samples, journeys } = auditor;
  const totals = auditor.refreshTotals();
  const now = auditor.now() ?? 0;
  const summary =
    services === null
      ? emptySummary
      : {
          ...summaryOfTotals(totals, services, auditor.stale(), auditor.nodes()),
          findings: findings.open(),
        };
  return {
    ...samples,
    ...totals,
    journeys,
    summary,
    hints: services === null ? noHintCounts() : countHints(totals, services),
    dropped: auditor.dropped(),
    now,
    startedAt: auditor.startedAt() ?? now,
    release: nameOf(auditor.released().release),
    unverified: unverifiedIn(auditor),
    version,
    ready: whyNotReady(auditor, now) === null,
    agents: fleet === null ? noAgents : agentMetrics(auditor, fleet),
    watches: { inputs: progress.inputs, confirmations: confirmer.counts, counters: counters() },
    tracing,
    perService,
  };
}

function agentMetrics(auditor: Auditor, { status, visits, bytes }: Scraper): AgentMetrics {
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

/** Service ports of nodes by verdict, and the agents; null if no agents are scraped. */
function nodeStatuses(auditor: Auditor, fleet: Scraper | null) {
  const services = auditor.serviceAuditor();
  if (services === null) return [];
  const agents = fleet?.status();
  const totals = auditor.refreshTotals();
  const { nodes } = summaryOfTotals(totals, services, auditor.stale(), auditor.nodes());
  return nodes.map(({ node, ...verdicts }) => {
    return { node, verdicts, agent: agents?.get(node) ?? null };
  });
}

const shownProblems = 20;

type ReportOptions = Pick<AuditReport, 'kind' | 'namespace' | 'problems'> &
  Pick<AuditReport['input'], 'sources'>;

/** Throws if the audit has not begun. */
export function createReport(auditor: Auditor, options: ReportOptions): AuditReport {
  const { kind, sources, namespace, problems } = options;
  const { findings, samples } = auditor;
  const services = auditor.serviceAuditor();
  if (services === null) throw new Error('The input ended before it began');
  const within = (item: { readonly namespace: string }): boolean =>
    namespace === null || item.namespace === namespace;
  const [stale, nodes] = [auditor.stale(), auditor.nodes()];
  const summary = summarize(services, { within, stale, nodes });
  const totals = auditor.refreshTotals();
  const fills = [...totals.services].map(([key, { fill }]) => [key, fill] as const);
  const { release, by } = auditor.released();
  const unverified = unverifiedIn(auditor);
  // A dump shows one moment, so the age of its differences is unknown.
  const timeless = kind === 'audit' && !auditor.options.live;
  return {
    format: 1,
    kind,
    input: {
      sources,
      kubernetes: auditor.kubernetes(),
      release: nameOf(release),
      releaseBy: by,
      verified: unverified.length === 0,
      unverified,
      from: timeless ? null : auditor.startedAt(),
      until: auditor.now(),
      complete: auditor.complete(),
    },
    namespace,
    findings: timeless
      ? summary.findings.map((finding) => ({ ...finding, since: null, openedAt: null }))
      : [...summary.findings, ...findings.resolved().filter(concerns(within))],
    services: summary.services,
    verdicts: summary.verdicts,
    nodes: summary.nodes,
    unknown: summary.unknown,
    foreign: summary.foreign,
    dropped: auditor.dropped(),
    problems: problems.slice(0, shownProblems),
    measures: summarizeMeasures({ ...samples, ...totals }, fills),
  };
}
