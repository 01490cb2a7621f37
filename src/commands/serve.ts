// The `serve` command: audits a live cluster until it is stopped, or replays a recording, and
// serves the findings. SIGTERM and SIGINT stop it: it closes the watches and idle connections at
// once, and requests under way within two seconds.

import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { createAuditor } from '../auditor/auditor.ts';
import { createQueries, createReport, notLive } from '../auditor/queries.ts';
import { replay } from '../auditor/replay.ts';
import type { AuditorQueries, RunningServer } from '../output/http/server.ts';
import { createApp, listen } from '../output/http/server.ts';
import { recordingOf } from './replay.ts';
import type { Cluster } from './shared/cluster.ts';
import { createLiveAuditor, openCluster } from './shared/cluster.ts';
import { printFinding, printReport, problemLog, warnIfReleaseUnknown } from './shared/console.ts';
import type { AgentsFlags, AuditFlags, ClusterFlags, MetricsFlags } from './shared/options.ts';
import { auditorOptions, perServiceOf } from './shared/options.ts';
import { growHeapFaster, keepNewObjectsYoung, stopSignal } from './shared/process.ts';
import { traceJourneys, tracingOf } from './shared/tracing.ts';

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

/** Audits a live cluster until it is stopped. */
export async function serveLive(
  options: ServeOptions,
  cluster: Cluster = openCluster(options),
): Promise<number> {
  const { onProblem } = problemLog();
  const stop = stopSignal();
  const tracing = await tracingOf(process.env);
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
  const status = {
    fleet: scraper,
    stuck: () => live.stuck(),
    counters: () =>
      new Map([...live.watches].map(([resource, { counters }]) => [resource, counters])),
    tracing: tracing?.counts ?? notLive.tracing,
  };
  const answers = createQueries(auditor, cluster.server, status, perServiceOf(options));
  const server = await listenFor(answers, `Auditing ${cluster.server}`, options);
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
  const beside = fileURLToPath(new URL('./shop.ndjson.gz', import.meta.url));
  if (existsSync(beside)) return beside;
  const among = fileURLToPath(new URL('../../test/recordings/shop.ndjson.gz', import.meta.url));
  if (existsSync(among)) return among;
  throw new Error(`${beside} is missing: it comes with the program; or name another recording`);
}

/** Replays a recording, prints its findings, and serves them until it is stopped. */
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
  const status = { ...notLive, tracing: tracing?.counts ?? notLive.tracing };
  const answers = createQueries(auditor, path, status, perServiceOf(options));
  const server = await listenFor(answers, `Replaying ${path} at ${speed}`, options);
  try {
    await replay(auditor, entries, { speed: options.speed, until: null, signal: stop.signal });
    if (!stop.signal.aborted) {
      const report = createReport(auditor, {
        kind: 'replay',
        sources: [path],
        namespace: null,
        problems: [],
      });
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
