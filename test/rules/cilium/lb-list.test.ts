import { expect, test } from 'vitest';

import { isLbList, readLbList } from '../../../src/rules/cilium/lb-list.ts';
import { loadBalancerOf } from '../../../src/rules/cilium/load-balancer.ts';
import { readRulesDump } from '../../../src/rules/parse/rules-dump.ts';

const print = (lists: object): string => `${JSON.stringify(lists, null, 2)}\n`;

// A load balancer IP with affinity, source ranges and two backends; the second terminates.
const backends = {
  '192.0.2.1:80/TCP (0)': ['0.0.0.0:0 (4) (0) [LoadBalancer, sessionAffinity] '],
  '192.0.2.1:80/TCP (1)': ['10.244.0.1:8080/TCP (4) (1)'],
  '192.0.2.1:80/TCP (2)': ['10.244.0.2:8080/TCP (4) (2)'],
  '[fd00::6]:80/TCP/i (0)': ['[::]:0 (9) (0) [ClusterIP, non-routable] '],
  '[fd00::6]:80/TCP/i (1)': ['backend 7 not found'],
};
const frontends = {
  '192.0.2.1:80/TCP (0)': ['33554492 1[1] (4) [0xf0 0x0]'],
  '192.0.2.1:80/TCP (1)': ['2 0[0] (4) [0xf0 0x0]'],
  '192.0.2.1:80/TCP (2)': ['3 0[0] (4) [0xf0 0x0]'],
  '[fd00::6]:80/TCP/i (0)': ['0 1[0] (9) [0x0 0x20]'],
  '[fd00::6]:80/TCP/i (1)': ['7 0[0] (9) [0x0 0x20]'],
};
const reverse = { '4': ['192.0.2.1:80'], '9': ['[fd00::6]:80'] };
const ranges = { '198.51.100.0/24 (4)': [''] };
const all = [backends, frontends, reverse, ranges].map(print);

test('four outputs give addresses, counts, flags, reverse NAT and source ranges', () => {
  const { entries, families } = readLbList(all.join(''));
  const { frontends: found } = loadBalancerOf(entries);
  expect(families).toEqual(['IPv4', 'IPv6']);
  expect(found.get('192.0.2.1:80/tcp')).toMatchObject({
    ...{ kind: 'load balancer IP', routable: true, reversed: true, affinitySeconds: 60 },
    slots: new Map([['10.244.0.1:8080', 1]]),
    kept: new Set(['10.244.0.1:8080', '10.244.0.2:8080']),
    sources: { denied: false, ranges: [{ family: 'IPv4' }] },
    places: null,
  });
  expect(found.get('[fd00::6]:80/tcp/i')).toMatchObject({ twoScopes: true, reversed: true });
  expect([...(found.get('[fd00::6]:80/tcp/i')?.slots ?? [])]).toEqual([['', 1]]);
});

test('a frontend for all protocols is refused', () => {
  const text = all.join('').replaceAll('192.0.2.1:80/TCP', '192.0.2.1:80/ANY');
  expect(() => readLbList(text)).toThrow(/before 1\.17/);
});

const ids = {
  '2': ['TCP://10.244.0.1'],
  '3': ['TCP://10.244.0.2[zone-b]'],
  '8': ['UDP://fd00::9'],
};

test('the order of the outputs is free, and --backends may be among them', () => {
  const { entries } = readLbList([print(ids), ...all.toReversed()].join(''));
  expect(entries).toHaveLength(readLbList(all.join('')).entries.length);
});

test.each([0, 1, 2, 3])('an output without entries may be at position %i', (at) => {
  const others = all.slice(0, 3);
  const { entries } = readLbList(others.toSpliced(at, 0, '{}\n').join(''));
  expect(entries).toHaveLength(readLbList(all.join('')).entries.length - 1);
});

test('a node that lost all frontends has no entries, in both families', () => {
  const lost = '{}\n'.repeat(4);
  expect(isLbList(lost)).toBe(true);
  expect(readLbList(lost)).toEqual({ entries: [], families: ['IPv4', 'IPv6'] });
  expect(readLbList(`${'{}\n'.repeat(3)}${print(reverse)}`).entries).toHaveLength(2);
  expect(readLbList(`${lost}${print(ids)}`).entries).toEqual([]);
});

test('an output that is missing is an error that names its command', () => {
  const without = (at: number): string => all.toSpliced(at, 1).join('');
  expect(() => readLbList(without(0))).toThrow('cilium-dbg bpf lb list -o json');
  expect(() => readLbList(without(1))).toThrow('--frontends');
  expect(() => readLbList(without(2))).toThrow('--revnat');
  expect(() => readLbList(without(3))).toThrow('--source-ranges');
  expect(() => readLbList('{}\n'.repeat(3))).toThrow('cilium-dbg bpf lb list -o json');
});

test('frontends without entries do not agree with a list of their backends', () => {
  expect(() => readLbList(`${all.toSpliced(1, 1).join('')}{}\n`)).toThrow('--frontends');
  expect(() => readLbList(`${all.toSpliced(0, 1).join('')}{}\n`)).toThrow('list -o json');
});

test.each([
  ['has another address', { ...ids, '3': ['TCP://10.244.0.9'] }],
  ['is gone', { '2': ['TCP://10.244.0.1'] }],
  ['is new', { ...ids, '7': ['TCP://fd00::7'] }],
])('a backend that %s in --backends changed between two commands', (_, listed) => {
  expect(() => readLbList([...all, print(listed)].join(''))).toThrow('changed between two');
});

test('a slot without its backend, and other text, is an error', () => {
  const changed = print({ ...backends, '192.0.2.1:80/TCP (2)': undefined });
  expect(() => readLbList([changed, ...all.slice(1)].join(''))).toThrow('the backend of a slot');
  const strange = print({ ...frontends, '192.0.2.1:80/TCP (2)': ['3 0 (4)'] });
  expect(() => readLbList([all[0], strange, ...all.slice(2)].join(''))).toThrow('a frontend');
  expect(() => readLbList(`${all.join('')}{ "4": [`)).toThrow('expected the JSON');
});

test('a dump of rules is recognized as this output, and others are not', () => {
  expect(readRulesDump(all.join(''), null).maps?.length).toBe(12);
  expect(readRulesDump(all.toReversed().join(''), null).maps?.length).toBe(12);
  expect(isLbList('{"nftables": [{"metainfo": {}}]}')).toBe(false);
  expect(isLbList('{ "cilium_lb4_services_v2": [] }')).toBe(false);
});
