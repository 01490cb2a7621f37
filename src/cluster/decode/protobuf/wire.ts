// Reads the wire format of protocol buffers in place: varints, tags, lengths and strings.
//
// Follows the decoders that gogo/protobuf generates for k8s.io/api@v0.36.3 (generated.pb.go): an
// int32 is the low 32 bits of a varint, a bool is any varint but 0, and groups are skipped. Bytes
// that are not UTF-8 become U+FFFD, as in JSON. Left out: fixed-size numbers, which no object has.

import { WrongType } from '../json-fields.ts';

/** Each function that reads a value moves `at` behind the value. */
export interface Cursor {
  readonly bytes: Buffer;
  at: number;
}

/** A part of some bytes. */
export interface ByteSpan extends Readonly<Cursor> {
  readonly end: number;
}

/** The bytes are no message: `expected` says what should be there. */
const malformed = (expected: string) => new WrongType('', expected, undefined);

export const varintType = 0;
export const lengthType = 2;

/** The tag of a field that holds a string, bytes or a message. */
export const tagOf = (field: number): number => (field << 3) | lengthType;

/** The low 32 bits of the next varint, as a signed number. */
export function readInt32(cursor: Cursor, end: number): number {
  const { bytes, at } = cursor;
  const first = bytes[at] ?? 0;
  if (at >= end || first >= 0x80) return readLongInt32(cursor, end);
  cursor.at = at + 1;
  return first;
}

function readLongInt32(cursor: Cursor, end: number): number {
  const { bytes } = cursor;
  let { at } = cursor;
  let value = 0;
  for (let shift = 0; shift < 70; shift += 7) {
    if (at >= end) throw malformed('a number that ends');
    const byte = bytes[at++] ?? 0;
    if (shift < 32) value |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      cursor.at = at;
      return value;
    }
  }
  throw malformed('a number of at most 64 bits');
}

/** The next varint as a signed 64-bit integer; not exact above 2^53. */
export function readInt64(cursor: Cursor, end: number): number {
  const { bytes } = cursor;
  let { at } = cursor;
  let value = 0;
  let scale = 1;
  for (let count = 0; count < 10; count++) {
    if (at >= end) throw malformed('a number that ends');
    const byte = bytes[at++] ?? 0;
    value += (byte & 0x7f) * scale;
    scale *= 128;
    if (byte >= 0x80) continue;
    if (count === 9) value = exactInt64(bytes, cursor.at, at);
    cursor.at = at;
    return value;
  }
  throw malformed('a number of at most 64 bits');
}

/** Ten bytes are how a negative number is written. */
function exactInt64(bytes: Buffer, from: number, to: number): number {
  let value = 0n;
  for (let at = to - 1; at >= from; at--) value = (value << 7n) | BigInt((bytes[at] ?? 0) & 0x7f);
  return Number(BigInt.asIntN(64, value));
}

export const readBool = (cursor: Cursor, end: number): boolean => readInt64(cursor, end) !== 0;

/** The tag of the next field: its number, shifted by 3, and its wire type. */
export function readTag(cursor: Cursor, end: number): number {
  const tag = readInt32(cursor, end);
  if (tag < 8) throw malformed('the number of a field');
  return tag;
}

/** The end of the string, bytes or message that begins; the cursor is then where it begins. */
export function readEnd(cursor: Cursor, end: number): number {
  const length = readInt32(cursor, end);
  const to = cursor.at + length;
  if (length < 0 || to > end) throw malformed('as many bytes as the length says');
  return to;
}

/** The place of the bytes that begin with their length. */
export function readSpan(cursor: Cursor, end: number): ByteSpan {
  const to = readEnd(cursor, end);
  const span = { bytes: cursor.bytes, at: cursor.at, end: to };
  cursor.at = to;
  return span;
}

/** Passes over the value of the field that has this tag. */
export function skip(cursor: Cursor, tag: number, end: number): void {
  switch (tag & 7) {
    case lengthType:
      cursor.at = readEnd(cursor, end);
      return;
    case varintType:
      readInt32(cursor, end);
      return;
    case 1:
    case 5:
      cursor.at += (tag & 7) === 1 ? 8 : 4;
      if (cursor.at > end) throw malformed('as many bytes as the length says');
      return;
    case 3:
      skipGroup(cursor, end);
      return;
    default:
      throw malformed('a wire type');
  }
}

function skipGroup(cursor: Cursor, end: number): void {
  for (let depth = 1; depth > 0;) {
    const tag = readTag(cursor, end);
    if ((tag & 7) === 3) depth++;
    else if ((tag & 7) === 4) depth--;
    else skip(cursor, tag, end);
  }
}

/** Recent strings by length, first and last byte: comparing is cheaper than decoding. */
const recent = new Array<string>(2048).fill('');

/** The string that begins with its length. */
export function readText(cursor: Cursor, end: number): string {
  const to = readEnd(cursor, end);
  const { bytes, at } = cursor;
  cursor.at = to;
  if (at === to) return '';
  const length = to - at;
  const hash = (length << 7) ^ ((bytes[at] ?? 0) << 4) ^ (bytes[to - 1] ?? 0);
  const slot = hash & (recent.length - 1);
  const known = recent[slot] ?? '';
  if (isTextOf(known, bytes, at, to)) return known;
  const text = bytes.toString(undefined, at, to);
  // In ASCII, a character is a byte.
  if (text.length === length && length < 64) recent[slot] = text;
  return text;
}

function isTextOf(text: string, bytes: Buffer, from: number, to: number): boolean {
  const { length } = text;
  if (length !== to - from) return false;
  for (let index = 0; index < length; index++) {
    if (text.charCodeAt(index) !== bytes[from + index]) return false;
  }
  return true;
}
