// The entries of a pod in Endpoints and slices, and the differences that concern it.

import { expect, test } from 'vitest';

import {
  observedEntries,
  observedState,
  itemsAbout,
  managerText,
  entriesOfPod,
} from '../../../src/audit/explain/pod-in-service.ts';
import {
  address,
  auditService,
  endpoint,
  endpoints,
  foreign,
  mirror,
  node,
  pod,
  service,
  slice,
  subset,
} from '../../build.ts';

const twin = pod({ name: 'web-2', uid: 'uid-web-2' });
const both = auditService([
  service(),
  node(),
  pod(),
  twin,
  endpoints(),
  slice(),
  foreign(),
  mirror(),
]);

test('every entry of a pod is found, with its manager', () => {
  const entries = entriesOfPod(both.context.listers, both.record, pod());
  expect(entries.map(({ object, place }) => `${object} ${String(place)}`)).toEqual([
    'Endpoints shop/web endpoints',
    'EndpointSlice shop/web-abcde IPv4',
    'EndpointSlice shop/web-foreign null',
    'EndpointSlice shop/web-mirror null',
  ]);
  expect(entries[0]?.text).toBe('10.0.0.1, ready, http 8080/TCP');
  expect(observedState(entries, 'endpoints')).toBe('ready');
  expect(observedState(entries, 'IPv6')).toBe('absent');
});

test('an entry that names another pod at the same address is not one of the pod', () => {
  expect(entriesOfPod(both.context.listers, both.record, twin)).toEqual([]);
  expect(
    observedEntries(both.context.listers, both.record, (address) => address === '10.0.0.1'),
  ).toHaveLength(4);
});

test('a difference concerns the pod that it names', () => {
  const [audited] = both.serviceAuditor.audited.values();
  if (audited === undefined) throw new Error('Nothing audited');
  const codes = (about: typeof twin) =>
    itemsAbout(both.context, audited, about, [])
      .filter(({ output }) => output !== 'input')
      .map(({ difference }) => difference.code);
  expect(codes(twin)).toContain('slice-endpoint-missing');
  expect(codes(pod())).not.toContain('slice-endpoint-missing');
});

test('an entry has its conditions, hints and ports as text', () => {
  const wrong = endpoint({ ready: false, terminating: true, forZones: ['zone-b'] });
  const { context, record } = auditService([
    service(),
    node(),
    pod(),
    slice({ endpoints: [wrong] }),
  ]);
  const [entry] = entriesOfPod(context.listers, record, pod());
  expect(entry?.text).toBe('10.0.0.1, not ready, terminating, http 8080/TCP, hint for zone zone-b');
  expect(entry?.state).toBe('not-ready');
});

test('an entry without a pod belongs to the pod with its address', () => {
  const bare = endpoints({ subsets: [subset([address({ target: null })], [])] });
  const { context, record } = auditService([service(), node(), pod(), bare]);
  const [entry] = entriesOfPod(context.listers, record, pod());
  expect(entry?.state).toBe('no-ports');
  expect(entry?.pod).toBeNull();
});

test('the manager of a slice comes from its label', () => {
  expect(managerText('mirror', mirror())).toBe('mirrored from Endpoints');
  expect(managerText('foreign', foreign())).toBe('managed by example.com/controller');
  expect(managerText('foreign', slice({ labels: {} }))).toBe('without a managed-by label');
});
