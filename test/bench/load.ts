// The program under more load than it should ever get:
//
//   npm run -s load -- [--seconds 60] [--share 10] [flood] [clients] [goaway] [large] [shards]
//
// The load server (apiserver/), the program and its clients (clients.ts) are processes of their
// own. Each part compares its figures with limits, and the command ends with 1 if one is exceeded:
//
// - flood: 4,000 pods per second change their readiness and no controller follows, for some
//   seconds each before, during and after an outage of the API server of 12 s.
// - clients: 2,000 scrapes at one time and 500 pages, of clients that wait and of others.
// - goaway: every answer of the API server comes with a GOAWAY, and watches end after 2 s.
// - large: pods of 1.5 MB, at the memory limit of the chart's smallest size.
// - shards: three shards are killed and start again at the same time.
//
// After flood, goaway and shards, the verdicts and findings must equal those of a fresh process.
// Time that the program waited while other work had the core does not count for `/livez`.

import { loadavg } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

import { type Crowd, type Probed, sendCrowd, startProbe } from './clients.ts';
import { quantile, round } from './measure.ts';
import type { Auditing, LoadServer } from './program.ts';
import { buildBundle, sampleOf, startAuditing, startLoadServer } from './program.ts';

/** Pods per second that change, and the changes per second of a usual cluster. */
const rate = { flood: 4000, usual: 20 };

/** Seconds; the server closes a connection that is idle for 15. */
const lasting = { usual: 12, outage: 12, crowd: 30, settle: 10 };

/** The most: times the usual resident memory, seconds of /livez, and MiB (chart: small). */
const limits = { memory: 2, livez: 0.1, crowdedLivez: 0.5, resident: 320 };

const flags = ['--settle', `${lasting.settle}s`];

let failed = 0;

/** Prints a figure; `most` is what it may be. */
function report(part: string, name: string, value: number, most = Infinity): void {
  const isFine = value <= most;
  if (!isFine) failed++;
  const limit = most === Infinity ? '' : String(round(most));
  const cells = [part, name, round(value), limit, isFine ? '' : 'FAILED'];
  console.log(`| ${cells.join(' | ')} |`);
}

const start = (load: LoadServer, more: readonly string[] = []): Promise<Auditing> =>
  startAuditing(load, null, [...flags, ...more]);

async function awaitReady(program: Auditing, seconds = 300): Promise<void> {
  for (let left = seconds * 5; (await program.get('/readyz')).status !== 200; left--) {
    if (left === 0) throw new Error('The program is not ready');
    await sleep(200);
  }
}

/** The most MiB of resident memory while something happens. */
async function residentDuring<T>(
  program: Auditing,
  act: Promise<T>,
): Promise<{ resident: number; result: T }> {
  let resident = 0;
  const end = new AbortController();
  const done = act.finally(() => end.abort());
  while (!end.signal.aborted) {
    resident = Math.max(resident, (await program.usage()).rss);
    await program.get('/livez');
    await Promise.race([done, sleep(250)]);
  }
  return { resident, result: await done };
}

function reportProbes(part: string, { answers, seconds, alone }: Probed, most: number): void {
  const { '200': good = 0, ...others } = answers;
  const bad = Object.values(others).reduce((sum, count) => sum + count, 0);
  report(part, '/livez, p50, ms', 1000 * quantile(seconds, 0.5));
  report(part, '/livez, p99, ms', 1000 * quantile(seconds, 0.99));
  report(part, '/livez, slowest, ms', 1000 * Math.max(...seconds));
  const slowest = 1000 * Math.max(...alone);
  report(part, '/livez, slowest, without waiting for a core, ms', slowest, 1000 * most);
  report(part, `/livez without 200, of ${good + bad} ${JSON.stringify(others)}`, bad, 0);
}

interface Finding {
  readonly code: string;
  readonly differences: readonly object[];
  readonly [field: string]: unknown;
}

/** What a program says of the cluster, without times and order. */
async function verdictOf(program: Auditing): Promise<readonly string[]> {
  const { standing } = JSON.parse((await program.get('/api/v1/findings')).text) as {
    standing: Finding[];
  };
  const findings = standing.flatMap(({ code, output, namespace, service, severity, differences }) =>
    [{}, ...differences].map((difference) =>
      JSON.stringify([code, output, namespace, service, severity, difference]),
    ),
  );
  const { text } = await program.get('/metrics');
  const outputs = text.split('\n').filter((line) => line.startsWith('endpoint_auditor_outputs{'));
  return [...outputs, ...findings].sort();
}

/** Compares the verdicts with those of a fresh process. */
async function compareWithFresh(part: string, load: LoadServer, program: Auditing): Promise<void> {
  const fresh = await start(load);
  try {
    await awaitReady(fresh);
    // The window, and a read of each Service that differs.
    await sleep(1000 * (lasting.settle + 5));
    for (let left = 60; left > 0 && (await isUndecided(fresh, program)); left--) await sleep(1000);
    const [got, want] = [await verdictOf(program), await verdictOf(fresh)];
    const [found, wanted] = [new Set(got), new Set(want)];
    const wrong = [
      ...got.filter((one) => !wanted.has(one)).map((one) => `too much: ${one}`),
      ...want.filter((one) => !found.has(one)).map((one) => `missing: ${one}`),
    ];
    for (const one of wrong.slice(0, 5)) console.log(one);
    report(part, `differences from a fresh process, of ${want.length} lines`, wrong.length, 0);
  } finally {
    await fresh.stop();
  }
}

