import { type IncomingMessage, request } from 'node:http';

import express from 'express';
import { noIncidents } from '../../../src/output/page/incidents.ts';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { addPages } from '../../../src/output/http/pages.ts';
import { listen } from '../../../src/output/http/server.ts';
import type { AuditorQueries } from '../../../src/auditor/queries.ts';
import type { SearchMatch } from '../../../src/auditor/search.ts';
import { assetPath } from '../../../src/output/page/frame.ts';
import { listedOf, statusOf, wordsIn } from '../samples.ts';

const asked: unknown[] = [];
let server: Awaited<ReturnType<typeof listen>>;

beforeAll(async () => {
  const app = express();
  const answers: Partial<AuditorQueries> = {
    // An hour is recorded, so the pages have a time bar.
    status: () => ({ ...statusOf(), recordedSince: statusOf().metrics.now - 3600 }),
    services: () => [listedOf(), listedOf({ name: 'api' })],
    servicePage(...what) {
      asked.push(what);
      return null;
    },
    nodePage(...what) {
      asked.push(what);
      return null;
    },
    unserved: () => [],
    incidents: () => noIncidents,
    incident: () => null,
    podPage: () => null,
    search(query) {
      const found: SearchMatch[] = [
        { kind: 'Pod', key: 'shop/web-1', exact: false },
        { kind: 'Service', key: 'shop/web', exact: query === 'web' },
      ];
      return { query, matches: found, total: 2, explanation: null };
    },
  };
  addPages(app, answers as AuditorQueries);
  server = await listen(
    { express: app, endStreams: () => undefined },
    { host: '127.0.0.1', port: 0 },
  );
});

afterAll(() => server.close());

const get = (path: string): Promise<Response> =>
  fetch(`http://127.0.0.1:${String(server.port)}${path}`);

test.each([
  [
    '/findings.csv?severity=info',
    /^severity,namespace,service,node,[^\n]*\r\ninfo,shop,api,,endpointslices,[^\n]*\r\n$/,
  ],
  ['/services.csv?q=api&page=9', /^namespace,service,verdict,[^\n]*\r\nshop,api,ok,[^\n]*\r\n$/],
])('%s is a file with all rows that match', async (path, text) => {
  const response = await get(path);
  expect(response.headers.get('content-type')).toMatch(/^text\/csv/);
  const name = path.slice(1).split('?')[0] ?? '';
  expect(response.headers.get('content-disposition')).toBe(`attachment; filename=${name}`);
  expect(await response.text()).toMatch(text);
});

test.each([
  ['/findings?severity=info', '/findings.csv?severity=info'],
  ['/services?q=api&page=2', '/services.csv?q=api'],
])('%s links to %s', async (path, file) => {
  expect(await (await get(path)).text()).toContain(`href="${file}" download`);
});

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

test('links to earlier moments keep the query', async () => {
  const text = await (await get('/services?q=api&page=2')).text();
  expect(text).toMatch(/ href="\?q=api&amp;page=2&amp;at=\d+"/);
  expect(text).not.toContain(' href="?at=');
  expect(text).toMatch(/<form class="times"[^>]*><input type="hidden" name="q" value="api">/);
  expect(await (await get('/services')).text()).toMatch(/ href="\?at=\d+"/);
});

test('a search that is cut within a character has a page', async () => {
  const long = encodeURIComponent(`${'a'.repeat(299)}😀`);
  for (const path of ['/services', '/findings', '/nodes', '/unserved']) {
    expect((await get(`${path}?q=${long}`)).status, path).toBe(200);
  }
});

test('a path that is no valid URL has a page', async () => {
  const { port } = new URL((await get('/')).url);
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    request({ port, path: '//?q=1' }, resolve).on('error', reject).end();
  });
  answer.resume();
  expect(answer.statusCode).toBeLessThan(500);
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
    'There is no Node <b>, and no rules of it were read.',
  );
});

test('an asset may be cached forever', async () => {
  const response = await get(assetPath('page.js'));
  expect(response.headers.get('content-type')).toBe('text/javascript; charset=utf-8');
  expect(response.headers.get('cache-control')).toContain('immutable');
});

test('a search leads to the only exact match, else it lists the matches', async () => {
  const url = `http://127.0.0.1:${String(server.port)}/search?q=`;
  const only = await fetch(`${url}web`, { redirect: 'manual' });
  expect([only.status, only.headers.get('location')]).toEqual([302, '/services/shop/web']);
  const text = await (await fetch(`${url}we`)).text();
  expect(text).toContain('href="/pods/shop/web-1"');
  expect(text).toContain('href="/services/shop/web"');
});

test('the documentation is served with its headings as anchors, and its pictures', async () => {
  const runbook = await get('/docs/runbook.md');
  expect(await runbook.text()).toContain('id="endpointsnoderulesbroken"');
  const readme = await (await get('/docs')).text();
  expect(readme).toContain('href="/docs/findings.md"');
  expect(readme).toContain('src="images/overview-1280-light.webp"');
  for (const [name, type] of [
    ['overview-1280-light.webp', 'image/webp'],
    ['journey.png', 'image/png'],
  ] as const) {
    const response = await get(`/docs/images/${name}`);
    expect([response.status, response.headers.get('content-type')]).toEqual([200, type]);
  }
});

test.each(['/docs/none.md', '/docs/..%2Fpackage.json', '/docs/images/..%2F..%2Fpackage.json'])(
  '%s is no document',
  async (path) => {
    expect((await get(path)).status).toBeGreaterThanOrEqual(400);
  },
);
