// Records what Cilium's real load balancing control plane writes for the objects of a real API
// server: `npm run -s cilium:record -- OUT --seed 1 --states 400`. The folders that it writes have
// the form that README.md of test/nodes describes. Every state is that of a fresh start, in which
// Cilium has no divergence of its own.

import { mkdirSync, writeFileSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';

import { stringify } from 'yaml';

import { recordOf } from '../../src/model/collections.ts';
import { inParallel } from '../controlplane/cluster.ts';
import type { Thing } from '../controlplane/controlplane.ts';
import { clientOf, startControlPlane } from '../controlplane/controlplane.ts';
import type { CiliumLoadBalancer, CiliumNode } from './load-balancer.ts';
import { newestCilium, startLoadBalancer } from './load-balancer.ts';
import type { ObjectLists } from './objects.ts';
import { createNodes, createObjects, diceOf, listObjects, nodeNames } from './objects.ts';

export const packed = (path: string, text: string): void =>
  writeFileSync(`${path}.gz`, gzipSync(text));

/** Flags of the agent by name; true: without a value. */
export type Flags = Readonly<Record<string, string | true>>;

export const flagTexts = (flags: Flags): string[] =>
  Object.entries(flags).map(([name, value]) =>
    value === true ? `--${name}` : `--${name}=${value}`,
  );

/** Random flags; those with two values are there in half of the states. */
export function flagsOf(seed: number): Flags {
  const { chance, oneOf } = diceOf(seed);
  const algorithm = oneOf(['random', 'maglev']);
  const mode = oneOf(['snat', 'dsr', 'hybrid']);
  const on = (probability: number, name: string): Flags =>
    chance(probability) ? { [name]: true } : {};
  return {
    'bpf-lb-algorithm': algorithm,
    'bpf-lb-mode': mode,
    // A prime; the default of 16381 makes dumps that are a hundred times larger.
    'bpf-lb-maglev-table-size': '251',
    ...on(0.5, 'enable-service-topology'),
    ...on(0.3, 'bpf-lb-source-range-all-types'),
    ...on(0.3, 'bpf-lb-external-clusterip'),
    ...on(0.2, 'bpf-lb-algorithm-annotation'),
    // Cilium refuses both.
    ...(mode === 'hybrid' ? {} : on(0.3, 'bpf-lb-mode-annotation')),
    ...(chance(0.2) ? { 'node-port-range': '31000,32767' } : {}),
    ...(chance(0.1) ? { 'k8s-service-proxy-name': 'cilium' } : {}),
    ...(chance(0.2) ? { 'bpf-lb-enable-wildcard-entries': 'false' } : {}),
  };
}

/** The node as an agent finds it; `families` are those in which it has addresses. */
export function nodeIn({ nodes }: ObjectLists, name: string, families = '46'): CiliumNode {
  const node = nodes.find(({ metadata }) => metadata.name === name);
  if (node === undefined) throw new Error(`No Node ${name}`);
  const { status, spec } = node as Thing & {
    readonly status: { readonly addresses: readonly { type: string; address: string }[] };
    readonly spec: { readonly podCIDRs: readonly string[] };
  };
  const isWanted = (address: string): boolean =>
    families.includes(address.includes(':') ? '6' : '4');
  const own = status.addresses.filter(({ type }) => type === 'InternalIP');
  return {
    name,
    labels: node.metadata.labels ?? {},
    addresses: own.map(({ address }) => address).filter(isWanted),
    // Cilium's own address in the pod network.
    otherAddresses: spec.podCIDRs
      .map((range) => range.replace(/(?:(::)|0)\/\d+$/, '$11'))
      .filter(isWanted),
  };
}

/** Writes the objects of a recording; returns the path without .gz. */
export function writeObjects(out: string, name: string, lists: ObjectLists): string {
  const path = join(out, `${name}.json`);
  mkdirSync(out, { recursive: true });
  packed(path, JSON.stringify(lists));
  return path;
}

export interface State {
  readonly version: string;
  readonly node: CiliumNode;
  readonly flags: Flags;
  /** The path of the file with the objects, without .gz. */
  readonly objects: string;
  /** Whether to write the output of cilium-dbg too. */
  readonly lists?: boolean;
}

/** Writes a folder with the maps of a load balancer as they are. */
export async function writeState(
  balancer: CiliumLoadBalancer,
  { version, node, flags, objects, lists = false }: State,
  folder: string,
): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const work = await mkdtemp(join(tmpdir(), 'cilium-dump-'));
  await balancer.command(`lb/maps-dump ${join(work, 'maps')}`);
  const text = await readFile(join(work, 'maps'), 'utf8');
  // Without a Service there is no line.
  if (text !== '') packed(join(folder, 'lb-maps.txt'), text);
  await rm(work, { recursive: true });
  packed(join(folder, 'cilium-maps.json'), JSON.stringify(await balancer.maps()));
  if (lists) packed(join(folder, 'lb-list.json'), await balancer.lists());
  writeConfig({ version, node, flags, objects }, folder);
}

