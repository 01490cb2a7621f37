// From a change of one object to what must be judged again: which Services it touches, at which
// addresses and slices, which controllers it wakes for them, and, where it wakes none, by which of
// upstream's blind spots. The records of the touched Services are brought up to date on the way.
//
// Shadows the event handlers of the three controllers through shadow/wake.ts.

import { equalTexts, isSameToHints } from '../../model/equality.ts';
import { canonicalIP } from '../../model/ip.ts';
import type {
  Change,
  Endpoint,
  EndpointSlice,
  Key,
  Node,
  Pod,
  Service,
} from '../../model/objects.ts';
import { label } from '../../model/objects.ts';
import { equalLabels } from '../../model/selector.ts';
import { isSelected } from '../../shadow/endpoints.ts';
import { isControllers, isOwnedBy } from '../../shadow/endpointslice.ts';
import {
  isMirrorable,
  mirroringWokenByService,
  wakesOfPodUpdate,
} from '../../shadow/event-handlers.ts';
import { whyNoHints } from '../../shadow/hints.ts';
import { isMirror } from '../../shadow/mirroring.ts';
import type { Cause } from '../finding/causes.ts';
import { replaceEndpoints } from './address-index.ts';
import type { AuditContext, DifferingEndpoints, ServiceState } from './cache.ts';
import {
  addressesIn,
  addSlice,
  differingEndpoints,
  isSameOwn,
  recountPod,
  removeSlice,
  replaceMember,
  replaceSlice,
  setService,
} from './cache.ts';
import { countHints } from './endpointslices.ts';

/** The outputs that a controller writes. */
export type ServiceOutput = 'endpoints' | 'endpointslices' | 'mirrored';

/** What of one Service must be judged again after a change, and what the change means for it. */
export interface WorkItem {
  readonly record: ServiceState;
  readonly addresses: Set<string>;
  readonly slices: Set<EndpointSlice>;
  /** Judge every unit of the Service. */
  whole: boolean;
  /** The controllers that the change wakes for this Service. */
  readonly wakes: Set<ServiceOutput>;
  /** The blind spot that a change of the input falls into, but for what it wakes besides. */
  blindSpot: Cause | null;
  /** The output that the change itself wrote; null for a change of the input. */
  writes: ReadonlySet<ServiceOutput>;
  /** The writing is one that the controller does not see and so does not put right. */
  unseen: Cause | null;
}

/** The records of a ledger, with the indexes that touching needs. */
export interface Records {
  readonly context: AuditContext;
  get(key: Key): ServiceState | undefined;
  getOrCreate(key: Key): ServiceState;
  /** Services with addresses that were left behind, by address. */
  leftBehindAt(address: string): Iterable<ServiceState>;
  /** Services with topology-mode Auto, which any Node may touch. */
  auto(): Iterable<ServiceState>;
  /** Services of a namespace for which somebody else writes slices, which may refer to any pod. */
  foreignIn(namespace: string): Iterable<ServiceState>;
}

const input: ReadonlySet<ServiceOutput> = new Set();
const both: readonly ServiceOutput[] = ['endpoints', 'endpointslices'];

export function createWorkItem(record: ServiceState): WorkItem {
  return {
    record,
    addresses: new Set(),
    slices: new Set(),
    whole: false,
    wakes: new Set(),
    blindSpot: null,
    writes: input,
    unseen: null,
  };
}

/** The touch of a Service among others, made where it is the first. */
function touchIn(touches: Map<Key, WorkItem>, record: ServiceState): WorkItem {
  let touch = touches.get(record.key);
  if (touch === undefined) touches.set(record.key, (touch = createWorkItem(record)));
  return touch;
}

/** Touches every Service that a change concerns. */
export function enqueue(records: Records, change: Change): WorkItem[] {
  const { resource, before, after } = change;
  switch (resource) {
    case 'pods':
      return touchedByPod(records, change as Change<'pods'>);
    case 'nodes':
      return touchedByNode(records, before as Node | null, after as Node | null);
    case 'services':
      return touchedByService(records, before as Service | null, after as Service | null);
    case 'endpoints':
      return touchedByEndpoints(records, change as Change<'endpoints'>);
    case 'endpointslices':
      return touchedBySlice(records, change as Change<'endpointslices'>);
  }
}

