// Programming lag, compared with changes and nodes whose delay is known.

import fc from 'fast-check';
import { expect, test } from 'vitest';

import type { PacketDifference } from '../../../src/audit/node/packet-difference.ts';
import type { CurrentReading } from '../../../src/audit/node/node-state.ts';
import { newNodeState } from '../../../src/audit/node/node-state.ts';
import { createProxyCache } from '../../../src/audit/node/proxy-cache.ts';
import { readingOf, serviceOf } from '../../../src/audit/node/staleness.ts';
import type { ProxiedPort } from '../../../src/shadow/service-port.ts';
import { event, service, slice, storeOf } from '../../build.ts';

/** A difference at a Service port, with the fields that are read. */
const differing = (name: string, key: string, harmless = false): PacketDifference =>
  ({
    code: 'node-endpoint-missing',
    port: { namespace: 'shop', service: name } as ProxiedPort,
    key,
    harmless,
  }) as PacketDifference;

function begun() {
  const headless = { clusterIP: 'None', clusterIPs: ['None'] };
  const store = storeOf([
    service(),
    service({ name: 'api' }),
    service({ name: 'db', ...headless }),
  ]);
  const proxied = createProxyCache(store.listers);
  let version = 1;
  const change = (name: string, at: number): void => {
    const labels = { ...slice().labels, 'kubernetes.io/service-name': name };
    const resourceVersion = String(++version);
    const object = slice({ name: `${name}-x`, labels, resourceVersion, generation: version });
    const applied = store.apply(event('modified', object, at));
    if (applied !== null) proxied.apply(applied);
  };
  const state = newNodeState('a');
  const read = (at: number, differences: readonly PacketDifference[] = [], isSame = false) =>
    readingOf(state, at, {
      proxied,
      byService: Map.groupBy(differences, (it) => serviceOf(proxied, it)),
      isSame,
      at,
    } as unknown as CurrentReading);
  return { change, read, state };
}

test('lag is between the last wrong and the first right reading', () => {
  const { change, read } = begun();
  expect(read(0).programmed).toEqual([]);
  change('web', 2);
  change('web', 3);
  expect(read(5, [differing('web', 'missing 10.0.0.1:80')]).programmed).toEqual([]);
  const reading = read(10);
  expect(reading).toMatchObject({ node: 'a', at: 10, before: 5 });
  // The first of both changes counts.
  expect(reading.programmed).toEqual([{ service: 'shop/web', least: 3, most: 8 }]);
  expect(read(15).programmed).toEqual([]);
});

test('changes followed between two readings are samples, later ones wait', () => {
  const { change, read } = begun();
  read(0);
  change('api', 2);
  change('web', 6);
  expect(read(5).programmed).toEqual([{ service: 'shop/api', least: 0, most: 3 }]);
  expect(read(10).programmed).toEqual([{ service: 'shop/web', least: 0, most: 4 }]);
});

test('equal rules followed no change', () => {
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

test('a harmless difference is no delay', () => {
  const { change, read } = begun();
  read(0);
  change('web', 2);
  const { programmed, differs } = read(5, [differing('web', 'masqueraded', true)]);
  expect(programmed).toHaveLength(1);
  expect(differs?.('shop/web', ['10.0.0.1'])).toBe(false);
});

test('no node follows a headless Service', () => {
  const { change, read } = begun();
  read(0);
  change('db', 2);
  expect(read(5).programmed).toEqual([]);
});

test('changes before the first reading, or without known rules, are not measured', () => {
  const { change, read, state } = begun();
  change('web', 1);
  expect(read(5).programmed).toEqual([]);
  change('web', 6);
  state.programming = null;
  expect(read(10).programmed).toEqual([]);
  expect(read(15).programmed).toEqual([]);
});

test('a difference at another address does not concern a pod', () => {
  const { read } = begun();
  const { differs } = read(0, [
    differing('web', 'missing 10.0.0.1:80'),
    differing('api', 'shadowed'),
    differing('six', 'unexpected [fd00::1]:80'),
  ]);
  expect(differs?.('shop/web', ['10.0.0.1'])).toBe(true);
  expect(differs?.('shop/web', ['10.0.0.2'])).toBe(false);
  // A shadowed frontend concerns all of its pods.
  expect(differs?.('shop/api', ['10.0.0.2'])).toBe(true);
  expect(differs?.('shop/six', ['fd00:0::1'])).toBe(true);
  expect(differs?.('shop/other', ['10.0.0.1'])).toBe(false);
});

test('the true delay is between both bounds for all readings', () => {
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
