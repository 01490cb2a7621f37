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
  Endpoint,
  Endpoints,
  EndpointSlice,
  Key,
  Node,
  ObjectRef,
  Port,
  Pod,
  PortMapKey,
  Service,
  Snapshot,
} from '../model/objects.ts';
import { label, manager } from '../model/objects.ts';
import { selects } from '../model/selector.ts';
import type { PortGroup, Truncation } from '../shadow/endpoints.ts';
import { expectedAddress, isSelected } from '../shadow/endpoints.ts';
import { expectedTypes, isControllers, isOwnedBy, isStranded } from '../shadow/endpointslice.ts';
import { isMirror } from '../shadow/mirroring.ts';
import { isListed } from '../shadow/pod.ts';
import type { Release } from '../shadow/release.ts';
import type { ListedAddress, SlicedEndpoint } from './compare.ts';

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
  /** Whether somebody else wrote the Endpoints last; null: not looked at yet. */
  handWritten: boolean | null;
  /** The selected pods and what each adds. */
  readonly members: Map<Key, Contribution>;
  /** Pods listed in Endpoints, counted by their resolved ports. */
  readonly groups: Map<PortMapKey, PortGroup>;
  /** Endpoints expected in slices, by address type. */
  readonly expectedCounts: Map<AddressType, number>;
  /** How the Endpoints must be truncated; undefined: to be computed. */
  truncation: Truncation | null | undefined;
  nodeless: number;
  stranded: number;
  /** The Endpoints, address by address. */
  listed: ReadonlyMap<string, ListedAddress | readonly ListedAddress[]>;
  readonly slices: Map<Key, EndpointSlice>;
  /** The slices by role, in the order of their names; null: to be found again. */
  roles: ReadonlyMap<Role, readonly EndpointSlice[]> | null;
  /** While all addresses are judged: what slices say at each. */
  entries: Map<string, SlicedEndpoint[]> | null;
  /** Slices of this Service by the addresses they list. */
  readonly slicesAt: Map<string, Key | Key[]>;
  /** uids of slices that were the controller's and lost the labels that say so. */
  relabelled: ReadonlySet<string>;
  /** The same of mirrored slices. */
  relabelledMirrors: ReadonlySet<string>;
}

const noRelabelled: ReadonlySet<string> = new Set();

