// The endpoints that one kube-proxy may use for a Service port: pkg/proxy/endpointslicecache.go and
// CategorizeEndpoints of pkg/proxy/topology.go, kubernetes@v1.36.3, and the differences of older
// releases.
//
// An address may be in two slices, or twice in one, with different conditions. kube-proxy iterates
// over the slices in the random order of a Go map and keeps one entry. So there is a list of
// possible sets; nearly always it has one member.

import { getOrInsert } from '../model/collections.ts';
import { type IPFamily, joinHostPort, parseIP } from '../model/ip.ts';
import type { Endpoint, EndpointSlice, ServicePort } from '../model/objects.ts';

/** A kube-proxy, as far as its choice of endpoints depends on it. */
export interface EndpointRules {
  readonly node: string;
  readonly zone: string;
  /** Hints by node count: PreferSameTrafficDistribution. */
  readonly nodeHints: boolean;
  /** The preferred entry of a duplicate address: a running one (since 1.36) or a local one. */
  readonly prefers: 'running' | 'local';
}

export type ProxyEndpoint = Readonly<NonNullable<ReturnType<typeof proxyEndpoint>>>;

/** The endpoints of a Service port for one node. */
export type UsableEndpoints = Readonly<ReturnType<typeof categorize>>;

/** A Service port in one family; the protocol is as the API writes it, `TCP`. */
type FamilyPort = Pick<ServicePort, 'name' | 'protocol'> & { readonly family: IPFamily };

/** The limit of possible sets. */
const mostSets = 64;

/** All sets with one entry of each list; null if there are too many. */
export function possibleSets<T>(lists: readonly (readonly T[])[]): T[][] | null {
  let sets: T[][] = [[]];
  for (const list of lists) {
    if (sets.length * list.length > mostSets) return null;
    if (list.length === 1) for (const set of sets) set.push(...list);
    else sets = sets.flatMap((set) => list.map((entry) => [...set, entry]));
  }
  return sets;
}

/** Of items with the same text the last one. */
export const distinct = <T>(all: readonly T[], textOf: (item: T) => string): readonly T[] =>
  all.length < 2 ? all : [...new Map(all.map((item) => [textOf(item), item])).values()];

/** The possible sets of endpoints of a Service port, without duplicates; null if too many. */
export function endpointSets(
  slices: readonly EndpointSlice[],
  port: FamilyPort,
  rules: EndpointRules,
): readonly (readonly ProxyEndpoint[])[] | null {
  const listed = new Map<string, ProxyEndpoint[][]>();
  for (const slice of slices) {
    if (slice.addressType !== port.family) continue;
    for (const [text, entries] of endpointsIn(slice, port, rules)) {
      getOrInsert(listed, text, () => []).push(entries);
    }
  }
  return possibleSets(Array.from(listed.values(), (lists) => keptOf(lists, rules)));
}

function endpointsIn(slice: EndpointSlice, { name, protocol }: FamilyPort, rules: EndpointRules) {
  const found = new Map<string, ProxyEndpoint[]>();
  for (const { name: portName, protocol: portProtocol, port } of slice.ports) {
    if (portName !== name || portProtocol !== protocol || port === null || port === 0) continue;
    for (const endpoint of slice.endpoints) {
      const entry = proxyEndpoint(endpoint, port, rules);
      if (entry !== null) getOrInsert(found, entry.text, () => []).push(entry);
    }
  }
  return found;
}

const nowhere: readonly string[] = [];

/** null conditions mean ready, serving and not terminating, as upstream. */
function proxyEndpoint(endpoint: Endpoint, port: number, { node, nodeHints }: EndpointRules) {
  const ip = parseIP(endpoint.addresses[0] ?? '')?.text;
  if (ip === undefined) return null;
  const terminating = endpoint.terminating ?? false;
  return {
    /** `ip:port`, or `[ip]:port`. */
    text: joinHostPort(ip, port),
    ip,
    local: endpoint.node === node && node !== '',
    ready: endpoint.ready ?? true,
    /** Serving and terminating: used if no endpoint is ready. */
    lastResort: (endpoint.serving ?? true) && terminating,
    terminating,
    zones: endpoint.forZones ?? nowhere,
    nodes: nodeHints ? (endpoint.forNodes ?? nowhere) : nowhere,
  };
}

/** The entries of one address that kube-proxy may keep; `lists` has one list for each slice. */
function keptOf(lists: readonly ProxyEndpoint[][], rules: EndpointRules) {
  const [only] = lists;
  if (lists.length === 1 && only?.length === 1) return only;
  const isPreferred = (entry: ProxyEndpoint): boolean =>
    rules.prefers === 'running' ? !entry.terminating : entry.local;
  // kube-proxy keeps the last preferred entry, or else the first entry.
  const preferred = lists.flatMap((list) => list.findLast(isPreferred) ?? []);
  const kept = preferred.length > 0 ? preferred : lists.flatMap((list) => list.slice(0, 1));
  return distinct(kept, JSON.stringify);
}

/** CategorizeEndpoints; `uses` is ServicePort.UsesClusterEndpoints and UsesLocalEndpoints. */
export function categorize(
  endpoints: readonly ProxyEndpoint[],
  uses: { readonly cluster: boolean; readonly local: boolean },
  rules: EndpointRules,
) {
  const ready = endpoints.filter((entry) => entry.ready);
  const lastResorts = endpoints.filter((entry) => entry.lastResort);
  const orElse = (list: readonly ProxyEndpoint[], others: readonly ProxyEndpoint[]) =>
    list.length > 0 ? list : others;
  const isLocal = ({ local }: ProxyEndpoint): boolean => local;
  const cluster = uses.cluster ? orElse(hinted(ready, rules), lastResorts) : [];
  const local = uses.local ? orElse(ready.filter(isLocal), lastResorts.filter(isLocal)) : [];
  const any = cluster.length > 0 || (uses.local && ready.length + lastResorts.length > 0);
  /** `any`: some node has usable endpoints. `all`: usable or not. */
  return { cluster, local, any, all: endpoints };
}

/** Endpoints with a hint for this node, or for its zone; all if one has none, or none fits. */
function hinted(ready: readonly ProxyEndpoint[], { node, zone }: EndpointRules) {
  for (const [key, here] of [
    ['nodes', node],
    ['zones', zone],
  ] as const) {
    if (ready.some((entry) => entry[key].length === 0)) continue;
    const fitting = ready.filter((entry) => entry[key].includes(here));
    if (fitting.length > 0) return fitting;
  }
  return ready;
}
