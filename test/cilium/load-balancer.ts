// The real load balancing control plane of Cilium as a process, and the BPF maps that it writes.
// load-balancer/ has its source; go.mod names the newest version, VERSION.mod another one.
// `node test/cilium/load-balancer.ts VERSION` builds it and prints its path.

import type { ChildProcess } from 'node:child_process';
import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

import { cacheFolder, endProgram, goProgram } from '../processes.ts';

const run = promisify(execFile);

export const newestCilium = 'v1.20.2';

const source = join(import.meta.dirname, 'load-balancer');

type Program = 'load-balancer' | 'cilium-dbg';

const packageOf: Readonly<Record<Program, string>> = {
  'load-balancer': '.',
  'cilium-dbg': 'github.com/cilium/cilium/cilium-dbg',
};

/** The path of a program of a version; it is built once, which takes minutes. */
async function findProgram(program: Program, version: string): Promise<string> {
  const path = cacheFolder('cilium', version, program);
  if (existsSync(path)) return path;
  await mkdir(cacheFolder('cilium', version), { recursive: true });
  const minor = version.split('.').slice(0, 2).join('_').replace('v', 'cilium');
  const module = version === newestCilium ? [] : [`-modfile=${version}.mod`];
  const args = ['build', '-buildvcs=false', ...module, '-tags', minor, '-o', path];
  await run(goProgram(), [...args, packageOf[program]], {
    cwd: source,
    env: { ...process.env, CGO_ENABLED: '0' },
    maxBuffer: 1 << 26,
  });
  return path;
}

/** Where Cilium runs. */
export interface CiliumNode {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  /** With node ports. */
  readonly addresses: readonly string[];
  readonly otherAddresses: readonly string[];
}

export interface LoadBalancerOptions {
  readonly version?: string;
  readonly node: CiliumNode;
  /** Flags of the agent: `--bpf-lb-algorithm=maglev`. */
  readonly flags: readonly string[];
  /** null: commands give the objects. */
  readonly kubeconfig: string | null;
  readonly folder: string;
}

/** Entries by the full name of the map, as bpftool prints them. */
export type BpfMaps = Record<string, readonly { key: string[]; value: string[] }[]>;

export interface CiliumLoadBalancer {
  /** Runs one command and returns its output; throws if it fails. */
  readonly command: (line: string) => Promise<string>;
  /** Waits until every frontend is written and nothing changed for a while. */
  readonly settle: () => Promise<void>;
  readonly maps: () => Promise<BpfMaps>;
  /** What four forms of `cilium-dbg bpf lb list -o json` print. */
  readonly lists: () => Promise<string>;
  /** Pins the maps where the agent of Cilium does, in the file system of this process. */
  readonly pin: () => Promise<void>;
  /** The arguments that run a program with the file systems of this process. */
  readonly inside: readonly string[];
  /** SIGSTOP and SIGCONT. */
  readonly signal: (name: NodeJS.Signals) => void;
  readonly stop: () => Promise<void>;
}

