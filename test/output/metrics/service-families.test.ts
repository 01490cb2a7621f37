// The samples of single Services.

import { expect, test } from 'vitest';

import type { ServiceSeriesState } from '../../../src/output/metrics/service-families.ts';
import { serviceFamilies } from '../../../src/output/metrics/service-families.ts';
import { findingOf, numbersOf } from '../samples.ts';

function shown(more: Partial<ServiceSeriesState> = {}): Record<string, [string, number][]> {
  const nothing: ServiceSeriesState = { numbers: numbersOf(), findings: [], stale: new Set() };
  const state = { ...nothing, ...more };
  return Object.fromEntries(
    serviceFamilies.map(({ name, collect }) => [
      name.replace('endpoint_auditor_service_', ''),
      collect(state).map(({ labels, value }) => [Object.values(labels).join(' '), value]),
    ]),
  );
}

test('a Service that conforms has about ten series', () => {
  expect(shown()).toEqual({
    verdict: [
      ['endpoints conform', 1],
      ['endpointslices conform', 1],
    ],
    findings: [],
    pending_since_timestamp_seconds: [],
    audits_total: [['', 4]],
    endpoints: [
      ['ready', 2],
      ['terminating-serving', 0],
      ['terminating', 0],
      ['not-ready', 0],
    ],
    endpointslices: [['', 1]],
    endpointslices_surplus: [['', 0]],
    object_bytes: [
      ['endpoints', 700],
      ['endpointslices', 900],
    ],
  });
});

test('an output with a stale input is unknown for any verdict', () => {
  expect(shown({ stale: new Set(['endpoints']) }).verdict).toEqual([
    ['endpoints unknown', 1],
    ['endpointslices conform', 1],
  ]);
});

test('findings are counted by severity, and pending outputs have their start', () => {
  const findings = [findingOf(), findingOf({ severity: 'info' }), findingOf({ severity: 'info' })];
  const share = { ...numbersOf().share, pendingSince: { endpoints: 17 } };
  const got = shown({ findings, numbers: numbersOf({ share }) });
  expect(got.findings).toEqual([
    ['critical', 1],
    ['info', 2],
  ]);
  expect(got.pending_since_timestamp_seconds).toEqual([['endpoints', 17]]);
});

test('no family declares the labels namespace and service', () => {
  for (const { labels } of serviceFamilies) {
    expect(Object.keys(labels)).not.toContain('namespace');
    expect(Object.keys(labels)).not.toContain('service');
  }
});
