// A real Prometheus scrapes the program while it replays the recording, and is then asked for every
// family of the catalogue: `npm run prometheus`. Of each it must know type, help and unit, have the
// very series that the program shows when the recording has ended, and one that was not 0 at some
// time, unless `silent` lists it with the reason; histograms must answer for a quantile.
//
// A backend of traces takes some and refuses others; what Prometheus keeps of exemplars must be
// traces that it took.
//
// Everything is on the loopback and ends with the test. Prometheus asks for OpenMetrics by itself.

import type { ChildProcess } from 'node:child_process';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

import { families } from '../../src/output/metrics/families.ts';
import { serviceFamilies } from '../../src/output/metrics/service-rows.ts';
import { processFamilies } from '../documents.ts';
import { decodeTraces, hex } from '../output/samples.ts';
import { ask, programOf, startPrometheus } from './server.ts';

const root = join(import.meta.dirname, '../..');
const speed = '20';
/** Longer than the recording, so that Prometheus keeps its exemplars. */
const recorded = { start: 0, end: 4_000_000_000 };
/** Services that have series, which are not all. */
const shownServices = 10;

const notLive = 'a recording has no watches';
const noAgents = 'no agents are asked in a replay';

/** Families that the replay leaves at 0 or without a series, and why. */
const silent: Readonly<Record<string, string>> = {
  endpoint_auditor_outputs_unknown: 'the recording has everything that judging needs',
  endpoint_auditor_dropped_total: 'the recording is whole',
  endpoint_auditor_over_capacity_objects: 'no Service has more than a thousand endpoints',
  endpoint_auditor_duplicate_endpoints: 'the controllers listed no endpoint twice',
  endpoint_auditor_services_without_hints: 'every Service that asks for hints has them',
  endpoint_auditor_suppressed_findings: 'nothing is suppressed',
  endpoint_auditor_service_misrouted_connections_ratio: 'no Service with series has wrong slices',
  endpoint_auditor_service_unused_capacity_ratio: 'no slice lacks an endpoint',
  endpoint_auditor_watch_state: notLive,
  endpoint_auditor_watch_unseen_seconds: notLive,
  endpoint_auditor_confirm_reads_total: 'a recording cannot be asked again',
  endpoint_auditor_watch_requests_total: notLive,
  endpoint_auditor_watch_frames_total: notLive,
  endpoint_auditor_watch_refusals_total: notLive,
  endpoint_auditor_watch_errors_total: notLive,
  endpoint_auditor_watch_relists_total: notLive,
  endpoint_auditor_watch_reconnects_total: notLive,
  endpoint_auditor_watch_bytes_total: notLive,
  endpoint_auditor_node_agents: noAgents,
  endpoint_auditor_node_report_oldest_seconds: noAgents,
  endpoint_auditor_node_service_ports_divergent: noAgents,
  endpoint_auditor_agent_requests_total: noAgents,
  endpoint_auditor_agent_bytes_total: noAgents,
  endpoint_auditor_incidents_dropped_total: 'fewer incidents than the timeline keeps',
  endpoint_auditor_kubernetes_events_total: notLive,
  endpoint_auditor_history_bytes: notLive,
  endpoint_auditor_history_written_timestamp_seconds: notLive,
  endpoint_auditor_history_lines_total: notLive,
  endpoint_auditor_history_dropped_lines_total: notLive,
  endpoint_auditor_history_failures_total: notLive,
};

/** What is pending for a moment may be so between two scrapes. */
const passing: ReadonlySet<string> = new Set([
  'endpoint_auditor_pending_oldest_seconds',
  'endpoint_auditor_pod_changes_open',
  'endpoint_auditor_service_pending_since_timestamp_seconds',
]);

const problems: string[] = [];

function check(isRight: boolean, what: string): void {
  if (!isRight) problems.push(what);
}

// --- processes ---

const running: ChildProcess[] = [];

function started(
  command: string,
  args: readonly string[],
  stdout: 'pipe' | 'ignore',
  environment: Readonly<Record<string, string>> = {},
): ChildProcess {
  const env = { ...process.env, ...environment };
  const child = spawn(command, args, { cwd: root, env, stdio: ['ignore', stdout, 'ignore'] });
  running.push(child);
  return child;
}

async function stopAll(): Promise<void> {
  for (const child of running) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    const gone = once(child, 'exit');
    child.kill('SIGTERM');
    await gone;
  }
}

