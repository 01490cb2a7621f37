// The server: Prometheus' /metrics, the probes /livez and /readyz, findings as JSON, and the page.
// Everything is read, nothing can be changed; each answer is made of the state at its moment and is
// never kept by anybody.
//
// The page shows names that others chose, so no script runs on it, whatever it says, and no other
// site may frame it. There is no authentication: the address it listens on is who may read it.
//
// Left out: TLS, and paths of its own for scrapers of other programs.

import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';

import compression from 'compression';
import type { Express, NextFunction, Request, Response } from 'express';
import express from 'express';

import { metricsContentType, renderMetrics } from './metrics.ts';
import type { Status } from './page.ts';
import { renderPage, styleSource } from './page.ts';

const policy = [
  "default-src 'none'",
  `style-src ${styleSource}`,
  "base-uri 'none'",
  "form-action 'none'",
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

/**
 * The application. `status` is asked once per request; where it throws, the answer is 500, the
 * error goes to `onError`, and the server keeps running.
 */
export function createApp(
  status: () => Status,
  onError: (error: unknown) => void = (error) => {
    console.error(error);
  },
): Express {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.use(setHeaders, allowReading, compression());
  app.get('/', (_request, response) => {
    response.type('html').send(renderPage(status()));
  });
  app.get('/metrics', async (_request, response) => {
    const text = await renderMetrics(status().metrics);
    response.set('Content-Type', metricsContentType).send(text);
  });
  app.get('/livez', (_request, response) => {
    response.type('text').send('ok\n');
  });
  app.get('/readyz', (_request, response) => {
    const { notReady } = status();
    response.status(notReady === null ? 200 : 503).type('text');
    response.send(notReady === null ? 'ok\n' : `${notReady}\n`);
  });
  app.get('/api/v1/findings', (_request, response) => {
    const { metrics, resolved, forgotten } = status();
    const { summary, now } = metrics;
    response.json({ format: 1, now, standing: summary.findings, resolved, forgotten });
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
  return app;
}

interface Address {
  /** null: every address of the machine. */
  readonly host: string | null;
  /** 0: one that is free. */
  readonly port: number;
}

export interface Listening {
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
export async function listen(app: Express, address: Address): Promise<Listening> {
  const { host, port } = address;
  // A callback of app.listen would be called for errors too.
  const server: Server = host === null ? app.listen(port) : app.listen(port, host);
  // Slow requests must not hold connections: there is nothing to upload.
  server.headersTimeout = 5000;
  server.requestTimeout = 10_000;
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
    close: () => (closing ??= closed(server)),
  };
}

async function closed(server: Server): Promise<void> {
  const done = once(server, 'close');
  server.close();
  const grace = setTimeout(() => server.closeAllConnections(), graceMs);
  await done;
  clearTimeout(grace);
}
