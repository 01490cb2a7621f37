import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import {
  Agent,
  createServer as createHttpServer,
  request as httpRequest,
  ServerResponse,
} from 'node:http';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';

import express from 'express';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import type { Finding } from '../../../src/audit/finding/catalogue.ts';
import type { AuditorQueries, PageStatus } from '../../../src/auditor/queries.ts';
import { answerInOrder, limitRequests, usualHeaders } from '../../../src/output/http/admission.ts';
import { createApp, listen } from '../../../src/output/http/server.ts';
import { awaitTurn, createPause, noteConnection } from '../../../src/output/http/turns.ts';
import { noServiceSeries } from '../../../src/output/metrics/service-rows.ts';
import { findingOf, lagReport, moment, listedOf, statusOf } from '../samples.ts';

let current: PageStatus;
let more: Partial<AuditorQueries>;
let server: Awaited<ReturnType<typeof listen>>;
const url = (path: string): string => `http://127.0.0.1:${String(server.port)}${path}`;
const get = (path: string, init: RequestInit = {}): Promise<Response> => fetch(url(path), init);

function* scrapeOf({ metrics }: PageStatus): Generator<undefined, PageStatus['metrics']> {
  yield;
  return metrics;
}

const answers: AuditorQueries = {
  status: () => current,
  beat: () => ({
    revision: current.revision,
    now: current.metrics.now,
    lost: current.lost,
    isLive: current.isLive,
  }),
  services: () => more.services?.() ?? [listedOf()],
  unserved: () => more.unserved?.() ?? [],
  incidents: () => more.incidents?.() ?? { open: [], resolved: [] },
  incident: (id) => more.incident?.(id) ?? null,
  servicePage: (namespace, name, from) => more.servicePage?.(namespace, name, from) ?? null,
  nodePage: (node, port) => more.nodePage?.(node, port) ?? null,
  podPage: () => null,
  search: (query) => ({ query, matches: [], total: 0, explanation: null }),
  scrape: () => scrapeOf(current),
  service: (namespace, name) => more.service?.(namespace, name) ?? null,
  lag: () => lagReport,
  explain: (words, namespace) => more.explain?.(words, namespace) ?? null,
  nodes: () => more.nodes?.() ?? [],
  notReady: () => more.notReady?.() ?? null,
  stuck: () => more.stuck?.() ?? null,
};

beforeEach(async () => {
  current = statusOf();
  more = {};
  server = await listen(createApp(answers), { host: '127.0.0.1', port: 0 });
});

afterEach(async () => {
  await server.close();
});

