// kube-state-metrics v2.18.0 beside the auditor: the exporter that everybody has, on the same
// cluster and the same resources, for what it costs. Built from its module
// (kube-state-metrics/go.mod).
//
// It has no signal for "everything is listed". The test derives it from its own metrics: a watch
// of every resource has begun, which follows the list. Whether the first scrape then has all pods
// is counted, and it is repeated until it has.
//
// Run alone, it measures: `node test/bench/live.ts [SHARE]`.

import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

import { freePort } from '../processes.ts';
import { quantile, round } from './measure.ts';
import type { Auditing, LoadServer, Stamp, Usage } from './program.ts';
import { build, sampleOf, start, startAuditing, startLoadServer, usageOf } from './program.ts';

const watched = ['pods', 'services', 'endpoints', 'endpointslices', 'nodes'];

/** What a scrape gave, counted while it came. */
interface Scrape {
  readonly seconds: number;
  readonly bytes: number;
  /** Lines that begin with `kube_pod_info{`. */
  readonly pods: number;
}

interface StateMetrics {
  readonly pid: number;
  readonly url: string;
  /** When it was started, by performance.now(). */
  readonly started: number;
  readonly scrape: () => Promise<Scrape>;
  /** Whether a watch of every resource has begun. */
  readonly isWatching: () => Promise<boolean>;
  readonly usage: () => Promise<Usage>;
  readonly hasEnded: () => boolean;
  readonly stop: () => Promise<void>;
}

/** Asks for a page and hands its parts on as they come. */
async function get(url: string, onPart: (part: Buffer) => void): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<undefined>();
  const asked = request(url, (answer) => {
    answer.on('data', onPart);
    answer.on('error', reject);
    answer.on('end', () => resolve(undefined));
  });
  asked.on('error', reject);
  asked.end();
  await promise;
}

async function scrape(url: string): Promise<Scrape> {
  const begun = performance.now();
  const line = Buffer.from('\nkube_pod_info{');
  let [bytes, pods] = [0, 0];
  let rest: Buffer = Buffer.alloc(0);
  await get(url, (part) => {
    bytes += part.length;
    const text = Buffer.concat([rest, part]);
    for (let at = text.indexOf(line); at >= 0; at = text.indexOf(line, at + 1)) pods++;
    rest = text.subarray(Math.max(text.length - line.length + 1, 0));
  });
  return { seconds: (performance.now() - begun) / 1000, bytes, pods };
}

const watchForm = /^kube_state_metrics_watch_total\{[^}]*resource="\*v1\.(\w+)"[^}]*\} [1-9]/gm;

/** Starts kube-state-metrics against a server; it is built first, which may take minutes. */
async function startStateMetrics(
  { kubeconfig }: Pick<LoadServer, 'kubeconfig'>,
  core: number | null = null,
): Promise<StateMetrics> {
  const name = 'kube-state-metrics';
  const path = await build(name, 'k8s.io/kube-state-metrics/v2', name);
  const [port, ownPort] = [await freePort(), await freePort()];
  const args = [
    `--kubeconfig=${kubeconfig}`,
    `--resources=${watched.join(',')}`,
    '--host=127.0.0.1',
    `--port=${port}`,
    '--telemetry-host=127.0.0.1',
    `--telemetry-port=${ownPort}`,
  ];
  // It logs everything to stderr.
  const program = start(path, args, core, { stderr: 'ignore' });
  program.child.stdout?.resume();
  const url = `http://127.0.0.1:${port}/metrics`;
  const isWatching = async (): Promise<boolean> => {
    const parts: Buffer[] = [];
    await get(`http://127.0.0.1:${ownPort}/metrics`, (part) => parts.push(part));
    const text = Buffer.concat(parts).toString();
    return new Set([...text.matchAll(watchForm)].map((match) => match[1])).size >= watched.length;
  };
  return {
    pid: program.pid,
    url,
    started: program.started,
    scrape: () => scrape(url),
    isWatching,
    usage: () => usageOf(program.pid),
    hasEnded: () => program.child.exitCode !== null,
    stop: program.stop,
  };
}

