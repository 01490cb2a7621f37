// Lists the frontends of a rule set: addresses and ports at which it handles new connections before
// routing. They are found by what rules match, not by names or comments.
//
// A frontend has one address and one port. For a rule that matches a range, the ends of the range
// are used, and for a rule that matches no port, a port that hardly any Service has.
// Left out: rules that exclude.

import { formatAddress } from '../../model/ip.ts';
import type { Protocol } from '../../model/proxy-config.ts';
import { familyOf } from '../ruleset.ts';
import type { Address, Range } from '../../model/ip.ts';
import type { Chain, ElementSet, LookupKey, Rule, RuleSet, Statement, Table } from '../ruleset.ts';
import { rulesOf } from '../ruleset.ts';

export interface RuleFrontend {
  readonly family: 'ip' | 'ip6';
  /** null: any address that is the node's own. */
  readonly address: string | null;
  readonly protocol: Protocol;
  readonly port: number;
  /** How many tables have it in chains of type nat. */
  readonly translators: number;
}

const askedFields = ['destination', 'protocol', 'destination port'];

type MatchedFields = Readonly<Partial<Record<string, readonly Range[]>>>;

const protocols: Record<number, Protocol> = { 6: 'tcp', 17: 'udp', 132: 'sctp' };

/** Each once. */
export function frontendsInRules(ruleset: RuleSet): RuleFrontend[] {
  const found: Search['found'] = new Map();
  for (const table of ruleset.tables) {
    // What one of the hooks came to, another need not search again.
    const seen = { nat: new Set<string>(), filter: new Set<string>() };
    for (const chain of table.chains.bases()) {
      const { base } = chain;
      if (base?.hook !== 'prerouting' && base?.hook !== 'output') continue;
      const isNat = base.type === 'nat';
      search({ table, isNat, found, seen: seen[isNat ? 'nat' : 'filter'] }, chain, {});
    }
  }
  return [...found.values()].map(({ by, ...frontend }) => ({ ...frontend, translators: by.size }));
}

interface Search {
  readonly table: Table;
  readonly isNat: boolean;
  readonly found: Map<string, Omit<RuleFrontend, 'translators'> & { readonly by: Set<Table> }>;
  readonly seen: Set<string>;
}

const nameOf = (ranges?: readonly Range[]): string =>
  ranges?.map(({ low, high }) => `${low}-${high}`).join() ?? 'any';

function search(at: Search, chain: Chain, asked: MatchedFields): void {
  const key = [chain.name, ...askedFields.map((field) => nameOf(asked[field]))].join(' ');
  if (at.seen.has(key)) return;
  at.seen.add(key);
  for (const rule of rulesOf(chain)) searchRule(at, rule, asked);
}

function searchRule(at: Search, rule: Rule, before: MatchedFields): void {
  let asked = before;
  for (const statement of rule.statements) {
    asked = narrowed(asked, statement);
    if (statement.kind === 'verdict map') {
      for (const part of elementFields(statement.key, statement.set, asked)) add(at, part);
      searchTargets(at, statement.set, statement.key, asked);
    } else if (statement.kind === 'jump' || statement.kind === 'goto') {
      if (add(at, asked)) return;
      const target = at.table.chains.get(statement.chain);
      if (target !== undefined) search(at, target, asked);
    } else if (translates.has(statement.kind)) {
      add(at, asked.destination === undefined ? asked : { 'destination port': discard, ...asked });
    } else if (stops.has(statement.kind)) add(at, asked);
  }
}

const translates = new Set<Statement['kind']>(['dnat', 'dnat by map', 'redirect']);
const stops = new Set<Statement['kind']>(['drop', 'reject']);

/** The port of the discard protocol, for rules that take all. */
const discard: readonly Range[] = [{ low: 9, high: 9 }];

function narrowed(asked: MatchedFields, statement: Statement): MatchedFields {
  if (statement.kind !== 'field' || statement.negate || statement.mask !== null) return asked;
  const { field, ranges } = statement;
  if (field === 'destination' && ranges.every(isLoopback)) return asked;
  return asking(asked, field, ranges);
}

/** Loopback ranges are the node's own, as are the addresses of kube-proxy's node ports. */
const isLoopback = ({ low, high }: Range): boolean =>
  typeof low === 'number' && low < high && low >= 0x7f000000 && high <= 0x7fffffff;

function asking(asked: MatchedFields, field: string, ranges: readonly Range[]): MatchedFields {
  if (!askedFields.includes(field)) return asked;
  const both = asked[field]?.flatMap((range) => ranges.flatMap((other) => meet(range, other)));
  return { ...asked, [field]: both ?? ranges };
}

function meet(range: Range, other: Range): Range[] {
  const low = other.low > range.low ? other.low : range.low;
  const high = other.high < range.high ? other.high : range.high;
  return low > high ? [] : [{ low, high }];
}

/** A rule with more ranges is a list of addresses and not a frontend. */
const mostRanges = 16;

const endsOf = (ranges: readonly Range[]): ReadonlySet<Address> =>
  new Set(ranges.slice(0, mostRanges).flatMap(({ low, high }) => [low, high]));

function add(at: Search, asked: MatchedFields): boolean {
  const { destination, protocol, 'destination port': port } = asked;
  if (protocol === undefined || port === undefined) return false;
  const addresses = destination === undefined ? [null] : [...endsOf(destination)];
  for (const number of endsOf(protocol)) {
    const name = protocols[Number(number)];
    if (name === undefined) continue;
    for (const end of addresses) {
      for (const number of endsOf(port)) addOne(at, end, name, Number(number));
    }
  }
  return true;
}

function addOne(search: Search, address: Address | null, protocol: Protocol, port: number): void {
  const { found, table, isNat } = search;
  const own = table.family === 'inet' ? (['ip', 'ip6'] as const) : [table.family];
  for (const family of address === null ? own : [familyOf(address)]) {
    const text = address === null ? null : formatAddress(address);
    const key = `${family} ${String(text)} ${protocol} ${port}`;
    const by = new Set<Table>();
    const frontend = found.get(key) ?? { family, address: text, protocol, port, by };
    found.set(key, frontend);
    if (isNat) frontend.by.add(table);
  }
}

function elementFields(key: LookupKey, set: ElementSet, asked: MatchedFields): MatchedFields[] {
  if (key.kind !== 'fields') return [];
  return set.elements.map((element) =>
    key.fields.reduce((fields, field, index) => {
      const component = element.key[index];
      return typeof component === 'object' ? asking(fields, field, [component]) : fields;
    }, asked),
  );
}

/** Chains that a map leads to without having asked for a port. */
function searchTargets(at: Search, set: ElementSet, key: LookupKey, asked: MatchedFields): void {
  const port = 'destination port';
  if (key.kind === 'fields' && (key.fields.includes(port) || asked[port] !== undefined)) return;
  for (const { verdict } of set.elements) {
    if (verdict?.kind !== 'jump' && verdict?.kind !== 'goto') continue;
    const target = at.table.chains.get(verdict.chain);
    if (target !== undefined) search(at, target, asked);
  }
}
