// promtool and prometheus themselves, built by Go from the module beside this file, as its go.mod
// says, and kept in the user's cache ($XDG_CACHE_HOME). Prometheus is built without its own pages
// and without service discovery, because no test needs them.

import { execFile } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { cacheFolder, goProgram } from '../processes.ts';

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
