import { describe, expect, test } from 'vitest';

import { addHull, addTally, count, isDestination } from '../../../src/rules/walk/outcome-shares.ts';
import type { Tally } from '../../../src/rules/walk/walk-state.ts';
import { holds } from '../../../src/rules/walk/walk-state.ts';
import { stateOf } from '../rulesets.ts';

function tallyOf(shares: Readonly<Record<string, number>>, masqueraded = false): Tally {
  const tally: Tally = new Map();
  for (const [outcome, weight] of Object.entries(shares)) {
    count(stateOf({ tally, weight, masqueraded }), outcome);
  }
  return tally;
}

const bounds = (tally: Tally): unknown =>
  Object.fromEntries([...tally].map(([name, { low, high }]) => [name, [low, high]]));

describe('tallies', () => {
  test('add the shares and flags of equal outcomes', () => {
    const tally = tallyOf({ 'a:1': 0.5 });
    count(stateOf({ tally, weight: 0.25, masqueraded: true }), 'a:1');
    addTally(tally, tallyOf({ drop: 1 }), 0.25);
    expect(bounds(tally)).toEqual({ 'a:1': [0.75, 0.75], drop: [0.25, 0.25] });
    expect(tally.get('a:1')?.masquerade).toBe(3);
  });

  test('the hull of the same is the same, and nothing is open', () => {
    const tally: Tally = new Map();
    const parts = [
      tallyOf({ 'a:1': 1 / 3, 'b:1': 2 / 3 }),
      tallyOf({ 'b:1': 2 / 3, 'a:1': 1 / 3 }),
    ];
    expect(addHull(stateOf({ tally }), parts)).toBe(false);
    expect(bounds(tally)).toEqual({ 'a:1': [1 / 3, 1 / 3], 'b:1': [2 / 3, 2 / 3] });
  });

  test('the hull of others has the least and the most of each', () => {
    const tally: Tally = new Map();
    const parts = [tallyOf({ drop: 1 }), tallyOf({ 'a:1': 0.5, drop: 0.5 })];
    expect(addHull(stateOf({ tally, weight: 0.5 }), parts)).toBe(true);
    expect(bounds(tally)).toEqual({ drop: [0.25, 0.5], 'a:1': [0, 0.25] });
  });

  test('a different masquerade is a difference', () => {
    const parts = [tallyOf({ 'a:1': 1 }), tallyOf({ 'a:1': 1 }, true)];
    expect(addHull(stateOf(), parts)).toBe(true);
  });

  test('affinity holds where the same name is remembered', () => {
    const tally: Tally = new Map();
    const affinity = { name: 'x', seconds: 60 };
    const other = { head: 'y', tail: null };
    count(stateOf({ tally, weight: 0, affinity, remembered: other }), 'a:1');
    expect(tally.get('a:1')?.affinity).toBeNull();
    const remembered = { head: 'y', tail: { head: 'x', tail: null } };
    count(stateOf({ tally, weight: 0, affinity, remembered }), 'a:1');
    expect(tally.get('a:1')?.affinity).toEqual(affinity);
    expect([holds(remembered, 'x'), holds(remembered, 'z')]).toEqual([true, false]);
  });

  test('count addresses as destinations, and verdicts as none', () => {
    expect(['10.0.0.1:80', '[::1]:80', 'node:80'].every(isDestination)).toBe(true);
    expect(['drop', 'reject', 'pass', 'unknown'].some(isDestination)).toBe(false);
  });
});
