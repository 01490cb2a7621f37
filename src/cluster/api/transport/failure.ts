// Turns an error of a request to the API server into a reason and a sentence. The codes are those
// of libuv, of undici, and of OpenSSL's X509_verify_cert_error_string as Node names them.

import { STATUS_CODES } from 'node:http';

import type { ConnectionFailure, FailureReason } from '../../../model/connection.ts';
import { isSystemError, systemReason } from '../../decode/problem.ts';

/** An answer of the API server, or of a server in its place, that is not the expected one. */
export class UnexpectedAnswer extends Error {
  readonly status: number;
  /** The message of the server; '' if it sent none. */
  readonly text: string;
  /** When the token expired, Unix seconds; null if it did not, or is not a JSON Web Token. */
  readonly expiredAt: number | null;
  constructor(status: number, text: string, expiredAt: number | null = null) {
    super(`${status} ${text}`);
    this.status = status;
    this.text = text;
    this.expiredAt = expiredAt;
  }
}

/** A request exceeded its limit: no byte of the answer, silence within it, or no end. */
export class GivenUp extends Error {
  readonly reason: 'idle' | 'silent' | 'timeout';
  readonly seconds: number;
  constructor(reason: GivenUp['reason'], seconds: number) {
    const what = { idle: 'answer', silent: 'more bytes', timeout: 'complete answer' }[reason];
    super(`no ${what} within ${Math.round(seconds)} s`);
    this.reason = reason;
    this.seconds = seconds;
  }
}

/** The credentials for a request are missing: a plugin failed, or a file cannot be read. */
export class MissingCredentials extends Error {
  readonly reason: 'exec' | 'credentials';
  readonly advice: string | null;
  constructor(reason: 'exec' | 'credentials', message: string, advice: string | null = null) {
    super(message);
    this.reason = reason;
    this.advice = advice;
  }
}

type Known = readonly [reason: FailureReason, message: string, advice?: string];

const address = 'Check the server address in the kubeconfig, and that the API server runs.';
const authority = 'Check certificate-authority-data in the kubeconfig.';
const unknownAuthority: Known = [
  'tls',
  'the certificate is signed by an unknown authority',
  authority,
];
const closed: Known = ['closed', 'the connection was closed before the answer was complete'];
const silent: Known = ['timeout', 'no answer', address];

const byCode: Readonly<Record<string, Known>> = {
  ECONNREFUSED: ['dial', 'connection refused', address],
  EHOSTUNREACH: ['dial', 'no route to the host', address],
  ENETUNREACH: ['dial', 'the network is unreachable', address],
  EADDRNOTAVAIL: ['dial', 'the machine has no free address to connect from'],
  EHOSTDOWN: ['dial', 'the host is down', address],
  ENOTFOUND: ['dns', 'the host is unknown', 'Check the server address in the kubeconfig.'],
  EAI_AGAIN: ['dns', 'the name server does not answer'],
  EAI_FAIL: ['dns', 'the name server failed'],
  EAI_NODATA: ['dns', 'the host has no address'],
  ETIMEDOUT: silent,
  UND_ERR_CONNECT_TIMEOUT: silent,
  UND_ERR_HEADERS_TIMEOUT: silent,
  UND_ERR_BODY_TIMEOUT: silent,
  ECONNRESET: closed,
  EPIPE: closed,
  ECONNABORTED: closed,
  UND_ERR_SOCKET: closed,
  UND_ERR_INFO: closed,
  UND_ERR_CLOSED: closed,
  UND_ERR_DESTROYED: closed,
  DEPTH_ZERO_SELF_SIGNED_CERT: unknownAuthority,
  SELF_SIGNED_CERT_IN_CHAIN: unknownAuthority,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: unknownAuthority,
  UNABLE_TO_GET_ISSUER_CERT: unknownAuthority,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: unknownAuthority,
  CERT_UNTRUSTED: unknownAuthority,
  CERT_SIGNATURE_FAILURE: ['tls', 'the signature of the certificate is wrong', authority],
  CERT_HAS_EXPIRED: ['tls', 'the certificate of the server has expired', 'Check the clock, too.'],
  CERT_NOT_YET_VALID: ['tls', 'the certificate of the server is not valid yet', 'Check the clock.'],
  CERT_REVOKED: ['tls', 'the certificate of the server is revoked'],
  HOSTNAME_MISMATCH: ['tls', 'the certificate is for another host name'],
  ERR_SSL_WRONG_VERSION_NUMBER: [
    'tls',
    'the server does not speak TLS',
    'Check whether the server address must begin with http:// instead of https://.',
  ],
  ERR_TLS_HANDSHAKE_TIMEOUT: ['timeout', 'the TLS handshake did not end'],
};
const noTls = byCode.ERR_SSL_WRONG_VERSION_NUMBER;

const byPrefix: readonly (readonly [prefix: string, known: Known])[] = [
  ['ERR_SSL_PACKET_LENGTH_TOO_LONG', noTls ?? closed],
  [
    'ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED',
    ['tls', 'the server requires a client certificate'],
  ],
  ['ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED', ['tls', 'the client certificate has expired']],
  ['ERR_SSL_', ['tls', 'the TLS handshake failed']],
  ['ERR_TLS_', ['tls', 'the TLS handshake failed']],
  ['ERR_OSSL_', ['credentials', 'a certificate or key of the kubeconfig cannot be read']],
  ['ERR_HTTP2_', closed],
  ['HPE_', ['not_kubernetes', 'the server does not speak HTTP', address]],
];

