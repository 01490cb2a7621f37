// A node with the rules of a real kube-proxy and a dump every five seconds, while the cluster
// changes.

import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import type { Finding } from '../../../src/audit/finding/catalogue.ts';
import type { Nodes } from '../../../src/audit/node/nodes.ts';
import { createNodes } from '../../../src/audit/node/nodes.ts';
import type { NodeBehavior } from '../../../src/audit/node/observation.ts';
import { behaviorOfRules } from '../../../src/audit/node/observation.ts';
import { createProxyCache } from '../../../src/audit/node/proxy-cache.ts';
import type { NodeReading } from '../../../src/audit/node/staleness.ts';
import { createPendingFindings } from '../../../src/audit/pending/pending.ts';
import type { EndpointSlice } from '../../../src/model/objects.ts';
import type { Packet } from '../../../src/model/proxy-config.ts';
import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import type { RulesDump } from '../../../src/rules/parse/rules-dump.ts';
import { event, storeOf } from '../../build.ts';
import { readFolder } from '../../nodes/folder.ts';
import { inputOf, noDigests } from '../../nodes/walk.ts';

const folder = readFolder(
  join(import.meta.dirname, '../../nodes/recordings/main/iptables-nft/node-a'),
);
const input = inputOf(folder);
if (input === null) throw new Error('No objects');
const { services, slices, node, config } = input;
const dump: RulesDump = { ruleset: folder.ruleset, families: ['IPv4', 'IPv6'] };
const nothing: RulesDump = {
  ruleset: parseIptablesSave('', 'ip'),
  families: ['IPv4', 'IPv6'],
};

function begun(window = 30) {
  const opened: Finding[] = [];
  const resolved: Finding[] = [];
  const settle = createPendingFindings({
    window,
    keep: 10,
    onOpen: (finding) => opened.push(finding),
    onResolve: (finding) => resolved.push(finding),
  });
  const store = storeOf([node, ...services, ...slices]);
  const proxied = createProxyCache(store.listers);
  const minor = () => 36;
  const samples: string[] = [];
  const readings: NodeReading[] = [];
  const nodes = createNodes({
    ...{ listers: store.listers, proxied, settle, window, minor },
    onReading: (reading) => readings.push(reading),
    onConvergence: ({ service, operation, seconds, node: name }) =>
      samples.push(`${service} ${operation} ${seconds} ${name ?? ''}`),
  });
  nodes.configure(node.name, config);
  const take = (at: number, rules: RulesDump | null = null): void => {
    nodes.applyDump(node.name, 'all', rules, at);
  };
  const give = (object: ReturnType<typeof event>['object'], at: number): void => {
    const change = store.apply(event('modified', object, at));
    if (change !== null) proxied.apply(change);
  };
  const counts = (now: number): Record<string, number> => {
    const found: Record<string, number> = {};
    for (const { verdict } of nodes.summary(now).verdicts.get(node.name) ?? []) {
      found[verdict] = (found[verdict] ?? 0) + 1;
    }
    return found;
  };
  return { opened, resolved, nodes, take, give, counts, samples, readings };
}

const original = slices.find(({ labels }) => labels['kubernetes.io/service-name'] === 'ten');
if (original === undefined) throw new Error('No slice of shop/ten');
const ten: EndpointSlice = original;

/** The slice in another version, without its first endpoint or as it was. */
const version = (n: number, isWhole: boolean): EndpointSlice => ({
  ...ten,
  resourceVersion: String(1_000_000 + n),
  endpoints: isWhole ? ten.endpoints : ten.endpoints.slice(1),
});

