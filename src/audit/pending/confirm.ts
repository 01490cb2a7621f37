// Confirms a difference before it becomes a finding, and proves that a watch has lost an event.
//
// A difference is confirmed if the Service was read after the window, and the cache has the same or
// newer versions of all that the output depends on. All of it must also be known up to the newest
// cached version of the Service, since streams may diverge. Nodes are read together, after the
// difference began. If reads fail for five minutes, the streams are trusted.
//
// Each list has a version, and each stream has a version up to which it claims to be complete
// (progress.ts). If a list has an object that the stream claims to have delivered, and the cache
// lacks it, then an event was lost: a gap. The same is true if a stream does not deliver for two
// minutes what a list has. The difference does not open, and the resource is listed again.
//
// Many Services of a namespace are read together. A finding about a whole node is confirmed by one
// of its Services. A lost event can also hide a difference, so Services are read in turn.

import { getOrInsert, valuesOf } from '../../model/collections.ts';
import type * as api from '../../model/objects.ts';
import { label, resources } from '../../model/objects.ts';
import { compareVersions, isAtLeast, newest } from '../../model/resource-version.ts';
import { equalLabels } from '../../model/selector.ts';
import type { Output } from '../finding/catalogue.ts';
import { undelivered } from './lacks.ts';
import type { Candidate, PendingDifference } from './pending.ts';
import { restsOn, type WatchProgress } from './progress.ts';

interface FreshList<T> {
  readonly objects: readonly T[];
  /** The version at which the list is complete. */
  readonly version: string;
}

/** The objects of one Service, or all Nodes, read after the request; absent: not read. */
export type FreshRead = {
  readonly [R in api.Resource]?: FreshList<api.ObjectOf[R]> | null;
} & {
  /** The oldest of the versions: everything up to it has been read. */
  readonly version: string;
};

export type ConfirmCounts = ReturnType<typeof noCounts>;

/** Reads by result; `lagging`: the cache lacks something that was read. */
const noCounts = () => ({ asked: 0, confirmed: 0, lagging: 0, failed: 0 });

/** Services of a namespace are read together from this number on, unless it has too many pods. */
const together = { services: 5, mostPods: 5000 };

/** Seconds between two reads without a difference; every 60th is of the Nodes. */
const turn = { seconds: 10, nodes: 60 };

/**
 * Seconds after which a stream is trusted without a read; by which the Nodes may be read later than
 * the Service; and for which a read confirms what could not open at once.
 */
const patience = { unread: 300, apart: 5, old: 5 };

/**
 * What a call looks at: reads until this many objects are compared, at most this many reads, and
 * this many differences until one is due. Each is looked at in turn.
 */
const most = { compared: 1000, reads: 1000, waiting: 1000 };

/** Nodes are read as if they were a Service without a name. */
const nodesKey = '/';

/** How the cache compares with a list; `overtaken`: it is newer, so nothing is proven. */
const comparisons = ['equal', 'overtaken', 'behind', 'gap'] as const;
type Comparison = (typeof comparisons)[number];

const worseOf = (a: Comparison, b: Comparison): Comparison =>
  comparisons.indexOf(a) < comparisons.indexOf(b) ? b : a;

interface ReadRequest {
  /** `overtaken`: nothing is proven. */
  state: 'requested' | 'failed' | 'read' | 'overtaken';
  readonly at: number;
  /** The newest version that was known at the request. */
  readonly known: string;
  /** Whether the Service was read together with others. */
  readonly joint: boolean;
  /** The latest read, and when it was requested. */
  read: FreshRead | null;
  readAt: number;
  /** Whether the cache was not equal to the read at the latest comparison. */
  isOpen: boolean;
}

interface ConfirmedService {
  readonly name: string;
  readonly service: api.Service | null;
  readonly endpoints: api.Endpoints | null;
  readonly slices: readonly api.EndpointSlice[];
  readonly members: ReadonlyMap<api.Key, unknown>;
}

interface ConfirmedAudit {
  readonly record: ConfirmedService;
  readonly items: ReadonlyMap<string, readonly PendingDifference[]>;
}

