// Answers of a running auditor: readiness, the state for /metrics and pages, and the reports.

import type { Scraper } from '../agent/client/scraper.ts';
import { parseTarget } from '../audit/explain/target.ts';
import type { Finding } from '../audit/finding/catalogue.ts';
import { concerns, emptySummary, inOrder, summarize, type Within } from '../audit/summary.ts';
import { type LabelSelector, matchesLabels } from '../model/label-selector.ts';
import { failureText, type LostConnection, newErrorCounts } from '../model/connection.ts';
import { version } from '../model/program-version.ts';
import { isNodeInScope, needsAllServices } from '../model/scope.ts';
import type { ServiceAuditor } from '../audit/service/auditor.ts';
import { isForeign } from '../audit/service/verdict.ts';
import type { PerServiceOptions, ServiceSeries } from '../output/metrics/service-rows.ts';
import { createServiceRows, noServiceSeries } from '../output/metrics/service-rows.ts';
import type {
  AgentMetrics,
  HistoryMetrics,
  MetricsState,
  WatchMetrics,
} from '../output/metrics/state.ts';
import { noAgents, noEventCounts, noHintCounts, noHistory } from '../output/metrics/state.ts';
import { escapeInvisible, formatTime } from '../output/text/format.ts';
import { createLagReport } from '../output/text/lag.ts';
import type { LinkTemplate } from '../output/text/link-template.ts';
import { type AuditReport, summarizeMeasures } from '../output/text/report.ts';
import { noTracingCounts } from '../output/traces/settings.ts';
import { nameOf, unverifiedReasons } from '../shadow/release.ts';
import type { Auditor } from './auditor.ts';
import {
  explainTarget,
  listServices,
  listSuppressedServices,
  listUnservedServices,
  nodeView,
  serviceStatus,
  serviceView,
} from './explanations.ts';
import {
  affects,
  type IncidentMeasures,
  findIncident,
  listIncidents,
  measureIncidents,
  viewIncidents,
} from './incident-queries.ts';
import { podView, search } from './search.ts';
import { countHints, summaryOfTotals } from './totals.ts';

/** The auditor is not ready if a required resource was not seen for this many seconds. */
const unseenLimit = 60;

/** State of live input that the auditor does not have. */
export type LiveStatus = Readonly<typeof notLive>;

export const notLive = {
  /** False for a recording, whose clock is not that of now. */
  isLive: false,
  stuck: (): string | null => null,
  counters: (): WatchMetrics['counters'] => new Map(),
  /** Failed requests to the API server. */
  errors: newErrorCounts(),
  /** Why the API server cannot be read; `null` while it answers. */
  lost: (): LostConnection | null => null,
  tracing: noTracingCounts(),
  /** Kubernetes Events that were written. */
  events: noEventCounts,
  history: (): HistoryMetrics => noHistory,
  /** The agents of nodes; `null` if they are not scraped. */
  fleet: null as Scraper | null,
};

/** What the user says of the cluster, for the pages. */
export interface SiteOptions {
  /** The name of the cluster; null if it has none. */
  readonly cluster: string | null;
  readonly links: readonly LinkTemplate[];
  /** Whether the address of the pages answers /metrics too. */
  readonly hasMetrics: boolean;
  /** The moment of the history that is shown, Unix seconds; `null`: the present. */
  readonly at: number | null;
}

const noSite: SiteOptions = { cluster: null, links: [], hasMetrics: true, at: null };

export type AuditorQueries = ReturnType<typeof createQueries>;

