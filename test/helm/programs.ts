// helm and kubeconform, built by Go from their modules, once per version, and kept in the user's
// cache ($XDG_CACHE_HOME).

import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { cacheFolder, goProgram } from '../processes.ts';

const run = promisify(execFile);

const programs = {
  helm: { version: 'v4.3.1', module: 'helm.sh/helm/v4/cmd/helm' },
  kubeconform: { version: 'v0.8.0', module: 'github.com/yannh/kubeconform/cmd/kubeconform' },
} as const;

/** The path of the program, which is built where it is nowhere yet; that takes minutes. */
export async function builtProgram(name: keyof typeof programs): Promise<string> {
  const { version, module } = programs[name];
  const folder = cacheFolder(name, version);
  const path = join(folder, name);
  if (existsSync(path)) return path;
  process.stderr.write(`Building ${name} ${version}\n`);
  await mkdir(folder, { recursive: true });
  // In a temporary folder, so that no process finds an incomplete binary.
  const building = await mkdtemp(join(folder, 'build-'));
  try {
    await run(goProgram(), ['install', `${module}@${version}`], {
      env: { ...process.env, GOBIN: building, GOFLAGS: '' },
    });
    await rename(join(building, name), path);
  } finally {
    await rm(building, { recursive: true, force: true });
  }
  return path;
}
