// Outcomes of packets with their shares. Chance divides a share exactly. An unknown leaves open
// which of two tallies is true, so the hull of both is stored: for each outcome the least and the
// greatest share of any answer. If both answers agree, the unknown did not matter.

import { holds, type PacketState, type Share, type Tally } from './walk-state.ts';

export const isDestination = (outcome: string): boolean => outcome.includes(':');

/** The outcomes of a copy of a packet, which `take` walks on. */
export function tallyOf(state: PacketState, take: (copy: PacketState) => void): Tally {
  const tally: Tally = new Map();
  take({ ...state, tally, weight: 1 });
  return tally;
}

/** Adds the outcome of a packet. A weight of 0 is the way of those who came before. */
export function count(state: PacketState, outcome: string): void {
  const { weight, affinity, remembered, masqueraded, trace } = state;
  addShare(state.tally, outcome, {
    low: weight,
    high: weight,
    masquerade: masqueraded === 'unknown' ? 4 : masqueraded ? 2 : 1,
    trace,
    remembered: affinity === null ? remembered : null,
    affinity: affinity !== null && holds(remembered, affinity.name) ? affinity : null,
  });
}

export function addTally(tally: Tally, part: Tally, weight: number): void {
  for (const [outcome, share] of part) {
    addShare(tally, outcome, { ...share, low: share.low * weight, high: share.high * weight });
  }
}

/** Adds one share, which becomes the tally's own. */
export function addShare(tally: Tally, outcome: string, part: Share): void {
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

/** Adds the hull of alternative tallies of a packet. Returns whether they differ. */
export function addHull({ tally, weight }: PacketState, parts: readonly Tally[]): boolean {
  let differ = false;
  for (const outcome of new Set(parts.flatMap((part) => [...part.keys()]))) {
    const known = parts.flatMap((part) => part.get(outcome) ?? []);
    const [first] = known;
    if (first === undefined) continue;
    const isSome = known.length < parts.length;
    const low = isSome ? 0 : Math.min(...known.map((share) => share.low));
    const high = Math.max(...known.map((share) => share.high));
    differ ||= isSome || known.some((share) => !isSame(share, first));
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