/** `source` describes the input to people. Probes are frequent and have cheap queries. */
export function createQueries(
  auditor: Auditor,
  source: string,
  live: LiveStatus = notLive,
  perService: PerServiceOptions = { mode: 'off', max: 0 },
  site: SiteOptions = noSite,
) {
  const now = (): number => auditor.now() ?? 0;
  const rows = createServiceRows(perService);
  const grouped = { incidents: cacheIncidents(auditor), earlier: auditor.earlier };
  const measure = () => measureIncidents(grouped);
  return {
    status: () => ({ ...pageStatus(auditor, source, live, measure()), ...site }),
    /** The revision of the status, the time of its state, and why it is old; called each second. */
    beat: () => {
      const lost = live.lost();
      const revision = revisionOf(auditor, lost);
      return { revision, now: shownMoment(auditor, lost), lost, isLive: live.isLive };
    },
    /** Every Service with its health, worst first. */
    services: () => listServices(auditor),
    incidents: () => viewIncidents(grouped),
    /** By its name, also of one that another incident took; null if it is not known. */
    incident: (id: string) => findIncident(grouped, id),
    /** The Services that cannot receive traffic, by name. */
    unserved: () => listUnservedServices(auditor),
    /** `from` is the first row of the table; null if the Service does not exist. */
    servicePage: (namespace: string, name: string, from: number) =>
      serviceView(auditor, `${namespace}/${name}`, from),
    /** As on the command line; null before the first audit. Throws for invalid words. */
    explain: (words: readonly string[], namespace: string | null) =>
      explainTarget(auditor, parseTarget(words, namespace)),
    /** `port` is the Service port of the traced packets; null if the node is unknown. */
    nodePage: (node: string, port: string | null) => nodeView(auditor, node, port),
    search: (query: string) => search(auditor, query),
    podPage: (namespace: string, name: string) => podView(auditor, `${namespace}/${name}`),
    /** The state for /metrics, in small steps, between which other work can run. */
    *scrape(): Generator<undefined, MetricsState> {
      auditor.suppressions.review();
      const { services, open } = auditor.refreshTotals();
      const series = yield* rows({ services, open, stale: auditor.stale() });
      return metricsState(auditor, live, measure(), series);
    },
    /** The status of one Service; null if it does not exist. */
    service: (namespace: string, name: string) => serviceStatus(auditor, `${namespace}/${name}`),
    lag: () => createLagReport(auditor),
    nodes: () => nodeStatuses(auditor, live.fleet),
    /** Why the auditor is not ready, for people, one reason per line; null if it is ready. */
    notReady: () => whyNotReady(auditor, now(), live.lost()),
    stuck: live.stuck,
  };
}

export type PageStatus = ReturnType<typeof pageStatus> & SiteOptions;

function pageStatus(
  auditor: Auditor,
  source: string,
  live: LiveStatus,
  incidents: IncidentMeasures,
) {
  const { findings } = auditor;
  const { listers } = auditor.store;
  const state = metricsState(auditor, live, incidents, noServiceSeries);
  const summary = { ...state.summary, findings: inOrder(state.summary.findings) };
  const metrics: MetricsState = { ...state, summary };
  return {
    metrics,
    /** Cached resolved findings, oldest first; `forgotten` counts the evicted ones. */
    resolved: resolvedIn(auditor),
    forgotten: findings.forgotten(),
    notReady: whyNotReady(auditor, metrics.now, live.lost()),
    isLive: live.isLive,
    /** Whether a recording has been replayed to its end. */
    hasEnded: auditor.complete() !== null,
    lost: live.lost(),
    /** Whether every first list was complete. */
    hasBegun: auditor.serviceAuditor() !== null,
    /** The time of the state, on the clock of the input. */
    shownAt: shownMoment(auditor, live.lost()),
    /** The number of nodes of the cluster or shard, with known rules or not; null if unknown. */
    clusterNodes: listers.knows('nodes') ? countNodes(auditor) : null,
    /** Which of the shards this is, as `--shard` names it; `null` without shards. */
    shard: shardName(auditor),
    source,
    kubernetes: auditor.kubernetes(),
    revision: revisionOf(auditor, live.lost()),
    /** Since when moments can be shown, Unix seconds; `null` without a history or a recording. */
    recordedSince: live.isLive ? state.history.oldest : auditor.startedAt(),
    lag: auditor.samples.history.series(),
    /** The longest convergence lags of the last day, longest first. */
    longestLags: auditor.samples.worst.convergence.list(metrics.now),
  };
}

const resolvedIn = ({ earlier, findings }: Auditor): readonly Finding[] =>
  earlier.findings.length === 0
    ? findings.resolved()
    : [...earlier.findings, ...findings.resolved()];

function shardName({ options }: Auditor): string | null {
  const { shard } = options.scope;
  return shard && `${shard.index}/${shard.count}`;
}

