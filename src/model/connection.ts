// Why the API server cannot be read, as a closed set of words, and since when.

import { recordOf } from './collections.ts';
import { resources } from './objects.ts';

/**
 * - dial: no connection (refused, no route); closed: the connection ended before the answer
 * - dns: the name of the host is unknown; tls: a certificate or the handshake is wrong
 * - timeout: no answer, or no more bytes of it; proxy: the proxy failed
 * - exec: the credential plugin failed; credentials: a token or certificate cannot be read
 * - unauthorized: 401; forbidden: 403; throttled: 429; server_error: 500 and above
 * - not_kubernetes: the address is not that of a Kubernetes API server
 */
export const failureReasons = [
  'dial',
  'dns',
  'tls',
  'timeout',
  'closed',
  'proxy',
  'exec',
  'credentials',
  'unauthorized',
  'forbidden',
  'throttled',
  'not_kubernetes',
  'server_error',
  'other',
] as const;

export type FailureReason = (typeof failureReasons)[number];

export type ErrorCounts = Readonly<Record<RequestKind, Readonly<Record<FailureReason, number>>>>;

/** All counts are 0. */
export const newErrorCounts = () => recordOf(requestKinds, () => recordOf(failureReasons, () => 0));

export interface ConnectionFailure {
  readonly reason: FailureReason;
  /** A phrase for people, without a full stop: `connection refused`. */
  readonly message: string;
  /** A sentence that says what to do; `null` if the message suffices. */
  readonly advice: string | null;
}

/** The requests that are counted: of a resource, and of the server's version. */
export const requestKinds = [...resources, 'version'] as const;

export type RequestKind = (typeof requestKinds)[number];

export type LostConnection = ConnectionFailure & {
  /** When the first request failed, Unix seconds. */
  readonly since: number;
};

const withoutAnswer: readonly FailureReason[] = [
  'dial',
  'dns',
  'tls',
  'timeout',
  'closed',
  'proxy',
];

/** `Cannot reach the API server`, or `Cannot read from the API server` if it answers. */
export const failureText = ({ reason }: Pick<ConnectionFailure, 'reason'>): string =>
  withoutAnswer.includes(reason)
    ? 'Cannot reach the API server'
    : 'Cannot read from the API server';
