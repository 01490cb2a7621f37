// Parses rules of nft's JSON (libnftables-json(5), "statements"). An unknown statement is an
// unknown verdict; an unknown expression makes its match unknown. Extensions of iptables appear as
// `xt` with the name alone, without options of a match or the destination of a target.

import { everything, type Range } from '../../model/ip.ts';
import type { Action, ElementSet, LookupKey, Match, Rule, Statement, Table } from '../ruleset.ts';
import { fieldMatch, only } from '../ruleset.ts';
import { tcpFlags } from './iptables-match.ts';
import { noteTargets, targetOf } from './iptables-rule.ts';
import type { NftFields, Selector } from './nft-expression.ts';
import {
  componentOf,
  familyGuard,
  guard,
  keyOf,
  partsOf,
  readElement,
  selectorOf,
  tagOf,
  typesOfKey,
  verdictOf,
} from './nft-expression.ts';

export interface RawRule {
  readonly chain: string;
  readonly comment?: string;
  readonly expr: readonly unknown[];
}

/** A table, and the bits of marks that targets of iptables may change in it. */
export interface NftTable extends Table {
  readonly markBits: () => number;
}

/** Reads a rule of this table. Never throws: what it cannot read is unknown. */
export function readRule(raw: RawRule, table: NftTable): Rule {
  const statements = raw.expr.flatMap((expression) => statementsOf(expression, table));
  const shown =
    table.family === 'inet' ? statements : statements.filter((statement) => !isFamily(statement));
  const text = JSON.stringify(raw.comment === undefined ? raw.expr : [raw.comment, ...raw.expr]);
  return { statements: shown, text };
}

const isFamily = (statement: Statement): boolean =>
  statement.kind === 'field' && statement.field === 'nfproto' && !statement.negate;

const notes = [
  ...['counter', 'log', 'last', 'comment', 'dup', 'flow', 'secmark'],
  ...['ct helper', 'ct timeout', 'ct expectation'],
];

const unknown = (text: string): Match[] => [{ kind: 'unknown', text }];

function statementsOf(expression: unknown, table: NftTable): readonly Statement[] {
  const [tag, , fields] = tagOf(expression);
  const text = JSON.stringify(expression);
  if (notes.includes(tag)) return [{ kind: 'note', text }];
  const verdict = verdictOf(expression);
  if (verdict !== null) return [verdict];
  switch (tag) {
    case 'match':
      return matchesOf(fields as unknown as RawMatch, table, text);
    case 'limit':
    case 'quota':
    case 'ct count':
      return unknown(text);
    case 'reject':
      return [...rejectGuards(fields), { kind: 'reject', text }];
    case 'notrack':
      return [{ kind: 'notrack' }];
    case 'mangle':
      return [mangleOf(fields, text)];
    case 'set':
      return [setStatement(fields, text)];
    case 'vmap': {
      const { key, guards } = keyOf(fields.key);
      const set = setOf(fields.data, fields.key, table);
      if (set === null) return [{ kind: 'unknown verdict', text }];
      return [...guards, { kind: 'verdict map', key, set }];
    }
    case 'dnat':
    case 'snat':
      return [...familyGuards(fields), ...translationOf(tag, fields, table, text)];
    case 'masquerade': {
      const random = flagsOf(fields).length > 0 || fields.port !== undefined;
      return [{ kind: 'masquerade', random, text }];
    }
    case 'redirect': {
      const ports = portsOf(fields.port);
      const isKnown = fields.port === undefined || ports !== null;
      return [isKnown ? { kind: 'redirect', ports, text } : { kind: 'dnat', to: null, text }];
    }
    case 'xt':
      return [extensionOf(fields, table, text)];
    default:
      return [{ kind: 'unknown verdict', text }];
  }
}

/** What nft asks before it rejects in the way of one protocol, and does not list. */
function rejectGuards({ type }: NftFields): readonly Match[] {
  if (type === 'tcp reset') return [guard('protocol', 6)];
  const family = { icmp: 'ip', icmpv6: 'ip6' }[String(type)];
  return familyGuards({ family });
}

/** `dnat ip to` leaves packets of the other family alone. */
function familyGuards({ family }: NftFields): readonly Match[] {
  return family === 'ip' || family === 'ip6' ? [familyGuard(family)] : [];
}

interface RawMatch {
  readonly op: string;
  readonly left: unknown;
  readonly right: unknown;
}

