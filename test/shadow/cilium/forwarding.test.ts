import { describe, expect, test } from 'vitest';

import type { CiliumConfig } from '../../../src/model/cilium-config.ts';
import { defaultCiliumConfig } from '../../../src/model/cilium-config.ts';
import type { EndpointSlice, Service } from '../../../src/model/objects.ts';
import type { ExpectedOutcome, Packet } from '../../../src/model/proxy-config.ts';
import { defaultProxyConfig } from '../../../src/model/proxy-config.ts';
import { ciliumForwarding } from '../../../src/shadow/cilium/forwarding.ts';
import { slicesByService } from '../../../src/shadow/forwarding.ts';
import { endpoint, node, type Of, service, servicePort, slice } from '../../build.ts';

const endpoints = [
  endpoint({ addresses: ['10.0.0.1'] }),
  endpoint({ addresses: ['10.0.1.2'], node: 'node-b' }),
];

function forwardingOf(
  services: readonly Of<Service>[],
  changes: Partial<CiliumConfig> = {},
  slices: readonly EndpointSlice[] = [slice({ endpoints })],
) {
  const cilium = { ...defaultCiliumConfig(), nodePortAddresses: ['172.18.0.2'], ...changes };
  const config = defaultProxyConfig('cilium', 0);
  const all = services.map((more) => service(more));
  return ciliumForwarding(all, slicesByService(slices), node(), config, cilium);
}

const packet = (more: Partial<Packet> = {}): Packet => ({
  ...{ from: 'pod', src: '10.0.0.9', dst: '10.96.0.1', protocol: 'tcp', dport: 80 },
  ...more,
});

const outside = { from: 'outside', src: '203.0.113.1' } as const;

const textOf = (outcome: ExpectedOutcome): string =>
  outcome.kind === 'endpoints'
    ? [...outcome.endpoints].map(([text, it]) => (it ? `${text} masqueraded` : text)).join(', ')
    : outcome.kind;

const outcomes = (forwarding: ReturnType<typeof forwardingOf>, more: Partial<Packet> = {}) =>
  forwarding.expect(packet(more)).outcomes.map(textOf);

const both = '10.0.0.1:8080, 10.0.1.2:8080';

describe('a cluster IP', () => {
  test('balances over both endpoints, and only for pods and the node', () => {
    const forwarding = forwardingOf([{}]);
    expect(outcomes(forwarding)).toEqual([both]);
    expect(outcomes(forwarding, { from: 'node' })).toEqual([both]);
    expect(outcomes(forwarding, outside)).toEqual(['drop']);
    expect(outcomes(forwarding, { dport: 81 })).toEqual(['pass']);
  });

  test('is reached from outside where Cilium is configured so', () => {
    const forwarding = forwardingOf([{}], { externalClusterIP: true });
    expect(outcomes(forwarding, outside)).toEqual([
      '10.0.0.1:8080 masqueraded, 10.0.1.2:8080 masqueraded',
    ]);
  });

  test('without endpoints it rejects', () => {
    expect(outcomes(forwardingOf([{}], {}, []))).toEqual(['reject']);
  });
});

describe('a node port', () => {
  const ports = [servicePort({ nodePort: 30_080 })];
  const at = { dst: '172.18.0.2', dport: 30_080 };

  test('is served at the addresses of the node, and at loopback for the node itself', () => {
    const forwarding = forwardingOf([{ type: 'NodePort', ports }]);
    expect(outcomes(forwarding, at)).toEqual([both]);
    expect(outcomes(forwarding, { ...at, from: 'node', dst: '127.0.0.1' })).toEqual([both]);
    expect(outcomes(forwarding, { ...at, dst: '172.18.0.9' })).toEqual(['pass']);
    expect(forwarding.frontends.map(({ kind, address }) => `${kind} ${address}`)).toEqual([
      'cluster IP 10.96.0.1',
      'node port 172.18.0.2',
      'node port 127.0.0.1',
    ]);
  });

  test('with a Local policy, packets from outside meet the endpoints of the node', () => {
    const local = { type: 'NodePort', ports, externalTrafficPolicy: 'Local' } as const;
    const forwarding = forwardingOf([local]);
    expect(outcomes(forwarding, { ...at, ...outside })).toEqual(['10.0.0.1:8080']);
    expect(outcomes(forwarding, at)).toEqual([both]);
  });

  test.each([
    [{ mode: 'dsr' }, both],
    [{ mode: 'hybrid' }, both],
    [{ mode: 'snat' }, '10.0.0.1:8080 masqueraded, 10.0.1.2:8080 masqueraded'],
    [{ algorithm: 'maglev' }, '10.0.0.1:8080 masqueraded, 10.0.1.2:8080 masqueraded'],
  ] as const)('with %o', (changes, want) => {
    const forwarding = forwardingOf([{ type: 'NodePort', ports }], changes);
    expect(outcomes(forwarding, { ...at, ...outside })).toEqual([want]);
  });

  test('weights leave the shares of Maglev tables unknown', () => {
    const heavy = slice({
      name: 'web-2',
      annotations: { 'service.cilium.io/weight': '300' },
      endpoints: [endpoint({ addresses: ['10.0.0.7'] })],
    });
    const slices = [slice({ endpoints }), heavy];
    const services = [{ type: 'NodePort', ports }] as const;
    const forwarding = forwardingOf(services, { algorithm: 'maglev' }, slices);
    expect(outcomes(forwarding, { ...at, ...outside })).toEqual([]);
    expect(outcomes(forwarding, at)).toEqual([`${both}, 10.0.0.7:8080`]);
  });
});

