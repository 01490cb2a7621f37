// The verdict on each output: conform, pending, different, unknown, or none at all.

import { describe, expect, test } from 'vitest';

import { createPendingFindings } from '../../../src/audit/pending/pending.ts';
import { createServiceAuditor } from '../../../src/audit/service/auditor.ts';
import type { ServiceOutput } from '../../../src/audit/service/enqueue.ts';
import {
  isForeign,
  isUnknown,
  serviceOutputs,
  unknownOutputs,
  verdictOf,
} from '../../../src/audit/service/verdict.ts';
import type { AnyObject, Resource, Service, UnreadableObject } from '../../../src/model/objects.ts';
import { resources } from '../../../src/model/objects.ts';
import { runToEnd } from '../../../src/model/run-to-end.ts';
import {
  contextOf,
  endpoint,
  endpoints,
  event,
  foreign,
  mirror,
  node,
  pod,
  service,
  slice,
  storeOf,
} from '../../build.ts';

const settled: AnyObject[] = [service(), pod(), node(), endpoints(), slice()];
const all: readonly Resource[] = resources;
const without = (...names: Resource[]): Resource[] =>
  resources.filter((one) => !names.includes(one));

/** Verdicts on endpoints, endpointslices and mirrored, a dash where there is none. */
function verdicts(
  objects: readonly AnyObject[],
  { at = 0, known = all, lost = [] as readonly UnreadableObject[] } = {},
): string {
  const store = storeOf(objects, known);
  const serviceAuditor = createServiceAuditor({
    context: contextOf(store),
    settle: createPendingFindings({ window: 30, keep: 0 }),
  });
  runToEnd(serviceAuditor.begin(0));
  for (const one of lost) runToEnd(serviceAuditor.markUnreadable(one, 0));
  serviceAuditor.settle.advance(at);
  const audited = serviceAuditor.audited.get('shop/web');
  if (audited === undefined) return 'not known';
  return serviceOutputs.map((one) => verdictOf(store.listers, audited, one) ?? '-').join(' ');
}

describe('verdictOf', () => {
  const selectorless = service({ selector: null });
  const byHand = endpoints({ labels: {} });
  const cases: [string, AnyObject[], number, string][] = [
    ['as expected', settled, 100, 'conform conform -'],
    ['for less than the window', settled.slice(0, 3), 29, 'pending pending -'],
    ['for longer', settled.slice(0, 3), 30, 'different different -'],
    ['one output only', settled.slice(0, 4), 30, 'conform different -'],
    ['mirrored', [selectorless, byHand, mirror()], 30, '- - conform'],
    ['not mirrored', [selectorless, byHand], 30, '- - different'],
    [
      'a mirrored slice too many',
      [service(), pod(), node(), endpoints(), slice(), mirror()],
      30,
      'conform conform different',
    ],
    ['nothing to write', [selectorless], 30, '- - -'],
    ['ExternalName', [service({ type: 'ExternalName' })], 30, '- - -'],
    ['no Service, leftovers', [endpoints(), slice()], 30, 'different different -'],
    ['another client’s', [selectorless, foreign()], 30, '- - -'],
    // What the API allows and affects no client is conform, although there is a finding.
    ['a duplicate', [...settled, slice({ name: 'twice' })], 30, 'conform conform -'],
    [
      'an empty slice too many',
      [...settled, slice({ name: 'empty', endpoints: [] })],
      30,
      'conform conform -',
    ],
    [
      'trouble of the input',
      [...settled, foreign({ endpoints: [endpoint({ ready: false })] })],
      30,
      'conform conform -',
    ],
  ];
  test.each(cases)('%s', (_, objects, at, want) => {
    expect(verdicts(objects, { at })).toBe(want);
  });
});

describe('a resource that the input does not deliver', () => {
  const cases: [string, Resource[], string][] = [
    ['pods', without('pods'), 'unknown unknown -'],
    ['Endpoints', without('endpoints'), 'unknown conform -'],
    ['slices', without('endpointslices'), 'conform unknown -'],
    ['Nodes', without('nodes'), 'conform unknown -'],
  ];
  test.each(cases)('%s', (_, known, want) => {
    const objects = settled.filter((one) => !('cpuMillis' in one) || known.includes('nodes'));
    expect(verdicts(objects, { at: 30, known })).toBe(want);
  });

  test('without Nodes, zones and missing endpoints are not compared', () => {
    const known = without('nodes');
    const of = (one: Service): string => verdicts([one, pod(), endpoints()], { at: 30, known });
    expect(of(service())).toBe('conform unknown -');
    // The controller lists such a pod whether its Node exists or not.
    expect(of(service({ publishNotReadyAddresses: true }))).toBe('conform different -');
    expect(isUnknown(new Map([['endpointslices', 'nodes-not-known']]), 'endpointslices')).toBe(
      false,
    );
    expect(isUnknown(new Map([['endpoints', 'pods-not-known']]), 'endpoints')).toBe(true);
    expect(isUnknown(new Map(), 'endpoints')).toBe(false);
  });
});

