// Each deviation of an outcome from the expected one, with and without unknowns.

import { describe, expect, test } from 'vitest';

import { comparePacket } from '../../../src/audit/node/compare-packet.ts';
import type { Packet } from '../../../src/model/proxy-config.ts';
import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import type { Destination, PacketOutcome } from '../../../src/rules/walk/walk.ts';
import type { ExpectedOutcome } from '../../../src/model/proxy-config.ts';
import { createWalk } from '../../../src/rules/walk/walk.ts';

const trace = () => [];
const none = { probability: 0, masqueraded: false, trace } as const;

function outcome(
  destinations: Readonly<Record<string, Partial<Destination>>>,
  more: Partial<Record<'reject' | 'drop' | 'pass', number>> & { unknown?: boolean } = {},
): PacketOutcome {
  const of = (probability = 0) => ({ ...none, probability });
  const entries = Object.entries(destinations).map(([text, one]): [string, Destination] => [
    text,
    { ...none, affinity: false, affinitySeconds: null, ...one },
  ]);
  return {
    destinations: new Map(entries),
    reject: of(more.reject),
    drop: of(more.drop),
    pass: of(more.pass),
    unknown: more.unknown === true ? [{ reason: 'owner', rule: '-m owner' }] : [],
  };
}

const site = {
  mode: 'iptables',
  mayMasquerade: (endpoint: string) => endpoint === 'c:1',
  isCheckedClusterIP: () => false,
};

const packet: Packet = {
  ...{ from: 'pod', src: '10.244.1.9', dst: '10.96.0.1', protocol: 'tcp', dport: 80 },
};

const endpoints = (
  all: Readonly<Record<string, boolean>>,
  affinitySeconds: number | null = null,
): ExpectedOutcome => ({
  kind: 'endpoints',
  endpoints: new Map(Object.entries(all)),
  affinitySeconds,
});

const half = { probability: 0.5 };
const two = endpoints({ 'a:1': false, 'b:1': false });
const kept = { affinity: true, affinitySeconds: 60 };

type Case = [string, ExpectedOutcome[], PacketOutcome, string, string[]];

