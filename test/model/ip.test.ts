// Addresses are read as leniently, and written as strictly, as upstream does.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { addressTypeOf, canonicalIP, isAt, parseIP } from '../../src/model/ip.ts';

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
    expect(isAt(text, want)).toBe(true);
    expect(isAt(text, '10.9.9.9')).toBe(false);
  });
});

describe('addressTypeOf', () => {
  const cases: [string, string | null][] = [
    ['IPv4', 'IPv4'],
    ['IPv6', 'IPv6'],
    ['', null],
    ['ipv4', null],
    ['FQDN', null],
  ];
  test.each(cases)('family %j has slices of type %j', (family, want) => {
    expect(addressTypeOf(family)).toBe(want);
  });
});
