import { expect, test } from 'vitest';

import { WrongType } from '../../../src/cluster/decode/json-fields.ts';
import { readNodeConfig, readNodeRules } from '../../../src/cluster/decode/entry.ts';

const rules = { node: 'node-a', tool: 'iptables-save', family: 'IPv4', text: '*nat' };

test('a configuration with two networks is read as an entry of its node', () => {
  const fields = { node: 'node-a', mode: 'nftables', clusterCIDR: '10.0.0.0/16,fd00::/48' };
  expect(readNodeConfig(fields, 7)).toEqual({
    kind: 'node-config',
    at: 7,
    node: 'node-a',
    mode: 'nftables',
    clusterCIDRs: ['10.0.0.0/16', 'fd00::/48'],
  });
});

test('a dump is as old as its beginning, and may be the same as the last', () => {
  expect(readNodeRules({ ...rules, at: 6 }, 7)).toMatchObject({ at: 7, dumpedAt: 6, text: '*nat' });
  const same = { ...rules, text: undefined, unchanged: true };
  expect(readNodeRules(same, 7)).toMatchObject({ at: 7, dumpedAt: 7, text: null });
});

test.each([
  ['mode', () => readNodeConfig({ node: 'node-a', mode: 'userspace' }, 7)],
  ['node', () => readNodeConfig({ mode: 'iptables' }, 7)],
  ['family', () => readNodeRules({ ...rules, family: 'IPX' }, 7)],
  ['text', () => readNodeRules({ ...rules, text: undefined }, 7)],
])('%s is wrong', (field, read) => {
  expect(read).toThrow(WrongType);
  expect(read).toThrow(expect.objectContaining({ field }));
});
