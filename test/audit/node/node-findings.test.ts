// Which findings of a node must be open, given what differs and what is open.

import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { differenceKey } from '../../../src/audit/node/aggregate.ts';
import type { NodeAudit } from '../../../src/audit/node/audit-node.ts';
import { auditNode, behaviorOfRules } from '../../../src/audit/node/audit-node.ts';
import type { OpenNodeFinding } from '../../../src/audit/node/node-findings.ts';
import { toPendingItem, desiredFindings } from '../../../src/audit/node/node-findings.ts';
import type { NodeInput } from '../../../src/audit/node/node-behavior.ts';
import type { DifferenceClock } from '../../../src/audit/node/programming-lag.ts';
import { createProxyCache } from '../../../src/audit/node/proxy-cache.ts';
import { storeOf } from '../../build.ts';
import { forwardingOf, inputOf } from '../../nodes/audit.ts';
import { readFolder } from '../../nodes/folder.ts';

function seen(name: string) {
  const folder = readFolder(join(import.meta.dirname, '../../nodes/faults', name));
  const [input, expected] = [inputOf(folder), forwardingOf(folder)];
  if (input === null || expected === null) throw new Error('No objects');
  const { node, services, slices, config } = input;
  const given: NodeInput = { ...expected, rules: behaviorOfRules(folder.ruleset, folder.node) };
  const { listers } = storeOf([node, ...services, ...slices]);
  const proxied = createProxyCache(listers);
  const observer = { node, rules: given.rules, config, proxied, left: new Map() };
  return { observed: auditNode(given), observer };
}

/** Everything differs since 7. */
function clocksOf({ differences }: NodeAudit): Map<string, DifferenceClock> {
  return new Map(
    differences.map((one) => [differenceKey(one), { before: 5, since: 7, lag: null }]),
  );
}

describe('what has stood', () => {
  test('is wanted since it was first seen', () => {
    const { observed, observer } = seen('iptables-nft-node-a/dnat-address-wrong');
    const state = {
      name: 'node-a',
      clocks: clocksOf(observed),
      held: new Map<string, OpenNodeFinding>(),
    };
    const wanted = desiredFindings(state, observed, observer, observed.differences, () => true);
    expect(wanted.size).toBe(1);
    for (const [id, { finding, since }] of wanted) expect([id, since]).toEqual([finding.port, 7]);
  });

  test('is none as long as nothing has', () => {
    const { observed, observer } = seen('iptables-nft-node-a/dnat-address-wrong');
    const state = {
      name: 'node-a',
      clocks: clocksOf(observed),
      held: new Map<string, OpenNodeFinding>(),
    };
    expect(desiredFindings(state, observed, observer, [], () => false).size).toBe(0);
  });
});

test('what is open stays so while it differs', () => {
  const { observed, observer } = seen('iptables-nft-node-a/dnat-address-wrong');
  const clocks = clocksOf(observed);
  const none = { name: 'node-a', clocks, held: new Map<string, OpenNodeFinding>() };
  const [[id, { finding }] = ['', { finding: null }]] = desiredFindings(
    ...[none, observed, observer, observed.differences, () => true],
  );
  if (finding === null) throw new Error('Nothing is wanted');
  const keys = new Set(observed.differences.map(differenceKey));
  const held = new Map([[id, { item: toPendingItem(finding, 7, 9), wide: false, keys }]]);
  const wanted = desiredFindings({ ...none, held }, observed, observer, [], () => false);
  expect([...wanted.keys()]).toEqual([id]);
});

test('rules that are gone are flushed, whatever was right before there were Services', () => {
  const { observed, observer } = seen('iptables-nft-node-a/all-tables-flushed');
  const state = {
    name: 'node-a',
    clocks: clocksOf(observed),
    held: new Map<string, OpenNodeFinding>(),
  };
  const wanted = desiredFindings(state, observed, observer, observed.differences, () => true);
  expect([...wanted.keys()]).toEqual(['node-rules-flushed']);
});
