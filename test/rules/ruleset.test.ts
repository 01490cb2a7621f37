import { describe, expect, test } from 'vitest';

import type { Chain, Rule } from '../../src/rules/ruleset.ts';
import { chainsOf, DumpError, rulesOf, together } from '../../src/rules/ruleset.ts';

const table = (source: 'iptables' | 'nft', name: string) =>
  ({ family: 'ip', name, source, chains: chainsOf(new Map()), sets: new Map() }) as const;

describe('together', () => {
  test('takes from iptables what both show', () => {
    const own = { tables: [table('iptables', 'nat')] };
    const listing = { tables: [table('nft', 'nat'), table('nft', 'kube-proxy')] };
    const names = together([listing, own]).tables.map(({ source, name }) => `${source} ${name}`);
    expect(names).toEqual(['nft kube-proxy', 'iptables nat']);
  });

  test('keeps both backends of iptables', () => {
    const own = { tables: [table('iptables', 'nat')] };
    expect(together([own, { tables: [table('iptables', 'nat')] }]).tables.length).toBe(2);
  });
});

test('the rules of a chain are read once, when they are asked for', () => {
  let reads = 0;
  const read = (): readonly Rule[] => {
    reads++;
    return [{ statements: [], text: '', line: 1 }];
  };
  const chain: Chain = { name: 'x', base: null, place: 0, read, rules: null, index: null };
  expect(reads).toBe(0);
  for (let time = 0; time < 5; time++) expect(rulesOf(chain).length).toBe(1);
  expect(reads).toBe(1);
});

test('an error names line and text, and not all of a long one', () => {
  const error = new DumpError('not a rule', 7, 'x'.repeat(1000));
  expect(error.message).toBe(`Line 7: not a rule: ${'x'.repeat(200)}`);
  expect([error.name, error.line]).toEqual(['DumpError', 7]);
});
