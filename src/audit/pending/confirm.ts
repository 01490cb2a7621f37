// Confirms a difference before it becomes a finding: whether all that it rests on is known up to
// the end of its window (cut.ts). What streams have shown by then may be old, since any of them may
// lag. But what is read after the window has a version that is not older than its end, whatever
// Service it is of. When all streams have come to that version, the difference stood throughout.
//
// A stream on which nothing happens shows that only about once a minute, by a bookmark. So the
// Service itself is read: when what is held is at least as new, and the difference still stands, it
// stood at that moment. When it is older, the watch lags, and the difference waits for the stream.
// Where no read succeeds, streams are believed that are heard when none can lag any more.
//
// Beyond that point streams may be apart again, and then what is held is of two moments. So all
// that an output rests on must also be known up to the newest version that is held of the Service.
//
// Only a difference that would be a finding causes a read, and the same Service is not read again
// for some seconds, however many differences it has. Where many Services of a namespace wait, they
// are read together, which costs the API server less. Nodes are not read: their stream must be
// connected, and what it may still owe is not known. A finding about the rules of a whole node is
// confirmed by one of the Services that differ there.

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

/** A list, and the version as of which it is true: what is newer was written after it. */
interface Listed<T> {
  readonly objects: readonly T[];
  readonly version: string;
}

/** The objects of one Service as they were after they were asked for. */
export interface FreshRead {
  readonly service: Service | null;
  /** null: not read. */
  readonly endpoints: Listed<Endpoints> | null;
  /** Those that are labelled with its name. */
  readonly slices: Listed<EndpointSlice>;
  /** Those that its selector selects; null: it has none. */
  readonly pods: Listed<Pod> | null;
  /** The oldest of the versions: all that was written up to it has been read. */
  readonly version: string;
}

/** What became of reads, by output; `lagging`: what was read was newer than what is held. */
export interface ConfirmCounts {
  asked: number;
  confirmed: number;
  lagging: number;
  failed: number;
}

export interface Confirmer {
  /** Whether a difference is proven to have stood at the end of its window. */
  admit(due: Candidate): boolean;
  /**
   * What has to be read now, which counts as asked at `now`: one Service, or all of a namespace
   * that wait; nothing where none does.
   */
  next(waiting: Iterable<Candidate>, now: number): readonly Key[];
  /** Takes in what was read; null: it could not be. */
  answer(key: Key, read: FreshRead | null): void;
  readonly counts: Readonly<ConfirmCounts>;
}

/**
 * The same Service is not read again within so many seconds: after a failure; when what was read is
 * of no use, since it was read too early or what is held has moved on; and else.
 */
const patience = { failed: 5, useless: 1, read: 30 };

/** Seconds for which a stream may lag unseen, at most: pings and limits of silence end it. */
const longestLag = 60;

/** From so many Services of a namespace on they are read together, unless it has more pods. */
const together = { least: 5, mostPods: 5000 };

interface Asked {
  readonly at: number;
  read: FreshRead | null;
  /** It was read together with others. */
  readonly joint: boolean;
  /** What is held is newer than what was read. */
  overtaken: boolean;
  /** Per output, whether all that it rests on has come on the streams. */
  readonly looks: Map<Output, Look>;
}

interface Look {
  caughtUp: boolean;
  /** The count of the cut at that moment. */
  at: number;
}

/** The objects of one Service that the confirmation compares with what it read. */
interface ConfirmedService {
  readonly name: string;
  readonly service: Service | null;
  readonly endpoints: Endpoints | null;
  readonly slices: readonly EndpointSlice[];
  readonly members: ReadonlyMap<Pod, unknown>;
}

interface Held {
  readonly listers: Listers;
  readonly audited: ReadonlyMap<Key, { readonly record: ConfirmedService }>;
}

const keyOf = ({ namespace, service, item }: Candidate): Key =>
  item.witness ?? `${namespace}/${service}`;

