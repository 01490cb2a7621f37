import { expect, test } from 'vitest';

import { addCounts } from '../../src/model/counts.ts';

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
