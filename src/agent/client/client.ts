// Sends requests to agents over HTTP. Each agent has one connection, which stays open between two
// rounds. A request has a deadline for the whole answer and a limit of bytes. It uses a client
// certificate, a bearer token, or neither, as the agents are configured (agent/server.ts). All
// agents present certificates for the name of their Service, because their addresses change.
//
// A failure of an agent or of the network is an answer, never an exception. `refused`: the agent
// rejects the request. `silent`: no answer arrives.

import type { IncomingHttpHeaders, IncomingMessage, RequestOptions } from 'node:http';
import { Agent as PlainAgent, request as plainRequest } from 'node:http';
import { Agent as TlsAgent, request as tlsRequest } from 'node:https';

import type { AgentAddress } from './agents.ts';

export interface AgentCredentials {
  readonly token: string | null;
  /** PEM; null: plain HTTP. */
  readonly tls: {
    readonly ca: string | null;
    readonly cert: string | null;
    readonly key: string | null;
    /** The name in the agents' certificates. */
    readonly servername: string;
  } | null;
}

export interface AgentAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export type Asked =
  | { readonly kind: 'answer'; readonly answer: AgentAnswer }
  | { readonly kind: 'refused' | 'silent'; readonly why: string };

export interface AgentRequest {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

export interface AgentClient {
  ask(address: AgentAddress, question: AgentRequest): Promise<Asked>;
  /** Bytes of answers so far. */
  readonly bytes: () => number;
  close(): void;
}

export interface AgentLimits {
  /** Seconds for a whole answer. */
  readonly deadline: number;
  readonly maxBytes: number;
}

/** A report of 10,000 frontends is half a megabyte. */
export const usualLimits: AgentLimits = { deadline: 10, maxBytes: 16 * 1024 * 1024 };

export function createAsker(credentials: AgentCredentials, limits = usualLimits): AgentClient {
  const { token, tls } = credentials;
  const keeping = { keepAlive: true, maxSockets: 1, maxFreeSockets: 1 };
  const agent = tls === null ? new PlainAgent(keeping) : new TlsAgent(keeping);
  let bytes = 0;
  const base: RequestOptions = {
    agent,
    headers: {},
    ...(tls === null ? {} : secure(tls)),
  };
  const send = tls === null ? plainRequest : tlsRequest;
  const own = token === null ? {} : { authorization: `Bearer ${token}` };
  return {
    ask({ host, port }, { path, headers, signal }) {
      if (token !== null && tls === null && !isLoopback(host)) {
        const why = 'a token is not sent beyond loopback without TLS';
        return Promise.resolve({ kind: 'refused', why });
      }
      const stop = AbortSignal.any([signal, AbortSignal.timeout(limits.deadline * 1000)]);
      const options = { ...base, host, port, path, headers: { ...headers, ...own }, signal: stop };
      return new Promise((resolve) => {
        const fail = (error: Error): void => {
          resolve(failure(error, limits));
        };
        const asked = send(options, (response) => {
          read(response, limits.maxBytes, (count) => (bytes += count)).then((body) => {
            const { statusCode = 0 } = response;
            resolve(answerOf({ status: statusCode, headers: response.headers, body }));
          }, fail);
        });
        asked.on('error', fail);
        asked.end();
      });
    },
    bytes: () => bytes,
    close: () => {
      agent.destroy();
    },
  };
}

const isLoopback = (host: string): boolean => host === '::1' || host.startsWith('127.');

const secure = ({ ca, cert, key, servername }: NonNullable<AgentCredentials['tls']>) => ({
  ...(ca === null ? {} : { ca }),
  ...(cert === null ? {} : { cert }),
  ...(key === null ? {} : { key }),
  servername,
  minVersion: 'TLSv1.2' as const,
});

function answerOf(answer: AgentAnswer): Asked {
  const { status, body } = answer;
  if (status !== 401 && status !== 403) return { kind: 'answer', answer };
  return { kind: 'refused', why: `status ${status}: ${body.trim().slice(0, 200)}` };
}

/** Bytes beyond the limit end it. */
async function read(
  response: IncomingMessage,
  maxBytes: number,
  count: (bytes: number) => void,
): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    count(chunk.length);
    if (size > maxBytes) throw new Oversized(`answered more than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  if (!response.complete) throw new Error('the connection was closed within an answer');
  return Buffer.concat(chunks).toString();
}

class Oversized extends Error {}

/** Codes of errors by which one side does not accept the other's certificate. */
const untrusted = /^ERR_(?:TLS|SSL)|CERT|SELF_SIGNED|UNABLE_TO_|^EPROTO$|HOSTNAME/;

function failure(error: Error, { deadline }: AgentLimits): Asked {
  const { code = '', name } = error as NodeJS.ErrnoException;
  if (error instanceof Oversized || untrusted.test(code)) {
    return { kind: 'refused', why: error.message };
  }
  const isLate = name === 'TimeoutError' || name === 'AbortError';
  return { kind: 'silent', why: isLate ? `no answer within ${deadline} s` : error.message };
}
