// Parses `nft -j list ruleset`: libnftables-json(5), nftables 0.9 to 1.1. Rules are parsed when a
// walk first reads their chain (nft-rule.ts), since they may name sets that come later.
//
// Chains of a device (hooks ingress and egress) run before and after all others here, behind a
// match of the device. Left out: families arp and bridge, and objects that decide nothing
// (counters, quotas, helpers, flow tables).

import type { Base, Chain, ElementSet, RuleSet, Table } from '../ruleset.ts';
import { chainsOf, DumpError, hooks } from '../ruleset.ts';
import { readElement, tagOf, typesOf } from './nft-expression.ts';
import type { NftTable, RawRule } from './nft-rule.ts';
import { askedBitsOf, hasExtension, readRule, setsMark } from './nft-rule.ts';

interface RawObject {
  readonly family: string;
  readonly table: string;
  readonly name: string;
  readonly flags?: string | readonly string[];
  readonly type?: unknown;
  readonly hook?: string;
  readonly prio?: number;
  readonly policy?: string;
  readonly dev?: string | readonly string[];
  readonly timeout?: number;
  readonly elem?: readonly unknown[];
}

interface OpenTable extends NftTable {
  readonly byName: Map<string, Chain>;
  readonly sets: Map<string, ElementSet>;
  readonly rules: Map<string, RawRule[]>;
  markBitsKnown: number | null;
  /** Its chains are unhooked. */
  readonly dormant: boolean;
  /** For how long rules fill sets, where they do not leave it to the set. */
  readonly timeouts: Map<string, number>;
}

const families: Readonly<Record<string, Table['family']>> = {
  ip: 'ip',
  ip6: 'ip6',
  inet: 'inet',
  netdev: 'inet',
};

/** @throws DumpError where the text is no listing; `line` is the place of an object in its list. */
export function parseNft(dump: string | Uint8Array): RuleSet {
  const text = typeof dump === 'string' ? dump : new TextDecoder().decode(dump);
  const tables = new Map<string, OpenTable>();
  for (const [at, object] of objectsOf(text).entries()) {
    const [[kind, body] = []] = Object.entries(object ?? {});
    if (kind === undefined) throw new DumpError('not an object of nft', at, JSON.stringify(object));
    readObject(tables, kind, body, at);
  }
  for (const { sets, timeouts } of tables.values()) {
    for (const [name, timeoutSeconds] of timeouts) {
      const set = sets.get(name);
      if (set !== undefined) sets.set(name, { ...set, timeoutSeconds });
    }
  }
  return { tables: [...tables.values()], lacks: [], legacy: [] };
}

function objectsOf(text: string): readonly (object | null)[] {
  if (text.trim() === '') return [];
  const objects = (parseJson(text) as { nftables?: unknown } | null)?.nftables;
  if (!Array.isArray(objects)) throw new DumpError('no list "nftables"', 1, text);
  return objects as (object | null)[];
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    // The message has a position, or none if the text ended.
    const position = Number(/position (\d+)/.exec(String(error))?.[1] ?? text.length);
    const line = text.slice(0, position).split('\n').length;
    throw new DumpError('not JSON', line, text.slice(Math.max(0, position - 40), position + 40));
  }
}

function readObject(tables: Map<string, OpenTable>, kind: string, body: unknown, at: number): void {
  const raw = (body ?? {}) as Partial<RawObject>;
  if (kind === 'table') openTable(tables, body as RawObject);
  if (!['chain', 'rule', 'set', 'map'].includes(kind)) return;
  const table = tables.get(`${raw.family} ${raw.table}`);
  if (table === undefined) {
    if (raw.family !== undefined && raw.table !== undefined && !(raw.family in families)) return;
    throw new DumpError(`a ${kind} of a table that is not listed`, at, JSON.stringify(body));
  }
  if (kind === 'chain') readChain(table, body as RawObject);
  else if (kind === 'rule') keepRule(table, body as RawRule, at);
  else table.sets.set((body as RawObject).name, readSet(body as RawObject));
}

