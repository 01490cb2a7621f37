// Sends requests to agents over HTTP. Each agent has one connection, which stays open between two
// rounds. A request has a deadline for the whole answer and a limit of bytes. It uses a client
// certificate, a bearer token, or neither, as the agents are configured (agent/server.ts). All
// agents present certificates for the name of their Service, because their addresses change.

import { once } from 'node:events';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { Agent as PlainAgent, request as plainRequest } from 'node:http';
import { Agent as TlsAgent, request as tlsRequest } from 'node:https';

export interface AgentAddress {
  readonly host: string;
  readonly port: number;
}

export interface AgentCredentials {
  readonly token: string | null;
  /** PEM; `null` for plain HTTP. */
  readonly tls: {
    readonly ca: string | undefined;
    readonly cert: string | undefined;
    readonly key: string | undefined;
    /** The name in the agents' certificates. */
    readonly servername: string;
  } | null;
}

export interface HttpAnswer {
  readonly kind: 'answer';
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** `refused`: the agent rejects the request. `silent`: no answer arrives. */
export interface NoAnswer {
  readonly kind: 'refused' | 'silent';
  readonly why: string;
}

export interface AgentRequest {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

export interface AgentClient {
  /** Never rejects. */
  ask(address: AgentAddress, request: AgentRequest): Promise<HttpAnswer | NoAnswer>;
  /** Bytes of all answers. */
  readonly bytes: () => number;
}

/** Limits of an answer, in seconds and bytes. A report of 10,000 frontends is half a megabyte. */
const usualLimits = { deadline: 10, maxBytes: 16 * 1024 * 1024 };

export function createAgentClient(
  { token, tls }: AgentCredentials,
  { deadline, maxBytes } = usualLimits,
): AgentClient {
  const pool = { keepAlive: true, maxSockets: 1, maxFreeSockets: 1 };
  const agent = tls === null ? new PlainAgent(pool) : new TlsAgent(pool);
  const send = tls === null ? plainRequest : tlsRequest;
  const authorization = token === null ? {} : { authorization: `Bearer ${token}` };
  let bytes = 0;
  async function bodyOf(response: IncomingMessage): Promise<string | null> {
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of response as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      size += chunk.length;
      if (size > maxBytes) return null;
      chunks.push(chunk);
    }
    return Buffer.concat(chunks).toString();
  }
  return {
    async ask({ host, port }, { path, headers, signal }) {
      if (token !== null && tls === null && host !== '::1' && !host.startsWith('127.')) {
        return refused('a token is not sent beyond loopback without TLS');
      }
      try {
        const request = send({
          agent,
          host,
          port,
          path,
          headers: { ...headers, ...authorization },
          ...(tls === null ? {} : { ...tls, minVersion: 'TLSv1.2' }),
          signal: AbortSignal.any([signal, AbortSignal.timeout(deadline * 1000)]),
        });
        // `once` or the response reports it.
        request.on('error', () => undefined).end();
        const [response] = (await once(request, 'response')) as [IncomingMessage];
        const body = await bodyOf(response);
        if (body === null) return refused(`answered more than ${maxBytes} bytes`);
        const answer = { status: response.statusCode ?? 0, headers: response.headers, body };
        if (answer.status === 401 || answer.status === 403) return refused(statusText(answer));
        return { kind: 'answer', ...answer };
      } catch (error) {
        const { code = '', name, message } = error as NodeJS.ErrnoException;
        if (untrusted.test(code)) return refused(message);
        const isLate = name === 'TimeoutError' || name === 'AbortError';
        return { kind: 'silent', why: isLate ? `no answer within ${deadline} s` : message };
      }
    },
    bytes: () => bytes,
  };
}

const refused = (why: string): NoAnswer => ({ kind: 'refused', why });

/** An unexpected status and the beginning of its body. */
export const statusText = ({ status, body }: Pick<HttpAnswer, 'status' | 'body'>): string =>
  `status ${status}: ${body.trim().slice(0, 200)}`;

/** Codes of errors by which one side rejects the certificate of the other. */
const untrusted = /^ERR_(?:TLS|SSL)|CERT|SELF_SIGNED|UNABLE_TO_|^EPROTO$|HOSTNAME/;
