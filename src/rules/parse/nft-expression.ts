// Values and elements as nft's JSON writes them (libnftables-json(5), "expressions"), and the keys
// by which it looks them up.

import { networkOf, parseAddress } from '../address.ts';
import type { Action, Component, Element, LookupKey, Match, PacketField } from '../ruleset.ts';
import { fieldMatch, only } from '../ruleset.ts';
import { protocolNumbers } from './iptables-match.ts';

/** An object with one key says what it is: `{"prefix": {…}}`. */
export function tagOf(value: unknown): readonly [string, unknown] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return ['', value];
  return Object.entries(value)[0] ?? ['', value];
}

const etherTypes: Readonly<Record<string, number>> = { ip: 2, ip6: 10, ipv4: 2, ipv6: 10 };

/** A scalar as a number: an address, a port, a mark, the number of a protocol. */
function scalarOf(value: unknown, type: string): Component | null {
  if (typeof value === 'number') return only(value);
  if (typeof value !== 'string') return null;
  if (value === '*' || type === 'ifname' || type === 'state') return value;
  if (type === 'nfproto') return value in etherTypes ? only(etherTypes[value] ?? 0) : null;
  const address = parseAddress(value);
  if (address !== null) return only(address);
  const number = protocolNumbers[value] ?? Number(value);
  if (!Number.isNaN(number)) return only(number);
  return type === '' ? value : null;
}

/** A scalar, a prefix or a range; null: it is none of these. */
export function componentOf(value: unknown, type: string): Component | null {
  const [tag, body] = tagOf(value);
  if (tag === '') return scalarOf(body, type);
  if (tag === 'elem') return componentOf((body as { val?: unknown }).val, type);
  if (tag === 'prefix') {
    const { addr, len } = body as { addr?: string; len?: number };
    const address = parseAddress(addr ?? '');
    return address === null ? null : networkOf(address, len ?? -1);
  }
  if (tag !== 'range' || !Array.isArray(body)) return null;
  const [low, high] = body.map((end) => scalarOf(end, type));
  if (!low || !high || typeof low === 'string' || typeof high === 'string') return null;
  return { low: low.low, high: high.high };
}

/** The types of a set's components: the listing has none for a set by expressions. */
const typesOf = (type: unknown): readonly string[] =>
  Array.isArray(type) ? type.map(String) : typeof type === 'string' ? [type] : [];

/** Of a part that cannot be read the text is kept: nothing equals it. */
export function readElement(raw: unknown, type: unknown): Element {
  const isPair = Array.isArray(raw) && raw.length === 2;
  const key = componentsOf(isPair ? raw[0] : raw, typesOf(type));
  if (!isPair) return { key, verdict: null, data: null };
  const verdict = verdictOf(raw[1]);
  const data = verdict === null ? componentsOf(raw[1], []) : [];
  const values = data.map((part) =>
    typeof part === 'string' || part.low !== part.high ? '' : part.low,
  );
  return { key, verdict, data: verdict === null ? values : null };
}

function componentsOf(raw: unknown, types: readonly string[]): readonly Component[] {
  const [tag, body] = tagOf(raw);
  if (tag === 'elem') return componentsOf((body as { val?: unknown }).val, types);
  const parts = tag === 'concat' && Array.isArray(body) ? (body as unknown[]) : [raw];
  return parts.map((part, at) => componentOf(part, types[at] ?? '') ?? JSON.stringify(part));
}

/** A verdict; null: it is none. */
export function verdictOf(raw: unknown): Action | null {
  const [tag, body] = tagOf(raw);
  switch (tag) {
    case 'accept':
    case 'drop':
    case 'return':
      return { kind: tag };
    case 'continue':
      return { kind: 'note', text: 'continue' };
    case 'jump':
    case 'goto':
      return { kind: tag, chain: (body as { target?: string } | null)?.target ?? '' };
    case 'queue':
      return { kind: 'unknown verdict', text: JSON.stringify(raw) };
    default:
      return null;
  }
}

