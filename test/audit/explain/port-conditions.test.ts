// The steps about ports: what they say of names, protocols and restartable init containers.

import { describe, expect, test } from 'vitest';

import { portConditions } from '../../../src/audit/explain/port-conditions.ts';
import type { Release } from '../../../src/shadow/release.ts';
import { newestRelease, releaseOf } from '../../../src/shadow/release.ts';
import { containerPort, node, pod, service, servicePort } from '../../build.ts';

const metrics = service({
  ports: [servicePort({ name: 'metrics', port: 9100, targetPort: 'metrics' })],
});

function stepsOf(of: typeof metrics, ports: Parameters<typeof pod>[0], release = newestRelease) {
  const pair = { service: of, pod: pod(ports), node: node() };
  return portConditions(pair, release);
}

const only = (steps: ReturnType<typeof portConditions>) => {
  expect(steps).toHaveLength(1);
  const [step] = steps;
  if (step === undefined) throw new Error('No step');
  return step;
};

test('a port that no container names, with the one that is named', () => {
  const step = only(stepsOf(metrics, { ports: [containerPort('http', 8080)] }));
  expect(step.passes).toBe(false);
  expect(step.text).toBe(
    'port metrics 9100/TCP: no container names a port metrics; ports named: http',
  );
  expect(step.change).toContain('set targetPort of port metrics 9100/TCP to http');
  expect([...step.effects]).toEqual([
    ['endpoints', 'absent'],
    ['IPv4', 'no-ports'],
  ]);
});

test('of several ports only one that is spelt nearly the same is proposed', () => {
  const others = [containerPort('http', 8080), containerPort('admin', 8081)];
  expect(only(stepsOf(metrics, { ports: others })).change).not.toContain('set targetPort');
  const near = [...others, containerPort('metric', 9100)];
  expect(only(stepsOf(metrics, { ports: near })).change).toContain('to metric');
});

test('the name for another protocol', () => {
  const ports = [{ ...containerPort('metrics', 9100), protocol: 'UDP' }];
  const { text } = only(stepsOf(metrics, { ports }));
  expect(text).toContain('names a port metrics for UDP, not for TCP');
});

test('no ports named', () => {
  expect(only(stepsOf(metrics, {})).text).toContain('no ports are named at all');
});

test('a number is taken unchecked', () => {
  const step = only(stepsOf(service(), {}));
  expect(step.passes).toBe(true);
  expect(step.text).toContain('8080 of the pod, a number that is taken unchecked');
});

test('two Service ports that want one container port are one step', () => {
  const ports = ['a', 'b'].map((name) => servicePort({ name, targetPort: 'metrics' }));
  only(stepsOf(service({ ports }), {}));
});

describe('a restartable init container', () => {
  const ports = [containerPort('metrics', 9100, true)];
  const at = (release: Release) => [...only(stepsOf(metrics, { ports }, release)).effects.keys()];

  test.each([
    ['1.31', ['endpoints', 'IPv4']],
    ['1.32', ['IPv4']],
    ['1.33', []],
  ])('in %s', (version, want) => {
    expect(at(releaseOf(version) ?? newestRelease)).toEqual(want);
  });
});

test('a Service without ports: headless needs none, another has no endpoints', () => {
  expect(only(stepsOf(service({ ports: [], clusterIP: 'None' }), {})).passes).toBe(true);
  const step = only(stepsOf(service({ ports: [] }), {}));
  expect(step.effects.get('endpoints')).toBe('absent');
});
