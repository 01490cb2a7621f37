// Confirms a difference before it becomes a finding: whether all that it depends on is known up to
// the end of its window (progress.ts).
//
// Any stream may lag, so what the streams have shown may be old. But an object that is read after
// the window has a version that is not older than its end. When all streams have reached that
// version, the difference existed throughout.
//
// A stream without events shows its version only about once a minute, by a bookmark. So the Service
// itself is read. If the cache is at least as new and the difference still exists, it existed at
// the time of the read. If the cache is older, the difference waits for the stream. If reads fail,
// streams are trusted once no stream can lag any more.
//
// Streams may diverge again after that version, so that the cache mixes two moments. So all that an
// output depends on must also be known up to the newest cached version of the Service.
//
// Only a candidate for a finding causes a read, and a Service is read once in some seconds at most.
// If many Services of a namespace wait, they are read together. Nodes are not read: their stream
// must be connected. A finding about the rules of a whole node is confirmed by one of its Services.

import type {
  AnyObject,
  Endpoints,
  EndpointSlice,
  Key,
  Pod,
  Resource,
  Service,
  Listers,
} from '../../model/objects.ts';
import { label } from '../../model/objects.ts';
import { compareVersions, isAtLeast, newest } from '../../model/resource-version.ts';
import type { Output } from '../finding/catalogue.ts';
import type { Candidate } from './pending.ts';
import type { WatchProgress } from './progress.ts';
import { restsOn } from './progress.ts';

/** The objects of a list, and the version at which the list is complete. */
interface FreshList<T> {
  readonly objects: readonly T[];
  readonly version: string;
}

/** The objects of one Service, read after the request. */
export interface FreshRead {
  readonly service: Service | null;
  /** `null` if they were not read. */
  readonly endpoints: FreshList<Endpoints> | null;
  /** The slices that are labelled with its name. */
  readonly slices: FreshList<EndpointSlice>;
  /** The pods that its selector matches; `null` if it has no selector. */
  readonly pods: FreshList<Pod> | null;
  /** The oldest of the versions: everything up to it has been read. */
  readonly version: string;
}

/** Reads by result; `lagging`: the objects that were read are newer than the cache. */
export interface ConfirmCounts {
  asked: number;
  confirmed: number;
  lagging: number;
  failed: number;
}

export interface Confirmer {
  /** Whether a difference is proven to have existed at the end of its window. */
  admit(candidate: Candidate): boolean;
  /**
   * The Services to read now: one, or all of a namespace that wait; none if no read is due. Their
   * reads count as requested at `now`.
   */
  next(waiting: Iterable<Candidate>, now: number): readonly Key[];
  /** Stores the result of a read; `null` if it failed. */
  answer(key: Key, read: FreshRead | null): void;
  readonly counts: Readonly<ConfirmCounts>;
}

/** Seconds until a Service may be read again, by the state of its last read. */
const retryAfter = { requested: 5, useless: 1, read: 30 };

/** The longest time in seconds that a stream may lag: pings and idle limits end it. */
const longestLag = 60;

/** Services of a namespace are read together from this number on, unless it has too many pods. */
const together = { services: 5, mostPods: 5000 };

/**
 * A read of a Service.
 *
 * - requested: there is no answer yet, or the read failed
 * - read: the answer can prove differences
 * - overtaken: the cache is newer than the answer, which proves nothing
 */
interface ReadRequest {
  state: 'requested' | 'read' | 'overtaken';
  readonly at: number;
  read: FreshRead | null;
  /** Whether the Service was read together with others. */
  readonly joint: boolean;
  /** By output, whether the cache has reached the answer, at a count of observed objects. */
  readonly checks: Map<Output, { readonly caughtUp: boolean; readonly count: number }>;
}

/** The cached objects of one Service that are compared with the answer. */
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

/** A difference of no Service depends only on the streams: no object can be read for it. */
const isOfNoService = (candidate: Candidate): boolean =>
  candidate.item.output === 'node' && keyOf(candidate) === '/';

