// Whether the API server can be read, from the outcomes of all requests. The connection is lost
// when a request fails, and restored when each kind of request that failed has succeeded.

import type {
  ConnectionFailure,
  ErrorCounts,
  FailureReason,
  LostConnection,
  RequestKind,
} from '../../model/connection.ts';
import { newErrorCounts } from '../../model/connection.ts';

export type ConnectionChange =
  | { readonly kind: 'lost'; readonly failure: LostConnection }
  /** `seconds` since the first failure. */
  | { readonly kind: 'restored'; readonly seconds: number };

export type ConnectionState = ReturnType<typeof createConnectionState>;

/** `onChange` is called for a loss, for each further reason during it, and for its end. */
export function createConnectionState(
  now: () => number,
  onChange: (change: ConnectionChange) => void,
) {
  const errors = newErrorCounts();
  const failing = new Set<RequestKind>();
  const reported = new Set<FailureReason>();
  let lost: LostConnection | null = null;
  const succeeded = (request: RequestKind): void => {
    failing.delete(request);
    if (lost === null || failing.size > 0) return;
    const seconds = now() - lost.since;
    lost = null;
    reported.clear();
    onChange({ kind: 'restored', seconds });
  };
  return {
    /** Failed requests since the start. */
    errors: errors as ErrorCounts,
    /** `null` while the API server answers. */
    lost: () => lost,
    succeeded,
    failed(request: RequestKind, failure: ConnectionFailure): void {
      errors[request][failure.reason]++;
      // The server answers; a missing permission has a message of its own.
      if (failure.reason === 'forbidden') {
        succeeded(request);
        return;
      }
      failing.add(request);
      lost = { ...failure, since: lost?.since ?? now() };
      if (reported.has(failure.reason)) return;
      reported.add(failure.reason);
      onChange({ kind: 'lost', failure: lost });
    },
  };
}
