// At which addresses and ports a rule set does something of its own with new connections, before
// routing: what nodes answer for, whoever asked for it. Found by what rules match, never by names
// or comments: from the base chains of type nat down through every jump, until an address and a
// port are asked for.
//
// Left out: ranges of addresses and ports (a frontend has one of each), and rules that exclude.

import { familyOf, formatAddress } from './address.ts';
import type {
  Address,
  Chain,
  ElementSet,
  Key,
  Rule,
  RuleSet,
  Statement,
  Table,
} from './ruleset.ts';
import { rulesOf } from './ruleset.ts';

export interface Claim {
  readonly family: 'ip' | 'ip6';
  /** null: any address that is the node's own. */
  readonly address: string | null;
  readonly protocol: 'tcp' | 'udp' | 'sctp';
  readonly port: number;
  /** How many tables claim it by chains of type nat. */
  readonly translators: number;
}

/** What the rules on the way have asked for; null: nothing yet. */
interface Asked {
  readonly address: Address | null;
  readonly protocol: number | null;
  readonly port: number | null;
}

const nothing: Asked = { address: null, protocol: null, port: null };

const protocols: Readonly<Record<number, Claim['protocol']>> = { 6: 'tcp', 17: 'udp', 132: 'sctp' };

/** Each once. */
export function claimsOf(ruleset: RuleSet): Claim[] {
  const found: Found = new Map();
  for (const table of ruleset.tables) {
    // What one of the hooks came to, another need not search again.
    const [inNat, elsewhere] = [new Set<string>(), new Set<string>()];
    for (const chain of table.chains.bases()) {
      const { base } = chain;
      const before = base?.hook === 'prerouting' || base?.hook === 'output';
      const isNat = base?.type === 'nat';
      const seen = isNat ? inNat : elsewhere;
      if (before) search({ table, isNat, found, seen }, chain, nothing);
    }
  }
  return [...found.values()].map(({ claim, by }) => ({ ...claim, translators: by.length }));
}

type Found = Map<string, { readonly claim: Omit<Claim, 'translators'>; readonly by: Table[] }>;

interface Search {
  readonly table: Table;
  readonly isNat: boolean;
  readonly found: Found;
  /** Chains that were searched, with what had been asked for. */
  readonly seen: Set<string>;
}

function search(at: Search, chain: Chain, asked: Asked): void {
  const key = `${chain.name} ${String(asked.address)} ${asked.protocol} ${asked.port}`;
  if (at.seen.has(key)) return;
  at.seen.add(key);
  for (const rule of rulesOf(chain)) searchRule(at, rule, asked);
}

function searchRule(at: Search, rule: Rule, before: Asked): void {
  let asked = before;
  for (const statement of rule.statements) {
    asked = narrowed(asked, statement);
    if (statement.kind === 'verdict map') {
      for (const claim of claimsOfMap(statement.key, statement.set, asked)) add(at, claim);
      searchTargets(at, statement.set, statement.key, asked);
    } else if (statement.kind === 'jump' || statement.kind === 'goto') {
      if (add(at, asked)) return;
      const target = at.table.chains.get(statement.chain);
      if (target !== undefined) search(at, target, asked);
    } else if (acts.has(statement.kind)) add(at, asked);
  }
}

const acts = new Set<Statement['kind']>(['dnat', 'dnat by map', 'redirect', 'drop', 'reject']);

function narrowed(asked: Asked, statement: Statement): Asked {
  if (statement.kind !== 'field' || statement.negate || statement.mask !== null) return asked;
  const [range] = statement.ranges;
  if (statement.ranges.length !== 1 || range?.low !== range?.high || range === undefined) {
    return asked;
  }
  switch (statement.field) {
    case 'destination':
      return { ...asked, address: range.low };
    case 'destination port':
      return { ...asked, port: Number(range.low) };
    case 'protocol':
      return { ...asked, protocol: Number(range.low) };
    default:
      return asked;
  }
}

/** Takes note of a claim that is complete; returns whether it is. */
function add({ found, table, isNat }: Search, { address, protocol, port }: Asked): boolean {
  const name = protocol === null ? undefined : protocols[protocol];
  if (name === undefined || port === null) return false;
  const families: Claim['family'][] =
    address !== null
      ? [familyOf(address)]
      : table.family === 'inet'
        ? ['ip', 'ip6']
        : [table.family];
  for (const family of families) {
    const text = address === null ? null : formatAddress(address);
    const key = `${family} ${String(text)} ${name} ${port}`;
    const claim = { family, address: text, protocol: name, port };
    const known = found.get(key) ?? { claim, by: [] };
    if (known.by.length === 0) found.set(key, known);
    if (isNat && !known.by.includes(table)) known.by.push(table);
  }
  return true;
}

function* claimsOfMap(key: Key, set: ElementSet, asked: Asked): Generator<Asked> {
  if (key.kind !== 'fields') return;
  for (const element of set.elements) {
    let claim = asked;
    for (const [index, field] of key.fields.entries()) {
      const component = element.key[index];
      if (component === undefined || typeof component === 'string') continue;
      if (component.low !== component.high) continue;
      if (field === 'destination') claim = { ...claim, address: component.low };
      else if (field === 'destination port') claim = { ...claim, port: Number(component.low) };
      else if (field === 'protocol') claim = { ...claim, protocol: Number(component.low) };
    }
    yield claim;
  }
}

/** Chains that a map leads to without having asked for a port. */
function searchTargets(at: Search, set: ElementSet, key: Key, asked: Asked): void {
  const complete =
    key.kind === 'fields' && (key.fields.includes('destination port') || asked.port !== null);
  if (complete) return;
  for (const { verdict } of set.elements) {
    if (verdict?.kind !== 'jump' && verdict?.kind !== 'goto') continue;
    const target = at.table.chains.get(verdict.chain);
    if (target !== undefined) search(at, target, asked);
  }
}