/** The Services that rules of nodes depend on, and their slices by label. */
interface ProxiedServices {
  readonly services: ReadonlyMap<api.Key, api.Service>;
  readonly slices: ReadonlyMap<api.Key, api.EndpointSlice>;
  readonly slicesOf: (service: api.Key) => readonly api.EndpointSlice[];
}

interface ConfirmCache {
  readonly listers: api.Listers;
  readonly audited: ReadonlyMap<api.Key, ConfirmedAudit>;
}

const keyOf = ({ namespace, service, item }: Candidate): api.Key =>
  item.witness ?? `${namespace}/${service}`;

/** The namespace of the Service that confirms the difference: a whole node has none. */
const namespaceOf = ({ namespace, item: { witness } }: Candidate): string =>
  witness === undefined ? namespace : witness.slice(0, witness.indexOf('/'));

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

/** Compares a list with the cached objects that should be in it; yields each key and its result. */
function* compareList(
  resource: api.Resource,
  list: FreshList<api.AnyObject>,
  [cached, lister]: readonly [Iterable<api.AnyObject>, ReadonlyMap<api.Key, api.AnyObject>],
  /**
   * The version up to which the stream claims to be complete; seconds since the list; whether the
   * stream has listed since then.
   */
  [shown, age, isOld]: readonly [string, number, boolean],
  /** For how many seconds the cache has lacked a version. */
  lacking: (key: api.Key, version: string, isDeletion: boolean) => number,
): Generator<readonly [api.Key, Comparison]> {
  // The Pods were listed by the selector of the Service that was read.
  const newer = resource === 'services' ? 'overtaken' : 'equal';
  const listed = new Set<api.Key>();
  for (const { key, uid, resourceVersion: version } of list.objects) {
    listed.add(key);
    const known = lister.get(key);
    const order = compareVersions(known?.resourceVersion ?? '', version);
    if (order === 0 && known?.uid === uid) yield [key, 'equal'];
    else if (order === 1) {
      // A list has the latest versions. After a restore of etcd, some that the cache has are lost.
      const isLost = !isOld && isAtLeast(list.version, known?.resourceVersion ?? '');
      yield [key, isLost ? 'gap' : newer];
    } else {
      const isShown = isAtLeast(shown, version);
      // An absent object may have been deleted after the list, but not if it is listed again.
      const isDoubtful = isShown && known === undefined;
      const seconds = lacking(isDoubtful ? `${key} ${version}` : key, version, isDoubtful);
      const isLong = seconds >= undelivered && compareVersions(shown, version) === -1;
      const isGap = isDoubtful ? seconds > age : isShown || isLong;
      yield [key, isGap ? 'gap' : isShown ? 'overtaken' : 'behind'];
    }
  }
  for (const { key, resourceVersion: version } of cached) {
    if (listed.has(key)) continue;
    const order = compareVersions(shown, list.version);
    if (compareVersions(version, list.version) === 1) yield [key, newer];
    else {
      const isLong = lacking(key, list.version, true) >= undelivered;
      yield [key, order !== null && (order >= 0 || isLong) ? 'gap' : 'behind'];
    }
  }
}

/** Whether the Pods were listed by the selector that the Service has in the cache. */
function isOfSelector({ audited }: ConfirmCache, key: api.Key, read: FreshRead | null): boolean {
  const { selector: cached = null } = audited.get(key)?.record.service ?? {};
  const { selector = null } = read?.services?.objects[0] ?? {};
  return equalLabels(cached ?? {}, selector ?? {});
}