/** The program, replaying; `ended` resolves when the recording has ended. */
async function replaying(
  backend: string,
): Promise<{ readonly url: string; readonly ended: Promise<void> }> {
  const child = started(
    process.execPath,
    [
      ...['src/main.ts', 'serve', '--demo', '--listen', '127.0.0.1:0', '--speed', speed],
      ...['--metrics-per-service', 'all', '--metrics-max-services', String(shownServices)],
    ],
    'pipe',
    { OTEL_EXPORTER_OTLP_ENDPOINT: backend, OTEL_BSP_SCHEDULE_DELAY: '500' },
  );
  const serving = Promise.withResolvers<string>();
  const ended = Promise.withResolvers<undefined>();
  child.once('exit', (code) => {
    const error = new Error(`The program ended with ${String(code)}`);
    serving.reject(error);
    ended.reject(error);
  });
  // A scraper that does not wait for the end sees the beginning.
  ended.promise.catch(() => undefined);
  if (child.stdout === null) throw new Error('Expected stdout to be a pipe');
  createInterface({ input: child.stdout }).on('line', (line) => {
    const url = /^Serving (http:\S+?)\/ /.exec(line)?.[1];
    if (url !== undefined) serving.resolve(url);
    if (line.startsWith('The recording has ended')) ended.resolve(undefined);
  });
  return { url: await serving.promise, ended: ended.promise };
}

/** A backend of traces, and the ids of those that it took. It refuses every third request. */
async function tracesTaken() {
  const ids = new Set<string>();
  let requests = 0;
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => {
      const isTaken = ++requests % 3 !== 0;
      for (const { spans } of isTaken ? decodeTraces(Buffer.concat(pieces)) : []) {
        for (const { traceId } of spans) ids.add(hex(traceId));
      }
      response.writeHead(isTaken ? 200 : 400).end();
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { ids, url, close: () => void server.close() };
}

/** What makes Prometheus scrape `target` twice a second. */
const scraping = (target: string): object => ({
  global: { scrape_interval: '500ms', scrape_timeout: '500ms' },
  scrape_configs: [{ job_name: 'auditor', static_configs: [{ targets: [target] }] }],
});

// --- questions ---

interface Series {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: readonly [number, string];
}

async function instant(url: string, query: string): Promise<readonly Series[]> {
  return (await ask<{ result: readonly Series[] }>(url, 'query', { query })).result;
}

/** Waits until a scrape that began after this moment has been stored. */
async function nextScrape(url: string): Promise<void> {
  const since = Date.now() / 1000;
  for (let tries = 0; tries < 100; tries++) {
    // Of anything but a bare selector, timestamp() is that of the question.
    const [latest] = await instant(url, 'timestamp(up{job="auditor"}) and on (job) up == 1');
    if (Number(latest?.value[1] ?? 0) > since) return;
    await sleep(100);
  }
  throw new Error('Prometheus has not scraped for 10 s');
}

/** What the program shows, as `name{labels}` with labels in order → value. */
async function shown(url: string): Promise<Map<string, number>> {
  const headers = { accept: 'application/openmetrics-text; version=1.0.0' };
  const text = await (await fetch(`${url}/metrics`, { headers })).text();
  const series = new Map<string, number>();
  for (const line of text.split('\n')) {
    const groups = /^(?<name>[a-z_0-9]+)(?:\{(?<labels>[^}]*)\})? (?<value>\S+)/.exec(line)?.groups;
    if (groups === undefined) continue;
    const labels = [...(groups.labels ?? '').matchAll(/([a-z_]+)="([^"]*)"/g)];
    const all = labels.map(([, label = '', value = '']): [string, string] => [label, value]);
    // To Prometheus, a label without a value is an absent label.
    const known = all.filter(([, value]) => value !== '');
    series.set(idOf(groups.name ?? '', known), numberOf(groups.value ?? ''));
  }
  return series;
}

const numberOf = (text: string): number => Number(text.replace('Inf', 'Infinity'));

const idOf = (name: string, labels: readonly (readonly [string, string])[]): string =>
  `${name}{${labels
    // Prometheus writes numbers in a form of its own.
    .map(([label, value]) => `${label}="${label === 'le' ? numberOf(value) : value}"`)
    .sort()
    .join(',')}}`;

/** Labels of the scrape are Prometheus' own, and ours of the same name are kept beside them. */
function ownId({ metric }: Series): string {
  const own = Object.entries(metric).filter(
    ([label]) => !['__name__', 'job', 'instance'].includes(label),
  );
  return idOf(metric.__name__ ?? '', own);
}

// --- what must hold ---

interface Known {
  readonly name: string;
  readonly type: string;
  readonly help: string;
  readonly unit: string;
}

interface Metadata {
  readonly type: string;
  readonly help: string;
  readonly unit: string;
}

/** The name of a family; of a deprecated one, the name that replaces it. */
const currentName = ({ name, help }: Pick<Known, 'name' | 'help'>): string =>
  /^Deprecated: use (\S+)\.$/.exec(help)?.[1] ?? name;

const suffixes = ['_bucket', '_sum', '_count'];

const namesOf = ({ name, type }: Known): readonly string[] =>
  type === 'histogram' ? suffixes.map((suffix) => name + suffix) : [name];

