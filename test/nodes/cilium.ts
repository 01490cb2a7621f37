// Reads folders of nodes with Cilium: the maps of a recording or of a fault, and what the node must
// do by the objects of its `proxy-config.yaml`. test/nodes/README.md describes the files.

import { join, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';

import { parse } from 'yaml';

import type { NodeInput } from '../../src/audit/node/observation.ts';
import { project } from '../../src/cluster/decode/json-objects.ts';
import { readCiliumConfig } from '../../src/cluster/decode/cilium-config.ts';
import type { ObjectOf, Resource } from '../../src/model/objects.ts';
import { defaultProxyConfig } from '../../src/model/proxy-config.ts';
import { readMapsDump } from '../../src/rules/cilium/maps-dump.ts';
import { readBpftoolDump } from '../../src/rules/cilium/bpftool-dump.ts';
import { loadBalancerOf } from '../../src/rules/cilium/load-balancer.ts';
import {
  createConnector,
  frontendsInMaps,
  rangesInMaps,
} from '../../src/rules/cilium/packet-outcome.ts';
import { ciliumForwarding } from '../../src/shadow/cilium/forwarding.ts';
import { type Frontend, slicesByService } from '../../src/shadow/forwarding.ts';
import { readBytes } from './folder.ts';

interface CiliumFile {
  readonly mode?: string;
  readonly nodeName: string;
  readonly objects: string;
  readonly config?: unknown;
  readonly nodeAddresses?: readonly string[];
  readonly nodeAddressesNoNodePort?: readonly string[];
}

const textOf = (path: string): string | null => readBytes(path)?.toString() ?? null;

/** The configuration of a folder, or of the recording that a fault comes from. */
function configOf(path: string): { readonly file: CiliumFile; readonly at: string } | null {
  const own = textOf(join(path, 'proxy-config.yaml'));
  if (own !== null) return { file: parse(own) as CiliumFile, at: path };
  const fault = textOf(join(path, 'fault.json'));
  if (fault === null) return null;
  return configOf(resolve(path, (JSON.parse(fault) as { base: string }).base));
}

type List = readonly unknown[] | { readonly items: readonly unknown[] };
type Lists = Readonly<Partial<Record<Resource, List>>>;

function objectsOf<R extends Resource>(lists: Lists, resource: R): ObjectOf[R][] {
  const list: List = lists[resource] ?? [];
  const items: readonly unknown[] = 'items' in list ? list.items : list;
  return items.map((raw) => {
    const read = project(resource, raw, 0);
    if (read.problem === undefined) return read.object;
    throw new Error(`${read.problem.object}: ${read.problem.message}`);
  });
}

/** The text of the maps in a folder. */
export const ciliumMaps = (path: string): string => textOf(join(path, 'cilium-maps.json')) ?? '';

/** The maps of a folder, or others, and what they must do. */
export function ciliumInput(path: string, maps: string = ciliumMaps(path)): NodeInput {
  const config = configOf(path);
  if (config === null) throw new Error(`${path}: no proxy-config.yaml`);
  const { file, at } = config;
  const lists = JSON.parse(textOf(resolve(at, file.objects)) ?? '{}') as Lists;
  const node = objectsOf(lists, 'nodes').find(({ name }) => name === file.nodeName);
  if (node === undefined) throw new Error(`${path}: no Node ${file.nodeName} in its objects`);
  const { nodeAddresses = [], nodeAddressesNoNodePort = [] } = file;
  const cilium = readCiliumConfig(file.config ?? {}, nodeAddresses);
  const localAddresses = [...nodeAddresses, ...nodeAddressesNoNodePort];
  const forwarding = ciliumForwarding(
    objectsOf(lists, 'services'),
    slicesByService(objectsOf(lists, 'endpointslices')),
    node,
    defaultProxyConfig('cilium', 0),
    cilium,
    localAddresses,
  );
  const balancer = loadBalancerOf(readBpftoolDump(maps).entries);
  const place = { isLocal: forwarding.node.isLocal, nodePortRange: cilium.nodePortRange };
  const rules = {
    frontends: frontendsInMaps(balancer),
    localAddresses,
    walk: createConnector(balancer, place),
    sourceRangesAt: ({ address, protocol, dport }: Frontend) =>
      rangesInMaps(balancer, { address, protocol, port: dport }),
    report: null,
  };
  return { forwarding, node, rules };
}

/** Keys of frontends that `cilium-maps.json` and `lb-maps.txt` show differently. */
export function differentlyRead(path: string): string[] {
  const text = textOf(join(path, 'lb-maps.txt'));
  if (text === null || textOf(join(path, 'fault.json')) !== null) return [];
  const { frontends } = loadBalancerOf(readBpftoolDump(ciliumMaps(path)).entries);
  const { frontends: others } = loadBalancerOf(readMapsDump(text).entries);
  const keys = [...new Set([...frontends.keys(), ...others.keys()])];
  return keys.filter((key) => !isDeepStrictEqual(frontends.get(key), others.get(key)));
}
