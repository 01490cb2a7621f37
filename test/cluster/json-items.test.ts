import { gunzipSync, gzipSync } from 'node:zlib';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { jsonPieces, lineBatches, plainBytes, withHead } from '../../src/cluster/json-items.ts';

import type { Piece } from '../../src/cluster/json-items.ts';

/** The bytes in chunks of these lengths, over and over. */
async function* chunks(bytes: Uint8Array, lengths: readonly number[] = [bytes.length]) {
  await Promise.resolve();
  for (let start = 0, index = 0; start < bytes.length; index++) {
    const length = Math.max(lengths[index % lengths.length] ?? 1, 1);
    yield bytes.subarray(start, start + length);
    start += length;
  }
}

async function all<T>(batches: AsyncIterable<T[]>): Promise<T[]> {
  const result: T[] = [];
  for await (const batch of batches) result.push(...batch);
  return result;
}

const lengthsOf = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 5 });

describe('plain bytes', () => {
  async function plain(bytes: Uint8Array, lengths?: readonly number[]) {
    const damage: (string | null)[] = [];
    const result: Uint8Array[] = [];
    const onDamage = (message: string, detail: string | null) => damage.push(message, detail);
    for await (const chunk of plainBytes(chunks(bytes, lengths), onDamage)) result.push(chunk);
    return { text: Buffer.concat(result).toString(), damage };
  }

  const text = 'a\u2028ü€😀\n'.repeat(50);

  test.each<[string, Uint8Array]>([
    ['plain', Buffer.from(text)],
    ['with a byte order mark', Buffer.from(`\uFEFF${text}`)],
    ['UTF-16, little-endian', Buffer.from(`\uFEFF${text}`, 'utf16le')],
    ['UTF-16, big-endian', Buffer.from(`\uFEFF${text}`, 'utf16le').swap16()],
    ['gzip', gzipSync(text)],
    ['gzip in two members', Buffer.concat([gzipSync(text.slice(0, 7)), gzipSync(text.slice(7))])],
    ['gzip of UTF-16', gzipSync(Buffer.from(`\uFEFF${text}`, 'utf16le'))],
  ])('%s', async (_, bytes) => {
    for (const lengths of [[bytes.length], [1], [2, 3], [64]]) {
      expect(await plain(bytes, lengths)).toEqual({ text, damage: [] });
    }
  });

  test.each(['', 'a', 'ab', '\u001f'])('short: %j', async (text) => {
    expect(await plain(Buffer.from(text))).toEqual({ text, damage: [] });
  });

  test('of cut off gzip data all that can be inflated comes, and then the damage', async () => {
    const lines = Array.from({ length: 400 }, (_, index) => `${index} ${index * 7919}\n`).join('');
    const whole = gzipSync(lines, { level: 1 });
    for (let length = 2; length < whole.length; length += 7) {
      const cut = whole.subarray(0, length);
      const want = gunzipSync(cut, {
        finishFlush: 2 /* Z_SYNC_FLUSH, which takes what is there */,
      });
      expect(await plain(cut, [97])).toEqual({
        text: want.toString(),
        damage: ['Unexpected end of gzip data', null],
      });
    }
  });

  test('damaged gzip data', async () => {
    const bytes = gzipSync(text);
    bytes[bytes.length - 6] = (bytes[bytes.length - 6] ?? 0) ^ 0xff; // of the checksum
    expect((await plain(bytes)).damage).toEqual(['Damaged gzip data', 'incorrect data check']);
    expect((await plain(Buffer.from([0x1f, 0x8b, 7, 7, 7]))).damage[0]).toBe('Damaged gzip data');
  });

  test('gzip data with any bit flipped come to an end', async () => {
    const whole = gzipSync(text);
    const position = fc.nat({ max: whole.length - 1 });
    await fc.assert(
      fc.asyncProperty(position, fc.nat({ max: 7 }), async (position, bit) => {
        const bytes = Buffer.from(whole);
        bytes[position] = (bytes[position] ?? 0) ^ (1 << bit);
        const got = await plain(bytes, [9]);
        // The header has fields that mean nothing, and data without its mark are plain.
        expect(got.damage.length > 0 || got.text === text || position < 10).toBe(true);
      }),
    );
  });

  test('reading may stop early', async () => {
    let closed = false;
    async function* source() {
      try {
        for (;;) yield await Promise.resolve(gzipSync('x'.repeat(100)));
      } finally {
        closed = true;
      }
    }
    for await (const chunk of plainBytes(source(), () => undefined)) {
      expect(chunk.length).toBeGreaterThan(0);
      break;
    }
    expect(closed).toBe(true);
  });

  test('errors of the source pass through', async () => {
    async function* source(): AsyncGenerator<Uint8Array> {
      yield await Promise.resolve(Buffer.from('abc'));
      throw new Error('EIO');
    }
    const read = async () => {
      for await (const chunk of plainBytes(source(), () => undefined)) expect(chunk).toBeDefined();
    };
    await expect(read()).rejects.toThrow('EIO');
  });

  test('the head is as long as it is asked for, if there are as many bytes', async () => {
    const heads: number[] = [];
    for (const bytes of [Buffer.from('abcdef'), Buffer.from('ab'), Buffer.alloc(0)]) {
      const read = withHead(chunks(bytes, [1]), 3, (head, whole) => {
        heads.push(head.length);
        return whole;
      });
      const parts: Uint8Array[] = [];
      for await (const chunk of read) parts.push(chunk);
      expect(Buffer.concat(parts)).toEqual(bytes);
    }
    expect(heads).toEqual([3, 2, 0]);
  });
});

describe('lines', () => {
  const lines = (text: string, lengths?: readonly number[], limit?: number) =>
    all(lineBatches(chunks(Buffer.from(text), lengths), limit));

  test('are framed by newlines only and numbered from 1', async () => {
    expect(await lines('a\u2028b\r\n\nü')).toEqual([
      { number: 1, text: 'a\u2028b\r', bytes: 6, tooLong: false, ended: true },
      { number: 2, text: '', bytes: 0, tooLong: false, ended: true },
      { number: 3, text: 'ü', bytes: 2, tooLong: false, ended: false },
    ]);
    expect(await lines('')).toEqual([]);
  });

  test('of one that is too long only the beginning is kept', async () => {
    const long = 'x'.repeat(10_000);
    for (const lengths of [[1], [4095, 3], [100_000]]) {
      expect(await lines(`a\n${long}\nb\n`, lengths, 9999)).toEqual([
        { number: 1, text: 'a', bytes: 1, tooLong: false, ended: true },
        { number: 2, text: long.slice(0, 4096), bytes: 10_000, tooLong: true, ended: true },
        { number: 3, text: 'b', bytes: 1, tooLong: false, ended: true },
      ]);
    }
  });

  test('however the text is cut into chunks', async () => {
    const text = fc.string({ unit: fc.constantFrom('a', '\n', 'ü', '😀', '\r', '\u2029') });
    await fc.assert(
      fc.asyncProperty(text, lengthsOf, async (text, lengths) => {
        const got = (await lines(text, lengths)).map((line) => line.text);
        const want = text.split('\n');
        expect(got).toEqual(want.at(-1) === '' ? want.slice(0, -1) : want);
      }),
    );
  });
});

describe('JSON pieces', () => {
  const pieces = (text: string, lengths?: readonly number[], limit?: number) =>
    all(jsonPieces(chunks(Buffer.from(text), lengths), limit));
  const short = (pieces: Piece[]) => pieces.map(({ type, line, text }) => [type, line, text]);

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
