// The expected outcome of a packet on a node with Cilium instead of kube-proxy, in the form of
// shadow/forwarding.ts. The desired frontends get the form of the maps, and connection.ts of
// rules/cilium connects a packet by them, as it does by the maps of the node. Reference:
// pkg/loadbalancer/writer/writer.go (which Service owns a frontend), reconciler/bpf_reconciler.go
// (flags, counts, Maglev) and reflectors/k8s.go, cilium@v1.20.2.
//
// Differences from kube-proxy, beside those of service-frontends.ts and service-backends.ts:
//
//   shared frontends  one Service owns an address and port, in random order; another that wants it
//                     has no frontends at all
//   source ranges     of load balancer and external IPs, for packets from outside
//   cluster IPs       packets from outside are dropped, except with bpf-lb-external-clusterip
//   node addresses    an ingress or external IP that is one has no frontend in the node port range
//
// Left out: wildcard entries (ADDRESS:0), which drop packets to other ports: both outcomes are
// right; the health check of a Service at its load balancer IP, which may be there; host ports;
// cluster mesh, local redirect policies and L7 balancing, which are unknown.

import { getOrInsert, remembering } from '../../model/collections.ts';
import type { CiliumConfig } from '../../model/cilium-config.ts';
import { type CIDR, familyOf, type IPFamily, joinHostPort, parseCIDR } from '../../model/ip.ts';
import { type EndpointSlice, type Key, label, type Node } from '../../model/objects.ts';
import type { Service } from '../../model/objects.ts';
import type { ExpectedOutcome, Packet, ProxyConfig } from '../../model/proxy-config.ts';
import type { Connection, EvenFrontend } from '../../rules/cilium/connection.ts';
import { connect, connectsAlike } from '../../rules/cilium/connection.ts';
import type { BalancedFrontend, LoadBalancer } from '../../rules/cilium/load-balancer.ts';
import { isUnspecified, noBackends, nowhere } from '../../rules/cilium/load-balancer.ts';
import { frontendKey } from '../../rules/cilium/map-entries.ts';
import { type Forwarding, type Frontend, outcomeKey } from '../forwarding.ts';
import { isLoopback, proxyNode } from '../proxy-node.ts';
import type { ProxiedPort } from '../service-port.ts';
import { distinct } from '../topology.ts';
import type { CiliumBackend, CiliumPlace } from './service-backends.ts';
import {
  backendSets,
  distributionOf,
  isLocal,
  matches,
  selectBackends,
} from './service-backends.ts';
import type { CiliumFrontend } from './service-frontends.ts';
import { ciliumAnnotation, ciliumFrontends, unknownAnnotation } from './service-frontends.ts';

/** A Service with the states that are right for it. */
interface CiliumService {
  readonly service: Service;
  readonly frontends: readonly CiliumFrontend[];
  readonly slices: readonly EndpointSlice[];
  /** It may lose its frontends to another Service. */
  isContested: boolean;
}

interface Variant {
  readonly backends: readonly CiliumBackend[];
  readonly place: CiliumPlace;
}

/** A frontend with the Service that owns it. */
interface Owned {
  readonly owner: CiliumService;
  readonly frontend: CiliumFrontend;
  readonly port: ProxiedPort;
}

type Context = ReturnType<typeof contextOf>;

export interface CiliumForwarding extends Forwarding {
  /**
   * Whether maps surely do with every packet to a frontend what its Service requires. A quick
   * answer: false may be wrong.
   */
  isServedBy(frontends: LoadBalancer, frontend: Frontend): boolean;
}

