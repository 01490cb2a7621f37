import fc from 'fast-check';
import { expect, test } from 'vitest';

import { createTopSamples } from '../../../src/audit/measure/top-samples.ts';

const day = 86_400;

test('the worst of what came are kept, worst first', () => {
  const anySeconds = fc.array(fc.integer({ min: 0, max: 50 }), { maxLength: 40 });
  fc.assert(
    fc.property(anySeconds, fc.integer({ min: 1, max: 8 }), (all, most) => {
      const worst = createTopSamples<{ seconds: number; at: number }>(most);
      for (const [at, seconds] of all.entries()) worst.note({ seconds, at });
      const want = all.toSorted((a, b) => b - a).slice(0, most);
      expect(worst.list(all.length).map(({ seconds }) => seconds)).toEqual(want);
    }),
  );
});

test('nothing that is older than a day is told, and it makes room', () => {
  const worst = createTopSamples<{ seconds: number; at: number }>(2);
  worst.note({ seconds: 90, at: 0 });
  worst.note({ seconds: 80, at: 10 });
  worst.note({ seconds: 1, at: 20 });
  expect(worst.list(day - 1).map(({ seconds }) => seconds)).toEqual([90, 80]);
  expect(worst.list(day).map(({ seconds }) => seconds)).toEqual([80]);
  worst.note({ seconds: 2, at: day + 5 });
  expect(worst.list(day + 5).map(({ seconds }) => seconds)).toEqual([80, 2]);
  expect(worst.list(3 * day)).toEqual([]);
});
