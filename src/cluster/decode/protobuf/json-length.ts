// How long an object is as JSON, from its message: what the sizes of Endpoints and EndpointSlices
// are measured in (measure/size.ts), whatever way an object came.
//
// The length is exact: every field that JSON has is in the tables, and what JSON leaves out is
// known from the wire (messages.ts). It is that of JSON.stringify, which project.ts measures for
// objects that came as JSON; Go writes a few characters (<, >, &, U+2028) longer than that.

import { WrongType } from '../json-fields.ts';
import { readTime } from './proto-to-json.ts';
import type { Field, Message, Scalar } from './schema.ts';
import type { Cursor } from './wire.ts';
import { readBool, readEnd, readInt32, readInt64, readTag, skip, tagOf } from './wire.ts';

/**
 * How long the message that ends at `end` is as JSON, in bytes: as JSON.stringify writes it, of all
 * fields that the table has. Throws WrongType where the bytes are wrong.
 */
export function jsonLength(message: Message, cursor: Cursor, end: number): number {
  let length = 2;
  let members = 0;
  /** Bits of the numbers of the fields that were met. */
  let met = 0;
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    const field = message[tag >>> 3];
    if (field === undefined) {
      skip(cursor, tag, end);
      continue;
    }
    if (tag !== field.tag) throw new WrongType('', 'the wire type of the field', tag & 7);
    const bit = 1 << field.number;
    const isNew = (met & bit) === 0;
    const value = valueLength(field, cursor, end);
    if (value === null) continue;
    met |= bit;
    if (isNew) {
      members++;
      length += field.name.length + 3;
      if (field.many !== 'one') length += 2;
    } else length++; // the comma before the next item
    length += value;
  }
  for (let number = 1; number < message.length; number++) {
    const field = message[number];
    if (field?.presence !== 'always' || (met & (1 << number)) !== 0) continue;
    members++;
    length += field.name.length + 3 + absentLength(field);
  }
  return length + Math.max(members - 1, 0);
}

function absentLength({ type, many }: Field): number {
  if (many === 'list') return 4; // null
  return type === 'int32' || type === 'int64' ? 1 : 2; // 0, "" or {}
}

/** The length of a value or item; null where JSON leaves it out. */
function valueLength(field: Field, cursor: Cursor, end: number): number | null {
  const { type, many } = field;
  if (many === 'map') return entryLength(cursor, readEnd(cursor, end));
  const length = typeof type === 'string' ? scalarLength(type, cursor, end) : null;
  if (length !== null) {
    const omitsZero = many === 'one' && field.presence === 'unlessZero';
    return length === 0 && !omitsZero ? zeroLength(type as Scalar) : length === 0 ? null : length;
  }
  return jsonLength(type as Message, cursor, readEnd(cursor, end));
}

const zeroLength = (type: Scalar): number =>
  type === 'string' ? 2 : type === 'bool' ? 5 : type === 'time' ? 4 : 1;

/** The length of a scalar as JSON; 0 for the zero value. Quantities are in no table measured. */
function scalarLength(type: Scalar, cursor: Cursor, end: number): number {
  switch (type) {
    case 'bool':
      return readBool(cursor, end) ? 4 : 0;
    case 'int32':
    case 'int64': {
      const value = type === 'int32' ? readInt32(cursor, end) : readInt64(cursor, end);
      return value === 0 ? 0 : String(value).length;
    }
    case 'time':
      return readTime(cursor, end) === null ? 0 : '"2026-11-21T08:00:00Z"'.length;
    default: {
      const to = readEnd(cursor, end);
      return cursor.at === to ? 0 : stringLength(cursor, to);
    }
  }
}

/** `"key":"value"` */
function entryLength(cursor: Cursor, end: number): number {
  let [key, value] = [2, 2];
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === tagOf(1)) key = stringLength(cursor, readEnd(cursor, end));
    else if (tag === tagOf(2)) value = stringLength(cursor, readEnd(cursor, end));
    else skip(cursor, tag, end);
  }
  return key + 1 + value;
}

/** The length of the string from here to `end` as JSON.stringify writes it. */
function stringLength(cursor: Cursor, end: number): number {
  const { bytes, at } = cursor;
  let length = end - at + 2;
  for (let index = at; index < end; index++) length += escapes[bytes[index] ?? 0] ?? 0;
  cursor.at = end;
  return length;
}

/** How much longer each byte is in a JSON string than by itself. */
const escapes = Uint8Array.from(
  { length: 256 },
  (_, byte) => (byte < 0x80 ? JSON.stringify(String.fromCharCode(byte)).length : 3) - 3,
);