export function createRecord(key: Key): ServiceRecord {
  const slash = key.indexOf('/');
  return {
    key,
    namespace: key.slice(0, slash),
    name: key.slice(slash + 1),
    service: null,
    endpoints: null,
    handWritten: null,
    members: new Map(),
    groups: new Map(),
    expectedCounts: new Map(),
    truncation: undefined,
    nodeless: 0,
    stranded: 0,
    listed: new Map(),
    slices: new Map(),
    roles: null,
    entries: null,
    slicesAt: new Map(),
    relabelled: noRelabelled,
    relabelledMirrors: noRelabelled,
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
  return interned({
    portMap: address?.portMap ?? null,
    ports: address?.ports ?? [],
    ready: address?.ready ?? false,
    nodeless: address !== null && pod.node === '',
    stranded: isStranded(service, node) && isListed(pod, true),
    types: expectedTypes(service, pod, node),
  });
}

function count(record: ServiceRecord, contribution: Contribution, by: 1 | -1): void {
  const { portMap, ports, ready, nodeless, stranded, types } = contribution;
  record.truncation = undefined;
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
  const pod = context.snapshot.pods.get(key);
  if (pod === undefined || !selects(record.service?.selector ?? null, pod.labels)) return;
  addPod(context, record, pod);
}

/** Counts a selected pod in. */
export function addPod(context: Context, record: ServiceRecord, pod: Pod): void {
  const { service } = record;
  if (service === null || !isSelected(service)) return;
  const { key } = pod;
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
  record.truncation = undefined;
  record.expectedCounts.clear();
  record.nodeless = 0;
  record.stranded = 0;
  if (service !== null) for (const pod of pods) countPod(context, record, pod.key);
}

const noneListed: readonly ListedAddress[] = [];

const asList = (
  there: ListedAddress | readonly ListedAddress[] | undefined,
): readonly ListedAddress[] => (there === undefined ? noneListed : 'ip' in there ? [there] : there);

export function listedAt(record: ServiceRecord, ip: string): readonly ListedAddress[] {
  return asList(record.listed.get(ip));
}

/** Takes in a new version of the Endpoints; returns the addresses at which it differs. */
export function setEndpoints(record: ServiceRecord, endpoints: Endpoints | null): Set<string> {
  const before = record.listed;
  record.endpoints = endpoints;
  record.roles = null;
  record.handWritten = null;
  record.listed = endpoints === null ? new Map() : listedAddresses(endpoints);
  const touched = new Set<string>();
  for (const [ip, listed] of record.listed) {
    if (!sameListed(before.get(ip), listed)) touched.add(ip);
  }
  for (const ip of before.keys()) if (!record.listed.has(ip)) touched.add(ip);
  return touched;
}

type Listed = ListedAddress | readonly ListedAddress[];

function sameListed(before: Listed | undefined, after: Listed): boolean {
  if (before !== undefined && 'ip' in before && 'ip' in after) return sameAddress(before, after);
  const [was, now] = [asList(before), asList(after)];
  if (was.length !== now.length) return false;
  return now.every((one, index) => sameAddress(was[index], one));
}

function sameAddress(a: ListedAddress | undefined, b: ListedAddress): boolean {
  if (a === undefined) return false;
  return (
    a.ready === b.ready &&
    a.node === b.node &&
    a.hostname === b.hostname &&
    isSameTarget(a.target, b.target) &&
    (a.ports === b.ports || JSON.stringify(a.ports) === JSON.stringify(b.ports))
  );
}

const hasPort = (ports: readonly Port[], { port, protocol, name }: Port): boolean =>
  ports.some((one) => one.port === port && one.protocol === protocol && one.name === name);

/** The Endpoints address by address, in canonical form; one entry per pod at the address. */
function listedAddresses(endpoints: Endpoints): Map<string, Listed> {
  const listed = new Map<string, Listed>();
  for (const subset of endpoints.subsets) {
    for (const address of subset.addresses) {
      const ip = canonicalIP(address.ip);
      const there = listed.get(ip);
      if (there === undefined) {
        listed.set(ip, address);
        continue;
      }
      const entries = asList(there);
      // Not ready trumps ready at one port; at two ports they are two entries, as repacking has it.
      const known = entries.find(
        (one) =>
          one.target?.uid === address.target?.uid &&
          (one.ready === address.ready || subset.ports.some((port) => hasPort(one.ports, port))),
      );
      const merged =
        known === undefined
          ? address
          : {
              ...known,
              ports: [...known.ports, ...subset.ports],
              ready: known.ready && address.ready,
            };
      const all =
        known === undefined ? [...entries, merged] : entries.with(entries.indexOf(known), merged);
      listed.set(ip, all.length === 1 ? merged : all);
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

function linkSlice({ slicesAt }: ServiceRecord, address: string, key: Key): void {
  const there = slicesAt.get(address);
  if (there === undefined) slicesAt.set(address, key);
  else slicesAt.set(address, Array.isArray(there) ? [...there, key] : [there, key]);
}

function unlinkSlice({ slicesAt }: ServiceRecord, address: string, key: Key): void {
  const there = slicesAt.get(address);
  const left = Array.isArray(there) ? there.filter((other) => other !== key) : [];
  const only = left[0];
  if (only === undefined) slicesAt.delete(address);
  else slicesAt.set(address, left.length === 1 ? only : left);
}

export function addSlice(record: ServiceRecord, slice: EndpointSlice): void {
  record.slices.set(slice.key, slice);
  record.roles = null;
  for (const address of addressesIn(slice)) linkSlice(record, address, slice.key);
}

export function removeSlice(record: ServiceRecord, slice: EndpointSlice): void {
  if (record.slices.get(slice.key) !== slice) return;
  record.slices.delete(slice.key);
  record.roles = null;
  for (const address of addressesIn(slice)) unlinkSlice(record, address, slice.key);
}

/** Endpoints from the first to the last at which two versions of a slice differ. */
export function differingEndpoints(
  before: EndpointSlice,
  after: EndpointSlice,
): [readonly Endpoint[], readonly Endpoint[]] {
  const [was, is] = [before.endpoints, after.endpoints];
  const most = Math.min(was.length, is.length);
  let head = 0;
  while (head < most && isSameEndpoint(was[head], is[head])) head++;
  let tail = 0;
  while (tail < most - head && isSameEndpoint(was.at(-1 - tail), is.at(-1 - tail))) tail++;
  return [was.slice(head, was.length - tail), is.slice(head, is.length - tail)];
}

const isSameList = (a: readonly string[] | null, b: readonly string[] | null): boolean =>
  a === b ||
  (a !== null && b !== null && a.length === b.length && a.every((one, at) => one === b[at]));

const isSameTarget = (a: ObjectRef | null, b: ObjectRef | null): boolean =>
  a?.uid === b?.uid && a?.name === b?.name && a?.namespace === b?.namespace && a?.kind === b?.kind;

/** Whether two endpoints say the same, without a look at more than is needed. */
function isSameEndpoint(a: Endpoint | undefined, b: Endpoint | undefined): boolean {
  if (a === undefined || b === undefined) return false;
  return (
    a.ready === b.ready &&
    a.serving === b.serving &&
    a.terminating === b.terminating &&
    a.node === b.node &&
    a.zone === b.zone &&
    a.hostname === b.hostname &&
    isSameTarget(a.target, b.target) &&
    isSameList(a.addresses, b.addresses) &&
    isSameList(a.forZones, b.forZones) &&
    isSameList(a.forNodes, b.forNodes)
  );
}

/** Takes in a new version of a slice; the cost is that of what differs. */
export function replaceSlice(
  record: ServiceRecord,
  before: EndpointSlice,
  after: EndpointSlice,
): void {
  record.slices.set(after.key, after);
  record.roles = null;
  const [was, is] = differingEndpoints(before, after);
  const gone = new Set(was.flatMap(({ addresses }) => addresses.map(canonicalIP)));
  const come = new Set(is.flatMap(({ addresses }) => addresses.map(canonicalIP)));
  if (gone.size === 0 && come.size === 0) return;
  const still = (address: string): boolean =>
    after.endpoints.some(({ addresses }) => addresses.some((one) => canonicalIP(one) === address));
  for (const address of gone) {
    if (!come.has(address) && !still(address)) unlinkSlice(record, address, after.key);
  }
  for (const address of come) {
    if (gone.has(address)) continue;
    const there = record.slicesAt.get(address);
    const known = Array.isArray(there) ? there.includes(after.key) : there === after.key;
    if (!known) linkSlice(record, address, after.key);
  }
}

/**
 * What the slices say at every address, for a judgement of all of them; the caller forgets it when
 * it is done.
 */
export function spreadSlices(record: ServiceRecord): void {
  const entries = new Map<string, SlicedEndpoint[]>();
  for (const slice of record.slices.values()) {
    for (const endpoint of slice.endpoints) {
      for (const address of endpoint.addresses) {
        const ip = canonicalIP(address);
        const there = entries.get(ip);
        if (there === undefined) entries.set(ip, [{ slice, endpoint }]);
        else if (there.at(-1)?.endpoint !== endpoint) there.push({ slice, endpoint });
      }
    }
  }
  record.entries = entries;
}

const noSlices: readonly EndpointSlice[] = [];

export function slicesAt(record: ServiceRecord, address: string): readonly EndpointSlice[] {
  const there = record.slicesAt.get(address);
  if (there === undefined) return noSlices;
  const keys = Array.isArray(there) ? there : [there];
  return keys.map((key) => record.slices.get(key)).filter((slice) => slice !== undefined);
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
    if (service !== null && owner?.uid === service.uid) return 'controller';
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
    for (const slice of [...record.slices.values()].sort((a, b) => (a.name < b.name ? -1 : 1))) {
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
