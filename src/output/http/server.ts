// The web server: Prometheus' /metrics, the probes /livez and /readyz, findings as JSON, and pages.
// All routes are read only. Without a web configuration (web-config.ts) or reviews of tokens
// (access.ts) there is no authentication: the listen address decides who has access. Metrics and
// pages may have listeners of their own; each answers the probes.
// Left out: routes for the scrapers of other programs.
//
// A listener on loopback answers only requests for a name of this machine: else a page of the web
// could read everything, if the name of its site led to 127.0.0.1 (DNS rebinding).

import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';

import { createChannel, createSession } from 'better-sse';
import compression from 'compression';
import type { Express, NextFunction, Request, Response } from 'express';
import express from 'express';

import type { AuditorQueries } from '../../auditor/queries.ts';
import { contentTypes, negotiateFormat } from '../metrics/exposition.ts';
import { createMetricsRenderer } from '../metrics/metrics.ts';
import { formatDateTime } from '../page/parts.ts';
import { renderTimeBar } from '../page/time-bar.ts';
import { requireAccess, type ReviewAccess } from './access.ts';
import {
  answerInOrder,
  limitRequests,
  liveUpdatesPath,
  sendBusy,
  sendLine,
  usualHeaders,
} from './admission.ts';
import { addApi, sendPieces } from './api.ts';
import { type AnswerMoment, answerMoments } from './moments.ts';
import { addPages } from './pages.ts';
import { createPause, noteConnection } from './turns.ts';
import type { WebConfig } from './web-config.ts';

/** The names of this machine in a Host header, with or without a port. */
const loopbackHost = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i;

/** Sets the headers of all responses, and refuses methods that write and foreign names. */
function checkRequest(request: Request, response: Response, next: NextFunction): void {
  const { method, headers, app } = request;
  response.set(usualHeaders);
  if (app.get('on loopback') === true && !loopbackHost.test(headers.host ?? '')) {
    sendLine(response, 421, 'The Host header is no name of this machine');
  } else if (method === 'GET' || method === 'HEAD') next();
  else sendLine(response.set('Allow', 'GET, HEAD'), 405, 'Only GET and HEAD');
}

/** Sends 200, or 503 with the reasons, one per line. */
const sendProbe = (response: Response, failing: string | null): Response =>
  sendLine(response, failing === null ? 200 : 503, failing ?? 'ok');

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

/** Open pages, seconds after which each must connect again, and bytes that it may leave unread. */
const sessionLimits = { most: 200, seconds: 900, unread: 64 * 1024 };

/**
 * Sends each open page the input's clock and a revision every second, as server-sent events. A page
 * with an old revision loads itself again (page/browser/).
 */
