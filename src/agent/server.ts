// The HTTP server of the agent. The auditor authenticates with a client certificate or a token.
// Without either, the agent listens on loopback only. Only /livez needs no authentication.
//
// With a client certificate, each answer has the header Agent-Token, which proves the node.
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
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import { TLSSocket } from 'node:tls';

import { readPacket } from '../rules/report/digest.ts';
import type { ScheduledAgent } from './schedule.ts';

export interface Access {
  /** `null` if clients need no token. */
  readonly token: string | null;
  /** Proves to the owner of a client certificate which node this is; `null` if nothing does. */
  readonly identity?: string | null;
  /** PEM; `null` for plain HTTP. With a CA, clients must have a certificate of it. */
  readonly tls: { readonly cert: string; readonly key: string; readonly ca?: string } | null;
}

/** Characters of a URL with a frontend, and with packets. */
const longestPath = 256;
const longestQuery = 12_000;

const timeLimits = {
  headersTimeout: 10_000,
  requestTimeout: 10_000,
  connectionsCheckingInterval: 5000,
  // A connection waits for the next round, but only one that may ask.
  keepAliveTimeout: 600_000,
};

/** Anyone on the network can connect: the auditor has one connection, and the kubelet another. */
const mostConnections = 64;
const handshakeMs = 5000;

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | number>>;
  readonly body?: string | Buffer;
}

/** It does not listen yet. `renew` replaces the token, certificate and key of a running server. */
export function createAgentServer(agent: ScheduledAgent, given: Access, times = timeLimits) {
  const { tls } = given;
  const limits = { ...times, maxHeaderSize: longestQuery + 4096 };
  let { token, identity = null } = given;
  // The kubelet has no certificate for /livez, so each request checks for one.
  const client = tls?.ca === undefined ? {} : { requestCert: true, rejectUnauthorized: false };
  const answer = (request: IncomingMessage, response: ServerResponse): void => {
    const { socket } = request;
    const isCertified = tls?.ca === undefined || (socket instanceof TLSSocket && socket.authorized);
    const isAllowed = isCertified && hasToken(request, token);
    if (!isAllowed) response.shouldKeepAlive = false;
    void answerTo(agent, request, isAllowed)
      .catch((error: unknown) =>
        json(500, { error: error instanceof Error ? error.message : String(error) }),
      )
      .then(({ status, headers, body }) => {
        response.statusCode = status;
        response.setHeaders(new Map(Object.entries(headers)));
        // Who has this token can pass as this agent, so others never get it.
        const isProof = isAllowed && tls?.ca !== undefined;
        if (isProof && identity !== null) response.setHeader('agent-token', identity);
        response.end(body);
      });
  };
  const minVersion = 'TLSv1.2';
  const options = {
    ...limits,
    handshakeTimeout: handshakeMs,
    ...tls,
    ...client,
    minVersion,
  } as const;
  const secure: TlsServer | null = tls === null ? null : createTlsServer(options, answer);
  const server: Server = secure ?? createServer(limits, answer);
  server.maxConnections = mostConnections;
  const renew = (next: Access): void => {
    // It throws if certificate and key do not match: then the token must not change either.
    if (next.tls !== null) secure?.setSecureContext({ ...next.tls, minVersion });
    ({ token, identity = null } = next);
  };
  return { server, renew };
}

/** Compares hashes, so that the time reveals nothing about the token. */
function hasToken({ headers }: IncomingMessage, token: string | null): boolean {
  if (token === null) return true;
  const hash = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(hash(headers.authorization ?? ''), hash(`Bearer ${token}`));
}

