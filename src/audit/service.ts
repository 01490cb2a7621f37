// One Service under audit: what is expected of it, held per pod, and the judgement of each unit.
//
// A unit is the smallest thing that can be judged by itself: one address in the Endpoints, one
// address in the slices, one slice as a whole, or what is true of an output altogether. An event
// touches a few units, so its cost does not grow with the number of pods; judging every unit of a
// record is the same as judging the Service from nothing, and a test holds the two against each
// other. What is kept between events is derived from the snapshot and can be rebuilt at any time.

import { canonicalIP } from '../model/ip.ts';
import type {
  AddressType,
  Endpoints,
  EndpointSlice,
  Key,
  Node,
  Pod,
  PortMapKey,
  Service,
  Snapshot,
} from '../model/objects.ts';
import { label, manager } from '../model/objects.ts';
import { selects } from '../model/selector.ts';
import type { PortGroup } from '../shadow/endpoints.ts';
import { expectedAddress, isSelected } from '../shadow/endpoints.ts';
import { expectedEndpoints, isControllers, isOwnedBy } from '../shadow/endpointslice.ts';
import { isMirror } from '../shadow/mirroring.ts';
import { isListed } from '../shadow/pod.ts';
import type { Release } from '../shadow/release.ts';
import type { ListedAddress } from './compare.ts';

/** What judging needs besides the record. */
export interface Context {
  readonly snapshot: Snapshot;
  readonly release: Release;
  readonly maxEndpointsPerSlice: number;
}

/** What one pod adds to the expected totals of a Service; equal ones are one object. */
interface Contribution {
  readonly portMap: PortMapKey | null;
  readonly ports: PortGroup['ports'];
  readonly ready: boolean;
  /** It must be listed in Endpoints, but has no node: the API server refuses the object. */
  readonly nodeless: boolean;
  /**
   * Its Node does not exist, so the slices leave it out and every sync of them ends in an error.
   */
  readonly stranded: boolean;
  readonly types: readonly AddressType[];
}

/** How a slice relates to a Service. */
export type Role = 'controller' | 'mirror' | 'foreign' | 'strayed' | 'strayed mirror';

export interface ServiceRecord {
  readonly key: Key;
  readonly namespace: string;
  readonly name: string;
  service: Service | null;
  endpoints: Endpoints | null;
  /** The selected pods and what each adds. */
  readonly members: Map<Key, Contribution>;
  /** Pods listed in Endpoints, counted by their resolved ports. */
  readonly groups: Map<PortMapKey, PortGroup>;
  /** Endpoints expected in slices, by address type. */
  readonly expectedCounts: Map<AddressType, number>;
  nodeless: number;
  stranded: number;
  /** The Endpoints, address by address. */
  listed: ReadonlyMap<string, readonly ListedAddress[]>;
  readonly slices: Set<EndpointSlice>;
  /** The slices by role, in the order of their names; null: to be found again. */
  roles: ReadonlyMap<Role, readonly EndpointSlice[]> | null;
  /** Slices of this Service by the addresses they list. */
  readonly slicesAt: Map<string, EndpointSlice | EndpointSlice[]>;
  /** uids of slices that were the controller's and lost the labels that say so. */
  readonly relabelled: Set<string>;
  /** The same of mirrored slices. */
  readonly relabelledMirrors: Set<string>;
}

export function createRecord(key: Key): ServiceRecord {
  const slash = key.indexOf('/');
  return {
    key,
    namespace: key.slice(0, slash),
    name: key.slice(slash + 1),
    service: null,
    endpoints: null,
    members: new Map(),
    groups: new Map(),
    expectedCounts: new Map(),
    nodeless: 0,
    stranded: 0,
    listed: new Map(),
    slices: new Set(),
    roles: null,
    slicesAt: new Map(),
    relabelled: new Set(),
    relabelledMirrors: new Set(),
  };
}

/** Nothing is left that could be judged or that would be found again. */
export function isEmpty(record: ServiceRecord): boolean {
  return record.service === null && record.endpoints === null && record.slices.size === 0;
}

const contributions = new Map<string, Contribution>();
const contributionLimit = 10_000;

function interned(contribution: Contribution): Contribution {
  const { portMap, ready, nodeless, stranded, types } = contribution;
  const flags = `${String(ready)} ${String(nodeless)} ${String(stranded)}`;
  const key = `${String(portMap)} ${flags} ${types.join()}`;
  const known = contributions.get(key);
  if (known !== undefined) return known;
  if (contributions.size >= contributionLimit) contributions.clear();
  contributions.set(key, contribution);
  return contribution;
}

