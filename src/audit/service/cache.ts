// The cached state of one Service: its objects, its selected pods with what the controllers expect
// of them, and its slices by role. All of it is derived from the listers and can be rebuilt.

import { valuesOf } from '../../model/collections.ts';
import { equalOwners, equalTexts } from '../../model/equality.ts';
import type * as api from '../../model/objects.ts';
import { label, manager } from '../../model/objects.ts';
import type { Steps } from '../../model/run-to-end.ts';
import { equalLabels, selects } from '../../model/selector.ts';
import type { PortGroup, Truncation } from '../../shadow/endpoints.ts';
import { expectedAddress, isSelected } from '../../shadow/endpoints.ts';
import { isControllers, isOwnedBy, isStranded } from '../../shadow/endpointslice.ts';
import { isMirror } from '../../shadow/mirroring.ts';
import { isListed } from '../../shadow/pod.ts';
import type { Release } from '../../shadow/release.ts';

export interface AuditContext {
  readonly listers: api.Listers;
  readonly release: Release;
  readonly maxEndpointsPerSlice: number;
}

interface PodKind extends PortGroup {
  /** `null` if Endpoints do not list the pods. */
  readonly portMap: api.PortMapKey | null;
  /** Endpoints must list the pod, but it has no node: the API server refuses the object. */
  readonly nodeless: boolean;
  /** The Node does not exist: slices leave the pod out, and every sync returns an error. */
  readonly stranded: boolean;
  pods: number;
}

/** How a slice relates to a Service: who writes it, or who wrote it before its labels changed. */
export type Role = 'controller' | 'mirror' | 'foreign' | 'unmanaged' | 'unmanaged mirror';

/** The cached state of one Service, or of a name that only Endpoints or slices use. */
export type ServiceState = ReturnType<typeof createServiceState>;

export interface ServiceCache {
  readonly context: AuditContext;
  get(key: api.Key): ServiceState | undefined;
  getOrCreate(key: api.Key): ServiceState;
  /** Services with topology-mode Auto, which any Node may affect. */
  readonly autoHinted: Set<ServiceState>;
  /** Services that have slices of other managers, which may refer to any pod. */
  readonly foreign: Set<ServiceState>;
  /** Services without a selector whose controllers' outputs still exist, with their addresses. */
  readonly leftBehind: Map<ServiceState, ReadonlySet<string>>;
}

// Shared, since most Services have none.
const none: readonly never[] = [];
const noUids: ReadonlySet<string> = new Set();

export function createServiceState(key: api.Key) {
  const slash = key.indexOf('/');
  return {
    key,
    namespace: key.slice(0, slash),
    name: key.slice(slash + 1),
    service: null as api.Service | null,
    endpoints: null as api.Endpoints | null,
    /** The selected pods by their keys; `podsOf` has their latest versions. */
    members: new Map<api.Key, PodKind>(),
    /** The kinds of the members: few, even for many pods. */
    kinds: none as readonly PodKind[],
    /** The truncation of the Endpoints; `null` if they fit, `undefined` until it is computed. */
    truncation: undefined as Truncation | null | undefined,
    /** In the order of their names. */
    slices: none as readonly api.EndpointSlice[],
    /** `slices` by their roles; `null` until it is computed. */
    roles: null as ReadonlyMap<Role | null, readonly api.EndpointSlice[]> | null,
    /** The uids of the controller's slices that lost the labels of this Service. */
    relabelled: noUids,
    /** The same for mirrored slices. */
    relabelledMirrors: noUids,
    /** When an event last woke the controllers of its pods, and when its slices last changed. */
    wokenAt: -Infinity,
    slicesChangedAt: -Infinity,
  };
}

/** Whether a member is of a kind that hinders a controller. */
export const hasKind = ({ kinds }: ServiceState, property: 'nodeless' | 'stranded'): boolean =>
  kinds.some((kind) => kind[property]);

export const isEmpty = ({ service, endpoints, slices }: ServiceState): boolean =>
  service === null && endpoints === null && slices.length === 0;

