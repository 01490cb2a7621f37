// Traces in a real backend: `npm run zipkin`. Zipkin's own server, which Maven fetches once into
// the user's cache ($XDG_CACHE_HOME), keeps in memory what the replay of the recording sends
// through the SDK, and is asked for traces by their ids: their spans must be those of the journeys,
// with the same names, parents, times and attributes. `--picture FILE` has Chromium draw the page
// of one.
//
// Everything is on the loopback and ends with the test.

import type { ChildProcess } from 'node:child_process';
import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs, promisify } from 'node:util';

import type { Journey } from '../../src/audit/measure/journey.ts';
import { journeyLength } from '../../src/audit/measure/journey.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { replay } from '../../src/auditor/replay.ts';
import { recordingOf } from '../../src/commands/replay.ts';
import type { SpanPlan } from '../../src/output/traces/otel.ts';
import { planTrace } from '../../src/output/traces/otel.ts';
import { startTracing } from '../../src/output/traces/tracing.ts';
import { auditorDefaults } from '../build.ts';
import { browserProgram, cacheFolder, endProgram, freePort } from '../processes.ts';

const run = promisify(execFile);

const version = '3.5.1';
const recording = join(import.meta.dirname, '../recordings/shop.ndjson.gz');

const { values: flags } = parseArgs({ options: { picture: { type: 'string' } } });

const problems: string[] = [];

function check(isRight: boolean, what: string): void {
  if (!isRight) problems.push(what);
}

/** The path of the server. */
async function jarOf(): Promise<string> {
  const directory = cacheFolder('zipkin');
  const path = join(directory, `zipkin-server-${version}-exec.jar`);
  if (existsSync(path)) return path;
  await mkdir(directory, { recursive: true });
  const artifact = `io.zipkin:zipkin-server:${version}:jar:exec`;
  const goal = ['dependency:copy', `-Dartifact=${artifact}`, `-DoutputDirectory=${directory}`];
  await run('mvn', ['-q', '-B', ...goal]);
  return path;
}

/** The server in memory, when it is ready. */
async function zipkin(): Promise<{ readonly url: string; readonly child: ChildProcess }> {
  const jar = await jarOf();
  const port = String(await freePort());
  const env = { ...process.env, QUERY_PORT: port, STORAGE_TYPE: 'mem', MEM_MAX_SPANS: '100000' };
  const args = ['-Xmx512m', `-Darmeria.address=127.0.0.1`, '-jar', jar];
  const child = spawn('java', [...args, '--server.address=127.0.0.1'], { env, stdio: 'ignore' });
  const url = `http://127.0.0.1:${port}`;
  for (let tries = 0; tries < 1800; tries++) {
    if (child.exitCode !== null) throw new Error(`Zipkin ended with ${child.exitCode}`);
    const answer = await fetch(`${url}/health`).catch(() => null);
    if (answer?.ok === true) return { url, child };
    await sleep(100);
  }
  await endProgram(child, 'SIGKILL');
  throw new Error('Zipkin is not ready after 3 minutes');
}

interface Sent {
  readonly traceId: string;
  readonly journey: Journey;
  readonly endedAt: number;
}

/** Replays the recording, and sends every journey. */
async function sendAll(url: string): Promise<readonly Sent[]> {
  process.env.OTEL_EXPORTER_ZIPKIN_ENDPOINT = `${url}/api/v2/spans`;
  const tracing = await startTracing(
    {
      exporter: 'zipkin',
      ratio: 1,
      limits: { queue: 20_000, batch: 512, delayMs: 200, timeoutMs: 30_000 },
    },
    'test',
    (text) => check(false, text),
  );
  const sent: Sent[] = [];
  const auditor = createAuditor({
    ...auditorDefaults,
    onJourney(journey) {
      const endedAt = auditor.now() ?? 0;
      const traceId = tracing.take(journey, endedAt);
      if (traceId !== null) sent.push({ traceId, journey, endedAt });
    },
  });
  const entries = await recordingOf(recording, auditor, () => undefined);
  await replay(auditor, entries, { speed: Infinity, until: null });
  await tracing.close();
  const { exported, dropped, journeys } = tracing.counts;
  check(
    Object.values(dropped).every((count) => count === 0),
    JSON.stringify(dropped),
  );
  check(journeys.none === 0 && sent.length === journeys.slow + journeys.ratio, 'journeys left out');
  process.stdout.write(`${sent.length} journeys, ${exported} spans\n`);
  return sent;
}

