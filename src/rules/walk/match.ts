// Whether a match holds for a packet: yes, no, or unknown. It is unknown if no parser models the
// match, or if it asks for what is not known of the packet, such as its source port.
//
// The packet is the first of its connection: conntrack's state is new, of TCP's flags only SYN is
// set, and there is no connection mark yet. Source: linux include/uapi/linux/netfilter/*.h and
// net/netfilter/nft_*.c, xt_*.c.
//
// A long chain (KUBE-SERVICES may have tens of thousands of rules) is indexed once by the
// destination address or port that its rules ask for; a walk sees the rules that may match.

import { getOrInsert } from '../../model/collections.ts';
import { type Address, isWithin } from '../../model/ip.ts';
import type * as netfilter from '../ruleset.ts';
import { rulesOf } from '../ruleset.ts';
import { askPacket, type Bits, isOwn, type PacketState } from './walk-state.ts';

export type MatchResult = 'yes' | 'no' | 'unknown';

const answer = (holds: boolean, negate: boolean): MatchResult => (holds !== negate ? 'yes' : 'no');

/** Whether the match holds. run-chain.ts evaluates chance and memory (`random`, `remembered`). */
export const evaluate = (match: netfilter.Match, state: PacketState): MatchResult =>
  state.questions === null
    ? answerTo(match, state)
    : askPacket(state, (packet) => answerTo(match, packet));

function answerTo(match: netfilter.Match, state: PacketState): MatchResult {
  switch (match.kind) {
    case 'field':
      return fieldAnswer(match, state);
    case 'interface':
      return interfaceAnswer(match, state);
    case 'state': {
      const holds = match.states.some((name) => stateHolds(name, state));
      const isOpen = match.states.includes('snat') && state.masqueraded === 'unknown';
      return isOpen && !holds ? 'unknown' : answer(holds, match.negate);
    }
    case 'address type':
      return addressTypeAnswer(match, state);
    case 'lookup': {
      const found = find(match.key, match.set, state);
      if (found === 'unknown') return 'unknown';
      // What a set that rules fill holds now says little of the next packet.
      return match.set.dynamic ? 'unknown' : answer(found !== null, match.negate);
    }
    case 'never':
      return 'no';
    case 'unknown':
    case 'random':
    case 'remembered':
      return 'unknown';
  }
}

type MatchOf<Kind> = Extract<netfilter.Match, { kind: Kind }>;

function fieldAnswer(match: MatchOf<'field'>, state: PacketState): MatchResult {
  const { field, ranges, negate } = match;
  // Without an entry of conntrack there is nothing to compare, and a negation does not make one.
  if (state.entry !== 'new' && /^connection|^original/.test(field)) return 'no';
  if (match.mask !== null || field === 'mark' || field === 'connection mark') {
    return bitsAnswer(match, state);
  }
  if (field === 'source port') {
    const all = ranges.some(({ low, high }) => low <= 1 && high >= 65535);
    return all ? answer(true, negate) : 'unknown';
  }
  const value = numbers[field](state);
  if (value === null) return 'unknown';
  for (const range of ranges) if (isWithin(value, range)) return answer(true, negate);
  return answer(false, negate);
}

const knownValue = ({ value, known }: Bits): number | null => (known === 0xffffffff ? value : null);

/** What the packet carries in a field; null if it is not known. */
const numbers: Readonly<Record<netfilter.PacketField, (state: PacketState) => Address | null>> = {
  source: ({ source }) => source,
  destination: ({ destination }) => destination,
  'source port': () => null,
  'destination port': ({ destinationPort }) => destinationPort,
  'original destination': ({ original }) => original.address,
  'original destination port': ({ original }) => original.port,
  protocol: ({ protocol }) => protocol,
  nfproto: ({ family }) => (family === 'ip' ? 2 : 10),
  'tcp flags': ({ protocol }) => (protocol === 6 ? 2 : null),
  mark: ({ mark }) => knownValue(mark),
  'connection mark': ({ connectionMark }) => knownValue(connectionMark),
};

