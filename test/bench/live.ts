// The program on a live cluster as large as clusters get: `npm run -s bench -- sync`, `events` or
// `scrape`, with `--share=10` for a tenth of it, `--only=protobuf,JSON` for some of the variants,
// and `--path=` for another page to be scraped.
//
// The load server is pinned to one core and the program to the other, over TLS, once in protobuf
// and once in JSON; kube-state-metrics takes the program's place in the same run, on the same
// resources. Figures are what the kernel says of the process, what an answer took, and of stalls
// also what the program's own metric says. Other work on the two cores makes times longer, and
// stalls, which are nothing but time; it makes CPU time little larger.

import { setTimeout as sleep } from 'node:timers/promises';

import type { StateMetrics } from './ksm.ts';
import { startStateMetrics } from './ksm.ts';
import type { LoadServer, Stamp } from './loadserver.ts';
import { startLoadServer } from './loadserver.ts';
import { quantile, round } from './measure.ts';
import type { Auditing } from './program.ts';
import { sampleOf, startAuditing } from './program.ts';

export const liveParts = ['sync', 'events', 'scrape'] as const;

export type LivePart = (typeof liveParts)[number];

export interface LivePlan {
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

export type Variant = (typeof variants)[number];

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
const allSeries = ['--metrics.per-service', 'all', '--metrics.max-services', '10000'];

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
    await load.churn(alone ? aloneRate : rate, alone);
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
    await load.churn(alone ? aloneRate : rate, alone);
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
