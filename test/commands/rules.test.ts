import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

import { expect, test } from 'vitest';

import { givenRules } from '../../src/commands/rules.ts';

const folder = mkdtempSync(join(tmpdir(), 'rules-'));
const file = (name: string, bytes: string | Uint8Array): string => {
  writeFileSync(join(folder, name), bytes);
  return join(folder, name);
};

test('files are read, packed or not, with the configuration of their node or of all', async () => {
  const plain = file('a.txt', '*nat');
  const packed = file('b.txt.gz', gzipSync('*filter'));
  const own = file('own.yaml', 'mode: nftables');
  const all = file('all.yaml', 'mode: iptables');
  const given = await givenRules({
    rules: [
      { node: 'node-a', path: plain },
      { node: 'node-b', path: packed },
    ],
    proxyConfig: [
      { node: null, path: all },
      { node: 'node-b', path: own },
    ],
  });
  const kind = 'given-rules';
  expect(given).toEqual([
    { kind, node: 'node-a', source: plain, text: '*nat', config: { mode: 'iptables' } },
    { kind, node: 'node-b', source: packed, text: '*filter', config: { mode: 'nftables' } },
  ]);
});

test('a configuration that is no YAML names its file', async () => {
  const path = file('bad.yaml', 'mode: [');
  await expect(givenRules({ proxyConfig: [{ node: null, path }] })).rejects.toThrow(path);
});
