// Reads the output of iptables-save and ip6tables-save of both backends, with or without counters.
// Format: iptables 1.8, iptables/iptables-save.c and xshared.c.
//
// A dump of a large node has half a million rules, and few of them are walked. So this file only
// finds the lines of each chain. The rules of a chain are parsed (iptables-rule.ts) when a walk
// first reads it. A line in another form, an open quote or a table without COMMIT is an error.

import { parseAddress } from '../../model/ip.ts';
import type { Base, Chain, Chains, DnatTarget, Family, Rule, RuleSet, Table } from '../ruleset.ts';
import { DumpError, hooks } from '../ruleset.ts';
import { protocolNumbers } from './iptables-match.ts';
import { newPartCache, parseRule, type PartCache } from './iptables-rule.ts';

/** Priorities of linux/netfilter_ipv4.h; nat has another one behind the routing decision. */
const priorities: Readonly<Record<string, number>> = {
  raw: -300,
  mangle: -150,
  nat: -100,
  filter: 0,
  security: 50,
};

interface OpenTable extends Table {
  readonly bases: Map<string, Base>;
  readonly places: ChainPlaces;
  /** Of chains whose rules are not all in succession: names at the beginning of later runs. */
  readonly laterRuns: Map<string, number[]>;
}

/** Places of names in the text. Objects for all chains would cost more than reading the dump. */
interface ChainPlaces {
  /** As the chains are declared. */
  readonly declared: number[];
  /** How many of `declared` have slots. Most get one at their first rule: the order is the same. */
  indexed: number;
  /** By `slotOf`: in a chain's first rule, or its declaration. 0: free, as at least half are. */
  slots: Int32Array;
}

const newReading = (text: string, family: Family) => ({
  text,
  family,
  tables: [] as Table[],
  table: null as OpenTable | null,
  /** How the rule in the line before begins: `-A NAME`; empty if that line has no rule. */
  prefix: '',
  /** The first quote behind the last rule without quotes; the text's length if there is none. */
  quote: -1,
  line: 0,
  lacks: [] as RuleSet['lacks'][number][],
  isNft: false,
});

type Reading = ReturnType<typeof newReading>;

/** @throws DumpError if the text is not a dump of iptables-save or is truncated. */
export function parseIptablesSave(dump: string | Uint8Array, family: Family): RuleSet {
  const text = typeof dump === 'string' ? dump : textOf(dump);
  const reading = newReading(text, family);
  for (let at = 0; at < text.length;) {
    const newline = text.indexOf('\n', at);
    const end = newline < 0 ? text.length : newline;
    reading.line++;
    readLine(reading, at, end);
    at = end + 1;
  }
  if (reading.table !== null) {
    throw new DumpError('the dump ends before COMMIT', reading.line, `*${reading.table.name}`);
  }
  const { tables, lacks, isNft } = reading;
  return { tables, lacks, legacy: isNft || tables.length === 0 ? [] : [family] };
}

/** Node stores longer strings outside of V8's heap, where reading single characters is slow. */
const pieceBytes = 500_000;

function textOf(dump: Uint8Array): string {
  const decoder = new TextDecoder();
  const pieces: string[] = [];
  for (let at = 0; at < dump.length;) {
    const newline = dump.indexOf(10, at + pieceBytes);
    const end = newline < 0 ? dump.length : newline + 1;
    pieces.push(decoder.decode(dump.subarray(at, end)));
    at = end;
  }
  return pieces.join('');
}

function readLine(reading: Reading, at: number, end: number): void {
  const { text } = reading;
  const first = text.charAt(at);
  if (first === '-' || first === '[') {
    readRule(reading, at, end, first === '-' ? at : text.indexOf('] ', at) + 2);
    return;
  }
  reading.prefix = '';
  if (first === ':') readChain(reading, at, end);
  else if (first === '*') openTable(reading, text.slice(at + 1, end).trim());
  else if (first === '#') readComment(reading, text.slice(at, end));
  else {
    const line = text.slice(at, end).trim();
    if (line === '') return;
    if (line !== 'COMMIT') throw new DumpError('not a line of iptables-save', reading.line, line);
    if (reading.table === null) throw new DumpError('COMMIT without a table', reading.line, line);
    indexChains(reading.text, reading.table.places, null);
    reading.table = null;
  }
}

