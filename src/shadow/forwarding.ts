// The expected outcome of a packet on a node: the rules that pkg/proxy/iptables/proxier.go and
// pkg/proxy/nftables/proxier.go of kubernetes@v1.36.3 write, as a function. Both modes, all
// releases and other implementations have outcomes in common, but not rules. The modes differ:
//
//   node ports     iptables: every local address, also 127.0.0.0/8; nftables: the primary address
//   wrong ports    of a cluster IP: iptables passes them, nftables rejects them
//   no endpoints   of an external or load balancer IP, for packets of the node itself: iptables has
//                  no rule in OUTPUT, so the packet leaves the node; nftables rejects it
//   source ranges  nftables drops forbidden sources first; iptables only if there are endpoints
//   hairpin        an endpoint that reaches itself is masqueraded; in nftables mode since 1.36 only
//                  an endpoint of the node
//
// Left out: unallocated addresses of the service range, which nftables mode drops but no object
// names here, so both outcomes are right; IPVS; which of two Services with one address and port
// comes first (each is right).

import { familyOf, isWithinAny } from '../model/ip.ts';
import { type EndpointSlice, type Key, label, type Node, type Service } from '../model/objects.ts';
import type { ExpectedOutcome, Packet, Protocol, ProxyConfig } from '../model/proxy-config.ts';
import { runToEnd } from '../model/run-to-end.ts';
import { isLoopback, type ProxyNode, proxyNode } from './proxy-node.ts';
import { type ProxiedPort, proxiedPorts, type ProxyRules, proxyRules } from './service-port.ts';
import { distinct, type ProxyEndpoint, type UsableEndpoints } from './topology.ts';

export type FrontendKind =
  'cluster IP' | 'external IP' | 'load balancer IP' | 'node port' | 'health check node port';

/** Whether the frontend is at the node's own addresses. */
export const isAtNode = (kind: FrontendKind): boolean =>
  kind === 'node port' || kind === 'health check node port';

/** An address and port that a node serves for a Service port. */
export interface Frontend {
  readonly port: ProxiedPort;
  readonly kind: FrontendKind;
  /** In canonical form. */
  readonly address: string;
  readonly protocol: Protocol;
  readonly dport: number;
}

interface PacketExpectation {
  /** Each of them is right; empty if the outcome is not known. */
  readonly outcomes: readonly ExpectedOutcome[];
  /** The frontend of the packet; null if no Service has one there. */
  readonly frontend: Frontend | null;
}

export type Forwarding = ReturnType<typeof expectedForwarding>;

/** By the Service that they name. kube-proxy ignores who manages a slice. */
export function slicesByService(
  slices: Iterable<EndpointSlice>,
): ReadonlyMap<Key, readonly EndpointSlice[]> {
  const found = Map.groupBy(slices, ({ namespace, labels }) => {
    const service = labels[label.serviceName] ?? '';
    return service === '' ? '' : `${namespace}/${service}`;
  });
  found.delete('');
  return found;
}

/** The forwarding on a node, from all Services and slices. */
export const expectedForwarding = (...input: Parameters<typeof expectedForwardingInSteps>) =>
  runToEnd(expectedForwardingInSteps(...input));

/** Yields after each Service: thousands of Services take some 50 ms. */
export function* expectedForwardingInSteps(
  services: Iterable<Service>,
  slices: ReadonlyMap<Key, readonly EndpointSlice[]>,
  node: Node,
  config: ProxyConfig,
  localAddresses?: readonly string[],
) {
  const rules = proxyRules(config, node);
  const ports: ProxiedPort[] = [];
  for (const service of services) {
    ports.push(...proxiedPorts(service, slices.get(service.key) ?? [], rules));
    yield;
  }
  const thisNode = proxyNode(node, config, localAddresses);
  const context: Context = {
    config,
    rules,
    thisNode,
    byAddress: Map.groupBy(ports.flatMap(frontendsAtAddresses), addressKey),
    byNodePort: Map.groupBy(
      ports.filter(({ nodePort }) => nodePort !== 0),
      ({ family, protocol, nodePort }) => nodePortKey(family, protocol, nodePort),
    ),
    clusterIPs: new Set(ports.map(({ clusterIP }) => clusterIP)),
  };
  const frontends = [...context.byAddress.values()].flat();
  for (const port of ports) frontends.push(...frontendsAtNode(port, context));
  return {
    config,
    node: thisNode,
    ports,
    /** Every frontend that the node must serve; node ports at the addresses of the Node. */
    frontends,
    expect: (packet: Packet): PacketExpectation => expectation(context, packet),
  };
}

