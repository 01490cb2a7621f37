import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { AnyObject, Resource } from '../../src/model/objects.ts';
import type { Scope } from '../../src/model/scope.ts';
import {
  fnv1a,
  isInScope,
  isServiceInScope,
  listedNamespaces,
  wholeCluster,
} from '../../src/model/scope.ts';
import { endpoints, node, owner, pod, service, slice } from '../build.ts';

const scopeOf = (more: Partial<Scope>): Scope => ({ ...wholeCluster, ...more });

test('the namespaces to list are those that are named, once each, without the excluded', () => {
  expect(listedNamespaces(scopeOf({ excluded: ['shop'] }))).toBeNull();
  const named = { namespaces: ['shop', 'bank', 'shop', 'farm'], excluded: ['bank'] };
  expect(listedNamespaces(scopeOf(named))).toEqual(['shop', 'farm']);
});

describe('namespaces', () => {
  const here: [Resource, AnyObject][] = [
    ['services', service()],
    ['pods', pod()],
    ['endpoints', endpoints()],
    ['endpointslices', slice()],
  ];
  const cases: [string, Partial<Scope>, boolean][] = [
    ['all', {}, true],
    ['named', { namespaces: ['bank', 'shop'] }, true],
    ['not named', { namespaces: ['bank'] }, false],
    ['excluded', { excluded: ['shop'] }, false],
    ['another is excluded', { excluded: ['bank'] }, true],
    ['named and excluded', { namespaces: ['shop'], excluded: ['shop'] }, false],
  ];
  test.each(cases)('%s', (_name, more, want) => {
    for (const [resource, object] of here) {
      expect([resource, isInScope(scopeOf(more), resource, object)]).toEqual([resource, want]);
    }
    expect(isInScope(scopeOf(more), 'nodes', node())).toBe(true);
  });
});

describe('shards', () => {
  const names = fc.stringMatching(/^[a-z][a-z0-9-]{0,20}$/);

  test('every Service is in exactly one, with all that is written for it', () => {
    const property = fc.property(
      names,
      names,
      fc.integer({ min: 1, max: 9 }),
      (ns, name, count) => {
        const objects: [Resource, AnyObject][] = [
          ['services', service({ namespace: ns, name })],
          ['endpoints', endpoints({ namespace: ns, name })],
        ];
        const scopes = Array.from({ length: count }, (_, index) =>
          scopeOf({ shard: { index, count } }),
        );
        const mine = scopes.filter((scope) => isServiceInScope(scope, ns, name));
        expect(mine).toHaveLength(1);
        for (const [resource, object] of objects) {
          expect(scopes.filter((scope) => isInScope(scope, resource, object))).toEqual(mine);
        }
        const labels = { 'kubernetes.io/service-name': name };
        const written = slice({ namespace: ns, labels, owners: [] });
        expect(scopes.filter((scope) => isInScope(scope, 'endpointslices', written))).toEqual(mine);
        expect(scopes.every((scope) => isInScope(scope, 'pods', pod({ namespace: ns })))).toBe(
          true,
        );
      },
    );
    fc.assert(property);
  });

  test('a slice that names another Service is still its owner’s business', () => {
    const [one, two] = [0, 1].map((index) => scopeOf({ shard: { index, count: 2 } }));
    const name = ['a', 'b', 'c', 'd', 'e', 'f'].find(
      (name) =>
        isServiceInScope(one ?? wholeCluster, 'shop', name) !==
        isServiceInScope(one ?? wholeCluster, 'shop', 'web'),
    );
    const stolen = slice({ labels: { 'kubernetes.io/service-name': name ?? '' } });
    for (const scope of [one, two]) {
      expect(isInScope(scope ?? wholeCluster, 'endpointslices', stolen)).toBe(true);
    }
  });

  test('an owner that is no Service does not decide the shard of a slice', () => {
    const scopes = [0, 1, 2].map((index) => scopeOf({ shard: { index, count: 3 } }));
    const labels = { 'kubernetes.io/service-name': 'web' };
    for (const name of ['a', 'b', 'c', 'd', 'e', 'f']) {
      const written = slice({ labels, owners: [owner({ kind: 'Mesh', name })] });
      const theirs = scopes.filter((scope) => isInScope(scope, 'endpointslices', written));
      expect(theirs).toEqual(scopes.filter((scope) => isServiceInScope(scope, 'shop', 'web')));
    }
  });

  test('Services spread over the shards, as they did before', () => {
    const counts = [0, 0, 0];
    for (let index = 0; index < 3000; index++) {
      const shard = [0, 1, 2].findIndex((one) =>
        isServiceInScope(scopeOf({ shard: { index: one, count: 3 } }), 'shop', `service-${index}`),
      );
      counts[shard] = (counts[shard] ?? 0) + 1;
    }
    for (const count of counts) expect(Math.abs(count - 1000)).toBeLessThan(150);
    const shop = (index: number): boolean =>
      isServiceInScope(scopeOf({ shard: { index, count: 1000 } }), 'shop', 'web');
    // FNV-1a of "shop/web" is fixed: another hash would move every Service.
    expect(Array.from({ length: 1000 }, (_, index) => index).filter(shop)).toEqual([388]);
  });
});

// The values are those that the authors of FNV publish.
test.each([
  ['', 0x811c9dc5],
  ['a', 0xe40c292c],
  ['foobar', 0xbf9cf968],
])('the hash of %j', (text, want) => {
  expect(fnv1a(text)).toBe(want);
});
