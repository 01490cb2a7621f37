// Values and elements as nft's JSON writes them (libnftables-json(5), "expressions"), and the keys
// by which it looks them up.

import { networkOf, parseAddress } from '../address.ts';
import type {
  Action,
  Component,
  Element,
  PacketField,
  LookupKey,
  Match,
  Range,
} from '../ruleset.ts';
import { protocolNumbers } from './iptables-match.ts';

/** An object with one key says what it is: `{"prefix": {…}}`. */
export function tagOf(value: unknown): readonly [string, unknown] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return ['', value];
  return Object.entries(value)[0] ?? ['', value];
}

const one = (value: number | bigint): Range => ({ low: value, high: value });

const etherTypes: Readonly<Record<string, number>> = { ip: 2, ip6: 10, ipv4: 2, ipv6: 10 };

/** A scalar as a number: an address, a port, a mark, the number of a protocol. */
function scalarOf(value: unknown, type: string): Component | null {
  if (typeof value === 'number') return one(value);
  if (typeof value !== 'string') return null;
  if (value === '*' || type === 'ifname' || type === 'state') return value;
  if (type === 'nfproto') return value in etherTypes ? one(etherTypes[value] ?? 0) : null;
  const address = parseAddress(value);
  if (address !== null) return one(address);
  const number = protocolNumbers[value] ?? Number(value);
  if (!Number.isNaN(number)) return one(number);
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

export const guard = (field: PacketField, number: number): Match => ({
  kind: 'field',
  field,
  mask: null,
  ranges: [one(number)],
  negate: false,
});

/** That the packet is of the family whose header, or selector, has this name. */
export const familyGuard = (name: string): Match =>
  guard('nfproto', name.startsWith('ip6') ? 10 : 2);

const transports = ['tcp', 'udp', 'sctp', 'dccp', 'udplite'];

/** What the expression selects; null: it is not modelled. */
export function selectorOf(expression: unknown): Selector | null {
  const [tag, body] = tagOf(expression);
  const { key = '' } = (body ?? {}) as { key?: string };
  switch (tag) {
    case 'payload':
      return payloadSelector(body as { protocol?: string; field?: string });
    case 'meta':
      return metaSelectors[key] ?? null;
    case 'ct':
      return conntrackSelector(key, (body as { dir?: string }).dir);
    default:
      return null;
  }
}

/** What an entry holds of the first packet's own direction; of the reply's nothing is known. */
function conntrackSelector(key: string, direction: string | undefined): Selector | null {
  if (key === 'mark') return { field: 'connection mark', type: '', guards: [] };
  if (key === 'state') return { field: 'state', type: 'state', guards: [] };
  if (direction !== 'original') return null;
  switch (key) {
    case 'ip daddr':
    case 'ip6 daddr':
      return { field: 'original destination', type: '', guards: [familyGuard(key)] };
    case 'proto-dst':
      return { field: 'original destination port', type: '', guards: [] };
    default:
      return null;
  }
}

const metaSelectors: Readonly<Record<string, Selector>> = {
  l4proto: { field: 'protocol', type: '', guards: [] },
  nfproto: { field: 'nfproto', type: 'nfproto', guards: [] },
  protocol: { field: 'nfproto', type: 'nfproto', guards: [] },
  mark: { field: 'mark', type: '', guards: [] },
  iifname: { field: 'in', type: 'ifname', guards: [] },
  oifname: { field: 'out', type: 'ifname', guards: [] },
  iif: { field: 'in', type: 'ifname', guards: [] },
  oif: { field: 'out', type: 'ifname', guards: [] },
};

function payloadSelector({ protocol = '', field = '' }: { protocol?: string; field?: string }) {
  const select = (name: PacketField, guards: readonly Match[]): Selector => ({
    field: name,
    type: '',
    guards,
  });
  if (protocol === 'ip' || protocol === 'ip6') {
    const guards = [familyGuard(protocol)];
    if (field === 'saddr') return select('source', guards);
    if (field === 'daddr') return select('destination', guards);
    return field === 'protocol' || field === 'nexthdr' ? select('protocol', guards) : null;
  }
  if (protocol !== 'th' && !transports.includes(protocol)) return null;
  const guards = protocol === 'th' ? [] : [guard('protocol', protocolNumbers[protocol] ?? 0)];
  if (field === 'dport') return select('destination port', guards);
  if (field === 'sport') return select('source port', guards);
  return protocol === 'tcp' && field === 'flags' ? select('tcp flags', guards) : null;
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
