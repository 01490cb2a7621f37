// Explanations by example: of a Service, a pod, both, an address, and of objects that do not exist.

import { expect, test } from 'vitest';

import { explain } from '../../../src/audit/explain/explain.ts';
import type { Explanation, ExplainTarget } from '../../../src/audit/explain/explanation.ts';
import { restsOn } from '../../../src/audit/pending/progress.ts';
import type { AnyObject, Resource } from '../../../src/model/objects.ts';
import { resources } from '../../../src/model/objects.ts';
import { auditService, endpoints, node, pod, service, slice, times } from '../../build.ts';

function ask(
  subject: ExplainTarget,
  objects: readonly AnyObject[],
  known: readonly Resource[] = resources,
  stale: readonly Resource[] = [],
): Explanation {
  const { context, serviceAuditor } = auditService([service(), node(), ...objects], {}, known);
  serviceAuditor.settle.advance(1000);
  return explain({ ...context, stale: new Set(stale) }, serviceAuditor, subject);
}

const aService: ExplainTarget = { kind: 'service', service: 'shop/web' };
const aPod: ExplainTarget = { kind: 'pod', pod: 'shop/web-1' };
const aPair: ExplainTarget = { kind: 'pair', pod: 'shop/web-1', service: 'shop/web' };
const anAddress = (address: string): ExplainTarget => ({ kind: 'address', address });
const right = [pod(), endpoints(), slice()];
const empty = [endpoints({ subsets: [] }), slice({ endpoints: [], ports: [] })];

test.each([
  ['a Service', aService, right, 'conform', 'has endpoints'],
  ['a pod', aPod, right, 'conform', 'is in Service shop/web and receives its traffic'],
  ['both', aPair, right, 'conform', 'is in Service shop/web and receives its traffic'],
  [
    'an address',
    anAddress('10.0.0.1'),
    right,
    'conform',
    '10.0.0.1 is an address of Pod shop/web-1',
  ],
  [
    'its long form',
    anAddress('10.0.0.01'),
    right,
    'conform',
    '10.0.0.1 is an address of Pod shop/web-1',
  ],
  [
    'an address without a pod',
    anAddress('10.0.0.1'),
    right.slice(1),
    'different',
    'no pod has the address 10.0.0.1',
  ],
  ['a cluster IP', anAddress('10.96.0.1'), right, null, 'is the cluster IP of Service shop/web'],
  [
    'a pod that is gone',
    aPod,
    right.slice(1),
    'different',
    'Pod shop/web-1 does not exist, but is still listed in 1 Service',
  ],
  [
    'a pod of no Service',
    aPod,
    [pod({ labels: { app: 'wep' } }), ...empty],
    null,
    'is in no Service: no selector matches its labels; closest: Service shop/web (label app is ' +
      '"wep", the selector wants "web")',
  ],
  ['a pod that is left out', aPod, [pod(), ...empty], 'different', 'should be ready in'],
] as const)('%s', (_, subject, objects, verdict, want) => {
  const got = ask(subject, objects);
  expect(got.answer).toContain(want);
  expect(got.verdict).toBe(verdict);
  expect(got.found).toBe(true);
  expect(got.severity !== null).toBe(verdict === 'different');
});

test.each([
  ['a Service', { kind: 'service', service: 'shop/wep' }, 'Service shop/wep does not exist'],
  ['a pod', { kind: 'pod', pod: 'shop/web-2' }, 'Pod shop/web-2 does not exist'],
  ['an address', anAddress('10.9.9.9'), 'no pod, Node or Service has it, and no Service lists it'],
  ['no address', anAddress('web'), 'web is not an IP address'],
  [
    'a Service beside a pod',
    { kind: 'pair', pod: 'shop/web-1', service: 'shop/x' },
    'Service shop/x does not exist',
  ],
] as const)('%s that does not exist', (_, subject, want) => {
  const got = ask(subject, right);
  expect(got.found).toBe(false);
  expect(got.answer).toContain(want);
});

test('a missing object names those with a similar name', () => {
  const texts = (subject: ExplainTarget) => ask(subject, right).reasons.map(({ text }) => text);
  expect(texts({ kind: 'service', service: 'shop/wep' })).toContain('there is shop/web');
  expect(texts({ kind: 'service', service: 'bank/web' })).toEqual([
    'there is shop/web',
    'there is no Service in namespace bank',
  ]);
});

