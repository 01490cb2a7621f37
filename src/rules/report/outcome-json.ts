// Encodes walk outcomes as JSON, which the agent sends to the auditor, and decodes them. They
// include the deciding rules, each once, as text of the dump. The auditor parses that text again,
// so that both sides have the same rule. The elements of sets that a rule names are not included.
//
// The decoder checks all of its input, since any client may have sent it.

import { isFields } from '../../model/collections.ts';
import type { Steps } from '../../model/run-to-end.ts';
import { entryStep, type EntryVerdict, entryVerdicts } from '../cilium/packet-outcome.ts';
import { parseIptablesSave } from '../parse/iptables-save.ts';
import { parseNft } from '../parse/nft-ruleset.ts';
import type { Hook, Statement, Table } from '../ruleset.ts';
import { chainsOf, DumpError, emptyChain, rulesOf } from '../ruleset.ts';
import type { TraceStep, UnknownRule } from '../walk/walk-state.ts';
import type { Destination, OutcomeShare, PacketOutcome } from '../walk/walk.ts';

/** A rule that a packet met; `base` is the base chain that led there, `text` is as dumped. */
interface RuleJson extends Pick<Table, 'source' | 'family'> {
  readonly table: string;
  readonly chain: string;
  readonly base: string;
  readonly hook: Hook;
  readonly text: string;
  /** Of an entry of Cilium's maps, whose text does not show it. */
  readonly verdict?: EntryVerdict;
}

export type EncodedOutcomes = ReturnType<typeof encodeOutcomes>;

/** Rules that only ask or lead on are left out, except calls of a filter's chain by an address. */
const decides: ReadonlySet<Statement['kind']> = new Set<Statement['kind']>([
  ...(['accept', 'drop', 'reject', 'return', 'notrack', 'unknown verdict'] as const),
  ...(['dnat', 'dnat by map', 'redirect', 'netmap', 'snat', 'masquerade', 'verdict map'] as const),
]);

const isCallFor = ({ rule, base }: TraceStep): boolean =>
  base.base.type === 'filter' &&
  rule.statements.some(({ kind }) => kind === 'jump' || kind === 'goto') &&
  rule.statements.some((it) => it.kind === 'field' && /^(?:destination|source)$/.test(it.field));

const stops = ['reject', 'drop', 'pass'] as const;

/** Outcomes in the order of the packets; in each `by`, places in the list of rules. */
export function encodeOutcomes(outcomes: readonly PacketOutcome[]) {
  const rules: RuleJson[] = [];
  const places = new Map<string, number>();
  const placeOf = ({ chain, base, rule: { text, statements } }: TraceStep): number => {
    const kind = statements[0]?.kind;
    const { source, family, name: table } = base.table;
    const { hook } = base.base;
    const verdict = source === 'bpf' ? entryVerdicts.find((it) => it === kind) : undefined;
    const rule: RuleJson = {
      source,
      family,
      table,
      chain,
      base: base.chain.name,
      hook,
      text,
      ...(verdict === undefined ? {} : { verdict }),
    };
    const key = Object.values(rule).join(' ');
    const known = places.get(key);
    if (known !== undefined) return known;
    places.set(key, rules.length);
    return rules.push(rule) - 1;
  };
  const isDecisive = (step: TraceStep): boolean =>
    step.rule.statements.some(({ kind }) => decides.has(kind)) || isCallFor(step);
  const encode = ({ probability, masqueraded, trace, ...affinity }: OutcomeShare) => ({
    probability,
    masqueraded,
    by: trace()
      // The last rule shows that no other came after it.
      .filter((step, at, all) => isDecisive(step) || at === all.length - 1)
      .map(placeOf),
    ...affinity,
  });
  const encoded = outcomes.map((outcome) => {
    const met = stops.filter((name) => outcome[name].probability > 0);
    const all = [...met.map((name) => [name, outcome[name]] as const), ...outcome.destinations];
    const shares = all.map(([name, share]) => [name, encode(share)] as const);
    return { fates: Object.fromEntries(shares), unknown: outcome.unknown };
  });
  return { rules, outcomes: encoded };
}

