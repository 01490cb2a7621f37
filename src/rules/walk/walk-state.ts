// The state of one walk of a packet through chains, and of packets that take the same way.

import type { BaseChain } from './hooks.ts';
import type { List, MatchQuestion, PacketState, PassedRule } from './match.ts';
import type { OutcomeName, Share, Tally } from './outcome-shares.ts';

/** A packet on its way, and where it goes after the chain that it is in. */
export interface WalkState extends PacketState {
  stations: readonly unknown[];
  station: number;
  /** While it is in the NAT hook: its chains, and the next of them. */
  nat: readonly BaseChain[] | null;
  natNext: number;
}

export interface Walk {
  readonly own: readonly PacketState['source'][];
  /** The base chain let it pass, or NAT is settled: what follows adds to the tally. */
  readonly onward: (walk: Walk, traveller: WalkState, tally: Tally, weight: number) => void;
  /** Unknowns that matter: reason and rule. */
  unknown: Map<string, { readonly reason: string; readonly rule: string }>;
  /** What became of packets that were translated. */
  readonly trees: DecisionTree[];
  steps: number;
  depth: number;
}

/** Outcomes of packets that differ only in their destination. */
export interface DecisionTree {
  /** The first of them, as it was translated. */
  readonly first: WalkState;
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
export interface DecisionLeaf {
  readonly goal: string | null;
  readonly trace: List<PassedRule> | null;
  /** Of all of it. */
  readonly shares: readonly (readonly [OutcomeName, Share])[];
  readonly unknown: Walk['unknown'];
}
