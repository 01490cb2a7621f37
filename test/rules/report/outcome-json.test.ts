// Outcomes that are none are refused. outcome-json.recorded.test.ts decodes those of all nodes.

import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import type { Packet } from '../../../src/model/proxy-config.ts';
import { entryStep } from '../../../src/rules/cilium/packet-outcome.ts';
import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import {
  check,
  decodeOutcomes,
  encodeOutcomes,
  fieldsOf,
  InvalidReport,
  listOf,
} from '../../../src/rules/report/outcome-json.ts';
import type { OutcomeShare, PacketOutcome } from '../../../src/rules/walk/walk.ts';
import { runToEnd } from '../../../src/model/run-to-end.ts';
import { walk } from '../rulesets.ts';

const dump = [
  '*nat',
  ':PREROUTING ACCEPT [0:0]',
  '-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:8080',
  'COMMIT',
];
const packet: Packet = {
  ...{ from: 'pod', src: '10.244.1.9', dst: '10.96.0.1', protocol: 'tcp', dport: 80 },
};
const ruleset = parseIptablesSave(`${dump.join('\n')}\n`, 'ip');
const one = encodeOutcomes([walk(ruleset, { localAddresses: [] }, packet)]);

describe('what is none', () => {
  test.each<[unknown, RegExp]>([
    [null, /outcomes/],
    [[], /outcomes/],
    [{ rules: 1, outcomes: [] }, /rules: a list/],
    [{ rules: [], outcomes: [null] }, /an outcome/],
    [
      { rules: [], outcomes: [{ fates: { drop: { probability: 2 } }, unknown: [] }] },
      /probability/,
    ],
    [{ ...one, rules: [] }, /a place in the list/],
    [{ ...one, rules: [{ ...one.rules[0], text: '-A OTHER -j DROP' }] }, /./],
    [{ ...one, rules: [{ ...one.rules[0], text: '-A PREROUTING -j DROP\nCOMMIT' }] }, /one line/],
    [{ ...one, rules: [{ ...one.rules[0], source: 'nft', text: '{' }] }, /expression/],
    [{ ...one, rules: [{ ...one.rules[0], hook: 7 }] }, /hook/],
    [{ ...one, rules: [{ ...one.rules[0], table: 'x'.repeat(257) }] }, /table/],
  ])('%j', (raw, message) => {
    expect(() => runToEnd(decodeOutcomes(raw))).toThrow(InvalidReport);
    expect(() => runToEnd(decodeOutcomes(raw))).toThrow(message);
  });

  property.prop([fc.jsonValue()])('is refused or decoded, and nothing else', (raw) => {
    try {
      runToEnd(decodeOutcomes(raw));
    } catch (error) {
      expect(error).toBeInstanceOf(InvalidReport);
    }
  });
});

test('a rule that names a set very often declares it once, and few sets', () => {
  const ruleWith = (sets: readonly string[], table: string) => {
    const text = JSON.stringify([{ match: sets }]);
    const place = { source: 'nft', family: 'ip', chain: 'c', base: 'c', hook: 'prerouting' };
    return { round: '1', rules: [{ ...place, table, text }], outcomes: [] };
  };
  const began = process.cpuUsage();
  const often = ruleWith(Array<string>(100_000).fill('@a'), 't'.repeat(256));
  expect(runToEnd(decodeOutcomes(often))).toEqual([]);
  // Each of the 100,000 declarations repeated the name of the table.
  const { user, system } = process.cpuUsage(began);
  expect((user + system) / 1e6).toBeLessThan(1);
  const many = ruleWith(
    Array.from({ length: 65 }, (_, at) => `@${String(at)}`),
    't',
  );
  expect(() => runToEnd(decodeOutcomes(many))).toThrow(/at most 64 sets/);
});

test('parts of another type are refused', () => {
  expect(() => {
    check(false, 'this');
  }).toThrow('Expected this');
  expect(() => fieldsOf([], 'an object')).toThrow(InvalidReport);
  expect(() => listOf({}, 'a list')).toThrow(InvalidReport);
});

