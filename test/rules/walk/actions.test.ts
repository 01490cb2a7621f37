import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import { parseNetwork } from '../../../src/model/ip.ts';
import type { Translation } from '../../../src/rules/ruleset.ts';
import { changeMark, translate } from '../../../src/rules/walk/actions.ts';
import type { Bits, PacketState } from '../../../src/rules/walk/walk-state.ts';
import { stateOf } from '../rulesets.ts';

const range = (low: number, high = low): { low: number; high: number } => ({ low, high });

const to = (
  addresses: string | null,
  ports: Translation['ports'],
  random = false,
): Translation => ({
  addresses: addresses === null ? null : parseNetwork(addresses),
  ports,
  random,
});

function goals(
  translation: Translation | null,
  state: Partial<PacketState> = {},
): (string | null)[] {
  const action = { kind: 'dnat', to: translation, text: '' } as const;
  return translate(action, stateOf(state)).map(({ goal }) => goal);
}

describe('destinations', () => {
  test.each([
    [to('10.0.0.9', range(8080)), ['10.0.0.9:8080']],
    [to('10.0.0.9', null), ['10.0.0.9:80']],
    [to(null, range(8080)), ['10.96.0.1:8080']],
    // The first of the ports, or the packet's own when it is one of them.
    [to('10.0.0.9', range(9000, 9003)), ['10.0.0.9:9000']],
    [to('10.0.0.9', range(79, 81)), ['10.0.0.9:80']],
    [to('10.0.0.9', range(1, 2), true), ['10.0.0.9:1', '10.0.0.9:2']],
    [to('10.0.0.8-10.0.0.9', range(1)), ['10.0.0.8:1', '10.0.0.9:1']],
    [to('10.0.0.0/24', range(1)), ['unknown']],
    [to('fd00::8-fd00::9', range(1)), ['[fd00::8]:1', '[fd00::9]:1']],
    [null, ['unknown']],
  ])('case %$', (translation, want) => {
    expect(goals(translation)).toEqual(want);
  });

  test('a destination that is not known stays so', () => {
    expect(goals(to(null, range(1)), { destination: null })).toEqual(['unknown']);
    expect(goals(to('10.0.0.9', null), { destinationPort: null })).toEqual(['unknown']);
  });

  test('to where it goes anyway is no change of the destination', () => {
    const rewritten = (port: number): unknown => {
      const action = { kind: 'dnat', to: to('10.96.0.1', range(port)), text: '' } as const;
      return translate(action, stateOf())[0]?.rewritten;
    };
    expect(rewritten(80)).toBe(false);
    expect(rewritten(81)).toBe(true);
  });

  test('REDIRECT goes to the node: over lo for its own packets', () => {
    const action = { kind: 'redirect', ports: range(15001), text: '' } as const;
    const [outside] = translate(action, stateOf());
    expect(outside).toMatchObject({ goal: 'node:15001', toNode: true, destination: null });
    const [own] = translate(action, stateOf({ hook: 'output' }));
    expect(own?.goal).toBe('127.0.0.1:15001');
  });

  test('NETMAP keeps the host', () => {
    const action = {
      kind: 'netmap',
      to: parseNetwork('10.88.0.0/24') ?? range(0),
      text: '',
    } as const;
    expect(translate(action, stateOf({ destination: 0xc612c807 }))[0]?.goal).toBe('10.88.0.7:80');
    const [source] = translate(action, stateOf({ hook: 'postrouting' }));
    expect(source).toMatchObject({ masqueraded: true, goal: null, sourceTranslated: true });
  });
});

describe('sources', () => {
  test.each([
    [false, [], true],
    [true, [], true],
    [false, [0x0a000001], 'unknown'],
    [true, [0x0a000001], true],
  ])('MASQUERADE, random %s, own %s: %s', (random, own, want) => {
    const action = { kind: 'masquerade', random, text: '' } as const;
    expect(translate(action, stateOf({ localAddresses: own }))[0]?.masqueraded).toBe(want);
  });

  test.each([
    [to('10.0.0.1', null), false],
    [to('10.0.0.2', null), true],
    [to('10.0.0.1-10.0.0.2', null), 'unknown'],
    [to(null, range(1, 9)), true],
    [null, true],
  ])('SNAT, case %$: %s', (translation, want) => {
    const action = { kind: 'snat', to: translation, text: '' } as const;
    expect(translate(action, stateOf())[0]?.masqueraded).toBe(want);
  });
});

const word = fc.integer({ min: 0, max: 0xffffffff });

const all = (value: number): Bits => ({ value, known: 0xffffffff });

describe('marks', () => {
  property.prop([word, word, word, word])(
    'known bits are right, whatever the others are',
    (mark, known, keep, flip) => {
      const state = stateOf({ mark: { value: (mark & known) >>> 0, known } });
      changeMark({ kind: 'set mark', field: 'mark', keep, flip }, state);
      const real = ((mark & keep) ^ flip) >>> 0;
      const after = state.mark;
      expect((after.value & after.known) >>> 0).toBe((real & after.known) >>> 0);
      expect((after.known & ~keep) >>> 0).toBe(~keep >>> 0);
    },
  );

  property.prop([word, word, word, word])(
    'copy only the bits of both masks',
    (mark, connectionMark, from, to) => {
      const state = stateOf({ mark: all(mark), connectionMark: all(connectionMark) });
      const masks = { packetMask: from, connectionMask: to };
      changeMark({ kind: 'copy mark', direction: 'save', ...masks }, state);
      const saved = state.connectionMark.value;
      expect(saved).toBe(((connectionMark & ~to) ^ (mark & from)) >>> 0);
      changeMark({ kind: 'copy mark', direction: 'restore', ...masks }, state);
      expect(state.mark).toEqual(all(((mark & ~from) ^ (saved & to)) >>> 0));
    },
  );

  property.prop([word, word])('what is unknown stays so under other bits', (known, bits) => {
    const state = stateOf({ mark: { value: 0, known } });
    changeMark({ kind: 'unknown mark', bits, text: '' }, state);
    expect(state.mark.known).toBe((known & ~bits) >>> 0);
  });
});
