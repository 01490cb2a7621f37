// Credentials for agents that are replaced while the auditor runs.

import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import { problemText } from '../../../src/cluster/decode/problem.ts';
import { renewedCredentials } from '../../../src/commands/shared/cluster.ts';

test('a token that is replaced is read within half a minute, and a lost one is kept', () => {
  const agentsTokenFile = join(mkdtempSync(join(tmpdir(), 'credentials-')), 'token');
  writeFileSync(agentsTokenFile, 'one\n');
  const agents = { namespace: 'monitoring', name: 'agents' };
  const problems: string[] = [];
  let now = 1000;
  const credentials = renewedCredentials(
    { agents, agentsTokenFile },
    { monotonic: () => now },
    (problem) => problems.push(problemText(problem)),
  );
  const first = credentials();
  expect(first).toEqual({ token: 'one', tls: null });
  now += 31;
  expect(credentials()).toBe(first);
  writeFileSync(agentsTokenFile, 'two\n');
  now += 31;
  const second = credentials();
  expect(second.token).toBe('two');
  rmSync(agentsTokenFile);
  for (let times = 0; times < 3; times++) {
    now += 31;
    expect(credentials()).toBe(second);
  }
  expect(problems).toEqual([expect.stringMatching(/^Credentials for agents: ENOENT/)]);
});

const certificates = join(import.meta.dirname, '../../apiserver');
const goodCert = join(certificates, 'server.crt');
const goodKey = join(certificates, 'server.key');

test.each([
  ['agentsCa', { agentsCa: 'bad' }, 'certificate'],
  ['agentsCert', { agentsCert: 'bad', agentsKey: goodKey }, 'certificate'],
  ['agentsKey', { agentsCert: goodCert, agentsKey: 'bad' }, 'private key'],
])('%s without a valid PEM is an error, and the last correct file is kept', (name, named, kind) => {
  const bad = join(mkdtempSync(join(tmpdir(), 'credentials-')), 'pem');
  const agents = { namespace: 'monitoring', name: 'agents' };
  const flags = { agents, ...named, [name]: bad };
  const problems: string[] = [];
  let now = 1000;
  const create = () =>
    renewedCredentials(flags, { monotonic: () => now }, (it) => problems.push(problemText(it)));
  // node:tls would take an empty authority as all public ones.
  for (const text of ['', '\n', 'no PEM']) {
    writeFileSync(bad, text);
    expect(create).toThrow(`${bad} has no valid ${kind} in PEM`);
  }
  copyFileSync(name === 'agentsKey' ? goodKey : goodCert, bad);
  const credentials = create();
  const first = credentials();
  expect(first.tls).not.toBeNull();
  writeFileSync(bad, '');
  now += 31;
  expect(credentials()).toBe(first);
  expect(problems).toEqual([`Credentials for agents: ${bad} has no valid ${kind} in PEM`]);
});

test('a key of another certificate changes nothing until both match', () => {
  const folder = mkdtempSync(join(tmpdir(), 'credentials-'));
  const [agentsCert, agentsKey] = [join(folder, 'tls.crt'), join(folder, 'tls.key')];
  copyFileSync(goodCert, agentsCert);
  copyFileSync(goodKey, agentsKey);
  const agents = { namespace: 'monitoring', name: 'agents' };
  const problems: string[] = [];
  let now = 1000;
  const flags = { agents, agentsCert, agentsKey };
  const credentials = renewedCredentials(flags, { monotonic: () => now }, (it) =>
    problems.push(problemText(it)),
  );
  const first = credentials();
  copyFileSync(join(certificates, 'other.key'), agentsKey);
  now += 31;
  expect(credentials()).toBe(first);
  expect(problems).toEqual([
    `Credentials for agents: ${agentsKey} is not the key of the certificate`,
  ]);
  copyFileSync(join(certificates, 'other.crt'), agentsCert);
  now += 31;
  expect(credentials()).not.toBe(first);
});
