// Connections to an API server that fail, as people see them: real processes and real sockets on
// loopback. Each case prints its reason, and ends with exit code 2.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer as createHttp } from 'node:http';
import type { AddressInfo, Server } from 'node:net';
import { createServer as createTcp } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterEach, describe, expect, test } from 'vitest';

import { createServer, keyPath, listen, realClock } from '../apiserver/server.ts';
import { endProgram, freePort } from '../processes.ts';

const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-connection-'));
const closing: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

function kubeconfig(cluster: object, user: object = { token: 'secret' }): string {
  const path = join(mkdtempSync(join(folder, 'case-')), 'config');
  const content = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'c', cluster }],
    users: [{ name: 'u', user }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
    'current-context': 'x',
  };
  writeFileSync(path, JSON.stringify(content));
  return path;
}

interface Started {
  readonly child: ChildProcess;
  readonly texts: { out: string; err: string };
}

function start(...args: string[]): Started {
  const child = spawn(process.execPath, [main, ...args], { stdio: 'pipe' });
  const texts = { out: '', err: '' };
  child.stdout.on('data', (piece: Buffer) => (texts.out += piece.toString()));
  child.stderr.on('data', (piece: Buffer) => (texts.err += piece.toString()));
  closing.push(() => endProgram(child, 'SIGKILL'));
  return { child, texts };
}

async function run(...args: string[]) {
  const { child, texts } = start(...args);
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, ...texts };
}

async function portOf(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closing.push(() => server.close());
  return (server.address() as AddressInfo).port;
}

/** A server that accepts connections and never answers. */
const silentPort = (): Promise<number> =>
  portOf(createTcp((socket) => closing.push(() => socket.destroy())));

const htmlPort = (): Promise<number> =>
  portOf(
    createHttp((_request, response) => {
      response.setHeader('content-type', 'text/html').end('<html>Welcome</html>');
    }),
  );

const answerPort = (status: number): Promise<number> =>
  portOf(
    createHttp((_request, response) => {
      response.statusCode = status;
      response.setHeader('content-type', 'application/json');
      response.end(
        JSON.stringify({ kind: 'Status', code: status, message: 'no\u001b[31m\nforged' }),
      );
    }),
  );

const plain = async (port: Promise<number>) => ({ server: `http://127.0.0.1:${await port}` });

async function secure(more: object) {
  const listener = await listen(createServer(realClock).ask);
  closing.push(() => listener.close());
  return { server: `https://127.0.0.1:${listener.port}`, ...more };
}

const ca = { 'certificate-authority': keyPath('server', 'crt') };

const payload = Buffer.from(JSON.stringify({ exp: 1_700_000_000 })).toString('base64url');

const plugin = (script: string, more = {}) => ({
  exec: {
    apiVersion: 'client.authentication.k8s.io/v1',
    command: '/bin/sh',
    args: ['-c', script],
    interactiveMode: 'Never',
    ...more,
  },
});

const nowhere = async () => ({ server: `https://127.0.0.1:${await freePort()}` });