describe('a difference', () => {
  test('opens after a window in which every dump has shown it', () => {
    const { opened, take, give, counts, nodes } = begun();
    take(0, dump);
    expect(counts(0)).toEqual({ conform: services.length > 0 ? counts(0).conform : 0 });
    give(version(1, false), 2);
    for (const at of [5, 10, 15, 20, 25, 30]) take(at);
    expect(opened).toEqual([]);
    expect(counts(30)).toMatchObject({ pending: 1 });
    expect(nodes.summary(30).pendingSince).toBe(5);
    take(35);
    expect(opened).toMatchObject([{ output: 'node', node: 'node-a', openedAt: 35 }]);
    expect(counts(35)).toMatchObject({ different: 1 });
  });

  test('is not pending while the node is unknown', () => {
    const { take, give, nodes } = begun();
    take(0, dump);
    give(version(1, false), 2);
    take(5);
    expect(nodes.summary(95).pendingSince).toBe(5);
    expect(nodes.summary(96).pendingSince).toBeNull();
    nodes.markUnknown(node.name, 'agent-stale', 10);
    expect(nodes.summary(10).pendingSince).toBeNull();
  });

  test('that one dump does not show restarts its window', () => {
    const { opened, take, give } = begun();
    take(0, dump);
    for (let at = 5; at <= 200; at += 5) {
      give(version(at, at % 25 === 0), at - 1);
      take(at);
    }
    expect(opened).toEqual([]);
  });

  test('is resolved by the first dump without it', () => {
    const { resolved, take, give } = begun(10);
    take(0, dump);
    give(version(1, false), 2);
    for (const at of [5, 10, 15]) take(at);
    give(version(2, true), 17);
    take(20);
    expect(resolved).toMatchObject([{ node: 'node-a', resolvedAt: 20 }]);
  });

  test('of the former address of a Service begins when the Service gets another', () => {
    const { opened, take, give } = begun(5);
    take(0, dump);
    take(15);
    const before = services.find(({ key }) => key === 'shop/ten');
    if (before === undefined) throw new Error('No Service shop/ten');
    const clusterIP = '10.96.99.99';
    give(
      { ...before, uid: 'new', resourceVersion: '9000000', clusterIP, clusterIPs: [clusterIP] },
      17,
    );
    for (const at of [18, 20]) take(at);
    expect(opened).toEqual([]);
    take(23);
    expect(opened.map(({ openedAt }) => openedAt)).toContain(23);
  });

  test('is compared when all sources of a node have a new dump', () => {
    const { opened, nodes, give } = begun();
    const other: RulesDump = { ruleset: parseIptablesSave('', 'ip6'), families: [] };
    const take = (source: string, rules: RulesDump | null, at: number): void => {
      nodes.applyDump(node.name, source, rules, at);
    };
    take('IPv4', dump, 0);
    take('IPv6', other, 0);
    give(version(1, false), 2);
    take('IPv6', null, 5);
    take('IPv4', null, 5);
    // The rules of IPv4 may have followed meanwhile.
    take('IPv6', null, 40);
    expect(opened).toEqual([]);
    take('IPv4', null, 41);
    expect(opened).toMatchObject([{ node: 'node-a', openedAt: 40 }]);
  });

  test('does not wait for a source that comes no more, whose rules are then unknown', () => {
    const { opened, nodes, give, counts } = begun();
    nodes.applyDump(node.name, 'IPv4', { ...dump, families: ['IPv4'] }, 0);
    nodes.applyDump(node.name, 'IPv6', { ruleset: nothing.ruleset, families: ['IPv6'] }, 0);
    expect(counts(0).unknown).toBeUndefined();
    give(version(1, false), 2);
    for (const at of [5, 10, 40]) nodes.applyDump(node.name, 'IPv4', null, at);
    expect(counts(40).unknown).toBeGreaterThan(0);
    expect(opened).toMatchObject([{ node: 'node-a', openedAt: 40 }]);
  });

  test('of a single dump opens no finding', () => {
    const { opened, take } = begun();
    take(0, dump);
    take(60, nothing);
    expect(opened).toEqual([]);
  });
});

describe('lag', () => {
  /** The same rules, as another reading of them. */
  const again = (): RulesDump => ({ ...dump });

  test('is from the change that the rules did not follow to the reading that followed it', () => {
    const { take, give, samples, readings } = begun();
    give(version(1, false), -5);
    take(0, dump);
    // The cluster returns to the state of the rules at 2; the node followed nothing until then.
    give(version(2, true), 2);
    take(5);
    give(version(3, false), 7);
    take(10);
    expect(samples).toEqual([]);
    take(15, nothing);
    expect(readings.at(-1)?.programmed).toEqual([]);
    give(version(4, true), 16);
    take(20, again());
    expect(samples.every((sample) => sample.startsWith('ten '))).toBe(true);
    const late = readings.at(-1)?.programmed.find(({ service }) => service.endsWith('/ten'));
    expect(late).toEqual({ service: `${ten.namespace}/ten`, least: 8, most: 13 });
  });

  test('has no sample if the node was unknown before it was right', () => {
    const { nodes, take, give, samples } = begun(10);
    take(0, dump);
    give(version(1, false), 2);
    for (const at of [5, 10, 15]) take(at);
    // It restarts, and has right rules then.
    nodes.markUnknown(node.name, 'agent-stale', 50);
    give(version(2, true), 60);
    take(100, again());
    expect(samples).toEqual([]);
  });

  test('has no sample for a reverted change, nor for repaired rules', () => {
    const { take, give, samples, readings } = begun();
    take(0, dump);
    give(version(1, false), 2);
    take(5);
    give(version(2, true), 7);
    take(10);
    take(15, nothing);
    take(20, again());
    expect(samples).toEqual([]);
    expect(readings.flatMap(({ programmed }) => programmed)).toEqual([]);
  });

  test('of a node with an unreadable dump is unknown', () => {
    const { take, nodes, readings } = begun();
    take(0, dump);
    nodes.applyDump('node-a', 'all', 'unreadable', 5);
    expect(readings.map(({ differs }) => differs === null)).toEqual([false, true]);
  });
});

