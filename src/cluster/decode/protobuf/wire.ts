// The wire format of protocol buffers, read in place: varints, tags, lengths, strings.
//
// A message is a range of bytes; nothing of it is copied but the strings that are wanted, and these
// never refer to the bytes. Whoever reads a field of a message must know its number and wire type.
// What is not known is skipped by its wire type, which is how the format stays open to new fields.
//
// Follows the decoders that gogo/protobuf generates for k8s.io/api@v0.36.3 (generated.pb.go): an
// int32 is what is left of a varint after 32 bits, a bool is any varint but 0, groups are skipped.
// Left out: fixed-size numbers (none of the objects read here has one; they are skipped) and UTF-8
// that is none, which becomes U+FFFD as it does in JSON.

import { WrongType } from '../json-fields.ts';

/** Where a reader is. One is made for each input, and is moved by whatever reads from it. */
export interface Cursor {
  readonly bytes: Buffer;
  at: number;
}

/** The bytes are no message: `expected` says what should be there, as in fields.ts. */
function malformed(expected: string): WrongType {
  return new WrongType('', expected, undefined);
}

/** The wire types that Kubernetes' objects use. */
export const varintType = 0;
export const lengthType = 2;

/** The tag of a field that holds a string, bytes or a message. */
export const tagOf = (field: number): number => (field << 3) | lengthType;

/** The tag of a field that holds an integer or bool. */
export const varintTagOf = (field: number): number => (field << 3) | varintType;

/** The next varint, of which the low 32 bits are kept, as a signed number. */
export function readInt32(cursor: Cursor, end: number): number {
  const { bytes } = cursor;
  let { at } = cursor;
  if (at < end) {
    const first = bytes[at] ?? 0;
    if (first < 0x80) {
      cursor.at = at + 1;
      return first;
    }
  }
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

export function readBool(cursor: Cursor, end: number): boolean {
  return readInt64(cursor, end) !== 0;
}

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

/** Groups may hold groups; what ends one is not told apart from what ends another. */
function skipGroup(cursor: Cursor, end: number): void {
  for (let depth = 1; depth > 0;) {
    const tag = readTag(cursor, end);
    if ((tag & 7) === 3) depth++;
    else if ((tag & 7) === 4) depth--;
    else skip(cursor, tag, end);
  }
}

/** The string of these bytes, which are UTF-8: to name that costs more than to leave it out. */
export function textOf(bytes: Buffer, from: number, to: number): string {
  return from === to ? '' : bytes.toString(undefined, from, to);
}

/** A string that begins, with its length. */
export function readText(cursor: Cursor, end: number): string {
  const to = readEnd(cursor, end);
  const text = textOf(cursor.bytes, cursor.at, to);
  cursor.at = to;
  return text;
}

// --- what repeats ---

/**
 * What has been made of ranges of bytes, by their content: for values that are the same in many
 * objects, as the labels that a template gives its pods, and that cost more to read than to find.
 * A table of open addressing over copies of the bytes; when either is full, all is forgotten.
 */
export interface ByteCache<T> {
  readonly copies: Buffer;
  used: number;
  count: number;
  readonly hashes: Int32Array;
  /** Where the copy of each entry begins and ends. */
  readonly starts: Int32Array;
  readonly ends: Int32Array;
  readonly values: (T | undefined)[];
}

/** A cache of at most `entries` (a power of two) values over `room` bytes in all. */
export function createByteCache<T>(entries: number, room: number): ByteCache<T> {
  const slots = 2 * entries;
  return {
    copies: Buffer.alloc(room),
    used: 0,
    count: 0,
    hashes: new Int32Array(slots),
    starts: new Int32Array(slots),
    ends: new Int32Array(slots),
    values: new Array<T | undefined>(slots).fill(undefined),
  };
}

/** What `make` makes of these bytes, now or before; equal bytes must make equal values. */
export function cached<T>(
  cache: ByteCache<T>,
  bytes: Buffer,
  from: number,
  to: number,
  make: (bytes: Buffer, from: number, to: number) => T,
): T {
  const hash = hashOf(bytes, from, to);
  const mask = cache.hashes.length - 1;
  let slot = hash & mask;
  for (let value = cache.values[slot]; value !== undefined; value = cache.values[slot]) {
    if (cache.hashes[slot] === hash && isCopy(cache, slot, bytes, from, to)) return value;
    slot = (slot + 1) & mask;
  }
  const value = make(bytes, from, to);
  keep(cache, hash, bytes, from, to, value);
  return value;
}

/** Four bytes at a time, mixed as MurmurHash3 mixes. */
function hashOf(bytes: Buffer, from: number, to: number): number {
  let hash = to - from;
  let at = from;
  for (; at + 4 <= to; at += 4) {
    const low = (bytes[at] ?? 0) | ((bytes[at + 1] ?? 0) << 8);
    const word = low | ((bytes[at + 2] ?? 0) << 16) | ((bytes[at + 3] ?? 0) << 24);
    hash = Math.imul(hash ^ Math.imul(word, 0xcc9e2d51), 0x85ebca6b);
    hash ^= hash >>> 15;
  }
  for (; at < to; at++) hash = Math.imul(hash ^ (bytes[at] ?? 0), 0xc2b2ae35);
  return hash ^ (hash >>> 16);
}

function isCopy<T>(
  cache: ByteCache<T>,
  slot: number,
  bytes: Buffer,
  from: number,
  to: number,
): boolean {
  const { copies } = cache;
  const start = cache.starts[slot] ?? 0;
  const length = to - from;
  if ((cache.ends[slot] ?? 0) - start !== length) return false;
  for (let index = 0; index < length; index++) {
    if (copies[start + index] !== bytes[from + index]) return false;
  }
  return true;
}

function keep<T>(
  cache: ByteCache<T>,
  hash: number,
  bytes: Buffer,
  from: number,
  to: number,
  value: T,
): void {
  const { copies, hashes, starts, ends, values } = cache;
  if (to - from > copies.length) return;
  if (2 * cache.count >= hashes.length || cache.used + to - from > copies.length) {
    values.fill(undefined);
    cache.count = cache.used = 0;
  }
  const mask = hashes.length - 1;
  let slot = hash & mask;
  while (values[slot] !== undefined) slot = (slot + 1) & mask;
  hashes[slot] = hash;
  starts[slot] = cache.used;
  bytes.copy(copies, cache.used, from, to);
  cache.used += to - from;
  ends[slot] = cache.used;
  values[slot] = value;
  cache.count++;
}
