// The connection to the API server: every request goes through it, with the current credentials. If
// the server rejects a token that it accepted before, the token is read again once.
//
// Requests go over sockets by undici: HTTP/2 where the server offers it, as every kube-apiserver
// does, with up to 50 requests in one connection; HTTP/1.1 elsewhere, and through proxies.
//
// Over HTTP/2 undici sends pings, but does not miss an answer. Here a connection without a byte is
// closed at the latest 42 s after the last one (client-go: 45 s). HTTP/1.1 has no ping; there the
// reader must limit the silence. The windows are wider than usual: with those, a round trip of 1 ms
// would limit large lists. The size of frames stays as it is. To change it, a second SETTINGS frame
// is necessary, and Go's server (golang.org/x/net v0.49.0, http2/server.go, processSettings) may
// acknowledge two frames once. Then its next larger frame is an error that closes the connection.

import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { setImmediate as turn, setTimeout as pause } from 'node:timers/promises';
import type { TLSSocket } from 'node:tls';

import { Agent, buildConnector, Client, type Dispatcher } from 'undici';

import { GivenUp, tokenExpiry } from './failure.ts';
import type { Account, Target } from './kubeconfig.ts';

export interface ApiRequest {
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly accept: string;
  /** JSON of a review (review.ts) or an Event, sent by POST; absent: the request only reads. */
  readonly body?: string;
  /** Sends the body by PATCH, as a merge patch. */
  readonly patch?: boolean;
  /** Ends the request and its body. */
  readonly signal: AbortSignal;
}

export interface ApiAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** When the rejected token expired, Unix seconds; absent if it did not, or that is unknown. */
  readonly expiredAt?: number;
  /** Throws when the connection is lost before the body is complete. */
  readonly body: Body;
}

export interface Body extends AsyncIterable<Uint8Array> {
  /** Whether another chunk has arrived already; absent if that is unknown. */
  readonly hasMore?: (() => boolean) | undefined;
}

/** A header with several values is sent several times. */
type RequestHeaders = Readonly<Record<string, string | readonly string[]>>;

/** Sends one request; rejects when no answer comes. */
export type Ask = (request: ApiRequest) => Promise<ApiAnswer>;

interface ConnectionOptions {
  /** Seconds until an answer must begin; Infinity: the reader has a limit. */
  readonly answerWithin?: number;
  /** Called once, before credentials are sent without TLS. */
  readonly onPlainCredentials?: () => void;
}

/** The environment of reflectors; `now` is the clock, Unix seconds. */
export function createConnection(
  account: Account,
  now: () => number,
  { answerWithin = Infinity, onPlainCredentials = () => undefined }: ConnectionOptions = {},
) {
  let transport: ReturnType<typeof createTransport> | null = null;
  let current = '';
  let hasWarned = false;
  let skew: number | null = null;
  const attempt = async (request: ApiRequest) => {
    const credentials = await account.credentials();
    const { server, tls, headers, openProxy } = credentials;
    // What a connection is bound to. Tokens are not: they go with each request.
    const bound = [server, tls.ca, tls.cert, tls.key, tls.servername].map(String).join('\n');
    if (transport === null || bound !== current) {
      transport?.close();
      transport = createTransport({ server, tls, proxy: await openProxy() });
      current = bound;
    }
    if (!hasWarned && headers.Authorization !== undefined && server.startsWith('http:')) {
      hasWarned = true;
      onPlainCredentials();
    }
    const answer = await transport.send(request, { ...headers, 'user-agent': 'endpoint-auditor' });
    const sentAt = Date.parse(answer.headers.date ?? '') / 1000;
    if (!Number.isNaN(sentAt)) skew = now() - sentAt;
    const expiredAt = answer.status === 401 ? tokenExpiry(headers.Authorization?.toString()) : null;
    const isExpired = expiredAt !== null && expiredAt <= Date.now() / 1000;
    return { answer: isExpired ? { ...answer, expiredAt } : answer, credentials };
  };
  const askAgainIfRejected = async (request: ApiRequest): Promise<ApiAnswer> => {
    const { answer, credentials } = await attempt(request);
    if (answer.status !== 401) return answer;
    await finish(answer.body);
    account.refresh(credentials);
    return (await attempt(request)).answer;
  };
  return {
    now,
    monotonic: () => performance.now() / 1000,
    random: () => Math.random(),
    async sleep(seconds: number, signal: AbortSignal): Promise<void> {
      const slept =
        seconds === 0 ? turn(undefined, { signal }) : pause(seconds * 1000, undefined, { signal });
      await slept.catch(() => undefined);
    },
    ask: (request: ApiRequest): Promise<ApiAnswer> =>
      answerWithin === Infinity
        ? askAgainIfRejected(request)
        : limitAnswer(askAgainIfRejected, request, answerWithin),
    pings: () => transport?.pings() ?? false,
    skew: () => skew,
    /** The exec plugin whose credentials are awaited; `null` if none is running. */
    runningPlugin: () => account.runningPlugin(),
    /** Ends all requests and exec plugins at once. */
    close(): void {
      account.close();
      transport?.destroy();
    },
  };
}

