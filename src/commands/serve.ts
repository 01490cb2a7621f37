// `serve`: audits a live cluster for as long as it runs, or replays a recording in its own time,
// and serves what it finds. SIGTERM and SIGINT end it: the watches are closed, connections that are
// idle at once, and requests that are being answered get two seconds.

import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { createAuditor } from '../auditor/auditor.ts';
import { createQueries, createReport, notLive } from '../auditor/queries.ts';
import { replay } from '../auditor/replay.ts';
import type { AuditorQueries, RunningServer } from '../output/http/server.ts';
import { createApp, listen } from '../output/http/server.ts';
import { recordingOf } from './replay.ts';
import { fleetOf } from './shared/agents.ts';
import type { Cluster } from './shared/cluster.ts';
import { auditorOf, openCluster } from './shared/cluster.ts';
import { printReport, problemLog, printFinding, warnIfReleaseUnknown } from './shared/console.ts';
import { growHeapFaster, keepNewObjectsYoung } from './shared/heap-flags.ts';
import type { AgentsFlags, ClusterFlags, AuditFlags, MetricsFlags } from './shared/options.ts';
import { auditorOptions, perServiceOf } from './shared/options.ts';
import { stopSignal } from './shared/stop-signal.ts';
import { traceJourneys, tracingOf } from './shared/tracing.ts';

export interface ServeOptions extends AuditFlags, ClusterFlags, MetricsFlags, AgentsFlags {
  /** true: the one that comes with the program. */
  readonly recording?: string | true;
  readonly listen: { host: string | null; port: number };
  readonly speed: number;
  readonly once?: boolean;
}

/** Audits the cluster, unless a recording is asked for. */
export async function serve(options: ServeOptions): Promise<number> {
  const { recording } = options;
  if (recording === undefined) return serveLive(options);
  return serveRecording(recording === true ? embeddedRecording() : recording, options);
}

async function listenFor(
  answers: AuditorQueries,
  what: string,
  { listen: at }: ServeOptions,
): Promise<RunningServer> {
  const server = await listen(createApp(answers), at);
  const name = at.host ?? '127.0.0.1';
  const host = name.includes(':') ? `[${name}]` : name;
  process.stdout.write(`${what}\nServing http://${host}:${String(server.port)}/ and /metrics\n`);
  return server;
}

/** Audits a live cluster until it is stopped; `cluster` is that of the options unless given. */
export async function serveLive(
  options: ServeOptions,
  cluster: Cluster = openCluster(options),
): Promise<number> {
  const { onProblem } = problemLog();
  const stop = stopSignal();
  const tracing = await tracingOf(process.env);
  let named: string | null = null;
  const { auditor, attached } = auditorOf(cluster, options, onProblem, {
    onOpen: printFinding,
    onResolve: printFinding,
    onJourney: traceJourneys(tracing, () => auditor),
    onQuiet() {
      if (auditor.kubernetes() === named) return;
      named = auditor.kubernetes();
      warnIfReleaseUnknown(auditor);
    },
  });
  const fleet = fleetOf(options, cluster, auditor, attached, onProblem);
  const live = {
    fleet,
    stuck: () => attached.stuck(),
    counters: () =>
      new Map([...attached.watches].map(([resource, { counters }]) => [resource, counters])),
    tracing: tracing?.counts ?? notLive.tracing,
  };
  const answers = createQueries(auditor, cluster.server, live, perServiceOf(options));
  const server = await listenFor(answers, `Auditing ${cluster.server}`, options);
  keepNewObjectsYoung();
  growHeapFaster(() => auditor.serviceAuditor() !== null);
  try {
    await Promise.all([attached.run(stop.signal), fleet?.run(stop.signal)]);
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
  const beside = fileURLToPath(new URL('./shop.ndjson.gz', import.meta.url));
  if (existsSync(beside)) return beside;
  const among = fileURLToPath(new URL('../../test/recordings/shop.ndjson.gz', import.meta.url));
  if (existsSync(among)) return among;
  throw new Error(`${beside} is missing: it comes with the program; or name another recording`);
}

/** Replays a recording at its speed, says what it finds, and serves it until it is stopped. */
async function serveRecording(path: string, options: ServeOptions): Promise<number> {
  const { onProblem } = problemLog();
  const tracing = await tracingOf(process.env);
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
  const live = { ...notLive, tracing: tracing?.counts ?? notLive.tracing };
  const answers = createQueries(auditor, path, live, perServiceOf(options));
  const server = await listenFor(answers, `Replaying ${path} at ${speed}`, options);
  try {
    await replay(auditor, entries, { speed: options.speed, until: null, signal: stop.signal });
    if (!stop.signal.aborted) {
      const ended = createReport(auditor, {
        kind: 'replay',
        sources: [path],
        namespace: null,
        problems: [],
      });
      const standing = ended.findings.filter(({ resolvedAt }) => resolvedAt === null);
      process.stdout.write('\n');
      printReport({ ...ended, findings: standing }, 'table');
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
