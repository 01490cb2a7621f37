// Writes changes of the input to the cached states of the Services that they concern. enqueue.ts
// reads the updated cache.

import { equalTexts } from '../../model/equality.ts';
import type { Change, EndpointSlice, Key, Pod, Resource, Service } from '../../model/objects.ts';
import { label } from '../../model/objects.ts';
import { equalLabels } from '../../model/selector.ts';
import { isControllers } from '../../shadow/endpointslice.ts';
import { hintMode } from '../../shadow/hints.ts';
import { isMirror } from '../../shadow/mirroring.ts';
import type { ServiceCache, ServiceState } from './cache.ts';
import { addMember, removeMember, setEndpoints, setService, setSlice, slicesOf } from './cache.ts';
import { leftBehindAddresses } from './input-checks.ts';

/** Fills an empty cache with all objects of the listers, in small steps. */
export function* loadCache(cache: ServiceCache): Generator<undefined, void> {
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
    setEndpoints(cache.getOrCreate(endpoints.key), endpoints);
    yield;
  }
  for (const slice of listers.slices.values()) {
    for (const key of keysNamed(slice)) setSlice(cache.getOrCreate(key), slice.key, slice);
    yield;
  }
}

type Updaters = {
  readonly [R in Resource]: (cache: ServiceCache, change: Change<R>) => void;
};

const updaters: Updaters = {
  pods: updatePod,
  nodes: updateNode,
  services: updateService,
  endpoints: (cache, { before, after }) => {
    const key = (after ?? before)?.key;
    if (key !== undefined) setEndpoints(cache.getOrCreate(key), after);
  },
  endpointslices: updateSlice,
};

/** Writes one change, which the listers already contain, to the cache. */
export function updateCache(cache: ServiceCache, change: Change): void {
  updaters[change.resource](cache, change as never);
}

/** Whether two versions of a pod are the same to every controller. */
export function isSamePod(a: Pod, b: Pod): boolean {
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

/** The keys of the Services that select a pod. */
export function keysSelecting({ context }: ServiceCache, pod: Pod | null): Set<Key> {
  if (pod === null) return new Set();
  const services = context.listers.servicesSelecting(pod.namespace, pod.labels);
  return new Set(services.map(({ key }) => key));
}

function updatePod(cache: ServiceCache, { before, after }: Change<'pods'>): void {
  const isSame = before !== null && after !== null && isSamePod(before, after);
  for (const key of new Set([...keysSelecting(cache, before), ...keysSelecting(cache, after)])) {
    const record = cache.get(key);
    if (record === undefined) continue;
    const kind = before === null ? undefined : record.members.get(before);
    if (isSame && kind !== undefined) {
      record.members.delete(before);
      record.members.set(after, kind);
      continue;
    }
    if (before !== null) removeMember(record, before);
    if (after !== null) addMember(cache.context, record, after);
  }
}

function updateNode(cache: ServiceCache, { before, after }: Change<'nodes'>): void {
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

function updateService(cache: ServiceCache, { before, after }: Change<'services'>): void {
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

/**
 * The keys of the Services that a slice names by its label or owners. Mirrored slices name theirs
 * by Endpoints.
 */
export function keysNamed(slice: EndpointSlice | null): Set<Key> {
  if (slice === null) return new Set();
  const name = slice.labels[label.serviceName] ?? '';
  const owners = slice.owners.filter(({ kind }) => kind === 'Service' || kind === 'Endpoints');
  const names = [...(name === '' ? [] : [name]), ...owners.map((owner) => owner.name)];
  return new Set(names.map((service) => `${slice.namespace}/${service}`));
}

function updateSlice(cache: ServiceCache, { before, after }: Change<'endpointslices'>): void {
  const key = (after ?? before)?.key ?? '';
  const named = keysNamed(after);
  for (const service of new Set([...keysNamed(before), ...named])) {
    const record = cache.getOrCreate(service);
    setSlice(record, key, named.has(service) ? after : null);
    if (after === null || before?.uid !== after.uid) continue;
    const track = (uids: ReadonlySet<string>, isTheirs: typeof isMirror): ReadonlySet<string> =>
      trackLabels(uids, before, after, (slice) => {
        return isTheirs(slice) && slice.labels[label.serviceName] === record.name;
      });
    record.relabelled = track(record.relabelled, isControllers);
    record.relabelledMirrors = track(record.relabelledMirrors, isMirror);
  }
}

/** Adds the uid of a slice whose labels took it away from a controller, or removes it again. */
function trackLabels(
  uids: ReadonlySet<string>,
  before: EndpointSlice,
  after: EndpointSlice,
  isTheirs: (slice: EndpointSlice) => boolean,
): ReadonlySet<string> {
  const { uid } = after;
  if (!isTheirs(after)) return isTheirs(before) ? new Set(uids).add(uid) : uids;
  return uids.has(uid) ? new Set([...uids].filter((other) => other !== uid)) : uids;
}

const isAutoHinted = (service: Service | null, { context }: ServiceCache): boolean =>
  service !== null && hintMode(service, context.release) === 'auto';

function setIn<T>(set: Set<T>, value: T, isIn: boolean): void {
  if (isIn) set.add(value);
  else set.delete(value);
}

/** Updates the sets of Services that pods and Nodes affect without being selected. */
export function updateAffected(cache: ServiceCache, record: ServiceState): void {
  const { context, leftBehind } = cache;
  setIn(cache.autoHinted, record, isAutoHinted(record.service, cache));
  setIn(cache.foreign, record, slicesOf(context.listers, record, 'foreign').length > 0);
  const addresses = leftBehindAddresses(context, record);
  if (addresses.size === 0) leftBehind.delete(record);
  else leftBehind.set(record, new Set(addresses.keys()));
}
