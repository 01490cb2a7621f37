// Requests over sockets: HTTP/2 where the server offers it, as every kube-apiserver does, with all
// watches in one connection; HTTP/1.1 through proxies, over plain HTTP and where nothing else is
// spoken.
//
// A connection to a lost peer looks like an idle one. Over HTTP/2 the transport sends a ping after
// some time without a byte, and closes the connection without an answer, at the latest 43 s after
// the last byte (golang.org/x/net http2 Transport, as client-go sets it: 30 s and 15 s). HTTP/1.1
// has no ping; there the reader must limit the silence.
//
// The windows are wider than Node's 64 KiB, which a round trip of a millisecond would make the
// limit of a large list. A slow reader has at most one window of unread bytes for each stream.

import type { IncomingMessage } from 'node:http';
import { request as requestHttp } from 'node:http';
import type { ClientHttp2Session, ClientHttp2Stream, IncomingHttpHeaders } from 'node:http2';
import { connect as connectHttp2, constants } from 'node:http2';
import type { RequestOptions } from 'node:https';
import { Agent, request as requestHttps } from 'node:https';
import type { Readable } from 'node:stream';
import { finished } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { connect as connectTls } from 'node:tls';

import type { ApiAnswer, Body } from './api-request.ts';

/** Where to connect to, and how. */
export interface Target {
  /** `https://10.0.0.1:6443`. */
  readonly server: string;
  /** Of TLS, and the agent of a proxy. */
  readonly options: RequestOptions;
  readonly proxied: boolean;
}

export interface Outgoing {
  /** With the query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

export interface Transport {
  /** Sends a GET request; rejects when no answer comes. */
  send(outgoing: Outgoing): Promise<ApiAnswer>;
  /** Whether it speaks HTTP/2, and so notices by itself when the peer has gone. */
  pings(): boolean;
  /** Ends idle connections at once, others with their last answer. */
  close(): void;
}

/** Seconds of silence before a ping, for its answer, and for a connection to be made. */
export interface Patience {
  readonly ping: number;
  readonly pong: number;
  readonly connect: number;
}

/** Together at most 43 s: silence is looked at twice before a ping is sent. */
const usualPatience: Patience = { ping: 14, pong: 15, connect: 30 };

const streamWindow = 4 * 1024 * 1024;
const sessionWindow = 32 * 1024 * 1024;
/** Frames of 16 KiB, which are usual, lie across two records of TLS and come in two pieces. */
const frameSize = 1024 * 1024;

export function createTransport(target: Target, patience = usualPatience): Transport {
  const secure = target.server.startsWith('https:');
  let session: Promise<ClientHttp2Session | null> | null = null;
  let plain = !secure || target.proxied;
  let pings = false;
  const agent = target.proxied ? target.options.agent : secure ? newAgent(target) : undefined;
  const dialled = async (): Promise<ClientHttp2Session | null> => {
    session ??= dial(target, patience, () => (session = null));
    try {
      const made = await session;
      plain ||= made === null;
      pings = made !== null;
      return made;
    } catch (error) {
      session = null;
      throw error;
    }
  };
  return {
    async send(outgoing) {
      const made = plain ? null : await dialled();
      if (made !== null) return sendHttp2(made, outgoing);
      return sendHttp1(target, agent, outgoing);
    },
    pings: () => pings,
    close() {
      void session?.then(
        (made) => made?.close(),
        () => undefined,
      );
      if (agent instanceof Agent) agent.destroy();
    },
  };
}

const newAgent = ({ options }: Target): Agent =>
  new Agent({ ...tlsOptions(options), keepAlive: true, scheduling: 'lifo' });

function tlsOptions({ ca, cert, key, servername, rejectUnauthorized }: RequestOptions) {
  const given = { ca, cert, key, servername, rejectUnauthorized };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

// --- HTTP/2 ---

/** Connects; null: the server speaks HTTP/1.1 only. `onEnd`: no request can be sent any more. */
async function dial(
  { server, options }: Target,
  patience: Patience,
  onEnd: () => void,
): Promise<ClientHttp2Session | null> {
  const { hostname, port } = new URL(server);
  const socket = connectTls({
    host: hostname.replace(/^\[|\]$/g, ''),
    port: port === '' ? 443 : Number(port),
    ALPNProtocols: ['h2', 'http/1.1'],
    ...(/^[\d.]+$|:/.test(hostname) ? {} : { servername: hostname }),
    ...tlsOptions(options),
  });
  await secured(socket, patience.connect);
  if (socket.alpnProtocol !== 'h2') {
    socket.destroy();
    return null;
  }
  socket.setNoDelay(true);
  const session = connectHttp2(server, {
    createConnection: () => socket,
    settings: { initialWindowSize: streamWindow, maxFrameSize: frameSize, enablePush: false },
  });
  session.setLocalWindowSize(sessionWindow);
  session.on('goaway', onEnd);
  session.on('close', onEnd);
  session.on('error', onEnd);
  watchOver(session, socket, patience);
  return session;
}

function secured(socket: TLSSocket, seconds: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      socket.destroy(new Error(`No connection within ${seconds} s`));
    }, seconds * 1000);
    socket.once('secureConnect', () => {
      clearTimeout(timer);
      resolve();
    });
    socket.once('error', (error: Error) => {
      clearTimeout(timer);
      reject(error);
    });
    socket.once('close', () => {
      clearTimeout(timer);
      reject(new Error('The connection was closed before it was secure'));
    });
  });
}

