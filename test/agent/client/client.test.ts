// Asking over real sockets of the loopback interface: what an agent answers, and what may go wrong.

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { RequestListener, Server } from 'node:http';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, createServer as createSocketServer } from 'node:net';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';

import { afterEach, expect, test } from 'vitest';

import type { AgentCredentials } from '../../../src/agent/client/client.ts';
import { createAgentClient } from '../../../src/agent/client/client.ts';

const pem = (name: string): string =>
  readFileSync(join(import.meta.dirname, '../../apiserver', name), 'utf8');

const servers: Server[] = [];

afterEach(() => {
  for (const server of servers.splice(0)) {
    server.close();
    server.closeAllConnections();
  }
});

async function listening(server: Server): Promise<number> {
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

const serve = (answer: RequestListener): Promise<number> => listening(createServer(answer));

const noCredentials: AgentCredentials = { token: null, tls: null };

function ask(port: number, credentials = noCredentials, host = '127.0.0.1', deadline = 300) {
  const client = createAgentClient(() => credentials, { deadline, maxBytes: 1000 });
  const { signal } = new AbortController();
  return client.ask({
    node: 'node-a',
    address: `${host}:${port}`,
    path: '/v1/report',
    headers: { 'x-a': 'b' },
    signal,
  });
}

test.each([
  ['a token without TLS', { token: 'secret', tls: null }, 'refused'],
  ['no token', noCredentials, 'silent'],
  [
    'a token with TLS',
    { token: 'secret', tls: { ca: undefined, cert: undefined, key: undefined, servername: 'a' } },
    'silent',
  ],
] as const)('beyond loopback, a request with %s is %s', async (_, credentials, want) => {
  const client = createAgentClient(() => credentials);
  const where = { node: 'node-a', address: '192.0.2.1:1', path: '/v1/report', headers: {} };
  const { kind } = await client.ask({ ...where, signal: AbortSignal.abort() });
  expect(kind).toBe(want);
});

test('an answer, with the headers of the question and the token', async () => {
  const port = await serve(({ url, headers }, response) => {
    response.setHeader('etag', 'x');
    response.end(`${url ?? ''} ${String(headers['x-a'])} ${headers.authorization ?? ''}`);
  });
  expect(await ask(port, { token: 'secret', tls: null })).toMatchObject({
    kind: 'answer',
    status: 200,
    headers: { etag: 'x' },
    body: '/v1/report b Bearer secret',
  });
});

test('one connection is kept from one question to the next', async () => {
  let connections = 0;
  const server = createServer((_request, response) => response.end('x'.repeat(10)));
  server.on('connection', () => connections++);
  const port = await listening(server);
  const client = createAgentClient(() => noCredentials);
  const { signal } = new AbortController();
  for (let count = 0; count < 5; count++) {
    await client.ask({
      node: 'node-a',
      address: `127.0.0.1:${port}`,
      path: '/',
      headers: {},
      signal,
    });
  }
  expect(connections).toBe(1);
  expect(client.bytes()).toBe(50);
});

test.each([401, 403])('status %d is a refusal', async (status) => {
  const port = await serve((_request, response) => {
    response.statusCode = status;
    response.end('no');
  });
  expect(await ask(port)).toEqual({ kind: 'refused', why: `status ${status}: no` });
});

test('an answer that is too long is a refusal', async () => {
  const port = await serve((_request, response) => response.end('x'.repeat(1001)));
  expect(await ask(port)).toEqual({
    ...{ kind: 'refused', why: 'answered more than 1000 bytes', garbage: 'too long' },
  });
});

/** Asks in a thread with a heap of 64 MiB, and posts the answer. */
const askInThread = `
  const { parentPort, workerData } = require('node:worker_threads');
  import(workerData.client).then(async ({ createAgentClient }) => {
    const client = createAgentClient(() => workerData.credentials, workerData.limits);
    const signal = new AbortController().signal;
    parentPort.postMessage(await client.ask({ ...workerData.where, signal }));
  });
`;

test('an answer in chunks of one byte needs no more memory than others', async () => {
  const length = 1024 * 1024;
  const head = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n';
  const server = createSocketServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => socket.end(`${head}${'1\r\nx\r\n'.repeat(length)}0\r\n\r\n`));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const where = { node: 'node-a', address: `127.0.0.1:${port}`, path: '/', headers: {} };
  const client = new URL('../../../src/agent/client/client.ts', import.meta.url).href;
  const limits = { deadline: 300, maxBytes: length };
  // A list of the chunks would need 130 MiB.
  const thread = new Worker(askInThread, {
    eval: true,
    workerData: { client, credentials: noCredentials, limits, where },
    resourceLimits: { maxOldGenerationSizeMb: 64 },
  });
  const [answer] = (await once(thread, 'message')) as unknown[];
  server.close();
  await thread.terminate();
  expect(answer).toMatchObject({ kind: 'answer', body: 'x'.repeat(length) });
});

