// Redacted addresses: prefixes that two of them share survive, and nothing else does.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { createAddressRedactor } from '../../../src/cluster/files/redact-address.ts';
import { canonicalIP, formatAddress, parseAddress, parseIP } from '../../../src/model/ip.ts';

describe('an address', () => {
  const [redact, other] = ['one', 'other'].map((key) => createAddressRedactor(Buffer.from(key)));
  const redactor = { address: (text: string): string => redact?.(text) ?? '' };
  const commonBits = (a: string, b: string): number => {
    const [x, y] = [a, b].map((text) => BigInt(parseAddress(text) ?? -1));
    const bits = a.includes(':') ? 128 : 32;
    return bits - ((x ?? 0n) ^ (y ?? 0n) || 0n).toString(2).replace(/^0$/, '').length;
  };

  test('shares with another one as many bits as before, from 16 on', () => {
    const near = fc.tuple(fc.ipV4(), fc.nat(65_535)).map(([text, change]) => {
      const address = Number(parseAddress(text));
      return [formatAddress(address), formatAddress((address ^ change) >>> 0)] as const;
    });
    fc.assert(
      fc.property(near, ([a, b]) => {
        const [x, y] = [redactor.address(a), redactor.address(b)];
        expect(commonBits(x, y)).toBe(commonBits(a, b));
        expect(parseIP(x)?.family).toBe('IPv4');
      }),
    );
    const [a, b] = ['2001:db8::1', '2001:db8::1:0'].map((text) => redactor.address(text));
    expect(commonBits(a ?? '', b ?? '')).toBe(111);
  });

  test('is another one, except for those that identify no host', () => {
    for (const text of ['10.1.0.1', '192.0.2.7', '2001:db8::1', '10.01.0.1', '::ffff:10.1.0.1']) {
      const shown = redactor.address(text);
      expect(shown).not.toBe(text);
      expect(other?.(text)).not.toBe(shown);
      expect(canonicalIP(shown) === shown).toBe(canonicalIP(text) === text);
    }
    expect(canonicalIP(redactor.address('10.01.0.1'))).toBe(redactor.address('10.1.0.1'));
    expect(redactor.address('2001:DB8::1')).not.toBe(redactor.address('2001:db8::1'));
    for (const text of ['127.0.0.1', '169.254.1.2', '0.0.0.0', '::1', 'fe80::1']) {
      expect(redactor.address(text)).toBe(text);
    }
    expect(redact?.('db.acme.com')).toBeNull();
  });
});
