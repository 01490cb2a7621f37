// The server: Prometheus' /metrics, the probes /livez and /readyz, findings as JSON, and the pages.
// Everything is read, nothing can be changed; each answer is made of the state at its moment and is
// never kept by anybody.
//
// The pages show names that others chose, so no script runs on them but the server's own files,
// whatever they say, and no other site may frame them. There is no authentication: the address it
// listens on is who may read it.
//
// Left out: TLS, and paths of its own for scrapers of other programs.

import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream/promises';

import compression from 'compression';
import type { Express, NextFunction, Request, Response } from 'express';
import express from 'express';

import type { Finding } from '../../audit/finding/catalogue.ts';
import type { Verdict } from '../../audit/finding/verdicts.ts';
import { contentTypes, negotiateFormat } from '../metrics/exposition.ts';
import type { MetricsState } from '../metrics/state.ts';
import type { MetricsRenderer } from '../metrics/metrics.ts';
import { createMetricsRenderer } from '../metrics/metrics.ts';
import { formatMoment } from '../page/parts.ts';
import type { ServiceStatus } from '../page/service-status.ts';
import type { ExplainDocument } from '../text/explain.ts';
import type { LagReport } from '../text/lag.ts';
import type { LiveUpdates } from './live-updates.ts';
import { createLiveUpdates } from './live-updates.ts';
import type { PageAnswers } from './pages.ts';
import { addPages } from './pages.ts';

/** What is known of one node. Times in Unix seconds. */
export interface NodeStatus {
  readonly node: string;
  /** Service ports by verdict. */
  readonly verdicts: Readonly<Record<Verdict, number>>;
  /** How its agent stands, and since when; null: no agents are asked. */
  readonly agent: {
    readonly state: string;
    readonly since: number;
    /** The moment of its last report; null: there was none. */
    readonly seenAt: number | null;
  } | null;
}

/** What the server asks when it is asked. Probes come often, so they do not ask for everything. */
export interface AuditorQueries extends PageAnswers {
  /** What /metrics shows, in small steps, between which others may work. */
  scrape(): Iterator<undefined, MetricsState>;
  /** One Service in full; null where there is none of that name. */
  service(namespace: string, name: string): ServiceStatus | null;
  lag(): LagReport;
  /**
   * Explains what the words name, as the command line has them; null: nothing is judged yet. Throws
   * what is wrong with the words.
   */
  explain(words: readonly string[], namespace: string | null): ExplainDocument | null;
  /** The nodes whose rules are asked for. */
  nodes(): readonly NodeStatus[];
  /** Why too little is known, for people, a reason a line; null: it is enough. */
  notReady(): string | null;
  /** Why the loop does not get on, for people; null: it does. */
  stuck(): string | null;
}

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

function setHeaders(_request: Request, response: Response, next: NextFunction): void {
  response.set({
    'Content-Security-Policy': policy,
    'X-Content-Type-Options': 'nosniff',
    'Referrer-Policy': 'no-referrer',
    'Cache-Control': 'no-store',
  });
  next();
}

function allowReading(request: Request, response: Response, next: NextFunction): void {
  if (request.method === 'GET' || request.method === 'HEAD') {
    next();
    return;
  }
  response.set('Allow', 'GET, HEAD').status(405).type('text').send('Only GET and HEAD\n');
}

/** A probe: 200, or 503 with the reasons, one a line. */
function probe(response: Response, failing: string | null): void {
  response.status(failing === null ? 200 : 503).type('text');
  response.send(failing === null ? 'ok\n' : `${failing}\n`);
}

const filters = ['namespace', 'service', 'code', 'severity', 'output'] as const;

/** A moment as Unix seconds or RFC 3339; null for anything else. */
function momentOf(text: unknown): number | null {
  if (typeof text !== 'string') return null;
  if (/^\d{1,11}(?:\.\d+)?$/.test(text)) return Number(text);
  const moment = /^\d{4}-\d\d-\d\dT/.test(text) ? Date.parse(text) / 1000 : Number.NaN;
  return Number.isNaN(moment) ? null : moment;
}