test('an answer that does not come, or not to its end, is silence', async () => {
  const silent = await serve(() => undefined);
  const askShortly = (port: number) => ask(port, noCredentials, '127.0.0.1', 0.5);
  expect(await askShortly(silent)).toEqual({ kind: 'silent', why: 'no answer within 0.5 s' });
  const slow = await serve((_request, response) => response.write('x'));
  expect(await askShortly(slow)).toMatchObject({ kind: 'silent' });
  const cut = await serve((_request, response) => {
    response.writeHead(200, { 'content-length': 100 });
    response.write('x', () => response.socket?.destroy());
  });
  expect(await ask(cut)).toMatchObject({ kind: 'silent' });
});

test('an agent that does not listen is silent', async () => {
  const port = await serve(() => undefined);
  for (const server of servers.splice(0)) server.close();
  expect(await ask(port)).toMatchObject({ kind: 'silent', why: /ECONNREFUSED/ });
});

test('a token does not leave the machine in the clear', async () => {
  const refused = await ask(1, { token: 'secret', tls: null }, '192.0.2.1');
  expect(refused).toEqual({
    kind: 'refused',
    why: 'a token is not sent beyond loopback without TLS',
  });
});

test('certificates are asked for and shown; one that is not trusted is a refusal', async () => {
  const own = { cert: pem('server.crt'), key: pem('server.key') };
  const server = createTlsServer({ ...own, ca: own.cert, requestCert: true }, (_request, out) =>
    out.end('ok'),
  );
  const port = await listening(server);
  const tls = { ca: own.cert, ...own, servername: 'localhost' };
  expect(await ask(port, { token: null, tls })).toMatchObject({ kind: 'answer' });
  const strangers = { ...tls, ca: pem('other.crt') };
  expect(await ask(port, { token: null, tls: strangers })).toMatchObject({ kind: 'refused' });
  const misnamed = { ...tls, servername: 'agents.auditor.svc' };
  expect(await ask(port, { token: null, tls: misnamed })).toMatchObject({ kind: 'refused' });
  const bare = { ...tls, cert: undefined, key: undefined };
  expect(await ask(port, { token: null, tls: bare })).not.toMatchObject({ kind: 'answer' });
});

test('another token or certificate authority is used from the next question on', async () => {
  const own = { cert: pem('other.crt'), key: pem('other.key') };
  const server = createTlsServer(own, ({ headers }, response) =>
    response.end(headers.authorization),
  );
  const port = await listening(server);
  const tlsOf = (ca: string) => ({ ca, cert: undefined, key: undefined, servername: 'localhost' });
  let credentials: AgentCredentials = { token: 'one', tls: tlsOf(pem('server.crt')) };
  const client = createAgentClient(() => credentials);
  const where = { node: 'node-a', address: `127.0.0.1:${port}`, path: '/', headers: {} };
  const askAgain = () => client.ask({ ...where, signal: new AbortController().signal });
  expect(await askAgain()).toMatchObject({ kind: 'refused' });
  credentials = { token: 'two', tls: tlsOf(own.cert) };
  expect(await askAgain()).toMatchObject({ kind: 'answer', body: 'Bearer two' });
  credentials = { token: 'three', tls: credentials.tls };
  expect(await askAgain()).toMatchObject({ kind: 'answer', body: 'Bearer three' });
});