const compatible = /^# Table `(\w+)' (is|contains) incompatible\b/;
const warning = /^# Warning: (ip6?)tables-legacy tables present\b/;

/**
 * Comments of iptables-nft-save: `# Table `T' is incompatible, use 'nft' tool.` in place of T, from
 * 1.8.8 on `# Table `T' contains incompatible base-chains, use 'nft' tool to list them.` before it,
 * and the warning, if stderr goes to the same file. From 1.8.9 on it calls itself nf_tables.
 */
function readComment(reading: Reading, comment: string): void {
  const { family, lacks } = reading;
  const [, table, how] = compatible.exec(comment) ?? [];
  if (table !== undefined) lacks.push({ kind: how === 'is' ? 'table' : 'chains', family, table });
  const warned = warning.exec(comment)?.[1];
  if (warned !== undefined) lacks.push({ kind: 'legacy', family: warned as Family, table: '' });
  if (table !== undefined || warned !== undefined || comment.includes('(nf_tables)')) {
    reading.isNft = true;
  }
}

function openTable(reading: Reading, name: string): void {
  const { family, line } = reading;
  if (reading.table !== null) {
    throw new DumpError(`table ${reading.table.name} has no COMMIT`, line, `*${name}`);
  }
  if (!(name in priorities)) throw new DumpError('not a table of iptables', line, `*${name}`);
  const bases = new Map<string, Base>();
  const places = { declared: [], indexed: 0, slots: new Int32Array(0) };
  const parts = { bases, places, laterRuns: new Map() };
  const chains = openChains(reading, parts);
  reading.table = { family, name, source: 'iptables', chains, sets: new Map(), ...parts };
  reading.tables.push(reading.table);
}

/** `:NAME POLICY [PACKETS:BYTES]`; the policy of a user's chain is `-`. */
function readChain(reading: Reading, at: number, end: number): void {
  const { text, table, line } = reading;
  const space = text.indexOf(' ', at);
  if (table === null || space < 0 || space > end) {
    const problem = table === null ? 'a chain outside of a table' : 'a chain without a policy';
    throw new DumpError(problem, line, text.slice(at, end));
  }
  const name = text.slice(at + 1, space);
  if (text.charAt(space + 1) !== '-') table.bases.set(name, baseOf(reading, table, at, end));
  table.places.declared.push(at + 1);
}

function baseOf({ text, line }: Reading, table: OpenTable, at: number, end: number): Base {
  const [name = '', policy] = text.slice(at + 1, end).split(' ', 2);
  const hook = hooks.find((known) => known.toUpperCase() === name);
  if (hook === undefined || (policy !== 'ACCEPT' && policy !== 'DROP')) {
    const problem = hook === undefined ? 'a policy of a chain without a hook' : 'not a policy';
    throw new DumpError(problem, line, text.slice(at, end));
  }
  const isSource = table.name === 'nat' && (hook === 'postrouting' || hook === 'input');
  return {
    hook,
    priority: isSource ? 100 : (priorities[table.name] ?? 0),
    type: table.name === 'nat' ? 'nat' : 'filter',
    policy: policy === 'DROP' ? 'drop' : 'accept',
    created: table.places.declared.length,
  };
}

