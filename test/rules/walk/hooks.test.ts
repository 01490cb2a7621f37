import { describe, expect, test } from 'vitest';

import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import { parseNft } from '../../../src/rules/parse/nft-ruleset.ts';
import type { RuleSet } from '../../../src/rules/ruleset.ts';
import { mergeRuleSets } from '../../../src/rules/ruleset.ts';
import type { BaseChain, Hooks } from '../../../src/rules/walk/hooks.ts';
import { hooksOf } from '../../../src/rules/walk/hooks.ts';

/** A listing of base chains, `table chain type hook priority`, each with one rule. */
function listing(...chains: string[]): RuleSet {
  const objects = chains.map((line) => line.split(' '));
  const tables = new Set(objects.map(([table]) => table));
  return parseNft(
    JSON.stringify({
      nftables: [
        ...[...tables].map((name) => ({ table: { family: 'inet', name } })),
        ...objects.flatMap(([table, name, type, hook, prio]) => [
          { chain: { family: 'inet', table, name, type, hook, prio: Number(prio) } },
          { rule: { family: 'inet', table, chain: name, expr: [{ drop: null }] } },
        ]),
      ],
    }),
  );
}

const chainsOf = (way: readonly BaseChain[]): string =>
  way.map(({ chain }) => chain.name).join(' ');

/** The orders of a hook, by names of chains; NAT is in brackets. */
const namesOf = (orders: Hooks['input']): string[] =>
  orders.map((order) =>
    order
      .map((station) =>
        station.table !== null ? station.chain.name : `[${station.orders.map(chainsOf).join('|')}]`,
      )
      .join(' '),
  );

describe('order', () => {
  test('by priority, and NAT where the kernel calls it', () => {
    const ruleset = listing(
      't late filter prerouting 0',
      't early nat prerouting -150',
      't mangle filter prerouting -150',
      't own nat prerouting -100',
    );
    expect(namesOf(hooksOf(ruleset, 'ip').prerouting)).toEqual(['mangle [early own] late']);
  });

  test('of one table the chain that was made last comes first', () => {
    const ruleset = listing('t a filter input 0', 't b filter input 0', 't c nat input 0');
    expect(namesOf(hooksOf(ruleset, 'ip6').input)).toEqual(['b a [c]']);
  });

  test('of chains of two tables with one priority is unknown', () => {
    const ruleset = listing('t a filter input 0', 'u b filter input 0', 't c filter input 1');
    expect(namesOf(hooksOf(ruleset, 'ip').input)).toEqual(['a b c', 'b a c']);
    const nat = listing('t a nat output -100', 'u b nat output -100');
    expect(namesOf(hooksOf(nat, 'ip').output)).toEqual(['[a b|b a]']);
  });

  test('many tables: each may be the first', () => {
    const names = ['a', 'b', 'c', 'd', 'e', 'f'];
    const ruleset = listing(...names.map((name) => `${name} ${name} filter input 0`));
    expect(namesOf(hooksOf(ruleset, 'ip').input).map((order) => order[0])).toEqual(names);
  });

  test('chains that do nothing and tables of the other family are no part of it', () => {
    const v4 = parseIptablesSave(
      '*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\nCOMMIT\n',
      'ip',
    );
    const ruleset = mergeRuleSets([v4, listing('t a filter input 0')]);
    expect(namesOf(hooksOf(ruleset, 'ip').input)).toEqual(['INPUT a', 'a INPUT']);
    expect(namesOf(hooksOf(ruleset, 'ip6').input)).toEqual(['a']);
    expect(namesOf(hooksOf(ruleset, 'ip').forward)).toEqual(['']);
  });
});
