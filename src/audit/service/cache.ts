// One Service under audit: what is expected of it, held per pod, and the judgement of each unit.
//
// A unit is the smallest thing that can be judged by itself: one address in the Endpoints, one
// address in the slices, one slice as a whole, or what is true of an output altogether. An event
// touches a few units, so its cost does not grow with the number of pods; judging every unit of a
// record is the same as judging the Service from nothing, and a test holds the two against each
// other. What is kept between events is derived from the snapshot and can be rebuilt at any time.

import { equalEndpoints, equalTexts } from '../../model/equality.ts';
import { canonicalIP } from '../../model/ip.ts';
import type {
  AddressType,
  Endpoint,
  Endpoints,
  EndpointSlice,
  Key,
  Node,
  Pod,
  PortMapKey,
  Service,
  Listers,
} from '../../model/objects.ts';
import { label, manager } from '../../model/objects.ts';
import { equalLabels, selects } from '../../model/selector.ts';
import type { PortGroup, Truncation } from '../../shadow/endpoints.ts';
import { expectedAddress, isSelected } from '../../shadow/endpoints.ts';
import { expectedTypes, isControllers, isOwnedBy, isStranded } from '../../shadow/endpointslice.ts';
import { isMirror } from '../../shadow/mirroring.ts';
import { isListed } from '../../shadow/pod.ts';
import type { Release } from '../../shadow/release.ts';
import type { ListedAddress, SlicedEndpoint } from './compare.ts';

/** What judging needs besides the record. */
export interface AuditContext {
  readonly listers: Listers;
  readonly release: Release;
  readonly maxEndpointsPerSlice: number;
}

/** What pods of one kind add to the expected totals of a Service. */
interface Kind {
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
  /** How many they are. */
  pods: number;
}

/** How a slice relates to a Service. */
export type Role = 'controller' | 'mirror' | 'foreign' | 'strayed' | 'strayed mirror';

/** Slices by role, in the order of their names. */
type Roles = Readonly<Record<Role, readonly EndpointSlice[]>>;

/** What slices of one role say, by address. */
type Entries = ReadonlyMap<string, readonly SlicedEndpoint[]>;

export interface ServiceState {
  readonly key: Key;
  readonly namespace: string;
  readonly name: string;
  service: Service | null;
  endpoints: Endpoints | null;
  /** Whether somebody else wrote the Endpoints last; null: not looked at yet. */
  handWritten: boolean | null;
  /** The selected pods, in no order, and the kind that each is of. */
  members: Pod[];
  memberKinds: Kind[];
  /** Few, however many pods. */
  kinds: readonly Kind[];
  /** How the Endpoints must be truncated; undefined: to be computed. */
  truncation: Truncation | null | undefined;
  nodeless: number;
  stranded: number;
  /** The Endpoints by address; null: no index is kept of these few, or it is to be made. */
  listed: AddressIndex | null;
  /** In the order of their names. */
  slices: readonly EndpointSlice[];
  /** null: to be found again. */
  roles: Roles | null;
  /** While all addresses are judged: what slices say at each. */
  entries: ReadonlyMap<Role, Entries> | null;
  /** Keys of the slices by the addresses they list; null: as of `listed`. */
  slicesAt: Map<string, Key | readonly Key[]> | null;
  /** uids of slices that were the controller's and lost the labels that say so. */
  relabelled: ReadonlySet<string>;
  /** The same of mirrored slices. */
  relabelledMirrors: ReadonlySet<string>;
}

type Names = Pick<ServiceState, 'namespace' | 'name'>;

function namesIn(key: Key): Names {
  const slash = key.indexOf('/');
  return { namespace: key.slice(0, slash), name: key.slice(slash + 1) };
}

const noRelabelled: ReadonlySet<string> = new Set();
const noKinds: readonly Kind[] = [];
const noSlices: readonly EndpointSlice[] = [];

/** The record of a key; `names` are the same in parts, where somebody has them already. */
export function createServiceState(key: Key, names: Names = namesIn(key)): ServiceState {
  return {
    key,
    namespace: names.namespace,
    name: names.name,
    service: null,
    endpoints: null,
    handWritten: null,
    members: [],
    memberKinds: [],
    kinds: noKinds,
    truncation: undefined,
    nodeless: 0,
    stranded: 0,
    listed: null,
    slices: noSlices,
    roles: null,
    entries: null,
    slicesAt: null,
    relabelled: noRelabelled,
    relabelledMirrors: noRelabelled,
  };
}

/** Nothing is left that could be judged or that would be found again. */
export function isEmpty(record: ServiceState): boolean {
  return record.service === null && record.endpoints === null && record.slices.length === 0;
}

