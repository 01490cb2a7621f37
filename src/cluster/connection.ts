// The connection to the API server: one door for all requests, each with the credentials of its
// moment. A token or certificate that was replaced is used from the next request on; when the
// server does not accept a token that was fine before, it is read anew, once, before anybody hears
// of it.

import { createTransport } from './transport.ts';

import type { Environment } from './exchange.ts';
import type { Account, Credentials } from './kubeconfig.ts';
import type { Patience, Transport } from './transport.ts';

/** One GET request. */
export interface ApiRequest {
  /** `/api/v1/pods`. */
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly accept: string;
  /** Ends the request and its body, whenever it is aborted. */
  readonly signal: AbortSignal;
}

export interface ApiAnswer {
  readonly status: number;
  /** content-type and retry-after. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** Throws when the connection is lost before the body is complete. */
  readonly body: Body;
}

export interface Body extends AsyncIterable<Uint8Array> {
  /** Whether another chunk has come already; without it, nobody knows. */
  readonly hasMore?: () => boolean;
}

/** Sends one request; rejects when no answer comes. */
export type Ask = (request: ApiRequest) => Promise<ApiAnswer>;

export interface Connection {
  readonly ask: Ask;
  /** Whether it finds out by itself that the server has gone; false before the first answer. */
  pings(): boolean;
  close(): void;
}

export function createConnection(account: Account, patience?: Patience): Connection {
  let transport: Transport | null = null;
  let current = '';
  const attempt = async ({ path, query, accept, signal }: ApiRequest): Promise<ApiAnswer> => {
    const credentials = await account.credentials();
    if (transport === null || printOf(credentials) !== current) {
      // Answers that are still being read end in their own time.
      transport?.close();
      transport = createTransport(credentials, patience);
      current = printOf(credentials);
    }
    const search = new URLSearchParams(query).toString();
    const headers = { ...credentials.headers, accept, 'user-agent': 'endpoint-auditor' };
    const outgoing = { path: search === '' ? path : `${path}?${search}`, headers, signal };
    return transport.send(outgoing);
  };
  return {
    async ask(request) {
      const answer = await attempt(request);
      if (answer.status !== 401) return answer;
      await drain(answer);
      account.refresh();
      return attempt(request);
    },
    pings: () => transport?.pings() ?? false,
    close: () => transport?.close(),
  };
}

/** Reads an answer that nobody wants to its end, so that its connection can be used again. */
async function drain({ body }: ApiAnswer): Promise<void> {
  const chunks = body[Symbol.asyncIterator]();
  while ((await chunks.next()).done !== true);
}

/** What a connection is bound to. Tokens are not: they go with each request. */
function printOf({ server, options: { ca, cert, key, servername } }: Credentials): string {
  return [server, ca, cert, key, servername].map(String).join('\n');
}

/** The environment of reflectors over a connection; `now` is the clock, Unix seconds. */
export function environmentOf(connection: Connection, now: () => number): Environment {
  return {
    now,
    monotonic: () => performance.now() / 1000,
    random: () => Math.random(),
    sleep,
    ask: connection.ask,
    pings: () => connection.pings(),
  };
}

function sleep(seconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
      return;
    }
    if (seconds === 0) {
      setImmediate(resolve);
      return;
    }
    const wake = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', wake);
      resolve();
    };
    const timer = setTimeout(wake, seconds * 1000);
    signal.addEventListener('abort', wake);
  });
}
