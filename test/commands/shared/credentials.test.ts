// Credentials for agents that are replaced while the auditor runs.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
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
