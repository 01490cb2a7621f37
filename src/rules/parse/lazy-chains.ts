// The chains of one table of a dump by iptables-save. A large node has hundreds of thousands, most
// with the one or two rules of an endpoint, and few walks come to each. So of a chain only places
// in the text are kept, as numbers in one array, and it becomes an object when it is asked for:
// objects for all of them cost more than reading the dump. Those that are long, or asked for again
// and again, stay; of the others those asked for lately: packets of one frontend ask for the same.
//
// iptables-save prints chains in the order in which it prints their rules: the next rule is of the
// same chain as the last, or of the next that has any.

import type { Base, Chain, Chains, DnatTarget, Rule } from '../ruleset.ts';
import type { Model } from '../walk/endpoint-chains.ts';
import { endpointAt, goalIn, modelOf, mostLines } from '../walk/endpoint-chains.ts';

/** Runs of lines: start, end, and number of the first line of each. */
export type Spans = readonly number[];

export interface OpenChains extends Chains {
  /** Takes up a chain; its name is in the text from `at` to `end`. */
  declare(at: number, end: number, base: Base | null): void;
  /**
   * Takes up a line of a rule, whose chain's name is in the text from `nameAt` to `nameEnd`, and
   * lines behind it that are seen to belong to it. null: its chain is not declared.
   */
  addRule(line: RuleLine): AddedLines | null;
  /** Takes up another line of the same chain, right behind the last. */
  addNext(end: number): void;
  /** How many there are. */
  size(): number;
}

/** A line of a rule, and where in the text it is. */
export interface RuleLine {
  readonly at: number;
  readonly end: number;
  readonly nameAt: number;
  readonly nameEnd: number;
  readonly number: number;
}

/** Lines that were taken up at once. */
export interface AddedLines {
  readonly end: number;
  readonly lines: number;
}

type ReadRules = (name: string, spans: Spans) => readonly Rule[];

// Columns of a chain.
const nameAt = 0;
const nameEnd = 1;
const hash = 2;
const sameBucket = 3;
const start = 4;
const stop = 5;
const firstLine = 6;
const rules = 7;
const made = 8;
/** Of an endpoint's: where its goal is in the text, and its model; else 0. */
const goal = 9;
const model = 10;
const columns = 11;

/** A chain that was made an object so often stays one: every packet passes it. */
const often = 8;

/** A chain of so many rules costs more to read again than to keep. */
const long = 256;

/**
 * As many chains of those asked for lately stay, at most. More live long enough to be moved by V8's
 * collections, which costs more than to read them again.
 */
const mostLately = 32;

/** A node has few kinds of endpoints: by protocol, and by whether rules have comments. */
const mostModels = 8;

/** So many chains that translate are read to see whether they are an endpoint's. */
const mostTries = 1024;

interface Store {
  readonly text: string;
  readonly readRules: ReadRules;
  readonly read: Chain['read'];
  count: number;
  rows: Int32Array;
  buckets: Int32Array;
  /** The chain of the last rule. */
  last: number;
  /** Spans behind the first. */
  readonly more: Map<number, number[]>;
  readonly kept: Map<number, Chain>;
  /** Each in one place, by which chain it is. */
  readonly lately: (Chain | undefined)[];
  /** Of chains of endpoints. */
  readonly models: Model[];
  tries: number;
}

/** An empty set of chains whose names and rules are in this text. */
export function openChains(text: string, readRules: ReadRules): OpenChains {
  const store: Store = {
    text,
    readRules,
    read: ({ name, place }) => readRules(name, spansOf(store, place)),
    count: 0,
    rows: new Int32Array(64 * columns),
    buckets: new Int32Array(64).fill(-1),
    last: -1,
    more: new Map(),
    kept: new Map(),
    lately: Array.from({ length: mostLately }),
    models: [],
    tries: 0,
  };
  const bases: Chain[] = [];
  return {
    bases: () => bases,
    declare: (at, end, base) => {
      const chain = declare(store, at, end);
      if (base !== null) bases.push(chainAt(store, chain, base));
    },
    addRule: (line) => addRule(store, line),
    addNext: (end) => prolong(store, end),
    size: () => store.count,
    get: (name) => {
      const chain = find(store, name);
      return chain < 0 ? undefined : chainAt(store, chain, null);
    },
    endpoint: (name) => endpointOf(store, find(store, name)),
    *values() {
      for (let chain = 0; chain < store.count; chain++) yield chainAt(store, chain, null);
    },
  };
}

