// The programs of a control plane, of any release of Kubernetes that `sums` has a file of: built by
// Go from the module k8s.io/kubernetes of that version, once, and kept in the user's cache. What
// KUBEBUILDER_ASSETS holds is taken instead where it is of the wanted version.
//
// The go.mod of a build is upstream's own go.mod, with the module of this version instead of each
// folder in staging. Its go.sum is upstream's own, with the sums of those modules, which are all
// that a file of `sums` holds. `node test/controlplane/binaries.ts v1.37.2` writes such a file.

import { execFile } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { cacheFolder, goProgram } from '../processes.ts';

const run = promisify(execFile);

const sumsFolder = join(import.meta.dirname, 'sums');

/** A version of Kubernetes: `v1.37.2`. */
export type Version = `v${number}.${number}.${number}`;

const versionPattern = /^v1\.(\d+)\.(\d+)$/;

const isVersion = (name: string): name is Version => versionPattern.test(name);

/** Every version that can be built, oldest first. */
export const versions: readonly Version[] = readdirSync(sumsFolder)
  .map((name) => name.replace(/\.sum$/, ''))
  .filter(isVersion)
  .sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));

export const newestVersion: Version = versions.at(-1) ?? missingSums();

function missingSums(): never {
  throw new Error(`${sumsFolder} has no file`);
}

const etcdPackage = 'go.etcd.io/etcd/server/v3';

export type Program = 'kube-apiserver' | 'kube-controller-manager' | 'kube-proxy';

const programs: readonly Program[] = ['kube-apiserver', 'kube-controller-manager', 'kube-proxy'];

const packageOf = (program: Program): string => `k8s.io/kubernetes/cmd/${program}`;

/** Where binaries of a version are kept. */
const cacheOf = (version: Version): string => cacheFolder('controlplane', version);

/** What to do when Go could not get modules, by what it printed; empty: it failed otherwise. */
export function adviceFor(printed: string): string {
  const names = [...printed.matchAll(/([\w./-]+@v[\w.-]+): (?:reading|verifying|Get) /g)];
  if (names.length === 0) return '';
  const modules = [...new Set(names.map(([, name]) => name))].join(', ');
  const advice = 'Set GOPROXY to a proxy, or to a folder, that has them (go help goproxy).';
  return `Go cannot get these modules, or their checksums: ${modules}. ${advice}`;
}

async function go(args: readonly string[], cwd: string): Promise<string> {
  const program = goProgram();
  try {
    return (await run(program, args, { cwd, maxBuffer: 1 << 26 })).stdout;
  } catch (error) {
    const { message, stdout } = error as Error & { readonly stdout: string };
    throw new Error(`${message}\n${adviceFor(message + stdout)}`.trim(), { cause: error });
  }
}

/** Upstream's go.mod as the go.mod of a build of this version. */
export function buildModule(upstream: string, version: Version): string {
  const staging = version.replace('v1.', 'v0.');
  return upstream
    .replace(/^module .*$/m, `module controlplane\n\nrequire k8s.io/kubernetes ${version}`)
    .replaceAll(/=> \.\/staging\/src\/(\S+)/g, `=> $1 ${staging}`);
}

/** Writes go.mod and go.sum to a folder; returns upstream's go.sum. Fetches the module. */
async function writeModule(version: Version, folder: string, sums: string): Promise<string> {
  const output = await go(['mod', 'download', '-json', `k8s.io/kubernetes@${version}`], folder);
  const { Dir: source } = JSON.parse(output) as { Dir: string };
  const upstream = await readFile(join(source, 'go.sum'), 'utf8');
  const module = await readFile(join(source, 'go.mod'), 'utf8');
  await writeFile(join(folder, 'go.mod'), buildModule(module, version));
  await writeFile(join(folder, 'go.sum'), upstream + sums);
  return upstream;
}

