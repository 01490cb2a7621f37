// What the families about lag show of a state.

import { expect, test } from 'vitest';

import { createClockSkew, observeCreated } from '../../../src/audit/measure/clock-skew.ts';
import { countProgrammed, createJourneyLag } from '../../../src/audit/measure/journey-lag.ts';
import { createJourneys } from '../../../src/audit/measure/journey.ts';
import { exposition, moment, stateOf } from '../samples.ts';

async function lines(name: string, ...more: Parameters<typeof stateOf>): Promise<string[]> {
  const text = await exposition(stateOf(...more));
  const prefix = `endpoint_auditor_${name}`;
  return text
    .split('\n')
    .filter((line) => line.startsWith(prefix))
    .map((line) => line.slice(prefix.length));
}

test('programming lag by both of its ends', async () => {
  const travel = createJourneyLag();
  countProgrammed(travel, { least: 0.2, most: 5 });
  expect(await lines('node_programming_lag_seconds_sum', { travel })).toEqual([
    '{bound="least"} 0.2',
    '{bound="most"} 5',
  ]);
});

test('journeys that are open, and those that ended, by how', async () => {
  const journeys = createJourneys();
  const departure = {
    namespace: 'shop',
    service: 'web',
    uid: 'u',
    podNode: 'a',
    addresses: ['10.0.0.1'],
    operation: 'add',
    ownTime: null,
    at: moment,
    gap: false,
    resourceVersion: '1',
    awaits: ['endpoints'],
  } as const;
  for (const pod of ['web-1', 'web-1', 'web-2']) journeys.begin({ ...departure, pod });
  expect(await lines('journeys_open', { journeys })).toEqual([' 2']);
  expect(await lines('journeys_ended_total{', { journeys })).toEqual([
    'end="complete"} 0',
    'end="overtaken"} 1',
    'end="gone"} 0',
    'end="dropped"} 0',
  ]);
});

test('the distance of the clocks, where it is known', async () => {
  expect(await lines('clock_ahead_seconds')).toEqual([]);
  const skew = createClockSkew();
  observeCreated(skew, moment, moment - 3.5);
  expect(await lines('clock_ahead_seconds', { skew })).toEqual([' -3.5']);
});

test('the oldest difference that is pending on a node', async () => {
  const { summary } = stateOf();
  const pendingSince = { node: moment - 7 };
  const got = await lines('pending_oldest_seconds{', { summary: { ...summary, pendingSince } });
  expect(got).toContain('output="node"} 7');
});
