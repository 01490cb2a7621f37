// Addresses as numbers, so that a rule's networks and ranges compare as fast as they must: a dump
// of a large node has half a million of them. model/ip.ts keeps texts, which is right for objects;
// here the forms are those that iptables-save and nft print, and nothing looser.

import type { Address, Family, Range } from './ruleset.ts';

/** The address between two offsets of a text; null if the text there is no address. */
export function parseAddress(text: string, from = 0, to = text.length): Address | null {
  let value = 0;
  let octet = -1;
  let dots = 0;
  for (let at = from; at < to; at++) {
    const digit = text.charCodeAt(at) - 48;
    if (digit >= 0 && digit <= 9) {
      octet = octet < 0 ? digit : octet * 10 + digit;
      if (octet > 255) return parseIPv6(text.slice(from, to));
    } else if (digit === -2 && octet >= 0) {
      value = value * 256 + octet;
      octet = -1;
      dots++;
    } else return parseIPv6(text.slice(from, to));
  }
  return dots === 3 && octet >= 0 ? value * 256 + octet : null;
}

function parseIPv6(text: string): bigint | null {
  const lastColon = text.lastIndexOf(':');
  if (lastColon < 0) return null;
  let plain = text;
  if (text.includes('.')) {
    const tail = parseAddress(text, lastColon + 1);
    if (typeof tail !== 'number') return null;
    const [high, low] = [Math.floor(tail / 65536), tail % 65536];
    plain = `${text.slice(0, lastColon + 1)}${high.toString(16)}:${low.toString(16)}`;
  }
  const halves = plain.split('::');
  if (halves.length > 2) return null;
  const [head, tail] = halves.map((half) => (half === '' ? [] : half.split(':')));
  if (head === undefined) return null;
  const missing = 8 - head.length - (tail?.length ?? 0);
  if (tail === undefined ? missing !== 0 : missing < 1) return null;
  let value = 0n;
  for (const group of [
    ...head,
    ...Array<string>(Math.max(missing, 0)).fill('0'),
    ...(tail ?? []),
  ]) {
    if (!/^[0-9a-fA-F]{1,4}$/.test(group)) return null;
    value = (value << 16n) | BigInt(Number.parseInt(group, 16));
  }
  return value;
}

/** The number that is all of this part of a text; null: it is none. */
export function digitsAt(text: string, from: number, to: number): number | null {
  let value = 0;
  for (let at = from; at < to; at++) {
    const digit = text.charCodeAt(at) - 48;
    if (!(digit >= 0 && digit <= 9)) return null;
    value = value * 10 + digit;
  }
  return from < to ? value : null;
}

/** `A`, `A/BITS`, `A/MASK` or `A-A` as a range; null for others, and for masks with holes. */
export function parseNetwork(text: string, from = 0, to = text.length): Range | null {
  const slash = text.indexOf('/', from);
  if (slash >= 0 && slash < to) {
    const address = parseAddress(text, from, slash);
    if (address === null) return null;
    const bits = to - slash > 4 ? null : digitsAt(text, slash + 1, to);
    return networkOf(address, bits ?? bitsOfMask(text.slice(slash + 1, to)));
  }
  const dash = text.indexOf('-', from);
  if (dash >= 0 && dash < to) {
    const low = parseAddress(text, from, dash);
    const high = parseAddress(text, dash + 1, to);
    if (low === null || high === null || typeof low !== typeof high || low > high) return null;
    return { low, high };
  }
  const address = parseAddress(text, from, to);
  return address === null ? null : { low: address, high: address };
}

/** The network of this prefix length that contains the address; null if it is too long. */
export function networkOf(address: Address, bits: number): Range | null {
  if (typeof address === 'number') {
    if (!(bits >= 0 && bits <= 32)) return null;
    if (bits === 32) return { low: address, high: address };
    const size = 2 ** (32 - bits);
    const low = address - (address % size);
    return { low, high: low + size - 1 };
  }
  if (!(bits >= 0 && bits <= 128)) return null;
  const size = 1n << BigInt(128 - bits);
  const low = address - (address % size);
  return { low, high: low + size - 1n };
}

/** The length of a mask written as an address; -1: it is none, or has holes. */
function bitsOfMask(text: string): number {
  const mask = parseAddress(text);
  if (mask === null) return -1;
  const width = typeof mask === 'number' ? 32 : 128;
  const digits = mask.toString(2).padStart(width, '0');
  return /^1*0*$/.test(digits) ? digits.lastIndexOf('1') + 1 : -1;
}

export const familyOf = (address: Address): Family => (typeof address === 'number' ? 'ip' : 'ip6');

/** In canonical form: RFC 5952 for IPv6. */
export function formatAddress(address: Address): string {
  if (typeof address === 'number') {
    return `${address >>> 24}.${(address >>> 16) & 255}.${(address >>> 8) & 255}.${address & 255}`;
  }
  const groups = Array.from({ length: 8 }, (_, index) =>
    ((address >> BigInt(112 - 16 * index)) & 0xffffn).toString(16),
  );
  const [longest = ''] = [...`:${groups.join(':')}:`.matchAll(/(?::0(?=:)){2,}/g)]
    .map(([zeros]) => zeros)
    .sort((a, b) => b.length - a.length);
  if (longest === '') return groups.join(':');
  return `:${groups.join(':')}:`.replace(longest, ':').replace(/^:(?!:)|(?<!:):$/g, '');
}

/** As upstream writes a destination: `ip:port` or `[ip6]:port`. */
export function formatEndpoint(address: Address, port: number): string {
  const text = formatAddress(address);
  return typeof address === 'number' ? `${text}:${port}` : `[${text}]:${port}`;
}
