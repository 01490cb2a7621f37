import fc from 'fast-check';
import { expect, test } from 'vitest';

import { createAddressTable } from '../../../src/cluster/store/pods-by-ip.ts';
import { canonicalIP } from '../../../src/model/ip.ts';
import type { Pod } from '../../../src/model/objects.ts';
import { pod } from '../../build.ts';

const named = (name: string, ...ips: string[]): Pod => pod({ name, ips });
const keysAt = (pods: readonly Pod[]): string[] => pods.map(({ key }) => key).sort();

test('finds the pods of an address, whatever its spelling', () => {
  const table = createAddressTable();
  const both = named('both', '010.0.0.1', 'fd00::1');
  table.replace(null, both);
  table.replace(null, named('other', '10.0.0.1'));
  expect(keysAt(table.at('10.0.0.1'))).toEqual(['shop/both', 'shop/other']);
  expect(table.at('fd00::1')).toEqual([both]);
  expect(table.at('10.0.0.2')).toEqual([]);
});

test('a new version stands in the place of the one before', () => {
  const table = createAddressTable();
  const [first, second] = [named('web', '10.0.0.1', '10.0.0.2'), named('web', '10.0.0.2')];
  table.replace(null, first);
  table.replace(first, second);
  expect(table.at('10.0.0.1')).toEqual([]);
  expect(table.at('10.0.0.2')).toEqual([second]);
  table.replace(second, null);
  expect(table.at('10.0.0.2')).toEqual([]);
});

// However full the table is when it comes: among so many, it is built anew at each step of some.
test('a pod of two addresses is there once, and leaves nothing behind', () => {
  const [first, second] = ['10.0.0.1', 'fd00::1'] as const;
  for (let others = 760; others < 775; others++) {
    for (const before of [[], [first], [second]]) {
      const table = createAddressTable();
      const versions = [before, [first, second], [first, second]].map((ips) =>
        named('web', ...ips),
      );
      const [bare = null, both = null, later = null] = versions;
      table.replace(null, bare);
      for (let at = 0; at < others; at++) {
        const ip = `10.1.${String(at >> 8)}.${String(at & 255)}`;
        table.replace(null, named(`other-${String(at)}`, ip));
      }
      table.replace(bare, both);
      table.replace(both, later);
      expect([table.at(first), table.at(second)]).toEqual([[later], [later]]);
      table.replace(later, null);
      expect([table.at(first), table.at(second)]).toEqual([[], []]);
    }
  }
});

test('there is room for a pod of more addresses than the table has slots', () => {
  const table = createAddressTable();
  const ips = Array.from(
    { length: 3000 },
    (_, at) => `10.1.${String(at >> 8)}.${String(at & 255)}`,
  );
  const many = named('many', ...ips);
  table.replace(null, many);
  expect(ips.filter((ip) => table.at(ip)[0] !== many)).toEqual([]);
});

// Few addresses, so that many pods share one; and far more changes than a small table has slots.
const change = fc.record({
  name: fc.integer({ min: 0, max: 40 }),
  ips: fc.option(fc.array(fc.integer({ min: 1, max: 30 }), { maxLength: 3 }), { freq: 3 }),
});

test('holds what a plain list of pods would', () => {
  fc.assert(
    fc.property(
      fc.array(change, { maxLength: 300 }),
      fc.integer({ min: 0, max: 3000 }),
      (...all) => {
        const [changes, others] = all;
        const table = createAddressTable();
        const held = new Map<string, Pod>();
        const set = (name: string, after: Pod | null): void => {
          table.replace(held.get(name) ?? null, after);
          if (after === null) held.delete(name);
          else held.set(name, after);
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
        const addresses = new Set([...held.values()].flatMap(({ ips }) => ips.map(canonicalIP)));
        for (const address of [...addresses, '10.0.0.99']) {
          const want = [...held.values()].filter(({ ips }) => ips.includes(address));
          expect(keysAt(table.at(address))).toEqual(keysAt(want));
        }
      },
    ),
    { numRuns: 60 },
  );
});
