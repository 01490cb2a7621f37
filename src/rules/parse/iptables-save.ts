// Reads what iptables-save and ip6tables-save print, of the nft and the legacy backend alike, with
// or without counters. Format: iptables 1.8, iptables/iptables-save.c and xshared.c.
//
// A dump of a large node has half a million rules, and nobody asks for most of them. So reading has
// two steps. This file goes once over the text and learns which lines are which chain's; here a
// line that is none, a quote without end or a table without COMMIT is an error, with its line. The
// options of a rule are read when its chain is first walked (iptables-rule.ts), where whatever is
// not understood becomes `unknown` and stays in its rule.

import type { Base, Family, Hook, Lack, Rule, RuleSet, Table } from '../ruleset.ts';
import { DumpError } from '../ruleset.ts';
import type { PartCache } from './iptables-rule.ts';
import { newMemory, parseRule } from './iptables-rule.ts';
import type { OpenChains, Spans } from './lazy-chains.ts';
import { openChains } from './lazy-chains.ts';

/** Priorities of linux/netfilter_ipv4.h; nat has another one behind the routing decision. */
const priorities: Readonly<Record<string, number>> = {
  raw: -300,
  mangle: -150,
  nat: -100,
  filter: 0,
  security: 50,
};

const hooks: Readonly<Record<string, Hook>> = {
  PREROUTING: 'prerouting',
  INPUT: 'input',
  FORWARD: 'forward',
  OUTPUT: 'output',
  POSTROUTING: 'postrouting',
};

interface OpenTable extends Table {
  readonly chains: OpenChains;
}

/** What no rule begins with. */
const noRule = '\n';

interface Reading {
  readonly text: string;
  readonly family: Family;
  readonly tables: Table[];
  table: OpenTable | null;
  /** Where the next quote is; the length of the text when there is none. */
  quote: number;
  /** How another rule of the last one's chain begins: `-A NAME `. */
  same: string;
  line: number;
  /** Where the line ends, or the last of those that were read at once. */
  end: number;
  /** What comments say that there is and the dump does not show. */
  readonly lacks: Lack[];
  /** Comments say that it is of the nft backend. */
  isNft: boolean;
}

/**
 * One dump as a rule set. An empty dump has no tables: whether the node has none must be asked of
 * the other backend.
 *
 * @throws DumpError where the text is no such dump, or is cut off.
 */
export function parseIptablesSave(dump: string | Uint8Array, family: Family): RuleSet {
  const text = typeof dump === 'string' ? dump : textOf(dump);
  const quote = text.indexOf('"');
  const reading: Reading = {
    text,
    family,
    tables: [],
    table: null,
    quote: quote < 0 ? text.length : quote,
    same: noRule,
    line: 0,
    end: 0,
    lacks: [],
    isNft: false,
  };
  for (let at = 0; at < text.length; at = reading.end + 1) {
    const newline = text.indexOf('\n', at);
    reading.end = newline < 0 ? text.length : newline;
    reading.line++;
    readLine(reading, at, reading.end);
  }
  if (reading.table !== null) {
    throw new DumpError('the dump ends before COMMIT', reading.line, `*${reading.table.name}`);
  }
  const { tables, lacks, isNft } = reading;
  return { tables, lacks, legacy: isNft || tables.length === 0 ? [] : [family] };
}

/** Node keeps a longer string outside of V8's heap, where each of its characters is far away. */
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
  const first = text.charCodeAt(at);
  // - or [
  if (first === 45 || first === 91) {
    readRule(reading, at, end, first === 45 ? at : text.indexOf('] ', at) + 2);
    return;
  }
  reading.same = noRule;
  switch (first) {
    case 58: {
      // :
      readChain(reading, at, end);
      return;
    }
    case 42: {
      // *
      openTable(reading, at, end);
      return;
    }
    case 35: {
      // A quote in a header line opens nothing. // #
      if (reading.quote < end) quoteFrom(reading, end);
      readComment(reading, text.slice(at, end));
      return;
    }
    default: {
      const line = text.slice(at, end).trim();
      if (line === '') return;
      if (line !== 'COMMIT') throw new DumpError('not a line of iptables-save', reading.line, line);
      if (reading.table === null) throw new DumpError('COMMIT without a table', reading.line, line);
      reading.table = null;
    }
  }
}

const compatible = /^# Table `(\w+)' (is|contains) incompatible\b/;
const warning = /^# Warning: (ip6?)tables-legacy tables present\b/;

