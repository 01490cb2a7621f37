// Every recorded dump comes back from what was read of it, and what is no dump is named.

import { basename } from 'node:path';
import { isDeepStrictEqual } from 'node:util';

import { describe, expect, test } from 'vitest';

import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import type { RuleSet } from '../../../src/rules/ruleset.ts';
import { DumpError, rulesOf } from '../../../src/rules/ruleset.ts';
import { foldersBelow, readBytes } from '../../nodes/folder.ts';
import { printIptables } from '../rulesets.ts';

const nodes = `${import.meta.dirname}/../../nodes`;

const dumps = foldersBelow(nodes).flatMap((folder) =>
  ['iptables-save.txt', 'ip6tables-save.txt'].flatMap((name) => {
    const bytes = readBytes(`${folder}/${name}`);
    return bytes === null ? [] : [{ path: `${folder}/${name}`, bytes }];
  }),
);

/** All that was read, without where it was. */
const dataOf = ({ tables }: RuleSet): unknown =>
  tables.map(({ name, family, chains }) => ({
    name,
    family,
    chains: [...chains.values()].map((chain) => ({
      name: chain.name,
      base: chain.base,
      rules: rulesOf(chain).map(({ statements }) => statements),
    })),
  }));

describe('dumps of real nodes', () => {
  test('there are some', () => {
    expect(dumps.length).toBeGreaterThan(50);
  });

  test('come back from what was read', () => {
    for (const { path, bytes } of dumps) {
      const family = basename(path).startsWith('ip6') ? 'ip6' : 'ip';
      const read = parseIptablesSave(bytes, family);
      const again = parseIptablesSave(printIptables(read), family);
      const [got, want] = [dataOf(again), dataOf(read)];
      // Compares ten times as fast as toEqual, which then shows the difference.
      if (!isDeepStrictEqual(got, want)) expect(got, path).toEqual(want);
      const lines = bytes
        .toString()
        .split('\n')
        .filter((line) => line.startsWith('-A '));
      const rules = read.tables.flatMap(({ chains }) => [...chains.values()].flatMap(rulesOf));
      expect(rules.length, path).toBe(lines.length);
      const [texts, all] = [new Set(rules.map(({ text }) => text)), new Set(lines)];
      if (!isDeepStrictEqual(texts, all)) expect(texts, path).toEqual(all);
    }
  });
});

const dump = (...lines: string[]): string =>
  ['*nat', ':PREROUTING ACCEPT [0:0]', ':X - [0:0]', ...lines, 'COMMIT', ''].join('\n');

