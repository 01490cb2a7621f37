// The state of a packet on its way through the rules, and of the walk that it is on.

import type { Address } from '../../model/ip.ts';
import type { Family, Hook, Rule } from '../ruleset.ts';
import type { BaseChain, Hooks, Station } from './hooks.ts';

/** A list that shares its tail, so that a state can be copied cheaply. */
export interface List<T> {
  readonly head: T;
  readonly tail: List<T> | null;
}

export function holds(list: List<string> | null, name: string): boolean {
  for (let at = list; at !== null; at = at.tail) if (at.head === name) return true;
  return false;
}

export interface TraceStep {
  readonly chain: string;
  /** The base chain that led here. */
  readonly base: BaseChain;
  readonly rule: Rule;
}

/** A step while the packet is on its way; a rule of null: the last one of its chain. */
export interface PassedRule extends Omit<TraceStep, 'rule'> {
  rule: Rule | null;
}

/** A mark: some of its bits may not be known. */
export interface Bits {
  readonly value: number;
  readonly known: number;
}

/** What brings a source here again. */
interface Affinity {
  readonly name: string;
  readonly seconds: number | null;
}

/** What came of some packets: the least and the greatest share of any answer. */
export interface Share {
  low: number;
  high: number;
  /** Bits: 1 some are not masqueraded, 2 some are, 4 some may be. */
  masquerade: number;
  trace: List<PassedRule> | null;
  /** Names under which those without affinity were remembered. */
  remembered: List<string> | null;
  /** What brings a source here again, and remembers it here. */
  affinity: Affinity | null;
}

/** By outcome: `pass`, `reject`, `drop`, `unknown`, or a destination. */
export type Tally = Map<string, Share>;

/** A packet at one place of its way. Its walk changes the state; a fork copies it. */
export interface PacketState {
  readonly family: Family;
  readonly from: 'pod' | 'node' | 'outside';
  readonly source: Address;
  readonly protocol: number;
  /** The node's addresses, without those of its loopback interface. */
  readonly localAddresses: readonly Address[];
  /** All interfaces of the node; null: not known. */
  readonly interfaces: readonly string[] | null;
  /** The interfaces that may reach an address; null: not known. */
  readonly interfacesTo: (address: Address) => readonly string[] | null;
  /** Where it was sent to; null: not known. */
  original: { readonly address: Address | null; readonly port: number | null };
  hook: Hook;
  /** null: a rule translated it, and does not say into what. */
  destination: Address | null;
  destinationPort: number | null;
  /** Whether it is for the node itself; null: its address shows that. */
  toNode: boolean | null;
  /** null: not known; empty: none. */
  in: string | null;
  /** null: as the routes say (`interfacesOut`). */
  out: string | null;
  mark: Bits;
  connectionMark: Bits;
  /** In conntrack's table. An error that the node sends about a packet is related to its entry. */
  entry: 'none' | 'new' | 'untracked' | 'related';
  /** Destination NAT is settled: no rule can change it any more. */
  translated: boolean;
  sourceTranslated: boolean;
  /** Where it goes: `ip:port`, or null before a translation. */
  goal: string | null;
  /** Whether it goes elsewhere than it was sent: NAT to the same place leaves no DNAT status. */
  rewritten: boolean;
  masqueraded: boolean | 'unknown';
  /** The names under which rules remembered the source on the way. */
  remembered: List<string> | null;
  /** On the way of a source that is remembered: under which name, for how long. */
  affinity: Affinity | null;
  trace: List<PassedRule> | null;
  /** Takes up what is asked of where it goes; null: questions are not recorded. */
  questions: MatchQuestion[] | null;
  /** The stations of its hook, and the next of them. */
  stations: readonly Station[];
  station: number;
  /** While it is in the NAT hook: its chains, and the next of them. */
  nat: readonly BaseChain[] | null;
  natNext: number;
  /** Where its outcome is added, and with which share. */
  tally: Tally;
  weight: number;
}

/** A question that was asked of a packet, as it is asked of another, and its answer. */
export interface MatchQuestion {
  readonly question: (other: PacketState) => unknown;
  readonly answer: unknown;
}

const nowhere = {
  destination: null,
  destinationPort: null,
  original: { address: null, port: null },
};

/**
 * Asks a packet something. An answer that is certain, and the same for an unknown destination of
 * the packet, is the same for every destination.
 */
export function askPacket<Answer>(
  state: PacketState,
  question: (packet: PacketState) => Answer,
): Answer {
  const answer = question(state);
  if (state.questions === null) return answer;
  if (answer !== 'unknown' && question({ ...state, ...nowhere }) === answer) return answer;
  const now = { ...state };
  const again = ({ destination, destinationPort, original }: PacketState): Answer => {
    now.destination = destination;
    now.destinationPort = destinationPort;
    now.original = original;
    return question(now);
  };
  state.questions.push({ question: again, answer });
  return answer;
}

/** Whether an address is the node's own. */
export const isOwn = ({ localAddresses }: PacketState, address: Address): boolean =>
  isLoopback(address) || localAddresses.includes(address);

const isLoopback = (address: Address): boolean =>
  typeof address === 'number' ? address >>> 24 === 127 : address === 1n;

export interface UnknownRule {
  readonly reason: string;
  /** The rule as the dump has it. */
  readonly rule: string;
}

export interface Walk {
  readonly hooks: Hooks;
  /** The base chain let a packet pass, or NAT is settled: takes it to its next station. */
  readonly onward: (walk: Walk, state: PacketState) => void;
  /** Unknowns that matter. */
  unknown: Map<string, UnknownRule>;
  /** What became of packets that were translated. */
  readonly trees: DecisionTree[];
  steps: number;
  depth: number;
}

/** Outcomes of packets that differ only in their destination. */
export interface DecisionTree {
  /** The first of them, as it was translated. */
  readonly first: PacketState;
  readonly root: DecisionNode;
  leaves: number;
}

/** What a packet is asked next, or where its way ends. */
export interface DecisionNode {
  question: MatchQuestion['question'] | null;
  readonly branches: Map<unknown, DecisionNode>;
  leaf: DecisionLeaf | null;
}

/** What became of one packet. */
export interface DecisionLeaf extends Pick<PacketState, 'goal' | 'trace' | 'tally'> {
  readonly unknown: Walk['unknown'];
}
