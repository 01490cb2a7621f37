import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createSecureServer } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';

import { afterEach, describe, expect, test, vi } from 'vitest';

import type { ApiAnswer, Ask } from '../../../../src/cluster/api/transport/connection.ts';
import { createTransport } from '../../../../src/cluster/api/transport/connection.ts';
import type { ListenOptions } from '../../../apiserver/server.ts';
import { createStream, keyPath, listen, relay } from '../../../apiserver/server.ts';

const closing: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  vi.useRealTimers();
  for (const close of closing.splice(0).reverse()) await close();
});

const patience = { ping: 100, connect: 300 };

async function serve(ask: Ask, options: ListenOptions = {}) {
  const listener = await listen(ask, options);
  closing.push(() => listener.close());
  return listener;
}

function transportTo(
  port: number,
  server = `https://127.0.0.1:${port}`,
): ReturnType<typeof createTransport> {
  const tls = { ca: readFileSync(keyPath('server', 'crt')) };
  const transport = createTransport({ server, tls, proxy: null }, patience);
  closing.push(() => transport.close());
  return transport;
}

const text =
  (content: string): Ask =>
  () =>
    Promise.resolve(answer(content));

function answer(content: string): ApiAnswer {
  const body = (async function* () {
    await Promise.resolve();
    for (const word of content.split(/(?<= )/)) yield Buffer.from(word);
  })();
  return { status: 200, headers: { 'content-type': 'text/plain', 'retry-after': '3' }, body };
}

async function textOf({ body }: ApiAnswer): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

const request = (signal = new AbortController().signal) => ({
  path: '/a',
  query: { b: 'c' },
  accept: 'text/plain',
  signal,
});

test('a server that offers HTTP/2 no longer answers no pings', async () => {
  const before = await serve(text('a'), { protocols: 'h2' });
  const transport = transportTo(before.port);
  await textOf(await transport.send(request(), {}));
  expect(transport.pings()).toBe(true);
  await before.close();
  await serve(text('b'), { protocols: 'http/1.1', port: before.port });
  const again = () => transport.send(request(), {}).then(textOf, String);
  await expect.poll(again).toBe('b');
  expect(transport.pings()).toBe(false);
});

const protocols = ['h2', 'http/1.1', 'plain'] as const;

describe.each(protocols)('%s', (protocol) => {
  const open = async (ask: Ask) => {
    const listener = await serve(ask, { protocols: protocol });
    const scheme = protocol === 'plain' ? 'http' : 'https';
    return { listener, transport: transportTo(0, `${scheme}://127.0.0.1:${listener.port}`) };
  };

  test('requests and answers', async () => {
    const { listener, transport } = await open(text('to be continued'));
    const got = await transport.send(request(), {});
    expect(got.status).toBe(200);
    expect(got.headers).toEqual({
      'content-type': 'text/plain',
      date: expect.stringContaining('GMT') as string,
      'retry-after': '3',
    });
    expect(await textOf(got)).toBe('to be continued');
    const again = await Promise.all([1, 2, 3].map(() => transport.send(request(), {})));
    expect(await Promise.all(again.map(textOf))).toEqual(Array(3).fill('to be continued'));
    expect(listener.requests.map((one) => one.protocol)).toEqual(
      Array(4).fill(protocol === 'h2' ? '2.0' : '1.1'),
    );
    expect(listener.requests[0]?.headers.accept).toBe('text/plain');
    expect(transport.pings()).toBe(protocol === 'h2');
  });

  test('an answer that is cut off is an error', async () => {
    const { transport } = await open(({ signal }) => {
      const stream = createStream(signal);
      stream.write(Buffer.from('half'));
      setTimeout(() => stream.fail(new Error('lost')), 50);
      return Promise.resolve({ status: 200, headers: {}, body: stream });
    });
    const got = await transport.send(request(), {});
    await expect(textOf(got)).rejects.toThrow();
  });

  test('so is a connection that is lost', async () => {
    const { listener, transport } = await open(({ signal }) =>
      Promise.resolve({ status: 200, headers: {}, body: createStream(signal) }),
    );
    const got = await transport.send(request(), {});
    setTimeout(listener.drop, 50);
    await expect(textOf(got)).rejects.toThrow();
    // The next request makes a new one.
    expect((await transport.send(request(), {})).status).toBe(200);
  });

  test('an answer can be given up, and the server notices', async () => {
    const server = { closed: false };
    const { transport } = await open(({ signal }) => {
      signal.addEventListener('abort', () => (server.closed = true));
      return Promise.resolve({ status: 200, headers: {}, body: createStream(signal) });
    });
    const controller = new AbortController();
    const got = await transport.send(request(controller.signal), {});
    setTimeout(() => controller.abort(), 50);
    await expect(textOf(got)).rejects.toThrow();
    while (!server.closed) await sleep(10);
  });

  test('a request can be given up before its answer', async () => {
    const { transport } = await open(() => new Promise(() => undefined));
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 100);
    await expect(transport.send(request(controller.signal), {})).rejects.toThrow();
  });

  test('a port without a listener', async () => {
    // Other programs may take a port that was given up.
    const scheme = protocol === 'plain' ? 'http' : 'https';
    const transport = transportTo(0, `${scheme}://127.0.0.1:1`);
    await expect(transport.send(request(), {})).rejects.toThrow('ECONNREFUSED');
  });

  test('a slow reader stops the server', async () => {
    const chunk = Buffer.alloc(64 * 1024);
    let sent = 0;
    const { transport } = await open(() => {
      const body = (async function* () {
        for (let left = 1000; left > 0; left--) {
          await Promise.resolve();
          sent++;
          yield chunk;
        }
      })();
      return Promise.resolve({ status: 200, headers: {}, body });
    });
    const { body } = await transport.send(request(), {});
    let got = 0;
    for await (const part of body) {
      if (got === 0) {
        await sleep(300);
        // One window, and what the sockets hold.
        expect(sent * chunk.length).toBeLessThan(24 * 1024 * 1024);
      }
      got += part.length;
    }
    expect(got).toBe(1000 * chunk.length);
  });
});

