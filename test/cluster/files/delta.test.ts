// A version that is written as a delta, read, and applied to the version before is equal.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { type Fields, WrongType } from '../../../src/cluster/decode/json-fields.ts';
import { applyDelta, type DeltaResource, deltaOf } from '../../../src/cluster/files/delta.ts';
import { applyParts } from '../../../src/cluster/files/parts.ts';
import { sharedEndpoints, sharedSlice } from '../../../src/cluster/store/store.ts';
import type { Endpoints, EndpointSlice, ObjectOf, Pod } from '../../../src/model/objects.ts';
import {
  address,
  endpoint,
  endpoints,
  pod,
  port,
  slice,
  subset,
  target,
  times,
} from '../../build.ts';

const names = times(8, (index) => `web-${index}`);

/** Some of the names in any order, and whether their endpoints are ready. */
const chosen = fc
  .shuffledSubarray(names)
  .chain((some) => fc.tuple(...some.map((name) => fc.tuple(fc.constant(name), fc.boolean()))));

const portLists = times(3, (index) => [port({ port: 80 + index })]);

const ipOf = (name: string): string => `10.0.0.${name.slice(4)}`;
const [version, bytes] = ['7', 900];

/** What a controller may change beside endpoints. */
const anyFields = fc.record({
  resourceVersion: fc.constantFrom('7', '8'),
  bytes: fc.constantFrom(900, 901),
  annotations: fc.constantFrom({}, { a: '1' }, { a: '2' }),
});

const anySlice = fc.tuple(chosen, anyFields, fc.nat(2)).map(([some, fields, generation]) => {
  const list = some.map(([name, ready]) =>
    endpoint({ addresses: [ipOf(name)], ready, target: target(name) }),
  );
  return slice({ ...fields, endpoints: list, generation });
});

const anyLists = fc.array(chosen, { maxLength: 3 });
const anyEndpoints = fc.tuple(anyLists, anyFields).map(([lists, fields]) => {
  const subsets = lists.map((some, index) => {
    const sorted = some.toSorted(([, a], [, b]) => Number(b) - Number(a));
    const addresses = sorted.map(([name, ready]) =>
      address({ ip: ipOf(name), ready, target: target(name) }),
    );
    return subset(addresses, portLists[index]);
  });
  return endpoints({ ...fields, subsets });
});

const arrived = 1234;

/** The whole object, from the delta as it is in a line. */
function readBack<R extends DeltaResource>(base: ObjectOf[R], delta: Fields): Pod | ObjectOf[R] {
  const read = JSON.parse(JSON.stringify(delta)) as Fields;
  expect(read.base).toBe(base.resourceVersion);
  return applyDelta(base, read, arrived) as ObjectOf[R];
}

describe('a delta has the same object', () => {
  const none = () => undefined;
  function expectSame<R extends DeltaResource>(resource: R, after: ObjectOf[R], base: ObjectOf[R]) {
    const delta = deltaOf(resource, after, base);
    if (delta === null) throw new Error('It is written whole');
    const at = resource === 'pods' ? {} : { at: arrived };
    expect(readBack(base, delta)).toEqual({ ...after, ...at });
  }

  test('of pods', () => {
    const anyPod = fc
      .record({
        resourceVersion: fc.constantFrom('7', '8'),
        ready: fc.boolean(),
        turnedAt: fc.constantFrom(null, 5, 6),
        ips: fc.constantFrom([], ['10.0.0.1'], ['10.0.0.1', '::1']),
        terminal: fc.boolean(),
      })
      .map((fields) => pod({ ...fields, ipsSince: 3 }));
    fc.assert(
      fc.property(anyPod, anyPod, (base, after) => {
        const isMoved = after.ips !== base.ips;
        expectSame('pods', isMoved ? { ...after, ipsSince: arrived } : after, base);
      }),
    );
  });

  test('of slices', () => {
    fc.assert(
      fc.property(anySlice, anySlice, (base, after) => {
        const stored = sharedSlice(after, base, none);
        expectSame('endpointslices', stored, base);
      }),
    );
  });

  test('of Endpoints', () => {
    fc.assert(
      fc.property(anyEndpoints, anyEndpoints, (base, after) => {
        const stored = sharedEndpoints(after, base, none);
        expectSame('endpoints', stored, base);
      }),
    );
  });
});

const many = (count: number, from = 0) =>
  times(count, (index) =>
    endpoint({ addresses: [`10.0.${index >> 8}.${index & 255}`, `${from}`] }),
  );
const sliceWith = (list: EndpointSlice['endpoints'], more: Partial<EndpointSlice> = {}) => ({
  ...slice({ endpoints: list, resourceVersion: version, bytes }),
  ...more,
});

const owner = { apiVersion: 'v1', kind: 'Service', name: 'web', uid: 'u', controller: true };

