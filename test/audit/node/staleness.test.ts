// What differs is held against the past; that it is found in a real recording is held by
// test/recordings/shop.test.ts.

import { join } from 'node:path';

import { expect, test } from 'vitest';

import { auditNode, behaviorOfRules } from '../../../src/audit/node/audit-node.ts';
import { createProxyCache } from '../../../src/audit/node/proxy-cache.ts';
import type { ObservedNode } from '../../../src/audit/node/staleness.ts';
import { divergedAt, servicesOfDifference, staleness } from '../../../src/audit/node/staleness.ts';
import type { EndpointSlice } from '../../../src/model/objects.ts';
import { expectedForwarding } from '../../../src/shadow/forwarding.ts';
import { event, storeOf } from '../../build.ts';
import { inputOf } from '../../nodes/audit.ts';
import { readFolder } from '../../nodes/folder.ts';

const folder = readFolder(join(import.meta.dirname, '../../nodes/recordings/main/nftables/node-a'));
const input = inputOf(folder);
if (input === null) throw new Error('No objects');
const { services, slices, node, config } = input;

const sliceOf = (name: string): EndpointSlice => {
  const found = slices.find(({ labels }) => labels['kubernetes.io/service-name'] === name);
  if (found === undefined) throw new Error(`No slice of ${name}`);
  return found;
};

/** The node after changes that did not come to it. */
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
  const observer: ObservedNode = { ...given, config, proxied, left: new Map() };
  const { differences } = auditNode(given);
  const keys = new Set(differences.flatMap((one) => servicesOfDifference(proxied, one)));
  return { observer, differences, keys, stale: staleness(observer, differences, keys) };
}

const shorter = (name: string, version: number, by = 1): EndpointSlice => ({
  ...sliceOf(name),
  resourceVersion: String(version),
  endpoints: sliceOf(name).endpoints.slice(by),
});

test('a node that no change comes to is left behind since the first', () => {
  const { stale } = after([shorter('ten', 9_000_001), 5], [shorter('ten', 9_000_002, 2), 9]);
  expect(stale).toEqual({ since: 5, services: new Set(['shop/ten']) });
});

test('a node that something newer came to is not', () => {
  // The Service that changed back is as it is on the node, and was not so at 5.
  const same = (version: number): EndpointSlice => shorter('np', version, 0);
  const { stale, observer } = after(
    [shorter('np', 9_000_000), 1],
    [shorter('ten', 9_000_001), 5],
    [same(9_000_002), 9],
  );
  expect(divergedAt(observer, 'shop/ten')).toBe(5);
  expect(stale).toBeNull();
});

test('what was never expected is not matched', () => {
  const { observer, keys } = after();
  expect([...keys]).toEqual([]);
  expect(divergedAt(observer, 'shop/ten')).toBeNull();
});
