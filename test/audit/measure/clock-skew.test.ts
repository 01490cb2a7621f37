import fc from 'fast-check';
import { expect, test } from 'vitest';

import {
  createClockSkew,
  observeCreated,
  skewSeconds,
} from '../../../src/audit/measure/clock-skew.ts';

const t0 = 1_800_000_000;

test('nothing is known before something was created', () => {
  expect(skewSeconds(createClockSkew(), t0)).toBeNull();
});

test('it is never too low, and too high by the cut second and the way at most', () => {
  const object = fc.record({
    // When it was created by the true time, and how long it took to arrive.
    created: fc.double({ min: 0, max: 800, noNaN: true }),
    way: fc.double({ min: 0, max: 3, noNaN: true }),
  });
  const ahead = fc.double({ min: -50, max: 50, noNaN: true });
  fc.assert(
    fc.property(fc.array(object, { minLength: 1 }), ahead, (objects, distance) => {
      const skew = createClockSkew();
      const arrivals = objects
        .map(({ created, way }) => ({
          created: Math.floor(t0 + created),
          at: t0 + created + way + distance,
        }))
        .sort((a, b) => a.at - b.at);
      for (const { created, at } of arrivals) observeCreated(skew, created, at);
      const got = skewSeconds(skew, arrivals.at(-1)?.at ?? 0) ?? Number.NaN;
      const least = Math.min(...objects.map(({ way }) => way));
      expect(got).toBeGreaterThanOrEqual(distance - 1e-6);
      expect(got).toBeLessThanOrEqual(distance + least + 1 + 1e-6);
    }),
  );
});

test('a clock that was set is forgotten as it was', () => {
  const skew = createClockSkew();
  observeCreated(skew, t0, t0 + 0.5 - 20);
  expect(skewSeconds(skew, t0)).toBeCloseTo(-19.5);
  // The clock is put right; a while later nothing of it is left.
  observeCreated(skew, t0 + 100, t0 + 100.5);
  expect(skewSeconds(skew, t0 + 100)).toBeCloseTo(-19.5);
  for (let at = 0; at <= 2000; at += 100) observeCreated(skew, t0 + at, t0 + at + 0.5);
  expect(skewSeconds(skew, t0 + 2000)).toBeCloseTo(0.5);
});

test('what was last created long ago tells nothing', () => {
  const skew = createClockSkew();
  observeCreated(skew, t0, t0 + 0.5);
  expect(skewSeconds(skew, t0 + 1000)).toBeCloseTo(0.5);
  expect(skewSeconds(skew, t0 + 2000)).toBeNull();
  observeCreated(skew, t0 + 5000, t0 + 5003);
  expect(skewSeconds(skew, t0 + 5003)).toBeCloseTo(3);
});