describe('what is written', () => {
  test('is the endpoint that has changed', () => {
    const list = many(100);
    const other = list.with(40, endpoint({ addresses: ['10.1.0.1'] }));
    const delta = deltaOf('endpointslices', sliceWith(other), sliceWith(list));
    expect(delta?.parts).toEqual([[[0, 40], 1, [41, 59]]]);
    expect(delta?.endpoints).toHaveLength(1);
  });

  test('is the address that has changed its readiness', () => {
    const of = (isReady: boolean): Endpoints => {
      const all = times(3, (at) => address({ ip: `10.0.0.${at}`, ready: at !== 1 || isReady }));
      const subsets = [subset(all, portLists[0])];
      return endpoints({ subsets, resourceVersion: version, bytes });
    };
    const before = of(true);
    const changed = sharedEndpoints(of(false), before, () => undefined);
    const delta = deltaOf('endpoints', changed, before);
    expect(delta?.parts).toEqual([[[0, 1], [2, 1], { of: 1, ready: false }]]);
    expect(delta?.subsets).toBe(undefined);
  });

  test('is what has changed in the status of a pod', () => {
    const [before, after] = [pod({ resourceVersion: '7' }), pod({ resourceVersion: '8' })];
    const { name, namespace } = before;
    const delta = deltaOf('pods', { ...after, ready: !before.ready }, before);
    expect(JSON.parse(JSON.stringify(delta))).toEqual({
      base: '7',
      metadata: { name, namespace, resourceVersion: '8' },
      ready: !before.ready,
    });
  });

  test.each<[string, Partial<Pod>, Partial<Pod>]>([
    ['its labels differ', { labels: { app: 'other' } }, {}],
    ['it gets a node', { node: 'node-9' }, {}],
    ['it is another pod', { uid: 'another' }, {}],
    [
      'its ports differ',
      { ports: [] },
      { ports: [{ name: 'a', protocol: 'TCP', port: 1, sidecar: false }] },
    ],
    ['it is being deleted', { deleting: true }, { deleting: true }],
    ['the base has no version', {}, { resourceVersion: '' }],
  ])('is the whole pod if %s', (_, after, base) => {
    const build = (more: Partial<Pod>) => ({ ...pod({ resourceVersion: '7' }), ...more });
    expect(deltaOf('pods', build(after), build(base))).toBe(null);
  });

  test('is no text of an annotation that kubectl writes', () => {
    const applied = 'kubectl.kubernetes.io/last-applied-configuration';
    const before = endpoints({ resourceVersion: '7', bytes, annotations: {} });
    const after = { ...before, annotations: { [applied]: '{}' } };
    expect(deltaOf('endpoints', after, before)?.annotations).toEqual({ [applied]: '' });
  });

  test.each([
    ['more than 32 endpoints are new', sliceWith(many(33)), sliceWith([])],
    ['the base has no version', sliceWith([]), sliceWith([], { resourceVersion: '' })],
    ['the size is not known', sliceWith([], { bytes: null }), sliceWith([])],
    ['its labels differ', sliceWith([], { labels: { a: 'b' } }), sliceWith([])],
    ['its ports differ', sliceWith([], { ports: [port({ port: 9 })] }), sliceWith([])],
    ['its owners differ', sliceWith([], { owners: [] }), sliceWith([], { owners: [owner] })],
  ])('is the whole object if %s', (_, after, base) => {
    expect(deltaOf('endpointslices', after, base)).toBe(null);
  });
});

test('Endpoints are written whole if several subsets have the same addresses', () => {
  const one = subset(times(2, (at) => address({ ip: `10.0.0.${at}` })));
  const of = (subsets: Endpoints['subsets']): Endpoints =>
    endpoints({ subsets, resourceVersion: version, bytes });
  expect(deltaOf('endpoints', of([one]), of([one, one]))).not.toBe(null);
  expect(deltaOf('endpoints', of([one, one]), of([one]))).toBe(null);
});

describe('parts that do not fit are an error', () => {
  const list = many(3);
  const object = sliceWith(many(1, 1));
  test.each<[string, unknown]>([
    ['no list', undefined],
    ['another number of lists', [[1], [1]]],
    ['a list that is none', [1]],
    ['more endpoints than there are', [[1, [2, 2]]]],
    ['a start before the first', [[1, [-1, 1]]]],
    ['a count that is none', [[1, [0, 0]]]],
    ['a fraction', [[1, [0.5, 1]]]],
    ['words', [[1, ['a', 'b']]]],
    ['an object', [[1, {}]]],
    ['fewer new ones than there are', [[[0, 3]]]],
    ['more new ones than there are', [[2]]],
    ['more than both have', [[1, [0, 3], [0, 1]]]],
    ['conditions of none', [[1, { of: 3, ready: true }]]],
    ['conditions of no number', [[1, { of: null, ready: true }]]],
    ['conditions that are words', [[1, { of: 0, ready: 'true' }]]],
    ['very many', [[1, ...times(1e6, () => [0, 3])]]],
    ['a count that hides others', [[1, [0, 3], [0, 3], [0, -5]]]],
  ])('%s', (_, parts) => {
    expect(() => applyParts(object, sliceWith(list), parts)).toThrow(WrongType);
  });
});

describe('addresses of a delta', () => {
  const [ready, other] = [address(), address({ ip: '10.0.0.2', ready: false })];
  const before = endpoints({ subsets: [subset([ready, other], portLists[0])] });

  test('have the ports of their subset, not those of the one that they were in', () => {
    const ports = [port({ port: 9 })];
    const empty = endpoints({ subsets: [subset([], ports)] });
    const [whole] = applyParts(empty, before, [[[0, 2]]]).subsets;
    expect(whole?.addresses.map((it) => it.ports)).toEqual([ports, ports]);
    expect(whole?.readyCount).toBe(1);
  });

  test('are an error if one that is not ready comes before one that is', () => {
    const empty = endpoints({ subsets: [subset([], portLists[0])] });
    const parts = [
      [
        [1, 1],
        [0, 1],
      ],
    ];
    expect(() => applyParts(empty, before, parts)).toThrow(WrongType);
  });
});