/** Whether a verdict is pending, or unknown since a resource is listed again. */
async function isUndecided(...programs: readonly Auditing[]): Promise<boolean> {
  for (const program of programs) {
    const { text } = await program.get('/metrics');
    const outputs = (verdict: string): number =>
      sampleOf(text, 'endpoint_auditor_outputs', `verdict="${verdict}"`);
    if (outputs('pending') + outputs('unknown') > 0) return true;
  }
  return false;
}

/** Pod events that the program has taken in. */
async function taken(program: Auditing): Promise<number> {
  const { text } = await program.get('/metrics');
  const name = 'endpoint_auditor_watch_frames_total';
  return sampleOf(text, name, 'resource="pods",result="delivered"');
}

/** Waits for the next pod event: as client-go, the program pauses up to 30 s, doubled by chance. */
async function awaitEvents(program: Auditing): Promise<void> {
  const before = await taken(program);
  for (let left = 75; left > 0 && (await taken(program)) === before; left--) await sleep(1000);
}

/** Pod events per second that the program takes in while something happens. */
async function takenDuring(program: Auditing, act: Promise<unknown>): Promise<number> {
  const [before, begun] = [await taken(program), performance.now()];
  await act;
  return (1000 * ((await taken(program)) - before)) / (performance.now() - begun);
}

async function usualMemory(part: string, load: LoadServer, program: Auditing): Promise<number> {
  await load.churn(rate.usual);
  const { resident } = await residentDuring(program, sleep(1000 * lasting.usual));
  report(part, `resident memory at ${rate.usual} changes per second, MiB`, resident);
  return resident;
}

// The parts.

async function flood(load: LoadServer, seconds: number): Promise<void> {
  const program = await start(load);
  try {
    await awaitReady(program);
    const usual = await usualMemory('flood', load, program);
    const stopProbe = startProbe(program);
    await load.churn(rate.flood, 'stopped');
    await program.longestTurn();
    const parts: readonly (readonly [string, () => Promise<unknown>])[] = [
      ['before', () => sleep(1000 * seconds)],
      ['outage', () => load.breakOff(lasting.outage).then(() => sleep(1000 * lasting.outage))],
      ['until events come again', () => awaitEvents(program)],
      ['after', () => sleep(1000 * seconds)],
    ];
    for (const [name, act] of parts) {
      const begun = performance.now();
      const { resident, result } = await residentDuring(program, takenDuring(program, act()));
      report(`flood, ${name}`, 's', (performance.now() - begun) / 1000);
      report(`flood, ${name}`, 'pod events per second', result);
      report(`flood, ${name}`, 'resident memory, MiB', resident, limits.memory * usual);
    }
    await load.churn(0);
    reportProbes('flood', await stopProbe(), limits.livez);
    report('flood', 'longest turn of its loop in CPU, ms', 1000 * (await program.longestTurn()));
    await compareWithFresh('flood', load, program);
    const { rss } = await program.usage();
    report('flood', 'resident memory in the end, MiB', rss, limits.memory * usual);
  } finally {
    await program.stop();
  }
}

async function clients(load: LoadServer): Promise<void> {
  const program = await start(load);
  try {
    await awaitReady(program);
    const usual = await usualMemory('clients', load, program);
    for (const isPatient of [true, false]) {
      const part = isPatient ? 'clients that wait' : 'clients that do not wait';
      const of: Crowd = { scrapers: 2000, pages: 500, seconds: lasting.crowd, isPatient };
      const stopProbe = startProbe(program);
      await program.longestTurn();
      const used = await program.usage();
      const sent = sendCrowd(program.url, of);
      const { resident, result } = await residentDuring(program, sent);
      reportProbes(part, await stopProbe(), limits.crowdedLivez);
      report(part, 'longest turn of its loop in CPU, ms', 1000 * (await program.longestTurn()));
      const usedThen = await program.usage();
      report(part, 'CPU, s', usedThen.cpu - used.cpu);
      report(part, 'waiting while other work had the core, s', usedThen.waited - used.waited);
      const { scrapes, pages, rude, open } = result;
      const others = (counts: Record<string, number>): number =>
        Object.entries(counts)
          .filter(([key]) => key !== '200' && key !== '503')
          .reduce((sum, [, count]) => sum + count, 0);
      report(part, `scrapes ${JSON.stringify(scrapes)}, without an answer`, others(scrapes), 0);
      report(part, `pages ${JSON.stringify(pages)}, without an answer`, others(pages), 0);
      report(part, 'refused without Retry-After', rude, 0);
      report(part, 'pages that were closed', (pages['200'] ?? 0) - open, 0);
      report(part, 'resident memory, MiB', resident, limits.memory * usual);
      await sleep(5000);
    }
    await awaitReady(program);
  } finally {
    await program.stop();
  }
}

