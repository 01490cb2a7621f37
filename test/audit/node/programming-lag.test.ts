// Whether what readings of a node's rules tell of time is true: against changes and a node whose
// delay is known.

import fc from 'fast-check';
import { expect, test } from 'vitest';

import type { PacketDifference } from '../../../src/audit/node/aggregate.ts';
import {
  readingOf,
  newProgrammingState,
  resetProgrammingState,
} from '../../../src/audit/node/programming-lag.ts';
import { createProxyCache } from '../../../src/audit/node/proxy-cache.ts';
import type { ProxiedPort } from '../../../src/shadow/service-port.ts';
import { event, service, slice, storeOf } from '../../build.ts';

/** A difference at a Service port; nothing else of it is read. */
const differing = (name: string, subject: string, harmless = false): PacketDifference =>
  ({
    code: 'node-endpoint-missing',
    port: { namespace: 'shop', service: name } as ProxiedPort,
    subject,
    harmless,
  }) as PacketDifference;

function begun() {
  const store = storeOf([service(), service({ name: 'api' })]);
  const proxied = createProxyCache(store.listers);
  let version = 1;
  const change = (name: string, at: number): void => {
    const labels = { ...slice().labels, 'kubernetes.io/service-name': name };
    const resourceVersion = String(++version);
    const object = slice({ name: `${name}-x`, labels, resourceVersion, generation: version });
    const applied = store.apply(event('modified', object, at));
    if (applied !== null) proxied.apply(applied);
  };
  const following = newProgrammingState();
  const read = (at: number, differences: readonly PacketDifference[] = [], isSame = false) =>
    readingOf(
      { name: 'a', at: following.at, clocks: new Map(), following, isSame },
      { observed: { differences } as never, observer: { proxied } as never },
      at,
    );
  return { change, read, following };
}

test('lag lies between the last reading that was wrong and the first that is right', () => {
  const { change, read } = begun();
  expect(read(0).programmed).toEqual([]);
  change('web', 2);
  change('web', 3);
  expect(read(5, [differing('web', 'missing 10.0.0.1:80')]).programmed).toEqual([]);
  const judgement = read(10);
  expect(judgement).toMatchObject({ node: 'a', at: 10, before: 5 });
  // The first of both changes counts.
  expect(judgement.programmed).toEqual([{ service: 'shop/web', least: 3, most: 8 }]);
  expect(read(15).programmed).toEqual([]);
});

test('changes that are followed between two readings count, those after a reading wait', () => {
  const { change, read } = begun();
  read(0);
  change('api', 2);
  change('web', 6);
  expect(read(5).programmed).toEqual([{ service: 'shop/api', least: 0, most: 3 }]);
  expect(read(10).programmed).toEqual([{ service: 'shop/web', least: 0, most: 4 }]);
});

test('rules that are the same followed nothing', () => {
  const { change, read } = begun();
  read(0);
  change('web', 2);
  read(5, [differing('web', 'missing 10.0.0.1:80')]);
  // The change was taken back, and another asked nothing of the node.
  change('web', 7);
  change('api', 8);
  expect(read(10, [], true).programmed).toEqual([]);
  expect(read(15).programmed).toEqual([]);
});

test('what nobody suffers from is no delay', () => {
  const { change, read } = begun();
  read(0);
  change('web', 2);
  const { programmed, differs } = read(5, [differing('web', 'masqueraded', true)]);
  expect(programmed).toHaveLength(1);
  expect(differs?.('shop/web', ['10.0.0.1'])).toBe(false);
});

test('what came before the first reading, or while nothing was known, is not measured', () => {
  const { change, read, following } = begun();
  change('web', 1);
  expect(read(5).programmed).toEqual([]);
  change('web', 6);
  resetProgrammingState(following);
  expect(read(10).programmed).toEqual([]);
  expect(read(15).programmed).toEqual([]);
});

test('a difference at another address does not keep a pod from the node', () => {
  const { read } = begun();
  const { differs } = read(0, [
    differing('web', 'missing 10.0.0.1:80'),
    differing('api', 'shadowed'),
    differing('six', 'unexpected [fd00::1]:80'),
  ]);
  expect(differs?.('shop/web', ['10.0.0.1'])).toBe(true);
  expect(differs?.('shop/web', ['10.0.0.2'])).toBe(false);
  // Nobody comes to a frontend that others shadow.
  expect(differs?.('shop/api', ['10.0.0.2'])).toBe(true);
  expect(differs?.('shop/six', ['fd00:0::1'])).toBe(true);
  expect(differs?.('shop/other', ['10.0.0.1'])).toBe(false);
});

test('the true delay lies between what is told, whatever the readings', () => {
  const gaps = fc.array(fc.double({ min: 0.1, max: 9, noNaN: true }), { minLength: 3 });
  const delays = fc.double({ min: 0, max: 30, noNaN: true });
  fc.assert(
    fc.property(gaps, delays, fc.double({ min: 0, max: 5, noNaN: true }), (all, delay, at) => {
      const { change, read } = begun();
      read(0);
      let now = 0;
      let changed = false;
      for (const gap of all) {
        if (!changed && now + gap > at) {
          change('web', at);
          changed = true;
        }
        now += gap;
        const isLate = changed && now < at + delay;
        const { programmed } = read(now, isLate ? [differing('web', 'missing 10.0.0.1:80')] : []);
        for (const { least, most } of programmed) {
          expect(least).toBeLessThanOrEqual(delay + 1e-9);
          expect(most).toBeGreaterThanOrEqual(delay - 1e-9);
        }
      }
    }),
  );
});
