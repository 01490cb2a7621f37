import { describe, expect, test } from 'vitest';

import {
  askedBitsOf,
  hasExtension,
  readRule,
  setsMark,
} from '../../../src/rules/parse/nft-rule.ts';
import type { ElementSet, Match, Statement } from '../../../src/rules/ruleset.ts';
import { chainsOf } from '../../../src/rules/ruleset.ts';
import { evaluate } from '../../../src/rules/walk/match.ts';
import { stateOf } from '../rulesets.ts';

const set = (name: string, dynamic = false): ElementSet => ({
  name,
  elements: [],
  dynamic,
  timeoutSeconds: dynamic ? 60 : null,
  index: null,
});

const table = {
  family: 'ip',
  name: 't',
  source: 'nft',
  chains: chainsOf(new Map()),
  sets: new Map([
    ['s', set('s')],
    ['d', set('d', true)],
  ]),
  markBits: () => 0xf0,
} as const;

const read = (...expr: unknown[]): readonly Statement[] =>
  readRule({ chain: 'c', expr }, table).statements;

const saddr = { payload: { protocol: 'ip', field: 'saddr' } };
const mark = { meta: { key: 'mark' } };
const match = (left: unknown, right: unknown, op = '=='): unknown => ({
  match: { op, left, right },
});

