// Packets that follow others fare as each does that goes alone.

import { fc, test as property } from '@fast-check/vitest';
import { expect, test } from 'vitest';

import type { Packet } from '../../../src/model/proxy-config.ts';
import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import { isSameButDestination } from '../../../src/rules/walk/walk-cache.ts';
import type { OutcomeShare, PacketOutcome } from '../../../src/rules/walk/walk.ts';
import { createWalk } from '../../../src/rules/walk/walk.ts';
import { stateOf } from '../rulesets.ts';

const endpoint = fc.constantFrom(
  ...['10.244.0.5:80', '10.244.0.5:81', '10.244.0.6:80', '10.244.1.6:80'],
  ...['172.18.0.2:80', '172.18.0.3:80', '127.0.0.1:80', '10.244.1.7:443', '10.244.0.255:80'],
);

const match = fc.oneof(
  fc.constantFrom('-d 10.244.0.5/32', '! -d 10.244.0.0/24', '-d 10.244.0.0/16', '-s 10.244.0.5'),
  fc.constantFrom('-p tcp -m tcp --dport 80', '-p tcp -m multiport ! --dports 81,443'),
  fc.constantFrom('-m addrtype --dst-type LOCAL', '-m addrtype ! --dst-type LOCAL,BROADCAST'),
  fc.constantFrom('-m addrtype --dst-type UNICAST,LOCAL', '-m conntrack --ctorigdst 10.96.0.1'),
  fc.constantFrom('-m conntrack --ctorigdstport 80', '-m recent --rcheck --seconds 9 --name a'),
  fc.constantFrom('-m mark --mark 0x1/0x1', '-m conntrack --ctstate DNAT', '-o eth0', '-o lo'),
  fc.constantFrom('-m statistic --mode random --probability 0.25', '-m physdev --is-in', ''),
);

const target = fc.constantFrom(
  ...['ACCEPT', 'DROP', 'REJECT', 'RETURN', 'MARK --set-xmark 0x1/0x1', 'OTHER', 'OTHER'],
);

const rulesOf = fc.array(fc.tuple(match, match, target), { maxLength: 12 });

const linesOf = (chain: string, rules: readonly (readonly string[])[]): string[] =>
  rules.map(([one = '', other = '', to = '']) => `-A ${chain} ${one} ${other} -j ${to}`);

type Rules = readonly (readonly string[])[];

interface Drawn {
  readonly marking: readonly boolean[];
  readonly filter: Rules;
  readonly other: Rules;
  readonly source: Rules;
}

/** A dump that sends to one of these endpoints, each as probable; some are marked before. */
function dumpOf(endpoints: readonly string[], marked: readonly boolean[], drawn: Drawn): string {
  const chains = endpoints.map((_, at) => `:SEP${at} - [0:0]`);
  const jumps = endpoints.map((_, at) => {
    const share = `-m statistic --mode random --probability ${1 / (endpoints.length - at)}`;
    return `-A PREROUTING ${at + 1 < endpoints.length ? share : ''} -j SEP${at}`;
  });
  const sends = endpoints.flatMap((to, at) => [
    ...(marked[at] === true ? [`-A SEP${at} -j MARK --set-xmark 0x1/0x1`] : []),
    `-A SEP${at} -p tcp -m tcp -j DNAT --to-destination ${to}`,
  ]);
  const masquerade = drawn.source.map(([one, other, to]) => {
    return [one ?? '', other ?? '', to === 'DROP' || to === 'REJECT' ? 'MASQUERADE' : (to ?? '')];
  });
  return [
    ...['*filter', ':INPUT ACCEPT [0:0]', ':FORWARD DROP [0:0]', ':OTHER - [0:0]'],
    ...[...linesOf('INPUT', drawn.filter), ...linesOf('FORWARD', drawn.filter)],
    ...linesOf(
      'OTHER',
      drawn.other.filter(([, , to]) => to !== 'OTHER'),
    ),
    ...['COMMIT', '*nat', ':PREROUTING ACCEPT [0:0]', ':POSTROUTING ACCEPT [0:0]', ...chains],
    ...[':OTHER - [0:0]', ...jumps, ...sends, ...linesOf('POSTROUTING', masquerade)],
    ...['COMMIT', ''],
  ].join('\n');
}

const node = { localAddresses: ['172.18.0.2'] };
const first = { src: '10.244.0.5', dst: '10.96.0.1', protocol: 'tcp', dport: 80 } as const;

