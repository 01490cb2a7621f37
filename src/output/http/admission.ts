// Which requests are answered at one time. Others are refused before any route sees them: routes
// cost several times as much as a refusal, and a probe waits behind all requests before it.

import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';

import { awaitTurn } from './turns.ts';

/** Requests at one time, without those of `unlimited`, and the seconds that each may take. */
const requestLimits = { most: 64, seconds: 60 };

/** Pages follow it for long, so it has limits of its own. */
export const liveUpdatesPath = '/api/v1/events';

const unlimited: ReadonlySet<string> = new Set(['/livez', '/healthz', '/readyz', liveUpdatesPath]);

/**
 * Milliseconds until a refusal, and a random part, so that many refusals do not come in one turn.
 * And how many may wait: waiting connections are not idle.
 */
const refusals = { delay: 1000, random: 2000, most: 2048 };

const waiting = new Set<ServerResponse>();

/**
 * Refuses a request later, since clients that ask again at once would keep the probes out. If many
 * wait, it closes the connection at once, so that the limit of connections leaves room for probes.
 */
export function sendBusy(response: ServerResponse, text: string): void {
  const refuse = (headers: Readonly<Record<string, string>> = {}): void => {
    waiting.delete(response);
    response.writeHead(503, {
      'Content-Type': 'text/plain; charset=utf-8',
      'X-Content-Type-Options': 'nosniff',
      'Cache-Control': 'no-store',
      'Retry-After': '5',
      ...headers,
    });
    response.end(`${text}\n`);
  };
  if (waiting.size >= refusals.most) {
    refuse({ Connection: 'close' });
    return;
  }
  waiting.add(response);
  const delay = refusals.delay + refusals.random * Math.random();
  const timer = setTimeout(refuse, delay).unref();
  response.once('close', () => {
    waiting.delete(response);
    clearTimeout(timer);
  });
}

const pathOf = ({ url = '' }: IncomingMessage): string => url.split('?', 1)[0] ?? '';

/** Refuses requests while many are answered, and ends those whose clients do not read. */
export function limitRequests(
  answer: RequestListener,
  { most, seconds } = requestLimits,
): RequestListener {
  let active = 0;
  return (request, response) => {
    if (unlimited.has(pathOf(request))) {
      answer(request, response);
      return;
    }
    if (active >= most) {
      sendBusy(response, 'Too many requests at one time');
      return;
    }
    active++;
    const timer = setTimeout(() => request.socket.destroy(), seconds * 1000).unref();
    response.once('close', () => {
      active--;
      clearTimeout(timer);
    });
    void awaitTurn().then(() => {
      if (!response.destroyed) answer(request, response);
    });
  };
}
