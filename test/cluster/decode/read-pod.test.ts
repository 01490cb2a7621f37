import { describe, expect, test } from 'vitest';

import { readPod } from '../../../src/cluster/decode/read-pod.ts';
import type { Pod } from '../../../src/model/objects.ts';

const time = (seconds: number): string => new Date(seconds * 1000).toISOString();

const metadata = {
  namespace: 'shop',
  name: 'web-1',
  uid: 'u-1',
  resourceVersion: '7',
  labels: { app: 'web' },
  creationTimestamp: time(100),
};
const running = {
  phase: 'Running',
  conditions: [{ type: 'Ready', status: 'True', lastTransitionTime: time(120) }],
  podIP: '10.0.0.1',
  podIPs: [{ ip: '10.0.0.1' }, { ip: 'fd00::1' }],
};

const pod = (status: object, previous?: Pod, meta: object = {}): Pod =>
  readPod(
    { metadata: { ...metadata, ...meta }, status: { ...running, ...status } },
    200,
    () => previous,
  );

describe('readPod', () => {
  test.each([
    ['Pending', false],
    ['Running', false],
    ['Succeeded', true],
    ['Failed', true],
    ['Unknown', false],
    ['', false],
  ])('phase %j: terminal is %j', (phase, terminal) => {
    expect(pod({ phase }).terminal).toBe(terminal);
  });

  test.each([
    [[{ type: 'Ready', status: 'True', lastTransitionTime: time(5) }], true, 5],
    [[{ type: 'Ready', status: 'False', lastTransitionTime: time(6) }], false, 6],
    [[{ type: 'Ready', status: 'Unknown' }], false, null],
    [[], false, null],
  ])('conditions %j', (conditions, ready, turnedAt) => {
    expect(pod({ conditions })).toMatchObject({ ready, turnedAt });
  });

  test('a deleting pod turned when its deletion was requested', () => {
    const deletionTimestamp = time(200);
    const deleting = { deletionTimestamp, deletionGracePeriodSeconds: 30 };
    expect(pod({}, undefined, deleting).turnedAt).toBe(170);
    expect(pod({}, undefined, { deletionTimestamp }).turnedAt).toBeNull();
  });

  test('the ips are podIPs, or podIP without those', () => {
    expect(pod({}).ips).toEqual(['10.0.0.1', 'fd00::1']);
    expect(pod({ podIPs: [] }).ips).toEqual(['10.0.0.1']);
    expect(pod({ podIPs: [], podIP: '' }).ips).toEqual([]);
  });

  test('the time of its ips is that of the latest change', () => {
    const first = pod({});
    expect(first.ipsSince).toBe(100);
    expect(pod({}, undefined, { creationTimestamp: null }).ipsSince).toBe(200);
    const again = pod({}, { ...first, ipsSince: 150 });
    expect(again.ipsSince).toBe(150);
    expect(again.ips).toBe(first.ips);
    expect(pod({ podIPs: [{ ip: '10.0.0.2' }] }, first).ipsSince).toBe(200);
    expect(pod({ podIPs: [{ ip: '10.0.0.1' }] }, first).ipsSince).toBe(200);
    expect(pod({}, { ...first, uid: 'another', ipsSince: 150 }).ipsSince).toBe(100);
  });
});

describe('a later version of a pod', () => {
  const first = pod({});

  test('shares all that is equal', () => {
    const again = pod({}, first, { labels: { app: 'web' } });
    expect(again).toEqual(first);
    expect(again.ref).toBe(first.ref);
    expect(again.ips).toBe(first.ips);
    expect(again.labels).toBe(first.labels);
  });

  test.each([
    ['the same ports', {}, true],
    ['another name', { name: 'web' }, false],
    ['another number', { containerPort: 81 }, false],
    ['another protocol', { protocol: 'UDP' }, false],
  ])('with %s %j: sharing the list of ports is %j', (_name, change, isShared) => {
    const port = { name: 'http', containerPort: 80 };
    const read = (port: object, previous?: Pod): Pod =>
      readPod({ metadata, spec: { containers: [{ ports: [port] }] } }, 200, () => previous);
    // A copy, which is not the interned list.
    const before = { ...read(port), ports: [...read(port).ports] };
    expect(read({ ...port, ...change }, before).ports === before.ports).toBe(isShared);
    expect(read({ ...port, ...change }, before).ports).toEqual(read({ ...port, ...change }).ports);
  });

  test('shares nothing that differs', () => {
    expect(pod({}, first, { labels: { app: 'api' } }).labels).toEqual({ app: 'api' });
    const another = pod({}, first, { uid: 'another' });
    expect(another.uid).toBe('another');
    expect(another.ref).toEqual({ kind: 'Pod', namespace: 'shop', name: 'web-1', uid: 'another' });
  });
});
