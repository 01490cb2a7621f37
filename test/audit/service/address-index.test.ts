// What an index contains, and which addresses differ between two versions.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { AddressEntries } from '../../../src/audit/service/address-index.ts';
import {
  addressesIn,
  buildIndex,
  changedInEndpoints,
  changedInSlice,
  entriesAt,
} from '../../../src/audit/service/address-index.ts';
import type { ServiceState } from '../../../src/audit/service/cache.ts';
import { createServiceState, setSlice } from '../../../src/audit/service/cache.ts';
import { createStore } from '../../../src/cluster/store/store.ts';
import { canonicalIP } from '../../../src/model/ip.ts';
import type { EndpointAddress, Endpoints, EndpointSlice } from '../../../src/model/objects.ts';
import { address, endpoint, endpoints, port, slice, subset, target } from '../../build.ts';

describe('the addresses that differ between two versions of the Endpoints', () => {
  const one = subset([address(), address({ ip: '10.0.0.2', target: target('web-2') })]);
  const before = endpoints({ subsets: [one] });
  const cases: [string, ReturnType<typeof endpoints> | null, string[]][] = [
    ['equal versions: none', endpoints({ subsets: [one] }), []],
    [
      'another packing: none',
      endpoints({ subsets: [subset([address()]), subset(one.addresses.slice(1))] }),
      [],
    ],
    ['a deletion: all', null, ['10.0.0.1', '10.0.0.2']],
    ['an address removed', endpoints(), ['10.0.0.2']],
    [
      'a change of readiness',
      endpoints({ subsets: [subset([address({ ready: false }), ...one.addresses.slice(1)])] }),
      ['10.0.0.1'],
    ],
    [
      'a change of ports: all of the subset',
      endpoints({ subsets: [subset(one.addresses, [port({ port: 1 })])] }),
      ['10.0.0.1', '10.0.0.2'],
    ],
    [
      'another target pod',
      endpoints({
        subsets: [subset([address({ target: target('x') }), ...one.addresses.slice(1)])],
      }),
      ['10.0.0.1'],
    ],
    [
      'another node name',
      endpoints({ subsets: [subset([address({ node: 'x' }), ...one.addresses.slice(1)])] }),
      ['10.0.0.1'],
    ],
  ];
  test.each(cases)('%s', (_, after, want) => {
    expect([...changedInEndpoints(null, before)]).toEqual(['10.0.0.1', '10.0.0.2']);
    expect([...changedInEndpoints(before, after)].sort()).toEqual(want);
  });

  test.each([
    ['with the ports of both subsets', false, [port({ port: 1 })], [['web-1', false, [8080, 1]]]],
    ['not ready at a port that two subsets list', true, [port()], [['web-1', false, [8080]]]],
    [
      'except one entry each for ready and not ready ports',
      true,
      [port({ port: 1 })],
      [
        ['web-1', true, [8080]],
        ['web-1', false, [1]],
      ],
    ],
  ])('an address listed twice has one entry per pod, %s', (_, ready, ports, want) => {
    const record = createServiceState('shop/web');
    const other = address({ ip: '10.0.0.01', ready: false, target: target('web-2') });
    const subsets = [
      subset([address({ ready }), other], [port()]),
      subset([address({ ip: '010.0.0.1', ready: false })], ports),
    ];
    record.endpoints = endpoints({ subsets });
    expect([...buildIndex(record, null).listings.keys()]).toEqual(['10.0.0.1']);
    const got = entriesOf(record, '10.0.0.1').listed.map((listed) => [
      listed.target?.name,
      listed.ready,
      listed.ports.map((one) => one.port),
    ]);
    expect(got.filter(([name]) => name === 'web-1')).toEqual(want);
    expect(got.filter(([name]) => name === 'web-2')).toEqual([['web-2', false, [8080]]]);
  });
});

const { listers } = createStore(new Set());

/** The entries at an address, of an index of this address alone. */
const entriesOf = (record: ServiceState, ip: string): AddressEntries =>
  entriesAt(listers, record, buildIndex(record, new Set([ip])), ip);

const ips = ['10.0.0.1', '10.0.0.01', '10.0.0.2', 'fd00::1', 'FD00:0::1'];
const anyAddress: fc.Arbitrary<EndpointAddress> = fc.record({
  ip: fc.constantFrom(...ips),
  ready: fc.boolean(),
  ports: fc.constant([]),
  node: fc.constantFrom('node-a', null),
  hostname: fc.constant(''),
  target: fc.constantFrom(target('a'), target('b'), null),
});
const anySubset = fc
  .tuple(fc.array(anyAddress, { maxLength: 4 }), fc.subarray([port(), port({ port: 1 })]))
  .map(([addresses, ports]) => subset(addresses, ports));

