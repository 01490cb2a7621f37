// A table's chains come back by name with all their rules, however their lines lie.

import { fc, test as property } from '@fast-check/vitest';
import { expect, test } from 'vitest';

import type { Spans } from '../../../src/rules/parse/lazy-chains.ts';
import { openChains } from '../../../src/rules/parse/lazy-chains.ts';
import type { Rule } from '../../../src/rules/ruleset.ts';
import { rulesOf } from '../../../src/rules/ruleset.ts';

/** Chains declared in this order, then one line for each of `lines`: the name of its chain. */
function chainsOf(declared: readonly string[], lines: readonly string[]) {
  const text = [...declared, ...lines].map((line) => `${line}\n`).join('');
  const reads: string[] = [];
  const read = (name: string, spans: Spans): readonly Rule[] => {
    reads.push(name);
    const rules: Rule[] = [];
    for (let span = 0; span < spans.length; span += 3) {
      const [start = 0, stop = 0, first = 0] = spans.slice(span, span + 3);
      for (const [at, line] of text.slice(start, stop).split('\n').entries()) {
        rules.push({ statements: [], text: line, line: first + at });
      }
    }
    return rules;
  };
  const chains = openChains(text, read);
  let at = 0;
  for (const name of declared) {
    chains.declare(at, at + name.length, null);
    at += name.length + 1;
  }
  const known = lines.map((name, line) => {
    const end = at + name.length;
    const taken = chains.addRule({ at, end, nameAt: at, nameEnd: end, number: line });
    at = end + 1;
    return taken !== null;
  });
  return { chains, known, reads };
}

const name = fc.stringMatching(/^[A-D]{1,4}$/);

property.prop([fc.uniqueArray(name, { maxLength: 200 }), fc.array(name, { maxLength: 300 })])(
  'each chain has its lines, in order, and no others',
  (declared, lines) => {
    const { known } = chainsOf(declared, lines);
    expect(known).toEqual(lines.map((line) => declared.includes(line)));
    // What follows an unknown chain's line is none of the dump: the reader stops there.
    const read = known.includes(false) ? lines.slice(0, known.indexOf(false)) : lines;
    const whole = chainsOf(declared, read).chains;
    expect([...whole.values()].map((chain) => chain.name)).toEqual(declared);
    for (const wanted of declared) {
      const chain = whole.get(wanted);
      const got = chain === undefined ? null : rulesOf(chain).map(({ line }) => line);
      expect(got).toEqual(read.flatMap((line, at) => (line === wanted ? [at] : [])));
    }
    for (const other of ['', 'E', 'AAAAA']) expect(whole.get(other)).toBeUndefined();
  },
);

test('a chain that is asked for often is read a few times, and one that is long once', () => {
  const long = Array<string>(1000).fill('LONG');
  const { chains, reads } = chainsOf(['SHORT', 'LONG'], ['SHORT', ...long]);
  const askTwenty = (wanted: string): number => {
    const before = reads.length;
    for (let time = 0; time < 20; time++) {
      const chain = chains.get(wanted);
      if (chain !== undefined) rulesOf(chain);
    }
    return reads.length - before;
  };
  expect(askTwenty('SHORT')).toBeLessThan(10);
  expect(askTwenty('LONG')).toBe(1);
  expect(chains.bases()).toEqual([]);
});
