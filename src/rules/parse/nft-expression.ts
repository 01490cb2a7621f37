// Values and elements as nft's JSON writes them (libnftables-json(5), "expressions"), and the keys
// by which it looks them up.

import { networkOf, parseAddress } from '../../model/ip.ts';
import type { Action, Component, Element, LookupKey, Match, PacketField } from '../ruleset.ts';
import { fieldMatch, only } from '../ruleset.ts';
import { protocolNumbers } from './iptables-match.ts';

export type NftFields = Readonly<Record<string, unknown>>;

/** An object with one key says what it is: `{"prefix": {…}}`. Its tag, and its body as fields. */
export function tagOf(value: unknown): readonly [tag: string, body: unknown, fields: NftFields] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return ['', value, {}];
  const [tag, body] = Object.entries(value as NftFields)[0] ?? ['', value];
  return [tag, body, (body ?? {}) as NftFields];
}

/** The members of a list, plain or with this tag; else the value itself. */
export function partsOf(value: unknown, tag: string): readonly unknown[] {
  const [own, body] = tagOf(value);
  const list = own === tag ? body : value;
  return Array.isArray(list) ? (list as unknown[]) : [value];
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
  const [tag, body, fields] = tagOf(value);
  if (tag === '') return scalarOf(body, type);
  if (tag === 'elem') return componentOf(fields.val, type);
  if (tag === 'prefix') {
    const address = parseAddress(String(fields.addr));
    return address === null ? null : networkOf(address, Number(fields.len));
  }
  if (tag !== 'range' || !Array.isArray(body)) return null;
  const [low, high] = body.map((end) => scalarOf(end, type));
  if (!low || !high || typeof low === 'string' || typeof high === 'string') return null;
  return { low: low.low, high: high.high };
}

/**
 * An element; `type`: of the set's components, a set by expressions has none. Of a part that cannot
 * be read the text is kept: nothing equals it.
 */
export function readElement(raw: unknown, type: unknown): Element {
  const types = Array.isArray(type) ? type : [type];
  if (!Array.isArray(raw) || raw.length !== 2) {
    return { key: componentsOf(raw, types), verdict: null, data: null };
  }
  const key = componentsOf(raw[0], types);
  const verdict = verdictOf(raw[1]);
  if (verdict !== null) return { key, verdict, data: null };
  const data = componentsOf(raw[1], []).map((part) =>
    typeof part === 'string' || part.low !== part.high ? '' : part.low,
  );
  return { key, verdict, data };
}

function componentsOf(raw: unknown, types: readonly unknown[]): readonly Component[] {
  const [tag, , { val }] = tagOf(raw);
  if (tag === 'elem') return componentsOf(val, types);
  const typeAt = (at: number): string => (typeof types[at] === 'string' ? types[at] : '');
  const parts = tag === 'concat' ? partsOf(raw, tag) : [raw];
  return parts.map((part, at) => componentOf(part, typeAt(at)) ?? JSON.stringify(part));
}

/** A verdict; null: it is none. */
export function verdictOf(raw: unknown): Action | null {
  const [tag, , { target = '' }] = tagOf(raw);
  switch (tag) {
    case 'accept':
    case 'drop':
    case 'return':
      return { kind: tag };
    case 'continue':
      return { kind: 'note', text: 'continue' };
    case 'jump':
    case 'goto':
      return { kind: tag, chain: String(target) };
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
  const [tag, , fields] = tagOf(expression);
  const key = String(fields.key);
  if (tag === 'payload') return payloadSelector(String(fields.protocol), String(fields.field));
  if (tag === 'meta') return metaSelectors[key] ?? null;
  if (tag !== 'ct') return null;
  if (key === 'mark') return select('connection mark');
  if (key === 'state') return select('state', [], 'state');
  // Of the first packet's own direction; of the reply's nothing is known.
  if (fields.dir !== 'original') return null;
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

function payloadSelector(protocol: string, name: string): Selector | null {
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
  const [tag, , { mod = 1, offset = 0 }] = tagOf(expression);
  // Counting in turn, too, gives each number its share of the connections.
  if (tag === 'numgen') {
    return { key: { kind: 'numgen', modulus: Number(mod), offset: Number(offset) }, guards: [] };
  }
  const parts = tag === 'concat' ? partsOf(expression, tag) : [expression];
  const known = parts.flatMap((part) => selectorOf(part) ?? []);
  if (known.length < parts.length) {
    return { key: { kind: 'unknown', text: JSON.stringify(expression) }, guards: [] };
  }
  const fields = known.map(({ field }) => field);
  return { key: { kind: 'fields', fields }, guards: known.flatMap(({ guards }) => guards) };
}