/** With agents, each shard audits a part of the nodes. */
function countNodes({ store, options: { scope } }: Auditor): number {
  const names = [...store.listers.nodes.keys()];
  return needsAllServices(scope)
    ? names.filter((name) => isNodeInScope(scope, name)).length
    : names.length;
}

/** Nodes that are not among those with verdicts; null if there is none of these, or no Node. */
function countNodesWithoutRules(
  { store: { listers } }: Auditor,
  audited: AuditReport['nodes'],
): number | null {
  if (audited.length === 0 || !listers.knows('nodes')) return null;
  const names = new Set(audited.map(({ node }) => node));
  return [...listers.nodes.keys()].filter((name) => !names.has(name)).length;
}

/** Nothing is newer than the loss of the connection. */
const shownMoment = (auditor: Auditor, lost: LostConnection | null): number =>
  lost === null ? (auditor.now() ?? 0) : lost.since;

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

/** The incidents, whose reach and impact are computed once for each state of the auditor. */
function cacheIncidents(auditor: Auditor): Auditor['incidents'] {
  let cached = { version: '', open: [] as ReturnType<Auditor['incidents']['list']> };
  return {
    ...auditor.incidents,
    list() {
      const version = `${revisionOf(auditor, null)} ${auditor.incidents.revision()}`;
      if (version !== cached.version) cached = { version, open: auditor.incidents.list() };
      return cached.open;
    },
  };
}

/** A text that changes with every entry, finding and watch state, and with the connection. */
function revisionOf(auditor: Auditor, lost: LostConnection | null): string {
  const { samples, findings, progress } = auditor;
  const { full, change } = samples.durations;
  const open = findings.open().length;
  const gone = findings.resolved().length + findings.forgotten();
  const watches = [...progress.inputs.values()].map(({ state }) => state);
  const isWaiting = String(auditor.serviceAuditor() === null);
  const connection = lost === null ? 'connected' : `${lost.reason} ${lost.since}`;
  const end = String(auditor.complete());
  return [full.count, change.count, open, gone, isWaiting, connection, end, ...watches].join(' ');
}