function declare(store: Store, at: number, end: number): number {
  const value = hashOf(store.text, at, end);
  const known = firstOf(store, value) < 0 ? -1 : find(store, store.text.slice(at, end));
  if (known >= 0) return known;
  const chain = store.count++;
  if (store.count * columns > store.rows.length) grow(store);
  const row = chain * columns;
  const { rows } = store;
  rows[row + nameAt] = at;
  rows[row + nameEnd] = end;
  rows[row + hash] = value;
  link(store, chain);
  return chain;
}

function grow(store: Store): void {
  const rows = new Int32Array(store.rows.length * 2);
  rows.set(store.rows);
  store.rows = rows;
  store.buckets = new Int32Array(store.buckets.length * 2).fill(-1);
  for (let chain = 0; chain < store.count - 1; chain++) link(store, chain);
}

function link({ rows, buckets }: Store, chain: number): void {
  const row = chain * columns;
  const bucket = (rows[row + hash] ?? 0) & (buckets.length - 1);
  rows[row + sameBucket] = buckets[bucket] ?? -1;
  buckets[bucket] = chain;
}

/** So many characters tell names apart: kube-proxy's end in twice as many that are random. */
const hashed = 8;

/** FNV-1a of the end of a name, 32 bits, mixed so that its low bits will do. */
function hashOf(text: string, at: number, end: number): number {
  let value = 0x811c9dc5 ^ (end - at);
  for (let next = Math.max(at, end - hashed); next < end; next++) {
    value = Math.imul(value ^ text.charCodeAt(next), 0x01000193);
  }
  return value ^ (value >>> 15);
}

/** The chain of this name; -1: there is none. */
function find(store: Store, name: string): number {
  const value = hashOf(name, 0, name.length);
  let chain = firstOf(store, value);
  while (chain >= 0 && !isNamed(store, chain, name)) {
    chain = likeOne(store, store.rows[chain * columns + sameBucket] ?? -1, value);
  }
  return chain;
}

/** The latest chain whose name has this hash; -1: there is none. */
const firstOf = (store: Store, value: number): number =>
  likeOne(store, store.buckets[value & (store.buckets.length - 1)] ?? -1, value);

/** From this chain of a bucket on, the first whose name has this hash. */
function likeOne({ rows }: Store, from: number, value: number): number {
  let chain = from;
  while (chain >= 0 && rows[chain * columns + hash] !== value) {
    chain = rows[chain * columns + sameBucket] ?? -1;
  }
  return chain;
}

function isNamed({ text, rows }: Store, chain: number, name: string): boolean {
  const at = rows[chain * columns + nameAt] ?? 0;
  const end = rows[chain * columns + nameEnd] ?? 0;
  return end - at === name.length && text.startsWith(name, at);
}

function addRule(store: Store, line: RuleLine): AddedLines | null {
  const { text, rows, last, count, more } = store;
  const { at, end, nameAt: from, nameEnd: to } = line;
  const name = text.slice(from, to);
  const next = last + 1;
  const chain = next < count && isNamed(store, next, name) ? next : find(store, name);
  if (chain < 0) return null;
  if (chain !== last) learn(store);
  store.last = chain;
  const row = chain * columns;
  if (rows[row + rules] !== 0) {
    const spans = more.get(chain) ?? [];
    more.set(chain, spans);
    spans.push(at, end, line.number);
    rows[row + rules] = (rows[row + rules] ?? 0) + 1;
    rows[row + goal] = 0;
    return { end, lines: 1 };
  }
  // Where its rules are, its name is too: near in memory.
  rows[row + nameAt] = from;
  rows[row + nameEnd] = to;
  rows[row + start] = at;
  rows[row + firstLine] = line.number;
  const taken = endpointAs(store, row, name, at) ?? { end, lines: 1 };
  rows[row + stop] = taken.end;
  rows[row + rules] = taken.lines;
  return taken;
}

