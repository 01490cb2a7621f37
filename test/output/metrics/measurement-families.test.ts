// The samples of measurements in an exposition.

import { expect, test } from 'vitest';

import { createClockSkew, observeCreated } from '../../../src/audit/measure/lag.ts';
import { countProgrammed, createJourneyLag } from '../../../src/audit/measure/journey-lag.ts';
import { createJourneys } from '../../../src/audit/measure/journey.ts';
import { createSizes, trackSize } from '../../../src/audit/measure/size.ts';
import { noHintCounts } from '../../../src/output/metrics/state.ts';
import { noTracingCounts } from '../../../src/output/traces/tracing.ts';
import { endpoints, event } from '../../build.ts';
import { moment, seriesOf } from '../samples.ts';

test('the programming lag has one sum per bound', async () => {
  const travel = createJourneyLag();
  countProgrammed(travel, { least: 0.2, most: 5 });
  expect(await seriesOf('node_programming_lag_seconds_sum', { travel })).toEqual([
    '{bound="least"} 0.2',
    '{bound="most"} 5',
  ]);
});

test('open journeys are counted, and ended journeys by their end', async () => {
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
  expect(await seriesOf('journeys_open', { journeys })).toEqual([' 2']);
  expect(await seriesOf('journeys_ended_total{', { journeys })).toEqual([
    'end="complete"} 0',
    'end="overtaken"} 1',
    'end="gone"} 0',
    'end="dropped"} 0',
  ]);
});

test('the skew of the clocks has no series while it is unknown', async () => {
  expect(await seriesOf('clock_ahead_seconds')).toEqual([]);
  const skew = createClockSkew();
  observeCreated(skew, moment, moment - 3.5);
  expect(await seriesOf('clock_ahead_seconds', { skew })).toEqual([' -3.5']);
});

test('every count of traces has a series', async () => {
  const tracing = noTracingCounts();
  Object.assign(tracing.journeys, { slow: 1, ratio: 2, none: 3 });
  tracing.exported = 4;
  Object.assign(tracing.dropped, { queue: 5, export: 6, shutdown: 7 });
  expect(await seriesOf('journeys_traced_total{', { tracing })).toEqual([
    'choice="slow"} 1',
    'choice="ratio"} 2',
    'choice="none"} 3',
  ]);
  expect(await seriesOf('spans_', { tracing })).toEqual([
    'exported_total 4',
    'dropped_total{reason="queue"} 5',
    'dropped_total{reason="export"} 6',
    'dropped_total{reason="shutdown"} 7',
  ]);
});

test('endpoints are counted by condition', async () => {
  const conditions = {
    ready: 5,
    'terminating-serving': 1,
    terminating: 2,
    'not-ready': 3,
    hinted: 4,
  };
  expect(await seriesOf('endpoints{', { conditions })).toEqual([
    'condition="ready"} 5',
    'condition="terminating-serving"} 1',
    'condition="terminating"} 2',
    'condition="not-ready"} 3',
  ]);
});

test('Services with hints are counted by mode, and those without by reason', async () => {
  const hints = noHintCounts();
  hints.auto.absent['one-zone'] = 3;
  hints.zone.all = 2;
  hints.node.some = 1;
  const hinted = await seriesOf('services_hinted{', { hints });
  expect(hinted.filter((line) => !line.endsWith(' 0'))).toEqual([
    'mode="zone",endpoints="all"} 2',
    'mode="node",endpoints="some"} 1',
  ]);
  const unhinted = await seriesOf('services_unhinted{', { hints });
  expect(unhinted.filter((line) => !line.endsWith(' 0'))).toEqual([
    'mode="auto",reason="one-zone"} 3',
  ]);
});

test('objects at their limits are counted by resource', async () => {
  const capacity = { truncated: 2, over: { endpoints: 1, endpointslices: 4 } };
  expect(await seriesOf('truncated_objects', { capacity })).toEqual([' 2']);
  expect(await seriesOf('over_capacity_objects{', { capacity })).toEqual([
    'resource="endpoints"} 1',
    'resource="endpointslices"} 4',
  ]);
});

test('object_bytes counts every version, and its maximum only existing objects', async () => {
  const sizes = createSizes();
  const first = endpoints({ bytes: 2000 });
  const second = endpoints({ bytes: 500 });
  const { resource, at } = event('added', first);
  trackSize(sizes, { resource, before: null, after: first, at });
  trackSize(sizes, { resource, before: first, after: second, at });
  expect(
    (await seriesOf('object_bytes', { sizes })).filter((line) => line.includes('"endpoints"')),
  ).toEqual([
    '_max{resource="endpoints"} 500',
    '_bucket{resource="endpoints",le="1024"} 1',
    '_bucket{resource="endpoints",le="10240"} 2',
    '_bucket{resource="endpoints",le="102400"} 2',
    '_bucket{resource="endpoints",le="524288"} 2',
    '_bucket{resource="endpoints",le="1258291"} 2',
    '_bucket{resource="endpoints",le="1572864"} 2',
    '_bucket{resource="endpoints",le="+Inf"} 2',
    '_sum{resource="endpoints"} 2500',
    '_count{resource="endpoints"} 2',
  ]);
});
