// Maps that forget the oldest values.

import { expect, test } from 'vitest';

import { setLatest } from '../../src/model/set-latest.ts';

test('a value that is set again is the latest, and the oldest beyond the number is gone', () => {
  const map = new Map([
    ['a', 1],
    ['b', 2],
  ]);
  setLatest(map, 'a', 3, 2);
  expect([...map]).toEqual([
    ['b', 2],
    ['a', 3],
  ]);
  setLatest(map, 'c', 4, 2);
  expect([...map]).toEqual([
    ['a', 3],
    ['c', 4],
  ]);
});
