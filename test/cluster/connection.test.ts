import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterEach, beforeEach, describe, expect, test } from 'vitest';

import { createConnection, environmentOf } from '../../src/cluster/connection.ts';
import { openAccount } from '../../src/cluster/kubeconfig.ts';
import { createReflectors } from '../../src/cluster/reflectors.ts';
import { createStore } from '../../src/cluster/store.ts';
import { resources } from '../../src/model/objects.ts';
import { realClock } from '../apiserver/clock.ts';
import { keyPath, listen } from '../apiserver/listen.ts';
import { createServer } from '../apiserver/server.ts';
import { heldIn } from '../apiserver/simulate.ts';

import type { ListenOptions, Listener } from '../apiserver/listen.ts';

let folder: string;
const closing: (() => Promise<void> | void)[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'connection-'));
});

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
  rmSync(folder, { recursive: true });
});

const file = (name: string, content: string | Uint8Array): string => {
  writeFileSync(join(folder, name), content);
  return join(folder, name);
};

async function serve(options: ListenOptions = {}) {
  const server = createServer(realClock);
  const listener = await listen((request) => server.ask(request), options);
  closing.push(() => listener.close());
  return { server, listener };
}

function connectTo({ port }: Listener, user: object, cluster: object = {}) {
  const server = `https://127.0.0.1:${port}`;
  const config = {
    'current-context': 'it',
    clusters: [
      {
        name: 'it',
        cluster: { server, 'certificate-authority': keyPath('server', 'crt'), ...cluster },
      },
    ],
    users: [{ name: 'me', user }],
    contexts: [{ name: 'it', context: { cluster: 'it', user: 'me' } }],
  };
  const kubeconfig = file('config', JSON.stringify(config));
  const connection = createConnection(openAccount({ kubeconfig, context: null }));
  closing.push(() => connection.close());
  return connection;
}

const request = (path = '/version') => ({
  path,
  query: {},
  accept: 'application/json',
  signal: new AbortController().signal,
});

describe('credentials', () => {
  test('a token file that was rotated is read when the old token is refused', async () => {
    let token = 'first';
    const { listener } = await serve({ token: () => token });
    const connection = connectTo(listener, { tokenFile: 'token' });
    file('token', 'first\n');
    expect((await connection.ask(request())).status).toBe(200);
    token = 'second';
    file('token', 'second\n');
    expect((await connection.ask(request())).status).toBe(200);
    expect(listener.requests.map(({ headers }) => headers.authorization)).toEqual([
      'Bearer first',
      'Bearer first',
      'Bearer second',
    ]);
  });

  test('a token that is refused twice is refused', async () => {
    const { listener } = await serve({ token: () => 'another' });
    const connection = connectTo(listener, { token: 'wrong' });
    expect((await connection.ask(request())).status).toBe(401);
    expect(listener.requests).toHaveLength(2);
  });

  test('an exec plugin is run, and again when its token is refused', async () => {
    let token = 'run-1';
    const { listener } = await serve({ token: () => token });
    file('count', '0');
    const script = `const fs = require('node:fs');
      const path = ${JSON.stringify(join(folder, 'count'))};
      const count = Number(fs.readFileSync(path, 'utf8')) + 1;
      fs.writeFileSync(path, String(count));
      const status = { token: 'run-' + count };
      console.log(JSON.stringify({ kind: 'ExecCredential', status }));`;
    const exec = { command: process.execPath, args: ['-e', script] };
    const connection = connectTo(listener, { exec });
    for (const want of [200, 200]) expect((await connection.ask(request())).status).toBe(want);
    expect(readFileSync(join(folder, 'count'), 'utf8')).toBe('1');
    token = 'run-2';
    expect((await connection.ask(request())).status).toBe(200);
  });

  test('a client certificate is shown, and a replaced one from then on', async () => {
    const { listener } = await serve();
    const copy = (name: 'server' | 'other') => {
      file('me.crt', readFileSync(keyPath(name, 'crt')));
      file('me.key', readFileSync(keyPath(name, 'key')));
    };
    copy('server');
    const user = { 'client-certificate': 'me.crt', 'client-key': 'me.key' };
    const connection = connectTo(listener, user);
    for (let times = 0; times < 2; times++) await connection.ask(request());
    copy('other');
    expect((await connection.ask(request())).status).toBe(200);
    expect(listener.clients).toEqual(['server.test', 'other.test']);
  });
});

test('a query is part of the path', async () => {
  const { server, listener } = await serve();
  const connection = connectTo(listener, { token: 'any' });
  const query = { labelSelector: 'a=b,c=d', limit: '1' };
  await connection.ask({ ...request('/api/v1/pods'), query });
  expect(server.asked[0]?.request.query).toEqual(query);
  expect(listener.requests[0]?.headers['user-agent']).toBe('endpoint-auditor');
});

test.each(['h2', 'http/1.1'] as const)('reflectors over %s', async (protocols) => {
  const { server, listener } = await serve({ protocols });
  for (let index = 0; index < 700; index++) {
    const metadata = { name: `pod-${index}`, namespace: 'shop' };
    server.objects.put('pods', { metadata, spec: {}, status: {} });
  }
  const connection = connectTo(listener, { token: 'any' });
  const store = createStore(new Set(resources));
  const reflectors = createReflectors({
    environment: environmentOf(connection, () => Date.now() / 1000),
    held: (resource) => heldIn(store, resource),
    deliver(entries) {
      for (const entry of entries) if (entry.kind === 'event') store.apply(entry.event);
    },
    onProblem: (problem) => expect(problem).toBeNull(),
    endpoints: true,
    watchList: true,
    raw: false,
  });
  const controller = new AbortController();
  const run = reflectors.run(controller.signal);
  const until = (isSo: () => boolean) => expect.poll(isSo, { timeout: 20_000 }).toBe(true);
  const allSynced = () => [...reflectors.status.values()].every(({ state }) => state === 'synced');
  await until(allSynced);
  expect(store.snapshot.pods.size).toBe(700);
  expect(reflectors.status.get('pods')?.counters.pages).toBe(protocols === 'h2' ? 0 : 2);
  server.objects.remove('pods', 'shop/pod-1');
  await until(() => store.snapshot.pods.size === 699);
  listener.drop();
  server.objects.remove('pods', 'shop/pod-2');
  await until(() => store.snapshot.pods.size === 698);
  await until(allSynced);
  controller.abort();
  await run;
  await until(() => server.watches.size === 0);
});
