// What is delivered of what arrives, so that nothing known ever goes back in time.
//
// Watches: the API server sends the changes of a resource in the order of their versions. A frame
// that is older than what is held of its object, or repeats it, is dropped. One that comes behind
// its time and is about an object that is not held may be a creation that was missed or a deletion
// undone; only a list can tell.
//
// Lists: what is held stays until the list is complete. Items with a version beyond all that is
// known can only be news and are delivered as they come. All others (an older version, another uid,
// an object that is not held) are put aside until the version of the list is known: if it is not
// older than what was known, they are the truth, and so is the absence of what was not listed. An
// item that is held as it is says nothing. So a list that turns out to be too old has done no harm,
// and hardly anything is kept of one that is not.
//
// k8s.io/client-go@v0.36.3 tools/cache/reflector.go (handleAnyWatch, watchList) and
// the_real_fifo.go promise the same, with a second copy of all objects while a list arrives.

import type { AnyObject, Key, WatchEvent } from '../../model/objects.ts';
import { compareVersions, isAtLeast } from '../../model/resource-version.ts';

/** What is held of a resource, with all that was delivered. */
export interface Held {
  get(key: Key): AnyObject | undefined;
  values(): Iterable<AnyObject>;
}

export type Taken =
  /** To be delivered, in this order. */
  | { readonly kind: 'news'; readonly events: readonly WatchEvent[] }
  | { readonly kind: 'repeated' }
  | { readonly kind: 'stale' }
  /** It is not known whether this is news. */
  | { readonly kind: 'disorder' };

/** What a watch event is against what is held; all up to version `known` has been delivered. */
export function takeChange(held: Held, known: string, event: WatchEvent): Taken {
  const { object, type } = event;
  const before = held.get(object.key);
  if (before === undefined) {
    if (type === 'deleted') return { kind: 'repeated' };
    const late = isAtLeast(known, object.resourceVersion);
    return late ? { kind: 'disorder' } : { kind: 'news', events: [event] };
  }
  const age = compareVersions(object.resourceVersion, before.resourceVersion);
  if (age === -1) return { kind: 'stale' };
  const same = before.uid === object.uid;
  // Old servers send a deleted object with its last version.
  if (age === 0 && (!same || type !== 'deleted')) return { kind: 'repeated' };
  if (same) return { kind: 'news', events: [event] };
  const gone = deletion(before, event);
  return { kind: 'news', events: type === 'deleted' ? [gone] : [gone, event] };
}

/** The end of an object of which no deletion was seen. */
function deletion(object: AnyObject, { resource, at }: Pick<WatchEvent, 'resource' | 'at'>) {
  return { resource, type: 'deleted', object, at, gap: true } satisfies WatchEvent;
}

/** A list that arrives. */
export interface Listing {
  /** All up to this version was delivered before; null: nothing was. */
  readonly known: string | null;
  /** The history of the server may have begun anew: no item is taken for one that is held. */
  readonly doubted: boolean;
  /**
   * Every key that was listed, also of objects that cannot be read; null: nothing was held when the
   * list began, so what is held was listed.
   */
  readonly seen: Set<Key> | null;
  /** What can be judged only when the list is complete. */
  readonly aside: Map<Key, WatchEvent>;
}

export function newListing(held: Held, known: string | null, doubted: boolean): Listing {
  const [anything] = held.values();
  return {
    known,
    doubted,
    seen: anything === undefined && !doubted ? null : new Set(),
    aside: new Map(),
  };
}

/**
 * Takes an item of the list, or an event that comes before the list is complete (WatchList).
 * Returns what can be delivered at once.
 */
export function takeItem(listing: Listing, held: Held, event: WatchEvent): readonly WatchEvent[] {
  const { known, doubted, seen, aside } = listing;
  const { object, type } = event;
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

/**
 * What the completed list changes besides: what was not listed, and what was put aside. `reset`:
 * the server's history began anew, so equal versions need not be the same. null now and then, when
 * others may have the loop.
 */
export function* completeListing(
  { known, seen, aside }: Listing,
  held: Held,
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

/** Whether a version is newer than another, where it can be told. */
function isBeyond({ resourceVersion }: AnyObject, version: string | null): boolean {
  return version === null || compareVersions(resourceVersion, version) === 1;
}

/** The events by which a listed object takes the place of what is held. */
function replacing(
  before: AnyObject | undefined,
  event: WatchEvent,
  gap: boolean,
): readonly WatchEvent[] {
  if (before === undefined) return [{ ...event, type: 'added', ...(gap ? { gap } : {}) }];
  if (before.uid === event.object.uid) return [{ ...event, type: 'modified', gap: true }];
  return [deletion(before, event), { ...event, type: 'added', gap: true }];
}
