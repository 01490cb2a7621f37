// Addresses are read as leniently, and written as strictly, as upstream does.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import {
  addressIn,
  bitsOf,
  canonicalIP,
  ipOf,
  isWithin,
  joinHostPort,
  parseCIDR,
  parseIP,
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
    // Other addresses with an IPv4 tail are IPv6 and written in hexadecimal.
    ['64:ff9b::10.0.0.1', 'IPv6', '64:ff9b::a00:1'],
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
    '[fd00::1]',
    '::ffff:10.0.0.256',
  ];
  test.each(others)('%j is no address', (text) => {
    expect(parseIP(text)).toBeNull();
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
    const ip = parseIP(address);
    expect(cidr !== null && ip !== null && isWithin(ip, cidr)).toBe(want);
  });

  test.each(['', '10.0.0.0', '10.0.0.0/33', '10.0.0/8', 'fd00::/129', '10.0.0.0/8/8', 'x/1'])(
    '%j is no range',
    (text) => {
      expect(parseCIDR(text)).toBeNull();
    },
  );

  test('an address of a range is within it, and its bits are those of its text', () => {
    const ranges = fc.record({ v6: fc.boolean(), bits: fc.bigInt(0n, 2n ** 128n - 1n) });
    fc.assert(
      fc.property(ranges, fc.nat(128), fc.bigInt(0n, 2n ** 128n - 1n), (one, length, offset) => {
        const size = one.v6 ? 128 : 32;
        const hostBits = BigInt(size - (length % (size + 1)));
        const family = one.v6 ? ('IPv6' as const) : ('IPv4' as const);
        // Below, so that no address is an IPv4-mapped one, which is written as IPv4.
        const network = ((one.bits % 2n ** BigInt(size)) | (1n << BigInt(size - 1))) >> hostBits;
        const cidr = { family, network, hostBits };
        const inside = offset % 2n ** hostBits;
        const ip = parseIP(addressIn(cidr, inside));
        if (hostBits === BigInt(size)) return;
        expect(ip).not.toBeNull();
        if (ip === null) return;
        expect(isWithin(ip, cidr)).toBe(true);
        expect(bitsOf(ip)).toBe((network << hostBits) + inside);
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
