// What a reflector counts: everything that it asks for, gets, and does not use. Plain numbers, for
// the self metrics.

import type { ReconnectReason, RelistReason } from './watch-result.ts';

export interface WatchCounters {
  /** Lists that were complete, and pages of them; a WatchList has none. */
  lists: number;
  pages: number;
  /** Watches that the server accepted. */
  watches: number;
  /** Delivered changes, and dropped ones: repeated, or older than the cached object. */
  events: number;
  repeated: number;
  stale: number;
  bookmarks: number;
  /** Frames that could not be decoded, and objects that could not be read. */
  badFrames: number;
  unreadable: number;
  /** Refusals: too many requests, not authenticated, no permission. */
  throttled: number;
  unauthorised: number;
  denied: number;
  bytes: number;
  readonly relists: Record<RelistReason, number>;
  readonly reconnects: Record<ReconnectReason, number>;
}

export const newCounters = (): WatchCounters => ({
  lists: 0,
  pages: 0,
  watches: 0,
  events: 0,
  repeated: 0,
  stale: 0,
  bookmarks: 0,
  badFrames: 0,
  unreadable: 0,
  throttled: 0,
  unauthorised: 0,
  denied: 0,
  bytes: 0,
  relists: { gone: 0, expired: 0, reset: 0, disorder: 0 },
  reconnects: { eof: 0, timeout: 0, reset: 0, idle: 0, status: 0, frame: 0, older: 0 },
});
