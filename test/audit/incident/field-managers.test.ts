// Which field manager made a change, by managedFields as API servers write them.

import { expect, test } from 'vitest';

import { managerOf } from '../../../src/audit/incident/field-managers.ts';
import type { ManagedFields } from '../../../src/model/managed-fields.ts';

const zone = 'topology.kubernetes.io/zone';

const entries: readonly ManagedFields[] = [
  {
    manager: 'kubelet',
    at: 100,
    fields: { 'f:metadata': { 'f:labels': { '.': {}, 'f:kubernetes.io/os': {} } } },
  },
  {
    manager: 'kubectl-label',
    at: 500,
    fields: { 'f:metadata': { 'f:labels': { [`f:${zone}`]: {} } } },
  },
  {
    manager: 'kubelet-status',
    at: 504,
    fields: { 'f:status': { 'f:conditions': { 'k:{"type":"Ready"}': { 'f:status': {} } } } },
  },
];

const made = (field: string, at: number, to: string | null = 'b') =>
  managerOf({ field, at, to }, entries);

test.each([
  ['the owner of a label', `metadata.labels ${zone}`, 500.4, 'kubectl-label'],
  ['the owner of a condition', 'status.conditions Ready', 504.2, 'kubelet-status'],
  [
    'no manager, if the owner wrote before the change',
    'metadata.labels kubernetes.io/os',
    500,
    null,
  ],
  ['no manager, if none owns the field', 'spec.nodeName', 500, null],
  [
    'the only writer at that time, for what any write changes',
    'metadata.uid',
    509,
    'kubelet-status',
  ],
  [
    'all writers at that time, for what any write changes',
    'metadata.resourceVersion',
    503,
    'kubectl-label or kubelet-status',
  ],
  [
    'no manager of any write, if something was written later',
    'metadata.resourceVersion',
    498,
    null,
  ],
  ['no manager of any write, if all wrote before', 'metadata.resourceVersion', 510, null],
] as const)('%s', (_title, field, at, want) => {
  expect(made(field, at)).toBe(want);
});

test('the times of the API server may be some seconds behind, and are whole seconds', () => {
  expect(made(`metadata.labels ${zone}`, 505.9)).toBe('kubectl-label');
  expect(made(`metadata.labels ${zone}`, 506)).toBeNull();
});

test('a removed field has no owner', () => {
  expect(made(`metadata.labels ${zone}`, 500, null)).toBeNull();
});

test('two managers that wrote in one second are both named', () => {
  const fields = { 'f:spec': { 'f:ports': {} } };
  const both = ['b', 'a'].map((manager) => ({ manager, at: 10, fields }));
  expect(managerOf({ field: 'ports', at: 10, to: 'x' }, both)).toBe('a or b');
});

test('what was not read, or could not be, shows no manager', () => {
  const change = { field: 'metadata.uid', at: 1, to: 'x' };
  expect(managerOf(change, undefined)).toBeNull();
  expect(managerOf(change, { unknown: 'HTTP 403' })).toBeNull();
});
