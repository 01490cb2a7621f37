// What comes of a packet on a node where kube-proxy does what it must: the rules that
// pkg/proxy/iptables/proxier.go and pkg/proxy/nftables/proxier.go of kubernetes@v1.36.3 write, read
// as a function from a packet to its fate. Not rules are expected but fates, since these are what
// both modes, all releases and other implementations have in common. The modes differ in manners:
//
//   node ports     iptables: every local address, 127.0.0.0/8 too; nftables: the primary address
//   wrong ports    of a cluster IP: iptables lets them pass, nftables rejects them
//   no endpoints   of an external or load balancer IP, asked for by the node itself: iptables has
//                  no rule in OUTPUT, so the packet leaves the node; nftables rejects it
//   source ranges  forbidden sources are dropped before all else in nftables mode; in iptables
//                  mode only while there are endpoints
//   hairpin        an endpoint that reaches itself is masqueraded; in nftables mode since 1.36 only
//                  where it is the node's own
//
// Left out: unallocated addresses of the service range, which nftables mode drops but which no
// object names here, so that both fates are right; IPVS; which of two Services that claim one
// address and port is met first (each alone is right).

import { isWithin, parseIP } from '../model/ip.ts';
import type { EndpointSlice, Key, Node, Service } from '../model/objects.ts';
import { label } from '../model/objects.ts';
import type { Packet, Protocol, ProxyConfig } from '../model/proxy-config.ts';
import type { ProxyNode } from './proxy-node.ts';
import { proxyNode } from './proxy-node.ts';
import type { ProxiedPort, ProxyRules } from './service-port.ts';
import { proxiedPorts, proxyRules } from './service-port.ts';
import type { ProxyEndpoint, UsableEndpoints } from './topology.ts';

export type FrontendKind =
  'cluster IP' | 'external IP' | 'load balancer IP' | 'node port' | 'health check node port';

/** Whether the frontend is at the node's own addresses. */
export const isAtNode = (kind: FrontendKind): boolean =>
  kind === 'node port' || kind === 'health check node port';

/** An address and port at which a node answers for a Service port. */
export interface Frontend {
  readonly port: ProxiedPort;
  readonly kind: FrontendKind;
  /** In canonical form. */
  readonly address: string;
  readonly protocol: Protocol;
  readonly dport: number;
}

/** What comes of a packet. `pass` is to go on untranslated. */
export type ExpectedOutcome =
  | { readonly kind: 'reject' | 'drop' | 'pass' }
  | {
      readonly kind: 'endpoints';
      /** By `ip:port`, each as probable as the other: whether its packets are masqueraded. */
      readonly endpoints: ReadonlyMap<string, boolean>;
      /** The same source comes to the same endpoint for so long; null: each connection anew. */
      readonly affinitySeconds: number | null;
    };

export interface PacketExpectation {
  /** Any of them is right; empty: it cannot be told. */
  readonly outcomes: readonly ExpectedOutcome[];
  /** The frontend that decided; null: none, the packet is not a Service's. */
  readonly frontend: Frontend | null;
}

export interface Forwarding {
  readonly config: ProxyConfig;
  readonly node: ProxyNode;
  readonly ports: readonly ProxiedPort[];
  /** Every frontend that must be served; node ports at the addresses that the Node tells. */
  readonly frontends: readonly Frontend[];
  readonly expect: (packet: Packet) => PacketExpectation;
}

/** Slices by the Service they name: kube-proxy does not ask who wrote them. */
export function slicesByService(
  slices: Iterable<EndpointSlice>,
): ReadonlyMap<Key, readonly EndpointSlice[]> {
  const found = new Map<Key, EndpointSlice[]>();
  for (const slice of slices) {
    const service = slice.labels[label.serviceName] ?? '';
    if (service === '') continue;
    const key = `${slice.namespace}/${service}`;
    const known = found.get(key);
    if (known === undefined) found.set(key, [slice]);
    else known.push(slice);
  }
  return found;
}

/** What kube-proxy with this configuration must do on the node, from all Services and slices. */
export function expectedForwarding(
  services: Iterable<Service>,
  slices: ReadonlyMap<Key, readonly EndpointSlice[]>,
  node: Node,
  config: ProxyConfig,
  localAddresses?: readonly string[],
): Forwarding {
  const rules = proxyRules(config);
  const place = { node: node.name, zone: node.zone };
  const ports: ProxiedPort[] = [];
  for (const service of services) {
    ports.push(...proxiedPorts(service, slices.get(service.key) ?? [], place, rules));
  }
  const own = proxyNode(node, config, localAddresses);
  const world: World = { config, rules, own, ...claimsOf(ports) };
  const frontends = [...world.byAddress.values()].flat();
  for (const port of ports) frontends.push(...atNode(port, world));
  return { config, node: own, ports, frontends, expect: (packet) => expectation(world, packet) };
}

