// Orders the base chains that a packet passes at each hook: by priority, and at equal priority the
// one that was registered last comes first (linux net/netfilter/core.c). Inside a table, the dump
// has the order of creation. Across tables it has no order, so the walk tries both.
//
// Chains of type nat are no hooks of their own: the kernel has one NAT hook in each place, at the
// priority of destination NAT before routing and of source NAT after it, and calls the nat chains
// from there, by their own priority, until one of them translates (nf_nat_core.c).

import type { Base, Chain, Family, Hook, RuleSet, Table } from '../ruleset.ts';
import { rulesOf } from '../ruleset.ts';

export interface BaseChain {
  readonly chain: Chain;
  readonly base: Base;
  readonly table: Table;
}

/** A base chain of type filter or route, or all nat chains in the orders that are possible. */
export type Station =
  | { readonly kind: 'chain'; readonly at: BaseChain }
  | { readonly kind: 'nat'; readonly orders: readonly (readonly BaseChain[])[] };

/** For each hook the orders in which its stations may run: nearly always one. */
export type Hooks = Readonly<Record<Hook, readonly (readonly Station[])[]>>;

/** The hooks that packets of this family meet. */
export function hooksOf(ruleset: RuleSet, family: Family): Hooks {
  const chains = ruleset.tables
    .filter((table) => table.family === family || table.family === 'inet')
    .flatMap((table) => table.chains.bases().flatMap((chain) => baseChain(table, chain)));
  const at = (hook: Hook): readonly (readonly Station[])[] =>
    stationsOf(chains.filter(({ base }) => base.hook === hook));
  return {
    prerouting: at('prerouting'),
    input: at('input'),
    forward: at('forward'),
    output: at('output'),
    postrouting: at('postrouting'),
  };
}

/** Chains that can do nothing are left out: their order means nothing. */
function baseChain(table: Table, chain: Chain): BaseChain[] {
  const { base } = chain;
  if (base === null) return [];
  const isEmpty = base.policy === 'accept' && rulesOf(chain).length === 0;
  return isEmpty ? [] : [{ chain, base, table }];
}

/** `table` is null for the NAT hook. */
interface Placed<T> {
  readonly priority: number;
  readonly table: Table | null;
  readonly created: number;
  readonly item: T;
}

function stationsOf(chains: readonly BaseChain[]): readonly (readonly Station[])[] {
  const placed = chains.map((at) => {
    const { priority, created, type } = at.base;
    return { isNat: type === 'nat', priority, table: at.table, created, item: at };
  });
  const stations = placed
    .filter(({ isNat }) => !isNat)
    .map((entry): Placed<Station> => ({ ...entry, item: { kind: 'chain', at: entry.item } }));
  const nat = placed.filter(({ isNat }) => isNat);
  const [first] = nat;
  if (first !== undefined) {
    const { hook } = first.item.base;
    const priority = hook === 'postrouting' || hook === 'input' ? 100 : -100;
    const item = { kind: 'nat', orders: ordersOf(nat) } as const;
    stations.push({ priority, table: null, created: 0, item });
  }
  return ordersOf(stations);
}

/** More members of one priority than this are too many to try every order of. */
const mostTried = 4;

/** All orders by priority; of two tables with one priority both orders. */
function ordersOf<T>(members: readonly Placed<T>[]): readonly (readonly T[])[] {
  const byPriority = Map.groupBy(members, ({ priority }) => priority);
  let orders: readonly (readonly T[])[] = [[]];
  for (const [, tied] of [...byPriority].sort(([a], [b]) => a - b)) {
    const ways = tied.length > mostTried ? rotations(tied) : permutations(tied);
    const items = ways.map((way) => way.map(({ item }) => item));
    orders = orders.flatMap((order) => items.map((way) => [...order, ...way]));
  }
  return orders;
}

const rotations = <T>(members: readonly T[]): T[][] =>
  members.map((_, at) => [...members.slice(at), ...members.slice(0, at)]);

/** A member may come first if none of its table was created later. */
function permutations<T>(members: readonly Placed<T>[]): readonly (readonly Placed<T>[])[] {
  if (members.length <= 1) return [members];
  const firsts = members.filter(({ table, created }) =>
    members.every((other) => other.table !== table || other.created <= created),
  );
  return firsts.flatMap((first) =>
    permutations(members.filter((other) => other !== first)).map((rest) => [first, ...rest]),
  );
}
