// The web server: Prometheus' /metrics, the probes /livez and /readyz, findings as JSON, and pages.
// All routes are read only. There is no authentication: the listen address decides who has access.
// Left out: TLS, and routes for the scrapers of other programs.

import { once } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname } from 'node:path';
import { pipeline } from 'node:stream/promises';

import { createChannel, createSession } from 'better-sse';
import compression from 'compression';
import type { Express, NextFunction, Request, Response } from 'express';
import express from 'express';

import type { Finding } from '../../audit/finding/catalogue.ts';
import type { AuditorQueries, PageStatus } from '../../auditor/queries.ts';
import { recordOf } from '../../model/collections.ts';
import { contentTypes, negotiateFormat } from '../metrics/exposition.ts';
import { createMetricsRenderer } from '../metrics/metrics.ts';
import { renderNode, renderService } from '../page/details.ts';
import { assets, renderFrame } from '../page/frame.ts';
import {
  findingFields,
  renderFindings,
  renderNodes,
  renderServices,
  serviceFields,
} from '../page/lists.ts';
import { renderOverview } from '../page/overview.ts';
import { formatMoment, markup } from '../page/parts.ts';

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

const sendError = (response: Response, status: number, error: string): Response =>
  response.status(status).json({ format: 1, error });

/** The texts of a parameter, which may occur repeatedly. */
const textsOf = (value: unknown): string[] =>
  [value].flat().filter((text) => typeof text === 'string');

const filters = ['namespace', 'service', 'code', 'severity', 'output'] as const;

/** Parses Unix seconds or RFC 3339; null for anything else. */
function parseMoment(text: unknown): number | null {
  if (typeof text !== 'string') return null;
  if (/^\d{1,11}(?:\.\d+)?$/.test(text)) return Number(text);
  const moment = /^\d{4}-\d\d-\d\dT/.test(text) ? Date.parse(text) / 1000 : Number.NaN;
  return Number.isNaN(moment) ? null : moment;
}

/** The filter of a query, or the error in it; `since` compares the last opening or resolution. */
function parseFilter(query: Request['query']): ((finding: Finding) => boolean) | string {
  const known: readonly string[] = [...filters, 'since'];
  const odd = Object.keys(query).find((name) => !known.includes(name));
  if (odd !== undefined) {
    return `Unknown parameter: ${JSON.stringify(odd)}; known are ${known.join(', ')}`;
  }
  const wanted = filters
    .filter((name) => query[name] !== undefined)
    .map((name) => ({ name, values: textsOf(query[name]) }));
  const empty = wanted.find(({ values }) => values.length === 0);
  if (empty !== undefined) return `Expected text: ${empty.name}`;
  const from = query.since === undefined ? -Infinity : parseMoment(query.since);
  if (from === null) return 'Expected Unix seconds or RFC 3339: since';
  return (finding) =>
    (finding.resolvedAt ?? finding.openedAt) >= from &&
    wanted.every(({ name, values }) => values.includes(finding[name]));
}

/** Milliseconds of a scrape between two pauses for other work. */
const sliceMs = 4;

function createPause(): () => Promise<void> {
  let ends = performance.now() + sliceMs;
  return async () => {
    if (performance.now() < ends) return;
    await new Promise((resolve) => setImmediate(resolve));
    ends = performance.now() + sliceMs;
  };
}

/** Sends text as fast as the client reads it, with pauses; a disconnect ends it without error. */
async function sendPieces(
  response: Response,
  pieces: Iterable<string> | AsyncIterable<string>,
  pause: () => Promise<void>,
): Promise<void> {
  async function* paced(): AsyncGenerator<string, void> {
    for await (const piece of pieces) {
      yield piece;
      await pause();
    }
  }
  await pipeline(paced, response).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  });
}

/** `?subject=pod/web-1&subject=service/web&namespace=shop`. */
function sendExplanation({ query }: Request, response: Response, answers: AuditorQueries): void {
  const [namespace = null] = textsOf(query.namespace);
  try {
    const document = answers.explain(textsOf(query.subject), namespace);
    if (document !== null) response.status(document.found ? 200 : 404).json(document);
    else sendError(response, 503, answers.notReady() ?? 'Not ready');
  } catch (error) {
    sendError(response, 400, error instanceof Error ? error.message : String(error));
  }
}

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

const findingsInPiece = 256;

/** Renders `,"name":[…]`, a member of a JSON object, in pieces. */
function* renderMember(name: string, findings: readonly Finding[]): Generator<string, void> {
  yield `,${JSON.stringify(name)}:[`;
  for (let at = 0; at < findings.length; at += findingsInPiece) {
    const text = JSON.stringify(findings.slice(at, at + findingsInPiece));
    yield `${at === 0 ? '' : ','}${text.slice(1, -1)}`;
  }
  yield ']';
}

