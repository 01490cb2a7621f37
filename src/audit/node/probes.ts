// The packets with which a node's rules are tested, and how many Service ports they cover. One
// source address represents its class; a rule for one address of a class is missed.

import { getOrInsert } from '../../model/collections.ts';
import type { CIDR, IPFamily } from '../../model/ip.ts';
import { addressIn, everything, isWithinAny, parseCIDR } from '../../model/ip.ts';
import type { Node } from '../../model/objects.ts';
import type { ExpectedOutcome, Packet } from '../../model/proxy-config.ts';
import type { Steps } from '../../model/run-to-end.ts';
import type { Forwarding, Frontend } from '../../shadow/forwarding.ts';
import type { Coverage, CoveredProperty, PacketClass } from './packet-difference.ts';
import { packetClass } from './packet-difference.ts';

export interface Probe {
  readonly packet: Packet;
  readonly origin: string;
}

/** Addresses for documentation: RFC 5737 and RFC 3849. */
const documentation = {
  IPv4: ['203.0.113.77', '198.51.100.77', '192.0.2.77'],
  IPv6: ['2001:db8:ffff::77', '2001:db8:5e:77::77'],
} as const;

/** Offset of a pod in its range; gateways have low or round numbers. */
const podOffset: Readonly<Record<IPFamily, bigint>> = { IPv4: 251n, IPv6: 0xfeedn };

export type ProbeSender = ReturnType<typeof probeSender>;

/**
 * Source addresses in each address family. `sourceRangesAt` gives the source ranges that the node
 * has for a frontend; packets test them like those of the Service.
 */
export function probeSender(
  forwarding: Forwarding,
  node: Node,
  sourceRangesAt: (frontend: Frontend) => readonly CIDR[] = () => [],
) {
  const sourcesIn = (family: IPFamily) => {
    const own = rangeOf(node.podCIDRs, family);
    const all = rangeOf(forwarding.config.clusterCIDRs, family);
    const inCluster = [own, all].filter((range) => range !== null);
    const free = documentation[family].find((ip) => !isWithinAny(ip, inCluster));
    return {
      /** null if no range of pods is known. */
      pod: inCluster[0] === undefined ? null : addressIn(inCluster[0], podOffset[family]),
      /** A pod of another node; null if no such range is known. */
      elsewhere: elsewhereIn(all, own, family),
      outside: free ?? documentation[family][0],
    };
  };
  const sources = { IPv4: sourcesIn('IPv4'), IPv6: sourcesIn('IPv6') };
  return { forwarding, sources, sourceRangesAt };
}

const rangeOf = (texts: readonly string[], family: IPFamily): CIDR | null =>
  texts.map(parseCIDR).find((range) => range?.family === family) ?? null;

const sizeOf = ({ low, high }: CIDR): bigint => BigInt(high) - BigInt(low) + 1n;

function elsewhereIn(cluster: CIDR | null, range: CIDR | null, family: IPFamily): string | null {
  if (cluster === null || range === null) return null;
  const offsets = [podOffset[family], sizeOf(cluster) - 1n - podOffset[family]];
  const ips = offsets.filter((offset) => offset > 0n).map((offset) => addressIn(cluster, offset));
  return ips.find((ip) => !isWithinAny(ip, [range])) ?? null;
}

/** The packets for one frontend; none in ipvs mode. */
export function probesOf(sender: ProbeSender, frontend: Frontend): Probe[] {
  const { address: dst, protocol, dport, kind, port } = frontend;
  const { node, config } = sender.forwarding;
  if (config.mode === 'ipvs') return [];
  const { pod, elsewhere, outside } = sender.sources[port.family];
  const probes: Probe[] = [];
  const add = (from: Packet['from'], src: string | null, origin: string): void => {
    if (src === null) return;
    probes.push(probeOf(sender, { from, src, dst, protocol, dport }, origin));
  };
  add('node', node.isLocal(dst) ? dst : node.nodeIP[port.family], 'the node itself');
  // Only the node itself can send to its loopback address.
  if (dst === '127.0.0.1' || dst === '::1') return probes;
  add('pod', pod, 'a pod of the node');
  add('outside', outside, 'outside the cluster');
  add('outside', elsewhere, 'a pod of another node');
  probes.push(...rangeProbes(sender, frontend));
  if (kind === 'cluster IP') {
    const all = (port.usable() ?? []).flatMap(({ cluster, local }) => [...cluster, ...local]);
    for (const src of new Set(all.filter(({ local }) => local).map(({ ip }) => ip))) {
      if (!node.isLocal(src)) add('pod', src, 'an endpoint that connects to itself');
    }
  }
  return probes;
}