function createComparison(
  progress: WatchProgress,
  cache: () => ConfirmCache | null,
  proxied: ProxiedServices | null,
) {
  const versions = createMemo<string>(progress);
  const results = createMemo<Comparison>(progress);
  /** The resources that have lost an event, each with an object. */
  const gaps = new Map<api.Resource, api.Key>();
  let compared = 0;
  const compareOne = (key: api.Key, request: ReadRequest, resource: api.Resource, now: number) => {
    const [list, current] = [request.read?.[resource], cache()];
    if (!list || current === null) return 'equal';
    // A read from before a list shows no state after it: the cluster may have been restored.
    const isOld = request.readAt <= progress.listedAt(resource);
    const { state, version: shown = '' } = progress.inputs.get(resource) ?? {};
    const lacking = (object: api.Key, version: string, isDeletion: boolean): number =>
      isOld ? 0 : now - progress.lack(resource, object, { version, at: now, isDeletion });
    // Time alone can make a result a gap.
    const memo = `${resource} ${state ?? ''} ${key} ${request.readAt} ${Math.floor(now / 10)}`;
    return results(memo, () => {
      const cached = cachedOf(current, proxied, key)[resource];
      if (cached === null) return 'equal';
      // The selector decides which Pods are listed. The Services show which selector is newer.
      if (resource === 'pods' && !isOfSelector(current, key, request.read)) return 'overtaken';
      let worst: Comparison = state === 'synced' ? 'equal' : 'behind';
      const known = [shown, now - request.readAt, isOld] as const;
      for (const [object, result] of compareList(resource, list, cached, known, lacking)) {
        compared++;
        worst = worseOf(worst, result);
        if (result === 'gap' && state === 'synced') gaps.set(resource, object);
      }
      return worst;
    });
  };
  return {
    gaps,
    /** The objects that were compared until now. */
    compared: (): number => compared,
    newestCached: (key: api.Key, output: Output): string =>
      versions(`${output} ${key}`, () => {
        const current = cache();
        const cached = current && cachedOf(current, proxied, key);
        const objects = restsOn[output].flatMap((resource) =>
          resource === 'nodes' ? [] : [...(cached?.[resource]?.[0] ?? [])],
        );
        return objects.reduce((version, object) => newest(version, object.resourceVersion), '');
      }),
    /** How the cache compares with a read, in some resources. */
    compare: (key: api.Key, request: ReadRequest, from: readonly api.Resource[], now: number) =>
      from.map((resource) => compareOne(key, request, resource, now)).reduce(worseOf, 'equal'),
  };
}

/** The reads without a difference: of Services in turn, every other one with a finding. */
function createTurns(requests: ReadonlyMap<api.Key, ReadRequest>, found: Set<api.Key>) {
  let keys = new Set<api.Key>().values();
  let turns = 0;
  let latest: number | null = null;
  const nextOf = (audited: ConfirmCache['audited']): api.Key | undefined => {
    const { value } = keys.next();
    if (value !== undefined) return value;
    keys = audited.keys();
    return keys.next().value;
  };
  /** Moves the Service to the end, and forgets those before it that have no finding any more. */
  const nextFound = (isOpen: (key: api.Key) => boolean): api.Key | undefined => {
    for (const key of found) {
      found.delete(key);
      if (!isOpen(key)) continue;
      found.add(key);
      return key;
    }
    return undefined;
  };
  return ({ audited, listers }: ConfirmCache, now: number): readonly api.Key[] => {
    latest ??= now;
    if (now - latest < turn.seconds) return [];
    latest = now;
    if (++turns % turn.nodes === 0 && listers.knows('nodes')) return [nodesKey];
    const isOpen = (key: api.Key): boolean =>
      [...(audited.get(key)?.items.values() ?? [])].flat().some((item) => item.openedAt !== null);
    const key = (turns % 2 === 0 ? nextFound(isOpen) : undefined) ?? nextOf(audited);
    return key === undefined || now - (requests.get(key)?.at ?? 0) < 30 ? [] : [key];
  };
}

/** Whether a read after the window, and one of the Nodes, shows that a difference exists. */
function isAdmitted(
  candidate: Candidate,
  requests: ReadonlyMap<api.Key, ReadRequest>,
  { newestCached, compare }: ReturnType<typeof createComparison>,
  progress: WatchProgress,
  listers: api.Listers | undefined,
  now: number,
): boolean {
  const [{ item, at, since }, key] = [candidate, keyOf(candidate)];
  if (progress.isBlind(item.output) || progress.isBehind(item.output, now)) return false;
  // A difference of no Service depends only on the streams: no object can be read for it.
  if (item.output === 'node' && key === nodesKey) return true;
  const [request, nodes] = [requests.get(key), requests.get(nodesKey)];
  const cached = newestCached(key, item.output);
  const isTrusted = (): boolean => progress.hasReached(item.output, cached, at + patience.unread);
  if (request === undefined || request.readAt < at) return isTrusted();
  if (compare(key, request, restsOn[item.output], now) !== 'equal') return false;
  // Streams that had to catch up first may also hide what has happened since the read.
  if (now - request.readAt > patience.old) {
    if (request.state === 'read') request.state = 'overtaken';
    return isTrusted();
  }
  const isOneMoment = isAtLeast(request.read?.version ?? '', cached);
  if (!isOneMoment && !progress.hasReached(item.output, cached, -Infinity)) {
    request.state = 'overtaken';
    return false;
  }
  if (!needsNodes(candidate, listers)) return true;
  if (nodes === undefined || nodes.readAt < since) return false;
  if (compare(nodesKey, nodes, ['nodes'], now) !== 'equal') return false;
  const isOneRead = nodes.readAt - request.readAt <= patience.apart;
  if (!isOneRead) request.state = 'overtaken';
  return isOneRead;
}