/** Writes proxy-config.yaml. */
export function writeConfig({ version, node, flags, objects }: State, folder: string): void {
  const file = {
    version,
    mode: 'cilium',
    nodeName: node.name,
    objects: relative(folder, objects),
    config: flags,
    nodeAddresses: node.addresses,
    nodeAddressesNoNodePort: node.otherAddresses,
    nodeLabels: node.labels,
  };
  writeFileSync(join(folder, 'proxy-config.yaml'), stringify(file));
}

/** Starts a load balancer, and waits until it has written everything. */
export async function withBalancer<T>(
  { node, version, flags }: State,
  kubeconfig: string,
  use: (balancer: CiliumLoadBalancer, work: string) => Promise<T>,
): Promise<T> {
  const work = await mkdtemp(join(tmpdir(), 'cilium-'));
  const options = { version, node, flags: flagTexts(flags), kubeconfig, folder: work };
  const balancer = await startLoadBalancer(options);
  try {
    await balancer.command('hive/start');
    await balancer.settle();
    return await use(balancer, work);
  } finally {
    await balancer.stop();
    await rm(work, { recursive: true });
  }
}

/** OUT and the options of the command line. The defaults say which options there are. */
export function argumentsOf<T extends Readonly<Record<string, string | number | boolean>>>(
  usage: string,
  defaults: T,
): T & { readonly out: string } {
  const options = recordOf(Object.keys(defaults), (name) => ({
    type: defaults[name] === false ? ('boolean' as const) : ('string' as const),
  }));
  const { values, positionals } = parseArgs({ allowPositionals: true, options });
  const [out] = positionals;
  if (out === undefined) throw new Error(`Usage: ${usage}`);
  const read = recordOf(Object.keys(defaults), (name) => {
    const value = values[name] ?? defaults[name];
    return typeof defaults[name] === 'number' ? Number(value) : value;
  });
  return { ...(read as T), out };
}

const defaultArguments = {
  ...{ seed: 1, states: 8, services: 60, lists: false },
  version: newestCilium as string,
};

/** Each set of objects has states of eight random sets of flags, on the three nodes in turn. */
async function record({
  out,
  seed,
  states,
  version,
  services,
  lists: isListed,
}: ReturnType<typeof argumentsOf<typeof defaultArguments>>): Promise<void> {
  const plane = await startControlPlane();
  const client = clientOf(plane);
  try {
    await createNodes(client);
    for (let first = 0; first < states; first += 8) {
      await createObjects(client, seed * 10_000 + first, services);
      const lists = await listObjects(client);
      const objects = writeObjects(out, `objects-${seed}-${first}`, lists);
      const indexes = Array.from({ length: Math.min(8, states - first) }, (_, at) => first + at);
      await inParallel(indexes, 3, async (at) => {
        const name = nodeNames[at % nodeNames.length] ?? 'node-a';
        const families = ['46', '46', '46', '4', '6'][at % 5];
        const node = nodeIn(lists, name, families);
        const flags = flagsOf(seed * 10_000 + at);
        const folder = join(out, `state-${seed}-${at}`);
        const state = { version, node, flags, objects, lists: isListed };
        await withBalancer(state, plane.kubeconfig, (it) => writeState(it, state, folder));
      });
      console.log(`${first + indexes.length} of ${states} states`);
    }
  } finally {
    client.close();
    await plane.stop();
  }
}

if (import.meta.main) {
  await record(argumentsOf('record OUT [--seed N] [--states N]', defaultArguments));
}
