import express from 'express';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { addPages, listen } from '../../../src/output/http/server.ts';
import { assetPath } from '../../../src/output/page/frame.ts';
import { numbersOf, statusOf, wordsIn } from '../samples.ts';

const asked: unknown[] = [];
let server: Awaited<ReturnType<typeof listen>>;

beforeAll(async () => {
  const app = express();
  addPages(app, {
    status: () => statusOf(),
    services: () => [numbersOf(), numbersOf({ name: 'api' })],
    servicePage(...what) {
      asked.push(what);
      return null;
    },
    nodePage(...what) {
      asked.push(what);
      return null;
    },
  });
  server = await listen(
    { express: app, endStreams: () => undefined },
    { host: '127.0.0.1', port: 0 },
  );
});

afterAll(() => server.close());

const get = (path: string): Promise<Response> =>
  fetch(`http://127.0.0.1:${String(server.port)}${path}`);

test.each([
  ['/services?q=api', 'api', 'web'],
  ['/services?q=api&page=x&verdict=', 'api', 'web'],
  ['/services?q=web&q=api', 'api', 'zzz'],
  ['/findings?severity=info', 'shop/api', 'shop/web'],
])('%s shows %s and not %s', async (path, shown, hidden) => {
  const text = wordsIn(await (await get(path)).text());
  expect(text).toContain(shown);
  expect(text).not.toContain(` ${hidden} `);
});

test('names arrive unescaped, with the parameters of the query', async () => {
  asked.length = 0;
  for (const path of [
    '/services/a%2Fb/c?from=100',
    '/services/a/b?from=-1',
    '/nodes/n?port=a/b:c',
  ]) {
    expect((await get(path)).status).toBe(404);
  }
  expect(asked).toEqual([
    ['a/b', 'c', 100],
    ['a', 'b', 0],
    ['n', 'a/b:c'],
  ]);
});

test('a missing Service or node has a page', async () => {
  const response = await get('/nodes/%3Cb%3E');
  expect(wordsIn(await response.text())).toContain(
    'There is no Node <b>, and nothing is told of one.',
  );
});

test('an asset may be cached forever', async () => {
  const response = await get(assetPath('page.js'));
  expect(response.headers.get('content-type')).toBe('text/javascript; charset=utf-8');
  expect(response.headers.get('cache-control')).toContain('immutable');
});