describe('an unreadable object', () => {
  const lost = (resource: Resource, more: Partial<UnreadableObject> = {}): UnreadableObject => ({
    resource,
    namespace: 'shop',
    name: 'web',
    labels: null,
    ...more,
  });
  const named = (name: string) => ({ 'kubernetes.io/service-name': name });
  const cases: [string, UnreadableObject, string][] = [
    ['the Service', lost('services'), 'unknown unknown unknown'],
    ['some Service', lost('services', { name: null }), 'unknown unknown unknown'],
    ['another Service', lost('services', { name: 'api' }), ''],
    ['of another namespace', lost('services', { namespace: 'bank' }), ''],
    ['of some namespace', lost('services', { namespace: null }), 'unknown unknown unknown'],
    ['its Endpoints', lost('endpoints'), 'unknown - unknown'],
    ['other Endpoints', lost('endpoints', { name: 'api' }), ''],
    [
      'a slice of it',
      lost('endpointslices', { name: 'x', labels: named('web') }),
      '- unknown unknown',
    ],
    ['a slice of some Service', lost('endpointslices', { name: 'x' }), '- unknown unknown'],
    ['a slice of another', lost('endpointslices', { name: 'x', labels: named('api') }), ''],
    [
      'a pod that it selects',
      lost('pods', { name: 'x', labels: { app: 'web' } }),
      'unknown unknown -',
    ],
    ['a pod of unknown labels', lost('pods', { name: 'x' }), 'unknown unknown -'],
    ['a pod that it does not select', lost('pods', { name: 'x', labels: { app: 'api' } }), ''],
    [
      'a pod that it selected',
      lost('pods', { name: pod().name, labels: { app: 'api' } }),
      'unknown unknown -',
    ],
    [
      'a slice that was of it',
      lost('endpointslices', { name: slice().name, labels: named('api') }),
      '- unknown unknown',
    ],
    ['a Node', lost('nodes', { namespace: '', name: 'node-z' }), '- unknown -'],
  ];
  test.each(cases)('%s', (_, one, want) => {
    const store = storeOf(settled);
    const serviceAuditor = createServiceAuditor({
      context: contextOf(store),
      settle: createPendingFindings({ window: 30, keep: 0 }),
    });
    runToEnd(serviceAuditor.begin(0));
    const record = serviceAuditor.audited.get('shop/web')?.record;
    if (record === undefined) throw new Error('No record');
    const unknown = unknownOutputs(store.listers, record, [one]);
    const got = serviceOutputs.map((output) => (unknown.has(output) ? 'unknown' : '-')).join(' ');
    expect(got).toBe(want === '' ? '- - -' : want);
  });

  test('makes its output unknown, until it is readable again', () => {
    const store = storeOf(settled.slice(0, 3));
    const context = contextOf(store);
    const serviceAuditor = createServiceAuditor({
      context,
      settle: createPendingFindings({ window: 30, keep: 0 }),
    });
    runToEnd(serviceAuditor.begin(0));
    const audited = serviceAuditor.audited.get('shop/web');
    if (audited === undefined) throw new Error('No record');
    const verdict = (output: ServiceOutput) => verdictOf(store.listers, audited, output);
    runToEnd(serviceAuditor.markUnreadable(lost('endpoints'), 10));
    expect([verdict('endpoints'), verdict('endpointslices')]).toEqual(['unknown', 'pending']);
    serviceAuditor.settle.advance(100);
    expect([verdict('endpoints'), verdict('endpointslices')]).toEqual(['unknown', 'different']);
    runToEnd(serviceAuditor.markReadable(lost('endpoints'), 110));
    expect(verdict('endpoints')).toBe('pending');
    serviceAuditor.settle.advance(140);
    expect(verdict('endpoints')).toBe('different');
  });
});

describe('isForeign', () => {
  const selectorless = service({ selector: null });
  const skipped = endpoints({ labels: { 'endpointslice.kubernetes.io/skip-mirror': 'true' } });
  const cases: [string, AnyObject[], boolean][] = [
    ['all by the controllers', settled, false],
    ['a slice of another client', [...settled, foreign()], true],
    ['Endpoints that are mirrored', [selectorless, endpoints({ labels: {} }), mirror()], false],
    ['Endpoints that are not mirrored', [selectorless, skipped], true],
    ['Endpoints of no Service', [endpoints({ labels: {} })], true],
    ['of an ExternalName Service', [service({ type: 'ExternalName' }), endpoints()], true],
  ];
  test.each(cases)('%s', (_, objects, want) => {
    const store = storeOf(objects);
    const serviceAuditor = createServiceAuditor({
      context: contextOf(store),
      settle: createPendingFindings({ window: 30, keep: 0 }),
    });
    runToEnd(serviceAuditor.begin(0));
    const audited = serviceAuditor.audited.get('shop/web');
    if (audited === undefined) throw new Error('No record');
    expect(isForeign(store.listers, audited)).toBe(want);
  });

  test('Endpoints of an unreadable Service are not foreign', () => {
    const store = storeOf([endpoints()]);
    const settle = createPendingFindings({ window: 30, keep: 0 });
    const serviceAuditor = createServiceAuditor({ context: contextOf(store), settle });
    const lost = { resource: 'services', namespace: 'shop', name: 'web', labels: null } as const;
    runToEnd(serviceAuditor.markUnreadable(lost, 0));
    runToEnd(serviceAuditor.begin(0));
    const audited = serviceAuditor.audited.get('shop/web');
    expect(audited && isForeign(store.listers, audited)).toBe(false);
  });
});

test('a Service that never existed has no audit', () => {
  expect(verdicts([pod(), node()])).toBe('not known');
});

test('a verdict changes with the cluster', () => {
  const store = storeOf(settled);
  const context = contextOf(store);
  const serviceAuditor = createServiceAuditor({
    context,
    settle: createPendingFindings({ window: 30, keep: 0 }),
  });
  runToEnd(serviceAuditor.begin(0));
  const change = store.apply(event('deleted', slice(), 10));
  if (change !== null) serviceAuditor.apply(change);
  const audited = serviceAuditor.audited.get('shop/web');
  expect(audited && verdictOf(store.listers, audited, 'endpointslices')).toBe('pending');
});
