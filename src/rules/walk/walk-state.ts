// The state of one walk of a packet through chains, and of packets that take the same way.

import type { BaseChain } from './hooks.ts';
import type { Asked, List, PacketState, Passed } from './match.ts';
import type { FateName, Share, Tally } from './outcome-shares.ts';

/** A packet on its way, and where it goes after the chain that it is in. */
export interface Traveller extends PacketState {
  stations: readonly unknown[];
  station: number;
  /** While it is in the NAT hook: its chains, and the next of them. */
  nat: readonly BaseChain[] | null;
  natNext: number;
}

export interface Walk {
  readonly own: readonly PacketState['source'][];
  /** The base chain let it pass, or NAT is settled: what follows adds to the tally. */
  readonly onward: (walk: Walk, traveller: Traveller, tally: Tally, weight: number) => void;
  /** Unknowns that matter: reason and rule. */
  unknown: Map<string, { readonly reason: string; readonly rule: string }>;
  /** What became of packets that were translated. */
  readonly kinds: Kind[];
  steps: number;
  depth: number;
}

/** Packets that are alike but for where they go. */
export interface Kind {
  /** The first of them, as it was translated. */
  readonly first: Traveller;
  readonly root: Turn;
  ways: number;
}

/** What a packet is asked next, or where its way ends. */
export interface Turn {
  question: Asked['question'] | null;
  readonly answers: Map<unknown, Turn>;
  way: Way | null;
}

/** What became of one packet. */
export interface Way {
  readonly goal: string | null;
  readonly trace: List<Passed> | null;
  /** Of all of it. */
  readonly shares: readonly { readonly fate: FateName; readonly share: Share }[];
  readonly unknown: Walk['unknown'];
}
