// The `serve` command: audits a live cluster until it is stopped, or replays a recording, and
// serves the findings.

import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import type { Finding } from '../audit/finding/catalogue.ts';
import { exemplifyJourney, type Journey } from '../audit/measure/journey.ts';
import { type Auditor, createAuditor } from '../auditor/auditor.ts';
import { createQueries, createReport, type LiveStatus, notLive } from '../auditor/queries.ts';
import { replay } from '../auditor/replay.ts';
import { createReviewer } from '../cluster/api/review.ts';
import { version } from '../model/program-version.ts';
import { listedNamespaces } from '../model/scope.ts';
import type { ReviewAccess } from '../output/http/access.ts';
import type { AnswerMoment } from '../output/http/moments.ts';
import { createApp, listen } from '../output/http/server.ts';
import { readWebConfig, type WebConfig, watchWebConfig } from '../output/http/web-config.ts';
import { noHistory } from '../output/metrics/state.ts';
import type { LinkTemplate } from '../output/text/link-template.ts';
import { readTracingSettings } from '../output/traces/settings.ts';
import { startTracing, type Tracing } from '../output/traces/tracing.ts';
import { createMoments, type HistoryMoments, readStopState } from './history-process.ts';
import type { MomentRequest } from './history-reader.ts';
import { optionsFor, recordingOf } from './replay.ts';
import {
  type Cluster,
  createLiveAuditor,
  createNamespaceCheck,
  noteSilence,
  openCluster,
} from './shared/cluster.ts';
import {
  fail,
  printConnection,
  printFinding,
  printReport,
  problemLog,
  useLog,
  warnIfUnverified,
} from './shared/console.ts';
import { openEmbedded } from './shared/embedded-file.ts';
import { type HistoryFlags, recordHistory } from './shared/history.ts';
import { createLog, type LogFormat } from './shared/log.ts';
import type {
  AgentsFlags,
  AuditFlags,
  ClusterFlags,
  InputFlags,
  MetricsFlags,
} from './shared/options.ts';
import { inputsOf, onlyInput, perServiceOf, scopeOf } from './shared/options.ts';
import {
  endDespiteDisk,
  growHeapFaster,
  keepCodeSmall,
  keepNewObjectsYoung,
  stopSignal,
} from './shared/process.ts';

export interface ServeOptions
  extends AuditFlags, InputFlags, ClusterFlags, MetricsFlags, AgentsFlags, HistoryFlags {
  /** Replays the recording that comes with the program. */
  readonly demo?: boolean;
  readonly listen: { host: string | null; port: number };
  readonly speed: number;
  readonly once?: boolean;
  readonly metricsListen?: ServeOptions['listen'];
  readonly 'web.config.file'?: string;
  /** Whether bearer tokens are reviewed by the API server. */
  readonly authFilter?: boolean;
  readonly clusterName?: string;
  readonly logFormat?: LogFormat;
  readonly linkTemplate?: readonly LinkTemplate[];
  readonly events?: boolean;
}

/** Audits a live cluster, or replays a recording if the options name one. */
export async function serve(options: ServeOptions): Promise<number> {
  useLog(createLog(options.logFormat ?? 'text'));
  const isDemo = options.demo === true || options.recording === true;
  const inputs = inputsOf(options, isDemo ? [embeddedRecording()] : []);
  return inputs.length === 0 ? serveLive(options) : serveRecording(onlyInput({}, inputs), options);
}

/**
 * Serves an auditor until the work ends. `what` is printed before the address. `end` ends what has
 * begun before, also if no address can be served: it would keep the process alive.
 */
async function serveDuring(
  [auditor, source, what]: readonly [Auditor, string, string],
  options: ServeOptions,
  tracing: Tracing | null,
  { review = null, ...status }: Partial<LiveStatus> & { readonly review?: ReviewAccess | null },
  work: () => Promise<void>,
  end: () => Promise<void> = () => Promise.resolve(),
): Promise<number> {
  const live = { ...notLive, ...status, ...(tracing && { tracing: tracing.counts }) };
  const { clusterName: cluster = null, linkTemplate: links = [] } = options;
  const site = { cluster, links, hasMetrics: options.metricsListen === undefined };
  const shown = { ...site, at: null };
  const queries = createQueries(auditor, source, live, perServiceOf(options), shown);
  const moments = momentsOf(source, options, status.isLive === true, site);
  let servers: Awaited<ReturnType<typeof openServers>> | null = null;
  try {
    servers = await openServers(queries, options, review, moments?.answer ?? null);
    process.stdout.write(`${what}\n${servers.addresses.map((text) => `${text}\n`).join('')}`);
    await work();
  } finally {
    await end();
    moments?.close();
    await servers?.close();
    await tracing?.close();
  }
  return 0;
}

