// Checks the workflows: `npm run -s actionlint`. Go builds actionlint once into the user's cache
// ($XDG_CACHE_HOME).

import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

import { cacheFolder, goProgram } from '../test/processes.ts';
import { root } from './bundles.ts';

const version = 'v1.7.12';
const folder = cacheFolder('actionlint', version);
const program = join(folder, 'actionlint');
if (!existsSync(program)) {
  const module = `github.com/rhysd/actionlint/cmd/actionlint@${version}`;
  const env = { ...process.env, GOBIN: folder, GOFLAGS: '-mod=mod' };
  execFileSync(goProgram(), ['install', module], { env, stdio: 'inherit' });
}
const { status } = spawnSync(program, ['-no-color'], { cwd: root, stdio: 'inherit' });
process.exitCode = status ?? 1;