describe('audit prints why a cluster cannot be read, and exits with 2', () => {
  test.each<[string, () => Promise<object>, object | undefined, RegExp]>([
    [
      'a refused port',
      nowhere,
      undefined,
      /reach .*: connection refused\. Check the server address/,
    ],
    [
      'an unknown host',
      () => Promise.resolve({ server: 'https://no-such-host.invalid' }),
      undefined,
      /reach .*: (?:the host is unknown|the name server does not answer)/,
    ],
    [
      'a server that never answers',
      () => plain(silentPort()),
      undefined,
      /reach the API server .*: no answer within 3 s/,
    ],
    [
      'a certificate of an unknown authority',
      () => secure({}),
      undefined,
      /reach .*: the certificate is signed by an unknown authority\. Check certificate-authority/,
    ],
    [
      'a certificate for another host',
      () => secure({ ...ca, 'tls-server-name': 'elsewhere.test' }),
      undefined,
      /reach .*: the certificate is for .*, not for elsewhere\.test\. /,
    ],
    [
      'rejected credentials',
      () => plain(answerPort(401)),
      undefined,
      /read from .*: the credentials are rejected \(401 Unauthorized\)\. The token/,
    ],
    [
      'an expired token',
      () => plain(answerPort(401)),
      { token: `x.${payload}.y` },
      /read from .*: the token expired at 2023-11-14T22:13:20\.000Z\. /,
    ],
    [
      'an address of a web site',
      () => plain(htmlPort()),
      undefined,
      /read from .*: the answer is not that of a Kubernetes API server\. Check/,
    ],
    [
      'an address without an API',
      () => plain(answerPort(404)),
      undefined,
      /read from .*: the server answers 404 Not Found\. Check/,
    ],
    [
      'a server with an error',
      () => plain(answerPort(500)),
      undefined,
      /read from .*: the server answers 500 Internal Server Error \("no\\u001b\[31m"\)/,
    ],
    [
      'a plugin that fails',
      nowhere,
      plugin('echo trace; echo "no such account" >&2; exit 3'),
      /read from .*: the exec plugin \/bin\/sh failed \(exit code 3\): no such account/,
    ],
    [
      'a plugin that is missing',
      nowhere,
      plugin('', { command: 'no-such-plugin', installHint: 'Install it.' }),
      /read from .*: the exec plugin no-such-plugin is not installed\. Install it\./,
    ],
    [
      'a plugin that prints no credentials',
      nowhere,
      plugin('echo {}'),
      /read from .*: the exec plugin printed no token and no certificate/,
    ],
  ])('%s', async (_name, cluster, user, expected) => {
    const config = kubeconfig(await cluster(), user);
    const { code, out, err } = await run(
      'audit',
      '--kubeconfig',
      config,
      '--request-timeout',
      '3s',
    );
    expect(err).toMatch(expected);
    expect(err).not.toMatch(/secret|\nforged/);
    expect(err).toMatch(/^[\P{Cc}\n]*$/u);
    expect([code, out]).toEqual([2, '']);
  });

  test('a missing permission is named per resource', async () => {
    const cluster = await plain(answerPort(403));
    const { code, err } = await run('audit', '--kubeconfig', kubeconfig(cluster));
    expect(err).toContain('Not allowed to list services');
    expect(code).toBe(2);
  });

  test('a plugin that hangs is named, and killed with its children', async () => {
    const pids = join(mkdtempSync(join(folder, 'pids-')), 'pids');
    const script = `echo $$ > ${pids}; sleep 3600 & echo $! >> ${pids}; wait`;
    const config = kubeconfig(await nowhere(), plugin(script));
    const { code, err } = await run('audit', '--kubeconfig', config, '--request-timeout', '4');
    expect(err).toMatch(/no answer from the exec plugin \/bin\/sh yet \(up to 4 s\)/);
    expect(err).toMatch(/no answer from the exec plugin \/bin\/sh within 4 s/);
    expect(code).toBe(2);
    const [first = '', second = ''] = readFileSync(pids, 'utf8').trim().split('\n');
    for (const pid of [first, second]) {
      await expect.poll(() => stateOf(pid)).toMatch(/^(?:gone|Z)$/);
    }
  });
});

/** The state of a process as in /proc; `gone` without one. */
function stateOf(pid: string): string {
  const path = `/proc/${pid}/stat`;
  if (!existsSync(path)) return 'gone';
  return /\) (\w)/.exec(readFileSync(path, 'utf8'))?.[1] ?? '';
}

test.each([
  ['explain', 'service/web', '--namespace', 'shop'],
  ['record', join(folder, 'a.ndjson')],
])('%s gives up, too', async (...command) => {
  const config = kubeconfig(await nowhere());
  const ran = await run(...command, '--kubeconfig', config, '--request-timeout', '2s');
  expect(ran.err).toMatch(/connection refused\. Retrying \(up to 2 s\)\./);
  expect(ran.err).toMatch(/: connection refused\. Check the server address/);
  expect(ran.code).toBe(2);
});

