// Orders the base chains that a packet passes at each hook: by priority, and at equal priority the
// one that was registered last comes first (linux net/netfilter/core.c). Inside a table, the dump
// has the order of creation. Across tables it has no order, so the walk tries both.
//
// The kernel has one NAT hook in each place, at the priority of destination NAT before routing and
// of source NAT after it. It calls the nat chains by their own priority until one translates
// (nf_nat_core.c).

import type { Base, Chain, Family, Hook, RuleSet, Table } from '../ruleset.ts';
import { hooks, rulesOf } from '../ruleset.ts';

export interface BaseChain {
  readonly chain: Chain;
  readonly base: Base;
  readonly table: Table;
}

interface NatHook {
  readonly base: Pick<Base, 'priority' | 'created'>;
  readonly table: null;
  readonly orders: readonly (readonly BaseChain[])[];
}

export type Station = BaseChain | NatHook;

/** For each hook the orders in which its stations may run: nearly always one. */
export type Hooks = Readonly<Record<Hook, readonly (readonly Station[])[]>>;

/** The hooks that packets of this family meet. */
export function hooksOf(ruleset: RuleSet, family: Family): Hooks {
  const chains = ruleset.tables
    .filter((table) => table.family === family || table.family === 'inet')
    .flatMap((table) => table.chains.bases().flatMap((chain) => baseChain(table, chain)));
  const stations = hooks.map((hook) => {
    const called = chains.filter(({ base }) => base.hook === hook);
    return [hook, stationsOf(hook, called)] as const;
  });
  return Object.fromEntries(stations) as Hooks;
}

/** Chains that can do nothing are left out: their order means nothing. */
function baseChain(table: Table, chain: Chain): BaseChain[] {
  const { base } = chain;
  if (base === null) return [];
  const isEmpty = base.policy === 'accept' && rulesOf(chain).length === 0;
  return isEmpty ? [] : [{ chain, base, table }];
}

/** Whether a hook is behind routing: there, NAT changes the source. */
export const changesSource = (hook: Hook): boolean => hook === 'postrouting' || hook === 'input';

function stationsOf(hook: Hook, chains: readonly BaseChain[]): readonly (readonly Station[])[] {
  const { nat = [], others = [] } = Object.groupBy(chains, ({ base }) =>
    base.type === 'nat' ? 'nat' : 'others',
  );
  if (nat.length === 0) return ordersOf(others);
  const base = { priority: changesSource(hook) ? 100 : -100, created: 0 };
  return ordersOf<Station>([...others, { base, table: null, orders: ordersOf(nat) }]);
}

/** More members of one priority than this are too many to try every order of. */
const mostTried = 4;

function ordersOf<T extends Station>(members: readonly T[]): readonly (readonly T[])[] {
  const byPriority = Map.groupBy(members, ({ base }) => base.priority);
  let orders: readonly (readonly T[])[] = [[]];
  for (const [, tied] of [...byPriority].sort(([a], [b]) => a - b)) {
    const ways = tied.length > mostTried ? rotations(tied) : permutations(tied);
    orders = orders.flatMap((order) => ways.map((way) => [...order, ...way]));
  }
  return orders;
}

const rotations = <T>(members: readonly T[]): T[][] =>
  members.map((_, at) => [...members.slice(at), ...members.slice(0, at)]);

/** A member may come first if none of its table was created later. */
function permutations<T extends Station>(members: readonly T[]): readonly (readonly T[])[] {
  if (members.length <= 1) return [members];
  const firsts = members.filter(({ table, base }) =>
    members.every((other) => other.table !== table || other.base.created <= base.created),
  );
  return firsts.flatMap((first) =>
    permutations(members.filter((other) => other !== first)).map((rest) => [first, ...rest]),
  );
}
