// Stores the newest version of every object, with the indexes that the audit needs.
//
// The cost of an event depends on the object, not on the size of the cluster: pods are found by
// address, Node and namespace, and Services by one pair of their selector. The listers are a view
// of the store between two events.
//
// The API server orders the versions of an object by resourceVersion. An event that is older than
// the stored version, or repeats it, changes nothing and is counted. The store remembers the last
// deletions, so that a late event does not restore a deleted object. A version after a gap always
// replaces the stored one, because api/version-filter.ts has checked its age.

import { isSameToHints } from '../../model/equality.ts';
import { canonicalIP } from '../../model/ip.ts';
import type {
  AnyObject,
  Change,
  Endpoints,
  EndpointSlice,
  Key,
  Labels,
  Node,
  ObjectOf,
  Pod,
  Resource,
  Service,
  Listers,
  WatchEvent,
  ZoneCapacity,
} from '../../model/objects.ts';
import type { VersionVerdict } from '../../model/resource-version.ts';
import { versionVerdict } from '../../model/resource-version.ts';
import { selects } from '../../model/selector.ts';
import { createIndex } from './object-index.ts';
import { sharedEndpoints, sharedSlice } from './structural-sharing.ts';

const tombstoneLimit = 4096;

/** SetNodes of k8s.io/endpointslice@v0.36.3 topologycache/topologycache.go. */
function zoneCapacityOf(nodes: Iterable<Node>): ZoneCapacity {
  const cpuMillisByZone = new Map<string, number>();
  for (const node of nodes) {
    if (node.controlPlane || !node.ready) continue;
    if (node.zone === '' || node.cpuMillis === 0) {
      return { insufficient: true, cpuMillisByZone: new Map() };
    }
    cpuMillisByZone.set(node.zone, (cpuMillisByZone.get(node.zone) ?? 0) + node.cpuMillis);
  }
  return { insufficient: false, cpuMillisByZone };
}

const canonicalIPs = ({ ips }: Pod): readonly string[] =>
  ips.length < 2 ? ips.map(canonicalIP) : [...new Set(ips.map(canonicalIP))];

/** Namespace and one pair of the selector, `namespace key=value`: a match needs all pairs. */
function selectorPair({ namespace, selector }: Service): readonly string[] {
  const pair = Object.entries(selector ?? {}).at(-1);
  return pair === undefined ? [] : [`${namespace} ${pair[0]}=${pair[1]}`];
}

/** The most label sets whose Services are cached: some megabytes. */
const selectingLimit = 16_384;

type State = ReturnType<typeof createState>;

const createState = () => ({
  cache: {
    services: new Map<Key, Service>(),
    pods: new Map<Key, Pod>(),
    nodes: new Map<Key, Node>(),
    endpoints: new Map<Key, Endpoints>(),
    endpointslices: new Map<Key, EndpointSlice>(),
  },
  indexes: {
    podsByNamespace: createIndex<Pod>(({ namespace }) => [namespace]),
    podsByNode: createIndex<Pod>(({ node }) => (node === '' ? [] : [node])),
    podsByAddress: createIndex<Pod>(canonicalIPs),
    servicesByPair: createIndex<Service>(selectorPair),
  },
  /** The version of each object that was deleted, oldest first. */
  tombstones: new Map<string, string>(),
  zonesSeen: new Set<string>(),
  dropped: { stale: 0, repeated: 0 },
  /** The Services that select some labels, in the namespace of the latest query. */
  selecting: new Map<Labels, { readonly namespace: string; readonly found: Service[] }>(),
  /** null if it must be computed from the Nodes. */
  zoneCapacity: null as ZoneCapacity | null,
});

export type Store = ReturnType<typeof createStore>;

/** An empty store. `delivered` contains the resources of the input; it may still grow. */
export function createStore(delivered: ReadonlySet<Resource>) {
  const state = createState();
  return {
    listers: viewOf(state, delivered),
    objects: state.cache as { readonly [R in Resource]: ReadonlyMap<Key, ObjectOf[R]> },
    /** Stores the object of an event; null if the event changes nothing. */
    apply: (event: WatchEvent) => apply(state, event),
    /** A list of the resource is complete: no event that is older than the list can follow. */
    listed: (resource: Resource): void => {
      deleteTombstones(state, resource);
    },
    /** How many events were older than the stored version, and how many repeated it. */
    dropped: state.dropped,
  };
}

