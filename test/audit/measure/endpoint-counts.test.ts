import { describe, expect, test } from 'vitest';

import type { ConditionCounts } from '../../../src/audit/measure/endpoint-counts.ts';
import {
  capacityOf,
  countConditions,
  countDuplicates,
} from '../../../src/audit/measure/endpoint-counts.ts';
import type { Endpoint, EndpointSlice } from '../../../src/model/objects.ts';
import { annotation } from '../../../src/model/objects.ts';
import { address, endpoint, endpoints, port, slice, subset, target, times } from '../../build.ts';

describe('conditions', () => {
  const counted = (...endpoints: Partial<Endpoint>[]): ConditionCounts =>
    countConditions([slice({ endpoints: endpoints.map((more) => endpoint(more)) })]);

  describe('the condition of an endpoint', () => {
    const cases: [Partial<Endpoint>, keyof ConditionCounts][] = [
      [{ ready: true, serving: true, terminating: false }, 'ready'],
      [{ ready: null, serving: null, terminating: null }, 'ready'],
      [{ ready: true, serving: true, terminating: true }, 'ready'],
      [{ ready: false, serving: false, terminating: false }, 'not-ready'],
      [{ ready: false, serving: null, terminating: null }, 'not-ready'],
      [{ ready: false, serving: true, terminating: true }, 'terminating-serving'],
      [{ ready: false, serving: null, terminating: true }, 'terminating-serving'],
      [{ ready: false, serving: false, terminating: true }, 'terminating'],
    ];
    test.each(cases)('%j is %s', (conditions, want) => {
      expect(counted(conditions)).toEqual({ ...countConditions([]), [want]: 1 });
    });

    test('only ready endpoints with hints count as hinted', () => {
      const got = counted(
        { forZones: ['a'] },
        { forNodes: ['node-a'] },
        {},
        { ready: false, forZones: ['a'] },
      );
      expect([got.ready, got.hinted, got['not-ready']]).toEqual([3, 2, 1]);
    });
  });
});

describe('capacity', () => {
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

  describe('objects over a limit', () => {
    const none = { truncated: 0, over: { endpoints: 0, endpointslices: 0 } };

    test('no object reaches no limit', () => {
      expect(capacityOf(null, [], limits)).toEqual(none);
    });

    test('an object at its limit is not over it', () => {
      expect(capacityOf(listing(3), [sliced(2)], limits)).toEqual(none);
    });

    test('each object over its limit counts', () => {
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
});

describe('duplicates', () => {
  const of = (...entries: Endpoint[]): EndpointSlice => slice({ endpoints: entries });
  const at = (address: string, more: Partial<Endpoint> = {}): Endpoint =>
    endpoint({ addresses: [address], ...more });

  describe('duplicate endpoints', () => {
    const cases: [string, EndpointSlice[], number, number][] = [
      ['nothing twice', [of(at('10.0.0.1'), at('10.0.0.2'))], 0, 0],
      ['in two slices', [of(at('10.0.0.1')), of(at('10.0.0.1'))], 1, 0],
      ['twice in one slice', [of(at('10.0.0.1'), at('10.0.0.1'))], 1, 0],
      [
        'three times is one endpoint',
        [of(at('10.0.0.1')), of(at('10.0.0.1'), at('10.0.0.1'))],
        1,
        0,
      ],
      [
        'the pod plays no role',
        [of(at('10.0.0.1')), of(at('10.0.0.1', { target: target('b') }))],
        1,
        0,
      ],
      [
        'under other ports it is another endpoint',
        [of(at('10.0.0.1')), slice({ ports: [port({ port: 9090 })], endpoints: [at('10.0.0.1')] })],
        0,
        0,
      ],
      [
        'ready here and not ready there',
        [of(at('10.0.0.1')), of(at('10.0.0.1', { ready: false, serving: false }))],
        0,
        1,
      ],
      [
        'terminating here only',
        [of(at('10.0.0.1')), of(at('10.0.0.1', { terminating: true }))],
        0,
        1,
      ],
      [
        'absent conditions are ready, serving and not terminating',
        [of(at('10.0.0.1', { ready: null, serving: null, terminating: null })), of(at('10.0.0.1'))],
        1,
        0,
      ],
      [
        'one conflict makes it conflicting, whatever comes after',
        [of(at('10.0.0.1')), of(at('10.0.0.1', { ready: false })), of(at('10.0.0.1'))],
        0,
        1,
      ],
      ['however the address is written', [of(at('fd00::1')), of(at('FD00:0:0::1'))], 1, 0],
      [
        'an entry that repeats itself is one',
        [of(endpoint({ addresses: ['10.0.0.1', '10.0.0.1'] }))],
        0,
        0,
      ],
      ['names of type FQDN', [of(at('db.example')), of(at('db.example'))], 1, 0],
    ];
    test.each(cases)('%s', (_, slices, equal, conflicting) => {
      expect(countDuplicates(slices)).toEqual({ equal, conflicting });
    });
  });
});
