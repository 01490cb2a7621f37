import fc from 'fast-check';
import { expect, test } from 'vitest';

import type { FollowedChange } from '../../../src/audit/measure/sample-history.ts';
import { createLagHistory, createTopSamples } from '../../../src/audit/measure/sample-history.ts';
import { times } from '../../build.ts';

const followed = (
  at: number,
  seconds: number,
  more: Partial<FollowedChange> = {},
): FollowedChange => ({
  service: 'shop/web',
  output: 'endpoints',
  operation: 'add',
  seconds,
  at,
  ...more,
});

test('samples of ten seconds are one point of their output', () => {
  const history = createLagHistory();
  for (const seconds of [0.2, 0.1, 4]) history.note(followed(101, seconds));
  history.note(followed(109.9, 7, { output: 'endpointslices' }));
  history.note(followed(110, 1));
  const { at, changes, longest, median } = history.series();
  expect([at, changes]).toEqual([
    [100, 110],
    [4, 1],
  ]);
  expect(longest.endpoints).toEqual([4, 1]);
  expect(longest.endpointslices).toEqual([7, null]);
  expect(longest.mirrored).toEqual([null, null]);
  expect(median.endpoints[0]).toBeGreaterThan(0.1);
  expect(median.endpoints[0]).toBeLessThanOrEqual(0.25);
});

test('a late sample belongs to its own interval', () => {
  const history = createLagHistory();
  for (const at of [200, 100, 300]) history.note(followed(at, 1));
  expect(history.series().at).toEqual([100, 200, 300]);
});

test('an hour of intervals is stored', () => {
  const history = createLagHistory();
  for (const index of times(1000, (at) => at)) history.note(followed(index * 10, 1));
  const { at } = history.series();
  expect([at.length, at[0], at.at(-1)]).toEqual([360, 6400, 9990]);
});

test('the last samples of a Service are stored, latest first', () => {
  const history = createLagHistory();
  for (const at of times(20, (index) => index)) history.note(followed(at, 1));
  expect(history.ofService('shop/web').map(({ at }) => at)).toEqual(
    times(12, (index) => 19 - index),
  );
  expect(history.ofService('shop/other')).toEqual([]);
});

test('Services expire in the order of their last change', () => {
  const history = createLagHistory();
  history.note(followed(1, 1, { service: 'shop/first' }));
  history.note(followed(1, 1, { service: 'shop/second' }));
  history.note(followed(2, 1, { service: 'shop/first' }));
  for (const index of times(1999, (at) => at)) {
    history.note(followed(3, 1, { service: `shop/s-${index}` }));
  }
  expect(history.ofService('shop/first')).toHaveLength(2);
  expect(history.ofService('shop/second')).toEqual([]);
});

const day = 86_400;

test('the longest samples are stored, longest first', () => {
  const anySeconds = fc.array(fc.integer({ min: 0, max: 50 }), { maxLength: 40 });
  fc.assert(
    fc.property(anySeconds, fc.integer({ min: 1, max: 8 }), (all, most) => {
      const longest = createTopSamples<{ seconds: number; at: number }>(most);
      for (const [at, seconds] of all.entries()) longest.note({ seconds, at });
      const want = all.toSorted((a, b) => b - a).slice(0, most);
      expect(longest.list(all.length).map(({ seconds }) => seconds)).toEqual(want);
    }),
  );
});

test('samples older than a day expire', () => {
  const longest = createTopSamples<{ seconds: number; at: number }>(2);
  longest.note({ seconds: 90, at: 0 });
  longest.note({ seconds: 80, at: 10 });
  longest.note({ seconds: 1, at: 20 });
  expect(longest.list(day - 1).map(({ seconds }) => seconds)).toEqual([90, 80]);
  expect(longest.list(day).map(({ seconds }) => seconds)).toEqual([80]);
  longest.note({ seconds: 2, at: day + 5 });
  expect(longest.list(day + 5).map(({ seconds }) => seconds)).toEqual([80, 2]);
  expect(longest.list(3 * day)).toEqual([]);
});

test('samples of several days are those of a sort of all that are not a day old', () => {
  const hours = fc.tuple(fc.integer({ min: 0, max: 12 }), fc.integer({ min: 0, max: 3 }));
  fc.assert(
    fc.property(fc.array(hours), fc.integer({ min: 1, max: 4 }), (steps, most) => {
      const longest = createTopSamples<{ seconds: number; at: number; number: number }>(most);
      let want: ReturnType<typeof longest.all> = [];
      let at = 0;
      for (const [number, [hoursLater, seconds]] of steps.entries()) {
        at += hoursLater * 3600;
        const sample = { seconds, at, number };
        longest.note(sample);
        const young = [...want, sample].filter((it) => sample.at - it.at < day);
        want = young.sort((a, b) => b.seconds - a.seconds).slice(0, most);
        expect(longest.all()).toEqual(want);
      }
      const again = createTopSamples<(typeof want)[number]>(most);
      again.continuePast(want);
      expect(again.all()).toEqual(want);
    }),
  );
});
