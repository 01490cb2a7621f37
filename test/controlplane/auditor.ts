// The program under test as a process of its own, and all that is known of it: what it serves.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

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

export interface Findings {
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
}

export interface AuditorOptions {
  readonly kubeconfig: string;
  readonly folder: string;
  /** Seconds. */
  readonly settle: number;
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
  const { kubeconfig, settle } = options;
  const args = [program, 'serve', '--kubeconfig', kubeconfig, '--settle', `${settle}s`];
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
  const baseNow = (): string | undefined =>
    /^Serving (http:\S+)\/ /m.exec(readFileSync(log, 'utf8'))?.[1];
  const deadline = Date.now() + 30_000;
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
  };
}
