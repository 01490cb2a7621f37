import { describe, expect, test } from 'vitest';

import type { ConditionCounts } from '../../../src/audit/measure/conditions.ts';
import {
  addConditionCounts,
  countConditions,
  noConditionCounts,
} from '../../../src/audit/measure/conditions.ts';
import type { Endpoint } from '../../../src/model/objects.ts';
import { endpoint, slice } from '../../build.ts';

const counted = (...endpoints: Partial<Endpoint>[]): ConditionCounts =>
  countConditions([slice({ endpoints: endpoints.map((more) => endpoint(more)) })]);

describe('where an endpoint is counted', () => {
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
    expect(counted(conditions)).toEqual({ ...noConditionCounts(), [want]: 1 });
  });

  test('ready ones with hints are counted as such, others are not', () => {
    const got = counted(
      { forZones: ['a'] },
      { forNodes: ['node-a'] },
      {},
      { ready: false, forZones: ['a'] },
    );
    expect([got.ready, got.hinted, got['not-ready']]).toEqual([3, 2, 1]);
  });
});

test('what was added can be taken away', () => {
  const sum = noConditionCounts();
  const some = counted({}, { ready: false }, { forZones: ['a'] });
  addConditionCounts(sum, some, 1);
  addConditionCounts(sum, some, 1);
  expect([sum.ready, sum['not-ready'], sum.hinted]).toEqual([4, 2, 2]);
  addConditionCounts(sum, some, -1);
  expect(sum).toEqual(some);
});
