import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { isConfigured, openAccount } from '../../../../src/cluster/api/transport/kubeconfig.ts';

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'kubeconfig-'));
  for (const name of ['HTTPS_PROXY', 'https_proxy', 'HTTP_PROXY', 'http_proxy']) {
    vi.stubEnv(name, undefined);
  }
});

afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

function write(name: string, content: string): string {
  writeFileSync(join(folder, name), content);
  return join(folder, name);
}

const certificate = Buffer.from('a certificate').toString('base64');

function configWith(user: object | null, cluster: object = {}) {
  return JSON.stringify({
    'current-context': 'one',
    clusters: [
      {
        name: 'c',
        cluster: {
          server: 'https://10.0.0.1:6443',
          'certificate-authority-data': certificate,
          ...cluster,
        },
      },
    ],
    users: user === null ? [] : [{ name: 'u', user }],
    contexts: [
      { name: 'one', context: { cluster: 'c', user: 'u' } },
      { name: 'two', context: { cluster: 'none', user: 'u' } },
    ],
  });
}

const open = (content: string, context: string | null = null) =>
  openAccount({ kubeconfig: write('config', content), context });

describe('credentials', () => {
  test.each([
    ['a token', { token: 'abc' }, { Authorization: 'Bearer abc' }],
    ['a token file', { tokenFile: 'token' }, { Authorization: 'Bearer from the file' }],
    ['a name and a password', { username: 'a', password: 'b' }, { Authorization: 'Basic YTpi' }],
    ['no credentials', {}, {}],
    ['a context without its user', null, {}],
    [
      'someone else',
      { token: 'abc', as: 'eve' },
      { Authorization: 'Bearer abc', 'Impersonate-User': 'eve' },
    ],
    [
      'someone with groups',
      {
        token: 'abc',
        as: 'eve',
        'as-uid': '7',
        'as-groups': ['system:masters'],
        'as-user-extra': { 'a/b': ['c'] },
      },
      {
        Authorization: 'Bearer abc',
        'Impersonate-User': 'eve',
        'Impersonate-Uid': ['7'],
        'Impersonate-Group': ['system:masters'],
        'Impersonate-Extra-a%2Fb': ['c'],
      },
    ],
    ['groups without a user', { 'as-groups': ['a'] }, {}],
  ])('%s', async (_name, user, want) => {
    write('token', 'from the file\n');
    const { server, headers, tls, openProxy } = await open(configWith(user)).credentials();
    expect(headers).toEqual(want);
    expect(server).toBe('https://10.0.0.1:6443');
    expect(String(tls.ca)).toBe('a certificate');
    expect(await openProxy()).toBeNull();
  });

  test('plain HTTP, a proxy, another name and no check of certificates', async () => {
    const plain = await open(configWith({}, { server: 'http://localhost:8001' })).credentials();
    expect(plain.server).toBe('http://localhost:8001');
    const special = { 'proxy-url': 'http://proxy:3128', 'tls-server-name': 'kubernetes' };
    const proxied = await open(configWith({}, special)).credentials();
    expect(await proxied.openProxy()).not.toBeNull();
    expect(proxied.tls.servername).toBe('kubernetes');
    const socks = await open(configWith({}, { 'proxy-url': 'socks5://proxy:1080' })).credentials();
    expect(await socks.openProxy()).not.toBeNull();
    const careless = open(configWith({}, { 'insecure-skip-tls-verify': true }));
    expect((await careless.credentials()).tls.rejectUnauthorized).toBe(false);
  });

  test('a proxy of the environment is as good as one of the kubeconfig', async () => {
    vi.stubEnv('HTTPS_PROXY', 'proxy:3128');
    const isProxied = async (config: string) =>
      (await (await open(config).credentials()).openProxy()) !== null;
    expect(await isProxied(configWith({}))).toBe(true);
    vi.stubEnv('NO_PROXY', '10.0.0.0/8');
    expect(await isProxied(configWith({}))).toBe(false);
    const own = configWith({}, { 'proxy-url': 'http://other:3128' });
    expect(await isProxied(own)).toBe(true);
    vi.stubEnv('NO_PROXY', '');
    vi.stubEnv('HTTPS_PROXY', 'http://:x');
    expect(() => open(configWith({}))).toThrow('HTTPS_PROXY');
  });

  test('a token file is read again after a refresh', async () => {
    write('token', 'old');
    const account = open(configWith({ tokenFile: 'token' }));
    const tokenOf = async () => (await account.credentials()).headers.Authorization;
    expect(await tokenOf()).toBe('Bearer old');
    write('token', 'new');
    account.refresh(await account.credentials());
    expect(await tokenOf()).toBe('Bearer new');
  });

  test('a token file that is missing is an error of the request', async () => {
    const account = open(configWith({ tokenFile: 'gone' }));
    await expect(account.credentials()).rejects.toThrow('gone');
  });
});

