// Reads folders of the nodes form: recordings (proxy-config.yaml) and faults (fault.json, whose
// `base` is a recording), with their dumps, packets and objects, packed or not.

import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { parse } from 'yaml';

import { formatAddress, parseNetwork } from '../../src/rules/address.ts';
import { parseIptablesSave } from '../../src/rules/parse/iptables-save.ts';
import { parseNft } from '../../src/rules/parse/nft-ruleset.ts';
import type { RuleSet } from '../../src/rules/ruleset.ts';
import { mergeRuleSets } from '../../src/rules/ruleset.ts';
import type { NodeContext } from '../../src/rules/walk/walk.ts';

export interface PacketLine {
  readonly about: string;
  readonly packet: {
    readonly from: 'pod' | 'node' | 'outside';
    readonly src: string;
    readonly dst: string;
    readonly protocol: 'TCP' | 'UDP' | 'SCTP';
    readonly dport: number;
  };
  readonly attempts: number;
  /** The sources that took turns, when `src` says "varied". */
  readonly srcs?: readonly string[];
  readonly outcomes: string | Readonly<Record<string, Seen>>;
  readonly passMasqueraded?: boolean;
  readonly inconclusive?: readonly string[];
}

export interface Seen {
  readonly count: number;
  /** some: most changed; a port that is drawn can be the packet's own. */
  readonly masqueraded?: boolean | 'some';
}

interface ProxyConfig {
  readonly nodeName: string;
  readonly objects?: string;
  readonly localAddresses?: readonly string[];
}

export interface Folder {
  readonly path: string;
  readonly isFault: boolean;
  /** All rules on the node, of both backends. */
  readonly ruleset: RuleSet;
  readonly node: NodeContext;
  readonly packets: readonly PacketLine[];
  /** Holds rules of others than kube-proxy. */
  readonly isForeign: boolean;
  /** A second backend has rules, and the dumps do not show which backend runs first. */
  readonly hasBothBackends: boolean;
}

/** Folders at or below this path that hold a recording or a fault. */
export function foldersBelow(path: string): string[] {
  const own = ['proxy-config.yaml', 'fault.json'].some((name) => existsSync(join(path, name)));
  const below = readdirSync(path, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() || statSync(join(path, entry.name)).isDirectory())
    .map((entry) => join(path, entry.name))
    .sort();
  return [...(own ? [path] : []), ...below.flatMap((folder) => foldersBelow(folder))];
}

/** The bytes of a file, or of its packed form; null: there is neither. */
export function readBytes(path: string): Buffer | null {
  const found = [path, `${path}.gz`].find((name) => existsSync(name));
  if (found === undefined) return null;
  const bytes = readFileSync(found);
  return found.endsWith('.gz') ? gunzipSync(bytes) : bytes;
}

const readText = (path: string): string | null => readBytes(path)?.toString() ?? null;

/** Reads one folder whole. */
export function readFolder(path: string): Folder {
  const fault = readText(join(path, 'fault.json'));
  const base = fault === null ? path : resolve(path, (JSON.parse(fault) as { base: string }).base);
  const rulesets = readDumps(path);
  const others = readDumps(join(path, 'other-backend'));
  const packets = (readText(join(path, 'packets.ndjson')) ?? '').split('\n').filter(Boolean);
  return {
    path,
    isFault: fault !== null,
    ruleset: mergeRuleSets([...rulesets, ...others]),
    node: readNode(base),
    packets: packets.map((line) => JSON.parse(line) as PacketLine),
    isForeign: rulesets.some(isForeign),
    hasBothBackends: others.length > 0,
  };
}

/** The rule sets of all dumps in a folder. */
function readDumps(path: string): RuleSet[] {
  const nft = readBytes(join(path, 'nft.json'));
  const ip = readBytes(join(path, 'iptables-save.txt'));
  const ip6 = readBytes(join(path, 'ip6tables-save.txt'));
  return [
    ...(nft === null ? [] : [parseNft(nft)]),
    ...(ip === null ? [] : [parseIptablesSave(ip, 'ip')]),
    ...(ip6 === null ? [] : [parseIptablesSave(ip6, 'ip6')]),
  ];
}

interface NodeObject {
  readonly metadata: { readonly name: string };
  readonly spec?: { readonly podCIDRs?: readonly string[] };
  readonly status?: { readonly addresses?: readonly { type: string; address: string }[] };
}

/** How the recorded nodes call them; see the README. */
const interfaces = {
  outside: 'eth0',
  pod: 'veth0a1b2c3d',
  all: ['lo', 'eth0', 'veth0a1b2c3d', 'sink0'],
};

/** The node's own: what its object says, and the first two of its pods' range (sink, gateway). */
function readNode(base: string): NodeContext {
  const config = parse(readText(join(base, 'proxy-config.yaml')) ?? '{}') as ProxyConfig;
  const { localAddresses } = config;
  if (localAddresses !== undefined) return { localAddresses, interfaces };
  const text = config.objects === undefined ? null : readText(join(base, config.objects));
  const { nodes } = JSON.parse(text ?? '{"nodes": []}') as { nodes: readonly NodeObject[] };
  const own = nodes.find(({ metadata }) => metadata.name === config.nodeName);
  const addresses = own?.status?.addresses ?? [];
  const isAddress = (type: string): boolean => type === 'InternalIP' || type === 'ExternalIP';
  const ranges = (own?.spec?.podCIDRs ?? []).flatMap((cidr) => parseNetwork(cidr) ?? []);
  const ofPods = ranges.flatMap(({ low }) => [low, typeof low === 'number' ? low + 1 : low + 1n]);
  return {
    localAddresses: [
      ...addresses.filter(({ type }) => isAddress(type)).map(({ address }) => address),
      ...ofPods.map(formatAddress),
    ],
    interfaces,
  };
}

function isForeign(ruleset: RuleSet): boolean {
  return ruleset.tables.some((table) => {
    if (table.source === 'nft') return table.name !== 'kube-proxy';
    return [...table.chains.values()].some(
      ({ name, base }) => base === null && !name.startsWith('KUBE-'),
    );
  });
}