function createReview(
  requests: Map<api.Key, ReadRequest>,
  { compare, compared }: ReturnType<typeof createComparison>,
) {
  let rest: ArrayIterator<api.Key> | null = null;
  const inspect = (key: api.Key, request: ReadRequest, now: number): Comparison => {
    const result = compare(key, request, resources, now);
    request.isOpen = result === 'behind' || result === 'gap';
    if (result === 'overtaken') request.state = result;
    return result;
  };
  return {
    inspect,
    /** Compares reads again that the cache lacked something of, and forgets old ones. */
    review: (now: number): void => {
      const end = compared() + most.compared;
      // A copy: what is read again meanwhile does not make the round longer.
      rest ??= [...requests.keys()].values();
      for (let left = most.reads; left > 0 && compared() < end; left--) {
        const { value: key } = rest.next();
        if (key === undefined) {
          rest = null;
          return;
        }
        const request = requests.get(key);
        if (request === undefined) continue;
        if (request.isOpen) inspect(key, request, now);
        const kept = request.isOpen ? 150 : 60;
        if (now - request.at > kept && key !== nodesKey) requests.delete(key);
      }
    },
  };
}

/**
 * `cache` returns `null` before the audit has started. `proxied` has the Services that are not
 * audited, but that the rules of nodes depend on: with shards, those of all shards.
 */
export function createConfirmer(
  progress: WatchProgress,
  cache: () => ConfirmCache | null,
  proxied: ProxiedServices | null = null,
) {
  const requests = new Map<api.Key, ReadRequest>();
  const counts = noCounts();
  const comparison = createComparison(progress, cache, proxied);
  const found = new Set<api.Key>();
  const nextTurn = createTurns(requests, found);
  const { inspect, review } = createReview(requests, comparison);
  let clock = -Infinity;
  return {
    counts: counts as Readonly<ConfirmCounts>,
    /** The resources that have lost an event, each with an object, to be cleared by the caller. */
    gaps: comparison.gaps,
    admit(candidate: Candidate, now: number): boolean {
      const listers = cache()?.listers;
      const isOpened = isAdmitted(candidate, requests, comparison, progress, listers, now);
      if (isOpened) found.add(keyOf(candidate));
      return isOpened;
    },
    /** Requests the reads that are due: of one Service, of many in a namespace, or of all Nodes. */
    next(waiting: Iterable<Candidate>, now: number): readonly api.Key[] {
      clock = now;
      review(now);
      const current = cache();
      const due = dueKeys(requests, waiting, now, progress, current?.listers);
      const isDue = due.length > 0 || current === null;
      const asked = isDue ? due : nextTurn(current, now);
      for (const key of asked) {
        const { read = null, readAt = -Infinity, isOpen = false } = requests.get(key) ?? {};
        // A read in turn does not delay one that is due.
        const [at, joint, known] = [isDue ? now : now - 1, asked.length > 1, progress.newest()];
        requests.set(key, { state: 'requested', at, known, joint, read, readAt, isOpen });
        counts.asked++;
      }
      return asked;
    },
    /** `null` if the read failed. */
    answer(key: api.Key, read: FreshRead | null): void {
      const request = requests.get(key);
      // A server that is behind proves nothing. The Services were listed before all else.
      const known = newest(request?.known ?? '', read?.services?.version ?? '');
      const isOld = compareVersions(read?.version ?? '', known) === -1;
      if (read === null || isOld) counts.failed++;
      if (request === undefined) return;
      request.state = 'failed';
      if (read === null || isOld) return;
      Object.assign(request, { read, readAt: request.at, state: 'read' });
      progress.shown(read.version, request.at);
      counts[inspect(key, request, clock) === 'equal' ? 'confirmed' : 'lagging']++;
    },
  };
}