const certain: Case[] = [
  ['equal', [two], outcome({ 'a:1': half, 'b:1': half }), 'conform', []],
  ['rounding', [two], outcome({ 'a:1': { probability: 0.5 + 1e-9 }, 'b:1': half }), 'conform', []],
  [
    'a share',
    [two],
    outcome({ 'a:1': { probability: 0.6 }, 'b:1': { probability: 0.4 } }),
    'different',
    ['share', 'share'],
  ],
  ['one missing', [two], outcome({ 'a:1': { probability: 1 } }), 'different', ['missing']],
  [
    'an unexpected endpoint',
    [endpoints({ 'a:1': false })],
    outcome({ 'a:1': half, 'b:1': half }),
    'different',
    ['unexpected'],
  ],
  [
    'a share of packets that pass',
    [two],
    outcome({ 'a:1': half, 'b:1': { probability: 0.25 } }, { pass: 0.25 }),
    'different',
    ['pass'],
  ],
  ['rejected', [two], outcome({}, { reject: 1 }), 'different', ['missing', 'missing', 'reject']],
  [
    'not masqueraded',
    [endpoints({ 'a:1': true })],
    outcome({ 'a:1': { probability: 1 } }),
    'different',
    ['not masqueraded'],
  ],
  [
    'masqueraded',
    [endpoints({ 'a:1': false })],
    outcome({ 'a:1': { probability: 1, masqueraded: true } }),
    'different',
    ['masqueraded'],
  ],
  [
    'an allowed masquerade',
    [endpoints({ 'c:1': false })],
    outcome({ 'c:1': { probability: 1, masqueraded: true } }),
    'conform',
    [],
  ],
  [
    'affinity',
    [endpoints({ 'a:1': false }, 60)],
    outcome({ 'a:1': { probability: 1, ...kept } }),
    'conform',
    [],
  ],
  [
    'another affinity time',
    [endpoints({ 'a:1': false }, 90)],
    outcome({ 'a:1': { probability: 1, ...kept } }),
    'different',
    ['affinity'],
  ],
  [
    'no affinity',
    [endpoints({ 'a:1': false }, 60)],
    outcome({ 'a:1': { probability: 1 } }),
    'different',
    ['affinity'],
  ],
  [
    'an unexpected affinity',
    [endpoints({ 'a:1': false })],
    outcome({ 'a:1': { probability: 1, ...kept } }),
    'different',
    ['affinity'],
  ],
  [
    'an unexpected endpoint by affinity',
    [endpoints({ 'a:1': false })],
    outcome({ 'a:1': { probability: 1 }, 'b:1': kept }),
    'different',
    ['unexpected'],
  ],
  ['stopped', [{ kind: 'drop' }], outcome({}, { drop: 1 }), 'conform', []],
  [
    'stopped in another way',
    [{ kind: 'reject' }],
    outcome({}, { drop: 1 }),
    'different',
    ['not rejected'],
  ],
  [
    'not stopped',
    [{ kind: 'drop' }],
    outcome({ 'a:1': { probability: 1 } }),
    'different',
    ['unexpected', 'not dropped'],
  ],
  ['either of two', [two, { kind: 'reject' }], outcome({}, { reject: 1 }), 'conform', []],
  [
    'the nearer of two expected outcomes',
    [two, { kind: 'reject' }],
    outcome({ 'a:1': { probability: 1 } }),
    'different',
    ['missing'],
  ],
  ['pass', [{ kind: 'pass' }], outcome({}, { pass: 1 }), 'conform', []],
  ['no pass', [{ kind: 'pass' }], outcome({}, { drop: 1 }), 'different', ['drop']],
  ['nothing to expect', [], outcome({}, { drop: 1 }), 'unknown', []],
];

// With unknowns, a probability is the highest that any of their values allows.
const open = { unknown: true };
const whole = { probability: 1 };
const uncertain: Case[] = [
  [
    'a possible drop',
    [endpoints({ 'a:1': false })],
    outcome({ 'a:1': whole }, { drop: 1, ...open }),
    'unknown',
    [],
  ],
  ['no difference either way', [two], outcome({ 'a:1': half, 'b:1': half }, open), 'conform', []],
  [
    'an endpoint that no packet reaches',
    [two],
    outcome({ 'a:1': whole }, open),
    'different',
    ['missing'],
  ],
  [
    'an impossible stop',
    [{ kind: 'reject' }],
    outcome({}, { pass: 1, ...open }),
    'different',
    ['not rejected'],
  ],
  [
    'a possible stop',
    [{ kind: 'reject' }],
    outcome({}, { pass: 1, reject: 1, ...open }),
    'unknown',
    [],
  ],
  [
    'an unknown destination without a rule that translates',
    [endpoints({ 'a:1': false })],
    outcome({ 'a:1': whole, unknown: whole }, open),
    'unknown',
    [],
  ],
  [
    'a possible masquerade',
    [endpoints({ 'a:1': false })],
    outcome({ 'a:1': { ...whole, masqueraded: 'unknown' } }, open),
    'unknown',
    [],
  ],
  [
    'a certain masquerade',
    [endpoints({ 'a:1': false })],
    outcome({ 'a:1': { ...whole, masqueraded: true } }, open),
    'different',
    ['masqueraded'],
  ],
];

