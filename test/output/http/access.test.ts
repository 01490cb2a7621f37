// Who may read, over real sockets of the loopback interface.

import { hashSync } from 'bcryptjs';
import { afterEach, expect, test } from 'vitest';

import type { AuditorQueries } from '../../../src/auditor/queries.ts';
import type { ReviewAccess, ReviewedAccess } from '../../../src/output/http/access.ts';
import { createApp, listen } from '../../../src/output/http/server.ts';

const answers = {
  stuck: () => null,
  notReady: () => null,
  nodes: () => [],
  beat: () => ({ revision: '', now: 0, lost: null }),
  scrape: () => {
    throw new Error('The metrics are not rendered');
  },
} as unknown as AuditorQueries;

let server: Awaited<ReturnType<typeof listen>> | null = null;

afterEach(async () => {
  await server?.close();
  server = null;
});

const reviews: string[] = [];

const allowed: ReviewedAccess = { kind: 'allowed', why: '' };

/** Each token may get the path that it names. */
const review: ReviewAccess = (token, path) => {
  reviews.push(`${token} ${path}`);
  if (token === 'down') return Promise.resolve({ kind: 'unavailable', why: 'no answer' });
  if (token === 'bad') return Promise.resolve({ kind: 'unauthenticated', why: 'no such token' });
  const isAllowed = token === path || token === 'all';
  return Promise.resolve(isAllowed ? allowed : { kind: 'forbidden', why: `not ${path}` });
};

const users = new Map([['me', hashSync('secret', 4)]]);

async function ask(path: string, authorization: string | null, logins = new Map<string, string>()) {
  const config = { tls: null, users: logins };
  const app = createApp(answers, { onError: () => undefined, config: () => config, review });
  server = await listen(app, { host: '127.0.0.1', port: 0 });
  const headers = authorization === null ? {} : { authorization };
  const response = await fetch(`http://127.0.0.1:${String(server.port)}${path}`, { headers });
  const text = response.status === 200 ? '' : await response.text();
  const { headers: found } = response;
  await server.close();
  return { status: response.status, text, headers: found };
}

test.each([
  ['/metrics', 'Bearer /metrics', 500],
  ['/metrics', 'Bearer /endpoint-auditor', 403],
  ['/METRICS/', 'Bearer /metrics', 500],
  ['/METRICS/', 'Bearer /endpoint-auditor', 403],
  ['/api/v1/nodes', 'Bearer /endpoint-auditor', 200],
  ['/api/v1/nodes', 'bearer /endpoint-auditor', 200],
  ['/api/v1/nodes', 'Bearer /metrics', 403],
  ['/api/v1/nodes', 'Bearer bad', 401],
  ['/api/v1/nodes', 'Bearer down', 503],
  ['/api/v1/nodes', 'Bearer', 401],
  ['/api/v1/nodes', 'Basic bWU6c2VjcmV0', 401],
  ['/api/v1/events', null, 401],
  ['/', null, 401],
  ['/nowhere', null, 401],
  ['/livez', null, 200],
  ['/readyz', null, 200],
])('%s with %s has the status %d', async (path, authorization, status) => {
  expect((await ask(path, authorization)).status).toBe(status);
});

test('no path of the API server is asked for the page and the API', async () => {
  reviews.length = 0;
  for (const path of ['/', '/api', '/api/v1/nodes', '/docs', '/version', '/openapi']) {
    await ask(path, 'Bearer all');
  }
  expect(new Set(reviews)).toEqual(new Set(['all /endpoint-auditor']));
});

test('a refusal has the reason, and what to send', async () => {
  const missing = await ask('/metrics', null);
  expect(missing.text).toBe('Unauthorized: a bearer token is missing\n');
  expect(missing.headers.get('www-authenticate')).toBe('Bearer');
  expect((await ask('/metrics', 'Bearer bad')).text).toBe('Unauthorized: no such token\n');
  expect((await ask('/metrics', 'Bearer x')).text).toBe('Forbidden: not /metrics\n');
  const down = await ask('/metrics', 'Bearer down');
  expect(down.text).toBe('Unavailable: no answer\n');
  expect(down.headers.get('retry-after')).toBe('5');
});

test.each([
  ['Basic bWU6c2VjcmV0', 200],
  ['Basic bWU6d3Jvbmc=', 401],
  ['Bearer all', 200],
  ['Bearer bad', 401],
  [null, 401],
])('with logins too, %s has the status %d', async (authorization, status) => {
  const { status: got, headers } = await ask('/api/v1/nodes', authorization, users);
  expect(got).toBe(status);
  const schemes = 'Basic realm="endpoint-auditor", Bearer';
  expect(headers.get('www-authenticate')).toBe(status === 401 ? schemes : null);
});
