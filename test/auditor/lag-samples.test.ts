// What is counted of lags, and which of them are kept: from judgements that are made up.

import { expect, test } from 'vitest';

import { skewSeconds } from '../../src/audit/measure/clock-skew.ts';
import type { ConvergenceSample } from '../../src/audit/service/reconcile.ts';
import { createLags } from '../../src/auditor/lag-samples.ts';
import type { Change } from '../../src/model/objects.ts';
import { event, pod, service, storeOf } from '../build.ts';

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

test('samples are counted, and the worst are kept with what they are about', () => {
  const { lags, converged: note } = createLags(storeOf([service()]).listers, () => undefined);
  for (let seconds = 1; seconds <= 150; seconds++) note(converged(seconds));
  note({ ...converged(70), output: 'node', node: 'a' });
  expect(lags.convergence.endpoints.add.count).toBe(150);
  expect(lags.convergence.node.add.count).toBe(1);
  const worst = lags.worst.convergence.list(t0);
  expect(worst).toHaveLength(100);
  expect([worst[0]?.seconds, worst.at(-1)?.seconds]).toEqual([150, 52]);
  expect(worst.find(({ node }) => node === 'a')).toMatchObject({ seconds: 70, service: 'web' });
});

test('what a node followed is counted', () => {
  const { lags, nodeJudged } = createLags(storeOf([]).listers, () => undefined);
  const programmed = [{ service: 'shop/web', least: 1, most: 6 }];
  nodeJudged({ node: 'a', at: t0, before: t0 - 5, differs: () => false, programmed });
  expect(lags.travel.programming.most).toMatchObject({ count: 1, largest: 6 });
});

test('objects that are created tell how far the clocks are apart, others do not', () => {
  const { lags, take } = createLags(storeOf([]).listers, () => undefined);
  const change = (before: boolean, created: number): Change => {
    const { object } = event('added', pod({ created }));
    return { resource: 'pods', before: before ? object : null, after: object, at: t0 };
  };
  take(change(true, t0 - 1));
  expect(skewSeconds(lags.skew, t0)).toBeNull();
  take(change(false, t0 - 3));
  expect(skewSeconds(lags.skew, t0)).toBe(3);
});
