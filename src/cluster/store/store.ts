// Stores the newest version of every object, with the indexes that the audit needs. The cost of an
// event depends on the object, not on the size of the cluster. The store remembers the last
// deletions, so that a late event does not restore an object.

import {
  equalAddresses,
  equalEndpoints,
  equalRefs,
  equalTexts,
  isSameToHints,
} from '../../model/equality.ts';
import { canonicalIP } from '../../model/ip.ts';
import type * as api from '../../model/objects.ts';
import { versionVerdict } from '../../model/resource-version.ts';
import { selects } from '../../model/selector.ts';
import { setLatest } from '../../model/collections.ts';

/** SetNodes of k8s.io/endpointslice@v0.36.3 topologycache/topologycache.go. */
function zoneCapacityOf(nodes: Iterable<api.Node>): api.ZoneCapacity {
  const cpuMillisByZone = new Map<string, number>();
  for (const { controlPlane, ready, zone, cpuMillis } of nodes) {
    if (controlPlane || !ready) continue;
    if (zone === '' || cpuMillis === 0) return { insufficient: true, cpuMillisByZone: new Map() };
    cpuMillisByZone.set(zone, (cpuMillisByZone.get(zone) ?? 0) + cpuMillis);
  }
  return { insufficient: false, cpuMillisByZone };
}

const canonicalIPs = ({ ips }: api.Pod): readonly string[] =>
  ips.length === 1 && canonicalIP(ips[0] ?? '') === ips[0]
    ? ips
    : [...new Set(ips.map(canonicalIP))];

/** Namespace and one pair of the selector, `namespace key=value`: a match needs all pairs. */
function selectorPair({ namespace, selector }: api.Service): readonly string[] {
  const pair = Object.entries(selector ?? {}).at(-1);
  return pair === undefined ? [] : [`${namespace} ${pair[0]}=${pair[1]}`];
}

type State = ReturnType<typeof createState>;

/** Deleted objects whose versions are remembered: an old event comes soon after a deletion. */
const mostTombstones = 1024;

const keyOf = ({ key }: api.Pod): api.Key => key;

const createState = () => ({
  cache: {
    services: new Map<api.Key, api.Service>(),
    pods: new Map<api.Key, api.Pod>(),
    nodes: new Map<api.Key, api.Node>(),
    endpoints: new Map<api.Key, api.Endpoints>(),
    endpointslices: new Map<api.Key, api.EndpointSlice>(),
  },
  indexes: {
    // Of keys: a pod often changes, and its place in the long list of a namespace costs a search.
    podsByNamespace: createIndex(({ namespace }: api.Pod) => [namespace], keyOf),
    podsByNode: createIndex(({ node }: api.Pod) => (node === '' ? [] : [node]), keyOf),
    podsByAddress: createIndex(canonicalIPs, keyOf),
    servicesByPair: createIndex(selectorPair, (service: api.Service) => service),
  },
  /** The version of each object that was deleted, oldest first. */
  tombstones: new Map<string, string>(),
  zonesSeen: new Set<string>(),
  dropped: { stale: 0, repeated: 0 },
  latest: null as api.Change | null,
  /** The Services that select some labels, in the namespace of the latest query. */
  selecting: new Map<api.Labels, { readonly namespace: string; readonly found: api.Service[] }>(),
  /** null: to be computed from the Nodes. */
  zoneCapacity: null as api.ZoneCapacity | null,
});

export type Store = ReturnType<typeof createStore>;

/**
 * An empty store. `delivered` contains the resources of the input; it may still grow. The user left
 * `omitted` out.
 */
export function createStore(
  delivered: ReadonlySet<api.Resource>,
  omitted: readonly api.Resource[] = [],
) {
  const state = createState();
  return {
    listers: viewOf(state, delivered, omitted),
    objects: state.cache as { readonly [R in api.Resource]: ReadonlyMap<api.Key, api.ObjectOf[R]> },
    /** Stores the object of an event; null if the event changes nothing. */
    apply: (event: api.WatchEvent) => apply(state, event),
    /** What the latest event has changed; null: nothing. */
    latestChange: () => state.latest,
    /** A list of the resource is complete: no event that is older than the list can follow. */
    listed(resource: api.Resource): void {
      for (const key of state.tombstones.keys()) {
        if (key.startsWith(`${resource} `)) state.tombstones.delete(key);
      }
    },
    /** Notes zones that Nodes had before the input began. */
    noteZones(zones: readonly string[]): void {
      for (const zone of zones) state.zonesSeen.add(zone);
    },
    dropped: state.dropped,
  };
}

function apply(state: State, event: api.WatchEvent): api.Change | null {
  const { resource, object, type, at, gap } = event;
  const before = state.cache[resource].get(object.key) ?? null;
  const verdict = verdictOn(state, event, before);
  state.latest = null;
  if (verdict !== 'new') {
    state.dropped[verdict]++;
    return null;
  }
  const after = type === 'deleted' ? null : withSharedParts(state, event, before);
  if (after === null) {
    const key = `${resource} ${object.key}`;
    setLatest(state.tombstones, key, object.resourceVersion, mostTombstones);
  }
  const change = { resource, before, after, at, ...(gap === true ? { gap } : {}) };
  replace(state, change);
  state.latest = change;
  return change;
}

