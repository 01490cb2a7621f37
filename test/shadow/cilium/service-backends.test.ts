import { describe, expect, test } from 'vitest';

import type { Endpoint, EndpointSlice, Service } from '../../../src/model/objects.ts';
import {
  backendSets,
  isLocal,
  selectBackends,
} from '../../../src/shadow/cilium/service-backends.ts';
import type { CiliumFrontend } from '../../../src/shadow/cilium/service-frontends.ts';
import { endpoint, type Of, port, service, slice } from '../../build.ts';

const frontend: CiliumFrontend = {
  ...{ kind: 'cluster IP', address: '10.96.0.1', family: 'IPv4', port: 80, protocol: 'tcp' },
  ...{ scopes: [0], portName: 'http' },
};

const place = { name: 'node-a', zone: 'zone-a', topology: false };

const at = (ip: string, more: Partial<Endpoint> = {}): Endpoint =>
  endpoint({ addresses: [ip], ready: true, node: 'node-a', ...more });

interface Asked {
  readonly service?: Of<Service>;
  readonly frontend?: Partial<CiliumFrontend>;
  readonly place?: Partial<typeof place>;
  readonly scope?: number;
}

/** Addresses that a frontend uses, of the only possible set. */
function used(endpoints: Endpoint[], asked: Asked = {}, more: Of<EndpointSlice> = {}): string[] {
  const [set = []] = backendSets([slice({ endpoints, ...more })]) ?? [];
  return selectBackends(
    set,
    service(asked.service),
    { ...frontend, ...asked.frontend },
    asked.scope ?? 0,
    { ...place, ...asked.place },
  ).map(({ ip }) => ip);
}

describe('conditions', () => {
  const ready = at('10.0.0.1');
  const terminating = at('10.0.0.2', { ready: false, serving: true, terminating: true });
  const silent = at('10.0.0.3', { ready: false, serving: false, terminating: true });
  const starting = at('10.0.0.4', { ready: false, serving: false, terminating: false });

  test('ready endpoints are used, else terminating ones that serve', () => {
    expect(used([ready, terminating, silent, starting])).toEqual(['10.0.0.1']);
    expect(used([terminating, silent, starting])).toEqual(['10.0.0.2']);
    expect(used([silent, starting])).toEqual([]);
  });

  test('a missing condition is ready; a slice of weight 0 is not used', () => {
    expect(used([at('10.0.0.1', { ready: null, serving: null })])).toEqual(['10.0.0.1']);
    const annotations = { 'service.cilium.io/weight': '0' };
    expect(used([ready, terminating], {}, { annotations })).toEqual([]);
  });
});

test('the endpoint of an Ingress is no backend, with its port only', () => {
  const dummy = [at('192.192.192.192'), at('10.0.0.1')];
  expect(used(dummy, {}, { ports: [port({ name: 'http', port: 9999 })] })).toEqual(['10.0.0.1']);
  expect(used(dummy)).toEqual(['192.192.192.192', '10.0.0.1']);
});

test('all addresses of an endpoint are used', () => {
  const several = at('', { addresses: ['10.0.0.1', '10.0.0.2'] });
  expect(used([several])).toEqual(['10.0.0.1', '10.0.0.2']);
});

test('a Local policy uses endpoints of the node and those without a node', () => {
  const endpoints = [
    at('10.0.0.1'),
    at('10.0.0.2', { node: 'node-b' }),
    at('10.0.0.3', { node: null }),
  ];
  const internal = { service: { internalTrafficPolicy: 'Local' } } as const;
  expect(used(endpoints, internal)).toEqual(['10.0.0.1', '10.0.0.3']);
  const external = { service: { externalTrafficPolicy: 'Local' } } as const;
  expect(used(endpoints, external)).toHaveLength(3);
  const nodePort = { ...external, frontend: { kind: 'node port' } } as const;
  expect(used(endpoints, nodePort)).toHaveLength(2);
  expect(used(endpoints, { ...nodePort, scope: 1 })).toHaveLength(3);
});

describe('port names', () => {
  const ports = (name: string | null) => [port({ name })];

  test.each([
    ['http', 'http', 1],
    ['http', 'other', 0],
    ['http', '', 1],
    ['', 'http', 1],
  ])('a Service port %j and a slice port %j', (portName, name, count) => {
    const found = used([at('10.0.0.1')], { frontend: { portName } }, { ports: ports(name) });
    expect(found).toHaveLength(count);
  });
});

describe('topology', () => {
  const here = at('10.0.0.1', { zone: 'zone-a', forZones: ['zone-a'] });
  const there = at('10.0.0.2', { zone: 'zone-b', forZones: ['zone-b'], node: 'node-b' });
  const zones = { service: { trafficDistribution: 'PreferSameZone' }, place: { topology: true } };

  test('hints count with the flag and a distribution only', () => {
    expect(used([here, there], zones)).toEqual(['10.0.0.1']);
    expect(used([here, there], { ...zones, place: {} })).toHaveLength(2);
    expect(used([here, there], { ...zones, service: {} })).toHaveLength(2);
    expect(used([here, there], { service: { topologyAuto: true }, place: zones.place })).toEqual([
      '10.0.0.1',
    ]);
  });

  test('without a hint or a zone at each endpoint, or a fitting one, all are used', () => {
    expect(used([here, { ...there, forZones: null }], zones)).toHaveLength(2);
    expect(used([here, { ...there, zone: null }], zones)).toHaveLength(2);
    expect(used([there], zones)).toEqual(['10.0.0.2']);
  });

  test('PreferSameNode goes by the node of the endpoint', () => {
    const asked = { ...zones, service: { trafficDistribution: 'PreferSameNode' } };
    expect(used([here, there], asked)).toEqual(['10.0.0.1']);
    expect(used([{ ...here, ready: false, serving: false }, there], asked)).toEqual(['10.0.0.2']);
  });
});

test('contradicting slices leave several sets, and too many leave none', () => {
  const ready = slice({ name: 'a', endpoints: [at('10.0.0.1')] });
  const not = slice({ name: 'b', endpoints: [at('10.0.0.1', { ready: false, serving: false })] });
  expect(backendSets([ready, ready])).toHaveLength(1);
  expect(backendSets([ready, not])?.map(([it]) => it?.state)).toEqual(['active', 'other']);
  const ips = Array.from({ length: 7 }, (_, index) => `10.0.0.${index}`);
  const many = (isReady: boolean) =>
    slice({ endpoints: ips.map((ip) => at(ip, { ready: isReady })) });
  expect(backendSets([many(true), many(false)])).toBeNull();
});

test('an endpoint without a node is local everywhere', () => {
  const [[backend] = []] =
    backendSets([slice({ endpoints: [at('10.0.0.1', { node: null })] })]) ?? [];
  expect(backend !== undefined && isLocal(backend, { name: 'node-z' })).toBe(true);
});
