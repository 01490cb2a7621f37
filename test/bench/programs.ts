// Programs that a bench runs beside what it measures: built from Go modules here, kept in
// `~/.cache/endpoint-auditor/bench/` ($XDG_CACHE_HOME), pinned to a core, and stopped at the end.

import type { ChildProcess } from 'node:child_process';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { cacheFolder, goProgram } from '../processes.ts';

const run = promisify(execFile);

const cache = (): string => cacheFolder('bench');

/**
 * Builds a package of a Go module and returns the binary's path. Go knows itself what has changed;
 * the binary is renamed into place, so that no process finds an incomplete one.
 */
export async function build(module: string, packageName: string, name: string): Promise<string> {
  await mkdir(cache(), { recursive: true });
  const directory = await mkdtemp(join(cache(), 'build-'));
  const [built, path] = [join(directory, name), join(cache(), name)];
  try {
    const options = { cwd: join(import.meta.dirname, module) };
    await run(goProgram(), ['build', '-buildvcs=false', '-o', built, packageName], options);
    await rename(built, path);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
  return path;
}

/** A program that runs. */
export interface Program {
  readonly child: ChildProcess;
  readonly pid: number;
  /** When it was started, by performance.now(). */
  readonly started: number;
  /** Ends it, and waits until it is gone. */
  readonly stop: () => Promise<void>;
}

interface StartOptions {
  readonly stderr?: 'inherit' | 'ignore';
  /** Added to the environment of this process. */
  readonly env?: Readonly<Record<string, string>>;
}

/**
 * Starts a program, on one core if requested. Its stdout is piped, its stderr passed on or dropped.
 */
export function start(
  path: string,
  args: readonly string[],
  core: number | null,
  { stderr = 'inherit', env = {} }: StartOptions = {},
): Program {
  const pinned = core === null ? [path, ...args] : ['taskset', '-c', String(core), path, ...args];
  const [command = '', ...rest] = pinned;
  const child = spawn(command, rest, {
    stdio: ['ignore', 'pipe', stderr],
    env: { ...process.env, ...env },
  });
  const started = performance.now();
  const { pid } = child;
  if (pid === undefined) throw new Error(`Cannot start ${command}`);
  const gone = once(child, 'exit');
  const stop = async (): Promise<void> => {
    child.kill('SIGKILL');
    await gone;
  };
  return { child, pid, started, stop };
}

/** What a process has used; `taskset` becomes the program, so its pid is the program's. */
export interface Usage {
  /** User and system, seconds, exact to a tick. */
  readonly cpu: number;
  /** MiB of resident memory now, and the most there was. */
  readonly rss: number;
  readonly peak: number;
  /** Seconds that its main thread could have run and other work had the core. */
  readonly waited: number;
}

const ticksPerSecond = 100;

export async function usageOf(pid: number): Promise<Usage> {
  const [stat, status, schedule] = await Promise.all([
    readFile(`/proc/${pid}/stat`, 'utf8'),
    readFile(`/proc/${pid}/status`, 'utf8'),
    readFile(`/proc/${pid}/schedstat`, 'utf8'),
  ]);
  // The name, which is second, may have spaces; utime and stime are the 12th and 13th after it.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const kilobytes = (name: string): number =>
    Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? NaN);
  return {
    cpu: (Number(fields[11]) + Number(fields[12])) / ticksPerSecond,
    rss: kilobytes('VmRSS') / 1024,
    peak: kilobytes('VmHWM') / 1024,
    waited: Number(schedule.split(' ')[1]) / 1e9,
  };
}