/**
 * Comments of iptables-nft-save: `# Table `T' is incompatible, use 'nft' tool.` in place of T, and
 * from 1.8.8 on `# Table `T' contains incompatible base-chains, use 'nft' tool to list them.`
 * before it. `# Warning: iptables-legacy tables present, use iptables-legacy-save to see them` is
 * what it writes to its other output, where both go to one file. Later releases, as 1.8.9, call
 * themselves nf_tables.
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

function openTable(reading: Reading, at: number, end: number): void {
  const { text, family, line } = reading;
  const name = text.slice(at + 1, end).trim();
  if (reading.table !== null) {
    throw new DumpError(`table ${reading.table.name} has no COMMIT`, line, `*${name}`);
  }
  if (!(name in priorities)) throw new DumpError('not a table of iptables', line, `*${name}`);
  const whole = { text, family, memory: newMemory() };
  const chains = openChains(text, (chain, spans) => readRules(whole, chain, spans));
  const table = { family, name, source: 'iptables', chains, sets: new Map() } as const;
  reading.table = table;
  reading.tables.push(table);
}

/** `:NAME POLICY [PACKETS:BYTES]`; the policy of a user's chain is `-`. */
function readChain(reading: Reading, at: number, end: number): void {
  const { text, table, line } = reading;
  const space = text.indexOf(' ', at);
  if (table === null || space < 0 || space > end) {
    const problem = table === null ? 'a chain outside of a table' : 'a chain without a policy';
    throw new DumpError(problem, line, text.slice(at, end));
  }
  const isBase = text.charCodeAt(space + 1) !== 45;
  table.chains.declare(at + 1, space, isBase ? baseOf(reading, table, at, end) : null);
}

function baseOf({ text, line }: Reading, table: OpenTable, at: number, end: number): Base {
  const [name = '', policy] = text.slice(at + 1, end).split(' ', 2);
  const hook = hooks[name];
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
    created: table.chains.size(),
  };
}

/** `-A NAME OPTIONS`, with counters before it when they were asked for. */
function readRule(reading: Reading, at: number, end: number, from: number): void {
  const { text, table, line } = reading;
  if (reading.quote < end) checkQuotes(reading, at, end);
  if (table !== null && text.startsWith(reading.same, from)) {
    table.chains.addNext(end);
    return;
  }
  if (table === null || !text.startsWith('-A ', from)) {
    const problem = table === null ? 'a rule outside of a table' : 'not a line of iptables-save';
    throw new DumpError(problem, line, text.slice(at, end));
  }
  const space = text.indexOf(' ', from + 3);
  const nameEnd = space < 0 || space > end ? end : space;
  const taken = table.chains.addRule({ at, end, nameAt: from + 3, nameEnd, number: line });
  if (taken === null) {
    throw new DumpError('a rule of a chain that is not declared', line, text.slice(at, end));
  }
  if (taken.lines > 1) {
    reading.end = taken.end;
    reading.line += taken.lines - 1;
    if (reading.quote < taken.end) quoteFrom(reading, taken.end);
  }
  reading.same = nameEnd < end ? text.slice(from, nameEnd + 1) : noRule;
}

/** Quotes come in pairs; within a pair a backslash takes the next character as it is. */
function checkQuotes(reading: Reading, at: number, end: number): void {
  const { text } = reading;
  let open = false;
  while (reading.quote < end) {
    if (!open || !isEscaped(text, reading.quote)) open = !open;
    quoteFrom(reading, reading.quote + 1);
  }
  if (open) throw new DumpError('a quote without end', reading.line, text.slice(at, end));
}

function quoteFrom(reading: Reading, at: number): void {
  const next = reading.text.indexOf('"', at);
  reading.quote = next < 0 ? reading.text.length : next;
}

function isEscaped(text: string, at: number): boolean {
  let backslashes = 0;
  while (text.charCodeAt(at - 1 - backslashes) === 92) backslashes++;
  return backslashes % 2 === 1;
}

interface Whole {
  readonly text: string;
  readonly family: Family;
  readonly memory: PartCache;
}

function readRules({ text, family, memory }: Whole, name: string, spans: Spans): readonly Rule[] {
  const rules: Rule[] = [];
  for (let span = 0; span < spans.length; span += 3) {
    const stop = spans[span + 1] ?? 0;
    let line = spans[span + 2] ?? 0;
    for (let at = spans[span] ?? 0; at < stop; line++) {
      const newline = text.indexOf('\n', at);
      const end = newline < 0 || newline > stop ? stop : newline;
      const from = text.charCodeAt(at) === 91 ? text.indexOf('] ', at) + 2 : at;
      const place = { at, options: from + 3 + name.length, end, line, family };
      rules.push(parseRule(text, place, memory));
      at = end + 1;
    }
  }
  return rules;
}