export function createLiveUpdates(
  read: () => Readonly<
    Record<'revision' | 'moment', string> & Record<'isLost' | 'isLive', boolean>
  >,
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
    for (const response of open) {
      if (response.writableLength > sessionLimits.unread) response.destroy();
    }
    channel.broadcast({ ...now, moving }, 'beat');
    last = now.moment;
  }, 1000).unref();
  return {
    /** Sends events until the request is closed; false if too many pages are open. */
    async follow(request: IncomingMessage, response: ServerResponse): Promise<boolean> {
      // No `close` follows if the client has left while its access was reviewed.
      if (response.closed) return true;
      if (open.size >= sessionLimits.most) return false;
      open.add(response);
      // Browsers connect again. A client that never reads fills the buffers of the kernel first.
      const end = setTimeout(() => response.destroy(), sessionLimits.seconds * 1000).unref();
      response.once('close', () => {
        open.delete(response);
        clearTimeout(end);
      });
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

const openToAll: WebConfig = { tls: null, users: new Map() };

const usual = {
  /** Gets the error of a query that throws; the response is 500. */
  onError: console.error as (error: unknown) => void,
  /** Read for each request. */
  config: () => openToAll,
  /** Reviews bearer tokens; `null` if none are accepted. */
  review: null as ReviewAccess | null,
  /** What it answers beside the probes. */
  content: 'all' as 'all' | 'metrics' | 'pages',
  /** Answers as of a moment of the history; `null` without one. */
  moments: null as AnswerMoment | null,
};

/** Creates the routes. */
export function createApp(answers: AuditorQueries, options: Partial<typeof usual> = {}) {
  const { onError, config, review, content, moments } = { ...usual, ...options };
  const app = express();
  const updates = createLiveUpdates(() => {
    const { revision, now, lost, isLive } = answers.beat();
    return { revision, moment: formatDateTime(now), isLost: lost !== null, isLive };
  });
  app.disable('x-powered-by');
  app.disable('etag');
  app.use(checkRequest);
  // Kubernetes' components still have the older name. The kubelet has no login.
  app.get(['/livez', '/healthz'], (_request, response) => sendProbe(response, answers.stuck()));
  app.get('/readyz', (_request, response) => sendProbe(response, answers.notReady()));
  app.use(requireAccess(config, review));
  if (content !== 'metrics') addUpdates(app, updates);
  app.use(compression());
  if (content !== 'metrics') {
    const timeBar = (at: number) => renderTimeBar(answers.status(), at)?.html ?? '';
    app.use(answerMoments(moments, timeBar));
    addPages(app, answers);
    app.get('/api/v1/status', (_request, response) => sendStatus(response, answers));
    addApi(app, answers);
  }
  if (content !== 'pages') {
    const render = createMetricsRenderer();
    app.get('/metrics', (request, response) => sendMetrics(request, response, answers, render));
  } else app.get('/metrics', sendElsewhere);
  app.use((_request, response) => sendLine(response, 404, 'Not found'));
  // Express recognizes an error handler by its four parameters.
  app.use((error: unknown, _request: Request, response: Response, next: NextFunction) => {
    const status = statusOf(error);
    if (status === 500) onError(error);
    if (response.headersSent) next(error);
    else sendLine(response, status, status === 500 ? 'Internal error' : 'Bad request');
  });
  // `endStreams` ends the responses that do not end by themselves.
  return { express: app, endStreams: updates.close };
}

/** People may try the usual path. */
const sendElsewhere = (_request: Request, response: Response): Response =>
  sendLine(response, 404, 'The metrics are at another address: --metrics-listen');

/** Compression would delay the events, so their route comes before it. */
function addUpdates(app: Express, updates: ReturnType<typeof createLiveUpdates>): void {
  app.head(liveUpdatesPath, (_request, response) => {
    response.set('Allow', 'GET').status(405).end();
  });
  app.get(liveUpdatesPath, async (request, response) => {
    if (!(await updates.follow(request, response))) sendBusy(response, 'Too many pages are open');
  });
}

/** That of an error of the client, such as a path with `%zz`, else 500. */
function statusOf(error: unknown): number {
  const { status } = (error ?? {}) as { readonly status?: unknown };
  return typeof status === 'number' && status >= 400 && status < 500 ? status : 500;
}

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: 'the address is already in use',
  EACCES: 'permission denied',
  EADDRNOTAVAIL: 'the machine has no such address',
  ENOTFOUND: 'the host is not known',
};

// A client certificate is checked for each request, since probes have none.
const tlsOptions = { requestCert: true, rejectUnauthorized: false, handshakeTimeout: 5000 };

/**
 * Milliseconds: requests are short, so slow ones must not occupy connections. Node checks the time
 * limits every 30 s by default, which is longer than they are.
 */
const timeLimits = { headers: 5000, request: 10_000, check: 1000 };

/** The most connections; far more than requests at one time, so that others get their refusal. */
const mostConnections = 4096;

/** Listens on every address if `host` is null, on a free port if `port` is 0, or throws. */
export async function listen(
  app: WebApp,
  { host, port }: { readonly host: string | null; readonly port: number },
  tls: WebConfig['tls'] = null,
  most = mostConnections,
  limits = timeLimits,
) {
  const checks = { connectionsCheckingInterval: limits.check };
  const answer = answerInOrder(limitRequests(app.express));
  const secure: TlsServer | null =
    tls === null ? null : createTlsServer({ ...tls, ...tlsOptions, ...checks }, answer);
  const server: Server = secure ?? createServer(checks, answer);
  server.listen({ port, host: host ?? undefined, backlog: most });
  server.headersTimeout = limits.headers;
  server.requestTimeout = limits.request;
  // Shorter than the usual scrape interval, so that idle connections end.
  server.keepAliveTimeout = 15_000;
  server.maxConnections = most;
  server.on('connection', noteConnection);
  // Idle clients must not keep the probes of the kubelet out: its next one is accepted.
  server.on('drop', () => server.closeIdleConnections());
  try {
    await once(server, 'listening');
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const where = `${host?.includes(':') === true ? `[${host}]` : (host ?? '')}:${port}`;
    throw new Error(`Cannot listen on ${where}: ${reasons[code ?? ''] ?? message}`, {
      cause: error,
    });
  }
  const { address, port: bound } = server.address() as AddressInfo;
  app.express.set('on loopback', /^127\.|^::1$/.test(address));
  let closing: Promise<void> | null = null;
  return {
    port: bound,
    /** Replaces certificate, key and authority of a server with TLS. */
    renew: (next: WebConfig['tls']) => {
      if (next !== null) secure?.setSecureContext(next);
    },
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
