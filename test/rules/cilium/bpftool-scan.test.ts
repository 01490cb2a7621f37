import { describe, expect, test } from 'vitest';

import { readBpftoolBatch, readBpftoolDump } from '../../../src/rules/cilium/bpftool-dump.ts';
import { scanMaps } from '../../../src/rules/cilium/bpftool-scan.ts';
import { diceOf } from '../../cilium/objects.ts';

type Dice = ReturnType<typeof diceOf>;

const byte = (value: number): string => `0x${value.toString(16).padStart(2, '0')}`;

const sizes: Readonly<Record<string, readonly [key: number, value: number]>> = {
  cilium_lb4_services_v2: [12, 12],
  cilium_lb4_backends_v3: [4, 12],
  cilium_lb4_reverse_nat: [2, 6],
  cilium_lb4_source_range: [12, 1],
  cilium_lb4_maglev: [2, 4],
  cilium_lb6_services_v2: [24, 12],
  cilium_lb6_backends_v3: [4, 24],
  cilium_lb6_reverse_nat: [2, 18],
  cilium_lb6_source_range: [24, 1],
  cilium_lb6_maglev: [2, 4],
  cilium_lb_affinity_match: [8, 1],
  'cilium_maglev_inner:7': [4, 20],
};

/** Random maps. Nearly all protocols, and half of all lengths of source ranges, are known. */
function randomMaps({ chance, oneOf, below }: Dice) {
  const bytes = (length: number): string[] =>
    Array.from({ length }, () => byte(chance(0.9) ? oneOf([0, 6, 17]) : below(256)));
  const keyOf = (name: string, size: number): string[] =>
    name.endsWith('range')
      ? [byte(32 + below(64)), ...bytes(size - 1).fill(byte(0), 0, 3)]
      : bytes(size);
  const valueOf = (name: string, size: number): string[] =>
    name.endsWith('maglev') && chance(0.9) ? [7, 0, 0, 0].map(byte) : bytes(size);
  const entryOf = (name: string, [key, value]: readonly [number, number]) => ({
    key: keyOf(name, key),
    value: valueOf(name, value),
  });
  const all = Object.entries(sizes).filter(() => chance(0.97));
  return Object.fromEntries(
    all.map(([name, size]) => [name, Array.from({ length: below(3) }, () => entryOf(name, size))]),
  );
}

const batchOf = (maps: object): string =>
  JSON.stringify(
    Object.entries(maps).flatMap(([name, output]: [string, unknown]) => {
      const command = ['map', 'dump', 'pinned', `/sys/fs/bpf/tc/globals/${name}`];
      return name.includes(':') ? [] : { command, output };
    }),
  );

const pieces = [
  ...['', '"', '[', ']', '{', '}', ',', ':', ' ', '\n', '0', 'a', 'A', 'x', '\\', '\u{1f6a8}'],
  ...['"0x0a"', '"0x1ff"', '"0xa"', '"0xAF"', '"10"', '10', 'null', '""', '[]', '{}', '[[]]'],
  ...['"key":', '"value":', '"key":["0x00"],', ',"formatted":{}', '{"error":"gone"}', '\\u0030'],
  ...['cilium_lb4_services_v2', 'cilium_lb6_maglev', '__proto__', '/', '"output":[],'],
];

/** Puts a piece, or another part of the text, into a random place, often instead of a byte. */
function changed(text: string, { chance, oneOf, below }: Dice): string {
  const start = below(text.length);
  const at = chance(0.6) ? Math.max(text.indexOf('"0x', start), 0) : start;
  const length = chance(0.6) ? byte(0).length + 2 : below(60);
  const from = below(text.length);
  const others = [
    JSON.stringify(byte(below(256))),
    oneOf(pieces),
    text.slice(from, from + below(60)),
  ];
  const end = chance(0.03) ? '' : text.slice(at + length);
  return text.slice(0, at) + oneOf(others) + end;
}

const readers = { object: readBpftoolDump, batch: readBpftoolBatch } as const;

type Form = keyof typeof readers;

function resultOf(text: string, form: Form): unknown {
  try {
    return readers[form](text);
  } catch (error) {
    return (error as Error).message.trimEnd();
  }
}

/** Whether the scanner reads a text. A blank at the end leaves it to the JSON parser. */
function isReadEqually(text: string, form: Form): boolean {
  const parsed = `${text} `;
  expect(scanMaps(parsed, form)).toBeNull();
  expect(resultOf(text, form), text).toEqual(resultOf(parsed, form));
  return scanMaps(text, form) !== null;
}

describe.each(['object', 'batch'] as const)('a text of the form %s', (form) => {
  const textOf = (dice: Dice): string => {
    const maps = randomMaps(dice);
    return form === 'object' ? JSON.stringify(maps) : `${batchOf(maps)}\n`;
  };

  test('is read as by the JSON parser', () => {
    let sound = 0;
    for (let seed = 0; seed < 300; seed++) {
      const text = textOf(diceOf(seed));
      expect(isReadEqually(text, form), text).toBe(true);
      if (typeof resultOf(text, form) === 'object') sound++;
    }
    expect(sound).toBeGreaterThan(40);
  });

  test('is read as by the JSON parser after random changes, or left to it', () => {
    const counts = { scanned: 0, left: 0 };
    for (let seed = 0; seed < 2000; seed++) {
      const dice = diceOf(seed);
      let text = textOf(dice);
      for (let times = dice.below(3); times >= 0; times--) text = changed(text, dice);
      counts[isReadEqually(text, form) ? 'scanned' : 'left']++;
    }
    expect(Math.min(counts.scanned, counts.left)).toBeGreaterThan(50);
  });
});

test.each([
  ['another form', '[]'],
  ['no maps', '{}'],
  ['a list without its begin', '{"cilium_x":]}'],
  ['a blank', '{"cilium_lb4_maglev": []}'],
  ['another member', '{"cilium_lb4_maglev":[{"key":["0x00"],"value":["0x00"],"x":1}]}'],
  ['keys of two sizes', '{"cilium_x":[{"key":["0x00"],"value":["0x00"]},{"key":["0x00","0x00"]'],
  ['a capital digit', '{"cilium_x":[{"key":["0x0A"],"value":["0x00"]}]}'],
  ['one digit', '{"cilium_x":[{"key":["0xa"],"value":["0x00"]}]}'],
  ['two texts as one byte', '{"cilium_x":[{"key":["0x","0a"],"value":["0x00"]}]}'],
  ['a cut', '{"cilium_x":[{"key":["0x0a"'],
  ['a comma at the end', '{"cilium_x":[{"key":["0x0a"],"value":["0x00"]},]}'],
  ['more text at the end', '{"cilium_x":[]}{}'],
])('%s is left to the JSON parser', (_, text) => {
  expect(scanMaps(text, 'object')).toBeNull();
});

test('all keys, and all values, are one after the other', () => {
  const text = '{"cilium_x":[{"key":["0x01"],"value":["0xff","0x9a"]}],"cilium_y":[]}';
  const maps = scanMaps(text, 'object');
  const bytes = Uint8Array.of(1, 255, 154);
  expect(maps?.get('cilium_x')).toMatchObject({ keySize: 1, valueSize: 2, bytes });
  expect(maps?.get('cilium_y')).toMatchObject({ bytes: new Uint8Array(0) });
});