/** What kube-state-metrics needs from its start until a scrape has every pod. */
interface FirstScrape {
  /** Seconds from its start until all watches have begun, and until the scrape has ended. */
  readonly watching: number;
  readonly scraped: number;
  readonly scrape: Scrape;
  /** What it had used by then. */
  readonly beforeScrape: Usage;
  readonly usage: Usage;
}

async function measureFirstScrape(
  load: LoadServer,
  core: number | null = null,
): Promise<FirstScrape> {
  const { pods = 0 } = await load.world();
  const metrics = await startStateMetrics(load, core);
  const passed = (): number => (performance.now() - metrics.started) / 1000;
  try {
    while (!(await metrics.isWatching().catch(() => false))) {
      if (metrics.hasEnded()) throw new Error('kube-state-metrics has ended');
      await sleep(100);
    }
    const [watching, beforeScrape] = [passed(), await metrics.usage()];
    let scrape = await metrics.scrape();
    while (scrape.pods < pods) scrape = await metrics.scrape();
    const usage = await metrics.usage();
    return { watching, scraped: passed(), scrape, beforeScrape, usage };
  } finally {
    await metrics.stop();
  }
}

if (import.meta.main) {
  const load = await startLoadServer({ share: Number(process.argv[2] ?? 1), core: 0 });
  try {
    const found = await measureFirstScrape(load, 1);
    process.stdout.write(`${JSON.stringify({ ...found, requests: await load.requests() })}\n`);
  } finally {
    await load.stop();
  }
}

// The program on a live cluster as large as clusters get: `npm run -s bench -- sync`, `events` or
// `scrape`, with `--share=10` for a tenth of it, `--only=protobuf,JSON` for some of the variants,
// and `--path=` for another page to be scraped.
//
// The load server is pinned to one core and the program to the other, over TLS, once in protobuf
// and once in JSON; kube-state-metrics takes the program's place in the same run, on the same
// resources. Figures are what the kernel says of the process, what an answer took, and of stalls
// also what the program's own metric says. Other work on the two cores makes times longer, and
// stalls, which are nothing but time; it makes CPU time little larger.

export const liveParts = ['sync', 'events', 'scrape'] as const;

export type LivePart = (typeof liveParts)[number];

interface LivePlan {
  readonly part: LivePart;
  /** Divides the size of the cluster. */
  readonly share: number;
  /** What is scraped. */
  readonly path: string;
  readonly variants: readonly Variant[];
}

/** A figure, what it may be at most (null: nothing was promised), and what it is, per variant. */
export interface LiveRow {
  readonly name: string;
  readonly most: Readonly<Partial<Record<Variant, number>>>;
  readonly reached: Readonly<Partial<Record<Variant, number>>>;
}

export const variants = ['protobuf', 'JSON', 'kube-state-metrics'] as const;

type Variant = (typeof variants)[number];

type Figures = Record<string, number>;

const serverCore = 0;
const programCore = 1;

/** What each figure may be at most. */
const targets: Readonly<Record<string, Partial<Record<Variant, number>>>> = {
  'first complete audit, s': { protobuf: 6, JSON: 15 },
  'RSS at the peak, MiB': { protobuf: 600, JSON: 600 },
  'RSS afterwards, MiB': { protobuf: 400, JSON: 400 },
  'longest stall by its own metric, ms': { protobuf: 50, JSON: 50 },
  'longest turn of its loop in CPU, ms': { protobuf: 50, JSON: 50 },
  'longest answer of /livez, ms': { protobuf: 50, JSON: 50 },
  'CPU per event of a pod alone, µs': { protobuf: 40, JSON: 120 },
  'event to /metrics, p99, ms': { protobuf: 50, JSON: 50 },
  'scrape, p99, ms': { protobuf: 10, JSON: 10 },
  'all series: scrape, p99, ms': { protobuf: 60, JSON: 60 },
  'all series: longest turn of its loop in CPU, ms': { protobuf: 50, JSON: 50 },
};