function withSharedParts(
  state: State,
  event: api.WatchEvent,
  before: api.AnyObject | null,
): api.AnyObject {
  const { resource, object } = event;
  const podOf: PodOf = (target) => {
    const pod = state.cache.pods.get(`${target.namespace}/${target.name}`);
    return pod !== undefined && equalRefs(pod.ref, target) ? pod : undefined;
  };
  if (resource === 'endpointslices') {
    return sharedSlice(object as api.EndpointSlice, before as api.EndpointSlice | null, podOf);
  }
  return resource === 'endpoints'
    ? sharedEndpoints(object as api.Endpoints, before as api.Endpoints | null, podOf)
    : object;
}

function verdictOn({ tombstones }: State, event: api.WatchEvent, before: api.AnyObject | null) {
  const { resource, object, type, gap } = event;
  if (before === null && type === 'deleted') return 'repeated';
  if (gap === true) return 'new'; // api/version-filter.ts has checked its age
  const version = before?.resourceVersion ?? tombstones.get(`${resource} ${object.key}`);
  return version === undefined ? 'new' : versionVerdict(version, event);
}

function replace(state: State, { resource, before, after }: api.Change): void {
  const { cache, indexes } = state;
  if (resource === 'pods') {
    replacePod(state, before as api.Pod | null, after as api.Pod | null);
  } else if (resource === 'services') {
    state.selecting.clear();
    indexes.servicesByPair.replace(before as api.Service | null, after as api.Service | null);
  } else if (resource === 'nodes') {
    if (!isSameToHints(before as api.Node | null, after as api.Node | null))
      state.zoneCapacity = null;
    if (after !== null) noteZone(state, (after as api.Node).zone);
  }
  const objects = cache[resource] as Map<string, api.AnyObject>;
  if (after !== null) objects.set(after.key, after);
  else if (before !== null) objects.delete(before.key);
}

/** Most events of a pod change none of its places in the indexes, which have its key. */
function replacePod({ indexes }: State, before: api.Pod | null, after: api.Pod | null): void {
  if (before !== null && before.node === after?.node && before.ips === after.ips) return;
  const { podsByNamespace, podsByNode, podsByAddress } = indexes;
  for (const index of [podsByNamespace, podsByNode, podsByAddress]) index.replace(before, after);
}

/** A kubelet may change the zone of its Node without end. Only zones of the past are forgotten. */
const mostFormerZones = 10_000;

function noteZone({ zonesSeen, cache }: State, zone: string): void {
  if (zonesSeen.size >= mostFormerZones + cache.nodes.size) {
    zonesSeen.clear();
    for (const node of cache.nodes.values()) zonesSeen.add(node.zone);
  }
  zonesSeen.add(zone);
}

function viewOf(
  state: State,
  delivered: ReadonlySet<api.Resource>,
  omitted: readonly api.Resource[],
): api.Listers {
  const { cache, indexes, zonesSeen } = state;
  const podsOf = (keys: readonly api.Key[]): readonly api.Pod[] =>
    keys.map((key) => cache.pods.get(key)).filter((pod) => pod !== undefined);
  return {
    knows: (resource) => delivered.has(resource) && !omitted.includes(resource),
    omits: (resource) => omitted.includes(resource),
    services: cache.services,
    endpoints: cache.endpoints,
    nodes: cache.nodes,
    pods: cache.pods,
    slices: cache.endpointslices,
    podsIn: (namespace) => podsOf(indexes.podsByNamespace.get(namespace)),
    podsOn: (node) => podsOf(indexes.podsByNode.get(node)),
    podsAt: (ip) => podsOf(indexes.podsByAddress.get(ip)),
    servicesSelecting: (namespace, labels) => servicesSelecting(state, namespace, labels),
    get zoneCapacity() {
      return (state.zoneCapacity ??= zoneCapacityOf(cache.nodes.values()));
    },
    zonesSeen,
  };
}

/** Characters of labels for which the Services are remembered. */
const longestLabels = 2048;

function servicesSelecting({ indexes, selecting }: State, namespace: string, labels: api.Labels) {
  // Pods of one template share their labels by reference.
  const known = selecting.get(labels);
  if (known?.namespace === namespace) return known.found;
  const found: api.Service[] = [];
  let length = 0;
  for (const key in labels) {
    const value = labels[key] ?? '';
    length += key.length + value.length;
    const candidates = indexes.servicesByPair.get(`${namespace} ${key}=${value}`);
    for (const service of candidates) if (selects(service.selector, labels)) found.push(service);
  }
  // The table keeps the labels of pods that are gone. Nothing limits how many a pod has.
  if (length > longestLabels) return found;
  if (selecting.size >= 16_384) selecting.clear(); // some megabytes
  selecting.set(labels, { namespace, found });
  return found;
}

const noItems: readonly never[] = [];

/**
 * Like client-go's Indexer, of what `itemOf` returns. Most keys have one item, which the map has
 * without a list.
 */
