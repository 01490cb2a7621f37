// Differences of a node compared with earlier versions of Services.
// test/recordings/shop.recorded.test.ts finds a stale node in a real recording.

import { join } from 'node:path';

import { expect, test } from 'vitest';

import { auditNode } from '../../../src/audit/node/audit-node.ts';
import { behaviorOfRules } from '../../../src/audit/node/observation.ts';
import { createProxyCache } from '../../../src/audit/node/proxy-cache.ts';
import type { CurrentReading } from '../../../src/audit/node/node-state.ts';
import {
  divergedAt,
  persistedSince,
  serviceOf,
  staleness,
} from '../../../src/audit/node/staleness.ts';
import type { EndpointSlice } from '../../../src/model/objects.ts';
import { expectedForwarding } from '../../../src/shadow/forwarding.ts';
import { event, storeOf } from '../../build.ts';
import { readFolder } from '../../nodes/folder.ts';
import { inputOf } from '../../nodes/walk.ts';

const folder = readFolder(join(import.meta.dirname, '../../nodes/recordings/main/nftables/node-a'));
const input = inputOf(folder);
if (input === null) throw new Error('No objects');
const { services, slices, node, config } = input;

const sliceOf = (name: string): EndpointSlice => {
  const found = slices.find(({ labels }) => labels['kubernetes.io/service-name'] === name);
  if (found === undefined) throw new Error(`No slice of ${name}`);
  return found;
};

/** The node after changes that did not reach it. */
function after(...changes: readonly (readonly [ReturnType<typeof event>['object'], number])[]) {
  const store = storeOf([node, ...services, ...slices]);
  const proxied = createProxyCache(store.listers);
  for (const [object, at] of changes) {
    const change = store.apply(event('modified', object, at));
    if (change !== null) proxied.apply(change);
  }
  const { localAddresses } = folder.node;
  const all = proxied.services.values();
  const forwarding = expectedForwarding(all, proxied.slices, node, config, localAddresses);
  const given = { forwarding, node, rules: behaviorOfRules(folder.ruleset, folder.node) };
  const audit = auditNode(given);
  const { differences } = audit;
  const byService = Map.groupBy(differences, (it) => serviceOf(proxied, it));
  const keys = byService.keys();
  const observer: CurrentReading = {
    ...given,
    ...{ config, proxied, divergences: new Map(), audit, byService, isSame: false, at: 0 },
  };
  return { observer, keys, stale: staleness(observer, differences) };
}

const shorter = (name: string, version: number, by = 1): EndpointSlice => ({
  ...sliceOf(name),
  resourceVersion: String(version),
  endpoints: sliceOf(name).endpoints.slice(by),
});

test('a node that no change reaches is stale since the first change', () => {
  const { stale } = after([shorter('ten', 9_000_001), 5], [shorter('ten', 9_000_002, 2), 9]);
  expect(stale).toEqual({ since: 5, services: new Set(['shop/ten']) });
});

test('a node that a later change reaches is not stale', () => {
  // The rules match the Service that changed back, and did not match it at 5.
  const same = (version: number): EndpointSlice => shorter('np', version, 0);
  const { stale, observer } = after(
    [shorter('np', 9_000_000), 1],
    [shorter('ten', 9_000_001), 5],
    [same(9_000_002), 9],
  );
  expect(divergedAt(observer, 'shop/ten')).toBe(5);
  expect(stale).toBeNull();
});

test('a Service without earlier versions has not diverged', () => {
  const { observer, keys } = after();
  expect([...keys]).toEqual([]);
  expect(divergedAt(observer, 'shop/ten')).toBeNull();
});

const ten = sliceOf('ten');

/** The differences after these numbers of endpoints were removed, at 10, 20 and so on. */
function differencesAfter(...left: readonly number[]) {
  const store = storeOf([node, ...services, ...slices]);
  const proxied = createProxyCache(store.listers);
  for (const [at, by] of left.entries()) {
    const resourceVersion = String(9_000_000 + at);
    const slice = { ...ten, resourceVersion, endpoints: ten.endpoints.slice(by) };
    const change = store.apply(event('modified', slice, 10 * (at + 1)));
    if (change !== null) proxied.apply(change);
  }
  const rules = behaviorOfRules(folder.ruleset, folder.node);
  const { localAddresses } = rules;
  const all = proxied.services.values();
  const forwarding = expectedForwarding(all, proxied.slices, node, config, localAddresses);
  const audit = auditNode({ forwarding, node, rules });
  const keys = audit.differences.map(({ key }) => key);
  const observed = { node, rules, config, proxied, divergences: new Map() };
  const reading = { ...observed, audit, byService: new Map(), isSame: false, at: 0 };
  return { keys, since: persistedSince(reading) };
}

test('a difference persists since the last version that does not show it', () => {
  const { keys, since } = differencesAfter(1, 2, 3);
  expect(keys.length).toBeGreaterThan(0);
  // The first endpoint is one too many since 10, the third since 30.
  const until = new Set(keys.map((key) => since('shop/ten', key, 0)));
  expect(until).toEqual(new Set([10, 20, 30]));
  expect(keys.map((key) => since('shop/ten', key, 30))).toEqual(keys.map(() => null));
});

test('a difference does not persist through a version without it', () => {
  const { keys, since } = differencesAfter(1, 0, 1);
  expect(new Set(keys.map((key) => since('shop/ten', key, 5)))).toEqual(new Set([30]));
});

test('a frontend without a Service, or another Service, has no version that ends it', () => {
  const { since } = differencesAfter(1);
  expect(since('shop/ten', '10.96.0.9:80/tcp a pod of the node claim', 0)).toBeNull();
  expect(since('shop/other', 'x', 0)).toBeNull();
});