/** The Node of a pod: null when it does not exist, undefined when Nodes are not known. */
export function nodeOf(listers: Listers, pod: Pod): Node | null | undefined {
  if (!listers.knows('nodes')) return undefined;
  return listers.nodes.get(pod.node) ?? null;
}

/** The pods at an address, in an order that does not depend on which came first. */
export function podsInOrder(listers: Listers, address: string): readonly Pod[] {
  const pods = listers.podsAt(address);
  return pods.length < 2 ? pods : [...pods].sort((a, b) => (a.uid < b.uid ? -1 : 1));
}

/** What a pod adds, as the kind of this record that says the same; a new one where none does. */
function kindOf(
  { listers, release }: AuditContext,
  record: ServiceState,
  pod: Pod,
  of: Service,
): Kind {
  const address = expectedAddress(of, pod, release);
  const node = nodeOf(listers, pod);
  const { portMap = null, ports = noPorts, ready = false } = address ?? {};
  const nodeless = address !== null && pod.node === '';
  const stranded = isStranded(of, node) && isListed(pod, true);
  const types = expectedTypes(of, pod, node);
  const known = record.kinds.find(
    (kind) =>
      kind.portMap === portMap &&
      kind.ready === ready &&
      kind.nodeless === nodeless &&
      kind.stranded === stranded &&
      equalTexts(kind.types, types),
  );
  if (known !== undefined) return known;
  const kind = { portMap, ports, ready, nodeless, stranded, types, pods: 0 };
  record.kinds = record.kinds.concat(kind);
  return kind;
}

const noPorts: Kind['ports'] = [];

function count(record: ServiceState, kind: Kind, by: 1 | -1): void {
  record.truncation = undefined;
  kind.pods += by;
  if (kind.pods === 0) record.kinds = record.kinds.filter((other) => other !== kind);
  if (kind.nodeless) record.nodeless += by;
  if (kind.stranded) record.stranded += by;
}

/** Pods listed in Endpoints, counted by their resolved ports. */
export function portGroups({ kinds }: ServiceState): PortGroup[] {
  const listed = kinds.filter(({ portMap }) => portMap !== null);
  return listed.map(({ ports, ready, pods }) =>
    ready ? { ports, ready: pods, notReady: 0 } : { ports, ready: 0, notReady: pods },
  );
}

/** Whether the controllers list the pods of the snapshot that are like this one. */
export function isMember({ service }: ServiceState, pod: Pod): boolean {
  if (service?.namespace !== pod.namespace || !isSelected(service)) return false;
  return selects(service.selector, pod.labels);
}

/** Counts a pod in, anew or out: another version of it, or of its Node, is in the snapshot now. */
export function recountPod(
  context: AuditContext,
  record: ServiceState,
  before: Pod | null,
  after: Pod | null,
): void {
  const { members, memberKinds } = record;
  const at = before === null ? -1 : members.indexOf(before);
  const was = memberKinds[at];
  if (was !== undefined) {
    count(record, was, -1);
    const [pod, kind] = [members.pop(), memberKinds.pop()];
    if (pod !== undefined && kind !== undefined && at < members.length) {
      members[at] = pod;
      memberKinds[at] = kind;
    }
  }
  if (after !== null && isMember(record, after)) addPod(context, record, after);
}

/** Takes in another version of a pod that says the same to every controller. */
export function replaceMember(record: ServiceState | undefined, before: Pod, after: Pod): void {
  const at = record?.members.indexOf(before) ?? -1;
  if (record !== undefined && at >= 0) record.members[at] = after;
}

/** Counts a selected pod in. */
export function addPod(context: AuditContext, record: ServiceState, pod: Pod): void {
  const { service, members, memberKinds } = record;
  if (service === null || !isSelected(service)) return;
  const kind = kindOf(context, record, pod, service);
  members.push(pod);
  memberKinds.push(kind);
  count(record, kind, 1);
}

/** Gives back the room that lists keep for more; worth it where many pods were counted in. */
export function trimMembers(record: ServiceState): void {
  record.members = record.members.slice();
  record.memberKinds = record.memberKinds.slice();
}

/** Takes in a new version of the Service, null when it is gone; `pods` are those it may select. */
export function setService(
  context: AuditContext,
  record: ServiceState,
  service: Service | null,
  pods: Iterable<Pod>,
): void {
  record.service = service;
  record.roles = null;
  record.members.length = 0;
  record.memberKinds.length = 0;
  record.kinds = noKinds;
  record.truncation = undefined;
  record.nodeless = 0;
  record.stranded = 0;
  for (const pod of pods) if (isMember(record, pod)) addPod(context, record, pod);
  trimMembers(record);
}