/** Runs one part for each variant, one after the other. */
export async function measureLive(plan: LivePlan): Promise<LiveRow[]> {
  const found = new Map<Variant, Figures>();
  for (const variant of plan.variants) {
    process.stderr.write(`${plan.part}, ${variant}\n`);
    const load = await startLoadServer({
      share: plan.share,
      core: serverCore,
      json: variant === 'JSON',
    });
    try {
      const isOurs = variant !== 'kube-state-metrics';
      const figures = await (isOurs ? measureOurs(load, plan) : measureTheirs(load, plan));
      found.set(variant, figures);
      process.stderr.write(`${JSON.stringify(figures)}\n`);
    } finally {
      await load.stop();
    }
  }
  const names = new Set([...found.values()].flatMap((figures) => Object.keys(figures)));
  return [...names].map((name) => ({
    name,
    most: targets[name] ?? {},
    reached: Object.fromEntries(
      [...found].flatMap(([variant, figures]) => {
        const figure = figures[name];
        return figure === undefined ? [] : [[variant, round(figure)]];
      }),
    ),
  }));
}

// --- the program ---

const lagMetric = 'nodejs_eventloop_lag_max_seconds';
const quietSeconds = 15;
const churnSeconds = 10;
const rate = 500;
/** Changes of pods that make 500 events per second, with their slices and Endpoints. */
const visibleRate = 167;

/** Pod events only: enough that reading and comparing dominate, not the wake-ups. */
const aloneRate = 5000;

async function measureOurs(load: LoadServer, plan: LivePlan): Promise<Figures> {
  if (plan.part !== 'scrape') return withProgram(load, [], (program) => part(load, program, plan));
  const usual = await withProgram(load, [], (program) => part(load, program, plan));
  const all = await withProgram(load, allSeries, (program) => part(load, program, plan));
  const named = Object.entries(all).map(([name, figure]) => [`all series: ${name}`, figure]);
  return { ...usual, ...(Object.fromEntries(named) as Figures) };
}

/** Every Service has series of its own. */
const allSeries = ['--metrics-per-service', 'all', '--metrics-max-services', '10000'];

async function withProgram(
  load: LoadServer,
  more: readonly string[],
  measure: (program: Auditing) => Promise<Figures>,
): Promise<Figures> {
  const program = await startAuditing(load, programCore, more);
  try {
    return await measure(program);
  } finally {
    await program.stop();
  }
}

async function part(load: LoadServer, program: Auditing, plan: LivePlan): Promise<Figures> {
  const synced = await sync(program);
  if (plan.part === 'sync') return { ...synced, ...(await rest(program)) };
  await sleep(3000);
  return plan.part === 'events' ? events(load, program) : scrapes(load, program, plan.path);
}

/** From the start until every Service is compared. */
async function sync(program: Auditing): Promise<Figures> {
  await program.get('/metrics'); // from here on it observes its event loop
  await program.longestTurn(); // that of its start
  let slowest = 0;
  for (;;) {
    const { seconds } = await program.get('/livez');
    slowest = Math.max(slowest, seconds);
    if ((await program.get('/readyz')).status === 200) break;
    await sleep(100);
  }
  const wall = (performance.now() - program.started) / 1000;
  const { cpu, waited } = await program.usage();
  const { text } = await program.get('/metrics');
  return {
    'first complete audit, s': wall,
    'of that, waiting while other work had the core, s': waited,
    'CPU until then, s': cpu,
    'longest stall by its own metric, ms': 1000 * sampleOf(text, lagMetric),
    'longest turn of its loop in CPU, ms': 1000 * (await program.longestTurn()),
    'longest answer of /livez, ms': 1000 * slowest,
  };
}

