// Computes the outcomes of a packet on a node. The walk takes the first packet of a connection
// through the rules of all tables, in the kernel's order, and follows every way that is possible:
//
//   pod, outside   prerouting ─┬─ input                      (the destination is the node's own)
//                              └─ forward ─── postrouting
//   node           output ─ postrouting ─┬─ (leaves)
//                                        └─ prerouting ─ input  (over lo; NAT is settled by then)
//
// Where several things can happen the way forks (run-chain.ts). Without the node's routes
// (routes.ts) all interfaces except lo are unknown.
//
// Left out: fragments, ICMP, packets that conntrack knows already, and what sysctls forbid.
// Reference: linux net/netfilter/core.c, nf_nat_core.c, nf_tables_core.c, net/ipv4/ip_input.c,
// ip_forward.c, ip_output.c; and, unlike here passing over what is unknown, the tracers in
// kubernetes@v1.36.3 pkg/proxy/iptables/proxier_test.go and pkg/proxy/nftables/helpers_test.go.

import type { Address } from '../../model/ip.ts';
import type { Packet } from '../../model/proxy-config.ts';
import { type Family, familyOf, type Hook, type RuleSet, rulesOf } from '../ruleset.ts';
import { changesSource, hooksOf } from './hooks.ts';
import { addHull, addShare, count, tallyOf } from './outcome-shares.ts';
import { runBase } from './run-chain.ts';
import type {
  List,
  NodeContext,
  PacketState,
  PassedRule,
  Share,
  Tally,
  TraceStep,
  UnknownRule,
  Walk,
} from './walk-state.ts';
import { addressOf, askPacket, holds, isOwn, packetState } from './walk-state.ts';

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

export interface PacketOutcome {
  /**
   * By `ip:port` or `[ip6]:port`; `node:PORT`: the node itself, at the address of the interface by
   * which the packet came in; `unknown`: the dump does not show it. Of probability 0: only for
   * sources that are remembered.
   */
  readonly destinations: ReadonlyMap<string, Destination>;
  readonly reject: OutcomeShare;
  readonly drop: OutcomeShare;
  /** Went on untranslated: no Service, or the node itself. */
  readonly pass: OutcomeShare;
  /** Not empty: the outcome depends on these, and only what has a probability is possible. */
  readonly unknown: readonly UnknownRule[];
}

/** @throws TypeError where an address of the node is none; the result, where one of a packet is. */
export function createWalk(ruleset: RuleSet, node: NodeContext): (packet: Packet) => PacketOutcome {
  const localAddresses = node.localAddresses.map((text) => addressOf('localAddresses', text));
  const setups = new Map<Family, Pick<Walk, 'hooks' | 'trees'>>();
  return (packet) => {
    const state = packetState(packet, node, localAddresses);
    const { family, tally } = state;
    const setup = setups.get(family) ?? { hooks: hooksOf(ruleset, family), trees: [] };
    setups.set(family, setup);
    const walk = walkOf(setup);
    enterHook(walk, packet.from === 'node' ? 'output' : 'prerouting', state);
    const rejected = tally.get('reject');
    if (rejected !== undefined && isAnswerDropped(packet, node, localAddresses, walk)) {
      tally.delete('reject');
      addShare(tally, 'drop', rejected);
    }
    return outcomeOf(tally, [...walk.unknown.values()]);
  };
}

function walkOf({ hooks, trees }: Pick<Walk, 'hooks' | 'trees'>): Walk {
  return { hooks, trees, onward, unknown: new Map(), steps: 0, depth: 0 };
}

/**
 * Whether the node's answer to a rejected packet is surely dropped on its way out. The answer is a
 * related packet of the node itself; a process of the node receives it in any case.
 */
function isAnswerDropped(
  { src, dst }: Packet,
  node: NodeContext,
  localAddresses: readonly Address[],
  { hooks }: Walk,
): boolean {
  const question: Packet = { from: 'node', src: dst, dst: src, protocol: 'tcp', dport: 0 };
  const state = packetState(question, node, localAddresses);
  const { source: asked, family, original } = state;
  const [first = asked] = localAddresses.filter((address) => familyOf(address) === family);
  const answer: PacketState = {
    ...state,
    source: isOwn(state, asked) ? asked : first,
    protocol: family === 'ip' ? 1 : 58,
    destinationPort: null,
    original: { ...original, port: null },
    entry: 'related',
    // As one that ends where it leaves.
    translated: true,
    sourceTranslated: true,
    from: 'outside',
  };
  enterHook(walkOf({ hooks, trees: [] }), 'output', answer);
  return answer.tally.size === 1 && (answer.tally.get('drop')?.low ?? 0) > 0.999;
}

