// What a finding about a node shows.

import { expect, test } from 'vitest';

import type { NodeFinding, PacketDifference } from '../../../src/audit/node/aggregate.ts';
import { toPendingItem, toDifference } from '../../../src/audit/node/node-findings.ts';

const difference = {
  port: { namespace: 'shop', service: 'web', name: 'shop/web:http' },
} as unknown as PacketDifference;

const finding: NodeFinding = {
  ...{ code: 'node-endpoint-missing', severity: 'warning', node: 'node-a', namespace: 'shop' },
  ...{ service: 'web', port: 'shop/web:http', object: '10.96.0.1:80/tcp from outside' },
  ...{
    expected: '10.0.0.1:80',
    actual: 'pass 100%',
    rule: '-A X',
    nodeWide: false,
    differences: [difference],
  },
};

test.each<[NodeFinding['code'], string]>([
  ['node-endpoint-missing', 'endpoints'],
  ['node-policy-different', 'endpoints'],
  ['node-masquerade-missing', 'masquerade'],
  ['node-affinity-different', 'affinity'],
  ['node-share-different', 'share'],
  ['node-frontend-missing', 'fate'],
])('%s is about %s', (code, field) => {
  expect(toDifference({ ...finding, code })).toMatchObject({
    code,
    field,
    object: 'shop/web:http at 10.96.0.1:80/tcp from outside',
    actual: 'pass 100% by -A X',
  });
});

test('what is about the whole node is confirmed by one of its Services', () => {
  expect(toPendingItem(finding, 1, 2)).toMatchObject({ node: 'node-a', since: 1, causeAt: 2 });
  expect(toPendingItem(finding, 1, 2).witness).toBeUndefined();
  expect(toPendingItem({ ...finding, nodeWide: true }, 1, 2).witness).toBe('shop/web');
  expect(
    toPendingItem({ ...finding, nodeWide: true, differences: [] }, 1, 2).witness,
  ).toBeUndefined();
});
