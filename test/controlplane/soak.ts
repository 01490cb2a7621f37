// The soak test: the auditor runs for hours on a real control plane, with real kube-proxies and
// agents in network namespaces. Needs root.
//
//   npm run -s soak -- --hours 2
//
// Meanwhile the cluster changes 20 times a second, two scrapers and a page ask, the API server is
// restarted every 15 minutes, and once all certificates and the token are replaced. The first 15
// minutes, or the first quarter of a short run, do not count. After them, the heap after a forced
// collection may grow by less than 1 MiB per hour, and the resident memory by less than 5 (linear
// fit, from half an hour on). Files, handles, connections and processes may not become more,
// and no finding may be false. It ends with 1 if anything is wrong.

import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

import { nodeFlags } from '../../release/executable.ts';
import type { Found, Tally } from './auditor.ts';
import { awaitSoon, program, report, say, secondsSince, textOf, textOfError } from './auditor.ts';
import { persistent } from './chaos.ts';
import { storeFlags } from './chaos/history.ts';
import { callWitness } from './chaos/oracle.ts';
import { isReachable, populate, startChurn } from './churn.ts';
import type { Fleet } from './cluster.ts';
import type { Account, Client, ControlPlane } from './controlplane.ts';
import { awaitSettled, clientOf, liveFlags, startControlPlane } from './controlplane.ts';
import type { QuickAgent } from './inside.ts';
import type { Nodes } from './nodes.ts';
import { awaitConform, script, whyNoNamespaces, withNodes, writeKeys } from './nodes.ts';

/** Changes a second: what is aimed at, and the least that counts. */
const rate = { aim: 26, least: 20 };

/** As many pods as the changes keep: with fewer, their number would grow in the first hour. */
const size = { services: 72, pods: 840, nodes: 20 };

/** Seconds of the settle window: the default of the program. */
const settle = 30;

/** Seconds between two restarts of the API server, and until a node has followed one. */
const restarts = { period: 900, followed: 180 };

/** Seconds until nodes conform: after a slow round, an agent rests a hundred times as long. */
const conforming = 1200;

/** Growth in MiB per hour. */
const limits = { heap: 1, rss: 5 };

/** Seconds from which on the growth has a limit: in less, it is mostly noise. */
const limitedFrom = 1800;

/** The files that agents and the auditor read. */
const certificates = ['agent.crt', 'agent.key', 'client.crt', 'client.key'];

/** Seconds in which a program reads replaced files. */
const renewal = 65;

interface Soak extends Omit<Nodes, 'tally'> {
  readonly plane: ControlPlane;
  readonly account: Account;
  readonly fleet: Fleet;
  /** Where the memory probe writes. */
  readonly memory: string;
  /** Where the keys of the agents are. */
  readonly folder: string;
  readonly seconds: number;
  readonly tally: Tally;
}

/** The command of an agent as the chart starts it, with less rest between rounds. */
function agentCommand({ access, ...settings }: QuickAgent, folder: string): string[] {
  const { node, nodeIPs, podCIDRs, proxyConfig, host, port } = settings;
  const file = (name: string): string => join(folder, name);
  const asked =
    access.token === null
      ? ['--client-ca', file('agents-ca.crt')]
      : ['--token-file', file('agents-token')];
  return [
    ...[process.execPath, program, 'agent', '--node', node, '--node-ips', nodeIPs.join()],
    ...['--pod-cidrs', podCIDRs.join(), '--interval', '10s'],
    ...(proxyConfig === undefined ? [] : ['--proxy-config', proxyConfig]),
    ...['--listen', `${host}:${port}`, '--tls-cert', file('agent.crt')],
    ...['--tls-key', file('agent.key'), ...asked],
  ];
}

/** Repeats something until the end. */
async function repeat(end: AbortSignal, seconds: number, act: () => Promise<void>): Promise<void> {
  while (!end.aborted) {
    await act();
    await sleep(seconds * 1000, undefined, { signal: end }).catch(() => undefined);
  }
}

/** What clients have asked for, and what went wrong. */
interface Traffic {
  scrapes: number;
  updates: number;
  slowest: number;
  readonly wrong: string[];
}

