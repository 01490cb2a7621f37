import { fc, test as property } from '@fast-check/vitest';
import { describe, expect } from 'vitest';

import { changeMark } from '../../../src/rules/walk/mark.ts';
import { stateOf } from '../print.ts';

const word = fc.integer({ min: 0, max: 0xffffffff });

describe('marks', () => {
  property.prop([word, word, word, word])(
    'known bits are right, whatever the others are',
    (mark, known, keep, flip) => {
      const state = stateOf({ mark: (mark & known) >>> 0, markKnown: known });
      changeMark({ kind: 'set mark', field: 'mark', keep, flip }, state);
      const real = ((mark & keep) ^ flip) >>> 0;
      expect((state.mark & state.markKnown) >>> 0).toBe((real & state.markKnown) >>> 0);
      expect((state.markKnown & ~keep) >>> 0).toBe(~keep >>> 0);
    },
  );

  property.prop([word, word, word, word])(
    'copy only the bits of both masks',
    (mark, connectionMark, from, to) => {
      const state = stateOf({ mark, connectionMark });
      const masks = { packetMask: from, connectionMask: to };
      changeMark({ kind: 'copy mark', direction: 'save', ...masks }, state);
      expect(state.connectionMark).toBe(((connectionMark & ~to) ^ (mark & from)) >>> 0);
      const saved = state.connectionMark;
      changeMark({ kind: 'copy mark', direction: 'restore', ...masks }, state);
      expect(state.mark).toBe(((mark & ~from) ^ (saved & to)) >>> 0);
      expect(state.markKnown).toBe(0xffffffff);
    },
  );

  property.prop([word, word])('what is unknown stays so under other bits', (known, bits) => {
    const state = stateOf({ markKnown: known });
    changeMark({ kind: 'unknown mark', bits, text: '' }, state);
    expect(state.markKnown).toBe((known & ~bits) >>> 0);
  });
});
