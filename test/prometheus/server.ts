// A real Prometheus on the loopback, for as long as a test needs it, and its answers.

import type { ChildProcess } from 'node:child_process';
import { spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { endProgram, freePort } from '../processes.ts';
import { programOf } from './programs.ts';

interface Running {
  readonly url: string;
  stop(): Promise<void>;
}

/** A program of Prometheus' family that was started at an address, when it is ready. */
export async function whenReady(child: ChildProcess, address: string): Promise<Running> {
  const url = `http://${address}`;
  const running = { url, stop: () => endProgram(child) };
  for (let tries = 0; tries < 600; tries++) {
    if (child.exitCode !== null) throw new Error(`${child.spawnfile}: ended (${child.exitCode})`);
    const answer = await fetch(`${url}/-/ready`).catch(() => null);
    if (answer?.ok === true) return running;
    await sleep(100);
  }
  await running.stop();
  throw new Error(`${child.spawnfile}: not ready after a minute`);
}

/** Prometheus with its data in `directory`/data, when it is ready. */
export async function startPrometheus(
  directory: string,
  config: object,
  flags: readonly string[],
): Promise<Running> {
  const file = join(directory, 'prometheus.yml');
  // JSON is YAML.
  await writeFile(file, JSON.stringify(config));
  const address = `127.0.0.1:${await freePort()}`;
  const paths = [`--config.file=${file}`, `--storage.tsdb.path=${join(directory, 'data')}`];
  const args = [...paths, `--web.listen-address=${address}`, ...flags];
  return whenReady(spawn(await programOf('prometheus'), args, { stdio: 'ignore' }), address);
}

/** What the API of Prometheus answers; throws with its words where that is an error. */
export async function ask<T>(
  url: string,
  path: string,
  query: Record<string, string> = {},
): Promise<T> {
  const answer = await fetch(`${url}/api/v1/${path}?${String(new URLSearchParams(query))}`);
  const body = (await answer.json()) as { status: string; data: T; error?: string };
  if (body.status !== 'success') throw new Error(`${path}: ${body.error ?? answer.statusText}`);
  return body.data;
}