/** Whether two versions of a pod are the same to every controller. */
function isSamePod(a: Pod, b: Pod): boolean {
  return (
    a.uid === b.uid &&
    a.ready === b.ready &&
    a.terminal === b.terminal &&
    a.deleting === b.deleting &&
    a.node === b.node &&
    a.hostname === b.hostname &&
    a.subdomain === b.subdomain &&
    a.ports === b.ports &&
    equalTexts(a.ips, b.ips) &&
    equalLabels(a.labels, b.labels)
  );
}

function addressesOf(before: Pod | null, after: Pod | null): Set<string> {
  return new Set([...(before?.ips ?? []), ...(after?.ips ?? [])].map(canonicalIP));
}

function selecting(records: Records, pod: Pod | null): Set<Key> {
  if (pod === null) return new Set();
  const services = records.context.listers.servicesSelecting(pod.namespace, pod.labels);
  return new Set(services.map(({ key }) => key));
}

function touchedByPod(records: Records, { before, after, gap }: Change<'pods'>): WorkItem[] {
  const pod = after ?? before;
  if (pod === null) return [];
  // An object of another uid is another pod: the old one went and a new one came, both wake.
  const replaced = before?.uid !== after?.uid;
  const wakes =
    before === null || after === null || replaced ? 'all' : wakesOfPodUpdate(before, after);
  const same = before !== null && after !== null && isSamePod(before, after);
  const was = selecting(records, before);
  if (same && wakes === 'none' && gap !== true) {
    for (const key of was) replaceMember(records.get(key), before, after);
    return [];
  }
  const is =
    before !== null && after !== null && equalLabels(before.labels, after.labels)
      ? was
      : selecting(records, after);
  const addresses = addressesOf(before, after);
  const touches = new Map<Key, WorkItem>();
  for (const key of new Set([...was, ...is])) {
    const record = records.get(key);
    if (record === undefined) continue;
    recountPod(records.context, record, before, after);
    const touch = createWorkItem(record);
    for (const address of addresses) touch.addresses.add(address);
    const awake = wakes === 'all' || (wakes === 'membership' && was.has(key) !== is.has(key));
    if (awake) for (const output of both) touch.wakes.add(output);
    const phase = before !== null && after !== null && before.terminal !== after.terminal;
    if (phase) touch.blindSpot = 'pod-phase-unnoticed';
    else if (!awake && !same) touch.blindSpot = 'pod-change-unnoticed';
    touches.set(key, touch);
  }
  if (!same) touchSharers(records, addresses, touches);
  if (replaced) touchReferring(records, pod, touches);
  return [...touches.values()];
}

/** Services for which another manager's slices refer to a pod that came or went. */
function touchReferring(records: Records, pod: Pod, touches: Map<Key, WorkItem>): void {
  for (const record of records.foreignIn(pod.namespace)) {
    for (const slice of record.slices) {
      for (const { target, addresses } of slice.endpoints) {
        if (target?.name !== pod.name) continue;
        const touch = touchIn(touches, record);
        for (const address of addresses) touch.addresses.add(canonicalIP(address));
      }
    }
  }
}

/** Services of other pods at these addresses, and Services that left such addresses behind. */
function touchSharers(
  records: Records,
  addresses: ReadonlySet<string>,
  touches: Map<Key, WorkItem>,
): void {
  for (const address of addresses) {
    for (const pod of records.context.listers.podsAt(address)) {
      for (const key of selecting(records, pod)) {
        const record = records.get(key);
        if (record !== undefined) touchIn(touches, record).addresses.add(address);
      }
    }
    for (const record of records.leftBehindAt(address)) {
      touchIn(touches, record).addresses.add(address);
    }
  }
}

function touchedByNode(records: Records, before: Node | null, after: Node | null): WorkItem[] {
  const touches = new Map<Key, WorkItem>();
  const of = (record: ServiceState): WorkItem => {
    const touch = touchIn(touches, record);
    touch.blindSpot = 'node-change-unnoticed';
    return touch;
  };
  const name = (after ?? before)?.name ?? '';
  if (before?.zone !== after?.zone) {
    for (const pod of records.context.listers.podsOn(name)) {
      for (const key of selecting(records, pod)) {
        const record = records.get(key);
        if (record === undefined) continue;
        recountPod(records.context, record, pod, pod);
        const touch = of(record);
        for (const ip of pod.ips) touch.addresses.add(canonicalIP(ip));
      }
    }
  }
  if (isSameToHints(before, after)) return [...touches.values()];
  const enqueues = before?.zone !== after?.zone || before?.ready !== after?.ready;
  for (const record of records.auto()) {
    const touch = of(record);
    if (enqueues && isOverloaded(records.context, record)) touch.wakes.add('endpointslices');
  }
  return [...touches.values()];
}