test('a resource that the input lacks makes the verdict unknown', () => {
  const known = resources.filter((one) => one !== 'pods');
  expect(ask(aPod, [], known).answer).toContain('the input has no Pods');
  expect(ask(aService, [endpoints()], known).verdict).toBe('unknown');
  const without = resources.filter((one) => one !== 'nodes');
  expect(ask(aPair, right, without).verdict).toBe('unknown');
});

test.each(resources)('while %s are stale, every verdict is unknown', (resource) => {
  const isOfSlices = restsOn.endpointslices.includes(resource);
  const wrong = isOfSlices
    ? [pod(), endpoints(), slice({ endpoints: [], ports: [] })]
    : [pod(), endpoints({ subsets: [] }), slice()];
  for (const subject of [aService, aPod, aPair, anAddress('10.0.0.1')]) {
    for (const objects of [right, wrong]) {
      const got = ask(subject, objects, resources, [resource]);
      expect(got.verdict, subject.kind).toBe('unknown');
      expect(JSON.stringify(got), subject.kind).toContain(
        'a watch is interrupted, so the input may be old',
      );
    }
  }
});

test('an output that does not depend on a stale resource keeps its verdict', () => {
  const texts = ask(aPair, right, resources, ['nodes']).reasons.map(({ text }) => text);
  expect(texts).toContain('Endpoints: ok: ready, as expected');
  expect(texts).toContain(
    'IPv4 EndpointSlices: unknown: a watch is interrupted, so the input may be old',
  );
});

test('several differing Services without a cause point to the controllers', () => {
  const alone = ask(aPair, [pod(), ...empty]);
  expect(alone.change).toMatch(/^Check that kube-controller-manager runs/);
  const other = service({ name: 'other', uid: 'other' });
  for (const subject of [aService, aPair, aPod]) {
    const { change, reasons } = ask(subject, [pod(), ...empty, other]);
    expect(change).toMatch(
      /^2 Services have .*: kube-controller-manager may be stopped\. Check that kube-/,
    );
    expect(reasons.at(-1)?.text).toContain('(shop/other, shop/web): check that');
  }
  const edited = ask(aService, [pod(), endpoints(), slice(), other, service({ name: 'third' })]);
  expect(edited.change).toBeNull();
});

test('pending differences of several Services do not point to the controllers', () => {
  const other = service({ name: 'other', uid: 'other' });
  const { context, serviceAuditor } = auditService([service(), other, node(), pod(), ...empty]);
  const got = explain(context, serviceAuditor, aService);
  expect(got.verdict).toBe('pending');
  expect(JSON.stringify(got)).not.toContain('without a known cause');
});

test('a pod of several Services has one reason for each', () => {
  const more = times(3, (index) =>
    service({ name: `more-${index}`, uid: `more-${index}`, clusterIP: 'None' }),
  );
  const got = ask(aPod, [pod({ ready: false }), ...more]);
  const texts = got.reasons.map(({ text }) => text);
  for (const { key } of more) expect(texts.join('\n')).toContain(`Service ${key}: mismatch`);
  expect(texts.join('\n')).toContain('check that kube-controller-manager is running');
});

test('at most five near Services are named, and the others are counted', () => {
  const near = times(8, (index) => service({ name: `near-${index}`, uid: `near-${index}` }));
  const got = ask(aPod, [pod({ labels: { app: 'wep' } }), ...empty, ...near]);
  const texts = got.reasons.map(({ text }) => text);
  expect(texts.filter((text) => text.includes('almost selects it'))).toHaveLength(5);
  expect(texts).toContain('and 4 more Services');
});

test('another pod with the same address is named', () => {
  const twin = pod({ namespace: 'bank', name: 'twin', labels: {} });
  const texts = ask(aPod, [...right, twin]).reasons.map(({ text }) => text);
  expect(texts).toContain('bank/twin has the same address 10.0.0.1');
  expect(ask(anAddress('10.0.0.1'), [...right, twin]).answer).toContain('2 pods have the address');
});
