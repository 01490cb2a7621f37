// TLS and logins of the web server over real sockets of the loopback interface.

import { mkdtempSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { get as plainGet } from 'node:http';
import { get as tlsGet, type RequestOptions } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'node:tls';

import { hashSync } from 'bcryptjs';
import { afterEach, expect, test, vi } from 'vitest';

import type { AuditorQueries } from '../../../src/auditor/queries.ts';
import { createApp, listen } from '../../../src/output/http/server.ts';
import {
  createAccessCheck,
  readWebConfig,
  type WebConfig,
  watchWebConfig,
} from '../../../src/output/http/web-config.ts';

const certificates = join(import.meta.dirname, '../../apiserver');
const pem = (name: string): string => readFileSync(join(certificates, name), 'utf8');
const folder = mkdtempSync(join(tmpdir(), 'web-config-'));

function fileOf(text: string): string {
  const path = join(folder, 'web.yaml');
  writeFileSync(path, text);
  return path;
}

const hash = hashSync('secret', 4);
const users = `basic_auth_users:\n  prometheus: ${hash}\n`;
const tls = `tls_server_config:
  cert_file: ${certificates}/server.crt
  key_file: ${certificates}/server.key
`;
const mutual = `${tls}  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ${certificates}/other.crt
`;

const answers = {
  stuck: () => null,
  notReady: () => null,
  nodes: () => [],
  beat: () => ({ revision: '', now: 0, lost: null }),
} as unknown as AuditorQueries;

let config: WebConfig;
let server: Awaited<ReturnType<typeof listen>> | null = null;

afterEach(async () => {
  vi.useRealTimers();
  await server?.close();
  server = null;
});

async function serve(text: string): Promise<void> {
  config = readWebConfig(fileOf(text));
  const app = createApp(answers, { config: () => config });
  server = await listen(app, { host: '127.0.0.1', port: 0 }, config.tls);
}

function ask(path: string, more: RequestOptions = {}): Promise<IncomingMessage> {
  const get = config.tls === null ? plainGet : tlsGet;
  const options = { host: '127.0.0.1', port: server?.port, path, agent: false, ...more };
  const ca = pem('server.crt');
  return new Promise((resolve, reject) => {
    get({ ca, servername: 'localhost', ...options }, (response) => {
      response.resume();
      resolve(response);
    }).on('error', reject);
  });
}

const statusOf = async (path: string, more?: RequestOptions): Promise<number | undefined> =>
  (await ask(path, more)).statusCode;

test('a login is required everywhere but at the probes', async () => {
  await serve(users);
  for (const path of ['/', '/metrics', '/api/v1/nodes', '/api/v1/events', '/assets/x', '/x']) {
    const { statusCode, headers } = await ask(path);
    expect([path, statusCode, headers['www-authenticate']]).toEqual([
      ...[path, 401, 'Basic realm="endpoint-auditor"'],
    ]);
  }
  for (const path of ['/livez', '/healthz', '/readyz']) expect(await statusOf(path)).toBe(200);
});

test.each([
  ['prometheus:secret', 200],
  ['prometheus:secret', 200],
  ['prometheus:secre', 401],
  ['prometheus:', 401],
  ['other:secret', 401],
  [':', 401],
  [`prometheus:${'x'.repeat(100)}`, 401],
])('the login %s has the status %d', async (auth, status) => {
  await serve(users);
  for (let times = 0; times < 3; times++) {
    expect(await statusOf('/api/v1/nodes', { auth })).toBe(status);
  }
});

/** What a client at an address may do with a password. */
const accessWith = (
  check: ReturnType<typeof createAccessCheck>,
  password: string,
  client = '::1',
) => {
  const authorization = `Basic ${Buffer.from(`prometheus:${password}`).toString('base64')}`;
  const request = { socket: { remoteAddress: client }, headers: { authorization } };
  return check(readWebConfig(fileOf(users)), request as unknown as IncomingMessage);
};

test('a right login stays known after many wrong ones', async () => {
  const check = createAccessCheck();
  expect(await accessWith(check, 'secret')).toBe('allowed');
  for (let at = 0; at < 150; at++) expect(await accessWith(check, `${at}`)).toBe('refused');
  // A comparison needs several turns.
  const turn = new Promise((resolve) => setImmediate(resolve, 'later'));
  expect(await Promise.race([accessWith(check, 'secret'), turn])).toBe('allowed');
});

test('logins that wait for their comparison are limited, in all and for each client', async () => {
  const check = createAccessCheck();
  const same = Array.from({ length: 100 }, () => accessWith(check, 'secret'));
  const ofOne = Array.from({ length: 100 }, (_, at) => accessWith(check, `${at}`));
  expect(new Set(await Promise.all(same))).toEqual(new Set(['allowed']));
  expect((await Promise.all(ofOne)).filter((it) => it === 'refused')).toHaveLength(7);
  const ofMany = Array.from({ length: 100 }, (_, at) => accessWith(check, `x${at}`, `::${at}`));
  expect((await Promise.all(ofMany)).filter((it) => it === 'refused')).toHaveLength(64);
  expect(await accessWith(check, 'other')).toBe('refused');
});

test.each(['Bearer secret', 'Basic', 'Basic ???', `Basic ${'A'.repeat(9999)}`])(
  'the header %s is no login',
  async (authorization) => {
    await serve(users);
    expect(await statusOf('/api/v1/nodes', { headers: { authorization } })).toBe(401);
  },
);

test('with TLS, a client certificate is required everywhere but at the probes', async () => {
  await serve(mutual);
  const other = { cert: pem('other.crt'), key: pem('other.key') };
  const own = { cert: pem('server.crt'), key: pem('server.key') };
  const statuses = [undefined, own, other].map((more) => statusOf('/api/v1/nodes', more));
  expect(await Promise.all(statuses)).toEqual([401, 401, 200]);
  expect(await statusOf('/livez')).toBe(200);
});

test('a changed file is used without a restart, and one that is wrong is not', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  await serve(tls + users);
  const errors: string[] = [];
  const path = join(folder, 'web.yaml');
  const end = watchWebConfig(
    path,
    (next) => {
      config = next;
      server?.renew(next.tls);
    },
    (text) => errors.push(text),
  );
  const auth = 'prometheus:secret';
  expect(await statusOf('/api/v1/nodes', { auth })).toBe(200);
  fileOf('tls_server_config: [');
  vi.advanceTimersByTime(20_000);
  expect(errors).toHaveLength(1);
  expect(await statusOf('/api/v1/nodes', { auth })).toBe(200);
  fileOf(tls.replaceAll('server.', 'other.') + users.replace(hash, hashSync('next', 4)));
  vi.advanceTimersByTime(10_000);
  const socket = connect({ host: '127.0.0.1', port: server?.port ?? 0, ca: pem('other.crt') });
  await new Promise((resolve) => socket.once('secureConnect', resolve));
  socket.destroy();
  const ca = pem('other.crt');
  expect(await statusOf('/api/v1/nodes', { auth, ca })).toBe(401);
  expect(await statusOf('/api/v1/nodes', { auth: 'prometheus:next', ca })).toBe(200);
  end();
});

