// The cached state of one Service: its objects, its selected pods with what the controllers expect
// of them, and its slices by role. All of it is derived from the listers and can be rebuilt;
// cache-update.ts keeps it up to date.

import { equalOwners } from '../../model/equality.ts';
import type {
  Endpoints,
  EndpointSlice,
  Key,
  Listers,
  Node,
  Pod,
  PortMapKey,
  Service,
} from '../../model/objects.ts';
import { label, manager } from '../../model/objects.ts';
import { equalLabels, selects } from '../../model/selector.ts';
import type { PortGroup, Truncation } from '../../shadow/endpoints.ts';
import { expectedAddress, isSelected } from '../../shadow/endpoints.ts';
import { isControllers, isOwnedBy, isStranded } from '../../shadow/endpointslice.ts';
import { isMirror } from '../../shadow/mirroring.ts';
import { isListed } from '../../shadow/pod.ts';
import type { Release } from '../../shadow/release.ts';

/** The objects of the cluster, and the parameters that the controllers were started with. */
export interface AuditContext {
  readonly listers: Listers;
  readonly release: Release;
  readonly maxEndpointsPerSlice: number;
}

/** What each pod of a kind adds to the expected outputs of a Service. */
export interface PodKind {
  readonly portMap: PortMapKey | null;
  readonly ports: PortGroup['ports'];
  readonly ready: boolean;
  /** Endpoints must list the pod, but it has no node: the API server refuses the object. */
  readonly nodeless: boolean;
  /** The Node does not exist: slices leave the pod out, and every sync returns an error. */
  readonly stranded: boolean;
  /** The number of pods of this kind. */
  pods: number;
}

/** How a slice relates to a Service: who writes it, or who wrote it before its labels changed. */
export type Role = 'controller' | 'mirror' | 'foreign' | 'unmanaged' | 'unmanaged mirror';

/** The cached state of one Service, or of a name that only Endpoints or slices use. */
export interface ServiceState {
  readonly key: Key;
  readonly namespace: string;
  readonly name: string;
  service: Service | null;
  endpoints: Endpoints | null;
  /** The selected pods, each with its kind. */
  readonly members: Map<Pod, PodKind>;
  /** The kinds of the members: few, even for many pods. */
  kinds: readonly PodKind[];
  /** The truncation of the Endpoints; `null` if they fit, `undefined` until it is computed. */
  truncation: Truncation | null | undefined;
  /** The numbers of members that are nodeless and stranded. */
  nodeless: number;
  stranded: number;
  /** In the order of their names. */
  slices: readonly EndpointSlice[];
  /** `slices` by their roles; `null` until it is computed. */
  roles: ReadonlyMap<Role | null, readonly EndpointSlice[]> | null;
  /** The uids of the controller's slices that lost the labels of this Service. */
  relabelled: ReadonlySet<string>;
  /** The same for mirrored slices. */
  relabelledMirrors: ReadonlySet<string>;
}

/** The cached states of all Services, and those that objects without their labels affect. */
export interface ServiceCache {
  readonly context: AuditContext;
  get(key: Key): ServiceState | undefined;
  getOrCreate(key: Key): ServiceState;
  /** Services with topology-mode Auto, which any Node may affect. */
  readonly autoHinted: Set<ServiceState>;
  /** Services that have slices of other managers, which may refer to any pod. */
  readonly foreign: Set<ServiceState>;
  /** Services without a selector whose controllers' outputs still exist, with their addresses. */
  readonly leftBehind: Map<ServiceState, ReadonlySet<string>>;
}

const noUids: ReadonlySet<string> = new Set();
const noKinds: readonly PodKind[] = [];
const noSlices: readonly EndpointSlice[] = [];

/** The empty state of a key. */
export function createServiceState(key: Key): ServiceState {
  const slash = key.indexOf('/');
  return {
    key,
    namespace: key.slice(0, slash),
    name: key.slice(slash + 1),
    service: null,
    endpoints: null,
    members: new Map(),
    kinds: noKinds,
    truncation: undefined,
    nodeless: 0,
    stranded: 0,
    slices: noSlices,
    roles: null,
    relabelled: noUids,
    relabelledMirrors: noUids,
  };
}

/** Whether no object of this name exists. */
export function isEmpty(record: ServiceState): boolean {
  return record.service === null && record.endpoints === null && record.slices.length === 0;
}

