// What is counted when: sizes from the first object on, updates and trigger samples only once
// judging began, fill and duplicates when somebody asks.

import { expect, test } from 'vitest';

import type { Auditor } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import type { AnyObject } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { endpoint, endpoints, event, node, pod, service, slice } from '../build.ts';
import { throwProblem } from '../problems.ts';

const listed = [node(), service(), pod(), endpoints({ bytes: 300 }), slice({ bytes: 400 })];

function give(auditor: Auditor, type: 'added' | 'modified', object: AnyObject, at: number): void {
  auditor.take({ kind: 'event', event: event(type, object, at) });
}

function begun(): Auditor {
  const auditor = createAuditor({
    settle: 0,
    release: null,
    maxEndpointsPerSlice: 100,
    onProblem: throwProblem,
  });
  auditor.take({ kind: 'header', at: 0, kubernetes: 'v1.33.1', resources });
  for (const object of listed) give(auditor, 'added', object, 0);
  for (const resource of resources) auditor.take({ kind: 'synced', at: 0, resource });
  return auditor;
}

test('the first list has sizes, but is no update', () => {
  const { sizes, trigger } = begun().measured;
  expect([...sizes.endpoints.objects]).toEqual([[300, 1]]);
  expect([...sizes.endpointslices.objects]).toEqual([[400, 1]]);
  expect([sizes.endpointslices.updates, sizes.endpointslices.fanoutBytes]).toEqual([0, 0]);
  expect(Object.values(trigger.counts.endpointslices).every((count) => count === 0)).toBe(true);
});

test('a change is an update, sent to every Node, with a trigger sample of some quality', () => {
  const auditor = begun();
  const changed = slice({ bytes: 500, generation: 2, resourceVersion: '9', at: 5 });
  give(auditor, 'modified', changed, 5);
  const { sizes, trigger } = auditor.measured;
  const { updates, updateBytes, fanoutBytes, objects: standing } = sizes.endpointslices;
  expect([updates, updateBytes, fanoutBytes]).toEqual([1, 500, 500]);
  expect([...standing]).toEqual([[500, 1]]);
  const counts = Object.values(trigger.counts.endpointslices);
  expect(counts.reduce((sum, count) => sum + count, 0)).toBe(1);
});

test('fill and duplicates are those of the moment somebody asks', () => {
  const auditor = begun();
  const { measured } = auditor;
  measured.refresh();
  expect([measured.fill.endpoints, measured.fill.slices]).toEqual([1, 1]);
  const copy = slice({ name: 'web-copy', endpoints: [endpoint()] });
  give(auditor, 'added', copy, 5);
  expect(measured.fill.slices).toBe(1);
  measured.refresh();
  expect([measured.fill.endpoints, measured.fill.slices]).toEqual([2, 2]);
  expect([measured.duplicates.equal, measured.duplicates.conflicting]).toEqual([1, 0]);
});