test.each([
  ['', /Has none of/],
  [tls, /basic_auth_users is gone/],
  [tls + users, /client_ca_file is gone/],
  [users, /tls_server_config is gone/],
  ['#'.repeat(1_000_001), /larger than/],
])('a file that becomes %.20j keeps logins and TLS', (text, message) => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const path = fileOf(mutual + users);
  const onChange = vi.fn();
  const errors: string[] = [];
  const end = watchWebConfig(path, onChange, (error) => errors.push(error));
  fileOf(text);
  vi.advanceTimersByTime(30_000);
  expect(errors).toEqual([expect.stringMatching(message)]);
  fileOf(mutual + users);
  vi.advanceTimersByTime(10_000);
  expect(onChange).not.toHaveBeenCalled();
  fileOf(mutual + users.replace(hash, hashSync('next', 4)));
  vi.advanceTimersByTime(10_000);
  expect(onChange).toHaveBeenCalledOnce();
  end();
});

test('TLS that is added needs a restart, which is said', () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const onChange = vi.fn();
  const errors: string[] = [];
  const end = watchWebConfig(fileOf(users), onChange, (error) => errors.push(error));
  fileOf(tls + users);
  vi.advanceTimersByTime(30_000);
  expect(errors).toEqual([expect.stringMatching(/tls_server_config is new; only a restart/)]);
  expect(onChange).not.toHaveBeenCalled();
  end();
});

test('a certificate that is too large is refused', () => {
  const path = join(folder, 'large.crt');
  writeFileSync(path, '');
  truncateSync(path, 1_000_001);
  const text = tls.replace(`${certificates}/server.crt`, path);
  expect(() => readWebConfig(fileOf(text))).toThrow(/larger than/);
});

test.each([
  ['cert_file', 'server.crt', 'certificate'],
  ['key_file', 'server.key', 'private key'],
  ['client_ca_file', 'other.crt', 'certificate'],
])(
  'a %s without anything in it is refused, and at a reload changes nothing',
  async (field, name, kind) => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    const path = join(folder, name);
    const text = mutual.replace(`${field}: ${certificates}/${name}`, `${field}: ${name}`);
    const message = `${field} ${name} has no valid ${kind} in PEM`;
    for (const wrong of ['', '\n', 'x', pem(name).slice(0, 200)]) {
      writeFileSync(path, wrong);
      expect(() => readWebConfig(fileOf(text))).toThrow(`${join(folder, 'web.yaml')}: ${message}`);
    }
    writeFileSync(path, pem(name));
    await serve(text);
    const errors: string[] = [];
    const onChange = (next: WebConfig): void => {
      server?.renew(next.tls);
      config = next;
    };
    const end = watchWebConfig(join(folder, 'web.yaml'), onChange, (error) => errors.push(error));
    const before = config;
    writeFileSync(path, '');
    vi.advanceTimersByTime(10_000);
    expect(errors).toEqual([expect.stringContaining(message)]);
    expect(config).toBe(before);
    const other = { cert: pem('other.crt'), key: pem('other.key') };
    expect(await statusOf('/api/v1/nodes', other)).toBe(200);
    end();
  },
);

test.each([
  ['', /Has none of tls_server_config, basic_auth_users/],
  ['basic_auth_users: {}', /Has none of tls_server_config, basic_auth_users/],
  ['a: b', /a is not supported/],
  ['[]', /not an object/],
  ['basic_auth_users: { a: secret }', /the password of a is no bcrypt hash/],
  ['tls_server_config: { cert_file: x }', /no such file/],
  [`tls_server_config: { cert_file: ${certificates}/server.crt }`, /key_file/],
  [`${tls}  min_version: SSL30`, /one of TLS12, TLS13/],
  [`${tls}  client_auth_type: RequestClientCert`, /one of NoClientCert/],
  [`${tls}  client_auth_type: RequireAndVerifyClientCert`, /client_ca_file/],
  [`${tls}  cipher_suites: []`, /cipher_suites is not supported/],
])('%j is refused', (text, message) => {
  expect(() => readWebConfig(fileOf(text))).toThrow(message);
  expect(() => readWebConfig(fileOf(text))).toThrow(join(folder, 'web.yaml'));
});
