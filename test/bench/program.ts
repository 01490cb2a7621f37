// Programs that a bench runs beside what it measures: built from Go modules here, kept in
// `~/.cache/endpoint-auditor/bench/` ($XDG_CACHE_HOME), pinned to a core, and stopped at the end.

import type { ChildProcess } from 'node:child_process';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { request as requestTls } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
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
interface Program {
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

// The load server (apiserver/): an API server with a made-up cluster as large as clusters get, and
// with changes on demand.

interface LoadOptions {
  /** Divides all counts; 1 is the full world of 150,000 pods. */
  readonly share?: number;
  /** The most pods of a Service; 5,000 by default. */
  readonly mostPods?: number;
  /** JSON of a pod, managedFields included; 12,000 by default. */
  readonly podBytes?: number;
  /** Seconds between bookmarks. */
  readonly bookmark?: number;
  /** Whether it answers in JSON regardless of the Accept header, as a proxy may do. */
  readonly json?: boolean;
  /** The core it runs on; null: any. */
  readonly core?: number | null;
}

/** When an event was made and when it was first written to a watch, Unix seconds. */
export interface Stamp {
  readonly resource: 'pods' | 'endpoints' | 'endpointslices';
  readonly namespace: string;
  readonly service: string;
  /** Of the pod, or of the Service for what the controllers write. */
  readonly name: string;
  readonly resourceVersion: number;
  readonly ready: boolean;
  readonly madeAt: number;
  /** 0 before the first watch. */
  readonly sentAt: number;
}

export interface LoadServer {
  readonly url: string;
  readonly kubeconfig: string;
  readonly token: string;
  /** The authority's certificate, PEM. */
  readonly authority: string;
  readonly pid: number;
  /**
   * Changes the readiness of this many pods per second, and their slices and Endpoints; `stopped`:
   * without controllers that follow; `alone`: pods have a new version and nothing else. 0 stops.
   */
  readonly churn: (rate: number, kind?: 'followed' | 'stopped' | 'alone') => Promise<void>;
  /** Closes all connections, and accepts none for some seconds. */
  readonly breakOff: (seconds: number) => Promise<void>;
  /** Answers with a GOAWAY, with this chance, and ends watches after some seconds; 0 stops. */
  readonly storm: (chance: number, seconds: number) => Promise<void>;
  /** Connections that are open, and the most that were. */
  readonly connections: () => Promise<{ readonly now: number; readonly most: number }>;
  /** All events since the start, or since they were last cleared. */
  readonly stamps: (clear: boolean) => Promise<Stamp[]>;
  /** How often what was asked for: `GET /api/v1/pods watch`. */
  readonly requests: () => Promise<Record<string, number>>;
  /** How many objects there are of each resource. */
  readonly world: () => Promise<Record<string, number>>;
  readonly stop: () => Promise<void>;
}

/** Builds the load server if need be, starts it and waits until it listens. */
export async function startLoadServer(options: LoadOptions = {}): Promise<LoadServer> {
  const { share = 1, mostPods = 5000, podBytes = 12_000, bookmark = 60 } = options;
  const { json = false, core = null } = options;
  const path = await build('apiserver', '.', 'apiserver');
  const dir = await mkdtemp(join(tmpdir(), 'endpoint-auditor-load-'));
  const args = ['-dir', dir, '-share', String(share), '-pod-bytes', String(podBytes)];
  args.push('-most', String(mostPods), '-bookmark', `${bookmark}s`, ...(json ? ['-json'] : []));
  const program = start(path, args, core);
  const stop = async (): Promise<void> => {
    await program.stop();
    await rm(dir, { recursive: true, force: true });
  };
  const { stdout } = program.child;
  if (stdout === null) throw new Error('Expected a pipe');
  for await (const line of createInterface({ input: stdout })) {
    const data = JSON.parse(line) as Pick<LoadServer, 'url' | 'kubeconfig' | 'token' | 'authority'>;
    return { ...data, pid: program.pid, ...controls(data), stop };
  }
  await stop();
  throw new Error('The load server ended before it listened');
}

type Controls = Omit<LoadServer, 'url' | 'kubeconfig' | 'token' | 'authority' | 'pid' | 'stop'>;

function controls(at: Pick<LoadServer, 'url' | 'token' | 'authority'>): Controls {
  const ask = async (method: string, path: string): Promise<unknown> => {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const headers = { authorization: `Bearer ${at.token}` };
    const options = { method, headers, ca: at.authority };
    const asked = requestTls(`${at.url}/control/${path}`, options, (answer) => {
      const parts: Buffer[] = [];
      answer.on('data', (part: Buffer) => parts.push(part));
      answer.on('error', reject);
      answer.on('end', () => {
        const text = Buffer.concat(parts).toString();
        if (answer.statusCode === 200) resolve(JSON.parse(text));
        else reject(new Error(`${method} ${path}: ${String(answer.statusCode)} ${text}`));
      });
    });
    asked.on('error', reject);
    asked.end();
    return promise;
  };
  return {
    churn: async (rate, kind = 'followed') => {
      await ask('POST', `churn?rate=${rate}&kind=${kind}`);
    },
    breakOff: async (seconds) => {
      await ask('POST', `outage?seconds=${seconds}`);
    },
    storm: async (chance, seconds) => {
      await ask('POST', `storm?chance=${chance}&seconds=${seconds}`);
    },
    connections: async () => (await ask('GET', 'connections')) as { now: number; most: number },
    stamps: async (clear) => (await ask('GET', `stamps?clear=${String(clear)}`)) as Stamp[],
    requests: async () => (await ask('GET', 'requests')) as Record<string, number>,
    world: async () => (await ask('GET', 'world')) as Record<string, number>,
  };
}

// The program itself under measurement: the bundle, started as users start it, by its first line,
// which needs `node` in the PATH; as a child on a core of its own, and watched from outside.

const root = join(import.meta.dirname, '../..');

let bundle: Promise<string> | null = null;

/** Builds the bundle once and returns its path. */
export async function buildBundle(): Promise<string> {
  bundle ??= run(process.execPath, ['esbuild.config.ts'], { cwd: root }).then(() =>
    join(root, 'dist/endpoint-auditor.mjs'),
  );
  return bundle;
}

/** An answer, and how long it took from the request to its last byte. */
interface Answer {
  readonly status: number;
  readonly text: string;
  readonly seconds: number;
  /** When its last byte had come, Unix seconds. */
  readonly at: number;
}

export interface Auditing {
  readonly pid: number;
  readonly url: string;
  /** When it was started, by performance.now(). */
  readonly started: number;
  readonly get: (path: string) => Promise<Answer>;
  readonly usage: () => Promise<Usage>;
  /** The longest turn of its loop since this was last asked, seconds of CPU (turns.ts). */
  readonly longestTurn: () => Promise<number>;
  readonly stop: () => Promise<void>;
}

/** Starts it against a server, and waits until it listens. */
export async function startAuditing(
  { kubeconfig }: Pick<LoadServer, 'kubeconfig'>,
  core: number | null,
  more: readonly string[] = [],
): Promise<Auditing> {
  const args = ['serve', '--kubeconfig', kubeconfig, '--listen', '127.0.0.1:0', ...more];
  const directory = await mkdtemp(join(tmpdir(), 'endpoint-auditor-turns-'));
  const turns = join(directory, 'turns');
  const preload = `--import=${pathToFileURL(join(import.meta.dirname, 'turns.ts')).href}`;
  const env = { TURNS: turns, NODE_OPTIONS: preload };
  const program = start(await buildBundle(), args, core, { env });
  const { stdout } = program.child;
  if (stdout === null) throw new Error('Expected a pipe');
  const lines = createInterface({ input: stdout });
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  lines.on('line', (line) => {
    const url = /http:\/\/[\d.]+:\d+/.exec(line)?.[0];
    if (url !== undefined) resolve(url);
  });
  lines.on('close', () => {
    reject(new Error('The program ended before it listened'));
  });
  const url = await promise;
  const agent = new Agent({ keepAlive: true });
  return {
    pid: program.pid,
    url,
    started: program.started,
    get: (path) => get(`${url}${path}`, agent),
    usage: () => usageOf(program.pid),
    longestTurn: async () => {
      await rm(turns, { force: true });
      program.child.kill('SIGUSR2');
      for (;;) {
        await sleep(500);
        // It is written late if other work has the cores.
        const text = await readFile(turns, 'utf8').catch(() => '');
        if (text !== '') return Number(text) / 1000;
      }
    },
    stop: async () => {
      agent.destroy();
      await program.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

async function get(url: string, agent: Agent): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const begun = performance.now();
  const asked = request(url, { agent }, (answer) => {
    const parts: Buffer[] = [];
    answer.on('data', (part: Buffer) => parts.push(part));
    answer.on('error', reject);
    answer.on('end', () => {
      const seconds = (performance.now() - begun) / 1000;
      const at = Date.now() / 1000;
      const text = Buffer.concat(parts).toString();
      resolve({ status: answer.statusCode ?? 0, text, seconds, at });
    });
  });
  asked.on('error', reject);
  asked.end();
  return promise;
}

/** The sum of the samples of a family whose labels hold `label`; 0 where there is none. */
export function sampleOf(text: string, name: string, label = ''): number {
  let sum = 0;
  for (const line of text.split('\n')) {
    if (!line.startsWith(`${name}{`) && !line.startsWith(`${name} `)) continue;
    if (line.includes(label)) sum += Number(line.slice(line.lastIndexOf(' ') + 1));
  }
  return sum;
}
