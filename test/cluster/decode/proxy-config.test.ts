// A KubeProxyConfiguration is read as kube-proxy reads it.

import { describe, expect, test } from 'vitest';

import { WrongType } from '../../../src/cluster/decode/json-fields.ts';
import { readProxyConfig } from '../../../src/cluster/decode/proxy-config.ts';
import { defaultProxyConfig } from '../../../src/model/proxy-config.ts';

describe('readProxyConfig', () => {
  test('an empty one is the default', () => {
    expect(readProxyConfig({}, 'v1.36.3')).toEqual(defaultProxyConfig('iptables', 36));
    const nft = readProxyConfig({ mode: 'nftables', clusterCIDR: '' }, '1.33');
    expect(nft).toEqual(defaultProxyConfig('nftables', 33));
  });

  test('reads every field of a configuration', () => {
    const raw = {
      mode: 'iptables',
      clusterCIDR: '10.244.0.0/16,fd00:10:244::/48',
      detectLocalMode: 'InterfaceNamePrefix',
      detectLocal: { bridgeInterface: 'cni0', interfaceNamePrefix: 'veth' },
      nodePortAddresses: ['172.18.0.0/24'],
      iptables: { masqueradeAll: true, localhostNodePorts: false },
      nftables: { masqueradeAll: false },
      bindAddress: '172.18.0.2',
      featureGates: { PreferSameTrafficDistribution: true },
    };
    expect(readProxyConfig(raw, 'v1.33.13')).toEqual({
      mode: 'iptables',
      minor: 33,
      clusterCIDRs: ['10.244.0.0/16', 'fd00:10:244::/48'],
      detectLocalMode: 'InterfaceNamePrefix',
      bridgeInterface: 'cni0',
      interfaceNamePrefix: 'veth',
      nodePortAddresses: ['172.18.0.0/24'],
      masqueradeAll: true,
      localhostNodePorts: false,
      bindAddress: '172.18.0.2',
      featureGates: { PreferSameTrafficDistribution: true },
      cilium: null,
    });
  });

  test('each mode has its own masqueradeAll', () => {
    const raw = { iptables: { masqueradeAll: true }, nftables: { masqueradeAll: false } };
    expect(readProxyConfig({ ...raw, mode: 'nftables' }, '1.36').masqueradeAll).toBe(false);
    expect(readProxyConfig({ ...raw, mode: 'iptables' }, '1.36').masqueradeAll).toBe(true);
  });

  test.each<[string, unknown, string, string, string]>([
    ['a list', [], '1.36', '', 'an object'],
    ['a mode', { mode: 'userspace' }, '1.36', 'mode', 'iptables, nftables or ipvs'],
    [
      'an interface',
      { detectLocal: { bridgeInterface: 'x'.repeat(16) } },
      '1.36',
      'detectLocal.bridgeInterface',
      'the name of an interface',
    ],
    ['a version', {}, 'latest', 'version', 'a version of kube-proxy'],
    [
      'a flag',
      { iptables: { masqueradeAll: 'yes' } },
      '1.36',
      'iptables.masqueradeAll',
      'a boolean',
    ],
    ['an address', { nodePortAddresses: [1] }, '1.36', 'nodePortAddresses[0]', 'a string'],
  ])('%s that is wrong is named', (_, raw, version, field, expected) => {
    const read = (): unknown => readProxyConfig(raw, version);
    expect(read).toThrow(WrongType);
    expect(read).toThrow(expect.objectContaining({ field, expected }));
  });
});
