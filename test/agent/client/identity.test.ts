import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import { createAgentClient } from '../../../src/agent/client/client.ts';
import { createNodeVerifier } from '../../../src/agent/client/identity.ts';

const account = { namespace: 'monitoring', name: 'agents' };
const username = 'system:serviceaccount:monitoring:agents';

const ownerOn = (node: string | null, name = username) => ({
  kind: 'allowed' as const,
  owner: {
    username: name,
    extra: node === null ? {} : { 'authentication.kubernetes.io/node-name': [node] },
  },
});

const tokens = {
  'of node-a': ownerOn('node-a'),
  'of node-b': ownerOn('node-b'),
  'without a node': ownerOn(null),
  'of another account': ownerOn('node-a', 'system:serviceaccount:shop:web'),
  rejected: { kind: 'unauthenticated', why: 'the API server rejects the token' },
  'not reviewed': { kind: 'unavailable', why: 'no answer' },
} as const;

const verify = createNodeVerifier((token, audience) => {
  expect(audience).toBe('endpoint-auditor');
  return Promise.resolve(tokens[token as keyof typeof tokens]);
}, account);

test.each([
  ['of node-a', null],
  ['of node-b', { kind: 'refused', why: 'its token is of node node-b' }],
  ['without a node', { kind: 'refused', why: 'its token is of no node' }],
  [
    'of another account',
    { kind: 'refused', why: `its token is of system:serviceaccount:shop:web, not of ${username}` },
  ],
  ['rejected', { kind: 'refused', why: 'the API server rejects the token' }],
  ['not reviewed', { kind: 'silent', why: 'no answer' }],
  ['', { kind: 'refused', why: 'its answer has no token that proves its node' }],
])('a token %s, as the agent of node-a: %j', async (token, want) => {
  expect(await verify('node-a', token)).toEqual(want);
});

const pem = (name: string): string =>
  readFileSync(join(import.meta.dirname, '../../apiserver', name), 'utf8');

test.each([
  ['node-a', 'answer'],
  ['node-b', 'refused'],
])('an answer with a token of node-a, asked for as %s: %s', async (node, want) => {
  const keys = { cert: pem('server.crt'), key: pem('server.key') };
  const server = createTlsServer(keys, (_request, response) => {
    response.setHeader('agent-token', 'of node-a');
    response.end('{}');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const tls = { ca: keys.cert, cert: undefined, key: undefined, servername: 'localhost' };
  const client = createAgentClient(() => ({ token: null, tls }), undefined, verify);
  const { signal } = new AbortController();
  const to = { node, address: `127.0.0.1:${port}`, path: '/v1/report', headers: {}, signal };
  expect((await client.ask(to)).kind).toBe(want);
  server.close();
  server.closeAllConnections();
});
