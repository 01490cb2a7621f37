// Holds the newest version of every object and the indexes that judging needs, one update at a
// time.
//
// The cost of an event depends on the object, not on the size of the cluster: pods are found by
// address and by namespace, Services through one pair of their selector. Only for a Node that
// comes, goes or moves all pods are looked at. Nothing is copied but outputs, which share what they
// say alike (share.ts); a Snapshot is a view of the store between two events.
//
// The API server orders the versions of an object by resourceVersion. An event that is older than
// what is held, or repeats it, changes nothing and is counted. So that a late event does not bring
// a deleted object back, the last deletions are remembered, as many as `tombstoneLimit`. A version
// after a gap is taken whatever it is: the door has looked at its age, and knows if the server's
// history itself went back (history.ts).

import { isSameToHints } from '../../model/equality.ts';
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
import { compareVersions } from '../../model/resource-version.ts';
import { selects } from '../../model/selector.ts';
import type { AddressTable } from './pods-by-ip.ts';
import { createAddressTable } from './pods-by-ip.ts';
import { sharedEndpoints, sharedSlice } from './structural-sharing.ts';

const tombstoneLimit = 4096;

/** Objects by a key of theirs: nearly always one, which then stands for itself. */
type Index<T> = Map<string, T | T[]>;

function link<T>(index: Index<T>, key: string, value: T): void {
  const there = index.get(key);
  if (there === undefined) index.set(key, value);
  else if (Array.isArray(there)) there.push(value);
  else index.set(key, [there, value]);
}

function unlink<T>(index: Index<T>, key: string, value: T): void {
  const there = index.get(key);
  if (there === value) index.delete(key);
  if (!Array.isArray(there)) return;
  const last = there.pop();
  const at = there.indexOf(value);
  if (last !== undefined && at >= 0) there[at] = last;
  const [only] = there;
  if (only !== undefined && there.length === 1) index.set(key, only);
}

/** Puts a new version in the place of the one before. */
function relink<T>(index: Index<T>, key: string, before: T, after: T): void {
  const there = index.get(key);
  if (Array.isArray(there)) there[there.indexOf(before)] = after;
  else index.set(key, after);
}

const none: readonly never[] = [];

function linked<T>(index: Index<T>, key: string): readonly T[] {
  const there = index.get(key);
  return there === undefined ? none : Array.isArray(there) ? there : [there];
}

export interface Store {
  readonly listers: Listers;
  /** Takes one event in; null when it changes nothing. */
  apply(event: WatchEvent): Change | null;
  /** A list of the resource is complete: no event that is older than it can come any more. */
  listed(resource: Resource): void;
  /** Events that were older than what is held, and events that repeated it. */
  readonly dropped: { stale: number; repeated: number };
}

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

type Held = { [R in Resource]: Map<string, ObjectOf[R]> };

interface Indexes {
  readonly podsByNamespace: Index<Pod>;
  readonly podsByNode: Index<Pod>;
  readonly podsByAddress: AddressTable;
  /** Namespace and one pair of the selector: `namespace key=value`. */
  readonly servicesByPair: Index<Service>;
}

function replacePod(indexes: Indexes, before: Pod | null, after: Pod | null): void {
  const { podsByNamespace, podsByNode, podsByAddress } = indexes;
  replaceIn(podsByNamespace, ({ namespace }) => namespace, before, after);
  replaceIn(podsByNode, ({ node }) => node, before, after);
  podsByAddress.replace(before, after);
}

/** Under the empty key nothing is kept. */
function replaceIn(
  index: Index<Pod>,
  keyOf: (pod: Pod) => string,
  before: Pod | null,
  after: Pod | null,
): void {
  const was = before === null ? '' : keyOf(before);
  const is = after === null ? '' : keyOf(after);
  if (before !== null && after !== null && was === is) {
    if (is !== '') relink(index, is, before, after);
    return;
  }
  if (before !== null && was !== '') unlink(index, was, before);
  if (after !== null && is !== '') link(index, is, after);
}

/** Any pair of the selector will do, since all of them must match; the last is as good as any. */
function selectorPair(service: Service): string | null {
  const pair = Object.entries(service.selector ?? {}).at(-1);
  return pair === undefined ? null : `${service.namespace} ${pair[0]}=${pair[1]}`;
}

function linkService(indexes: Indexes, service: Service): void {
  const pair = selectorPair(service);
  if (pair !== null) link(indexes.servicesByPair, pair, service);
}

function unlinkService(indexes: Indexes, service: Service): void {
  const pair = selectorPair(service);
  if (pair !== null) unlink(indexes.servicesByPair, pair, service);
}

/** Labels that other namespaces have too stand for the one that was asked for last. */
interface Selecting {
  readonly namespace: string;
  readonly found: Service[];
}

/** Templates whose Services are remembered: some megabytes. */
const selectingLimit = 16_384;

interface State {
  readonly held: Held;
  readonly indexes: Indexes;
  /** The version of each object that was deleted, oldest first. */
  readonly tombstones: Map<string, string>;
  readonly zonesSeen: Set<string>;
  readonly dropped: { stale: number; repeated: number };
  /** What selects the pods of a template. */
  readonly selecting: Map<Labels, Selecting>;
  lastAt: { ip: string; pods: readonly Pod[] } | null;
  /** null: to be computed from the Nodes. */
  zoneCapacity: ZoneCapacity | null;
}