/** Two scrapers, a probe, and a page that is open. */
function startTraffic({ outside }: Soak, end: AbortSignal): Traffic & { done: Promise<unknown> } {
  const traffic: Traffic = { scrapes: 0, updates: 0, slowest: 0, wrong: [] };
  const get = async (path: string, isGood: (text: string) => boolean): Promise<void> => {
    const begun = performance.now();
    try {
      const text = await outside.get(path);
      if (!isGood(text)) traffic.wrong.push(`${path}: ${text.slice(0, 200)}`);
    } catch (error) {
      traffic.wrong.push(String(error));
    }
    if (path === '/livez') traffic.slowest = Math.max(traffic.slowest, secondsSince(begun));
  };
  const scrape = async (): Promise<void> => {
    await get('/metrics', (text) => text.includes('endpoint_auditor_ready'));
    traffic.scrapes++;
  };
  const watch = async (): Promise<void> => {
    const stream = request({ socketPath: outside.socket, path: '/api/v1/events', agent: false });
    end.addEventListener('abort', () => stream.destroy(), { once: true });
    stream.on('response', (response) => {
      response.on('error', () => undefined);
      response.on('data', () => traffic.updates++);
    });
    stream.on('error', () => undefined);
    stream.end();
    await once(stream, 'close');
  };
  const done = Promise.all([
    repeat(end, 10, scrape),
    repeat(end, 10, scrape),
    repeat(end, 1, () => get('/livez', (text) => text.startsWith('ok'))),
    repeat(end, 5, () => get('/', (text) => text.includes('</html>'))),
    repeat(end, 1, watch),
  ]);
  return Object.assign(traffic, { done });
}

/** What the auditor and the agents have open, seen from outside. */
interface OutsideSample {
  readonly at: number;
  readonly processes: number;
  readonly connections: number;
  readonly agents: number;
}

function sampleOutside({ outside, nodes }: Soak): OutsideSample {
  const pid = outside.running.child.pid ?? 0;
  const read = (path: string): string => readFileSync(`/proc/${path}`, 'utf8');
  const resident = (of: number): number => Number(read(`${of}/statm`).split(' ')[1]) * 4096;
  return {
    at: Date.now() / 1000,
    processes: read(`${pid}/task/${pid}/children`).split(' ').filter(Boolean).length,
    connections: read(`${pid}/net/tcp`)
      .split('\n')
      .filter((line) => line.trim().split(/ +/)[3] === '01').length,
    agents: nodes.reduce((sum, { agent }) => sum + resident(agent.child.pid ?? 0), 0),
  };
}

/** Replaces the authority, all certificates and tokens, as cert-manager and the kubelet do. */
async function rotate({ folder, account }: Soak): Promise<void> {
  const next = join(folder, 'next');
  mkdirSync(next);
  writeKeys(next);
  const [before, after] = [folder, next].map((at) => readFileSync(join(at, 'agents-ca.crt')));
  const trust = async (...authorities: (Buffer | undefined)[]): Promise<void> => {
    writeFileSync(join(folder, 'agents-ca.crt'), authorities.join(''));
    await sleep(renewal * 1000);
  };
  await trust(before, after);
  for (const name of certificates) copyFileSync(join(next, name), join(folder, name));
  writeFileSync(join(folder, 'agents-token'), 'another-token-of-agents');
  account.write(await account.newToken('second'));
  await sleep(renewal * 1000);
  await account.revoke('first');
  await trust(after);
  say('     certificates and tokens are replaced');
}

/** Restarts the API server again and again; returns the times, in Unix seconds. */
async function runEvents(soak: Soak, end: AbortSignal): Promise<readonly number[]> {
  const { plane, seconds } = soak;
  const period = Math.min(restarts.period, seconds / 4);
  const times: number[] = [];
  const begun = performance.now();
  const until = (at: number): Promise<void> =>
    sleep(Math.max(0, (at - secondsSince(begun)) * 1000), undefined, { signal: end });
  for (let count = 1; count * period < seconds; count++) {
    await until(count * period);
    times.push(Date.now() / 1000);
    // On a busy machine it is not ready within two minutes.
    await plane.restartApiserver().catch(() => undefined);
    if ((await awaitSoon(() => isReachable(soak), 600)) === null) throw new Error('no API server');
    say(`     ${secondsSince(begun).toFixed(0)} s: the API server is restarted`);
    // Between two restarts, past the middle.
    if (count === Math.ceil(seconds / period / 2)) {
      await until((count + 0.3) * period);
      await rotate(soak);
    }
  }
  await until(seconds);
  return times;
}

// Figures.

const mebi = 2 ** 20;

/** A line of memory-probe.ts; sizes in bytes. */
interface MemorySample {
  readonly at: number;
  readonly heap: number;
  /** The part of the heap that is compiled code. */
  readonly code: number;
  readonly rss: number;
  readonly files: number;
  readonly handles: number;
}

interface Point {
  readonly at: number;
}

