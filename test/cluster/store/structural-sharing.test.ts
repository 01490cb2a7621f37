// A stored object equals the one that arrived, and shares equal parts with pods and older versions.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { sharedEndpoints, sharedSlice } from '../../../src/cluster/store/store.ts';
import { equalRefs } from '../../../src/model/equality.ts';
import type { Endpoint, EndpointAddress, ObjectRef, Pod } from '../../../src/model/objects.ts';
import { address, endpoint, endpoints, pod, slice, subset, target } from '../../build.ts';

const pods = [
  pod(),
  pod({ name: 'web-2', ips: ['10.0.0.2', 'fd00::2'], hostname: 'web-2' }),
  pod({ name: 'twin', ips: ['10.0.0.1'] }),
];
const podOf = (target: ObjectRef): Pod | undefined =>
  pods.find(({ ref }) => equalRefs(ref, target));

const ips = ['10.0.0.1', '10.0.0.01', '10.0.0.2', 'fd00::2', '10.0.0.3'];
const targets = [target(), target('web-2'), target('twin'), target('web-1', { uid: 'x' }), null];
const anyEndpoint: fc.Arbitrary<Endpoint> = fc
  .record({
    addresses: fc.subarray(ips, { minLength: 1 }),
    ready: fc.boolean(),
    hostname: fc.constantFrom(null, 'web-2'),
    target: fc.constantFrom(...targets),
  })
  .map(endpoint);
const anyAddress: fc.Arbitrary<EndpointAddress> = fc
  .record({
    ip: fc.constantFrom(...ips),
    ready: fc.boolean(),
    hostname: fc.constantFrom('', 'web-2'),
    target: fc.constantFrom(...targets),
  })
  .map(address);
const anySlice = fc.array(anyEndpoint, { maxLength: 4 }).map((all) => slice({ endpoints: all }));
const anyEndpoints = fc
  .array(fc.array(anyAddress, { maxLength: 4 }), { maxLength: 2 })
  .map((all) => endpoints({ subsets: all.map((one) => subset(one)) }));

describe('a stored object is equal to the one that arrived', () => {
  test('slices', () => {
    fc.assert(
      fc.property(anySlice, fc.option(anySlice), (after, before) => {
        expect(sharedSlice(after, before, podOf)).toEqual(after);
      }),
    );
  });

  test('Endpoints', () => {
    fc.assert(
      fc.property(anyEndpoints, fc.option(anyEndpoints), (after, before) => {
        expect(sharedEndpoints(after, before, podOf)).toEqual(after);
      }),
    );
  });
});

test('an endpoint has the reference and the addresses of its pod', () => {
  const two = { ...endpoint({ addresses: ['10.0.0.2', 'fd00::2'], target: target('web-2') }) };
  const shared = sharedSlice(slice({ endpoints: [endpoint(), two] }), null, podOf).endpoints;
  expect(shared.map((one) => one.target)).toEqual([target(), target('web-2')]);
  expect(shared[0]?.target).toBe(pods[0]?.ref);
  expect(shared[0]?.addresses).toBe(pods[0]?.ips);
  expect(shared[1]?.target).toBe(pods[1]?.ref);
  expect(shared[1]?.addresses).toBe(pods[1]?.ips);
  const [first] = sharedEndpoints(endpoints(), null, podOf).subsets;
  expect(first?.addresses[0]?.target).toBe(pods[0]?.ref);
});

test('what did not change is taken from the version before, in its place', () => {
  const other = endpoint({ addresses: ['10.0.0.3'], target: null });
  const before = slice({ endpoints: [endpoint(), other] });
  const changed = endpoint({ ready: false });
  const { endpoints: shared } = sharedSlice(
    slice({ endpoints: [changed, { ...other }] }),
    before,
    podOf,
  );
  expect(shared[0]).toEqual(changed);
  expect(shared[1]).toBe(other);

  const listed = address({ ip: '10.0.0.3', target: null });
  const ports = subset().ports;
  const [was, is] = [listed, { ...listed, ready: false }].map((one) =>
    endpoints({ subsets: [subset([address(), one], ports)] }),
  );
  const first = was?.subsets[0]?.addresses ?? [];
  const kept = sharedEndpoints(is ?? endpoints(), was ?? null, podOf).subsets[0]?.addresses ?? [];
  expect(kept[0]).toBe(first[0]);
  expect(kept[1]).not.toBe(first[1]);
});

describe('what did not change is the one of the version before', () => {
  const many = Array.from({ length: 40 }, (_, at) => address({ ip: `10.0.1.${String(at)}` }));
  const changed = (at: number) => address({ ip: `10.0.1.${String(at)}`, ready: false });
  test.each([
    ['all', many, 40],
    ['all but the first', many.slice(1), 39],
    ['all but one within', many.toSpliced(20, 1), 39],
    ['one more', many.toSpliced(20, 0, changed(99)), 40],
    ['one that is otherwise', many.with(20, changed(20)), 39],
    ['one that has moved to the end', [...many.toSpliced(20, 1), changed(20)], 39],
    ['some that have gone', many.toSpliced(10, 6), 29],
    ['some that are otherwise', many.map((one, at) => (at % 4 < 2 ? changed(at) : one)), 20],
  ])('%s', (_, addresses, want) => {
    const before = endpoints({ subsets: [subset(many)] });
    const [was] = before.subsets;
    const fresh = addresses.map((one) => ({ ...one, ports: was?.ports ?? [] }));
    const after = {
      ...before,
      subsets: [{ ...subset([]), ports: was?.ports ?? [], addresses: fresh }],
    };
    const { subsets } = sharedEndpoints(after, before, podOf);
    const known = new Set(was?.addresses);
    expect(subsets[0]?.addresses.filter((one) => known.has(one))).toHaveLength(want);
  });
});