describe('form', () => {
  test('counters before rules, and rules of a chain apart', () => {
    const text = dump('[1:60] -A X -j ACCEPT', '-A PREROUTING -j X', '[2:3] -A X -j DROP');
    const chains = parseIptablesSave(text, 'ip').tables[0]?.chains;
    const chain = chains?.get('X');
    const rules = chain === undefined ? [] : rulesOf(chain);
    expect(rules.map(({ text, statements }) => [text, statements[0]?.kind])).toEqual([
      ['[1:60] -A X -j ACCEPT', 'accept'],
      ['[2:3] -A X -j DROP', 'drop'],
    ]);
  });

  test('rules in another order than their chains, and chains declared between rules', () => {
    const names = Array.from({ length: 40 }, (_, at) => `KUBE-SEP-${at}`);
    const declared = names.map((name) => `:${name} - [0:0]`);
    const rules = names.map((name, at) => `-A ${name} -p tcp -j MARK --set-xmark ${at}/0xff`);
    const text = dump(
      ...declared.slice(0, 10),
      ...['-A KUBE-SEP-7 -j DROP', '-A X -j DROP', '-A PREROUTING'],
      ...declared.slice(10),
      ...rules.toReversed(),
    );
    const chains = parseIptablesSave(text, 'ip').tables[0]?.chains;
    const textsOf = (name: string): string[] =>
      rulesOf(chains?.get(name) ?? expect.fail(name)).map((rule) => rule.text);
    for (const [at, name] of names.entries()) {
      expect(textsOf(name)).toEqual([...(at === 7 ? ['-A KUBE-SEP-7 -j DROP'] : []), rules[at]]);
    }
    expect(textsOf('PREROUTING')).toEqual(['-A PREROUTING']);
    expect(chains?.get('KUBE-SEP-')).toBeUndefined();
    const all = [...(chains?.values(/./) ?? [])].map(({ name }) => name);
    expect(all).toEqual(['PREROUTING', 'X', ...names]);
  });

  test('a base chain whose only rule translates is not the chain of an endpoint', () => {
    const text = dump('-A PREROUTING -p tcp -m tcp -j DNAT --to-destination 10.0.0.1:80');
    const chains = parseIptablesSave(text, 'ip').tables[0]?.chains;
    expect(chains?.get('PREROUTING')).toMatchObject({ base: { hook: 'prerouting' }, target: null });
  });

  test.each([
    ['-s 10.0.0.1/32', '10.0.0.1:80', true],
    ['-s 10.0.0.1/128', '10.0.0.1:80', false],
    ['-s 10.0.0.1/24', '10.0.0.1:80', false],
    ['-s 10.0.0.2/32', '10.0.0.1:80', false],
    ['-s fd00::1/128', '[fd00::1]:80', true],
    ['-s fd00::1/32', '[fd00::1]:80', false],
  ])('%s before a translation to %s: the target of an endpoint is %j', (source, to, expected) => {
    const goal = `-A X -p tcp -m tcp -j DNAT --to-destination ${to}`;
    const text = dump(`-A X ${source} -j RETURN`, goal);
    const chain = parseIptablesSave(text, 'ip').tables[0]?.chains.get('X');
    expect(chain?.target !== null).toBe(expected);
  });

  test('an empty dump has no tables', () => {
    expect(parseIptablesSave('', 'ip').tables).toEqual([]);
  });

  test('the nat hooks behind routing have the priority of source NAT', () => {
    const text = '*nat\n:POSTROUTING DROP [0:0]\nCOMMIT\n';
    const base = parseIptablesSave(text, 'ip').tables[0]?.chains.get('POSTROUTING')?.base;
    expect(base).toMatchObject({ hook: 'postrouting', priority: 100, type: 'nat', policy: 'drop' });
  });

  test.each([
    [dump('iptables: error'), 'Line 4: not a line of iptables-save: iptables: error'],
    [dump('-A Y -j DROP'), 'Line 4: a rule of a chain that is not declared: -A Y -j DROP'],
    [dump('-A X -m comment --comment "a'), 'Line 4: a quote without end'],
    [dump('-A X -m comment --comment "a\\"'), 'Line 4: a quote without end'],
    ['*nat\n:X', 'Line 2: a chain without a policy: :X'],
    ['*nat\n:X ACCEPT [0:0]\n', 'Line 2: a policy of a chain without a hook'],
    ['*nat\n:INPUT MAYBE [0:0]\n', 'Line 2: not a policy: :INPUT MAYBE'],
    ['*nat\n:X - [0:0]\n', 'the dump ends before COMMIT: *nat'],
    ['*nat\n*filter\n', 'Line 2: table nat has no COMMIT: *filter'],
    ['*arp\n', 'Line 1: not a table of iptables: *arp'],
    ['COMMIT\n', 'Line 1: COMMIT without a table'],
    ['-A X -j DROP\n', 'Line 1: a rule outside of a table: -A X -j DROP'],
    [':X - [0:0]\n', 'Line 1: a chain outside of a table'],
  ])('%j', (text, message) => {
    expect(() => parseIptablesSave(text, 'ip')).toThrow(DumpError);
    expect(() => parseIptablesSave(text, 'ip')).toThrow(message);
  });
});
