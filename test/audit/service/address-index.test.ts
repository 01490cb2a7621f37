// What Endpoints list at an address is the same whether they are looked through or by an index.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import {
  dropIndex,
  listedAt,
  replaceEndpoints,
  setEndpoints,
  buildIndex,
} from '../../../src/audit/service/address-index.ts';
import { createServiceState } from '../../../src/audit/service/cache.ts';
import type { ListedAddress } from '../../../src/audit/service/compare.ts';
import type { EndpointAddress, Endpoints } from '../../../src/model/objects.ts';
import { address, endpoints, port, subset, target } from '../../build.ts';

describe('replaceEndpoints', () => {
  const one = subset([address(), address({ ip: '10.0.0.2', target: target('web-2') })]);
  const before = endpoints({ subsets: [one] });
  const cases: [string, ReturnType<typeof endpoints> | null, string[]][] = [
    ['the same', endpoints({ subsets: [one] }), []],
    [
      'in another packing',
      endpoints({ subsets: [subset([address()]), subset(one.addresses.slice(1))] }),
      [],
    ],
    ['gone', null, ['10.0.0.1', '10.0.0.2']],
    ['one less', endpoints(), ['10.0.0.2']],
    [
      'readiness',
      endpoints({ subsets: [subset([address({ ready: false }), ...one.addresses.slice(1)])] }),
      ['10.0.0.1'],
    ],
    [
      'ports',
      endpoints({ subsets: [subset(one.addresses, [port({ port: 1 })])] }),
      ['10.0.0.1', '10.0.0.2'],
    ],
    [
      'another pod',
      endpoints({
        subsets: [subset([address({ target: target('x') }), ...one.addresses.slice(1)])],
      }),
      ['10.0.0.1'],
    ],
    [
      'another node',
      endpoints({ subsets: [subset([address({ node: 'x' }), ...one.addresses.slice(1)])] }),
      ['10.0.0.1'],
    ],
  ];
  test.each(cases)('%s', (_, after, want) => {
    const record = createServiceState('shop/web');
    expect([...replaceEndpoints(record, before)]).toEqual(['10.0.0.1', '10.0.0.2']);
    expect([...replaceEndpoints(record, after)].sort()).toEqual(want);
    expect(record.endpoints).toBe(after);
  });

  test.each([
    ['with all its ports', false, [port({ port: 1 })], [['web-1', false, [8080, 1]]]],
    ['not ready at one port', true, [port()], [['web-1', false, [8080]]]],
    [
      'but apart where two ports say ready and not ready',
      true,
      [port({ port: 1 })],
      [
        ['web-1', true, [8080]],
        ['web-1', false, [1]],
      ],
    ],
  ])('one entry per pod at an address, in canonical form, %s', (_, ready, ports, want) => {
    const record = createServiceState('shop/web');
    const other = address({ ip: '10.0.0.01', ready: false, target: target('web-2') });
    const subsets = [
      subset([address({ ready }), other], [port()]),
      subset([address({ ip: '010.0.0.1', ready: false })], ports),
    ];
    setEndpoints(record, endpoints({ subsets }));
    expect([...buildIndex(record).keys()]).toEqual(['10.0.0.1']);
    dropIndex(record);
    expect(record.listed).toBeNull();
    const got = listedAt(record, '10.0.0.1').map((listed) => [
      listed.target?.name,
      listed.ready,
      listed.ports.map((one) => one.port),
    ]);
    expect(got.filter(([name]) => name === 'web-1')).toEqual(want);
    expect(got.filter(([name]) => name === 'web-2')).toEqual([['web-2', false, [8080]]]);
  });
});

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

const others = subset(
  Array.from({ length: 300 }, (_, at) =>
    address({ ip: `10.1.${String(at >> 8)}.${String(at & 255)}` }),
  ),
);

/** The same, with so many more that an index is kept. */
function enlarged({ subsets, ...more }: Endpoints): Endpoints {
  return { ...more, subsets: [...subsets, others] };
}

/** What is listed at each address, whatever the record has held before. */
function listingOf(of: Endpoints): Map<string, readonly ListedAddress[]> {
  const record = createServiceState('shop/web');
  setEndpoints(record, of);
  return new Map([...buildIndex(record)].map(([ip]) => [ip, listedAt(record, ip)]));
}

/** What entries say, whatever the form in which their address is written. */
const says = (listed: readonly ListedAddress[] = []): string =>
  JSON.stringify(listed.map((one) => ({ ...one, ip: '' })));

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

test('what is touched is what is listed otherwise, and all is listed as it is now', () => {
  fc.assert(
    fc.property(edited, fc.boolean(), ([was, is], large) => {
      const [before, after] = large ? [enlarged(was), enlarged(is)] : [was, is];
      const record = createServiceState('shop/web');
      setEndpoints(record, before);
      if (large) listedAt(record, '10.0.0.1');
      const [old, now] = [listingOf(before), listingOf(after)];
      const touched = replaceEndpoints(record, after);
      for (const ip of new Set([...old.keys(), ...now.keys()])) {
        expect(listedAt(record, ip)).toEqual(now.get(ip) ?? []);
        expect([ip, touched.has(ip)]).toEqual([ip, says(old.get(ip)) !== says(now.get(ip))]);
      }
    }),
    { numRuns: 500 },
  );
});

describe('listedAt', () => {
  test('many addresses do not change what is listed at one', () => {
    fc.assert(
      fc.property(fc.array(anySubset, { maxLength: 3 }), (subsets) => {
        const [small, large] = [createServiceState('shop/web'), createServiceState('shop/web')];
        setEndpoints(small, endpoints({ subsets }));
        setEndpoints(large, enlarged(endpoints({ subsets })));
        for (const ip of ['10.0.0.1', '10.0.0.2', 'fd00::1', '10.0.0.3']) {
          expect(listedAt(large, ip)).toEqual(listedAt(small, ip));
        }
        expect(small.listed).toBeNull();
        expect(large.listed).not.toBeNull();
      }),
    );
  });

  test('follows new versions, with an index or without', () => {
    const record = createServiceState('shop/web');
    const ready = (): boolean[] => listedAt(record, '10.0.0.1').map((one) => one.ready);
    expect(ready()).toEqual([]);
    replaceEndpoints(record, enlarged(endpoints()));
    expect(ready()).toEqual([true]);
    const other = endpoints({ subsets: [subset([address({ ready: false })])] });
    expect([...replaceEndpoints(record, enlarged(other))]).toEqual(['10.0.0.1']);
    expect(ready()).toEqual([false]);
    replaceEndpoints(record, endpoints());
    expect(ready()).toEqual([true]);
    replaceEndpoints(record, null);
    expect(ready()).toEqual([]);
  });
});