function bitsAnswer(match: MatchOf<'field'>, state: PacketState): MatchResult {
  const { field, mask, ranges, negate } = match;
  const bits = bitsOf(field, state);
  if (bits === null) return field === 'tcp flags' ? answer(false, negate) : 'unknown';
  const asked = mask ?? 0xffffffff;
  const sure = (bits.known & asked) >>> 0;
  const seen = (bits.value & asked) >>> 0;
  if (sure === asked)
    return answer(
      ranges.some((range) => isWithin(seen, range)),
      negate,
    );
  // One known bit that differs is enough for no.
  const possible = ranges.some(
    ({ low, high }) => low !== high || ((seen ^ Number(low)) & sure) === 0,
  );
  return possible ? 'unknown' : answer(false, negate);
}

/** null if the packet has no such field, or it is not known. */
function bitsOf(field: netfilter.PacketField, state: PacketState): Bits | null {
  if (field === 'mark') return state.mark;
  if (field === 'connection mark') return state.connectionMark;
  const value = numbers[field](state);
  // Of TCP's flags, ECN's two are the sender's choice.
  const known = field === 'tcp flags' ? 0x3f : 0xffffffff;
  return typeof value === 'number' ? { value, known } : null;
}

function interfaceAnswer(match: MatchOf<'interface'>, state: PacketState): MatchResult {
  const { side, names, negate } = match;
  const name = side === 'in' ? state.in : state.out;
  if (name !== null && !isOpen(name)) return answer(matchesName(names, name), negate);
  // Whatever it is: it is one of the node's, and not the loopback interface.
  const others = (side === 'out' ? interfacesOut(state) : null) ?? state.interfaces;
  const possible = others?.filter(
    (other) => other !== 'lo' && (name === null || mayBe(name, other)),
  );
  if (possible !== undefined && (name === null || possible.length > 0)) {
    const matching = possible.filter((other) => matchesName(names, other)).length;
    return matching > 0 && matching < possible.length ? 'unknown' : answer(matching > 0, negate);
  }
  const results = names.map((pattern) => openResult(pattern, name ?? '!lo'));
  if (results.includes('yes')) return answer(true, negate);
  return results.includes('unknown') ? 'unknown' : answer(false, negate);
}

/** Any interface that begins so (`cali*`), or any but this one (`!cbr0`) or these (`!cali*`). */
const isOpen = (name: string): boolean => name.startsWith('!') || name.endsWith('*');

/** Whether an interface with this name fits what is known of another one (`cali*`, `!cbr0`). */
export const mayBe = (open: string, name: string): boolean =>
  open.startsWith('!') ? !matchesName([open.slice(1)], name) : matchesName([open], name);

/** Whether the pattern of a rule matches an interface, if only this is known about it. */
function openResult(pattern: string, open: string): MatchResult {
  if (pattern === '*') return 'yes';
  const isExcluding = open.startsWith('!');
  const named = isExcluding ? open.slice(1) : open;
  if (!isExcluding && matchesName([pattern], named)) return 'yes';
  // Whether the open name includes every interface that the pattern matches.
  const isAmong = pattern === 'lo' ? isExcluding : matchesName([named], pattern);
  return isAmong === isExcluding ? 'no' : 'unknown';
}

/** In the hook output the route is that of the original destination until all rules are through. */
function interfacesOut(state: PacketState): readonly string[] | null {
  const to = state.hook === 'output' ? state.original.address : state.destination;
  return to === null ? null : state.interfacesTo(to);
}

const matchesName = (patterns: readonly string[], name: string): boolean =>
  patterns.some((pattern) =>
    pattern.endsWith('*') ? name !== '' && name.startsWith(pattern.slice(0, -1)) : name === pattern,
  );

const entries: Readonly<Record<string, PacketState['entry']>> = {
  new: 'new',
  original: 'new',
  untracked: 'untracked',
  related: 'related',
  invalid: 'none',
};

function stateHolds(name: string, { entry, rewritten, masqueraded }: PacketState): boolean {
  if (name === 'dnat') return rewritten;
  return name === 'snat' ? masqueraded === true : entries[name] === entry;
}

