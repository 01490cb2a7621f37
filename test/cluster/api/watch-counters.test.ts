import { expect, test } from 'vitest';

import { newCounters } from '../../../src/cluster/api/watch-counters.ts';

test('counters begin at zero, each reflector with its own', () => {
  const [one, other] = [newCounters(), newCounters()];
  expect(JSON.stringify(one)).not.toMatch(/[1-9]/);
  one.relists.gone++;
  one.events++;
  expect(JSON.stringify(other)).not.toMatch(/[1-9]/);
});