/** What entries contain, whatever the spelling of their address. */
const textOf = (listed: readonly EndpointAddress[] = []): string =>
  JSON.stringify(listed.map((entry) => ({ ...entry, ip: '' })));

/** Another version: some addresses taken out, moved or changed, in what is otherwise the same. */
const edited = fc
  .tuple(
    fc.array(anySubset, { minLength: 1, maxLength: 3 }),
    fc.array(fc.tuple(fc.nat(2), fc.nat(4), fc.nat(2), fc.nat(4), fc.option(anyAddress))),
  )
  .map(([subsets, edits]) => {
    const after = subsets.map((one) => ({ ...one, addresses: [...one.addresses] }));
    for (const [from, at, to, place, put] of edits) {
      const [taken] = after[from]?.addresses.splice(at, 1) ?? [];
      const { addresses, ports = [] } = after[to] ?? {};
      if (put !== null) addresses?.splice(place, 0, { ...put, ports });
      else if (taken !== undefined)
        addresses?.splice(place, 0, from === to ? taken : { ...taken, ports });
    }
    return [endpoints({ subsets }), endpoints({ subsets: after })] as const;
  });

/** The same object with 300 other addresses, enough for a kept index. */
const enlarged = (version: Endpoints): Endpoints => ({
  ...version,
  subsets: [...version.subsets, subset(otherAddresses)],
});
const otherAddresses = Array.from({ length: 300 }, (_, at) =>
  address({ ip: `10.1.1.${String(at)}` }),
);

describe.each([
  ['of few addresses', (version: Endpoints): Endpoints => version],
  ['of many addresses', enlarged],
])('two versions of Endpoints %s', (_, sized) => {
  test('differ exactly at the addresses with other entries', () => {
    fc.assert(
      fc.property(edited, (versions) => {
        const [before, after] = versions.map(sized);
        if (before === undefined || after === undefined) throw new Error('Expected two versions');
        const record = createServiceState('shop/web');
        const textsOf = (version: Endpoints): string[] => {
          record.endpoints = version;
          return ips.map((ip) => textOf(entriesOf(record, canonicalIP(ip)).listed));
        };
        const was = textsOf(before);
        const changed = changedInEndpoints(before, after);
        const is = textsOf(after);
        expect(is).toEqual(textsOf({ ...after }));
        for (const [at, ip] of ips.entries()) {
          expect([ip, changed.has(canonicalIP(ip))]).toEqual([ip, was[at] !== is[at]]);
        }
      }),
      { numRuns: 500 },
    );
  });
});

const sliceOf = (name: string, ...addresses: string[]): EndpointSlice =>
  slice({
    name,
    endpoints: addresses.map((ip) => endpoint({ addresses: [ip] })),
  });

function stateOf(...slices: EndpointSlice[]): ServiceState {
  const record = createServiceState('shop/web');
  for (const one of slices) setSlice(record, one.key, one);
  return record;
}

describe('entriesAt', () => {
  test('finds the same in an index of all addresses and in one of a single address', () => {
    fc.assert(
      fc.property(
        fc.array(anySubset, { maxLength: 3 }),
        fc.array(fc.array(fc.constantFrom(...ips)), { maxLength: 6 }),
        (subsets, slices) => {
          const record = stateOf(...slices.map((one, at) => sliceOf(`web-${String(at)}`, ...one)));
          record.endpoints = endpoints({ subsets });
          const index = buildIndex(record, null);
          for (const ip of ['10.0.0.1', '10.0.0.2', 'fd00::1', '10.0.0.3']) {
            expect(entriesOf(record, ip)).toEqual(entriesAt(listers, record, index, ip));
          }
        },
      ),
    );
  });

  test('lists the endpoints of several slices in the order of the slices', () => {
    const record = stateOf(sliceOf('b', '10.0.0.01'), sliceOf('c'), sliceOf('a', '10.0.0.1'));
    const { listed, sliced } = entriesOf(record, '10.0.0.1');
    expect(listed).toEqual([]);
    expect(sliced.map((entry) => entry.slice.name)).toEqual(['a', 'b']);
  });
});

describe('two versions of a slice', () => {
  const before = sliceOf('a', '10.0.0.1', '10.0.0.2');

  test('differ at the addresses whose endpoints differ', () => {
    const after = sliceOf('a', '10.0.0.2', '10.0.0.3');
    expect([...changedInSlice(before, after)].sort()).toEqual(['10.0.0.1', '10.0.0.3']);
    expect([...changedInSlice(before, sliceOf('a', '10.0.0.2', '10.0.0.1'))]).toEqual([]);
  });
});

test('a slice lists an address once, in canonical form', () => {
  const listed = addressesIn(sliceOf('a', '10.0.0.1', '10.0.0.01', 'fd00::1'));
  expect([...listed]).toEqual(['10.0.0.1', 'fd00::1']);
  expect(addressesIn(null).size).toBe(0);
});