/** Reads a short answer to its end, so that its connection can be used again. */
async function finish(body: Body): Promise<void> {
  let left = 64 * 1024;
  for await (const { length } of body) {
    left -= length;
    if (left < 0) return;
  }
}

/** Rejects with GivenUp, and ends the request, if its answer has not begun in time. */
async function limitAnswer(ask: Ask, request: ApiRequest, seconds: number): Promise<ApiAnswer> {
  const late = new AbortController();
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    const error = new GivenUp('idle', seconds);
    reject(error);
    late.abort(error);
  }, seconds * 1000);
  try {
    const signal = AbortSignal.any([request.signal, late.signal]);
    return await Promise.race([ask({ ...request, signal }), promise]);
  } finally {
    clearTimeout(timer);
  }
}

/** Seconds between two pings, and for a connection to be made. */
const usualPatience = { ping: 14, connect: 10 };

export function createTransport({ server, tls, proxy }: Target, patience = usualPatience) {
  let plain = proxy !== null || server.startsWith('http:');
  let pings = false;
  const connector = { ...tls, timeout: patience.connect * 1000 } as buildConnector.BuildOptions;
  const dial = buildConnector({ ...connector, preferH2: true });
  const http1 = proxy ?? new Agent({ allowH2: false, connect: connector });
  const { origin, pathname } = new URL(server);
  const prefix = pathname.replace(/\/$/, '');
  const http2 = createClients(
    () =>
      new Client(origin, {
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
        // undici 8.12.4 ignores h2Options.settings.initialWindowSize, which replaces the first.
        /* oxlint-disable typescript/no-deprecated */
        initialWindowSize: 4 * 1024 * 1024,
        connectionWindowSize: 32 * 1024 * 1024,
        pingInterval: patience.ping * 1000,
        /* oxlint-enable typescript/no-deprecated */
      }),
  );
  return {
    send(request: ApiRequest, headers: RequestHeaders): Promise<ApiAnswer> {
      const prefixed = prefix === '' ? request : { ...request, path: prefix + request.path };
      const sendBy = (dispatcher: Dispatcher, onEnd = ignore) =>
        sendThrough(dispatcher, origin, prefixed, headers, onEnd);
      if (plain) return sendBy(http1);
      return http2.use(sendBy).catch((error: unknown) => {
        if (plain) return sendBy(http1); // this has just been found out
        throw error;
      });
    },
    /** Whether it speaks HTTP/2, and so notices by itself when the peer has gone. */
    pings: () => pings && !plain,
    /** Ends idle connections at once, others with their last answer. */
    close(): void {
      for (const dispatcher of [http1, ...http2.all()]) void dispatcher.close();
    },
    /** Ends all connections at once. */
    destroy(): void {
      for (const dispatcher of [http1, ...http2.all()]) void dispatcher.destroy();
    },
  };
}

const ignore = (): void => undefined;

/** Requests in one connection: a kube-apiserver accepts 100 since 1.28, and a proxy maybe less. */
const mostStreams = 50;

/** HTTP/2 connections, so that watches that never end keep no other request waiting. */
function createClients(create: () => Client) {
  const clients: { readonly client: Client; streams: number }[] = [];
  return {
    /** Sends by a connection with room. `send` must call back once its request has ended. */
    async use<T>(send: (client: Client, onEnd: () => void) => Promise<T>): Promise<T> {
      let chosen = clients.find(({ streams }) => streams < mostStreams);
      if (chosen === undefined) clients.push((chosen = { client: create(), streams: 0 }));
      const used = chosen;
      used.streams++;
      let isOver = false;
      const end = (): void => {
        if (!isOver) used.streams--;
        isOver = true;
      };
      try {
        return await send(used.client, end);
      } catch (error) {
        end();
        throw error;
      }
    },
    all: () => clients.map(({ client }) => client),
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
      socket.destroy(new GivenUp('idle', 2 * ping));
    });
  }, ping * 1000);
  timer.unref();
  socket.once('close', () => clearInterval(timer));
}

