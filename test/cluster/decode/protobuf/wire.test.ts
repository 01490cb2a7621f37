import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import { WrongType } from '../../../../src/cluster/decode/json-fields.ts';
import {
  readBool,
  readEnd,
  readInt32,
  readInt64,
  readTag,
  readText,
  skip,
  tagOf,
} from '../../../../src/cluster/decode/protobuf/wire.ts';

/** A varint as protocol buffers write it. */
function varint(value: bigint): Buffer {
  const bytes: number[] = [];
  let left = BigInt.asUintN(64, value);
  for (; left > 127n; left >>= 7n) bytes.push(Number(left & 127n) | 128);
  bytes.push(Number(left));
  return Buffer.from(bytes);
}

const at = (bytes: Buffer, from = 0) => ({ bytes, at: from });
const int64 = fc.bigInt({ min: -(1n << 63n), max: (1n << 63n) - 1n });
const safe = fc.maxSafeInteger();

describe('numbers', () => {
  property.prop([safe])('64 bits, exact where numbers are', (value) => {
    const cursor = at(varint(BigInt(value)));
    expect(readInt64(cursor, cursor.bytes.length)).toBe(value);
    expect(cursor.at).toBe(cursor.bytes.length);
  });

  property.prop([int64])('64 bits, near where they are not', (value) => {
    const bytes = varint(value);
    const found = readInt64(at(bytes), bytes.length);
    expect(Math.abs(found - Number(value))).toBeLessThanOrEqual(
      Math.abs(Number(value)) * Number.EPSILON,
    );
  });

  property.prop([int64])('32 bits: what is left of more, as Go has it', (value) => {
    const cursor = at(varint(value));
    expect(readInt32(cursor, cursor.bytes.length)).toBe(Number(BigInt.asIntN(32, value)));
    expect(cursor.at).toBe(cursor.bytes.length);
  });

  property.prop([int64])('a bool is anything but 0', (value) => {
    const bytes = varint(value);
    expect(readBool(at(bytes), bytes.length)).toBe(value !== 0n);
  });

  property.prop([int64, fc.nat(9)])('that do not end are refused', (value, length) => {
    const bytes = varint(value);
    const end = length % bytes.length;
    expect(() => readInt32(at(bytes), end)).toThrow(WrongType);
    expect(() => readInt64(at(bytes), end)).toThrow(WrongType);
  });

  test('of more than ten bytes are refused', () => {
    const bytes = Buffer.alloc(11, 0x80);
    expect(() => readInt32(at(bytes), 11)).toThrow('a number of at most 64 bits');
    expect(() => readInt64(at(bytes), 11)).toThrow('a number of at most 64 bits');
  });
});

describe('fields', () => {
  test('a tag is a number and a wire type, and no field has the number 0', () => {
    const bytes = Buffer.from([0x0a, 0x08, 0x92, 0x01, 0x02]);
    const cursor = at(bytes);
    expect(readTag(cursor, 5)).toBe(tagOf(1));
    expect(readTag(cursor, 5)).toBe(8);
    expect(readTag(cursor, 5)).toBe(tagOf(18));
    expect(() => readTag(cursor, 5)).toThrow('the number of a field');
  });

  test.each([
    ['varint', [0x08, 0x80, 0x01]],
    ['64 bits', [0x09, 1, 2, 3, 4, 5, 6, 7, 8]],
    ['length', [0x0a, 0x02, 0xff, 0xff]],
    ['group', [0x0b, 0x0a, 0x01, 0x0c, 0x13, 0x14, 0x0c]],
    ['32 bits', [0x0d, 1, 2, 3, 4]],
  ])('%s is passed over, and must be whole', (_, numbers) => {
    const bytes = Buffer.from(numbers);
    const cursor = at(bytes);
    skip(cursor, readTag(cursor, bytes.length), bytes.length);
    expect(cursor.at).toBe(bytes.length);
    for (let end = 1; end < bytes.length; end++) {
      const short = at(bytes);
      expect(() => skip(short, readTag(short, end), end)).toThrow(WrongType);
    }
  });

  test.each([4, 6, 7])('there is no value of wire type %i', (type) => {
    expect(() => skip(at(Buffer.from([0, 0])), 8 | type, 2)).toThrow('a wire type');
  });

  test('a length that is negative, or longer than the bytes', () => {
    const negative = varint(-1n);
    expect(() => readEnd(at(negative), negative.length)).toThrow(WrongType);
    expect(() => readEnd(at(Buffer.from([3, 1, 2, 3])), 3)).toThrow(WrongType);
    expect(readEnd(at(Buffer.from([3, 1, 2, 3])), 4)).toBe(4);
  });

  property.prop([fc.string({ unit: 'binary' }), fc.nat(5)])(
    'strings of any characters are read unchanged',
    (text, before) => {
      const bytes = Buffer.from(text);
      const all = Buffer.concat([Buffer.alloc(before), varint(BigInt(bytes.length)), bytes]);
      expect(readText(at(all, before), all.length)).toBe(bytes.toString());
    },
  );
});
