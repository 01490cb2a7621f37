import { Command } from 'commander';
import { expect, test } from 'vitest';

import type { Connected, Judged, Reported } from '../../src/commands/options.ts';
import {
  scopeOf,
  withConnected,
  withJudged,
  withReported,
  withShard,
} from '../../src/commands/options.ts';

const parsed = (...args: string[]): Connected & Judged & Reported =>
  withShard(withConnected(withJudged(withReported(new Command().exitOverride()))))
    .parse(args, { from: 'user' })
    .opts();

test('what is not said has a usual value, and the scope is everything', () => {
  const options = parsed();
  expect(options).toMatchObject({
    settle: 30,
    maxEndpointsPerSlice: 100,
    output: 'table',
    endpoints: true,
  });
  expect(scopeOf(options)).toEqual({ namespaces: null, excluded: [], shard: null });
});

test('a scope is what is said of namespaces and shards', () => {
  const args = ['--namespaces', 'a,b', '--exclude-namespaces', 'c', '--shard', '1/3'];
  const options = parsed(...args, '--no-endpoints');
  expect(options.endpoints).toBe(false);
  expect(scopeOf(options)).toEqual({
    namespaces: ['a', 'b'],
    excluded: ['c'],
    shard: { index: 1, count: 3 },
  });
});