/** `-A NAME OPTIONS`, with counters before it if iptables-save ran with `-c`. */
function readRule(reading: Reading, at: number, end: number, from: number): void {
  if (reading.quote < end) checkQuotes(reading, at, end);
  const { text, table, line, prefix } = reading;
  if (prefix !== '' && begins(text, prefix, from, end)) return;
  if (table === null || !text.startsWith('-A ', from)) {
    const problem = table === null ? 'a rule outside of a table' : 'not a line of iptables-save';
    throw new DumpError(problem, line, text.slice(at, end));
  }
  const space = text.indexOf(' ', from + 3);
  const nameEnd = space < 0 || space > end ? end : space;
  const name = text.slice(from + 3, nameEnd);
  reading.prefix = text.slice(from, nameEnd);
  if (indexChains(text, table.places, name, from + 3)) return;
  const { slots } = table.places;
  const slot = slotOf(text, slots, name);
  const known = slots[slot] ?? 0;
  if (known === 0) {
    throw new DumpError('a rule of a chain that is not declared', line, text.slice(at, end));
  }
  if (text.charAt(known - 1) === ':') slots[slot] = from + 3;
  else table.laterRuns.set(name, [...(table.laterRuns.get(name) ?? []), from + 3]);
}

function begins(text: string, prefix: string, from: number, end: number): boolean {
  const after = from + prefix.length;
  return text.startsWith(prefix, from) && (after >= end || text.charCodeAt(after) === 32);
}

