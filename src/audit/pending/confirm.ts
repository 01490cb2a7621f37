// Confirms a difference before it becomes a finding: whether all that it depends on is known up to
// the end of its window (progress.ts).
//
// An object that is read after the window has a version that is not older than its end. When all
// streams have reached that version, the difference existed throughout. A stream without events
// shows its version about once a minute, so the Service itself is read. If the cache is at least as
// new and still differs, the difference existed at the time of the read. If reads fail, streams are
// trusted once none can lag any more. All that an output depends on must also be known up to the
// newest cached version of the Service, since streams may diverge again.
//
// Only a candidate for a finding causes a read. Many Services of a namespace are read together.
// Nodes are not read. A finding about a whole node is confirmed by one of its Services.

import { getOrInsert } from '../../model/get-or-insert.ts';
import type {
  AnyObject,
  Endpoints,
  EndpointSlice,
  Key,
  Listers,
  Pod,
  Resource,
  Service,
} from '../../model/objects.ts';
import { label } from '../../model/objects.ts';
import { compareVersions, isAtLeast, newest } from '../../model/resource-version.ts';
import type { Output } from '../finding/catalogue.ts';
import type { Candidate } from './pending.ts';
import type { WatchProgress } from './progress.ts';
import { restsOn } from './progress.ts';

interface FreshList<T> {
  readonly objects: readonly T[];
  /** The version at which the list is complete. */
  readonly version: string;
}

/** The objects of one Service, read after the request. */
export interface FreshRead {
  readonly service: Service | null;
  /** `null` if they were not read. */
  readonly endpoints: FreshList<Endpoints> | null;
  readonly slices: FreshList<EndpointSlice>;
  /** `null` without a selector. */
  readonly pods: FreshList<Pod> | null;
  /** The oldest of the versions: everything up to it has been read. */
  readonly version: string;
}

export type ConfirmCounts = ReturnType<typeof noCounts>;

/** Reads by result; `lagging`: the objects that were read are newer than the cache. */
const noCounts = () => ({ asked: 0, confirmed: 0, lagging: 0, failed: 0 });

/** Services of a namespace are read together from this number on, unless it has too many pods. */
const together = { services: 5, mostPods: 5000 };

interface ReadRequest {
  /** `requested` also if the read failed; `overtaken`: the cache is newer, so nothing is proven. */
  state: 'requested' | 'read' | 'overtaken';
  readonly at: number;
  read: FreshRead | null;
  /** Whether the Service was read together with others. */
  readonly joint: boolean;
  /** The outputs that were compared with the cache. */
  readonly compared: Set<Output>;
}

interface ConfirmedService {
  readonly name: string;
  readonly service: Service | null;
  readonly endpoints: Endpoints | null;
  readonly slices: readonly EndpointSlice[];
  readonly members: ReadonlyMap<Pod, unknown>;
}

interface ConfirmCache {
  readonly listers: Listers;
  readonly audited: ReadonlyMap<Key, { readonly record: ConfirmedService }>;
}

const keyOf = ({ namespace, service, item }: Candidate): Key =>
  item.witness ?? `${namespace}/${service}`;

/** Computes once per change of the cache: a Service may have thousands of differences. */
function createMemo<T>({ count }: WatchProgress): (key: string, compute: () => T) => T {
  const known = new Map<string, T>();
  let countedAt = -1;
  return (key, compute) => {
    if (countedAt !== count()) known.clear();
    countedAt = count();
    return getOrInsert(known, key, compute);
  };
}

function createComparison(
  progress: WatchProgress,
  cache: () => ConfirmCache | null,
  counts: ConfirmCounts,
) {
  const versions = createMemo<string>(progress);
  const proofs = createMemo<boolean>(progress);
  const newestCached = (key: Key, output: Output): string =>
    versions(`${output} ${key}`, () => newestIn(cache()?.audited.get(key)?.record, output));
  /** Compares a read after the window with the cache; returns whether it proves a difference. */
  const prove = (candidate: Candidate, request: ReadRequest | undefined): boolean => {
    const [key, { output }, read, now] = [keyOf(candidate), candidate.item, request?.read, cache()];
    if (!request || !read || request.at < candidate.at || now === null) return false;
    return proofs(`${output} ${key} ${String(request.at)}`, () => {
      const cached = newestCached(key, output);
      const isMatched = isCaughtUp(now.listers, now.audited.get(key)?.record, output, read);
      const isOneMoment =
        isAtLeast(read.version, cached) || progress.hasReached(output, cached, -Infinity);
      request.state = isMatched && !isOneMoment ? 'overtaken' : 'read';
      const isReached = isMatched && isOneMoment;
      if (!request.compared.has(output)) counts[isReached ? 'confirmed' : 'lagging']++;
      request.compared.add(output);
      return isReached;
    });
  };
  return { newestCached, prove };
}

