// One pod: its phase in a word, and the verdict over all Services that select it.

import { expect, test } from 'vitest';

import { explainPod, podPhase } from '../../../src/audit/explain/pod.ts';
import { endpoints, judged, node, pod, service, slice } from '../../build.ts';

test.each([
  [pod(), 'Ready'],
  [pod({ ready: false }), 'not Ready'],
  [pod({ deleting: true }), 'terminating'],
  [pod({ terminal: true }), 'finished'],
])('the phase of pod %#', (one, phase) => {
  expect(podPhase(one)).toBe(phase);
});

test('the worst Service of a pod decides its verdict and its answer', () => {
  const other = service({ name: 'other', uid: 'other' });
  const one = pod();
  const objects = [node(), service(), other, one, endpoints(), slice()];
  const { context, serviceAuditor } = judged(objects);
  serviceAuditor.settle.advance(1000);
  const got = explainPod(context, serviceAuditor, one);
  expect(got).toMatchObject({ found: true, verdict: 'different' });
  expect(got.answer).toContain('Pod shop/web-1 should be ready in Service shop/other');
  expect(got.reasons.map(({ text }) => text)).toContain('Service shop/web: ok: it should be ready');
});
