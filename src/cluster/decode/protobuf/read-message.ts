// Reads a protobuf message into plain objects, as JSON.parse reads the JSON of the same object.
//
// Follows the decoders of k8s.io/api@v0.36.3 (generated.pb.go): a message that appears twice is
// merged, and a wrong wire type is an error. Unlike JSON, zero values are not left out, and a time
// is a Date, without nanoseconds (k8s.io/apimachinery@v0.36.3 pkg/apis/meta/v1/time_proto.go).

import { WrongType } from '../json-fields.ts';
import type { Field, Message, Raw, Scalar } from './schema.ts';
import type { Cursor } from './wire.ts';
import {
  readBool,
  readEnd,
  readInt32,
  readInt64,
  readSpan,
  readTag,
  readText,
  skip,
  tagOf,
} from './wire.ts';

/**
 * Reads the message that ends at `end` into `raw`, which keeps the fields before an error. Throws
 * WrongType, with the path of the field, if the bytes are wrong.
 */
export function readMessage(message: Message, cursor: Cursor, end: number, raw: Raw): void {
  const { fields } = message;
  let field: Field | undefined;
  try {
    while (cursor.at < end) {
      field = undefined;
      const tag = readTag(cursor, end);
      field = fields[tag >>> 3];
      if (field === undefined) {
        if ((tag & 7) === 2) cursor.at = readEnd(cursor, end);
        else skip(cursor, tag, end);
      } else if (tag === field.tag) readField(field, cursor, end, raw);
      else throw wrongWireType(tag);
    }
  } catch (error) {
    if (!(error instanceof WrongType) || field === undefined) throw error;
    throw error.inside(field.name, failedIndex(field, raw[field.name]));
  }
}

const wrongWireType = (tag: number) => new WrongType('', 'the wire type of the field', tag & 7);

/** The index of the item that could not be read: a message is in the list already. */
const failedIndex = ({ type }: Field, items: unknown): number | undefined =>
  Array.isArray(items) ? items.length - (typeof type === 'string' ? 0 : 1) : undefined;

function readField({ name, label, type }: Field, cursor: Cursor, end: number, raw: Raw): void {
  if (label === 'map') {
    readEntry(type, cursor, end, (raw[name] ??= {}) as Raw);
    return;
  }
  const items = label === 'repeated' ? ((raw[name] ??= []) as unknown[]) : null;
  if (typeof type === 'string' || type.convert !== undefined) {
    const value = readValue(type, cursor, end);
    if (items === null) raw[name] = value;
    else items.push(value);
    return;
  }
  const to = readEnd(cursor, end);
  if (type.isLeftOut?.(cursor.bytes, cursor.at) === true) {
    cursor.at = to;
    return;
  }
  const part: Raw = items === null ? ((raw[name] ??= {}) as Raw) : {};
  items?.push(part);
  readMessage(type, cursor, to, part);
}

/** Reads a scalar, or a message whose JSON is a scalar. */
function readValue(type: Scalar | Message, cursor: Cursor, end: number): unknown {
  switch (type) {
    case 'string':
      return readText(cursor, end);
    case 'int32':
      return readInt32(cursor, end);
    case 'int64':
      return readInt64(cursor, end);
    case 'bool':
      return readBool(cursor, end);
    case 'bytes':
      return readSpan(cursor, end);
  }
  const part: Raw = {};
  readMessage(type, cursor, readEnd(cursor, end), part);
  return type.convert?.(part);
}

function readEntry(type: Scalar | Message, cursor: Cursor, end: number, map: Raw): void {
  const to = readEnd(cursor, end);
  let key = '';
  let value: unknown = '';
  while (cursor.at < to) {
    const tag = readTag(cursor, to);
    if (tag === tagOf(1)) key = readText(cursor, to);
    else if (tag === tagOf(2)) value = readValue(type, cursor, to);
    else skip(cursor, tag, to);
  }
  if (key !== '__proto__') map[key] = value;
  else Object.defineProperty(map, key, { value, enumerable: true, writable: true });
}