describe('the response of each path', () => {
  const cases: [string, number, string, RegExp][] = [
    ['/', 200, 'text/html; charset=utf-8', /^<!doctype html>.*2 findings/s],
    ['/findings', 200, 'text/html; charset=utf-8', /^<!doctype html>.*shop\/web/s],
    ['/services', 200, 'text/html; charset=utf-8', /^<!doctype html>.*\/services\/shop\/web/s],
    ['/services/a/b', 404, 'text/html; charset=utf-8', /There is no Service a\/b/],
    ['/nodes', 200, 'text/html; charset=utf-8', /No rules have been read/],
    ['/nodes/a', 404, 'text/html; charset=utf-8', /There is no Node a/],
    ['/assets/nothing', 404, 'text/plain; charset=utf-8', /^Not found\n$/],
    [
      '/metrics',
      200,
      'text/plain; version=0.0.4; charset=utf-8',
      /^# HELP endpoint_auditor_findings /,
    ],
    ['/livez', 200, 'text/plain; charset=utf-8', /^ok\n$/],
    ['/healthz', 200, 'text/plain; charset=utf-8', /^ok\n$/],
    ['/readyz', 200, 'text/plain; charset=utf-8', /^ok\n$/],
    ['/api/v1/findings', 200, 'application/json; charset=utf-8', /^\{"format":1,/],
    ['/api/v1/lag', 200, 'application/json; charset=utf-8', /^\{"format":1,"from":/],
    ['/api/v1/findings?since=x', 400, 'application/json; charset=utf-8', /RFC 3339: since/],
    ['/api/v1/status', 200, 'application/json; charset=utf-8', /"ready":true,"reasons":\[\]/],
    ['/api/v1/services/shop/web', 404, 'application/json; charset=utf-8', /No such Service/],
    ['/api', 200, 'application/json; charset=utf-8', /"\/api\/v1\/services"/],
    ['/api/v1/services', 200, 'application/json; charset=utf-8', /^\{"format":1,"now":/],
    ['/api/v1/services?verdict=bad', 400, 'application/json; charset=utf-8', /Unknown verdict/],
    ['/api/v1/findings?severity=crit', 400, 'application/json; charset=utf-8', /are critical, w/],
    ['/api/v1/findings?output=x', 400, 'application/json; charset=utf-8', /Unknown output/],
    ['/api/v1/findings?code=x', 400, 'application/json; charset=utf-8', /Unknown code/],
    ['/api/v1/services-without-endpoints?reason=x', 400, 'application/json; charset=utf-8', /Unk/],
    ['/api/v1/findings?name=x', 400, 'application/json; charset=utf-8', /Unknown parameter/],
    ['/nowhere', 404, 'text/plain; charset=utf-8', /^Not found\n$/],
    ['/%E0%A4%A', 404, 'text/plain; charset=utf-8', /^Not found\n$/],
  ];
  test.each(cases)('%s has its status, type and text', async (path, status, type, body) => {
    const response = await get(path);
    expect([response.status, response.headers.get('content-type')]).toEqual([status, type]);
    expect(await response.text()).toMatch(body);
  });

  test.each(cases)('%s has safe headers', async (path) => {
    const response = await get(path);
    // Closing the server waits for an answer that is not read to its end.
    await response.text();
    const { headers } = response;
    const policy = headers.get('content-security-policy')?.split('; ') ?? [];
    expect(policy).toEqual([
      "default-src 'none'",
      "style-src 'self'",
      "script-src 'self'",
      "connect-src 'self'",
      "img-src 'self'",
      "base-uri 'none'",
      "form-action 'self'",
      "frame-ancestors 'none'",
    ]);
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('cache-control')).toBe('no-store');
    expect(headers.has('x-powered-by')).toBe(false);
    expect(headers.has('etag')).toBe(false);
  });

  test('readiness has the reasons, and liveness succeeds meanwhile', async () => {
    more = { notReady: () => 'The first lists are not complete' };
    const response = await get('/readyz');
    expect([response.status, await response.text()]).toEqual([
      503,
      'The first lists are not complete\n',
    ]);
    expect((await get('/livez')).status).toBe(200);
  });

  test('a stuck loop fails liveness and says so', async () => {
    more = { stuck: () => 'Nothing has been taken in for 61 s' };
    for (const path of ['/livez', '/healthz']) {
      const response = await get(path);
      expect(response.status).toBe(503);
      expect(await response.text()).toBe('Nothing has been taken in for 61 s\n');
    }
  });

  test('a Service is queried by its name', async () => {
    const asked: string[] = [];
    more = {
      service: (namespace, name) => {
        asked.push(`${namespace}/${name}`);
        return { ...one, namespace, service: name };
      },
    };
    const response = await get('/api/v1/services/shop/web%2Fx');
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({
      ...one,
      namespace: 'shop',
      service: 'web/x',
      lost: null,
    });
    expect(asked).toEqual(['shop/web/x']);
  });

  test('the nodes have their agents', async () => {
    const verdicts = { conform: 3, pending: 0, different: 1, unknown: 0 };
    const agent = { state: 'answering' as const, since: 5, seenAt: 7 };
    const nodes = [{ node: 'node-a', verdicts, agent }];
    more = { nodes: () => nodes };
    const response = await get('/api/v1/nodes');
    expect(await response.json()).toEqual({ format: 1, now: moment, lost: null, nodes });
  });
  const one: NonNullable<ReturnType<AuditorQueries['service']>> = {
    format: 1,
    now: moment,
    namespace: '',
    service: '',
    verdict: 'unknown',
    severity: 'critical',
    withoutEndpoints: null,
    outputs: [{ output: 'endpoints', verdict: 'unknown', reason: 'input-stale' }],
    nodes: null,
    notConform: [],
    fill: [],
    pending: [],
    standing: [findingOf()],
    resolved: [],
    inputs: { pods: { state: 'stale', unseenSeconds: 7 } },
  };

  const filters: [string, readonly string[]][] = [
    ['', ['web', 'api', 'old']],
    ['?service=api', ['api']],
    ['?service=api&service=web', ['web', 'api']],
    ['?namespace=shop&severity=info', ['api']],
    ['?namespace=bank', []],
    ['?output=endpointslices&code=slice-endpoint-unexpected', ['web', 'api', 'old']],
    ['?output=endpoints', []],
    [`?since=${moment}`, ['web', 'api', 'old']],
    [`?since=${moment + 1}`, ['late']],
    ['?since=2026-11-21T10:56:47Z&service=late', ['late']],
    ['?since=2026-11-21T10:56:48Z', []],
  ];
  test.each(filters)('findings are filtered by %j', async (query, want) => {
    const late = { openedAt: moment - 9, resolvedAt: moment + 1, service: 'late' };
    const isLate = want.includes('late') || query.includes('10:56:48');
    const old = findingOf({ resolvedAt: moment, service: 'old' });
    current = statusOf({ resolved: isLate ? [old, findingOf(late)] : [old] });
    const response = await get(`/api/v1/findings${query}`);
    const { standing, resolved } = (await response.json()) as {
      standing: Finding[];
      resolved: Finding[];
    };
    expect([...standing, ...resolved].map(({ service }) => service)).toEqual(want);
  });

  test.each([255, 256, 257, 1000])('%i findings are sent in pieces that fit', async (count) => {
    const findings = Array.from({ length: count }, (_, one) => findingOf({ service: `s${one}` }));
    const { metrics } = current;
    const summary = { ...metrics.summary, findings };
    current = { ...current, metrics: { ...metrics, summary }, resolved: findings.slice(1) };
    const got = (await (await get('/api/v1/findings')).json()) as Record<string, unknown>;
    expect([got.standing, got.resolved]).toEqual([findings, findings.slice(1)]);
  });

  test('the findings contain open and resolved findings', async () => {
    const resolved = [findingOf({ resolvedAt: moment, service: '\u001b<b>' })];
    current = statusOf({ resolved, forgotten: 3 });
    expect(await (await get('/api/v1/findings')).json()).toEqual({
      format: 1,
      now: moment,
      lost: null,
      standing: current.metrics.summary.findings,
      resolved,
      forgotten: 3,
    });
  });

  test('an explanation is queried by the words of the command', async () => {
    const asked: unknown[] = [];
    const path = '/api/v1/explain?subject=pod/a&subject=service/web&namespace=shop';
    const document = { format: 1, kind: 'explain', found: true };
    more = {
      explain(...words) {
        asked.push(words);
        return document as never;
      },
    };
    const response = await get(path);
    expect([response.status, await response.json()]).toEqual([200, { ...document, lost: null }]);
    expect(asked).toEqual([[['pod/a', 'service/web'], 'shop']]);
    more = { explain: () => ({ ...document, found: false }) as never };
    expect((await get(path)).status).toBe(404);
    more = { notReady: () => 'Waiting for pods' };
    expect(await (await get(path)).json()).toEqual({ format: 1, error: 'Waiting for pods' });
    more = {
      explain() {
        throw new Error('Expected service/NAME');
      },
    };
    const refused = await get('/api/v1/explain');
    expect([refused.status, await refused.json()]).toEqual([
      400,
      { format: 1, error: 'Expected service/NAME' },
    ]);
  });

  test('each response shows the state at its moment', async () => {
    const before = await (await get('/metrics')).text();
    const { metrics } = current;
    current = statusOf({ metrics: { ...metrics, summary: { ...metrics.summary, services: 99 } } });
    const after = await (await get('/metrics')).text();
    expect(before).toContain('endpoint_auditor_services 21\n');
    expect(after).toContain('endpoint_auditor_services 99\n');
  });
});

describe('other methods and paths', () => {
  test.each(['POST', 'PUT', 'DELETE', 'OPTIONS'])('%s is refused', async (method) => {
    const response = await get('/metrics', { method });
    expect([response.status, response.headers.get('allow')]).toEqual([405, 'GET, HEAD']);
  });

  test('HEAD has no body', async () => {
    const response = await get('/', { method: 'HEAD' });
    expect([response.status, await response.text()]).toEqual([200, '']);
  });

  test('HEAD of the live updates is refused, since they never end', async () => {
    const response = await get('/api/v1/events', { method: 'HEAD' });
    expect([response.status, response.headers.get('allow')]).toEqual([405, 'GET']);
  });

  test.each(['/services/%zz/x', '/%', '/nodes/%e0%a4'])('%s is a bad request', async (path) => {
    const errors: unknown[] = [];
    const quiet = await listen(createApp(answers, { onError: (error) => errors.push(error) }), {
      host: '127.0.0.1',
      port: 0,
    });
    const response = await fetch(`http://127.0.0.1:${String(quiet.port)}${path}`);
    expect([response.status, errors]).toEqual([path === '/%' ? 404 : 400, []]);
    await quiet.close();
  });

  /** The status of a request with this Host header. */
  const statusWith = async (host: string, where = server.port): Promise<number | undefined> => {
    const asked = httpRequest(`http://127.0.0.1:${String(where)}/livez`, { headers: { host } });
    const [response] = (await once(asked.end(), 'response')) as [IncomingMessage];
    response.resume();
    return response.statusCode;
  };

  test.each([
    ['localhost', 200],
    ['LOCALHOST:80', 200],
    ['127.0.0.1:9465', 200],
    ['[::1]:9465', 200],
    ['evil.example.com', 421],
    ['localhost.evil.example.com', 421],
    ['127.0.0.1.evil.example.com:9465', 421],
  ])('on loopback, a request for %s has the status %d', async (host, status) => {
    expect(await statusWith(host)).toBe(status);
  });

  test('on all addresses, a request for any name is answered', async () => {
    const open = await listen(createApp(answers), { host: null, port: 0 });
    expect(await statusWith('auditor.example.com', open.port)).toBe(200);
    await open.close();
  });

  test('above a number of requests at one time, others are refused', async () => {
    const open: ServerResponse[] = [];
    const app = express();
    app.get('/', (_request, response) => void open.push(response));
    const limited = limitRequests(app, { most: 2, seconds: 60, refusals: 2 });
    const busy = createHttpServer(limited).listen(0, '127.0.0.1');
    await once(busy, 'listening');
    const { port } = busy.address() as AddressInfo;
    const ask = (): Promise<Response> => fetch(`http://127.0.0.1:${String(port)}/`);
    const asked = [ask(), ask()];
    await expect.poll(() => open.length).toBe(2);
    const begun = performance.now();
    const refused = await ask();
    // Clients that ask again at once have to wait as well.
    expect(performance.now() - begun).toBeGreaterThan(900);
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '5']);
    for (const [name, value] of Object.entries(usualHeaders)) {
      expect(refused.headers.get(name)).toBe(value);
    }
    for (const response of open.splice(0)) response.end();
    expect((await Promise.all(asked)).map(({ status }) => status)).toEqual([200, 200]);
    const later = ask();
    await expect.poll(() => open.length).toBe(1);
    open[0]?.end();
    expect((await later).status).toBe(200);
    busy.close();
  });

  test('if many refusals wait, the next one comes at once and closes its connection', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const limited = limitRequests(express(), { most: 0, seconds: 60, refusals: 4 });
    const busy = createHttpServer(limited).listen(0, '127.0.0.1');
    await once(busy, 'listening');
    const { port } = busy.address() as AddressInfo;
    const agent = new Agent({ keepAlive: true });
    const ask = async (): Promise<string> => {
      const [response] = (await once(httpRequest({ port, agent }).end(), 'response')) as [
        IncomingMessage,
      ];
      response.resume();
      return `${String(response.statusCode)} ${String(response.headers.connection)}`;
    };
    for (let round = 0; round < 2; round++) {
      const asked = Array.from({ length: 5 }, ask);
      expect(await Promise.race(asked)).toBe('503 close');
      vi.advanceTimersByTime(3000);
      const texts = await Promise.all(asked);
      expect(texts.filter((text) => text === '503 keep-alive')).toHaveLength(4);
    }
    vi.useRealTimers();
    agent.destroy();
    busy.close();
  });

  test('the requests of a connection are answered one after another', async () => {
    const asked: ServerResponse[] = [];
    const inOrder = createHttpServer(answerInOrder((_request, response) => asked.push(response)));
    inOrder.listen(0, '127.0.0.1');
    await once(inOrder, 'listening');
    const { port } = inOrder.address() as AddressInfo;
    const ahead = connect(port, '127.0.0.1');
    let text = '';
    ahead.setEncoding('utf8').on('data', (piece: string) => (text += piece));
    ahead.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(3));
    for (let at = 0; at < 3; at++) {
      await expect.poll(() => asked.length).toBe(at + 1);
      asked[at]?.end(`answer ${at}`);
    }
    await expect.poll(() => text.match(/answer \d/g)).toEqual(['answer 0', 'answer 1', 'answer 2']);
    ahead.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(3));
    await expect.poll(() => asked.length).toBe(4);
    ahead.destroy();
    await expect.poll(() => asked[3]?.destroyed).toBe(true);
    await nextTurn();
    // No client reads the answers to the others.
    expect(asked).toHaveLength(4);
    inOrder.close();
  });

  test('a connection with too many requests ahead of its answers is closed', async () => {
    const ahead = connect(server.port, '127.0.0.1');
    const requestFor = (path: string) => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
    ahead.write(requestFor('/api/v1/events') + requestFor('/livez').repeat(20));
    ahead.on('error', () => undefined).resume();
    await once(ahead, 'close');
    expect((await get('/livez')).status).toBe(200);
  });

  test('idle connections make way for others when there are too many', async () => {
    const small = await listen(createApp(answers), { host: '127.0.0.1', port: 0 }, null, 2);
    const agent = new Agent({ keepAlive: true });
    const ask = async (): Promise<number | undefined> => {
      const asked = httpRequest({ port: small.port, path: '/livez', agent }).end();
      const [response] = (await once(asked, 'response')) as [IncomingMessage];
      await once(response.resume(), 'end');
      return response.statusCode;
    };
    expect(await Promise.all([ask(), ask()])).toEqual([200, 200]);
    // Both connections are idle now, and a third is one too many.
    const other = connect(small.port, '127.0.0.1');
    await once(other, 'close');
    const later = httpRequest({ port: small.port, path: '/livez', agent: false }).end();
    const [response] = (await once(later, 'response')) as [IncomingMessage];
    expect(response.resume().statusCode).toBe(200);
    agent.destroy();
    await small.close();
  });

  test('in each turn of the event loop, at most one answer is computed', async () => {
    let turn = 0;
    let isOver = false;
    const count = (): void => {
      turn++;
      if (!isOver) setImmediate(count);
    };
    setImmediate(count);
    const turns: number[] = [];
    const app = express();
    app.get('/', async (_request, response) => {
      const pause = createPause();
      // Longer than a slice, so that each answer pauses.
      for (let piece = 0; piece < 3; piece++) {
        turns.push(turn);
        for (const ends = performance.now() + 5; performance.now() < ends;);
        await pause();
      }
      response.end();
    });
    const busy = createHttpServer(limitRequests(app)).listen(0, '127.0.0.1');
    await once(busy, 'listening');
    const { port } = busy.address() as AddressInfo;
    const asked = Array.from({ length: 20 }, () => fetch(`http://127.0.0.1:${String(port)}/`));
    await Promise.all(asked);
    isOver = true;
    busy.close();
    expect(turns).toHaveLength(60);
    expect(new Set(turns).size).toBe(60);
  });

  test('clients that leave before their turn keep no answer waiting', async () => {
    const answered = Promise.withResolvers<number>();
    let turns = 0;
    const count = (): void => {
      if (++turns < 50_000) setImmediate(count);
    };
    const limited = limitRequests(() => answered.resolve(turns));
    const ask = (): ServerResponse => {
      const request = { url: '/', method: 'GET', socket: { destroy: () => undefined } };
      const response = new ServerResponse(request as unknown as IncomingMessage);
      limited(request as unknown as IncomingMessage, response);
      return response;
    };
    for (let left = 500; left > 0; left--) ask().destroy().emit('close');
    count();
    const last = ask();
    const needed = await answered.promise;
    last.emit('close');
    turns = Infinity;
    expect(needed).toBeLessThan(100);
  });

  test('while answers are computed, more connections are accepted than pieces are', async () => {
    const accepted: Socket[] = [];
    const busy = createServer((socket) => accepted.push(socket));
    busy.listen({ port: 0, host: '127.0.0.1', backlog: 200 });
    await once(busy, 'listening');
    const { port } = busy.address() as AddressInfo;
    let pieces = 0;
    const compute = async (): Promise<void> => {
      while (accepted.length < 100 && pieces < 200) {
        await awaitTurn();
        for (const ends = performance.now() + 5; performance.now() < ends;);
        pieces++;
      }
    };
    const sockets = Array.from({ length: 100 }, () => connect(port, '127.0.0.1'));
    await Promise.all([compute(), compute(), compute()]);
    expect(accepted).toHaveLength(100);
    expect(pieces).toBeLessThan(50);
    for (const socket of [...sockets, ...accepted]) socket.destroy();
    busy.close();
  });

  test('while each turn accepts a connection, answers wait, but not all the time', async () => {
    let [pieces, isOver] = [0, false];
    const compute = async (): Promise<void> => {
      for (; !isOver; pieces++) await awaitTurn();
    };
    const computed = compute();
    const begun = performance.now();
    for (let turn = 0; turn < 1000; turn++) {
      noteConnection();
      await nextTurn();
    }
    // One at the beginning, and one after each 200 ms; else one after each 32 turns.
    expect(pieces).toBeLessThanOrEqual(2 + (performance.now() - begun) / 200);
    // The longest waits in succession are of a second.
    while (performance.now() < begun + 1500) {
      noteConnection();
      await nextTurn();
    }
    const [before, turns] = [pieces, 100];
    for (let turn = 0; turn < turns; turn++) {
      for (const ends = performance.now() + 10; performance.now() < ends;);
      noteConnection();
      await nextTurn();
    }
    expect(pieces - before).toBeGreaterThan(turns / 10);
    isOver = true;
    await computed;
  });

  const lengthOf = async (encoding: string): Promise<{ encoding: string; length: number }> => {
    const asked = httpRequest(url('/metrics'), { headers: { 'Accept-Encoding': encoding } }).end();
    const [response] = (await once(asked, 'response')) as [IncomingMessage];
    let length = 0;
    for await (const chunk of response) length += (chunk as Buffer).length;
    return { encoding: String(response.headers['content-encoding']), length };
  };

  test('a scraper that accepts gzip gets gzip', async () => {
    const packed = await lengthOf('gzip');
    const bare = await lengthOf('identity');
    expect([packed.encoding, bare.encoding]).toEqual(['gzip', 'undefined']);
    expect(packed.length).toBeLessThan(bare.length / 4);
  });
});

