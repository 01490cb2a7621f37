// What a kube-proxy takes for local, for a pod, and for an address of node ports.

import { describe, expect, test } from 'vitest';

import type { Packet, ProxyConfig } from '../../src/model/proxy-config.ts';
import { defaultProxyConfig } from '../../src/model/proxy-config.ts';
import { isLoopback, proxyNode, refusedNodePortAddress } from '../../src/shadow/proxy-node.ts';
import { node } from '../build.ts';

const own = node({
  addresses: ['172.18.0.2', 'fd00:18::2'],
  externalIPs: ['198.51.100.1', '203.0.113.10'],
  podCIDRs: ['10.244.1.0/24', 'fd00:10:244:1::/64'],
});
const local = ['172.18.0.2', 'fd00:18::2', '198.51.100.1', '10.244.1.1'];
const nodeOf = (more: Partial<ProxyConfig>, mode: 'iptables' | 'nftables' = 'iptables') =>
  proxyNode(own, { ...defaultProxyConfig(mode, 36), ...more }, local);

const addresses = ['172.18.0.2', '198.51.100.1', '10.244.1.1', 'fd00:18::2', '127.0.0.1', '::1'];

describe('node ports', () => {
  const [first, outer, gateway, six, home] = addresses;
  test.each<[string, 'iptables' | 'nftables', Partial<ProxyConfig>, unknown[]]>([
    ['iptables serves all', 'iptables', {}, [first, outer, gateway, six, home]],
    ['not localhost', 'iptables', { localhostNodePorts: false }, [first, outer, gateway, six]],
    ['nftables serves the primary one', 'nftables', {}, [first, six]],
    ['primary', 'iptables', { nodePortAddresses: ['primary'] }, [first, six]],
    [
      'a range of one family leaves the other as it is',
      'iptables',
      { nodePortAddresses: ['172.18.0.0/24'] },
      [first, six],
    ],
    ['localhost by its range', 'iptables', { nodePortAddresses: ['127.0.0.0/8'] }, [six, home]],
    [
      'not in nftables',
      'nftables',
      { nodePortAddresses: ['127.0.0.0/8', '0.0.0.0/0'] },
      [first, outer, gateway, six],
    ],
    ['everything', 'nftables', { nodePortAddresses: ['0.0.0.0/0'] }, [first, outer, gateway, six]],
    ['localhost by its keyword', 'iptables', { nodePortAddresses: ['localhost'] }, [home]],
    ['no keyword for IPv6 localhost', 'nftables', { nodePortAddresses: ['localhost'] }, []],
    [
      'two keywords',
      'iptables',
      { nodePortAddresses: ['localhost', 'primary'] },
      [first, six, home],
    ],
    [
      'a keyword and a range',
      'nftables',
      { nodePortAddresses: ['primary', '10.244.1.0/24'] },
      [first, gateway, six],
    ],
    ['all', 'nftables', { nodePortAddresses: ['all'] }, [first, outer, gateway, six]],
  ])('%s (%s, %j)', (_, mode, more, want) => {
    const { servesNodePorts } = nodeOf(more, mode);
    expect(addresses.filter((address) => servesNodePorts(address))).toEqual(want);
  });
});

test.each<[number, string[], string | null]>([
  [36, ['primary'], null],
  [36, ['10.0.0.0/8', 'fd00::/8'], null],
  [36, ['primary', '10.0.0.0/8'], 'nodePortAddresses[0]'],
  [36, ['10.0.0.0/8', 'primary'], 'nodePortAddresses[1]'],
  [36, ['localhost'], 'nodePortAddresses[0]'],
  [37, ['localhost', '10.0.0.0/8', 'all', 'primary'], null],
  [37, ['primary', '10.0.0.0/8', 'primary'], 'nodePortAddresses[2]'],
  [37, ['10.0.0.0/8', 'nonsense'], 'nodePortAddresses[1]'],
  [37, ['10.0.0.1'], 'nodePortAddresses[0]'],
  [37, [' 10.0.0.0/8'], 'nodePortAddresses[0]'],
])('kube-proxy 1.%i with nodePortAddresses %j refuses %s', (minor, nodePortAddresses, field) => {
  const config = { ...defaultProxyConfig('iptables', minor), nodePortAddresses };
  expect(refusedNodePortAddress(config)?.field ?? null).toBe(field);
});

