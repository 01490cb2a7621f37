import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Piece } from '../../../src/cluster/decode/json-items.ts';
import { jsonFormat, jsonPieces } from '../../../src/cluster/decode/json-items.ts';
import { all, chunks } from '../../build.ts';

const lengthsOf = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 5 });

describe('JSON pieces', () => {
  const pieces = (text: string, lengths?: readonly number[], limit?: number) =>
    all(jsonPieces(chunks(Buffer.from(text), lengths), limit));
  const short = (pieces: Piece[]) => pieces.map(({ type, line, text }) => [type, line, text]);

  test('of a document with very many lists', async () => {
    const text = `{${Array.from({ length: 30_000 }, (_, i) => `"name-${i}":["x"]`).join()}}`;
    const begun = process.cpuUsage();
    expect(await pieces(text, [64 * 1024])).toEqual([{ type: 'document', line: 1, text }]);
    expect(process.cpuUsage(begun).user).toBeLessThan(2e6);
  });

  test.each<[string, string, unknown[]]>([
    ['nothing', ' \n', []],
    ['a document', '{"a":[1,{}]}', [['document', 1, '{"a":[1,{}]}']]],
    [
      'documents after each other',
      '{"a":1}\n{"a":2} {"a":3}\u001e\n',
      [
        ['document', 1, '{"a":1}'],
        ['document', 2, '{"a":2}'],
        ['document', 2, '{"a":3}'],
      ],
    ],
    [
      'a list',
      '{\n"kind": "List",\n"items": [\n{"a": "]}"},\n{"a": [[]]}\n],\n"metadata": {}\n}\n',
      [
        ['head', 1, '{\n"kind": "List",\n"items": []}'],
        ['item', 4, '{"a": "]}"}'],
        ['item', 5, '{"a": [[]]}'],
        ['tail', 1, '{\n"kind": "List",\n"items": [],\n"metadata": {}\n}'],
      ],
    ],
    [
      'an empty list',
      '{"items":[ ],"kind":"PodList"}',
      [
        ['head', 1, '{"items":[]}'],
        ['tail', 1, '{"items":[],"kind":"PodList"}'],
      ],
    ],
    [
      'items of other types',
      '{"items":[null,1.5 ,"a\\"]",[2],true]}',
      [
        ['head', 1, '{"items":[]}'],
        ['item', 1, 'null'],
        ['item', 1, '1.5'],
        ['item', 1, '"a\\"]"'],
        ['item', 1, '[2]'],
        ['item', 1, 'true'],
        ['tail', 1, '{"items":[]}'],
      ],
    ],
    [
      'an array',
      '[{"a":1},\n{"a":2}]',
      [
        ['head', 1, '{}'],
        ['item', 1, '{"a":1}'],
        ['item', 2, '{"a":2}'],
        ['tail', 2, '{}'],
      ],
    ],
    [
      'items that are no items of the document',
      '{"spec":{"items":[1]},"x":"items","y":["items",[]],"items":{"a":[]}}',
      [['document', 1, '{"spec":{"items":[1]},"x":"items","y":["items",[]],"items":{"a":[]}}']],
    ],
    [
      'escapes in names and strings',
      '{"\\"items":[],"a\\\\":"\\\\","items\\n":[1]}',
      [['document', 1, '{"\\"items":[],"a\\\\":"\\\\","items\\n":[1]}']],
    ],
    [
      'text between documents',
      'Warning: "x" {\n---\n{}\nerror',
      [
        ['stray', 1, 'Warning: "x" {'],
        ['stray', 2, '---'],
        ['document', 3, '{}'],
        ['stray', 4, 'error'],
      ],
    ],
    [
      'a string that does not end',
      '{"items":[\n{"a":"x},\n"b"},\n{"c":1}\n]}',
      [
        ['head', 1, '{"items":[]}'],
        ['item', 2, '{"a":"x},\n"b"}'],
        ['item', 4, '{"c":1}'],
        ['tail', 1, '{"items":[]}'],
      ],
    ],
    [
      'an end within an item',
      '{"items":[{"a":1},\n{"b":',
      [
        ['head', 1, '{"items":[]}'],
        ['item', 1, '{"a":1}'],
        ['unfinished', 2, '{"b":'],
      ],
    ],
    [
      'an end between items',
      '{"items":[{"a":1},\n',
      [
        ['head', 1, '{"items":[]}'],
        ['item', 1, '{"a":1}'],
        ['unfinished', 2, ''],
      ],
    ],
    ['an end within a document', '{"a":{\n', [['unfinished', 2, '{"a":{\n']]],
  ])('%s', async (_, text, want) => {
    for (const lengths of [[text.length], [1], [2], [3, 5]]) {
      expect(short(await pieces(text, lengths))).toEqual(want);
    }
  });

  test('what is too long has no text, and what follows is read', async () => {
    const long = `{"a":"${'x'.repeat(100)}"}`;
    for (const lengths of [[1], [1000]]) {
      const got = short(await pieces(`{"items":[${long},{"b":1}]}${long}{"c":1}`, lengths, 50));
      expect(got).toEqual([
        ['head', 1, '{"items":[]}'],
        ['tooLong', 1, ''],
        ['item', 1, '{"b":1}'],
        ['tail', 1, '{"items":[]}'],
        ['tooLong', 1, ''],
        ['document', 1, '{"c":1}'],
      ]);
    }
  });

  const lists = fc.array(fc.array(fc.jsonValue(), { maxLength: 4 }), { maxLength: 3 });
  const spaces = fc.constantFrom(0, 1, 4);

  test('hold every item of any lists, in any chunks', async () => {
    await fc.assert(
      fc.asyncProperty(lists, spaces, lengthsOf, async (lists, space, lengths) => {
        const text = lists
          .map((items) => JSON.stringify({ 'a\\"': '{', items, kind: 'List' }, null, space))
          .join('\n');
        const got = await pieces(text, lengths);
        const parsed = (type: Piece['type']) =>
          got
            .filter((piece) => piece.type === type)
            .map((piece) => JSON.parse(piece.text) as unknown);
        const plain = (value: unknown) => JSON.parse(JSON.stringify(value)) as unknown;
        expect(parsed('item')).toEqual(plain(lists.flat()));
        expect(parsed('tail')).toEqual(lists.map(() => ({ 'a\\"': '{', items: [], kind: 'List' })));
        expect(parsed('head')).toEqual(lists.map(() => ({ 'a\\"': '{', items: [] })));
        expect(got).toHaveLength(lists.flat().length + 2 * lists.length);
      }),
    );
  });

  test('of a list that is cut off anywhere hold the items before', async () => {
    const items = [{ a: '[{' }, { b: [1, { c: '\\' }] }, { d: 'ü' }];
    const text = JSON.stringify({ apiVersion: 'v1', items, kind: 'List' }, null, 1);
    const bytes = Buffer.from(text);
    let delivered = 0;
    for (let length = 1; length < bytes.length; length++) {
      const got = await all(jsonPieces(chunks(bytes.subarray(0, length), [5])));
      expect(got.at(-1)?.type).toBe('unfinished');
      const whole = got.filter((piece) => piece.type === 'item');
      expect(whole.map((piece) => JSON.parse(piece.text) as unknown)).toEqual(
        items.slice(0, whole.length),
      );
      expect(whole.length).toBeGreaterThanOrEqual(delivered);
      delivered = whole.length;
    }
    expect(delivered).toBe(3);
  });

  test('never throw, and always end', async () => {
    const text = fc.string({
      unit: fc.constantFrom(...'{ } [ ] " , : \\ - a 1'.split(' '), ' ', '\n'),
    });
    await fc.assert(
      fc.asyncProperty(text, lengthsOf, async (text, lengths) => {
        const got = await pieces(text, lengths);
        expect(short(got)).toEqual(short(await pieces(text)));
      }),
      { numRuns: 1000 },
    );
  });
});

test('text that cannot be parsed is a fault with its line', () => {
  expect(jsonFormat.parse('{"a":[1]}')).toEqual({ value: { a: [1] } });
  const parsed = jsonFormat.parse('{"a" 1}');
  expect('fault' in parsed && parsed.fault).toMatch(/^SyntaxError: /);
  expect(parsed).toMatchObject({ line: 0 });
});

test.each([
  ['{"apiVersion":"v1","kind":"Pod","metadata":{"na', 'Pod'],
  ['{\n  "kind": "Pod"', 'Pod'],
  [`{"a":"${'x'.repeat(4096)}","kind":"Pod"`, null],
  ['{"kind":1', null],
  ['', null],
])('what it seems to be: %j', (text, kind) => {
  expect(jsonFormat.guess(text)).toEqual({ kind, namespace: null, name: null });
});
