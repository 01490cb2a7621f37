// One pod and one Service, against the audit: over every pair of the vectors, and again after
// slices and Endpoints were taken away, the verdict of the explanation is what the ledger holds.

import { describe, expect, test } from 'vitest';

import { expectedEntries } from '../../../src/audit/explain/condition.ts';
import type { PairExplanation } from '../../../src/audit/explain/pod-in-service.ts';
import { explainPair } from '../../../src/audit/explain/pod-in-service.ts';
import { truncationOf } from '../../../src/audit/service/endpoints.ts';
import type { AnyObject } from '../../../src/model/objects.ts';
import { selects } from '../../../src/model/selector.ts';
import { isSelected } from '../../../src/shadow/endpoints.ts';
import { endpoint, endpoints, node, pod, service, slice } from '../../build.ts';
import { caseFiles, pairsOf, worldsOf } from '../../vectors/pairs.ts';
import type { World } from '../../vectors/world.ts';
import { judged } from '../judge.ts';

/** Takes away what one controller wrote, as nobody but a fault does; the ledger follows. */
function takeAway(world: World, number: number): void {
  const { store, ledger } = world;
  const [one] = [...store.snapshot.slices.values()].slice(number % 3);
  const [other] = [...store.snapshot.endpoints.values()].slice(number % 2);
  const at = world.steps * 10;
  for (const object of number % 2 === 0 ? [one] : [one, other]) {
    if (object === undefined) continue;
    const resource = 'subsets' in object ? 'endpoints' : 'endpointslices';
    const change = store.apply({ resource, type: 'deleted', object, at });
    if (change !== null) ledger.apply(change);
  }
}

function check(world: World, counts: Record<string, number>): void {
  const { context, ledger } = world;
  for (const pair of pairsOf(world)) {
    const of = ledger.audited.get(pair.service.key);
    const got = of === undefined ? null : explainPair(context, of, pair.pod);
    if (of === undefined || got === null) throw new Error('A Service that is not audited');
    const { service, pod: one } = pair;
    const name = `${service.key} ${one.key}`;
    counts.pairs = (counts.pairs ?? 0) + 1;
    counts[got.verdict] = (counts[got.verdict] ?? 0) + 1;
    const selected = isSelected(service) && selects(service.selector, one.labels);
    expect(of.record.members.includes(one), name).toBe(selected);
    const outcomes = expectedEntries(pair, context.release);
    expect(
      got.places.map(({ expected }) => expected),
      name,
    ).toEqual(outcomes.map(({ state: standing }) => standing));
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

  test('are many, and of every verdict but unknown', () => {
    expect(counts.pairs).toBeGreaterThanOrEqual(20_000);
    for (const verdict of ['conform', 'different', 'pending']) {
      expect(counts[verdict], verdict).toBeGreaterThan(0);
    }
  });
});

function pairOf(objects: readonly AnyObject[]): PairExplanation {
  const { context, ledger } = judged(objects);
  ledger.settle.advance(1000);
  const of = ledger.audited.get('shop/web');
  const one = context.snapshot.pods.get('shop/web-1');
  const got = of === undefined || one === undefined ? null : explainPair(context, of, one);
  if (got === null) throw new Error('Nothing to explain');
  return got;
}

const bare = slice({ endpoints: [], ports: [] });
const empty = [endpoints({ subsets: [] }), bare];

test.each([
  [
    'in it',
    [pod(), endpoints(), slice()],
    'Pod shop/web-1 is in Service shop/web and gets its traffic',
  ],
  [
    'another label',
    [pod({ labels: { app: 'wep' } }), ...empty],
    'Pod shop/web-1 is not in Service shop/web: label app is "wep", the selector wants "web"',
  ],
  [
    'two reasons',
    [pod({ labels: {}, ready: false }), ...empty],
    'Pod shop/web-1 is not in Service shop/web: there is no label app, the selector wants ' +
      'app="web", and for one more reason',
  ],
  [
    'missing in the slices',
    [pod(), endpoints(), bare],
    'Pod shop/web-1 should be ready in Service shop/web. But: IPv4 EndpointSlices leave it out',
  ],
  [
    'shown ready though it is not',
    [pod({ ready: false }), endpoints(), slice()],
    'Pod shop/web-1 should be listed as not ready in Service shop/web: condition Ready is not ' +
      'True, so no traffic is to come. But: Endpoints have it ready and IPv4 EndpointSlices have ' +
      'it ready',
  ],
  [
    'only its node is wrong',
    [pod(), endpoints(), slice({ endpoints: [endpoint({ node: 'node-z' })] })],
    'Pod shop/web-1 should be ready in Service shop/web. But: An endpoint names another pod, ' +
      'node, zone or hostname: 10.0.0.1 of pod web-1: nodeName node-z',
  ],
])('%s', (_, objects, want) => {
  const got = pairOf([service(), node(), ...objects]);
  expect(got.answer).toBe(want);
});
