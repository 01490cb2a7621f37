// One table of packets, walked through the same Service in both languages and both families; and
// what an unknown may and may not hide.

import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import { parseNetwork } from '../../../src/model/ip.ts';
import type { Packet } from '../../../src/model/proxy-config.ts';
import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import { parseNft } from '../../../src/rules/parse/nft-ruleset.ts';
import type { RuleSet } from '../../../src/rules/ruleset.ts';
import { mergeRuleSets } from '../../../src/rules/ruleset.ts';
import { routeLookup } from '../../../src/rules/walk/routes.ts';
import type { NodeContext } from '../../../src/rules/walk/walk-state.ts';
import type { PacketOutcome } from '../../../src/rules/walk/walk.ts';
import { walk } from '../rulesets.ts';

/** The names of the table are addresses here, of either family. */
const addresses = {
  ip: {
    vip: '10.96.0.1',
    empty: '10.96.0.2',
    one: '10.244.1.1',
    two: '10.244.2.2',
    node: '172.18.0.2',
  },
  ip6: { vip: 'fd96::1', empty: 'fd96::2', one: 'fd24:1::1', two: 'fd24:2::2', node: 'fd18::2' },
};

const others = {
  ip: { pods: '10.244.0.0', bits: 16, out: '192.0.2.1' },
  ip6: { pods: 'fd24::', bits: 16, out: '2001:db8::1' },
};

type Family = keyof typeof addresses;