/** Packets from the ends of each source range, and from the addresses next to it. */
export function rangeProbes(sender: ProbeSender, frontend: Frontend): Probe[] {
  const { forwarding, sources } = sender;
  const { mode } = forwarding.config;
  const { address: dst, protocol, dport, kind, port } = frontend;
  if (mode === 'ipvs' || (mode !== 'cilium' && kind !== 'load balancer IP')) return [];
  const ranges = [...port.sourceRanges, ...sender.sourceRangesAt(frontend)];
  const ends = ranges.flatMap((it) => [addressIn(it, 0n), addressIn(it, sizeOf(it) - 1n)]);
  // A rule with a wider range accepts one of its neighbors.
  const neighbors = ranges.flatMap(neighborsOf).filter((src) => !isWithinAny(src, ranges));
  const probe = (src: string, origin: string): Probe => {
    const isPod = src === sources[port.family].pod;
    const from = forwarding.node.isLocal(src) ? 'node' : isPod ? 'pod' : 'outside';
    return probeOf(sender, { from, src, dst, protocol, dport }, origin);
  };
  return [
    ...[...new Set(ends)].map((src) => probe(src, 'a source range')),
    ...[...new Set(neighbors)].map((src) => probe(src, 'beside a source range')),
  ];
}

function neighborsOf(range: CIDR): string[] {
  const { low, high } = everything[range.family];
  return [
    ...(range.low > low ? [addressIn(range, -1n)] : []),
    ...(range.high < high ? [addressIn(range, sizeOf(range))] : []),
  ];
}

function probeOf({ forwarding }: ProbeSender, packet: Packet, origin: string): Probe {
  const { detectLocalMode, bridgeInterface, interfaceNamePrefix } = forwarding.config;
  const isByBridge = detectLocalMode === 'BridgeInterface';
  const isByInterface = isByBridge || detectLocalMode === 'InterfaceNamePrefix';
  if (packet.from === 'node' || !isByInterface) return { packet, origin };
  const ofPods = isByBridge ? bridgeInterface : `${interfaceNamePrefix}*`;
  return { packet: { ...packet, iif: packet.from === 'pod' ? ofPods : `!${ofPods}` }, origin };
}

/** Packets to a port of a cluster IP that no Service has there; only nftables mode rejects them. */
export function strayProbes(sender: ProbeSender, frontend: Frontend): Probe[] {
  const { address: dst, port, kind } = frontend;
  const { config, expect } = sender.forwarding;
  if (config.mode !== 'nftables' || kind !== 'cluster IP') return [];
  const src = documentation[port.family][0];
  const dport = [9, 7, 13].find(
    (dport) => expect({ from: 'outside', src, dst, protocol: 'tcp', dport }).frontend === null,
  );
  if (dport === undefined) return [];
  return probesOf(sender, { ...frontend, protocol: 'tcp', dport, kind: 'external IP' });
}

export function* coverageOf(sender: ProbeSender): Steps<Coverage> {
  const { frontends, expect } = sender.forwarding;
  const covered = new Map<PacketClass, Set<string>>();
  for (const frontend of frontends) {
    const { port, kind } = frontend;
    const add = (property: CoveredProperty, origin: string): void => {
      const name = packetClass({ property, kind, family: port.family, origin });
      getOrInsert(covered, name, () => new Set()).add(port.key);
    };
    for (const { packet, origin } of probesOf(sender, frontend)) {
      for (const property of expect(packet).outcomes.flatMap(shownBy)) add(property, origin);
    }
    for (const { origin } of strayProbes(sender, frontend)) add('stray', origin);
    yield;
  }
  return new Map([...covered].map(([name, { size }]) => [name, size]));
}

function shownBy(outcome: ExpectedOutcome): CoveredProperty[] {
  if (outcome.kind === 'pass') return [];
  if (outcome.kind !== 'endpoints') return [outcome.kind === 'reject' ? 'rejected' : 'dropped'];
  const { endpoints, affinitySeconds } = outcome;
  const shown: CoveredProperty[] = ['endpoints'];
  for (const it of new Set(endpoints.values())) shown.push(it ? 'masqueraded' : 'not masqueraded');
  if (affinitySeconds !== null) shown.push('affinity');
  return shown;
}
