// The answers of an agent to each client, over real sockets of the loopback interface.

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { IncomingHttpHeaders, RequestOptions, Server } from 'node:http';
import { Agent, request as plainRequest } from 'node:http';
import { request as tlsRequest } from 'node:https';
import { type AddressInfo, connect as connectPlain } from 'node:net';
import { join } from 'node:path';
import { connect } from 'node:tls';

import { afterEach, describe, expect, test, vi } from 'vitest';

import type { createReport } from '../../src/agent/report.ts';
import type { ScheduledAgent } from '../../src/agent/schedule.ts';
import { createAgent } from '../../src/agent/schedule.ts';
import type { Access } from '../../src/agent/server.ts';
import { createAgentServer } from '../../src/agent/server.ts';
import { withPrograms } from '../processes.ts';

const dump = ['*nat', ':PREROUTING ACCEPT [0:0]', '-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp'];
const rule = `${dump.join('\n')} --dport 443 -j DNAT --to-destination 10.0.0.1:6443\nCOMMIT`;

// A pause does not depend on the CPU that this process used in a round.
const newAgent = (): ScheduledAgent =>
  createAgent({
    share: 0,
    nodeIPs: ['172.18.0.2'],
    podCIDRs: [],
    proxyConfig: null,
    onProblem: () => undefined,
    interval: 60,
    limits: withPrograms({ 'iptables-nft-save': `echo '${rule}'` }),
  });

const servers: Server[] = [];

afterEach(() => {
  vi.useRealTimers();
  for (const server of servers.splice(0)) {
    server.close();
    server.closeAllConnections();
  }
});

