// The program itself under measurement: the bundle, started as users start it, by its first line,
// which needs `node` in the PATH; as a child on a core of its own, and watched from outside.

import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';

import type { LoadServer } from './loadserver.ts';
import type { Usage } from './programs.ts';
import { start, usageOf } from './programs.ts';

const root = join(import.meta.dirname, '../..');

/** Builds the bundle and returns its path. */
export async function buildBundle(): Promise<string> {
  await promisify(execFile)(process.execPath, ['esbuild.config.ts'], { cwd: root });
  return join(root, 'dist/endpoint-auditor.mjs');
}

/** An answer, and how long it took from the request to its last byte. */
export interface Answer {
  readonly status: number;
  readonly text: string;
  readonly seconds: number;
  /** When its last byte had come, Unix seconds. */
  readonly at: number;
}

export interface Auditing {
  readonly pid: number;
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
    started: program.started,
    get: (path) => get(`${url}${path}`, agent),
    usage: () => usageOf(program.pid),
    longestTurn: async () => {
      program.child.kill('SIGUSR2');
      await sleep(500);
      return Number(await readFile(turns, 'utf8')) / 1000;
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