function matchesOf(raw: RawMatch, table: Table, text: string): readonly Match[] {
  const { op, left, right } = raw;
  const negate = op === '!=';
  if (typeof right === 'string' && right.startsWith('@')) {
    return setMatch(left, table.sets.get(right.slice(1)) ?? null, negate, text);
  }
  const [tag, , fields] = tagOf(left);
  const special = specialMatch(tag, fields, raw);
  if (special !== null) return special;
  if (tag === '&') {
    const [masked, mask] = partsOf(left, tag);
    return statusMatch(masked, mask, raw) ?? bitsMatch(masked, bitsOf(mask), raw, text);
  }
  if (tag === 'concat') return setMatch(left, anonymous(right, left), negate, text);
  const selector = selectorOf(left);
  if (selector === null) {
    // Headers of other protocols; a negation does not make them appear.
    const isAbsent = tag === 'payload' && others.includes(String(fields.protocol));
    return isAbsent ? [{ kind: 'never', text }] : unknown(text);
  }
  if (selector.field === 'tcp flags') {
    return bitsMatch(left, op === 'in' || op === '' ? bitsOf(right) : 0xff, raw, text);
  }
  return [...selector.guards, valueMatch(selector, raw, text)];
}

const others = ['icmp', 'icmpv6', 'igmp', 'ah', 'esp', 'comp', 'arp'];

function specialMatch(tag: string, fields: NftFields, match: RawMatch): Match[] | null {
  const { op, left, right } = match;
  const negate = op === '!=' || op === '!';
  const words = wordsOf(right);
  switch (tag === 'ct' || tag === 'meta' ? `${tag} ${String(fields.key)}` : tag) {
    case 'ct state':
      return words.length === 0 ? null : [{ kind: 'state', states: words, negate }];
    case 'ct status': {
      // `in` and `!` test bits. The others compare the whole, where NAT sets bits without a name.
      const isWhole = op !== 'in' && op !== '!';
      return words.length === 0 ? null : entryMatch(isWhole ? [] : words, negate);
    }
    case 'ct direction':
      return words.length === 0 ? null : entryMatch(words, negate);
    case 'fib': {
      const [side, ...more] = flagsOf(fields);
      if (fields.result !== 'type' || more.length > 0) return null;
      if (side !== 'saddr' && side !== 'daddr') return null;
      return addressType(side === 'saddr' ? 'source' : 'destination', words, negate);
    }
    case 'payload': {
      // An ordinary packet has more than two hops left; how many more is unknown.
      const most = { '<': 3, '<=': 2, '==': 2 }[op] ?? -1;
      const isHops = fields.field === 'ttl' || fields.field === 'hoplimit';
      const isNever = isHops && typeof right === 'number' && right <= most;
      return isNever ? [{ kind: 'never', text: JSON.stringify({ op, left, right }) }] : null;
    }
    case 'meta pkttype': {
      const isKnown = words.every((type) => type === 'multicast' || type === 'broadcast');
      return isKnown ? addressType('destination', words, negate) : null;
    }
    case 'numgen': {
      if (typeof right !== 'number') return null;
      const { mod = 1, offset = 0 } = fields as { mod?: number; offset?: number };
      const below = { '<': right - offset, '<=': right - offset + 1, '==': 1 }[op];
      if (below === undefined) return null;
      const probability = Math.min(Math.max(below / mod, 0), 1);
      return [{ kind: 'random', probability, every: null }];
    }
    default:
      return null;
  }
}

const addressType = (
  side: 'source' | 'destination',
  types: readonly string[],
  negate: boolean,
): Match[] => [{ kind: 'address type', side, types, negate }];

/** Without an entry of conntrack a negation matches nothing either: nft_ct_get_eval (nft_ct.c). */
function entryMatch(states: readonly string[], negate: boolean): Match[] {
  const match: Match = { kind: 'state', states, negate };
  if (!negate) return [match];
  return [{ kind: 'state', states: ['invalid', 'untracked'], negate }, match];
}

function statusMatch(left: unknown, bit: unknown, { op, right }: RawMatch): Match[] | null {
  const [tag, , { key }] = tagOf(left);
  const isStatus = tag === 'ct' && key === 'status' && (op === '==' || op === '!=');
  if (!isStatus || typeof bit !== 'string' || bit !== right) return null;
  return entryMatch([bit], op === '!=');
}

const wordsOf = (right: unknown): string[] =>
  partsOf(right, tagOf(right)[0] === '|' ? '|' : 'set').filter((word) => typeof word === 'string');

/** Bits as a number, as the names of TCP's flags, or as several joined; null if it is neither. */
function bitsOf(value: unknown): number | null {
  if (typeof value === 'number') return value;
  if (typeof value === 'string') return tcpFlags[value] ?? null;
  const [tag, body] = tagOf(value);
  const parts = tag === '|' ? body : value;
  if (!Array.isArray(parts)) return null;
  const bits = parts.map(bitsOf);
  return bits.includes(null) ? null : bits.reduce<number>((all, bit) => all | (bit ?? 0), 0);
}

