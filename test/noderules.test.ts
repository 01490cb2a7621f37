// Lines and files about nodes, before and after the cluster is known.

import { join } from 'node:path';

import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';

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

function begun(kubeletMinor: number | null = null) {
  const problems: Problem[] = [];
  const { snapshot } = storeOf([{ ...node, kubeletMinor }, ...services, ...slices]);
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

describe.each(['iptables-nft', 'nftables'])(
  'a kube-proxy of 1.33 with %s under 1.36',
  (backend) => {
    const old = join(import.meta.dirname, 'nodes/recordings/v1.33', backend, 'node-a');
    const { config } = parse(readBytes(join(old, 'proxy-config.yaml'))?.toString() ?? '') as {
      config: unknown;
    };
    const names =
      backend === 'nftables' ? ['nft.json'] : ['iptables-save.txt', 'ip6tables-save.txt'];

    /** Findings above information where the Node says so of its kubelet. */
    const foundWith = (kubeletMinor: number | null, given: unknown): string[] => {
      const { rules, settle, problems } = begun(kubeletMinor);
      rules.begin(0);
      for (const name of names) {
        const text = readBytes(join(old, name))?.toString() ?? '';
        rules.take(file(name, { text, config: given }), 0);
      }
      expect(problems).toEqual([]);
      const found = settle.open().filter(({ severity }) => severity !== 'info');
      return found.map(({ code, object }) => `${code} ${object}`).sort();
    };

    test.each([
      ['with its configuration', config],
      ['by its dumps alone', null],
    ])('is judged by its own release, %s', (_, given) => {
      expect(foundWith(33, given)).toEqual([]);
      expect(foundWith(null, given)).not.toEqual([]);
    });
  },
);
