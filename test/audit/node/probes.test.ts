// Every class of source is asked from, and never by an address of another class.

import { describe, expect, test } from 'vitest';

import { probesOf, probeSender, strayProbes } from '../../../src/audit/node/probes.ts';
import type { Service } from '../../../src/model/objects.ts';
import type { ProxyConfig } from '../../../src/model/proxy-config.ts';
import { defaultProxyConfig } from '../../../src/model/proxy-config.ts';
import { expectedForwarding, slicesByService } from '../../../src/shadow/forwarding.ts';
import type { Of } from '../../build.ts';
import { node, service, servicePort, slice } from '../../build.ts';

const own = node({ addresses: ['172.18.0.2'], podCIDRs: ['10.0.0.0/24'] });

function asked(more: Of<Service>, config: Partial<ProxyConfig> = {}, kind = 'cluster IP') {
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
  test('a cluster IP: the node, pods here and there, outside, and what meets itself', () => {
    expect(sources(asked({}).probes)).toEqual([
      'node 172.18.0.2',
      'pod 10.0.0.251',
      'outside 203.0.113.77',
      'outside 10.255.255.4',
      'pod 10.0.0.1',
    ]);
  });

  test('both ends of every source range, by whoever has the address, and beside it', () => {
    const lb: Of<Service> = {
      type: 'LoadBalancer',
      loadBalancerIPs: ['192.0.2.1'],
      loadBalancerSourceRanges: ['198.51.100.0/24', '172.18.0.2/32'],
    };
    expect(sources(asked(lb, {}, 'load balancer IP').probes).slice(4)).toEqual([
      'outside 198.51.100.0',
      'outside 198.51.100.255',
      'node 172.18.0.2',
      'outside 198.51.99.255',
      'outside 198.51.101.0',
      'outside 172.18.0.1',
      'outside 172.18.0.3',
    ]);
  });

  test('nothing is beside everything, nor what another range has', () => {
    const lb: Of<Service> = { type: 'LoadBalancer', loadBalancerIPs: ['192.0.2.1'] };
    const beside = (...loadBalancerSourceRanges: string[]): string[] =>
      asked({ ...lb, loadBalancerSourceRanges }, {}, 'load balancer IP')
        .probes.filter(({ origin }) => origin === 'beside a source range')
        .map(({ packet }) => packet.src);
    expect(beside('0.0.0.0/0')).toEqual([]);
    expect(beside('0.0.0.0/1', '255.0.0.0/8')).toEqual(['128.0.0.0', '254.255.255.255']);
    expect(beside('198.51.100.0/25', '198.51.100.128/25')).toEqual([
      '198.51.99.255',
      '198.51.101.0',
    ]);
  });

  test('localhost is asked for by the node alone', () => {
    const port = { type: 'NodePort' as const, ports: [servicePort({ nodePort: 30_000 })] };
    const { sender, frontend } = asked(port, {}, 'node port');
    const home = probesOf(sender, { ...frontend, address: '127.0.0.1' });
    expect(sources(home)).toEqual(['node 127.0.0.1']);
  });

  test('pods come in by the interface that tells them', () => {
    const { probes } = asked(
      {},
      { detectLocalMode: 'InterfaceNamePrefix', interfaceNamePrefix: 'veth' },
    );
    const names = new Set(probes.map(({ packet }) => `${packet.from} ${packet.iif}`));
    expect(names).toEqual(new Set(['node undefined', 'pod veth0', 'outside uplink']));
  });

  test('without ranges there is no pod to ask from, but its own endpoints', () => {
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

  test('a cluster that uses documentation’s addresses is asked from outside of them', () => {
    const { probes } = asked({}, { clusterCIDRs: ['203.0.113.0/24'] });
    expect(sources(probes)).toContain('outside 198.51.100.77');
  });
});

test('a stray port is one that no Service has there', () => {
  const { sender, frontend } = asked({
    ports: [servicePort(), servicePort({ name: 'x', port: 9 })],
  });
  const ports = new Set(strayProbes(sender, frontend).map(({ packet }) => packet.dport));
  expect(ports).toEqual(new Set([7]));
});
