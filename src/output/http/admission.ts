// Which requests are answered at one time. Others are refused before any route sees them. Routes
// cost several times as much as a refusal, and a probe waits behind all requests before it.

import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

import type { Response } from 'express';

import { awaitTurn } from './turns.ts';

const policy = [
  "default-src 'none'",
  "style-src 'self'",
  "script-src 'self'",
  "connect-src 'self'",
  "img-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join('; ');

/** The headers of all responses. */
export const usualHeaders = {
  'Content-Security-Policy': policy,
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cache-Control': 'no-store',
};

/** Sends a line of text. */
export const sendLine = (response: Response, status: number, line: string): Response =>
  response.status(status).type('text').send(`${line}\n`);

/** Pages follow it for long, so it has limits of its own. */
export const liveUpdatesPath = '/api/v1/events';

const unlimited: ReadonlySet<string> = new Set(['/livez', '/healthz', '/readyz', liveUpdatesPath]);

/** Milliseconds until a refusal; a part is random, so that many do not come in one turn. */
const delay = { least: 1000, random: 2000 };

/**
 * Requests at one time, without those of `unlimited`, and the seconds that each may take. And how
 * many refusals may wait: waiting connections are not idle.
 */
const requestLimits = { most: 64, seconds: 60, refusals: 2048 };

const waiting = new Set<ServerResponse>();

/**
 * Refuses a request later, since clients that ask again at once would keep the probes out. If many
 * wait, it closes the connection at once, so that the limit of connections leaves room for probes.
 */
export function sendBusy(
  response: ServerResponse,
  text: string,
  most = requestLimits.refusals,
): void {
  const refuse = (headers: Readonly<Record<string, string>> = {}): void => {
    waiting.delete(response);
    const line = `${text}\n`;
    response.writeHead(503, {
      ...usualHeaders,
      'Content-Type': 'text/plain; charset=utf-8',
      'Content-Length': Buffer.byteLength(line),
      'Retry-After': '5',
      ...headers,
    });
    response.end(line);
  };
  if (waiting.size >= most) {
    refuse({ Connection: 'close' });
    return;
  }
  waiting.add(response);
  const timer = setTimeout(refuse, delay.least + delay.random * Math.random()).unref();
  response.once('close', () => {
    waiting.delete(response);
    clearTimeout(timer);
  });
}

const pathOf = ({ url = '' }: IncomingMessage): string => url.split('?', 1)[0] ?? '';

/** Refuses requests while many are answered, and ends those whose clients do not read. */
export function limitRequests(
  answer: RequestListener,
  { most, seconds, refusals } = requestLimits,
): RequestListener {
  let active = 0;
  return (request, response) => {
    if (unlimited.has(pathOf(request))) {
      answer(request, response);
      return;
    }
    if (active >= most) {
      sendBusy(response, 'Too many requests at one time', refusals);
      return;
    }
    active++;
    const timer = setTimeout(() => request.socket.destroy(), seconds * 1000).unref();
    response.once('close', () => {
      active--;
      clearTimeout(timer);
    });
    void awaitTurn(() => response.destroyed).then(() => answer(request, response));
  };
}

/** Requests that a connection may send ahead of the answer to an earlier one. */
const mostAhead = 16;

/**
 * Answers the requests of a connection one after another. Node 22 does not close responses that
 * wait behind another when their client leaves: each would keep its place among `most` for good.
 */
export function answerInOrder(answer: RequestListener): RequestListener {
  const queues = new WeakMap<Socket, { last: ServerResponse; waiting: number }>();
  return (request, response) => {
    const { socket } = request;
    const queue = queues.get(socket);
    if (queue === undefined || response.socket !== null) {
      queues.set(socket, { last: response, waiting: 0 });
      answer(request, response);
      return;
    }
    // Without a limit, one client could fill the memory.
    if (++queue.waiting > mostAhead) {
      socket.destroy();
      return;
    }
    queue.last.once('close', () => {
      queue.waiting--;
      // Without a socket, the connection has ended, or Node itself refuses a request before it.
      if (response.socket === null) socket.destroy();
      else answer(request, response);
    });
    queue.last = response;
  };
}
