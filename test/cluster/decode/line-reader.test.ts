import { gunzipSync, gzipSync } from 'node:zlib';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { lineBatches, plainBytes, withHead } from '../../../src/cluster/decode/line-reader.ts';
import { all, chunks } from '../../build.ts';

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

  test('damaged gzip data is reported with its reason', async () => {
    const bytes = gzipSync(text);
    bytes[bytes.length - 6] = (bytes[bytes.length - 6] ?? 0) ^ 0xff; // of the checksum
    expect((await plain(bytes)).damage).toEqual(['Damaged gzip data', 'incorrect data check']);
    expect((await plain(Buffer.from([0x1f, 0x8b, 7, 7, 7]))).damage[0]).toBe('Damaged gzip data');
  });

  test('data that inflate to more than 200 times their size are cut off', async () => {
    const bomb = gzipSync(Buffer.alloc(64 * 1024 * 1024), { level: 9 });
    let bytes = 0;
    const damage: (string | null)[] = [];
    const onDamage = (message: string, detail: string | null) => damage.push(message, detail);
    for await (const chunk of plainBytes(chunks(bomb, [4096]), onDamage)) bytes += chunk.length;
    expect(bytes).toBeLessThanOrEqual(17 * 1024 * 1024);
    expect(damage).toEqual(['Damaged gzip data', 'more than 200 times its size']);
  });

  const dense = ['\n', 'x\n', '{}\n', '- a\n'];
  test.each(dense)('gzip data with lines of %j are cut off', async (line) => {
    // Not compressed, so that the ratio is small.
    const bomb = gzipSync(Buffer.alloc(8 * 1024 * 1024, line), { level: 0 });
    let bytes = 0;
    const damage: (string | null)[] = [];
    const onDamage = (message: string, detail: string | null) => damage.push(message, detail);
    for await (const chunk of plainBytes(chunks(bomb, [65536]), onDamage)) bytes += chunk.length;
    expect(bytes).toBeLessThanOrEqual(5 * 1024 * 1024);
    expect(damage).toEqual(['Damaged gzip data', 'lines of fewer than 8 bytes']);
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

  test('of a chunk come a few thousand at a time, since each is an object', async () => {
    const sizes: number[] = [];
    const source = chunks(Buffer.alloc(10_000, '\n'), [10_000]);
    for await (const batch of lineBatches(source)) sizes.push(batch.length);
    expect(sizes).toEqual([4096, 4096, 1808]);
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