async function goaway(load: LoadServer, seconds: number): Promise<void> {
  const program = await start(load);
  try {
    await awaitReady(program);
    const usual = await usualMemory('goaway', load, program);
    const lists = async (): Promise<number> =>
      Object.entries(await load.requests())
        .filter(([name]) => name.endsWith(' list'))
        .reduce((sum, [, count]) => sum + count, 0);
    const before = await lists();
    const stopProbe = startProbe(program);
    await load.connections();
    await load.churn(500);
    await load.storm(1, 2);
    const { resident } = await residentDuring(program, sleep(1000 * seconds));
    const { most } = await load.connections();
    await load.storm(0, 0);
    await load.churn(0);
    reportProbes('goaway', await stopProbe(), limits.livez);
    // One for each request that runs, twice while one is replaced, and that of this command.
    report('goaway', 'connections at one time', most, 24);
    report('goaway', 'lists', (await lists()) - before);
    report('goaway', 'resident memory, MiB', resident, limits.memory * usual);
    await awaitReady(program);
    await compareWithFresh('goaway', load, program);
  } finally {
    await program.stop();
  }
}

/** More bytes of pods, in one page of a list, than the memory limit. */
async function large(): Promise<void> {
  for (const json of [false, true]) {
    const load = await startLoadServer({ share: 10_000, mostPods: 32, podBytes: 1_500_000, json });
    const part = `large${json ? ', JSON' : ''}`;
    const program = await start(load);
    try {
      const stopProbe = startProbe(program);
      await awaitReady(program, 60);
      const { pods = 0 } = await load.world();
      report(part, 'pods of 1.5 MB', pods);
      await load.churn(10, 'alone');
      const taken = await takenDuring(program, sleep(20_000));
      report(part, 'pod events per second', taken);
      await load.churn(0);
      reportProbes(part, await stopProbe(), limits.livez);
      const { peak, rss } = await program.usage();
      report(part, 'resident memory at the peak, MiB', peak, limits.resident);
      report(part, 'resident memory, MiB', rss, limits.resident);
    } finally {
      await program.stop();
      await load.stop();
    }
  }
}

async function shards(load: LoadServer): Promise<void> {
  const count = 3;
  const startAll = (): Promise<Auditing[]> =>
    Promise.all(
      Array.from({ length: count }, (_, index) => start(load, ['--shard', `${index}/${count}`])),
    );
  await load.churn(rate.usual);
  let programs = await startAll();
  try {
    await Promise.all(programs.map((program) => awaitReady(program)));
    await load.churn(0);
    await sleep(1000 * (lasting.settle + 5));
    const before = await Promise.all(programs.map(verdictOf));
    await Promise.all(programs.map((program) => program.stop()));
    const asked = await load.requests();
    const begun = performance.now();
    programs = await startAll();
    await Promise.all(programs.map((program) => awaitReady(program)));
    report('shards', 'until all are ready, s', (performance.now() - begun) / 1000);
    const now = await load.requests();
    const watches = Object.entries(now).filter(([name]) => name.endsWith(' watch'));
    const most = Math.max(...watches.map(([name, sum]) => sum - (asked[name] ?? 0)));
    report('shards', 'watches of a resource', most, count);
    const peaks = await Promise.all(programs.map(async (one) => (await one.usage()).peak));
    report('shards', 'resident memory of one at the peak, MiB', Math.max(...peaks));
    await sleep(1000 * (lasting.settle + 5));
    const after = await Promise.all(programs.map(verdictOf));
    const wrong = after.filter((one, index) => one.join() !== before[index]?.join());
    report('shards', 'shards with other verdicts than before', wrong.length, 0);
  } finally {
    await Promise.all(programs.map((program) => program.stop()));
  }
}

const { values, positionals } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    share: { type: 'string', default: '10' },
  },
  allowPositionals: true,
});
const seconds = Number(values.seconds);
const parts: Readonly<Record<string, (load: LoadServer) => Promise<void>>> = {
  flood: (load) => flood(load, seconds),
  clients,
  goaway: (load) => goaway(load, seconds),
  large,
  shards,
};
const names = positionals.length === 0 ? Object.keys(parts) : positionals;
await buildBundle();
console.log(`load of the machine: ${loadavg().map(round).join(', ')}\n`);
console.log('| part | figure | reached | at most | |\n| :-- | :-- | --: | --: | :-- |');
for (const name of names) {
  const part = parts[name];
  if (part === undefined) throw new Error(`There is no part ${name}`);
  // A world for each, since a flood leaves it changed.
  const load = await startLoadServer({ share: Number(values.share) });
  try {
    await part(load);
  } finally {
    await load.stop();
  }
}
console.log(
  `\nload of the machine: ${loadavg().map(round).join(', ')}; ${failed} figures too high`,
);
process.exitCode = failed === 0 ? 0 : 1;
