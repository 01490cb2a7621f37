// A version that is written as a delta, read, and applied to the version before is equal.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { WrongType } from '../../../src/cluster/decode/json-fields.ts';
import { project } from '../../../src/cluster/decode/json-objects.ts';
import {
  type AnyOutput,
  applyDelta,
  type Delta,
  deltaOf,
} from '../../../src/cluster/files/delta.ts';
import { sharedEndpoints, sharedSlice } from '../../../src/cluster/store/store.ts';
import type { Endpoints, EndpointSlice, OutputResource } from '../../../src/model/objects.ts';
import { address, endpoint, endpoints, port, slice, subset, target, times } from '../../build.ts';

const names = times(8, (index) => `web-${index}`);

/** Some of the names in any order, and whether their endpoints are ready. */
const chosen = fc
  .shuffledSubarray(names)
  .chain((some) => fc.tuple(...some.map((name) => fc.tuple(fc.constant(name), fc.boolean()))));

const portLists = times(3, (index) => [port({ port: 80 + index })]);

const ipOf = (name: string): string => `10.0.0.${name.slice(4)}`;
const [version, bytes] = ['7', 900];

const anySlice = chosen.map((some) => {
  const list = some.map(([name, ready]) =>
    endpoint({ addresses: [ipOf(name)], ready, target: target(name) }),
  );
  return slice({ endpoints: list, resourceVersion: version, bytes });
});

const anyEndpoints = fc.array(chosen, { maxLength: 3 }).map((lists) => {
  const subsets = lists.map((some, index) => {
    const sorted = some.toSorted(([, a], [, b]) => Number(b) - Number(a));
    const addresses = sorted.map(([name, ready]) =>
      address({ ip: ipOf(name), ready, target: target(name) }),
    );
    return subset(addresses, portLists[index]);
  });
  return endpoints({ subsets, resourceVersion: version, bytes });
});

/** The whole object, from the delta as it is in a line. */
function readBack(resource: OutputResource, base: AnyOutput, delta: Delta): AnyOutput {
  const read = JSON.parse(JSON.stringify(delta)) as Delta;
  const { object } = project(resource, read.object, base.at, { bytes: read.bytes });
  if (object === undefined) throw new Error('The object cannot be read');
  expect(read.base).toBe(base.resourceVersion);
  return applyDelta(object, base, read.parts);
}

describe('a delta has the same object', () => {
  const none = () => [];
  const expectSame = (resource: OutputResource, stored: AnyOutput, base: AnyOutput): void => {
    const delta = deltaOf(resource, stored, base);
    if (delta === null) throw new Error('It is written whole');
    expect(readBack(resource, base, delta)).toEqual(stored);
  };

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

describe('what is written', () => {
  test('is the endpoint that has changed', () => {
    const list = many(100);
    const other = list.with(40, endpoint({ addresses: ['10.1.0.1'] }));
    const delta = deltaOf('endpointslices', sliceWith(other), sliceWith(list));
    expect(delta?.parts).toEqual([[[0, 40], 1, [41, 59]]]);
    expect(delta?.object.endpoints).toHaveLength(1);
  });

  test('is the address that has changed its readiness', () => {
    const of = (isReady: boolean): Endpoints => {
      const all = times(3, (at) => address({ ip: `10.0.0.${at}`, ready: at !== 1 || isReady }));
      const subsets = [subset(all, portLists[0])];
      return endpoints({ subsets, resourceVersion: version, bytes });
    };
    const before = of(true);
    const changed = sharedEndpoints(of(false), before, () => []);
    const delta = deltaOf('endpoints', changed, before);
    expect(delta?.parts).toEqual([[[0, 1], [2, 1], 1]]);
    const [written] = (delta?.object.subsets ?? []) as Record<string, unknown[]>[];
    expect(written?.addresses).toBe(undefined);
    expect(written?.notReadyAddresses).toHaveLength(1);
  });

  test.each([
    ['more than 32 endpoints are new', sliceWith(many(33)), sliceWith([])],
    ['the base has no version', sliceWith([]), sliceWith([], { resourceVersion: '' })],
    ['the size is not known', sliceWith([], { bytes: null }), sliceWith([])],
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
    ['very many', [[1, ...times(1e6, () => [0, 3])]]],
    ['a count that hides others', [[1, [0, 3], [0, 3], [0, -5]]]],
  ])('%s', (_, parts) => {
    expect(() => applyDelta(object, sliceWith(list), parts)).toThrow(WrongType);
  });
});

describe('addresses of a delta', () => {
  const [ready, other] = [address(), address({ ip: '10.0.0.2', ready: false })];
  const before = endpoints({ subsets: [subset([ready, other], portLists[0])] });

  test('have the ports of their subset, not those of the one that they were in', () => {
    const ports = [port({ port: 9 })];
    const empty = endpoints({ subsets: [subset([], ports)] });
    const [whole] = applyDelta(empty, before, [[[0, 2]]]).subsets;
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
    expect(() => applyDelta(empty, before, parts)).toThrow(WrongType);
  });
});