/** Quotes come in pairs. Within a pair a backslash escapes the next character. */
const paired = /^[^"]*(?:"(?:[^"\\]|\\[^])*"[^"]*)*$/;

function checkQuotes(reading: Reading, at: number, end: number): void {
  const { text, line } = reading;
  const next = text.indexOf('"', at);
  reading.quote = next < 0 ? text.length : next;
  if (reading.quote >= end) return;
  const rule = text.slice(at, end);
  if (!paired.test(rule)) throw new DumpError('a quote without end', line, rule);
}

const minCachedRules = 256;

/**
 * Of the other chains this many stay cached: packets to one frontend read the same chains. More
 * would live so long that V8 copies them to the old generation.
 */
const maxRecentChains = 31;

/** Gives slots to chains up to the one with this name, whose first rule has it there. */
function indexChains(text: string, places: ChainPlaces, until: string | null, rule = 0): boolean {
  const { declared } = places;
  if (declared.length * 2 > places.slots.length) growSlots(text, places);
  while (places.indexed < declared.length) {
    const at = declared[places.indexed++] ?? 0;
    const isLast = until !== null && isNamed(text, at, until);
    const name = isLast ? until : declaredName(text, at);
    places.slots[slotOf(text, places.slots, name)] = isLast ? rule : at;
    if (isLast) return true;
  }
  return false;
}

function growSlots(text: string, places: ChainPlaces): void {
  const { declared, slots } = places;
  places.slots = new Int32Array(2 ** (33 - Math.clz32(declared.length)));
  for (const at of declared.slice(0, places.indexed)) {
    const name = declaredName(text, at);
    places.slots[slotOf(text, places.slots, name)] = slots[slotOf(text, slots, name)] ?? 0;
  }
}

const declaredName = (text: string, at: number): string => text.slice(at, text.indexOf(' ', at));

/**
 * The slot of a chain, or the free one for it: the search begins at a hash of the name's end, which
 * is random in kube-proxy's names. Names as keys of a Map would be compared all over the text.
 */
function slotOf(text: string, slots: Int32Array, name: string): number {
  let hash = 0;
  for (let at = Math.max(0, name.length - 6); at < name.length; at++) {
    hash = Math.imul(hash ^ name.charCodeAt(at), 0x01000193);
  }
  const mask = slots.length - 1;
  for (let slot = (hash ^ (hash >>> 15)) & mask; ; slot = (slot + 1) & mask) {
    const at = slots[slot] ?? 0;
    if (at === 0 || isNamed(text, at, name)) return slot;
  }
}

const isNamed = (text: string, at: number, name: string): boolean =>
  text.startsWith(name, at) && !(text.charCodeAt(at + name.length) > 32);

function openChains(
  { text }: Reading,
  { bases, places, laterRuns }: Pick<OpenTable, 'bases' | 'places' | 'laterRuns'>,
): Chains {
  const cache = newPartCache();
  const cached = new Map<string, Chain>();
  const recent: (Chain | undefined)[] = Array.from({ length: maxRecentChains });
  const placeOf = (name: string): number => places.slots[slotOf(text, places.slots, name)] ?? 0;
  const read = (chain: Chain): readonly Rule[] => {
    const { name } = chain;
    const runs = [placeOf(name), ...(laterRuns.get(name) ?? [])];
    const rules = runs.flatMap((at) => rulesAt(text, at, name, cache));
    if (rules.length >= minCachedRules) cached.set(name, chain);
    return rules;
  };
  const get = (name: string): Chain | undefined => {
    const at = placeOf(name);
    if (at === 0) return undefined;
    const target = laterRuns.size > 0 && laterRuns.has(name) ? null : targetAt(text, at);
    if (target !== null) return { name, base: null, target, read, rules: null, index: null };
    const last = recent[at % maxRecentChains];
    if (last?.name === name) return last;
    const base = bases.get(name) ?? null;
    const chain = cached.get(name) ?? { name, base, target, read, rules: null, index: null };
    if (base !== null) cached.set(name, chain);
    recent[at % maxRecentChains] = chain;
    return chain;
  };
  function* values(named = /^/): Generator<Chain> {
    for (const at of places.declared) {
      const name = declaredName(text, at);
      const chain = named.test(name) ? get(name) : undefined;
      if (chain !== undefined) yield chain;
    }
  }
  return {
    bases: () => [...bases.keys()].flatMap((name) => get(name) ?? []),
    get,
    values,
  };
}

function rulesAt(text: string, place: number, name: string, cache: PartCache): readonly Rule[] {
  const prefix = `-A ${name}`;
  const rules: Rule[] = [];
  for (let at = text.lastIndexOf('\n', place) + 1; at < text.length;) {
    const newline = text.indexOf('\n', at);
    const end = newline < 0 ? text.length : newline;
    const from = text.charAt(at) === '[' ? text.indexOf('] ', at) + 2 : at;
    if (!begins(text, prefix, from, end)) break;
    const statements = parseRule(text.slice(from + prefix.length, end), cache);
    rules.push({ statements, text: text.slice(at, end) });
    at = end + 1;
  }
  return rules;
}

const comment = String.raw`(?:-m comment --comment (?:"[^"\\\n]*"|[^ "\n]+) )?`;
const protocols = 'tcp|udp|sctp';

/**
 * KUBE-SEP in pkg/proxy/iptables/proxier.go, kubernetes@v1.36.3: one rule translates; before it
 * there may be one for packets of the endpoint itself. This is faster than parsing the rules.
 */
const endpointChain = new RegExp(
  String.raw`(?!(?:${hooks.join('|').toUpperCase()}) )(\S+) ` +
    String.raw`(?:-s (?=[\d.]+/32 |\S*:\S*/128 )(\S+)/\d+ ${comment}-j \S+\n-A \1 )?` +
    String.raw`(?:-p (${protocols}) )?${comment}(?:-m (?:${protocols}) )?-j DNAT ` +
    String.raw`--to-destination (?:\[([\da-fA-F:.]+)\]|([\d.]+)):(\d{1,5})(?:\n(?!\[|-A \1)|$)`,
  'y',
);

/** The target of the chain whose name is there; null if it is not exactly such a chain. */
function targetAt(text: string, place: number): DnatTarget | null {
  endpointChain.lastIndex = place;
  const found = endpointChain.exec(text);
  if (found === null) return null;
  const source = found[2];
  const six = found[4];
  const host = six ?? found[5] ?? '';
  const port = Number(found[6]);
  const address = source === undefined || source === host ? parseAddress(host) : null;
  if (address === null || (typeof address === 'bigint') !== (six !== undefined)) return null;
  if (port > 65_535) return null;
  const except = source === undefined ? null : address;
  return { address, port, protocol: protocolNumbers[found[3] ?? ''] ?? null, except };
}