function addressTypeAnswer(match: MatchOf<'address type'>, state: PacketState): MatchResult {
  const { side, types, negate } = match;
  if (side === 'destination' && state.toNode !== null) {
    if (state.toNode) return answer(types.includes('local'), negate);
    return types.every((type) => type === 'local') ? answer(false, negate) : 'unknown';
  }
  const address = side === 'source' ? state.source : state.destination;
  if (address === null) return 'unknown';
  if (isOwn(state, address)) return answer(types.includes('local'), negate);
  const type = specialType(address);
  if (type !== null) return answer(types.includes(type), negate);
  // A route may say something else than unicast of it; only what no route says is sure.
  if (types.includes('unicast')) return types.length === 1 ? answer(true, negate) : 'unknown';
  const other = types.filter((name) => name !== 'local' && name !== 'multicast');
  const mayBroadcast = typeof address === 'number' && [0, 255].includes(address % 256);
  if (other.length === 0 || (other.every((name) => name === 'broadcast') && !mayBroadcast)) {
    return answer(false, negate);
  }
  return 'unknown';
}

function specialType(address: Address): 'multicast' | 'broadcast' | 'unspec' | null {
  if (typeof address === 'bigint') return address >> 120n === 0xffn ? 'multicast' : null;
  if (address === 0xffffffff) return 'broadcast';
  if (address === 0) return 'unspec';
  return address >= 0xe0000000 && address < 0xf0000000 ? 'multicast' : null;
}

const isExact = (component: netfilter.Component): boolean =>
  typeof component === 'string' ? !component.endsWith('*') : component.low === component.high;

const textOf = (component: netfilter.Component): string =>
  typeof component === 'string' ? component : String(component.low);

function indexOf(set: netfilter.ElementSet) {
  const exact = new Map<string, netfilter.Element>();
  const others: netfilter.Element[] = [];
  for (const element of set.elements) {
    if (element.key.every(isExact)) exact.set(element.key.map(textOf).join(' '), element);
    else others.push(element);
  }
  return { exact, others };
}

type Found = netfilter.Element | null | 'unknown';

/** The element that the packet finds; null: there is none; unknown: not enough is known. */
export const lookup = (
  key: netfilter.LookupKey,
  set: netfilter.ElementSet,
  state: PacketState,
): Found => askPacket(state, (packet) => find(key, set, packet));

function find(key: netfilter.LookupKey, set: netfilter.ElementSet, state: PacketState): Found {
  if (key.kind !== 'fields') return 'unknown';
  const { exact, others } = (set.index ??= indexOf(set)) as ReturnType<typeof indexOf>;
  const values: (Address | string)[] = [];
  for (const field of key.fields) {
    const value = valueOf(field, state);
    if (value === null) return set.elements.length === 0 ? null : 'unknown';
    values.push(value);
  }
  const found = exact.get(values.length === 1 ? String(values[0]) : values.join(' '));
  if (found !== undefined) return found;
  return (
    others.find((element) => element.key.every((part, at) => covers(part, values[at]))) ?? null
  );
}

function valueOf(
  field: netfilter.PacketField | 'in' | 'out' | 'state',
  state: PacketState,
): Address | string | null {
  if (field === 'state') return state.entry === 'none' ? 'invalid' : state.entry;
  if (field === 'in') return state.in !== null && isOpen(state.in) ? null : state.in;
  if (field !== 'out') return numbers[field](state);
  const [only, ...more] = state.out === null ? (interfacesOut(state) ?? []) : [state.out];
  return more.length === 0 ? (only ?? null) : null;
}

function covers(component: netfilter.Component, value: Address | string | undefined): boolean {
  if (value === undefined) return false;
  if (component === '*') return true;
  if (typeof component !== 'string') return typeof value !== 'string' && isWithin(value, component);
  return typeof value === 'string' && matchesName([component], value);
}

const shortest = 256;

/** The rules that may match, in order: all that are left out surely do not. */
export function candidatesOf(
  chain: netfilter.Chain,
  state: PacketState,
): readonly netfilter.Rule[] {
  const rules = rulesOf(chain);
  if (rules.length < shortest) return rules;
  const index = (chain.index ??= placesIn(rules)) as ReturnType<typeof placesIn>;
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

/** null if any place may be one. */
const placesOf = (by: Places, value: Address | null): readonly number[] | null =>
  value === null ? null : (by.get(value) ?? none);

function placesIn(rules: readonly netfilter.Rule[]) {
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

const passive = new Set<netfilter.Statement['kind']>([
  ...(['field', 'interface', 'state', 'address type', 'lookup'] as const),
  ...(['note', 'never', 'unknown'] as const),
]);

/** The one value of this field that the rule asks for before it does anything; null: none. */
function onlyValue(rule: netfilter.Rule, asked: netfilter.PacketField): Address | null {
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