/** The Node of a pod; `null` if it does not exist, `undefined` if the input has no Nodes. */
export const nodeOf = (listers: api.Listers, pod: api.Pod): api.Node | null | undefined =>
  listers.knows('nodes') ? (listers.nodes.get(pod.node) ?? null) : undefined;

/** Whether the Service selects a pod of the listers. */
export function isMember({ service }: ServiceState, pod: api.Pod): boolean {
  if (service?.namespace !== pod.namespace || !isSelected(service)) return false;
  return selects(service.selector, pod.labels);
}

function findKind(
  { listers, release }: AuditContext,
  record: ServiceState,
  pod: api.Pod,
  service: api.Service,
): PodKind {
  const address = expectedAddress(service, pod, release);
  const node = nodeOf(listers, pod);
  const { portMap = null, ports = none, ready = false } = address ?? {};
  const nodeless = address !== null && pod.node === '';
  const stranded = isStranded(service, node) && isListed(pod, true);
  const known = record.kinds.find(
    (kind) =>
      kind.portMap === portMap &&
      kind.ready === ready &&
      kind.nodeless === nodeless &&
      kind.stranded === stranded,
  );
  if (known !== undefined) return known;
  const kind = { portMap, ports, ready, nodeless, stranded, pods: 0 };
  record.kinds = record.kinds.concat(kind);
  return kind;
}

function count(record: ServiceState, kind: PodKind, by: 1 | -1): void {
  record.truncation = undefined;
  kind.pods += by;
  if (kind.pods === 0) record.kinds = record.kinds.filter((other) => other !== kind);
}

/** Adds a pod of the listers to the members if the Service selects it. */
export function addMember(context: AuditContext, record: ServiceState, pod: api.Pod): void {
  const { service } = record;
  if (service === null || !isMember(record, pod)) return;
  const kind = findKind(context, record, pod, service);
  record.members.set(pod.key, kind);
  count(record, kind, 1);
}

/** Removes a pod from the members if it is one. */
export function removeMember(record: ServiceState, { key }: api.Pod): void {
  const kind = record.members.get(key);
  if (kind !== undefined) count(record, kind, -1);
  record.members.delete(key);
}

/** The pods that a Service selects. */
export const podsOf = (
  { pods }: api.Listers,
  { members }: Pick<ServiceState, 'members'>,
): Generator<api.Pod, void> => valuesOf(pods, members.keys());

/** Replaces the Service, `null` if it is gone; `pods` are those that it may select. */
export function setService(
  context: AuditContext,
  record: ServiceState,
  service: api.Service | null,
  pods: Iterable<api.Pod>,
): void {
  record.service = service;
  record.roles = null;
  record.members.clear();
  record.kinds = none;
  record.truncation = undefined;
  for (const pod of pods) addMember(context, record, pod);
}

/** Replaces the slice of a key, `null` if it is gone or names another Service. */
export function setSlice(
  record: ServiceState,
  key: api.Key,
  slice: api.EndpointSlice | null,
): void {
  const { slices, roles } = record;
  const index = slices.findIndex((other) => other.key === key);
  const before = slices[index];
  if (slice !== null && before !== undefined) record.slices = slices.with(index, slice);
  else if (slice === null) record.slices = slices.filter((other) => other.key !== key);
  else record.slices = [...slices, slice].sort((a, b) => (a.name < b.name ? -1 : 1));
  // Most changes concern only the endpoints of one of many slices of one role.
  const [role] = roles?.size === 1 ? roles.keys() : [];
  const isKept = role !== undefined && slice !== null && isOfSameRole(before, slice);
  record.roles = isKept ? new Map([[role, record.slices]]) : null;
}

/** Whether two versions of a slice have the same role. */
export const isOfSameRole = (a: api.EndpointSlice | undefined, b: api.EndpointSlice): boolean =>
  a?.deleting === b.deleting && equalLabels(a.labels, b.labels) && equalOwners(a.owners, b.owners);

