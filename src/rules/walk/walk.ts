// Computes the outcomes of a packet on a node. The walk takes the first packet of a connection
// through the rules of all tables, in the kernel's order, and follows every way that is possible:
//
//   pod, outside   prerouting ─┬─ input                      (the destination is the node's own)
//                              └─ forward ─── postrouting
//   node           output ─ postrouting ─┬─ (leaves)
//                                        └─ prerouting ─ input  (over lo; NAT is settled by then)
//
// Base chains run by priority, and NAT is one of them (hooks.ts). Where several things can happen
// the way forks (run-chain.ts). An unknown that changes nothing leaves no trace in the outcome.
// Without the node's routes (routes.ts) all interfaces except lo are unknown.
//
// Left out: fragments, ICMP, packets that conntrack knows already, and what sysctls forbid.
// Reference: linux net/netfilter/core.c, nf_nat_core.c, nf_tables_core.c, net/ipv4/ip_input.c,
// ip_forward.c, ip_output.c. The idea is that of the tracers in kubernetes@v1.36.3
// pkg/proxy/iptables/proxier_test.go and pkg/proxy/nftables/helpers_test.go, turned round: what
// they pass over is unknown here.

import type { Packet } from '../../model/proxy-config.ts';
import { familyOf, parseAddress } from '../address.ts';
import type { Address, Family, Hook, RuleSet } from '../ruleset.ts';
import { rulesOf } from '../ruleset.ts';
import type { Hooks, Station } from './hooks.ts';
import { hooksOf } from './hooks.ts';
import type { List, PacketState, PassedRule, TraceStep } from './match.ts';
import { askPacket } from './match.ts';
import type { Share, Tally } from './outcome-shares.ts';
import { addHull, addShare, count, holds, tallyOf } from './outcome-shares.ts';
import type { RouteLookup } from './routes.ts';
import { runBase } from './run-chain.ts';
import type { DecisionTree, Walk, WalkState } from './walk-state.ts';

export interface NodeContext {
  /** The node's own addresses; 127.0.0.0/8 and ::1 are local without being named. */
  readonly localAddresses: readonly string[];
  readonly interfaces?: {
    /** By which packets come in; without them `-i` is unknown. */
    readonly outside?: string;
    readonly pod?: string;
    /** All that the node has: a rule about another matches nothing. */
    readonly all?: readonly string[];
    /** By its routes: what is not said above, and by which packets leave. */
    readonly routes?: RouteLookup;
  };
}

/** `probability` is exact, or the highest that the unknowns allow. */
export interface OutcomeShare {
  readonly probability: number;
  /** unknown: some are and some are not, or the rules do not show it. */
  readonly masqueraded: boolean | 'unknown';
  /** The rules that decided on one of the ways here, in their order. */
  readonly trace: () => readonly TraceStep[];
}

export interface Destination extends OutcomeShare {
  /** Who was sent here once is sent here again. */
  readonly affinity: boolean;
  /** For how long since the last connection; null without affinity, or without end. */
  readonly affinitySeconds: number | null;
}

export interface UnknownRule {
  readonly reason: string;
  /** The rule as the dump has it. */
  readonly rule: string;
}

export interface PacketOutcome {
  /**
   * By `ip:port` or `[ip6]:port`. `node:PORT` is the node itself, at the address of the interface
   * by which the packet came in; `unknown` is a destination that the dump does not show. Of
   * probability 0 are those that only a source reaches which is remembered for them.
   */
  readonly destinations: ReadonlyMap<string, Destination>;
  readonly reject: OutcomeShare;
  readonly drop: OutcomeShare;
  /** Went on untranslated: no Service, or the node itself. */
  readonly pass: OutcomeShare;
  /** Not empty: the outcome depends on these, and only what has a probability is possible. */
  readonly unknown: readonly UnknownRule[];
}

const protocols = { tcp: 6, udp: 17, sctp: 132 } as const;

interface Journey extends Walk {
  readonly hooks: Hooks;
}

/**
 * Walks packets through a rule set of either reader, or of several together. Packets that follow
 * others take what is known of those. Throws a TypeError where an address of the packet is none.
 *
 * @throws TypeError where an address of the node is none.
 */
export function createWalk(ruleset: RuleSet, node: NodeContext): (packet: Packet) => PacketOutcome {
  const own = node.localAddresses.map((text) => addressOf('localAddresses', text));
  const setups = new Map<Family, { readonly hooks: Hooks; readonly trees: DecisionTree[] }>();
  return (packet) => {
    const destination = addressOf('dst', packet.dst);
    const traveller = travellerOf(packet, node, destination, own);
    const { family } = traveller;
    const setup = setups.get(family) ?? { hooks: hooksOf(ruleset, family), trees: [] };
    setups.set(family, setup);
    const journey = journeyOf(setup.hooks, own, setup.trees);
    const tally = tallyOf((all) =>
      enterHook(journey, packet.from === 'node' ? 'output' : 'prerouting', traveller, all, 1),
    );
    const rejected = tally.get('reject');
    if (rejected !== undefined && isAnswerDropped(packet, node, journey)) {
      tally.delete('reject');
      addShare(tally, 'drop', rejected);
    }
    return outcomeOf(tally, [...journey.unknown.values()]);
  };
}

