// Which packets to put to a node's rules, so that every frontend is seen from everywhere that makes
// a difference to kube-proxy: a pod of the node, a pod elsewhere, the node itself, the world
// outside, each end of each source range, and every endpoint of the node that may meet itself. A
// source address stands for its class; a rule about one address of a class is met by chance only.

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

/** Where packets come from, in one address family. */
export interface PacketSources {
  /** null: no address that a pod of the node could have is known. */
  readonly pod: string | null;
  /** A pod of another node. */
  readonly elsewhere: string | null;
  readonly outside: string;
}

/** A packet, and what it stands for. */
export interface Probe {
  readonly packet: Packet;
  /** `a pod of the node`, as people say it. */
  readonly origin: string;
}

/** Addresses for documentation, which are nobody's: RFC 5737 and RFC 3849. */
const nobodys: Readonly<Record<Family, readonly string[]>> = {
  IPv4: ['203.0.113.77', '198.51.100.77', '192.0.2.77'],
  IPv6: ['2001:db8:ffff::77', '2001:db8:5e:77::77'],
};

/** Offset of a pod that is none of those with low or round numbers, which gateways have. */
const podOffset: Readonly<Record<Family, bigint>> = { IPv4: 251n, IPv6: 0xfeedn };

export interface ProbeSender {
  readonly sources: Readonly<Record<Family, PacketSources>>;
  readonly forwarding: Forwarding;
}

/** `node` is the one whose rules are asked. */
export function probeSender(forwarding: Forwarding, node: Node): ProbeSender {
  const sources = (family: Family): PacketSources => {
    const own = rangeOf(node.podCIDRs, family);
    const all = rangeOf(forwarding.config.clusterCIDRs, family);
    const inCluster = [own, all].filter((range) => range !== null);
    const isElsewhere = (address: string): boolean =>
      !inCluster.some((range) => has(range, address));
    const outside = nobodys[family].find(isElsewhere) ?? nobodys[family][0] ?? '';
    const pod = inCluster[0] === undefined ? null : addressIn(inCluster[0], podOffset[family]);
    return { pod, elsewhere: elsewhereIn(all, own, family), outside };
  };
  return { forwarding, sources: { IPv4: sources('IPv4'), IPv6: sources('IPv6') } };
}

type Range = NonNullable<ReturnType<typeof parseCIDR>>;

const rangeOf = (texts: readonly string[], family: Family): Range | null =>
  texts.map(parseCIDR).find((range) => range?.family === family) ?? null;

function has(range: Range, address: string): boolean {
  const ip = parseIP(address);
  return ip !== null && isWithin(ip, range);
}

/** An address of the cluster that is in none of the node's own ranges; null: none. */
function elsewhereIn(all: Range | null, own: Range | null, family: Family): string | null {
  if (all === null || own === null) return null;
  const last = (1n << all.hostBits) - 1n;
  const tries = [podOffset[family], last - podOffset[family]].filter((offset) => offset > 0n);
  return tries.map((offset) => addressIn(all, offset)).find((one) => !has(own, one)) ?? null;
}

/** The packets that are put to a frontend. */
export function probesOf(sender: ProbeSender, frontend: Frontend): Probe[] {
  const { address: dst, protocol, dport, kind, port } = frontend;
  const { node, config } = sender.forwarding;
  const { pod, elsewhere, outside } = sender.sources[port.family];
  const probes: Probe[] = [];
  const put = (from: Packet['from'], src: string | null, origin: string): void => {
    if (src !== null) probes.push(probeOf(sender, { from, src, dst, protocol, dport }, origin));
  };
  put('node', node.isLocal(dst) ? dst : node.nodeIP[port.family], 'the node itself');
  // Nobody but the node itself can ask for its loopback address.
  if (dst === '127.0.0.1' || dst === '::1') return probes;
  put('pod', pod, 'a pod of the node');
  put('outside', outside, 'outside the cluster');
  put('outside', elsewhere, 'a pod of another node');
  probes.push(...rangeProbes(sender, frontend));
  if (kind === 'cluster IP') {
    for (const src of ownEndpoints(frontend)) {
      if (!node.isLocal(src)) put('pod', src, 'an endpoint that meets itself');
    }
  }
  return config.mode === 'ipvs' ? [] : probes;
}

/** Those from within the source ranges, which only the Service names, and from beside them. */
export function rangeProbes(sender: ProbeSender, frontend: Frontend): Probe[] {
  const { address: dst, protocol, dport, kind, port } = frontend;
  if (kind !== 'load balancer IP' || sender.forwarding.config.mode === 'ipvs') return [];
  const ranges = port.sourceRanges;
  const put = (text: string, origin: string): Probe => {
    const [from, src] = comesFrom(sender, text);
    return probeOf(sender, { from, src, dst, protocol, dport }, origin);
  };
  // A range that is widened takes one of its neighbours.
  const beside = new Set(ranges.flatMap(neighboursOf));
  return [
    ...ranges.flatMap((range) => [...endsOf(range)].map((text) => put(text, 'a source range'))),
    ...[...beside]
      .filter((text) => !ranges.some((range) => has(range, text)))
      .map((text) => put(text, 'beside a source range')),
  ];
}

