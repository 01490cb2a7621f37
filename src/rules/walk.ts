// How a packet fares on a node: the rules of all tables, in the kernel's order.

import type { RuleSet } from './ruleset.ts';

export interface NodeContext {
  /** The node's own addresses; 127.0.0.0/8 and ::1 are local without being named. */
  readonly localAddresses: readonly string[];
  /** Names of the interfaces by which packets come in; without them `-i` is unknown. */
  readonly interfaces?: { readonly outside?: string; readonly pod?: string };
}

/** The first packet of a connection. */
export interface Packet {
  readonly from: 'pod' | 'node' | 'outside';
  readonly src: string;
  readonly dst: string;
  readonly protocol: 'tcp' | 'udp' | 'sctp';
  readonly dport: number;
  /** The interface by which it comes in, where that is known better than the node context says. */
  readonly iif?: string;
}

/** The rules that matched on the way, the last first. */
export interface Trace {
  readonly chain: string;
  readonly text: string;
  readonly line: number;
  readonly before: Trace | null;
}

/** `probability` is exact, or the highest that the unknowns allow. */
export interface Fate {
  readonly probability: number;
  /** unknown: some do and some do not, or it cannot be told. */
  readonly masqueraded: boolean | 'unknown';
  readonly trace: Trace | null;
}

export interface Destination extends Fate {
  /** Who was sent here once is sent here again. A destination of probability 0 has only that. */
  readonly affinity: boolean;
  /** For how long; null without affinity, or without end. */
  readonly affinitySeconds: number | null;
}

export interface Unknown {
  readonly reason: string;
  /** The rule as the dump has it. */
  readonly rule: string;
}

export interface Outcome {
  /** By `ip:port` or `[ip6]:port`; `unknown` is a destination that the dump does not tell. */
  readonly destinations: ReadonlyMap<string, Destination>;
  readonly reject: Fate;
  readonly drop: Fate;
  /** Went on untranslated: no Service, or the node itself. */
  readonly pass: Fate;
  /** Not empty: the outcome depends on these; what is possible is then everything with p > 0. */
  readonly unknown: readonly Unknown[];
}

/** Walks one packet; both readers' rule sets. */
export function walk(_ruleset: RuleSet, _node: NodeContext, _packet: Packet): Outcome {
  throw new Error('Not yet');
}