interface World {
  readonly config: ProxyConfig;
  readonly rules: ProxyRules;
  readonly own: ProxyNode;
  /** Frontends at addresses of their own, by address, protocol and port. */
  readonly byAddress: ReadonlyMap<string, readonly Frontend[]>;
  /** By family, protocol and node port. */
  readonly byNodePort: ReadonlyMap<string, readonly ProxiedPort[]>;
  readonly clusterIPs: ReadonlySet<string>;
}

function claimsOf(
  ports: readonly ProxiedPort[],
): Pick<World, 'byAddress' | 'byNodePort' | 'clusterIPs'> {
  const byAddress = new Map<string, Frontend[]>();
  const byNodePort = new Map<string, ProxiedPort[]>();
  for (const port of ports) {
    for (const frontend of atAddresses(port)) {
      push(byAddress, `${frontend.address} ${port.protocol} ${port.port}`, frontend);
    }
    if (port.nodePort !== 0) push(byNodePort, nodePortKey(port, port.nodePort), port);
  }
  return { byAddress, byNodePort, clusterIPs: new Set(ports.map(({ clusterIP }) => clusterIP)) };
}

function push<T>(map: Map<string, T[]>, key: string, value: T): void {
  const known = map.get(key);
  if (known === undefined) map.set(key, [value]);
  else known.push(value);
}

const nodePortKey = (
  { family, protocol }: Pick<ProxiedPort, 'family' | 'protocol'>,
  nodePort: number,
): string => `${family} ${protocol} ${nodePort}`;

function atAddresses(port: ProxiedPort): Frontend[] {
  const { protocol, port: dport } = port;
  const of = (kind: FrontendKind, addresses: readonly string[]): Frontend[] =>
    addresses.map((address) => ({ port, kind, address, protocol, dport }));
  return [
    ...of('cluster IP', [port.clusterIP]),
    ...of('external IP', port.externalIPs),
    ...of('load balancer IP', port.loadBalancerIPs),
  ];
}

/** Frontends at the node's own addresses. nftables mode writes nothing for health checks. */
function atNode(port: ProxiedPort, { own, config }: World): Frontend[] {
  const loopback = port.family === 'IPv4' ? '127.0.0.1' : '::1';
  const addresses = [...own.addresses, loopback].filter(
    (address) => address.includes(':') === (port.family === 'IPv6') && own.servesNodePorts(address),
  );
  const of = (kind: FrontendKind, protocol: Protocol, dport: number): Frontend[] =>
    dport === 0 ? [] : addresses.map((address) => ({ port, kind, address, protocol, dport }));
  const checks = config.mode === 'iptables' ? port.healthCheckNodePort : 0;
  return [
    ...of('node port', port.protocol, port.nodePort),
    ...of('health check node port', 'tcp', checks),
  ];
}

function expectation(world: World, packet: Packet): PacketExpectation {
  const { dst, protocol, dport } = packet;
  const frontends = world.byAddress.get(`${dst} ${protocol} ${dport}`) ?? nodePorts(world, packet);
  const [frontend] = frontends;
  if (frontend === undefined) return { outcomes: unclaimed(world, packet), frontend: null };
  const fates: ExpectedOutcome[] = [];
  for (const one of frontends) {
    if (one.port.usable === null) return { outcomes: [], frontend };
    for (const usable of one.port.usable) fates.push(fateOf(world, packet, one, usable));
  }
  // Nearly always there is one, which is not worth a text of all its endpoints.
  if (fates.length < 2) return { outcomes: fates, frontend };
  return { outcomes: [...new Map(fates.map((fate) => [keyOf(fate), fate])).values()], frontend };
}

function keyOf(fate: ExpectedOutcome): string {
  if (fate.kind !== 'endpoints') return fate.kind;
  return `${String(fate.affinitySeconds)} ${JSON.stringify([...fate.endpoints].sort())}`;
}

function nodePorts({ own, byNodePort }: World, packet: Packet): readonly Frontend[] {
  const { dst: address, protocol, dport } = packet;
  if (!own.isLocal(address)) return [];
  const family = address.includes(':') ? 'IPv6' : 'IPv4';
  const ports = byNodePort.get(nodePortKey({ family, protocol }, dport)) ?? [];
  return ports.map((port) => ({ port, kind: 'node port', address, protocol, dport }));
}