describe('/metrics', () => {
  const accepted: [string | null, RegExp, RegExp][] = [
    [null, /^text\/plain; version=0\.0\.4/, /\n$/],
    ['text/plain', /^text\/plain; version=0\.0\.4/, /\n$/],
    [
      'application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1',
      /^application\/openmetrics-text; version=1\.0\.0/,
      /\n# EOF\n$/,
    ],
  ];
  test.each(accepted)('has its format for the Accept header %j', async (accept, type, ending) => {
    const response = await get('/metrics', accept === null ? {} : { headers: { accept } });
    expect(response.headers.get('content-type')).toMatch(type);
    expect(response.headers.get('vary')).toContain('Accept');
    expect(await response.text()).toMatch(ending);
  });

  test('ends without a body for HEAD', async () => {
    const response = await get('/metrics', { method: 'HEAD' });
    expect([response.status, await response.text()]).toEqual([200, '']);
  });

  const many = (count: number): string[][] =>
    Array.from({ length: count }, (_, at) => [`x{a="${String(at).repeat(20)}"} 1\n`]);

  test('arrives completely with a hundred thousand rows, compressed or not', async () => {
    const rows = many(100_000);
    current = statusOf({
      metrics: { ...current.metrics, perService: { ...noServiceSeries, rows } },
    });
    const text = await (await get('/metrics')).text();
    const want = rows.map(([row]) => row).join('');
    expect(text.includes(want)).toBe(true);
  });

  test('reports no error if the scraper disconnects', async () => {
    const errors: unknown[] = [];
    const app = createApp(answers, { onError: (error) => errors.push(error) });
    const short = await listen(app, { host: '127.0.0.1', port: 0 });
    const rows = many(200_000);
    current = statusOf({
      metrics: { ...current.metrics, perService: { ...noServiceSeries, rows } },
    });
    const gone = connect(short.port, '127.0.0.1');
    gone.write('GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n');
    await once(gone, 'data');
    gone.destroy();
    await short.close();
    expect(errors).toEqual([]);
  });
});