/**
 * Which findings a query asks for; or what is wrong with it. A filter may be given repeatedly, and
 * `since` asks for what was opened or resolved from then on.
 */
function filterOf(query: Request['query']): ((finding: Finding) => boolean) | string {
  const wanted: [(typeof filters)[number], readonly string[]][] = [];
  let from = -Infinity;
  for (const [name, value] of Object.entries(query)) {
    const filter = filters.find((one) => one === name);
    const values = [value].flat().filter((one) => typeof one === 'string');
    if (name === 'since') {
      const moment = momentOf(value);
      if (moment === null) return 'Expected Unix seconds or RFC 3339: since';
      from = moment;
      continue;
    }
    if (filter === undefined) {
      const known = [...filters, 'since'].join(', ');
      return `Unknown parameter: ${JSON.stringify(name)}; known are ${known}`;
    }
    if (values.length === 0) return `Expected text: ${filter}`;
    wanted.push([filter, values]);
  }
  return (finding) =>
    (finding.resolvedAt ?? finding.openedAt) >= from &&
    wanted.every(([filter, values]) => values.includes(finding[filter]));
}

/** Milliseconds that a scrape may keep the process busy before others have their turn. */
const sliceMs = 4;

/** Lets others work where it has been a while since they last could. */
function createPause(): () => Promise<void> {
  let ends = performance.now() + sliceMs;
  return async () => {
    if (performance.now() < ends) return;
    await new Promise((resolve) => setImmediate(resolve));
    ends = performance.now() + sliceMs;
  };
}

/** Sends text as fast as it is taken, with pauses; whoever goes away ends it. */
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
  const textsOf = (value: unknown): string[] =>
    [value].flat().filter((one) => typeof one === 'string');
  const [namespace = null] = textsOf(query.namespace);
  let document: ExplainDocument | null;
  try {
    document = answers.explain(textsOf(query.subject), namespace);
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    response.status(400).json({ format: 1, error: text });
    return;
  }
  if (document !== null) response.status(document.found ? 200 : 404).json(document);
  else response.status(503).json({ format: 1, error: answers.notReady() ?? 'Not ready' });
}

/** Adds the events for open pages, uncompressed, since compression would delay them. */
function addEvents(app: Express, answers: AuditorQueries): LiveUpdates {
  const updates = createLiveUpdates(() => {
    const { revision, now } = answers.beat();
    return { revision, moment: formatMoment(now) };
  });
  app.get('/api/v1/events', async (request, response) => {
    if (await updates.follow(request, response)) return;
    response.status(503).type('text').send('Too many pages are open\n');
  });
  return updates;
}

/** Sends a scrape in pieces. */
async function sendMetrics(
  { headers }: Request,
  response: Response,
  answers: AuditorQueries,
  render: MetricsRenderer,
): Promise<void> {
  const pause = createPause();
  const steps = answers.scrape();
  let step = steps.next();
  for (; step.done !== true; step = steps.next()) await pause();
  const format = negotiateFormat(headers.accept);
  response.vary('Accept').set('Content-Type', contentTypes[format]);
  await sendPieces(response, render(step.value, format), pause);
}

/** Findings in a row that are made into text at once. */
const findingsInPiece = 256;

/** `,"name":[…]`: a list of findings as a member of a JSON object, in pieces. */
function* listText(name: string, findings: readonly Finding[]): Generator<string, void> {
  yield `,${JSON.stringify(name)}:[`;
  for (let at = 0; at < findings.length; at += findingsInPiece) {
    const text = JSON.stringify(findings.slice(at, at + findingsInPiece));
    yield `${at === 0 ? '' : ','}${text.slice(1, -1)}`;
  }
  yield ']';
}

