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

/** The types of nft whose words are read as those of another type. */
const readAs: Readonly<Record<string, string>> = {
  ct_state: 'state',
  iface_index: 'ifname',
  ether_type: 'nfproto',
  nf_proto: 'nfproto',
};

/** The types of a set's components, by the expression of its key. */
export const typesOfKey = (expression: unknown): readonly string[] =>
  keyParts(expression).map((part) => selectorOf(part)?.type ?? '');

/** The types of a set's components: names, or `typeof` with the expression of the key. */
export function typesOf(type: unknown): readonly string[] {
  const [tag, expression] = tagOf(type);
  if (tag === 'typeof') return typesOfKey(expression);
  const names: readonly unknown[] = Array.isArray(type) ? type : [type];
  return names.map((name) => (typeof name === 'string' ? (readAs[name] ?? name) : ''));
}

/** `types`: of the set's components. Of a part that cannot be read the text is kept. */
export function readElement(raw: unknown, types: readonly string[]): Element {
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

function componentsOf(raw: unknown, types: readonly string[]): readonly Component[] {
  const [tag, , { val }] = tagOf(raw);
  if (tag === 'elem') return componentsOf(val, types);
  return keyParts(raw).map(
    (part, at) => componentOf(part, types[at] ?? '') ?? JSON.stringify(part),
  );
}

const keyParts = (raw: unknown): readonly unknown[] =>
  tagOf(raw)[0] === 'concat' ? partsOf(raw, 'concat') : [raw];

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

const ip = [familyGuard('ip')];
const ip6 = [familyGuard('ip6')];

/** By the words of nft for them. Of conntrack's reply direction nothing is known. */
const selectors: Readonly<Record<string, Selector>> = {
  'meta l4proto': select('protocol'),
  'meta nfproto': select('nfproto', [], 'nfproto'),
  'meta protocol': select('nfproto', [], 'nfproto'),
  'meta mark': select('mark'),
  'meta iifname': select('in', [], 'ifname'),
  'meta oifname': select('out', [], 'ifname'),
  'meta iif': select('in', [], 'ifname'),
  'meta oif': select('out', [], 'ifname'),
  'ct mark': select('connection mark'),
  'ct state': select('state', [], 'state'),
  'ct original proto-dst': select('original destination port'),
  'ct original ip daddr': select('original destination', ip),
  'ct original ip6 daddr': select('original destination', ip6),
  'ip saddr': select('source', ip),
  'ip daddr': select('destination', ip),
  'ip protocol': select('protocol', ip),
  'ip6 saddr': select('source', ip6),
  'ip6 daddr': select('destination', ip6),
  'ip6 nexthdr': select('protocol', ip6),
  'tcp flags': select('tcp flags', [guard('protocol', 6)]),
};

const ports: Readonly<Record<string, PacketField>> = {
  dport: 'destination port',
  sport: 'source port',
};
const transports = ['th', 'tcp', 'udp', 'sctp', 'dccp', 'udplite'];

/** What the expression selects; null: it is not modelled. */
export function selectorOf(expression: unknown): Selector | null {
  const [tag, , fields] = tagOf(expression);
  if (tag !== 'payload') {
    const { dir, key } = fields;
    return selectors[[tag, ...(dir === undefined ? [] : [dir]), key].join(' ')] ?? null;
  }
  const [protocol, name] = [String(fields.protocol), String(fields.field)];
  const port = transports.includes(protocol) ? ports[name] : undefined;
  if (port === undefined) return selectors[`${protocol} ${name}`] ?? null;
  return select(port, protocol === 'th' ? [] : [guard('protocol', protocolNumbers[protocol] ?? 0)]);
}

/** A key of a map or a set, and what must hold for it to exist. */
export function keyOf(expression: unknown): { key: LookupKey; guards: readonly Match[] } {
  const [tag, , { mod = 1, offset = 0 }] = tagOf(expression);
  // Counting in turn, too, gives each number its share of the connections.
  if (tag === 'numgen') {
    return { key: { kind: 'numgen', modulus: Number(mod), offset: Number(offset) }, guards: [] };
  }
  const parts = keyParts(expression);
  const known = parts.flatMap((part) => selectorOf(part) ?? []);
  if (known.length < parts.length) {
    return { key: { kind: 'unknown', text: JSON.stringify(expression) }, guards: [] };
  }
  const fields = known.map(({ field }) => field);
  return { key: { kind: 'fields', fields }, guards: known.flatMap(({ guards }) => guards) };
}