function apply(state: State, event: WatchEvent): Change | null {
  const { resource, object, type, at, gap } = event;
  const before = state.cache[resource].get(object.key) ?? null;
  const verdict = verdictOn(state, event, before);
  if (verdict !== 'new') {
    state.dropped[verdict]++;
    return null;
  }
  const after = type === 'deleted' ? null : withSharedParts(state, event, before);
  if (after === null) addTombstone(state, resource, object);
  replace(state, resource, before, after);
  return { resource, before, after, at, ...(gap === true ? { gap } : {}) };
}

/** An object that is equal to that of the event, and shares equal parts with stored objects. */
function withSharedParts(
  { indexes }: State,
  { resource, object }: WatchEvent,
  before: AnyObject | null,
): AnyObject {
  const podsAt = (address: string): readonly Pod[] => indexes.podsByAddress.get(address);
  if (resource === 'endpoints') {
    return sharedEndpoints(object as Endpoints, before as Endpoints | null, podsAt);
  }
  if (resource !== 'endpointslices') return object;
  return sharedSlice(object as EndpointSlice, before as EndpointSlice | null, podsAt);
}

/** The version of an event, compared with that of the stored or deleted object. */
function verdictOn(
  { tombstones }: State,
  event: WatchEvent,
  before: AnyObject | null,
): VersionVerdict {
  const { resource, object, type, gap } = event;
  if (before === null && type === 'deleted') return 'repeated';
  if (gap === true) return 'new';
  const version = before?.resourceVersion ?? tombstones.get(`${resource} ${object.key}`);
  return version === undefined ? 'new' : versionVerdict(version, event);
}

function addTombstone({ tombstones }: State, resource: Resource, object: AnyObject): void {
  const key = `${resource} ${object.key}`;
  tombstones.delete(key);
  tombstones.set(key, object.resourceVersion);
  const oldest = tombstones.keys().next();
  if (tombstones.size > tombstoneLimit && oldest.done !== true) tombstones.delete(oldest.value);
}

function deleteTombstones({ tombstones }: State, resource: Resource): void {
  for (const key of tombstones.keys()) {
    if (key.startsWith(`${resource} `)) tombstones.delete(key);
  }
}

function replace(
  state: State,
  resource: Resource,
  before: AnyObject | null,
  after: AnyObject | null,
): void {
  const { cache, indexes } = state;
  if (resource === 'pods') {
    const { podsByNamespace, podsByNode, podsByAddress } = indexes;
    for (const index of [podsByNamespace, podsByNode, podsByAddress]) {
      index.replace(before as Pod | null, after as Pod | null);
    }
  } else if (resource === 'services') {
    state.selecting.clear();
    indexes.servicesByPair.replace(before as Service | null, after as Service | null);
  } else if (resource === 'nodes') {
    if (!isSameToHints(before as Node | null, after as Node | null)) state.zoneCapacity = null;
    if (after !== null) state.zonesSeen.add((after as Node).zone);
  }
  const objects = cache[resource] as Map<string, AnyObject>;
  if (after !== null) objects.set(after.key, after);
  else if (before !== null) objects.delete(before.key);
}

function viewOf(state: State, delivered: ReadonlySet<Resource>): Listers {
  const { cache, indexes, zonesSeen } = state;
  return {
    knows: (resource) => delivered.has(resource),
    services: cache.services,
    endpoints: cache.endpoints,
    nodes: cache.nodes,
    pods: cache.pods,
    slices: cache.endpointslices,
    podsIn: (namespace) => indexes.podsByNamespace.get(namespace),
    podsOn: (node) => indexes.podsByNode.get(node),
    podsAt: (ip) => indexes.podsByAddress.get(ip),
    servicesSelecting: (namespace, labels) => servicesSelecting(state, namespace, labels),
    get zoneCapacity() {
      return (state.zoneCapacity ??= zoneCapacityOf(cache.nodes.values()));
    },
    zonesSeen,
  };
}

function servicesSelecting(
  { indexes, selecting }: State,
  namespace: string,
  labels: Labels,
): Service[] {
  // Pods of one template share their labels by reference.
  const known = selecting.get(labels);
  if (known?.namespace === namespace) return known.found;
  const found: Service[] = [];
  for (const key in labels) {
    const candidates = indexes.servicesByPair.get(`${namespace} ${key}=${labels[key] ?? ''}`);
    for (const service of candidates) if (selects(service.selector, labels)) found.push(service);
  }
  if (selecting.size >= selectingLimit) selecting.clear();
  selecting.set(labels, { namespace, found });
  return found;
}