function journeyOf(hooks: Hooks, local: readonly Address[], trees: Walk['trees']): Journey {
  const journey: Journey = {
    hooks,
    own: local,
    trees,
    unknown: new Map(),
    steps: 0,
    depth: 0,
    onward: (_walk, state, tally, weight) => onward(journey, state, tally, weight),
  };
  return journey;
}

/**
 * Whether what the node answers where a rule rejects is surely dropped on its way out: then the
 * sender receives nothing. The answer is a packet of the node itself, related to what it is about.
 * A process of the node receives it in any case, as with real kernels.
 */
function isAnswerDropped(
  { src, dst }: Packet,
  node: NodeContext,
  { hooks, own }: Journey,
): boolean {
  const [to, asked] = [addressOf('src', src), addressOf('dst', dst)];
  const [first = asked] = own.filter((address) => familyOf(address) === familyOf(to));
  const source = isLoopback(asked) || own.includes(asked) ? asked : first;
  const question: Packet = { from: 'node', src: dst, dst: src, protocol: 'tcp', dport: 0 };
  const answer: WalkState = {
    ...travellerOf(question, node, to, own),
    source,
    protocol: familyOf(to) === 'ip' ? 1 : 58,
    destinationPort: null,
    original: { address: to, port: null },
    entry: 'related',
    // As one that ends where it leaves.
    translated: true,
    sourceTranslated: true,
    from: 'outside',
  };
  const tally = tallyOf((all) => enterHook(journeyOf(hooks, own, []), 'output', answer, all, 1));
  return tally.size === 1 && (tally.get('drop')?.low ?? 0) > 0.999;
}

function addressOf(field: string, text: string): Address {
  const address = parseAddress(text);
  if (address === null) throw new TypeError(`Cannot walk: ${field} is not an address: ${text}`);
  return address;
}

function travellerOf(
  packet: Packet,
  node: NodeContext,
  destination: Address,
  local: readonly Address[],
): WalkState {
  const { from } = packet;
  const source = addressOf('src', packet.src);
  const { interfaces } = node;
  return {
    family: familyOf(destination),
    from,
    source,
    protocol: protocols[packet.protocol],
    isLocal: (address) => isLoopback(address) || local.includes(address),
    interfaces: interfaces?.all ?? null,
    interfacesTo: interfaces?.routes?.to ?? noWays,
    original: { address: destination, port: packet.dport },
    hook: 'prerouting',
    destination,
    destinationPort: packet.dport,
    toNode: null,
    in: from === 'node' ? '' : (packet.iif ?? interfaceOf(interfaces, from, source)),
    out: '',
    mark: 0,
    markKnown: 0xffffffff,
    connectionMark: 0,
    connectionMarkKnown: 0xffffffff,
    entry: 'none',
    translated: false,
    sourceTranslated: false,
    goal: null,
    rewritten: false,
    masqueraded: false,
    remembered: null,
    affinity: null,
    trace: null,
    questions: null,
    stations: [],
    station: 0,
    nat: null,
    natNext: 0,
  };
}

const noWays = (): null => null;

/** The interface by which a packet from there comes in; null: not known. */
const interfaceOf = (
  known: NodeContext['interfaces'],
  from: 'pod' | 'outside',
  source: Address,
): string | null => known?.[from] ?? known?.routes?.from(from, source) ?? null;

const isLoopback = (address: Address): boolean =>
  typeof address === 'number' ? address >>> 24 === 127 : address === 1n;

function enterHook(
  journey: Journey,
  hook: Hook,
  traveller: WalkState,
  tally: Tally,
  weight: number,
): void {
  traveller.hook = hook;
  if (hook === 'prerouting' || hook === 'input') traveller.out = '';
  else traveller.out = isLocal(traveller) === true ? 'lo' : null;
  eachOrder(journey, journey.hooks[hook], traveller, { tally, weight }, (state, order, part) => {
    state.stations = order;
    state.station = 0;
    state.nat = null;
    onward(journey, state, part.tally, part.weight);
  });
}

interface Part {
  readonly tally: Tally;
  readonly weight: number;
}

/** All orders that two tables of one priority may run in: what they change is unknown. */
function eachOrder<T>(
  journey: Journey,
  orders: readonly (readonly T[])[],
  traveller: WalkState,
  part: Part,
  take: (state: WalkState, order: readonly T[], part: Part) => void,
): void {
  const [only] = orders;
  if (orders.length === 1 && only !== undefined) {
    take(traveller, only, part);
    return;
  }
  const tallies = orders.map((order) =>
    tallyOf((tally) => take({ ...traveller }, order, { tally, weight: 1 })),
  );
  if (addHull(part.tally, tallies, part.weight)) {
    const reason = `no dump tells which of several tables comes first in ${traveller.hook}`;
    journey.unknown.set(reason, { reason, rule: '' });
  }
}