describe('matches', () => {
  test.each([
    [match(saddr, '10.0.0.1'), { kind: 'field', field: 'source', negate: false }],
    [match(saddr, { set: ['10.0.0.1', '10.0.0.2'] }, '!='), { kind: 'field', negate: true }],
    [match(saddr, '@s'), { kind: 'lookup', negate: false }],
    [match(saddr, '@d', '!='), { kind: 'remembered', name: 'd', seconds: 60, negate: true }],
    [match(saddr, '@missing'), { kind: 'unknown' }],
    [
      match({ ct: { key: 'state' } }, ['established', 'related'], 'in'),
      { states: ['established', 'related'] },
    ],
    [match({ ct: { key: 'status' } }, 'dnat', 'in'), { kind: 'state', states: ['dnat'] }],
    [
      match({ fib: { result: 'type', flags: ['daddr'] } }, 'local'),
      { side: 'destination', types: ['local'] },
    ],
    [match({ fib: { result: 'oif', flags: ['saddr', 'iif'] } }, false), { kind: 'unknown' }],
    [match({ '&': [mark, 16384] }, 0, '!='), { field: 'mark', mask: 16384, negate: true }],
    [match({ '&': [mark, 16384] }, 16384), { mask: 16384, ranges: [{ low: 16384, high: 16384 }] }],
    [match({ meta: { key: 'iifname' } }, 'veth*'), { kind: 'interface', names: ['veth*'] }],
    [
      match({ meta: { key: 'pkttype' } }, 'multicast'),
      { kind: 'address type', types: ['multicast'] },
    ],
    [
      match({ numgen: { mode: 'inc', mod: 4, offset: 0 } }, 1, '<'),
      { kind: 'random', probability: 0.25 },
    ],
    [
      match({ '&': [{ ct: { key: 'status' } }, 'dnat'] }, 'dnat', '!='),
      { kind: 'state', states: ['dnat'], negate: true },
    ],
    [
      match({ ct: { key: 'ip daddr', dir: 'original' } }, '10.96.0.1'),
      { kind: 'field', field: 'original destination' },
    ],
    [
      match({ ct: { key: 'proto-dst', dir: 'original' } }, 80),
      { kind: 'field', field: 'original destination port' },
    ],
    [match({ ct: { key: 'ip daddr', dir: 'reply' } }, '10.96.0.1'), { kind: 'unknown' }],
    [match({ payload: { protocol: 'icmpv6', field: 'type' } }, 'nd-redirect'), { kind: 'never' }],
    [match({ payload: { protocol: 'ip', field: 'ttl' } }, 2, '<'), { kind: 'never' }],
    [match({ payload: { protocol: 'ip', field: 'ttl' } }, 60, '<'), { kind: 'unknown' }],
    [match({ meta: { key: 'skuid' } }, 0), { kind: 'unknown' }],
    [{ limit: { rate: 3 } }, { kind: 'unknown' }],
  ])('%j', (expression, want) => {
    expect(read(expression).at(-1)).toMatchObject(want);
  });

  test.each([
    match({ ct: { key: 'status' } }, 'dnat', '!='),
    match({ '&': [{ ct: { key: 'status' } }, 'dnat'] }, 'dnat', '!='),
    match({ ct: { key: 'direction' } }, 'reply', '!='),
  ])('%j asks for an entry of conntrack, in which it then is not', (expression) => {
    const holds = (entry: 'new' | 'none' | 'untracked'): boolean =>
      read(expression).every((one) => evaluate(one as Match, stateOf({ entry })) === 'yes');
    expect(holds('new')).toBe(true);
    expect(holds('none')).toBe(false);
    expect(holds('untracked')).toBe(false);
  });

  test.each([
    [match({ ct: { key: 'status' } }, 'dnat', '!'), 'no'],
    [match({ ct: { key: 'status' } }, ['snat', 'dnat'], '!'), 'no'],
    [match({ ct: { key: 'status' } }, 'snat', '!'), 'yes'],
    [match({ ct: { key: 'state' } }, ['established', 'related'], '!'), 'yes'],
    [match({ ct: { key: 'state' } }, ['established', 'new'], '!'), 'no'],
    // The status has other bits, too.
    [match({ ct: { key: 'status' } }, 'dnat', '=='), 'no'],
    [match({ ct: { key: 'status' } }, 'dnat', '!='), 'yes'],
  ])('%j of a new connection that is translated: %s', (expression, want) => {
    const answers = read(expression).map((one) =>
      evaluate(one as Match, stateOf({ entry: 'new', rewritten: true })),
    );
    expect(answers.every((answer) => answer === 'yes') ? 'yes' : 'no').toBe(want);
    expect(answers).not.toContain('unknown');
  });

  test('a state is had without an entry too', () => {
    const statements = read(match({ ct: { key: 'state' } }, ['established'], '!='));
    const state = stateOf({ entry: 'untracked' });
    expect(statements.map((one) => evaluate(one as Match, state))).toEqual(['yes']);
  });

  test('what nft asks without listing it: a protocol to reset, a family to translate', () => {
    const inet = { ...table, family: 'inet' } as const;
    const asked = (expression: unknown, where: typeof table | typeof inet = inet): unknown =>
      readRule({ chain: 'c', expr: [expression] }, where).statements[0];
    expect(asked({ reject: { type: 'tcp reset' } })).toMatchObject({ field: 'protocol' });
    expect(asked({ reject: { type: 'icmpv6' } })).toMatchObject({ ranges: [{ low: 10 }] });
    expect(asked({ reject: { type: 'icmp' } })).toMatchObject({ ranges: [{ low: 2 }] });
    const dnat = (family: string): unknown => ({ dnat: { family, addr: '10.0.0.1' } });
    expect(asked(dnat('ip'))).toMatchObject({ ranges: [{ low: 2 }] });
    expect(asked(dnat('ip6'))).toMatchObject({ ranges: [{ low: 10 }] });
    expect(asked(dnat('ip'), table)).toMatchObject({ kind: 'dnat' });
  });

  test('flags of TCP: in asks for one of them, == for exactly these', () => {
    const flags = { payload: { protocol: 'tcp', field: 'flags' } };
    expect(read(match(flags, 'syn', 'in')).at(-1)).toMatchObject({ mask: 2, negate: true });
    expect(read(match(flags, 'syn')).at(-1)).toMatchObject({ mask: 255, negate: false });
    const masked = match({ '&': [flags, ['syn', 'ack']] }, 'syn');
    expect(read(masked).at(-1)).toMatchObject({ mask: 18, ranges: [{ low: 2, high: 2 }] });
  });

  test.each([
    ['<', 80, 0, 79],
    ['<=', 80, 0, 80],
    ['>', 80, 81, 0xffffffff],
    ['>=', 80, 80, 0xffffffff],
  ])('%s %i', (op, value, low, high) => {
    const dport = { payload: { protocol: 'th', field: 'dport' } };
    expect(read(match(dport, value, op))).toMatchObject([{ ranges: [{ low, high }] }]);
  });
});