test.each(protocols)('%s: small chunks keep no more memory than their bytes', async (protocol) => {
  // As a false API server may send bookmarks: each in a chunk of its own.
  const chunk = Buffer.alloc(80, 'x');
  const count = 40_000;
  const ask: Ask = () => {
    const body = (async function* () {
      for (let left = count; left > 0; left--) {
        await Promise.resolve();
        yield chunk;
      }
    })();
    return Promise.resolve({ status: 200, headers: {}, body });
  };
  const listener = await serve(ask, { protocols: protocol });
  const scheme = protocol === 'plain' ? 'http' : 'https';
  const transport = transportTo(0, `${scheme}://127.0.0.1:${listener.port}`);
  const { body } = await transport.send(request(), {});
  const kept = new Set<ArrayBufferLike>();
  let [got, pieces] = [0, 0];
  for await (const part of body) {
    got += part.length;
    if (pieces++ % 8 === 0) await sleep(1); // a slow reader
    kept.add(part.buffer);
  }
  expect(got).toBe(count * chunk.length);
  const bytes = [...kept].reduce((sum, { byteLength }) => sum + byteLength, 0);
  expect(bytes).toBeLessThan(4 * got + 1024 * 1024);
});

test.each(protocols)('%s: an answer in tiny pieces is given up', async (protocol) => {
  const ask: Ask = () => {
    const body = (async function* () {
      for (let left = 8000; left > 0; left--) {
        await turn(); // else HTTP/2 joins some
        yield Buffer.from(' ');
      }
    })();
    return Promise.resolve({ status: 200, headers: {}, body });
  };
  const listener = await serve(ask, { protocols: protocol });
  const scheme = protocol === 'plain' ? 'http' : 'https';
  const transport = transportTo(0, `${scheme}://127.0.0.1:${listener.port}`);
  const answer = await transport.send(request(), {});
  await expect(textOf(answer)).rejects.toThrow('the answer comes in 4096 pieces');
});

test('a peer that has gone is noticed, a quiet one is not cut', async () => {
  vi.useFakeTimers({
    toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'],
  });
  const { port } = await serve(({ signal }) =>
    Promise.resolve({ status: 200, headers: {}, body: createStream(signal) }),
  );
  const between = await relay(port);
  closing.push(between.close);
  const transport = transportTo(between.port);
  const got = await transport.send(request(), {});
  let ended = false;
  const ending = textOf(got).catch((error: unknown) => {
    ended = true;
    return String(error);
  });
  const pass = async () => {
    vi.advanceTimersByTime(patience.ping * 1000);
    await sleep(100); // for the ping and its answer
  };
  for (let times = 0; times < 5; times++) await pass();
  expect(ended).toBe(false);
  between.freeze();
  for (let times = 0; times < 3; times++) await pass();
  expect(await ending).toContain('no answer within 200 s');
});

// A Go server may acknowledge two of them once, and then send frames that are too large.
test('each HTTP/2 connection sends one frame of settings', async () => {
  const identity = {
    key: readFileSync(keyPath('server', 'key')),
    cert: readFileSync(keyPath('server', 'crt')),
  };
  const server = createSecureServer(identity, (_, response) => response.end('.'));
  closing.push(() => void server.close());
  let frames = 0;
  server.on('session', (session) => session.on('remoteSettings', () => frames++));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  for (let connections = 1; connections <= 2; connections++) {
    const transport = transportTo(port);
    for (let requests = 0; requests < 3; requests++) {
      expect(await textOf(await transport.send(request(), {}))).toBe('.');
    }
    expect(frames).toBe(connections);
  }
});

test('requests that never end leave room for others, in further connections', async () => {
  const all = new AbortController();
  let running = 0;
  const { port, clients } = await serve(({ signal }) => {
    const body = createStream(signal);
    running++;
    body.onClose(() => running--);
    body.write(Buffer.from('.'));
    return Promise.resolve({ status: 200, headers: {}, body });
  });
  const transport = transportTo(port);
  const open = (count: number) =>
    Promise.all(Array.from({ length: count }, () => transport.send(request(all.signal), {})));
  // A server accepts 100 in one connection.
  expect((await open(120)).every(({ status }) => status === 200)).toBe(true);
  expect(clients).toHaveLength(3);
  await open(30);
  expect(clients).toHaveLength(3);
  await open(1);
  expect(clients).toHaveLength(4);
  all.abort();
  await expect.poll(() => running).toBe(0);
  const later = new AbortController();
  await Promise.all(Array.from({ length: 150 }, () => transport.send(request(later.signal), {})));
  expect(clients).toHaveLength(4);
  later.abort();
});

test('a server that is not the expected one is refused', async () => {
  const { port } = await serve(text(''), { key: 'other' });
  await expect(transportTo(port).send(request(), {})).rejects.toThrow(/self-signed certificate/);
});
