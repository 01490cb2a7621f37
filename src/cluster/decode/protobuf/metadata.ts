// Protobuf by hand: metadata and references, which objects of all kinds have, and what the readers
// of protobuf-pod.ts and protobuf-endpoints.ts share.
//
// Messages: ObjectMeta and OwnerReference of k8s.io/apimachinery@v0.36.3 pkg/apis/meta/v1,
// ObjectReference of k8s.io/api@v0.36.3 core/v1 (generated.proto). Their rules are those of
// fields.ts. Fields stand in the order of their numbers and a list or map in a row, as Go writes
// them; what does not is `unexpected`, and then the tables read it (protobuf.ts).

import type { Labels, ObjectRef, OwnerReference } from '../../../model/objects.ts';
import type { SliceMeta } from '../build-objects.ts';
import { internLabels, internWord } from '../intern.ts';
import { noLabels, WrongType } from '../json-fields.ts';
import { isWritable, readTime, setEntry } from './proto-to-json.ts';
import type { Cursor } from './wire.ts';
import {
  cached,
  createByteCache,
  readBool,
  readEnd,
  readInt64,
  readTag,
  readText,
  skip,
  tagOf,
  textOf,
  varintTagOf,
} from './wire.ts';

/** The bytes are not as a reader by hand expects them; the tables tell. */
export const unexpected = (): WrongType => new WrongType('', 'another message', undefined);

/** Passes over a field that is not read; it must be none of those (bits by number) that are. */
export function pass(cursor: Cursor, tag: number, end: number, read: number): void {
  const field = tag >>> 3;
  if (field < 32 && (read & (1 << field)) !== 0) throw unexpected();
  skip(cursor, tag, end);
}

export const bits = (...fields: readonly number[]): number =>
  fields.reduce((bits, field) => bits | (1 << field), 0);

// --- what repeats ---

const words = createByteCache<string>(32_768, 2 * 1024 * 1024);
const labelMaps = createByteCache<Labels>(16_384, 4 * 1024 * 1024);

const makeWord = (bytes: Buffer, from: number, to: number): string =>
  internWord(textOf(bytes, from, to));

/** The string of these bytes, which repeats from object to object. */
export const wordAt = (bytes: Buffer, from: number, to: number): string =>
  cached(words, bytes, from, to, makeWord);

/** A string that repeats from object to object. */
export function readWord(cursor: Cursor, end: number): string {
  const to = readEnd(cursor, end);
  const word = wordAt(cursor.bytes, cursor.at, to);
  cursor.at = to;
  return word;
}

/**
 * The end of all fields in a row that have the tag which was just read. The cursor stands behind
 * that tag, and is moved to the end.
 */
export function passRow(cursor: Cursor, tag: number, end: number): number {
  for (;;) {
    cursor.at = readEnd(cursor, end);
    const next = cursor.at;
    if (next === end || readTag(cursor, end) !== tag) {
      cursor.at = next;
      return next;
    }
  }
}

/** A map whose entries are the fields of a message from `from` to `to`. */
function makeMap(bytes: Buffer, from: number, to: number): Labels {
  const cursor = { bytes, at: from };
  const map: Record<string, string> = {};
  while (cursor.at < to) {
    readTag(cursor, to);
    const end = readEnd(cursor, to);
    let [key, value] = ['', ''];
    while (cursor.at < end) {
      const tag = readTag(cursor, end);
      if (tag === tagOf(1)) key = readText(cursor, end);
      else if (tag === tagOf(2)) value = readText(cursor, end);
      else pass(cursor, tag, end, bits(1, 2));
    }
    setEntry(map, key, value);
  }
  return map;
}

const makeLabels = (bytes: Buffer, from: number, to: number): Labels =>
  internLabels(makeMap(bytes, from, to));

// --- metadata ---

/** What is read of metadata: that of a pod, and what Endpoints and slices have besides. */
interface MetaParts {
  namespace: string;
  name: string;
  uid: string;
  resourceVersion: string;
  labels: Labels;
  created: number | null;
  deleting: boolean;
  /** deletionTimestamp and deletionGracePeriodSeconds. */
  deletionAt: number | null;
  grace: number | null;
  generation: number;
  annotations: Labels;
  owners: OwnerReference[];
}

const metaFields = bits(1, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13);

