import { describe, expect, test } from 'vitest';

import {
  componentOf,
  keyOf,
  readElement,
  selectorOf,
  tagOf,
  verdictOf,
} from '../../../src/rules/parse/nft-expression.ts';

describe('values', () => {
  test.each([
    [80, '', { low: 80, high: 80 }],
    ['10.0.0.1', '', { low: 0x0a000001, high: 0x0a000001 }],
    ['::1', 'ipv6_addr', { low: 1n, high: 1n }],
    ['tcp', 'inet_proto', { low: 6, high: 6 }],
    ['tcp', 'ifname', 'tcp'],
    ['ipv6', 'nfproto', { low: 10, high: 10 }],
    ['*', '', '*'],
    [{ prefix: { addr: '10.0.0.0', len: 8 } }, '', { low: 0x0a000000, high: 0x0affffff }],
    [{ range: [80, 90] }, '', { low: 80, high: 90 }],
    [{ range: ['10.0.0.1', '10.0.0.2'] }, '', { low: 0x0a000001, high: 0x0a000002 }],
    [{ elem: { val: 80, timeout: 5 } }, '', { low: 80, high: 80 }],
    [{ prefix: { addr: 'x', len: 8 } }, '', null],
    [{ payload: {} }, '', null],
    ['x', 'inet_service', null],
    [true, '', null],
  ])('%j of %j', (value, type, want) => {
    expect(componentOf(value, type)).toEqual(want);
  });

  test('are read as verdicts, and other statements as none', () => {
    expect(verdictOf({ goto: { target: 'x' } })).toEqual({ kind: 'goto', chain: 'x' });
    expect(verdictOf({ drop: null })).toEqual({ kind: 'drop' });
    expect(verdictOf({ queue: { num: 1 } })?.kind).toBe('unknown verdict');
    expect(verdictOf({ counter: null })).toBeNull();
    expect(tagOf({ drop: null })).toEqual(['drop', null, {}]);
    expect(tagOf([1])).toEqual(['', [1], {}]);
  });
});

describe('elements', () => {
  test('of verdict maps, with comment or without', () => {
    const type = ['ipv4_addr', 'inet_proto', 'inet_service'];
    const key = { concat: ['10.0.0.1', 'tcp', 80] };
    const plain = readElement([key, { drop: null }], type);
    const commented = readElement([{ elem: { val: key, comment: 'a' } }, { drop: null }], type);
    expect(plain).toEqual(commented);
    expect(plain).toMatchObject({ verdict: { kind: 'drop' }, data: null });
    expect(plain.key.length).toBe(3);
  });

  test('of maps have data, and those of sets have none', () => {
    const pair = readElement([0, { concat: ['10.0.0.1', 80] }], []);
    expect(pair).toMatchObject({ data: [0x0a000001, 80], verdict: null });
    expect(readElement('eth0', ['ifname'])).toEqual({ key: ['eth0'], verdict: null, data: null });
  });

  test('what cannot be read equals nothing', () => {
    expect(readElement({ odd: 1 }, ['ipv4_addr']).key).toEqual(['{"odd":1}']);
  });
});

describe('selectors', () => {
  test('ask for the protocol that they need', () => {
    const dport = selectorOf({ payload: { protocol: 'udp', field: 'dport' } });
    expect(dport?.field).toBe('destination port');
    expect(dport?.guards).toMatchObject([{ field: 'protocol', ranges: [{ low: 17, high: 17 }] }]);
    expect(selectorOf({ payload: { protocol: 'th', field: 'dport' } })?.guards).toEqual([]);
    const daddr = selectorOf({ payload: { protocol: 'ip6', field: 'daddr' } });
    expect(daddr?.guards).toMatchObject([{ field: 'nfproto', ranges: [{ low: 10, high: 10 }] }]);
  });

  test.each([
    { payload: { base: 'nh', offset: 0, len: 8 } },
    { meta: { key: 'skuid' } },
    { rt: {} },
    5,
  ])('%j is not modelled', (expression) => {
    expect(selectorOf(expression)).toBeNull();
    expect(keyOf(expression).key.kind).toBe('unknown');
  });

  test('of numgen and of joined fields are read as keys', () => {
    expect(keyOf({ numgen: { mode: 'random', mod: 3, offset: 1 } }).key).toEqual({
      kind: 'numgen',
      modulus: 3,
      offset: 1,
    });
    const { key } = keyOf({ concat: [{ meta: { key: 'iifname' } }, { ct: { key: 'state' } }] });
    expect(key).toEqual({ kind: 'fields', fields: ['in', 'state'] });
  });
});
