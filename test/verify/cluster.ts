// The cluster of the reference auditor: plain maps of objects, and the differences of one Service,
// computed from nothing but these. No index is kept over events, and nothing is computed in part.
//
// It shares the shadows, the comparisons and the types with the program. Its store, its listers,
// the state of a Service and the entries at an address are its own.

import { isDeepStrictEqual } from 'node:util';

import type { Output } from '../../src/audit/finding/catalogue.ts';
import type { Difference } from '../../src/audit/finding/difference.ts';
import type { AddressEntries, SlicedEndpoint } from '../../src/audit/service/address-index.ts';
import type { AuditContext, ServiceState } from '../../src/audit/service/cache.ts';
import { createServiceState, podsOf } from '../../src/audit/service/cache.ts';
import { compareEndpoints, compareEndpointsAddress } from '../../src/audit/service/endpoints.ts';
import {
  compareSlice,
  compareSlices,
  compareSlicesAddress,
} from '../../src/audit/service/endpointslices.ts';
import { checkInput, checkInputAddress } from '../../src/audit/service/input-checks.ts';
import { compareMirrored } from '../../src/audit/service/mirroring.ts';
import { isUnknown, unknownOutputs } from '../../src/audit/service/verdict.ts';
import { canonicalIP } from '../../src/model/ip.ts';
import type {
  AnyObject,
  Change,
  Endpoints,
  EndpointSlice,
  Key,
  Listers,
  Node,
  Pod,
  Resource,
  Service,
  UnreadableObject,
  WatchEvent,
  ZoneCapacity,
} from '../../src/model/objects.ts';
import { label, manager } from '../../src/model/objects.ts';
import { versionVerdict } from '../../src/model/resource-version.ts';
import { selects } from '../../src/model/selector.ts';
import type { SubsetAddress } from '../../src/shadow/endpoints.ts';
import { expectedAddress, isSelected, repack } from '../../src/shadow/endpoints.ts';
import { isStranded } from '../../src/shadow/endpointslice.ts';
import { isListed } from '../../src/shadow/pod.ts';

export type Cluster = ReturnType<typeof createCluster>;

export const createCluster = () => ({
  nodes: new Map<Key, Node>(),
  services: new Map<Key, Service>(),
  pods: new Map<Key, Pod>(),
  endpoints: new Map<Key, Endpoints>(),
  endpointslices: new Map<Key, EndpointSlice>(),
  /** Resources that are listed completely. */
  complete: new Set<Resource>(),
  zonesSeen: new Set<string>(),
  /** Versions of deleted objects since the last list of their resource. */
  deleted: new Map<string, string>(),
  /** Objects whose newest version could not be read. */
  unreadable: new Map<string, UnreadableObject>(),
  /**
   * By Service and writer, the uids of slices that lost the labels of the Service while it existed.
   * Its controller still expects them.
   */
  lostSlices: new Map<string, ReadonlySet<string>>(),
  /** When an event last made the controllers of its pods sync each Service. */
  wokenAt: new Map<Key, number>(),
  /** When a slice of the controller last changed, of each Service. */
  slicesChangedAt: new Map<Key, number>(),
});

/** Writes an event into the maps; `null` if it is older than what is known, or repeats it. */
export function write(cluster: Cluster, event: WatchEvent): Change | null {
  const { resource, type, object, at, gap } = event;
  const objects = cluster[resource] as Map<Key, AnyObject>;
  const before = objects.get(object.key) ?? null;
  if (before === null && type === 'deleted') return null;
  const name = `${resource} ${object.key}`;
  const known = before?.resourceVersion ?? cluster.deleted.get(name);
  if (gap !== true && known !== undefined && versionVerdict(known, event) !== 'new') return null;
  if (type === 'deleted') {
    objects.delete(object.key);
    cluster.deleted.set(name, object.resourceVersion);
  } else objects.set(object.key, object);
  if (resource === 'nodes' && type !== 'deleted') cluster.zonesSeen.add((object as Node).zone);
  const after = type === 'deleted' ? null : object;
  return { resource, before, after, at, ...(gap === true ? { gap } : {}) };
}

const cpuByZone = (nodes: Iterable<Node>): ZoneCapacity => {
  const counted = [...nodes].filter((node) => node.ready && !node.controlPlane);
  const insufficient = counted.some(({ zone, cpuMillis }) => zone === '' || cpuMillis === 0);
  const cpuMillisByZone = new Map<string, number>();
  for (const { zone, cpuMillis } of insufficient ? [] : counted) {
    cpuMillisByZone.set(zone, (cpuMillisByZone.get(zone) ?? 0) + cpuMillis);
  }
  return { insufficient, cpuMillisByZone };
};

