// The web server: Prometheus' /metrics, the probes /livez and /readyz, findings as JSON, and pages.
// All routes are read only. There is no authentication: the listen address decides who has access.
// Left out: TLS, and routes for the scrapers of other programs.

import { once } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

import { createChannel, createSession } from 'better-sse';
import compression from 'compression';
import type { NextFunction, Request, Response } from 'express';
import express from 'express';

import type { AuditorQueries } from '../../auditor/queries.ts';
import { contentTypes, negotiateFormat } from '../metrics/exposition.ts';
import { createMetricsRenderer } from '../metrics/metrics.ts';
import { formatMoment } from '../page/parts.ts';
import { addApi, createPause, sendPieces } from './api.ts';
import { addPages } from './pages.ts';

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

/** Sets the headers of all responses, and refuses methods that write. */
function checkRequest({ method }: Request, response: Response, next: NextFunction): void {
  response.set({
    'Content-Security-Policy': policy,
    'X-Content-Type-Options': 'nosniff',
    'Referrer-Policy': 'no-referrer',
    'Cache-Control': 'no-store',
  });
  if (method === 'GET' || method === 'HEAD') next();
  else response.set('Allow', 'GET, HEAD').status(405).type('text').send('Only GET and HEAD\n');
}

/** Sends 200, or 503 with the reasons, one per line. */
const sendProbe = (response: Response, failing: string | null): Response =>
  response
    .status(failing === null ? 200 : 503)
    .type('text')
    .send(`${failing ?? 'ok'}\n`);

async function sendMetrics(
  { headers }: Request,
  response: Response,
  answers: AuditorQueries,
  render: ReturnType<typeof createMetricsRenderer>,
): Promise<void> {
  const pause = createPause();
  const steps = answers.scrape();
  let step = steps.next();
  for (; step.done !== true; step = steps.next()) await pause();
  const format = negotiateFormat(headers.accept);
  response.vary('Accept').set('Content-Type', contentTypes[format]);
  await sendPieces(response, render(step.value, format), pause);
}

/** Sends whether the auditor is ready, and why it is not. */
function sendStatus(response: Response, answers: AuditorQueries): void {
  const { metrics, lost, notReady, source, kubernetes } = answers.status();
  const reasons = notReady === null ? [] : notReady.split('\n');
  const { now, ready } = metrics;
  response.json({ format: 1, now, ready, reasons, lost, source, kubernetes });
}

const maxSessions = 200;

/**
 * Sends each open page the input's clock and a revision every second, as server-sent events. A page
 * with an old revision loads itself again (page/browser/).
 */
export function createLiveUpdates(
  read: () => Readonly<Record<'revision' | 'moment', string> & { isLost: boolean }>,
) {
  const channel = createChannel();
  const open = new Set<ServerResponse>();
  let last: string | null = null;
  /** Whether the clock of the input advances; null until two moments are known. */
  let moving: boolean | null = null;
  const timer = setInterval(() => {
    if (open.size === 0) {
      [last, moving] = [null, null];
      return;
    }
    const now = read();
    moving = last === null ? null : now.moment !== last;
    channel.broadcast({ ...now, moving }, 'beat');
    last = now.moment;
  }, 1000).unref();
  return {
    /** Sends events until the request is closed; false if too many pages are open. */
    async follow(request: IncomingMessage, response: ServerResponse): Promise<boolean> {
      if (open.size >= maxSessions) return false;
      open.add(response);
      response.once('close', () => open.delete(response));
      const session = await createSession(request, response, { keepAlive: null });
      if (!session.isConnected) return true;
      channel.register(session);
      const now = read();
      last ??= now.moment;
      session.push({ ...now, moving }, 'beat');
      return true;
    },
    close: (): void => {
      clearInterval(timer);
      for (const response of open) response.end();
    },
  };
}

// --- the server ---

type WebApp = ReturnType<typeof createApp>;

/** Creates the routes. If a query throws, the response is 500, and `onError` gets the error. */
export function createApp(
  answers: AuditorQueries,
  onError: (error: unknown) => void = console.error,
) {
  const app = express();
  const render = createMetricsRenderer();
  const updates = createLiveUpdates(() => {
    const { revision, now, isLost } = answers.beat();
    return { revision, moment: formatMoment(now), isLost };
  });
  app.disable('x-powered-by');
  app.disable('etag');
  app.use(checkRequest);
  // Compression would delay the events, so they have their route before it.
  app.get('/api/v1/events', async (request, response) => {
    if (await updates.follow(request, response)) return;
    response.status(503).type('text').send('Too many pages are open\n');
  });
  app.use(compression());
  addPages(app, answers);
  app.get('/metrics', (request, response) => sendMetrics(request, response, answers, render));
  // Kubernetes' components still have the older name.
  app.get(['/livez', '/healthz'], (_request, response) => sendProbe(response, answers.stuck()));
  app.get('/readyz', (_request, response) => sendProbe(response, answers.notReady()));
  app.get('/api/v1/status', (_request, response) => sendStatus(response, answers));
  addApi(app, answers);
  app.use((_request, response) => response.status(404).type('text').send('Not found\n'));
  // Express recognizes an error handler by its four parameters.
  app.use((error: unknown, _request: Request, response: Response, next: NextFunction) => {
    onError(error);
    if (response.headersSent) next(error);
    else response.status(500).type('text').send('Internal error\n');
  });
  // `endStreams` ends the responses that do not end by themselves.
  return { express: app, endStreams: updates.close };
}

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: 'the address is already in use',
  EACCES: 'permission denied',
  EADDRNOTAVAIL: 'the machine has no such address',
  ENOTFOUND: 'the host is not known',
};

/** Listens on every address if `host` is null, on a free port if `port` is 0, or throws. */
export async function listen(
  app: WebApp,
  { host, port }: { readonly host: string | null; readonly port: number },
) {
  // The callback of app.listen is called for errors too.
  const server: Server = host === null ? app.express.listen(port) : app.express.listen(port, host);
  // Requests are short, so slow ones must not occupy connections.
  server.headersTimeout = 5000;
  server.requestTimeout = 10_000;
  // Shorter than the usual scrape interval, so that idle connections end.
  server.keepAliveTimeout = 15_000;
  try {
    await once(server, 'listening');
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const where = `${host?.includes(':') === true ? `[${host}]` : (host ?? '')}:${port}`;
    throw new Error(`Cannot listen on ${where}: ${reasons[code ?? ''] ?? message}`, {
      cause: error,
    });
  }
  let closing: Promise<void> | null = null;
  return {
    port: (server.address() as AddressInfo).port,
    /** Ends idle connections at once, and the others after their response, or after 2 s. */
    close: () => (closing ??= closeServer(app, server)),
  };
}

async function closeServer(app: WebApp, server: Server): Promise<void> {
  const done = once(server, 'close');
  app.endStreams();
  server.close();
  const grace = setTimeout(() => server.closeAllConnections(), 2000);
  await done;
  clearTimeout(grace);
}
