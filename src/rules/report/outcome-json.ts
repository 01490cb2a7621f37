// Encodes walk outcomes as JSON, which the agent sends to the auditor, and decodes them. They
// include the deciding rules, each once, as text of the dump. The auditor parses that text again,
// so that both sides have the same rule. The elements of sets that a rule names are not included.
//
// The decoder checks all of its input, since any client may have sent it.

import { parseIptablesSave } from '../parse/iptables-save.ts';
import { parseNft } from '../parse/nft-ruleset.ts';
import type { Hook, RuleSource, Statement, Table } from '../ruleset.ts';
import { DumpError, rulesOf } from '../ruleset.ts';
import type { BaseChain } from '../walk/hooks.ts';
import type { TraceStep } from '../walk/match.ts';
import type { Destination, OutcomeShare, PacketOutcome, UnknownRule } from '../walk/walk.ts';

/** A rule that a packet met. */
interface RuleJson {
  readonly source: RuleSource;
  readonly family: Table['family'];
  readonly table: string;
  readonly chain: string;
  /** The base chain that led there, and its hook. */
  readonly base: string;
  readonly hook: Hook;
  /** The rule as the dump has it. */
  readonly text: string;
}

interface OutcomeJson {
  readonly probability: number;
  readonly masqueraded: boolean | 'unknown';
  /** Of destinations only. */
  readonly affinity?: boolean;
  readonly affinitySeconds?: number | null;
  /** Places in the list of rules. */
  readonly by: readonly number[];
}

/** By outcome: `reject`, `drop`, `pass`, or a destination; those of no probability are left out. */
interface WalkResultJson {
  readonly fates: Readonly<Record<string, OutcomeJson>>;
  readonly unknown: readonly UnknownRule[];
}

/** Outcomes in the order of the packets. */
export interface EncodedOutcomes {
  readonly rules: readonly RuleJson[];
  readonly outcomes: readonly WalkResultJson[];
}

/**
 * Rules that merely lead on, or ask, are left out, unless they say for which destination a filter's
 * chain is called; the last rule shows that no other came after it.
 */
const decides: ReadonlySet<Statement['kind']> = new Set<Statement['kind']>([
  ...(['accept', 'drop', 'reject', 'return', 'notrack', 'unknown verdict'] as const),
  ...(['dnat', 'dnat by map', 'redirect', 'netmap', 'snat', 'masquerade', 'verdict map'] as const),
]);

const isCallFor = ({ rule, base }: TraceStep): boolean =>
  base.base.type === 'filter' &&
  rule.statements.some(({ kind }) => kind === 'jump' || kind === 'goto') &&
  rule.statements.some((entry) => entry.kind === 'field' && entry.field === 'destination');

const stops = ['reject', 'drop', 'pass'] as const;

/** Writes outcomes so that they can be sent. */
export function encodeOutcomes(outcomes: readonly PacketOutcome[]): EncodedOutcomes {
  const rules: RuleJson[] = [];
  const places = new Map<string, number>();
  const placeOf = ({ chain, base, rule: { text } }: TraceStep): number => {
    const { source, family, name: table } = base.table;
    const hook = base.base.hook;
    const key = `${source} ${family} ${table} ${base.chain.name} ${hook} ${chain} ${text}`;
    const known = places.get(key);
    if (known !== undefined) return known;
    places.set(key, rules.length);
    return rules.push({ source, family, table, chain, base: base.chain.name, hook, text }) - 1;
  };
  const isDecisive = (step: TraceStep): boolean =>
    step.rule.statements.some(({ kind }) => decides.has(kind)) || isCallFor(step);
  const toldFate = ({ probability, masqueraded, trace }: OutcomeShare): OutcomeJson => ({
    probability,
    masqueraded,
    by: trace()
      .filter((step, at, all) => isDecisive(step) || at === all.length - 1)
      .map(placeOf),
  });
  const told = outcomes.map((outcome): WalkResultJson => {
    const fates: Record<string, OutcomeJson> = {};
    for (const name of stops) {
      if (outcome[name].probability > 0) fates[name] = toldFate(outcome[name]);
    }
    for (const [to, destination] of outcome.destinations) {
      const { affinity, affinitySeconds } = destination;
      fates[to] = { ...toldFate(destination), affinity, affinitySeconds };
    }
    return { fates, unknown: outcome.unknown };
  });
  return { rules, outcomes: told };
}

/** A report does not have the expected form. */
export class InvalidReport extends Error {}

/** @throws NotTold unless it holds. */
export function check(holds: boolean, what: string): asserts holds {
  if (!holds) throw new InvalidReport(`Expected ${what}`);
}

type Fields = Readonly<Record<string, unknown>>;

