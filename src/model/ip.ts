// IP addresses as upstream parses and prints them: k8s.io/utils/net ParseIPSloppy (leading zeros in
// IPv4 octets are read as decimal) followed by Go's net.IP.String (RFC 5952, and an IPv4-mapped
// IPv6 address is the IPv4 address). Zones play no role for endpoints.

import ipaddr from 'ipaddr.js';

export interface IP {
  readonly family: 'IPv4' | 'IPv6';
  /** The form that upstream writes. */
  readonly text: string;
}

const sloppyIPv4 = /^\d+\.\d+\.\d+\.\d+$/;
const hexIPv6 = /^[0-9a-fA-F:.]+$/;

/** Parses an address, or says null: it is none. Reference: k8s.io/utils@v0 net/parse.go. */
export function parseIP(text: string): IP | null {
  if (isPlainIPv4(text)) return { family: 'IPv4', text };
  if (sloppyIPv4.test(text)) {
    const octets = text.split('.').map(Number);
    return octets.every((octet) => octet <= 255)
      ? { family: 'IPv4', text: octets.join('.') }
      : null;
  }
  if (!text.includes(':') || !hexIPv6.test(text) || !ipaddr.IPv6.isValid(text)) return null;
  const address = ipaddr.IPv6.parse(text);
  return address.isIPv4MappedAddress()
    ? { family: 'IPv4', text: address.toIPv4Address().toString() }
    : { family: 'IPv6', text: address.toRFC5952String() };
}

/** Whether the text is an IPv4 address as upstream writes it. */
function isPlainIPv4(text: string): boolean {
  let octet = -1;
  let dots = 0;
  for (let index = 0; index < text.length; index++) {
    const digit = text.charCodeAt(index) - 48;
    if (digit >= 0 && digit <= 9) {
      if (octet === 0) return false;
      octet = octet < 0 ? digit : octet * 10 + digit;
      if (octet > 255) return false;
    } else if (digit === -2 && octet >= 0) {
      octet = -1;
      dots++;
    } else return false;
  }
  return dots === 3 && octet >= 0;
}

/** `text` in canonical form; unchanged when it is no address. */
export function canonicalIP(text: string): string {
  if (isPlainIPv4(text)) return text;
  return parseIP(text)?.text ?? text;
}

/** A range of addresses of one family. */
export interface CIDR {
  readonly family: 'IPv4' | 'IPv6';
  /** The address above the host bits. */
  readonly network: bigint;
  readonly hostBits: bigint;
}

/** The bits of an address that `parseIP` returned. */
export function bitsOf({ family, text }: IP): bigint {
  if (family === 'IPv4') {
    return BigInt(text.split('.').reduce((bits, octet) => bits * 256 + Number(octet), 0));
  }
  const bytes = ipaddr.IPv6.parse(text).toByteArray();
  return bytes.reduce((bits, byte) => bits * 256n + BigInt(byte), 0n);
}

/** `text` as ParseCIDRSloppy takes it, blanks around it left out; null when it is no CIDR. */
export function parseCIDR(text: string): CIDR | null {
  const [address = '', length = '', ...rest] = text.trim().split('/');
  const ip = parseIP(address);
  if (ip === null || rest.length > 0 || !/^\d{1,3}$/.test(length)) return null;
  const size = ip.family === 'IPv4' ? 32 : 128;
  if (Number(length) > size) return null;
  const hostBits = BigInt(size - Number(length));
  return { family: ip.family, network: bitsOf(ip) >> hostBits, hostBits };
}

export function isWithin(ip: IP, { family, network, hostBits }: CIDR): boolean {
  return ip.family === family && bitsOf(ip) >> hostBits === network;
}

/** Whether a text is an address in one of the ranges. */
export function isWithinAny(text: string, ranges: readonly CIDR[]): boolean {
  const ip = parseIP(text);
  return ip !== null && ranges.some((range) => isWithin(ip, range));
}

/** The address that lies `offset` above the first of the range, in canonical form. */
export function addressIn({ family, network, hostBits }: CIDR, offset: bigint): string {
  const bits = (network << hostBits) + offset;
  const size = family === 'IPv4' ? 4 : 16;
  const bytes = Array.from({ length: size }, (_, index) =>
    Number((bits >> BigInt(8 * (size - 1 - index))) & 255n),
  );
  const address = ipaddr.fromByteArray(bytes);
  return address instanceof ipaddr.IPv6 ? address.toRFC5952String() : address.toString();
}

/** `ip:port`, with brackets around IPv6: net.JoinHostPort. */
export function joinHostPort(ip: string, port: number): string {
  return ip.includes(':') ? `[${ip}]:${String(port)}` : `${ip}:${String(port)}`;
}

/** The IP of `ip:port` or `[ip6]:port`. */
export function ipOf(endpoint: string): string {
  const host = endpoint.slice(0, endpoint.lastIndexOf(':'));
  return host.startsWith('[') ? host.slice(1, -1) : host;
}
