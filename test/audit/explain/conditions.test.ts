// The chain against the shadows: over every pod and Service of the vectors, and over random ones,
// it concludes what they expect, its steps are what keeps the pod out, all of it and nothing else,
// and each change does what it says.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type {
  ExpectedEntry,
  PodAndService,
  Condition,
} from '../../../src/audit/explain/condition.ts';
import { expectedEntries } from '../../../src/audit/explain/condition.ts';
import type { Conditions } from '../../../src/audit/explain/conditions.ts';
import {
  evaluateConditions,
  concludedState,
  decidingCondition,
} from '../../../src/audit/explain/conditions.ts';
import type { Release } from '../../../src/shadow/release.ts';
import { newestRelease, releases } from '../../../src/shadow/release.ts';
import { containerPort, node, pod, service, servicePort } from '../../build.ts';
import { caseFiles, pairsOf, worldsOf } from '../../vectors/pairs.ts';

const isWhole = (outcomes: readonly ExpectedEntry[]): boolean =>
  outcomes.every(({ state: standing }) => standing === 'ready');

const fails = ({ conditions: steps }: Conditions): Condition[] =>
  steps.filter(({ passes }) => passes === false);

const mended = (pair: PodAndService, steps: readonly Condition[]): PodAndService =>
  steps.reduce((now, step) => step.fix(now), pair);

const nameOf = ({ service, pod }: PodAndService): string => `${service.key} ${pod.key}`;

/** What a chain must be; throws where it is not. `counts` says how much was held against what. */
function check(pair: PodAndService, release: Release, counts: Record<string, number>): void {
  const chain = evaluateConditions(pair, release);
  const wrong = fails(chain);
  counts.pairs = (counts.pairs ?? 0) + 1;
  for (const { place, state: standing } of expectedEntries(pair, release)) {
    expect(concludedState(chain, place), `${nameOf(pair)} at ${place}`).toBe(standing);
    const deciding = decidingCondition(chain, place);
    expect(deciding === null, `${nameOf(pair)} at ${place}`).toBe(standing === 'ready');
    if (deciding === null) continue;
    counts[deciding.name] = (counts[deciding.name] ?? 0) + 1;
    counts.counterfactuals = (counts.counterfactuals ?? 0) + 1;
    if (wrong.length === 1) counts.alone = (counts.alone ?? 0) + 1;
    // Whatever else is in the way: put right, it is this step that keeps the pod from being ready,
    // and mending it moves on to another, or is enough.
    const others = mended(
      pair,
      wrong.filter((step) => step !== deciding),
    );
    const text = `${nameOf(pair)} at ${place}: ${deciding.name}`;
    const at = (outcomes: readonly ExpectedEntry[]) => outcomes.find((one) => one.place === place);
    expect(at(expectedEntries(others, release))?.state, text).not.toBe('ready');
    expect(at(expectedEntries(deciding.fix(others), release))?.state, text).toBe('ready');
    const after = decidingCondition(evaluateConditions(deciding.fix(pair), release), place);
    expect(after?.text, text).not.toBe(deciding.text);
  }
  expect(isWhole(expectedEntries(mended(pair, wrong), release)), nameOf(pair)).toBe(true);
}

describe('every pod and Service of the vectors', () => {
  const counts: Record<string, number> = {};

  test.each(caseFiles)('%s', async (name) => {
    const known = counts.pairs ?? 0;
    for await (const world of worldsOf(name)) {
      for (const pair of pairsOf(world)) check(pair, world.context.release, counts);
    }
    expect(counts.pairs).toBeGreaterThan(known);
  });

  test('are many, and every step decides some of them', () => {
    expect(counts.pairs).toBeGreaterThanOrEqual(20_000);
    // How often a step was mended and the shadow asked again, and how often it was the only one.
    expect(counts.counterfactuals).toBeGreaterThanOrEqual(20_000);
    expect(counts.alone).toBeGreaterThanOrEqual(5000);
    const names = ['type', 'selector', 'labels', 'phase', 'address', 'family', 'node', 'deletion'];
    for (const one of [...names, 'port', 'readiness']) {
      expect(counts[one], one).toBeGreaterThan(0);
    }
  });
});

// Random pairs of what seldom meets: releases, odd families, sidecars, Services without ports.

const { constantFrom, boolean, record } = fc;
const labels = constantFrom<Record<string, string>>(
  { app: 'web' },
  { app: 'wep' },
  { tier: 'x' },
  {},
);
const selectors = constantFrom({ app: 'web' }, { app: 'web', tier: 'x' }, null, {});
const ports = fc.subarray([
  containerPort('http', 8080),
  containerPort('http', 9090, true),
  { ...containerPort('dns', 53), protocol: 'UDP' },
]);
const servicePorts = fc.subarray([
  servicePort(),
  servicePort({ name: 'b', targetPort: 'http' }),
  servicePort({ name: 'c', targetPort: 'dns' }),
  servicePort({ name: 'd', targetPort: 'http', protocol: 'UDP' }),
]);
const ips = fc.subarray(['10.0.0.1', 'fd00::1', '::ffff:10.0.0.2', 'no address', '10.0.0.300']);
const families = constantFrom(['IPv4'], ['IPv6'], ['IPv4', 'IPv6'], ['IPv6', 'IPv4'], ['odd'], []);

const pairs: fc.Arbitrary<PodAndService> = record({
  service: record({
    selector: selectors,
    type: constantFrom('ClusterIP' as const, 'ExternalName' as const),
    clusterIP: constantFrom('10.96.0.1', 'fd00::a', 'None', ''),
    publishNotReadyAddresses: boolean(),
    ipFamilies: families,
    ports: servicePorts,
  }).map((of) => service(of)),
  pod: record({
    namespace: constantFrom('shop', 'bank'),
    labels,
    node: constantFrom('node-a', ''),
    terminal: boolean(),
    deleting: boolean(),
    ready: boolean(),
    ips,
    ports,
  }).map((of) => pod(of)),
  node: constantFrom(node(), null, undefined),
});

describe('random pairs', () => {
  test('are explained as the shadows have them', () => {
    fc.assert(
      fc.property(pairs, constantFrom(...releases), (pair, release) => {
        check(pair, release, {});
      }),
      { numRuns: 3000 },
    );
  });

  test('a text for every step', () => {
    const seen = new Set<string>();
    fc.assert(
      fc.property(pairs, (pair) => {
        for (const step of evaluateConditions(pair, newestRelease).conditions) {
          expect(step.text).not.toBe('');
          expect(step.change === null).toBe(step.passes !== false);
          if (step.passes === false) seen.add(step.name);
        }
      }),
      { numRuns: 1000 },
    );
    expect([...seen].sort()).toEqual([
      'address',
      'deletion',
      'family',
      'labels',
      'namespace',
      'node',
      'phase',
      'port',
      'readiness',
      'selector',
      'type',
    ]);
  });
});

test('Nodes that are not known leave the step open', () => {
  const { conditions: steps } = evaluateConditions(
    { service: service(), pod: pod(), node: undefined },
    newestRelease,
  );
  expect(steps.find(({ name }) => name === 'node')?.passes).toBe('unknown');
});