test('an ExternalIP is local where an interface has it, and may be the node IP', () => {
  const config = defaultProxyConfig('iptables', 36);
  const { isLocal, addresses } = nodeOf({});
  expect([isLocal('198.51.100.1'), isLocal('203.0.113.10')]).toEqual([true, false]);
  expect(addresses).toEqual(['172.18.0.2', 'fd00:18::2', '198.51.100.1']);
  const withoutInterfaces = proxyNode(own, config);
  expect(withoutInterfaces.isLocal('172.18.0.2')).toBe(true);
  expect(withoutInterfaces.isLocal('198.51.100.1')).toBe(false);
  const outer = proxyNode(node({ addresses: [], externalIPs: ['198.51.100.1'] }), config);
  expect(outer.nodeIP.IPv4).toBe('198.51.100.1');
  expect(outer.isLocal('198.51.100.1')).toBe(false);
});

test('local addresses are those given and loopback ones', () => {
  const { isLocal, nodeIP } = nodeOf({});
  expect(addresses.every((address) => isLocal(address))).toBe(true);
  expect([isLocal('127.9.9.9'), isLocal('10.244.1.2')]).toEqual([true, false]);
  expect(nodeIP).toEqual({ IPv4: '172.18.0.2', IPv6: 'fd00:18::2' });
  expect(nodeOf({ bindAddress: '10.0.0.9' }).nodeIP.IPv4).toBe('10.0.0.9');
  expect(nodeOf({ bindAddress: '0.0.0.0' }).nodeIP.IPv4).toBe('172.18.0.2');
  const bare = proxyNode(node({ addresses: [] }), defaultProxyConfig('iptables', 36));
  expect(bare.nodeIP).toEqual({ IPv4: '127.0.0.1', IPv6: '::1' });
  expect([isLoopback('127.0.0.5'), isLoopback('::1'), isLoopback('10.0.0.1')]).toEqual([
    true,
    true,
    false,
  ]);
});

describe('pods', () => {
  const packet = (more: Partial<Packet>): Packet => ({
    from: 'pod',
    src: '10.244.1.5',
    dst: '10.96.0.1',
    protocol: 'tcp',
    dport: 80,
    ...more,
  });
  const cluster = { clusterCIDRs: ['10.244.0.0/16', '10.0.0.0/8', 'fd00:10:244::/48'] };
  test.each<[string, Partial<ProxyConfig>, Partial<Packet>, boolean]>([
    ['by the cluster’s range', cluster, {}, true],
    ['also from another node', cluster, { from: 'outside', src: '10.244.2.5' }, true],
    ['the first range alone', cluster, { src: '10.3.0.1' }, false],
    ['IPv6', cluster, { src: 'fd00:10:244:2::5' }, true],
    ['without a range', {}, {}, false],
    ['by the node’s range', { detectLocalMode: 'NodeCIDR' }, {}, true],
    ['not another node’s', { detectLocalMode: 'NodeCIDR' }, { src: '10.244.2.5' }, false],
    ['no mode', { detectLocalMode: 'Other' }, {}, false],
  ])('%s', (_, config, more, want) => {
    expect(nodeOf(config).isFromPod(packet(more))).toBe(want);
  });

  test('by interfaces, which processes of the node do not come in by', () => {
    const bridge = nodeOf({ detectLocalMode: 'BridgeInterface', bridgeInterface: 'cni0' });
    const prefix = nodeOf({ detectLocalMode: 'InterfaceNamePrefix', interfaceNamePrefix: 'veth' });
    const from = (iif: string): Packet => packet({ iif });
    expect(['cni0', 'cni01'].map((iif) => bridge.isFromPod(from(iif)))).toEqual([true, false]);
    expect(['veth7', 'eth0'].map((iif) => prefix.isFromPod(from(iif)))).toEqual([true, false]);
    expect(prefix.isFromPod(packet({ from: 'node', iif: 'veth7' }))).toBe(false);
    expect(prefix.isFromPod(packet({}))).toBe(false);
    expect([nodeOf({}).detects.IPv4, nodeOf(cluster).detects.IPv4, prefix.detects.IPv6]).toEqual([
      false,
      true,
      true,
    ]);
  });
});
