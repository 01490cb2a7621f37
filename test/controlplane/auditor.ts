// The program under test as a process of its own, and all that is known of it: what it serves.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs';
import type { AddressInfo, Socket } from 'node:net';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import type { Pod } from './cluster.ts';
import { addressing, createService, reportState } from './cluster.ts';
import type { Account, Client, ControlPlane } from './controlplane.ts';
import { awaitSettled } from './controlplane.ts';

export const program = join(import.meta.dirname, '..', '..', 'src', 'main.ts');

/** What is read of a finding; times in Unix seconds. */
export interface Found {
  readonly code: string;
  readonly severity: string;
  readonly output: string;
  readonly namespace: string;
  readonly service: string;
  readonly object: string;
  readonly field: string;
  readonly expected: string | null;
  readonly actual: string | null;
  readonly cause: string | null;
  readonly since: number;
  readonly openedAt: number;
  readonly resolvedAt: number | null;
}

interface Findings {
  readonly standing: readonly Found[];
  readonly resolved: readonly Found[];
}

export interface Auditor {
  /** Where it serves: `http://127.0.0.1:1234`. */
  readonly base: string;
  /** Those above information. */
  readonly findings: () => Promise<Findings>;
  /** The sum of the samples of a family whose labels are these, and of any others. */
  readonly metric: (name: string, labels?: Readonly<Record<string, string>>) => Promise<number>;
  /** null: it is ready; else why it is not. */
  readonly notReady: () => Promise<string | null>;
  readonly isRunning: () => boolean;
  /** Seconds of CPU time that it has had. */
  readonly cpuSeconds: () => number;
  /** Seconds in which it, or this process that looks at it, could have run but had no CPU. */
  readonly waitedSeconds: () => number;
  readonly residentBytes: () => number;
  /** The end of what it has said. */
  readonly tail: () => string;
  readonly stop: () => Promise<void>;
  /** Ends it by SIGKILL. */
  readonly kill: () => Promise<void>;
}

interface AuditorOptions {
  readonly kubeconfig: string;
  readonly folder: string;
  /** Seconds. */
  readonly settle: number;
  /** Further flags. */
  readonly more?: readonly string[];
}

const patience = AbortSignal.timeout.bind(AbortSignal);

async function sampleSum(
  base: string,
  name: string,
  labels: Readonly<Record<string, string>>,
): Promise<number> {
  const response = await fetch(`${base}/metrics`, { signal: patience(10_000) });
  const lines = (await response.text()).split('\n');
  const pairs = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
  const wanted = lines.filter(
    (line) => /^[^{ ]+/.exec(line)?.[0] === name && pairs.every((pair) => line.includes(pair)),
  );
  if (wanted.length === 0) throw new Error(`The auditor has no ${name} of ${pairs.join(', ')}`);
  return wanted.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
}

const isLoud = ({ severity }: Found): boolean => severity !== 'info';

/** Starts the program on a cluster and waits until it says where it serves. */
export async function startAuditor(options: AuditorOptions): Promise<Auditor> {
  const log = join(options.folder, 'auditor.log');
  const out = openSync(log, 'a');
  const { size: before } = fstatSync(out);
  const { kubeconfig, settle, more = [] } = options;
  const args = [program, 'serve', '--kubeconfig', kubeconfig, '--settle', `${settle}s`, ...more];
  const child = spawn(process.execPath, [...args, '--listen', '127.0.0.1:0'], {
    stdio: ['ignore', out, out],
  });
  closeSync(out);
  const kill = (): void => {
    child.kill('SIGKILL');
  };
  process.once('exit', kill);
  const isRunning = (): boolean => child.exitCode === null && child.signalCode === null;
  const tail = (): string => readFileSync(log, 'utf8').split('\n').slice(-20).join('\n');
  const stop = async (): Promise<void> => {
    process.off('exit', kill);
    if (!isRunning()) return;
    const gone = once(child, 'exit');
    child.kill('SIGTERM');
    const timer = setTimeout(kill, 5000);
    await gone;
    clearTimeout(timer);
  };
  const killNow = async (): Promise<void> => {
    const gone = once(child, 'exit');
    kill();
    await gone;
  };
  const baseNow = (): string | undefined =>
    /^Serving (http:\S+)\/ /m.exec(readFileSync(log).subarray(before).toString())?.[1];
  const deadline = Date.now() + 180_000;
  while (baseNow() === undefined && isRunning() && Date.now() < deadline) await sleep(50);
  const base = baseNow();
  if (base === undefined) {
    await stop();
    throw new Error(`The auditor did not begin to serve:\n${tail()}`);
  }
  // The second number: nanoseconds of the main thread in a run queue.
  const waitedBy = (pid: number | string): number =>
    Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[1]) / 1e9;
  const statusOf = (): string => readFileSync(`/proc/${child.pid ?? 0}/status`, 'utf8');
  return {
    base,
    async findings() {
      const response = await fetch(`${base}/api/v1/findings`, { signal: patience(10_000) });
      const { standing, resolved } = (await response.json()) as Findings;
      return { standing: standing.filter(isLoud), resolved: resolved.filter(isLoud) };
    },
    metric: (name, labels = {}) => sampleSum(base, `endpoint_auditor_${name}`, labels),
    async notReady() {
      const response = await fetch(`${base}/readyz`, { signal: patience(10_000) });
      const text = await response.text();
      return response.status === 200 ? null : text.trim();
    },
    isRunning,
    cpuSeconds() {
      const fields = readFileSync(`/proc/${child.pid ?? 0}/stat`, 'utf8').split(' ');
      return (Number(fields[13]) + Number(fields[14])) / 100;
    },
    waitedSeconds: () => waitedBy(child.pid ?? 0) + waitedBy('self'),
    residentBytes: () => Number(/^VmRSS:\s+(\d+)/m.exec(statusOf())?.[1] ?? 0) * 1024,
    tail,
    stop,
    kill: killNow,
  };
}