async function rest(program: Auditing): Promise<Figures> {
  await sleep(1000 * quietSeconds);
  const { rss, peak } = await program.usage();
  return { 'RSS at the peak, MiB': peak, 'RSS afterwards, MiB': rss };
}

const delivered = (text: string, label: string): number =>
  sampleOf(text, 'endpoint_auditor_watch_frames_total', label);

const ofPods = 'resource="pods",result="delivered"';
const ofAll = 'result="delivered"';

async function events(load: LoadServer, program: Auditing): Promise<Figures> {
  const spent = async (alone: boolean): Promise<{ cpu: number; pods: number; all: number }> => {
    await load.churn(alone ? aloneRate : rate, alone ? 'alone' : 'followed');
    await sleep(1000);
    const [before, used] = [await program.get('/metrics'), await program.usage()];
    await sleep(1000 * churnSeconds);
    const [after, usedThen] = [await program.get('/metrics'), await program.usage()];
    return {
      cpu: 1e6 * (usedThen.cpu - used.cpu),
      pods: delivered(after.text, ofPods) - delivered(before.text, ofPods),
      all: delivered(after.text, ofAll) - delivered(before.text, ofAll),
    };
  };
  const alone = await spent(true);
  const followed = await spent(false);
  await load.churn(0);
  await sleep(1000);
  const latencies = await visible(load, program);
  const { rss, peak } = await program.usage();
  const { text } = await program.get('/metrics');
  return {
    'CPU per event of a pod alone, µs': alone.cpu / alone.pods,
    'CPU per change of a pod, with its slice and Endpoints, µs': followed.cpu / followed.pods,
    'CPU per event of these, µs': followed.cpu / followed.all,
    'event to /metrics, p50, ms': 1000 * quantile(latencies, 0.5),
    'event to /metrics, p99, ms': 1000 * quantile(latencies, 0.99),
    'longest stall by its own metric, ms': 1000 * sampleOf(text, lagMetric),
    'longest turn of its loop in CPU, ms': 1000 * (await program.longestTurn()),
    'RSS at the peak, MiB': peak,
    'RSS afterwards, MiB': rss,
  };
}

const updatesMetric = 'endpoint_auditor_updates_total';
const ofSlices = 'resource="endpointslices"';

/**
 * Seconds from when a slice was sent until a scrape shows that it was taken in, scrapes being asked
 * for one after the other: a scrape longer than the truth.
 */
async function visible(load: LoadServer, program: Auditing): Promise<number[]> {
  const taken = async (): Promise<{ at: number; count: number }> => {
    const { text, at } = await program.get('/metrics');
    return { at, count: sampleOf(text, updatesMetric, ofSlices) };
  };
  // What was made before is taken in first.
  let { count: begun } = await taken();
  for (let before = -1; before !== begun; begun = (await taken()).count) {
    before = begun;
    await sleep(1000);
  }
  await load.stamps(true);
  const seen: { at: number; count: number }[] = [];
  const watchFor = async (seconds: number): Promise<void> => {
    const ends = performance.now() + 1000 * seconds;
    while (performance.now() < ends) {
      const { at, count } = await taken();
      seen.push({ at, count: count - begun });
      await sleep(20);
    }
  };
  await load.churn(visibleRate);
  await watchFor(churnSeconds);
  await load.churn(0);
  await watchFor(churnSeconds / 2);
  const sent = (await load.stamps(true))
    .filter(({ resource, sentAt }) => resource === 'endpointslices' && sentAt > 0)
    .sort((a: Stamp, b: Stamp) => a.resourceVersion - b.resourceVersion);
  let scrape = 0;
  return sent.flatMap(({ sentAt }, index) => {
    while (scrape < seen.length && (seen[scrape]?.count ?? 0) <= index) scrape++;
    const at = seen[scrape]?.at;
    return at === undefined ? [] : [at - sentAt];
  });
}

