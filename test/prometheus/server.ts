// promtool and prometheus themselves, built by Go from the module beside this file, as its go.mod
// says, and kept in the user's cache ($XDG_CACHE_HOME). Prometheus is built without its own pages
// and without service discovery, because no test needs them.

import type { ChildProcess } from 'node:child_process';
import { execFile, spawn } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

import { cacheFolder, endProgram, freePort, goProgram } from '../processes.ts';

const run = promisify(execFile);

const cache = (): string => cacheFolder('prometheus');

type Name = 'promtool' | 'prometheus';

const built = new Map<Name, Promise<string>>();

/** The path of a program that is built: once, as what runs meanwhile may not wait for Go. */
export function programOf(name: Name): Promise<string> {
  const known = built.get(name) ?? build(name);
  built.set(name, known);
  return known;
}

/** Go knows itself what has changed since the last time; the first takes minutes. */
async function build(name: Name): Promise<string> {
  await mkdir(cache(), { recursive: true });
  // Renamed into place, so that no process finds an incomplete binary.
  const directory = await mkdtemp(join(cache(), 'build-'));
  const [output, path] = [join(directory, name), join(cache(), name)];
  try {
    // A binary that is up to date is not linked again.
    await copyFile(path, output).catch(() => null);
    const flags = ['-buildvcs=false', '-tags', 'remove_all_sd', '-o', output];
    await run(goProgram(), ['build', ...flags, `github.com/prometheus/prometheus/cmd/${name}`], {
      cwd: import.meta.dirname,
    });
    await rename(output, path);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
  return path;
}

// A real Prometheus on the loopback, for as long as a test needs it, and its answers.

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