/** `left & mask` compared with bits; `in` asks whether any of them is set. */
function bitsMatch(left: unknown, mask: number | null, raw: RawMatch, text: string): Match[] {
  const { field, guards } = selectorOf(left) ?? {};
  const bits = bitsOf(raw.right);
  const isBits = field === 'mark' || field === 'connection mark' || field === 'tcp flags';
  const isKnown = isBits && ['==', '!=', 'in'].includes(raw.op);
  if (!isKnown || guards === undefined || mask === null || bits === null) return unknown(text);
  const isIn = raw.op === 'in';
  const asked = (isIn ? mask & bits : mask) >>> 0;
  return [...guards, fieldMatch(field, [only(isIn ? 0 : bits)], isIn !== (raw.op === '!='), asked)];
}

function valueMatch({ field, type }: Selector, { op, right }: RawMatch, text: string): Match {
  const values = partsOf(right, 'set').map((value) => componentOf(value, type));
  const negate = op === '!=';
  const names = values.filter((value) => typeof value === 'string');
  if ((field === 'in' || field === 'out') && names.length === values.length) {
    return { kind: 'interface', side: field, names, negate };
  }
  const ranges = values.flatMap((value) => {
    if (value === null || typeof value === 'string') return [];
    const all = everything[typeof value.low === 'bigint' ? 'IPv6' : 'IPv4'];
    return comparisons[op]?.(value, all) ?? [];
  });
  const isKnown = ranges.length === values.length && field !== 'in' && field !== 'out';
  if (!isKnown || field === 'state') return { kind: 'unknown', text };
  return fieldMatch(field, ranges, negate);
}

const same = (range: Range): Range => range;

/** The addresses or numbers of `all` for which a comparison with a range holds. */
const comparisons: Readonly<Record<string, (range: Range, all: Range) => Range>> = {
  '==': same,
  '!=': same,
  in: same,
  '': same,
  '<': ({ low }, all) => ({ low: all.low, high: typeof low === 'bigint' ? low - 1n : low - 1 }),
  '<=': ({ high }, all) => ({ low: all.low, high }),
  '>': ({ high }, all) => ({
    low: typeof high === 'bigint' ? high + 1n : high + 1,
    high: all.high,
  }),
  '>=': ({ low }, all) => ({ low, high: all.high }),
};

function setMatch(left: unknown, set: ElementSet | null, negate: boolean, text: string): Match[] {
  const { key, guards } = keyOf(left);
  if (set === null) return unknown(text);
  const { name, timeoutSeconds: seconds } = set;
  const isMemory = set.dynamic && isSource(key);
  if (isMemory) return [...guards, { kind: 'remembered', name, seconds, negate, text }];
  return [...guards, { kind: 'lookup', key, set, negate }];
}

const isSource = (key: LookupKey): boolean =>
  key.kind === 'fields' && key.fields.length === 1 && key.fields[0] === 'source';

function anonymous(raw: unknown, key: unknown): ElementSet {
  const types = typesOfKey(key);
  const elements = tagOf(raw)[0] === 'set' ? partsOf(raw, 'set') : [raw];
  return {
    name: '',
    elements: elements.map((element) => readElement(element, types)),
    dynamic: false,
    timeoutSeconds: null,
    index: null,
  };
}

/** A named set or map, or one that is written on the spot; null if it is not listed. */
function setOf(data: unknown, key: unknown, table: Table): ElementSet | null {
  if (typeof data !== 'string') return anonymous(data, key);
  return table.sets.get(data.replace(/^@/, '')) ?? null;
}

/** Adding to a set remembers the source; what it is filled with else shows where it is asked. */
function setStatement(fields: NftFields, text: string): Statement {
  // A statement of its own, such as a limit, decides whether the rule goes on.
  if (Array.isArray(fields.stmt) && fields.stmt.length > 0) return { kind: 'unknown', text };
  const [tag, , { val }] = tagOf(fields.elem);
  const { key } = keyOf(tag === 'elem' ? val : fields.elem);
  if (!isSource(key) || fields.op === 'delete') return { kind: 'note', text };
  return { kind: 'remember', name: String(fields.set).replace(/^@/, ''), text };
}

/** `meta mark set …` and the like. What is changed else is nothing that is asked of packets. */
function mangleOf(fields: NftFields, text: string): Action {
  const [tag, , { field: name }] = tagOf(fields.key);
  if (tag === 'payload') {
    const isAddress = ['saddr', 'daddr', 'sport', 'dport'].includes(String(name));
    return { kind: isAddress ? 'unknown verdict' : 'note', text };
  }
  const field = selectorOf(fields.key)?.field;
  if (field !== 'mark' && field !== 'connection mark') return { kind: 'note', text };
  const source = selectorOf(fields.value)?.field;
  if (source === field) return { kind: 'note', text };
  if (source === 'mark' || source === 'connection mark') {
    const direction = field === 'mark' ? 'restore' : 'save';
    const all = 0xffffffff;
    return { kind: 'copy mark', direction, packetMask: all, connectionMask: all };
  }
  const bits = bitsExpression(fields.value, field);
  return bits === null
    ? { kind: 'unknown mark', bits: 0xffffffff, text }
    : { kind: 'set mark', field, ...bits };
}