/** Answers about moments of the history, or of the recording; `null` if there is none. */
function momentsOf(
  source: string,
  { history, ...options }: ServeOptions,
  isLive: boolean,
  site: MomentRequest['site'],
): HistoryMoments | null {
  if (isLive && history === undefined) return null;
  const { settle, maxEndpointsPerSlice, endpoints, kubernetesVersion, suppressions } = options;
  const flags = {
    settle,
    maxEndpointsPerSlice,
    endpoints,
    ...(kubernetesVersion && { kubernetesVersion }),
    ...(suppressions !== undefined && { suppressions }),
  };
  const ofHistory = history === undefined ? {} : { history };
  return createMoments({ kind: 'moment', source, flags, site, ...ofHistory });
}

/** Listens for all requests, or for those of pages and of scrapes at one address each. */
async function openServers(
  queries: ReturnType<typeof createQueries>,
  { listen: address, metricsListen, 'web.config.file': path }: ServeOptions,
  review: ReviewAccess | null,
  moments: AnswerMoment | null,
) {
  let config: WebConfig =
    path === undefined ? { tls: null, users: new Map() } : readWebConfig(path);
  const scheme = config.tls === null ? 'http' : 'https';
  if (review !== null && config.tls === null) {
    fail(
      '--auth-filter without TLS: anyone on the network can read the tokens (--web.config.file)',
    );
  }
  const open = async (content: 'all' | 'metrics' | 'pages', at: ServeOptions['listen']) => {
    const app = createApp(queries, { config: () => config, review, content, moments });
    const server = await listen(app, at, config.tls);
    const name = at.host?.includes(':') ? `[${at.host}]` : (at.host ?? '127.0.0.1');
    return { server, url: `${scheme}://${name}:${String(server.port)}/` };
  };
  const page = await open(metricsListen === undefined ? 'all' : 'pages', address);
  const metrics =
    metricsListen === undefined
      ? null
      : await open('metrics', metricsListen).catch(async (error: unknown) => {
          await page.server.close();
          throw error;
        });
  const servers = [page.server, ...(metrics === null ? [] : [metrics.server])];
  const renew = (next: WebConfig): void => {
    // It throws if certificate and key do not match: then the logins must not change either.
    for (const server of servers) server.renew(next.tls);
    config = next;
  };
  const unwatch = path === undefined ? () => undefined : watchWebConfig(path, renew, fail);
  return {
    addresses:
      metrics === null
        ? [`Serving ${page.url} and /metrics`]
        : [`Serving ${page.url}`, `Serving ${metrics.url}metrics`],
    async close(): Promise<void> {
      unwatch();
      await Promise.all(servers.map((server) => server.close()));
    },
  };
}

