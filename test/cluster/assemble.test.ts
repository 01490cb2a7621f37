// A later version of a pod is what arrived, and shares with the one before all that is equal.

import { expect, test } from 'vitest';

import type { PodStatus } from '../../src/cluster/assemble.ts';
import { endpointSliceOf, podOf, subsetOf } from '../../src/cluster/assemble.ts';
import type { Pod } from '../../src/model/objects.ts';
import { portMapKey } from '../../src/model/objects.ts';
import { address, port } from '../build.ts';

const spec = { node: 'node-a', hostNetwork: false, hostname: '', subdomain: '', ports: [] };

function metaOf(uid = 'u1', labels: Record<string, string> = { app: 'web' }) {
  const name = 'web-1';
  const rest = { resourceVersion: '1', created: 10, deleting: false };
  return { key: `shop/${name}`, namespace: 'shop', name, uid, labels, ...rest };
}

function statusOf(...podIPs: string[]): PodStatus {
  return { phase: 'Running', ready: { status: 'True', since: 11 }, podIP: '10.0.0.9', podIPs };
}

const first = podOf(metaOf(), 20, spec, statusOf('10.0.0.1'), undefined);
const next = (meta = metaOf(), status = statusOf('10.0.0.1')): Pod =>
  podOf(meta, 30, spec, status, () => first);

test('the list of addresses has precedence over the one address', () => {
  expect(first.ips).toEqual(['10.0.0.1']);
  expect(next(metaOf(), statusOf()).ips).toEqual(['10.0.0.9']);
});

test('addresses count from when they were first seen, or from the creation of the pod', () => {
  expect(first.ipsSince).toBe(10);
  expect(next().ipsSince).toBe(10);
  expect(next(metaOf(), statusOf('10.0.0.2')).ipsSince).toBe(30);
  expect(next(metaOf('another'), statusOf('10.0.0.2')).ipsSince).toBe(10);
});

test('equal parts are shared', () => {
  const again = next();
  expect(again).toEqual(first);
  expect(again.ref).toBe(first.ref);
  expect(again.ips).toBe(first.ips);
  expect(again.labels).toBe(first.labels);
});

test('different parts are not', () => {
  expect(next(metaOf('u1', { app: 'api' })).labels).toEqual({ app: 'api' });
  const another = next(metaOf('another'));
  expect(another.uid).toBe('another');
  expect(another.ref).toEqual({ kind: 'Pod', namespace: 'shop', name: 'web-1', uid: 'another' });
});

test.each([
  ['Running', false],
  ['Pending', false],
  ['Succeeded', true],
  ['Failed', true],
])('a pod in phase %s is terminal: %s', (phase, want) => {
  expect(next(metaOf(), { ...statusOf(), phase }).terminal).toBe(want);
});

test('a subset has its ready addresses first, and says how many', () => {
  const [ready, other] = [address(), address({ ip: '10.0.0.2', ready: false })];
  expect(subsetOf([port()], [ready], [other])).toEqual({
    ports: [port()],
    addresses: [ready, other],
    readyCount: 1,
  });
});

test('a slice knows the key of its ports', () => {
  const ports = [port(), port({ name: 'dns', port: 53 })];
  const meta = { ...metaOf(), generation: 1, annotations: {}, owners: [] };
  const slice = endpointSliceOf(meta, 20, 'IPv4', ports, [], null);
  expect(slice).toMatchObject({ key: 'shop/web-1', at: 20, portMap: portMapKey(ports) });
});
