// Compares the verdict on every pod and Service of the vectors with the differences of the audit,
// also after slices and Endpoints were deleted.

import { describe, expect, test } from 'vitest';

import { expectedStates } from '../../../src/audit/explain/conditions.ts';
import { explainPair } from '../../../src/audit/explain/pod-in-service.ts';
import { truncationOf } from '../../../src/audit/service/endpoints.ts';
import { selects } from '../../../src/model/selector.ts';
import { isSelected } from '../../../src/shadow/endpoints.ts';
import { caseFiles, pairsOf, worldsOf } from '../../vectors/world.ts';
import type { World } from '../../vectors/world.ts';

/** Deletes an object that a controller wrote; the auditor follows. */
function takeAway(world: World, number: number): void {
  const { store, serviceAuditor } = world;
  const [one] = [...store.listers.slices.values()].slice(number % 3);
  const [other] = [...store.listers.endpoints.values()].slice(number % 2);
  const at = world.steps * 10;
  for (const object of number % 2 === 0 ? [one] : [one, other]) {
    if (object === undefined) continue;
    const resource = 'subsets' in object ? 'endpoints' : 'endpointslices';
    const change = store.apply({ resource, type: 'deleted', object, at });
    if (change !== null) serviceAuditor.apply(change);
  }
}

function check(world: World, counts: Record<string, number>): void {
  const { context, serviceAuditor } = world;
  for (const pair of pairsOf(world)) {
    const of = serviceAuditor.audited.get(pair.service.key);
    const got = of === undefined ? null : explainPair(context, of, pair.pod);
    if (of === undefined || got === null) throw new Error('A Service that is not audited');
    const { service, pod: one } = pair;
    const name = `${service.key} ${one.key}`;
    counts.pairs = (counts.pairs ?? 0) + 1;
    counts[got.verdict] = (counts[got.verdict] ?? 0) + 1;
    const selected = isSelected(service) && selects(service.selector, one.labels);
    expect(of.record.members.has(one), name).toBe(selected);
    const outcomes = expectedStates(pair, context.release);
    expect(
      got.places.map(({ expected }) => expected),
      name,
    ).toEqual([...outcomes.values()]);
    if (!isSelected(service) || service.deleting) continue;
    for (const { place, expected, actual, verdict } of got.places) {
      if (place === 'endpoints' && truncationOf(of.record) !== null) continue;
      if (expected !== actual) {
        expect(verdict, `${name} at ${place}: ${expected}, ${actual}`).not.toBe('conform');
      }
    }
    const loud = [...of.items.values()]
      .flat()
      .filter(({ output, difference: { subject } }) => output !== 'input' && subject === one.name);
    if (loud.length > 0 && one.ips.length > 0) {
      if (!loud.every(({ difference }) => difference.code === 'slice-duplicate')) {
        expect(got.verdict, `${name}: ${loud[0]?.difference.code ?? ''}`).not.toBe('conform');
      }
    }
  }
}

describe('every pod and Service of the vectors', () => {
  const counts: Record<string, number> = {};

  test.each(caseFiles)('%s', async (name) => {
    const known = counts.pairs ?? 0;
    let number = 0;
    for await (const world of worldsOf(name)) {
      check(world, counts);
      number++;
      if (number % 5 !== 0) continue;
      takeAway(world, number);
      check(world, counts);
    }
    expect(counts.pairs).toBeGreaterThan(known);
  });

  test('are many, and have every verdict except unknown', () => {
    expect(counts.pairs).toBeGreaterThanOrEqual(20_000);
    for (const verdict of ['conform', 'different', 'pending']) {
      expect(counts[verdict], verdict).toBeGreaterThan(0);
    }
  });
});
