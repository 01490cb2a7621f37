// Behavior and configuration of nodes, from dumps and from reports of agents. On every recorded
// node, sound or broken, the audit by digests and the audit by walking give the same result.

import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { auditNode } from '../../../src/audit/node/audit-node.ts';
import type { NodeInput } from '../../../src/audit/node/observation.ts';
import {
  behaviorOfReport,
  behaviorOfRules,
  observeDumps,
} from '../../../src/audit/node/observation.ts';
import { readRulesDump } from '../../../src/rules/parse/rules-dump.ts';
import type { Forwarding } from '../../../src/shadow/forwarding.ts';
import { foldersBelow, readBytes, readFolder } from '../../nodes/folder.ts';
import type { NodeAuditSummary } from '../../nodes/walk.ts';
import { firstReportOf, forwardingOf, rulesReported, summarizeNode } from '../../nodes/walk.ts';

const recordings = join(import.meta.dirname, '../../nodes/recordings/main');
const dump = (name: string) =>
  readRulesDump(readBytes(join(recordings, name))?.toString() ?? '', null);
const node = { addresses: ['172.18.0.2', 'fd00:18::2'] };

test.each([
  ['no dump', [], [], 'iptables', 0],
  ['a dump of one family', ['iptables-nft/node-a/iptables-save.txt'], ['IPv4'], 'iptables', 1],
  ['nft.json with both families', ['nftables/node-a/nft.json'], ['IPv4', 'IPv6'], 'nftables', 1],
])('%s shows families, mode and frontends', (_, names, families, mode, least) => {
  const observation = observeDumps(names.map(dump), node, 36);
  expect([...observation.families].sort()).toEqual(families);
  expect(observation.config).toMatchObject({ mode, minor: 36 });
  expect(observation.rules.frontends.length).toBeGreaterThanOrEqual(least);
  expect(observation.rules.localAddresses).toEqual(node.addresses);
});

test('addresses of node ports are local even if the Node does not list them', () => {
  const names = ['iptables-save.txt', 'ip6tables-save.txt'].map(
    (name) => `iptables-nft/node-b/${name}`,
  );
  const { rules } = observeDumps(names.map(dump), { addresses: [] }, 36);
  expect(rules.localAddresses).toEqual(['172.18.0.3', 'fd00:18::3']);
});

const below = (path: string): string[] =>
  foldersBelow(join(import.meta.dirname, '../../nodes', path));

const shownOf = ({ findings, ...counts }: NodeAuditSummary): unknown => ({
  ...counts,
  findings: findings.map(({ code, severity, ports, object, expected, actual, rule }) => {
    return { code, severity, ports, object, expected, actual, rule };
  }),
});

function bothOf(path: string) {
  const folder = readFolder(path);
  const expected = forwardingOf(folder);
  if (expected === null) return null;
  const atHand: NodeInput = { ...expected, rules: behaviorOfRules(folder.ruleset, folder.node) };
  return { folder, expected, atHand };
}

/** Every third broken node; each takes a while. */
const paths = [
  ...[...below('recordings'), ...below('pairs')],
  ...below('faults').filter((_, at) => at % 3 === 0),
];

describe('recorded nodes', () => {
  test('give the same audit by digests as by walks', () => {
    let audited = 0;
    for (const path of paths) {
      const both = bothOf(path);
      if (both === null) continue;
      const { rules } = rulesReported(both.folder, both.expected);
      const got = summarizeNode({ ...both.expected, rules });
      expect(shownOf(got), path).toEqual(shownOf(summarizeNode(both.atHand)));
      audited++;
    }
    expect(audited).toBeGreaterThan(0.9 * paths.length);
  });

  test('that are sound have no divergent frontend and need few walks', () => {
    for (const path of below('recordings')) {
      const both = bothOf(path);
      if (both === null || both.folder.isForeign) continue;
      const all = new Set<string>();
      const rules = {
        ...both.atHand.rules,
        walk: (packet: object) => {
          all.add(JSON.stringify(packet));
          return null;
        },
      };
      auditNode({ ...both.expected, rules });
      const { rules: reported, asked } = rulesReported(both.folder, both.expected);
      auditNode({ ...both.expected, rules: reported });
      expect(reported.report.divergent(), path).toBe(0);
      expect(asked, path).toBeLessThan(all.size / 2);
    }
  });
});

test('missing outcomes are unknown and make no findings', () => {
  const both = bothOf(below('faults').find((path) => path.includes('dnat-address-wrong')) ?? '');
  if (both === null) throw new Error('No objects');
  const { folder, expected } = both;
  const mode = expected.forwarding.config.mode === 'nftables' ? 'nftables' : 'iptables';
  const rules = behaviorOfReport(firstReportOf(folder, expected.node, mode));
  const audit = summarizeNode({ ...expected, rules });
  expect(audit.findings).toEqual([]);
  expect(audit.unknown).toBeGreaterThan(0);
  expect(rules.report.missingPackets().length).toBeGreaterThan(0);
  expect(rules.report.divergent()).toBeGreaterThan(0);
  const digests = expected.forwarding.frontends.map((frontend) => rules.report.digestsAt(frontend));
  const apart = digests.filter((one) => one.actual !== one.expected);
  expect(apart.length).toBeGreaterThan(0);
  expect(apart.length).toBeLessThan(digests.length / 2);
});

test('a comparison with an earlier expectation does not change the divergent frontends', () => {
  const [path = ''] = below('recordings/main/iptables-nft');
  const both = bothOf(path);
  if (both === null) throw new Error('No objects');
  const { folder, expected } = both;
  const { forwarding, node } = expected;
  const rules = behaviorOfReport(firstReportOf(folder, node, 'iptables'));
  const frontend = forwarding.frontends.find((one) =>
    rules.report.isKnownToServe(forwarding, one, true),
  );
  if (frontend === undefined) throw new Error('No frontend is served');
  const dropping: Forwarding = {
    ...forwarding,
    expect: (packet) => ({ ...forwarding.expect(packet), outcomes: [{ kind: 'drop' }] }),
  };
  const before = rules.report.divergent();
  expect(rules.report.isKnownToServe(dropping, frontend, true)).toBe(false);
  expect(rules.report.divergent()).toBe(before + 1);
  expect(rules.report.isKnownToServe(forwarding, frontend, false)).toBe(true);
  expect(rules.report.divergent()).toBe(before + 1);
  rules.report.restart();
  expect(rules.report.isKnownToServe(forwarding, frontend, true)).toBe(true);
  expect(rules.report.divergent()).toBe(0);
});
