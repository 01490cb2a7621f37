// Replaces IP addresses so that their relations survive: two addresses that share their first bits
// also do so afterwards, and different addresses stay different.
//
// The method is that of Crypto-PAn (Xu, Fan, Ammar, Moon: Prefix-preserving IP address
// anonymization, 2002): each bit is inverted or not, depending on a keyed hash of the bits before
// it. One HMAC-SHA256 decides about all bits of a byte, as a tree of 255 nodes.

import { createHmac } from 'node:crypto';

import {
  type Address,
  formatAddress,
  isWithin,
  parseAddress,
  parseCIDR,
  parseIP,
} from '../../model/ip.ts';

/** They identify no host, and controllers treat some of them differently: they stay. */
const special = [
  '0.0.0.0/8',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '224.0.0.0/3',
  '::/64',
  'fe80::/10',
  'ff00::/8',
].flatMap((text) => parseCIDR(text) ?? []);

const isSpecial = (address: Address): boolean => special.some((range) => isWithin(address, range));

function bytesOf(address: Address): number[] {
  const count = typeof address === 'number' ? 4 : 16;
  const value = BigInt(address);
  return Array.from({ length: count }, (_, at) =>
    Number((value >> BigInt(8 * (count - 1 - at))) & 0xffn),
  );
}

function addressOf(bytes: readonly number[]): Address {
  const value = bytes.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  return bytes.length === 4 ? Number(value) : value;
}

/** Inverts bits of the byte that follows these bytes. */
function replaceByte(key: Uint8Array, before: readonly number[], byte: number, family: number) {
  const digest = createHmac('sha256', key)
    .update(Uint8Array.of(family, ...before))
    .digest();
  let node = 1;
  let replaced = 0;
  for (let at = 7; at >= 0; at--) {
    const bit = (byte >> at) & 1;
    const isInverted = ((digest[node >> 3] ?? 0) >> (node & 7)) & 1;
    replaced = (replaced << 1) | (bit ^ isInverted);
    node = 2 * node + bit;
  }
  return replaced;
}

function replace(key: Uint8Array, address: Address): Address {
  const bytes = bytesOf(address);
  return addressOf(
    bytes.map((byte, at) => replaceByte(key, bytes.slice(0, at), byte, bytes.length)),
  );
}

/** A function that replaces an address; a text that is none becomes `null`. */
export function createAddressRedactor(key: Uint8Array): (text: string) => string | null {
  return (text) => {
    const canonical = parseIP(text);
    if (canonical === null) return null;
    const address = parseAddress(canonical.text);
    if (address === null || isSpecial(address)) return text;
    let replaced = replace(key, address);
    // The result must not look special. The next one belongs to no other address either.
    while (isSpecial(replaced)) replaced = replace(key, replaced);
    return canonical.text === text ? formatAddress(replaced) : uncommonForm(replaced, text);
  };
}

/** An address that was not in canonical form stays so, since the audit reports the form. */
function uncommonForm(address: Address, before: string): string {
  if (typeof address === 'number') {
    const plain = formatAddress(address);
    return before.includes(':') ? `::ffff:${plain}` : `0${plain}`;
  }
  const high = Array.from({ length: 6 }, (_, at) =>
    ((address >> BigInt(112 - 16 * at)) & 0xffffn).toString(16),
  );
  return `${high.join(':')}:${formatAddress(Number(address & 0xffffffffn))}`;
}
