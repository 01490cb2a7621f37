// The packets with which a node's rules are tested, and how many Service ports they cover. Every
// frontend gets packets from every source that matters to kube-proxy: the node, a pod of the node,
// a pod of another node, outside the cluster, the ends of each source range, and the node's own
// endpoints. One source address represents its class; a rule for one address of a class is missed.

import { addressIn, isWithin, parseCIDR, parseIP } from '../../model/ip.ts';
import type { Node } from '../../model/objects.ts';
import type { Packet } from '../../model/proxy-config.ts';
import type { RuleFrontend } from '../../rules/report/frontends.ts';
import type { ExpectedOutcome, Forwarding, Frontend } from '../../shadow/forwarding.ts';
import type { ProxiedPort } from '../../shadow/service-port.ts';
import type { Code } from '../finding/catalogue.ts';
import type { Coverage, TranslationCounts } from './aggregate.ts';
import { coverageGroup } from './aggregate.ts';

type Family = 'IPv4' | 'IPv6';

/** Source addresses in one address family. */
export interface PacketSources {
  /** null if no range of pods is known. */
  readonly pod: string | null;
  /** A pod of another node; null if no such range is known. */
  readonly elsewhere: string | null;
  readonly outside: string;
}

export interface Probe {
  readonly packet: Packet;
  /** The source as findings show it, such as `a pod of the node`. */
  readonly origin: string;
}

/** Addresses for documentation: RFC 5737 and RFC 3849. */
const documentation: Readonly<Record<Family, readonly string[]>> = {
  IPv4: ['203.0.113.77', '198.51.100.77', '192.0.2.77'],
  IPv6: ['2001:db8:ffff::77', '2001:db8:5e:77::77'],
};

/** Offset of a pod in its range; gateways have low or round numbers. */
const podOffset: Readonly<Record<Family, bigint>> = { IPv4: 251n, IPv6: 0xfeedn };

export interface ProbeSender {
  readonly sources: Readonly<Record<Family, PacketSources>>;
  readonly forwarding: Forwarding;
}

export function probeSender(forwarding: Forwarding, node: Node): ProbeSender {
  const sources = (family: Family): PacketSources => {
    const own = rangeOf(node.podCIDRs, family);
    const all = rangeOf(forwarding.config.clusterCIDRs, family);
    const inCluster = [own, all].filter((range) => range !== null);
    const outside =
      documentation[family].find((ip) => !inCluster.some((range) => contains(range, ip))) ??
      documentation[family][0] ??
      '';
    const pod = inCluster[0] === undefined ? null : addressIn(inCluster[0], podOffset[family]);
    return { pod, elsewhere: elsewhereIn(all, own, family), outside };
  };
  return { forwarding, sources: { IPv4: sources('IPv4'), IPv6: sources('IPv6') } };
}

type Range = NonNullable<ReturnType<typeof parseCIDR>>;

const rangeOf = (texts: readonly string[], family: Family): Range | null =>
  texts.map(parseCIDR).find((range) => range?.family === family) ?? null;

function contains(range: Range, address: string): boolean {
  const ip = parseIP(address);
  return ip !== null && isWithin(ip, range);
}

/** An address of the cluster outside the node's own range. */
function elsewhereIn(all: Range | null, range: Range | null, family: Family): string | null {
  if (all === null || range === null) return null;
  const last = (1n << all.hostBits) - 1n;
  const offsets = [podOffset[family], last - podOffset[family]].filter((offset) => offset > 0n);
  return offsets.map((offset) => addressIn(all, offset)).find((ip) => !contains(range, ip)) ?? null;
}

/** The packets for one frontend; none in ipvs mode. */
export function probesOf(sender: ProbeSender, frontend: Frontend): Probe[] {
  const { address: dst, protocol, dport, kind, port } = frontend;
  const { node, config } = sender.forwarding;
  if (config.mode === 'ipvs') return [];
  const { pod, elsewhere, outside } = sender.sources[port.family];
  const probes: Probe[] = [];
  const add = (from: Packet['from'], src: string | null, origin: string): void => {
    if (src !== null) probes.push(probeOf(sender, { from, src, dst, protocol, dport }, origin));
  };
  add('node', node.isLocal(dst) ? dst : node.nodeIP[port.family], 'the node itself');
  // Only the node itself can send to its loopback address.
  if (dst === '127.0.0.1' || dst === '::1') return probes;
  add('pod', pod, 'a pod of the node');
  add('outside', outside, 'outside the cluster');
  add('outside', elsewhere, 'a pod of another node');
  probes.push(...rangeProbes(sender, frontend));
  if (kind === 'cluster IP') {
    for (const src of localEndpoints(frontend)) {
      if (!node.isLocal(src)) add('pod', src, 'an endpoint that meets itself');
    }
  }
  return probes;
}

/** Packets from the ends of each source range, and from the addresses next to it. */
export function rangeProbes(sender: ProbeSender, frontend: Frontend): Probe[] {
  const { address: dst, protocol, dport, kind, port } = frontend;
  if (kind !== 'load balancer IP' || sender.forwarding.config.mode === 'ipvs') return [];
  const ranges = port.sourceRanges;
  const probe = (text: string, origin: string): Probe => {
    const [from, src] = senderWith(sender, text);
    return probeOf(sender, { from, src, dst, protocol, dport }, origin);
  };
  // A rule with a wider range accepts one of its neighbors.
  const neighbors = new Set(ranges.flatMap(neighborsOf));
  return [
    ...ranges.flatMap((range) => [...endsOf(range)].map((text) => probe(text, 'a source range'))),
    ...[...neighbors]
      .filter((text) => !ranges.some((range) => contains(range, text)))
      .map((text) => probe(text, 'beside a source range')),
  ];
}

