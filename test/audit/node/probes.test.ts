// The packets for a frontend, from an address of every class of source, and the coverage of an
// audit.

import { describe, expect, test } from 'vitest';

import { coverageOf, probeSender, probesOf, strayProbes } from '../../../src/audit/node/probes.ts';
import type { Service } from '../../../src/model/objects.ts';
import type { ProxyConfig } from '../../../src/model/proxy-config.ts';
import { defaultProxyConfig } from '../../../src/model/proxy-config.ts';
import { runToEnd } from '../../../src/model/run-to-end.ts';
import { expectedForwarding, slicesByService } from '../../../src/shadow/forwarding.ts';
import type { Of } from '../../build.ts';
import { node, service, servicePort, slice } from '../../build.ts';

const own = node({ addresses: ['172.18.0.2'], podCIDRs: ['10.0.0.0/24'] });

function probed(more: Of<Service>, config: Partial<ProxyConfig> = {}, kind = 'cluster IP') {
  const full = { ...defaultProxyConfig('iptables', 36), clusterCIDRs: ['10.0.0.0/8'], ...config };
  const forwarding = expectedForwarding([service(more)], slicesByService([slice()]), own, full);
  const sender = probeSender(forwarding, own);
  const frontend = forwarding.frontends.find((one) => one.kind === kind);
  if (frontend === undefined) throw new Error(`No ${kind}`);
  return { sender, frontend, probes: probesOf(sender, frontend) };
}

const sources = (probes: ReturnType<typeof probesOf>): string[] =>
  probes.map(({ packet }) => `${packet.from} ${packet.src}`);

describe('probesOf', () => {
  test('a cluster IP gets packets from the node, pods, outside and its own endpoints', () => {
    expect(sources(probed({}).probes)).toEqual([
      'node 172.18.0.2',
      'pod 10.0.0.251',
      'outside 203.0.113.77',
      'outside 10.255.255.4',
      'pod 10.0.0.1',
    ]);
  });

  test('a source range gets packets from both ends and from both neighbors', () => {
    const lb: Of<Service> = {
      type: 'LoadBalancer',
      loadBalancerIPs: ['192.0.2.1'],
      loadBalancerSourceRanges: ['198.51.100.0/24', '172.18.0.2/32'],
    };
    expect(sources(probed(lb, {}, 'load balancer IP').probes).slice(4)).toEqual([
      'outside 198.51.100.0',
      'outside 198.51.100.255',
      'node 172.18.0.2',
      'outside 198.51.99.255',
      'outside 198.51.101.0',
      'outside 172.18.0.1',
      'outside 172.18.0.3',
    ]);
  });

  test('a neighbor in another range, or outside all addresses, is left out', () => {
    const lb: Of<Service> = { type: 'LoadBalancer', loadBalancerIPs: ['192.0.2.1'] };
    const beside = (...loadBalancerSourceRanges: string[]): string[] =>
      probed({ ...lb, loadBalancerSourceRanges }, {}, 'load balancer IP')
        .probes.filter(({ origin }) => origin === 'beside a source range')
        .map(({ packet }) => packet.src);
    expect(beside('0.0.0.0/0')).toEqual([]);
    expect(beside('0.0.0.0/1', '255.0.0.0/8')).toEqual(['128.0.0.0', '254.255.255.255']);
    expect(beside('198.51.100.0/25', '198.51.100.128/25')).toEqual([
      '198.51.99.255',
      '198.51.101.0',
    ]);
  });

  test('a loopback address gets packets from the node only', () => {
    const port = { type: 'NodePort' as const, ports: [servicePort({ nodePort: 30_000 })] };
    const { sender, frontend } = probed(port, {}, 'node port');
    const home = probesOf(sender, { ...frontend, address: '127.0.0.1' });
    expect(sources(home)).toEqual(['node 127.0.0.1']);
  });

  test('packets have the interface by which kube-proxy detects pods', () => {
    const namesWith = (config: Partial<ProxyConfig>) =>
      new Set(probed({}, config).probes.map(({ packet }) => `${packet.from} ${packet.iif}`));
    const prefix = { detectLocalMode: 'InterfaceNamePrefix', interfaceNamePrefix: 'veth' };
    expect(namesWith(prefix)).toEqual(new Set(['node undefined', 'pod veth*', 'outside !veth*']));
    const bridge = { detectLocalMode: 'BridgeInterface', bridgeInterface: 'cbr0' };
    expect(namesWith(bridge)).toEqual(new Set(['node undefined', 'pod cbr0', 'outside !cbr0']));
  });

  test('without a pod range, only endpoints of the node send as pods', () => {
    const bare = node({ podCIDRs: [] });
    const config = defaultProxyConfig('iptables', 36);
    const forwarding = expectedForwarding([service()], slicesByService([slice()]), bare, config);
    const [frontend] = forwarding.frontends;
    if (frontend === undefined) throw new Error('No frontend');
    expect(sources(probesOf(probeSender(forwarding, bare), frontend))).toEqual([
      'node 172.18.0.2',
      'outside 203.0.113.77',
      'pod 10.0.0.1',
    ]);
  });

  test('the address outside is not in a pod range of documentation addresses', () => {
    const { probes } = probed({}, { clusterCIDRs: ['203.0.113.0/24'] });
    expect(sources(probes)).toContain('outside 198.51.100.77');
  });
});

test('a stray port is one without a Service', () => {
  const ports = [servicePort(), servicePort({ name: 'x', port: 9 })];
  const { sender, frontend } = probed({ ports }, { mode: 'nftables' });
  const strays = new Set(strayProbes(sender, frontend).map(({ packet }) => packet.dport));
  expect(strays).toEqual(new Set([7]));
});

test('a Service port is covered once for each property that a packet to it shows', () => {
  const lb: Of<Service> = { type: 'LoadBalancer', loadBalancerIPs: ['192.0.2.1'] };
  const { sender } = probed({ ...lb, affinitySeconds: 60 });
  const covered = [...runToEnd(coverageOf(sender))];
  const withoutOrigin = covered.map(([it]) => [it.property, it.kind, it.family].join(' '));
  expect([...new Set(withoutOrigin)]).toEqual([
    'endpoints cluster IP IPv4',
    'masqueraded cluster IP IPv4',
    'affinity cluster IP IPv4',
    'not masqueraded cluster IP IPv4',
    'endpoints load balancer IP IPv4',
    'masqueraded load balancer IP IPv4',
    'affinity load balancer IP IPv4',
  ]);
  expect(new Set(covered.map(([, count]) => count))).toEqual(new Set([1]));
  const origins = covered.flatMap(([{ property, kind, origin }]) =>
    property === 'not masqueraded' && kind === 'cluster IP' ? origin : [],
  );
  expect(origins).toEqual(['a pod of the node', 'a pod of another node']);
});

test.each([
  ['iptables', 0],
  ['nftables', 1],
] as const)('in %s mode, wrong ports of a cluster IP cover %i ports', (mode, count) => {
  const { sender } = probed({}, { mode });
  const strays = [...runToEnd(coverageOf(sender))].filter(([{ property, origin }]) => {
    return property === 'stray' && origin === 'outside the cluster';
  });
  expect(strays.map(([, ports]) => ports)).toEqual(count === 0 ? [] : [count]);
});