function openTable(tables: Map<string, OpenTable>, { family, name, flags }: RawObject): void {
  const known = families[family];
  if (known === undefined) return;
  const byName = new Map<string, Chain>();
  const open: OpenTable = {
    family: known,
    name,
    source: 'nft',
    byName,
    chains: chainsOf(byName),
    sets: new Map(),
    rules: new Map(),
    timeouts: new Map(),
    markBitsKnown: null,
    markBits: () => (open.markBitsKnown ??= bitsSetIn(open, [...tables.values()])),
    dormant: listOf(flags).includes('dormant'),
  };
  tables.set(`${family} ${name}`, open);
}

const listOf = (flags: string | readonly string[] = []): readonly string[] =>
  typeof flags === 'string' ? [flags] : flags;

/**
 * Which bits a MARK target of iptables in this table may change; the listing has neither its bits
 * nor its values. Assumed: a program that marks packets in iptables also asks for the marks there,
 * and programs that mark share the bits out. With a dump by iptables-save nothing is assumed.
 */
function bitsSetIn(table: OpenTable, tables: readonly OpenTable[]): number {
  const others = tables.filter((other) => other !== table && !rulesIn(other).some(setsMark));
  return [table, ...others]
    .map(rulesIn)
    .filter((rules) => rules.some(hasExtension))
    .flat()
    .reduce((bits, rule) => (bits | askedBitsOf(rule)) >>> 0, 0);
}

const rulesIn = ({ rules }: OpenTable): readonly RawRule[] => [...rules.values()].flat();

function readChain(table: OpenTable, raw: RawObject): void {
  const { name } = raw;
  const rules: RawRule[] = [];
  const guards = guardsOf(raw);
  table.rules.set(name, rules);
  table.byName.set(name, {
    name,
    base: table.dormant ? null : baseOf(raw, table.byName.size),
    target: null,
    read: () => rules.map((rule) => readRule({ ...rule, expr: [...guards, ...rule.expr] }, table)),
    rules: null,
    index: null,
  });
}

function baseOf({ hook, type, prio, policy }: RawObject, created: number): Base | null {
  if (hook === undefined) return null;
  const known = hooks.find((name) => name === hook);
  const isIngress = hook === 'ingress';
  return {
    hook: known ?? (isIngress ? 'prerouting' : 'postrouting'),
    priority: known === undefined ? (isIngress ? -1 : 1) * 2 ** 31 : (prio ?? 0),
    type: type === 'nat' || type === 'route' ? type : 'filter',
    // The policy of a device's chain is not that of all packets.
    policy: policy === 'drop' && known !== undefined ? 'drop' : 'accept',
    created,
  };
}

/** What each rule of a device's chain asks for first, as if it said so. */
function guardsOf({ hook, dev }: RawObject): readonly unknown[] {
  if (hook !== 'ingress' && hook !== 'egress') return [];
  const key = hook === 'ingress' ? 'iifname' : 'oifname';
  // nft 1.0.6 leaves it out: a key that is not modelled is unknown.
  const left = { meta: { key: dev === undefined ? `${key} not told` : key } };
  const right = typeof dev === 'object' ? { set: dev } : (dev ?? '');
  return [{ match: { op: '==', left, right } }];
}

function keepRule(table: OpenTable, raw: RawRule, at: number): void {
  const rules = table.rules.get(raw.chain);
  if (rules === undefined || !Array.isArray(raw.expr)) {
    const problem = rules === undefined ? 'a chain that is not listed' : 'no expressions';
    throw new DumpError(`a rule of ${problem}`, at, JSON.stringify(raw));
  }
  for (const statement of raw.expr) {
    const [tag, , { set, elem }] = tagOf(statement);
    const [, , { timeout }] = tagOf(elem);
    // `update @set { ip saddr timeout 60s }`: the element's own goes before the set's.
    if (tag !== 'set' || typeof timeout !== 'number') continue;
    table.timeouts.set(String(set).replace(/^@/, ''), timeout);
  }
  rules.push(raw);
}

function readSet({ name, type, flags, timeout, elem }: RawObject): ElementSet {
  const given = listOf(flags);
  const types = typesOf(type);
  return {
    name,
    elements: (elem ?? []).map((element) => readElement(element, types)),
    dynamic: given.includes('timeout') || given.includes('dynamic'),
    timeoutSeconds: timeout ?? null,
    index: null,
  };
}