export function createIndex<T extends object, Item>(
  keysOf: (object: T) => readonly string[],
  itemOf: (object: T) => Item,
) {
  const entries = new Map<string, Item | Item[]>();
  const add = (key: string, item: Item): void => {
    const entry = entries.get(key);
    if (entry === undefined) entries.set(key, item);
    else if (Array.isArray(entry)) entry.push(item);
    else entries.set(key, [entry, item]);
  };
  const remove = (key: string, item: Item): void => {
    const entry = entries.get(key);
    if (!Array.isArray(entry)) {
      entries.delete(key);
      return;
    }
    const last = entry.pop();
    const index = entry.indexOf(item);
    if (last !== undefined && index >= 0) entry[index] = last;
    const [first] = entry;
    if (first !== undefined && entry.length === 1) entries.set(key, first);
  };
  const swap = (key: string, before: Item, after: Item): void => {
    const entry = entries.get(key);
    if (Array.isArray(entry)) entry[entry.indexOf(before)] = after;
    else entries.set(key, after);
  };
  return {
    replace(before: T | null, after: T | null): void {
      const oldKeys = before === null ? noItems : keysOf(before);
      const newKeys = after === null ? noItems : keysOf(after);
      if (before !== null && after !== null && equalTexts(oldKeys, newKeys)) {
        const [item, newItem] = [itemOf(before), itemOf(after)];
        if (item !== newItem) for (const key of newKeys) swap(key, item, newItem);
        return;
      }
      if (before !== null) for (const key of oldKeys) remove(key, itemOf(before));
      if (after !== null) for (const key of newKeys) add(key, itemOf(after));
    },
    /** The items of a key, in no order; valid until the next change. */
    get(key: string): readonly Item[] {
      const entry = entries.get(key);
      return entry === undefined ? noItems : Array.isArray(entry) ? entry : [entry];
    },
  };
}

// --- equal parts, shared to save memory: comparisons often find the same reference ---

/** The stored pod that is meant. */
type PodOf = (target: api.ObjectRef) => api.Pod | undefined;

/** Finds equal items, in order, in the list of the version before: few change at a time. */
function createFollower<T>(known: readonly T[], isSame: (a: T, b: T) => boolean) {
  let next = 0;
  let missed = 0;
  return (item: T): T | undefined => {
    const end = Math.min(next + Math.min(2 * missed + 2, 16), known.length);
    for (let index = next; index < end; index++) {
      const candidate = known[index];
      if (candidate === undefined || !isSame(candidate, item)) continue;
      [next, missed] = [index + 1, 0];
      return candidate;
    }
    missed++;
    return undefined;
  };
}

/** The slice, with the equal parts of the version before and of pods. */
export function sharedSlice(
  slice: api.EndpointSlice,
  before: api.EndpointSlice | null,
  podOf: PodOf,
) {
  const find = createFollower(before?.endpoints ?? [], equalEndpoints);
  const endpoints = slice.endpoints.map((item) => find(item) ?? sharedEndpoint(item, podOf));
  return { ...slice, endpoints };
}

function sharedEndpoint(endpoint: api.Endpoint, podOf: PodOf): api.Endpoint {
  const { addresses, hostname, target } = endpoint;
  const pod = target === null ? undefined : podOf(target);
  // Those that a checkpoint has by their pods share all parts already.
  if (pod === undefined || pod.ref === target) return endpoint;
  return {
    addresses: equalTexts(addresses, pod.ips) ? pod.ips : addresses.map((ip) => sameText(ip, pod)),
    ready: endpoint.ready,
    serving: endpoint.serving,
    terminating: endpoint.terminating,
    hostname: hostname === pod.hostname ? pod.hostname : hostname,
    node: endpoint.node,
    zone: endpoint.zone,
    target: pod.ref,
    forZones: endpoint.forZones,
    forNodes: endpoint.forNodes,
  };
}

const sameText = (ip: string, pod: api.Pod): string => pod.ips.find((text) => text === ip) ?? ip;

/** The Endpoints, with the equal parts of the version before and of pods. */
export function sharedEndpoints(
  endpoints: api.Endpoints,
  before: api.Endpoints | null,
  podOf: PodOf,
) {
  const subsets = endpoints.subsets.map((subset, index) => {
    const find = createFollower(before?.subsets[index]?.addresses ?? [], isSame);
    const addresses = subset.addresses.map((item) => find(item) ?? sharedAddress(item, podOf));
    return { ...subset, addresses };
  });
  return { ...endpoints, subsets };
}

const isSame = (a: api.EndpointAddress, b: api.EndpointAddress): boolean =>
  a.ports === b.ports && a.ip === b.ip && equalAddresses(a, b);

function sharedAddress(address: api.EndpointAddress, podOf: PodOf): api.EndpointAddress {
  const { ip, hostname, target } = address;
  const pod = target === null ? undefined : podOf(target);
  if (pod === undefined || pod.ref === target) return address;
  return {
    ip: sameText(ip, pod),
    ready: address.ready,
    ports: address.ports,
    node: address.node,
    hostname: hostname === pod.hostname ? pod.hostname : hostname,
    target: pod.ref,
  };
}
