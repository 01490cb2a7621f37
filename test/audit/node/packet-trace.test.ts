// One Service port on a node as a real kube-proxy left it: all that is walked is as it must be, and
// with rules taken away it is not, as the audit of the whole node has it.

import { join } from 'node:path';

import { expect, test } from 'vitest';

import { auditNode, behaviorOfRules, tracePackets } from '../../../src/audit/node/audit-node.ts';
import type { NodeInput } from '../../../src/audit/node/node-behavior.ts';
import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import type { RuleSet } from '../../../src/rules/ruleset.ts';
import { expectedForwarding, slicesByService } from '../../../src/shadow/forwarding.ts';
import { inputOf } from '../../nodes/audit.ts';
import { readFolder } from '../../nodes/folder.ts';

const folder = readFolder(
  join(import.meta.dirname, '../../nodes/recordings/main/iptables-nft/node-a'),
);
const input = inputOf(folder);
if (input === null) throw new Error('No objects');
const { services, slices, node, config } = input;
const context = { localAddresses: node.addresses };
const forwarding = expectedForwarding(
  services,
  slicesByService(slices),
  node,
  config,
  node.addresses,
);
const inputWith = (ruleset: RuleSet): NodeInput => ({
  forwarding,
  node,
  rules: behaviorOfRules(ruleset, context),
});
const names = [...new Set(forwarding.ports.map(({ name }) => name))];

test('what stands does what it must, and the rules that do it are told', () => {
  const walked = names.flatMap((name) => tracePackets(inputWith(folder.ruleset), name));
  expect(walked.length).toBeGreaterThan(names.length);
  expect(walked.filter(({ verdict }) => verdict !== 'conform')).toEqual([]);
  const served = walked.filter(({ wanted }) => wanted.length > 0);
  expect(served.length).toBeGreaterThan(0);
  for (const { wanted, got, rules } of served) {
    expect([...got].sort()).toEqual([...wanted].sort());
    expect(rules.some((rule) => rule.includes('DNAT'))).toBe(true);
    expect(new Set(rules).size).toBe(rules.length);
  }
});

test('without rules it says of the same packets as the audit that they differ', () => {
  const bare = inputWith(parseIptablesSave('', 'ip'));
  const { differences } = auditNode(bare);
  for (const name of names) {
    const own = tracePackets(bare, name).filter(({ verdict }) => verdict === 'different');
    const wanted = differences.filter(({ port }) => port?.name === name);
    const textOf = (one: { frontend: string; origin: string }) => `${one.frontend} ${one.origin}`;
    expect(new Set(own.map(textOf))).toEqual(new Set(wanted.map(textOf)));
  }
});

test('of a port that is not there nothing is walked', () => {
  expect(tracePackets(inputWith(folder.ruleset), 'no/such:port')).toEqual([]);
});
