import { expect, test } from 'vitest';

import type { OpenedFindings } from '../../../src/output/metrics/family.ts';
import { samplesByCode, codes, countOpened } from '../../../src/output/metrics/family.ts';
import { findingOf } from '../samples.ts';

test('opened findings are counted by code and severity', () => {
  const opened: OpenedFindings = {};
  countOpened(opened, findingOf({ code: 'slice-orphaned', severity: 'warning' }));
  countOpened(opened, findingOf({ code: 'slice-orphaned', severity: 'warning' }));
  countOpened(opened, findingOf({ code: 'slice-orphaned', severity: 'info' }));
  expect(opened).toEqual({ 'slice-orphaned': { warning: 2, info: 1 } });
});

test('a code has its usual severity from the start, and any other once it occurred', () => {
  expect(samplesByCode({}).length).toBe(codes.length);
  const samples = samplesByCode({ 'slice-orphaned': { critical: 3 } });
  expect(samples.length).toBe(codes.length + 1);
  const labels = { code: 'slice-orphaned', severity: 'critical' };
  expect(samples).toContainEqual({ labels, value: 3 });
});
