// The edits of two faults applied to the same dump.

import { describe, expect, test } from 'vitest';

import { applyBoth, dumpEdits, editsBetween } from './pairs.ts';

const name = 'iptables-save.txt';
const linesOf = (text: string): string[] => Array.from(text);

const dumpOf = (text: string) => ({ [name]: linesOf(text) });
const both = (base: string, first: string, second: string): string | null => {
  const edits = [first, second].map((text) => dumpEdits(dumpOf(base), dumpOf(text)));
  const [one = {}, other = {}] = edits;
  return applyBoth(dumpOf(base), one, other)?.[name]?.join('') ?? null;
};

describe('two dumps of one base', () => {
  test.each([
    ['abcdef', 'abXdef', 'abcdeY', 'abXdeY'],
    ['abcdef', 'bcdef', 'abcdfg', 'bcdfg'],
    ['abcdef', 'abcZZdef', 'abcdef', 'abcZZdef'],
    ['abcdef', 'Nabdef', 'Nabcde', 'Nabde'],
    ['abcdef', 'abXdef', 'abYdef', null],
    ['abcdef', 'abXdef', 'abcYef', null],
  ])('%s as %s and as %s is %s', (base, first, second, want) => {
    expect(both(base, first, second)).toBe(want);
  });
});

test('edits of neighboring lines are one edit', () => {
  expect(editsBetween(linesOf('abcd'), linesOf('aXYd'))).toEqual([
    { at: 1, removed: 2, added: ['X', 'Y'] },
  ]);
  expect(editsBetween(linesOf('abcd'), linesOf('abcd'))).toEqual([]);
});