/** The forwarding on a node, from all Services and slices. */
export function ciliumForwarding(
  services: Iterable<Service>,
  slices: ReadonlyMap<Key, readonly EndpointSlice[]>,
  node: Node,
  config: ProxyConfig,
  cilium: CiliumConfig,
  localAddresses?: readonly string[],
): CiliumForwarding {
  const all: CiliumService[] = [];
  const place = placeOf(node, config, cilium, localAddresses);
  for (const service of services) {
    all.push(ciliumService(service, slices.get(service.key) ?? [], node, cilium, place));
  }
  // A large cluster has too many backends to keep all.
  const variantsOf = remembering((it: CiliumService) => variantsIn(it, node, cilium), 64);
  const context = contextOf(all, place, cilium, variantsOf);
  const { ports, frontends } = context;
  return {
    config,
    node: place,
    ports,
    frontends,
    expect: (packet) => expectation(context, packet),
    isServedBy: (actual, frontend) => isServedBy(context, actual, frontend),
  };
}

function placeOf(
  node: Node,
  config: ProxyConfig,
  { nodePortAddresses, nodePortRange }: CiliumConfig,
  localAddresses?: readonly string[],
) {
  const place = proxyNode(node, config, localAddresses);
  const served = new Set(nodePortAddresses);
  return {
    ...place,
    addresses: [...nodePortAddresses],
    servesNodePorts: (address: string): boolean => served.has(address) || isLoopback(address),
    nodePortRange,
  };
}

type Place = ReturnType<typeof placeOf>;

function ciliumService(
  service: Service,
  slices: readonly EndpointSlice[],
  node: Node,
  cilium: CiliumConfig,
  place: Place,
): CiliumService {
  const [low, high] = cilium.nodePortRange;
  const isKept = ({ kind, address, port }: CiliumFrontend): boolean =>
    (kind !== 'load balancer IP' && kind !== 'external IP') ||
    !(port >= low && port <= high && place.addresses.includes(address));
  const frontends = ciliumFrontends(service, node, cilium).filter(isKept);
  const seen = slices.filter(
    ({ labels }) =>
      !Object.hasOwn(labels, label.headless) &&
      (labels[label.serviceProxyName] ?? '') === cilium.serviceProxyName,
  );
  return { service, frontends, slices: seen, isContested: false };
}

/** The states that are right for a Service. None: its outcomes are not known. */
function variantsIn(
  { service, slices }: CiliumService,
  node: Node,
  { serviceTopology: known }: CiliumConfig,
): readonly Variant[] {
  const sets = unknownAnnotation(service) === null ? backendSets(slices) : null;
  const isOpen = known === null && distributionOf(service) !== null;
  const topologies = isOpen ? [false, true] : [known ?? false];
  return (sets ?? []).flatMap((backends) =>
    topologies.map((topology) => ({
      backends,
      place: { name: node.name, zone: node.zone, topology },
    })),
  );
}

function contextOf(
  services: readonly CiliumService[],
  place: Place,
  cilium: CiliumConfig,
  variantsOf: (service: CiliumService) => readonly Variant[],
) {
  /** By the key of the frontend in the external scope. */
  const owned = new Map<string, Owned[]>();
  const ports: ProxiedPort[] = [];
  const frontends: Frontend[] = [];
  /** Entries that Cilium has with `enable-health-check-loadbalancer-ip` (healthserver.go). */
  const healthChecks = new Set<string>();
  for (const owner of services) {
    for (const key of healthChecksOf(owner)) healthChecks.add(key);
    const byPort = Map.groupBy(owner.frontends, (frontend) => portKey(owner, frontend));
    for (const [key, own] of byPort) {
      const port = portOf(owner, key, own, variantsOf);
      ports.push(port);
      for (const frontend of own) {
        getOrInsert(owned, frontendKey(frontend, 0), () => []).push({ owner, frontend, port });
        frontends.push(...frontendsOf(frontend, port, place));
      }
    }
  }
  for (const owners of owned.values()) {
    if (owners.every(({ owner }) => owner === owners[0]?.owner)) continue;
    for (const { owner } of owners) owner.isContested = true;
  }
  return { owned, healthChecks, ports, frontends, place, cilium, variantsOf };
}

