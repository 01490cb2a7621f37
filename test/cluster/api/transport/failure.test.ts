// Which reason and sentence each error of a request has.

import { describe, expect, test } from 'vitest';

import {
  describeFailure,
  GivenUp,
  MissingCredentials,
  tokenExpiry,
  UnexpectedAnswer,
} from '../../../../src/cluster/api/transport/failure.ts';
import { failureReasons, failureText } from '../../../../src/model/connection.ts';

const coded = (code: string, more: object = {}): Error =>
  Object.assign(new Error(`message of ${code}`), { code }, more);

const file = coded('ENOENT', { syscall: 'open', path: '/run/token', errno: -2 });

describe('an error has a reason of the closed set', () => {
  test.each<[unknown, string, string]>([
    [coded('ECONNREFUSED'), 'dial', 'connection refused'],
    [coded('EHOSTUNREACH'), 'dial', 'no route to the host'],
    [coded('ENOTFOUND'), 'dns', 'the host is unknown'],
    [coded('EAI_AGAIN'), 'dns', 'the name server does not answer'],
    [coded('UND_ERR_CONNECT_TIMEOUT'), 'timeout', 'no answer'],
    [new GivenUp('idle', 10), 'timeout', 'no answer within 10 s'],
    [new GivenUp('timeout', 30), 'timeout', 'no complete answer within 30 s'],
    [coded('ECONNRESET'), 'closed', 'the connection was closed before the answer was complete'],
    [coded('UND_ERR_SOCKET'), 'closed', 'the connection was closed before the answer was complete'],
    [
      coded('DEPTH_ZERO_SELF_SIGNED_CERT'),
      'tls',
      'the certificate is signed by an unknown authority',
    ],
    [
      coded('UNABLE_TO_VERIFY_LEAF_SIGNATURE'),
      'tls',
      'the certificate is signed by an unknown authority',
    ],
    [coded('CERT_HAS_EXPIRED'), 'tls', 'the certificate of the server has expired'],
    [
      coded('ERR_TLS_CERT_ALTNAME_INVALID', {
        host: '10.0.0.1',
        cert: { subjectaltname: 'DNS:kubernetes, IP Address:10.96.0.1' },
      }),
      'tls',
      'the certificate is for kubernetes, 10.96.0.1, not for 10.0.0.1',
    ],
    [coded('ERR_SSL_WRONG_VERSION_NUMBER'), 'tls', 'the server does not speak TLS'],
    [coded('ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE'), 'tls', 'the TLS handshake failed'],
    [coded('HPE_INVALID_CONSTANT'), 'not_kubernetes', 'the server does not speak HTTP'],
    [new SyntaxError('<'), 'not_kubernetes', 'the answer is not JSON'],
    [file, 'credentials', '/run/token cannot be read: no such file or directory'],
    [
      new MissingCredentials('exec', 'the exec plugin aws failed'),
      'exec',
      'the exec plugin aws failed',
    ],
    [
      new UnexpectedAnswer(401, ''),
      'unauthorized',
      'the credentials are rejected (401 Unauthorized)',
    ],
    [
      new UnexpectedAnswer(401, '', 1_700_000_000),
      'unauthorized',
      'the token expired at 2023-11-14T22:13:20.000Z',
    ],
    [new UnexpectedAnswer(403, 'no'), 'forbidden', 'the server answers 403 Forbidden ("no")'],
    [new UnexpectedAnswer(404, ''), 'not_kubernetes', 'the server answers 404 Not Found'],
    [new UnexpectedAnswer(302, ''), 'not_kubernetes', 'the server answers 302 Found, a redirect'],
    [
      new UnexpectedAnswer(200, ''),
      'not_kubernetes',
      'the answer is not that of a Kubernetes API server',
    ],
    [
      new UnexpectedAnswer(400, 'Client sent an HTTP request to an HTTPS server.'),
      'not_kubernetes',
      'the server expects HTTPS',
    ],
    [new UnexpectedAnswer(429, ''), 'throttled', 'the server answers 429 Too Many Requests'],
    [
      new UnexpectedAnswer(503, 'etcd\u001b[2J\nforged'),
      'server_error',
      'the server answers 503 Service Unavailable ("etcd\\u001b[2J")',
    ],
    [
      coded('UND_ERR_ABORTED', { message: 'Proxy response (407) !== 200 when HTTP Tunneling' }),
      'proxy',
      'the proxy answers 407 Proxy Authentication Required',
    ],
    [new Error('surprise'), 'other', 'surprise'],
    ['text', 'other', 'text'],
    [null, 'other', 'null'],
  ])('%s', (error, reason, message) => {
    expect(describeFailure(error)).toMatchObject({ reason, message });
    expect(failureReasons).toContain(reason);
  });
});

test('the cause of an error, and the errors of all addresses, are looked at', () => {
  const wrapped = new Error('fetch failed', { cause: coded('ECONNREFUSED') });
  const both = new AggregateError([coded('ENETUNREACH'), coded('ECONNREFUSED')], '');
  expect(describeFailure(wrapped).reason).toBe('dial');
  expect(describeFailure(both)).toMatchObject({
    reason: 'dial',
    message: 'the network is unreachable',
  });
});

test('only a server that does not answer cannot be reached', () => {
  expect(failureText({ reason: 'dial' })).toBe('Cannot reach the API server');
  expect(failureText({ reason: 'unauthorized' })).toBe('Cannot read from the API server');
});

test('the expiry of a token is read from a JSON Web Token only', () => {
  const payload = Buffer.from(JSON.stringify({ exp: 1_700_000_000 })).toString('base64url');
  expect(tokenExpiry(`Bearer x.${payload}.y`)).toBe(1_700_000_000);
  for (const other of [undefined, 'Bearer opaque', 'Bearer a.b.c', `Basic x.${payload}.y`]) {
    expect(tokenExpiry(other)).toBeNull();
  }
});