/** The findings of its summary are not sorted. */
function metricsState(
  auditor: Auditor,
  { counters, errors, lost, tracing, events, fleet, history }: LiveStatus,
  incidents: IncidentMeasures,
  perService: ServiceSeries,
): MetricsState {
  const services = auditor.serviceAuditor();
  const { findings, progress, confirmer, samples, journeys } = auditor;
  const totals = auditor.refreshTotals();
  const now = auditor.now() ?? 0;
  const accepted = listSuppressedServices(auditor);
  const counted =
    services === null
      ? emptySummary
      : {
          ...summaryOfTotals(totals, services, auditor.stale(), auditor.nodes()),
          findings: findings.open(),
        };
  const unserved = { ...counted.unserved };
  for (const { reason } of accepted) unserved[reason] -= 1;
  const summary = { ...counted, unserved };
  return {
    ...samples,
    ...totals,
    journeys,
    summary,
    ...incidents,
    suppressedServices: accepted.length,
    hints: services === null ? noHintCounts() : countHints(totals, services),
    dropped: auditor.dropped(),
    now,
    startedAt: auditor.startedAt() ?? now,
    release: nameOf(auditor.released().release),
    unverified: unverifiedIn(auditor),
    version,
    shard: auditor.options.scope.shard ?? { index: 0, count: 1 },
    ready: whyNotReady(auditor, now, lost()) === null,
    agents: fleet === null ? noAgents : agentMetrics(auditor, fleet),
    watches: {
      inputs: progress.inputs,
      confirmations: confirmer.counts,
      counters: counters(),
      errors,
    },
    tracing,
    events,
    history: history(),
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

/** `Cannot reach the API server since 2026-11-21T10:56:46Z (connection refused)`. */
const lostText = (lost: LostConnection): string =>
  `${failureText(lost)} since ${formatTime(lost.since)} (${escapeInvisible(lost.message)})`;

function whyNotReady(auditor: Auditor, now: number, lost: LostConnection | null): string | null {
  const { progress } = auditor;
  if (auditor.clock.isWrong) return 'The clock was set back: verdicts are unknown until it goes on';
  if (auditor.serviceAuditor() === null) {
    if (lost !== null) return lostText(lost);
    const awaited = auditor.awaited();
    const what = awaited.length === 0 ? 'evaluated yet' : `complete: ${awaited.join(', ')}`;
    return `The first lists are not ${what}`;
  }
  const reasons = [...progress.unseenFor(unseenLimit, now)].map((resource) => {
    const input = progress.inputs.get(resource);
    const seconds = Math.round(now - (input?.blindSince ?? now));
    return `${resource} not seen for ${seconds} s (${input?.state ?? 'off'})`;
  });
  if (reasons.length === 0) return null;
  return [...(lost === null ? [] : [lostText(lost)]), ...reasons].join('\n');
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

/** A report has the first ones. */
export const shownProblems = 20;

/** The Services that a report is about; null or absent: all. */
interface ReportScope {
  readonly namespace?: string | null | undefined;
  /** On the labels of the Service. */
  readonly selector?: LabelSelector | null | undefined;
}

/** Selects Services as they are now; a selector selects none that does not exist. */
export function selectedServices(
  { store }: Pick<Auditor, 'store'>,
  { namespace: wanted = null, selector = null }: ReportScope,
): Within {
  const { services } = store.listers;
  return (namespace, name) => {
    if (wanted !== null && wanted !== namespace) return false;
    if (selector === null || name === null) return true;
    const service = services.get(`${namespace}/${name}`);
    return service !== undefined && matchesLabels(selector, service.labels);
  };
}

type ReportOptions = Pick<AuditReport, 'kind' | 'namespace' | 'problems'> &
  Partial<Pick<AuditReport, 'cluster'>> &
  Pick<ReportScope, 'selector'> &
  Pick<AuditReport['input'], 'sources'>;

/** A report names the first ones. */
const shownForeign = 20;

/** Services, or names without a Service, whose endpoints another client writes, by name. */
const foreignServices = (
  { store }: Auditor,
  { audited }: ServiceAuditor,
  within: Within,
): readonly string[] =>
  [...audited.values()]
    .filter((it) => within(it.record.namespace, it.record.name) && isForeign(store.listers, it))
    .map(({ record }) => record.key)
    .sort()
    .slice(0, shownForeign);

/** Throws if the audit has not begun. */
export function createReport(auditor: Auditor, options: ReportOptions): AuditReport {
  const { kind, sources, namespace, selector = null, cluster = null, problems } = options;
  const { findings, samples } = auditor;
  auditor.suppressions.review();
  const services = auditor.serviceAuditor();
  if (services === null) throw new Error('The input ended before it began');
  const within = selectedServices(auditor, options);
  const [stale, nodes] = [auditor.stale(), auditor.nodes()];
  const summary = summarize(services, { within, stale, nodes });
  const totals = auditor.refreshTotals();
  const fills = [...totals.services].map(([key, { fill }]) => [key, fill] as const);
  const { release, by, evidence } = auditor.released();
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
      releaseEvidence: evidence,
      verified: unverified.length === 0,
      unverified,
      from: timeless ? null : auditor.startedAt(),
      until: auditor.now(),
      complete: auditor.complete(),
    },
    namespace,
    selector: selector?.text ?? null,
    cluster,
    findings: timeless
      ? summary.findings.map((finding) => ({ ...finding, since: null, openedAt: null }))
      : [...summary.findings, ...findings.resolved().filter(concerns(within))],
    services: summary.services,
    verdicts: summary.verdicts,
    nodes: summary.nodes,
    unknown: summary.unknown,
    foreign: summary.foreign,
    foreignServices: foreignServices(auditor, services, within),
    nodesWithoutRules: countNodesWithoutRules(auditor, summary.nodes),
    incidents: listIncidents(auditor, { timeless, resolved: kind === 'replay' }).filter((it) =>
      affects(it, within),
    ),
    servicesWithoutEndpoints: listUnservedServices(auditor).filter((it) =>
      within(it.namespace, it.name),
    ),
    dropped: auditor.dropped(),
    problems: problems.slice(0, shownProblems),
    measures: summarizeMeasures({ ...samples, ...totals }, fills),
  };
}