/** Why a request failed. Never throws. */
export function describeFailure(error: unknown): ConnectionFailure {
  const chain = chainOf(error);
  for (const one of chain) {
    const known = describeKnown(one);
    if (known !== null) return known;
  }
  const [first] = chain;
  const message = first instanceof Error ? first.message : String(error);
  return failure(['other', short(message) || 'unknown error']);
}

const failure = ([reason, message, advice = null]: readonly [
  FailureReason,
  string,
  (string | null)?,
]): ConnectionFailure => ({ reason, message, advice });

/** An error with its causes, and the errors of all addresses of a host. */
function chainOf(error: unknown, depth = 0): unknown[] {
  if (depth > 4 || error === undefined || error === null) return [];
  const { cause, errors } = error as { readonly cause?: unknown; readonly errors?: unknown };
  const others = Array.isArray(errors) ? (errors as unknown[]) : [];
  return [error, ...[cause, ...others].flatMap((inner) => chainOf(inner, depth + 1))];
}

function describeKnown(error: unknown): ConnectionFailure | null {
  if (error instanceof UnexpectedAnswer) return describeAnswer(error);
  if (error instanceof MissingCredentials) {
    return failure([error.reason, error.message, error.advice]);
  }
  if (error instanceof GivenUp) return failure(['timeout', error.message, address]);
  if (!(error instanceof Error)) return null;
  if (error instanceof SyntaxError) {
    return failure(['not_kubernetes', 'the answer is not JSON', address]);
  }
  const { code } = error as NodeJS.ErrnoException;
  if (typeof code !== 'string') return null;
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') return describeHost(error);
  if (code === 'UND_ERR_ABORTED' && error.message.startsWith('Proxy response')) {
    const [status = ''] = /\d+/.exec(error.message) ?? [];
    return failure(['proxy', `the proxy answers ${statusText(Number(status))}`]);
  }
  const known = byCode[code] ?? byPrefix.find(([prefix]) => code.startsWith(prefix))?.[1];
  if (known !== undefined) return failure(known);
  if (isSystemError(error) && error.path !== undefined) {
    return failure(['credentials', `${short(error.path)} cannot be read: ${systemReason(error)}`]);
  }
  return null;
}

/** The names of the certificate come from the server, so only some of them are repeated. */
function describeHost(error: Error): ConnectionFailure {
  const { host = '', cert } = error as {
    readonly host?: string;
    readonly cert?: { readonly subjectaltname?: string };
  };
  const names = (cert?.subjectaltname ?? '').replace(/(?:DNS|IP Address):/g, '');
  const others = names === '' ? 'another host' : short(names);
  const advice = 'Use one of these names as the server address, or set tls-server-name.';
  return failure(['tls', `the certificate is for ${others}, not for ${short(host)}`, advice]);
}

function describeAnswer({ status, text, expiredAt }: UnexpectedAnswer): ConnectionFailure {
  const answers = `the server answers ${statusText(status)}`;
  const quoted = text === '' ? answers : `${answers} (${JSON.stringify(short(text))})`;
  if (status === 401) {
    const expired = expiredAt === null ? null : new Date(expiredAt * 1000).toISOString();
    if (expired !== null)
      return failure(['unauthorized', `the token expired at ${expired}`, renew]);
    return failure(['unauthorized', 'the credentials are rejected (401 Unauthorized)', renew]);
  }
  if (status === 403) return failure(['forbidden', quoted]);
  if (status === 407) return failure(['proxy', `the proxy answers ${statusText(status)}`]);
  if (status === 429) return failure(['throttled', quoted]);
  if (status >= 500) return failure(['server_error', quoted]);
  if (status === 400 && text.includes('HTTP request to an HTTPS server')) {
    const advice = 'The server address must begin with https://.';
    return failure(['not_kubernetes', 'the server expects HTTPS', advice]);
  }
  if (status >= 300 && status < 400) {
    const advice = `${address} A login page may be in front of it.`;
    return failure(['not_kubernetes', `${answers}, a redirect`, advice]);
  }
  const isOther = status === 200 || status === 404 || status === 405;
  if (!isOther) return failure(['other', quoted]);
  const what = status === 200 ? 'the answer is not that of a Kubernetes API server' : answers;
  return failure(['not_kubernetes', what, address]);
}

const renew = 'The token or certificate may have expired: log in again, and try kubectl with it.';

const statusText = (status: number): string =>
  [String(status), STATUS_CODES[status]].filter((part) => part !== undefined).join(' ');

const short = (text: string): string => {
  const line = text.trim().split(/[\r\n]/, 1)[0] ?? '';
  return line.length > 160 ? `${line.slice(0, 159)}…` : line;
};

/** When a JSON Web Token in an Authorization header expires, Unix seconds; null if unknown. */
export function tokenExpiry(authorization: string | undefined): number | null {
  const [, payload] = /^Bearer [^.]+\.([^.]+)\.[^.]*$/.exec(authorization ?? '') ?? [];
  if (payload === undefined) return null;
  try {
    const claims = JSON.parse(Buffer.from(payload, 'base64url').toString()) as { exp?: unknown };
    return typeof claims.exp === 'number' ? claims.exp : null;
  } catch {
    return null;
  }
}
