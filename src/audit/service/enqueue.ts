// Which Services a change of one object affects: what to evaluate again, the controllers that the
// change wakes (shadow/event-handlers.ts), and the blind spot that hides it from the others.

import { equalEndpoints, equalLists, isSameToHints } from '../../model/equality.ts';
import { getOrInsert } from '../../model/collections.ts';
import { canonicalIP } from '../../model/ip.ts';
import type { Change, EndpointSlice, Key, Pod, Resource, Service } from '../../model/objects.ts';
import { equalLabels, selects } from '../../model/selector.ts';
import { isSelected } from '../../shadow/endpoints.ts';
import { isControllers } from '../../shadow/endpointslice.ts';
import { isMirrorable, wakesMirroring, wakesOfPodUpdate } from '../../shadow/event-handlers.ts';
import { reasonOfNoHints } from '../../shadow/hints.ts';
import type { Cause } from '../finding/causes.ts';
import { addressesIn, changedInEndpoints, changedInSlice } from './address-index.ts';
import {
  isSamePod,
  keysNamed,
  keysSelecting,
  podsOf,
  type ServiceCache,
  type ServiceState,
  slicesOf,
} from './cache.ts';
import { countHints, isTakenFor } from './endpointslices.ts';
import type { ObjectChange } from './object-changes.ts';

export type ServiceOutput = 'endpoints' | 'endpointslices' | 'mirrored';

export type WorkItem = ReturnType<typeof createWorkItem>;

export const createWorkItem = (record: ServiceState) => ({
  record,
  addresses: new Set<string>(),
  slices: new Set<EndpointSlice>(),
  whole: false,
  /** Whether earlier versions of the object were missed. */
  missed: false,
  wakes: new Set<ServiceOutput>(),
  /** The blind spot that hides the change from the outputs that are not in `wakes`. */
  blindSpot: null as Cause | null,
  /** The outputs that the change itself wrote; empty for a change of the input. */
  writes: new Set() as ReadonlySet<ServiceOutput>,
  /** Why the controller does not notice the write; `null` if it does. */
  unseen: null as Cause | null,
  /** The change; `null` for a start without history. */
  change: null as Change | null,
  /** What it changed (object-changes.ts); `null` until a difference needs it. */
  changes: null as readonly ObjectChange[] | null,
});

type Queue = Map<Key, WorkItem>;

const itemOf = (queue: Queue, record: ServiceState): WorkItem =>
  getOrInsert(queue, record.key, () => createWorkItem(record));

const itemsOf = (queue: Queue, cache: ServiceCache, keys: Iterable<Key>): WorkItem[] =>
  [...keys].flatMap((key) => {
    const record = cache.get(key);
    return record === undefined ? [] : itemOf(queue, record);
  });

function addAll<T>(set: Set<T>, values: Iterable<T>): void {
  for (const value of values) set.add(value);
}

const addressesOf = (pods: Iterable<Pod | null>): Set<string> =>
  new Set([...pods].flatMap((pod) => pod?.ips.map(canonicalIP) ?? []));

const handlers: {
  readonly [R in Resource]: (queue: Queue, cache: ServiceCache, change: Change<R>) => void;
} = {
  pods: enqueuePod,
  nodes: enqueueNode,
  services: enqueueService,
  endpoints: enqueueEndpoints,
  endpointslices: enqueueSlice,
};

/** The work that a change causes, one item per affected Service. */
export function enqueue(cache: ServiceCache, change: Change): WorkItem[] {
  const queue: Queue = new Map();
  handlers[change.resource](queue, cache, change as never);
  const items = [...queue.values()];
  for (const item of items) {
    item.change = change;
    // After missed versions any address may have been as expected in between.
    if (change.gap === true) item.missed = true;
  }
  return items;
}

