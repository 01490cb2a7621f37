import { describe, expect, test } from 'vitest';

import { defaultCiliumConfig } from '../../../src/model/cilium-config.ts';
import type { Service } from '../../../src/model/objects.ts';
import {
  ciliumFrontends,
  unknownAnnotation,
} from '../../../src/shadow/cilium/service-frontends.ts';
import { node, type Of, service, servicePort } from '../../build.ts';

const config = defaultCiliumConfig();

const frontends = (more: Of<Service>, changes: Partial<typeof config> = {}): string[] =>
  ciliumFrontends(service(more), node({ ciliumNode: 'edge' }), { ...config, ...changes }).map(
    ({ kind, address, port, protocol, scopes }) =>
      `${kind} ${address} ${port} ${protocol} ${scopes.join()}`,
  );

const loadBalancer: Of<Service> = {
  type: 'LoadBalancer',
  clusterIPs: ['10.96.0.1', 'fd00::1'],
  ipFamilies: ['IPv4', 'IPv6'],
  externalIPs: ['198.18.0.1'],
  loadBalancerIPs: ['198.18.0.2'],
  ports: [servicePort({ nodePort: 30_080 })],
};

test('a Service of type LoadBalancer has frontends of every kind', () => {
  expect(frontends(loadBalancer)).toEqual([
    'cluster IP 10.96.0.1 80 tcp 0',
    'cluster IP fd00::1 80 tcp 0',
    'node port 0.0.0.0 30080 tcp 0',
    'node port :: 30080 tcp 0',
    'load balancer IP 198.18.0.2 80 tcp 0',
    'external IP 198.18.0.1 80 tcp 0',
  ]);
});

test('with one Local policy, node ports and load balancer IPs have two scopes', () => {
  const found = frontends({ ...loadBalancer, externalTrafficPolicy: 'Local' });
  expect(found.filter((text) => text.endsWith('0,1'))).toEqual([
    'node port 0.0.0.0 30080 tcp 0,1',
    'node port :: 30080 tcp 0,1',
    'load balancer IP 198.18.0.2 80 tcp 0,1',
  ]);
  const both = { externalTrafficPolicy: 'Local', internalTrafficPolicy: 'Local' } as const;
  expect(frontends({ ...loadBalancer, ...both }).join()).not.toContain('0,1');
});

describe('a Service is left out', () => {
  test.each<[string, Of<Service>]>([
    ['that is headless', { clusterIP: 'None', clusterIPs: ['None'] }],
    ['with a headless label', { labels: { 'service.kubernetes.io/headless': '' } }],
    ['of another proxy', { labels: { 'service.kubernetes.io/service-proxy-name': 'other' } }],
    ['of another node', { ciliumAnnotations: { 'service.cilium.io/node': 'core' } }],
  ])('%s', (_, more) => {
    expect(frontends(more)).toEqual([]);
  });

  test('without the name that Cilium has', () => {
    const labels = { 'service.kubernetes.io/service-proxy-name': 'cilium' };
    expect(frontends({ labels }, { serviceProxyName: 'cilium' })).toHaveLength(1);
    expect(frontends({}, { serviceProxyName: 'cilium' })).toEqual([]);
  });
});

test('annotations select nodes and one type', () => {
  expect(frontends({ ciliumAnnotations: { 'service.cilium.io/node': 'edge' } })).toHaveLength(1);
  const ciliumAnnotations = { 'service.cilium.io/type': 'LoadBalancer' };
  expect(frontends({ ...loadBalancer, ciliumAnnotations })).toEqual([
    'load balancer IP 198.18.0.2 80 tcp 0',
    'external IP 198.18.0.1 80 tcp 0',
  ]);
});

test.each([
  ['service.cilium.io/global', true],
  ['io.cilium/global-service', true],
  ['service.cilium.io/node-selector', true],
  ['service.cilium.io/type', false],
  ['io.cilium/lb-ipam-ips', false],
])('the annotation %s makes the Service unknown: %s', (name, isUnknown) => {
  const found = unknownAnnotation(service({ ciliumAnnotations: { [name]: 'true' } }));
  expect(found).toBe(isUnknown ? name : null);
});
