// One pod: its phase in a word, and the verdict over all Services that select it.

import { expect, test } from 'vitest';

import { explainPair } from '../../../src/audit/explain/pod-in-service.ts';
import { explainPod, podPhase } from '../../../src/audit/explain/pod.ts';
import {
  auditService,
  endpoints,
  foreign,
  mirror,
  node,
  pod,
  service,
  slice,
} from '../../build.ts';

test.each([
  [pod(), 'Ready'],
  [pod({ ready: false }), 'not Ready'],
  [pod({ deleting: true }), 'terminating'],
  [pod({ terminal: true }), 'finished'],
])('the phase of pod %#', (one, phase) => {
  expect(podPhase(one)).toBe(phase);
});

test.each([
  ['of hand-made Endpoints', [service({ selector: null }), endpoints(), mirror()]],
  [
    'of a slice of another client',
    [
      service({ selector: { app: 'other' } }),
      endpoints({ subsets: [] }),
      slice({ endpoints: [], ports: [] }),
      foreign(),
    ],
  ],
])('a pod that no selector matches is in a Service %s', (_, objects) => {
  const one = pod();
  const { context, serviceAuditor } = auditService([node(), one, ...objects]);
  serviceAuditor.settle.advance(1000);
  const got = explainPod(context, serviceAuditor, one);
  expect(got.answer).toContain(
    'No selector matches the labels of Pod shop/web-1, but it is listed in Service shop/web',
  );
  const audited = serviceAuditor.audited.get('shop/web');
  const pair = audited && explainPair(context, audited, one);
  expect(pair?.answer).toContain(
    'Pod shop/web-1 is listed in Service shop/web, though the controllers do not add it: ',
  );
});

test('the worst Service of a pod decides its verdict and its answer', () => {
  const other = service({ name: 'other', uid: 'other' });
  const one = pod();
  const objects = [node(), service(), other, one, endpoints(), slice()];
  const { context, serviceAuditor } = auditService(objects);
  serviceAuditor.settle.advance(1000);
  const got = explainPod(context, serviceAuditor, one);
  expect(got).toMatchObject({ found: true, verdict: 'different' });
  expect(got.answer).toContain('Pod shop/web-1 should be ready in Service shop/other');
  expect(got.reasons.map(({ text }) => text)).toContain('Service shop/web: ok: it should be ready');
});
