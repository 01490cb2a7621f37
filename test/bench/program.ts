// The program itself under measurement: the bundle that users run, as a child on a core of its own,
// watched from outside. Nothing is added to it, no flag that a user does not have.

import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
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
  readonly stop: () => Promise<void>;
}

/** Starts it against a server, and waits until it listens. `nodeArgs` go to Node. */
export async function startAuditing(
  { kubeconfig }: Pick<LoadServer, 'kubeconfig'>,
  core: number | null,
  nodeArgs: readonly string[] = [],
): Promise<Auditing> {
  const bundle = join(root, 'dist/endpoint-auditor.mjs');
  const args = [...nodeArgs, bundle, 'serve', '--kubeconfig', kubeconfig];
  const program = start(process.execPath, [...args, '--listen', '127.0.0.1:0'], core);
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
    stop: async () => {
      agent.destroy();
      await program.stop();
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

/** Whether the process lives: its status file can be read. */
export async function lives(pid: number): Promise<boolean> {
  return readFile(`/proc/${pid}/status`, 'utf8').then(
    () => true,
    () => false,
  );
}