/** `cache` returns `null` before the audit has started. */
export function createConfirmer(progress: WatchProgress, cache: () => ConfirmCache | null) {
  const requests = new Map<Key, ReadRequest>();
  const counts = noCounts();
  const { newestCached, prove } = createComparison(progress, cache, counts);
  /** The latest read of any Service, and the newest version in it. */
  let latest = { at: -Infinity, version: '' };
  /** Whether the streams have shown all that a difference depends on, up to the window's end. */
  function isKnown(candidate: Candidate): boolean {
    const { point, item } = candidate;
    const cached = newestCached(keyOf(candidate), item.output);
    // Pings and idle limits end the lag of a stream within a minute.
    if (point === null) return progress.hasReached(item.output, cached, candidate.at + 60);
    return progress.hasReached(item.output, newest(point, cached), -Infinity);
  }

  return {
    counts: counts as Readonly<ConfirmCounts>,
    admit(candidate: Candidate): boolean {
      if (progress.isBlind(candidate.item.output)) return false;
      // A difference of no Service depends only on the streams: no object can be read for it.
      if (candidate.item.output === 'node' && keyOf(candidate) === '/') return true;
      if (candidate.point === null && latest.at >= candidate.at) candidate.point = latest.version;
      return isKnown(candidate) || prove(candidate, requests.get(keyOf(candidate)));
    },
    /** Requests the reads that are due: of one Service, or of many in a namespace. */
    next(waiting: Iterable<Candidate>, now: number): readonly Key[] {
      for (const [key, { at }] of requests) if (now - at > 60) requests.delete(key);
      const keys = dueKeys(requests, waiting, now, progress, cache()?.listers);
      const joint = keys.length > 1;
      for (const key of keys) {
        const compared = new Set<Output>();
        requests.set(key, { state: 'requested', at: now, read: null, joint, compared });
        counts.asked++;
      }
      return keys;
    },
    /** `null` if the read failed. */
    answer(key: Key, read: FreshRead | null): void {
      if (read === null) counts.failed++;
      const request = requests.get(key);
      if (request === undefined || read === null) return;
      Object.assign(request, { read, state: 'read' });
      progress.shown(read.version, request.at);
      if (request.at < latest.at) return;
      const { endpoints, slices, pods } = read;
      const lists = [endpoints, slices, pods].map((list) => list?.version ?? '');
      latest = { at: request.at, version: lists.reduce(newest, '') };
    },
  };
}

/** The Service that has waited longest, and the others of its namespace if they are many. */
function dueKeys(
  requests: ReadonlyMap<Key, ReadRequest>,
  waiting: Iterable<Candidate>,
  now: number,
  progress: WatchProgress,
  listers: Listers | undefined,
): readonly Key[] {
  const isLarge = (name: string): boolean =>
    (listers?.podsIn(name).length ?? 0) > together.mostPods;
  let namespace: string | null = null;
  const keys = new Set<Key>();
  for (const candidate of waiting) {
    const key = keyOf(candidate);
    const request = requests.get(key);
    if (namespace !== null && candidate.namespace !== namespace) continue;
    if (keys.has(key) || candidate.item.gone || progress.isBlind(candidate.item.output)) continue;
    if (!isDue(request, candidate, now)) continue;
    keys.add(key);
    // The namespace may contain an object that no client can read, or be too large.
    const isReadAlone = request?.joint === true && request.state === 'requested';
    if (namespace === null && (isReadAlone || isLarge(candidate.namespace))) break;
    namespace = candidate.namespace;
  }
  return keys.size < together.services ? [...keys].slice(0, 1) : [...keys];
}

/** Whether a Service may be read, again only some seconds after its last read. */
function isDue(request: ReadRequest | undefined, candidate: Candidate, now: number): boolean {
  if (request === undefined) return true;
  const { state, at } = request;
  if (state === 'requested') return now - at >= 5;
  // A read before the end of the window proves nothing.
  const isUseless = state === 'overtaken' || at < candidate.at;
  return now - at >= (isUseless ? 1 : 30);
}

function newestIn(record: ConfirmedService | undefined, output: Output): string {
  if (record === undefined) return '';
  const objects: Partial<Record<Resource, Iterable<AnyObject | null>>> = {
    services: [record.service],
    endpoints: [record.endpoints],
    endpointslices: record.slices,
    pods: record.members.keys(),
  };
  const all = restsOn[output].flatMap((resource) => [...(objects[resource] ?? [])]);
  return all.map((object) => object?.resourceVersion ?? '').reduce(newest, '');
}

/** Whether the streams have delivered all that was read of what an output depends on. */
function isCaughtUp(
  listers: Listers,
  record: ConfirmedService | undefined,
  output: Output,
  { service: read, endpoints, slices, pods }: FreshRead,
): boolean {
  const { uid, resourceVersion } = record?.service ?? {};
  if (uid !== read?.uid || resourceVersion !== read?.resourceVersion) return false;
  const cachedSlices = (record?.slices ?? []).filter(
    ({ labels }) => labels[label.serviceName] === record?.name,
  );
  const lists = [
    ['endpoints', endpoints, record?.endpoints ? [record.endpoints] : [], listers.endpoints],
    ['endpointslices', slices, cachedSlices, listers.slices],
    ['pods', pods, record?.members.keys() ?? [], listers.pods],
  ] as const;
  return lists.every(([resource, list, cached, lister]) => {
    if (list === null || !restsOn[output].includes(resource)) return true;
    const keys = new Set(list.objects.map(({ key }) => key));
    const isComplete = list.objects.every(({ key, uid, resourceVersion }) => {
      const known = lister.get(key);
      return known?.uid === uid && isAtLeast(known.resourceVersion, resourceVersion);
    });
    const others = [...cached].filter(({ key }) => !keys.has(key));
    return (
      isComplete && others.every((it) => compareVersions(it.resourceVersion, list.version) === 1)
    );
  });
}
