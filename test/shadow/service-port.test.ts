// Which Services a kube-proxy serves, and how it reads them.

import { describe, expect, test } from 'vitest';

import type { Service } from '../../src/model/objects.ts';
import { label } from '../../src/model/objects.ts';
import { defaultProxyConfig } from '../../src/model/proxy-config.ts';
import { proxiedPorts, proxyRules } from '../../src/shadow/service-port.ts';
import type { Of } from '../build.ts';
import { service, servicePort, slice } from '../build.ts';

const place = { name: 'node-a', zone: 'zone-a' };
const rulesOf = (minor: number, mode: 'iptables' | 'nftables' = 'iptables') =>
  proxyRules(defaultProxyConfig(mode, minor), place);
const read = (more: Of<Service>, minor = 36) =>
  proxiedPorts(service(more), [slice()], rulesOf(minor));

describe('proxyRules', () => {
  test.each<[number, boolean, string, boolean, boolean]>([
    [33, false, 'local', true, false],
    [34, true, 'local', true, false],
    [35, true, 'local', true, false],
    [36, true, 'running', false, true],
    [37, true, 'running', false, true],
  ])('1.%i', (minor, nodeHints, prefers, skipsHeadlessLabel, localHairpins) => {
    const want = { nodeHints, prefers, skipsHeadlessLabel, localHairpins };
    expect(rulesOf(minor, 'nftables')).toMatchObject(want);
    expect(rulesOf(minor).localHairpins).toBe(false);
  });

  test('gates count while they can be set', () => {
    const gated = (minor: number, gates: Record<string, boolean>) =>
      proxyRules({ ...defaultProxyConfig('iptables', minor), featureGates: gates }, place);
    expect(gated(33, { PreferSameTrafficDistribution: true }).nodeHints).toBe(true);
    expect(gated(34, { PreferSameTrafficDistribution: false }).nodeHints).toBe(false);
    expect(gated(35, { PreferSameTrafficDistribution: false }).nodeHints).toBe(true);
    expect(gated(36, { AllowServiceExternalIPs: false }).externalIPs).toBe(false);
    expect(gated(35, { AllowServiceExternalIPs: false }).externalIPs).toBe(true);
  });
});

describe('proxiedPorts', () => {
  test.each<[string, Of<Service>, number, number]>([
    ['a Service', {}, 36, 1],
    ['a headless one', { clusterIP: 'None', clusterIPs: ['None'] }, 36, 0],
    ['one without a cluster IP yet', { clusterIP: '', clusterIPs: [] }, 36, 0],
    ['an ExternalName', { type: 'ExternalName' }, 36, 0],
    ['one of another proxy', { labels: { [label.serviceProxyName]: 'mine' } }, 36, 0],
    ['one with the headless label', { labels: { [label.headless]: '' } }, 36, 1],
    ['one with the headless label', { labels: { [label.headless]: '' } }, 35, 0],
    [
      'a port of a protocol that kube-proxy does not serve',
      { ports: [servicePort({ protocol: 'ICMP' })] },
      36,
      0,
    ],
    ['one from before there were families', { ipFamilies: [], clusterIPs: [] }, 36, 1],
  ])('%s: %j in 1.%i', (_, more, minor, want) => {
    expect(read(more, minor)).toHaveLength(want);
  });

  test('each family has its own addresses, and a port without a name no colon', () => {
    const ports = read({
      clusterIPs: ['fd00::1', '10.96.0.1'],
      ipFamilies: ['IPv6', 'IPv4'],
      ports: [servicePort({ name: '' })],
      externalIPs: ['198.51.100.7', 'fd00:ee::7', 'nonsense'],
      loadBalancerIPs: ['192.0.2.1'],
      loadBalancerSourceRanges: [' 203.0.113.0/24 ', 'fd00:5::/64'],
    });
    expect(ports.map(({ name, family, clusterIP }) => [name, family, clusterIP])).toEqual([
      ['shop/web', 'IPv4', '10.96.0.1'],
      ['shop/web', 'IPv6', 'fd00::1'],
    ]);
    expect(ports.map(({ externalIPs }) => externalIPs)).toEqual([['198.51.100.7'], ['fd00:ee::7']]);
    expect(ports.map(({ loadBalancerIPs }) => loadBalancerIPs)).toEqual([['192.0.2.1'], []]);
    expect(ports.map(({ sourceRanges }) => sourceRanges.length)).toEqual([1, 1]);
  });

  test('a range of everything is none', () => {
    const [port] = read({ loadBalancerSourceRanges: ['10.0.0.0/8', '0.0.0.0/0'] });
    expect(port?.sourceRanges).toEqual([]);
  });

  test.each<[string, Of<Service>, boolean, number]>([
    ['a load balancer', { type: 'LoadBalancer' }, true, 32_000],
    ['a node port', { type: 'NodePort' }, true, 0],
    ['external IPs', { externalIPs: ['198.51.100.7'] }, true, 0],
    ['a cluster IP alone', {}, false, 0],
  ])('an external policy is of use to %s', (_, more, externalLocal, healthCheckNodePort) => {
    const local = { externalTrafficPolicy: 'Local', healthCheckNodePort: 32_000 } as const;
    expect(read({ ...more, ...local })[0]).toMatchObject({ externalLocal, healthCheckNodePort });
  });

  test('slices with the headless label are left out, once also those of another proxy', () => {
    const of = (labels: Record<string, string>, minor: number) =>
      proxiedPorts(service(), [slice({ labels })], rulesOf(minor))[0]?.usable()?.[0]?.any;
    const named = { [label.serviceName]: 'web' };
    expect(of(named, 36)).toBe(true);
    expect(of({ ...named, [label.headless]: '' }, 36)).toBe(false);
    expect(of({ ...named, [label.serviceProxyName]: 'mine' }, 36)).toBe(true);
    expect(of({ ...named, [label.serviceProxyName]: 'mine' }, 35)).toBe(false);
  });
});
