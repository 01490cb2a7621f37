// A message read by its table, as the JSON of the same object would be parsed: for objects of
// kinds that are few, for those that the readers by hand do not understand, and to name the place
// where a message is wrong.
//
// Follows the decoders of k8s.io/api@v0.36.3 (generated.pb.go): a message that is there twice is
// merged, a wrong wire type is an error. Zero values are left out where JSON leaves them out, so
// that even what is said of an object that lacks something is the same. Times become RFC 3339
// (k8s.io/apimachinery@v0.36.3 pkg/apis/meta/v1/time.go and time_proto.go).

import { WrongType } from '../json-fields.ts';
import type { Field, Message, Scalar } from './schema.ts';
import { entries, intOrString, quantity } from './schema.ts';
import type { Cursor } from './wire.ts';
import {
  readBool,
  readEnd,
  readInt32,
  readInt64,
  readTag,
  readText,
  skip,
  varintTagOf,
  varintType,
} from './wire.ts';

type Raw = Record<string, unknown>;

/**
 * Reads the message that ends at `end` into `raw`, as the JSON of the same object would be parsed.
 * What was read before an error remains in `raw`. Throws WrongType where the bytes are wrong.
 */
export function readRaw(message: Message, cursor: Cursor, end: number, raw: Raw): void {
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    const field = message[tag >>> 3];
    if (field === undefined) {
      skip(cursor, tag, end);
      continue;
    }
    const items = field.many === 'list' ? listOf(raw, field.name) : null;
    try {
      if (tag !== field.tag) throw new WrongType('', 'the wire type of the field', tag & 7);
      if (items !== null) readInto(field, cursor, end, items, items.length);
      else if (field.many === 'map') readEntry(field, cursor, end, raw);
      else readInto(field, cursor, end, raw, field.name);
    } catch (error) {
      if (!(error instanceof WrongType)) throw error;
      throw error.inside(field.name, items === null ? undefined : lastIndex(items, error));
    }
  }
}

/** What JSON leaves out. */
const isZero = (value: unknown): boolean =>
  value === '' || value === 0 || value === false || value === null;

function listOf(raw: Raw, name: string): unknown[] {
  const known = raw[name];
  if (Array.isArray(known)) return known;
  const items: unknown[] = [];
  raw[name] = items;
  return items;
}

/** A message is in the list before it is read, a string is not. */
const lastIndex = (items: readonly unknown[], error: WrongType): number =>
  error.field === '' ? items.length : items.length - 1;

/** Reads a value and puts it where it belongs; a message before it is read. */
function readInto(
  { type, presence, many }: Field,
  cursor: Cursor,
  end: number,
  target: Raw | unknown[],
  name: string | number,
): void {
  const holder = target as Raw;
  if (typeof type === 'string') {
    const value = readScalar(type, cursor, end);
    if (many !== 'one' || presence !== 'unlessZero' || !isZero(value)) holder[name] = value;
    return;
  }
  const to = readEnd(cursor, end);
  const known = holder[name];
  const raw = (known === undefined ? {} : known) as Raw;
  holder[name] = raw;
  readRaw(type, cursor, to, raw);
}

function readScalar(type: Scalar, cursor: Cursor, end: number): unknown {
  switch (type) {
    case 'string':
      return readText(cursor, end);
    case 'int32':
      return readInt32(cursor, end);
    case 'int64':
      return readInt64(cursor, end);
    case 'bool':
      return readBool(cursor, end);
    case 'time':
      return timeText(readTime(cursor, end));
    case 'quantity':
      return (readPart(quantity, cursor, end) as { string?: string }).string ?? '';
    case 'intOrString': {
      const { type = 0, intVal = 0, strVal = '' } = readPart(intOrString, cursor, end);
      return type === 0 ? intVal : strVal;
    }
  }
}

function readPart(message: Message, cursor: Cursor, end: number): Raw {
  const raw: Raw = {};
  readRaw(message, cursor, readEnd(cursor, end), raw);
  return raw;
}

function readEntry({ name, type }: Field, cursor: Cursor, end: number, raw: Raw): void {
  const values = (raw[name] ?? {}) as Raw;
  raw[name] = values;
  const { key = '', value = '' } = readPart(entries[type as Scalar], cursor, end);
  setEntry(values, key as string, value);
}

/** Sets an entry of a map; the key `__proto__` is one like any other. */
export function setEntry<T>(map: Record<string, T>, key: string, value: T): void {
  if (key !== '__proto__') map[key] = value;
  else Object.defineProperty(map, key, { value, enumerable: true, writable: true });
}

// --- times ---

/** Go's zero time, the first second of the year 1. */
const zeroTime = -62_135_596_800;
/** The first second after what RFC 3339 can write. */
const endOfTime = 253_402_300_800;

/**
 * A meta.v1.Time, in Unix seconds; null for the zero time, which JSON writes as null. Nanoseconds
 * are dropped, as Go drops them (time_proto.go).
 */
export function readTime(cursor: Cursor, end: number): number | null {
  const to = readEnd(cursor, end);
  if (cursor.at === to) return null;
  let seconds = 0;
  while (cursor.at < to) {
    const tag = readTag(cursor, to);
    if (tag === varintTagOf(1)) seconds = readInt64(cursor, to);
    else if (tag >>> 3 <= 2 && (tag & 7) !== varintType) {
      throw new WrongType('', 'the wire type of the field', tag & 7);
    } else skip(cursor, tag, to);
  }
  return seconds === zeroTime ? null : seconds;
}

/** Whether RFC 3339 can write this moment; what it cannot is as good as no moment. */
export function isWritable(seconds: number): boolean {
  return seconds > zeroTime && seconds < endOfTime;
}

function timeText(seconds: number | null): string | null {
  if (seconds === null) return null;
  if (!isWritable(seconds)) return 'out of range';
  return new Date(seconds * 1000).toISOString().replace('.000Z', 'Z');
}
