// Connections by the frontends of a node, and by maps that have them.

import { describe, expect, test } from 'vitest';

import type { Packet } from '../../../src/model/proxy-config.ts';
import { connect, connectsAlike } from '../../../src/rules/cilium/connection.ts';
import type { BalancedFrontend } from '../../../src/rules/cilium/load-balancer.ts';
import { diceOf } from '../../cilium/objects.ts';

const place = {
  isLocal: (address: string) => ['172.18.0.2', '127.0.0.1'].includes(address),
  nodePortRange: [30_000, 32_767] as const,
};

const frontend = (more: Partial<BalancedFrontend> = {}): BalancedFrontend => ({
  ...{ kind: 'cluster IP', routable: false, twoScopes: false, externalLocal: false },
  ...{ direct: false, loopback: false, sources: null, affinitySeconds: null },
  slots: new Map([
    ['10.0.0.1:8080', 1],
    ['10.0.0.2:8080', 1],
  ]),
  ...{ places: null, kept: new Set(), reversed: true, unknown: null, hasSeveralKinds: false },
  ...{ text: '', ...more },
});

const packet = (more: Partial<Packet> = {}): Packet => ({
  ...{ from: 'outside', src: '203.0.113.1', dst: '10.96.0.1', protocol: 'tcp', dport: 80 },
  ...more,
});

/** Endpoints with their shares, or the kind of another outcome. */
function outcome(frontends: Record<string, BalancedFrontend>, asked: Partial<Packet>) {
  const connection = connect(new Map(Object.entries(frontends)), packet(asked), place);
  if (connection.kind !== 'endpoints') return connection.kind;
  return Object.fromEntries(connection.shares);
}

const half = { '10.0.0.1:8080': 0.5, '10.0.0.2:8080': 0.5 };
const only = (text: string): BalancedFrontend['slots'] => new Map([[text, 1]]);

describe('a cluster IP', () => {
  const frontends = { '10.96.0.1:80/tcp': frontend() };

  test.each([
    ['a pod', { from: 'pod' }, half],
    ['the node', { from: 'node' }, half],
    ['outside', {}, 'drop'],
    ['a pod at another port', { from: 'pod', dport: 81 }, 'pass'],
    ['a pod with another protocol', { from: 'pod', protocol: 'udp' }, 'pass'],
  ] as const)('packets of %s', (_, asked, want) => {
    expect(outcome(frontends, asked)).toEqual(want);
  });

  test('a wildcard entry drops packets from outside to other ports, and no others', () => {
    const wild = { ...frontends, '10.96.0.1:0/any': frontend({ slots: new Map() }) };
    expect(outcome(wild, { dport: 81 })).toBe('drop');
    expect(outcome(wild, { dport: 81, from: 'pod' })).toBe('pass');
  });

  test('without backends it rejects; without reverse NAT or any backend it drops', () => {
    const at = (more: Partial<BalancedFrontend>) =>
      outcome({ '10.96.0.1:80/tcp': frontend(more) }, { from: 'pod' });
    expect(at({ slots: new Map() })).toBe('reject');
    expect(at({ slots: only('') })).toBe('drop');
    expect(at({ reversed: false })).toBe('drop');
    expect(at({ unknown: 'reason' })).toBe('unknown');
  });

  test('a client with affinity may go to a backend without a slot', () => {
    const kept = new Set(['10.0.0.9:8080']);
    expect(outcome({ '10.96.0.1:80/tcp': frontend({ kept }) }, { from: 'pod' })).toEqual({
      ...half,
      '10.0.0.9:8080': 0,
    });
  });
});

describe('a load balancer IP', () => {
  const at = (more: Partial<BalancedFrontend>, asked: Partial<Packet> = {}) =>
    outcome(
      { '10.96.0.1:80/tcp': frontend({ kind: 'load balancer IP', routable: true, ...more }) },
      asked,
    );
  const ranges = [{ family: 'IPv4' as const, low: 0xcb007100, high: 0xcb0071ff }];

  test.each([
    ['in a range', { ranges, denied: false }, half],
    ['in a denied range', { ranges, denied: true }, 'drop'],
    ['in no range', { ranges: [], denied: false }, 'drop'],
  ])('a source %s', (_, sources, want) => {
    expect(at({ sources })).toEqual(want);
    expect(at({ sources }, { from: 'pod' })).toEqual(half);
  });

  test('packets from outside go by the Maglev table', () => {
    const places = new Map([
      ['10.0.0.1:8080', 126],
      ['10.0.0.2:8080', 125],
    ]);
    expect(at({ places })).toEqual(half);
    expect(at({ places: only('10.0.0.1:8080') })).toEqual(half);
    expect(at({ places: new Map([['10.0.0.1:8080', 251]]) })).toEqual({ '10.0.0.1:8080': 1 });
    expect(at({ places: only('') })).toBe('drop');
  });

  test('sockets use the internal scope, packets from outside the external one', () => {
    const frontends = {
      '10.96.0.1:80/tcp': frontend({ routable: true, twoScopes: true }),
      '10.96.0.1:80/tcp/i': frontend({ twoScopes: true, slots: only('10.0.0.3:8080') }),
    };
    expect(outcome(frontends, {})).toEqual(half);
    expect(outcome(frontends, { from: 'pod' })).toEqual({ '10.0.0.3:8080': 1 });
  });
});

test.each([
  [{}, true],
  [{ direct: true }, false],
  [{ externalLocal: true }, false],
])('packets from outside to a frontend with %o are masqueraded: %s', (more, want) => {
  const balancer = new Map([['10.96.0.1:80/tcp', frontend({ routable: true, ...more })]]);
  expect(connect(balancer, packet(), place)).toMatchObject({ masqueraded: want });
});

