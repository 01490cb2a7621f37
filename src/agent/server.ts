// The HTTP server of the agent. It is read-only. The auditor authenticates with a client
// certificate or with a shared token. Without either, the agent listens on loopback only. Only
// /livez needs no authentication.
//
//   GET /v1/report            digests of all frontends; ETag, 304 while nothing has changed. Age is
//                             the seconds since its round began, which `round` names, in 304 too;
//                             Cache-Control says for how long there will be no other
//   GET /v1/packets?p=…&p=…   what becomes of packets, of the same moment; each is the origin, the
//                             addresses of source and destination, protocol, port, and, where it
//                             matters, the interface, separated by commas
//   GET /v1/frontends/{key}   details of one frontend, of the same moment
//   GET /metrics              what the agent costs
//   GET /livez
//
// It uses the server of Node: express would double the memory of an idle agent.

import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { TLSSocket } from 'node:tls';

import type { Packet } from '../model/proxy-config.ts';
import { readPacket } from '../rules/report/digest.ts';
import type { AgentCost, ScheduledAgent } from './schedule.ts';

export interface Access {
  /** null: no token is asked for. */
  readonly token: string | null;
  /** PEM; null: plain HTTP. With a CA, clients must have a certificate of it. */
  readonly tls: { readonly cert: string; readonly key: string; readonly ca: string | null } | null;
}

/** Milliseconds to send a request. */
const patience = 10_000;

/** Characters of a URL: a frontend has an address and a port. */
const longestPath = 256;

/** Characters of a URL with packets, and of all that comes with it. */
const longestQuery = 12_000;

/** Milliseconds that a connection may wait for the next round. */
const keepAliveTimeout = 600_000;

/** A server that answers for the agent; it does not listen yet. */
export function createAgentServer(agent: ScheduledAgent, access: Access): Server {
  const answer = (request: IncomingMessage, response: ServerResponse): void => {
    respond(agent, access, request, response).catch((error: unknown) => {
      const text = error instanceof Error ? error.message : String(error);
      if (!response.headersSent) send(response, 500, { error: text });
    });
  };
  const { tls } = access;
  const waits = { headersTimeout: patience, requestTimeout: patience, keepAliveTimeout };
  const limits = { ...waits, maxHeaderSize: longestQuery + 4096 };
  if (tls === null) return createServer(limits, answer);
  const { cert, key, ca } = tls;
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
  request: IncomingMessage,
  response: ServerResponse,
): void {
  const published = agent.report();
  if (published === null) {
    send(response, 503, { error: agent.problem() ?? 'the first round is not over' });
    return;
  }
  const { text, etag } = published;
  const { last, pause } = agent.cost();
  const age = Math.max(0, Math.floor(performance.now() / 1000 - published.at));
  response.setHeader('etag', etag);
  response.setHeader('age', age);
  response.setHeader('round', published.round);
  response.setHeader('cache-control', `private, max-age=${Math.ceil(pause + last)}`);
  response.setHeader('server-timing', `round;dur=${Math.round(last * 1000)}`);
  const known = request.headers['if-none-match'] ?? '';
  if (known.split(',').some((item) => item.trim() === etag)) {
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

async function sendOutcomes(
  agent: ScheduledAgent,
  url: string,
  response: ServerResponse,
): Promise<void> {
  const asked = new URL(url, 'http://agent').searchParams.getAll('p');
  const packets: Packet[] = [];
  for (const text of asked) {
    const packet = readPacket(text);
    if (packet === null) {
      send(response, 400, { error: `no packet: ${text.slice(0, longestPath)}` });
      return;
    }
    packets.push(packet);
  }
  const outcomes = await agent.outcomes(packets);
  if (outcomes === null) send(response, 503, { error: 'what stands on the node is not known' });
  else send(response, 200, outcomes);
}

function decoded(path: string): string | null {
  try {
    return decodeURIComponent(path);
  } catch {
    return null;
  }
}

type Metric = readonly [name: string, type: 'counter' | 'gauge', help: string, value: number];

function metricsOf(agent: ScheduledAgent): string {
  const { rounds, failed, unchanged, collecting, cpu, ...cost }: AgentCost = agent.cost();
  const published = agent.report();
  const frontends = published?.frontends ?? 0;
  const { rss } = process.memoryUsage();
  const metrics: readonly Metric[] = [
    ['rounds_total', 'counter', 'Rounds.', rounds],
    ['failed_rounds_total', 'counter', 'Rounds after which the node was unknown.', failed],
    ['unchanged_rounds_total', 'counter', 'Rounds that found the rules as they were.', unchanged],
    ['collecting_seconds_total', 'counter', 'Time that asking for rules took.', collecting],
    ['cpu_seconds_total', 'counter', 'CPU of the agent itself in rounds.', cpu],
    ['last_round_seconds', 'gauge', 'What the last round cost.', cost.last],
    ['pause_seconds', 'gauge', 'Time between the last round and the next.', cost.pause],
    ['dump_bytes', 'gauge', 'Size of the last dumps.', cost.bytes],
    ['frontends', 'gauge', 'Frontends in the last report.', frontends],
    ['resident_memory_bytes', 'gauge', 'Resident memory.', rss],
  ];
  return metrics
    .map(([name, type, help, value]) => {
      const full = `endpoint_auditor_agent_${name}`;
      return `# HELP ${full} ${help}\n# TYPE ${full} ${type}\n${full} ${value}\n`;
    })
    .join('');
}
