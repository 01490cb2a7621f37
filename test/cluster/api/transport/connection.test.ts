import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttp } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { createReflectors } from '../../../../src/cluster/api/reflector.ts';
import { createConnection } from '../../../../src/cluster/api/transport/connection.ts';
import { openAccount } from '../../../../src/cluster/api/transport/kubeconfig.ts';
import { createStore } from '../../../../src/cluster/store/store.ts';
import { resources } from '../../../../src/model/objects.ts';
import { heldIn } from '../../../apiserver/life.ts';
import type { Listener, ListenOptions } from '../../../apiserver/server.ts';
import { createServer, keyPath, listen, realClock } from '../../../apiserver/server.ts';

let folder: string;
const closing: (() => Promise<void> | void)[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'connection-'));
});

afterEach(async () => {
  vi.unstubAllEnvs();
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

function connectTo({ port }: Pick<Listener, 'port'>, user: object, cluster: object = {}) {
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
  const connection = createConnection(
    openAccount({ kubeconfig, context: null }),
    () => Date.now() / 1000,
  );
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

  test('of an endless refusal, a part is read', async () => {
    let pieces = 0;
    const endless = async function* () {
      for (; pieces < 1000; pieces++) {
        await Promise.resolve();
        yield Buffer.alloc(64 * 1024);
      }
    };
    const listener = await listen(() =>
      Promise.resolve({ status: 401, headers: {}, body: endless() }),
    );
    closing.push(() => listener.close());
    const { status } = await connectTo(listener, { token: 'wrong' }).ask(request());
    expect(status).toBe(401);
    expect(pieces).toBeLessThan(500);
  });

  /** A plugin that counts its runs and answers with what `status` is of `count`. */
  const plugin = (status: string, more: object = {}) => {
    file('count', '0');
    const script = `const fs = require('node:fs');
      const path = ${JSON.stringify(join(folder, 'count'))};
      const count = Number(fs.readFileSync(path, 'utf8')) + 1;
      fs.writeFileSync(path, String(count));
      fs.writeFileSync(path + '.info', process.env.KUBERNETES_EXEC_INFO ?? '');
      console.log(JSON.stringify({ kind: 'ExecCredential', status: ${status} }));`;
    return { exec: { command: process.execPath, args: ['-e', script], ...more } };
  };
  const runs = () => Number(readFileSync(join(folder, 'count'), 'utf8'));

  test('an exec plugin is run, and again when its token is refused', async () => {
    let token = 'run-1';
    const { listener } = await serve({ token: () => token });
    const connection = connectTo(listener, plugin("{ token: 'run-' + count }"));
    for (const want of [200, 200]) expect((await connection.ask(request())).status).toBe(want);
    expect(runs()).toBe(1);
    token = 'run-2';
    expect((await connection.ask(request())).status).toBe(200);
  });

  test('for requests that are refused at one time, an exec plugin is run once', async () => {
    let token = 'run-1';
    const { listener } = await serve({ token: () => token });
    const connection = connectTo(listener, plugin("{ token: 'run-' + count }"));
    expect((await connection.ask(request())).status).toBe(200);
    token = 'run-2';
    const asked = [1, 2, 3, 4].map(() => connection.ask(request()));
    expect((await Promise.all(asked)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(runs()).toBe(2);
  });

  test('an exec plugin is run again when its token has expired', async () => {
    const { listener } = await serve();
    const expired = "{ token: 'run-' + count, expirationTimestamp: '2020-01-01T00:00:00Z' }";
    const connection = connectTo(listener, plugin(expired));
    for (let times = 0; times < 3; times++) await connection.ask(request());
    expect(listener.requests.map(({ headers }) => headers.authorization)).toEqual(
      [1, 2, 3].map((run) => `Bearer run-${run}`),
    );
  });

  test('an exec plugin may answer with a certificate, which replaces the one before', async () => {
    const { listener } = await serve();
    const keys = JSON.stringify(join(import.meta.dirname, '../../../apiserver/'));
    const pem = (name: string) => `fs.readFileSync(${keys} + ${name}, 'utf8')`;
    const name = "(count === 1 ? 'server' : 'other')";
    const status = `{ clientCertificateData: ${pem(`${name} + '.crt'`)},
      clientKeyData: ${pem(`${name} + '.key'`)}, expirationTimestamp: '2020-01-01T00:00:00Z' }`;
    const connection = connectTo(listener, plugin(status));
    for (let times = 0; times < 2; times++) {
      expect((await connection.ask(request())).status).toBe(200);
    }
    expect(listener.clients).toEqual(['server.test', 'other.test']);
  });

  test('an exec plugin gets its exec information and the cluster', async () => {
    const { listener } = await serve();
    const version = { apiVersion: 'client.authentication.k8s.io/v1beta1' };
    const user = plugin("{ token: 'x' }", { ...version, provideClusterInfo: true });
    const extension = { shootRef: { name: 'shop' } };
    await connectTo(listener, user, {
      'tls-server-name': 'kubernetes.test',
      extensions: [{ name: 'client.authentication.k8s.io/exec', extension }],
    }).ask(request());
    const ca = readFileSync(keyPath('server', 'crt')).toString('base64');
    expect(JSON.parse(readFileSync(join(folder, 'count.info'), 'utf8'))).toEqual({
      ...version,
      kind: 'ExecCredential',
      spec: {
        interactive: false,
        cluster: {
          server: `https://127.0.0.1:${listener.port}`,
          'tls-server-name': 'kubernetes.test',
          'insecure-skip-tls-verify': false,
          'certificate-authority-data': ca,
          config: extension,
        },
      },
    });
  });

  test('an exec plugin that fails or is missing is an error of the request', async () => {
    const { listener } = await serve();
    const args = ['-e', 'console.error("no such account"); process.exit(3)'];
    const failing = connectTo(listener, { exec: { command: process.execPath, args } });
    await expect(failing.ask(request())).rejects.toThrow('no such account');
    const missing = connectTo(listener, { exec: { command: 'no-such-plugin' } });
    await expect(missing.ask(request())).rejects.toThrow('no-such-plugin');
    expect(listener.requests).toHaveLength(0);
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

/** A proxy that leads every connection to one port, whatever is asked for. */
async function proxyTo(port: number) {
  const asked: { readonly to: string; readonly as: string | undefined }[] = [];
  const sockets = new Set<Socket>();
  const proxy = createHttp().on('connect', ({ url = '', headers }, near: Socket) => {
    asked.push({ to: url, as: headers['proxy-authorization'] });
    const far = connect(port, '127.0.0.1', () => near.write('HTTP/1.1 200 OK\r\n\r\n'));
    for (const socket of [near, far]) sockets.add(socket.on('error', () => undefined));
    near.pipe(far).pipe(near);
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  closing.push(() => {
    for (const socket of sockets) socket.destroy();
    proxy.close();
  });
  return { asked, place: `127.0.0.1:${(proxy.address() as AddressInfo).port}` };
}

describe('a proxy', () => {
  const far = (port: number) => ({ server: `https://kubernetes.test:${port}` });

  test('that the environment names is taken, with its password', async () => {
    const { listener } = await serve();
    const { asked, place } = await proxyTo(listener.port);
    vi.stubEnv('HTTPS_PROXY', `http://me:secret@${place}`);
    const connection = connectTo(listener, { token: 'any' }, far(listener.port));
    for (let times = 0; times < 2; times++) {
      expect((await connection.ask(request())).status).toBe(200);
    }
    // A given up request of HTTP/2 would leave a dead connection to the next one.
    expect(listener.requests.map(({ protocol }) => protocol)).toEqual(['1.1', '1.1']);
    const as = `Basic ${Buffer.from('me:secret').toString('base64')}`;
    expect(asked[0]).toEqual({ to: `kubernetes.test:${listener.port}`, as });
    expect(listener.requests.map(({ headers }) => headers.authorization)).toEqual([
      'Bearer any',
      'Bearer any',
    ]);
  });

  test('that the kubeconfig names comes before that, and an exec plugin is run once', async () => {
    const { listener } = await serve();
    const { asked, place } = await proxyTo(listener.port);
    vi.stubEnv('HTTPS_PROXY', 'http://127.0.0.1:1');
    file('runs', '');
    const script = `require('node:fs').appendFileSync(${JSON.stringify(join(folder, 'runs'))}, '.');
      console.log('{"kind":"ExecCredential","status":{"token":"from the plugin"}}')`;
    const user = { exec: { command: process.execPath, args: ['-e', script] } };
    const through = { ...far(listener.port), 'proxy-url': `http://${place}` };
    const connection = connectTo(listener, user, through);
    for (let times = 0; times < 3; times++) await connection.ask(request());
    expect(asked[0]?.to).toBe(`kubernetes.test:${listener.port}`);
    expect(listener.requests.map(({ headers }) => headers.authorization)).toEqual(
      Array(3).fill('Bearer from the plugin'),
    );
    expect(readFileSync(join(folder, 'runs'), 'utf8')).toBe('.');
  });

  test('is shown no certificate of the client, the server behind it is', async () => {
    const { listener } = await serve();
    const { place } = await proxyTo(listener.port);
    const user = {
      'client-certificate': keyPath('other', 'crt'),
      'client-key': keyPath('other', 'key'),
    };
    const through = { ...far(listener.port), 'proxy-url': `http://${place}` };
    expect((await connectTo(listener, user, through).ask(request())).status).toBe(200);
    expect(listener.clients).toEqual(['other.test']);
  });

  test('that NO_PROXY leaves out is not asked', async () => {
    const { listener } = await serve();
    const { asked, place } = await proxyTo(listener.port);
    vi.stubEnv('HTTPS_PROXY', place);
    vi.stubEnv('NO_PROXY', '.test');
    const connection = connectTo(listener, { token: 'any' }, far(listener.port));
    await expect(connection.ask(request())).rejects.toThrow('kubernetes.test'); // has no address
    const loopback = connectTo(listener, { token: 'any' });
    expect((await loopback.ask(request())).status).toBe(200);
    expect(asked).toEqual([]);
  });
});

// As in a pod: the files of its service account are where a pod has them, in a mount namespace.

const run = promisify(execFile);
const isRoot = process.getuid?.() === 0;
const unshare = ['unshare', ...(isRoot ? [] : ['--user', '--map-root-user']), '--mount'];
const there = '/var/run/secrets/kubernetes.io/serviceaccount';
const enter = `mount -t tmpfs none /var/run && mkdir -p ${there} && cp "$0"/* ${there} &&
  exec "$@"`;

/** Runs a command with the files of a folder as those of its service account. */
const inPod = (files: string, command: readonly string[], env: Record<string, string>) =>
  run('env', [...unshare, 'sh', '-c', enter, files, ...command], { env });

const reason = await inPod(import.meta.dirname, ['true'], { PATH: process.env.PATH ?? '' }).then(
  () => null,
  String,
);
if (reason !== null) console.warn(`Left out: a connection in a pod (${reason})`);

describe.skipIf(reason !== null && process.env.NETNS_TESTS !== 'required')('in a pod', () => {
  const source = (name: string) =>
    JSON.stringify(join(import.meta.dirname, '../../../../src/cluster/api/transport', name));
  const script = `
    import { writeFileSync } from 'node:fs';
    import { createConnection } from ${source('connection.ts')};
    import { openAccount } from ${source('kubeconfig.ts')};
    const connection = createConnection(openAccount({ kubeconfig: null, context: null }), () => 0);
    const { signal } = new AbortController();
    const request = { path: '/version', query: {}, accept: 'application/json', signal };
    for (const token of ['second', 'third']) {
      console.log((await connection.ask(request)).status);
      writeFileSync('${there}/token', token);
    }
    connection.close();`;
  const command = [process.execPath, '--input-type=module', '-e', script];
  const base = { PATH: process.env.PATH ?? '', HOME: '/nonexistent' };

  test('its account is taken, and the token that the kubelet puts in place of it', async () => {
    const tokens = ['first', 'second'];
    const { listener } = await serve({
      token: () => tokens[Math.min(listener.requests.length - 1, 1)] ?? '',
    });
    file('token', 'first');
    file('ca.crt', readFileSync(keyPath('server', 'crt')));
    file('namespace', 'monitoring');
    const place = {
      KUBERNETES_SERVICE_HOST: '127.0.0.1',
      KUBERNETES_SERVICE_PORT: String(listener.port),
    };
    const { stdout } = await inPod(folder, command, { ...base, ...place });
    expect(stdout).toBe('200\n200\n');
    expect(listener.requests.map(({ headers }) => headers.authorization)).toEqual([
      'Bearer first',
      'Bearer first',
      'Bearer second',
    ]);
  });

  test('without the address of the API server, that is said', async () => {
    file('token', 'first');
    file('ca.crt', '');
    const without = inPod(folder, command, { ...base, KUBERNETES_SERVICE_HOST: '127.0.0.1' });
    await expect(without).rejects.toThrow('KUBERNETES_SERVICE_PORT');
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

/** Writes 8 MiB as fast as the reader takes them, from a process of its own. */
const fastServer = `
  const server = require('node:http').createServer((request, response) => {
    const chunk = Buffer.alloc(4096, 'a');
    let left = 2048;
    const write = () => {
      while (left-- > 0) if (!response.write(chunk)) return response.once('drain', write);
      response.end();
    };
    write();
  });
  server.listen(0, '127.0.0.1', () => console.log(server.address().port));`;

test('one turn of the event loop reads a part of what has arrived', async () => {
  const child = spawn(process.execPath, ['-e', fastServer], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  closing.push(() => void child.kill());
  const [port] = (await once(child.stdout, 'data')) as [Buffer];
  const server = `http://127.0.0.1:${port.toString().trim()}`;
  const connection = connectTo({ port: 0 }, {}, { server, 'certificate-authority': undefined });
  const { body } = await connection.ask(request());
  const read = { all: 0, turn: 0, most: 0 };
  const endTurn = () => {
    read.turn = 0;
    next = setImmediate(endTurn);
  };
  let next = setImmediate(endTurn);
  closing.push(() => clearImmediate(next));
  for await (const chunk of body) {
    read.all += chunk.length;
    read.turn += chunk.length;
    read.most = Math.max(read.most, read.turn);
    // Longer than it takes to send, so that there is always more to read.
    for (const until = performance.now() + 2; performance.now() < until;);
  }
  expect(read.all).toBe(8 * 1024 * 1024);
  // A turn ends with the chunk that exceeds 128 KiB.
  expect(read.most).toBeLessThan(192 * 1024);
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
    environment: connection,
    held: (resource) => heldIn(store, resource),
    deliver(entries) {
      for (const entry of entries) if (entry.kind === 'event') store.apply(entry.event);
    },
    onProblem: (problem) => expect(problem).toBeNull(),
    endpoints: true,
    namespaces: null,
    watchList: true,
    raw: false,
  });
  const controller = new AbortController();
  const run = reflectors.run(controller.signal);
  const until = (isSo: () => boolean) => expect.poll(isSo).toBe(true);
  const allSynced = () => [...reflectors.status.values()].every(({ state }) => state === 'synced');
  await until(allSynced);
  expect(store.listers.pods.size).toBe(700);
  expect(reflectors.status.get('pods')?.counters.pages).toBe(protocols === 'h2' ? 0 : 2);
  server.objects.remove('pods', 'shop/pod-1');
  await until(() => store.listers.pods.size === 699);
  listener.drop();
  server.objects.remove('pods', 'shop/pod-2');
  await until(() => store.listers.pods.size === 698);
  await until(allSynced);
  controller.abort();
  await run;
  await until(() => server.watches.size === 0);
});
