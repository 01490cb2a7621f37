// The conditions of a pod and a Service: of random pairs, with their conclusions and changes, and
// single ones by example.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Condition, PodAndService } from '../../../src/audit/explain/conditions.ts';
import { evaluateConditions, expectedStates } from '../../../src/audit/explain/conditions.ts';
import type { Release } from '../../../src/shadow/release.ts';
import { newestRelease, releaseOf, releases } from '../../../src/shadow/release.ts';
import { containerPort, node, pod, service, servicePort } from '../../build.ts';
import { checkConditions } from '../../vectors/world.ts';

// Random pairs of rare facts: releases, odd families, sidecars, Services without ports.

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
  }).map((fields) => service(fields)),
  pod: record({
    namespace: constantFrom('shop', 'bank'),
    labels,
    node: constantFrom('node-a', ''),
    terminal: boolean(),
    deleting: boolean(),
    ready: boolean(),
    ips,
    ports,
  }).map((fields) => pod(fields)),
  node: constantFrom(node(), null, undefined),
});

describe('random pairs', () => {
  test('have the conclusions of the shadows', () => {
    fc.assert(
      fc.property(pairs, constantFrom(...releases), (pair, release) => {
        checkConditions(pair, release, {});
      }),
      { numRuns: 3000 },
    );
  });

  test('have a text for every condition, and a change if it fails', () => {
    const seen = new Set<string>();
    fc.assert(
      fc.property(pairs, (pair) => {
        for (const condition of evaluateConditions(pair, newestRelease).conditions) {
          const { text, change, mark } = condition.reason;
          expect(text).not.toBe('');
          expect(change === null).toBe(mark !== 'no');
          if (mark === 'no') seen.add(condition.name);
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

test('the node condition is unknown if the input has no Nodes', () => {
  const { conditions } = evaluateConditions(
    { service: service(), pod: pod(), node: undefined },
    newestRelease,
  );
  expect(conditions.find(({ name }) => name === 'node')?.reason.mark).toBe('unknown');
});

const statesOf = (pair: Partial<PodAndService>): string =>
  [...expectedStates({ service: service(), pod: pod(), node: node(), ...pair }, newestRelease)]
    .map(([place, state]) => `${place} ${state}`)
    .join(', ');

const dual = service({ ipFamilies: ['IPv4', 'IPv6'] });
const named = service({ ports: [servicePort({ targetPort: 'http' })] });
const two = service({
  ports: [servicePort({ targetPort: 'http' }), servicePort({ name: 'x', targetPort: 'x' })],
});
const httpPorts = [containerPort('http', 8080)];

test.each([
  ['a ready pod', {}, 'endpoints ready, IPv4 ready'],
  ['another label', { pod: pod({ labels: {} }) }, 'endpoints absent, IPv4 absent'],
  ['another namespace', { pod: pod({ namespace: 'bank' }) }, 'endpoints absent, IPv4 absent'],
  ['not ready', { pod: pod({ ready: false }) }, 'endpoints not-ready, IPv4 not-ready'],
  ['being deleted', { pod: pod({ deleting: true }) }, 'endpoints absent, IPv4 not-ready'],
  ['no Node', { node: null }, 'endpoints ready, IPv4 absent'],
  ['Nodes not known', { node: undefined }, 'endpoints ready, IPv4 ready'],
  ['one family of two', { service: dual }, 'endpoints ready, IPv4 ready, IPv6 absent'],
  ['no port of the name', { service: named }, 'endpoints absent, IPv4 no-ports'],
  [
    'no port of the name, headless',
    { service: { ...named, clusterIP: 'None' } },
    'endpoints absent, IPv4 fewer-ports',
  ],
  [
    'no port of the name, headless and not ready',
    { service: { ...named, clusterIP: 'None' }, pod: pod({ ready: false }) },
    'endpoints absent, IPv4 not-ready',
  ],
  [
    'one port of two',
    { service: two, pod: pod({ ports: httpPorts }) },
    'endpoints fewer-ports, IPv4 fewer-ports',
  ],
  ['an alias', { service: service({ type: 'ExternalName' }) }, 'endpoints absent, IPv4 absent'],
])('%s', (_, pair, want) => {
  expect(statesOf(pair)).toBe(want);
});

const metrics = service({
  ports: [servicePort({ name: 'metrics', port: 9100, targetPort: 'metrics' })],
});

function portConditions(
  webService: typeof metrics,
  fields: Parameters<typeof pod>[0],
  release = newestRelease,
): Condition[] {
  const pair = { service: webService, pod: pod(fields), node: node() };
  return evaluateConditions(pair, release).conditions.filter(({ name }) => name === 'port');
}

const only = (conditions: readonly Condition[]): Condition => {
  const [condition] = conditions;
  if (condition === undefined || conditions.length > 1) throw new Error('Not one condition');
  return condition;
};

test('a port that no container names fails, and the only named port is proposed', () => {
  const condition = only(portConditions(metrics, { ports: [containerPort('http', 8080)] }));
  expect(condition.reason.mark).toBe('no');
  expect(condition.reason.text).toBe(
    'port metrics 9100/TCP: no container has a port named metrics; named ports: http',
  );
  expect(condition.reason.change).toContain('set targetPort of port metrics 9100/TCP to http');
  expect([...condition.effects]).toEqual([
    ['endpoints', 'absent'],
    ['IPv4', 'no-ports'],
  ]);
});

test('a port that no container names takes no traffic from a headless Service', () => {
  const headless = { ...metrics, clusterIP: 'None' };
  expect([...only(portConditions(headless, {})).effects]).toEqual([
    ['endpoints', 'absent'],
    ['IPv4', 'fewer-ports'],
  ]);
});

test('of several ports only one with a similar name is proposed', () => {
  const others = [containerPort('http', 8080), containerPort('admin', 8081)];
  expect(only(portConditions(metrics, { ports: others })).reason.change).not.toContain(
    'set targetPort',
  );
  const near = [...others, containerPort('metric', 9100)];
  expect(only(portConditions(metrics, { ports: near })).reason.change).toContain('to metric');
});

test('a port with the name, but another protocol, fails', () => {
  const ports = [{ ...containerPort('metrics', 9100), protocol: 'UDP' }];
  const { text } = only(portConditions(metrics, { ports })).reason;
  expect(text).toContain('container port metrics is UDP, not TCP');
});

test('a pod without named ports is described', () => {
  expect(only(portConditions(metrics, {})).reason.text).toContain('no container port has a name');
});

test('a numeric target port passes unchecked', () => {
  const condition = only(portConditions(service(), {}));
  expect(condition.reason.mark).toBe('yes');
  expect(condition.reason.text).toContain('8080 of the pod (a number, which no controller checks)');
});

test('two Service ports with one target share a condition', () => {
  const ports = ['a', 'b'].map((name) => servicePort({ name, targetPort: 'metrics' }));
  only(portConditions(service({ ports }), {}));
});

describe('a restartable init container', () => {
  const ports = [containerPort('metrics', 9100, true)];
  const at = (release: Release) => [
    ...only(portConditions(metrics, { ports }, release)).effects.keys(),
  ];

  test.each([
    ['1.31', ['endpoints', 'IPv4']],
    ['1.32', ['IPv4']],
    ['1.33', []],
  ])('in %s', (version, want) => {
    expect(at(releaseOf(version) ?? newestRelease)).toEqual(want);
  });
});

test('a Service without ports passes only if it is headless', () => {
  expect(only(portConditions(service({ ports: [], clusterIP: 'None' }), {})).reason.mark).toBe(
    'yes',
  );
  const condition = only(portConditions(service({ ports: [] }), {}));
  expect(condition.effects.get('endpoints')).toBe('absent');
});
