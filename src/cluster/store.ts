// Holds the newest version of every object and the indexes that judging needs, one update at a
// time.
//
// The cost of an event depends on the object, not on the size of the cluster: pods are found by
// address, by Node and by namespace, Services through one pair of their selector. Nothing is
// copied; a Snapshot is a view of the store between two events.
//
// The API server orders the versions of an object by resourceVersion. An event that is older than
// what is held, or repeats it, changes nothing and is counted. So that a late event does not bring
// a deleted object back, the last deletions are remembered, as many as `tombstoneLimit`. A version
// after a gap is taken whatever it is: the door has looked at its age, and knows if the server's
// history itself went back (history.ts).

import type {
  AnyObject,
  Change,
  Labels,
  Node,
  ObjectOf,
  Pod,
  Resource,
  Service,
  Snapshot,
  WatchEvent,
  ZoneCapacity,
} from '../model/objects.ts';
import { canonicalIP } from '../model/ip.ts';
import { selects } from '../model/selector.ts';
import { compareVersions } from '../model/version.ts';

const tombstoneLimit = 4096;

/** A map from a key to the objects that have it, which keeps no empty sets. */
type Index<T> = Map<string, Set<T>>;

function link<T>(index: Index<T>, key: string, value: T): void {
  const values = index.get(key);
  if (values === undefined) index.set(key, new Set([value]));
  else values.add(value);
}

function unlink<T>(index: Index<T>, key: string, value: T): void {
  const values = index.get(key);
  if (values?.delete(value) === true && values.size === 0) index.delete(key);
}

export interface Store {
  readonly snapshot: Snapshot;
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
  readonly podsByAddress: Map<string, Pod | Pod[]>;
  /** Namespace and one pair of the selector: `namespace key=value`. */
  readonly servicesByPair: Index<Service>;
}

function linkPod(indexes: Indexes, pod: Pod): void {
  link(indexes.podsByNamespace, pod.namespace, pod);
  if (pod.node !== '') link(indexes.podsByNode, pod.node, pod);
  for (const ip of new Set(pod.ips.map(canonicalIP))) {
    const there = indexes.podsByAddress.get(ip);
    if (there === undefined) indexes.podsByAddress.set(ip, pod);
    else indexes.podsByAddress.set(ip, Array.isArray(there) ? [...there, pod] : [there, pod]);
  }
}

function unlinkPod(indexes: Indexes, pod: Pod): void {
  unlink(indexes.podsByNamespace, pod.namespace, pod);
  if (pod.node !== '') unlink(indexes.podsByNode, pod.node, pod);
  for (const ip of new Set(pod.ips.map(canonicalIP))) {
    const there = indexes.podsByAddress.get(ip);
    const left = Array.isArray(there) ? there.filter((other) => other !== pod) : [];
    const only = left[0];
    if (only === undefined) indexes.podsByAddress.delete(ip);
    else indexes.podsByAddress.set(ip, left.length === 1 ? only : left);
  }
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

interface State {
  readonly held: Held;
  readonly indexes: Indexes;
  /** The version of each object that was deleted, oldest first. */
  readonly tombstones: Map<string, string>;
  readonly zonesSeen: Set<string>;
  readonly dropped: { stale: number; repeated: number };
  last: { namespace: string; labels: Labels; found: Service[] } | null;
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
      podsByAddress: new Map(),
      servicesByPair: new Map(),
    },
    tombstones: new Map(),
    zonesSeen: new Set(),
    dropped: { stale: 0, repeated: 0 },
    zoneCapacity: null,
    last: null,
  };
  const snapshot = viewOf(state, delivered);
  return {
    snapshot,
    apply: (event) => apply(state, event),
    listed: (resource) => forgetDeletions(state, resource),
    dropped: state.dropped,
  };
}

function apply(state: State, event: WatchEvent): Change | null {
  const { resource, object, at } = event;
  const before = state.held[resource].get(object.key) ?? null;
  if (!isNews(state, event, before)) return null;
  const after = event.type === 'deleted' ? null : object;
  if (after === null) bury(state, resource, object);
  replace(state, resource, before, after);
  return event.gap === true
    ? { resource, before, after, at, gap: true }
    : { resource, before, after, at };
}

/** Whether an event is news; if not, it is counted as what it is. */
function isNews(
  { tombstones, dropped }: State,
  { resource, object, type, gap }: WatchEvent,
  before: AnyObject | null,
): boolean {
  if (gap === true && (before !== null || type !== 'deleted')) return true;
  const version = before?.resourceVersion ?? tombstones.get(`${resource} ${object.key}`);
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
    if (before !== null) unlinkPod(indexes, before as Pod);
    if (after !== null) linkPod(indexes, after as Pod);
  } else if (resource === 'services') {
    state.last = null;
    if (before !== null) unlinkService(indexes, before as Service);
    if (after !== null) linkService(indexes, after as Service);
  } else if (resource === 'nodes') {
    if (!sameCapacity(before as Node | null, after as Node | null)) state.zoneCapacity = null;
    if (after !== null) state.zonesSeen.add((after as Node).zone);
  }
  const objects = held[resource] as Map<string, AnyObject>;
  if (after !== null) objects.set(after.key, after);
  else if (before !== null) objects.delete(before.key);
}

function sameCapacity(a: Node | null, b: Node | null): boolean {
  return (
    a?.zone === b?.zone &&
    a?.ready === b?.ready &&
    a?.cpuMillis === b?.cpuMillis &&
    a?.controlPlane === b?.controlPlane
  );
}

const none: never[] = [];

function viewOf(state: State, delivered: ReadonlySet<Resource>): Snapshot {
  const { held, indexes, zonesSeen } = state;
  return {
    knows: (resource) => delivered.has(resource),
    services: held.services,
    endpoints: held.endpoints,
    nodes: held.nodes,
    pods: held.pods,
    slices: held.endpointslices,
    podsIn: (namespace) => indexes.podsByNamespace.get(namespace) ?? none,
    podsOn: (node) => indexes.podsByNode.get(node) ?? none,
    podsAt(ip) {
      const there = indexes.podsByAddress.get(ip);
      return there === undefined ? none : Array.isArray(there) ? there : [there];
    },
    servicesSelecting(namespace, labels) {
      // Pods of one template share their labels by reference and mostly come in a row.
      const { last } = state;
      if (last?.labels === labels && last.namespace === namespace) return last.found;
      const found = servicesSelecting(indexes, namespace, labels);
      state.last = { namespace, labels, found };
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
    const candidates = indexes.servicesByPair.get(`${namespace} ${key}=${labels[key] ?? ''}`);
    if (candidates === undefined) continue;
    for (const service of candidates) if (selects(service.selector, labels)) found.push(service);
  }
  return found;
}
