// Requests with `at`: what is answered as of a moment, and what is refused.

import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { connect } from 'node:net';

import { afterEach, describe, expect, test } from 'vitest';

import { createAuditor } from '../../../src/auditor/auditor.ts';
import { createQueries } from '../../../src/auditor/queries.ts';
import { type AnswerMoment, NoMoment } from '../../../src/output/http/moments.ts';
import { createApp, listen } from '../../../src/output/http/server.ts';
import { auditorDefaults } from '../../build.ts';

let server: Awaited<ReturnType<typeof listen>>;

afterEach(async () => {
  await server.close();
});

type Get = (path: string, init?: RequestInit) => Promise<Response>;

async function open(moments: AnswerMoment | null): Promise<Get> {
  const queries = createQueries(createAuditor(auditorDefaults), 'test');
  server = await listen(createApp(queries, { moments }), { host: '127.0.0.1', port: 0 });
  return (path, init) => fetch(`http://127.0.0.1:${String(server.port)}${path}`, init);
}

const asked: (readonly [number, string])[] = [];

const answer: AnswerMoment = (at, path) => {
  asked.push([at, path]);
  const body = Buffer.from('{"format":1}');
  return Promise.resolve({
    status: 404,
    type: 'application/json',
    body,
    losses: ['Some "lines"', 'ä'],
  });
};

describe('a request with at', () => {
  test('gets the answer as of that moment, with what is missing', async () => {
    const get = await open(answer);
    const response = await get('/api/v1/services?namespace=a%20b&at=2026-11-21T10:57:00Z');
    expect(asked).toEqual([[1795258620, '/api/v1/services?namespace=a+b']]);
    expect(response.status).toBe(404);
    expect(await response.json()).toEqual({ format: 1 });
    expect(response.headers.get('warning')).toBe('199 - "Some \\"lines\\"; ?"');
  });

  test('gets a page whose link to the present keeps what else was asked for', async () => {
    const [type, body] = ['text/html', Buffer.from('<a href="?">Live again</a>')];
    const get = await open(() => Promise.resolve({ status: 200, type, body, losses: [] }));
    const page = await get('//services?namespace=shop&at=5&page=2');
    expect(await page.text()).toBe('<a href="?namespace=shop&amp;page=2">Live again</a>');
  });

  test('that is redirected keeps the moment, and a download keeps its name', async () => {
    const [type, body] = ['text/csv', Buffer.from('')];
    const [location, disposition] = ['/services/shop/web?x=1#a', 'attachment; filename="a.csv"'];
    const get = await open(() =>
      Promise.resolve({ status: 302, type, body, losses: [], location, disposition }),
    );
    const { headers } = await get('/search?q=web&at=5', { redirect: 'manual' });
    expect(headers.get('location')).toBe('/services/shop/web?x=1&at=5#a');
    expect(headers.get('content-disposition')).toBe(disposition);
  });

  test('and a path that looks like a host is asked for by its path', async () => {
    asked.length = 0;
    const get = await open(answer);
    expect((await get('//[?at=5')).status).toBe(404);
    expect((await get('//web/path?at=5')).status).toBe(404);
    expect(asked.map(([, path]) => path)).toEqual(['//[', '//web/path']);
  });

  test.each(['yesterday', '', '-5', '10:57', '1&at=2'])('%j is refused', async (at) => {
    const get = await open(() => Promise.reject(new Error('Not to be asked')));
    const response = await get(`/?at=${at}`);
    expect(response.status).toBe(400);
    const error = 'Expected Unix seconds or RFC 3339: at';
    expect(await response.json()).toEqual({ format: 1, error });
  });

  test('without a history is refused', async () => {
    const get = await open(null);
    const response = await get('/api/v1/findings?at=5');
    expect(response.status).toBe(400);
    expect(await response.text()).toContain('There is no history');
  });

  test('is refused while others have not read what they asked for', async () => {
    const [type, body] = ['text/plain', Buffer.alloc(20 * 1024 * 1024)];
    const get = await open(() => Promise.resolve({ status: 200, type, body, losses: [] }));
    const idle = connect(server.port, '127.0.0.1');
    idle.on('error', () => undefined);
    idle.write('GET /?at=5 HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await once(idle, 'readable');
    const refused = await get('/?at=5');
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '2']);
    expect(await refused.text()).toContain('Other clients have not read their answers yet');
    idle.destroy();
    await expect.poll(async () => (await get('/?at=5')).status).toBe(200);
  });

  test('is answered although other clients have left before their answers', async () => {
    const [type, body] = ['text/plain', Buffer.alloc(20 * 1024 * 1024)];
    const [asked, left] = [Promise.withResolvers<null>(), Promise.withResolvers<null>()];
    const answered = { status: 200, type, body, losses: [] };
    const get = await open(async (at) => {
      if (at === 6) return answered;
      asked.resolve(null);
      await left.promise;
      return answered;
    });
    const watchEnd = (message: unknown): void => {
      const { response } = message as { response: ServerResponse };
      response.once('close', () => left.resolve(null));
    };
    subscribe('http.server.request.start', watchEnd);
    const leaving = connect(server.port, '127.0.0.1');
    leaving.write('GET /?at=5 HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await asked.promise;
    leaving.destroy();
    await left.promise;
    unsubscribe('http.server.request.start', watchEnd);
    expect((await get('/?at=6')).status).toBe(200);
  });

  test.each([
    ['wrong', 400, null],
    ['long', 413, null],
    ['busy', 503, '2'],
    ['failed', 503, '30'],
  ] as const)('is refused: %s', async (reason, status, retryAfter) => {
    const get = await open(() => Promise.reject(new NoMoment(reason, 'Why')));
    const response = await get('/api/v1/nodes?at=5');
    expect([response.status, response.headers.get('retry-after')]).toEqual([status, retryAfter]);
    expect(await response.json()).toEqual({ format: 1, error: 'Why' });
  });
});
