import { expect, test } from 'vitest';

import { addCounts, getOrInsert, remembering, setLatest } from '../../src/model/collections.ts';

test('a missing value is created once', () => {
  const map = new Map<string, number[]>();
  getOrInsert(map, 'a', () => []).push(1);
  getOrInsert(map, 'a', () => [9]).push(2);
  expect(map).toEqual(new Map([['a', [1, 2]]]));
});

test('a function computes results again that are not among its latest', () => {
  const asked: string[] = [];
  const lengthOf = remembering((text: string) => asked.push(text) && text.length, 2);
  expect(['a', 'bb', 'a', 'ccc', 'bb', 'a'].map(lengthOf)).toEqual([1, 2, 1, 3, 2, 1]);
  expect(asked).toEqual(['a', 'bb', 'ccc', 'a']);
});

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

const zero = () => ({ total: 0, over: { slices: 0 } });

test('counts that are added twice and subtracted once remain once, in groups too', () => {
  const sum = zero();
  const counts = { total: 3, over: { slices: 2 } };
  addCounts(sum, counts, 1);
  addCounts(sum, counts, 1);
  expect(sum).toEqual({ total: 6, over: { slices: 4 } });
  addCounts(sum, counts, -1);
  expect(sum).toEqual(counts);
});

test('a sum keeps the numbers that the counts do not name', () => {
  const sum = { max: 100, total: 1 };
  addCounts<object>(sum, { total: 2 }, 1);
  expect(sum).toEqual({ max: 100, total: 3 });
});