async function sendThrough(
  dispatcher: Dispatcher,
  origin: string,
  { accept, body, patch = false, ...request }: ApiRequest,
  headers: RequestHeaders,
  onEnd: () => void,
): Promise<ApiAnswer> {
  // The reader has limits of its own.
  const asked = { ...request, origin, headersTimeout: 0, bodyTimeout: 0 };
  const media = patch ? 'application/merge-patch+json' : 'application/json';
  const sent = { ...headers, accept, ...(body === undefined ? {} : { 'content-type': media }) };
  const method = body === undefined ? 'GET' : patch ? 'PATCH' : 'POST';
  const answer = await dispatcher.request({ ...asked, method, body: body ?? null, headers: sent });
  answer.body.once('close', onEnd);
  const { 'content-type': type, 'retry-after': after, date } = answer.headers;
  const shown = {
    'content-type': type?.toString(),
    'retry-after': after?.toString(),
    date: date?.toString(),
  };
  return { status: answer.statusCode, headers: shown, body: chunksOf(answer.body) };
}

/** Bytes of an answer. */
const limits = {
  /** That may wait for the reader; beyond that the sender waits. */
  waiting: 256 * 1024,
  /** After which a turn of the event loop reads no more. libuv offers 2 MiB: 0.3 s to decode. */
  turn: 128 * 1024,
  /** Of a joined chunk. */
  joined: 16 * 1024,
};

/**
 * Chunks after which their mean size is looked at, and the least bytes of it. A frame of a watch is
 * larger. Of smaller ones, HTTP/2 keeps 4 MiB in a stream while it waits, at some 200 bytes each.
 */
const smallChunks = { count: 4096, mean: 32 };

/** Returns a function that takes the length of each chunk: the error of tiny ones, else `null`. */
function createChunkCheck(): (length: number) => Error | null {
  let [count, total] = [0, 0];
  return (length) => {
    total += length;
    if (++count < smallChunks.count) return null;
    const [pieces, bytes] = [count, total];
    [count, total] = [0, 0];
    if (bytes >= pieces * smallChunks.mean) return null;
    return new Error(`the answer comes in ${pieces} pieces of ${bytes} bytes in all`);
  };
}

/**
 * The chunks of a stream, small ones joined. Throws if most are tiny. Its own iterator copies
 * all waiting ones, which costs collections. A limit of their number would make undici wait after a
 * few small chunks, and then it copies the rest of its input for each, and every chunk keeps such a
 * copy.
 */
function chunksOf(stream: Readable): Body {
  const waiting: Uint8Array[] = [];
  const state = { bytes: 0, turn: 0, failure: null as Error | null, wake: ignore };
  const check = createChunkCheck();
  const resume = (): void => {
    if (state.bytes <= limits.waiting / 2 && state.turn <= limits.turn) stream.resume();
  };
  stream.on('data', (chunk: Uint8Array) => {
    const failure = check(chunk.length);
    if (failure !== null) return void stream.destroy(failure);
    waiting.push(chunk);
    if (state.turn === 0) {
      setImmediate(() => {
        state.turn = 0;
        resume();
      });
    }
    state.bytes += chunk.length;
    state.turn += chunk.length;
    if (state.bytes > limits.waiting || state.turn > limits.turn) stream.pause();
    state.wake();
  });
  stream.on('error', (error) => {
    state.failure = error;
    state.wake();
  });
  stream.on('close', () => state.wake());
  const take = (): Uint8Array => {
    let [count, bytes] = [0, 0];
    while (count < waiting.length && bytes < limits.joined) {
      bytes += waiting[count++]?.length ?? 0;
    }
    const taken = waiting.splice(0, count);
    state.bytes -= bytes;
    resume();
    return taken.length === 1 && taken[0] !== undefined ? taken[0] : Buffer.concat(taken);
  };
  return {
    hasMore: () => waiting.length > 0,
    async *[Symbol.asyncIterator]() {
      try {
        while (true) {
          if (waiting.length > 0) yield take();
          else if (state.failure !== null) throw state.failure;
          else if (stream.readableEnded || stream.closed) return;
          else {
            await new Promise<void>((resolve) => (state.wake = resolve));
            state.wake = ignore;
          }
        }
      } finally {
        stream.destroy();
      }
    },
  };
}
