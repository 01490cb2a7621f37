import { describe, expect, test } from 'vitest';

import type { PodStatus } from '../../../src/cluster/decode/build-objects.ts';
import {
  endpointSliceOf,
  endpointsOf,
  podOf,
  subsetOf,
} from '../../../src/cluster/decode/build-objects.ts';
import type { EndpointAddress, Pod, Port } from '../../../src/model/objects.ts';

/** What every object keeps of its metadata. */
const kept = {
  key: 'shop/web-1',
  namespace: 'shop',
  name: 'web-1',
  uid: 'u-1',
  resourceVersion: '7',
  labels: { app: 'web' },
  created: 100,
  deleting: false,
};
const meta = { ...kept, deletionAsked: null as number | null };

const spec = { node: 'node-a', hostNetwork: false, hostname: '', subdomain: '', ports: [] };
const running: PodStatus = {
  phase: 'Running',
  ready: { status: 'True', since: 120 },
  podIP: '10.0.0.1',
  podIPs: ['10.0.0.1', 'fd00::1'],
};

const pod = (status: Partial<PodStatus>, previous?: Pod, more: Partial<typeof meta> = {}): Pod =>
  podOf({ ...meta, ...more }, 200, spec, { ...running, ...status }, () => previous);

describe('podOf', () => {
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
    [{ status: 'True', since: 5 }, true, 5],
    [{ status: 'False', since: 6 }, false, 6],
    [{ status: 'Unknown', since: null }, false, null],
    [undefined, false, null],
  ])('condition %j', (condition, ready, turnedAt) => {
    expect(pod({ ready: condition })).toMatchObject({ ready, turnedAt });
  });

  test('once it is being deleted, it turned when that was asked for', () => {
    expect(pod({}, undefined, { deleting: true, deletionAsked: 170 }).turnedAt).toBe(170);
    expect(pod({}, undefined, { deleting: true }).turnedAt).toBeNull();
  });

  test('its ips are podIPs, else podIP', () => {
    expect(pod({}).ips).toEqual(['10.0.0.1', 'fd00::1']);
    expect(pod({ podIPs: [] }).ips).toEqual(['10.0.0.1']);
    expect(pod({ podIPs: [], podIP: '' }).ips).toEqual([]);
  });

  test('since when it has its ips', () => {
    const first = pod({});
    expect(first.ipsSince).toBe(100);
    expect(pod({}, undefined, { created: undefined as never }).ipsSince).toBe(200);
    const again = pod({}, { ...first, ipsSince: 150 });
    expect(again.ipsSince).toBe(150);
    expect(again.ips).toBe(first.ips);
    expect(pod({ podIPs: ['10.0.0.2'] }, first).ipsSince).toBe(200);
    expect(pod({ podIPs: ['10.0.0.1'] }, first).ipsSince).toBe(200);
    expect(pod({}, { ...first, uid: 'another', ipsSince: 150 }).ipsSince).toBe(100);
  });
});

const port: Port = { name: 'http', protocol: 'TCP', port: 80, appProtocol: null };
const other: Port = { name: 'dns', protocol: 'UDP', port: 53, appProtocol: null };

const address = (ip: string, ready: boolean): EndpointAddress => ({
  ip,
  ready,
  ports: [port],
  node: null,
  hostname: '',
  target: null,
});

describe('subsetOf', () => {
  test('has the ready ones first, and counts them', () => {
    const [a, b, c] = [address('1', true), address('2', true), address('3', false)];
    expect(subsetOf([port], [a, b], [c])).toEqual({
      ports: [port],
      addresses: [a, b, c],
      readyCount: 2,
    });
    expect(subsetOf([], [a], [])).toMatchObject({ addresses: [a], readyCount: 1 });
    expect(subsetOf([], [], [c])).toMatchObject({ addresses: [c], readyCount: 0 });
  });
});

describe('endpointsOf and endpointSliceOf', () => {
  test('have all that they are given', () => {
    const subsets = [subsetOf([port], [address('1', true)], [])];
    expect(endpointsOf(meta, 9, { a: 'b' }, subsets, 77)).toEqual({
      ...kept,
      at: 9,
      annotations: { a: 'b' },
      subsets,
      bytes: 77,
    });
    const sliceMeta = { ...kept, generation: 3, annotations: {}, owners: [] };
    expect(endpointSliceOf({ ...meta, ...sliceMeta }, 9, 'IPv6', [port], [], null)).toMatchObject({
      ...sliceMeta,
      at: 9,
      addressType: 'IPv6',
      ports: [port],
      endpoints: [],
      bytes: null,
    });
  });

  test('a slice has the same port map whatever the order of its ports', () => {
    const sliceMeta = { ...kept, generation: 3, annotations: {}, owners: [] };
    const mapOf = (ports: Port[]) =>
      endpointSliceOf({ ...meta, ...sliceMeta }, 9, 'IPv4', ports, [], 1).portMap;
    expect(mapOf([port, other])).toBe(mapOf([other, port]));
    expect(mapOf([port])).not.toBe(mapOf([other]));
  });
});

describe('a later version of a pod', () => {
  const first = pod({});

  test('shares all that is equal with the one before', () => {
    const again = pod({}, first, { labels: { app: 'web' } });
    expect(again).toEqual(first);
    expect(again.ref).toBe(first.ref);
    expect(again.ips).toBe(first.ips);
    expect(again.labels).toBe(first.labels);
  });

  test('shares nothing that is not', () => {
    expect(pod({}, first, { labels: { app: 'api' } }).labels).toEqual({ app: 'api' });
    const another = pod({}, first, { uid: 'another' });
    expect(another.uid).toBe('another');
    expect(another.ref).toEqual({ kind: 'Pod', namespace: 'shop', name: 'web-1', uid: 'another' });
  });
});