test('rules of an earlier version are stale since the first change', () => {
  const { opened, take, give } = begun();
  take(0, dump);
  give(version(1, false), 2);
  for (let at = 5; at <= 35; at += 5) take(at);
  expect(opened).toMatchObject([{ code: 'node-rules-stale', service: '', since: 2 }]);
});

test('missing rules are one finding', () => {
  const { opened, take } = begun();
  take(0, dump);
  for (let at = 5; at <= 40; at += 5) take(at, nothing);
  expect(opened).toMatchObject([{ code: 'node-rules-flushed', since: 5, openedAt: 30 }]);
});

test('a later fault of one Service is a finding beside the open one about the node', () => {
  const { opened, resolved, take } = begun();
  const dumpOf = (path: string): RulesDump => {
    const { ruleset } = readFolder(join(import.meta.dirname, '../../nodes', path));
    return { ruleset, families: ['IPv4', 'IPv6'] };
  };
  const codes = (): string[] =>
    opened.map(({ code, namespace, service }) => `${code} ${namespace}/${service}`);
  take(0, dump);
  take(5, dumpOf('faults/iptables-nft-node-a/mark-wrong'));
  for (let at = 10; at <= 40; at += 5) take(at);
  expect(codes()).toEqual(['node-rules-different /']);
  take(45, dumpOf('pairs/iptables-nft-node-a/mark-wrong+dnat-port-range'));
  for (let at = 50; at <= 80; at += 5) take(at);
  expect(codes()).toEqual([
    'node-rules-different /',
    'node-endpoint-unexpected shop/web',
    'node-endpoint-missing shop/web',
  ]);
  expect(resolved).toEqual([]);
  take(85, dumpOf('faults/iptables-nft-node-a/mark-wrong'));
  expect(resolved.map(({ code }) => code).sort()).toEqual([
    'node-endpoint-missing',
    'node-endpoint-unexpected',
  ]);
});

test('unknown verdicts have a reason', () => {
  const { nodes, take, counts } = begun();
  take(0, { ...dump, families: ['IPv4'] });
  const reasons = nodes
    .summary(0)
    .verdicts.get('node-a')
    ?.map(({ reason }) => reason);
  expect(new Set(reasons)).toEqual(new Set([null, 'rules-not-known']));
  nodes.applyDump('node-a', 'all', 'unreadable', 5);
  expect(counts(5)).toEqual({ unknown: 1 });
  take(10, dump);
  expect(counts(10)).not.toHaveProperty('unknown');
  expect(counts(500)).toEqual({ unknown: 1 });
  nodes.applyDump('node-z', 'all', dump, 10);
  expect(nodes.summary(10).verdicts.get('node-z')).toMatchObject([{ reason: 'node-not-known' }]);
});

test('after a step of the clock, nodes are unknown until their next reading', () => {
  const { nodes, take, counts } = begun();
  take(10, dump);
  nodes.applyDump('node-z', 'all', dump, 10);
  nodes.restartClocks();
  expect(counts(12)).toEqual({ unknown: 1 });
  const { verdicts } = nodes.summary(12);
  expect([...verdicts.keys()]).toEqual(['node-a', 'node-z']);
  expect(verdicts.get('node-a')).toMatchObject([{ reason: 'rules-not-known' }]);
  expect(verdicts.get('node-z')).toMatchObject([{ reason: 'node-not-known' }]);
  take(15);
  expect(counts(15)).not.toHaveProperty('unknown');
});

describe('time', () => {
  test('a dump from before a change does not settle a difference', () => {
    const { opened, take, give, counts } = begun(10);
    take(0, dump);
    give(version(1, false), 20);
    // These readings are from before the change, and arrive after it.
    for (const at of [5, 10, 15, 19]) take(at);
    expect(opened).toEqual([]);
    expect(counts(20)).toMatchObject({ pending: 1 });
    take(25);
    expect(opened).toEqual([]);
    take(30);
    expect(opened).toMatchObject([{ openedAt: 30 }]);
  });

  test('a difference that a version between two dumps ends has not persisted', () => {
    const { opened, take, give } = begun(10);
    take(0, dump);
    give(version(1, false), 2);
    take(5);
    give(version(2, true), 6);
    give(version(3, false), 14);
    take(15);
    take(20);
    expect(opened).toEqual([]);
    take(25);
    expect(opened).toMatchObject([{ openedAt: 25 }]);
  });
});

