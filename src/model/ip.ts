// IP addresses as upstream parses and prints them: k8s.io/utils/net ParseIPSloppy (leading zeros in
// IPv4 octets are read as decimal) followed by Go's net.IP.String (RFC 5952, and an IPv4-mapped
// IPv6 address is the IPv4 address). Objects keep texts, and rules numbers, which are compared.

/** An IPv4 address is a number, an IPv6 address a bigint: both compare with < and >. */
export type Address = number | bigint;

/** Inclusive at both ends. */
export interface Range<T = Address> {
  readonly low: T;
  readonly high: T;
}

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
  // Longer texts are no addresses, and millions of groups would fill the stack.
  if (plain.length > longestIPv6) return null;
  const gap = plain.indexOf('::');
  const head = gap < 0 ? plain : plain.slice(0, gap);
  const tail = gap < 0 ? '' : plain.slice(gap + 2);
  if (!isGroups(head) || !isGroups(tail)) return null;
  const [high, low] = [digitsOf(head), digitsOf(tail)];
  const missing = 32 - high.length - low.length;
  if (gap < 0 ? missing !== 0 : missing < 4) return null;
  return BigInt(`0x${high}${'0'.repeat(missing)}${low}`);
}

/** Characters of eight groups. */
const longestIPv6 = 39;

/** Groups of an IPv6 address, or nothing. */
const isGroups = (text: string): boolean =>
  text === '' || /^[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4})*$/.test(text);

/** Four digits for each group. */
function digitsOf(text: string): string {
  let digits = '';
  for (let from = 0; from < text.length;) {
    const colon = text.indexOf(':', from);
    const to = colon < 0 ? text.length : colon;
    digits += '0000'.slice(to - from) + text.slice(from, to);
    from = to + 1;
  }
  return digits;
}

/** In canonical form: RFC 5952 for IPv6. */
export function formatAddress(address: Address): string {
  if (typeof address === 'number') {
    return `${address >>> 24}.${(address >>> 16) & 255}.${(address >>> 8) & 255}.${address & 255}`;
  }
  const digits = address.toString(16).padStart(32, '0');
  const groups: string[] = [];
  // The first of the longest runs of zeros.
  let [first, longest, run] = [0, 1, 0];
  for (let at = 0; at < 8; at++) {
    let from = 4 * at;
    while (from < 4 * at + 3 && digits.charCodeAt(from) === 48) from++;
    const group = digits.slice(from, 4 * at + 4);
    groups.push(group);
    run = group === '0' ? run + 1 : 0;
    if (run > longest) [first, longest] = [at - run + 1, run];
  }
  if (longest === 1) return groups.join(':');
  return `${groups.slice(0, first).join(':')}::${groups.slice(first + longest).join(':')}`;
}

/** As upstream: an IPv4-mapped address is the IPv4 address. */
function parseUnmapped(text: string): Address | null {
  const address = parseAddress(text);
  const isMapped = typeof address === 'bigint' && address >> 32n === 0xffffn;
  return isMapped ? Number(address & 0xffffffffn) : address;
}

/** As upstream writes it; `null` if it is no address. Reference: k8s.io/utils@v0 net/parse.go. */
export function parseIP(text: string) {
  const address = parseUnmapped(text);
  if (address === null) return null;
  if (typeof address === 'bigint') return { family: 'IPv6' as const, text: formatAddress(address) };
  return { family: 'IPv4' as const, text: isPlain(text) ? text : formatAddress(address) };
}

/** Digits and dots without leading zeros: if this is an address, it is in canonical form. */
function isPlain(text: string): boolean {
  let wasDot = true;
  let wasLeadingZero = false;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    const isDot = code === 46;
    if (!isDot && (wasLeadingZero || code < 48 || code > 57)) return false;
    wasLeadingZero = wasDot && code === 48;
    wasDot = isDot;
  }
  return true;
}

/** `text` in canonical form; unchanged when it is no address. */
export const canonicalIP = (text: string): string =>
  isPlain(text) ? text : (parseIP(text)?.text ?? text);

/** `v1.IPFamily`. */
export type IPFamily = 'IPv4' | 'IPv6';

