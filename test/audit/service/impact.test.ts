// The share of connections that fail, and of ready pods that get none, by a difference.

import { expect, test } from 'vitest';

import { combine, impactOf } from '../../../src/audit/service/impact.ts';
import type { AnyObject } from '../../../src/model/objects.ts';
import { auditService, endpoint, node, pod, service, servicePort, slice } from '../../build.ts';

/** `isOpen`: whether the differences of an address are findings. */
function impactWith(objects: readonly AnyObject[], isOpen = (_: string | null): boolean => true) {
  const { context, serviceAuditor } = auditService([node(), ...objects]);
  const audited = serviceAuditor.audited.get('shop/web');
  if (audited === undefined) throw new Error('Nothing audited');
  for (const item of [...audited.items.values()].flat()) {
    item.openedAt = isOpen(item.difference.address) ? 30 : null;
  }
  return impactOf(context, audited);
}

const pods = [1, 2, 3, 4].map((last) =>
  pod({ name: `web-${String(last)}`, ips: [`10.0.0.${String(last)}`] }),
);
const listed = (...addresses: readonly string[]) =>
  slice({ endpoints: addresses.map((address) => endpoint({ addresses: [address] })) });
const all = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4'];
const leaving = endpoint({
  addresses: ['10.0.0.9'],
  ready: false,
  serving: true,
  terminating: true,
});

const cases: readonly [string, readonly AnyObject[], misrouted: number, unused: number][] = [
  ['right slices', [...pods, listed(...all)], 0, 0],
  [
    'one address of no pod beside three',
    [...pods, listed(...all.slice(1), '10.0.0.9')],
    0.25,
    0.25,
  ],
  ['a pod that is missing', [...pods, listed(...all.slice(1))], 0, 0.25],
  ['no endpoint at all', [...pods, listed()], 1, 1],
  ['an endpoint that is left of no pod', [listed('10.0.0.9')], 1, 0],
  ['no pods and no endpoints', [listed()], 0, 0],
  ['only an endpoint that terminates', [...pods, slice({ endpoints: [leaving] })], 1, 1],
];

test.each(cases)('%s', (_, objects, misrouted, unused) => {
  expect(impactWith([service(), ...objects])).toEqual({ misrouted, unused });
});

test.each<[string, readonly AnyObject[], open: string, misrouted: number, unused: number]>([
  ['of one of two wrong addresses', [listed('10.0.0.8', '10.0.0.9')], '10.0.0.9', 0.5, 0],
  ['of one of two missing addresses', [...pods, listed(...all.slice(2))], '10.0.0.1', 0, 0.25],
  ['of one address if none is listed', [...pods, listed()], '10.0.0.1', 1, 0.25],
  ['of no address that is missing', [...pods, listed()], 'none', 0, 0],
  ['of no address that is wrong', [...pods, listed('10.0.0.9')], 'none', 0, 0],
])('only findings count: %s', (_, objects, open, misrouted, unused) => {
  const got = impactWith([service(), ...objects], (address) => address === open);
  expect(got).toEqual({ misrouted, unused });
});

test('a pod that is not ready, but is listed as ready, gets its share', () => {
  const notReady = pods.map((it, index) => (index === 0 ? { ...it, ready: false } : it));
  const got = impactWith([service(), ...notReady, listed(...all)]);
  expect(got).toEqual({ misrouted: 0.25, unused: 0 });
});

test('pods without the target port get no connections, so nothing is misrouted or unused', () => {
  const named = service({ ports: [servicePort({ targetPort: 'http' })] });
  expect(impactWith([named, ...pods])).toEqual({ misrouted: 0, unused: 0 });
});

test('the impact of rules is added to that of slices', () => {
  const slices = { misrouted: 0.5, unused: 0 };
  expect(combine(slices, { misrouted: 0.5, unused: 0.25 })).toEqual({
    misrouted: 0.75,
    unused: 0.25,
  });
  expect([combine(slices, null), combine(null, slices)]).toEqual([slices, slices]);
});

test('a Service without a selector has no impact', () => {
  expect(impactWith([service({ selector: null }), listed('10.0.0.9')])).toBeNull();
});
