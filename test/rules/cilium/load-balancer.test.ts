import { describe, expect, test } from 'vitest';

import { ciliumConfigIn } from '../../../src/rules/cilium/infer-config.ts';
import { loadBalancerOf } from '../../../src/rules/cilium/load-balancer.ts';
import type { MapEntry, ServiceEntry } from '../../../src/rules/cilium/map-entries.ts';
import { frontendKey, serviceFlags as flag } from '../../../src/rules/cilium/map-entries.ts';

const place = { family: 'ip', address: '10.96.0.1', port: 80, protocol: 'tcp' } as const;

const master = (more: Partial<ServiceEntry> = {}): ServiceEntry => ({
  ...{ ...place, kind: 'service', scope: 0, word: 0 },
  ...{ count: 2, quarantined: 0, id: 5, flags: flag.routable | flag.nodePort },
  ...more,
});

const slot = (slot: number, backend: number): MapEntry => {
  return { kind: 'slots', frontend: frontendKey(place, 0), slots: [slot, backend] };
};

const backend = (id: number, address: string, cluster = 0): MapEntry => ({
  ...{ kind: 'backend', family: 'ip', id, address, port: 8080, protocol: 'tcp', cluster },
});

const reverse: MapEntry = {
  ...{ kind: 'reverse nat', family: 'ip', id: 5, address: '10.96.0.1', port: 80 },
};

const whole = [
  ...[slot(1, 1), slot(2, 2), slot(3, 3), reverse],
  ...[backend(1, '10.0.0.1'), backend(2, '10.0.0.2'), backend(3, '10.0.0.3')],
];

const frontendOf = (...entries: readonly MapEntry[]) =>
  loadBalancerOf(entries).frontends.get('10.96.0.1:80/tcp');

test('the count says which slots are used', () => {
  expect(frontendOf(master(), ...whole)?.slots).toEqual(
    new Map([
      ['10.0.0.1:8080', 1],
      ['10.0.0.2:8080', 1],
    ]),
  );
});

test('a count without slots is no list of that length', () => {
  const found = frontendOf(master({ count: 2 ** 40 }), ...whole)?.slots;
  expect(found?.get('')).toBe(2 ** 40 - 3);
});

test('a slot that is missing, or whose backend is, leads nowhere', () => {
  const lost = frontendOf(master({ count: 4 }), ...whole.slice(1, -1));
  expect(lost?.slots.get('')).toBe(3);
});

test('a slot has the backend of its own family', () => {
  const other = { ...backend(1, 'fd00::1'), family: 'ip6' } as MapEntry;
  const mixed = [master(), ...whole, other];
  expect(frontendOf(...mixed)?.slots).toEqual(frontendOf(master(), ...whole)?.slots);
  expect(frontendOf(master({ count: 1 }), slot(1, 1), other)?.slots).toEqual(new Map([['', 1]]));
});

test.each([
  [flag.externalIP, 'external IP'],
  [flag.nodePort, 'node port'],
  [flag.loadBalancer, 'load balancer IP'],
  [flag.hostPort, 'host port'],
  [0, 'cluster IP'],
])('the flags %i are of a %s', (flags, kind) => {
  expect(frontendOf(master({ flags }))?.kind).toBe(kind);
});

test.each([
  [[reverse], true],
  [[], false],
  [[{ ...reverse, port: 81 }], false],
])('reverse NAT %o', (entries, want) => {
  expect(frontendOf(master(), ...entries)?.reversed).toBe(want);
});

test('an entry of the unspecified address needs no reverse NAT', () => {
  const { frontends } = loadBalancerOf([master({ address: '0.0.0.0' })]);
  expect(frontends.get('0.0.0.0:80/tcp')?.reversed).toBe(true);
});

