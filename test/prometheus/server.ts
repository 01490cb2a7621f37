// A real Prometheus on the loopback, for as long as a test needs it, and its answers.

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
  const child = spawn(
    await programOf('prometheus'),
    [...paths, `--web.listen-address=${address}`, ...flags],
    { stdio: 'ignore' },
  );
  const stop = (): Promise<void> => endProgram(child);
  const url = `http://${address}`;
  for (let tries = 0; tries < 300; tries++) {
    if (child.exitCode !== null) throw new Error(`Prometheus ended with ${child.exitCode}`);
    const answer = await fetch(`${url}/-/ready`).catch(() => null);
    if (answer?.ok === true) return { url, stop };
    await sleep(100);
  }
  await stop();
  throw new Error('Prometheus is not ready after 30 s');
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
