// A node that its agent tells of is judged as one whose rules are at hand: on every recorded node,
// sound or broken, the audit by digests and the audit by walking say the same.

import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import type { NodeAuditSummary } from '../../../src/audit/node/audit-node.ts';
import { summarizeNode, auditNode, behaviorOfRules } from '../../../src/audit/node/audit-node.ts';
import type { NodeInput } from '../../../src/audit/node/node-behavior.ts';
import { behaviorOfReport } from '../../../src/audit/node/observation.ts';
import type { Forwarding } from '../../../src/shadow/forwarding.ts';
import { forwardingOf } from '../../nodes/audit.ts';
import { foldersBelow, readFolder } from '../../nodes/folder.ts';
import { rulesReported, toldOf } from '../../nodes/reporting.ts';

const below = (path: string): string[] =>
  foldersBelow(join(import.meta.dirname, '../../nodes', path));

const shownOf = ({ findings, ...counts }: NodeAuditSummary): unknown => ({
  ...counts,
  findings: findings.map(({ code, severity, port, object, expected, actual, rule }) => {
    return { code, severity, port, object, expected, actual, rule };
  }),
});

function bothOf(path: string) {
  const folder = readFolder(path);
  const expected = forwardingOf(folder);
  if (expected === null) return null;
  const atHand: NodeInput = { ...expected, rules: behaviorOfRules(folder.ruleset, folder.node) };
  return { folder, expected, atHand };
}

/** Every third of the broken ones: each takes a while, and they are much alike. */
const paths = [...below('recordings'), ...below('faults').filter((_, at) => at % 3 === 0)];

describe('recorded nodes', () => {
  test('are judged by digests as by their rules', () => {
    let judged = 0;
    for (const path of paths) {
      const both = bothOf(path);
      if (both === null) continue;
      const { rules } = rulesReported(both.folder, both.expected);
      const got = summarizeNode({ ...both.expected, rules });
      expect(shownOf(got), path).toEqual(shownOf(summarizeNode(both.atHand)));
      judged++;
    }
    expect(judged).toBeGreaterThan(0.9 * paths.length);
  }, 120_000);

  test('that are sound diverge nowhere, and need few packets to be asked for', () => {
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
      expect(reported.divergent(), path).toBe(0);
      expect(asked, path).toBeLessThan(all.size / 2);
    }
  });
});

test('until packets are asked for, what becomes of them is unknown and nothing is found', () => {
  const both = bothOf(below('faults').find((path) => path.includes('dnat-address-wrong')) ?? '');
  if (both === null) throw new Error('No objects');
  const { folder, expected } = both;
  const mode = expected.forwarding.config.mode === 'nftables' ? 'nftables' : 'iptables';
  const rules = behaviorOfReport(toldOf(folder, expected.node, mode));
  const audit = summarizeNode({ ...expected, rules });
  expect(audit.findings).toEqual([]);
  expect(audit.unknown).toBeGreaterThan(0);
  expect(rules.missingPackets().length).toBeGreaterThan(0);
  expect(rules.divergent()).toBeGreaterThan(0);
  const digests = expected.forwarding.frontends.map((frontend) => rules.digestsAt(frontend));
  const apart = digests.filter((one) => one?.actual !== one?.expected);
  expect(apart.length).toBeGreaterThan(0);
  expect(apart.length).toBeLessThan(digests.length / 2);
});

test('what once was expected is compared, and changes nothing of what diverges now', () => {
  const [path = ''] = below('recordings/main/iptables-nft');
  const both = bothOf(path);
  if (both === null) throw new Error('No objects');
  const { folder, expected } = both;
  const { forwarding, node } = expected;
  const rules = behaviorOfReport(toldOf(folder, node, 'iptables'));
  const frontend = forwarding.frontends.find((one) => rules.isKnownToServe(forwarding, one, true));
  if (frontend === undefined) throw new Error('No frontend is served');
  const dropping: Forwarding = {
    ...forwarding,
    expect: (packet) => ({ ...forwarding.expect(packet), outcomes: [{ kind: 'drop' }] }),
  };
  const before = rules.divergent();
  expect(rules.isKnownToServe(dropping, frontend, true)).toBe(false);
  expect(rules.divergent()).toBe(before + 1);
  expect(rules.isKnownToServe(forwarding, frontend, false)).toBe(true);
  expect(rules.divergent()).toBe(before + 1);
  expect(rules.isKnownToServe(forwarding, frontend, true)).toBe(true);
  expect(rules.divergent()).toBe(before);
});