/** The Node of a pod: null when it does not exist, undefined when Nodes are not known. */
export function nodeOf(snapshot: Snapshot, pod: Pod): Node | null | undefined {
  if (!snapshot.knows('nodes')) return undefined;
  return snapshot.nodes.get(pod.node) ?? null;
}

/** The pods at an address, in an order that does not depend on which came first. */
export function podsInOrder(snapshot: Snapshot, address: string): readonly Pod[] {
  const pods = snapshot.podsAt(address);
  return pods.length < 2 ? pods : [...pods].sort((a, b) => (a.uid < b.uid ? -1 : 1));
}

function contributionOf(context: Context, service: Service, pod: Pod): Contribution {
  const address = expectedAddress(service, pod, context.release);
  const node = nodeOf(context.snapshot, pod);
  const endpoints = expectedEndpoints(service, pod, node, context.release);
  return interned({
    portMap: address?.portMap ?? null,
    ports: address?.ports ?? [],
    ready: address?.ready ?? false,
    nodeless: address !== null && pod.node === '',
    stranded: node === null && !service.publishNotReadyAddresses && isListed(pod, true),
    types: endpoints.map(({ addressType }) => addressType),
  });
}

function count(record: ServiceRecord, contribution: Contribution, by: 1 | -1): void {
  const { portMap, ports, ready, nodeless, stranded, types } = contribution;
  if (portMap !== null) {
    let group = record.groups.get(portMap);
    if (group === undefined) record.groups.set(portMap, (group = { ports, ready: 0, notReady: 0 }));
    if (ready) group.ready += by;
    else group.notReady += by;
    if (group.ready + group.notReady === 0) record.groups.delete(portMap);
  }
  if (nodeless) record.nodeless += by;
  if (stranded) record.stranded += by;
  for (const type of types) {
    record.expectedCounts.set(type, (record.expectedCounts.get(type) ?? 0) + by);
  }
}

/** Counts a pod of the snapshot in, anew or out, as the Service's selector says now. */
export function countPod(context: Context, record: ServiceRecord, key: Key): void {
  const before = record.members.get(key);
  if (before !== undefined) {
    record.members.delete(key);
    count(record, before, -1);
  }
  const { service } = record;
  const pod = context.snapshot.pods.get(key);
  if (pod === undefined || service === null || !isSelected(service)) return;
  if (!selects(service.selector, pod.labels)) return;
  const contribution = contributionOf(context, service, pod);
  record.members.set(key, contribution);
  count(record, contribution, 1);
}

/** Takes in a new version of the Service, null when it is gone; `pods` are those it may select. */
export function setService(
  context: Context,
  record: ServiceRecord,
  service: Service | null,
  pods: Iterable<Pod>,
): void {
  record.service = service;
  record.roles = null;
  record.members.clear();
  record.groups.clear();
  record.expectedCounts.clear();
  record.nodeless = 0;
  record.stranded = 0;
  if (service !== null) for (const pod of pods) countPod(context, record, pod.key);
}

/** Takes in a new version of the Endpoints; returns the addresses at which it differs. */
export function setEndpoints(record: ServiceRecord, endpoints: Endpoints | null): Set<string> {
  const before = record.listed;
  record.endpoints = endpoints;
  record.roles = null;
  record.listed = endpoints === null ? new Map() : listedAddresses(endpoints);
  const touched = new Set<string>();
  for (const [ip, listed] of record.listed) {
    if (!sameListed(before.get(ip), listed)) touched.add(ip);
  }
  for (const ip of before.keys()) if (!record.listed.has(ip)) touched.add(ip);
  return touched;
}

function sameListed(
  before: readonly ListedAddress[] | undefined,
  after: readonly ListedAddress[],
): boolean {
  if (before?.length !== after.length) return false;
  return after.every((now, index) => {
    const was = before[index];
    if (was?.ready !== now.ready || was.ports.length !== now.ports.length) return false;
    const [a, b] = [was.address, now.address];
    if (a.node !== b.node || a.hostname !== b.hostname) return false;
    if (a.target?.uid !== b.target?.uid || a.target?.name !== b.target?.name) return false;
    return JSON.stringify(was.ports) === JSON.stringify(now.ports);
  });
}