function healthChecksOf({ service, frontends }: CiliumService): string[] {
  const { externalTrafficPolicy, healthCheckNodePort: port } = service;
  if (externalTrafficPolicy !== 'Local' || port === 0) return [];
  return frontends.flatMap(({ kind, address }) =>
    kind === 'load balancer IP' ? frontendKey({ address, port, protocol: 'tcp' }, 0) : [],
  );
}

/** A Service port in one family, in which it has these frontends. */
function portOf(
  owner: CiliumService,
  key: string,
  frontends: readonly CiliumFrontend[],
  variantsOf: Context['variantsOf'],
): ProxiedPort {
  const { service } = owner;
  const [{ family, portName, protocol }] = frontends as [CiliumFrontend];
  const at = (kind: CiliumFrontend['kind']) => frontends.filter((it) => it.kind === kind);
  const addresses = (kind: CiliumFrontend['kind']) => at(kind).map(({ address }) => address);
  return {
    namespace: service.namespace,
    service: service.name,
    family,
    key,
    name: portText(owner, portName),
    protocol,
    clusterIP: addresses('cluster IP')[0] ?? '',
    externalIPs: addresses('external IP'),
    loadBalancerIPs: addresses('load balancer IP'),
    sourceRanges: rangesOf(service, family),
    healthCheckNodePort: 0,
    affinitySeconds: service.affinitySeconds,
    internalLocal: service.internalTrafficPolicy === 'Local',
    externalLocal: service.externalTrafficPolicy === 'Local',
    port: service.ports.find(({ name }) => name === portName)?.port ?? 0,
    nodePort: at('node port')[0]?.port ?? 0,
    // Few ports need it, and it has all endpoints.
    usable: () => usableOf(service, variantsOf(owner), frontends),
  };
}

/** As texts of findings need them; the outcomes of packets do not depend on them. */
function usableOf(
  service: Service,
  variants: readonly Variant[],
  frontends: readonly CiliumFrontend[],
) {
  const [frontend] = frontends;
  if (frontend === undefined || variants.length === 0) return null;
  return variants.map(({ backends, place }) => {
    const endpointOf = (backend: CiliumBackend) => ({
      text: backend.text,
      ip: backend.ip,
      local: isLocal(backend, place),
      ready: backend.state === 'active',
      lastResort: backend.state === 'terminating',
      terminating: backend.state === 'terminating',
      zones: backend.forZones ?? [],
      nodes: [],
    });
    const all = backends.filter((it) => matches(it, frontend)).map(endpointOf);
    const cluster = frontends
      .flatMap((it) => it.scopes.map((scope) => [it, scope] as const))
      .flatMap(([it, scope]) => selectBackends(backends, service, it, scope, place));
    const used = new Map(cluster.map((backend) => [backend.text, endpointOf(backend)]));
    const local = [...used.values()].filter((it) => it.local);
    return { cluster: [...used.values()], local, any: used.size > 0, all };
  });
}

const rangesOf = (service: Service, family: IPFamily): CIDR[] =>
  allRangesOf(service).filter((range) => range.family === family);

/** netip.ParsePrefix takes no blanks. Without a range that it takes, no source is checked. */
const allRangesOf = ({ loadBalancerSourceRanges: texts }: Service): CIDR[] =>
  texts.flatMap((text) => (text === text.trim() ? (parseCIDR(text) ?? []) : []));

/** Frontends as the audit asks for them: node ports at each address of the node. */
function frontendsOf(it: CiliumFrontend, port: ProxiedPort, place: Place): Frontend[] {
  const { kind, protocol, port: dport, family } = it;
  const loopback = family === 'IPv4' ? '127.0.0.1' : '::1';
  const own = place.addresses.filter((address) => familyOf(address) === family);
  const addresses = kind === 'node port' ? [...own, loopback] : [it.address];
  return addresses.map((address) => ({ port, kind, address, protocol, dport }));
}

const portText = ({ service }: CiliumService, portName: string): string =>
  portName === '' ? service.key : `${service.key}:${portName}`;

