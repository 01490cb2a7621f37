// The defaults of a kube-proxy without configuration.

import { expect, test } from 'vitest';

import { defaultProxyConfig } from '../../src/model/proxy.ts';

test('nftables mode serves node ports at the primary address, iptables mode everywhere', () => {
  expect(defaultProxyConfig('nftables', 36)).toMatchObject({
    mode: 'nftables',
    minor: 36,
    nodePortAddresses: ['primary'],
    detectLocalMode: 'ClusterCIDR',
  });
  expect(defaultProxyConfig('iptables', 33)).toMatchObject({
    nodePortAddresses: [],
    localhostNodePorts: true,
    masqueradeAll: false,
  });
});