const pass: ExpectedOutcome = { kind: 'pass' };
const reject: ExpectedOutcome = { kind: 'reject' };
const drop: ExpectedOutcome = { kind: 'drop' };

/** The fates of a packet that no Service claims. */
function unclaimed(
  { config, clusterIPs, own }: World,
  { dst }: Packet,
): readonly ExpectedOutcome[] {
  if (config.mode !== 'nftables' || own.isLocal(dst)) return [pass];
  return clusterIPs.has(dst) ? [reject] : [pass, drop];
}

/** The fate at one frontend: in prerouting or output, and where nothing is translated, after it. */
function fateOf(
  world: World,
  packet: Packet,
  frontend: Frontend,
  usable: UsableEndpoints,
): ExpectedOutcome {
  const { port, kind } = frontend;
  if (kind === 'load balancer IP' && !isAllowed(world, packet, port)) {
    if (world.config.mode === 'nftables' || usable.any) return drop;
  }
  if (kind === 'node port' && !world.own.servesNodePorts(packet.dst)) {
    return world.config.mode === 'nftables' ? pass : untranslated(world, packet, frontend, usable);
  }
  const chosen = kind === 'cluster IP' ? internal(world, packet, port, usable) : null;
  const { endpoints, marked } = chosen ?? external(world, packet, port, usable);
  if (endpoints.length === 0) return untranslated(world, packet, frontend, usable);
  const { affinitySeconds } = port;
  const masqueraded = (one: ProxyEndpoint): boolean => isMasqueraded(world, packet, one, marked);
  return {
    kind: 'endpoints',
    endpoints: new Map(endpoints.map((one) => [one.text, masqueraded(one)])),
    affinitySeconds,
  };
}

interface Chosen {
  readonly endpoints: readonly ProxyEndpoint[];
  /** kube-proxy marks the packet for masquerading, whatever the endpoint. */
  readonly marked: boolean;
}

function internal(
  { config, own }: World,
  packet: Packet,
  port: ProxiedPort,
  usable: UsableEndpoints,
): Chosen {
  const marked = config.masqueradeAll || (own.detects[port.family] && !own.isFromPod(packet));
  return { endpoints: port.internalLocal ? usable.local : usable.cluster, marked };
}

/** Pods and the node itself are not subject to a Local policy: the short circuit. */
function external(
  { own }: World,
  packet: Packet,
  port: ProxiedPort,
  usable: UsableEndpoints,
): Chosen {
  if (!port.externalLocal) return { endpoints: usable.cluster, marked: true };
  if (own.isFromPod(packet)) return { endpoints: usable.cluster, marked: false };
  if (own.isLocal(packet.src)) return { endpoints: usable.cluster, marked: true };
  return { endpoints: usable.local, marked: false };
}

/** Whether the source may use the load balancer IPs. */
function isAllowed({ own }: World, { src }: Packet, port: ProxiedPort): boolean {
  const { sourceRanges, loadBalancerIPs, family } = port;
  const within = (address: string): boolean => {
    const ip = parseIP(address);
    return ip !== null && sourceRanges.some((range) => isWithin(ip, range));
  };
  if (sourceRanges.length === 0 || within(src)) return true;
  return within(own.nodeIP[family]) && loadBalancerIPs.includes(src);
}

/** What the filters do with a packet for a frontend that was not translated. */
function untranslated(
  world: World,
  packet: Packet,
  frontend: Frontend,
  usable: UsableEndpoints,
): ExpectedOutcome {
  const { port, kind } = frontend;
  const isLocal = kind === 'cluster IP' ? port.internalLocal : port.externalLocal;
  const fate = !usable.any ? reject : isLocal && usable.local.length === 0 ? drop : pass;
  if (kind === 'cluster IP' || world.config.mode === 'nftables') return fate;
  // KUBE-EXTERNAL-SERVICES is called in INPUT and FORWARD, not in OUTPUT.
  return packet.from === 'node' && !world.own.isLocal(packet.dst) ? pass : fate;
}

function isMasqueraded(
  { own, rules }: World,
  { src, from }: Packet,
  { ip, local }: ProxyEndpoint,
  marked: boolean,
): boolean {
  // What came from elsewhere and is for the node itself goes to INPUT, never to POSTROUTING.
  if (from !== 'node' && own.isLocal(ip)) return false;
  return marked || (src === ip && (local || !rules.localHairpins));
}
