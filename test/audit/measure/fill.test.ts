import { describe, expect, test } from 'vitest';

import {
  fillGroups,
  fillOf,
  fillRatio,
  mostSurplus,
  surplusOf,
} from '../../../src/audit/measure/endpoint-counts.ts';
import type { AddressType, EndpointSlice } from '../../../src/model/objects.ts';
import { endpoint, port, slice, times } from '../../build.ts';

const of = (count: number, number = 8080, addressType: AddressType = 'IPv4'): EndpointSlice =>
  slice({
    addressType,
    ports: [port({ port: number })],
    endpoints: times(count, (index) => endpoint({ addresses: [`10.0.0.${String(index)}`] })),
  });

/** The placeholder's ports are an empty list. */
const empty = (addressType: AddressType = 'IPv4'): EndpointSlice =>
  slice({ addressType, ports: [], endpoints: [] });

describe('the fewest slices of a Service', () => {
  const cases: [string, EndpointSlice[], number, number, number][] = [
    ['no slices at all', [], 0, 0, 0],
    ['the placeholder is needed', [empty()], 0, 1, 1],
    ['one placeholder per address type', [empty('IPv4'), empty('IPv6')], 0, 2, 2],
    ['a second empty slice is not needed', [empty(), empty()], 0, 2, 1],
    ['nor one under other ports', [empty(), of(0)], 0, 2, 1],
    ['an empty slice beside endpoints is not needed', [of(3), empty()], 3, 2, 1],
    ['but the other address type needs its own', [of(3), empty('IPv6')], 3, 2, 2],
    ['a full slice', [of(10)], 10, 1, 1],
    ['one endpoint more than a slice holds', [of(10), of(1)], 11, 2, 2],
    ['two half empty slices', [of(5), of(5)], 10, 2, 1],
    ['ports are not mixed', [of(5), of(5, 9090)], 10, 2, 2],
    ['nor are address types', [of(5), of(5, 8080, 'IPv6')], 10, 2, 2],
    ['an oversized slice needs more slices than exist', [of(11)], 11, 1, 2],
  ];
  test.each(cases)('%s', (_, slices, endpoints, count, minimum) => {
    expect(fillOf(slices, 10)).toEqual({ endpoints, slices: count, minimum });
  });

  test('groups have one address type and port map', () => {
    const slices = [of(5), of(2, 9090), of(1), of(4, 8080, 'IPv6')];
    // Six, two and four endpoints: any two groups taken as one would need a slice less.
    expect(fillOf(slices, 10)).toEqual({ endpoints: 12, slices: 4, minimum: 3 });
  });
});

test('the ratio is the used share, and null without slices', () => {
  expect(fillRatio(fillOf([of(5), of(2)], 10), 10)).toBeCloseTo(0.35);
  expect(fillRatio(fillOf([], 10), 10)).toBeNull();
  expect(surplusOf(fillOf([of(5), of(2)], 10))).toBe(1);
});

test('the largest surplus comes first, and Services without surplus are absent', () => {
  const fills = Object.entries({
    'a/tidy': fillOf([of(10)], 10),
    'b/one': fillOf([of(1), of(1)], 10),
    'a/one': fillOf([of(1), of(1)], 10),
    'c/three': fillOf([of(1), of(1), of(1), of(1)], 10),
  });
  expect(mostSurplus(fills, 10).map(([key]) => key)).toEqual(['c/three', 'a/one', 'b/one']);
  expect(mostSurplus(fills, 1).map(([key]) => key)).toEqual(['c/three']);
});

test('each address type and port map is a group', () => {
  const slices = [
    slice({ name: 'a', endpoints: times(5, () => endpoint()) }),
    slice({ name: 'b', endpoints: times(2, () => endpoint()) }),
    slice({ name: 'c', ports: [port({ port: 9 })], endpoints: times(4, () => endpoint()) }),
    slice({ name: 'd', addressType: 'IPv6', endpoints: [] }),
  ];
  const groups = fillGroups(slices, 10).map(({ addressType, ports, ...fill }) => ({
    of: `${addressType} ${ports.map((one) => one.port).join()}`,
    ...fill,
  }));
  const common = slices[0]?.ports.map((one) => one.port).join() ?? '';
  expect(groups).toEqual([
    { of: `IPv4 ${common}`, endpoints: 7, slices: 2, minimum: 1, ratio: 0.35 },
    { of: 'IPv4 9', endpoints: 4, slices: 1, minimum: 1, ratio: 0.4 },
    { of: `IPv6 ${common}`, endpoints: 0, slices: 1, minimum: 1, ratio: 0 },
  ]);
});