export class InvalidReport extends Error {}

/** What is asked for in parts may be fewer values. */
export class TooManyValues extends InvalidReport {}

/** @throws InvalidReport unless it holds. */
export function check(holds: boolean, what: string): asserts holds {
  if (!holds) throw new InvalidReport(`Expected ${what}`);
}

type Fields = Readonly<Record<string, unknown>>;

export function fieldsOf(value: unknown, what: string): Fields {
  check(isFields(value), what);
  return value;
}

export function listOf(value: unknown, what: string): readonly unknown[] {
  check(Array.isArray(value), what);
  return value;
}

/** Reports have few levels, and a parser needs memory for each. */
const mostLevels = 32;

/**
 * Characters of a rule, which is parsed in few turns. An entry of iptables has at most 64 KiB in
 * the kernel (next_offset of ipt_entry); its text is longer only with hundreds of matches, which
 * kube-proxy never writes. A rule of nftables for 9,000 endpoints has 1 MiB.
 */
const mostRule = { iptables: 64 * 1024, nft: 1024 * 1024 };

/**
 * Expressions in the JSON of a rule of nftables. The kernel takes 128 of its own
 * (NFT_RULE_MAXEXPRS in net/netfilter/nf_tables_api.c), and kube-proxy writes few.
 */
const mostExpressions = 128;

/** Characters that are checked in one step. */
const checkedAtOnce = 16 * 1024;

/** Keys, items and lists: twice the frontends that 2 MiB have, and room for the rest. */
const mostValues = 150_000;

const [quote, backslash, comma, colon] = [0x22, 0x5c, 0x2c, 0x3a];

/** Whether a character begins or ends a level: `[` and `]`, `{` and `}` differ by the bit 32. */
const levelOf = (code: number): number => {
  if ((code | 32) === 0x7b) return 1;
  return (code | 32) === 0x7d ? -1 : 0;
};

/**
 * Checks how much a parser of JSON would have to do.
 * @throws InvalidReport if there are too many levels, TooManyValues if there is more than the most.
 */
export function* checkJson(text: string): Steps {
  let [levels, values] = [0, 0];
  let isQuoted = false;
  for (let at = 0; at < text.length; at++) {
    if (at % checkedAtOnce === 0) yield;
    const code = text.charCodeAt(at);
    if (code === quote) isQuoted = !isQuoted;
    else if (isQuoted) at += code === backslash ? 1 : 0;
    else if (code === comma || code === colon) values++;
    else if (code > colon) {
      const level = levelOf(code);
      levels += level;
      if (level > 0) values++;
    }
    if (levels > mostLevels) check(false, `at most ${String(mostLevels)} levels of JSON`);
  }
  if (values > mostValues) throw new TooManyValues(`Expected at most ${mostValues} values of JSON`);
}

/** Decodes outcomes. @throws InvalidReport where these are none. */
export function* decodeOutcomes(raw: unknown): Steps<readonly PacketOutcome[]> {
  const { rules, outcomes } = fieldsOf(raw, 'outcomes');
  const steps: TraceStep[] = [];
  for (const rule of listOf(rules, 'rules: a list')) {
    steps.push(yield* stepOf(rule));
    yield;
  }
  const found: PacketOutcome[] = [];
  for (const entry of listOf(outcomes, 'outcomes: a list')) {
    found.push(outcomeOf(entry, steps));
    yield;
  }
  return found;
}

function outcomeOf(raw: unknown, steps: readonly TraceStep[]): PacketOutcome {
  const { fates, unknown } = fieldsOf(raw, 'an outcome');
  const shares = Object.entries(fieldsOf(fates, 'fates'));
  const destinations = new Map(shares.map(([name, share]) => [name, shareOf(share, steps)]));
  const stop = (name: string): OutcomeShare => {
    const share = destinations.get(name);
    destinations.delete(name);
    return share ?? { probability: 0, masqueraded: false, trace: () => [] };
  };
  const stopped = { reject: stop('reject'), drop: stop('drop'), pass: stop('pass') };
  const met = listOf(unknown, 'unknown: a list').map((entry): UnknownRule => {
    const { reason, rule } = fieldsOf(entry, 'an unknown');
    return { reason: String(reason), rule: String(rule) };
  });
  return { ...stopped, destinations, unknown: met };
}