/** The Endpoints address by address, in canonical form; one entry per pod at the address. */
function listedAddresses(endpoints: Endpoints): Map<string, ListedAddress[]> {
  const listed = new Map<string, ListedAddress[]>();
  for (const subset of endpoints.subsets) {
    for (const address of subset.addresses) {
      const ip = canonicalIP(address.ip);
      const there = listed.get(ip);
      const known = there?.find((one) => one.address.target?.uid === address.target?.uid);
      if (known !== undefined) {
        known.ports.push(...subset.ports);
        known.ready &&= address.ready;
      } else {
        const entry = { address, ports: [...subset.ports], ready: address.ready };
        if (there === undefined) listed.set(ip, [entry]);
        else there.push(entry);
      }
    }
  }
  return listed;
}

/** The addresses that a slice lists, each once. */
export function addressesIn(slice: EndpointSlice): Set<string> {
  const addresses = new Set<string>();
  for (const endpoint of slice.endpoints) {
    for (const address of endpoint.addresses) addresses.add(canonicalIP(address));
  }
  return addresses;
}

export function addSlice(record: ServiceRecord, slice: EndpointSlice): void {
  record.slices.add(slice);
  record.roles = null;
  for (const address of addressesIn(slice)) {
    const there = record.slicesAt.get(address);
    if (there === undefined) record.slicesAt.set(address, slice);
    else record.slicesAt.set(address, Array.isArray(there) ? [...there, slice] : [there, slice]);
  }
}

export function removeSlice(record: ServiceRecord, slice: EndpointSlice): void {
  if (!record.slices.delete(slice)) return;
  record.roles = null;
  for (const address of addressesIn(slice)) {
    const there = record.slicesAt.get(address);
    const left = Array.isArray(there) ? there.filter((other) => other !== slice) : [];
    const only = left[0];
    if (only === undefined) record.slicesAt.delete(address);
    else record.slicesAt.set(address, left.length === 1 ? only : left);
  }
}

const noSlices: readonly EndpointSlice[] = [];

export function slicesAt(record: ServiceRecord, address: string): readonly EndpointSlice[] {
  const there = record.slicesAt.get(address);
  return there === undefined ? noSlices : Array.isArray(there) ? there : [there];
}

/**
 * What a slice is to the Service: the controller's or the mirror's, somebody else's, or one that
 * was theirs by its owner but names another Service now; null: it is not this Service's business.
 */
export function roleOf(
  snapshot: Snapshot,
  record: ServiceRecord,
  slice: EndpointSlice,
): Role | null {
  const { service, endpoints } = record;
  if (slice.labels[label.serviceName] === record.name) {
    if (!isControllers(slice)) return isMirror(slice) ? 'mirror' : 'foreign';
    // The controller drops slices that are pending deletion, and writes others in their place.
    if (slice.deleting) return null;
    const owner = slice.owners.find(({ kind }) => kind === 'Service');
    const other = snapshot.services.get(`${slice.namespace}/${owner?.name ?? ''}`);
    const strayed = other !== undefined && other !== service && other.uid === owner?.uid;
    return strayed ? null : 'controller';
  }
  if (isControllers(slice) && service !== null && isOwnedBy(slice, service)) return 'strayed';
  const mirrored = isMirror(slice) && slice.owners.some(({ uid }) => uid === endpoints?.uid);
  return mirrored ? 'strayed mirror' : null;
}

const noRole: readonly EndpointSlice[] = [];

/** The slices of one role, in the order of their names. */
export function slicesOf(
  snapshot: Snapshot,
  record: ServiceRecord,
  role: Role,
): readonly EndpointSlice[] {
  if (record.roles === null) {
    const roles = new Map<Role, EndpointSlice[]>();
    for (const slice of [...record.slices].sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const has = roleOf(snapshot, record, slice);
      if (has === null) continue;
      const there = roles.get(has);
      if (there === undefined) roles.set(has, [slice]);
      else there.push(slice);
    }
    record.roles = roles;
  }
  return record.roles.get(role) ?? noRole;
}

/** Whether somebody took a slice from the controller by its labels, so that it syncs no more. */
export function isWedged(snapshot: Snapshot, record: ServiceRecord): boolean {
  const { service } = record;
  if (service === null) return false;
  if (record.relabelled.size > 0) return true;
  return slicesOf(snapshot, record, 'strayed').length > 0;
}

/** Whether the Endpoints were written by the endpoints controller, as far as they say so. */
export function isWrittenByController(endpoints: Endpoints): boolean {
  return endpoints.labels[label.endpointsManagedBy] === manager.endpoints;
}
