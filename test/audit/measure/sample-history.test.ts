import { expect, test } from 'vitest';

import type { FollowedChange } from '../../../src/audit/measure/sample-history.ts';
import { createLagHistory } from '../../../src/audit/measure/sample-history.ts';
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

test('samples of ten seconds are one point, each output for itself', () => {
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

test('what comes late goes to its own time', () => {
  const history = createLagHistory();
  for (const at of [200, 100, 300]) history.note(followed(at, 1));
  expect(history.series().at).toEqual([100, 200, 300]);
});

test('an hour of stretches is kept', () => {
  const history = createLagHistory();
  for (const index of times(1000, (at) => at)) history.note(followed(index * 10, 1));
  const { at } = history.series();
  expect([at.length, at[0], at.at(-1)]).toEqual([360, 6400, 9990]);
});

test('of a Service the last samples are kept, the latest first', () => {
  const history = createLagHistory();
  for (const at of times(20, (index) => index)) history.note(followed(at, 1));
  expect(history.ofService('shop/web').map(({ at }) => at)).toEqual(
    times(12, (index) => 19 - index),
  );
  expect(history.ofService('shop/other')).toEqual([]);
});

test('Services are forgotten in the order of their last change', () => {
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