const scrapeCount = 300;
/** Between two scrapes: a hundredth of what Prometheus leaves. */
const pauseMs = 150;
const quietScrapes = 100;

async function scrapes(load: LoadServer, program: Auditing, path: string): Promise<Figures> {
  await load.churn(visibleRate);
  const seconds: number[] = [];
  let bytes = 0;
  for (let count = 0; count < scrapeCount; count++) {
    const answer = await program.get(path);
    seconds.push(answer.seconds);
    bytes = Buffer.byteLength(answer.text);
    await sleep(pauseMs);
  }
  await load.churn(0);
  await sleep(1000);
  const turn = await program.longestTurn();
  const { cpu } = await program.usage();
  for (let count = 0; count < quietScrapes; count++) await program.get(path);
  const spent = (await program.usage()).cpu - cpu;
  return {
    'CPU per scrape while nothing happens, ms': (1000 * spent) / quietScrapes,
    'longest turn of its loop in CPU, ms': 1000 * turn,
    'scrape, p50, ms': 1000 * quantile(seconds, 0.5),
    'scrape, p99, ms': 1000 * quantile(seconds, 0.99),
    'scrape, kB': bytes / 1000,
  };
}

// --- kube-state-metrics ---

async function measureTheirs(load: LoadServer, { part }: LivePlan): Promise<Figures> {
  const { pods = 0 } = await load.world();
  const metrics = await startStateMetrics(load, programCore);
  try {
    while (!(await metrics.isWatching().catch(() => false))) {
      if (metrics.hasEnded()) throw new Error('kube-state-metrics has ended');
      await sleep(100);
    }
    let scrape = await metrics.scrape();
    while (scrape.pods < pods) scrape = await metrics.scrape();
    const wall = (performance.now() - metrics.started) / 1000;
    const { cpu } = await metrics.usage();
    if (part === 'events') return await theirEvents(load, metrics);
    if (part === 'scrape') return await theirScrapes(metrics);
    await sleep(1000 * quietSeconds);
    const { rss, peak } = await metrics.usage();
    return {
      'first complete audit, s': wall,
      'CPU until then, s': cpu,
      'RSS at the peak, MiB': peak,
      'RSS afterwards, MiB': rss,
    };
  } finally {
    await metrics.stop();
  }
}

async function theirEvents(load: LoadServer, metrics: StateMetrics): Promise<Figures> {
  const spent = async (alone: boolean): Promise<{ cpu: number; pods: number; all: number }> => {
    await load.churn(alone ? aloneRate : rate, alone ? 'alone' : 'followed');
    await sleep(1000);
    await load.stamps(true);
    const used = await metrics.usage();
    await sleep(1000 * churnSeconds);
    const usedThen = await metrics.usage();
    const made = await load.stamps(true);
    const pods = made.filter(({ resource }) => resource === 'pods').length;
    return { cpu: 1e6 * (usedThen.cpu - used.cpu), pods, all: made.length };
  };
  const alone = await spent(true);
  const followed = await spent(false);
  await load.churn(0);
  const { rss, peak } = await metrics.usage();
  return {
    'CPU per event of a pod alone, µs': alone.cpu / alone.pods,
    'CPU per change of a pod, with its slice and Endpoints, µs': followed.cpu / followed.pods,
    'CPU per event of these, µs': followed.cpu / followed.all,
    'RSS at the peak, MiB': peak,
    'RSS afterwards, MiB': rss,
  };
}

async function theirScrapes(metrics: StateMetrics): Promise<Figures> {
  const found = [await metrics.scrape(), await metrics.scrape(), await metrics.scrape()];
  const seconds = found.map((one) => one.seconds);
  return {
    'scrape, p50, ms': 1000 * quantile(seconds, 0.5),
    'scrape, kB': (found[0]?.bytes ?? 0) / 1000,
  };
}