/** The growth per hour by a linear fit. */
function slope<T extends Point>(samples: readonly T[], value: (sample: T) => number): number {
  const mean = (of: (sample: T) => number): number =>
    samples.reduce((sum, sample) => sum + of(sample), 0) / samples.length;
  const [at, level] = [mean(({ at }) => at), mean(value)];
  const covariance = mean((sample) => (sample.at - at) * (value(sample) - level));
  return (covariance / mean((sample) => (sample.at - at) ** 2)) * 3600;
}

function median(numbers: readonly number[]): number {
  return numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? NaN;
}

/** Medians of the first and the last third. */
function ends<T>(samples: readonly T[], value: (sample: T) => number): readonly [number, number] {
  const third = Math.ceil(samples.length / 3);
  const of = (part: readonly T[]): number => median(part.map(value));
  return [of(samples.slice(0, third)), of(samples.slice(-third))];
}

function checkGrowth(soak: Soak, all: readonly MemorySample[], from: number): void {
  const samples = all.filter(({ at }) => at >= from);
  const lasted = (samples.at(-1)?.at ?? 0) - from;
  const code = slope(samples, (sample) => sample.code / mebi).toFixed(2);
  say(`     compiled code in the heap: ${code} MiB per hour`);
  for (const key of ['heap', 'rss'] as const) {
    const growth = slope(samples, (sample) => sample[key] / mebi);
    const [first, last] = ends(samples, (sample) => sample[key] / mebi);
    const isLimited = lasted >= limitedFrom;
    const wrong =
      growth < limits[key] || !isLimited ? [] : [`more than ${limits[key]} MiB per hour`];
    if (!(samples.length > 3)) wrong.push(`${samples.length} samples`);
    const title =
      `${key}: ${growth.toFixed(2)} MiB per hour over ${(lasted / 60).toFixed(0)} min, ` +
      `${first.toFixed(1)} MiB in the first third, ${last.toFixed(1)} in the last`;
    report(soak.tally, isLimited ? title : `${title}; too short for a limit`, wrong);
  }
}

/** What may not become more: one more is a request that goes on. */
function checkOpen(
  soak: Soak,
  memory: readonly MemorySample[],
  outside: readonly OutsideSample[],
  from: number,
): void {
  const inside = memory.filter(({ at }) => at >= from);
  const seen = outside.filter(({ at }) => at >= from);
  const rows: readonly (readonly [string, readonly [number, number]])[] = [
    ['files', ends(inside, ({ files }) => files)],
    ['handles', ends(inside, ({ handles }) => handles)],
    ['connections', ends(seen, ({ connections }) => connections)],
    ['processes', ends(seen, ({ processes }) => processes)],
  ];
  for (const [name, [first, last]] of rows) {
    const wrong = last <= first + 2 ? [] : ['more than 2 more'];
    report(soak.tally, `${name}: ${first} in the first third, ${last} in the last`, wrong);
  }
  const agents = slope(seen, (sample) => sample.agents / mebi).toFixed(2);
  const [first, last] = ends(seen, (sample) => sample.agents / mebi);
  say(`     agents: ${first.toFixed(0)} MiB, then ${last.toFixed(0)}; ${agents} MiB per hour`);
}

// Findings.

/** A finding, with its node if it is about one. */
type AnyFound = Found & { readonly node: string | null };

async function loudFindings({ outside }: Soak, from: number): Promise<AnyFound[]> {
  const { standing, resolved } = JSON.parse(await outside.get('/api/v1/findings')) as {
    standing: AnyFound[];
    resolved: AnyFound[];
  };
  return [...standing, ...resolved].filter(
    ({ severity, openedAt }) => severity !== 'info' && openedAt >= from,
  );
}

/** A kube-proxy that has just lost its watch is late: a finding about that is true. */
const isLate = ({ code, openedAt }: AnyFound, times: readonly number[]): boolean =>
  code === 'node-rules-stale' &&
  times.some((time) => openedAt >= time && openedAt <= time + restarts.followed);

async function checkFindings(
  soak: Soak,
  from: number,
  times: readonly number[],
  falseOf: (found: readonly Found[]) => Promise<readonly string[]>,
): Promise<void> {
  const found = await loudFindings(soak, from);
  const ofNodes = found.filter(({ output }) => output === 'node');
  const others = found.filter(({ output }) => output !== 'node');
  const wrong = [...(await falseOf(others))];
  report(soak.tally, `${others.length} findings of Services, ${wrong.length} false`, wrong);
  const untrue = ofNodes.filter((one) => !isLate(one, times)).map(textOf);
  report(soak.tally, `${ofNodes.length} findings of nodes, ${untrue.length} false`, untrue);
}

// The run.