interface ZipkinSpan {
  readonly id: string;
  readonly parentId?: string;
  readonly name: string;
  readonly timestamp: number;
  readonly duration?: number;
  readonly tags?: Readonly<Record<string, string>>;
  readonly localEndpoint: { readonly serviceName: string };
}

/**
 * Name, microseconds, and tags, as Zipkin has them: names in lower case, no duration of 0. What is
 * known of the sender is a tag too, and left out here.
 */
function textOf(name: string, start: number, length: number, tags: object): string {
  const sorted = Object.entries(tags)
    .filter(([key, value]) => value !== undefined && /^(?:k8s|endpoint_auditor)\./.test(key))
    .map(([key, value]) => `${key}=${String(value)}`);
  const micros = `${start} +${Math.max(1, length)}`;
  return `${name.toLowerCase()} ${micros} ${sorted.sort().join(' ')}`;
}

const micros = (seconds: number): number => Math.round(seconds * 1e6);

const wanted = ({ name, start, end, attributes }: SpanPlan): string =>
  textOf(name, micros(start), micros(end) - micros(start), attributes);

/** Compares a trace of the API with its journey. */
async function checkTrace(url: string, { traceId, journey, endedAt }: Sent): Promise<void> {
  const answer = await fetch(`${url}/api/v2/trace/${traceId}`);
  const spans = answer.ok ? ((await answer.json()) as readonly ZipkinSpan[]) : [];
  const { root, stages } = planTrace(journey, endedAt);
  const got = spans.map(({ name, timestamp, duration = 0, tags = {} }) =>
    textOf(name, timestamp, duration, tags),
  );
  const want = [root, ...stages].map(wanted);
  const same = got.toSorted().join('\n') === want.toSorted().join('\n');
  check(same, `${traceId}: got\n${got.join('\n')}\nwant\n${want.join('\n')}`);
  const parent = spans.find(({ parentId }) => parentId === undefined);
  const others = spans.filter((span) => span !== parent);
  check(
    others.every(({ parentId }) => parentId === parent?.id),
    `${traceId}: parents`,
  );
  check(parent?.localEndpoint.serviceName === 'endpoint-auditor', `${traceId}: service`);
}

/** Found as a person would: by the name of a pod, at the time of the journey. */
async function checkSearch(url: string, { traceId, journey, endedAt }: Sent): Promise<void> {
  const query = new URLSearchParams({
    serviceName: 'endpoint-auditor',
    annotationQuery: `k8s.pod.name=${journey.pod}`,
    endTs: String(Math.ceil(endedAt * 1000) + 60_000),
    lookback: String(3_600_000),
    limit: '100',
  });
  const answer = await fetch(`${url}/api/v2/traces?${String(query)}`);
  const traces = (await answer.json()) as readonly (readonly { traceId: string }[])[];
  const ids = traces.map(([first]) => first?.traceId);
  check(ids.includes(traceId), `a search for ${journey.pod} did not find ${traceId}`);
}

/** A journey that is worth a picture: late, at all outputs, and at two nodes or more. */
function tellingOf(sent: readonly Sent[]): Sent | undefined {
  const telling = sent.filter(
    ({ journey: { end, operation, nodes, quality } }) =>
      end === 'complete' && operation === 'add' && nodes > 1 && quality !== 'gap',
  );
  return telling
    .toSorted((a, b) => journeyLength(a.journey) - journeyLength(b.journey))
    .at(Math.floor(telling.length / 2));
}

async function draw(url: string, { traceId }: Sent, file: string): Promise<void> {
  const profile = await mkdtemp(join(tmpdir(), 'chromium-'));
  const args = [
    ...['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
    ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
    ...[`--user-data-dir=${profile}`, '--window-size=1400,760', '--virtual-time-budget=15000'],
    ...[`--screenshot=${resolve(file)}`, `${url}/zipkin/traces/${traceId}`],
  ];
  try {
    await run(browserProgram(), args, { timeout: 60_000 });
  } finally {
    await rm(profile, { recursive: true, force: true });
  }
}

const { url, child } = await zipkin();
try {
  const sent = await sendAll(url);
  check(sent.length > 0, 'no journeys');
  for (const one of sent) await checkTrace(url, one);
  const telling = tellingOf(sent);
  if (telling === undefined) throw new Error('No journey came to two nodes');
  await checkSearch(url, telling);
  if (flags.picture !== undefined) await draw(url, telling, flags.picture);
} finally {
  await endProgram(child, 'SIGKILL');
}
for (const problem of problems.slice(0, 5)) process.stdout.write(`${problem}\n`);
process.stdout.write(`${problems.length} problems\n`);
process.exitCode = problems.length === 0 ? 0 : 1;
