// Whether a difference was one by every version that a Service has had.

import { join } from 'node:path';

import { expect, test } from 'vitest';

import { differenceKey } from '../../../src/audit/node/aggregate.ts';
import { auditNode, behaviorOfRules } from '../../../src/audit/node/audit-node.ts';
import { createProxyCache } from '../../../src/audit/node/proxy-cache.ts';
import { persistedSince } from '../../../src/audit/node/staleness.ts';
import type { EndpointSlice } from '../../../src/model/objects.ts';
import { expectedForwarding } from '../../../src/shadow/forwarding.ts';
import { event, storeOf } from '../../build.ts';
import { inputOf } from '../../nodes/audit.ts';
import { readFolder } from '../../nodes/folder.ts';

const folder = readFolder(
  join(import.meta.dirname, '../../nodes/recordings/main/iptables-nft/node-a'),
);
const input = inputOf(folder);
if (input === null) throw new Error('No objects');
const { services, slices, node, config } = input;
const found = slices.find(({ labels }) => labels['kubernetes.io/service-name'] === 'ten');
if (found === undefined) throw new Error('No slice of shop/ten');
const ten: EndpointSlice = found;

/** What differs after these numbers of endpoints were left out, at 10, 20 and so on. */
function after(...left: readonly number[]) {
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
  const keys = auditNode({ forwarding, node, rules }).differences.map(differenceKey);
  const observer = { node, rules, config, proxied, left: new Map() };
  return { keys, stood: persistedSince(observer) };
}

test('since the change that made it, and by all changes after it', () => {
  const { keys, stood } = after(1, 2, 3);
  expect(keys.length).toBeGreaterThan(0);
  // The first endpoint is one too many since 10, the third since 30.
  const until = new Set(keys.map((key) => stood('shop/ten', key, 0)));
  expect(until).toEqual(new Set([10, 20, 30]));
  expect(keys.map((key) => stood('shop/ten', key, 30))).toEqual(keys.map(() => null));
});

test('not while the Service was in order', () => {
  const { keys, stood } = after(1, 0, 1);
  expect(new Set(keys.map((key) => stood('shop/ten', key, 5)))).toEqual(new Set([30]));
});

test('what no Service claims is no affair of one', () => {
  const { stood } = after(1);
  expect(stood('shop/ten', '10.96.0.9:80/tcp a pod of the node claim', 0)).toBeNull();
  expect(stood('shop/other', 'x', 0)).toBeNull();
});