/** Of what is about no Service, and only rests on the streams being there, nothing can be read. */
const isOfNone = (due: Candidate): boolean => due.item.output === 'node' && keyOf(due) === '/';

/** The newest version that is held of what an output of a Service rests on. */
function createNewestHeld(
  cut: WatchProgress,
  held: () => Held | null,
): (key: Key, output: Output) => string {
  const known = new Map<string, string>();
  let countedAt = -1;
  return (key, output) => {
    // A Service may have thousands of differences.
    if (countedAt !== cut.count()) known.clear();
    countedAt = cut.count();
    const place = `${output} ${key}`;
    const version = known.get(place) ?? newestIn(held()?.audited.get(key)?.record, output);
    known.set(place, version);
    return version;
  };
}

export function createConfirmer(cut: WatchProgress, held: () => Held | null): Confirmer {
  const asked = new Map<Key, Asked>();
  const counts: ConfirmCounts = { asked: 0, confirmed: 0, lagging: 0, failed: 0 };
  const newestHeld = createNewestHeld(cut, held);
  /** The latest read of any Service, and the newest version that it has shown. */
  let latest = { at: -Infinity, version: '' };

  /** Whether all that it rests on has come on the streams, up to the end of its window. */
  function isKnown(due: Candidate): boolean {
    const { output } = due.item;
    if (due.point === null && latest.at >= due.at) due.point = latest.version;
    const most = newestHeld(keyOf(due), output);
    if (due.point === null) return cut.hasReached(output, most, due.at + longestLag);
    return cut.hasReached(output, newest(due.point, most), -Infinity);
  }

  function isProven(due: Candidate): boolean {
    const one = asked.get(keyOf(due));
    const now = held();
    if (one === undefined || one.read === null || one.at < due.at || now === null) return false;
    // A Service may have thousands of differences: it is looked at once per change.
    const { output } = due.item;
    const before = one.looks.get(output);
    if (before?.at === cut.count()) return before.caughtUp;
    const most = newestHeld(keyOf(due), output);
    const matched = isCaughtUp(now.listers, now.audited.get(keyOf(due))?.record, output, one.read);
    const isOfOne = isAtLeast(one.read.version, most) || cut.hasReached(output, most, -Infinity);
    const caughtUp = matched && isOfOne;
    one.overtaken = matched && !isOfOne;
    one.looks.set(output, { caughtUp, at: cut.count() });
    if (before === undefined) counts[caughtUp ? 'confirmed' : 'lagging']++;
    return caughtUp;
  }

  return {
    admit(due) {
      if (cut.isBlind(due.item.output)) return false;
      return isOfNone(due) || isKnown(due) || isProven(due);
    },
    next(waiting, now) {
      for (const [key, { at }] of asked) if (now - at > 60) asked.delete(key);
      const isUnread = (due: Candidate): boolean =>
        !due.item.gone && !cut.isBlind(due.item.output) && isDue(asked.get(keyOf(due)), due, now);
      const podsIn = (namespace: string): number => held()?.listers.podsIn(namespace).length ?? 0;
      const keys = nextOf(waiting, isUnread, (due) => isReadAlone(asked, due, podsIn));
      const joint = keys.length > 1;
      for (const key of keys) {
        asked.set(key, { at: now, read: null, joint, overtaken: false, looks: new Map() });
        counts.asked++;
      }
      return keys;
    },
    answer(key, read) {
      const one = asked.get(key);
      if (read === null) counts.failed++;
      else if (one !== undefined) {
        cut.shown(read.version, one.at);
        if (one.at >= latest.at) latest = { at: one.at, version: newestRead(read) };
      }
      if (one !== undefined) one.read = read;
    },
    counts,
  };
}

/** Whether its namespace is too large, or has what cannot be read. */
function isReadAlone(
  asked: ReadonlyMap<Key, Asked>,
  due: Candidate,
  podsIn: (namespace: string) => number,
): boolean {
  const before = asked.get(keyOf(due));
  if (before?.joint === true && before.read === null) return true;
  return podsIn(due.namespace) > together.mostPods;
}