/** An object in a report. */
export function fieldsOf(value: unknown, what: string): Fields {
  check(typeof value === 'object' && value !== null && !Array.isArray(value), what);
  return value as Fields;
}

/** A list in a report. */
export function listOf(value: unknown, what: string): readonly unknown[] {
  check(Array.isArray(value), what);
  return value;
}

/**
 * Reads outcomes that were sent.
 *
 * @throws NotTold where they are none.
 */
export function decodeOutcomes(raw: unknown): readonly PacketOutcome[] {
  const { rules, outcomes } = fieldsOf(raw, 'outcomes');
  const steps = listOf(rules, 'rules: a list').map(stepOf);
  return listOf(outcomes, 'outcomes: a list').map((entry) => outcomeOf(entry, steps));
}

function outcomeOf(raw: unknown, steps: readonly TraceStep[]): PacketOutcome {
  const { fates, unknown } = fieldsOf(raw, 'an outcome');
  const none: OutcomeShare = { probability: 0, masqueraded: false, trace: () => [] };
  const found = { reject: none, drop: none, pass: none };
  const destinations = new Map<string, Destination>();
  for (const [name, told] of Object.entries(fieldsOf(fates, 'fates'))) {
    const fate = fateOf(told, steps);
    const stop = stops.find((entry) => entry === name);
    if (stop === undefined) destinations.set(name, fate);
    else found[stop] = fate;
  }
  const met = listOf(unknown, 'unknown: a list').map((entry): UnknownRule => {
    const { reason, rule } = fieldsOf(entry, 'an unknown');
    return { reason: String(reason), rule: String(rule) };
  });
  return { ...found, destinations, unknown: met };
}

function fateOf(raw: unknown, steps: readonly TraceStep[]): Destination {
  const {
    probability,
    masqueraded,
    affinity = false,
    affinitySeconds = null,
    by,
  } = fieldsOf(raw, 'a fate');
  check(typeof probability === 'number' && probability >= 0 && probability <= 1, 'a probability');
  check(typeof masqueraded === 'boolean' || masqueraded === 'unknown', 'masqueraded');
  check(typeof affinity === 'boolean', 'affinity');
  check(affinitySeconds === null || typeof affinitySeconds === 'number', 'affinitySeconds');
  const trace = listOf(by, 'by: a list').map((place) => {
    const step = steps[Number(place)];
    check(step !== undefined, 'by: a place in the list of rules');
    return step;
  });
  return { probability, masqueraded, affinity, affinitySeconds, trace: () => trace };
}

function stepOf(raw: unknown): TraceStep {
  const fields = fieldsOf(raw, 'a rule');
  const names = ['source', 'family', 'table', 'chain', 'base', 'hook', 'text'] as const;
  for (const name of names) check(typeof fields[name] === 'string', `${name} of a rule`);
  const told = fields as unknown as RuleJson;
  try {
    const table = tableWith(told);
    const base = table?.chains.get(told.base);
    const chain = table?.chains.get(told.chain);
    const [rule] = chain === undefined ? [] : rulesOf(chain);
    check(table !== undefined && base !== undefined && rule !== undefined, 'a rule of its table');
    return {
      chain: told.chain,
      rule: { statements: rule.statements, text: told.text },
      base: baseOf(told, table, base),
    };
  } catch (error) {
    if (error instanceof DumpError) throw new InvalidReport(error.message, { cause: error });
    throw error;
  }
}

const baseOf = ({ hook }: RuleJson, table: Table, chain: BaseChain['chain']): BaseChain => ({
  chain,
  table,
  base: { hook, priority: 0, type: 'filter', policy: 'accept', created: 0 },
});

/** The table with this one rule. */
function tableWith(told: RuleJson): Table | undefined {
  const { source, family, table, chain, base, text } = told;
  if (source === 'iptables') {
    const names = [...new Set([base, chain])].map((name) => `:${name} - [0:0]\n`).join('');
    check(!/[\n\r]/.test(`${table}${base}${chain}${text}`), 'a rule in one line');
    const dump = `*${table}\n${names}${text}\nCOMMIT\n`;
    return parseIptablesSave(dump, family === 'ip6' ? 'ip6' : 'ip').tables[0];
  }
  const of = { family, table };
  const [first, ...rest] = listOf(parsed(text), 'the expression of a rule');
  const expr = typeof first === 'string' ? rest : [first, ...rest];
  const nftables = [
    { table: { family, name: table } },
    ...[...new Set([base, chain])].map((name) => ({ chain: { ...of, name } })),
    ...[...text.matchAll(/"@([^"]+)"/g)].map(([, name]) => ({ set: { ...of, name } })),
    { rule: { ...of, chain, handle: 0, expr } },
  ];
  return parseNft(JSON.stringify({ nftables })).tables[0];
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
