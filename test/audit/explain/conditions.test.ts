// The conditions of random pods and Services: they conclude what the shadows expect, those that
// fail are all that keeps the pod out, and each change does what its text says.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { PodAndService } from '../../../src/audit/explain/condition.ts';
import { evaluateConditions } from '../../../src/audit/explain/conditions.ts';
import { newestRelease, releases } from '../../../src/shadow/release.ts';
import { containerPort, node, pod, service, servicePort } from '../../build.ts';
import { checkConditions } from '../../vectors/pairs.ts';

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
        checkConditions(pair, release, {});
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