describe('comparePacket', () => {
  test('a masquerade of the node by its own address conforms', () => {
    const [table] = parseIptablesSave('*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n', 'ip').tables;
    const chain = table?.chains.get('OUTPUT');
    if (table === undefined || !chain?.base) throw new Error('No chain');
    const mask = { kind: 'masquerade', random: false, text: '' } as const;
    const step = {
      chain: 'KUBE-POSTROUTING',
      rule: { statements: [mask], text: '', line: 1 },
      base: { chain, table, base: chain.base },
    };
    const verdict = (from: 'node' | 'pod', steps: readonly (typeof step)[]): string => {
      const one = { ...whole, masqueraded: 'unknown', trace: () => steps } as const;
      const desired = [endpoints({ 'a:1': true })];
      return comparePacket(desired, outcome({ 'a:1': one }), { ...packet, from }, site).verdict;
    };
    expect(verdict('node', [step])).toBe('conform');
    expect(verdict('node', [])).toBe('different');
    expect(verdict('pod', [step])).toBe('different');
  });

  test('what a queue to a program leads to is unknown, at every hook', () => {
    const verdicts = ['PREROUTING', 'OUTPUT', 'FORWARD'].map((name) => {
      const dump = `*filter\n:${name} ACCEPT [0:0]\nCOMMIT\n`;
      const [table] = parseIptablesSave(dump, 'ip').tables;
      const chain = table?.chains.get(name);
      if (table === undefined || !chain?.base) throw new Error('No chain');
      const queue = { kind: 'unknown verdict', text: '-j NFQUEUE' } as const;
      const rule = { statements: [queue], text: '', line: 1 };
      const step = { chain: name, rule, base: { chain, table, base: chain.base } };
      const queued = { ...whole, trace: () => [step] };
      const got = outcome({ 'a:1': whole, unknown: queued }, { drop: 1, ...open });
      return comparePacket([endpoints({ 'a:1': false })], got, packet, site).verdict;
    });
    expect(verdicts).toEqual(['unknown', 'unknown', 'unknown']);
  });

  test('nothing is certain where the walk gave up', () => {
    const sets = Array.from({ length: 500 }, (_, at) => `-m set --match-set s${at} src -j DROP`);
    const lines = [
      '*raw',
      ':PREROUTING ACCEPT [0:0]',
      ...sets.map((rule) => `-A PREROUTING ${rule}`),
      'COMMIT',
      '*nat',
      ':PREROUTING ACCEPT [0:0]',
      '-A PREROUTING -d 10.96.0.1/32 -p tcp --dport 80 -j DNAT --to-destination 10.244.1.5:8080',
      'COMMIT\n',
    ];
    const walk = createWalk(parseIptablesSave(lines.join('\n'), 'ip'), { localAddresses: [] });
    const sent: Packet = { ...packet, dst: '10.96.0.1', dport: 80 };
    const desired = [endpoints({ '10.244.1.5:8080': false })];
    expect(comparePacket(desired, walk(sent), sent, site).verdict).toBe('unknown');
  });

  test('an unknown destination of a kube-proxy rule is unknown, unless its mode is another', () => {
    const [table] = parseIptablesSave('*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n', 'ip').tables;
    const chain = table?.chains.get('OUTPUT');
    if (table === undefined || !chain?.base) throw new Error('No chain');
    const rule = { statements: [{ kind: 'dnat', to: null, text: '' }], text: '', line: 1 } as const;
    const step = {
      chain: 'KUBE-SEP-ABCDEFGHIJKLMNOP',
      rule,
      base: { chain, table, base: chain.base },
    };
    const got = outcome({ unknown: { ...whole, trace: () => [step] } }, { pass: 1, ...open });
    const desired = [endpoints({ 'a:1': false })];
    const verdicts = ['iptables', 'nftables'].map(
      (mode) => comparePacket(desired, got, packet, { ...site, mode }).verdict,
    );
    expect(verdicts).toEqual(['unknown', 'different']);
  });

  test.each([...certain, ...uncertain])('%s', (_, desired, got, verdict, kinds) => {
    const comparison = comparePacket(desired, got, packet, site);
    expect(comparison.verdict).toBe(verdict);
    expect(comparison.deviations.map(({ kind }) => kind)).toEqual(kinds);
  });
});