/** An empty store. `delivered` names what the input tells of; it may still grow. */
export function createStore(delivered: ReadonlySet<Resource>): Store {
  const state: State = {
    held: {
      services: new Map(),
      pods: new Map(),
      nodes: new Map(),
      endpoints: new Map(),
      endpointslices: new Map(),
    },
    indexes: {
      podsByNamespace: new Map(),
      podsByNode: new Map(),
      podsByAddress: createAddressTable(),
      servicesByPair: new Map(),
    },
    tombstones: new Map(),
    zonesSeen: new Set(),
    dropped: { stale: 0, repeated: 0 },
    zoneCapacity: null,
    selecting: new Map(),
    lastAt: null,
  };
  const listers = viewOf(state, delivered);
  return {
    listers,
    apply: (event) => apply(state, event),
    listed: (resource) => forgetDeletions(state, resource),
    dropped: state.dropped,
  };
}

function apply(state: State, event: WatchEvent): Change | null {
  const { resource, object, at } = event;
  const before = state.held[resource].get(object.key) ?? null;
  if (!isNews(state, event, before)) return null;
  const after = event.type === 'deleted' ? null : shared(state, event, before);
  if (after === null) bury(state, resource, object);
  replace(state, resource, before, after);
  return event.gap === true
    ? { resource, before, after, at, gap: true }
    : { resource, before, after, at };
}

/** What is held for an object, equal to it. */
function shared({ indexes }: State, event: WatchEvent, before: AnyObject | null): AnyObject {
  const { resource, object } = event;
  const at = (address: string): readonly Pod[] => indexes.podsByAddress.at(address);
  if (resource === 'endpoints') {
    return sharedEndpoints(object as Endpoints, before as Endpoints | null, at);
  }
  if (resource !== 'endpointslices') return object;
  return sharedSlice(object as EndpointSlice, before as EndpointSlice | null, at);
}

/** Whether an event is news; if not, it is counted as what it is. */
function isNews(
  { tombstones, dropped }: State,
  { resource, object, type, gap }: WatchEvent,
  before: AnyObject | null,
): boolean {
  if (gap === true && (before !== null || type !== 'deleted')) return true;
  const buried = tombstones.size === 0 ? undefined : tombstones.get(`${resource} ${object.key}`);
  const version = before?.resourceVersion ?? buried;
  const age = version === undefined ? 1 : compareVersions(object.resourceVersion, version);
  if (type === 'deleted') {
    if (before === null) dropped.repeated++;
    else if (age === -1) dropped.stale++;
    return before !== null && age !== -1;
  }
  if (age === 0) dropped.repeated++;
  else if (age === -1) dropped.stale++;
  return age === 1 || age === null;
}

function bury({ tombstones }: State, resource: Resource, object: AnyObject): void {
  const key = `${resource} ${object.key}`;
  tombstones.delete(key);
  tombstones.set(key, object.resourceVersion);
  const oldest = tombstones.keys().next();
  if (tombstones.size > tombstoneLimit && oldest.done !== true) tombstones.delete(oldest.value);
}

function forgetDeletions({ tombstones }: State, resource: Resource): void {
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
  const { held, indexes } = state;
  if (resource === 'pods') {
    state.lastAt = null;
    replacePod(indexes, before as Pod | null, after as Pod | null);
  } else if (resource === 'services') {
    state.selecting.clear();
    if (before !== null) unlinkService(indexes, before as Service);
    if (after !== null) linkService(indexes, after as Service);
  } else if (resource === 'nodes') {
    if (!isSameToHints(before as Node | null, after as Node | null)) state.zoneCapacity = null;
    if (after !== null) state.zonesSeen.add((after as Node).zone);
  }
  const objects = held[resource] as Map<string, AnyObject>;
  if (after !== null) objects.set(after.key, after);
  else if (before !== null) objects.delete(before.key);
}

function viewOf(state: State, delivered: ReadonlySet<Resource>): Listers {
  const { held, indexes, zonesSeen } = state;
  return {
    knows: (resource) => delivered.has(resource),
    services: held.services,
    endpoints: held.endpoints,
    nodes: held.nodes,
    pods: held.pods,
    slices: held.endpointslices,
    podsIn: (namespace) => linked(indexes.podsByNamespace, namespace),
    podsOn: (node) => linked(indexes.podsByNode, node),
    podsAt(ip) {
      // Every judge of an address asks for its pods.
      if (state.lastAt?.ip !== ip) state.lastAt = { ip, pods: indexes.podsByAddress.at(ip) };
      return state.lastAt.pods;
    },
    servicesSelecting(namespace, labels) {
      // Pods of one template share their labels by reference.
      const { selecting } = state;
      const known = selecting.get(labels);
      if (known?.namespace === namespace) return known.found;
      const found = servicesSelecting(indexes, namespace, labels);
      if (selecting.size >= selectingLimit) selecting.clear();
      selecting.set(labels, { namespace, found });
      return found;
    },
    get zoneCapacity() {
      return (state.zoneCapacity ??= zoneCapacityOf(held.nodes.values()));
    },
    zonesSeen,
  };
}

function servicesSelecting(indexes: Indexes, namespace: string, labels: Labels): Service[] {
  const found: Service[] = [];
  for (const key in labels) {
    const candidates = linked(indexes.servicesByPair, `${namespace} ${key}=${labels[key] ?? ''}`);
    for (const service of candidates) if (selects(service.selector, labels)) found.push(service);
  }
  return found;
}

/** Objects that are held, by resource. */
export function heldObjects({ listers }: Store): {
  readonly [R in Resource]: ReadonlyMap<Key, ObjectOf[R]>;
} {
  return {
    services: listers.services,
    pods: listers.pods,
    nodes: listers.nodes,
    endpoints: listers.endpoints,
    endpointslices: listers.slices,
  };
}