/** Audits a live cluster until it is stopped. */
export async function serveLive(
  options: ServeOptions,
  cluster: Cluster = openCluster(options),
): Promise<number> {
  const { onProblem } = problemLog();
  const stop = stopSignal();
  const tracing = await tracingOf(process.env);
  let named: string | null = null;
  const noteFinding = (finding: Finding): void => {
    printFinding(finding);
    history?.noteFinding(finding);
  };
  const { auditor, live, scraper, run } = createLiveAuditor(cluster, options, onProblem, {
    onOpen: noteFinding,
    onResolve: noteFinding,
    onJourney: traceJourneys(tracing, () => auditor),
    onConnection: (change) => printConnection(cluster.server, change),
    onTaken: (entry) => history?.take(entry),
    onQuiet() {
      reportEmptyNamespaces();
      if (auditor.kubernetes() === named) return;
      named = auditor.kubernetes();
      warnIfUnverified(auditor);
    },
  });
  const history = recordHistory(auditor, options, cluster, readStopState);
  const check = createNamespaceCheck(cluster, listedNamespaces(scopeOf(options)) ?? []);
  let isChecked = false;
  const reportEmptyNamespaces = (): void => {
    const texts = auditor.serviceAuditor() === null || isChecked ? null : check.texts(auditor);
    isChecked ||= texts !== null;
    for (const text of texts ?? []) fail(text);
  };
  const counters = () =>
    new Map([...live.watches].map(([resource, watch]) => [resource, watch.counters]));
  const { errors, lost } = live.reflectors.connection;
  const status = {
    isLive: true,
    ...(live.events && { events: live.events }),
    fleet: scraper,
    stuck: () => live.stuck(),
    counters,
    errors,
    lost,
    review: options.authFilter === true ? createReviewer(cluster.environment, fail).access : null,
    history: () => history?.metrics() ?? noHistory,
  };
  const served = [auditor, cluster.server, `Auditing ${cluster.server}`] as const;
  const state = { isStuck: false };
  const work = async (): Promise<void> => {
    keepNewObjectsYoung();
    const isListed = (): boolean => auditor.serviceAuditor() !== null;
    growHeapFaster(isListed);
    keepCodeSmall(isListed);
    noteSilence(cluster, live, stop.signal);
    await run(stop);
  };
  const code = await serveDuring(served, options, tracing, status, work, async () => {
    state.isStuck = (await history?.close()) === false;
  });
  if (!state.isStuck) return code;
  fail('The disk of the history does not answer: the process ends without its last changes');
  endDespiteDisk();
  return code;
}

/** The recording that comes with the program: in it, beside the bundle, or among the test data. */
function embeddedRecording(): string {
  const paths = ['./shop.ndjson.gz', '../../test/recordings/shop.ndjson.gz'].map((path) =>
    fileURLToPath(new URL(path, import.meta.url)),
  );
  const path = paths.find((path) => openEmbedded(path) !== null || existsSync(path));
  if (path !== undefined) return path;
  const [missing = ''] = paths;
  throw new Error(`${missing} is missing: it comes with the program; or name another recording`);
}

/** Replays a recording, prints its findings, and serves them until it is stopped. */
async function serveRecording(path: string, options: ServeOptions): Promise<number> {
  const { onProblem } = problemLog();
  const tracing = await tracingOf(process.env);
  const auditor = createAuditor({
    ...(await optionsFor(path, options, onProblem)),
    isServed: true,
    onOpen: printFinding,
    onResolve: printFinding,
    onJourney: traceJourneys(tracing, () => auditor),
  });
  const entries = await recordingOf(path, auditor, onProblem);
  const { signal } = stopSignal();
  const { speed } = options;
  const pace = speed === Infinity ? 'full speed' : `${String(speed)} times its speed`;
  const served = [auditor, path, `Replaying ${path} at ${pace}`] as const;
  return serveDuring(served, options, tracing, {}, async () => {
    const onHeader = () => warnIfUnverified(auditor);
    await replay(auditor, entries, { speed, until: null, signal, onHeader });
    if (signal.aborted) return;
    const { clusterName: cluster = null } = options;
    const all = { sources: [path], namespace: null, cluster, problems: [] };
    const report = createReport(auditor, { kind: 'replay', ...all });
    const open = report.findings.filter(({ resolvedAt }) => resolvedAt === null);
    process.stdout.write('\n');
    printReport({ ...report, findings: open }, 'table');
    if (options.once === true) return;
    process.stdout.write('\nThe recording has ended; serving until stopped (Ctrl-C)\n');
    await once(signal, 'abort');
  });
}

/** OTEL_* variables turn tracing on; `null` if they do not. An error is printed. */
export async function tracingOf(
  environment: Readonly<Record<string, string | undefined>>,
): Promise<Tracing | null> {
  try {
    const settings = readTracingSettings(environment);
    return settings === null ? null : await startTracing(settings, version, fail);
  } catch (error) {
    // The SDK is a file beside the program, which may be missing.
    fail(`${error instanceof Error ? error.message : String(error)}; no traces are sent`);
    return null;
  }
}

/** Sends the trace of a journey that ends, and keeps the trace as an exemplar of its lag. */
export const traceJourneys =
  (tracing: Tracing | null, auditorOf: () => Auditor) =>
  (journey: Journey): void => {
    if (tracing === null) return;
    const auditor = auditorOf();
    const id = tracing.take(journey, auditor.now() ?? journey.begun);
    if (id !== null) exemplifyJourney(auditor.samples.travel, journey, id);
  };
