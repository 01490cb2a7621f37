import fc from 'fast-check';
import { expect, test } from 'vitest';

import {
  countsByBound,
  createSizes,
  largestBytes,
  objectBytesLimit,
  objectCount,
  sizeBounds,
  trackSize,
} from '../../../src/audit/measure/size.ts';
import type { Change, Endpoints, EndpointSlice } from '../../../src/model/objects.ts';
import { endpoints, pod, slice } from '../../build.ts';

type Sized = Endpoints | EndpointSlice | null;

const change = (before: Sized, after: Sized): Change => {
  const some = after ?? before;
  const resource = some !== null && 'subsets' in some ? 'endpoints' : 'endpointslices';
  return { resource, before, after, at: 0 };
};

test('the largest object is an existing one', () => {
  const sizes = createSizes();
  const [small, large, grown] = [100, 2000, 300].map((bytes) => slice({ bytes }));
  trackSize(sizes, change(null, small ?? null), null);
  trackSize(sizes, change(null, large ?? null), null);
  expect(largestBytes(sizes.endpointslices)).toBe(2000);
  trackSize(sizes, change(large ?? null, null), null);
  expect(largestBytes(sizes.endpointslices)).toBe(100);
  trackSize(sizes, change(small ?? null, grown ?? null), null);
  expect(largestBytes(sizes.endpointslices)).toBe(300);
  trackSize(sizes, change(grown ?? null, null), null);
  expect(largestBytes(sizes.endpointslices)).toBe(0);
  expect(sizes.endpointslices.objects.size).toBe(0);
});

test('objects without a size are counted apart from the sizes', () => {
  const sizes = createSizes();
  trackSize(sizes, change(null, endpoints({ bytes: null })), null);
  trackSize(sizes, change(null, endpoints({ bytes: 50 })), null);
  expect(objectCount(sizes.endpoints)).toBe(2);
  expect(countsByBound(sizes.endpoints).at(-1)).toBe(1);
  trackSize(sizes, change(endpoints({ bytes: null }), endpoints({ bytes: 70 })), null);
  expect(sizes.endpoints.objects.has(null)).toBe(false);
  expect(countsByBound(sizes.endpoints).at(-1)).toBe(2);
});

test('a bound counts the objects of at most its size', () => {
  const sizes = createSizes();
  for (const bytes of [1024, 1025, objectBytesLimit, objectBytesLimit + 1]) {
    trackSize(sizes, change(null, slice({ bytes })), null);
  }
  expect(countsByBound(sizes.endpointslices)).toEqual([1, 2, 2, 2, 2, 3]);
  expect(sizeBounds.at(-1)).toBe(1_572_864);
});

test('an update costs its bytes, times the Nodes; a deletion sends the last version', () => {
  const sizes = createSizes();
  trackSize(sizes, change(slice({ bytes: 900 }), slice({ bytes: 1000 })), 5);
  trackSize(sizes, change(slice({ bytes: 1000 }), null), 4);
  expect(sizes.endpointslices).toMatchObject({
    updates: 2,
    updateBytes: 2000,
    fanoutBytes: 9000,
  });
  expect(sizes.endpoints).toMatchObject({ updates: 0, updateBytes: 0, fanoutBytes: 0 });
});

test('kube-proxy does not watch headless Services, nor those of another proxy', () => {
  const labels = [
    { 'service.kubernetes.io/headless': '' },
    { 'service.kubernetes.io/service-proxy-name': 'other' },
  ];
  for (const one of labels) {
    const sizes = createSizes();
    trackSize(sizes, change(null, slice({ bytes: 1000, labels: one })), 5);
    expect(sizes.endpointslices).toMatchObject({ updateBytes: 1000, fanoutBytes: 0 });
  }
});

test('other resources are ignored', () => {
  const sizes = createSizes();
  const other: Change = { resource: 'pods', before: null, after: pod(), at: 0 };
  trackSize(sizes, other, 3);
  expect(sizes).toEqual(createSizes());
});

test('the counts equal the existing objects after any changes', () => {
  const anyBytes = fc.oneof(fc.constant(null), fc.nat(2_000_000));
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(4), fc.option(anyBytes))), (steps) => {
      const sizes = createSizes();
      const cached = new Map<number, EndpointSlice>();
      for (const [key, bytes] of steps) {
        const before = cached.get(key) ?? null;
        const after = bytes === null ? null : slice({ bytes });
        trackSize(sizes, change(before, after), null);
        if (after === null) cached.delete(key);
        else cached.set(key, after);
      }
      const known = [...cached.values()].map(({ bytes }) => bytes ?? 0);
      expect(objectCount(sizes.endpointslices)).toBe(cached.size);
      expect(largestBytes(sizes.endpointslices)).toBe(Math.max(0, ...known));
    }),
  );
});
