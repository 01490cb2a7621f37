// The credential plugin of a kubeconfig: one run at a time, and its end.

import { chmodSync, existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { expect, test, vi } from 'vitest';

import { createExecPlugin } from '../../../../src/cluster/api/transport/exec-plugin.ts';

const folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-plugin-'));
const runs = join(folder, 'runs');

/** A shell script as a plugin, which counts its runs. */
function plugin(script: string, more: object = {}, signal = new AbortController().signal) {
  writeFileSync(runs, '');
  const args = ['-c', `echo run >> ${runs}; ${script}`];
  return createExecPlugin({ command: '/bin/sh', args, ...more }, 'info', folder, signal);
}

const count = (): number => readFileSync(runs, 'utf8').split('run').length - 1;

const print = (status: object): string => `echo '${JSON.stringify({ status })}'`;

test('requests at the same time share one run, and later ones its credentials', async () => {
  const { credentials, running } = plugin(`sleep 0.2; ${print({ token: 't' })}`);
  const both = [credentials(), credentials()];
  expect(running()).toBe('/bin/sh');
  expect(await Promise.all(both)).toMatchObject([{ token: 't' }, { token: 't' }]);
  expect(running()).toBeNull();
  await credentials();
  expect(count()).toBe(1);
});

test('credentials that have expired are not used again', async () => {
  const { credentials } = plugin(
    print({ token: 't', expirationTimestamp: '2020-01-01T00:00:00Z' }),
  );
  await credentials();
  await credentials();
  expect(count()).toBe(2);
});

test.each([
  ['exit 3', {}, 'the exec plugin /bin/sh failed (exit code 3)'],
  ['echo trace >&2; echo why >&2; exit 1', {}, 'failed (exit code 1): why'],
  ['kill -9 $$', {}, 'failed (SIGKILL)'],
  ['echo text', {}, 'the exec plugin did not print JSON'],
  ['echo {}', {}, 'printed no token and no certificate'],
  ['', { command: './missing' }, 'the exec plugin ./missing is not installed'],
  ['', { command: '/etc/passwd' }, 'the exec plugin /etc/passwd cannot run: '],
  ['', { command: '' }, 'the exec plugin has no command'],
])('%s %o is an error with its reason', async (script, more, message) => {
  const { credentials } = plugin(script, more);
  await expect(credentials()).rejects.toThrow(message);
  // The next request tries again.
  await expect(credentials()).rejects.toThrow(message);
});

test('a path is relative to the kubeconfig, and variables are passed', async () => {
  const path = join(folder, 'own.sh');
  writeFileSync(
    path,
    '#!/bin/sh\necho "{\\"status\\":{\\"token\\":\\"$A $KUBERNETES_EXEC_INFO\\"}}"',
  );
  chmodSync(path, 0o755);
  const { credentials } = plugin('', { command: './own.sh', env: [{ name: 'A', value: 'b' }] });
  expect((await credentials()).token).toBe('b info');
});

test('a plugin that runs ends with the program', async () => {
  const stop = new AbortController();
  const { credentials } = plugin('sleep 3600', {}, stop.signal);
  const asked = expect(credentials()).rejects.toThrow('was stopped');
  await expect.poll(count).toBe(1);
  stop.abort();
  await asked;
});

test('a plugin that hangs is one process, and is killed with its children after 60 s', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const path = join(folder, 'child');
  const { credentials, running } = plugin(`sleep 3600 & echo $! > ${path}; wait`);
  const asked = expect(credentials()).rejects.toThrow('did not answer within 60 s');
  const again = expect(credentials()).rejects.toThrow('did not answer within 60 s');
  try {
    await vi.waitUntil(() => existsSync(path) && readFileSync(path, 'utf8') !== '', {
      timeout: 60_000,
    });
    expect(count()).toBe(1);
    vi.advanceTimersByTime(60_000);
  } finally {
    vi.useRealTimers();
  }
  await Promise.all([asked, again]);
  expect(running()).toBeNull();
  const state = (): string => {
    const status = `/proc/${readFileSync(path, 'utf8').trim()}/status`;
    return existsSync(status) ? (/State:\t(\w)/.exec(readFileSync(status, 'utf8'))?.[1] ?? '') : '';
  };
  // Nothing may wait for a process whose parent is gone, as in a container without init.
  await expect.poll(state).toMatch(/^Z?$/);
});
