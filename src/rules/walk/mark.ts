// The marks of a packet and of its connection, bit by bit: some may be known and others not.
// Reference: linux net/netfilter/xt_mark.c, xt_connmark.c, nft_meta.c, nft_ct.c.

import type { Action } from '../ruleset.ts';
import type { PacketState } from './match.ts';

type MarkAction = Extract<Action, { kind: 'set mark' | 'copy mark' | 'unknown mark' }>;

/** Changes the marks as the action says. */
export function changeMark(action: MarkAction, state: PacketState): void {
  switch (action.kind) {
    case 'unknown mark':
      state.markKnown = (state.markKnown & ~action.bits) >>> 0;
      state.connectionMarkKnown = (state.connectionMarkKnown & ~action.bits) >>> 0;
      return;
    case 'set mark':
      // A bit that is not kept is known afterwards, whatever it was.
      if (action.field === 'mark') {
        state.mark = ((state.mark & action.keep) ^ action.flip) >>> 0;
        state.markKnown = (state.markKnown | ~action.keep) >>> 0;
      } else if (state.entry === 'new') {
        state.connectionMark = ((state.connectionMark & action.keep) ^ action.flip) >>> 0;
        state.connectionMarkKnown = (state.connectionMarkKnown | ~action.keep) >>> 0;
      }
      return;
    case 'copy mark': {
      if (state.entry === 'new') copyMark(action, state);
      return;
    }
  }
}

type CopyMark = Extract<MarkAction, { kind: 'copy mark' }>;

/** xt_connmark: clears the bits of one mask, and flips what the other lets through. */
function copyMark({ direction, packetMask, connectionMask }: CopyMark, state: PacketState): void {
  const { mark, markKnown, connectionMark, connectionMarkKnown } = state;
  if (direction === 'save') {
    const flip = mark & packetMask;
    state.connectionMark = ((connectionMark & ~connectionMask) ^ flip) >>> 0;
    const known = (connectionMarkKnown | connectionMask) & (markKnown | ~packetMask);
    state.connectionMarkKnown = known >>> 0;
  } else {
    const flip = connectionMark & connectionMask;
    state.mark = ((mark & ~packetMask) ^ flip) >>> 0;
    const known = (markKnown | packetMask) & (connectionMarkKnown | ~connectionMask);
    state.markKnown = known >>> 0;
  }
}