async function serve(
  agent: ScheduledAgent,
  access: Access,
  times?: Parameters<typeof createAgentServer>[2],
): Promise<number> {
  const { server } = createAgentServer(agent, access, times);
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

interface Answer {
  readonly status: number | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

function ask(options: RequestOptions & { readonly ca?: string; cert?: string; key?: string }) {
  return new Promise<Answer>((resolve, reject) => {
    const send = options.ca === undefined ? plainRequest : tlsRequest;
    const asked = send({ host: '127.0.0.1', agent: false, ...options }, (response) => {
      let text = '';
      response.on('data', (chunk: Buffer) => (text += chunk.toString()));
      response.on('end', () => {
        resolve({ status: response.statusCode, headers: response.headers, text });
      });
    });
    asked.on('error', reject);
    asked.end();
  });
}

const open: Access = { token: null, tls: null };

describe('answers', () => {
  test('nothing before the first round, then a report, then that it is the same', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const agent = newAgent();
    const port = await serve(agent, open);
    expect(await ask({ port, path: '/v1/report' })).toMatchObject({ status: 503 });
    await agent.round();
    const { status, headers, text } = await ask({ port, path: '/v1/report' });
    expect(status).toBe(200);
    const report = JSON.parse(text) as ReturnType<typeof createReport>;
    expect(Object.keys(report.frontends)).toEqual(['tcp 10.96.0.1:443']);
    const etag = headers.etag ?? '';
    await agent.round();
    const again = { port, path: '/v1/report', headers: { 'if-none-match': `"other", ${etag}` } };
    const same = await ask(again);
    expect(same).toMatchObject({ status: 304, text: '' });
    expect(same.headers).toMatchObject({ etag, age: '0' });
    const other = { ...again, headers: { 'if-none-match': '"other"' } };
    expect(await ask(other)).toMatchObject({ status: 200, text });
  });

  test('with the details of a frontend that is asked for', async () => {
    const agent = newAgent();
    await agent.round();
    const port = await serve(agent, open);
    const path = `/v1/frontends/${encodeURIComponent('tcp 10.96.0.1:443')}`;
    const { status, text } = await ask({ port, path });
    expect(status).toBe(200);
    expect(JSON.parse(text)).toMatchObject({
      key: 'tcp 10.96.0.1:443',
      packets: [{ words: 'pass 1/1' }, { words: '10.0.0.1:6443 1/1' }],
    });
  });

  test.each([
    ['GET', '/v1/frontends/tcp%2010.96.0.1:444', 404],
    ['GET', '/v1/frontends/%ff', 404],
    ['GET', `/v1/frontends/${'x'.repeat(1000)}`, 404],
    ['GET', '/v1/report/', 404],
    ['POST', '/v1/report', 405],
    ['GET', '/livez', 200],
    ['GET', '/metrics', 200],
  ])('%s %s: %d', async (method, path, status) => {
    const agent = newAgent();
    await agent.round();
    expect((await ask({ port: await serve(agent, open), method, path })).status).toBe(status);
  });

  test('/metrics with the rounds and the frontends of the agent', async () => {
    const agent = newAgent();
    await agent.round();
    const { text } = await ask({ port: await serve(agent, open), path: '/metrics' });
    expect(text).toMatch(/^endpoint_auditor_agent_rounds_total 1$/m);
    expect(text).toMatch(/^endpoint_auditor_agent_frontends 1$/m);
    expect(text.split('\n').filter((line) => /^[^#]/.test(line))).toHaveLength(10);
  });
});

const pem = (name: string): string =>
  readFileSync(join(import.meta.dirname, '../apiserver', name), 'utf8');

describe('a running agent', () => {
  /** The certificate that a new connection is shown. */
  const shown = async (port: number): Promise<string> => {
    const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false });
    await once(socket, 'secureConnect');
    const { fingerprint256 } = socket.getPeerCertificate();
    socket.destroy();
    return fingerprint256;
  };

  test('takes another certificate and another token', async () => {
    const tls = { cert: pem('server.crt'), key: pem('server.key') };
    const { server, renew } = createAgentServer(newAgent(), { token: 'one', tls });
    servers.push(server);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const before = await shown(port);
    const to = (ca: string) => ({
      ...{ port, ca, path: '/metrics', servername: 'localhost' },
      checkServerIdentity: () => undefined,
    });
    const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
    const next = { cert: pem('other.crt'), key: pem('other.key') };
    // A certificate and a key that do not match change nothing, nor does their token.
    const mixed = { cert: next.cert, key: tls.key };
    expect(() => renew({ token: 'three', tls: mixed })).toThrow(/mismatch/);
    expect((await ask({ ...to(tls.cert), headers: bearer('one') })).status).toBe(200);
    renew({ token: 'two', tls: next });
    expect(await shown(port)).not.toBe(before);
    const statusOf = async (token: string): Promise<number | undefined> =>
      (await ask({ ...to(next.cert), headers: bearer(token) })).status;
    expect([await statusOf('one'), await statusOf('two')]).toEqual([401, 200]);
  });

  test('keeps no connection of a client that may not ask', async () => {
    const port = await serve(newAgent(), { ...open, token: 'secret' });
    const refused = await ask({ port, path: '/metrics', agent: new Agent({ keepAlive: true }) });
    expect([refused.status, refused.headers.connection]).toEqual([401, 'close']);
  });

  test('has at most 64 connections', async () => {
    const port = await serve(newAgent(), open);
    const sockets = Array.from({ length: 80 }, () => connectPlain(port, '127.0.0.1'));
    const closed = sockets.map((socket) =>
      once(
        socket.on('error', () => undefined),
        'close',
      ),
    );
    await Promise.all(closed.slice(64));
    expect(sockets.filter(({ destroyed }) => !destroyed)).toHaveLength(64);
    for (const socket of sockets) socket.destroy();
  });

  test.each([
    'GET /livez HTTP/1.1\r\n',
    'GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n',
  ])('ends a request that comes a byte at a time: %j', async (head) => {
    const times = { headersTimeout: 60, requestTimeout: 120, connectionsCheckingInterval: 20 };
    const port = await serve(newAgent(), open, { ...times, keepAliveTimeout: 600_000 });
    const socket = connectPlain(port, '127.0.0.1');
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.on('error', () => undefined).resume();
    socket.write(head);
    let sent = 0;
    // Then it is silent, so nothing but the limit ends it.
    const drip = setInterval(() => sent++ < 100 && socket.write('x'), 5);
    await closed.finally(() => clearInterval(drip));
  });

  test('that ends no round fails /livez and says so', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const agent = newAgent();
    const port = await serve(agent, open);
    await agent.round();
    vi.advanceTimersByTime(2_000_000);
    expect(await ask({ port, path: '/livez' })).toMatchObject({ status: 200 });
    vi.advanceTimersByTime(1_000_000);
    const failed = { status: 503, text: 'No round has ended for 3000 s\n' };
    expect(await ask({ port, path: '/livez' })).toMatchObject(failed);
    await agent.round();
    expect(await ask({ port, path: '/livez' })).toMatchObject({ status: 200 });
  });
});

describe('access', () => {
  const paths = ['/v1/report', '/metrics', '/v1/frontends/x', '/anything'];

  test('a token is asked for everywhere but at /livez', async () => {
    const port = await serve(newAgent(), { ...open, token: 'secret' });
    for (const path of paths) {
      for (const authorization of ['', 'Bearer other', 'Bearer secret2', 'Basic secret']) {
        const { status } = await ask({ port, path, headers: { authorization } });
        expect(status, `${path} ${authorization}`).toBe(401);
      }
    }
    expect((await ask({ port, path: '/livez' })).status).toBe(200);
    const headers = { authorization: 'Bearer secret' };
    expect((await ask({ port, path: '/metrics', headers })).status).toBe(200);
  });

  test('the token that proves the node is shown only with a certificate', async () => {
    const own = { cert: pem('server.crt'), key: pem('server.key') };
    const access = { token: null, identity: 'proof', tls: { ...own, ca: own.cert } };
    const port = await serve(newAgent(), access);
    const to = { port, ca: own.cert, servername: 'localhost' };
    const shown = async (path: string, client = {}) =>
      (await ask({ ...to, path, ...client })).headers['agent-token'];
    expect(await shown('/v1/report')).toBeUndefined();
    expect(await shown('/livez')).toBeUndefined();
    const other = { cert: pem('other.crt'), key: pem('other.key') };
    expect(await shown('/v1/report', other)).toBeUndefined();
    expect(await shown('/v1/report', own)).toBe('proof');
    const withoutCA = await serve(newAgent(), { token: 'secret', identity: 'proof', tls: own });
    const headers = { authorization: 'Bearer secret' };
    const answer = await ask({ ...to, port: withoutCA, path: '/metrics', headers });
    expect([answer.status, answer.headers['agent-token']]).toEqual([200, undefined]);
  });

  test('a certificate of the authority is asked for everywhere but at /livez', async () => {
    const own = { cert: pem('server.crt'), key: pem('server.key') };
    const other = { cert: pem('other.crt'), key: pem('other.key') };
    const port = await serve(newAgent(), { token: null, tls: { ...own, ca: own.cert } });
    const to = { port, ca: own.cert, servername: 'localhost' };
    for (const path of paths) {
      expect((await ask({ ...to, path })).status, path).toBe(401);
      expect((await ask({ ...to, path, ...other })).status, path).toBe(401);
    }
    expect((await ask({ ...to, path: '/livez' })).status).toBe(200);
    expect((await ask({ ...to, path: '/metrics', ...own })).status).toBe(200);
  });
});