describe('a report', () => {
  const atHand = behaviorOfRules(folder.ruleset, { localAddresses: node.addresses });
  const gone = { ...behaviorOfRules(nothing.ruleset, { localAddresses: node.addresses }) };
  const reporterOf =
    (nodes: Nodes) =>
    (at: number, rules: NodeBehavior, version = '1', isLast = true) => {
      const [etag = ''] = version.split(' ');
      const reported = { rules, etag, version, config, lasting: 30 };
      const steps = nodes.applyReport(node.name, reported, at, isLast);
      for (;;) {
        const step = steps.next();
        if (step.done === true) return step.value;
      }
    };

  test('is audited like a dump', () => {
    const { nodes, opened, counts } = begun(10);
    const report = reporterOf(nodes);
    expect(report(0, atHand)).toEqual([]);
    expect(Object.keys(counts(0))).toEqual(['conform']);
    for (const at of [5, 10, 15]) report(at, gone, '2');
    expect(opened).toMatchObject([{ code: 'node-rules-flushed' }]);
  });

  test('with missing outcomes is audited only after their packets are walked', () => {
    const { nodes, counts } = begun(10);
    const report = reporterOf(nodes);
    report(0, atHand);
    const [packet] = [{ from: 'pod', src: '10.0.0.1', dst: '10.0.0.2', protocol: 'tcp', dport: 1 }];
    const missingPackets = () => [packet as Packet];
    const short = { ...gone, report: { ...noDigests, missingPackets } };
    expect(report(5, short, '2', false)).toEqual([packet]);
    expect(Object.keys(counts(5))).toEqual(['conform']);
    expect(report(5, short, '2', true)).toEqual([]);
    expect(counts(5)).toHaveProperty('pending');
  });

  test('of unchanged rules is stale since they diverged, with outcomes of each round', () => {
    const { nodes, opened, give } = begun(10);
    const report = reporterOf(nodes);
    report(0, atHand);
    give(version(1, false), 2);
    report(5, atHand, '1 second-round');
    // These are more versions than are kept.
    for (let n = 2; n < 100; n++) give(version(n, false), 5 + n / 100);
    report(10, atHand, '1 third-round');
    report(15, atHand, '1 fourth-round');
    expect(opened).toMatchObject([{ code: 'node-rules-stale', since: 2 }]);
  });

  test('that is missing makes the node unknown, keeps findings and restarts pending ones', () => {
    const { nodes, opened, resolved, counts } = begun(10);
    const report = reporterOf(nodes);
    report(0, atHand);
    report(5, gone, '2');
    nodes.markUnknown(node.name, 'agent-stale', 0);
    expect(counts(6)).toEqual({ unknown: 1 });
    report(100, gone, '2');
    expect(opened).toEqual([]);
    report(110, gone, '2');
    expect(opened).toHaveLength(1);
    nodes.markUnknown(node.name, 'agent-stale', 0);
    expect(resolved).toEqual([]);
    report(120, gone, '2');
    expect(resolved).toEqual([]);
    report(130, atHand, '1');
    expect(resolved).toHaveLength(1);
  });

  test('keeps the finding about several backends open while the node is unknown', () => {
    const { nodes, opened, resolved } = begun(10);
    const report = reporterOf(nodes);
    const frontends = atHand.frontends.map((frontend) => ({ ...frontend, translators: 2 }));
    for (const at of [0, 5, 10]) report(at, { ...atHand, frontends });
    expect(opened).toMatchObject([{ code: 'node-backends-both', openedAt: 10 }]);
    nodes.markUnknown(node.name, 'agent-stale', 0);
    report(100, { ...atHand, frontends });
    expect(resolved).toEqual([]);
  });

  test('of a node that becomes unknown no longer counts, and says so once', () => {
    const { nodes, readings } = begun(10);
    reporterOf(nodes)(0, gone);
    expect(nodes.impactOf(node.name)?.services.size).toBeGreaterThan(0);
    for (const at of [20, 30]) nodes.markUnknown(node.name, 'agent-stale', at);
    expect(nodes.impactOf(node.name)).toBeNull();
    expect(readings.map(({ at, differs }) => [at, differs === null])).toEqual([
      [0, false],
      [20, true],
    ]);
  });

  test('of a removed node has no verdicts and no findings', () => {
    const { nodes, resolved, counts, readings } = begun(10);
    const report = reporterOf(nodes);
    report(0, gone);
    report(10, gone);
    nodes.remove(node.name, 20);
    nodes.remove(node.name, 30);
    expect(counts(20)).toEqual({});
    expect(resolved).toHaveLength(1);
    expect(nodes.impactOf(node.name)).toBeNull();
    // What is kept by node is forgotten at its last reading.
    expect(readings.map(({ at, differs }) => [at, differs === null])).toEqual([
      [0, false],
      [10, false],
      [20, true],
    ]);
  });
});
