// Filters watch events and list items by resourceVersion, so that the cache never goes back in
// time. client-go (k8s.io/client-go@v0.36.3 tools/cache/reflector.go, the_real_fifo.go) promises
// the same with a second copy of all objects while a list arrives.

import { isDeepStrictEqual } from 'node:util';

import type { AnyObject, Key, UnreadableObject, WatchEvent } from '../../model/objects.ts';
import { keyOfLost } from '../../model/objects.ts';
import { isAtLeast, newest, versionVerdict } from '../../model/resource-version.ts';

/** The cached objects of a resource, with all delivered changes. */
export interface CachedObjects {
  get(key: Key): AnyObject | undefined;
  values(): Iterable<AnyObject>;
}

/**
 * The events to deliver for an event of a watch, or why there are none. An event of an object that
 * is not cached in that state shows that an earlier one was lost: a deletion has the last state of
 * its object. stale: events came in a wrong order; if the object is not cached, its creation can be
 * missed, or its deletion undone.
 */
export function takeChange(
  held: CachedObjects,
  known: string,
  event: WatchEvent,
): readonly WatchEvent[] | 'repeated' | 'stale' {
  const { object, type } = event;
  const before = held.get(object.key);
  if (before === undefined) {
    const isOld = isAtLeast(known, object.resourceVersion);
    if (isOld) return type === 'deleted' ? 'repeated' : 'stale';
    if (type === 'added') return [event];
  } else {
    const verdict = versionVerdict(before.resourceVersion, event);
    if (verdict !== 'new') return verdict;
    const isSame = type !== 'deleted' || isDeepStrictEqual(stateOf(before), stateOf(object));
    if (isSame && before.uid === object.uid) return [event];
  }
  const missed = replacing(before, event, true);
  return type === 'deleted' ? [...missed, event] : missed;
}

/** An object without what depends on its version, arrival or encoding. */
const stateOf = (object: AnyObject) => ({
  ...object,
  resourceVersion: '',
  at: 0,
  ipsSince: 0,
  bytes: 0,
});

function deletion(object: AnyObject, { resource, at }: Pick<WatchEvent, 'resource' | 'at'>) {
  return { resource, type: 'deleted', object, at, gap: true } satisfies WatchEvent;
}

export type ListFilter = ReturnType<typeof newListing>;

export function newListing(held: CachedObjects, known: string | null, doubted: boolean) {
  const [anything] = held.values();
  // An object that could not be read may be all that an earlier list had.
  const isFirst = anything === undefined && known === null && !doubted;
  return {
    held,
    /** The version of the cache; null if no list was complete. */
    known,
    /** The server may have been restored: no item is taken for a cached object. */
    doubted,
    /** Every listed key, also of unreadable objects; null: no earlier list had any object. */
    seen: isFirst ? null : new Set<Key>(),
    /** The newest version of an item; the list is at least as new. */
    newest: '',
    /** Items that wait until the list is complete. */
    aside: new Map<Key, WatchEvent>(),
  };
}

export type Paging = ReturnType<typeof newPaging>;

/** A list in pages of at most `limit` objects; `null`: in one page. */
export const newPaging = (listing: ListFilter, limit: number | null) => ({
  listing,
  limit,
  /** Of the first page; null before it. */
  version: null as string | null,
  next: '',
  /** Pages, and those in a row without a new object. */
  pages: 0,
  barren: 0,
});

/** A server may send some pages without a new object, but none without end. */
export const isEndless = ({ pages, barren }: Paging): boolean => pages > 4000 || barren >= 10;

/** Takes an item of the list, or an event within it (WatchList); returns what does not wait. */
export function takeItem(listing: ListFilter, event: WatchEvent): readonly WatchEvent[] {
  const { held, known, doubted, seen, aside } = listing;
  const { object, type } = event;
  listing.newest = newest(listing.newest, object.resourceVersion);
  if (aside.size > 0) aside.delete(object.key);
  const before = held.get(object.key);
  if (type === 'deleted') {
    if (seen === null) return before === undefined ? [] : [deletion(before, event)];
    seen.delete(object.key);
    return [];
  }
  seen?.add(object.key);
  if (isHeld(before, object) && !doubted) return [];
  if (!doubted && isBeyond(object, known) && isBeyond(object, before?.resourceVersion ?? null)) {
    return replacing(before, event, known !== null);
  }
  aside.set(object.key, event);
  return [];
}

/** An object that is listed has not been deleted, also if it cannot be read. */
export function keepUnreadable(listing: ListFilter | null, lost?: UnreadableObject): void {
  const key = lost === undefined ? null : keyOfLost(lost);
  if (key !== null) listing?.seen?.add(key);
}

/**
 * The further changes of a complete list: objects that were not listed, and items that waited.
 * `reset`: equal versions can be different objects. Yields null now and then, as a chance to pause.
 */
export function* completeListing(
  { held, known, seen, aside }: ListFilter,
  place: Pick<WatchEvent, 'resource' | 'at'>,
  reset: boolean,
): Generator<WatchEvent | null> {
  let passed = 0;
  for (const object of seen === null ? [] : held.values()) {
    if (!seen?.has(object.key)) yield deletion(object, place);
    else if (++passed % 1024 === 0) yield null;
  }
  for (const event of aside.values()) {
    const before = held.get(event.object.key);
    if (reset || !isHeld(before, event.object)) yield* replacing(before, event, known !== null);
  }
}

const isHeld = (before: AnyObject | undefined, { uid, resourceVersion }: AnyObject): boolean =>
  before?.uid === uid && before.resourceVersion === resourceVersion && resourceVersion !== '';

const isBeyond = ({ resourceVersion }: AnyObject, version: string | null): boolean =>
  version === null || (resourceVersion !== version && isAtLeast(resourceVersion, version));

function replacing(before: AnyObject | undefined, event: WatchEvent, gap: boolean): WatchEvent[] {
  if (before === undefined) return [{ ...event, type: 'added', ...(gap ? { gap } : {}) }];
  if (before.uid === event.object.uid) return [{ ...event, type: 'modified', gap: true }];
  return [deletion(before, event), { ...event, type: 'added', gap: true }];
}
