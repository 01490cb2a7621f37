import { describe, expect, test } from 'vitest';

import type { PacketOutcome } from '../../src/rules/walk/walk.ts';
import type { PacketLine } from './folder.ts';
import { fits, problemOf } from './folder.ts';
import { isTrue } from './walk.ts';

describe('the comparison', () => {
  const trace = (): never[] => [];
  const none = { probability: 0, masqueraded: false, trace };
  const destination = {
    probability: 0.5,
    masqueraded: false,
    trace,
    affinity: false,
    affinitySeconds: null,
  };
  const outcome: PacketOutcome = {
    destinations: new Map([
      ['a:1', destination],
      ['b:1', destination],
    ]),
    reject: none,
    drop: none,
    pass: none,
    unknown: [],
  };
  const line: PacketLine = {
    about: '',
    packet: { from: 'pod', src: '10.0.0.1', dst: '10.96.0.1', protocol: 'TCP', dport: 80 },
    attempts: 40,
    outcomes: {
      'a:1': { count: 19, masqueraded: false },
      'b:1': { count: 21, masqueraded: false },
    },
  };
  const seen = (counts: Record<string, number>, masqueraded = false): PacketLine => ({
    ...line,
    outcomes: Object.fromEntries(
      Object.entries(counts).map(([name, count]) => [name, { count, masqueraded }]),
    ),
  });

  test.each([
    [line, null],
    [seen({ 'a:1': 19, 'c:1': 21 }), 'c:1 is not possible'],
    [seen({ 'a:1': 19, 'b:1': 21 }, true), 'a:1 is masqueraded: true'],
    [seen({ 'a:1': 2, 'b:1': 38 }), 'a:1: 2 of 40 at 0.5'],
    [seen({ 'a:1': 40 }), 'a:1: 40 of 40 at 0.5'],
    [{ ...line, outcomes: 'drop' }, 'drop is not possible'],
    [
      { ...line, outcomes: 'drop', inconclusive: ['drop', 'reject'] },
      'none of drop, reject is possible',
    ],
  ])('case %$', (packet, want) => {
    expect(problemOf(packet, [outcome], 1e-6)).toBe(want);
  });

  test('accepts counts within the band of a share, and no others', () => {
    expect([fits(0.5, 40, 20, 1e-3), fits(0.5, 40, 5, 1e-3)]).toEqual([true, false]);
    expect([fits(1, 40, 40, 1e-3), fits(1, 40, 39, 1e-3), fits(0, 9, 0, 1e-3)]).toEqual([
      true,
      false,
      true,
    ]);
  });

  test('little may be unknown, nothing wrong', () => {
    const summary = {
      recordings: 1,
      packets: 200,
      wrong: 0,
      unknown: 1,
      foreignPackets: 100,
      foreignUnknown: 10,
      faults: 1,
      falseFindings: 0,
      missed: 0,
      misplaced: 0,
    };
    expect(isTrue(summary)).toBe(true);
    expect(isTrue({ ...summary, unknown: 2 })).toBe(false);
    expect(isTrue({ ...summary, foreignUnknown: 11 })).toBe(false);
    expect(isTrue({ ...summary, wrong: 1 })).toBe(false);
    expect(isTrue({ ...summary, falseFindings: 1 })).toBe(false);
    expect(isTrue({ ...summary, missed: 1 })).toBe(false);
    expect(isTrue({ ...summary, misplaced: 1 })).toBe(false);
  });
});