/** Metadata; annotations and owners are left out unless all of it is wanted. */
export function readMeta(cursor: Cursor, end: number, all: boolean): SliceMeta {
  const parts: MetaParts = {
    namespace: '',
    name: '',
    uid: '',
    resourceVersion: '',
    labels: noLabels,
    created: null,
    deleting: false,
    deletionAt: null,
    grace: null,
    generation: 0,
    annotations: noLabels,
    owners: noOwners,
  };
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    readMetaField(parts, cursor, tag, end, all);
  }
  const { namespace, name, uid, resourceVersion, labels, created, deleting } = parts;
  const { generation, annotations, owners, deletionAt, grace } = parts;
  if (name === '' || namespace === '' || name.includes('/') || namespace.includes('/')) {
    throw unexpected();
  }
  const key = `${namespace}/${name}`;
  const identity = { key, namespace, name, uid, resourceVersion };
  const isTold = deletionAt !== null && grace !== null && isWritable(deletionAt);
  const deletionAsked = isTold ? deletionAt - grace : null;
  return { ...identity, labels, created, deleting, deletionAsked, generation, annotations, owners };
}

const noOwners: OwnerReference[] = [];

function readMetaField(
  parts: MetaParts,
  cursor: Cursor,
  tag: number,
  end: number,
  all: boolean,
): void {
  const { bytes } = cursor;
  switch (tag) {
    case tagOf(1):
      parts.name = readText(cursor, end);
      return;
    case tagOf(3):
      parts.namespace = readWord(cursor, end);
      return;
    case tagOf(5):
      parts.uid = readText(cursor, end);
      return;
    case tagOf(6):
      parts.resourceVersion = readText(cursor, end);
      return;
    case varintTagOf(7):
      parts.generation = readInt64(cursor, end);
      return;
    case tagOf(8):
      parts.created = readMoment(cursor, end);
      return;
    case tagOf(9):
      parts.deletionAt = readTime(cursor, end);
      parts.deleting = parts.deletionAt !== null;
      return;
    case varintTagOf(10):
      parts.grace = readInt64(cursor, end);
      return;
    case tagOf(11): {
      if (parts.labels !== noLabels) throw unexpected();
      const from = cursor.at - 1;
      parts.labels = cached(labelMaps, bytes, from, passRow(cursor, tag, end), makeLabels);
      return;
    }
    case tagOf(12): {
      if (parts.annotations !== noLabels) throw unexpected();
      const from = cursor.at - 1;
      const to = passRow(cursor, tag, end);
      if (all) parts.annotations = makeMap(bytes, from, to);
      return;
    }
    case tagOf(13): {
      const to = readEnd(cursor, end);
      if (all) parts.owners = [...parts.owners, readOwner(cursor, to)];
      cursor.at = to;
      return;
    }
    default:
      pass(cursor, tag, end, metaFields);
  }
}

/** A moment in Unix seconds; null for none, and for one that RFC 3339 cannot write. */
export function readMoment(cursor: Cursor, end: number): number | null {
  const seconds = readTime(cursor, end);
  return seconds !== null && isWritable(seconds) ? seconds : null;
}

function readOwner(cursor: Cursor, end: number): OwnerReference {
  const owner = { apiVersion: '', kind: '', name: '', uid: '', controller: false };
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === tagOf(1)) owner.kind = readWord(cursor, end);
    else if (tag === tagOf(3)) owner.name = readText(cursor, end);
    else if (tag === tagOf(4)) owner.uid = readText(cursor, end);
    else if (tag === tagOf(5)) owner.apiVersion = readWord(cursor, end);
    else if (tag === varintTagOf(6)) owner.controller = readBool(cursor, end);
    else pass(cursor, tag, end, bits(1, 3, 4, 5, 6));
  }
  return owner;
}

export function readRef(cursor: Cursor, end: number): ObjectRef {
  let [kind, namespace, name, uid] = ['', '', '', ''];
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === tagOf(1)) kind = readWord(cursor, end);
    else if (tag === tagOf(2)) namespace = readWord(cursor, end);
    else if (tag === tagOf(3)) name = readText(cursor, end);
    else if (tag === tagOf(4)) uid = readText(cursor, end);
    else pass(cursor, tag, end, bits(1, 2, 3, 4));
  }
  return { kind, namespace, name, uid };
}

export const noItems: readonly never[] = Object.freeze([]);

/** A message that has nothing but one string, its field 1. */
export function readName(cursor: Cursor, end: number): string {
  let name = '';
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === tagOf(1)) name = readText(cursor, end);
    else pass(cursor, tag, end, bits(1));
  }
  return name;
}