function iptables(family: Family): RuleSet {
  const { vip, empty, one, two } = addresses[family];
  const { pods, bits } = others[family];
  const goal = (address: string): string =>
    family === 'ip' ? `${address}:8080` : `[${address}]:8080`;
  const text = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:SERVICES - [0:0]
-A FORWARD -m conntrack --ctstate NEW -j SERVICES
-A OUTPUT -m conntrack --ctstate NEW -j SERVICES
-A SERVICES -d ${empty} -p tcp -m tcp --dport 80 -j REJECT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:SERVICES - [0:0]
:MARKMASQ - [0:0]
:SVC - [0:0]
:SEP1 - [0:0]
:SEP2 - [0:0]
:NODEPORTS - [0:0]
-A PREROUTING -j SERVICES
-A OUTPUT -j SERVICES
-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE --random-fully
-A MARKMASQ -j MARK --set-xmark 0x4000/0x4000
-A SERVICES -d ${vip} -p tcp -m tcp --dport 80 -j SVC
-A SERVICES -m addrtype --dst-type LOCAL -j NODEPORTS
-A NODEPORTS -p tcp -m tcp --dport 30080 -j MARKMASQ
-A NODEPORTS -p tcp -m tcp --dport 30080 -j SVC
-A SVC ! -s ${pods}/${bits} -d ${vip} -p tcp -m tcp --dport 80 -j MARKMASQ
-A SVC -m statistic --mode random --probability 0.5 -j SEP1
-A SVC -j SEP2
-A SEP1 -s ${one} -j MARKMASQ
-A SEP1 -p tcp -m tcp -j DNAT --to-destination ${goal(one)}
-A SEP2 -s ${two} -j MARKMASQ
-A SEP2 -p tcp -m tcp -j DNAT --to-destination ${goal(two)}
COMMIT
`;
  return parseIptablesSave(text, family);
}

const l4proto = { meta: { key: 'l4proto' } };
const mark = { meta: { key: 'mark' } };
const dport = { payload: { protocol: 'th', field: 'dport' } };
const masquerade = { mangle: { key: mark, value: { '|': [mark, 16384] } } };

/** Either endpoint, with the same probability. */
const pickOf = (...endpoints: readonly string[]): unknown => ({
  map: {
    key: { numgen: { mode: 'random', mod: endpoints.length, offset: 0 } },
    data: { set: endpoints.map((address, at) => [at, { concat: [address, 8080] }]) },
  },
});

const is = (left: unknown, right: unknown, op = '=='): unknown => ({ match: { op, left, right } });

function nft(family: Family): RuleSet {
  const { vip, empty, one, two, node } = addresses[family];
  const { pods, bits } = others[family];
  const own = { family, table: 'k' };
  const ip = (field: string): unknown => ({ payload: { protocol: family, field } });
  const key = { concat: [ip('daddr'), l4proto, dport] };
  const base = (name: string, type: string, hook: string, prio: number): unknown => ({
    chain: { ...own, name, type, hook, prio, policy: 'accept' },
  });
  const chain = (name: string): unknown => ({ chain: { ...own, name } });
  const rule = (name: string, ...expr: unknown[]): unknown => ({
    rule: { ...own, chain: name, expr },
  });
  const services = [
    [{ concat: [vip, 'tcp', 80] }, { goto: { target: 'service' } }],
    [{ concat: [node, 'tcp', 30080] }, { goto: { target: 'external' } }],
  ];
  const nftables = [
    { table: { family, name: 'k' } },
    {
      map: {
        ...own,
        name: 'services',
        type: [`ipv${family === 'ip' ? 4 : 6}_addr`, 'inet_proto', 'inet_service'],
        map: 'verdict',
        elem: services,
      },
    },
    base('pre', 'nat', 'prerouting', -100),
    base('out', 'nat', 'output', -100),
    base('post', 'nat', 'postrouting', 100),
    base('forward', 'filter', 'forward', 0),
    base('local', 'filter', 'output', 0),
    ...['services', 'service', 'external', 'check'].map(chain),
    rule('pre', { jump: { target: 'services' } }),
    rule('out', { jump: { target: 'services' } }),
    rule('post', is({ '&': [mark, 16384] }, 0, '!='), { masquerade: { flags: 'fully-random' } }),
    rule(
      'post',
      is({ ct: { key: 'status' } }, 'dnat', 'in'),
      is(ip('saddr'), one),
      is(ip('daddr'), one),
      { masquerade: null },
    ),
    rule('forward', is({ ct: { key: 'state' } }, 'new', 'in'), { jump: { target: 'check' } }),
    rule('local', is({ ct: { key: 'state' } }, 'new', 'in'), { jump: { target: 'check' } }),
    rule(
      'check',
      is(ip('daddr'), empty),
      is({ payload: { protocol: 'tcp', field: 'dport' } }, 80),
      { reject: null },
    ),
    rule(
      'services',
      is(ip('daddr'), vip),
      is(ip('saddr'), { prefix: { addr: pods, len: bits } }, '!='),
      masquerade,
    ),
    rule('services', { vmap: { key, data: '@services' } }),
    rule('external', masquerade),
    rule('external', { goto: { target: 'service' } }),
    rule('service', is(l4proto, 'tcp'), { dnat: { family, addr: pickOf(one, two) } }),
  ];
  return parseNft(JSON.stringify({ nftables }));
}

type Name = keyof (typeof addresses)['ip'] | 'out';

interface Case {
  readonly from: Packet['from'];
  readonly src: Name;
  readonly dst: Name;
  readonly dport: number;
  readonly protocol?: Packet['protocol'];
  /** Masqueraded at the first and at the second endpoint, or what becomes of the packet. */
  readonly want: readonly [boolean, boolean] | 'pass' | 'reject';
}

const cases: readonly Case[] = [
  { from: 'pod', src: 'one', dst: 'vip', dport: 80, want: [true, false] },
  { from: 'outside', src: 'out', dst: 'vip', dport: 80, want: [true, true] },
  { from: 'node', src: 'node', dst: 'vip', dport: 80, want: [true, true] },
  { from: 'outside', src: 'out', dst: 'node', dport: 30080, want: [true, true] },
  { from: 'node', src: 'node', dst: 'node', dport: 30080, want: [true, true] },
  { from: 'pod', src: 'one', dst: 'vip', dport: 81, want: 'pass' },
  { from: 'pod', src: 'one', dst: 'vip', dport: 80, protocol: 'udp', want: 'pass' },
  { from: 'pod', src: 'one', dst: 'empty', dport: 80, want: 'reject' },
  { from: 'node', src: 'node', dst: 'empty', dport: 80, want: 'reject' },
  { from: 'outside', src: 'out', dst: 'node', dport: 22, want: 'pass' },
  { from: 'outside', src: 'out', dst: 'out', dport: 30080, want: 'pass' },
];

const shown = ({ destinations, pass, reject, drop, unknown }: PacketOutcome): unknown => ({
  destinations: [...destinations].map(([name, { probability, masqueraded }]) => [
    name,
    probability,
    masqueraded,
  ]),
  shares: [pass, reject, drop].map(({ probability }) => probability),
  unknown,
});

describe.each([
  ['iptables', 'ip', iptables('ip')],
  ['iptables', 'ip6', iptables('ip6')],
  ['nft', 'ip', nft('ip')],
  ['nft', 'ip6', nft('ip6')],
] as const)('%s, %s', (_language, family, ruleset) => {
  const all = { ...addresses[family], out: others[family].out };
  const node: NodeContext = { localAddresses: [all.node] };

  test.each(cases)('$from $src to $dst:$dport $protocol: $want', (one) => {
    const { from, dport, protocol = 'tcp', want } = one;
    const got = walk(ruleset, node, {
      from,
      src: all[one.src],
      dst: all[one.dst],
      protocol,
      dport,
    });
    const goal = (address: string): string =>
      family === 'ip' ? `${address}:8080` : `[${address}]:8080`;
    const both = typeof want === 'string' ? [] : want;
    expect(shown(got)).toEqual({
      destinations: both.map((masqueraded, at) => [
        goal(at === 0 ? all.one : all.two),
        0.5,
        masqueraded,
      ]),
      shares: [Number(want === 'pass'), Number(want === 'reject'), 0],
      unknown: [],
    });
  });

  test('the trace has the rules that decided', () => {
    const packet = { from: 'pod', src: all.one, dst: all.vip, protocol: 'tcp', dport: 80 } as const;
    const [first] = walk(ruleset, node, packet).destinations.values();
    const steps = first?.trace().map(({ chain }) => chain) ?? [];
    expect(steps.length).toBeGreaterThan(2);
    expect(['PREROUTING', 'pre']).toContain(steps[0]);
  });
});

const packet: Packet = {
  from: 'outside',
  src: '192.0.2.1',
  dst: '10.96.0.1',
  protocol: 'tcp',
  dport: 80,
};
const node: NodeContext = { localAddresses: ['172.18.0.2'] };

const natOf = (...rules: string[]): RuleSet =>
  parseIptablesSave(
    ['*nat', ':PREROUTING ACCEPT [0:0]', ':POSTROUTING ACCEPT [0:0]', ...rules, 'COMMIT', ''].join(
      '\n',
    ),
    'ip',
  );

describe('a rejection that the node may not answer is a drop', () => {
  const filterOf = (policy: string, ...output: string[]): RuleSet =>
    parseIptablesSave(
      [
        ...['*filter', ':INPUT DROP [0:0]', ':FORWARD ACCEPT [0:0]', `:OUTPUT ${policy} [0:0]`],
        ...['-A FORWARD -j REJECT', ...output.map((rule) => `-A OUTPUT ${rule}`), 'COMMIT', ''],
      ].join('\n'),
      'ip',
    );
  const own = { ...packet, from: 'node', src: '172.18.0.2' } as const;
  const rejectsAll = '-d 10.96.0.1/32 -j REJECT';

  test.each([
    ['ACCEPT', [], packet, 'reject'],
    ['DROP', [], packet, 'drop'],
    ['DROP', ['-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT'], packet, 'reject'],
    ['DROP', ['-m conntrack --ctstate NEW -j ACCEPT'], packet, 'drop'],
    ['DROP', ['-p icmp -j ACCEPT'], packet, 'reject'],
    ['DROP', ['-p tcp -j ACCEPT'], packet, 'drop'],
    ['ACCEPT', ['-m conntrack --ctstate INVALID -j DROP'], packet, 'reject'],
    // Unknown outcomes do not count.
    ['DROP', ['-m string --algo bm -j ACCEPT'], packet, 'reject'],
    ['ACCEPT', [rejectsAll], own, 'reject'],
    ['DROP', [rejectsAll], own, 'drop'],
    ['DROP', [rejectsAll, '-o lo -j ACCEPT'], own, 'reject'],
  ] as const)('policy %s, %j: %o', (policy, output, sent, want) => {
    const got = walk(filterOf(policy, ...output), node, sent);
    const outcomes = Object.entries({ reject: got.reject, drop: got.drop, pass: got.pass });
    const met = outcomes.filter(([, { probability }]) => probability > 0);
    expect(met.map(([name, { probability }]) => [name, probability])).toEqual([[want, 1]]);
  });
});

describe('places', () => {
  test('a marked packet for the node itself never sees postrouting', () => {
    const ruleset = natOf(
      '-A PREROUTING -d 10.96.0.1/32 -p tcp -j DNAT --to-destination 172.18.0.2:6443',
      '-A POSTROUTING -j MASQUERADE --random-fully',
    );
    const to = walk(ruleset, node, packet).destinations.get('172.18.0.2:6443');
    expect(to).toMatchObject({ probability: 1, masqueraded: false });
  });

  test('two backends that agree are no unknown; that differ are', () => {
    const rule = (host: number): RuleSet =>
      natOf(`-A PREROUTING -d 10.96.0.1/32 -p tcp -j DNAT --to-destination 10.0.0.${host}:1`);
    expect(walk(mergeRuleSets([rule(1), rule(1)]), node, packet).unknown).toEqual([]);
    const got = walk(mergeRuleSets([rule(1), rule(2)]), node, packet);
    expect([...got.destinations.keys()]).toEqual(['10.0.0.1:1', '10.0.0.2:1']);
    expect(got.unknown.length).toBe(1);
    const other = walk(mergeRuleSets([rule(1), rule(2)]), node, { ...packet, dst: '10.96.0.9' });
    expect([other.pass.probability, other.unknown]).toEqual([1, []]);
  });

  test('untracked packets are not translated', () => {
    const raw = parseIptablesSave(
      '*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j NOTRACK\nCOMMIT\n',
      'ip',
    );
    const nat = natOf('-A PREROUTING -p tcp -j DNAT --to-destination 10.0.0.1:1');
    expect(walk(mergeRuleSets([raw, nat]), node, packet).pass.probability).toBe(1);
  });

  // As docker writes them, and a VPN.
  const others = parseIptablesSave(
    [
      '*filter',
      ':FORWARD DROP [0:0]',
      ':DOCKER - [0:0]',
      '-A FORWARD -i docker0 ! -o docker0 -j DROP',
      '-A FORWARD -o docker0 -j DOCKER',
      '-A FORWARD -i vpn0 -j MARK --set-xmark 0x1/0x1',
      '-A FORWARD -d 10.0.0.0/8 -j ACCEPT',
      '-A FORWARD -d 172.17.0.0/16 -j ACCEPT',
      '-A DOCKER ! -i docker0 -o docker0 -j DROP',
      'COMMIT',
      '*nat',
      ':PREROUTING ACCEPT [0:0]',
      ':POSTROUTING ACCEPT [0:0]',
      '-A PREROUTING -d 10.96.0.1/32 -p tcp -j DNAT --to-destination 10.0.0.1:1',
      '-A PREROUTING -d 10.96.0.2/32 -p tcp -j DNAT --to-destination 172.17.0.2:1',
      '-A POSTROUTING -m mark --mark 0x1/0x1 -j MASQUERADE --random-fully',
      'COMMIT',
      '',
    ].join('\n'),
    'ip',
  );
  const route = (text: string, name: string, hasGateway = false) => {
    const { low = 0, high = 0 } = parseNetwork(text) ?? {};
    return { low: Number(low), high: Number(high), interface: name, hasGateway };
  };
  const ways = routeLookup({
    main: [route('0.0.0.0/0', 'eth0', true), route('10.0.0.0/16', 'cni0')].concat(
      route('172.17.0.0/16', 'docker0'),
    ),
    others: [],
    uplinks: ['eth0'],
  });
  const all = ['lo', 'eth0', 'cni0', 'docker0', 'vpn0'];

  test.each([
    ['outside', '192.0.2.1', '10.96.0.1', '10.0.0.1:1'],
    ['pod', '10.0.0.251', '10.96.0.1', '10.0.0.1:1'],
    ['pod', '10.0.0.251', '10.96.0.2', 'drop'],
  ] as const)('routes show the interfaces: %s to %s', (from, src, dst, want) => {
    const one = { ...packet, from, src, dst };
    const withoutRoutes = walk(others, { ...node, interfaces: { all } }, one);
    expect(withoutRoutes.unknown.length).toBeGreaterThan(0);
    const got = walk(others, { ...node, interfaces: { all, routes: ways } }, one);
    expect(got.unknown).toEqual([]);
    expect(got.drop.probability).toBe(want === 'drop' ? 1 : 0);
    if (want !== 'drop') {
      expect(got.destinations.get(want)).toMatchObject({ probability: 1, masqueraded: false });
    }
  });

  test('a pod whose network is unknown comes in by any interface', () => {
    const one = { ...packet, from: 'pod', src: '10.1.0.251' } as const;
    expect(walk(others, { ...node, interfaces: { all, routes: ways } }, one).unknown).not.toEqual(
      [],
    );
  });

  test('an address that is none is named', () => {
    expect(() => walk(natOf(), node, { ...packet, dst: 'x' })).toThrow('dst is not an address: x');
  });
});

const condition = fc.constantFrom(
  '',
  '-p udp',
  '-d 10.96.0.1/32',
  '-m mark --mark 0x1/0x1',
  '-m statistic --mode random --probability 0.5',
);
const target = fc.constantFrom(
  'A',
  'B',
  'ACCEPT',
  'DROP',
  'RETURN',
  'MARK --set-xmark 0x1/0x1',
  'DNAT --to-destination 10.0.0.1:1',
  'DNAT --to-destination 10.0.0.2:2',
);
// Chains call only those behind them, as the kernel demands.
const line = fc.record({ chain: fc.constantFrom('PREROUTING', 'A', 'B'), condition, target });

property.prop([fc.array(line, { maxLength: 12 }), fc.array(fc.boolean(), { maxLength: 12 })])(
  'an unknown keeps what either answer gives, and is none when both give the same',
  (lines, marked) => {
    const chains = ['PREROUTING', 'A', 'B'];
    const calls = lines.filter(
      ({ chain, target: name }) =>
        !chains.includes(name) || chains.indexOf(name) > chains.indexOf(chain),
    );
    const outcomeWith = (answer: string): PacketOutcome => {
      const rules = calls.map(({ chain, condition: own, target: name }, at) => {
        const isNat = name.startsWith('DNAT') ? '-p tcp ' : '';
        return `-A ${chain} ${isNat}${own} ${marked[at] === true ? answer : ''} -j ${name}`.replace(
          '-p tcp -p udp',
          '-p udp',
        );
      });
      return walk(natOf(':A - [0:0]', ':B - [0:0]', ...rules), node, packet);
    };
    const open = outcomeWith('-m u32 --u32 "0x0=0x1"');
    const closed = ['', '-m frag --fragmore'].map(outcomeWith);
    const names = new Set(
      [open, ...closed].flatMap(({ destinations }) => [...destinations.keys()]),
    );
    const share = (outcome: PacketOutcome, name: string): number =>
      name === 'drop' || name === 'pass'
        ? outcome[name].probability
        : (outcome.destinations.get(name)?.probability ?? 0);
    for (const name of [...names, 'drop', 'pass']) {
      for (const one of closed)
        expect(share(open, name)).toBeGreaterThanOrEqual(share(one, name) - 1e-9);
      const isOne =
        Math.abs(share(closed[0] ?? open, name) - share(closed[1] ?? open, name)) < 1e-9;
      if (open.unknown.length === 0) expect(isOne).toBe(true);
    }
    if (!marked.includes(true)) expect(open.unknown).toEqual([]);
  },
);
