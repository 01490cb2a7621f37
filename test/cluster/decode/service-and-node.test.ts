import { describe, expect, test } from 'vitest';

import { project } from '../../../src/cluster/decode/json-objects.ts';
import type { Node, Service } from '../../../src/model/objects.ts';

const metadata = { namespace: 'shop', name: 'web' };

function serviceOf(fields: object): Service {
  const { object } = project('services', { metadata, ...fields }, 0);
  if (object === undefined) throw new Error('Expected a Service');
  return object;
}

function nodeOf(fields: object): Node {
  const { object } = project('nodes', { metadata, ...fields }, 0);
  if (object === undefined) throw new Error('Expected a Node');
  return object;
}

describe('a Service', () => {
  test.each<[unknown, unknown, number | null]>([
    ['ClientIP', { clientIP: { timeoutSeconds: 5 } }, 5],
    ['ClientIP', { clientIP: {} }, 10_800],
    ['ClientIP', undefined, 10_800],
    ['None', { clientIP: { timeoutSeconds: 5 } }, null],
    [undefined, undefined, null],
  ])('affinity %j with %j lasts %j seconds', (sessionAffinity, sessionAffinityConfig, want) => {
    const spec = { sessionAffinity, sessionAffinityConfig };
    expect(serviceOf({ spec }).affinitySeconds).toBe(want);
  });

  test.each<[unknown, string]>([
    [undefined, 'Cluster'],
    ['', 'Cluster'],
    ['Cluster', 'Cluster'],
    ['Local', 'Local'],
    ['local', 'Cluster'],
  ])('traffic policy %j is %s', (policy, want) => {
    const spec = { internalTrafficPolicy: policy, externalTrafficPolicy: policy };
    const { internalTrafficPolicy, externalTrafficPolicy } = serviceOf({ spec });
    expect([internalTrafficPolicy, externalTrafficPolicy]).toEqual([want, want]);
  });

  test.each<[string, unknown[], string[]]>([
    ['no ingress', [], []],
    ['no mode', [{ ip: '192.0.2.1' }], ['192.0.2.1']],
    [
      'both modes',
      [
        { ip: '192.0.2.1', ipMode: 'Proxy' },
        { ip: '::1', ipMode: 'VIP' },
      ],
      ['::1'],
    ],
    ['a hostname', [{ hostname: 'lb.example.com' }, { ip: '192.0.2.1' }], ['192.0.2.1']],
  ])('the IPs of a load balancer: %s', (_, ingress, want) => {
    expect(serviceOf({ status: { loadBalancer: { ingress } } }).loadBalancerIPs).toEqual(want);
  });

  test('without a load balancer it has no IPs of one', () => {
    expect(serviceOf({}).loadBalancerIPs).toEqual([]);
  });
});

describe('a Node', () => {
  test('has internal and external addresses, and no names', () => {
    const addresses = [
      { type: 'ExternalIP', address: '198.51.100.1' },
      { type: 'Hostname', address: 'node-a' },
      { type: 'InternalIP', address: '172.18.0.2' },
      { type: 'InternalDNS', address: 'node-a.internal' },
      { type: 'InternalIP', address: 'fd00:18::2' },
    ];
    expect(nodeOf({ status: { addresses } })).toMatchObject({
      addresses: ['172.18.0.2', 'fd00:18::2'],
      externalIPs: ['198.51.100.1'],
    });
    expect(nodeOf({})).toMatchObject({ addresses: [], externalIPs: [] });
  });

  test.each<[Record<string, unknown>, string[]]>([
    [{}, []],
    [{ podCIDR: '10.244.1.0/24' }, ['10.244.1.0/24']],
    [{ podCIDR: '10.244.1.0/24', podCIDRs: [] }, ['10.244.1.0/24']],
    [{ podCIDRs: ['fd00:1::/64', '10.244.1.0/24'] }, ['fd00:1::/64', '10.244.1.0/24']],
  ])('has the pod CIDRs of %j', (spec, want) => {
    expect(nodeOf({ spec }).podCIDRs).toEqual(want);
  });
});
