// The chains of one table of a dump by iptables-save. A large node has hundreds of thousands, most
// with the one or two rules of an endpoint, and few walks come to each. So of a chain only places
// in the text are kept, as numbers in one array, and it becomes an object when it is asked for:
// objects for all of them cost more than reading the dump. Those that are long, or asked for again
// and again, stay; of the others those asked for lately: packets of one frontend ask for the same.
//
// iptables-save prints chains in the order in which it prints their rules: the next rule is of the
// same chain as the last, or of the next that has any.

import type { Model } from './endpoints.ts';
import { endpointOf, modelOf, mostRules } from './endpoints.ts';
import type { Base, Chain, Chains, Endpoint, Rule } from './ruleset.ts';
import { rulesOf } from './ruleset.ts';

/** Runs of lines: start, end, and number of the first line of each. */
export type Spans = readonly number[];

export interface OpenChains extends Chains {
  /** Takes up a chain; its name is in the text from `at` to `end`. */
  declare(at: number, end: number, base: Base | null): void;
  /** Takes up a line of a rule: returns false where its chain is not declared. */
  addRule(name: string, at: number, end: number, line: number): boolean;
  /** Takes up another line of the same chain, right behind the last. */
  addNext(end: number): void;
  /** How many there are. */
  size(): number;
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
/** Not 0: it was no endpoint's when it was asked for. */
const odd = 9;
const columns = 10;

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

interface Store {
  readonly text: string;
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
  /** Of chains of endpoints, the one that was right the last time first. */
  readonly models: Model[];
}

/** An empty set of chains whose names and rules are in this text. */
export function openChains(text: string, readRules: ReadRules): OpenChains {
  const store: Store = {
    text,
    read: ({ name, place }) => readRules(name, spansOf(store, place)),
    count: 0,
    rows: new Int32Array(64 * columns),
    buckets: new Int32Array(64).fill(-1),
    last: -1,
    more: new Map(),
    kept: new Map(),
    lately: Array.from({ length: mostLately }),
    models: [],
  };
  const bases: Chain[] = [];
  return {
    bases: () => bases,
    declare: (at, end, base) => {
      const chain = declare(store, at, end);
      if (base !== null) bases.push(chainAt(store, chain, base));
    },
    addRule: (name, at, end, line) => addRule(store, name, at, end, line),
    addNext: (end) => prolong(store, end),
    size: () => store.count,
    get: (name) => {
      const chain = find(store, name);
      return chain < 0 ? undefined : chainAt(store, chain, null);
    },
    endpoint: (name) => endpointIn(store, find(store, name), name),
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

function addRule(store: Store, name: string, at: number, end: number, line: number): boolean {
  const { rows, last, count } = store;
  const next = last + 1;
  const chain = next < count && isNamed(store, next, name) ? next : find(store, name);
  if (chain < 0) return false;
  store.last = chain;
  const row = chain * columns;
  if (rows[row + rules] === 0) {
    rows[row + start] = at;
    rows[row + stop] = end;
    rows[row + firstLine] = line;
  } else {
    const more = store.more.get(chain) ?? [];
    store.more.set(chain, more);
    more.push(at, end, line);
  }
  rows[row + rules] = (rows[row + rules] ?? 0) + 1;
  return true;
}

function prolong({ rows, last, more }: Store, end: number): void {
  const row = last * columns;
  const spans = more.size === 0 ? undefined : more.get(last);
  if (spans === undefined) rows[row + stop] = end;
  else spans[spans.length - 2] = end;
  rows[row + rules] = (rows[row + rules] ?? 0) + 1;
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

/** What a chain does if it is as one of the models; the first of each kind becomes one. */
function endpointIn(store: Store, place: number, name: string): Endpoint | null {
  const { text, rows, models, more } = store;
  const row = place * columns;
  const count = rows[row + rules] ?? 0;
  if (place < 0 || count === 0 || count > mostRules || rows[row + odd] !== 0) return null;
  if (more.has(place)) return null;
  const [from, to] = [rows[row + start] ?? 0, rows[row + stop] ?? 0];
  for (const model of models) {
    const endpoint = endpointOf(model, text, name, from, to);
    if (endpoint === null) continue;
    if (model !== models[0]) models.splice(0, 0, ...models.splice(models.indexOf(model), 1));
    return endpoint;
  }
  rows[row + odd] = 1;
  if (models.length >= mostModels) return null;
  const model = modelOf(rulesOf(chainAt(store, place, null)), text, name, from, to);
  if (model !== null) models.unshift(model);
  return null;
}

function spansOf({ rows, more }: Store, chain: number): Spans {
  const row = chain * columns;
  if (rows[row + rules] === 0) return [];
  const first = [rows[row + start] ?? 0, rows[row + stop] ?? 0, rows[row + firstLine] ?? 0];
  return more.size === 0 ? first : [...first, ...(more.get(chain) ?? [])];
}