/** Whether a difference can be due to a Node. */
const needsNodes = ({ item }: Candidate, listers: api.Listers | undefined): boolean =>
  restsOn[item.output].includes('nodes') && listers?.knows('nodes') === true;

/** The Nodes, or the Service that has waited longest with its namespace if many of it wait. */
function dueKeys(
  requests: ReadonlyMap<api.Key, ReadRequest>,
  waiting: Iterable<Candidate>,
  now: number,
  progress: WatchProgress,
  listers: api.Listers | undefined,
): readonly api.Key[] {
  const isLarge = (name: string): boolean =>
    (listers?.podsIn(name).length ?? 0) > together.mostPods;
  let namespace: string | null = null;
  const keys = new Set<api.Key>();
  let left = most.waiting;
  for (const candidate of waiting) {
    // Each retry moves those that it has tried to the end.
    if (namespace === null && left-- === 0) break;
    if (namespace !== null && namespaceOf(candidate) !== namespace) continue;
    const key = keyOf(candidate);
    const request = requests.get(key);
    const { item, since, at } = candidate;
    if (item.gone || progress.isBlind(item.output)) continue;
    const nodes = requests.get(nodesKey);
    const isNodesRead = nodes !== undefined && nodes.readAt >= since && !nodes.isOpen;
    if (needsNodes(candidate, listers) && !isNodesRead && isDue(nodes, since, now)) {
      return [nodesKey];
    }
    if (keys.has(key) || !isDue(request, at, now)) continue;
    keys.add(key);
    // The namespace may contain an object that no client can read, or be too large.
    const isReadAlone = request?.joint === true && request.state === 'failed';
    if (namespace === null && (isReadAlone || isLarge(namespaceOf(candidate)))) break;
    namespace = namespaceOf(candidate);
  }
  return keys.size < together.services ? [...keys].slice(0, 1) : [...keys];
}

/** Whether a read that was requested after a time is due, some seconds after the last one. */
function isDue(request: ReadRequest | undefined, since: number, now: number): boolean {
  if (request === undefined) return true;
  const { state, at } = request;
  // An answer takes at most half a minute.
  if (state === 'requested') return now - at >= 40;
  if (state === 'failed') return now - at >= 5;
  // A read before that time proves nothing.
  const isUseless = state === 'overtaken' || at < since;
  return now - at >= (isUseless ? 1 : 30);
}

/** The cached objects that a read of a Service, or of the Nodes, should have; all of them. */
function cachedOf(
  { listers, audited }: ConfirmCache,
  proxied: ProxiedServices | null,
  key: api.Key,
): CachedLists {
  const record = audited.get(key)?.record;
  if (record === undefined && proxied !== null) return proxiedOf(proxied, listers, key);
  const { service, endpoints, slices, members, name } = record ?? {};
  const labelled = slices?.filter(({ labels }) => labels[label.serviceName] === name);
  return {
    nodes: [listers.nodes.values(), listers.nodes],
    services: [service ? [service] : [], listers.services],
    endpoints: [endpoints ? [endpoints] : [], listers.endpoints],
    pods: [valuesOf(listers.pods, members?.keys() ?? []), listers.pods],
    endpointslices: [labelled ?? [], listers.slices],
  };
}

type CachedLists = Readonly<
  Record<
    api.Resource,
    readonly [Iterable<api.AnyObject>, ReadonlyMap<api.Key, api.AnyObject>] | null
  >
>;

/** Of a Service of another shard, whose Pods and Endpoints are not compared. */
function proxiedOf(
  { services, slices, slicesOf }: ProxiedServices,
  { nodes }: api.Listers,
  key: api.Key,
): CachedLists {
  const service = services.get(key);
  return {
    nodes: [nodes.values(), nodes],
    services: [service ? [service] : [], services],
    endpoints: null,
    pods: null,
    endpointslices: [slicesOf(key), slices],
  };
}