test('a defect has the response 500 without details, and the server continues', async () => {
  const errors: unknown[] = [];
  const defect = new Error('secret detail');
  const fail = (): never => {
    throw defect;
  };
  const pages = { beat: fail, services: fail, servicePage: fail, nodePage: fail, explain: fail };
  const rest = { status: fail, scrape: fail, service: fail, lag: fail, notReady: fail };
  const other = { nodes: fail, search: fail, podPage: fail, unserved: fail, stuck: () => null };
  const ofIncidents = { incidents: fail, incident: fail };
  const all = { ...pages, ...rest, ...other, ...ofIncidents };
  const app = createApp(all, { onError: (error) => errors.push(error) });
  const broken = await listen(app, { host: '127.0.0.1', port: 0 });
  for (const path of ['/', '/metrics', '/readyz', '/api/v1/findings', '/api/v1/lag']) {
    const response = await fetch(`http://127.0.0.1:${String(broken.port)}${path}`);
    expect([response.status, await response.text()]).toEqual([500, 'Internal error\n']);
  }
  expect((await fetch(`http://127.0.0.1:${String(broken.port)}/livez`)).status).toBe(200);
  expect(errors).toEqual([defect, defect, defect, defect, defect]);
  await broken.close();
});

describe('listening', () => {
  const app = createApp(answers);

  test('an address in use has an error for people', async () => {
    await expect(listen(app, { host: '127.0.0.1', port: server.port })).rejects.toThrow(
      `Cannot listen on 127.0.0.1:${String(server.port)}: the address is already in use`,
    );
  });

  test('an address that the machine does not have has an error for people', async () => {
    await expect(listen(app, { host: '192.0.2.1', port: 0 })).rejects.toThrow(
      'Cannot listen on 192.0.2.1:0: the machine has no such address',
    );
  });

  test('without a host, the server listens on every address', async () => {
    const everywhere = await listen(app, { host: null, port: 0 });
    expect((await fetch(`http://127.0.0.1:${String(everywhere.port)}/livez`)).status).toBe(200);
    await everywhere.close();
  });

  test('closing does not wait for idle connections, and may be called twice', async () => {
    const short = await listen(app, { host: '127.0.0.1', port: 0 });
    const kept = connect(short.port, '127.0.0.1');
    await once(kept, 'connect');
    kept.write('GET /livez HTTP/1.1\r\nHost: x\r\n\r\n');
    await once(kept, 'data');
    // No timer fires: nothing but the close itself can end the connection.
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    await Promise.all([short.close(), short.close()]);
    vi.useRealTimers();
    await expect(fetch(`http://127.0.0.1:${String(short.port)}/livez`)).rejects.toThrow();
    kept.destroy();
  });

  test.each([
    'GET /livez HTTP/1.1\r\n',
    'GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n',
  ])('a request that comes a byte at a time is ended after the limit: %j', async (head) => {
    const limits = { headers: 60, request: 120, check: 20 };
    const slow = await listen(app, { host: '127.0.0.1', port: 0 }, null, 4, limits);
    const asking = connect(slow.port, '127.0.0.1');
    const closed = new Promise((resolve) => asking.once('close', resolve));
    asking.on('error', () => undefined).resume();
    asking.write(head);
    let sent = 0;
    // Then it is silent, so nothing but the limit ends it.
    const drip = setInterval(() => sent++ < 100 && asking.write('x'), 5);
    await closed.finally(() => clearInterval(drip));
    await slow.close();
  });

  test('closing waits at most 2 s for a slow request', async () => {
    const slow = await listen(app, { host: '127.0.0.1', port: 0 });
    const asking = connect(slow.port, '127.0.0.1');
    await once(asking, 'connect');
    asking.on('error', () => undefined);
    // The answer to a first request shows that the server has read the beginning of the second.
    asking.write('GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /livez HTTP/1.1\r\n');
    await once(asking, 'data');
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const closing = slow.close();
    expect(vi.getTimerCount()).toBe(1);
    vi.advanceTimersByTime(2000);
    await closing;
    vi.useRealTimers();
    asking.destroy();
  });
});
