// Addresses are read as leniently, and written as strictly, as upstream does.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import {
  addressIn,
  canonicalIP,
  formatAddress,
  ipOf,
  isWithinAny,
  joinHostPort,
  networkOf,
  parseAddress,
  parseCIDR,
  parseIP,
  parseNetwork,
} from '../../src/model/ip.ts';

describe('parseIP', () => {
  const addresses: [string, 'IPv4' | 'IPv6', string][] = [
    ['10.0.0.1', 'IPv4', '10.0.0.1'],
    ['0.0.0.0', 'IPv4', '0.0.0.0'],
    ['255.255.255.255', 'IPv4', '255.255.255.255'],
    // Leading zeros are decimal, not octal.
    ['010.000.00.08', 'IPv4', '10.0.0.8'],
    ['10.0.0.0000001', 'IPv4', '10.0.0.1'],
    // An IPv4-mapped address is the IPv4 address.
    ['::ffff:10.0.0.1', 'IPv4', '10.0.0.1'],
    ['::FFFF:0a00:0001', 'IPv4', '10.0.0.1'],
    ['0:0:0:0:0:ffff:10.0.0.1', 'IPv4', '10.0.0.1'],
    ['fd00::1', 'IPv6', 'fd00::1'],
    ['FD00:0200::00AB', 'IPv6', 'fd00:200::ab'],
    ['fd00:0:0:0:0:0:0:1', 'IPv6', 'fd00::1'],
    ['::', 'IPv6', '::'],
    ['::1', 'IPv6', '::1'],
    // The longest run of zeros is shortened, the first of equal ones, and never a single one.
    ['2001:db8:0:0:1:0:0:1', 'IPv6', '2001:db8::1:0:0:1'],
    ['2001:db8:0:1:1:1:1:1', 'IPv6', '2001:db8:0:1:1:1:1:1'],
    ['2001:0:0:1:0:0:0:1', 'IPv6', '2001:0:0:1::1'],
    ['0:0:0:1:0:0:0:0', 'IPv6', '0:0:0:1::'],
    ['1:2:3:4:5:6:7::', 'IPv6', '1:2:3:4:5:6:7:0'],
    // Other addresses with an IPv4 tail are IPv6 and written in hexadecimal.
    ['64:ff9b::10.0.0.1', 'IPv6', '64:ff9b::a00:1'],
    ['::10.0.0.1', 'IPv6', '::a00:1'],
  ];
  test.each(addresses)('%s is %s %s', (text, family, want) => {
    expect(parseIP(text)).toEqual({ family, text: want });
  });

  const others = [
    '',
    'web',
    '10.0.0',
    '10.0.0.256',
    '10.0.0.1.2',
    '10.0.0.1/24',
    ' 10.0.0.1',
    '10.0.0.-1',
    '0x0a.0.0.1',
    '167772161',
    'fd00::1%eth0',
    'fd00::/64',
    'fd00:::1',
    'fd00::1::2',
    '1:2:3:4:5:6:7:8:9',
    '1:2:3:4:5:6:7',
    '1:2:3:4::5:6:7:8',
    '1::2:',
    ':1::2',
    '1::00002',
    '[fd00::1]',
    '::ffff:10.0.0.256',
  ];
  test.each(others)('%j is no address', (text) => {
    expect(parseIP(text)).toBeNull();
  });

  test('millions of groups are no address', () => {
    expect(parseIP(`${'1:'.repeat(9_000_000)}1`)).toBeNull();
  });

  test('what it writes it reads as the same', () => {
    const property = fc.property(fc.oneof(fc.ipV4(), fc.ipV6()), (text) => {
      const got = parseIP(text);
      expect(got).not.toBeNull();
      expect(parseIP(got?.text ?? '')).toEqual(got);
    });
    fc.assert(property);
  });
});

describe('canonicalIP', () => {
  const cases: [string, string][] = [
    ['10.0.0.01', '10.0.0.1'],
    ['FD00::1', 'fd00::1'],
    ['example.com', 'example.com'],
    ['', ''],
  ];
  test.each(cases)('%j is %j', (text, want) => {
    expect(canonicalIP(text)).toBe(want);
  });
});

describe('ranges', () => {
  test.each<[string, string, boolean]>([
    ['10.244.0.0/16', '10.244.255.255', true],
    ['10.244.0.0/16', '10.245.0.0', false],
    // Host bits are left out, as Go's parser does.
    ['10.244.7.9/16', '10.244.0.1', true],
    [' 192.0.2.128/25 ', '192.0.2.128', true],
    ['192.0.2.128/25', '192.0.2.127', false],
    ['0.0.0.0/0', '203.0.113.1', true],
    ['0.0.0.0/0', '::1', false],
    ['fd00:10:244::/48', 'fd00:10:244:ffff::1', true],
    ['fd00:10:244::/48', 'fd00:10:245::1', false],
    ['::1/128', '::1', true],
  ])('%s has %s: %j', (range, address, want) => {
    const cidr = parseCIDR(range);
    expect(cidr !== null && isWithinAny(address, [cidr])).toBe(want);
  });

  test.each(['', '10.0.0.0', '10.0.0.0/33', '10.0.0/8', 'fd00::/129', '10.0.0.0/8/8', 'x/1'])(
    '%j is no range',
    (text) => {
      expect(parseCIDR(text)).toBeNull();
    },
  );

  test('an address of a range is within it, and at its offset', () => {
    const address = fc.oneof(fc.ipV4(), fc.ipV6());
    fc.assert(
      fc.property(address, fc.nat(128), fc.bigInt(0n, 2n ** 128n - 1n), (text, length, offset) => {
        const cidr = parseCIDR(
          `${parseIP(text)?.text}/${length % (text.includes(':') ? 129 : 33)}`,
        );
        if (cidr === null) return;
        const { low, high } = cidr;
        const inside = offset % (BigInt(high) - BigInt(low) + 1n);
        const written = addressIn(cidr, inside);
        expect(parseAddress(written)).toBe(
          typeof low === 'number' ? low + Number(inside) : low + inside,
        );
        // An IPv4-mapped address is one of IPv4, so that no range of IPv6 has it.
        expect(isWithinAny(written, [cidr])).toBe(parseIP(written)?.family === cidr.family);
      }),
    );
  });

  test('a port is joined with brackets around IPv6', () => {
    expect([joinHostPort('10.0.0.1', 80), joinHostPort('fd00::1', 80)]).toEqual([
      '10.0.0.1:80',
      '[fd00::1]:80',
    ]);
  });

  test.each(['10.0.0.1', 'fd00::1'])('the IP %s is separated from its port again', (ip) => {
    expect(ipOf(joinHostPort(ip, 80))).toBe(ip);
  });
});

describe('addresses', () => {
  test('come back as they were written, IPv6 as in a URL', () => {
    const property = fc.property(fc.ipV4(), fc.ipV6(), (four, six) => {
      expect(formatAddress(parseAddress(four) ?? 0n)).toBe(four);
      const { hostname } = new URL(`http://[${six}]`);
      expect(`[${formatAddress(parseAddress(six) ?? 0)}]`).toBe(hostname);
    });
    fc.assert(property);
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