const portKey = (owner: CiliumService, { portName, protocol, family }: CiliumFrontend): string =>
  `${portText(owner, portName)} ${protocol} ${family}`;

function isServedBy(context: Context, frontends: LoadBalancer, frontend: Frontend): boolean {
  const { address, dport: port, protocol } = frontend;
  const key = frontendKey({ address, port, protocol }, 0);
  const actual = frontends.get(key);
  const [owned, ...others] = context.owned.get(key) ?? [];
  if (actual === undefined || owned === undefined || others.length > 0) return false;
  const { owner, frontend: own } = owned;
  const { service } = owner;
  return context.variantsOf(owner).some(({ backends, place }) => {
    const selected = selectBackends(backends, service, own, 0, place);
    return connectsAlike(balancedOf(context, service, own, selected), selected, actual);
  });
}

const pass: ExpectedOutcome = { kind: 'pass' };
const drop: ExpectedOutcome = { kind: 'drop' };

function expectation(context: Context, packet: Packet) {
  const owners = ownersOf(context, packet);
  const [first] = owners;
  const { dst: address, protocol, dport } = packet;
  // A wildcard entry may drop what comes from outside.
  const absent = packet.from === 'outside' ? [pass, drop] : [pass];
  if (first === undefined) {
    const isCheck = context.healthChecks.has(frontendKey({ address, port: dport, protocol }, 0));
    return { outcomes: isCheck ? [] : absent, frontend: null };
  }
  const { frontend: own, port } = first;
  const frontend = { port, kind: own.kind, address, protocol, dport };
  return {
    frontend,
    // Many need only the frontend.
    get outcomes() {
      return outcomesOf(context, owners, packet, absent);
    },
  };
}

/** The different outcomes that are right; none: the outcome is not known. */
function outcomesOf(
  context: Context,
  owners: readonly Owned[],
  packet: Packet,
  absent: readonly ExpectedOutcome[],
): readonly ExpectedOutcome[] {
  const outcomes: ExpectedOutcome[] = [];
  for (const { owner } of owners) {
    const variants = context.variantsOf(owner);
    if (variants.length === 0) return [];
    for (const variant of variants) {
      const outcome = outcomeOf(connectBy(context, owner, variant, packet));
      if (outcome === null) return [];
      outcomes.push(outcome);
    }
    if (owner.isContested && owners.length === 1) outcomes.push(...absent);
  }
  return distinct(outcomes, outcomeKey);
}

/** A frontend of its own has precedence over a node port at the same address. */
function ownersOf({ owned, place }: Context, packet: Packet): readonly Owned[] {
  const { dst, dport: port, protocol } = packet;
  const own = owned.get(frontendKey({ address: dst, port, protocol }, 0));
  if (own !== undefined) return own;
  const isAsked = place.addresses.includes(dst) || packet.from !== 'outside';
  if (!isAsked || !place.isLocal(dst)) return [];
  const address = familyOf(dst) === 'IPv4' ? '0.0.0.0' : '::';
  return owned.get(frontendKey({ address, port, protocol }, 0)) ?? [];
}

/** The connection by the frontends of one Service in one of its states. */
function connectBy(context: Context, owner: CiliumService, variant: Variant, packet: Packet) {
  const { place } = context;
  const { backends } = variant;
  const frontends = new Map<string, BalancedFrontend>();
  for (const it of owner.frontends) {
    const isAny = it.kind === 'node port';
    const isAsked = isAny ? it.port === packet.dport : it.address === packet.dst;
    if (!isAsked || it.port !== packet.dport || it.protocol !== packet.protocol) continue;
    for (const scope of it.scopes) {
      for (const address of isAny ? [it.address, ...place.addresses] : [it.address]) {
        if (familyOf(address) !== it.family) continue;
        const own = { ...it, address };
        const key = frontendKey(own, scope);
        if (isAny && frontends.has(key)) continue;
        const selected = selectBackends(backends, owner.service, own, scope, variant.place);
        const slots = new Map(selected.map(({ text }) => [text, 1]));
        frontends.set(key, { ...balancedOf(context, owner.service, own, selected), slots });
      }
    }
  }
  return connect(frontends, packet, place);
}