/** The family of a text that is an address. */
export const familyOf = (address: string): IPFamily => (address.includes(':') ? 'IPv6' : 'IPv4');

export interface CIDR extends Range {
  readonly family: IPFamily;
}

export const everything: Readonly<Record<IPFamily, CIDR>> = {
  IPv4: { family: 'IPv4', low: 0, high: 0xffffffff },
  IPv6: { family: 'IPv6', low: 0n, high: 2n ** 128n - 1n },
};

/** The network of this prefix length that contains the address; null if it is too long. */
export function networkOf(address: Address, bits: number): Range | null {
  if (typeof address === 'number') {
    if (!(bits >= 0 && bits <= 32)) return null;
    const size = 2 ** (32 - bits);
    const low = address - (address % size);
    return { low, high: low + size - 1 };
  }
  if (!(bits >= 0 && bits <= 128)) return null;
  const size = 1n << BigInt(128 - bits);
  const low = address - (address % size);
  return { low, high: low + size - 1n };
}

/** `text` as ParseCIDRSloppy takes it, blanks around it left out; null when it is no CIDR. */
export function parseCIDR(text: string): CIDR | null {
  const [, host = '', length] = /^([^/]+)\/(\d{1,3})$/.exec(text.trim()) ?? [];
  const address = parseUnmapped(host);
  const range = address === null ? null : networkOf(address, Number(length));
  return range && { family: typeof address === 'number' ? 'IPv4' : 'IPv6', ...range };
}

/** Of an address in canonical form. */
export const isLoopback = (ip: string): boolean => ip === '::1' || ip.startsWith('127.');

export function formatCIDR({ family, low, high }: CIDR): string {
  const bits = (BigInt(high) - BigInt(low) + 1n).toString(2).length - 1;
  return `${formatAddress(low)}/${(family === 'IPv4' ? 32 : 128) - bits}`;
}

export const isWithin = (address: Address, { low, high }: Range): boolean =>
  address >= low && address <= high && typeof address === typeof low;

/** Whether a text is an address in one of the ranges. */
export function isWithinAny(text: string, ranges: readonly Range[]): boolean {
  const address = parseUnmapped(text);
  return address !== null && ranges.some((range) => isWithin(address, range));
}

/** The address that lies `offset` above the first of the range, in canonical form. */
export const addressIn = ({ low }: Range, offset: bigint): string =>
  formatAddress(typeof low === 'number' ? low + Number(offset) : low + offset);

/** `A`, `A/BITS`, `A/MASK` or `A-A` as a range; null for others, and for masks with holes. */
export function parseNetwork(text: string, from = 0, to = text.length): Range | null {
  const slash = text.indexOf('/', from);
  if (slash >= 0 && slash < to) {
    const address = parseAddress(text, from, slash);
    if (address === null) return null;
    const bits = text.slice(slash + 1, to);
    return networkOf(address, /^\d{1,3}$/.test(bits) ? Number(bits) : bitsOfMask(bits));
  }
  const dash = text.indexOf('-', from);
  const isRange = dash >= 0 && dash < to;
  const low = parseAddress(text, from, isRange ? dash : to);
  const high = isRange ? parseAddress(text, dash + 1, to) : low;
  if (low === null || high === null || typeof low !== typeof high || low > high) return null;
  return { low, high };
}

/** The length of a mask written as an address; -1: it is none, or has holes. */
function bitsOfMask(text: string): number {
  const mask = parseAddress(text);
  if (mask === null) return -1;
  const digits = mask.toString(2).padStart(typeof mask === 'number' ? 32 : 128, '0');
  return /^1*0*$/.test(digits) ? digits.lastIndexOf('1') + 1 : -1;
}

/** `ip:port`, with brackets around IPv6: net.JoinHostPort. */
export const joinHostPort = (ip: string, port: number): string =>
  ip.includes(':') ? `[${ip}]:${String(port)}` : `${ip}:${String(port)}`;

/** The IP of `ip:port` or `[ip6]:port`. */
export function ipOf(endpoint: string): string {
  const host = endpoint.slice(0, endpoint.lastIndexOf(':'));
  return host.startsWith('[') ? host.slice(1, -1) : host;
}