test('sockets leave external IPs of other machines alone', () => {
  const external = frontend({ kind: 'external IP', routable: true });
  const frontends = { '198.18.0.1:80/tcp': external, '172.18.0.2:80/tcp': external };
  expect(outcome(frontends, { from: 'pod', dst: '198.18.0.1' })).toBe('pass');
  expect(outcome(frontends, { dst: '198.18.0.1' })).toEqual(half);
  expect(outcome(frontends, { from: 'pod', dst: '172.18.0.2' })).toEqual(half);
  const without = { '198.18.0.1:80/tcp': { ...external, slots: new Map<string, number>() } };
  expect(outcome(without, { from: 'pod', dst: '198.18.0.1' })).toBe('reject');
});

test('a frontend of an unknown kind is unknown, at any address too', () => {
  const unclear = frontend({ kind: 'external IP', unknown: '?', hasSeveralKinds: true });
  const frontends = { '0.0.0.0:30080/tcp': unclear, '198.18.0.1:80/tcp': unclear };
  for (const asked of [{ dst: '172.18.0.2', dport: 30_080 }, { dst: '198.18.0.1' }]) {
    expect(outcome(frontends, { from: 'pod', ...asked })).toBe('unknown');
  }
});

test('a frontend that sockets leave alone passes, also if its backends are unknown', () => {
  const remote = frontend({ kind: 'external IP', unknown: 'a backend is in another cluster' });
  const frontends = { '0.0.0.0:30080/tcp': remote, '198.18.0.1:80/tcp': remote };
  for (const asked of [{ dst: '172.18.0.2', dport: 30_080 }, { dst: '198.18.0.1' }]) {
    expect(outcome(frontends, { from: 'pod', ...asked })).toBe('pass');
  }
});

test.each([
  ['node port', 30_080, {}, half],
  ['node port', 29_000, {}, 'pass'],
  ['host port', 8080, {}, 'pass'],
  ['host port', 8080, { dst: '127.0.0.1' }, half],
] as const)('a %s at port %i of any address: %o', (kind, dport, asked, want) => {
  const frontends = {
    [`0.0.0.0:${dport}/tcp`]: frontend({ kind, loopback: kind === 'host port' }),
  };
  const found = outcome(frontends, { from: 'node', dst: '172.18.0.2', dport, ...asked });
  expect(found).toEqual(want);
});

describe('frontends that connect alike', () => {
  const endpoints = ['10.0.0.1:8080', '10.0.0.2:8080', ''];

  const alike = (one: BalancedFrontend, other: BalancedFrontend): boolean =>
    connectsAlike(
      one,
      [...one.slots.keys()].map((text) => ({ text })),
      other,
    );

  /**
   * A frontend with one random change, so that two are often equal. A backend has at most `most`
   * slots.
   */
  function changed(
    { oneOf, below, chance }: ReturnType<typeof diceOf>,
    most: number,
  ): BalancedFrontend {
    const counts = (): BalancedFrontend['slots'] =>
      new Map(endpoints.filter(() => chance(0.7)).map((endpoint) => [endpoint, 1 + below(most)]));
    const changes: Partial<BalancedFrontend> = {
      kind: oneOf(['cluster IP', 'external IP', 'load balancer IP', 'node port', 'host port']),
      routable: chance(0.5),
      twoScopes: true,
      externalLocal: true,
      direct: true,
      loopback: true,
      sources: { ranges: [], denied: chance(0.5) },
      affinitySeconds: oneOf([null, 10, 60]),
      slots: counts(),
      places: counts(),
      kept: new Set(endpoints.filter((it) => it !== '' && chance(0.5))),
      reversed: false,
      unknown: 'a reason',
    };
    const name = oneOf(Object.keys(changes)) as keyof BalancedFrontend;
    return chance(0.3) ? frontend() : frontend({ routable: chance(0.5), [name]: changes[name] });
  }

  const packets = (['outside', 'node', 'pod'] as const).flatMap((from) =>
    ['10.96.0.1', '172.18.0.2'].map((dst) => packet({ from, dst })),
  );

  /** What a connection does with a packet; the frontend and its text have no part in it. */
  function effectsOf(balanced: BalancedFrontend) {
    const { affinitySeconds, kept } = balanced;
    return packets.map((asked) => {
      const frontends = new Map([[`${asked.dst}:80/tcp`, balanced]]);
      const connection = connect(frontends, asked, place);
      const { kind } = connection;
      if (kind !== 'endpoints') return kind;
      const { shares, masqueraded } = connection;
      return { shares, masqueraded, affinitySeconds, kept };
    });
  }

  test('have the same outcome for every packet', () => {
    const counts = { alike: 0, different: 0 };
    for (let seed = 0; seed < 3000; seed++) {
      const dice = diceOf(seed);
      const [one, other] = [changed(dice, 1), changed(dice, 2)];
      const isAlike = alike(one, other);
      counts[isAlike ? 'alike' : 'different']++;
      if (isAlike) expect(effectsOf(one)).toEqual(effectsOf(other));
    }
    expect(Math.min(counts.alike, counts.different)).toBeGreaterThan(300);
  });

  test.each([
    ['an endpoint', { slots: only('10.0.0.1:8080') }],
    ['the time of affinity', { affinitySeconds: 10 }],
    ['a client of affinity', { kept: new Set(['10.0.0.1:8080']) }],
    ['the kind', { kind: 'external IP' }],
    ['reverse NAT', { reversed: false }],
    ['access from outside', { routable: true }],
  ] as const)('do not differ in %s', (_, change) => {
    expect(alike(frontend(), frontend())).toBe(true);
    expect(alike(frontend(), frontend(change))).toBe(false);
    expect(alike(frontend(change), frontend())).toBe(false);
  });
});
