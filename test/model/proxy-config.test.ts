// The defaults of a kube-proxy without configuration.

import { expect, test } from 'vitest';

import { defaultProxyConfig, minorIn } from '../../src/model/proxy-config.ts';

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

test.each([
  ['v1.33.13', 33],
  ['1.36', 36],
  ['v1.31.2-eks-4f2c', 31],
  ['v1.30.4+k3s1', 30],
  ['kwok-0.8.0', null],
  ['v2.1.0', null],
  ['', null],
])('the minor version in %j is %s', (version, minor) => {
  expect(minorIn(version)).toBe(minor);
});
