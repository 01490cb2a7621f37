import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Histogram } from '../../../src/audit/measure/histogram.ts';
import {
  createHistogram,
  exemplify,
  merged,
  observe,
  quantile,
} from '../../../src/audit/measure/histogram.ts';
import {
  convergenceBounds,
  countConvergence,
  createConvergenceLag,
} from '../../../src/audit/measure/lag.ts';

const histogramOf = (
  values: readonly number[],
  bounds: readonly number[] = [1, 2, 4],
): Histogram => {
  const counts = new Array<number>(bounds.length + 1).fill(0);
  const histogram: Histogram = { bounds, counts, count: 0, sum: 0, largest: 0 };
  // Values get into a histogram by being counted; one with bounds of its own is counted alike.
  const lag = createConvergenceLag();
  const own = { ...lag, mirrored: { ...lag.mirrored, add: histogram } };
  for (const seconds of values) {
    countConvergence(own, { output: 'mirrored', operation: 'add', seconds });
  }
  return histogram;
};

describe('histogram', () => {
  test('a bound belongs to the bucket below it', () => {
    expect(histogramOf([0, 1, 1.001, 2, 4, 4.001, 1000])).toMatchObject({
      counts: [2, 2, 1, 2],
      count: 7,
      largest: 1000,
    });
  });

  const cases: [string, number[], number, number | null][] = [
    ['of nothing', [], 0.5, null],
    ['linear within the bucket', [1.5, 1.6, 1.7, 1.8], 0.5, 1.5],
    ['the upper end of a bucket', [0.5, 0.5, 1.5, 1.9], 0.5, 1],
    ['never above the largest', [1.1], 0.99, 1.1],
    ['beyond the last bound, the largest', [100, 200], 0.5, 200],
    ['the whole', [0.5, 3], 1, 3],
  ];
  test.each(cases)('quantile: %s', (_, values, q, want) => {
    expect(quantile(histogramOf(values), q)).toBe(want);
  });

  test('a quantile lies in the bucket of the true one', () => {
    const anyValues = fc.array(fc.double({ min: 0, max: 900, noNaN: true }), { minLength: 1 });
    fc.assert(
      fc.property(anyValues, fc.double({ min: 0.01, max: 1, noNaN: true }), (values, q) => {
        const sorted = values.toSorted((a, b) => a - b);
        const truth = sorted[Math.ceil(q * values.length) - 1] ?? 0;
        const got = quantile(histogramOf(values, convergenceBounds), q) ?? Number.NaN;
        const upper = convergenceBounds.find((bound) => truth <= bound) ?? Infinity;
        const lower = convergenceBounds.findLast((bound) => bound < truth) ?? 0;
        expect(got).toBeGreaterThanOrEqual(lower);
        expect(got).toBeLessThanOrEqual(Math.min(upper, sorted.at(-1) ?? 0));
      }),
    );
  });

  test('a merged histogram equals one that observed all values', () => {
    const anyValues = fc.array(fc.integer({ min: 0, max: 8 }));
    fc.assert(
      fc.property(anyValues, anyValues, (a, b) => {
        expect(merged([histogramOf(a), histogramOf(b)])).toEqual(histogramOf([...a, ...b]));
      }),
    );
  });
});

const exemplar = (value: number, at = 1) => ({ traceId: 'a'.repeat(32), value, at });

test('an exemplar is the latest value of its bucket', () => {
  const histogram = createHistogram([1, 2]);
  for (const value of [0.5, 1, 1.5, 3]) observe(histogram, value);
  for (const [index, value] of [0.5, 1, 1.5, 3].entries()) {
    exemplify(histogram, exemplar(value, index));
  }
  expect(histogram.exemplars).toEqual([exemplar(1, 1), exemplar(1.5, 2), exemplar(3, 3)]);
});

test('a value that was not observed is no exemplar', () => {
  const histogram = createHistogram([1, 2]);
  observe(histogram, 0.5);
  exemplify(histogram, exemplar(1.5));
  expect(histogram.exemplars).toBeUndefined();
});

test('an exemplar always lies within its bucket', () => {
  const values = fc.array(fc.double({ min: 0, max: 20, noNaN: true }), { minLength: 1 });
  const bounds = fc.uniqueArray(fc.integer({ min: 0, max: 20 }), { maxLength: 6 });
  fc.assert(
    fc.property(values, bounds, (all, some) => {
      const histogram = createHistogram(some.toSorted((a, b) => a - b));
      for (const value of all) {
        observe(histogram, value);
        exemplify(histogram, exemplar(value));
      }
      for (const [index, count] of histogram.counts.entries()) {
        const { value } = histogram.exemplars?.[index] ?? { value: null };
        expect(value === null).toBe(count === 0);
        if (value === null) continue;
        expect(value).toBeLessThanOrEqual(histogram.bounds[index] ?? Infinity);
        if (index > 0) expect(value).toBeGreaterThan(histogram.bounds[index - 1] ?? Infinity);
      }
    }),
  );
});