/** A frontend with these backends, without its slots: each backend has one. */
function balancedOf(
  { cilium }: Context,
  service: Service,
  frontend: CiliumFrontend,
  selected: readonly CiliumBackend[],
): EvenFrontend {
  const { kind, address, family, protocol } = frontend;
  const { externalTrafficPolicy, internalTrafficPolicy, ciliumAnnotations } = service;
  const isRoutable = !isUnspecified(address) && (kind !== 'cluster IP' || cilium.externalClusterIP);
  const isRanged = kind === 'load balancer IP' || kind === 'external IP';
  const isChecked = allRangesOf(service).length > 0;
  const policy = ciliumAnnotations[ciliumAnnotation.sourceRangesPolicy]?.toLowerCase();
  const { affinitySeconds } = service;
  return {
    kind,
    routable: isRoutable,
    twoScopes: externalTrafficPolicy !== internalTrafficPolicy && kind !== 'cluster IP',
    externalLocal: externalTrafficPolicy === 'Local',
    direct: isDirect(service, protocol, cilium),
    loopback: false,
    sources:
      isChecked && (isRanged || cilium.sourceRangeAllTypes)
        ? { ranges: rangesOf(service, family), denied: policy === 'deny' }
        : null,
    affinitySeconds,
    places: isRoutable && usesMaglev(service, cilium) ? placesOf(selected) : null,
    kept: affinitySeconds === null ? noBackends : activeIn(selected),
    reversed: true,
    unknown: null,
    hasSeveralKinds: false,
    text: joinHostPort(address, frontend.port),
  };
}

const activeIn = (backends: readonly CiliumBackend[]): ReadonlySet<string> =>
  new Set(backends.filter(({ state }) => state === 'active').map(({ text }) => text));

/** ToSVCForwardingMode: hybrid is DSR for TCP. */
function isDirect({ ciliumAnnotations }: Service, protocol: string, cilium: CiliumConfig): boolean {
  const asked = ciliumAnnotations[ciliumAnnotation.mode]?.toLowerCase();
  const isAsked = cilium.modeAnnotation && (asked === 'dsr' || asked === 'snat');
  const mode = isAsked ? asked : cilium.mode;
  return mode === 'dsr' || (mode === 'hybrid' && protocol === 'tcp');
}

function usesMaglev({ ciliumAnnotations }: Service, cilium: CiliumConfig): boolean {
  const asked = ciliumAnnotations[ciliumAnnotation.algorithm]?.toLowerCase();
  const isAsked = cilium.algorithmAnnotation && (asked === 'maglev' || asked === 'random');
  return (isAsked ? asked : cilium.algorithm) === 'maglev';
}

/** Weights give a backend more places; how many exactly depends on the size of the table. */
function placesOf(selected: readonly CiliumBackend[]): ReadonlyMap<string, number> {
  const scale = 1_000_000;
  return new Map(selected.map(({ text, weight }) => [text, (weight ?? 100) * scale]));
}

/** null: the endpoints have shares that are not equal, or the outcome is not known. */
function outcomeOf(connection: Connection): ExpectedOutcome | null {
  if (connection.kind === 'unknown') return null;
  if (connection.kind !== 'endpoints') return { kind: connection.kind };
  const { frontend, shares, masqueraded } = connection;
  const used = [...shares].filter(([text, share]) => text !== nowhere && share > 0);
  const isEven = used.every(([, share]) => Math.abs(share - 1 / used.length) < 1e-9);
  if (!isEven) return null;
  const affinitySeconds = frontend.kept.size > 0 ? frontend.affinitySeconds : null;
  const endpoints = new Map(used.map(([text]) => [text, masqueraded]));
  return { kind: 'endpoints', endpoints, affinitySeconds };
}