interface Context {
  readonly config: ProxyConfig;
  readonly rules: ProxyRules;
  readonly thisNode: ProxyNode;
  /** Frontends with an address of their own, by address, protocol and port. */
  readonly byAddress: ReadonlyMap<string, readonly Frontend[]>;
  /** By family, protocol and node port. */
  readonly byNodePort: ReadonlyMap<string, readonly ProxiedPort[]>;
  readonly clusterIPs: ReadonlySet<string>;
}

const addressKey = ({ address, protocol, dport }: Omit<Frontend, 'port' | 'kind'>): string =>
  `${address} ${protocol} ${dport}`;

const nodePortKey = (family: string, protocol: Protocol, nodePort: number): string =>
  `${family} ${protocol} ${nodePort}`;

function frontendsAtAddresses(port: ProxiedPort): Frontend[] {
  const { protocol, port: dport } = port;
  const at = (kind: FrontendKind, addresses: readonly string[]): Frontend[] =>
    addresses.map((address) => ({ port, kind, address, protocol, dport }));
  return [
    ...at('cluster IP', [port.clusterIP]),
    ...at('external IP', port.externalIPs),
    ...at('load balancer IP', port.loadBalancerIPs),
  ];
}

/** Frontends at the node's own addresses. nftables mode has no rules for health checks. */
function frontendsAtNode(port: ProxiedPort, { thisNode, config }: Context): Frontend[] {
  const loopback = port.family === 'IPv4' ? '127.0.0.1' : '::1';
  const addresses = [...thisNode.addresses, loopback].filter(
    (address) => familyOf(address) === port.family && thisNode.servesNodePorts(address),
  );
  const at = (kind: FrontendKind, protocol: Protocol, dport: number): Frontend[] =>
    dport === 0 ? [] : addresses.map((address) => ({ port, kind, address, protocol, dport }));
  const checks = config.mode === 'iptables' ? port.healthCheckNodePort : 0;
  return [
    ...at('node port', port.protocol, port.nodePort),
    ...at('health check node port', 'tcp', checks),
  ];
}

function expectation(context: Context, packet: Packet): PacketExpectation {
  const { dst: address, protocol, dport } = packet;
  const key = addressKey({ address, protocol, dport });
  const frontends = context.byAddress.get(key) ?? nodePortFrontends(context, packet);
  const [frontend] = frontends;
  if (frontend === undefined || isUnserved(context, frontend)) {
    return { outcomes: outcomesWithoutService(context, packet), frontend: frontend ?? null };
  }
  const outcomes: ExpectedOutcome[] = [];
  for (const possible of frontends) {
    const sets = possible.port.usable();
    if (sets === null) return { outcomes: [], frontend };
    for (const usable of sets) {
      outcomes.push(outcomeAt(context, packet, possible, usable));
    }
  }
  // Nearly always there is one outcome, which needs no text of all its endpoints.
  return { outcomes: distinct(outcomes, outcomeKey), frontend };
}

export function outcomeKey(outcome: ExpectedOutcome): string {
  if (outcome.kind !== 'endpoints') return outcome.kind;
  return `${String(outcome.affinitySeconds)} ${JSON.stringify([...outcome.endpoints].sort())}`;
}

function nodePortFrontends({ thisNode, byNodePort }: Context, packet: Packet): readonly Frontend[] {
  const { dst: address, protocol, dport } = packet;
  if (!thisNode.isLocal(address)) return [];
  const ports = byNodePort.get(nodePortKey(familyOf(address), protocol, dport)) ?? [];
  return ports.map((port) => ({ port, kind: 'node port', address, protocol, dport }));
}

const pass: ExpectedOutcome = { kind: 'pass' };
const reject: ExpectedOutcome = { kind: 'reject' };
const drop: ExpectedOutcome = { kind: 'drop' };

