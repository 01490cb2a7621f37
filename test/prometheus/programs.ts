// promtool and prometheus themselves, built by Go from the module beside this file, as its go.mod
// says, and kept in the user's cache ($XDG_CACHE_HOME). Prometheus is built without its own pages
// and without service discovery, neither of which a test needs.

import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { cacheFolder, goProgram } from '../processes.ts';

const run = promisify(execFile);

const cache = (): string => cacheFolder('prometheus');

/**
 * The path of a program that is built. Go knows itself what has changed; the first time takes
 * minutes.
 */
export async function programOf(name: 'promtool' | 'prometheus'): Promise<string> {
  await mkdir(cache(), { recursive: true });
  // Put into its place whole, so that nobody finds half of one.
  const directory = await mkdtemp(join(cache(), 'build-'));
  const [built, path] = [join(directory, name), join(cache(), name)];
  try {
    const flags = ['-buildvcs=false', '-tags', 'remove_all_sd', '-o', built];
    await run(goProgram(), ['build', ...flags, `github.com/prometheus/prometheus/cmd/${name}`], {
      cwd: import.meta.dirname,
    });
    await rename(built, path);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
  return path;
}
