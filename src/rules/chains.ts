// The chains of one table of a dump by iptables-save. A large node has hundreds of thousands, most
// with the one or two rules of an endpoint, and few walks come to each. So of a chain only places
// in the text are kept, as numbers in one array, and it becomes an object when it is asked for:
// objects for all of them cost more than reading the dump. Those that are asked for often, or are
// long, stay.
//
// iptables-save prints chains in the order in which it prints their rules: the next rule is of the
// same chain as the last, or of the next that has any.

import type { Base, Chain, Chains, Rule } from './ruleset.ts';

/** Runs of lines: start, end, and number of the first line of each. */
export type Spans = readonly number[];

export interface OpenChains extends Chains {
  /** Takes up a chain; its name is in the text from `at` to `end`. */
  declare(at: number, end: number, base: Base | null): void;
  /** Takes up a line of a rule: returns false where its chain is not declared. */
  addRule(nameAt: number, nameEnd: number, at: number, end: number, line: number): boolean;
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
const asked = 8;
const columns = 9;

/** A chain asked for this often is kept: every packet passes it. */
const often = 8;

/** A chain of so many rules costs more to read again than to keep. */
const long = 256;

interface Store {
  readonly text: string;
  readonly readRules: ReadRules;
  count: number;
  rows: Int32Array;
  buckets: Int32Array;
  /** The chain of the last rule. */
  last: number;
  readonly based: Map<number, Base>;
  /** Spans behind the first. */
  readonly more: Map<number, number[]>;
  readonly kept: Map<number, Chain>;
}

/** An empty set of chains whose names and rules are in this text. */
export function openChains(text: string, readRules: ReadRules): OpenChains {
  const store: Store = {
    text,
    readRules,
    count: 0,
    rows: new Int32Array(64 * columns),
    buckets: new Int32Array(64).fill(-1),
    last: -1,
    based: new Map(),
    more: new Map(),
    kept: new Map(),
  };
  const bases: Chain[] = [];
  return {
    bases: () => bases,
    declare: (at, end, base) => {
      const chain = declare(store, at, end);
      if (base === null) return;
      store.based.set(chain, base);
      bases.push(chainAt(store, chain, true));
    },
    addRule: (...place) => addRule(store, ...place),
    size: () => store.count,
    get: (name) => {
      const chain = find(store, name);
      return chain < 0 ? undefined : chainAt(store, chain, false);
    },
    *values() {
      for (let chain = 0; chain < store.count; chain++) yield chainAt(store, chain, false);
    },
  };
}

function declare(store: Store, at: number, end: number): number {
  const known = find(store, store.text.slice(at, end));
  if (known >= 0) return known;
  const chain = store.count++;
  if (store.count * columns > store.rows.length) grow(store);
  const row = chain * columns;
  const { rows } = store;
  rows[row + nameAt] = at;
  rows[row + nameEnd] = end;
  rows[row + hash] = hashOf(store.text, at, end);
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

/** So many characters tell names apart: kube-proxy's end in as many that are random. */
const hashed = 12;

/** FNV-1a of the end of a name, 32 bits, mixed so that its low bits will do. */
function hashOf(text: string, at: number, end: number): number {
  let value = 0x811c9dc5 ^ (end - at);
  for (let next = Math.max(at, end - hashed); next < end; next++) {
    value = Math.imul(value ^ text.charCodeAt(next), 0x01000193);
  }
  return value ^ (value >>> 15);
}

/** The chain of this name; -1: there is none. */
function find({ text, rows, buckets }: Store, name: string): number {
  const { length } = name;
  const value = hashOf(name, 0, length);
  let chain = buckets[value & (buckets.length - 1)] ?? -1;
  while (chain >= 0) {
    const row = chain * columns;
    const own = rows[row + nameAt] ?? 0;
    const isSame = rows[row + hash] === value && (rows[row + nameEnd] ?? 0) - own === length;
    if (isSame && text.startsWith(name, own)) return chain;
    chain = rows[row + sameBucket] ?? -1;
  }
  return -1;
}

/** Whether the name at this place is the chain's: from its end, as names begin alike. */
function isNamed({ text, rows }: Store, chain: number, at: number, end: number): boolean {
  const own = rows[chain * columns + nameAt] ?? 0;
  const length = (rows[chain * columns + nameEnd] ?? 0) - own;
  if (length !== end - at) return false;
  for (let next = length - 1; next >= 0; next--) {
    if (text.charCodeAt(own + next) !== text.charCodeAt(at + next)) return false;
  }
  return true;
}

function addRule(
  store: Store,
  name: number,
  nameTo: number,
  at: number,
  end: number,
  line: number,
): boolean {
  const { text, rows, last, count } = store;
  if (last >= 0 && isNamed(store, last, name, nameTo)) {
    prolong(store, last, end);
    return true;
  }
  const next = last + 1;
  const isNext = next < count && isNamed(store, next, name, nameTo);
  const chain = isNext ? next : find(store, text.slice(name, nameTo));
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

function prolong(store: Store, chain: number, end: number): void {
  const row = chain * columns;
  const more = store.more.size === 0 ? undefined : store.more.get(chain);
  if (more === undefined) store.rows[row + stop] = end;
  else more[more.length - 2] = end;
  store.rows[row + rules] = (store.rows[row + rules] ?? 0) + 1;
}

/** The chain as an object: the one that is kept, or a new one. */
function chainAt(store: Store, place: number, keep: boolean): Chain {
  const known = store.kept.get(place);
  if (known !== undefined) return known;
  const { rows, text } = store;
  const row = place * columns;
  const times = (rows[row + asked] ?? 0) + 1;
  rows[row + asked] = times;
  const isKept = keep || times >= often || (rows[row + rules] ?? 0) >= long;
  const name = text.slice(rows[row + nameAt], rows[row + nameEnd]);
  const chain: Chain = {
    name,
    base: store.based.get(place) ?? null,
    place,
    read: (self) => store.readRules(self.name, spansOf(store, self.place)),
    keeps: isKept,
    rules: null,
    index: null,
  };
  if (isKept) store.kept.set(place, chain);
  return chain;
}

function spansOf({ rows, more }: Store, chain: number): Spans {
  const row = chain * columns;
  if (rows[row + rules] === 0) return [];
  const first = [rows[row + start] ?? 0, rows[row + stop] ?? 0, rows[row + firstLine] ?? 0];
  return more.size === 0 ? first : [...first, ...(more.get(chain) ?? [])];
}