/** Starts the control plane; without an API server, it has no objects yet. */
export async function startLoadBalancer(options: LoadBalancerOptions): Promise<CiliumLoadBalancer> {
  const { node, flags, kubeconfig, folder } = options;
  const path = await findProgram('load-balancer', options.version ?? newestCilium);
  const labels = Object.entries(node.labels).map(([name, value]) => `${name}=${value}`);
  const client = kubeconfig === null ? '--fake-client' : `--k8s-kubeconfig-path=${kubeconfig}`;
  const args = [
    ...[client, `--node-name=${node.name}`, `--work-dir=${folder}`],
    ...(labels.length > 0 ? [`--node-labels=${labels.join()}`] : []),
    ...(node.addresses.length > 0 ? [`--node-addresses=${node.addresses.join()}`] : []),
    ...(node.otherAddresses.length > 0 ? [`--other-addresses=${node.otherAddresses.join()}`] : []),
    ...flags,
  ];
  // Cilium wants a BPF file system; the rest of the machine does not see this one.
  const mounted = 'mount -t bpf bpf /sys/fs/bpf && exec "$0" "$@"';
  const child = spawn('unshare', ['-m', 'sh', '-c', mounted, path, ...args], { stdio: 'pipe' });
  let errors = '';
  child.stderr.on('data', (part: Buffer) => {
    errors = (errors + part.toString()).slice(-10_000);
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const command = async (line: string): Promise<string> => {
    child.stdin.write(`${line}\n`);
    const output: string[] = [];
    for (;;) {
      const { value, done } = await lines.next();
      if (done === true) throw new Error(`${line}: the load balancer ended\n${errors}`);
      if (value === '=== done') return output.join('\n');
      if (value.startsWith('=== failed')) throw new Error(`${line}: ${value}\n${errors}`);
      output.push(value);
    }
  };
  return {
    command,
    settle: () => settle(command),
    maps: () => mapsOf(child),
    lists: () => listsOf(child),
    pin: () => pinMaps(child),
    inside: insideOf(child),
    signal: (name) => void child.kill(name),
    stop: () => endProgram(child, 'SIGKILL'),
  };
}

/**
 * The tables are equal in three readings, and no frontend waits to be written. The age of a row
 * changes each second, so it does not count: on a busy machine a reading takes that long.
 */
async function settle(command: CiliumLoadBalancer['command']): Promise<void> {
  await command('db/initialized services frontends backends');
  let [last, equal] = ['', 0];
  for (let round = 0; round < 200; round++) {
    const shown = (await command('db/show frontends')) + (await command('db/show backends'));
    const tables = shown.replaceAll(/\s\d[\dhms.µ]*s(?=\s)/g, '');
    equal = tables === last && !tables.includes(' Pending') ? equal + 1 : 0;
    if (equal === 3) return;
    last = tables;
    await sleep(150);
  }
  throw new Error(`The load balancer is not done:\n${last}`);
}

const suffixes = ['affinity', 'backends_v3', 'maglev', 'reverse_nat', 'services_v2'] as const;
const names = [
  ...['cilium_lb4_', 'cilium_lb6_'].flatMap((prefix) =>
    [...suffixes, 'source_range'].map((suffix) => prefix + suffix),
  ),
  'cilium_lb_affinity_match',
];

const bpftool = async (...args: string[]): Promise<unknown> => {
  const { stdout } = await run('bpftool', ['-j', ...args], { maxBuffer: 1 << 28 });
  return JSON.parse(stdout) as unknown;
};

interface MapInfo {
  readonly id: number;
  /** Cut at 15 characters. */
  readonly name?: string;
  readonly bytes_key: number;
}

/** reverse_sk, the other map with this short name, has a longer key. */
function nameOf({ name, bytes_key: size }: MapInfo): string | null {
  const found = names.find((full) => full.slice(0, 15) === name) ?? null;
  return found?.endsWith('reverse_nat') === true && size !== 2 ? null : found;
}

/** The maps of the process by their full names. */
async function mapIds({ pid }: ChildProcess): Promise<Map<string, number>> {
  const ids = new Set<number>();
  const folder = `/proc/${pid}/fdinfo`;
  for (const file of await readdir(folder)) {
    const text = await readFile(join(folder, file), 'utf8').catch(() => '');
    const id = /^map_id:\s*(\d+)/m.exec(text)?.[1];
    if (id !== undefined) ids.add(Number(id));
  }
  const found = new Map<string, number>();
  for (const info of (await bpftool('map', 'show')) as readonly MapInfo[]) {
    const name = nameOf(info);
    if (name !== null && ids.has(info.id)) found.set(name, info.id);
  }
  return found;
}

async function mapsOf(child: ChildProcess): Promise<BpfMaps> {
  const maps: BpfMaps = {};
  for (const [name, id] of await mapIds(child)) {
    const entries = await entriesOf(id);
    maps[name] = entries;
    if (!name.endsWith('maglev')) continue;
    for (const { value } of entries) {
      const inner = value.reduceRight((sum, byte) => sum * 256 + Number(byte), 0);
      maps[`cilium_maglev_inner:${inner}`] = await entriesOf(inner);
    }
  }
  return maps;
}

export const pinnedAt = '/sys/fs/bpf/tc/globals';

const insideOf = ({ pid }: ChildProcess): string[] => ['nsenter', '-t', String(pid), '-m'];

async function runInside(child: ChildProcess, ...args: string[]): Promise<string> {
  const [program = '', ...own] = [...insideOf(child), ...args];
  return (await run(program, own, { maxBuffer: 1 << 28 })).stdout;
}

async function pinMaps(child: ChildProcess): Promise<void> {
  await runInside(child, 'mkdir', '-p', pinnedAt);
  for (const [name, id] of await mapIds(child)) {
    await runInside(child, 'bpftool', 'map', 'pin', 'id', String(id), `${pinnedAt}/${name}`);
  }
}

/** Pins the maps for the time of the commands. */
async function listsOf(child: ChildProcess): Promise<string> {
  const program = await findProgram('cilium-dbg', newestCilium);
  await pinMaps(child);
  let text = '';
  for (const form of [[], ['--frontends'], ['--revnat'], ['--source-ranges']]) {
    text += await runInside(child, program, 'bpf', 'lb', 'list', ...form, '-o', 'json');
  }
  await runInside(child, 'rm', '-r', pinnedAt);
  return text;
}

/** A byte as bpftool prints it. */
export const byteText = (byte: number): string => `0x${byte.toString(16).padStart(2, '0')}`;

interface RawEntry {
  readonly key: string[];
  readonly value?: string[];
  readonly inner_map_id?: number;
}

/** `bpftool -j map dump`; of a map of maps, the value is the id of the inner map. */
async function entriesOf(id: number): Promise<{ key: string[]; value: string[] }[]> {
  const entries = (await bpftool('map', 'dump', 'id', String(id))) as readonly RawEntry[];
  return entries.map(({ key, value, inner_map_id: inner = 0 }) => ({
    key,
    value: value ?? [0, 8, 16, 24].map((shift) => byteText((inner >>> shift) & 255)),
  }));
}

if (import.meta.main) {
  console.log(await findProgram('load-balancer', process.argv[2] ?? newestCilium));
}
