// The agent as a program: what it says where it cannot begin.

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

import { expect, test } from 'vitest';

const program = join(import.meta.dirname, '../src/agent-main.ts');

test.each([
  [{ listen: { host: '127.0.0.1', port: 0 }, proxyConfig: '/nowhere' }, / ERROR \/nowhere: /],
  [{ listen: { host: null, port: 0 } }, / ERROR Listening beyond loopback needs --token-file/],
])('%j', (options, message) => {
  const ended = spawnSync(process.execPath, [program, JSON.stringify(options)]);
  expect(ended.status).toBe(2);
  expect(ended.stderr.toString()).toMatch(message);
});