const grouped = <T>(items: Iterable<T>, keysOf: (item: T) => Iterable<string>) => {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    for (const key of new Set(keysOf(item))) groups.set(key, [...(groups.get(key) ?? []), item]);
  }
  return groups;
};

const groupsOfPods = (pods: ReadonlyMap<Key, Pod>) => ({
  podsIn: Map.groupBy(pods.values(), ({ namespace }) => namespace),
  podsOn: Map.groupBy(pods.values(), ({ node }) => node),
  podsAt: grouped(pods.values(), addressesIn),
});

/** Everything that is asked of a cluster, computed from its maps. */
export interface View {
  readonly listers: Listers;
  readonly groups: ReturnType<typeof groupsOfPods>;
  readonly slicesByService: ReadonlyMap<Key, readonly EndpointSlice[]>;
}

/** The view after a change of one resource; what is about other resources is that of before. */
export function viewOf(cluster: Cluster, changed: Resource | null = null, before?: View): View {
  const { nodes, services, pods, endpoints, endpointslices, complete, zonesSeen } = cluster;
  const isKept = (resource: Resource): boolean => changed !== null && changed !== resource;
  const servicesIn = Map.groupBy(services.values(), ({ namespace }) => namespace);
  const groups = (isKept('pods') ? before?.groups : undefined) ?? groupsOfPods(pods);
  const { podsIn, podsOn, podsAt } = groups;
  const slicesByService =
    (isKept('endpointslices') ? before?.slicesByService : undefined) ??
    grouped(endpointslices.values(), servicesNamedBy);
  const listers: Listers = {
    knows: (resource) => complete.has(resource),
    omits: () => false,
    services,
    endpoints,
    nodes,
    pods,
    slices: endpointslices,
    podsIn: (namespace) => podsIn.get(namespace) ?? [],
    podsOn: (node) => podsOn.get(node) ?? [],
    podsAt: (ip) => podsAt.get(ip) ?? [],
    servicesSelecting: (namespace, labels) =>
      (servicesIn.get(namespace) ?? []).filter(({ selector }) => selects(selector, labels)),
    zoneCapacity: cpuByZone(nodes.values()),
    zonesSeen,
  };
  return { listers, groups, slicesByService };
}

/** The Services that a slice names, by its label or as its owner, also as Endpoints. */
export function servicesNamedBy({ namespace, labels, owners }: EndpointSlice): string[] {
  const isNamed = ({ kind }: { kind: string }): boolean =>
    kind === 'Service' || kind === 'Endpoints';
  const names = [labels[label.serviceName] ?? '', ...owners.filter(isNamed).map((o) => o.name)];
  return names.filter((name) => name !== '').map((name) => `${namespace}/${name}`);
}

/** Every name that has a Service, Endpoints or slices. */
export const serviceKeys = (view: View): Set<Key> =>
  new Set([
    ...view.listers.services.keys(),
    ...view.listers.endpoints.keys(),
    ...view.slicesByService.keys(),
  ]);

/** Notes slices that lose the labels of a Service, or get them back. */
export function trackSlices(cluster: Cluster, { resource, before, after }: Change): void {
  const key = (after ?? before)?.key ?? '';
  const writers = [manager.slices, manager.mirroring];
  if (resource === 'services' && before?.uid !== after?.uid) {
    for (const writer of writers) cluster.lostSlices.delete(`${key} ${writer}`);
  }
  if (resource !== 'endpointslices' || before === null || before.uid !== after?.uid) return;
  const [was, is] = [before, after] as readonly EndpointSlice[];
  const namespace = after.namespace;
  const has = (slice: EndpointSlice | undefined, name: string, writer: string): boolean =>
    slice?.labels[label.serviceName] === name && slice.labels[label.sliceManagedBy] === writer;
  for (const slice of [was, is]) {
    const name = slice?.labels[label.serviceName] ?? '';
    for (const writer of writers) {
      const place = `${namespace}/${name} ${writer}`;
      const lost = new Set(cluster.lostSlices.get(place));
      if (has(is, name, writer)) lost.delete(after.uid);
      else if (has(was, name, writer)) lost.add(after.uid);
      cluster.lostSlices.set(place, lost);
    }
  }
}

