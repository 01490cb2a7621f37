// Which findings of a node must be open, and what is pending of them.

import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { auditNode } from '../../../src/audit/node/audit-node.ts';
import {
  applyFindings,
  desiredFindings,
  pendingItem,
} from '../../../src/audit/node/node-findings.ts';
import type { CurrentReading, NodeState } from '../../../src/audit/node/node-state.ts';
import { newNodeState } from '../../../src/audit/node/node-state.ts';
import type { NodeInput } from '../../../src/audit/node/observation.ts';
import { behaviorOfRules } from '../../../src/audit/node/observation.ts';
import { createPendingFindings } from '../../../src/audit/pending/pending.ts';
import { createProxyCache } from '../../../src/audit/node/proxy-cache.ts';
import { serviceOf, updateClocks } from '../../../src/audit/node/staleness.ts';
import type { Pod } from '../../../src/model/objects.ts';
import { packetDetails } from '../../../src/audit/node/aggregate.ts';
import { pod, storeOf } from '../../build.ts';
import { readFolder } from '../../nodes/folder.ts';
import { forwardingOf, inputOf } from '../../nodes/walk.ts';

const listers = { podsAt: () => [] };

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
    state.clocks.set(it.key, { before: 5, since: 7, severity: 'critical', lag: null });
  }
  return { reading: { ...observed, audit, byService, isSame: false, at: 9 }, state };
}

describe('a difference past the settle window', () => {
  const { reading, state } = readingOf('iptables-nft-node-a/dnat-address-wrong');

  test('is a desired finding since it was first seen', () => {
    const { differences } = reading.audit;
    const desired = desiredFindings(state, reading, differences);
    const { code, port } = differences[0] ?? {};
    const id = `${port?.namespace}/${port?.service} ${code}`;
    expect(desired[0]).toMatchObject({ id, since: 7, nodeWide: false });
  });

  test('is required for a finding', () => {
    expect(desiredFindings(state, reading, [])).toEqual([]);
  });
});

describe('the clock of a difference', () => {
  test.each([
    ['critical', 7],
    ['info', 9],
  ] as const)('that was %s before continues since %i', (severity, since) => {
    const { reading, state } = readingOf('iptables-nft-node-a/dnat-address-wrong');
    for (const [key, clock] of state.clocks) state.clocks.set(key, { ...clock, severity });
    updateClocks(state, reading);
    expect(state.clocks.size).toBeGreaterThan(0);
    for (const clock of state.clocks.values()) {
      expect(clock).toMatchObject({ severity: 'critical', since });
    }
  });

  test('that does more harm than in its open finding leaves it', () => {
    const { reading, state } = readingOf('iptables-nft-node-a/dnat-address-wrong');
    const { differences } = reading.audit;
    const harmless = differences.map((it) => ({ ...it, harmless: true }));
    const before = { ...reading, audit: { ...reading.audit, differences: harmless } };
    for (const finding of desiredFindings(state, before, harmless)) {
      state.open.set(finding.id, { item: pendingItem('node-a', finding, listers), finding });
    }
    expect(desiredFindings(state, before, [])).not.toEqual([]);
    expect(desiredFindings(state, reading, [])).toEqual([]);
  });
});

test('a finding that waits for confirmation opens though its oldest difference has ended', () => {
  const { reading, state } = readingOf('iptables-nft-node-a/dnat-address-wrong');
  const desired = desiredFindings(state, reading, reading.audit.differences).slice(0, 1);
  let isConfirmed = false;
  const settle = createPendingFindings({ window: 0, keep: 9, admit: () => isConfirmed });
  const openSince = (since: number, at: number): void =>
    applyFindings(
      { settle, listers },
      state,
      desired.map((finding) => ({ ...finding, since })),
      at,
    );
  openSince(7, 9);
  openSince(8, 10);
  expect(settle.open()).toEqual([]);
  isConfirmed = true;
  settle.retry(11);
  openSince(8, 12);
  expect(settle.open()).toMatchObject([{ since: 8, openedAt: 11, node: 'node-a' }]);
});

test('a finding has one difference for each endpoint and kind of packet, with the pod', () => {
  const { reading, state } = readingOf('iptables-nft-node-a/dnat-address-wrong');
  const [finding] = desiredFindings(state, reading, reading.audit.differences);
  if (finding === undefined) throw new Error('No finding');
  const podsAt = (): Pod[] => [pod({ namespace: 'shop', name: 'web-1' })];
  const details = pendingItem('node-a', finding, { podsAt }).details?.() ?? [];
  expect(details).toHaveLength(finding.differences.length);
  for (const [index, { endpoint }] of finding.differences.entries()) {
    expect(details[index]).toMatchObject({ address: endpoint, object: 'Node node-a' });
    expect(details[index]?.pod).toBe(endpoint === null ? null : 'shop/web-1');
    expect(details[index]?.expected).not.toBe(details[index]?.actual);
  }
});

test('an endpoint that receives nothing is no difference where no packet is forwarded', () => {
  const { reading } = readingOf('iptables-nft-node-a/all-tables-flushed');
  const { differences } = reading.audit;
  const details = packetDetails('node-a', differences, () => null);
  expect(details.length).toBeLessThan(differences.length);
  expect(details.filter(({ actual }) => actual === null)).toEqual([]);
  const places = (list: readonly { field: string }[]) => new Set(list.map(({ field }) => field));
  expect(places(details).size).toBe(
    new Set(differences.map(({ frontend, origin }) => `${frontend} ${origin}`)).size,
  );
});

test('an open finding stays open while its differences exist', () => {
  const { reading, state } = readingOf('iptables-nft-node-a/dnat-address-wrong');
  const all = desiredFindings(state, reading, reading.audit.differences);
  for (const finding of all) {
    state.open.set(finding.id, { item: pendingItem('node-a', finding, listers), finding });
  }
  const ids = all.map(({ id }) => id);
  expect(ids).not.toEqual([]);
  expect(desiredFindings(state, reading, []).map(({ id }) => id)).toEqual(ids);
});

test('a fault of the whole node did not begin with what one Service lacked before', () => {
  const { reading, state } = readingOf('iptables-nft-node-a/all-tables-flushed');
  const { differences } = reading.audit;
  for (const [key, clock] of [...state.clocks].slice(0, 1)) {
    state.clocks.set(key, { ...clock, before: 1, since: 2 });
  }
  const desired = desiredFindings(state, reading, differences);
  expect(desired).toMatchObject([{ nodeWide: true, since: 7 }]);
});

test('missing rules are flushed, although they match the time before the Services', () => {
  const { reading, state } = readingOf('iptables-nft-node-a/all-tables-flushed');
  const desired = desiredFindings(state, reading, reading.audit.differences);
  expect(desired.map(({ id }) => id)).toEqual(['node-rules-flushed']);
  const [finding] = desired;
  if (finding === undefined) throw new Error('No finding');
  // A Service confirms a finding about the whole node.
  const item = pendingItem('node-a', finding, listers);
  expect(item).toMatchObject({ node: 'node-a', since: 7, openedAt: null });
  expect(item.witness).toMatch(/^[a-z]+\/[a-z]+/);
  expect(pendingItem('node-a', { ...finding, nodeWide: false }, listers).witness).toBeUndefined();
  expect(pendingItem('node-a', { ...finding, differences: [] }, listers).witness).toBeUndefined();
});