function enqueuePod(queue: Queue, cache: ServiceCache, change: Change<'pods'>): void {
  const { before, after, gap } = change;
  const pod = after ?? before;
  if (pod === null) return;
  // An object of another uid is another pod: the old one is gone and a new one exists, both wake.
  const isReplaced = before?.uid !== after?.uid;
  const isUpdate = before !== null && after !== null;
  const wakes = isUpdate && !isReplaced ? wakesOfPodUpdate(before, after) : 'all';
  const isSame = isUpdate && isSamePod(before, after);
  if (isSame && wakes === 'none' && gap !== true) return;
  const [was, is] = [keysSelecting(cache, before), keysSelecting(cache, after)];
  const addresses = addressesOf([before, after]);
  const isOfPhase = isUpdate && before.terminal !== after.terminal;
  const blindSpot = isOfPhase ? 'pod-phase-unnoticed' : 'pod-change-unnoticed';
  for (const item of itemsOf(queue, cache, new Set([...was, ...is]))) {
    const { key } = item.record;
    addAll(item.addresses, addresses);
    const isWoken = wakes === 'all' || (wakes === 'membership' && was.has(key) !== is.has(key));
    if (isWoken) item.wakes.add('endpoints').add('endpointslices');
    else if (!isSame) item.blindSpot = blindSpot;
  }
  if (!isSame) enqueueSharing(queue, cache, addresses);
  if (isReplaced) enqueueReferring(queue, cache, pod);
}

/** Services for which another manager's slices refer to a pod that was created or deleted. */
function enqueueReferring(queue: Queue, { foreign }: ServiceCache, pod: Pod): void {
  for (const record of foreign) {
    if (record.namespace !== pod.namespace) continue;
    for (const { target, addresses } of record.slices.flatMap(({ endpoints }) => endpoints)) {
      if (target?.name !== pod.name) continue;
      addAll(itemOf(queue, record).addresses, addresses.map(canonicalIP));
    }
  }
}

/** Services of other pods at these addresses, and Services whose outputs were left behind there. */
function enqueueSharing(
  queue: Queue,
  cache: ServiceCache,
  addresses: Iterable<string>,
  except: ServiceState | null = null,
): void {
  for (const address of addresses) {
    const pods = cache.context.listers.podsAt(address);
    const keys = new Set(pods.flatMap((pod) => [...keysSelecting(cache, pod)]));
    for (const [record, left] of cache.leftBehind) if (left.has(address)) keys.add(record.key);
    if (except !== null) keys.delete(except.key);
    for (const item of itemsOf(queue, cache, keys)) item.addresses.add(address);
  }
}

function enqueueNode(queue: Queue, cache: ServiceCache, change: Change<'nodes'>): void {
  const { before, after } = change;
  const changesZone = before?.zone !== after?.zone;
  const pods = changesZone ? cache.context.listers.podsOn((after ?? before)?.name ?? '') : [];
  for (const pod of pods) {
    for (const item of itemsOf(queue, cache, keysSelecting(cache, pod))) {
      addAll(item.addresses, addressesOf([pod]));
    }
  }
  if (!isSameToHints(before, after)) {
    const isHandled = changesZone || before?.ready !== after?.ready;
    for (const record of cache.autoHinted) {
      const item = itemOf(queue, record);
      if (isHandled && isOverloaded(cache, record)) item.wakes.add('endpointslices');
    }
  }
  for (const item of queue.values()) item.blindSpot = 'node-change-unnoticed';
}

/**
 * Whether some zone has too few endpoints of an address type for hints, so that Node events queue
 * the Service. `topologycache.go` GetOverloadedServices.
 */
function isOverloaded({ context: { listers } }: ServiceCache, record: ServiceState): boolean {
  const slices = slicesOf(listers, record, 'controller');
  return [...Map.groupBy(slices, ({ addressType }) => addressType).values()].some((alike) => {
    const { ready, zones } = countHints(alike);
    return zones.size > 0 && reasonOfNoHints(listers.zoneCapacity, ready) !== null;
  });
}