/** All lines of a chain that begins here and is as one of the models; null: it is another. */
function endpointAs({ text, rows, models }: Store, row: number, name: string, at: number) {
  for (let known = 0; known < models.length; known++) {
    const own = models[known];
    const place = own === undefined ? -1 : goalIn(own, text, name, at);
    if (own === undefined || place < 0) continue;
    rows[row + goal] = place;
    rows[row + model] = known;
    const newline = text.indexOf('\n', place);
    return { end: newline < 0 ? text.length : newline, lines: own.lines };
  }
  return null;
}

function prolong({ rows, last, more }: Store, end: number): void {
  const row = last * columns;
  const spans = more.size === 0 ? undefined : more.get(last);
  if (spans === undefined) rows[row + stop] = end;
  else spans[spans.length - 2] = end;
  rows[row + rules] = (rows[row + rules] ?? 0) + 1;
  rows[row + goal] = 0;
}

/** The chain as an object: the one that is kept, or a new one. */
function chainAt(store: Store, place: number, base: Base | null): Chain {
  const slot = place % mostLately;
  const last = store.lately[slot];
  if (last?.place === place) return last;
  const chain = store.kept.get(place) ?? makeChain(store, place, base);
  store.lately[slot] = chain;
  return chain;
}

function makeChain({ text, rows, read, kept }: Store, place: number, base: Base | null): Chain {
  const row = place * columns;
  const times = (rows[row + made] ?? 0) + 1;
  rows[row + made] = times;
  const name = text.slice(rows[row + nameAt], rows[row + nameEnd]);
  const chain: Chain = { name, base, place, read, rules: null, index: null };
  const isKept = base !== null || times >= often || (rows[row + rules] ?? 0) >= long;
  if (isKept) kept.set(place, chain);
  return chain;
}

/** What a chain does that is as one of the models; null: it must be read. */
function endpointOf({ text, rows, models }: Store, chain: number): DnatTarget | null {
  const row = chain * columns;
  const at = chain < 0 ? 0 : (rows[row + goal] ?? 0);
  const own = at === 0 ? undefined : models[rows[row + model] ?? 0];
  return own === undefined ? null : endpointAt(own, text, at, rows[row + stop] ?? 0);
}

/** Makes a model of the chain that was the last, if it is one of a kind that is not known. */
function learn(store: Store): void {
  const { text, rows, models, last, more } = store;
  const row = last * columns;
  if (last < 0 || rows[row + goal] !== 0 || (rows[row + rules] ?? 0) > mostLines) return;
  if (more.has(last) || models.length >= mostModels || store.tries >= mostTries) return;
  const [from = 0, to = 0] = [rows[row + start], rows[row + stop]];
  if (!text.slice(from, to).includes(' --to-destination ')) return;
  store.tries++;
  const name = text.slice(rows[row + nameAt], rows[row + nameEnd]);
  const own = modelOf(store.readRules(name, spansOf(store, last)), text, name, from, to);
  if (own !== null) models.push(own);
}

function spansOf({ rows, more }: Store, chain: number): Spans {
  const row = chain * columns;
  if (rows[row + rules] === 0) return [];
  const first = [rows[row + start] ?? 0, rows[row + stop] ?? 0, rows[row + firstLine] ?? 0];
  return more.size === 0 ? first : [...first, ...(more.get(chain) ?? [])];
}
