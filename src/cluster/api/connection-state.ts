// Whether the API server can be read, from the outcomes of all requests. The connection is lost
// when a request fails, and restored when each stream whose requests failed has succeeded.

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

/** What a stream reports its requests to. */
export type ConnectionReports = Pick<ConnectionState, 'succeeded' | 'failed'>;

/** `onChange` is called for a loss, for each further reason during it, and for its end. */
export function createConnectionState(
  now: () => number,
  onChange: (change: ConnectionChange) => void,
) {
  const errors = newErrorCounts();
  const failing = new Set<string>();
  const reported = new Set<FailureReason>();
  let lost: LostConnection | null = null;
  let hasAnswered = false;
  const succeeded = (request: RequestKind, stream: string = request): void => {
    hasAnswered = true;
    failing.delete(stream);
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
    /** Whether the API server has answered any request. */
    hasAnswered: () => hasAnswered,
    succeeded,
    /** A resource with several streams has a name for each. */
    failed(request: RequestKind, failure: ConnectionFailure, stream: string = request): void {
      errors[request][failure.reason]++;
      // The server answers; a missing permission has a message of its own.
      if (failure.reason === 'forbidden') {
        succeeded(request, stream);
        return;
      }
      failing.add(stream);
      lost = { ...failure, since: lost?.since ?? now() };
      if (reported.has(failure.reason)) return;
      reported.add(failure.reason);
      onChange({ kind: 'lost', failure: lost });
    },
  };
}