/** What is in a folder of its own in the cache of this version, which is then removed. */
async function inFolder<T>(version: Version, use: (folder: string) => Promise<T>): Promise<T> {
  await mkdir(cacheOf(version), { recursive: true });
  const folder = await mkdtemp(join(cacheOf(version), 'build-'));
  try {
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Throws unless a binary contains the code of this version and reports it. */
async function check(program: Program, path: string, version: Version): Promise<void> {
  const contents = await go(['version', '-m', path], cacheOf(version));
  const module = /^\s*mod\s+k8s\.io\/kubernetes\s+(\S+)/m.exec(contents)?.[1];
  const reported = (await run(path, ['--version'])).stdout.trim();
  if (module === version && reported === `Kubernetes ${version}`) return;
  const found = `contains the code of ${String(module)} and reports ${reported}`;
  throw new Error(`${program} of ${version} ${found}`);
}

/** Builds in a temporary folder and renames, so that no process finds an incomplete binary. */
function build(wanted: readonly Program[], version: Version): Promise<void> {
  return inFolder(version, async (folder) => {
    await writeModule(version, folder, await readFile(join(sumsFolder, `${version}.sum`), 'utf8'));
    const module = (
      await go(['list', '-m', '-f', '{{.Version}}', 'k8s.io/kubernetes'], folder)
    ).trim();
    const [major = '', minor = ''] = module.slice(1).split('.');
    const facts = { gitVersion: module, gitMajor: major, gitMinor: minor };
    const stamp = Object.entries(facts)
      .map(([name, value]) => `-X k8s.io/component-base/version.${name}=${value}`)
      .join(' ');
    const built = join(folder, 'bin');
    await mkdir(built);
    const flags = ['-buildvcs=false', '-ldflags', stamp, '-o', `${built}/`];
    await go(['build', ...flags, ...wanted.map(packageOf)], folder);
    for (const program of wanted) {
      await check(program, join(built, program), version);
      await rename(join(built, program), join(cacheOf(version), program));
    }
  });
}

const assetOf = (name: string): string | null => {
  const assets = process.env.KUBEBUILDER_ASSETS ?? '';
  const path = join(assets, name);
  return assets !== '' && existsSync(path) ? path : null;
};

/** The path of a program of this version that exists; null: there is none yet. */
async function findProgram(program: Program, version: Version): Promise<string | null> {
  const asset = assetOf(program);
  if (asset !== null) {
    const { stdout } = await run(asset, ['--version']);
    if (stdout.trim() === `Kubernetes ${version}`) return asset;
  }
  const cached = join(cacheOf(version), program);
  return existsSync(cached) ? cached : null;
}

/**
 * The paths of programs of a version. Those that do not exist yet are built, which takes minutes.
 * Throws if Go, the module or its sums are missing.
 */
export async function findPrograms<P extends Program>(
  version: Version,
  wanted: readonly P[],
): Promise<Readonly<Record<P, string>>> {
  const paths = await Promise.all(wanted.map((program) => findProgram(program, version)));
  const missing = wanted.filter((_, at) => paths[at] === null);
  if (missing.length > 0) await build(missing, version);
  const entries = wanted.map((name, at) => [name, paths[at] ?? join(cacheOf(version), name)]);
  return Object.fromEntries(entries) as Record<P, string>;
}

/** The path of etcd, which serves every version; it is built by the module in the folder etcd. */
export async function findEtcd(version: Version): Promise<string> {
  const path = assetOf('etcd') ?? join(cacheOf(version), 'etcd');
  if (existsSync(path)) return path;
  await inFolder(version, async (folder) => {
    const built = join(folder, 'etcd');
    const cwd = join(import.meta.dirname, 'etcd');
    await go(['build', '-buildvcs=false', '-o', built, etcdPackage], cwd);
    await rename(built, path);
  });
  return path;
}

/** Writes the file of `sums` that a version needs; Go asks its checksum database. */
async function writeSums(version: Version): Promise<void> {
  await inFolder(version, async (folder) => {
    const upstream = new Set((await writeModule(version, folder, '')).split('\n'));
    await go(['list', '-mod=mod', '-deps', ...programs.map(packageOf)], folder);
    const all = (await readFile(join(folder, 'go.sum'), 'utf8')).split('\n');
    const sums = all.filter((line) => !upstream.has(line));
    await writeFile(join(sumsFolder, `${version}.sum`), `${sums.join('\n')}\n`);
  });
}

if (import.meta.main) {
  for (const name of process.argv.slice(2)) {
    if (!isVersion(name)) throw new Error(`Expected a version such as v1.37.2, not ${name}`);
    await writeSums(name);
  }
}
