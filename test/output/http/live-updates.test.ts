import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';

import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { createLiveUpdates } from '../../../src/output/http/server.ts';

let pulse: ReturnType<typeof createLiveUpdates>;
let looks = 0;
let revision = 'a';
const server = createServer((request, response) => {
  void pulse.follow(request, response).then((taken) => {
    if (!taken) response.writeHead(503).end();
  });
});

beforeEach(async () => {
  looks = 0;
  pulse = createLiveUpdates(() => {
    looks++;
    return { revision, moment: `${String(looks)} UTC`, isLost: false, isLive: true };
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});

afterEach(async () => {
  pulse.close();
  server.close();
  server.closeAllConnections();
  await once(server, 'close');
});

const url = (): string => `http://127.0.0.1:${String((server.address() as AddressInfo).port)}/`;

/** The first events of a connection, a given number. */
async function events(count: number): Promise<unknown[]> {
  const stop = new AbortController();
  const response = await fetch(url(), { signal: stop.signal });
  expect(response.headers.get('content-type')).toContain('text/event-stream');
  let text = '';
  const found = (): unknown[] =>
    [...text.matchAll(/^event:beat\n(?:id:.*\n)?data:(.*)$/gm)].map(
      ([, json]) => JSON.parse(json ?? '') as unknown,
    );
  const decoder = new TextDecoder();
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk as Uint8Array);
    if (found().length >= count) break;
  }
  stop.abort();
  return found();
}

test('a page gets an event at once, and again every second', async () => {
  const [first, second] = await events(2);
  expect(first).toMatchObject({ revision: 'a', moving: null });
  revision = 'b';
  expect(second).toMatchObject({ revision: 'a', moving: true });
  expect(await events(1)).toMatchObject([{ revision: 'b' }]);
});

test('the auditor is not queried while no page is open', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  await events(1);
  await expect.poll(() => vi.getTimerCount()).toBe(0);
  const before = looks;
  vi.advanceTimersByTime(10_000);
  expect(looks).toBe(before);
  vi.useRealTimers();
});

test('closing ends open responses', async () => {
  const response = await fetch(url());
  const reader = response.body?.getReader();
  await reader?.read();
  pulse.close();
  let done = false;
  while (!done) done = (await reader?.read())?.done ?? true;
  expect(done).toBe(true);
});

test('a page that stays open must connect again after 15 minutes', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  try {
    const response = await fetch(url());
    const ended = response.text().catch((error: unknown) => error);
    vi.advanceTimersByTime(899_000);
    const isOpen = Promise.race([ended, new Promise((resolve) => setImmediate(resolve, 'open'))]);
    expect(await isOpen).toBe('open');
    vi.advanceTimersByTime(1000);
    expect(await ended).toBeInstanceOf(Error);
  } finally {
    vi.useRealTimers();
  }
});

test('a page that is closed before its access is known takes no place', async () => {
  const asked = once(server, 'request');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
  const [request, response] = (await asked) as [IncomingMessage, ServerResponse];
  socket.destroy();
  await once(response, 'close');
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const following = pulse.follow(request, response);
  const timers = vi.getTimerCount();
  vi.useRealTimers();
  expect(timers).toBe(0);
  expect(await following).toBe(true);
});

test('a page that reads nothing is disconnected', async () => {
  // More than the buffers of the kernel take.
  revision = 'x'.repeat(16 * 1024 * 1024);
  const asked = once(server, 'request');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  socket.on('error', () => undefined).pause();
  socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
  const [, response] = (await asked) as [IncomingMessage, ServerResponse];
  await once(response, 'close');
  expect(response.writableFinished).toBe(false);
  socket.destroy();
  revision = 'b';
});
