// The `serve` command: audits a live cluster until it is stopped, or replays a recording, and
// serves the findings. SIGTERM and SIGINT stop it: it closes the watches and idle connections at
// once, and requests under way within two seconds.

import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import type { Journey } from '../audit/measure/journey.ts';
import { exemplifyJourney } from '../audit/measure/journey.ts';
import type { Auditor } from '../auditor/auditor.ts';
import { createAuditor } from '../auditor/auditor.ts';
import type { LiveStatus } from '../auditor/queries.ts';
import { createQueries, createReport, notLive } from '../auditor/queries.ts';
import { replay } from '../auditor/replay.ts';
import { version } from '../model/program-version.ts';
import type { RunningServer } from '../output/http/server.ts';
import { createApp, listen } from '../output/http/server.ts';
import { readTracingSettings } from '../output/traces/settings.ts';
import type { Tracing } from '../output/traces/tracing.ts';
import { startTracing } from '../output/traces/tracing.ts';
import { recordingOf } from './replay.ts';
import type { Cluster } from './shared/cluster.ts';
import { createLiveAuditor, openCluster } from './shared/cluster.ts';
import {
  fail,
  printFinding,
  printReport,
  problemLog,
  warnIfReleaseUnknown,
} from './shared/console.ts';
import type { AgentsFlags, AuditFlags, ClusterFlags, MetricsFlags } from './shared/options.ts';
import { auditorOptions, perServiceOf } from './shared/options.ts';
import { growHeapFaster, keepNewObjectsYoung, stopSignal } from './shared/process.ts';

export interface ServeOptions extends AuditFlags, ClusterFlags, MetricsFlags, AgentsFlags {
  /** `true` for the recording that comes with the program. */
  readonly recording?: string | true;
  readonly listen: { host: string | null; port: number };
  readonly speed: number;
  readonly once?: boolean;
}

/** Audits a live cluster, or replays a recording if the options name one. */
export async function serve(options: ServeOptions): Promise<number> {
  const { recording } = options;
  if (recording === undefined) return serveLive(options);
  return serveRecording(recording === true ? embeddedRecording() : recording, options);
}

async function listenFor(
  auditor: Auditor,
  source: string,
  what: string,
  status: Partial<LiveStatus>,
  options: ServeOptions,
): Promise<RunningServer> {
  const { host } = options.listen;
  const queries = createQueries(auditor, source, { ...notLive, ...status }, perServiceOf(options));
  const server = await listen(createApp(queries), options.listen);
  const name = host?.includes(':') ? `[${host}]` : (host ?? '127.0.0.1');
  process.stdout.write(`${what}\nServing http://${name}:${String(server.port)}/ and /metrics\n`);
  return server;
}

/** Audits a live cluster until it is stopped. */
export async function serveLive(
  options: ServeOptions,
  cluster: Cluster = openCluster(options),
): Promise<number> {
  const { onProblem } = problemLog();
  const stop = stopSignal();
  const tracing = await tracingOf(process.env);
  const counted = tracing && { tracing: tracing.counts };
  let named: string | null = null;
  const { auditor, live, scraper } = createLiveAuditor(cluster, options, onProblem, {
    onOpen: printFinding,
    onResolve: printFinding,
    onJourney: traceJourneys(tracing, () => auditor),
    onQuiet() {
      if (auditor.kubernetes() === named) return;
      named = auditor.kubernetes();
      warnIfReleaseUnknown(auditor);
    },
  });
  const counters = () =>
    new Map([...live.watches].map(([resource, watch]) => [resource, watch.counters]));
  const status = { fleet: scraper, stuck: () => live.stuck(), counters, ...counted };
  const what = `Auditing ${cluster.server}`;
  const server = await listenFor(auditor, cluster.server, what, status, options);
  keepNewObjectsYoung();
  growHeapFaster(() => auditor.serviceAuditor() !== null);
  try {
    await Promise.all([live.run(stop.signal), scraper?.run(stop.signal)]);
  } finally {
    stop.abort();
    cluster.close();
    await server.close();
    await tracing?.close();
  }
  return 0;
}

/** The recording that comes with the program: beside the bundle, or among the test data. */
function embeddedRecording(): string {
  const paths = ['./shop.ndjson.gz', '../../test/recordings/shop.ndjson.gz'].map((path) =>
    fileURLToPath(new URL(path, import.meta.url)),
  );
  const path = paths.find((path) => existsSync(path));
  if (path !== undefined) return path;
  throw new Error(
    `${String(paths[0])} is missing: it comes with the program; or name another recording`,
  );
}

/** Replays a recording, prints its findings, and serves them until it is stopped. */
async function serveRecording(path: string, options: ServeOptions): Promise<number> {
  const { onProblem } = problemLog();
  const tracing = await tracingOf(process.env);
  const counted = tracing && { tracing: tracing.counts };
  const auditor = createAuditor({
    ...auditorOptions(options, onProblem),
    onOpen: printFinding,
    onResolve: printFinding,
    onJourney: traceJourneys(tracing, () => auditor),
  });
  const entries = await recordingOf(path, auditor, onProblem);
  const stop = stopSignal();
  const speed =
    options.speed === Infinity ? 'full speed' : `${String(options.speed)} times its speed`;
  const what = `Replaying ${path} at ${speed}`;
  const server = await listenFor(auditor, path, what, { ...counted }, options);
  try {
    await replay(auditor, entries, { speed: options.speed, until: null, signal: stop.signal });
    if (!stop.signal.aborted) {
      const shown = { kind: 'replay', sources: [path], namespace: null, problems: [] } as const;
      const report = createReport(auditor, shown);
      const open = report.findings.filter(({ resolvedAt }) => resolvedAt === null);
      process.stdout.write('\n');
      printReport({ ...report, findings: open }, 'table');
    }
    if (options.once !== true && !stop.signal.aborted) {
      process.stdout.write('\nThe recording has ended; serving until stopped (Ctrl-C)\n');
      await new Promise((resolve) => stop.signal.addEventListener('abort', resolve));
    }
  } finally {
    await server.close();
    await tracing?.close();
  }
  return 0;
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