describe('an entry of Cilium', () => {
  const [text] = ['10.96.0.1:80/tcp id 4 count 1 flags 0x0'];
  const none: OutcomeShare = { probability: 0, masqueraded: false, trace: () => [] };
  const share = (verdict: 'dnat' | 'drop') => ({
    ...{ probability: 0.5, masqueraded: false, affinity: false, affinitySeconds: null },
    trace: () => [entryStep(text, verdict)],
  });
  const outcome: PacketOutcome = {
    ...{ reject: none, drop: share('drop'), pass: none, unknown: [] },
    destinations: new Map([['10.0.0.1:8080', share('dnat')]]),
  };
  const encoded = JSON.stringify(encodeOutcomes([outcome]));

  test('is decoded with its verdict', () => {
    const [decoded] = runToEnd(decodeOutcomes(JSON.parse(encoded)));
    expect(decoded?.drop.trace()).toEqual([entryStep(text, 'drop')]);
    expect(decoded?.destinations.get('10.0.0.1:8080')?.trace()).toEqual([entryStep(text, 'dnat')]);
  });

  test('without a verdict is refused', () => {
    const raw: unknown = JSON.parse(encoded.replace('"verdict":"drop"', '"verdict":"accept"'));
    expect(() => runToEnd(decodeOutcomes(raw))).toThrow('the verdict of an entry');
  });
});

test('the rule of a Service with thousands of endpoints is decoded in several turns', () => {
  const chain = (at: number): string => `endpoint-2QRHZV4L-default/name/tcp/p80__10.0.0.1/${at}`;
  const set = Array.from({ length: 9000 }, (_, at) => [at, { goto: { target: chain(at) } }]);
  const key = { numgen: { mode: 'random', mod: 9000, offset: 0 } };
  const text = JSON.stringify([{ vmap: { key, data: { set } } }]);
  const at = { source: 'nft', family: 'ip', table: 'kube-proxy', chain: 'A', base: 'A' };
  const rules = [{ ...at, hook: 'prerouting', text }];
  const by = [0];
  const outcomes = [{ fates: { drop: { probability: 1, masqueraded: false, by } }, unknown: [] }];
  const steps = decodeOutcomes({ rules, outcomes });
  let count = 0;
  for (let step = steps.next(); ; step = steps.next(), count++) {
    if (step.done !== true) continue;
    const [kind] = step.value.flatMap(({ drop }) => drop.trace()[0]?.rule.statements ?? []);
    expect(kind).toMatchObject({ kind: 'verdict map' });
    break;
  }
  expect(count).toBeGreaterThan(text.length / 16_384);
});

test('a rule that is too long to be parsed in one turn is refused', () => {
  const at = { family: 'ip', table: 'nat', chain: 'A', base: 'A', hook: 'prerouting' };
  const read = (source: string, text: string) =>
    runToEnd(decodeOutcomes({ rules: [{ ...at, source, text }], outcomes: [] }));
  const rule = (spaces: number): string => `-A A${' '.repeat(spaces)}-j DROP`;
  expect(read('iptables', rule(65_000))).toEqual([]);
  expect(() => read('iptables', rule(65_536))).toThrow(InvalidReport);
  expect(() => read('iptables', rule(65_536))).toThrow(/at most 65536 characters/);
  const expressions = (count: number): string =>
    JSON.stringify(Array<object>(count).fill({ counter: null }));
  expect(read('nft', expressions(128))).toEqual([]);
  expect(() => read('nft', expressions(129))).toThrow(/at most 128 expressions/);
  const spaces = ' '.repeat(1024 * 1024);
  expect(read('nft', `[${spaces.slice(2)}]`)).toEqual([]);
  expect(() => read('nft', `[${spaces}]`)).toThrow(/at most 1048576 characters/);
});
