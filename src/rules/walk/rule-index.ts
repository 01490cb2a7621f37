// Which rules of a long chain can match a packet at all. KUBE-SERVICES of a large cluster has tens
// of thousands of rules, each for one address; going through all of them for every packet would
// cost a cluster's size squared. A chain is sorted once by the destination address, or else the
// destination port, that its rules ask for; a walk then sees those for its own, and all rules that
// ask for neither, in their order.

import { getOrInsert } from '../../model/get-or-insert.ts';
import type { Address } from '../../model/ip.ts';
import type { Chain, PacketField, Rule, Statement } from '../ruleset.ts';
import { rulesOf } from '../ruleset.ts';
import type { PacketState } from './walk-state.ts';
import { askPacket } from './walk-state.ts';

/** A shorter chain is read faster than an index is made. */
const shortest = 256;

/** The rules that may match, in order: all that are left out surely do not. */
export function candidatesOf(chain: Chain, state: PacketState): readonly Rule[] {
  const rules = rulesOf(chain);
  if (rules.length < shortest) return rules;
  const index = (chain.index ??= indexOf(rules)) as ReturnType<typeof indexOf>;
  if (index === 'useless') return rules;
  const { byAddress, byPort } = index;
  const own = askPacket(state, ({ destination }) => placesOf(byAddress, destination));
  const ports = askPacket(state, ({ destinationPort }) => placesOf(byPort, destinationPort));
  if (own === null || ports === null) return rules;
  if (own.length === 0 && ports.length === 0) return index.generalRules;
  const places = [...index.general, ...own, ...ports].sort((a, b) => a - b);
  return places.flatMap((place) => rules[place] ?? []);
}

type Places = Map<Address, number[]>;

const none: readonly number[] = [];

/** null: any place may be one. */
const placesOf = (by: Places, value: Address | null): readonly number[] | null =>
  value === null ? null : (by.get(value) ?? none);

/** Places of rules by what they ask for; general are those that every packet must see. */
function indexOf(rules: readonly Rule[]) {
  const general: number[] = [];
  const byAddress: Places = new Map();
  const byPort: Places = new Map();
  for (const [place, rule] of rules.entries()) {
    const address = onlyValue(rule, 'destination');
    const port = address === null ? onlyValue(rule, 'destination port') : null;
    if (address !== null) getOrInsert(byAddress, address, () => []).push(place);
    else if (port !== null) getOrInsert(byPort, port, () => []).push(place);
    else general.push(place);
  }
  if (general.length * 2 > rules.length) return 'useless';
  const generalRules = general.flatMap((place) => rules[place] ?? []);
  return { general, generalRules, byAddress, byPort };
}

/** Statements that change nothing. */
const passive = new Set<Statement['kind']>([
  ...(['field', 'interface', 'state', 'address type', 'lookup'] as const),
  ...(['note', 'never', 'unknown'] as const),
]);

/** The one value of this field that the rule asks for before it does anything; null: none. */
function onlyValue(rule: Rule, asked: PacketField): Address | null {
  for (const statement of rule.statements) {
    if (statement.kind === 'field' && statement.field === asked) {
      const [range] = statement.ranges;
      const isOne = statement.ranges.length === 1 && range?.low === range?.high;
      if (isOne && !statement.negate && statement.mask === null && range) return range.low;
    }
    if (!passive.has(statement.kind)) return null;
  }
  return null;
}