/** The Service that has waited longest, and those of its namespace where they are many. */
function nextOf(
  waiting: Iterable<Candidate>,
  isUnread: (due: Candidate) => boolean,
  isReadAlone: (due: Candidate) => boolean,
): readonly Key[] {
  let namespace: string | null = null;
  const keys = new Set<Key>();
  for (const due of waiting) {
    if (namespace !== null && due.namespace !== namespace) continue;
    if (keys.has(keyOf(due)) || !isUnread(due)) continue;
    keys.add(keyOf(due));
    if (namespace === null && isReadAlone(due)) break;
    namespace = due.namespace;
  }
  return keys.size < together.least ? [...keys].slice(0, 1) : [...keys];
}

/** Whether a Service that was asked for before, if it was, may be asked for again. */
function isDue(before: Asked | undefined, due: Candidate, now: number): boolean {
  if (before === undefined) return true;
  const { at, read, overtaken } = before;
  if (read === null) return now - at >= patience.failed;
  // What was read before the window ended proves nothing.
  return now - at >= (overtaken || at < due.at ? patience.useless : patience.read);
}

const newestRead = ({ endpoints, slices, pods }: FreshRead): string =>
  [endpoints, slices, pods].reduce((most, list) => newest(most, list?.version ?? ''), '');

function newestIn(record: ConfirmedService | undefined, output: Output): string {
  if (record === undefined) return '';
  const { service, endpoints, slices, members } = record;
  let most = service?.resourceVersion ?? '';
  const of = (resource: Resource, objects: Iterable<AnyObject>): void => {
    if (!restsOn[output].includes(resource)) return;
    for (const { resourceVersion } of objects) most = newest(most, resourceVersion);
  };
  of('endpoints', endpoints === null ? [] : [endpoints]);
  of('endpointslices', slices);
  of('pods', members.keys());
  return most;
}

const isSameOrNewer = (held: AnyObject | null | undefined, read: AnyObject): boolean =>
  held?.uid === read.uid && isAtLeast(held.resourceVersion, read.resourceVersion);

/** Whether a list has come on its stream, or what is newer; what it lacks is newer or gone. */
function isMatched<T extends AnyObject>(
  { objects, version }: Listed<T>,
  held: readonly T[],
  get: (key: Key) => T | undefined,
): boolean {
  const keys = new Set(objects.map(({ key }) => key));
  return (
    objects.every((one) => isSameOrNewer(get(one.key), one)) &&
    held.every((one) => keys.has(one.key) || compareVersions(one.resourceVersion, version) === 1)
  );
}

/** Whether all that was read, of what an output rests on, has come on the streams too. */
function isCaughtUp(
  listers: Listers,
  record: ConfirmedService | undefined,
  output: Output,
  { service, endpoints, slices, pods }: FreshRead,
): boolean {
  const held = record?.service ?? null;
  if (held?.uid !== service?.uid || held?.resourceVersion !== service?.resourceVersion) {
    return false;
  }
  const rests = (resource: Resource): boolean => restsOn[output].includes(resource);
  if (rests('endpoints') && endpoints !== null) {
    const own = record?.endpoints ?? null;
    const get = (key: Key): Endpoints | undefined => listers.endpoints.get(key);
    if (!isMatched(endpoints, own === null ? [] : [own], get)) return false;
  }
  if (rests('endpointslices')) {
    const own = [...(record?.slices.values() ?? [])].filter(
      ({ labels }) => labels[label.serviceName] === record?.name,
    );
    if (!isMatched(slices, own, (key) => listers.slices.get(key))) return false;
  }
  if (!rests('pods') || pods === null) return true;
  return isMatched(pods, [...(record?.members.keys() ?? [])], (key) => listers.pods.get(key));
}
