// What the families about objects show of a state.

import { expect, test } from 'vitest';

import { createSizes, trackSize } from '../../../src/audit/measure/size.ts';
import { noHintCounts } from '../../../src/output/metrics/family.ts';
import { endpoints, event } from '../../build.ts';
import { exposition, stateOf } from '../samples.ts';

async function lines(name: string, ...more: Parameters<typeof stateOf>): Promise<string[]> {
  const text = await exposition(stateOf(...more));
  const prefix = `endpoint_auditor_${name}`;
  return text
    .split('\n')
    .filter((line) => line.startsWith(prefix))
    .map((line) => line.slice(prefix.length));
}

test('endpoints by condition', async () => {
  const conditions = {
    ready: 5,
    'terminating-serving': 1,
    terminating: 2,
    'not-ready': 3,
    hinted: 4,
  };
  expect(await lines('endpoints{', { conditions })).toEqual([
    'condition="ready"} 5',
    'condition="terminating-serving"} 1',
    'condition="terminating"} 2',
    'condition="not-ready"} 3',
  ]);
});

test('hints that are there, and why others are not', async () => {
  const hints = noHintCounts();
  hints.auto.absent['one-zone'] = 3;
  hints.zone.all = 2;
  hints.node.some = 1;
  const hinted = await lines('services_hinted{', { hints });
  expect(hinted.filter((line) => !line.endsWith(' 0'))).toEqual([
    'mode="zone",endpoints="all"} 2',
    'mode="node",endpoints="some"} 1',
  ]);
  const unhinted = await lines('services_unhinted{', { hints });
  expect(unhinted.filter((line) => !line.endsWith(' 0'))).toEqual([
    'mode="auto",reason="one-zone"} 3',
  ]);
});

test('objects at their limits', async () => {
  const capacity = { truncated: 2, over: { endpoints: 1, endpointslices: 4 } };
  expect(await lines('truncated_objects', { capacity })).toEqual([' 2']);
  expect(await lines('over_capacity_objects{', { capacity })).toEqual([
    'resource="endpoints"} 1',
    'resource="endpointslices"} 4',
  ]);
});

test('bytes of every version that arrived, and of the largest that stands', async () => {
  const sizes = createSizes();
  const first = endpoints({ bytes: 2000 });
  const second = endpoints({ bytes: 500 });
  const { resource, at } = event('added', first);
  trackSize(sizes, { resource, before: null, after: first, at });
  trackSize(sizes, { resource, before: first, after: second, at });
  expect(
    (await lines('object_bytes', { sizes })).filter((line) => line.includes('"endpoints"')),
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