/**
 * Whether a Node event queues a Service with topology-mode Auto: its hints are no longer possible,
 * so some zone has too few. topologycache.go GetOverloadedServices.
 */
function isOverloaded({ listers }: AuditContext, record: ServiceState): boolean {
  const { ready, zones } = countHints(record.slices);
  return zones.size > 0 && whyNoHints(listers.zoneCapacity, ready) !== null;
}

function touchedByService(
  records: Records,
  before: Service | null,
  after: Service | null,
): WorkItem[] {
  const service = after ?? before;
  if (service === null) return [];
  const record = records.getOrCreate(service.key);
  const reselects = !isSameSelection(before, after);
  const was = reselects ? [...record.members] : [];
  setService(records.context, record, after, records.context.listers.podsIn(service.namespace));
  // The trackers forget a Service that is gone: a new one of its name starts without a wedge.
  if (before?.uid !== after?.uid) {
    record.relabelled = new Set();
    record.relabelledMirrors = new Set();
  }
  const touch = createWorkItem(record);
  touch.whole = true;
  for (const output of both) touch.wakes.add(output);
  if (mirroringWokenByService(before, after)) touch.wakes.add('mirrored');
  const touches =
    before?.uid === after?.uid ? [touch] : [touch, ...touchedByOwner(records, record)];
  return reselects ? [...touches, ...touchedBySelection(records, record, was)] : touches;
}

/** Whether two versions of a Service have endpoints of the same pods. */
function isSameSelection(before: Service | null, after: Service | null): boolean {
  const was = before !== null && isSelected(before) ? before.selector : null;
  const is = after !== null && isSelected(after) ? after.selector : null;
  return was === is || (was !== null && is !== null && equalLabels(was, is));
}

/** Services of pods that share an address with one that was selected before, or is now. */
function touchedBySelection(
  records: Records,
  record: ServiceState,
  was: readonly Pod[],
): WorkItem[] {
  const { listers } = records.context;
  const addresses = new Set<string>();
  for (const { ips } of new Set([...was, ...record.members])) {
    for (const ip of ips) {
      const address = canonicalIP(ip);
      if (listers.podsAt(address).length > 1) addresses.add(address);
    }
  }
  const touches = new Map<Key, WorkItem>();
  touchSharers(records, addresses, touches);
  touches.delete(record.key);
  return [...touches.values()];
}

/** Services named by slices that a Service owns, or owned, by its uid: whose they are changes. */
function touchedByOwner(records: Records, owner: ServiceState): WorkItem[] {
  const touches = new Map<Key, WorkItem>();
  for (const slice of owner.slices) {
    for (const record of recordsNamed(records, slice)) {
      if (record === owner) continue;
      record.roles = null;
      const touch = touchIn(touches, record);
      touch.slices.add(slice);
      for (const address of addressesIn(slice)) touch.addresses.add(address);
    }
  }
  return [...touches.values()];
}

const writesEndpoints: ReadonlySet<ServiceOutput> = new Set(['endpoints']);
const writesSlices: ReadonlySet<ServiceOutput> = new Set(['endpointslices']);
const writesMirror: ReadonlySet<ServiceOutput> = new Set(['mirrored']);

function touchedByEndpoints(records: Records, change: Change<'endpoints'>): WorkItem[] {
  const { before, after } = change;
  const endpoints = after ?? before;
  if (endpoints === null) return [];
  const record = records.getOrCreate(endpoints.key);
  const touch = createWorkItem(record);
  for (const address of replaceEndpoints(record, after)) touch.addresses.add(address);
  // Where there is no object, that is the one difference; with it, every address counts.
  touch.whole = before === null || after === null;
  touch.writes = writesEndpoints;
  // The endpoints controller handles no updates of Endpoints; of deletions it hears.
  touch.unseen = before !== null && after !== null ? 'hand-edited' : null;
  if (after === null) touch.wakes.add('endpoints');
  if ([before, after].some((one) => one !== null && isMirrorable(one))) {
    touch.wakes.add('mirrored');
  }
  return [touch];
}

/** The Services that a slice names. Mirrored slices name theirs through Endpoints. */
export function recordsNamed(records: Records, slice: EndpointSlice | null): Set<ServiceState> {
  const named = new Set<ServiceState>();
  if (slice === null) return named;
  const name = slice.labels[label.serviceName];
  if (name !== undefined && name !== '') {
    named.add(records.getOrCreate(`${slice.namespace}/${name}`));
  }
  for (const owner of slice.owners) {
    if (owner.kind !== 'Service' && owner.kind !== 'Endpoints') continue;
    named.add(records.getOrCreate(`${slice.namespace}/${owner.name}`));
  }
  return named;
}

