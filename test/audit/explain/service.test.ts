// A Service as a whole: the pods that it selects and their groups, near misses, and the reasons why
// there are no mirrored slices or no hints.

import { describe, expect, test } from 'vitest';

import { nameOf, newestRelease } from '../../../src/shadow/release.ts';
import type { Reason } from '../../../src/audit/explain/explanation.ts';
import { explain } from '../../../src/audit/explain/explain.ts';
import { explainService } from '../../../src/audit/explain/service.ts';
import type { AnyObject } from '../../../src/model/objects.ts';
import { annotation, label } from '../../../src/model/objects.ts';
import {
  auditService,
  endpoint,
  endpoints,
  foreign,
  mirror,
  node,
  pod,
  service,
  servicePort,
  slice,
  times,
} from '../../build.ts';

function explained(...objects: AnyObject[]) {
  const { context, serviceAuditor } = auditService([node(), ...objects]);
  serviceAuditor.settle.advance(1000);
  const audited = serviceAuditor.audited.get('shop/web');
  if (audited === undefined) throw new Error('Nothing audited');
  return explainService(context, serviceAuditor, audited, null);
}

const textsOf = (reasons: readonly Reason[]): string[] =>
  reasons.flatMap(({ text, parts }) => [text, ...textsOf(parts)]);

const empty = slice({ endpoints: [], ports: [] });
const none = [endpoints({ subsets: [] }), empty];

test('ready pods are counted', () => {
  const got = explained(service(), pod(), endpoints(), slice());
  expect(got.answer).toBe('Service shop/web has endpoints: it selects 1 pod, 1 of them ready');
  expect(got.verdict).toBe('conform');
  expect(got.severity).toBeNull();
});

test('a selector without pods names the pod that comes closest', () => {
  const got = explained(service(), pod({ labels: { app: 'wep' } }), ...none);
  expect(got.answer).toBe(
    'Service shop/web selects no pod: no pod in namespace shop has the labels app=web; ' +
      'closest: 1 pod such as web-1: label app is "wep", the selector wants "web"',
  );
  expect(got.change).toBe('label them app=web, or let the Service select app=wep');
});

test('a pod without an address of the family is no member of a group that has one', () => {
  const pods = ['10.0.0.1', 'fd00::1'].map((ip, index) =>
    pod({ name: `web-${index}`, ips: [ip], ports: [] }),
  );
  const got = explained(
    service({ ports: [servicePort({ targetPort: 'http' })] }),
    ...pods,
    ...none,
  );
  const texts = textsOf(got.reasons).filter((text) => /^1 pod (?:should be|receives)/.test(text));
  expect(texts).toEqual([
    expect.stringContaining('1 pod receives no traffic, since it has no port of the Service: port'),
    expect.stringContaining('1 pod should be absent: the pod has no IPv4 address'),
  ]);
});

test('pods with the labels in another namespace are mentioned', () => {
  const got = explained(service(), pod({ namespace: 'bank' }), ...none);
  expect(textsOf(got.reasons)).toContain(
    'pods with these labels are in namespace bank, but a Service selects pods of its own ' +
      'namespace only',
  );
});

test('pods that are published without being ready are not counted as ready', () => {
  const got = explained(
    service({ publishNotReadyAddresses: true }),
    pod({ ready: false }),
    endpoints(),
    slice(),
  );
  expect(got.answer).toContain('it selects 1 pod, 0 of them ready, but 1 can receive traffic');
});

test('pods that are equal in all that decides form one group', () => {
  const ready = times(7, (index) => pod({ name: `web-${index}`, ips: [`10.0.0.${index + 1}`] }));
  const done = pod({ name: 'web-done', terminal: true, ready: false });
  const got = explained(service(), ...ready, done, ...none);
  const pods = got.reasons.find(({ text }) => text.startsWith('it selects'));
  expect(pods?.text).toBe('it selects 8 pods, 7 of them ready');
  expect(pods?.parts.map(({ text }) => text)).toEqual([
    '7 pods ready (web-0, web-1, web-2 and 4 more)',
    '1 pod should be absent: the pod has finished (phase Succeeded or Failed), so nothing runs ' +
      'at its address (web-done)',
  ]);
  expect(got.verdict).toBe('different');
  expect(got.answer).toContain('But: A pod is missing from');
});

test('a port that no pod names leaves the Service without traffic', () => {
  const metrics = service({ ports: [servicePort({ name: 'metrics', targetPort: 'metrics' })] });
  const got = explained(metrics, pod(), endpoints({ subsets: [] }), slice({ ports: [] }));
  expect(got.answer).toContain(
    'can receive traffic: 1 pod receives no traffic, since it has no port of the Service',
  );
});