function neighboursOf(range: Range): string[] {
  const size = 1n << range.hostBits;
  const first = range.network << range.hostBits;
  const end = 1n << (range.family === 'IPv4' ? 32n : 128n);
  return [
    ...(first > 0n ? [addressIn(range, -1n)] : []),
    ...(first + size < end ? [addressIn(range, size)] : []),
  ];
}

/** A packet that comes in by the interface that its sender is told by. */
function probeOf(sender: ProbeSender, packet: Packet, origin: string): Probe {
  const iif = interfaceOf(sender, packet.from);
  return { packet: iif === null ? packet : { ...packet, iif }, origin };
}

const endsOf = (range: Range): ReadonlySet<string> =>
  new Set([addressIn(range, 0n), addressIn(range, (1n << range.hostBits) - 1n)]);

/** From where a packet with this source comes. */
function comesFrom({ forwarding, sources }: ProbeSender, src: string): [Packet['from'], string] {
  if (forwarding.node.isLocal(src)) return ['node', src];
  const family = src.includes(':') ? 'IPv6' : 'IPv4';
  return [src === sources[family].pod ? 'pod' : 'outside', src];
}

function ownEndpoints({ port }: Frontend): ReadonlySet<string> {
  const sets = (port.usable ?? []).flatMap(({ cluster, local }) => [...cluster, ...local]);
  return new Set(sets.filter(({ local }) => local).map(({ ip }) => ip));
}

/** Where kube-proxy tells pods by interfaces the packet must have one; null: as the node says. */
function interfaceOf({ forwarding }: ProbeSender, from: Packet['from']): string | null {
  const { detectLocalMode, bridgeInterface, interfaceNamePrefix } = forwarding.config;
  if (from === 'node') return null;
  if (detectLocalMode === 'BridgeInterface') return from === 'pod' ? bridgeInterface : 'uplink';
  if (detectLocalMode !== 'InterfaceNamePrefix') return null;
  return from === 'pod' ? `${interfaceNamePrefix}0` : 'uplink';
}

/** A port of a cluster IP that no Service has there: a packet to it must not get through. */
export function strayProbes(sender: ProbeSender, frontend: Frontend): Probe[] {
  const stray = [9, 7, 13].find(
    (dport) => sender.forwarding.expect(packetTo(frontend, dport)).frontend === null,
  );
  if (stray === undefined) return [];
  return probesOf(sender, { ...frontend, protocol: 'tcp', dport: stray, kind: 'external IP' });
}

const packetTo = ({ address: dst, port }: Frontend, dport: number): Packet => ({
  from: 'outside',
  src: nobodys[port.family][0] ?? '',
  dst,
  protocol: 'tcp',
  dport,
});

// How much could have been found on a node: what is wrong with most of what could show it is wrong
// with the node, and not with its Services one by one (rollup.ts).

/** Names of Service ports by group. */
type Counted = Map<string, Set<string>>;

export const proxiedPortKey = ({ name, protocol, family }: ProxiedPort): string =>
  `${name} ${protocol} ${family}`;

/** Counts a frontend with those that could show what may differ from these fates. */
export function addToCoverage(
  asked: Counted,
  fates: readonly ExpectedOutcome[],
  frontend: Frontend,
): void {
  const { port, kind } = frontend;
  const name = proxiedPortKey(port);
  const add = (code: Code): void => {
    const key = coverageGroup(code, kind, port.family);
    const known = asked.get(key);
    if (known === undefined) asked.set(key, new Set([name]));
    else known.add(name);
  };
  for (const fate of fates) {
    if (fate.kind === 'pass') continue;
    if (fate.kind !== 'endpoints') {
      add('node-reject-missing');
      continue;
    }
    const own: readonly Code[] = [
      'node-frontend-missing',
      'node-frontend-blocked',
      'node-endpoint-missing',
      'node-endpoint-unexpected',
      'node-policy-different',
      'node-share-different',
      'node-foreign-rule',
      'node-endpoint-blocked',
    ];
    for (const code of own) add(code);
    const marks = [...fate.endpoints.values()];
    if (marks.includes(true)) add('node-masquerade-missing');
    if (marks.includes(false)) add('node-masquerade-unexpected');
    if (fate.affinitySeconds !== null) add('node-affinity-different');
  }
}

/** Counts what is as it must be with those that were asked for. */
export function addServedToCoverage(
  asked: Counted,
  forwarding: Forwarding,
  frontend: Frontend,
  probes: readonly Probe[],
): void {
  for (const { packet } of probes)
    addToCoverage(asked, forwarding.expect(packet).outcomes, frontend);
}

/** All that a node may be asked for. */
export function fullCoverage(
  forwarding: Forwarding,
  node: Parameters<typeof probeSender>[1],
): Coverage {
  const asked: Counted = new Map();
  const sender = probeSender(forwarding, node);
  for (const frontend of forwarding.frontends) {
    addServedToCoverage(asked, forwarding, frontend, probesOf(sender, frontend));
  }
  return asked;
}

/** How much the rules translate, by address family. */
export function countTranslated(claims: readonly RuleFrontend[]): TranslationCounts {
  const of = (wanted: string): number =>
    claims.filter(({ family, translators }) => family === wanted && translators > 0).length;
  return { IPv4: of('ip'), IPv6: of('ip6') };
}
