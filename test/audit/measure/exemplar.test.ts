import fc from 'fast-check';
import { expect, test } from 'vitest';

import { exemplify, exemplifyJourney } from '../../../src/audit/measure/exemplar.ts';
import type { JourneyLag } from '../../../src/audit/measure/journey-lag.ts';
import {
  countStage,
  createJourneyLag,
  journeyLagOutputs,
} from '../../../src/audit/measure/journey-lag.ts';
import type { Journey } from '../../../src/audit/measure/journey.ts';
import { createHistogram, observe } from '../../../src/audit/measure/lag.ts';
import { journeyOf, usualStages } from '../../output/journeys.ts';
import { moment } from '../../output/samples.ts';

const exemplar = (value: number, at = 1) => ({ traceId: 'a'.repeat(32), value, at });

test('the latest of each bucket', () => {
  const histogram = createHistogram([1, 2]);
  for (const value of [0.5, 1, 1.5, 3]) observe(histogram, value);
  for (const [index, value] of [0.5, 1, 1.5, 3].entries()) {
    exemplify(histogram, exemplar(value, index));
  }
  expect(histogram.exemplars).toEqual([exemplar(1, 1), exemplar(1.5, 2), exemplar(3, 3)]);
});

test('a value that was not observed is none', () => {
  const histogram = createHistogram([1, 2]);
  observe(histogram, 0.5);
  exemplify(histogram, exemplar(1.5));
  expect(histogram.exemplars).toBeUndefined();
});

test('an exemplar is always within its bucket, as observe sees it', () => {
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

const traceId = 'cd'.repeat(16);

/** What is measured of a journey, and which of that has its trace. */
function travelled(journey: Journey): JourneyLag {
  const lag = createJourneyLag();
  for (const stage of journey.stages) countStage(lag, journey, stage);
  exemplifyJourney(lag, journey, traceId);
  return lag;
}

const exemplarsOf = (lag: JourneyLag, of: 'readiness' | 'removal') =>
  journeyLagOutputs.map((output) => Object.values(lag[of][output].exemplars ?? []));

test('a journey is the exemplar of all that was measured of it', () => {
  const lag = travelled(journeyOf());
  expect(exemplarsOf(lag, 'readiness')).toEqual([
    [{ traceId, value: 0.625, at: moment + 0.625 }],
    [{ traceId, value: 0.75, at: moment + 0.75 }],
    [{ traceId, value: (usualStages[3]?.at ?? 0) - moment, at: usualStages[3]?.at }],
  ]);
  expect(exemplarsOf(lag, 'removal')).toEqual([[], [], []]);
  const removal = travelled(journeyOf({ operation: 'remove' }));
  expect(exemplarsOf(removal, 'removal').flat()).toHaveLength(3);
});

test.each<Partial<Journey>>([{ operation: 'update' }, { quality: 'gap' }, { quality: 'skewed' }])(
  '%j is not measured, and no exemplar',
  (more) => {
    const lag = travelled(journeyOf(more));
    expect([exemplarsOf(lag, 'readiness'), exemplarsOf(lag, 'removal')].flat(2)).toEqual([]);
  },
);