/** The state of a Service as the comparisons read it. */
export function stateOf(
  cluster: Cluster,
  view: View,
  context: AuditContext,
  key: Key,
): ServiceState {
  const { listers, release } = context;
  const service = listers.services.get(key) ?? null;
  const times = {
    wokenAt: cluster.wokenAt.get(key) ?? -Infinity,
    slicesChangedAt: cluster.slicesChangedAt.get(key) ?? -Infinity,
  };
  const state: ServiceState = {
    ...createServiceState(key),
    ...times,
    service,
    endpoints: listers.endpoints.get(key) ?? null,
    slices: (view.slicesByService.get(key) ?? []).toSorted((a, b) => (a.name < b.name ? -1 : 1)),
    relabelled: cluster.lostSlices.get(`${key} ${manager.slices}`) ?? new Set(),
    relabelledMirrors: cluster.lostSlices.get(`${key} ${manager.mirroring}`) ?? new Set(),
  };
  if (service === null || !isSelected(service)) return state;
  const kinds = new Map<string, ServiceState['kinds'][number]>();
  for (const pod of listers.podsIn(service.namespace)) {
    if (!selects(service.selector, pod.labels)) continue;
    const address = expectedAddress(service, pod, release);
    const node = listers.knows('nodes') ? (listers.nodes.get(pod.node) ?? null) : undefined;
    const kind = {
      portMap: address?.portMap ?? null,
      ports: address?.ports ?? [],
      ready: address?.ready ?? false,
      nodeless: address !== null && pod.node === '',
      stranded: isStranded(service, node) && isListed(pod, true),
      pods: 0,
    };
    const text = [kind.portMap, kind.ready, kind.nodeless, kind.stranded].join(' ');
    const known = kinds.get(text) ?? kind;
    kinds.set(text, known);
    known.pods++;
    state.members.set(pod.key, known);
  }
  state.kinds = [...kinds.values()];
  return state;
}

/** A difference and its unit: an address or slice in one output, or an output as a whole. */
export interface Located {
  readonly output: Output;
  readonly unit: string;
  readonly difference: Difference;
}

/** What is listed at each address that a Service has to do with. */
function entriesByAddress(listers: Listers, state: ServiceState): AddressEntries[] {
  const { endpoints, slices, members } = state;
  const listed = new Map<string, SubsetAddress[]>();
  const sliced = new Map<string, SlicedEndpoint[]>();
  for (const [subset, { addresses }] of (endpoints?.subsets ?? []).entries()) {
    for (const address of addresses) {
      const ip = canonicalIP(address.ip);
      listed.set(ip, [...(listed.get(ip) ?? []), { address, subset }]);
    }
  }
  for (const slice of slices) {
    for (const endpoint of slice.endpoints) {
      for (const ip of new Set(endpoint.addresses.map(canonicalIP))) {
        sliced.set(ip, [...(sliced.get(ip) ?? []), { slice, endpoint }]);
      }
    }
  }
  const own = [...podsOf(listers, state)].flatMap(({ ips }) => ips.map(canonicalIP));
  return [...new Set([...listed.keys(), ...sliced.keys(), ...own])].map((ip) => {
    const pods = listers.podsAt(ip);
    const ours = pods.filter((pod) => members.has(pod.key));
    ours.sort((a, b) => (a.uid < b.uid ? -1 : 1));
    const [places, entries] = [listed.get(ip) ?? [], sliced.get(ip) ?? []];
    return { ip, record: state, pods, members: ours, listed: repack(places), sliced: entries };
  });
}

/** The outputs of a Service that cannot be compared, each with the reason, as one text. */
export const unknownText = ({ unreadable }: Cluster, listers: Listers, state: ServiceState) =>
  new Map(unknownOutputs(listers, state, unreadable.values()));

/** All differences of a Service, computed from nothing. */
export function differencesOf(
  context: AuditContext,
  state: ServiceState,
  unknown: ReturnType<typeof unknownText>,
): Located[] {
  const found: Located[] = [];
  const add = (output: Output, unit: string, compare: () => Difference[]): void => {
    if (isUnknown(unknown, output)) return;
    found.push(...compare().map((difference) => ({ output, unit, difference })));
  };
  for (const entries of entriesByAddress(context.listers, state)) {
    const { ip } = entries;
    add('endpoints', `endpoints ${ip}`, () => compareEndpointsAddress(context, entries));
    add('endpointslices', `endpointslices ${ip}`, () => compareSlicesAddress(context, entries));
    add('input', `input ${ip}`, () => checkInputAddress(context, entries));
  }
  for (const slice of state.slices) {
    add('endpointslices', `slice ${slice.name}`, () => compareSlice(context, state, slice));
  }
  add('mirrored', 'mirrored', () => compareMirrored(context, state));
  add('endpoints', 'endpoints', () => compareEndpoints(context, state));
  add('endpointslices', 'endpointslices', () => compareSlices(context, state));
  add('input', 'input', () => checkInput(context, state));
  return found;
}

