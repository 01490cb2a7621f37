// Lines and files about nodes, before and after the cluster is known.

import { join } from 'node:path';

import { expect, test } from 'vitest';

import { createSettle } from '../src/audit/settle.ts';
import type { Problem } from '../src/cluster/problem.ts';
import type { GivenRules } from '../src/noderules.ts';
import { createNodeRules } from '../src/noderules.ts';
import { storeOf } from './build.ts';
import { inputOf } from './nodes/audit.ts';
import { readBytes, readFolder } from './nodes/folder.ts';

const path = join(import.meta.dirname, 'nodes/recordings/main/iptables-nft/node-a');
const input = inputOf(readFolder(path));
if (input === null) throw new Error('No objects');
const { node, services, slices } = input;
const textOf = (name: string): string => readBytes(join(path, name))?.toString() ?? '';

const file = (name: string, more: Partial<GivenRules> = {}): GivenRules => ({
  kind: 'given-rules',
  node: 'node-a',
  source: name,
  text: textOf(name),
  unread: null,
  config: null,
  ...more,
});

function begun() {
  const problems: Problem[] = [];
  const { snapshot } = storeOf([node, ...services, ...slices]);
  const settle = createSettle({ window: 0, keep: 10 });
  const rules = createNodeRules({
    snapshot,
    settle,
    window: 0,
    minor: () => 36,
    onProblem: (problem) => problems.push(problem),
  });
  const reasons = () => [
    ...new Set(
      rules
        .nodes()
        ?.summary(0)
        .verdicts.get('node-a')
        ?.map(({ reason }) => reason),
    ),
  ];
  return { rules, settle, problems, reasons };
}

const both = [file('iptables-save.txt'), file('ip6tables-save.txt')];

test('dumps that come first wait for the cluster, and tell how kube-proxy is configured', () => {
  const { rules, settle, problems, reasons } = begun();
  for (const entry of both) rules.take(entry, 0);
  expect(rules.nodes()).toBeNull();
  rules.begin(0);
  expect(problems).toEqual([]);
  expect(reasons()).toEqual([null]);
  expect(settle.open().filter(({ severity }) => severity !== 'info')).toEqual([]);
});

test('a dump that cannot be read makes the node unknown, and is told and counted', () => {
  const { rules, problems, reasons } = begun();
  rules.begin(0);
  rules.take(file('iptables-save.txt', { text: '*nat\n' }), 0);
  expect(problems).toMatchObject([{ source: 'iptables-save.txt', object: 'Node node-a' }]);
  expect(rules.unreadable()).toBe(1);
  expect(reasons()).toEqual(['rules-not-known']);
});

test('a wrong configuration is told with its field', () => {
  const { rules, problems } = begun();
  rules.begin(0);
  rules.take(file('iptables-save.txt', { config: { mode: 'userspace' } }), 0);
  expect(problems).toMatchObject([{ field: 'mode', source: 'iptables-save.txt' }]);
});

test('a mode that is not modelled is unknown', () => {
  const { rules, reasons } = begun();
  rules.begin(0);
  rules.take(file('iptables-save.txt', { config: { mode: 'ipvs' } }), 0);
  expect(reasons()).toEqual(['proxy-mode-not-modelled']);
});
