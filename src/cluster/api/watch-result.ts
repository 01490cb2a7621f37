// How an attempt to list or watch ended, and what the API server's refusals mean
// (k8s.io/apimachinery@v0.36.3 pkg/api/errors/errors.go).

import type { Resource } from '../../model/objects.ts';
import type { ApiStatus } from '../decode/frame.ts';

export type WatchVerb = 'list' | 'watch';

/** What a reflector asks for, gets and does not use; all from 0. */
export const newCounters = () => ({
  /** A WatchList has no pages. */
  lists: 0,
  pages: 0,
  watches: 0,
  /** Delivered changes; then dropped ones. */
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
  /**
   * gone: history is compacted; expired: a continue token or version is too old; reset: the
   * server's history went back; disorder: versions arrived in a wrong order; gap: an event was
   * lost; starved: no event and no bookmark arrived.
   */
  relists: { gone: 0, expired: 0, reset: 0, disorder: 0, gap: 0, starved: 0 },
  /**
   * eof: the server ended it in order; timeout: it did not end in time; reset: the network ended
   * it; idle: no byte arrived; status: the server refused; frame: unreadable; older than the cache;
   * endless: a list without an end.
   */
  reconnects: { eof: 0, timeout: 0, reset: 0, idle: 0, status: 0, frame: 0, older: 0, endless: 0 },
});

export type RelistReason = keyof ReturnType<typeof newCounters>['relists'];
export type ReconnectReason = keyof ReturnType<typeof newCounters>['reconnects'];

export type WatchResult =
  | { readonly kind: 'listed' }
  /** A watch ended in order, and the next may begin after these seconds. */
  | { readonly kind: 'ended'; readonly seconds: number }
  | { readonly kind: 'relist'; readonly reason: RelistReason }
  /** The server does not send initial events with a watch. */
  | { readonly kind: 'no-watch-list' }
  /** A WatchList ended, or was silent, without the end of its initial events. */
  | { readonly kind: 'endless' }
  | { readonly kind: 'throttled'; readonly seconds: number | null }
  | { readonly kind: 'unauthorised' }
  | { readonly kind: 'denied'; readonly verb: WatchVerb; readonly status: ApiStatus }
  | { readonly kind: 'failed'; readonly reason: ReconnectReason };

export const failed = (reason: ReconnectReason): WatchResult => ({ kind: 'failed', reason });

/**
 * Seconds of a Retry-After: a wrong one must not stop a watch, and a timer holds at most 24 days.
 * Below a second the back-off applies; client-go reads no fractions either.
 */
const wait = { least: 1, most: 3600 } as const;

/** The meaning of the status of an answer, or of an event in a watch. */
export function outcomeOf(status: ApiStatus, verb: WatchVerb, watchList: boolean): WatchResult {
  const { code, reason, causes } = status;
  const asked = status.retryAfter ?? 0;
  const retryAfter = asked < wait.least ? null : Math.min(asked, wait.most);
  switch (code) {
    case 401:
      return { kind: 'unauthorised' };
    case 403:
    case 404:
    case 405:
      return { kind: 'denied', verb, status };
    case 410:
      return { kind: 'relist', reason: reason === 'Expired' ? 'expired' : 'gone' };
    case 400:
    case 422:
    case 501:
      return watchList ? { kind: 'no-watch-list' } : failed('status');
    case 429:
      return { kind: 'throttled', seconds: retryAfter };
    case 504:
      // The version is beyond all that the server knows.
      return failed(causes.includes('ResourceVersionTooLarge') ? 'older' : 'status');
    default:
      return retryAfter === null ? failed('status') : { kind: 'throttled', seconds: retryAfter };
  }
}

const without: Readonly<Record<Resource, string>> = {
  services: 'Nothing can be audited without it',
  pods: 'Without it only EndpointSlices mirrored from Endpoints are audited',
  nodes: 'Without it the zones, hints and missing endpoints of EndpointSlices are unknown',
  endpoints: 'Without it EndpointSlices of Services with a selector are audited',
  endpointslices: 'Without it only Endpoints are audited',
};

/** One line for people: which permission is missing, and what still works. */
export function denialText(
  resource: Resource,
  namespace: string | null,
  verb: WatchVerb,
  status: ApiStatus,
): string {
  const fault = status.code === 403 ? 'Not allowed to' : 'The server has no way to';
  const where = namespace === null ? '' : ` in namespace ${namespace}`;
  return `${fault} ${verb} ${resource}${where}: ${without[resource]}`;
}
