// The families of live input in the exposition: which watch is in which state, and since when.

import { expect, test } from 'vitest';

import type { WatchCounts } from '../../../src/output/metrics/family.ts';
import { watchFamilies } from '../../../src/output/metrics/watch-families.ts';
import { exposition, moment, stateOf } from '../samples.ts';

const lines = async (...more: Parameters<typeof stateOf>): Promise<string[]> =>
  (await exposition(stateOf(...more)))
    .split('\n')
    .filter((line) => watchFamilies.some(({ name }) => line.startsWith(`${name}{`)));

/** Every count another, so that none is shown as another. */
const counts: WatchCounts = {
  lists: 1,
  watches: 2,
  events: 3,
  repeated: 4,
  stale: 5,
  bookmarks: 6,
  bytes: 7,
  badFrames: 8,
  unreadable: 9,
  throttled: 10,
  unauthorised: 11,
  denied: 12,
  relists: { gone: 13, expired: 14, reset: 15, disorder: 16 },
  reconnects: { eof: 17, timeout: 18, reset: 19, idle: 20, status: 21, frame: 22, older: 23 },
};

test('a watch that is lost says since when, and the others that they are well', async () => {
  const got = await lines({
    watches: {
      inputs: new Map([
        ['pods', { state: 'stale', blindSince: moment - 12, version: '7' }],
        ['services', { state: 'synced', blindSince: null, version: '9' }],
      ]),
      confirmations: { asked: 6, confirmed: 3, lagging: 2, failed: 1 },
      counters: new Map([['nodes', counts]]),
    },
  });
  const notNodes = got.filter((line) => !line.includes('resource="nodes"'));
  expect(notNodes.filter((line) => line.endsWith(' 1'))).toEqual([
    'endpoint_auditor_watch_state{resource="services",state="synced"} 1',
    'endpoint_auditor_watch_state{resource="pods",state="stale"} 1',
    'endpoint_auditor_confirm_reads_total{result="failed"} 1',
  ]);
  expect(got).toContain('endpoint_auditor_watch_unseen_seconds{resource="pods"} 12');
  expect(got).toContain('endpoint_auditor_watch_unseen_seconds{resource="services"} 0');
  expect(got).toContain('endpoint_auditor_confirm_reads_total{result="lagging"} 2');
  const names = new Map(
    got
      .filter((line) => line.includes('_total{resource="nodes"'))
      .map((line) => [Number(line.split(' ')[1]), line.replace('endpoint_auditor_watch_', '')]),
  );
  expect(names.get(23)).toBe('reconnects_total{resource="nodes",reason="older"} 23');
  expect(names.get(16)).toBe('relists_total{resource="nodes",reason="disorder"} 16');
  expect(names.get(8)).toBe('frames_total{resource="nodes",result="garbled"} 8');
  expect([...names.keys()].sort((a, b) => a - b)).toEqual(
    Array.from({ length: 23 }, (_, index) => index + 1),
  );
});

test('where the input is not live, every series is there and is 0', async () => {
  const got = await lines();
  expect(got).toHaveLength(5 * (5 + 1 + 23) + 3);
  expect(got.filter((line) => !line.endsWith(' 0'))).toEqual([]);
});