function neighborsOf(range: Range): string[] {
  const size = 1n << range.hostBits;
  const first = range.network << range.hostBits;
  const end = 1n << (range.family === 'IPv4' ? 32n : 128n);
  return [
    ...(first > 0n ? [addressIn(range, -1n)] : []),
    ...(first + size < end ? [addressIn(range, size)] : []),
  ];
}

const endsOf = (range: Range): ReadonlySet<string> =>
  new Set([addressIn(range, 0n), addressIn(range, (1n << range.hostBits) - 1n)]);

/** Adds the interface that the packet must come in by. */
function probeOf(sender: ProbeSender, packet: Packet, origin: string): Probe {
  const iif = interfaceOf(sender, packet.from);
  return { packet: iif === null ? packet : { ...packet, iif }, origin };
}

/** Where a packet with this source comes from. */
function senderWith({ forwarding, sources }: ProbeSender, src: string): [Packet['from'], string] {
  if (forwarding.node.isLocal(src)) return ['node', src];
  const family = src.includes(':') ? 'IPv6' : 'IPv4';
  return [src === sources[family].pod ? 'pod' : 'outside', src];
}

function localEndpoints({ port }: Frontend): ReadonlySet<string> {
  const all = (port.usable ?? []).flatMap(({ cluster, local }) => [...cluster, ...local]);
  return new Set(all.filter(({ local }) => local).map(({ ip }) => ip));
}

/** null if kube-proxy does not detect pods by interface. */
function interfaceOf({ forwarding }: ProbeSender, from: Packet['from']): string | null {
  const { detectLocalMode, bridgeInterface, interfaceNamePrefix } = forwarding.config;
  if (from === 'node') return null;
  if (detectLocalMode === 'BridgeInterface') return from === 'pod' ? bridgeInterface : 'uplink';
  if (detectLocalMode !== 'InterfaceNamePrefix') return null;
  return from === 'pod' ? `${interfaceNamePrefix}0` : 'uplink';
}

/** Packets to a port of a cluster IP that no Service has there; they must not pass. */
export function strayProbes(sender: ProbeSender, frontend: Frontend): Probe[] {
  const { address: dst, port } = frontend;
  const src = documentation[port.family][0] ?? '';
  const isFree = (dport: number): boolean =>
    sender.forwarding.expect({ from: 'outside', src, dst, protocol: 'tcp', dport }).frontend ===
    null;
  const dport = [9, 7, 13].find(isFree);
  if (dport === undefined) return [];
  return probesOf(sender, { ...frontend, protocol: 'tcp', dport, kind: 'external IP' });
}

/** Keys of Service ports by coverage group. */
export type CoveredPorts = Map<string, Set<string>>;

export const proxiedPortKey = ({ name, protocol, family }: ProxiedPort): string =>
  `${name} ${protocol} ${family}`;

const endpointCodes: readonly Code[] = [
  'node-frontend-missing',
  'node-frontend-blocked',
  'node-endpoint-missing',
  'node-endpoint-unexpected',
  'node-policy-different',
  'node-share-different',
  'node-foreign-rule',
  'node-endpoint-blocked',
];

/** Adds a frontend to the groups of differences that a packet with these outcomes can show. */
export function addToCoverage(
  covered: CoveredPorts,
  outcomes: readonly ExpectedOutcome[],
  { port, kind }: Frontend,
): void {
  const key = proxiedPortKey(port);
  const add = (code: Code): void => {
    const group = coverageGroup(code, kind, port.family);
    const ports = covered.get(group);
    if (ports === undefined) covered.set(group, new Set([key]));
    else ports.add(key);
  };
  for (const outcome of outcomes) {
    if (outcome.kind === 'pass') continue;
    if (outcome.kind !== 'endpoints') {
      add('node-reject-missing');
      continue;
    }
    endpointCodes.forEach(add);
    const masqueraded = [...outcome.endpoints.values()];
    if (masqueraded.includes(true)) add('node-masquerade-missing');
    if (masqueraded.includes(false)) add('node-masquerade-unexpected');
    if (outcome.affinitySeconds !== null) add('node-affinity-different');
  }
}

/** The coverage of a node whose frontends are all tested. */
export function fullCoverage(forwarding: Forwarding, node: Node): Coverage {
  const covered: CoveredPorts = new Map();
  const sender = probeSender(forwarding, node);
  for (const frontend of forwarding.frontends) {
    for (const { packet } of probesOf(sender, frontend)) {
      addToCoverage(covered, forwarding.expect(packet).outcomes, frontend);
    }
  }
  return countPorts(covered);
}

export const countPorts = (covered: CoveredPorts): Coverage =>
  new Map([...covered].map(([group, { size }]) => [group, size]));

/** How many frontends the rules translate, by address family. */
export function countTranslated(frontends: readonly RuleFrontend[]): TranslationCounts {
  const count = (wanted: string): number =>
    frontends.filter(({ family, translators }) => family === wanted && translators > 0).length;
  return { IPv4: count('ip'), IPv6: count('ip6') };
}