/** Compares the answer of Prometheus for one family with what the program shows. */
async function checkFamily(
  url: string,
  family: Known,
  want: ReadonlyMap<string, number>,
): Promise<number> {
  const { name, type } = family;
  let count = 0;
  let isFilled = false;
  for (const one of namesOf(family)) {
    for (const series of await instant(url, `${one}{job="auditor"}`)) {
      count++;
      const [, got] = series.value;
      const value = numberOf(got);
      const id = ownId(series);
      if (want.size > 0) check(want.get(id) === value, `${id}: ${got}, not ${want.get(id)}`);
    }
    const [most] = await instant(url, `max(max_over_time(${one}{job="auditor"}[10m]))`);
    if (Number(most?.value[1] ?? 0) !== 0) isFilled = true;
    const shownCount = [...want.keys()].filter((id) => id.startsWith(`${one}{`)).length;
    if (want.size > 0) check(shownCount <= count, `${one}: ${count} series, not ${shownCount}`);
  }
  const current = currentName(family);
  const isSilent = current in silent;
  const isExcused = isSilent || passing.has(current);
  check(isFilled || isExcused, `${name}: every value is 0, and no reason is known for that`);
  check(!isFilled || !isSilent, `${name}: filled, though a reason is known why it cannot be`);
  if (type === 'histogram' && isFilled) {
    const query = `histogram_quantile(0.99, sum by (le) (${name}_bucket{job="auditor"}))`;
    const [quantile] = await instant(url, query);
    check(Number(quantile?.value[1]) >= 0, `${name}: no quantile`);
  }
  return count;
}

async function checkMetadata(url: string, all: readonly Known[]): Promise<void> {
  const metadata = await ask<Record<string, readonly Metadata[]>>(url, 'metadata');
  for (const { name, type, help, unit } of all) {
    // In OpenMetrics the family of a counter is called without its suffix.
    const [got] = metadata[name] ?? metadata[name.replace(/_total$/, '')] ?? [];
    if (got === undefined && passing.has(currentName({ name, help }))) continue;
    check(got?.type === type, `${name}: type ${got?.type}, not ${type}`);
    if (help !== '') check(got?.help === help, `${name}: help ${JSON.stringify(got?.help)}`);
    const isSaid = name.replace(/_total$/, '').endsWith(`_${unit}`);
    if (isSaid && help !== '') check(got?.unit === unit, `${name}: unit ${got?.unit}`);
  }
}

interface Exemplars {
  readonly exemplars: readonly { readonly labels: { readonly trace_id?: string } }[];
}

/** Exemplars of both lags. The backend of traces took most of them. */
async function checkExemplars(url: string, taken: ReadonlySet<string>): Promise<number> {
  const { start, end } = recorded;
  let count = 0;
  for (const lag of ['readiness', 'removal']) {
    const query = `endpoint_auditor_${lag}_lag_seconds_bucket`;
    const range = { start: String(start), end: String(end) };
    const found = await ask<readonly Exemplars[]>(url, 'query_exemplars', { query, ...range });
    const ids = found.flatMap(({ exemplars }) => exemplars.map(({ labels }) => labels.trace_id));
    count += ids.length;
    check(ids.length > 0, `${query}: no exemplars`);
    const known = ids.filter((id) => id !== undefined && taken.has(id));
    check(known.length > ids.length / 3, `${query}: ${known.length} of ${ids.length} were taken`);
  }
  return count;
}

type Traces = Awaited<ReturnType<typeof tracesTaken>>;

async function run(directory: string, traces: Traces): Promise<void> {
  // It is built before anything is replayed.
  await programOf('prometheus');
  const program = await replaying(traces.url);
  const server = await startPrometheus(directory, scraping(new URL(program.url).host), [
    '--enable-feature=exemplar-storage',
  ]);
  try {
    await program.ended;
    // Samples of a scrape that is under way may be of before the end.
    await nextScrape(server.url);
    await checkAll(server.url, program.url, traces);
  } finally {
    await server.stop();
  }
}

async function checkAll(prometheus: string, program: string, traces: Traces): Promise<void> {
  const want = await shown(program);
  const clusters: readonly Known[] = [...families, ...serviceFamilies];
  // What is known of the process changes from one scrape to the next.
  const own = processFamilies.map((family) => ({ ...family, help: '', unit: '' }));
  let series = 0;
  for (const family of clusters) series += await checkFamily(prometheus, family, want);
  for (const family of own) series += await checkFamily(prometheus, family, new Map());
  await checkMetadata(prometheus, [...clusters, ...own]);
  const [scrapes] = await instant(prometheus, 'sum(sum_over_time(up{job="auditor"}[10m]))');
  check(Number(scrapes?.value[1]) > 2, 'too few scrapes during the replay');
  const exemplars = await checkExemplars(prometheus, traces.ids);
  const count = clusters.length + own.length;
  process.stdout.write(
    `${scrapes?.value[1] ?? '0'} scrapes, ${count} families, ${series} series asked for, ` +
      `${exemplars} exemplars\n`,
  );
}

const began = performance.now();
const directory = await mkdtemp(join(tmpdir(), 'prometheus-'));
const traces = await tracesTaken();
try {
  await run(directory, traces);
} finally {
  await stopAll();
  traces.close();
  await rm(directory, { recursive: true, force: true });
}
for (const problem of problems) process.stdout.write(`${problem}\n`);
const seconds = Math.round((performance.now() - began) / 1000);
process.stdout.write(`${problems.length} problems in ${seconds} s\n`);
process.exitCode = problems.length === 0 ? 0 : 1;