/** The addresses that a slice lists, each once. */
export function addressesIn(slice: EndpointSlice): Set<string> {
  const addresses = new Set<string>();
  for (const endpoint of slice.endpoints) {
    for (const address of endpoint.addresses) addresses.add(canonicalIP(address));
  }
  return addresses;
}

type SlicesAt = NonNullable<ServiceState['slicesAt']>;

function linkSlice(slicesAt: SlicesAt, address: string, key: Key): void {
  const there = slicesAt.get(address);
  if (there === undefined) slicesAt.set(address, key);
  else slicesAt.set(address, typeof there === 'string' ? [there, key] : [...there, key]);
}

function unlinkSlice(slicesAt: SlicesAt, address: string, key: Key): void {
  const there = slicesAt.get(address);
  const left = typeof there === 'object' ? there.filter((other) => other !== key) : [];
  const only = left[0];
  if (only === undefined) slicesAt.delete(address);
  else slicesAt.set(address, left.length === 1 ? only : left);
}

export function addSlice(record: ServiceState, slice: EndpointSlice): void {
  const { slices, slicesAt } = record;
  const after = slices.findIndex(({ name }) => name > slice.name);
  record.slices = slices.toSpliced(after < 0 ? slices.length : after, 0, slice);
  record.roles = null;
  if (slicesAt === null) return;
  for (const address of addressesIn(slice)) linkSlice(slicesAt, address, slice.key);
}

export function removeSlice(record: ServiceState, slice: EndpointSlice): void {
  const { slices, slicesAt } = record;
  if (!slices.includes(slice)) return;
  record.slices = slices.filter((other) => other !== slice);
  record.roles = null;
  if (slicesAt === null) return;
  for (const address of addressesIn(slice)) unlinkSlice(slicesAt, address, slice.key);
}

/** Endpoints from the first to the last at which two versions of a slice differ. */
export interface DifferingEndpoints {
  readonly was: readonly Endpoint[];
  readonly is: readonly Endpoint[];
}

export function differingEndpoints(
  before: EndpointSlice,
  after: EndpointSlice,
): DifferingEndpoints {
  const [was, is] = [before.endpoints, after.endpoints];
  const most = Math.min(was.length, is.length);
  let head = 0;
  while (head < most && isSameEndpoint(was[head], is[head])) head++;
  let tail = 0;
  while (tail < most - head && isSameEndpoint(was.at(-1 - tail), is.at(-1 - tail))) tail++;
  return { was: was.slice(head, was.length - tail), is: is.slice(head, is.length - tail) };
}

const isSameEndpoint = (a: Endpoint | undefined, b: Endpoint | undefined): boolean =>
  a !== undefined && b !== undefined && equalEndpoints(a, b);

/** Whether what the slice says of itself is the same, by which its role is known. */
export const isSameOwn = (before: EndpointSlice, after: EndpointSlice): boolean =>
  before.deleting === after.deleting &&
  equalLabels(before.labels, after.labels) &&
  JSON.stringify(before.owners) === JSON.stringify(after.owners);

/** Takes in a new version of a slice; the cost is that of what differs. */
export function replaceSlice(
  record: ServiceState,
  after: EndpointSlice,
  { was, is }: DifferingEndpoints,
): void {
  const { slices, slicesAt, roles } = record;
  const before = slices.find(({ key }) => key === after.key);
  const replaced = (list: readonly EndpointSlice[]): readonly EndpointSlice[] =>
    list.map((one) => (one === before ? after : one));
  record.slices = replaced(slices);
  record.roles = null;
  if (roles !== null && before !== undefined && isSameOwn(before, after)) {
    const inRole = (role: Role): readonly EndpointSlice[] =>
      roles[role] === slices ? record.slices : replaced(roles[role]);
    record.roles = inRoles(inRole);
  }
  if (slicesAt === null) return;
  const gone = new Set(was.flatMap(({ addresses }) => addresses.map(canonicalIP)));
  const come = new Set(is.flatMap(({ addresses }) => addresses.map(canonicalIP)));
  if (gone.size === 0 && come.size === 0) return;
  const still = (address: string): boolean =>
    after.endpoints.some(({ addresses }) => addresses.some((one) => canonicalIP(one) === address));
  for (const address of gone) {
    if (!come.has(address) && !still(address)) unlinkSlice(slicesAt, address, after.key);
  }
  for (const address of come) {
    if (gone.has(address)) continue;
    const there = slicesAt.get(address);
    const known = typeof there === 'object' ? there.includes(after.key) : there === after.key;
    if (!known) linkSlice(slicesAt, address, after.key);
  }
}