/** From one station of a hook to the next, and on to the next hook. */
function onward(journey: Journey, state: WalkState, tally: Tally, weight: number): void {
  const isSource = state.hook === 'postrouting' || state.hook === 'input';
  if (state.nat !== null) {
    const settled = isSource ? state.sourceTranslated : state.translated;
    const chain = settled ? undefined : state.nat[state.natNext++];
    if (chain !== undefined) {
      runBase(journey, chain, state, tally, weight);
      return;
    }
    state.nat = null;
    if (isSource) state.sourceTranslated = true;
    else state.translated = true;
  }
  const station = state.stations[state.station++] as Station | undefined;
  if (state.entry === 'none' && isBehindConntrack(station)) state.entry = 'new';
  if (station === undefined) {
    leaveHook(journey, state, tally, weight);
    return;
  }
  if (station.kind === 'chain') {
    runBase(journey, station.at, state, tally, weight);
    return;
  }
  const settled = isSource ? state.sourceTranslated : state.translated;
  if (settled || state.entry === 'untracked') {
    onward(journey, state, tally, weight);
    return;
  }
  eachOrder(journey, station.orders, state, { tally, weight }, (way, order, part) => {
    way.nat = order;
    way.natNext = 0;
    onward(journey, way, part.tally, part.weight);
  });
}

/** Conntrack makes its entry at a priority of its own, between raw and mangle. */
const isBehindConntrack = (station: Station | undefined): boolean =>
  station?.kind !== 'chain' || station.at.base.priority > -200;

/** Whether the packet is for the node itself; null: its destination is not known. */
const isLocal = (state: WalkState): boolean | null => askPacket(state, localOf);

function localOf({ toNode, destination, isLocal }: PacketState): boolean | null {
  if (toNode !== null) return toNode;
  return destination === null ? null : isLocal(destination);
}

function leaveHook(journey: Journey, state: WalkState, tally: Tally, weight: number): void {
  const part = { tally, weight };
  if (state.hook === 'prerouting') {
    routed(state, part, (way, local, { tally, weight }) =>
      enterHook(journey, local ? 'input' : 'forward', way, tally, weight),
    );
  } else if (state.hook === 'forward' || state.hook === 'output') {
    enterHook(journey, 'postrouting', state, tally, weight);
  } else if (state.hook === 'postrouting' && state.from === 'node') {
    routed(state, part, (way, local, { tally, weight }) => {
      if (!local) {
        end(way, tally, weight);
        return;
      }
      way.in = 'lo';
      way.translated = true;
      enterHook(journey, 'prerouting', way, tally, weight);
    });
  } else end(state, tally, weight);
}

const end = (state: WalkState, tally: Tally, weight: number): void =>
  count(tally, state.goal ?? 'pass', weight, state);

/** By the destination to the node or past it: both ways, when that is not known. */
function routed(
  state: WalkState,
  part: Part,
  take: (way: WalkState, local: boolean, part: Part) => void,
): void {
  const local = isLocal(state);
  if (local !== null) {
    take(state, local, part);
    return;
  }
  const tallies = [true, false].map((local) =>
    tallyOf((tally) => take({ ...state, toNode: local }, local, { tally, weight: 1 })),
  );
  // The unknown is the destination, and the rule that made it so has said it.
  addHull(part.tally, tallies, part.weight);
}

const noShare: OutcomeShare = { probability: 0, masqueraded: false, trace: () => [] };

function outcomeOf(tally: Tally, unknown: readonly UnknownRule[]): PacketOutcome {
  const stop = (name: 'reject' | 'drop' | 'pass'): OutcomeShare => {
    const share = tally.get(name);
    tally.delete(name);
    return share === undefined ? noShare : outcomeShareOf(share);
  };
  const stops = { reject: stop('reject'), drop: stop('drop'), pass: stop('pass') };
  const destinations = new Map<string, Destination>();
  for (const [name, share] of tally) destinations.set(name, destinationOf(share));
  return { destinations, ...stops, unknown };
}

function outcomeShareOf({ high, masquerade, trace }: Share): OutcomeShare {
  const masqueraded = masquerade === 1 ? false : masquerade === 2 ? true : 'unknown';
  return { probability: Math.min(high, 1), masqueraded, trace: () => stepsOf(trace) };
}

function destinationOf(share: Share): Destination {
  const { affinity, remembered, high } = share;
  const kept = affinity !== null && (high === 0 || holds(remembered, affinity.name));
  const { probability, masqueraded, trace } = outcomeShareOf(share);
  const affinitySeconds = kept ? affinity.seconds : null;
  return { probability, masqueraded, trace, affinity: kept, affinitySeconds };
}

function stepsOf(trace: List<PassedRule> | null): readonly TraceStep[] {
  const steps: TraceStep[] = [];
  for (let at = trace; at !== null; at = at.tail) if (isRead(at.head)) steps.push(at.head);
  return steps.reverse();
}

/** A rule that was not read on the way is read now, once. */
function isRead(step: PassedRule): step is PassedRule & TraceStep {
  const chain = step.base.table.chains.get(step.chain);
  step.rule ??= (chain === undefined ? undefined : rulesOf(chain).at(-1)) ?? null;
  return step.rule !== null;
}
