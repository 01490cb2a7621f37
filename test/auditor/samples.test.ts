// What the auditor counts: sizes from the first object on, updates and trigger samples after the
// audit has begun, lag samples and the worst of them.

import { expect, test } from 'vitest';

import { skewSeconds } from '../../src/audit/measure/lag.ts';
import type { ConvergenceSample } from '../../src/audit/service/reconcile.ts';
import { addConvergence, countChange, createSamples } from '../../src/auditor/samples.ts';

import type { Auditor } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import type { AnyObject, Change } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import {
  auditorDefaults,
  endpoint,
  endpoints,
  event,
  node,
  pod,
  service,
  slice,
  storeOf,
} from '../build.ts';

const listed = [node(), service(), pod(), endpoints({ bytes: 300 }), slice({ bytes: 400 })];

function give(auditor: Auditor, type: 'added' | 'modified', object: AnyObject, at: number): void {
  auditor.take({ kind: 'event', event: event(type, object, at) });
}

function begun(): Auditor {
  const auditor = createAuditor({ ...auditorDefaults, settle: 0 });
  auditor.take({ kind: 'header', at: 0, kubernetes: 'v1.33.1', resources });
  for (const object of listed) give(auditor, 'added', object, 0);
  for (const resource of resources) auditor.take({ kind: 'synced', at: 0, resource });
  return auditor;
}

test('objects of the first list have sizes but are not updates', () => {
  const { sizes, trigger } = begun().samples;
  expect([...sizes.endpoints.objects]).toEqual([[300, 1]]);
  expect([...sizes.endpointslices.objects]).toEqual([[400, 1]]);
  expect([sizes.endpointslices.updates, sizes.endpointslices.fanoutBytes]).toEqual([0, 0]);
  expect(Object.values(trigger.counts.endpointslices).every((count) => count === 0)).toBe(true);
});

test('a change is an update to every Node with a trigger sample', () => {
  const auditor = begun();
  const changed = slice({ bytes: 500, generation: 2, resourceVersion: '9', at: 5 });
  give(auditor, 'modified', changed, 5);
  const { sizes, trigger } = auditor.samples;
  const { updates, updateBytes, fanoutBytes, objects } = sizes.endpointslices;
  expect([updates, updateBytes, fanoutBytes]).toEqual([1, 500, 500]);
  expect([...objects]).toEqual([[500, 1]]);
  const counts = Object.values(trigger.counts.endpointslices);
  expect(counts.reduce((sum, count) => sum + count, 0)).toBe(1);
});

test('fill and duplicates change with refreshTotals', () => {
  const auditor = begun();
  const totals = auditor.refreshTotals();
  expect([totals.fill.endpoints, totals.fill.slices]).toEqual([1, 1]);
  const copy = slice({ name: 'web-copy', endpoints: [endpoint()] });
  give(auditor, 'added', copy, 5);
  expect(totals.fill.slices).toBe(1);
  auditor.refreshTotals();
  expect([totals.fill.endpoints, totals.fill.slices]).toEqual([2, 2]);
  expect([totals.duplicates.equal, totals.duplicates.conflicting]).toEqual([1, 0]);
});

const t0 = 1_800_000_000;

const converged = (seconds: number, at = t0): ConvergenceSample => ({
  output: 'endpoints',
  operation: 'add',
  namespace: 'shop',
  service: 'web',
  node: null,
  seconds,
  at,
});

test('samples are counted, and the worst are kept with their Service', () => {
  const samples = createSamples();
  const note = (sample: ConvergenceSample): void => {
    addConvergence(samples, sample);
  };
  for (let seconds = 1; seconds <= 150; seconds++) note(converged(seconds));
  note({ ...converged(70), output: 'node', node: 'a' });
  expect(samples.convergence.endpoints.add.count).toBe(150);
  expect(samples.convergence.node.add.count).toBe(1);
  const worst = samples.worst.convergence.list(t0);
  expect(worst).toHaveLength(100);
  expect([worst[0]?.seconds, worst.at(-1)?.seconds]).toEqual([150, 52]);
  expect(worst.find(({ node }) => node === 'a')).toMatchObject({ seconds: 70, service: 'web' });
});

test('only the creation of an object measures the clock skew', () => {
  const { listers } = storeOf([]);
  const samples = createSamples();
  const take = (before: boolean, created: number): void => {
    const { object } = event('added', pod({ created }));
    const change: Change = {
      resource: 'pods',
      before: before ? object : null,
      after: object,
      at: t0,
    };
    countChange(samples, listers, change, true);
  };
  take(true, t0 - 1);
  expect(skewSeconds(samples.skew, t0)).toBeNull();
  take(false, t0 - 3);
  expect(skewSeconds(samples.skew, t0)).toBe(3);
});