type Addressed = Pod | EndpointSlice | Endpoints;

/** Objects do not change, so this is computed once for each. */
const known = new WeakMap<Addressed, ReadonlySet<string>>();

/** The canonical addresses that an object has or lists. */
function addressesIn(object: Addressed): ReadonlySet<string> {
  const before = known.get(object);
  if (before !== undefined) return before;
  const texts =
    'ips' in object
      ? object.ips
      : 'subsets' in object
        ? object.subsets.flatMap(({ addresses }) => addresses.map(({ ip }) => ip))
        : object.endpoints.flatMap(({ addresses }) => addresses);
  const addresses = new Set(texts.map(canonicalIP));
  known.set(object, addresses);
  return addresses;
}

/** Heartbeats change nothing but the version. */
const isSameNode = ({ before, after, gap }: Change<'nodes'>): boolean => {
  if (before === null || after === null || gap === true) return false;
  const { resourceVersion } = after;
  return isDeepStrictEqual({ ...before, resourceVersion }, after);
};

/** Services up to which an event is compared with all that it can touch. */
const few = 60;

/** With more Services, one in this number of events is. */
const sampled = 200;

/**
 * The Services that an event can touch: of a Node all, of other objects those of its namespace. A
 * pod or Service also touches the namespaces that have one of its addresses. In a large cluster,
 * most events touch those that they are about, and every 200th shows whether they touched others:
 * a difference that is seen late begins late.
 */
export function servicesTouched(before: View, after: View, change: Change, index: number) {
  const all = new Set([...serviceKeys(before), ...serviceKeys(after)]);
  const { resource } = change;
  if (resource === 'nodes') return isSameNode(change as Change<'nodes'>) ? new Set<Key>() : all;
  const { listers } = after;
  const pods =
    resource === 'services'
      ? listers.podsIn((change.after ?? change.before)?.namespace ?? '')
      : resource === 'pods'
        ? [change.before as Pod | null, change.after as Pod | null].flatMap((pod) => pod ?? [])
        : [];
  const ips = new Set(pods.flatMap((pod) => [...addressesIn(pod)]));
  if (all.size > few && resource !== 'services' && index % sampled !== 0) {
    return servicesAbout(before, after, change, ips);
  }
  const namespaces = new Set([(change.after ?? change.before)?.namespace ?? '']);
  for (const ip of ips) for (const pod of listers.podsAt(ip)) namespaces.add(pod.namespace);
  for (const object of resource === 'pods' ? listing(listers, ips) : []) {
    namespaces.add(object.namespace);
  }
  return new Set([...all].filter((key) => namespaces.has(key.slice(0, key.indexOf('/')))));
}

/** Slices and Endpoints that list one of these addresses. */
const listing = ({ slices, endpoints }: Listers, ips: ReadonlySet<string>) =>
  [...slices.values(), ...endpoints.values()].filter((object) => {
    const listed = addressesIn(object);
    return [...ips].some((ip) => listed.has(ip));
  });

/** The Services that an event is about, by selectors, addresses and names. */
function servicesAbout(
  before: View,
  { listers }: View,
  change: Change,
  ips: ReadonlySet<string>,
): Set<Key> {
  const objects = [change.before, change.after].flatMap((object) => object ?? []);
  if (change.resource === 'endpoints') return new Set(objects.map(({ key }) => key));
  if (change.resource === 'endpointslices') {
    return new Set((objects as EndpointSlice[]).flatMap(servicesNamedBy));
  }
  const pods = [...(objects as Pod[]), ...[...ips].flatMap((ip) => listers.podsAt(ip))];
  const selecting = pods.flatMap(({ namespace, labels }) => [
    ...before.listers.servicesSelecting(namespace, labels),
    ...listers.servicesSelecting(namespace, labels),
  ]);
  const listed = listing(listers, ips).flatMap((object) =>
    'subsets' in object ? [object.key] : servicesNamedBy(object),
  );
  return new Set([...selecting.map(({ key }) => key), ...listed]);
}