describe('source ranges', () => {
  const ranged: Of<Service> = {
    type: 'LoadBalancer',
    loadBalancerIPs: ['198.18.0.2'],
    externalIPs: ['198.18.0.3'],
    loadBalancerSourceRanges: ['198.51.100.0/24'],
    ports: [servicePort({ nodePort: 30_080 })],
  };
  const masqueraded = '10.0.0.1:8080 masqueraded, 10.0.1.2:8080 masqueraded';

  test.each([
    ['198.18.0.2', 80, {}, 'drop'],
    ['198.18.0.3', 80, {}, 'drop'],
    ['172.18.0.2', 30_080, {}, masqueraded],
    ['172.18.0.2', 30_080, { sourceRangeAllTypes: true }, 'drop'],
  ])('another source at %s:%i with %o', (dst, dport, changes, want) => {
    expect(outcomes(forwardingOf([ranged], changes), { ...outside, dst, dport })).toEqual([want]);
  });

  test('no source is checked if Cilium can read none of them', () => {
    const at = { ...outside, dst: '198.18.0.2' };
    const withRanges = (...texts: string[]) =>
      forwardingOf([{ ...ranged, loadBalancerSourceRanges: texts }]);
    expect(outcomes(withRanges(' 198.51.100.0/24'), at)).toEqual([masqueraded]);
    expect(outcomes(withRanges(' 203.0.113.0/24', '198.51.100.0/24'), at)).toEqual(['drop']);
    expect(outcomes(withRanges('2001:db8::/32'), at)).toEqual(['drop']);
  });

  test('a policy denies them instead', () => {
    const ciliumAnnotations = { 'service.cilium.io/src-ranges-policy': 'deny' };
    const forwarding = forwardingOf([{ ...ranged, ciliumAnnotations }]);
    const from = { ...outside, dst: '198.18.0.2' };
    expect(outcomes(forwarding, from)).toEqual([masqueraded]);
    expect(outcomes(forwarding, { ...from, src: '198.51.100.9' })).toEqual(['drop']);
  });
});

test('of two Services with one external IP, each may win, and the other has no frontends', () => {
  const externalIPs = ['198.18.0.1'];
  const other = { name: 'other', clusterIP: '10.96.0.2', clusterIPs: ['10.96.0.2'], externalIPs };
  const forwarding = forwardingOf([{ externalIPs }, other]);
  const from = { ...outside, dst: '198.18.0.1' };
  expect(outcomes(forwarding, from)).toEqual([
    '10.0.0.1:8080 masqueraded, 10.0.1.2:8080 masqueraded',
    'reject',
  ]);
  expect(outcomes(forwarding)).toEqual([both, 'pass']);
});

test('an ingress IP that is an address of the node has no frontend in the node port range', () => {
  const ports = [servicePort({ port: 30_300 }), servicePort({ name: 'other', port: 300 })];
  const forwarding = forwardingOf([
    { type: 'LoadBalancer', loadBalancerIPs: ['172.18.0.2'], ports },
  ]);
  const found = forwarding.frontends.filter(({ kind }) => kind === 'load balancer IP');
  expect(found.map(({ dport }) => dport)).toEqual([300]);
});

test('an annotation that is not modelled leaves the Service unknown', () => {
  const ciliumAnnotations = { 'service.cilium.io/global': 'true' };
  const forwarding = forwardingOf([{ ciliumAnnotations }]);
  expect(forwarding.expect(packet())).toMatchObject({
    outcomes: [],
    frontend: { kind: 'cluster IP' },
  });
  expect(forwarding.ports.map(({ usable }) => usable())).toEqual([null]);
});

test('without the flag for topology, both choices are right', () => {
  const hinted = [
    endpoint({ addresses: ['10.0.0.1'], forZones: ['zone-a'] }),
    endpoint({ addresses: ['10.0.1.2'], forZones: ['zone-b'] }),
  ];
  const services = [{ trafficDistribution: 'PreferSameZone' }];
  const slices = [slice({ endpoints: hinted })];
  const forwarding = forwardingOf(services, { serviceTopology: null }, slices);
  expect(outcomes(forwarding)).toEqual([both, '10.0.0.1:8080']);
});

test('slices with a headless label, or of another proxy, do not count', () => {
  const name = 'kubernetes.io/service-name';
  const labelled = (label: string) => slice({ endpoints, labels: { [name]: 'web', [label]: 'x' } });
  for (const label of ['headless', 'service-proxy-name']) {
    const slices = [labelled(`service.kubernetes.io/${label}`)];
    expect(outcomes(forwardingOf([{}], {}, slices))).toEqual(['reject']);
  }
});