/** Unmanaged are slices of this Service that are labelled for another one; `null` if unrelated. */
export function roleOf(
  listers: api.Listers,
  record: ServiceState,
  slice: api.EndpointSlice,
): Role | null {
  const { service, endpoints } = record;
  if (slice.labels[label.serviceName] === record.name) {
    if (!isControllers(slice)) return isMirror(slice) ? 'mirror' : 'foreign';
    // The controller ignores slices that are pending deletion, and writes others in their place.
    if (slice.deleting) return null;
    const owner = slice.owners.find(({ kind }) => kind === 'Service');
    if (service !== null && owner?.uid === service.uid) return 'controller';
    const other = listers.services.get(`${slice.namespace}/${owner?.name ?? ''}`);
    const isOthers = other !== undefined && other !== service && other.uid === owner?.uid;
    return isOthers ? null : 'controller';
  }
  if (isControllers(slice) && service !== null && isOwnedBy(slice, service)) return 'unmanaged';
  const mirrored =
    isMirror(slice) &&
    slice.owners.some(({ uid, name }) => uid === endpoints?.uid && name === endpoints.name);
  return mirrored ? 'unmanaged mirror' : null;
}

/** The slices of one role, in the order of their names. */
export function slicesOf(listers: api.Listers, record: ServiceState, role: Role) {
  if (record.slices.length === 0) return none;
  if (record.roles === null) {
    const { slices } = record;
    const roles = Map.groupBy(slices, (slice) => roleOf(listers, record, slice));
    // Nearly always all slices have one role: the map then shares their list.
    record.roles = roles.size > 1 ? roles : new Map([...roles.keys()].map((key) => [key, slices]));
  }
  return record.roles.get(role) ?? none;
}

/** Seconds within which the controller may not yet have seen its own write. */
const cacheLag = 2;

/**
 * Whether the last sync may have found a cache older than its own write. Then it is retried, and
 * after many syncs that failed for a pod without a Node, only after up to 1,000 s.
 */
export const isRetried = (record: ServiceState): boolean =>
  Math.abs(record.slicesChangedAt - record.wokenAt) <= cacheLag && hasKind(record, 'stranded');

/** Whether labels took a slice away from the controller, so that its syncs return an error. */
export function isWedged(listers: api.Listers, record: ServiceState): boolean {
  if (record.service === null) return false;
  return record.relabelled.size > 0 || slicesOf(listers, record, 'unmanaged').length > 0;
}

export const isWrittenByController = ({ labels }: api.Endpoints): boolean =>
  labels[label.endpointsManagedBy] === manager.endpoints;

/** Fills an empty cache with all objects of the listers, in small steps. */
export function* loadCache(cache: ServiceCache): Steps {
  const { context } = cache;
  const { listers } = context;
  for (const service of listers.services.values()) {
    // The loop over all pods below adds the members of all Services in one pass.
    setService(context, cache.getOrCreate(service.key), service, []);
    yield;
  }
  for (const pod of listers.pods.values()) {
    for (const { key } of listers.servicesSelecting(pod.namespace, pod.labels)) {
      addMember(context, cache.getOrCreate(key), pod);
    }
    yield;
  }
  for (const endpoints of listers.endpoints.values()) {
    cache.getOrCreate(endpoints.key).endpoints = endpoints;
    yield;
  }
  for (const slice of listers.slices.values()) {
    for (const key of keysNamed(slice)) setSlice(cache.getOrCreate(key), slice.key, slice);
    yield;
  }
}

const updaters: {
  readonly [R in api.Resource]: (cache: ServiceCache, change: api.Change<R>) => void;
} = {
  pods: updatePod,
  nodes: updateNode,
  services: updateService,
  endpoints: (cache, { before, after }) => {
    const record = cache.getOrCreate((after ?? before)?.key ?? '');
    record.endpoints = after;
    record.roles = null;
  },
  endpointslices: updateSlice,
};

/** Writes one change, which the listers already contain, to the cache. */
export function updateCache(cache: ServiceCache, change: api.Change): void {
  updaters[change.resource](cache, change as never);
}

/** The keys of the Services that select a pod. */
export function keysSelecting({ context }: ServiceCache, pod: api.Pod | null): Set<api.Key> {
  if (pod === null) return new Set();
  const services = context.listers.servicesSelecting(pod.namespace, pod.labels);
  return new Set(services.map(({ key }) => key));
}