/** Sends open and resolved findings, worst first; there may be 10,000 of each. */
async function sendFindings(
  request: Request,
  response: Response,
  answers: AuditorQueries,
): Promise<void> {
  const { metrics, resolved, forgotten } = answers.status();
  const { summary, now } = metrics;
  const wanted = parseFilter(request.query);
  if (typeof wanted === 'string') {
    sendError(response, 400, wanted);
    return;
  }
  function* pieces(isWanted: (finding: Finding) => boolean): Generator<string, void> {
    yield JSON.stringify({ format: 1, now, forgotten }).slice(0, -1);
    yield* renderMember('standing', summary.findings.filter(isWanted));
    yield* renderMember('resolved', resolved.filter(isWanted));
    yield '}';
  }
  response.type('json');
  await sendPieces(response, pieces(wanted), createPause());
}

const maxSessions = 200;

/**
 * Sends each open page the input's clock and a revision every second, as server-sent events. A page
 * with an old revision loads itself again (page/browser/).
 */
export function createLiveUpdates(read: () => Readonly<Record<'revision' | 'moment', string>>) {
  const channel = createChannel();
  const open = new Set<ServerResponse>();
  let last = '';
  const timer = setInterval(() => {
    if (open.size === 0) return;
    const now = read();
    channel.broadcast({ ...now, moving: now.moment !== last }, 'beat');
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
      session.push({ ...read(), moving: true }, 'beat');
      return true;
    },
    close: (): void => {
      clearInterval(timer);
      for (const response of open) response.end();
    },
  };
}

// --- pages; an invalid parameter counts as absent ---

type PageQueries = Pick<AuditorQueries, 'status' | 'services' | 'servicePage' | 'nodePage'>;

function readText(request: Request, name: string): string {
  const value = request.query[name];
  // No name has more than 300 characters.
  return typeof value === 'string' ? value.slice(0, 300) : '';
}

function readCount(request: Request, name: string, minimum: number): number {
  const value = Number(readText(request, name));
  return Number.isSafeInteger(value) && value >= minimum ? value : minimum;
}

const readQuery = <Name extends string>(request: Request, names: readonly Name[]) => ({
  ...recordOf(names, (name) => readText(request, name)),
  page: readCount(request, 'page', 1),
});

function sendMissing(response: Response, status: PageStatus, what: string): void {
  const main = markup`
<h1>Not there</h1><p class="lead">${what}</p>
<p><a href="/services">All Services</a> · <a href="/nodes">all nodes</a> ·
 <a href="/">overview</a></p>`;
  const page = renderFrame(status, '/', 'Not there', main);
  response.status(404).type('html').send(page);
}

export function addPages(app: Express, answers: PageQueries): void {
  for (const [path, text] of assets) {
    app.get(path, (_request, response) => {
      response.set('Cache-Control', 'public, max-age=31536000, immutable');
      response.type(extname(path)).send(text);
    });
  }
  app.get('/', (_request, response) =>
    response.type('html').send(renderOverview(answers.status())),
  );
  app.get('/findings', (request, response) => {
    const query = readQuery(request, findingFields);
    response.type('html').send(renderFindings(answers.status(), query));
  });
  app.get('/services', (request, response) => {
    const query = readQuery(request, serviceFields);
    response.type('html').send(renderServices(answers.status(), answers.services(), query));
  });
  app.get('/services/:namespace/:name', (request, response) => {
    const { namespace, name } = request.params;
    const view = answers.servicePage(namespace, name, readCount(request, 'from', 0));
    const status = answers.status();
    if (view !== null) response.type('html').send(renderService(status, view));
    else sendMissing(response, status, `There is no Service ${namespace}/${name}.`);
  });
  app.get('/nodes', (request, response) =>
    response.type('html').send(renderNodes(answers.status(), readText(request, 'q'))),
  );
  app.get('/nodes/:name', (request, response) => {
    const { name } = request.params;
    const view = answers.nodePage(name, readText(request, 'port') || null);
    const status = answers.status();
    if (view !== null) response.type('html').send(renderNode(status, view));
    else sendMissing(response, status, `There is no Node ${name}, and nothing is told of one.`);
  });
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
    const { revision, now } = answers.beat();
    return { revision, moment: formatMoment(now) };
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
  app.get('/api/v1/findings', (request, response) => sendFindings(request, response, answers));
  app.get('/api/v1/lag', (_request, response) => response.json(answers.lag()));
  app.get('/api/v1/nodes', (_request, response) =>
    response.json({ format: 1, nodes: answers.nodes() }),
  );
  app.get('/api/v1/services/:namespace/:name', (request, response) => {
    const { namespace, name } = request.params;
    const found = answers.service(namespace, name);
    if (found !== null) response.json(found);
    else sendError(response, 404, 'No such Service');
  });
  app.get('/api/v1/explain', (request, response) => sendExplanation(request, response, answers));
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
