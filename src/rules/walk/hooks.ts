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

const compiled = new WeakMap<RuleSet, Map<Family, Hooks>>();

/** The hooks that packets of this family meet. */
export function hooksOf(ruleset: RuleSet, family: Family): Hooks {
  const known = compiled.get(ruleset) ?? new Map<Family, Hooks>();
  compiled.set(ruleset, known);
  const hooks = known.get(family) ?? compile(ruleset, family);
  known.set(family, hooks);
  return hooks;
}

function compile(ruleset: RuleSet, family: Family): Hooks {
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

interface Placed {
  readonly priority: number;
  /** null: the NAT hook. */
  readonly table: Table | null;
  readonly created: number;
  readonly station: Station;
}

function stationsOf(chains: readonly BaseChain[]): readonly (readonly Station[])[] {
  const placed: Placed[] = chains
    .filter(({ base }) => base.type !== 'nat')
    .map((at) => ({
      priority: at.base.priority,
      table: at.table,
      created: at.base.created,
      station: { kind: 'chain', at },
    }));
  const nat = chains.filter(({ base }) => base.type === 'nat');
  const [first] = nat;
  if (first !== undefined) {
    const isSource = first.base.hook === 'postrouting' || first.base.hook === 'input';
    const orders = ordersOf(
      nat,
      ({ base }) => base.priority,
      (first, other) =>
        first.table === other.table ? other.base.created - first.base.created : null,
    );
    const station: Station = { kind: 'nat', orders };
    placed.push({ priority: isSource ? 100 : -100, table: null, created: 0, station });
  }
  const orders = ordersOf(
    placed,
    ({ priority }) => priority,
    (first, other) =>
      first.table !== null && first.table === other.table ? other.created - first.created : null,
  );
  return orders.map((order) => order.map(({ station }) => station));
}

/** More members of one priority than this are too many to try every order of. */
const mostTried = 4;

/** All orders by priority; where `compare` is null for two of one priority, both their orders. */
function ordersOf<T>(
  members: readonly T[],
  priorityOf: (member: T) => number,
  compare: (first: T, other: T) => number | null,
): readonly (readonly T[])[] {
  const priorities = [...new Set(members.map(priorityOf))].sort((a, b) => a - b);
  let orders: readonly (readonly T[])[] = [[]];
  for (const priority of priorities) {
    const tied = members.filter((member) => priorityOf(member) === priority);
    const ways = tied.length > mostTried ? rotations(tied) : permutations(tied, compare);
    orders = orders.flatMap((order) => ways.map((way) => [...order, ...way]));
  }
  return orders;
}

const rotations = <T>(members: readonly T[]): T[][] =>
  members.map((_, at) => [...members.slice(at), ...members.slice(0, at)]);

function permutations<T>(
  members: readonly T[],
  compare: (first: T, other: T) => number | null,
): readonly (readonly T[])[] {
  if (members.length <= 1) return [members];
  // A member may come first if no other must come before it.
  const firsts = members.filter((candidate) =>
    members.every((other) => (compare(candidate, other) ?? 0) <= 0),
  );
  return firsts.flatMap((candidate) =>
    permutations(
      members.filter((other) => other !== candidate),
      compare,
    ).map((rest) => [candidate, ...rest]),
  );
}