test('a port that no pod names leaves a headless Service its addresses', () => {
  const headless = service({ clusterIP: 'None', ports: [servicePort({ targetPort: 'metrics' })] });
  const got = explained(headless, pod(), endpoints({ subsets: [] }), slice({ ports: [] }));
  expect(got.withoutEndpoints).toBeNull();
  expect(got.answer).toContain('it selects 1 pod, 1 of them ready');
  expect(got.answer).not.toContain('can receive traffic');
});

describe('whether slices are mirrored', () => {
  const own = service({ selector: null });
  test.each([
    ['a selector', [service(), pod(), endpoints(), slice()], 'since the Service has a selector'],
    ['no Endpoints', [own], 'since there are no Endpoints to mirror'],
    ['no Service', [endpoints()], 'since there is no Service'],
    [
      'the label',
      [own, endpoints({ labels: { [label.skipMirror]: 'true' } })],
      `since ${label.skipMirror} is set`,
    ],
    [
      'leader election',
      [own, endpoints({ annotations: { [annotation.leader]: 'x' } })],
      'since the Endpoints serve leader election',
    ],
  ])('%s', (_, objects, why) => {
    const texts = textsOf(explained(...objects).reasons);
    expect(texts).toContain(`Mirrored EndpointSlices: none, ${why}`);
  });

  test('Endpoints of a Service without a selector are mirrored', () => {
    const got = explained(own, endpoints({ labels: {} }), mirror());
    expect(got.answer).toContain('its Endpoints are mirrored into EndpointSlices');
    expect(textsOf(got.reasons).join('\n')).toMatch(/^Mirrored EndpointSlices: /m);
  });
});

describe('hints', () => {
  const hinted = slice({ endpoints: [endpoint({ forZones: ['zone-a'] })] });
  test.each([
    ['auto, none', service({ topologyAuto: true }), slice(), 'no hints although topology-mode'],
    ['auto, some', service({ topologyAuto: true }), hinted, 'hints for zone-a'],
    ['by zone', service({ trafficDistribution: 'PreferClose' }), hinted, 'for its own zone'],
    [
      'unknown',
      service({ trafficDistribution: 'Odd' }),
      slice(),
      `${nameOf(newestRelease)} does not support trafficDistribution Odd`,
    ],
  ])('%s', (_, of, one, want) => {
    const texts = textsOf(explained(of, pod(), endpoints(), one).reasons);
    expect(texts.join('\n')).toContain(want);
  });
});

test('an alias, and a Service that is gone', () => {
  expect(explained(service({ type: 'ExternalName' })).answer).toContain('is an alias in DNS');
  expect(explained(slice()).answer).toContain('Service shop/web does not exist');
});

test('pods that are gone and still listed are said to be gone', () => {
  const of = [service(), endpoints(), slice()];
  const gone = 'this pod does not exist any more: shop/web-1';
  expect(textsOf(explained(...of).reasons).filter((text) => text === gone)).toHaveLength(2);
  expect(textsOf(explained(...of, pod()).reasons)).not.toContain(gone);
});

test('slices that are not packed are a note and no fault', () => {
  const [one, other] = [pod(), pod({ name: 'web-2', uid: 'web-2', ips: ['10.0.0.2'] })];
  const second = slice({
    name: 'web-b',
    endpoints: [endpoint({ addresses: ['10.0.0.2'], target: null })],
  });
  const got = explained(service(), one, other, slice(), second);
  expect(textsOf(got.reasons).join('\n')).toContain('2 slices, but 1 would be enough');
});

test('slices of another manager are named', () => {
  const texts = textsOf(explained(service(), pod(), endpoints(), slice(), foreign()).reasons);
  expect(texts).toContain(
    'EndpointSlice shop/web-foreign, managed by example.com/controller: 1 endpoint, not compared',
  );
});

test('a pod that terminates may still receive traffic, as its Service says', () => {
  const going = pod({ deleting: true });
  const serving = endpoint({ ready: false, serving: true, terminating: true });
  const objects = [
    node(),
    service(),
    going,
    endpoints({ subsets: [] }),
    slice({ endpoints: [serving] }),
  ];
  const { context, serviceAuditor } = auditService(objects);
  serviceAuditor.settle.advance(1000);
  const [ofService, ofPod] = [
    explain(context, serviceAuditor, { kind: 'service', service: 'shop/web' }),
    explain(context, serviceAuditor, { kind: 'pod', pod: going.key }),
  ];
  expect(ofService).toMatchObject({ verdict: 'conform', withoutEndpoints: null });
  expect(ofService.answer).toContain('Service shop/web has no pod that is ready for traffic: ');
  expect(ofPod.answer).toContain(
    'Pod shop/web-1 receives traffic only while no pod is ready, in Service shop/web: ' +
      'the pod is terminating',
  );
});
