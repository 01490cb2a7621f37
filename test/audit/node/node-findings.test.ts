// Which findings of a node must be open, and what is pending of them.

import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { auditNode } from '../../../src/audit/node/audit-node.ts';
import { desiredFindings, pendingItem } from '../../../src/audit/node/node-findings.ts';
import type { CurrentReading, NodeState } from '../../../src/audit/node/node-state.ts';
import { newNodeState } from '../../../src/audit/node/node-state.ts';
import type { NodeInput } from '../../../src/audit/node/observation.ts';
import { behaviorOfRules } from '../../../src/audit/node/observation.ts';
import { createProxyCache } from '../../../src/audit/node/proxy-cache.ts';
import { serviceOf } from '../../../src/audit/node/staleness.ts';
import { storeOf } from '../../build.ts';
import { readFolder } from '../../nodes/folder.ts';
import { forwardingOf, inputOf } from '../../nodes/walk.ts';

/** A broken node whose differences all exist since 7. */
function readingOf(name: string): { reading: CurrentReading; state: NodeState } {
  const folder = readFolder(join(import.meta.dirname, '../../nodes/faults', name));
  const [input, expected] = [inputOf(folder), forwardingOf(folder)];
  if (input === null || expected === null) throw new Error('No objects');
  const { node, services, slices, config } = input;
  const given: NodeInput = { ...expected, rules: behaviorOfRules(folder.ruleset, folder.node) };
  const proxied = createProxyCache(storeOf([node, ...services, ...slices]).listers);
  const audit = auditNode(given);
  const { differences } = audit;
  const byService = Map.groupBy(differences, (it) => serviceOf(proxied, it));
  const observed = { node, rules: given.rules, config, proxied, divergences: new Map() };
  const state = newNodeState('node-a');
  for (const it of differences) {
    state.clocks.set(it.key, { before: 5, since: 7, lag: null });
  }
  return { reading: { ...observed, audit, byService, isSame: false, at: 9 }, state };
}

describe('a difference past the settle window', () => {
  const { reading, state } = readingOf('iptables-nft-node-a/dnat-address-wrong');

  test('is a desired finding since it was first seen', () => {
    const { differences } = reading.audit;
    const desired = desiredFindings(state, reading, differences);
    const port = differences[0]?.port?.name;
    expect(desired).toMatchObject([{ id: port, since: 7, nodeWide: false }]);
  });

  test('is required for a finding', () => {
    expect(desiredFindings(state, reading, [])).toEqual([]);
  });
});

test('an open finding stays open while its differences exist', () => {
  const { reading, state } = readingOf('iptables-nft-node-a/dnat-address-wrong');
  const [finding] = desiredFindings(state, reading, reading.audit.differences);
  if (finding === undefined) throw new Error('No finding');
  state.open.set(finding.id, { item: pendingItem('node-a', finding), finding });
  expect(desiredFindings(state, reading, []).map(({ id }) => id)).toEqual([finding.id]);
});

test('missing rules are flushed, although they match the time before the Services', () => {
  const { reading, state } = readingOf('iptables-nft-node-a/all-tables-flushed');
  const desired = desiredFindings(state, reading, reading.audit.differences);
  expect(desired.map(({ id }) => id)).toEqual(['node-rules-flushed']);
  const [finding] = desired;
  if (finding === undefined) throw new Error('No finding');
  // A Service confirms a finding about the whole node.
  const item = pendingItem('node-a', finding);
  expect(item).toMatchObject({ node: 'node-a', since: 7, openedAt: null });
  expect(item.witness).toMatch(/^[a-z]+\/[a-z]+/);
  expect(pendingItem('node-a', { ...finding, nodeWide: false }).witness).toBeUndefined();
  expect(pendingItem('node-a', { ...finding, differences: [] }).witness).toBeUndefined();
});
