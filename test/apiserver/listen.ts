// The fake API server behind real sockets: TLS with HTTP/2 and HTTP/1.1, or plain HTTP, on
// loopback; and a relay before it that can stop to relay, as a network does that has lost one of
// its ends.

import { readFileSync } from 'node:fs';
import type {
  IncomingHttpHeaders,
  IncomingMessage,
  Server as HttpServer,
  ServerResponse,
} from 'node:http';
import { createServer as createHttp } from 'node:http';
import type { Http2SecureServer, Http2ServerResponse } from 'node:http2';
import { constants, createSecureServer } from 'node:http2';
import { createServer as createHttps } from 'node:https';
import type { AddressInfo, Server, Socket } from 'node:net';
import { connect, createServer as createTcp } from 'node:net';
import { join } from 'node:path';

import type { Ask } from '../../src/cluster/api/transport/api-request.ts';

export interface Listener {
  readonly port: number;
  /** The headers of every request, and the protocol that it came by. */
  readonly requests: { readonly headers: IncomingHttpHeaders; readonly protocol: string }[];
  /** The common names of the certificates that clients have shown. */
  readonly clients: (string | undefined)[];
  /** Ends all connections at once. */
  readonly drop: () => void;
  readonly close: () => Promise<void>;
}

type KeyName = 'server' | 'other';

/** The path of a certificate, or of its key. */
export const keyPath = (name: KeyName, what: 'crt' | 'key'): string =>
  join(import.meta.dirname, `${name}.${what}`);

export interface ListenOptions {
  readonly protocols?: 'h2' | 'http/1.1' | 'plain';
  readonly key?: KeyName;
  /** Answers 401 to every other token. */
  readonly token?: () => string;
}

function serverFor({ protocols, key = 'server' }: ListenOptions): Http2SecureServer | HttpServer {
  if (protocols === 'plain') return createHttp();
  const options = {
    key: readFileSync(keyPath(key, 'key')),
    cert: readFileSync(keyPath(key, 'crt')),
    requestCert: true,
    rejectUnauthorized: false,
  };
  return protocols === 'http/1.1'
    ? createHttps(options)
    : createSecureServer({ ...options, allowHTTP1: true });
}

/** Listens on a free port of loopback and answers as `ask` does. */
export async function listen(ask: Ask, options: ListenOptions = {}): Promise<Listener> {
  const server: Server = serverFor(options);
  const sockets = new Set<Socket>();
  const requests: Listener['requests'] = [];
  const clients: Listener['clients'] = [];
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => undefined);
  });
  server.on('secureConnection', (socket: { getPeerCertificate: () => Certificate }) => {
    clients.push(socket.getPeerCertificate().subject?.CN);
  });
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    requests.push({ headers: request.headers, protocol: request.httpVersion });
    const { authorization } = request.headers;
    if (options.token !== undefined && authorization !== `Bearer ${options.token()}`) {
      response.writeHead(401, { 'content-type': 'application/json' });
      response.end('{"kind":"Status","code":401}');
      return;
    }
    void answer(ask, request, response);
  });
  const drop = () => {
    for (const socket of sockets) socket.destroy();
  };
  const port = await portOf(server);
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      drop();
    });
  return { port, requests, clients, drop, close };
}

interface Certificate {
  readonly subject?: { readonly CN?: string };
}

function portOf(server: Server): Promise<number> {
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
  });
}

/** HTTP/2's request and response are used as those of HTTP/1.1, which they imitate. */
async function answer(ask: Ask, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url ?? '/', 'https://localhost');
  const controller = new AbortController();
  response.on('close', () => controller.abort());
  const query = Object.fromEntries(url.searchParams);
  const accept = request.headers.accept ?? '';
  try {
    const got = await ask({ path: url.pathname, query, accept, signal: controller.signal });
    for (const [name, value] of Object.entries(got.headers))
      if (value !== undefined) response.setHeader(name, value);
    response.statusCode = got.status;
    response.flushHeaders();
    for await (const chunk of got.body) {
      if (!response.write(chunk)) await new Promise((resolve) => response.once('drain', resolve));
    }
    response.end();
  } catch {
    // A lost connection: the client must not take the received part for a complete answer.
    const { stream } = response as { stream?: Http2ServerResponse['stream'] };
    if (stream !== undefined) stream.close(constants.NGHTTP2_INTERNAL_ERROR);
    else response.socket?.destroy();
  }
}

export interface Relay {
  readonly port: number;
  /** Nothing passes any more, and neither side notices. */
  readonly freeze: () => void;
  readonly connections: () => number;
  readonly close: () => Promise<void>;
}

/** Relays connections to a port of loopback. */
export async function relay(to: number): Promise<Relay> {
  const sockets = new Set<Socket>();
  let frozen = false;
  let connections = 0;
  const server = createTcp((near) => {
    connections++;
    const far = connect(to, '127.0.0.1');
    for (const [from, into] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      from.on('data', (chunk) => {
        if (!frozen) into.write(chunk);
      });
      from.on('close', () => {
        sockets.delete(from);
        if (!frozen) into.destroy();
      });
      from.on('error', () => undefined);
    }
  });
  const port = await portOf(server);
  return {
    port,
    freeze: () => (frozen = true),
    connections: () => connections,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}