async function answerTo(
  agent: ScheduledAgent,
  { method, url = '', headers }: IncomingMessage,
  isAllowed: boolean,
): Promise<Answer> {
  if (method !== 'GET') return json(405, { error: `only GET is answered, not ${String(method)}` });
  if (url === '/livez') {
    const stuck = agent.stuck();
    return stuck === null ? plain('ok\n') : { ...plain(`${stuck}\n`), status: 503 };
  }
  if (!isAllowed) {
    const error = 'the token or the client certificate is missing or wrong';
    return json(401, { error }, { 'www-authenticate': 'Bearer' });
  }
  if (url === '/v1/report') return reportOf(agent, headers['if-none-match'] ?? '');
  if (url === '/metrics') return plain(metricsOf(agent));
  const frontend = /^\/v1\/frontends\/(.*)$/s.exec(url)?.[1];
  if (frontend !== undefined && url.length <= longestPath) return detailsOf(agent, frontend);
  if (url.startsWith('/v1/packets?') && url.length <= longestQuery) return outcomesOf(agent, url);
  return json(404, { error: `nothing is at ${url.slice(0, longestPath)}` });
}

const json = (status: number, body: object, headers: Answer['headers'] = {}): Answer => ({
  status,
  headers: { ...headers, 'content-type': 'application/json' },
  body: `${JSON.stringify(body)}\n`,
});

const plain = (body: string): Answer => ({
  status: 200,
  headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
  body,
});

function reportOf(agent: ScheduledAgent, tags: string): Answer {
  const published = agent.report();
  const error = agent.problem() ?? 'the first round is not over';
  if (published === null) return json(503, { error });
  const { text, etag, round, at } = published;
  const { last, pause } = agent.cost();
  const headers = {
    etag,
    age: Math.max(0, Math.floor(performance.now() / 1000 - at)),
    round,
    'cache-control': `private, max-age=${Math.ceil(pause + last)}`,
    'server-timing': `round;dur=${Math.round(last * 1000)}`,
  };
  if (tags.split(',').some((tag) => tag.trim() === etag)) return { status: 304, headers };
  return { status: 200, headers: { ...headers, 'content-type': 'application/json' }, body: text };
}

async function detailsOf(agent: ScheduledAgent, path: string): Promise<Answer> {
  const key = decoded(path);
  const packets = key === null ? null : await agent.details(key);
  return packets === null
    ? json(404, { error: `no rule answers for ${key ?? path}` })
    : json(200, { key, packets });
}

function decoded(path: string): string | null {
  try {
    return decodeURIComponent(path);
  } catch {
    return null;
  }
}

async function outcomesOf(agent: ScheduledAgent, url: string): Promise<Answer> {
  const texts = new URL(url, 'http://agent').searchParams.getAll('p');
  const invalid = texts.find((text) => readPacket(text) === null)?.slice(0, longestPath);
  if (invalid !== undefined) return json(400, { error: `no packet: ${invalid}` });
  const outcomes = await agent.outcomes(texts.flatMap((text) => readPacket(text) ?? []));
  return outcomes === null
    ? json(503, { error: 'the rules of the node are not known' })
    : json(200, outcomes);
}

function metricsOf(agent: ScheduledAgent): string {
  const { rounds, failed, unchanged, collecting, cpu, last, pause, bytes } = agent.cost();
  const frontends = agent.report()?.frontends ?? 0;
  const { rss } = process.memoryUsage();
  const metrics = [
    ['rounds_total', 'counter', 'Rounds: readings of the rules of the node.', rounds],
    ['failed_rounds_total', 'counter', 'Rounds that failed, so that the node is unknown.', failed],
    ['unchanged_rounds_total', 'counter', 'Rounds that found unchanged rules.', unchanged],
    ['collecting_seconds_total', 'counter', 'Time to list the rules.', collecting],
    ['cpu_seconds_total', 'counter', 'CPU time of the agent process in rounds.', cpu],
    ['last_round_seconds', 'gauge', 'Duration of the last round.', last],
    ['pause_seconds', 'gauge', 'Time between the last round and the next.', pause],
    ['dump_bytes', 'gauge', 'Size of the rules that the last round read.', bytes],
    ['frontends', 'gauge', 'Addresses and ports of Services in the last report.', frontends],
    ['resident_memory_bytes', 'gauge', 'Resident memory.', rss],
  ] as const;
  return metrics
    .map(([suffix, type, help, value]) => {
      const name = `endpoint_auditor_agent_${suffix}`;
      return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${name} ${value}\n`;
    })
    .join('');
}