function enqueueService(queue: Queue, cache: ServiceCache, change: Change<'services'>): void {
  const { before, after } = change;
  const [item] = itemsOf(queue, cache, [(after ?? before)?.key ?? '']);
  if (item === undefined) return;
  const { record } = item;
  item.whole = true;
  item.wakes.add('endpoints').add('endpointslices');
  if (wakesMirroring(before, after)) item.wakes.add('mirrored');
  if (before?.uid !== after?.uid) enqueueOwned(queue, cache, record);
  const [was, is] = [selectorOf(before), selectorOf(after)];
  if (was === is || (was !== null && is !== null && equalLabels(was, is))) return;
  const { listers } = cache.context;
  const previous =
    was === null ? [] : listers.podsIn(record.namespace).filter((p) => selects(was, p.labels));
  const addresses = addressesOf([...previous, ...podsOf(listers, record)]);
  const shared = [...addresses].filter((address) => listers.podsAt(address).length > 1);
  enqueueSharing(queue, cache, shared, record);
}

/** `null` if the controllers write no outputs for a selector. */
const selectorOf = (service: Service | null): Service['selector'] =>
  service !== null && isSelected(service) ? service.selector : null;

/** Services named by slices that a Service owns, or owned, by its uid: their roles change. */
function enqueueOwned(queue: Queue, cache: ServiceCache, owner: ServiceState): void {
  for (const slice of owner.slices) {
    const keys = keysNamed(slice);
    keys.delete(owner.key);
    for (const item of itemsOf(queue, cache, keys)) {
      item.slices.add(slice);
      addAll(item.addresses, addressesIn(slice));
    }
  }
}

function enqueueEndpoints(queue: Queue, cache: ServiceCache, change: Change<'endpoints'>): void {
  const { before, after } = change;
  const [item] = itemsOf(queue, cache, [(after ?? before)?.key ?? '']);
  if (item === undefined) return;
  addAll(item.addresses, changedInEndpoints(before, after));
  // Without an object, that is the only difference; with one, every address counts.
  item.whole = before === null || after === null;
  item.writes = new Set(['endpoints']);
  // The endpoints controller handles deletions of Endpoints, but no updates.
  item.unseen = item.whole ? null : 'hand-edited';
  if (after === null) item.wakes.add('endpoints');
  if ([before, after].some((version) => version !== null && isMirrorable(version))) {
    item.wakes.add('mirrored');
  }
}

function enqueueSlice(queue: Queue, cache: ServiceCache, change: Change<'endpointslices'>): void {
  const { before, after } = change;
  const slice = after ?? before;
  if (slice === null) return;
  const addresses = changedInSlice(before, after);
  const isOurs = [before, after].some((version) => version !== null && isControllers(version));
  for (const item of itemsOf(queue, cache, new Set([...keysNamed(before), ...keysNamed(after)]))) {
    item.slices.add(slice);
    addAll(item.addresses, addresses);
    item.writes = new Set([isOurs ? 'endpointslices' : 'mirrored']);
    item.unseen = unseenWrite(item.record, before, after);
  }
}

/** Why the slice controller does not notice a write; `null` if it does. */
function unseenWrite(
  { service }: ServiceState,
  before: EndpointSlice | null,
  after: EndpointSlice | null,
): Cause | null {
  if (before === null) return null;
  if (after === null) {
    // The controller does not track a slice that it did not write for this Service. Of those, it
    // takes only one that looks like the placeholder of the new Service.
    if (service === null || !isControllers(before) || !isTakenFor(service, before)) return null;
    const isOld = before.owners.some(({ kind, uid }) => kind === 'Service' && uid !== service.uid);
    return isOld ? 'service-recreated' : null;
  }
  // The controller compares generations, which edits of owners or annotations do not raise.
  if (before.generation !== after.generation || before.portMap !== after.portMap) return null;
  if (!equalLists(before.endpoints, after.endpoints, equalEndpoints)) return null;
  return equalLabels(before.labels, after.labels) ? 'hand-edited' : null;
}
