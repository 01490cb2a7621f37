// Which findings of a node must be open, and what reports show of them.

import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { differenceKey } from '../../../src/audit/node/aggregate.ts';
import type { NodeAudit } from '../../../src/audit/node/audit-node.ts';
import { auditNode, behaviorOfRules } from '../../../src/audit/node/audit-node.ts';
import type { DesiredFinding, OpenNodeFinding } from '../../../src/audit/node/node-findings.ts';
import {
  desiredFindings,
  toDifference,
  toPendingItem,
} from '../../../src/audit/node/node-findings.ts';
import type { NodeInput } from '../../../src/audit/node/node-behavior.ts';
import type { DifferenceClock } from '../../../src/audit/node/programming-lag.ts';
import { createProxyCache } from '../../../src/audit/node/proxy-cache.ts';
import { storeOf } from '../../build.ts';
import { forwardingOf, inputOf } from '../../nodes/walk.ts';
import { readFolder } from '../../nodes/folder.ts';
import type { NodeFinding, PacketDifference } from '../../../src/audit/node/aggregate.ts';

function seen(name: string) {
  const folder = readFolder(join(import.meta.dirname, '../../nodes/faults', name));
  const [input, expected] = [inputOf(folder), forwardingOf(folder)];
  if (input === null || expected === null) throw new Error('No objects');
  const { node, services, slices, config } = input;
  const given: NodeInput = { ...expected, rules: behaviorOfRules(folder.ruleset, folder.node) };
  const { listers } = storeOf([node, ...services, ...slices]);
  const proxied = createProxyCache(listers);
  const observer = { node, rules: given.rules, config, proxied, divergences: new Map() };
  return { observed: auditNode(given), observer };
}

/** Everything differs since 7. */
function clocksOf({ differences }: NodeAudit): Map<string, DifferenceClock> {
  return new Map(
    differences.map((one) => [differenceKey(one), { before: 5, since: 7, lag: null }]),
  );
}

describe('a difference past the settle window', () => {
  test('is a desired finding since it was first seen', () => {
    const { observed, observer } = seen('iptables-nft-node-a/dnat-address-wrong');
    const state = {
      name: 'node-a',
      clocks: clocksOf(observed),
      open: new Map<string, OpenNodeFinding>(),
    };
    const wanted = desiredFindings(state, observed, observer, observed.differences, () => true);
    expect(wanted.size).toBe(1);
    for (const [id, { port, since }] of wanted) expect([id, since]).toEqual([port, 7]);
  });

  test('is required for a finding', () => {
    const { observed, observer } = seen('iptables-nft-node-a/dnat-address-wrong');
    const state = {
      name: 'node-a',
      clocks: clocksOf(observed),
      open: new Map<string, OpenNodeFinding>(),
    };
    expect(desiredFindings(state, observed, observer, [], () => false).size).toBe(0);
  });
});

test('an open finding stays open while its differences exist', () => {
  const { observed, observer } = seen('iptables-nft-node-a/dnat-address-wrong');
  const clocks = clocksOf(observed);
  const none = { name: 'node-a', clocks, open: new Map<string, OpenNodeFinding>() };
  const [[id, finding] = ['', null]] = desiredFindings(
    ...[none, observed, observer, observed.differences, () => true],
  );
  if (finding === null) throw new Error('Nothing is wanted');
  const keys = new Set(observed.differences.map(differenceKey));
  const open = new Map([[id, { item: toPendingItem(finding, 9), nodeWide: false, keys }]]);
  const wanted = desiredFindings({ ...none, open }, observed, observer, [], () => false);
  expect([...wanted.keys()]).toEqual([id]);
});

test('missing rules are flushed, although they match the time before the Services', () => {
  const { observed, observer } = seen('iptables-nft-node-a/all-tables-flushed');
  const state = {
    name: 'node-a',
    clocks: clocksOf(observed),
    open: new Map<string, OpenNodeFinding>(),
  };
  const wanted = desiredFindings(state, observed, observer, observed.differences, () => true);
  expect([...wanted.keys()]).toEqual(['node-rules-flushed']);
});

const difference = {
  port: { namespace: 'shop', service: 'web', name: 'shop/web:http' },
} as unknown as PacketDifference;

const finding: DesiredFinding = {
  ...{ code: 'node-endpoint-missing', severity: 'warning', node: 'node-a', namespace: 'shop' },
  ...{ service: 'web', port: 'shop/web:http', object: '10.96.0.1:80/tcp from outside' },
  ...{ expected: '10.0.0.1:80', actual: 'pass 100%', rule: '-A X' },
  ...{ nodeWide: false, differences: [difference], since: 1 },
};

test.each<[NodeFinding['code'], string]>([
  ['node-endpoint-missing', 'endpoints'],
  ['node-policy-different', 'endpoints'],
  ['node-masquerade-missing', 'masquerade'],
  ['node-affinity-different', 'affinity'],
  ['node-share-different', 'share'],
  ['node-frontend-missing', 'fate'],
])('%s has the field %s', (code, field) => {
  expect(toDifference({ ...finding, code })).toMatchObject({
    code,
    field,
    object: 'shop/web:http at 10.96.0.1:80/tcp from outside',
    actual: 'pass 100% by -A X',
  });
});

test('a Service confirms a node-wide finding', () => {
  expect(toPendingItem(finding, 2)).toMatchObject({ node: 'node-a', since: 1, causeAt: 2 });
  expect(toPendingItem(finding, 2).witness).toBeUndefined();
  expect(toPendingItem({ ...finding, nodeWide: true }, 2).witness).toBe('shop/web');
  expect(toPendingItem({ ...finding, nodeWide: true, differences: [] }, 2).witness).toBeUndefined();
});
