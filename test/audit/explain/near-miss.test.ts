// Near misses by example: names that may be meant, names that differ too much, and the limits.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import {
  isNear,
  missedPairs,
  namespacesMatching,
  podsNear,
  servicesNear,
} from '../../../src/audit/explain/near-miss.ts';
import { selects } from '../../../src/model/selector.ts';
import { pod, service, storeOf, times } from '../../build.ts';

describe('isNear', () => {
  test.each([
    ['thumb', 'thumbnail', true],
    ['web', 'wep', true],
    ['Web', 'web', true],
    ['metrics', 'metric', true],
    ['frontend', 'fronted', true],
    ['web', 'web', false],
    ['web', 'api', false],
    ['a', 'b', false],
    ['resizer', 'thumbnail', false],
    ['', 'web', false],
  ])('%s and %s: %s', (a, b, want) => {
    expect(isNear(a, b)).toBe(want);
    expect(isNear(b, a)).toBe(want);
  });

  test('very long texts are never near', () => {
    expect(isNear('x'.repeat(100_000), `${'x'.repeat(100_000)}y`)).toBe(false);
  });
});

const words = fc.constantFrom('app', 'tier', 'web', 'wep', 'x');
const labels = fc.dictionary(words, words, { maxKeys: 3 });

test('pairs are missed exactly if the selector does not select', () => {
  fc.assert(
    fc.property(labels, labels, (selector, of) => {
      if (Object.keys(selector).length === 0) return;
      expect(missedPairs(selector, of).length === 0).toBe(selects(selector, of));
    }),
  );
});

test('a missed pair has the value of the pod and the key that may be meant', () => {
  const got = missedPairs({ app: 'web', tier: 'x' }, { App: 'web', tier: 'y' });
  expect(got).toEqual([
    { key: 'app', want: 'web', got: null, near: true, nearKey: 'App' },
    { key: 'tier', want: 'x', got: 'y', near: false, nearKey: null },
  ]);
});

describe('servicesNear', () => {
  const keysOf = (labels: Record<string, string>, ...services: Parameters<typeof service>[]) => {
    const all = services.map((args) => service(...args));
    const { listers } = storeOf(all);
    return servicesNear(listers, pod({ labels })).map((one) => one.service.key);
  };

  test('a misspelled value comes before a surplus pair, and that before another namespace', () => {
    const got = keysOf(
      { app: 'wep', tier: 'a' },
      [{ namespace: 'bank', name: 'there', selector: { app: 'wep' } }],
      [{ name: 'strict', selector: { app: 'wep', tier: 'front' } }],
      [{ name: 'web', selector: { app: 'web' } }],
      [{ name: 'other', selector: { app: 'search' } }],
      [{ name: 'selected', selector: { app: 'wep' } }],
    );
    expect(got).toEqual(['shop/web', 'shop/strict', 'bank/there']);
  });

  test('equally near Services are sorted by name', () => {
    const names = ['web-2', 'web-1', 'web-3'];
    const services = names.map((name): Parameters<typeof service> => [{ name }]);
    expect(keysOf({ app: 'wep' }, ...services)).toEqual(['shop/web-1', 'shop/web-2', 'shop/web-3']);
  });
});

describe('podsNear', () => {
  test('near misses come first, then other values of the key, most pods first', () => {
    const many = times(3, (index) => pod({ name: `resizer-${index}`, labels: { app: 'resizer' } }));
    const one = pod({ name: 'edge', labels: { app: 'edge' } });
    const meant = pod({ name: 'thumb', labels: { app: 'thumb' } });
    const bare = pod({ name: 'bare', labels: { job: 'x' } });
    const { listers } = storeOf([...many, one, meant, bare]);
    const want = service({ name: 'thumbnails', selector: { app: 'thumbnail' } });
    const nearest = podsNear(listers, want);
    const got = nearest.map(({ pod: first, count, near }) => [first.name, count, near]);
    expect(got).toEqual([
      ['thumb', 1, true],
      ['resizer-0', 3, false],
      ['edge', 1, false],
    ]);
  });

  test('a Service without a selector has no near pods', () => {
    const { listers } = storeOf([pod()]);
    expect(podsNear(listers, service({ selector: null }))).toEqual([]);
  });
});

test('other namespaces with matching pods are named', () => {
  const pods = [
    pod(),
    pod({ namespace: 'bank' }),
    pod({ namespace: 'play', labels: { app: 'x' } }),
  ];
  const { listers } = storeOf(pods);
  expect(namespacesMatching(listers, service())).toEqual(['bank']);
});
