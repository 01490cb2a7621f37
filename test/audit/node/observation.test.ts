// What dumps tell of a node together.

import { join } from 'node:path';

import { expect, test } from 'vitest';

import { observeDumps } from '../../../src/audit/node/observation.ts';
import { readRulesDump } from '../../../src/rules/parse/rules-dump.ts';
import { readBytes } from '../../nodes/folder.ts';

const path = join(import.meta.dirname, '../../nodes/recordings/main');
const dump = (name: string) => readRulesDump(readBytes(join(path, name))?.toString() ?? '', null);
const node = { addresses: ['172.18.0.2', 'fd00:18::2'] };

test.each([
  ['nothing', [], [], 'iptables', 0],
  ['one family', ['iptables-nft/node-a/iptables-save.txt'], ['IPv4'], 'iptables', 1],
  ['nft tells of both', ['nftables/node-a/nft.json'], ['IPv4', 'IPv6'], 'nftables', 1],
])('%s', (_, names, families, mode, least) => {
  const sight = observeDumps(names.map(dump), node, 36);
  expect([...sight.families].sort()).toEqual(families);
  expect(sight.config).toMatchObject({ mode, minor: 36 });
  expect(sight.rules.frontends.length).toBeGreaterThanOrEqual(least);
  expect(sight.rules.localAddresses).toEqual(node.addresses);
});

test('a dump that could not be read is passed over', () => {
  expect([...observeDumps([null], node, 36).families]).toEqual([]);
});