function shareOf(raw: unknown, steps: readonly TraceStep[]): Destination {
  const fields = fieldsOf(raw, 'a fate');
  const { probability, masqueraded, affinity = false, affinitySeconds = null, by } = fields;
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

/** Characters of a name of nftables at most, whose names are longer than those of iptables. */
const longestName = 256;

const isTextOf = (name: keyof RuleJson, value: unknown): boolean =>
  typeof value === 'string' && (name === 'text' || value.length <= longestName);

/** Sets that one rule names. Each is declared with the name of its table. */
const mostSets = 64;

function* stepOf(raw: unknown): Steps<TraceStep> {
  const fields = fieldsOf(raw, 'a rule');
  const names = ['source', 'family', 'table', 'chain', 'base', 'hook', 'text'] as const;
  for (const name of names) check(isTextOf(name, fields[name]), `${name} of a rule`);
  const json = fields as unknown as RuleJson;
  const { hook, text, chain: name } = json;
  if (json.source === 'bpf') {
    const verdict = entryVerdicts.find((it) => it === json.verdict);
    check(verdict !== undefined, 'the verdict of an entry');
    return entryStep(text, verdict);
  }
  const limit = json.source === 'iptables' ? mostRule.iptables : mostRule.nft;
  check(text.length <= limit, `a rule of at most ${String(limit)} characters`);
  try {
    const table = yield* tableWith(json);
    yield;
    const chain = table?.chains.get(json.base);
    const called = table?.chains.get(name);
    const [rule] = called === undefined ? [] : rulesOf(called);
    check(table !== undefined && chain !== undefined && rule !== undefined, 'a rule of its table');
    const base = { hook, priority: 0, type: 'filter', policy: 'accept', created: 0 } as const;
    const { statements } = rule;
    const baseChain = { chain: emptyChain(json.base), table: withoutChains(table), base };
    return { chain: name, rule: { statements, text }, base: baseChain };
  } catch (error) {
    if (error instanceof DumpError) throw new InvalidReport(error.message, { cause: error });
    throw error;
  }
}

const noContent = { chains: chainsOf(new Map()), sets: new Map() };

/** Steps are kept until the next report. A parsed table is many times as large as its rule. */
const withoutChains = ({ family, name, source }: Table): Table => ({
  family,
  name,
  source,
  ...noContent,
});

function* tableWith(json: RuleJson): Steps<Table | undefined> {
  const { source, family, table, chain, base, text } = json;
  const chains = [...new Set([base, chain])];
  if (source === 'iptables') {
    const names = chains.map((name) => `:${name} - [0:0]\n`).join('');
    check(!/[\n\r]/.test(`${table}${base}${chain}${text}`), 'a rule in one line');
    const dump = `*${table}\n${names}${text}\nCOMMIT\n`;
    return parseIptablesSave(dump, family === 'ip6' ? 'ip6' : 'ip').tables[0];
  }
  const of = { family, table };
  const [first, ...rest] = listOf(yield* parsed(text), 'the expression of a rule');
  yield;
  const expr = typeof first === 'string' ? rest : [first, ...rest];
  const isShort = expr.length <= mostExpressions;
  check(isShort, `at most ${String(mostExpressions)} expressions in a rule`);
  const sets = new Set<string>();
  for (const [, name = ''] of text.matchAll(/"@([^"]+)"/g)) sets.add(name);
  check(sets.size <= mostSets, `at most ${String(mostSets)} sets in a rule`);
  const nftables = [
    { table: { family, name: table } },
    ...chains.map((name) => ({ chain: { ...of, name } })),
    ...Array.from(sets, (name) => ({ set: { ...of, name } })),
    { rule: { ...of, chain, handle: 0, expr } },
  ];
  yield;
  return parseNft(JSON.stringify({ nftables })).tables[0];
}

function* parsed(text: string): Steps<unknown> {
  try {
    yield* checkJson(text);
    return JSON.parse(text) as unknown;
  } catch {
    return null;
  }
}