/** The Node of a pod; `null` if it does not exist, `undefined` if the input has no Nodes. */
export function nodeOf(listers: Listers, pod: Pod): Node | null | undefined {
  if (!listers.knows('nodes')) return undefined;
  return listers.nodes.get(pod.node) ?? null;
}

/** Whether the Service selects a pod of the listers. */
export function isMember({ service }: ServiceState, pod: Pod): boolean {
  if (service?.namespace !== pod.namespace || !isSelected(service)) return false;
  return selects(service.selector, pod.labels);
}

const noPorts: PodKind['ports'] = [];

/** The kind of this state that equals what a pod adds, or a new one. */
function findKind(
  { listers, release }: AuditContext,
  record: ServiceState,
  pod: Pod,
  service: Service,
): PodKind {
  const address = expectedAddress(service, pod, release);
  const node = nodeOf(listers, pod);
  const { portMap = null, ports = noPorts, ready = false } = address ?? {};
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
  if (kind.nodeless) record.nodeless += by;
  if (kind.stranded) record.stranded += by;
}

/** Adds a pod of the listers to the members if the Service selects it. */
export function addMember(context: AuditContext, record: ServiceState, pod: Pod): void {
  const { service } = record;
  if (service === null || !isMember(record, pod)) return;
  const kind = findKind(context, record, pod, service);
  record.members.set(pod, kind);
  count(record, kind, 1);
}

/** Removes a version of a pod from the members if it is one. */
export function removeMember(record: ServiceState, pod: Pod): void {
  const kind = record.members.get(pod);
  if (kind !== undefined) count(record, kind, -1);
  record.members.delete(pod);
}

/** Replaces the Service, `null` if it is gone; `pods` are those that it may select. */
export function setService(
  context: AuditContext,
  record: ServiceState,
  service: Service | null,
  pods: Iterable<Pod>,
): void {
  record.service = service;
  record.roles = null;
  record.members.clear();
  record.kinds = noKinds;
  record.truncation = undefined;
  record.nodeless = 0;
  record.stranded = 0;
  for (const pod of pods) addMember(context, record, pod);
}

/** Replaces the Endpoints, `null` if they are gone. */
export function setEndpoints(record: ServiceState, endpoints: Endpoints | null): void {
  record.endpoints = endpoints;
  record.roles = null;
}

/** Replaces the slice of a key, `null` if it is gone or names another Service. */
export function setSlice(record: ServiceState, key: Key, slice: EndpointSlice | null): void {
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
export const isOfSameRole = (a: EndpointSlice | undefined, b: EndpointSlice): boolean =>
  a?.deleting === b.deleting && equalLabels(a.labels, b.labels) && equalOwners(a.owners, b.owners);

/** The pods listed in Endpoints, counted by their resolved ports. */
export function portGroups({ kinds }: ServiceState): PortGroup[] {
  const listed = kinds.filter(({ portMap }) => portMap !== null);
  return listed.map(({ ports, ready, pods }) => ({
    ports,
    ready: ready ? pods : 0,
    notReady: ready ? 0 : pods,
  }));
}

/**
 * The role of a slice: of the controller, of the mirroring controller, of another manager, or
 * unmanaged: owned by this Service but labelled for another one. `null` if it is none of these.
 */
export function roleOf(listers: Listers, record: ServiceState, slice: EndpointSlice): Role | null {
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
export function slicesOf(
  listers: Listers,
  record: ServiceState,
  role: Role,
): readonly EndpointSlice[] {
  if (record.slices.length === 0) return noSlices;
  record.roles ??= groupByRole(listers, record);
  return record.roles.get(role) ?? noSlices;
}

function groupByRole(listers: Listers, record: ServiceState): NonNullable<ServiceState['roles']> {
  const { slices } = record;
  const roles = Map.groupBy(slices, (slice) => roleOf(listers, record, slice));
  // Nearly always all slices have one role: the map then shares their list.
  return roles.size > 1 ? roles : new Map([...roles.keys()].map((role) => [role, slices]));
}

/** Whether labels took a slice away from the controller, so that its syncs return an error. */
export function isWedged(listers: Listers, record: ServiceState): boolean {
  if (record.service === null) return false;
  return record.relabelled.size > 0 || slicesOf(listers, record, 'unmanaged').length > 0;
}

/** Whether the label managed-by names the endpoints controller. */
export function isWrittenByController(endpoints: Endpoints): boolean {
  return endpoints.labels[label.endpointsManagedBy] === manager.endpoints;
}