function touchedBySlice(records: Records, change: Change<'endpointslices'>): WorkItem[] {
  const { before, after } = change;
  const slice = after ?? before;
  if (slice === null) return [];
  const touches: WorkItem[] = [];
  const named = recordsNamed(records, after);
  const differing = before === null || after === null ? null : differingEndpoints(before, after);
  const addresses = differingAddresses(before, after, differing);
  for (const record of new Set([...recordsNamed(records, before), ...named])) {
    const touch = createWorkItem(record);
    if (
      differing !== null &&
      named.has(record) &&
      record.slices.some(({ key }) => key === slice.key)
    ) {
      replaceSlice(record, slice, differing);
    } else {
      if (before !== null) removeSlice(record, before);
      if (after !== null && named.has(record)) addSlice(record, after);
    }
    touch.slices.add(slice);
    for (const address of addresses) touch.addresses.add(address);
    noteRelabelling(record, before, after);
    const ours = [before, after].some((one) => one !== null && isControllers(one));
    touch.writes = ours ? writesSlices : writesMirror;
    touch.unseen = unseenWriting(record, before, after, differing);
    touches.push(touch);
  }
  return touches;
}

/** Why the slice controller takes no notice of a writing; null: it does. */
function unseenWriting(
  { service }: ServiceState,
  before: EndpointSlice | null,
  after: EndpointSlice | null,
  differing: DifferingEndpoints | null,
): Cause | null {
  if (before === null) return null;
  // A slice that it never wrote for this Service is not tracked, so its end is no news.
  if (after === null) {
    const tracked = service === null || isOwnedBy(before, service);
    // Only an empty one is taken for the new Service's placeholder.
    const taken = !tracked && isControllers(before) && before.endpoints.length === 0;
    return taken ? 'service-recreated' : null;
  }
  // An edit of owners or annotations does not raise the generation, by which the controller sees.
  if (before.generation !== after.generation || before.portMap !== after.portMap) return null;
  const differ = differing === null || differing.was.length + differing.is.length > 0;
  return !differ && equalLabels(before.labels, after.labels) ? 'hand-edited' : null;
}

/** Remembers that a slice was taken from the controller by its labels, or given back. */
function noteRelabelling(
  record: ServiceState,
  before: EndpointSlice | null,
  after: EndpointSlice | null,
): void {
  if (after === null || before?.uid !== after.uid) return;
  const { relabelled, relabelledMirrors, name } = record;
  record.relabelled = withRelabelled(relabelled, name, before, after, isControllers);
  record.relabelledMirrors = withRelabelled(relabelledMirrors, name, before, after, isMirror);
}

function withRelabelled(
  taken: ReadonlySet<string>,
  name: string,
  before: EndpointSlice,
  after: EndpointSlice,
  isTheirs: (slice: EndpointSlice) => boolean,
): ReadonlySet<string> {
  const is = (slice: EndpointSlice): boolean =>
    isTheirs(slice) && slice.labels[label.serviceName] === name;
  const { uid } = after;
  if (!is(after)) return is(before) ? new Set(taken).add(uid) : taken;
  return taken.has(uid) ? new Set([...taken].filter((other) => other !== uid)) : taken;
}

/** The addresses whose entries differ between two versions of a slice. */
function differingAddresses(
  before: EndpointSlice | null,
  after: EndpointSlice | null,
  differing: DifferingEndpoints | null,
): Set<string> {
  if (before === null || after?.portMap !== before.portMap || !isSameOwn(before, after)) {
    return new Set([before, after].flatMap((one) => (one === null ? [] : [...addressesIn(one)])));
  }
  const was = textsByAddress(differing?.was ?? []);
  const is = textsByAddress(differing?.is ?? []);
  const addresses = new Set<string>();
  for (const [address, text] of was) if (is.get(address) !== text) addresses.add(address);
  for (const [address, text] of is) if (was.get(address) !== text) addresses.add(address);
  return addresses;
}

/** What endpoints say, address by address. */
function textsByAddress(endpoints: readonly Endpoint[]): Map<string, string> {
  const entries = new Map<string, string>();
  for (const endpoint of endpoints) {
    const text = JSON.stringify(endpoint);
    for (const address of endpoint.addresses) {
      const ip = canonicalIP(address);
      entries.set(ip, `${entries.get(ip) ?? ''}${text};`);
    }
  }
  return entries;
}
