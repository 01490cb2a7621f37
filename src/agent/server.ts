// The HTTP server of the agent. It is read-only. The auditor authenticates with a client
// certificate or with a shared token. Without either, the agent listens on loopback only. Only
// /livez needs no authentication.
//
//   GET /v1/report            digests of all frontends; 304 while its ETag is current. In both, Age
//                             is the seconds since the start of the round, Round names the round,
//                             and Cache-Control says how long there will be no other
//   GET /v1/packets?p=…&p=…   outcomes of packets in the same round. A packet is `origin,source,
//                             destination,protocol,port`, with `,interface` if it matters
//   GET /v1/frontends/{key}   details of one frontend in the same round
//   GET /metrics              what the agent costs
//   GET /livez
//
// It uses the server of Node: express would double the memory of an idle agent.

import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { TLSSocket } from 'node:tls';

import { readPacket } from '../rules/report/digest.ts';
import type { ScheduledAgent } from './schedule.ts';

export interface Access {
  /** null: no token is asked for. */
  readonly token: string | null;
  /** PEM; null: plain HTTP. With a CA, clients must have a certificate of it. */
  readonly tls: { readonly cert: string; readonly key: string; readonly ca: string | null } | null;
}

/** Characters of a URL with a frontend, which is an address and a port, and with packets. */
const longestPath = 256;
const longestQuery = 12_000;

const limits = {
  headersTimeout: 10_000,
  requestTimeout: 10_000,
  // A connection waits for the next round.
  keepAliveTimeout: 600_000,
  maxHeaderSize: longestQuery + 4096,
};

/** A server that answers for the agent; it does not listen yet. */
export function createAgentServer(agent: ScheduledAgent, access: Access): Server {
  const answer = (request: IncomingMessage, response: ServerResponse): void => {
    respond(agent, access, request, response).catch((error: unknown) => {
      const text = error instanceof Error ? error.message : String(error);
      if (!response.headersSent) send(response, 500, { error: text });
    });
  };
  if (access.tls === null) return createServer(limits, answer);
  const { cert, key, ca } = access.tls;
  // The kubelet has no certificate for /livez, so each request checks for one (isAllowed).
  const client = ca === null ? {} : { ca, requestCert: true, rejectUnauthorized: false };
  return createTlsServer({ ...limits, cert, key, ...client, minVersion: 'TLSv1.2' }, answer);
}

async function respond(
  agent: ScheduledAgent,
  access: Access,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { method, url = '' } = request;
  if (method !== 'GET') {
    send(response, 405, { error: `only GET is answered, not ${String(method)}` });
  } else if (url === '/livez') sendText(response, 'ok\n');
  else if (!isAllowed(access, request)) {
    response.setHeader('www-authenticate', 'Bearer');
    send(response, 401, { error: 'the token or the client certificate is missing or wrong' });
  } else if (url === '/v1/report') sendReport(agent, request, response);
  else if (url === '/metrics') sendText(response, metricsOf(agent));
  else if (url.startsWith('/v1/packets?') && url.length <= longestQuery) {
    await sendOutcomes(agent, url, response);
  } else if (url.startsWith('/v1/frontends/') && url.length <= longestPath) {
    await sendDetails(agent, url.slice('/v1/frontends/'.length), response);
  } else send(response, 404, { error: `nothing is at ${url.slice(0, longestPath)}` });
}

/** Compares hashes, so that the time reveals nothing about the token. */
function isAllowed({ token, tls }: Access, { headers, socket }: IncomingMessage): boolean {
  const isCertain = socket instanceof TLSSocket && socket.authorized;
  if ((tls?.ca ?? null) !== null && !isCertain) return false;
  if (token === null) return true;
  const hash = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(hash(headers.authorization ?? ''), hash(`Bearer ${token}`));
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.statusCode = status;
  response.setHeader('content-type', 'application/json');
  response.end(`${JSON.stringify(body)}\n`);
}

function sendText(response: ServerResponse, text: string): void {
  response.setHeader('content-type', 'text/plain; version=0.0.4; charset=utf-8');
  response.end(text);
}

function sendReport(
  agent: ScheduledAgent,
  { headers }: IncomingMessage,
  response: ServerResponse,
): void {
  const published = agent.report();
  if (published === null) {
    send(response, 503, { error: agent.problem() ?? 'the first round is not over' });
    return;
  }
  const { text, etag, round, at } = published;
  const { last, pause } = agent.cost();
  response.setHeader('etag', etag);
  response.setHeader('age', Math.max(0, Math.floor(performance.now() / 1000 - at)));
  response.setHeader('round', round);
  response.setHeader('cache-control', `private, max-age=${Math.ceil(pause + last)}`);
  response.setHeader('server-timing', `round;dur=${Math.round(last * 1000)}`);
  const tags = headers['if-none-match']?.split(',') ?? [];
  if (tags.some((tag) => tag.trim() === etag)) {
    response.statusCode = 304;
    response.end();
    return;
  }
  response.setHeader('content-type', 'application/json');
  response.end(text);
}

async function sendDetails(
  agent: ScheduledAgent,
  path: string,
  response: ServerResponse,
): Promise<void> {
  const key = decoded(path);
  const packets = key === null ? null : await agent.details(key);
  if (packets === null) send(response, 404, { error: `no rule answers for ${key ?? path}` });
  else send(response, 200, { key, packets });
}

function decoded(path: string): string | null {
  try {
    return decodeURIComponent(path);
  } catch {
    return null;
  }
}

async function sendOutcomes(
  agent: ScheduledAgent,
  url: string,
  response: ServerResponse,
): Promise<void> {
  const texts = new URL(url, 'http://agent').searchParams.getAll('p');
  const invalid = texts.find((text) => readPacket(text) === null);
  if (invalid !== undefined) {
    send(response, 400, { error: `no packet: ${invalid.slice(0, longestPath)}` });
    return;
  }
  const outcomes = await agent.outcomes(texts.flatMap((text) => readPacket(text) ?? []));
  if (outcomes === null) send(response, 503, { error: 'what stands on the node is not known' });
  else send(response, 200, outcomes);
}

function metricsOf(agent: ScheduledAgent): string {
  const { rounds, failed, unchanged, collecting, cpu, last, pause, bytes } = agent.cost();
  const frontends = agent.report()?.frontends ?? 0;
  const { rss } = process.memoryUsage();
  const metrics = [
    ['rounds_total', 'counter', 'Rounds.', rounds],
    ['failed_rounds_total', 'counter', 'Rounds after which the node was unknown.', failed],
    ['unchanged_rounds_total', 'counter', 'Rounds that found the rules as they were.', unchanged],
    ['collecting_seconds_total', 'counter', 'Time that asking for rules took.', collecting],
    ['cpu_seconds_total', 'counter', 'CPU of the agent itself in rounds.', cpu],
    ['last_round_seconds', 'gauge', 'What the last round cost.', last],
    ['pause_seconds', 'gauge', 'Time between the last round and the next.', pause],
    ['dump_bytes', 'gauge', 'Size of the last dumps.', bytes],
    ['frontends', 'gauge', 'Frontends in the last report.', frontends],
    ['resident_memory_bytes', 'gauge', 'Resident memory.', rss],
  ] as const;
  return metrics
    .map(([suffix, type, help, value]) => {
      const name = `endpoint_auditor_agent_${suffix}`;
      return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${name} ${value}\n`;
    })
    .join('');
}