/** Whether two versions of a pod are in the same state, and selected by the same Services. */
export const isInSameState = (a: api.Pod, b: api.Pod): boolean =>
  a.uid === b.uid &&
  a.ready === b.ready &&
  a.terminal === b.terminal &&
  a.deleting === b.deleting &&
  equalTexts(a.ips, b.ips) &&
  equalLabels(a.labels, b.labels);

/** Whether two versions of a pod are the same to every controller. */
export const isSamePod = (a: api.Pod, b: api.Pod): boolean =>
  a.node === b.node &&
  a.hostname === b.hostname &&
  a.subdomain === b.subdomain &&
  a.ports === b.ports &&
  isInSameState(a, b);

function updatePod(cache: ServiceCache, { before, after }: api.Change<'pods'>): void {
  // Most events of a pod change nothing that a controller reads.
  if (before !== null && after !== null && isSamePod(before, after)) return;
  const keys = keysSelecting(cache, after);
  for (const key of keysSelecting(cache, before)) keys.add(key);
  for (const key of keys) {
    const record = cache.get(key);
    if (record === undefined) continue;
    if (before !== null) removeMember(record, before);
    if (after !== null) addMember(cache.context, record, after);
  }
}

function updateNode(cache: ServiceCache, { before, after }: api.Change<'nodes'>): void {
  if (before?.zone === after?.zone) return;
  for (const pod of cache.context.listers.podsOn((after ?? before)?.name ?? '')) {
    for (const key of keysSelecting(cache, pod)) {
      const record = cache.get(key);
      if (record === undefined) continue;
      removeMember(record, pod);
      addMember(cache.context, record, pod);
    }
  }
}

function updateService(cache: ServiceCache, { before, after }: api.Change<'services'>): void {
  const service = after ?? before;
  if (service === null) return;
  const record = cache.getOrCreate(service.key);
  setService(cache.context, record, after, cache.context.listers.podsIn(service.namespace));
  if (before?.uid === after?.uid) return;
  // The slice trackers forget a Service that is gone: a new one of its name is not wedged.
  record.relabelled = new Set();
  record.relabelledMirrors = new Set();
  // Slices that name another Service may be owned by this one, which decides their role.
  for (const slice of record.slices) {
    for (const key of keysNamed(slice)) cache.getOrCreate(key).roles = null;
  }
}

/** The keys of the Services that a slice names by its label or, also as Endpoints, as owners. */
export function keysNamed(slice: api.EndpointSlice | null): Set<api.Key> {
  if (slice === null) return new Set();
  const name = slice.labels[label.serviceName] ?? '';
  const owners = slice.owners.filter(({ kind }) => kind === 'Service' || kind === 'Endpoints');
  const names = [...(name === '' ? [] : [name]), ...owners.map((owner) => owner.name)];
  return new Set(names.map((service) => `${slice.namespace}/${service}`));
}

function updateSlice(cache: ServiceCache, { before, after }: api.Change<'endpointslices'>): void {
  const key = (after ?? before)?.key ?? '';
  const named = keysNamed(after);
  for (const service of new Set([...keysNamed(before), ...named])) {
    const record = cache.getOrCreate(service);
    setSlice(record, key, named.has(service) ? after : null);
    if (after === null) continue;
    if (before?.uid !== after.uid) {
      // A controller that creates a slice is not refused its syncs, or no longer.
      if (isControllers(after)) record.relabelled = noUids;
      if (isMirror(after)) record.relabelledMirrors = noUids;
      continue;
    }
    // Adds the uid of a slice whose labels took it away from a controller, or removes it again.
    const track = (uids: ReadonlySet<string>, isTheirs: typeof isMirror): ReadonlySet<string> => {
      const isOurs = (slice: api.EndpointSlice): boolean =>
        isTheirs(slice) && slice.labels[label.serviceName] === record.name;
      if (!isOurs(after)) return isOurs(before) ? new Set(uids).add(after.uid) : uids;
      return uids.has(after.uid) ? new Set([...uids].filter((uid) => uid !== after.uid)) : uids;
    };
    record.relabelled = track(record.relabelled, isControllers);
    record.relabelledMirrors = track(record.relabelledMirrors, isMirror);
  }
}