describe('several files are read as kubectl reads them', () => {
  /** Files in $KUBECONFIG, each in a folder of its own. */
  const stub = (...files: (readonly [name: string, content: string])[]): void => {
    const paths = files.map(([name, content]) => {
      mkdirSync(join(folder, name));
      return write(join(name, 'config'), content);
    });
    vi.stubEnv('KUBECONFIG', [join(folder, 'missing'), ...paths].join(delimiter));
  };
  const config = (current: string | undefined, names: string, server: string, user = {}) =>
    JSON.stringify({
      'current-context': current,
      clusters: [{ name: names, cluster: { server } }],
      users: [{ name: names, user }],
      contexts: [{ name: names, context: { cluster: names, user: names } }],
    });
  const opened = (context: string | null = null) => openAccount({ kubeconfig: null, context });

  test('the first current context counts', () => {
    stub(['1', config('a', 'a', 'https://a')], ['2', config('b', 'b', 'https://b')]);
    expect(opened().server).toBe('https://a');
    expect(opened('b').server).toBe('https://b');
  });

  test('the first file may have no current context', () => {
    stub(['1', config(undefined, 'a', 'https://a')], ['2', config('b', 'b', 'https://b')]);
    expect(opened().server).toBe('https://b');
  });

  test('of two with one name the first counts', async () => {
    const [first, second] = [{ tokenFile: 'token' }, { token: 'second' }];
    stub(['1', config('k', 'k', 'https://a', first)], ['2', config('k', 'k', 'https://b', second)]);
    write('1/token', 'first');
    expect(opened().server).toBe('https://a');
    expect((await opened().credentials()).headers.Authorization).toBe('Bearer first');
    expect(() => opened('c')).toThrow('No context "c"; there are k (see --context)');
  });

  test('a plugin is in the folder of its file', async () => {
    const user = { exec: { command: './plugin' } };
    stub(['1', config('a', 'a', 'https://a')], ['2', config('b', 'b', 'https://b', user)]);
    const path = write('2/plugin', `#!/bin/sh\necho '{"status":{"token":"t"}}'`);
    chmodSync(path, 0o755);
    expect((await opened('b').credentials()).headers.Authorization).toBe('Bearer t');
  });
});

test('another cluster and user, and an impersonated user with groups', async () => {
  const config = JSON.parse(configWith({})) as Record<string, object[]>;
  config.clusters?.push({ name: 'other', cluster: { server: 'https://10.0.0.2:6443' } });
  config.users?.push({ name: 'other', user: { token: 'abc' } });
  const path = write('config', JSON.stringify(config));
  const openWith = (more: object) => openAccount({ kubeconfig: path, context: null, ...more });
  const account = openWith({ cluster: 'other', user: 'other', as: 'eve', asGroups: ['a', 'b'] });
  expect(account.server).toBe('https://10.0.0.2:6443');
  expect((await account.credentials()).headers).toEqual({
    Authorization: 'Bearer abc',
    'Impersonate-User': 'eve',
    'Impersonate-Group': ['a', 'b'],
  });
  const others = { as: 'eve', 'as-groups': ['c'] };
  const impersonated = open(configWith(others)).credentials();
  expect((await impersonated).headers).toMatchObject({ 'Impersonate-Group': ['c'] });
  const named = openAccount({ kubeconfig: path, context: null, as: 'adam' }).credentials();
  expect((await named).headers).toEqual({ 'Impersonate-User': 'adam', 'Impersonate-Group': ['c'] });
  write('config', JSON.stringify(config));
  expect(() => openWith({ cluster: 'no' })).toThrow(`${path}: No cluster "no"`);
  expect(() => openWith({ user: 'no' })).toThrow(`${path}: No user "no"`);
});

describe('what is wrong is named', () => {
  test.each([
    ['another', 'No context "another"; there are one, two (see --context)'],
    ['two', 'No cluster "none", which context "two" names'],
  ])('context %s', (context, message) => {
    const path = join(folder, 'config');
    expect(() => open(configWith({}), context)).toThrow(`${path}: ${message}`);
  });

  test.each(['10.0.0.1:6443', 'ftp://10.0.0.1', 'https://a:b'])('server %j', (server) => {
    const message = `server of cluster "c" is ${JSON.stringify(server)}, expected a URL such as`;
    expect(() => open(configWith({}, { server }))).toThrow(message);
  });

  test('no file, no YAML', () => {
    const path = join(folder, 'nowhere');
    expect(() => openAccount({ kubeconfig: path, context: null })).toThrow(
      /nowhere: Cannot read: no such file or directory$/,
    );
    expect(() => open('{')).toThrow(/config: /);
    expect(() => open('clusters: []')).toThrow(/Is no kubeconfig: it has no contexts/);
  });
});

test('without a file and outside of a pod, both are named', () => {
  vi.stubEnv('KUBECONFIG', join(folder, 'nowhere'));
  vi.stubEnv('KUBERNETES_SERVICE_HOST', '10.96.0.1');
  const openDefault = () => openAccount({ kubeconfig: null, context: null });
  expect(openDefault).toThrow(`no ${join(folder, 'nowhere')}, and not in a pod (/var/run/secrets/`);
});

test('a home folder is not required', () => {
  for (const name of ['HOME', 'KUBECONFIG', 'KUBERNETES_SERVICE_HOST']) vi.stubEnv(name, undefined);
  expect(isConfigured({})).toBe(false);
  const openDefault = () => openAccount({ kubeconfig: null, context: null });
  expect(openDefault).toThrow(
    'No cluster to connect to: no home with a .kube/config, and not in a pod',
  );
});

test('it is known whether there is anything to connect to', () => {
  const path = write('config', configWith({}));
  expect(isConfigured({ KUBECONFIG: path })).toBe(true);
  expect(isConfigured({ KUBECONFIG: join(folder, 'nowhere') })).toBe(false);
});
