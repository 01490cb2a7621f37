import fc from 'fast-check';
import { expect, test } from 'vitest';

import { createIndex } from '../../../src/cluster/store/store.ts';
import { canonicalIP } from '../../../src/model/ip.ts';
import type { Pod } from '../../../src/model/objects.ts';
import { pod } from '../../build.ts';

const named = (name: string, ...ips: string[]): Pod => pod({ name, ips });
const newIndex = () =>
  createIndex(
    ({ ips }: Pod) => [...new Set(ips.map(canonicalIP))],
    (it) => it,
  );
const keysAt = (pods: readonly Pod[]): string[] => pods.map(({ key }) => key).sort();

test('the pods of an address are found by its canonical form', () => {
  const index = newIndex();
  const both = named('both', '010.0.0.1', 'fd00::1');
  index.replace(null, both);
  index.replace(null, named('other', '10.0.0.1'));
  expect(keysAt(index.get('10.0.0.1'))).toEqual(['shop/both', 'shop/other']);
  expect(index.get('fd00::1')).toEqual([both]);
  expect(index.get('10.0.0.2')).toEqual([]);
});

test('a new version replaces the one before', () => {
  const index = newIndex();
  const [first, second] = [named('web', '10.0.0.1', '10.0.0.2'), named('web', '10.0.0.2')];
  index.replace(null, first);
  index.replace(first, second);
  expect(index.get('10.0.0.1')).toEqual([]);
  expect(index.get('10.0.0.2')).toEqual([second]);
  index.replace(second, null);
  expect(index.get('10.0.0.2')).toEqual([]);
});

test('a pod of two addresses is found once for each, and removed from both', () => {
  for (const before of [[], ['10.0.0.1'], ['fd00::1']]) {
    const index = newIndex();
    const versions = [before, ['10.0.0.1', 'fd00::1'], ['10.0.0.1', 'fd00::1']];
    const [bare = null, both = null, later = null] = versions.map((ips) => named('web', ...ips));
    index.replace(null, bare);
    index.replace(bare, both);
    index.replace(both, later);
    expect([index.get('10.0.0.1'), index.get('fd00::1')]).toEqual([[later], [later]]);
    index.replace(later, null);
    expect([index.get('10.0.0.1'), index.get('fd00::1')]).toEqual([[], []]);
  }
});

// Few addresses, so that many pods share one.
const change = fc.record({
  name: fc.integer({ min: 0, max: 40 }),
  ips: fc.option(fc.array(fc.integer({ min: 1, max: 30 }), { maxLength: 3 }), { freq: 3 }),
});

test('an index has the pods that a scan of all pods finds', () => {
  fc.assert(
    fc.property(
      fc.array(change, { maxLength: 300 }),
      fc.integer({ min: 0, max: 3000 }),
      (...all) => {
        const [changes, others] = all;
        const index = newIndex();
        const byName = new Map<string, Pod>();
        const set = (name: string, after: Pod | null): void => {
          index.replace(byName.get(name) ?? null, after);
          if (after === null) byName.delete(name);
          else byName.set(name, after);
        };
        for (let at = 0; at < others; at++) {
          const name = `many-${String(at)}`;
          set(name, named(name, `10.1.${String(at >> 8)}.${String(at & 255)}`));
          if (at % 3 === 0) set(name, null);
        }
        for (const { name, ips } of changes) {
          const ofIt = ips?.map((ip) =>
            ip % 5 === 0 ? `fd00::${String(ip)}` : `10.0.0.${String(ip)}`,
          );
          set(
            `web-${String(name)}`,
            ofIt === undefined ? null : named(`web-${String(name)}`, ...ofIt),
          );
        }
        const addresses = new Set([...byName.values()].flatMap(({ ips }) => ips.map(canonicalIP)));
        for (const address of [...addresses, '10.0.0.99']) {
          const want = [...byName.values()].filter(({ ips }) => ips.includes(address));
          expect(keysAt(index.get(address))).toEqual(keysAt(want));
        }
      },
    ),
    { numRuns: 60 },
  );
});
