// The connection to the API server: every request goes through it, with the current credentials. A
// replaced token or certificate is used from the next request on. If the server rejects a token
// that it accepted before, the token is read again once before the request fails.

import type { ApiAnswer, ApiRequest, Ask } from './api-request.ts';
import type { Patience, Transport } from './http2.ts';
import { createTransport } from './http2.ts';
import type { Account, Credentials } from './kubeconfig.ts';
import type { Environment } from './request.ts';

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

/** Reads an unused answer to its end, so that its connection can be used again. */
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
