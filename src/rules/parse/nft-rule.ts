// Parses rules of nft's JSON (libnftables-json(5), "statements"). An unknown statement is an
// unknown verdict, since it may do anything. An unknown expression makes its match unknown. Rules
// that iptables-nft wrote have their extensions as `xt` with the name alone: the listing contains
// neither the options of such a match nor the destination of such a target.

import type {
  Action,
  ElementSet,
  LookupKey,
  Match,
  Range,
  Rule,
  Statement,
  Table,
} from '../ruleset.ts';
import { fieldMatch, only } from '../ruleset.ts';
import { tcpFlags } from './iptables-match.ts';
import { isNoteTarget } from './iptables-target.ts';
import type { Selector } from './nft-expression.ts';
import {
  componentOf,
  familyGuard,
  guard,
  keyOf,
  readElement,
  selectorOf,
  tagOf,
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

type Fields = Readonly<Record<string, unknown>>;

/** Reads a rule of this table. Never throws: what it cannot read is unknown. */
export function readRule(raw: RawRule, table: NftTable): Rule {
  const statements = raw.expr.flatMap((expression) => statementsOf(expression, table));
  const shown =
    table.family === 'inet' ? statements : statements.filter((statement) => !isFamily(statement));
  const text = JSON.stringify(raw.comment === undefined ? raw.expr : [raw.comment, ...raw.expr]);
  return { statements: shown, text };
}

/** In a table of one family its packets need not be asked for theirs. */
const isFamily = (statement: Statement): boolean =>
  statement.kind === 'field' && statement.field === 'nfproto' && !statement.negate;

const notes = [
  ...['counter', 'log', 'last', 'comment', 'dup', 'flow', 'secmark'],
  ...['ct helper', 'ct timeout', 'ct expectation'],
];

function statementsOf(expression: unknown, table: NftTable): Statement[] {
  const [tag, body] = tagOf(expression);
  const text = JSON.stringify(expression);
  if (notes.includes(tag)) return [{ kind: 'note', text }];
  const verdict = verdictOf(expression);
  if (verdict !== null) return [verdict];
  const fields = (body ?? {}) as Fields;
  switch (tag) {
    case 'match':
      return matchesOf(fields as unknown as RawMatch, table, text);
    case 'limit':
    case 'quota':
    case 'ct count':
      return [{ kind: 'unknown', text }];
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
      const set = setOf(fields.data, table);
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
function rejectGuards({ type }: Fields): readonly Match[] {
  if (type === 'tcp reset') return [guard('protocol', 6)];
  const family = { icmp: 'ip', icmpv6: 'ip6' }[String(type)];
  return familyGuards({ family });
}

/** `dnat ip to` leaves packets of the other family alone. */
function familyGuards({ family }: Fields): readonly Match[] {
  return family === 'ip' || family === 'ip6' ? [familyGuard(family)] : [];
}

// Matches.

interface RawMatch {
  readonly op: string;
  readonly left: unknown;
  readonly right: unknown;
}

function matchesOf(raw: RawMatch, table: Table, text: string): Statement[] {
  const { op, left, right } = raw;
  const negate = op === '!=';
  if (typeof right === 'string' && right.startsWith('@')) {
    return setMatch(left, table.sets.get(right.slice(1)), negate, text);
  }
  const [tag, body] = tagOf(left);
  const special = specialMatch(tag, body, raw);
  if (special !== null) return special;
  if (tag === '&' && Array.isArray(body)) {
    return statusMatch(body, raw) ?? bitsMatch(body[0], bitsOf(body[1]), raw, text);
  }
  if (tag === 'concat') return setMatch(left, anonymous(right), negate, text);
  const selector = selectorOf(left);
  if (selector === null) {
    // Headers of other protocols; a negation does not make them appear.
    const { protocol = '' } = (body ?? {}) as { protocol?: string };
    return [{ kind: tag === 'payload' && others.includes(protocol) ? 'never' : 'unknown', text }];
  }
  if (selector.field === 'tcp flags') {
    const bits = bitsOf(right);
    return bitsMatch(left, op === 'in' || op === '' ? bits : 0xff, raw, text);
  }
  return [...selector.guards, valueMatch(selector, raw, text)];
}

const others = ['icmp', 'icmpv6', 'igmp', 'ah', 'esp', 'comp', 'arp'];

function specialMatch(tag: string, body: unknown, raw: RawMatch): Statement[] | null {
  const negate = raw.op === '!=';
  const fields = (body ?? {}) as Fields;
  if (tag === 'ct' && ['state', 'status', 'direction'].includes(String(fields.key))) {
    const states = wordsOf(raw.right);
    if (states.length === 0) return null;
    const guards = fields.key === 'state' ? [] : entryGuards(negate);
    return [...guards, { kind: 'state', states, negate }];
  }
  if (tag === 'fib') return fibMatch(fields, raw);
  if (tag === 'payload' && ['ttl', 'hoplimit'].includes(String(fields.field))) {
    // An ordinary packet has more than two hops left; how many more is unknown.
    const most = { '<': 3, '<=': 2, '==': 2 }[raw.op] ?? -1;
    const isNever = typeof raw.right === 'number' && raw.right <= most;
    return isNever ? [{ kind: 'never', text: JSON.stringify(raw) }] : null;
  }
  if (tag === 'meta' && fields.key === 'pkttype') {
    const types = wordsOf(raw.right);
    const special = types.every((type) => type === 'multicast' || type === 'broadcast');
    return special ? [{ kind: 'address type', side: 'destination', types, negate }] : null;
  }
  if (tag !== 'numgen' || typeof raw.right !== 'number') return null;
  const { mod = 1, offset = 0 } = fields as { mod?: number; offset?: number };
  const below = { '<': raw.right - offset, '<=': raw.right - offset + 1 }[raw.op];
  const count = below ?? (raw.op === '==' ? 1 : null);
  if (count === null) return null;
  const probability = Math.min(Math.max(count / mod, 0), 1);
  return [{ kind: 'random', probability, every: null }];
}

/**
 * Where a packet has no entry of conntrack there is no status and no direction, and a negation does
 * not make one: nft_ct_get_eval of the kernel's net/netfilter/nft_ct.c.
 */
const entryGuards = (negate: boolean): Match[] =>
  negate ? [{ kind: 'state', states: ['invalid', 'untracked'], negate: true }] : [];

/** `ct status & dnat == dnat`, or `!= dnat`. */
function statusMatch([left, bit]: readonly unknown[], { op, right }: RawMatch): Statement[] | null {
  const [tag, body] = tagOf(left);
  const isStatus = tag === 'ct' && (body as { key?: unknown }).key === 'status';
  if (!isStatus || typeof bit !== 'string' || bit !== right) return null;
  if (op !== '==' && op !== '!=') return null;
  const negate = op === '!=';
  return [...entryGuards(negate), { kind: 'state', states: [bit], negate }];
}

function fibMatch(fields: Fields, raw: RawMatch): Statement[] | null {
  const flags = flagsOf(fields);
  const [side] = flags;
  if (fields.result !== 'type' || flags.length !== 1) return null;
  if (side !== 'saddr' && side !== 'daddr') return null;
  const types = wordsOf(raw.right);
  const of = side === 'saddr' ? 'source' : 'destination';
  return [{ kind: 'address type', side: of, types, negate: raw.op === '!=' }];
}

/** One word or several, in a list or a set. */
function wordsOf(right: unknown): string[] {
  const [tag, body] = tagOf(right);
  const words = tag === 'set' || tag === '|' ? body : right;
  return (Array.isArray(words) ? words : [words]).filter((word) => typeof word === 'string');
}

/** Bits as a number, as the names of TCP's flags, or as several joined; null: it is neither. */
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
function bitsMatch(left: unknown, mask: number | null, raw: RawMatch, text: string): Statement[] {
  const { field, guards } = selectorOf(left) ?? {};
  const bits = bitsOf(raw.right);
  const isBits = field === 'mark' || field === 'connection mark' || field === 'tcp flags';
  const isKnown = isBits && ['==', '!=', 'in'].includes(raw.op);
  if (!isKnown || guards === undefined || mask === null || bits === null) {
    return [{ kind: 'unknown', text }];
  }
  const isIn = raw.op === 'in';
  const asked = (isIn ? mask & bits : mask) >>> 0;
  return [...guards, fieldMatch(field, [only(isIn ? 0 : bits)], isIn !== (raw.op === '!='), asked)];
}

function valueMatch(selector: Selector, { op, right }: RawMatch, text: string): Match {
  const { field, type } = selector;
  const [tag, body] = tagOf(right);
  const list = tag === 'set' ? body : right;
  const values = (Array.isArray(list) ? list : [list]).map((value) => componentOf(value, type));
  const negate = op === '!=';
  if (field === 'in' || field === 'out') {
    const names = values.filter((value) => typeof value === 'string');
    if (names.length < values.length) return { kind: 'unknown', text };
    return { kind: 'interface', side: field, names, negate };
  }
  const ranges = values.filter((value) => value !== null && typeof value !== 'string');
  if (ranges.length < values.length || field === 'state') return { kind: 'unknown', text };
  const compared = ranges.flatMap((range) => comparedWith(op, range) ?? []);
  if (compared.length < ranges.length) return { kind: 'unknown', text };
  return fieldMatch(field, compared, negate);
}

/** The numbers for which a comparison holds; null: the operator is not known. */
function comparedWith(op: string, { low, high }: Range): Range | null {
  const [first, last] = typeof low === 'bigint' ? [0n, 2n ** 128n - 1n] : [0, 0xffffffff];
  switch (op) {
    case '==':
    case '!=':
    case 'in':
    case '':
      return { low, high };
    case '<':
      return { low: first, high: typeof low === 'bigint' ? low - 1n : low - 1 };
    case '<=':
      return { low: first, high };
    case '>':
      return { low: typeof high === 'bigint' ? high + 1n : high + 1, high: last };
    case '>=':
      return { low, high: last };
    default:
      return null;
  }
}

// Sets.

function setMatch(
  left: unknown,
  set: ElementSet | undefined | null,
  negate: boolean,
  text: string,
): Statement[] {
  const { key, guards } = keyOf(left);
  if (!set) return [{ kind: 'unknown', text }];
  if (set.dynamic && isSource(key)) {
    const seconds = set.timeoutSeconds;
    return [...guards, { kind: 'remembered', name: set.name, seconds, negate, text }];
  }
  return [...guards, { kind: 'lookup', key, set, negate }];
}

const isSource = (key: LookupKey): boolean =>
  key.kind === 'fields' && key.fields.length === 1 && key.fields[0] === 'source';

function anonymous(raw: unknown): ElementSet {
  const [tag, body] = tagOf(raw);
  const elements = tag === 'set' && Array.isArray(body) ? (body as unknown[]) : [raw];
  return {
    name: '',
    elements: elements.map((element) => readElement(element, null)),
    dynamic: false,
    timeoutSeconds: null,
    index: null,
  };
}

/** A named set or map, or one that is written on the spot; null: it is not listed. */
function setOf(data: unknown, table: Table): ElementSet | null {
  if (typeof data !== 'string') return anonymous(data);
  return table.sets.get(data.replace(/^@/, '')) ?? null;
}

/** Adding to a set remembers the source; what it is filled with else shows where it is asked. */
function setStatement(fields: Fields, text: string): Statement {
  const inner = fields.stmt;
  // A statement of its own, such as a limit, decides whether the rule goes on.
  if (Array.isArray(inner) && inner.length > 0) return { kind: 'unknown', text };
  const [tag, body] = tagOf(fields.elem);
  const { key } = keyOf(tag === 'elem' ? (body as { val?: unknown }).val : fields.elem);
  if (!isSource(key) || fields.op === 'delete') return { kind: 'note', text };
  return { kind: 'remember', name: String(fields.set).replace(/^@/, ''), text };
}

// Changes of the packet.

/** `meta mark set …` and the like. What is changed else is nothing that is asked of packets. */
function mangleOf(fields: Fields, text: string): Action {
  const [tag, body] = tagOf(fields.key);
  if (tag === 'payload') {
    const { field = '' } = (body ?? {}) as { field?: string };
    const isAddress = ['saddr', 'daddr', 'sport', 'dport'].includes(field);
    return { kind: isAddress ? 'unknown verdict' : 'note', text };
  }
  const selector = selectorOf(fields.key);
  if (selector?.field !== 'mark' && selector?.field !== 'connection mark') {
    return { kind: 'note', text };
  }
  const { field } = selector;
  const source = selectorOf(fields.value)?.field;
  if (source === 'mark' || source === 'connection mark') {
    if (source === field) return { kind: 'note', text };
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

function flagsOf(fields: Fields): string[] {
  const flags = fields.flags;
  return (Array.isArray(flags) ? flags : [flags]).filter((flag) => typeof flag === 'string');
}

function translationOf(
  kind: 'dnat' | 'snat',
  fields: Fields,
  table: Table,
  text: string,
): Statement[] {
  const [tag, body] = tagOf(fields.addr);
  if (tag === 'map' && kind === 'dnat') return mapTranslation(body, fields.port, table, text);
  const ports = portsOf(fields.port);
  const addresses = fields.addr === undefined ? null : componentOf(fields.addr, '');
  const isKnown =
    (addresses !== null || fields.addr === undefined) && typeof addresses !== 'string';
  if (!isKnown || (fields.port !== undefined && ports === null)) return [{ kind, to: null, text }];
  const random = flagsOf(fields).some((flag) => flag !== 'persistent');
  return [{ kind, to: { addresses, ports, random }, text }];
}

function portsOf(port: unknown): Range<number> | null {
  const range = port === undefined ? null : componentOf(port, '');
  if (range === null || typeof range === 'string') return null;
  return { low: Number(range.low), high: Number(range.high) };
}

function mapTranslation(body: unknown, port: unknown, table: Table, text: string): Statement[] {
  const { key: expression, data } = body as { key?: unknown; data?: unknown };
  const { key, guards } = keyOf(expression);
  const set = setOf(data, table);
  const fixed = portsOf(port);
  const isFixed = fixed !== null && fixed.low === fixed.high;
  if (set === null || (port !== undefined && !isFixed)) return [{ kind: 'dnat', to: null, text }];
  const elements = set.elements.map((element) => ({
    ...element,
    data: [...(element.data ?? []), ...(isFixed ? [fixed.low] : [])],
  }));
  const own = isFixed ? { ...set, elements, index: null } : set;
  return [...guards, { kind: 'dnat by map', key, set: own }];
}

/** An extension of iptables: the listing has its name alone. */
function extensionOf(
  { type, name = '' }: { type?: string; name?: string },
  table: NftTable,
  text: string,
): Statement {
  if (type === 'match') {
    if (name === 'comment' || name === 'nfacct') return { kind: 'note', text };
    return { kind: ['frag', 'rt', 'icmp', 'icmp6'].includes(name) ? 'never' : 'unknown', text };
  }
  if (isNoteTarget(name)) return { kind: 'note', text };
  if (name === 'MASQUERADE') return { kind: 'masquerade', random: false, text };
  if (name === 'SNAT') return { kind: 'snat', to: null, text };
  if (name === 'DNAT' || name === 'REDIRECT') return { kind: 'dnat', to: null, text };
  if (name === 'REJECT') return { kind: 'reject', text };
  return markTargets.includes(name)
    ? { kind: 'unknown mark', bits: table.markBits(), text }
    : { kind: 'unknown verdict', text };
}

const markTargets = ['MARK', 'CONNMARK'];

/** Whether the rule has an extension of iptables. */
export const hasExtension = (rule: RawRule): boolean =>
  rule.expr.some((expression) => tagOf(expression)[0] === 'xt');

/** Whether the rule has a target of iptables that sets a mark. */
export const setsMark = (rule: RawRule): boolean =>
  rule.expr.some((expression) => {
    const [tag, body] = tagOf(expression);
    return tag === 'xt' && markTargets.includes((body as { name?: string }).name ?? '');
  });

/** The bits of marks that the rule asks for. */
export function askedBitsOf(rule: RawRule): number {
  let bits = 0;
  for (const expression of rule.expr) {
    const [tag, body] = tagOf(expression);
    if (tag !== 'match') continue;
    const { left } = body as RawMatch;
    const [operator, operands] = tagOf(left);
    const isMasked = operator === '&' && Array.isArray(operands);
    const { field } = selectorOf(isMasked ? operands[0] : left) ?? {};
    if (field !== 'mark' && field !== 'connection mark') continue;
    bits |= isMasked && typeof operands[1] === 'number' ? operands[1] : 0xffffffff;
  }
  return bits >>> 0;
}