function enterHook(walk: Walk, hook: Hook, packet: PacketState): void {
  packet.hook = hook;
  if (hook === 'prerouting' || hook === 'input') packet.out = '';
  else packet.out = isLocal(packet) === true ? 'lo' : null;
  eachOrder(walk, walk.hooks[hook], packet, (state, order) => {
    state.stations = order;
    state.station = 0;
    state.nat = null;
    onward(walk, state);
  });
}

/** All orders that two tables of one priority may run in: what they change is unknown. */
function eachOrder<T>(
  walk: Walk,
  orders: readonly (readonly T[])[],
  state: PacketState,
  take: (state: PacketState, order: readonly T[]) => void,
): void {
  const [only] = orders;
  if (orders.length === 1 && only !== undefined) {
    take(state, only);
    return;
  }
  const tallies = orders.map((order) => tallyOf(state, (way) => take(way, order)));
  if (addHull(state, tallies)) {
    const reason = `no dump tells which of several tables comes first in ${state.hook}`;
    walk.unknown.set(reason, { reason, rule: '' });
  }
}

function onward(walk: Walk, state: PacketState): void {
  const settled = changesSource(state.hook) ? 'sourceTranslated' : 'translated';
  if (state.nat !== null) {
    const chain = state[settled] ? undefined : state.nat[state.natNext++];
    if (chain !== undefined) {
      runBase(walk, chain, state);
      return;
    }
    state.nat = null;
    state[settled] = true;
  }
  const station = state.stations[state.station++];
  // Conntrack makes its entry at a priority of its own, between raw and mangle.
  const isBehindConntrack = station === undefined || station.base.priority > -200;
  if (state.entry === 'none' && isBehindConntrack) state.entry = 'new';
  if (station === undefined) leaveHook(walk, state);
  else if (station.table !== null) runBase(walk, station, state);
  else if (state[settled] || state.entry === 'untracked') onward(walk, state);
  else {
    eachOrder(walk, station.orders, state, (way, order) => {
      way.nat = order;
      way.natNext = 0;
      onward(walk, way);
    });
  }
}

/** Whether the packet is for the node itself; null: its destination is not known. */
const isLocal = (state: PacketState): boolean | null =>
  askPacket(state, (packet) => {
    const { toNode, destination } = packet;
    return toNode !== null || destination === null ? toNode : isOwn(packet, destination);
  });

function leaveHook(walk: Walk, state: PacketState): void {
  if (state.hook === 'prerouting') {
    routed(state, (way, local) => enterHook(walk, local ? 'input' : 'forward', way));
  } else if (state.hook === 'forward' || state.hook === 'output') {
    enterHook(walk, 'postrouting', state);
  } else if (state.hook === 'postrouting' && state.from === 'node') {
    routed(state, (way, local) => {
      if (!local) {
        end(way);
        return;
      }
      way.in = 'lo';
      way.translated = true;
      enterHook(walk, 'prerouting', way);
    });
  } else end(state);
}

const end = (state: PacketState): void => count(state, state.goal ?? 'pass');

function routed(state: PacketState, take: (way: PacketState, local: boolean) => void): void {
  const local = isLocal(state);
  if (local !== null) {
    take(state, local);
    return;
  }
  const tallies = [true, false].map((toNode) =>
    tallyOf(state, (way) => {
      way.toNode = toNode;
      take(way, toNode);
    }),
  );
  // The unknown is the destination, and the rule that made it so has said it.
  addHull(state, tallies);
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

function isRead(step: PassedRule): step is PassedRule & TraceStep {
  const chain = step.base.table.chains.get(step.chain);
  step.rule ??= (chain === undefined ? undefined : rulesOf(chain).at(-1)) ?? null;
  return step.rule !== null;
}