/** Looks up the newest cached version of the objects that an output of a Service depends on. */
function createNewestCached(
  progress: WatchProgress,
  cache: () => ConfirmCache | null,
): (key: Key, output: Output) => string {
  const known = new Map<string, string>();
  let countedAt = -1;
  return (key, output) => {
    // A Service may have thousands of differences: this is computed once per change.
    if (countedAt !== progress.count()) known.clear();
    countedAt = progress.count();
    const place = `${output} ${key}`;
    const version = known.get(place) ?? newestIn(cache()?.audited.get(key)?.record, output);
    known.set(place, version);
    return version;
  };
}

/** Creates a confirmer; `cache` returns `null` before the audit has started. */
export function createConfirmer(
  progress: WatchProgress,
  cache: () => ConfirmCache | null,
): Confirmer {
  const requests = new Map<Key, ReadRequest>();
  const counts: ConfirmCounts = { asked: 0, confirmed: 0, lagging: 0, failed: 0 };
  const newestCached = createNewestCached(progress, cache);
  /** The latest read of any Service, and the newest version in it. */
  let latest = { at: -Infinity, version: '' };

  const hasReached = (version: string, output: Output, cached: string): boolean =>
    isAtLeast(version, cached) || progress.hasReached(output, cached, -Infinity);

  /** Whether the streams have shown all that a difference depends on, up to the window's end. */
  function isKnown(candidate: Candidate): boolean {
    const { output } = candidate.item;
    if (candidate.point === null && latest.at >= candidate.at) candidate.point = latest.version;
    const cached = newestCached(keyOf(candidate), output);
    const [version, since] =
      candidate.point === null
        ? [cached, candidate.at + longestLag]
        : [newest(candidate.point, cached), -Infinity];
    return progress.hasReached(output, version, since);
  }

  /** Whether a read after the window proves a difference. */
  function isProven(candidate: Candidate): boolean {
    const [key, { output }, now] = [keyOf(candidate), candidate.item, cache()];
    const request = requests.get(key);
    if (!request?.read || request.at < candidate.at || now === null) return false;
    const before = request.checks.get(output);
    const count = progress.count();
    if (before?.count === count) return before.caughtUp;
    const cached = newestCached(key, output);
    const record = now.audited.get(key)?.record;
    const isMatched = isCaughtUp(now.listers, record, output, request.read);
    const isOneMoment = hasReached(request.read.version, output, cached);
    const caughtUp = isMatched && isOneMoment;
    request.state = isMatched && !isOneMoment ? 'overtaken' : 'read';
    request.checks.set(output, { caughtUp, count });
    if (before === undefined) counts[caughtUp ? 'confirmed' : 'lagging']++;
    return caughtUp;
  }

  return {
    admit(candidate) {
      if (progress.isBlind(candidate.item.output)) return false;
      return isOfNoService(candidate) || isKnown(candidate) || isProven(candidate);
    },
    next(waiting, now) {
      const keys = dueKeys(requests, waiting, now, progress, cache()?.listers);
      const joint = keys.length > 1;
      for (const key of keys) {
        requests.set(key, { state: 'requested', at: now, read: null, joint, checks: new Map() });
        counts.asked++;
      }
      return keys;
    },
    answer(key, read) {
      if (read === null) counts.failed++;
      const request = requests.get(key);
      if (request === undefined || read === null) return;
      request.read = read;
      request.state = 'read';
      progress.shown(read.version, request.at);
      if (request.at >= latest.at) latest = { at: request.at, version: newestRead(read) };
    },
    counts,
  };
}

/** The Services to read now; forgets requests that are old. */
function dueKeys(
  requests: Map<Key, ReadRequest>,
  waiting: Iterable<Candidate>,
  now: number,
  progress: WatchProgress,
  listers: Listers | undefined,
): readonly Key[] {
  for (const [key, { at }] of requests) if (now - at > 60) requests.delete(key);
  return nextKeys(waiting, {
    isUnread: (candidate) =>
      !candidate.item.gone &&
      !progress.isBlind(candidate.item.output) &&
      isDue(requests.get(keyOf(candidate)), candidate, now),
    isReadAlone: (candidate) => isReadAlone(requests.get(keyOf(candidate)), candidate, listers),
  });
}