/** An expression of the field itself and constants, as (x & keep) ^ flip. */
function bitsExpression(value: unknown, field: string): { keep: number; flip: number } | null {
  if (typeof value === 'number') return { keep: 0, flip: value >>> 0 };
  if (selectorOf(value)?.field === field) return { keep: 0xffffffff, flip: 0 };
  const [tag, body] = tagOf(value);
  if (!Array.isArray(body) || body.length !== 2) return null;
  const left = bitsExpression(body[0], field);
  const constant: unknown = body[1];
  if (left === null || typeof constant !== 'number') return null;
  const { keep, flip } = left;
  if (tag === '&') return { keep: (keep & constant) >>> 0, flip: (flip & constant) >>> 0 };
  if (tag === '^') return { keep, flip: (flip ^ constant) >>> 0 };
  if (tag !== '|') return null;
  return { keep: (keep & ~constant) >>> 0, flip: (flip | constant) >>> 0 };
}

const flagsOf = ({ flags }: NftFields): string[] =>
  (Array.isArray(flags) ? flags : [flags]).filter((flag) => typeof flag === 'string');

function translationOf(
  kind: 'dnat' | 'snat',
  fields: NftFields,
  table: Table,
  text: string,
): Statement[] {
  const { addr, port } = fields;
  const [tag, , map] = tagOf(addr);
  if (tag === 'map' && kind === 'dnat') return mapTranslation(map, port, table, text);
  const ports = portsOf(port);
  const addresses = addr === undefined ? null : componentOf(addr, '');
  const isHidden = (addr !== undefined && addresses === null) || typeof addresses === 'string';
  if (isHidden || (port !== undefined && ports === null)) return [{ kind, to: null, text }];
  const random = flagsOf(fields).some((flag) => flag !== 'persistent');
  return [{ kind, to: { addresses, ports, random }, text }];
}

function portsOf(port: unknown): Range<number> | null {
  const range = port === undefined ? null : componentOf(port, '');
  if (range === null || typeof range === 'string') return null;
  return { low: Number(range.low), high: Number(range.high) };
}

function mapTranslation(map: NftFields, port: unknown, table: Table, text: string): Statement[] {
  const { key, guards } = keyOf(map.key);
  const set = setOf(map.data, map.key, table);
  if (set !== null && port === undefined) return [...guards, { kind: 'dnat by map', key, set }];
  const ports = portsOf(port);
  if (set === null || ports === null || ports.low !== ports.high) {
    return [{ kind: 'dnat', to: null, text }];
  }
  const elements = set.elements.map((element) => ({
    ...element,
    data: [...(element.data ?? []), ports.low],
  }));
  return [...guards, { kind: 'dnat by map', key, set: { ...set, elements, index: null } }];
}

const marks = ['MARK', 'CONNMARK'];

function extensionOf(fields: NftFields, table: NftTable, text: string): Statement {
  const name = String(fields.name);
  if (fields.type === 'match') {
    if (name === 'comment' || name === 'nfacct') return { kind: 'note', text };
    return { kind: ['frag', 'rt', 'icmp', 'icmp6'].includes(name) ? 'never' : 'unknown', text };
  }
  const isPlain = noteTargets.has(name) || name === 'MASQUERADE' || name === 'REJECT';
  if (isPlain) return targetOf(name, [], text);
  if (marks.includes(name)) return { kind: 'unknown mark', bits: table.markBits(), text };
  if (name === 'SNAT') return { kind: 'snat', to: null, text };
  const isDnat = name === 'DNAT' || name === 'REDIRECT';
  return isDnat ? { kind: 'dnat', to: null, text } : { kind: 'unknown verdict', text };
}

export const hasExtension = (rule: RawRule): boolean =>
  rule.expr.some((expression) => tagOf(expression)[0] === 'xt');

export const setsMark = (rule: RawRule): boolean =>
  rule.expr.some((expression) => {
    const [tag, , { name }] = tagOf(expression);
    return tag === 'xt' && marks.includes(String(name));
  });

/** The bits of marks that the rule asks for. */
export function askedBitsOf(rule: RawRule): number {
  let bits = 0;
  for (const expression of rule.expr) {
    const [tag, , { left }] = tagOf(expression);
    if (tag !== 'match') continue;
    const [masked = left, mask = 0xffffffff] = tagOf(left)[0] === '&' ? partsOf(left, '&') : [];
    const { field } = selectorOf(masked) ?? {};
    if (field !== 'mark' && field !== 'connection mark') continue;
    bits |= typeof mask === 'number' ? mask : 0xffffffff;
  }
  return bits >>> 0;
}