const sent = (dump: string, packet: Packet = { from: 'pod', ...first }): PacketOutcome =>
  createWalk(parseIptablesSave(dump, 'ip'), node)(packet);

const sumOf = (
  parts: readonly PacketOutcome[],
  shareOf: (outcome: PacketOutcome) => OutcomeShare | undefined,
): number => parts.reduce((sum, part) => sum + (shareOf(part)?.probability ?? 0) / parts.length, 0);

const stepsOf = (share: OutcomeShare | undefined): readonly string[] =>
  (share?.trace() ?? []).map(({ rule }) => rule.text).filter((text) => !text.includes('SEP'));

const drawn = fc.record({
  marking: fc.array(fc.boolean(), { minLength: 9, maxLength: 9 }),
  filter: rulesOf,
  other: rulesOf,
  source: rulesOf,
});

property.prop([fc.uniqueArray(endpoint, { minLength: 2 }), drawn], { numRuns: 250 })(
  'what becomes of all is what becomes of each',
  (endpoints, rules) => {
    const all = sent(dumpOf(endpoints, rules.marking, rules));
    const each = endpoints.map((to, at) => sent(dumpOf([to], [rules.marking[at] ?? false], rules)));
    for (const to of endpoints) {
      const [got, want] = [all, each[endpoints.indexOf(to)]].map((one) =>
        one?.destinations.get(to),
      );
      expect(got?.masqueraded).toBe(want?.masqueraded);
      expect(stepsOf(got)).toEqual(stepsOf(want));
      const share = (want?.probability ?? 0) / endpoints.length;
      expect(got?.probability ?? 0).toBeCloseTo(share, 9);
    }
    for (const kind of ['drop', 'reject', 'pass'] as const) {
      expect(all[kind].probability).toBeCloseTo(
        sumOf(each, (one) => one[kind]),
        9,
      );
    }
    const reasons = (outcomes: readonly PacketOutcome[]): string[] =>
      [...new Set(outcomes.flatMap(({ unknown }) => unknown.map(({ rule }) => rule)))].sort();
    expect(reasons([all])).toEqual(reasons(each));
  },
);

const packet = fc.record<Packet>({
  from: fc.constantFrom('pod', 'outside'),
  src: fc.constantFrom('10.244.0.5', '10.244.0.6', '198.51.100.7'),
  dst: fc.constantFrom('10.96.0.1', '10.96.0.2'),
  protocol: fc.constantFrom('tcp', 'udp'),
  dport: fc.constantFrom(80, 443),
});

/** All of an outcome. */
const dataOf = ({ destinations, unknown, ...others }: PacketOutcome) => ({
  shares: [...destinations, ...Object.entries(others)].map(([name, { trace, ...share }]) => {
    return { name, ...share, trace: trace().map(({ chain, rule }) => [chain, rule.text]) };
  }),
  unknown,
});

/** The same, with shares whose last bits may be others. */
function wantOf(outcome: PacketOutcome): unknown {
  const { shares, unknown } = dataOf(outcome);
  const close = (share: number): unknown => expect.closeTo(share, 9);
  return {
    shares: shares.map((share) => ({ ...share, probability: close(share.probability) })),
    unknown,
  };
}

property.prop(
  [fc.uniqueArray(endpoint, { minLength: 1 }), drawn, fc.array(packet, { minLength: 2 })],
  { numRuns: 250 },
)('what becomes of a packet is the same after others', (endpoints, rules, packets) => {
  const dump = dumpOf(endpoints, rules.marking, rules);
  const walk = createWalk(parseIptablesSave(dump, 'ip'), node);
  for (const one of packets) {
    expect(dataOf(walk(one))).toEqual(wantOf(sent(dump, one)));
  }
});

test('packets are alike when they differ in nothing but where they go', () => {
  const one = stateOf();
  // What is the node's, where the packet goes, and what those do not have that follow others.
  const free = [
    'localAddresses',
    'interfaces',
    'interfacesTo',
    'original',
    'remembered',
    'affinity',
  ];
  const own = ['destination', 'destinationPort', 'goal', 'trace', 'questions', 'tally', 'weight'];
  for (const key of Object.keys(one)) {
    const other = { ...one, [key]: 'another' };
    expect([key, isSameButDestination(one, other)]).toEqual([key, [...free, ...own].includes(key)]);
  }
});
