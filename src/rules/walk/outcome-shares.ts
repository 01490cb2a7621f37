// Outcomes of packets with their shares. Chance divides a share exactly. An unknown leaves open
// which of two tallies is true, so the hull of both is stored: for each outcome the least and the
// greatest share of any answer. If both answers agree, the unknown did not matter.

import type { List, PacketState, PassedRule } from './match.ts';

/** `pass`, `reject`, `drop`, `unknown`, or a destination. */
export type OutcomeName = string;

/** Whether an outcome is a known destination. */
export const isDestination = (outcome: OutcomeName): boolean => outcome.includes(':');

export interface Share {
  low: number;
  high: number;
  /** Bits: 1 some are not masqueraded, 2 some are, 4 some may be. */
  masquerade: number;
  trace: List<PassedRule> | null;
  /** Names under which those without affinity were remembered. */
  remembered: List<string> | null;
  /** What brings a source here again, and remembers it here. */
  affinity: { readonly name: string; readonly seconds: number | null } | null;
}

export type Tally = Map<OutcomeName, Share>;

/** A tally of what `add` adds. */
export function tallyOf(add: (tally: Tally) => void): Tally {
  const tally: Tally = new Map();
  add(tally);
  return tally;
}

/** Adds so much of what ends here. A weight of 0 is the way of those who came before. */
export function count(
  tally: Tally,
  outcome: OutcomeName,
  weight: number,
  state: PacketState,
): void {
  const masquerade = state.masqueraded === 'unknown' ? 4 : state.masqueraded ? 2 : 1;
  const { affinity } = state;
  const kept = affinity !== null && holds(state.remembered, affinity.name) ? affinity : null;
  const remembered = affinity === null ? state.remembered : null;
  const share = tally.get(outcome);
  if (share === undefined) {
    const { trace } = state;
    tally.set(outcome, {
      low: weight,
      high: weight,
      masquerade,
      trace,
      remembered,
      affinity: kept,
    });
    return;
  }
  share.low += weight;
  share.high += weight;
  share.masquerade |= masquerade;
  share.remembered ??= remembered;
  share.affinity ??= kept;
}

export function holds(list: List<string> | null, name: string): boolean {
  for (let at = list; at !== null; at = at.tail) if (at.head === name) return true;
  return false;
}

/** Adds so much of another tally. */
export function addTally(tally: Tally, part: Tally, weight: number): void {
  for (const [outcome, share] of part) {
    addShare(tally, outcome, { ...share, low: share.low * weight, high: share.high * weight });
  }
}

/** Adds one share, which becomes the tally's own. */
export function addShare(tally: Tally, outcome: OutcomeName, part: Share): void {
  const share = tally.get(outcome);
  if (share === undefined) {
    tally.set(outcome, part);
    return;
  }
  share.low += part.low;
  share.high += part.high;
  share.masquerade |= part.masquerade;
  share.remembered ??= part.remembered;
  share.affinity ??= part.affinity;
}

const rounding = 1e-9;

/** Adds the hull of alternative tallies. Returns whether they differ. */
export function addHull(tally: Tally, parts: readonly Tally[], weight: number): boolean {
  let differ = false;
  for (const outcome of new Set(parts.flatMap((part) => [...part.keys()]))) {
    const shares = parts.map((part) => part.get(outcome));
    const known = shares.filter((share) => share !== undefined);
    const low = Math.min(...shares.map((share) => share?.low ?? 0));
    const high = Math.max(...known.map((share) => share.high));
    const [first] = known;
    if (first === undefined) continue;
    differ ||= known.length < parts.length || known.some((share) => !isSame(share, first));
    const masquerade = known.reduce((bits, share) => bits | share.masquerade, 0);
    const affinity = known.find((share) => share.affinity !== null)?.affinity ?? null;
    const part = { ...first, low: low * weight, high: high * weight, masquerade, affinity };
    addShare(tally, outcome, part);
  }
  return differ;
}

const isSame = (share: Share, other: Share): boolean =>
  Math.abs(share.low - other.low) < rounding &&
  Math.abs(share.high - other.high) < rounding &&
  share.masquerade === other.masquerade;