async function checkEnd({ outside, tally }: Soak): Promise<void> {
  const { child } = outside.running;
  const wrong = child.exitCode === null ? [] : [outside.running.tail()];
  const begun = performance.now();
  const gone = once(child, 'exit');
  child.kill('SIGTERM');
  await Promise.race([gone, sleep(10_000)]);
  if (child.exitCode !== 0) wrong.push(`exit code ${String(child.exitCode)}`);
  report(tally, `ended ${secondsSince(begun).toFixed(1)} s after SIGTERM`, wrong);
}

const linesOf = <T>(path: string): T[] =>
  readFileSync(path, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as T);

async function run(soak: Soak): Promise<void> {
  const { plane, fleet, seconds, tally, memory } = soak;
  report(tally, 'the nodes conform', await awaitConform(soak, conforming));
  const from = Date.now() / 1000;
  const begun = performance.now();
  const witness = await callWitness(plane);
  const client = persistent(soak.client);
  const churn = startChurn({ client, fleet, rate: rate.aim, seed: 1 });
  const end = new AbortController();
  const traffic = startTraffic(soak, end.signal);
  const outside: OutsideSample[] = [];
  const sampling = repeat(end.signal, 15, () => {
    outside.push(sampleOutside(soak));
    return Promise.resolve();
  });
  let lasted: number;
  let times: readonly number[];
  try {
    times = await runEvents(soak, end.signal);
  } finally {
    lasted = secondsSince(begun);
    await churn.stop();
    end.abort();
    await Promise.all([traffic.done, sampling]);
  }
  const changes = [...churn.changes.values()].reduce((sum, count) => sum + count, 0);
  const error = churn.error();
  const wrong = error === null ? [] : [textOfError(error)];
  if (changes < rate.least * lasted) wrong.push('too few changes');
  const perSecond = (changes / lasted).toFixed(1);
  report(tally, `${changes} changes in ${lasted.toFixed(0)} s, ${perSecond} a second`, wrong);
  const { scrapes, updates, slowest } = traffic;
  const asked = `${scrapes} scrapes, ${updates} live updates`;
  report(tally, `${asked}, /livez at most ${slowest.toFixed(2)} s`, traffic.wrong.slice(0, 20));
  await awaitSettled(soak.client);
  await sleep((settle + 2) * 1000);
  // Before findings are checked: that blocks this process, which carries connections, for minutes.
  report(tally, 'the nodes conform in the end', await awaitConform(soak, conforming));
  const samples = linesOf<MemorySample>(memory);
  const measuredFrom = from + Math.min(restarts.period, seconds / 4);
  checkGrowth(soak, samples, measuredFrom);
  checkOpen(soak, samples, outside, measuredFrom);
  await checkFindings(soak, from, times, (found) => witness.falseOf(found, settle));
  await checkEnd(soak);
}

async function testSoak(plane: ControlPlane, seconds: number, tally: Tally): Promise<void> {
  const client: Client = clientOf(plane);
  const folder = join(plane.directory, 'nodes');
  const memory = join(plane.directory, 'memory.ndjson');
  const probe = `${pathToFileURL(script('memory-probe.ts')).href}?to=${encodeURIComponent(memory)}`;
  try {
    const fleet = await populate(plane, client, size);
    const options = {
      window: settle,
      nodeFlags: [...(await nodeFlags()), '--import', probe],
      agentCommand: (settings: QuickAgent) => agentCommand(settings, folder),
    };
    const use: Parameters<typeof withNodes>[2] = (all) =>
      run({ ...all, plane, fleet, memory, folder, seconds, tally });
    await withNodes(plane, ['iptables', 'nftables'], use, options);
  } finally {
    client.close();
  }
}

const { values } = parseArgs({ options: { hours: { type: 'string', default: '2' } } });
const seconds = Number(values.hours) * 3600;
const why = whyNoNamespaces();
if (!(seconds > 0) || why !== null) {
  process.stderr.write(`${why ?? `--hours ${values.hours}: expected a positive number`}\n`);
  process.exit(2);
}
const tally: Tally = { passed: 0, failed: 0 };
try {
  const plane = await startControlPlane({ ...liveFlags, apiserverFlags: storeFlags });
  try {
    await testSoak(plane, seconds, tally);
  } finally {
    await plane.stop();
  }
} catch (error) {
  report(tally, 'soak', [textOfError(error)]);
}
const left = execFileSync('ip', ['netns', 'list'])
  .toString()
  .split('\n')
  .filter((line) => line.startsWith(`ea-${process.pid}-`));
report(tally, 'no network namespace is left', left);
say(`${tally.passed} passed, ${tally.failed} failed`);
process.exitCode = tally.failed > 0 ? 1 : 0;