/** Sends pings into silence, and ends the session when they are not answered. */
function watchOver(session: ClientHttp2Session, socket: TLSSocket, patience: Patience): void {
  let heard = socket.bytesRead;
  let waiting: NodeJS.Timeout | null = null;
  const stopWaiting = () => {
    if (waiting !== null) clearTimeout(waiting);
    waiting = null;
  };
  const giveUp = () => {
    // What has arrived while the loop was busy is read first.
    setImmediate(() => {
      if (waiting !== null && socket.bytesRead === heard) {
        session.destroy(new Error('The server does not answer a ping'));
      }
      waiting = null;
    });
  };
  const timer = setInterval(() => {
    if (session.destroyed) stop();
    else if (socket.bytesRead !== heard) {
      heard = socket.bytesRead;
      stopWaiting();
    } else if (waiting === null) {
      waiting = setTimeout(giveUp, patience.pong * 1000);
      session.ping(stopWaiting);
    }
  }, patience.ping * 1000);
  timer.unref();
  const stop = () => {
    clearInterval(timer);
    stopWaiting();
  };
  session.once('close', stop);
}

function sendHttp2(
  session: ClientHttp2Session,
  { path, headers, signal }: Outgoing,
): Promise<ApiAnswer> {
  return new Promise((resolve, reject) => {
    const stream = session.request(
      { ...headers, [constants.HTTP2_HEADER_PATH]: path },
      { endStream: true, signal },
    );
    stream.once('response', (response) => {
      const status = Number(response[constants.HTTP2_HEADER_STATUS]);
      resolve({ status, headers: plainHeaders(response), body: bodyOfStream(stream) });
    });
    stream.on('error', reject);
    stream.once('close', () => reject(new Error('The stream was closed without an answer')));
  });
}

/** A stream that the server has reset may look like one that has ended. */
const bodyOfStream = (stream: ClientHttp2Stream): Body =>
  chunksOf(stream, () =>
    stream.rstCode === constants.NGHTTP2_NO_ERROR
      ? null
      : new Error(`The stream was reset with code ${stream.rstCode}`),
  );

// --- HTTP/1.1 ---

function sendHttp1(
  { server, options }: Target,
  agent: RequestOptions['agent'],
  { path, headers, signal }: Outgoing,
): Promise<ApiAnswer> {
  const request = server.startsWith('https:') ? requestHttps : requestHttp;
  return new Promise((resolve, reject) => {
    const sent = request(
      new URL(path, server),
      { ...tlsOptions(options), headers, signal, ...(agent === undefined ? {} : { agent }) },
      (response) => {
        const status = response.statusCode ?? 0;
        resolve({ status, headers: plainHeaders(response.headers), body: bodyOf(response) });
      },
    );
    sent.on('error', reject);
    sent.end();
  });
}

const bodyOf = (response: IncomingMessage): Body =>
  chunksOf(response, () =>
    response.complete ? null : new Error('The connection was closed within an answer'),
  );

// --- both ---

/** Bytes that may wait for the reader before the sender has to. */
const waitingLimit = 256 * 1024;

/**
 * The chunks of a stream as they came; `verify` reports a stream that ended with an error. (A
 * stream's own iterator copies all waiting chunks into a new buffer, which causes full collections.
 * A generator would cost some promises for each of the 100,000 chunks of a first list.)
 */
function chunksOf(stream: Readable, verify: () => Error | null): Body {
  let waiting: Uint8Array[] = [];
  let taken = 0;
  let bytes = 0;
  let ended: Error | 'well' | null = null;
  let wake: () => void = () => undefined;
  stream.on('data', (chunk: Uint8Array) => {
    waiting.push(chunk);
    bytes += chunk.length;
    if (bytes >= waitingLimit) stream.pause();
    wake();
  });
  const stop = finished(stream, { writable: false }, (error) => {
    ended = error ?? 'well';
    wake();
  });
  const close = (): IteratorReturnResult<undefined> => {
    stop();
    stream.destroy();
    return { done: true, value: undefined };
  };
  const hasMore = (): boolean => taken < waiting.length;
  const next = async (): Promise<IteratorResult<Uint8Array, undefined>> => {
    while (true) {
      const value = waiting[taken];
      if (value !== undefined) {
        taken++;
        return { done: false, value };
      }
      waiting = [];
      taken = bytes = 0;
      const result = ended === 'well' ? (verify() ?? ended) : ended;
      if (result !== null) close();
      if (result instanceof Error) throw result;
      if (result !== null) return { done: true, value: undefined };
      const woken = new Promise<void>((resolve) => (wake = resolve));
      stream.resume();
      await woken;
    }
  };
  const iterator = { next, return: () => Promise.resolve(close()) };
  return { hasMore, [Symbol.asyncIterator]: () => iterator };
}

function plainHeaders(headers: IncomingHttpHeaders): Record<string, string | undefined> {
  const { 'content-type': type, 'retry-after': after } = headers;
  return { 'content-type': type, 'retry-after': typeof after === 'string' ? after : undefined };
}