/** The Service that has waited longest, and the others of its namespace if they are many. */
function nextKeys(
  waiting: Iterable<Candidate>,
  {
    isUnread,
    isReadAlone,
  }: Readonly<Record<'isUnread' | 'isReadAlone', (candidate: Candidate) => boolean>>,
): readonly Key[] {
  let namespace: string | null = null;
  const keys = new Set<Key>();
  for (const candidate of waiting) {
    if (namespace !== null && candidate.namespace !== namespace) continue;
    if (keys.has(keyOf(candidate)) || !isUnread(candidate)) continue;
    keys.add(keyOf(candidate));
    if (namespace === null && isReadAlone(candidate)) break;
    namespace = candidate.namespace;
  }
  return keys.size < together.services ? [...keys].slice(0, 1) : [...keys];
}

/** Whether the namespace is too large, or may contain an object that no client can read. */
function isReadAlone(
  before: ReadRequest | undefined,
  { namespace }: Candidate,
  listers: Listers | undefined,
): boolean {
  if (before?.joint === true && before.state === 'requested') return true;
  return (listers?.podsIn(namespace).length ?? 0) > together.mostPods;
}

/** Whether a Service may be read, or read again. */
function isDue(request: ReadRequest | undefined, candidate: Candidate, now: number): boolean {
  if (request === undefined) return true;
  const { state, at } = request;
  if (state === 'requested') return now - at >= retryAfter.requested;
  // A read before the end of the window proves nothing.
  const isUseless = state === 'overtaken' || at < candidate.at;
  return now - at >= (isUseless ? retryAfter.useless : retryAfter.read);
}

const newestRead = ({ endpoints, slices, pods }: FreshRead): string =>
  [endpoints, slices, pods].reduce((most, list) => newest(most, list?.version ?? ''), '');

function newestIn(record: ConfirmedService | undefined, output: Output): string {
  if (record === undefined) return '';
  const { service, endpoints, slices, members } = record;
  const needs = (resource: Resource): boolean => restsOn[output].includes(resource);
  const objects: AnyObject[] = [
    ...(service === null ? [] : [service]),
    ...(endpoints === null || !needs('endpoints') ? [] : [endpoints]),
    ...(needs('endpointslices') ? slices : []),
    ...(needs('pods') ? members.keys() : []),
  ];
  return objects.reduce((most, { resourceVersion }) => newest(most, resourceVersion), '');
}

const isSameOrNewer = (held: AnyObject | null | undefined, read: AnyObject): boolean =>
  held?.uid === read.uid && isAtLeast(held.resourceVersion, read.resourceVersion);

/** Whether the cache has all objects of a list, or newer ones, and no older ones. */
function isMatched<T extends AnyObject>(
  { objects, version }: FreshList<T>,
  cached: Iterable<T>,
  get: (key: Key) => T | undefined,
): boolean {
  const keys = new Set(objects.map(({ key }) => key));
  return (
    objects.every((object) => isSameOrNewer(get(object.key), object)) &&
    [...cached].every(
      ({ key, resourceVersion }) =>
        keys.has(key) || compareVersions(resourceVersion, version) === 1,
    )
  );
}

/** Whether the streams have delivered all that was read of what an output depends on. */
function isCaughtUp(
  listers: Listers,
  record: ConfirmedService | undefined,
  output: Output,
  read: FreshRead,
): boolean {
  const service = record?.service ?? null;
  if (service?.uid !== read.service?.uid) return false;
  if (service?.resourceVersion !== read.service?.resourceVersion) return false;
  const { endpoints, slices, pods } = read;
  const needs = (resource: Resource): boolean => restsOn[output].includes(resource);
  if (needs('endpoints') && endpoints !== null) {
    const cached = record?.endpoints ? [record.endpoints] : [];
    if (!isMatched(endpoints, cached, (key) => listers.endpoints.get(key))) return false;
  }
  if (needs('endpointslices')) {
    const cached = (record?.slices ?? []).filter(
      ({ labels }) => labels[label.serviceName] === record?.name,
    );
    if (!isMatched(slices, cached, (key) => listers.slices.get(key))) return false;
  }
  if (!needs('pods') || pods === null) return true;
  return isMatched(pods, record?.members.keys() ?? [], (key) => listers.pods.get(key));
}
