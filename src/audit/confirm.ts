// Confirms a difference before it becomes a finding: whether all that it rests on is known up to
// the end of its window (cut.ts). A stream on which nothing happens shows that only about once a
// minute, by a bookmark; then the objects of the Service are read again, once. When what is held is
// at least as new as what was read after the window had ended, and the difference still stands, it
// stood at that moment. When it is older, the watch lags: the difference waits for the stream.
//
// Only a difference that would be a finding causes a read, and the same Service is not read again
// for some seconds, or for one if another difference has come to the end of its window since. Nodes
// are not read: their stream must be connected, and what it may still owe is not known.

import type {
  AnyObject,
  Endpoints,
  EndpointSlice,
  Key,
  Pod,
  Resource,
  Service,
  Snapshot,
} from '../model/objects.ts';
import { label } from '../model/objects.ts';
import { compareVersions, isAtLeast } from '../model/version.ts';
import type { Cut } from './cut.ts';
import { restsOn } from './cut.ts';
import type { Output } from './findings.ts';
import type { ServiceRecord } from './service.ts';
import type { Due } from './settle.ts';

/** A list, and the version as of which it is true: what is newer was written after it. */
interface Listed<T> {
  readonly objects: readonly T[];
  readonly version: string;
}

/** The objects of one Service as they were after they were asked for. */
export interface Reread {
  readonly service: Service | null;
  /** null: not read. */
  readonly endpoints: Listed<Endpoints> | null;
  /** Those that are labelled with its name. */
  readonly slices: Listed<EndpointSlice>;
  /** Those that its selector selects; null: it has none. */
  readonly pods: Listed<Pod> | null;
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
  admit(due: Due): boolean;
  /** A Service that has to be read now, which counts as asked at `now`; null: none. */
  next(waiting: Iterable<Due>, now: number): Key | null;
  /** Takes in what was read; null: it could not be. */
  answer(key: Key, read: Reread | null): void;
  readonly counts: Readonly<ConfirmCounts>;
}

/**
 * The same Service is not read again within so many seconds: after a failure, for a difference that
 * was read before its window had ended, and else.
 */
const patience = { failed: 5, early: 1, read: 30 };

interface Asked {
  readonly at: number;
  read: Reread | null;
  /** Per output, whether all that it rests on has come on the streams. */
  readonly looks: Map<Output, Look>;
}

interface Look {
  caughtUp: boolean;
  /** The count of the cut at that moment. */
  at: number;
}

interface Held {
  readonly snapshot: Snapshot;
  recordOf(key: Key): ServiceRecord | undefined;
}

function patienceFor(due: Due, before: Asked): number {
  if (before.read === null) return patience.failed;
  // What was read before the window ended proves nothing: it was for another difference.
  return before.at < due.at ? patience.early : patience.read;
}

export function createConfirmer(cut: Cut, held: () => Held | null): Confirmer {
  const asked = new Map<Key, Asked>();
  const counts: ConfirmCounts = { asked: 0, confirmed: 0, lagging: 0, failed: 0 };
  const keyOf = ({ namespace, service }: Due): Key => `${namespace}/${service}`;

  function isProven(due: Due): boolean {
    const one = asked.get(keyOf(due));
    const now = held();
    if (one === undefined || one.read === null || one.at < due.at || now === null) return false;
    // A Service may have thousands of differences: it is looked at once per change.
    const { output } = due.item;
    const before = one.looks.get(output);
    if (before?.caughtUp === true || before?.at === cut.count()) return before.caughtUp;
    const caughtUp = isCaughtUp(now.snapshot, now.recordOf(keyOf(due)), output, one.read);
    one.looks.set(output, { caughtUp, at: cut.count() });
    if (before === undefined) counts[caughtUp ? 'confirmed' : 'lagging']++;
    return caughtUp;
  }

  return {
    admit(due) {
      const { output } = due.item;
      if (cut.isBlind(output)) return false;
      due.point ??= cut.highest();
      return cut.isKnown(output, due.point) || isProven(due);
    },
    next(waiting, now) {
      for (const [key, { at }] of asked) if (now - at > 60) asked.delete(key);
      for (const due of waiting) {
        const key = keyOf(due);
        const before = asked.get(key);
        if (due.item.gone || cut.isBlind(due.item.output)) continue;
        if (before !== undefined && now - before.at < patienceFor(due, before)) continue;
        asked.set(key, { at: now, read: null, looks: new Map() });
        counts.asked++;
        return key;
      }
      return null;
    },
    answer(key, read) {
      const one = asked.get(key);
      if (read === null) counts.failed++;
      if (one !== undefined) one.read = read;
    },
    counts,
  };
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
  snapshot: Snapshot,
  record: ServiceRecord | undefined,
  output: Output,
  { service, endpoints, slices, pods }: Reread,
): boolean {
  const held = record?.service ?? null;
  if (held?.uid !== service?.uid || held?.resourceVersion !== service?.resourceVersion) {
    return false;
  }
  const rests = (resource: Resource): boolean => restsOn[output].includes(resource);
  if (rests('endpoints') && endpoints !== null) {
    const own = record?.endpoints ?? null;
    const get = (key: Key): Endpoints | undefined => snapshot.endpoints.get(key);
    if (!isMatched(endpoints, own === null ? [] : [own], get)) return false;
  }
  if (rests('endpointslices')) {
    const own = [...(record?.slices.values() ?? [])].filter(
      ({ labels }) => labels[label.serviceName] === record?.name,
    );
    if (!isMatched(slices, own, (key) => snapshot.slices.get(key))) return false;
  }
  if (!rests('pods') || pods === null) return true;
  return isMatched(pods, record?.members ?? [], (key) => snapshot.pods.get(key));
}
