// The conditions of every pod and Service of the vectors.

import { describe, expect, test } from 'vitest';

import { caseFiles, checkConditions, pairsOf, worldsOf } from '../../vectors/world.ts';

describe('every pod and Service of the vectors', () => {
  const counts: Record<string, number> = {};

  test.each(caseFiles)('%s', async (name) => {
    const known = counts.pairs ?? 0;
    for await (const world of worldsOf(name)) {
      for (const pair of pairsOf(world)) checkConditions(pair, world.context.release, counts);
    }
    expect(counts.pairs).toBeGreaterThan(known);
  });

  test('are many, and every condition decides some of them', () => {
    expect(counts.pairs).toBeGreaterThanOrEqual(20_000);
    // Conditions that were fixed and evaluated again, and those that failed alone.
    expect(counts.counterfactuals).toBeGreaterThanOrEqual(20_000);
    expect(counts.alone).toBeGreaterThanOrEqual(5000);
    const names = ['type', 'selector', 'labels', 'phase', 'address', 'family', 'node', 'deletion'];
    for (const one of [...names, 'port', 'readiness']) {
      expect(counts[one], one).toBeGreaterThan(0);
    }
  });
});
