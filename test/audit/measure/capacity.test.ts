import { describe, expect, test } from 'vitest';

import { addCapacity, capacityOf, noCapacity } from '../../../src/audit/measure/capacity.ts';
import { annotation } from '../../../src/model/objects.ts';
import { address, endpoint, endpoints, slice, subset, times } from '../../build.ts';

const limits = { endpoints: 3, endpointslices: 2 };
const listing = (count: number, value?: string) =>
  endpoints({
    annotations: value === undefined ? {} : { [annotation.overCapacity]: value },
    subsets: [subset(times(count, (index) => address({ ip: `10.0.0.${String(index)}` })))],
  });
const sliced = (count: number) =>
  slice({
    endpoints: times(count, (index) => endpoint({ addresses: [`10.0.0.${String(index)}`] })),
  });

describe('which objects reach a limit', () => {
  test('none of none', () => {
    expect(capacityOf(null, [], limits)).toEqual(noCapacity());
  });

  test('at the limit is not over it', () => {
    expect(capacityOf(listing(3), [sliced(2)], limits)).toEqual(noCapacity());
  });

  test('over it, each object counts', () => {
    const got = capacityOf(listing(4), [sliced(3), sliced(2), sliced(4)], limits);
    expect(got).toEqual({ truncated: 0, over: { endpoints: 1, endpointslices: 2 } });
  });

  test.each([
    ['truncated', 1],
    ['warning', 0],
  ])('Endpoints that say %s', (value, want) => {
    expect(capacityOf(listing(3, value), [], limits).truncated).toBe(want);
  });
});

test('what was added can be taken away', () => {
  const sum = noCapacity();
  const one = capacityOf(listing(4, 'truncated'), [sliced(3)], limits);
  addCapacity(sum, one, 1);
  addCapacity(sum, one, 1);
  addCapacity(sum, one, -1);
  expect(sum).toEqual({ truncated: 1, over: { endpoints: 1, endpointslices: 1 } });
});