/** In nftables mode, the chain cluster-ips-check is called in forward and output, not in input. */
function outcomesWithoutService(context: Context, { dst, from }: Packet) {
  const { config, clusterIPs, thisNode } = context;
  if (config.mode !== 'nftables') return [pass];
  const isNodes = isLoopback(dst) || thisNode.addresses.includes(dst);
  if (isNodes || (from !== 'node' && thisNode.isLocal(dst))) return [pass];
  return clusterIPs.has(dst) ? [reject] : [pass, drop];
}

const isUnserved = ({ config, thisNode }: Context, { kind, address }: Frontend): boolean =>
  config.mode === 'nftables' && kind === 'node port' && !thisNode.servesNodePorts(address);

/** The outcome at one frontend: in prerouting or output, or later if nothing translates it. */
function outcomeAt(
  context: Context,
  packet: Packet,
  frontend: Frontend,
  usable: UsableEndpoints,
): ExpectedOutcome {
  const { thisNode, config, rules } = context;
  const { port, kind } = frontend;
  if (kind === 'load balancer IP' && !isAllowed(context, packet, port)) {
    if (config.mode === 'nftables' || usable.any) return drop;
  }
  if (kind === 'node port' && !thisNode.servesNodePorts(packet.dst)) {
    return untranslated(context, packet, frontend, usable);
  }
  const { endpoints, isMarked } = choose(context, packet, frontend, usable);
  if (endpoints.length === 0) return untranslated(context, packet, frontend, usable);
  const isMasqueraded = ({ ip, local }: ProxyEndpoint): boolean => {
    // A packet from elsewhere to the node itself goes to INPUT, never to POSTROUTING.
    if (packet.from !== 'node' && thisNode.isLocal(ip)) return false;
    return isMarked || (packet.src === ip && (local || !rules.localHairpins));
  };
  const masqueraded = endpoints.map((it) => [it.text, isMasqueraded(it)] as const);
  const { affinitySeconds } = port;
  return { kind: 'endpoints', endpoints: new Map(masqueraded), affinitySeconds };
}

/** The endpoints at a frontend, and whether kube-proxy marks the packet for masquerading. */
function choose(
  { config, thisNode, rules }: Context,
  packet: Packet,
  { kind, port }: Frontend,
  { cluster, local }: UsableEndpoints,
): { endpoints: readonly ProxyEndpoint[]; isMarked: boolean } {
  if (kind === 'cluster IP') {
    const isMarked =
      config.masqueradeAll || (thisNode.detects[port.family] && !thisNode.isFromPod(packet));
    return { endpoints: port.internalLocal ? local : cluster, isMarked };
  }
  if (!port.externalLocal) return { endpoints: cluster, isMarked: true };
  if (rules.checksNodeFirst && packet.from === 'node' && kind !== 'node port' && !local.length) {
    return { endpoints: local, isMarked: false };
  }
  // A Local policy does not apply to pods and to the node itself.
  if (thisNode.isFromPod(packet)) return { endpoints: cluster, isMarked: false };
  if (thisNode.isLocal(packet.src)) return { endpoints: cluster, isMarked: true };
  return { endpoints: local, isMarked: false };
}

function isAllowed({ thisNode }: Context, { src }: Packet, port: ProxiedPort): boolean {
  const { sourceRanges, loadBalancerIPs, family } = port;
  const within = (address: string): boolean => isWithinAny(address, sourceRanges);
  if (sourceRanges.length === 0 || within(src)) return true;
  return within(thisNode.nodeIP[family]) && loadBalancerIPs.includes(src);
}

/** What the filter chains do with a packet for a frontend that was not translated. */
function untranslated(
  { config, thisNode }: Context,
  packet: Packet,
  { port, kind }: Frontend,
  usable: UsableEndpoints,
): ExpectedOutcome {
  const isLocal = kind === 'cluster IP' ? port.internalLocal : port.externalLocal;
  const outcome = !usable.any ? reject : isLocal && usable.local.length === 0 ? drop : pass;
  if (config.mode === 'nftables') return outcome;
  const isHere = thisNode.isLocal(packet.dst);
  const isOwn = packet.from === 'node';
  // FORWARD and OUTPUT jump to KUBE-SERVICES, FORWARD and INPUT to KUBE-EXTERNAL-SERVICES.
  const isFiltered = kind === 'cluster IP' ? isOwn || !isHere : !isOwn || isHere;
  return isFiltered ? outcome : pass;
}
