// The connection to the API server: every request goes through it, with the current credentials. A
// replaced token or certificate is used from the next request on. If the server rejects a token
// that it accepted before, the token is read again once before the request fails.

import { buffer } from 'node:stream/consumers';
import { setImmediate, setTimeout } from 'node:timers/promises';

import type { ApiAnswer, ApiRequest, Transport } from './http2.ts';
import { createTransport } from './http2.ts';
import type { Account } from './kubeconfig.ts';

/** The environment of reflectors; `now` is the clock, Unix seconds. */
export function createConnection(account: Account, now: () => number) {
  let transport: Transport | null = null;
  let current = '';
  const attempt = async (request: ApiRequest): Promise<ApiAnswer> => {
    const { server, tls, headers, openProxy } = await account.credentials();
    // What a connection is bound to. Tokens are not: they go with each request.
    const bound = [server, tls.ca, tls.cert, tls.key, tls.servername].map(String).join('\n');
    if (transport === null || bound !== current) {
      // Answers that are still being read end in their own time.
      transport?.close();
      transport = createTransport({ server, tls, proxy: await openProxy() });
      current = bound;
    }
    return transport.send(request, { ...headers, 'user-agent': 'endpoint-auditor' });
  };
  return {
    now,
    monotonic: () => performance.now() / 1000,
    random: () => Math.random(),
    async sleep(seconds: number, signal: AbortSignal): Promise<void> {
      const slept =
        seconds === 0
          ? setImmediate(undefined, { signal })
          : setTimeout(seconds * 1000, undefined, { signal });
      await slept.catch(() => undefined);
    },
    async ask(request: ApiRequest): Promise<ApiAnswer> {
      const answer = await attempt(request);
      if (answer.status !== 401) return answer;
      await buffer(answer.body); // so that its connection can be used again
      account.refresh();
      return attempt(request);
    },
    pings: () => transport?.pings() ?? false,
    close: () => transport?.close(),
  };
}