/** What an expression reads, and what must hold of a packet for it to have that. */
export interface Selector {
  readonly field: PacketField | 'in' | 'out' | 'state';
  readonly type: string;
  readonly guards: readonly Match[];
}

export const guard = (field: PacketField, number: number): Match =>
  fieldMatch(field, [only(number)]);

/** That the packet is of the family whose header, or selector, has this name. */
export const familyGuard = (name: string): Match =>
  guard('nfproto', name.startsWith('ip6') ? 10 : 2);

const select = (field: Selector['field'], guards: readonly Match[] = [], type = ''): Selector => ({
  field,
  type,
  guards,
});

/** What the expression selects; null: it is not modelled. */
export function selectorOf(expression: unknown): Selector | null {
  const [tag, body] = tagOf(expression);
  const { key = '', dir } = (body ?? {}) as { key?: string; dir?: string };
  if (tag === 'payload') return payloadSelector(body as { protocol?: string; field?: string });
  if (tag === 'meta') return metaSelectors[key] ?? null;
  if (tag !== 'ct') return null;
  if (key === 'mark') return select('connection mark');
  if (key === 'state') return select('state', [], 'state');
  // Of the first packet's own direction; of the reply's nothing is known.
  if (dir !== 'original') return null;
  if (key === 'proto-dst') return select('original destination port');
  const isAddress = key === 'ip daddr' || key === 'ip6 daddr';
  return isAddress ? select('original destination', [familyGuard(key)]) : null;
}

const metaSelectors: Readonly<Record<string, Selector>> = {
  l4proto: select('protocol'),
  nfproto: select('nfproto', [], 'nfproto'),
  protocol: select('nfproto', [], 'nfproto'),
  mark: select('mark'),
  iifname: select('in', [], 'ifname'),
  oifname: select('out', [], 'ifname'),
  iif: select('in', [], 'ifname'),
  oif: select('out', [], 'ifname'),
};

const headerFields: Readonly<Record<string, PacketField>> = {
  saddr: 'source',
  daddr: 'destination',
  protocol: 'protocol',
  nexthdr: 'protocol',
};

const transportFields: Readonly<Record<string, PacketField>> = {
  dport: 'destination port',
  sport: 'source port',
};

const transports = ['tcp', 'udp', 'sctp', 'dccp', 'udplite'];

function payloadSelector({
  protocol = '',
  field: name = '',
}: {
  protocol?: string;
  field?: string;
}) {
  if (protocol === 'ip' || protocol === 'ip6') {
    const field = headerFields[name];
    return field === undefined ? null : select(field, [familyGuard(protocol)]);
  }
  if (protocol !== 'th' && !transports.includes(protocol)) return null;
  const isFlags = protocol === 'tcp' && name === 'flags';
  const field = isFlags ? 'tcp flags' : transportFields[name];
  const guards = protocol === 'th' ? [] : [guard('protocol', protocolNumbers[protocol] ?? 0)];
  return field === undefined ? null : select(field, guards);
}

/** A key of a map or a set, and what must hold for it to exist. */
export function keyOf(expression: unknown): { key: LookupKey; guards: readonly Match[] } {
  const [tag, body] = tagOf(expression);
  if (tag === 'numgen') {
    // Counting in turn, too, gives each number its share of the connections.
    const { mod = 1, offset = 0 } = body as { mod?: number; offset?: number };
    return { key: { kind: 'numgen', modulus: mod, offset }, guards: [] };
  }
  const parts = tag === 'concat' && Array.isArray(body) ? (body as unknown[]) : [expression];
  const selectors = parts.map(selectorOf);
  const known = selectors.filter((selector) => selector !== null);
  if (known.length < parts.length) {
    return { key: { kind: 'unknown', text: JSON.stringify(expression) }, guards: [] };
  }
  const fields = known.map(({ field }) => field);
  return { key: { kind: 'fields', fields }, guards: known.flatMap(({ guards }) => guards) };
}