/** Findings that stand and that are over, worst first; there may be 10,000 of each. */
async function sendFindings(
  request: Request,
  response: Response,
  answers: AuditorQueries,
): Promise<void> {
  const { metrics, resolved, forgotten } = answers.status();
  const { summary, now } = metrics;
  const wanted = filterOf(request.query);
  if (typeof wanted === 'string') {
    response.status(400).json({ format: 1, error: wanted });
    return;
  }
  function* pieces(is: (finding: Finding) => boolean): Generator<string, void> {
    yield JSON.stringify({ format: 1, now, forgotten }).slice(0, -1);
    yield* listText('standing', summary.findings.filter(is));
    yield* listText('resolved', resolved.filter(is));
    yield '}';
  }
  response.type('json');
  await sendPieces(response, pieces(wanted), createPause());
}

/** The routes of the server. */
export interface WebApp {
  readonly express: Express;
  /** Ends the responses that do not end by themselves. */
  endStreams(): void;
}

/**
 * Creates the routes. Each request queries the auditor once; if that throws, the response is 500,
 * `onError` gets the error, and the server continues.
 */
export function createApp(
  answers: AuditorQueries,
  onError: (error: unknown) => void = (error) => {
    console.error(error);
  },
): WebApp {
  const app = express();
  const render = createMetricsRenderer();
  app.disable('x-powered-by');
  app.disable('etag');
  app.use(setHeaders, allowReading);
  const updates = addEvents(app, answers);
  app.use(compression());
  addPages(app, answers);
  app.get('/metrics', async (request, response) => {
    await sendMetrics(request, response, answers, render);
  });
  // Kubernetes' own components still answer to the older name.
  app.get(['/livez', '/healthz'], (_request, response) => {
    probe(response, answers.stuck());
  });
  app.get('/readyz', (_request, response) => {
    probe(response, answers.notReady());
  });
  app.get('/api/v1/findings', async (request, response) => {
    await sendFindings(request, response, answers);
  });
  app.get('/api/v1/lag', (_request, response) => {
    response.json(answers.lag());
  });
  app.get('/api/v1/nodes', (_request, response) => {
    response.json({ format: 1, nodes: answers.nodes() });
  });
  app.get('/api/v1/services/:namespace/:name', (request, response) => {
    const { namespace, name } = request.params;
    const found = answers.service(namespace, name);
    if (found !== null) response.json(found);
    else response.status(404).json({ format: 1, error: 'No such Service' });
  });
  app.get('/api/v1/explain', (request, response) => {
    sendExplanation(request, response, answers);
  });
  app.use((_request, response) => {
    response.status(404).type('text').send('Not found\n');
  });
  // Express tells an error handler by its four parameters.
  app.use((error: unknown, _request: Request, response: Response, next: NextFunction) => {
    onError(error);
    if (response.headersSent) next(error);
    else response.status(500).type('text').send('Internal error\n');
  });
  return {
    express: app,
    endStreams() {
      updates.close();
    },
  };
}

interface ListenAddress {
  /** null: every address of the machine. */
  readonly host: string | null;
  /** 0: one that is free. */
  readonly port: number;
}

export interface RunningServer {
  readonly port: number;
  /** Ends idle connections at once, and the others as soon as they are answered, or after 2 s. */
  close(): Promise<void>;
}

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: 'the address is already in use',
  EACCES: 'permission denied',
  EADDRNOTAVAIL: 'the machine has no such address',
  ENOTFOUND: 'the host is not known',
};

const graceMs = 2000;

/** Serves the application; throws an Error for people when it cannot listen there. */
export async function listen(app: WebApp, address: ListenAddress): Promise<RunningServer> {
  const { host, port } = address;
  // A callback of app.listen would be called for errors too.
  const server: Server = host === null ? app.express.listen(port) : app.express.listen(port, host);
  // Slow requests must not hold connections: there is nothing to upload.
  server.headersTimeout = 5000;
  server.requestTimeout = 10_000;
  // Longer than scrapers wait from one scrape to the next would hold connections for nothing.
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
    close: () => (closing ??= closeServer(app, server)),
  };
}

async function closeServer(app: WebApp, server: Server): Promise<void> {
  const done = once(server, 'close');
  app.endStreams();
  server.close();
  const grace = setTimeout(() => server.closeAllConnections(), graceMs);
  await done;
  clearTimeout(grace);
}
