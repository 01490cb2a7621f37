import { expect, test } from 'vitest';

import { getOrInsert } from '../../src/model/get-or-insert.ts';

test('a missing value is created once', () => {
  const map = new Map<string, number[]>();
  getOrInsert(map, 'a', () => []).push(1);
  getOrInsert(map, 'a', () => [9]).push(2);
  expect(map).toEqual(new Map([['a', [1, 2]]]));
});