describe('session affinity', () => {
  const match = (id: number): MapEntry => ({ kind: 'affinity match', id: 5, backend: id });
  const entries = [...whole, match(1), match(3), match(99)];

  test('keeps the backends that match, and that exist', () => {
    const found = frontendOf(master({ flags: flag.affinity, word: 60 }), ...entries);
    expect(found?.affinitySeconds).toBe(60);
    expect([...(found?.kept ?? [])]).toEqual(['10.0.0.1:8080', '10.0.0.3:8080']);
  });

  test('without its flag keeps none', () => {
    const found = frontendOf(master({ word: 60 }), ...entries);
    expect(found).toMatchObject({ affinitySeconds: null, kept: new Set() });
  });
});

describe('Maglev', () => {
  const table = (id: number): MapEntry => ({
    ...{ kind: 'maglev', family: 'ip', id },
    places: new Map([
      [1, 126],
      [7, 125],
    ]),
  });

  test('a table has the places of backends', () => {
    expect(frontendOf(master(), ...whole, table(5))?.places).toEqual(
      new Map([
        ['10.0.0.1:8080', 126],
        ['', 125],
      ]),
    );
  });

  test('a table that was not read counts as right', () => {
    const unread: MapEntry = { kind: 'maglev', family: 'ip', id: 5, places: null };
    expect(frontendOf(master(), unread, ...whole)?.places).toBeNull();
  });

  const other = (id: number, more: Partial<ServiceEntry> = {}) =>
    master({ address: `10.96.0.${id}`, id, ...more });

  test('where most other frontends have tables, one without drops', () => {
    const others = [other(6), other(7), table(6), table(7)];
    expect(frontendOf(master(), ...whole, ...others)?.places).toEqual(new Map([['', 1]]));
    expect(frontendOf(master({ word: 2 ** 24 }), ...whole, ...others)?.places).toBeNull();
    expect(frontendOf(master({ flags: 0 }), ...whole, ...others)?.places).toBeNull();
  });

  test('a table that an annotation left behind is no setting of the node', () => {
    const others = [other(6), other(7), table(6)];
    expect(frontendOf(master(), ...whole, ...others)?.places).toBeNull();
    expect(ciliumConfigIn([master(), ...whole, ...others]).algorithm).toBe('random');
  });

  test('frontends of a proxy say nothing about the algorithm of others', () => {
    const proxied = { flags: flag.routable | flag.proxy };
    const others = [other(6, proxied), other(7, proxied), table(6), table(7)];
    expect(frontendOf(master(), ...whole, ...others)?.places).toBeNull();
  });
});

test('source ranges count with the flag', () => {
  const range = { family: 'IPv4', low: 1, high: 2 } as const;
  const entries: MapEntry[] = [{ kind: 'source range', id: 5, range }];
  expect(frontendOf(master(), ...entries)?.sources).toBeNull();
  const flags = flag.sourceRanges | flag.deniesOrQuarantined;
  expect(frontendOf(master({ flags }), ...entries)?.sources).toEqual({
    ranges: [range],
    denied: true,
  });
});

test.each([
  [master({ flags: flag.localRedirect }), /local redirect/],
  [master({ flags: flag.otherFamily }), /other address family/],
  [master({ flags: flag.proxy }), /proxy balances/],
  [master({ flags: flag.loopback }), /proxy on the node/],
  [master({ flags: flag.loadBalancer | flag.hostPort }), /several kinds/],
])('what the maps do not show is unknown: %o', (entry, reason) => {
  expect(frontendOf(entry)?.unknown).toMatch(reason);
});

test('a backend of another cluster is unknown', () => {
  const found = frontendOf(master({ count: 1 }), slot(1, 1), backend(1, '10.0.0.1', 3));
  expect(found?.unknown).toMatch(/another cluster/);
  expect(frontendOf(master(), ...whole)?.unknown).toBeNull();
});

test('keys are what Cilium prints', () => {
  expect(frontendKey(place, 0)).toBe('10.96.0.1:80/tcp');
  expect(frontendKey({ ...place, address: 'fd00::1' }, 1)).toBe('[fd00::1]:80/tcp/i');
});
