// The families of live input in the exposition: which watch is in which state, and since when.

import { expect, test } from 'vitest';

import { moment, stateOf } from './samples.ts';
import { renderMetrics } from '../../src/output/metrics.ts';
import { watchFamilies } from '../../src/output/watch-families.ts';

const lines = async (...more: Parameters<typeof stateOf>): Promise<string[]> =>
  (await renderMetrics(stateOf(...more)))
    .split('\n')
    .filter((line) => watchFamilies.some(({ name }) => line.startsWith(`${name}{`)));

test('a watch that is lost says since when, and the others that they are well', async () => {
  const got = await lines({
    watches: {
      inputs: new Map([
        ['pods', { state: 'stale', blindSince: moment - 12, version: '7' }],
        ['services', { state: 'synced', blindSince: null, version: '9' }],
      ]),
      confirmations: { asked: 6, confirmed: 3, lagging: 2, failed: 1 },
    },
  });
  expect(got.filter((line) => line.endsWith(' 1'))).toEqual([
    'endpoint_auditor_watch_state{resource="services",state="synced"} 1',
    'endpoint_auditor_watch_state{resource="pods",state="stale"} 1',
    'endpoint_auditor_confirm_reads_total{result="failed"} 1',
  ]);
  expect(got).toContain('endpoint_auditor_watch_unseen_seconds{resource="pods"} 12');
  expect(got).toContain('endpoint_auditor_watch_unseen_seconds{resource="services"} 0');
  expect(got).toContain('endpoint_auditor_confirm_reads_total{result="lagging"} 2');
});

test('where the input is not live, every series is there and is 0', async () => {
  const got = await lines();
  expect(got).toHaveLength(5 * 5 + 5 + 3);
  expect(got.filter((line) => !line.endsWith(' 0'))).toEqual([]);
});