test('credentials over plain HTTP produce a warning', async () => {
  const config = kubeconfig(await plain(answerPort(401)));
  const { err } = await run('audit', '--kubeconfig', config);
  expect(err).toMatch(/http:.* is not encrypted: anyone on the network can read the credentials/);
});

test.each(['SIGINT', 'SIGTERM'] as const)('%s ends an audit that waits', async (signal) => {
  const config = kubeconfig(await plain(silentPort()));
  const { child, texts } = start('audit', '--kubeconfig', config, '--request-timeout', '0');
  await expect.poll(() => texts.err).toContain('no answer yet (no time limit)');
  const ended = once(child, 'close');
  child.kill(signal);
  expect(await ended).toEqual([2, null]);
  expect(texts.err).toContain('Stopped before the first lists were complete');
});

describe('serve with an API server that dies and comes back', () => {
  const lines = ({ texts }: Started) => texts.err.trim().split('\n');

  test('reports each change once, in the log, at /readyz and on the page', async () => {
    const [api, port] = [await freePort(), await freePort()];
    const world = createServer(realClock);
    const up = () => listen(world.ask, { port: api });
    const config = kubeconfig({ server: `https://127.0.0.1:${api}`, ...ca });
    const started = start('serve', '--kubeconfig', config, '--listen', `127.0.0.1:${port}`);
    const get = async (path: string): Promise<string> => {
      const answer = await fetch(`http://127.0.0.1:${port}${path}`).catch(() => null);
      return answer === null ? '' : answer.text();
    };
    const refused = /^Cannot reach the API server since \S+Z \(connection refused\)$/m;
    await expect.poll(() => get('/readyz')).toMatch(refused);
    const first = await get('/');
    expect(first).toMatch(/Cannot reach the API server since [-\d]+ [\d:]+ UTC \(connection refu/);
    expect(first).toContain('Nothing has been read yet.');
    expect(first).not.toMatch(/1970|Not ready yet|data-state="live"/);
    const metric = /endpoint_auditor_watch_errors_total\{resource="version",reason="dial"\} [1-9]/;
    expect(await get('/metrics')).toMatch(metric);
    expect(JSON.parse(await get('/api/v1/status'))).toMatchObject({
      ready: false,
      lost: { reason: 'dial', message: 'connection refused' },
    });

    const listener = await up();
    await expect.poll(() => get('/readyz')).toBe('ok\n');
    expect(await get('/')).not.toContain('Cannot reach');
    await listener.close();
    await expect.poll(() => get('/')).toContain('The page shows the state at that time.');
    const lost = await get('/');
    expect(lost).toMatch(/data-state="lost"/);
    expect(lost).not.toMatch(/1970|Not ready yet/);
    expect(JSON.parse(await get('/api/v1/status'))).toMatchObject({ lost: { reason: 'dial' } });

    const again = await up();
    await expect.poll(() => get('/api/v1/status')).toContain('"lost":null');
    started.child.kill('SIGTERM');
    await once(started.child, 'close');
    await again.close();
    const server = `https://127.0.0.1:${api}`;
    const refusal = `Cannot reach the API server ${server}: connection refused.`;
    const lostNow = `Cannot reach the API server ${server}: `;
    const restored = `The API server ${server} answers again after`;
    // Each line begins with its time and level. A loaded machine may stop the process for seconds.
    const found = lines(started)
      .map((line) => line.replace(/^\S+Z (?:ERROR|WARN|INFO) +/, ''))
      .filter((line) => !line.includes('The process did not run for'));
    const known = (line: string) => [lostNow, restored].find((text) => line.startsWith(text));
    // The server may close a connection while it answers. That reason comes before the refusal.
    const changes = found.filter((line, index) => {
      const next = found[index + 1];
      return known(line) !== lostNow || next === undefined || known(next) !== lostNow;
    });
    expect(
      changes.map((line) => (line.startsWith(refusal) ? refusal : (known(line) ?? line))),
    ).toEqual([refusal, restored, refusal, restored]);
    expect(found.filter((line, index) => line === found[index - 1])).toEqual([]);
  });
});