describe('statements', () => {
  test.each([
    [{ mangle: { key: mark, value: { '|': [mark, 16384] } } }, { keep: 0xffffbfff, flip: 16384 }],
    [{ mangle: { key: mark, value: { '^': [mark, 16384] } } }, { keep: 0xffffffff, flip: 16384 }],
    [{ mangle: { key: mark, value: { '&': [mark, 255] } } }, { keep: 255, flip: 0 }],
    [{ mangle: { key: mark, value: 1 } }, { keep: 0, flip: 1 }],
    [
      { mangle: { key: mark, value: { ct: { key: 'mark' } } } },
      { kind: 'copy mark', direction: 'restore' },
    ],
    [{ mangle: { key: mark, value: { meta: { key: 'priority' } } } }, { kind: 'unknown mark' }],
    [{ mangle: { key: { meta: { key: 'nftrace' } }, value: 1 } }, { kind: 'note' }],
    [{ mangle: { key: saddr, value: '10.0.0.1' } }, { kind: 'unknown verdict' }],
    [{ set: { op: 'update', elem: saddr, set: '@d' } }, { kind: 'remember', name: 'd' }],
    [{ set: { op: 'add', elem: saddr, set: '@d', stmt: [{ limit: {} }] } }, { kind: 'unknown' }],
    [{ vmap: { key: saddr, data: '@s' } }, { kind: 'verdict map' }],
    [{ vmap: { key: saddr, data: '@missing' } }, { kind: 'unknown verdict' }],
    [
      { dnat: { addr: '10.0.0.1', port: 80 } },
      { kind: 'dnat', to: { ports: { low: 80, high: 80 } } },
    ],
    [{ dnat: { addr: { map: { key: saddr, data: '@s' } }, port: 80 } }, { kind: 'dnat by map' }],
    [{ dnat: { addr: { odd: 1 } } }, { kind: 'dnat', to: null }],
    [{ snat: { addr: '10.0.0.1' } }, { kind: 'snat', to: { ports: null } }],
    [{ masquerade: null }, { kind: 'masquerade', random: false }],
    [{ masquerade: { flags: 'fully-random' } }, { kind: 'masquerade', random: true }],
    [{ redirect: { port: 8080 } }, { kind: 'redirect', ports: { low: 8080, high: 8080 } }],
    [{ reject: null }, { kind: 'reject' }],
    [{ reject: { type: 'tcp reset' } }, { kind: 'reject' }],
    [{ tproxy: { port: 1 } }, { kind: 'unknown verdict' }],
    [{ counter: 'hits' }, { kind: 'note' }],
    [{ xt: { type: 'match', name: 'comment' } }, { kind: 'note' }],
    [{ xt: { type: 'match', name: 'statistic' } }, { kind: 'unknown' }],
    [{ xt: { type: 'target', name: 'DNAT' } }, { kind: 'dnat', to: null }],
    [{ xt: { type: 'target', name: 'MARK' } }, { kind: 'unknown mark', bits: 0xf0 }],
    [{ xt: { type: 'target', name: 'MASQUERADE' } }, { kind: 'masquerade' }],
    [{ xt: { type: 'target', name: 'CT' } }, { kind: 'unknown verdict' }],
    [{ surprise: 1 }, { kind: 'unknown verdict' }],
  ])('%j', (expression, want) => {
    expect(read(expression).at(-1)).toMatchObject(want);
  });

  test('a table of one family is not asked for it, a mixed one is', () => {
    const raw = { chain: 'c', comment: 'why', handle: 9, expr: [match(saddr, '10.0.0.1')] };
    expect(readRule(raw, table).statements.length).toBe(1);
    const mixed = readRule(raw, { ...table, family: 'inet' });
    expect(mixed.statements.length).toBe(2);
    expect(mixed.text.startsWith('["why",')).toBe(true);
  });

  test('of iptables extensions show the mark bits that they read and set', () => {
    const asks = { chain: 'c', expr: [match({ '&': [mark, 8] }, 8), match(mark, 1)] };
    expect(askedBitsOf({ ...asks, expr: asks.expr.slice(0, 1) })).toBe(8);
    expect(askedBitsOf(asks)).toBe(0xffffffff);
    const sets = { chain: 'c', expr: [{ xt: { type: 'target', name: 'MARK' } }] };
    expect([hasExtension(sets), setsMark(sets), hasExtension(asks)]).toEqual([true, true, false]);
  });
});
