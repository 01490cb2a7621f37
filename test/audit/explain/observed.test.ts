// What stands of a pod, whoever wrote it, and which differences are about it and not its neighbour.

import { expect, test } from 'vitest';

import {
  observedState,
  itemsAbout,
  managerText,
  entriesAt,
  entriesOfPod,
} from '../../../src/audit/explain/observed.ts';
import {
  address,
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
import { judged } from '../judge.ts';

const twin = pod({ name: 'web-2', uid: 'uid-web-2' });
const both = judged([service(), node(), pod(), twin, endpoints(), slice(), foreign(), mirror()]);

test('every entry of a pod is found, with who manages it', () => {
  const stands = entriesOfPod(both.context.listers, both.record, pod());
  expect(stands.map(({ object, place }) => `${object} ${String(place)}`)).toEqual([
    'Endpoints shop/web endpoints',
    'EndpointSlice shop/web-abcde IPv4',
    'EndpointSlice shop/web-foreign null',
    'EndpointSlice shop/web-mirror null',
  ]);
  expect(stands[0]?.text).toBe('10.0.0.1, ready, http 8080/TCP');
  expect(observedState(stands, 'endpoints')).toBe('ready');
  expect(observedState(stands, 'IPv6')).toBe('absent');
});

test('an entry at the address that names another pod is not one of the pod', () => {
  expect(entriesOfPod(both.context.listers, both.record, twin)).toEqual([]);
  expect(entriesAt(both.context.listers, both.record, '10.0.0.1')).toHaveLength(4);
});

test('differences are about the pod that they name', () => {
  const [audited] = both.serviceAuditor.audited.values();
  if (audited === undefined) throw new Error('Nothing audited');
  const codes = (of: typeof twin) =>
    itemsAbout(both.context.listers, audited, of, [])
      .filter(({ output }) => output !== 'input')
      .map(({ difference }) => difference.code);
  expect(codes(twin)).toContain('slice-endpoint-missing');
  expect(codes(pod())).not.toContain('slice-endpoint-missing');
});

test('conditions, hints and ports are told', () => {
  const wrong = endpoint({ ready: false, terminating: true, forZones: ['zone-b'] });
  const { context, record } = judged([service(), node(), pod(), slice({ endpoints: [wrong] })]);
  const [stand] = entriesOfPod(context.listers, record, pod());
  expect(stand?.text).toBe('10.0.0.1, not ready, terminating, http 8080/TCP, hint for zone zone-b');
  expect(stand?.state).toBe('not-ready');
});

test('an address without a pod is the pod’s that has it', () => {
  const bare = endpoints({ subsets: [subset([address({ target: null })], [])] });
  const { context, record } = judged([service(), node(), pod(), bare]);
  const [stand] = entriesOfPod(context.listers, record, pod());
  expect(stand?.state).toBe('no-ports');
  expect(stand?.pod).toBeNull();
});

test('managers', () => {
  expect(managerText('mirror', undefined)).toBe('mirrored from Endpoints');
  expect(managerText('foreign', foreign())).toBe('managed by example.com/controller');
  expect(managerText('foreign', slice({ labels: {} }))).toBe('managed by nobody');
});
