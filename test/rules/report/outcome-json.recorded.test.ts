// The outcomes of the packets to all frontends of the recorded nodes are decoded unchanged.

import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';

import { describe, expect, test } from 'vitest';

import type { Packet } from '../../../src/model/proxy-config.ts';
import { frontendsInRules } from '../../../src/rules/report/frontends.ts';
import { decodeOutcomes, encodeOutcomes } from '../../../src/rules/report/outcome-json.ts';
import type { OutcomeShare, PacketOutcome } from '../../../src/rules/walk/walk.ts';
import { runToEnd } from '../../../src/model/run-to-end.ts';
import { foldersBelow, readFolder } from '../../nodes/folder.ts';
import { walk } from '../rulesets.ts';

const decisive = new Set([
  ...['accept', 'drop', 'reject', 'return', 'notrack', 'unknown verdict', 'dnat', 'dnat by map'],
  ...['redirect', 'netmap', 'snat', 'masquerade', 'verdict map'],
]);

const isDecisive = ({ kind }: { readonly kind: string }): boolean => decisive.has(kind);

/** All encoded fields of an outcome, in a form that compares. */
function shownOf({ reject, drop, pass, destinations, unknown }: PacketOutcome): unknown {
  const shareOf = ({ probability, masqueraded, trace }: OutcomeShare) => ({
    probability,
    masqueraded: probability > 0 ? masqueraded : null,
    steps: (probability > 0 ? trace() : [])
      .filter(({ rule }, at, all) => at === all.length - 1 || rule.statements.some(isDecisive))
      .map(({ chain, base, rule }) => ({
        chain,
        place: [base.table.family, base.table.name, base.table.source, base.chain.name],
        hook: base.base.hook,
        text: rule.text,
        kinds: rule.statements.map(({ kind }) => kind),
      })),
  });
  const to = [...destinations].map(([name, one]) => {
    const { affinity, affinitySeconds } = one;
    return { name, affinity, affinitySeconds, ...shareOf({ ...one, probability: 1 }) };
  });
  return { to, reject: shareOf(reject), drop: shareOf(drop), pass: shareOf(pass), unknown };
}

const wire = (outcomes: readonly PacketOutcome[]): readonly PacketOutcome[] =>
  runToEnd(decodeOutcomes(JSON.parse(JSON.stringify(encodeOutcomes(outcomes)))));

describe('the outcomes of a recorded node', () => {
  const folders = foldersBelow(join(import.meta.dirname, '../../nodes')).map(readFolder);

  test('are decoded unchanged', () => {
    let count = 0;
    for (const { path, ruleset, node } of folders) {
      const outcomes = frontendsInRules(ruleset)
        .filter(({ address }) => address !== null)
        .map(({ family, address, protocol, port: dport }) => {
          const src = family === 'ip' ? '10.244.1.9' : 'fd00:10:244:1::9';
          const packet: Packet = { from: 'pod', src, dst: address ?? '', protocol, dport };
          return walk(ruleset, node, packet);
        });
      wire(outcomes).forEach((decoded, at) => {
        const [got, want] = [shownOf(decoded), shownOf(outcomes[at] ?? decoded)];
        // Compares ten times as fast as toEqual, which then shows the difference.
        if (!isDeepStrictEqual(got, want)) expect(got, path).toEqual(want);
      });
      expect(wire(outcomes)).toHaveLength(outcomes.length);
      count += outcomes.length;
    }
    expect(count).toBeGreaterThan(5000);
  });
});
