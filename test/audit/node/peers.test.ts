// A node is compared with its peers where a rule cannot be evaluated.

import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import type { Finding } from '../../../src/audit/finding/catalogue.ts';
import { auditNode } from '../../../src/audit/node/audit-node.ts';
import { createNodes, outliersAmongPeers } from '../../../src/audit/node/nodes.ts';
import type { NodeBehavior } from '../../../src/audit/node/observation.ts';
import { behaviorOfRules } from '../../../src/audit/node/observation.ts';
import { createProxyCache } from '../../../src/audit/node/proxy-cache.ts';
import { createPendingFindings } from '../../../src/audit/pending/pending.ts';
import type { Service } from '../../../src/model/objects.ts';
import type { Packet } from '../../../src/model/proxy-config.ts';
import type { Digests } from '../../../src/rules/report/digest.ts';
import { storeOf, times } from '../../build.ts';
import { readFolder } from '../../nodes/folder.ts';
import { expectedOf, inputOf, noDigests } from '../../nodes/walk.ts';

const folder = readFolder(
  join(import.meta.dirname, '../../nodes/recordings/main/iptables-nft/node-a'),
);
const input = inputOf(folder);
if (input === null) throw new Error('No objects');
const { services, slices, node, config } = input;
const known = behaviorOfRules(folder.ruleset, folder.node);
const ten = services.find(({ key }) => key === 'shop/ten');
if (ten === undefined) throw new Error('No Service shop/ten');
const web: Service = ten;

/** Rules with one that the walk cannot evaluate: packets to the Service may miss its endpoints. */
const doubtful = (digests: Digests): NodeBehavior => ({
  ...known,
  frontends: [],
  report: { ...noDigests, digestsAt: () => digests },
  walk(packet) {
    const outcome = known.walk(packet);
    if (outcome === null || packet.dst !== web.clusterIP) return outcome;
    const unknown = [{ reason: 'cannot tell whether it matches', rule: '-m u32 -j DROP' }];
    return { ...outcome, drop: { ...outcome.drop, probability: 1 }, unknown };
  },
});

const does = (actual: string | null, expected: string | null = 'right'): Digests => ({
  actual,
  expected,
});

/** Nodes with these digests, each with a report every ten seconds; the codes of opened findings. */
function openedOn(all: readonly Digests[], seconds: number): string[] {
  const names = all.map((_, at) => `node-${at}`);
  const opened: Finding[] = [];
  const settle = createPendingFindings({
    window: 30,
    keep: 9,
    onOpen: (finding) => opened.push(finding),
  });
  const { listers } = storeOf([
    ...names.map((name) => ({ ...node, key: name, name })),
    web,
    ...slices.filter(({ labels }) => labels['kubernetes.io/service-name'] === web.name),
  ]);
  const proxied = createProxyCache(listers);
  const nodes = createNodes({ listers, proxied, settle, window: 30, minor: () => 36 });
  for (let at = 0; at <= seconds; at += 10) {
    for (const [index, digests] of all.entries()) {
      const report = {
        rules: doubtful(digests),
        etag: 'same',
        version: 'same',
        config,
        lasting: 10,
      };
      const steps = nodes.applyReport(names[index] ?? '', report, at, true);
      while (steps.next().done !== true);
    }
  }
  return opened.map(({ node: name, code, severity }) => `${String(name)} ${code} ${severity}`);
}

describe('a node with a rule that cannot be evaluated', () => {
  test('is an outlier after a window of another behavior than its peers', () => {
    const all = [...times(4, () => does('as usual')), does('otherwise')];
    expect(openedOn(all, 20)).toEqual([]);
    expect(openedOn(all, 60)).toEqual(['node-4 node-unlike-others info']);
  });

  test.each<[string, readonly Digests[]]>([
    ['all do the same', times(5, () => does('as usual'))],
    ['there are too few', [does('as usual'), does('as usual'), does('otherwise')]],
    ['half of them do so', times(8, (n) => does(n % 2 === 0 ? 'as usual' : 'otherwise'))],
    ['each does something else', times(8, (n) => does(`thing ${n}`))],
    ['other things are expected', [...times(7, () => does('usual', 'there')), does('otherwise')]],
    ['several things are right', times(8, (n) => does(n === 7 ? 'otherwise' : 'usual', null))],
  ])('is no outlier where %s', (_, all) => {
    expect(openedOn(all, 60)).toEqual([]);
  });
});

test('a packet without a walk is unknown and not doubtful', () => {
  const forwarding = expectedOf(folder, input);
  const unwalked = (packet: Packet): boolean => packet.dst === web.clusterIP;
  const walk = (packet: Packet) => (unwalked(packet) ? null : known.walk(packet));
  const seen = auditNode({ forwarding, node, rules: { ...known, walk } });
  expect([...seen.unknown].some((name) => name.startsWith('shop/ten:'))).toBe(true);
  expect(seen.doubtful).toEqual(new Set());
});

test('a node without doubtful frontends is not compared', () => {
  const others = times(9, () => doubtful(does('as usual')));
  expect(outliersAmongPeers(new Set(), doubtful(does('otherwise')), others)).toEqual([]);
});