// What the parts of the end-to-end test say: a line for every check, and how many passed.

export interface Tally {
  passed: number;
  failed: number;
}

export function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Counts a check and prints its line; `wrong` is what is wrong with it, a line each. */
export function report(tally: Tally, title: string, wrong: readonly string[]): void {
  if (wrong.length === 0) tally.passed++;
  else tally.failed++;
  say(`${wrong.length === 0 ? 'ok  ' : 'FAIL'} ${title}`);
  for (const line of wrong) say(`     ${line}`);
}

export const secondsSince = (begun: number): number => (performance.now() - begun) / 1000;

export const textOfError = (error: unknown): string =>
  error instanceof Error ? (error.stack ?? error.message) : String(error);

// A connection between the auditor and the API server that can be cut, or blocked so that nothing
// comes through and neither side notices, as when a packet filter forgets a connection. All others
// reach the API server by themselves: what the auditor does not see goes on.

interface Proxy {
  /** `https://127.0.0.1:1234`. */
  readonly server: string;
  /** Resets all connections. */
  readonly cut: () => void;
  /** Holds all that is said on connections, old and new, until `release`. */
  readonly hold: () => void;
  readonly release: () => void;
  readonly close: () => void;
}

export async function startProxy(server: string): Promise<Proxy> {
  const port = Number(new URL(server).port);
  const sockets = new Set<Socket>();
  let isPaused = false;
  const keep = (socket: Socket, other: Socket): void => {
    sockets.add(socket);
    socket.on('data', (bytes) => {
      if (!other.write(bytes)) socket.pause();
    });
    other.on('drain', () => {
      if (!isPaused) socket.resume();
    });
    if (isPaused) socket.pause();
    socket.on('end', () => other.end());
    socket.on('error', () => other.destroy());
    socket.on('close', () => {
      sockets.delete(socket);
      other.destroy();
    });
  };
  const listener = createServer((near) => {
    const far = connect(port, '127.0.0.1');
    keep(near, far);
    keep(far, near);
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const cut = (): void => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
  return {
    server: `https://127.0.0.1:${(listener.address() as AddressInfo).port}`,
    cut,
    hold: () => {
      isPaused = true;
      for (const socket of sockets) socket.pause();
    },
    release: () => {
      isPaused = false;
      for (const socket of sockets) socket.resume();
    },
    close: () => {
      cut();
      listener.close();
    },
  };
}

// What every part of the live test has: the control plane, those who act on it, and the auditor.

export interface Stage {
  readonly plane: ControlPlane;
  readonly client: Client;
  /** Between the auditor and the API server. */
  readonly proxy: Proxy;
  readonly account: Account;
  readonly auditor: Auditor;
  /** Seconds of the settle window. */
  readonly settle: number;
  readonly tally: Tally;
}

/** Findings above information that were opened at a time or later, in Unix seconds. */
export async function loudSince({ findings }: Auditor, from: number): Promise<Found[]> {
  const { standing, resolved } = await findings();
  return [...standing, ...resolved].filter(({ openedAt }) => openedAt >= from);
}

/** A finding in one line, with its times. */
export const textOf = (found: Found): string => JSON.stringify(found);

/** Waits until something is so; returns the seconds it took, null when it was too late. */
export async function awaitSoon(
  isSo: () => boolean | Promise<boolean>,
  seconds: number,
): Promise<number | null> {
  const begun = performance.now();
  for (;;) {
    if (await isSo()) return secondsSince(begun);
    if (secondsSince(begun) > seconds) return null;
    await sleep(50);
  }
}

/**
 * Waits until the controllers have written all that the auditor expects of them. Idle controllers
 * may still have work: they wait before they list again what a broken watch has missed.
 */
export async function awaitWritten({
  client,
  auditor,
}: Pick<Stage, 'client' | 'auditor'>): Promise<void> {
  await awaitSettled(client);
  const isWritten = async () => (await auditor.metric('pending_oldest_seconds')) === 0;
  if ((await awaitSoon(isWritten, 120)) === null) throw new Error('Differences are still pending');
}

// The lag of the controllers, as the auditor measures it, against the clock of the test: they sleep
// for a while, a pod turns not ready meanwhile, and they are woken. Who sleeps for longer than the
// settle window is found, which is true, and the finding ends when they are awake.

/** The namespace of what is looked at while the controllers sleep. */
export const pausing = 'pauses';
const namespace = pausing;
export const outputs = ['endpoints', 'endpointslices'] as const;
export type Output = (typeof outputs)[number];

/** What the lag may be wrong by, and a finding late. */
const tolerance = 0.5;

/** A Service with one ready pod, in the namespace that measureLags makes. */
export async function createCanary(
  { client }: Pick<Stage, 'client'>,
  name: string,
  places: ReturnType<typeof addressing>,
): Promise<Pod> {
  let ips: string[] = [];
  const plan = { name, spec: { ports: [{ port: 80 }] }, pods: { count: 1 } };
  await createService(client, namespace, plan, (families) => (ips = places(families)));
  const node = { name: 'node-a1', zone: 'zone-a', number: 1 };
  const pod = { namespace, name: `${name}-0`, node, ips, labels: { app: name } };
  return { ...pod, state: 'ready', spec: {}, ports: [{ containerPort: 8080 }] };
}

/** Whether an output lists no ready endpoint of a Service. */
export async function isFollowed(
  { client }: Pick<Stage, 'client'>,
  output: Output,
  name: string,
): Promise<boolean> {
  if (output === 'endpoints') {
    const path = `/api/v1/namespaces/${namespace}/endpoints/${name}`;
    const { subsets } = (await client.call('GET', path)) as { subsets?: object[] };
    return (subsets ?? []).every((subset) => !('addresses' in subset));
  }
  const path = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;
  const query = `?labelSelector=kubernetes.io/service-name=${name}`;
  const { items } = (await client.call('GET', path + query)) as {
    items: { endpoints: { conditions: { ready: boolean } }[] | null }[];
  };
  return items.every(({ endpoints }) =>
    (endpoints ?? []).every(({ conditions }) => !conditions.ready),
  );
}

/** The outputs of these Services that list no ready endpoint. */
async function followedNow(stage: Stage, services: readonly { name: string }[]): Promise<string[]> {
  const found: string[] = [];
  for (const { name } of services) {
    for (const output of outputs) {
      if (await isFollowed(stage, output, name)) found.push(`${name} ${output}`);
    }
  }
  return found;
}

interface Sample {
  readonly count: number;
  readonly sum: number;
}

const measured = async ({ auditor }: Stage, output: Output): Promise<Sample> => ({
  count: await auditor.metric('convergence_lag_seconds_count', { output }),
  sum: await auditor.metric('convergence_lag_seconds_sum', { output }),
});

/** What the clock of the test says of one Service: seconds from the change to each writing. */
interface Truth {
  readonly name: string;
  readonly lag: Readonly<Record<Output, number>>;
}

/**
 * Has the controllers sleep for the longest of these times; for each, a pod turns not ready that
 * many seconds before they are woken.
 */
export async function measureLags(stage: Stage, pauses: readonly number[]): Promise<void> {
  const { plane, client, auditor } = stage;
  await client.call('POST', '/api/v1/namespaces', { metadata: { name: namespace } });
  const places = addressing(3);
  const longest = Math.max(...pauses);
  const canaries: { readonly seconds: number; readonly name: string; readonly pod: Pod }[] = [];
  for (const seconds of pauses) {
    const name = `paused-${seconds}`;
    canaries.push({ seconds, name, pod: await createCanary(stage, name, places) });
  }
  await awaitWritten(stage);
  const early = await followedNow(stage, canaries);
  const from = Date.now() / 1000;
  const before = { endpoints: await measured(stage, 'endpoints') };
  const was = { ...before, endpointslices: await measured(stage, 'endpointslices') };
  await plane.pauseControllerManager();
  const begun = await Promise.all(
    canaries.map(async ({ seconds, pod }) => {
      await sleep((longest - seconds) * 1000);
      await reportState(client, pod, 'unready');
      return performance.now();
    }),
  );
  const flippedAt = begun[pauses.indexOf(longest)] ?? 0;
  await sleep(Math.max(0, longest * 1000 - (performance.now() - flippedAt)));
  const asleep = await followedNow(stage, canaries);
  plane.resumeControllerManager();
  report(stage.tally, 'lag: nothing is written while the controllers sleep', [
    ...early.map((output) => `${output}: no ready endpoint before`),
    ...asleep.map((output) => `${output}: no ready endpoint meanwhile`),
  ]);
  const truths = await Promise.all(
    canaries.map(async ({ name }, index): Promise<Truth> => {
      const followed = async (output: Output): Promise<number> => {
        await awaitSoon(() => isFollowed(stage, output, name), 60);
        return secondsSince(begun[index] ?? 0);
      };
      const [endpoints, endpointslices] = await Promise.all(outputs.map(followed));
      return { name, lag: { endpoints: endpoints ?? 0, endpointslices: endpointslices ?? 0 } };
    }),
  );
  await sleep(1000);
  await reportSums(stage, truths, was);
  reportFindings(stage, truths, await loudSince(auditor, from));
}

/** The histogram has one sample more for every Service, which add up to the truth. */
async function reportSums(
  stage: Stage,
  truths: readonly Truth[],
  was: Readonly<Record<Output, Sample>>,
): Promise<void> {
  const lags = truths.map(({ lag }) => lag);
  for (const output of outputs) {
    const now = await measured(stage, output);
    const count = now.count - was[output].count;
    const sum = now.sum - was[output].sum;
    const want = lags.reduce((all, lag) => all + lag[output], 0);
    const wrong: string[] = [];
    if (count !== lags.length) wrong.push(`${count} samples, not ${lags.length}`);
    if (Math.abs(sum - want) > tolerance) wrong.push(`${sum} s, not ${want} s`);
    const figures = lags.map((lag) => `${lag[output].toFixed(2)} s`).join(' and ');
    const title = `lag of ${output} after ${figures}: measured ${sum.toFixed(2)} s in all`;
    report(stage.tally, title, wrong);
  }
}

/** None but those of the Services that the controllers are late with, and their times. */
function reportFindings({ settle, tally }: Stage, truths: readonly Truth[], found: Found[]): void {
  const names = truths.map(({ name }) => name);
  const wrong = found.filter((one) => !names.includes(one.service)).map(textOf);
  for (const { name, lag } of truths) {
    for (const output of outputs) {
      const own = found.filter((one) => one.service === name && one.output === output);
      if (own.length === 0 && lag[output] > settle + 2) wrong.push(`${name} ${output}: not found`);
      if (lag[output] < settle - tolerance) wrong.push(...own.map(textOf));
      for (const { since, resolvedAt } of own) {
        const lasted = (resolvedAt ?? 0) - since;
        const isTrue = Math.abs(lasted - lag[output]) <= tolerance;
        if (!isTrue) wrong.push(`${name} ${output}: found for ${lasted} s, not ${lag[output]} s`);
      }
    }
  }
  report(tally, 'lag: who sleeps for too long is found, with the right times', wrong);
}
