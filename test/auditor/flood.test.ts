// An outage, a relist and a flood of pod events, without controllers: what is kept must depend on
// the pods, not on their events.

import { expect, test } from 'vitest';

import { flood } from '../bench/flood.ts';

const shape = { seconds: 2, services: 2, pods: 100 };

test('the queue of pending differences has at most twice the pending ones and 1,024', () => {
  const parts = [...flood(shape)];
  expect(parts.map(({ part }) => part)).toEqual(['before', 'listing again', 'after']);
  for (const { entries, pending } of parts) {
    expect(pending).toBeGreaterThanOrEqual(200);
    expect(entries).toBeLessThanOrEqual(2 * pending + 1025);
  }
});

test('an event of a pod restarts its own differences, not all of its Service', () => {
  for (const { events, watched } of flood(shape)) {
    expect(watched).toBeLessThanOrEqual(2 * events);
  }
});
