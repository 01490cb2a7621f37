import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import { parseIP } from '../../src/model/ip.ts';
import {
  familyOf,
  formatAddress,
  formatEndpoint,
  networkOf,
  parseAddress,
  parseNetwork,
} from '../../src/rules/address.ts';

describe('addresses', () => {
  property.prop([fc.ipV4()])('IPv4 comes back as it was written', (text) => {
    expect(formatAddress(parseAddress(text) ?? 0n)).toBe(text);
  });

  property.prop([fc.ipV6()])('IPv6 comes back as the model writes it', (text) => {
    const address = parseAddress(text);
    const known = parseIP(text);
    expect(address === null).toBe(known === null);
    // The model writes mapped addresses as IPv4; here they stay what they are.
    if (address === null || known?.family !== 'IPv6') return;
    expect(formatAddress(address)).toBe(known.text);
  });

  test.each(['', '1.2.3', '1.2.3.4.5', '256.1.1.1', '1:2', ':::', '1::2::3', 'fd00::g', 'tcp'])(
    '%j is none',
    (text) => {
      expect(parseAddress(text)).toBeNull();
    },
  );

  test('of a part of a text', () => {
    expect(parseAddress('x10.0.0.1y', 1, 9)).toBe(0x0a000001);
  });

  test('endpoints have brackets in IPv6', () => {
    expect(formatEndpoint(0x0a000001, 80)).toBe('10.0.0.1:80');
    expect(formatEndpoint(1n, 80)).toBe('[::1]:80');
    expect([familyOf(1), familyOf(1n)]).toEqual(['ip', 'ip6']);
  });
});

describe('networks', () => {
  test.each([
    ['10.244.1.7/16', '10.244.0.0', '10.244.255.255'],
    ['10.0.0.0/255.255.0.0', '10.0.0.0', '10.0.255.255'],
    ['0.0.0.0/0', '0.0.0.0', '255.255.255.255'],
    ['192.0.2.1', '192.0.2.1', '192.0.2.1'],
    ['192.0.2.1-192.0.2.9', '192.0.2.1', '192.0.2.9'],
    ['fd00:10::5/64', 'fd00:10::', 'fd00:10::ffff:ffff:ffff:ffff'],
  ])('%s', (text, low, high) => {
    const range = parseNetwork(text);
    expect(range && [range.low, range.high].map(formatAddress)).toEqual([low, high]);
  });

  test.each([
    '10.0.0.0/33',
    '10.0.0.0/255.0.255.0',
    '10.0.0.9-10.0.0.1',
    '10.0.0.1-::1',
    'fd00::/129',
  ])('%s is none', (text) => {
    expect(parseNetwork(text)).toBeNull();
  });

  test('a network has as many bits as its address', () => {
    expect(networkOf(1n, 128)).toEqual({ low: 1n, high: 1n });
    expect(networkOf(1, 64)).toBeNull();
  });
});
