// The connection to the API server: every request goes through it, with the current credentials. If
// the server rejects a token that it accepted before, the token is read again once.
//
// Requests go over sockets by undici: HTTP/2 where the server offers it, as every kube-apiserver
// does, with all watches in one connection; HTTP/1.1 elsewhere, and through proxies.
//
// Over HTTP/2 undici sends pings, but does not miss an answer. Here a connection without a byte is
// closed at the latest 42 s after the last one (client-go: 45 s). HTTP/1.1 has no ping; there the
// reader must limit the silence. The windows are wider than usual: with those, a round trip of 1 ms
// would limit large lists.

import { on } from 'node:events';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { setImmediate as turn, setTimeout } from 'node:timers/promises';
import type { TLSSocket } from 'node:tls';

import { Agent, buildConnector, Client, type Dispatcher } from 'undici';

import type { Account, Target } from './kubeconfig.ts';

export interface ApiRequest {
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly accept: string;
  /** Ends the request and its body. */
  readonly signal: AbortSignal;
}

export interface ApiAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** Throws when the connection is lost before the body is complete. */
  readonly body: Body;
}

export interface Body extends AsyncIterable<Uint8Array> {
  /** Whether another chunk has arrived already; absent if that is unknown. */
  readonly hasMore?: (() => boolean) | undefined;
}

/** Sends one request; rejects when no answer comes. */
export type Ask = (request: ApiRequest) => Promise<ApiAnswer>;

/** The environment of reflectors; `now` is the clock, Unix seconds. */
export function createConnection(account: Account, now: () => number) {
  let transport: ReturnType<typeof createTransport> | null = null;
  let current = '';
  const attempt = async (request: ApiRequest): Promise<ApiAnswer> => {
    const { server, tls, headers, openProxy } = await account.credentials();
    // What a connection is bound to. Tokens are not: they go with each request.
    const bound = [server, tls.ca, tls.cert, tls.key, tls.servername].map(String).join('\n');
    if (transport === null || bound !== current) {
      transport?.close();
      transport = createTransport({ server, tls, proxy: await openProxy() });
      current = bound;
    }
    return transport.send(request, { ...headers, 'user-agent': 'endpoint-auditor' });
  };
  return {
    now,
    monotonic: () => performance.now() / 1000,
    random: () => Math.random(),
    async sleep(seconds: number, signal: AbortSignal): Promise<void> {
      const slept =
        seconds === 0
          ? turn(undefined, { signal })
          : setTimeout(seconds * 1000, undefined, { signal });
      await slept.catch(() => undefined);
    },
    async ask(request: ApiRequest): Promise<ApiAnswer> {
      const answer = await attempt(request);
      if (answer.status !== 401) return answer;
      await buffer(answer.body); // so that its connection can be used again
      account.refresh();
      return attempt(request);
    },
    pings: () => transport?.pings() ?? false,
    close: () => transport?.close(),
  };
}

/** Seconds between two pings, and for a connection to be made. */
const usualPatience = { ping: 14, connect: 30 };

export function createTransport({ server, tls, proxy }: Target, patience = usualPatience) {
  let plain = proxy !== null || server.startsWith('http:');
  let pings = false;
  const connector = { ...tls, timeout: patience.connect * 1000 } as buildConnector.BuildOptions;
  const dial = buildConnector({ ...connector, preferH2: true });
  const http1 = proxy ?? new Agent({ allowH2: false, connect: connector });
  const http2 = new Client(server, {
    connect(to, callback) {
      dial(to, (error, socket) => {
        if (error !== null) {
          callback(error, null);
        } else if ((socket as TLSSocket).alpnProtocol === 'h2') {
          pings = true;
          closeWhenSilent(socket, patience.ping);
          callback(null, socket);
        } else {
          plain = true;
          socket.destroy();
          callback(new Error('The server does not speak HTTP/2'), null);
        }
      });
    },
    initialWindowSize: 4 * 1024 * 1024,
    connectionWindowSize: 32 * 1024 * 1024,
    pingInterval: patience.ping * 1000,
  });
  return {
    send(request: ApiRequest, headers: Readonly<Record<string, string>>): Promise<ApiAnswer> {
      const sendBy = (dispatcher: Dispatcher) => sendThrough(dispatcher, server, request, headers);
      if (plain) return sendBy(http1);
      return sendBy(http2).catch((error: unknown) => {
        if (plain) return sendBy(http1); // this has just been found out
        throw error;
      });
    },
    /** Whether it speaks HTTP/2, and so notices by itself when the peer has gone. */
    pings: () => pings,
    /** Ends idle connections at once, others with their last answer. */
    close(): void {
      void http1.close();
      void http2.close();
    },
  };
}

/** Closes a socket that has received no byte in two intervals, not even of a ping's answer. */
function closeWhenSilent(socket: Socket, ping: number): void {
  let received = 0;
  let silent = 0;
  const timer = setInterval(() => {
    silent = socket.bytesRead === received ? silent + 1 : 0;
    received = socket.bytesRead;
    if (silent < 2) return;
    // What has arrived while the loop was busy is read first.
    setImmediate(() => {
      if (socket.bytesRead !== received) return;
      socket.destroy(new Error('The server does not answer a ping'));
    });
  }, ping * 1000);
  timer.unref();
  socket.once('close', () => clearInterval(timer));
}

async function sendThrough(
  dispatcher: Dispatcher,
  origin: string,
  { path, query, accept, signal }: ApiRequest,
  headers: Readonly<Record<string, string>>,
): Promise<ApiAnswer> {
  const answer = await dispatcher.request({
    origin,
    path,
    query,
    method: 'GET',
    headers: { ...headers, accept },
    signal,
    // The reader has limits of its own.
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  const { 'content-type': type, 'retry-after': after } = answer.headers;
  return {
    status: answer.statusCode,
    headers: { 'content-type': type?.toString(), 'retry-after': after?.toString() },
    body: chunksOf(answer.body),
  };
}

/** The chunks of a stream; its own iterator copies all waiting ones, which costs collections. */
function chunksOf(stream: Readable): Body {
  let [arrived, taken] = [0, 0];
  stream.on('data', () => arrived++);
  // The sender waits after 16 chunks, each of at most 16 KiB.
  const limits = { highWaterMark: 16, lowWaterMark: 8 };
  const chunks = on(stream, 'data', { ...limits, close: ['end'] }) as AsyncIterable<[Uint8Array]>;
  return {
    hasMore: () => taken < arrived,
    async *[Symbol.asyncIterator]() {
      try {
        for await (const [chunk] of chunks) {
          taken++;
          yield chunk;
        }
      } finally {
        stream.destroy();
      }
    },
  };
}
