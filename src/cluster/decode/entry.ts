// The entries that a live cluster delivers: object changes and watch states.

import type { UnreadableObject, Resource, WatchEvent } from '../../model/objects.ts';

/** One entry; those of a resource are in order. `at` is the arrival, Unix seconds. */
export type LiveEntry =
  | {
      /** The first entry, and again when the control plane has changed. */
      readonly kind: 'header';
      readonly at: number;
      /** The version of the control plane, such as `v1.36.3`; null if it is unknown. */
      readonly kubernetes: string | null;
      /** What is watched. */
      readonly resources: readonly Resource[];
    }
  | { readonly kind: 'event'; readonly event: WatchEvent }
  | {
      readonly kind: 'unreadable';
      readonly at: number;
      readonly type: WatchEvent['type'] | null;
      readonly lost: UnreadableObject;
    }
  /** A list is complete: objects that are missing in it have been delivered as deleted. */
  | { readonly kind: 'synced'; readonly at: number; readonly resource: Resource }
  | {
      /** All up to this version has been delivered. */
      readonly kind: 'progress';
      readonly at: number;
      readonly resource: Resource;
      readonly resourceVersion: string;
    }
  | {
      readonly kind: 'watch';
      readonly at: number;
      readonly resource: Resource;
      readonly state: WatchState;
    };
/**
 * - listing: the first list is not complete
 * - synced: the list is complete and the server has accepted the watch
 * - stale: the watch is lost and not yet established again
 * - relisting: history is lost, and a new list is under way
 * - off: not watched, by choice or for want of a permission
 */
export type WatchState = 'listing' | 'synced' | 'stale' | 'relisting' | 'off';