const judgedRoles: readonly Role[] = ['controller', 'mirror', 'foreign'];

/**
 * What the slices say at every address, for a judgement of all of them; the caller forgets it when
 * it is done.
 */
export function spreadSlices(listers: Listers, record: ServiceState): void {
  record.entries = new Map(
    judgedRoles.map((role) => [role, entriesOf(slicesOf(listers, record, role))]),
  );
}

function entriesOf(slices: readonly EndpointSlice[]): Entries {
  const entries = new Map<string, SlicedEndpoint[]>();
  for (const slice of slices) {
    for (const endpoint of slice.endpoints) {
      for (const address of endpoint.addresses) {
        const ip = canonicalIP(address);
        const there = entries.get(ip);
        if (there === undefined) entries.set(ip, [{ slice, endpoint }]);
        else if (there.at(-1)?.endpoint !== endpoint) there.push({ slice, endpoint });
      }
    }
  }
  return entries;
}

/** Up to how many slices are looked through for an address. */
const few = 4;

/** Slices among which are all that list an address, in the order of their names. */
export function slicesAt(record: ServiceState, address: string): readonly EndpointSlice[] {
  const { slices } = record;
  if (slices.length <= few) return slices;
  if (record.slicesAt === null) {
    record.slicesAt = new Map();
    for (const slice of slices) {
      for (const listed of addressesIn(slice)) linkSlice(record.slicesAt, listed, slice.key);
    }
  }
  const there = record.slicesAt.get(address);
  if (there === undefined) return noSlices;
  return slices.filter(({ key }) =>
    typeof there === 'string' ? there === key : there.includes(key),
  );
}

/**
 * What a slice is to the Service: the controller's or the mirror's, somebody else's, or one that
 * was theirs by its owner but names another Service now; null: it is not this Service's business.
 */
export function roleOf(listers: Listers, record: ServiceState, slice: EndpointSlice): Role | null {
  const { service, endpoints } = record;
  if (slice.labels[label.serviceName] === record.name) {
    if (!isControllers(slice)) return isMirror(slice) ? 'mirror' : 'foreign';
    // The controller drops slices that are pending deletion, and writes others in their place.
    if (slice.deleting) return null;
    const owner = slice.owners.find(({ kind }) => kind === 'Service');
    if (service !== null && owner?.uid === service.uid) return 'controller';
    const other = listers.services.get(`${slice.namespace}/${owner?.name ?? ''}`);
    const strayed = other !== undefined && other !== service && other.uid === owner?.uid;
    return strayed ? null : 'controller';
  }
  if (isControllers(slice) && service !== null && isOwnedBy(slice, service)) return 'strayed';
  const mirrored =
    isMirror(slice) &&
    slice.owners.some(({ uid, name }) => uid === endpoints?.uid && name === endpoints.name);
  return mirrored ? 'strayed mirror' : null;
}

const inRoles = (of: (role: Role) => readonly EndpointSlice[]): Roles => ({
  controller: of('controller'),
  mirror: of('mirror'),
  foreign: of('foreign'),
  strayed: of('strayed'),
  'strayed mirror': of('strayed mirror'),
});

function rolesOf(
  slices: readonly EndpointSlice[],
  roleIn: (slice: EndpointSlice) => Role | null,
): Roles {
  const roles = slices.map(roleIn);
  const of = (role: Role): readonly EndpointSlice[] => {
    if (!roles.includes(role)) return noSlices;
    return roles.every((one) => one === role)
      ? slices
      : slices.filter((_, at) => roles[at] === role);
  };
  return inRoles(of);
}

/** The slices of one role, in the order of their names. */
export function slicesOf(
  listers: Listers,
  record: ServiceState,
  role: Role,
): readonly EndpointSlice[] {
  const { slices } = record;
  if (slices.length === 0) return noSlices;
  record.roles ??= rolesOf(slices, (slice) => roleOf(listers, record, slice));
  return record.roles[role];
}

/** Whether somebody took a slice from the controller by its labels, so that it syncs no more. */
export function isWedged(listers: Listers, record: ServiceState): boolean {
  const { service } = record;
  if (service === null) return false;
  if (record.relabelled.size > 0) return true;
  return slicesOf(listers, record, 'strayed').length > 0;
}

/** Whether the Endpoints were written by the endpoints controller, as far as they say so. */
export function isWrittenByController(endpoints: Endpoints): boolean {
  return endpoints.labels[label.endpointsManagedBy] === manager.endpoints;
}
export type Listed = ListedAddress | readonly ListedAddress[];
/** Endpoints address by address. */

export type AddressIndex = Map<string, Listed>;
