// From bytes of a response to objects, as they come: lists and watches in protobuf.
//
// An API server writes `k8s\0` and a runtime.Unknown around what it sends
// (k8s.io/apimachinery@v0.36.3 pkg/runtime/serializer/protobuf/protobuf.go); the message itself is
// Unknown's field `raw`. Of a list that is ListMeta, field 1, and then the items, field 2, so items
// can be told while the rest is still under way. A watch is a row of frames, each a length of four
// bytes, big-endian, and a meta.v1.WatchEvent (without the prefix; with it, it is read too) whose
// object has prefix and envelope of its own. Field numbers: generated.proto of
// pkg/apis/meta/v1 and pkg/runtime there.
//
// Chunks end anywhere. What a chunk leaves incomplete is kept, which is less than an item or frame,
// and all that is complete is read in place, so a page is never held whole. Reading is lazy: no
// object is decoded before it is asked for, so whoever reads can stop between two. An object that
// cannot be read is a problem of its own and the next is read; but when lengths or envelopes are
// wrong, nothing after them can be found, and the reader says so and reads no more.

import { WrongType } from './fields.ts';
import { textLimit } from './lines.ts';
import { readRaw } from './message-fields.ts';
import { metadataMessage, statusMessage } from './messages.ts';
import { itemTypeLength, kinds, typeLength, unreadable } from './project.ts';
import { readObject } from './protobuf.ts';
import { lengthType, readEnd, readInt64, readTag, readText, skip, tagOf, textOf } from './wire.ts';

import type { Resource, WatchEvent } from '../model/objects.ts';
import type { Known, Projection, Unreadable } from './project.ts';

/** The prefix of everything that Kubernetes writes as protobuf. */
const magic = Buffer.from('k8s\0', 'latin1');

/** What an API server says instead of an object (meta.v1.Status). */
export interface Status {
  readonly code: number;
  readonly reason: string;
  readonly message: string;
  readonly retryAfterSeconds: number;
  /** Reasons of the causes in its details. */
  readonly causes: readonly string[];
}

/** Reads one page of a list. */
export interface ListReader<R extends Resource> {
  /**
   * Takes bytes of the body and gives the items that they complete; `at` is their arrival. To be
   * read to its end before the next chunk is given, and before the bytes are used for others.
   */
  readonly read: (chunk: Uint8Array, at: number) => Generator<Projection<R>, void>;
  /** Why nothing more can be read, as where lengths are wrong; null while all is well. */
  readonly problem: () => Unreadable | null;
  /** To be called after the last byte; null if the list is complete. */
  readonly end: () => Unreadable | null;
  /** Of the list: known when the first item is, and in any case at the end; '' when not told. */
  readonly resourceVersion: () => string;
  readonly continueToken: () => string;
}

export type WatchMessage<R extends Resource> =
  | {
      readonly type: WatchEvent['type'];
      readonly projection: Projection<R>;
      /** metadata.resourceVersion, also of an object that cannot be projected; '': none. */
      readonly version: string;
    }
  | {
      readonly type: 'bookmark';
      readonly resourceVersion: string;
      /** Annotation k8s.io/initial-events-end: what was there at the beginning is complete. */
      readonly initialEventsEnd: boolean;
    }
  | { readonly type: 'error'; readonly status: Status }
  /** A frame that is none of these; nothing is known of what it was about. */
  | { readonly type: 'unreadable'; readonly problem: Unreadable };

/** Reads the frames of a watch. */
export interface WatchReader<R extends Resource> {
  /** As that of ListReader. */
  readonly read: (chunk: Uint8Array, at: number) => Generator<WatchMessage<R>, void>;
  /** Why nothing more can be read, as where lengths are wrong; null while all is well. */
  readonly problem: () => Unreadable | null;
  /** To be called after the last byte; null if it ended between frames. */
  readonly end: () => Unreadable | null;
}

/** What the objects of one reader need to be known of, besides their bytes. */
type Held = Pick<Known, 'previousPod'>;

// --- bytes that wait for more ---

/**
 * What could not be read yet stands at the beginning of `carry`, which is used again and again:
 * with chunks of 16 KB, as TLS has them, every second object lies across an end.
 */
interface Intake {
  carry: Buffer;
  held: number;
  /** How many bytes there must be before it is worth trying. */
  needed: number;
}

const newIntake = (): Intake => ({ carry: Buffer.alloc(0), held: 0, needed: 0 });

/** A carry that one long object has made larger is not kept. */
const carryLimit = 1024 * 1024;

/**
 * Has a chunk read in the fewest pieces: first what was kept with as much of the chunk as that
 * lacked, then the rest of it in place. `read` keeps what it cannot read.
 */
function* feed<T>(
  intake: Intake,
  chunk: Uint8Array,
  read: (whole: Buffer) => Generator<T, void>,
): Generator<T, void> {
  let rest: Buffer = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  while (intake.held > 0 && rest.length > 0) {
    const part = rest.subarray(0, intake.needed - intake.held);
    rest = rest.subarray(part.length);
    carry(intake, part);
    if (intake.held < intake.needed) return;
    const whole = intake.carry.subarray(0, intake.held);
    intake.held = 0;
    yield* read(whole);
    if (intake.held === 0 && intake.carry.length > carryLimit) intake.carry = Buffer.alloc(0);
  }
  if (rest.length > 0) yield* read(rest);
}

/** Copies a part behind what is held; what it comes from may be the carry itself. */
function carry(intake: Intake, part: Buffer): void {
  const to = intake.held + part.length;
  if (to > intake.carry.length) {
    const larger = Buffer.alloc(Math.max(to, 2 * intake.carry.length));
    intake.carry.copy(larger, 0, 0, intake.held);
    intake.carry = larger;
  }
  part.copy(intake.carry, intake.held);
  intake.held = to;
}

/** Keeps what could not be read, in a copy, so that its chunk can go. */
function keepRest(intake: Intake, whole: Buffer, from: number, needed: number): void {
  intake.held = 0;
  intake.needed = needed;
  carry(intake, whole.subarray(from));
}

/** A tag and a length, or a tag and a number, are at most so many bytes. */
const headLimit = 15;

/** Whether a tag and the number after it are there, which are never half of something. */
function hasHead(whole: Buffer, at: number): boolean {
  if (whole.length - at >= headLimit) return true;
  let numbers = 0;
  for (let index = at; index < whole.length && numbers < 2; index++) {
    if ((whole[index] ?? 0) < 0x80) numbers++;
  }
  return numbers === 2;
}

interface Head {
  readonly tag: number;
  /** Where the value begins, and where it ends; that may be behind the bytes there are. */
  readonly from: number;
  readonly to: number;
}

/** The field that begins here, of a length up to `limit`; null if more bytes are needed to tell. */
function readHead(whole: Buffer, at: number, limit: number): Head | null {
  if (!hasHead(whole, at)) return null;
  const cursor = { bytes: whole, at };
  try {
    const tag = readTag(cursor, whole.length);
    const isLong = (tag & 7) === lengthType;
    const length = isLong ? readInt64(cursor, whole.length) : 0;
    if (length < 0 || length > limit) throw new WrongType('', 'a length', length);
    const from = cursor.at;
    if (!isLong) skip(cursor, tag, whole.length);
    return { tag, from, to: cursor.at + length };
  } catch (error) {
    if (error instanceof WrongType && whole.length - at < headLimit) return null;
    throw error;
  }
}

// --- lists ---

interface ListState {
  readonly intake: Intake;
  /** Bytes of the list that have not been read; null: it has not begun. */
  left: number | null;
  resourceVersion: string;
  continueToken: string;
  problem: Unreadable | null;
}

/** A reader for one page of this resource. */
export function createListReader<R extends Resource>(resource: R, held: Held = {}): ListReader<R> {
  const state: ListState = {
    intake: newIntake(),
    left: null,
    resourceVersion: '',
    continueToken: '',
    problem: null,
  };
  const framed = { ...held, typeBytes: itemTypeLength(resource) };
  return {
    *read(chunk, at) {
      if (state.problem !== null || state.left === 0) return;
      try {
        yield* feed(state.intake, chunk, (whole) =>
          readList(state, whole, (from, to) => readObject(resource, whole, from, to, at, framed)),
        );
      } catch (error) {
        state.problem = streamProblem(resource, error);
      }
    },
    problem: () => state.problem,
    end: () => state.problem ?? (state.left === 0 ? null : unexpectedEnd(resource)),
    resourceVersion: () => state.resourceVersion,
    continueToken: () => state.continueToken,
  };
}

function* readList<T>(
  state: ListState,
  whole: Buffer,
  itemOf: (from: number, to: number) => T,
): Generator<T, void> {
  let at = 0;
  if (state.left === null) {
    const begin = readEnvelope(whole);
    if (begin === null) {
      keepRest(state.intake, whole, 0, whole.length + 1);
      return;
    }
    at = begin.from;
    state.left = begin.to - begin.from;
  }
  while (state.left > 0) {
    const head = readHead(whole, at, Math.min(state.left, textLimit));
    if (head !== null && head.to - at > state.left) throw new WrongType('', 'a length', state.left);
    if (head === null || head.to > whole.length) {
      keepRest(state.intake, whole, at, head === null ? whole.length - at + 1 : head.to - at);
      return;
    }
    if (head.tag === tagOf(1)) readListMeta(state, whole, head);
    else if (head.tag === tagOf(2)) yield itemOf(head.from, head.to);
    state.left -= head.to - at;
    at = head.to;
  }
}

/** Where `raw` of the envelope begins and ends; null if more bytes are needed to tell. */
function readEnvelope(whole: Buffer): Head | null {
  const prefix = Math.min(whole.length, magic.length);
  if (magic.compare(whole, 0, prefix, 0, prefix) !== 0) {
    throw new WrongType('', 'the prefix of protobuf', whole.toString('latin1', 0, magic.length));
  }
  for (let at = magic.length; at < whole.length;) {
    // The list itself may be of any length.
    const head = readHead(whole, at, Infinity);
    if (head === null || head.tag === tagOf(2)) return head;
    at = head.to;
  }
  return null;
}

function readListMeta(state: ListState, bytes: Buffer, { from, to }: Head): void {
  const cursor = { bytes, at: from };
  while (cursor.at < to) {
    const tag = readTag(cursor, to);
    if (tag === tagOf(2)) state.resourceVersion = readText(cursor, to);
    else if (tag === tagOf(3)) state.continueToken = readText(cursor, to);
    else skip(cursor, tag, to);
  }
}

// --- watches ---

interface WatchState {
  readonly intake: Intake;
  problem: Unreadable | null;
}

/** The length before each frame. */
const frameHead = 4;

/** A reader for a watch of this resource. */
export function createWatchReader<R extends Resource>(
  resource: R,
  held: Held = {},
): WatchReader<R> {
  const state: WatchState = { intake: newIntake(), problem: null };
  return {
    *read(chunk, at) {
      if (state.problem !== null) return;
      try {
        yield* feed(state.intake, chunk, (whole) =>
          readFrames(state, whole, (from, to) => readFrame(resource, whole, from, to, at, held)),
        );
      } catch (error) {
        state.problem = streamProblem(resource, error);
      }
    },
    problem: () => state.problem,
    end: () => state.problem ?? (state.intake.held === 0 ? null : unexpectedEnd(resource)),
  };
}

function* readFrames<T>(
  { intake }: WatchState,
  whole: Buffer,
  messageOf: (from: number, to: number) => T,
): Generator<T, void> {
  for (let at = 0; ;) {
    if (whole.length - at < frameHead) {
      keepRest(intake, whole, at, frameHead);
      return;
    }
    const length = whole.readUInt32BE(at);
    if (length > textLimit) throw new WrongType('', 'a length', length);
    const to = at + frameHead + length;
    if (to > whole.length) {
      keepRest(intake, whole, at, frameHead + length);
      return;
    }
    yield messageOf(at + frameHead, to);
    at = to;
  }
}

/** A range of bytes. */
interface Part {
  readonly from: number;
  readonly to: number;
}

/** What the fields of a message are that hold bytes, the last of each number; 1 and 2 only. */
function partsOf(bytes: Buffer, { from, to }: Part): { first: Part | null; second: Part | null } {
  const cursor = { bytes, at: from };
  const parts: { first: Part | null; second: Part | null } = { first: null, second: null };
  while (cursor.at < to) {
    const tag = readTag(cursor, to);
    if (tag !== tagOf(1) && tag !== tagOf(2)) {
      skip(cursor, tag, to);
      continue;
    }
    const end = readEnd(cursor, to);
    parts[tag === tagOf(1) ? 'first' : 'second'] = { from: cursor.at, to: end };
    cursor.at = end;
  }
  return parts;
}

const partText = (bytes: Buffer, part: Part | null): string =>
  part === null ? '' : textOf(bytes, part.from, part.to);

/** A message with its type, out of prefix and envelope. */
interface Unwrapped extends Part {
  readonly apiVersion: string;
  readonly kind: string;
}

function unwrap(bytes: Buffer, part: Part): Unwrapped {
  if (!hasPrefix(bytes, part)) {
    const found = bytes.toString('latin1', part.from, Math.min(part.from + magic.length, part.to));
    throw new WrongType('', 'the prefix of protobuf', found);
  }
  const { first, second } = partsOf(bytes, { from: part.from + magic.length, to: part.to });
  const type = first === null ? null : partsOf(bytes, first);
  const apiVersion = partText(bytes, type?.first ?? null);
  const kind = partText(bytes, type?.second ?? null);
  const { from, to } = second ?? { from: part.to, to: part.to };
  return { apiVersion, kind, from, to };
}

const hasPrefix = (bytes: Buffer, { from, to }: Part): boolean =>
  to - from >= magic.length && magic.compare(bytes, from, from + magic.length) === 0;

const eventTypes: ReadonlyMap<string, WatchEvent['type']> = new Map([
  ['ADDED', 'added'],
  ['MODIFIED', 'modified'],
  ['DELETED', 'deleted'],
]);

function readFrame<R extends Resource>(
  resource: R,
  bytes: Buffer,
  from: number,
  to: number,
  at: number,
  { previousPod }: Held,
): WatchMessage<R> {
  try {
    const frame = { from, to };
    const event = partsOf(bytes, hasPrefix(bytes, frame) ? unwrap(bytes, frame) : frame);
    const name = partText(bytes, event.first);
    const raw = event.second === null ? null : partsOf(bytes, event.second).first;
    const object = unwrap(bytes, raw ?? { from: to, to });
    if (name === 'BOOKMARK') return readBookmark(bytes, object);
    if (name === 'ERROR') return { type: 'error', status: statusOf(bytes, object) };
    const type = eventTypes.get(name);
    if (type === undefined) throw new WrongType('type', 'a type of event', name);
    if (object.kind !== kinds[resource]) {
      throw new WrongType('kind', 'the kind that is watched', object.kind);
    }
    const framed = { previousPod, typeBytes: typeLength(object.apiVersion, object.kind) };
    const projection = readObject(resource, bytes, object.from, object.to, at, framed);
    const version = projection.object?.resourceVersion ?? readVersion(bytes, object);
    return { type, projection, version };
  } catch (error) {
    return { type: 'unreadable', problem: streamProblem(resource, error) };
  }
}

interface Metadata {
  readonly resourceVersion?: string;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** The metadata of an object of any kind: they have it in field 1. */
function readMetadata(bytes: Buffer, { from, to }: Part): Metadata {
  const raw: { metadata?: Metadata } = {};
  readRaw(metadataMessage, { bytes, at: from }, to, raw);
  return raw.metadata ?? {};
}

function readBookmark(bytes: Buffer, object: Part): WatchMessage<never> {
  const { resourceVersion = '', annotations = {} } = readMetadata(bytes, object);
  const initialEventsEnd = annotations['k8s.io/initial-events-end'] === 'true';
  return { type: 'bookmark', resourceVersion, initialEventsEnd };
}

/** The version of an object that cannot be read otherwise. */
function readVersion(bytes: Buffer, object: Part): string {
  try {
    return readMetadata(bytes, object).resourceVersion ?? '';
  } catch (error) {
    if (error instanceof WrongType) return '';
    throw error;
  }
}

// --- what the server says instead ---

interface Details {
  readonly retryAfterSeconds?: number;
  readonly causes?: readonly { readonly reason?: string }[];
}

function statusOf(bytes: Buffer, { from, to }: Part): Status {
  const raw: Partial<Status> & { details?: Details } = {};
  readRaw(statusMessage, { bytes, at: from }, to, raw);
  const { code = 0, reason = '', message = '', details = {} } = raw;
  const { retryAfterSeconds = 0, causes = [] } = details;
  return {
    code,
    reason,
    message,
    retryAfterSeconds,
    causes: causes.map(({ reason = '' }) => reason),
  };
}

/** The Status that is the body of an answer which is no success; null where it is none. */
export function readStatus(body: Uint8Array): Status | null {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  try {
    const object = unwrap(bytes, { from: 0, to: bytes.length });
    return object.kind === 'Status' ? statusOf(bytes, object) : null;
  } catch (error) {
    if (error instanceof WrongType) return null;
    throw error;
  }
}

// --- problems ---

/** A problem of the stream itself: nothing is known of what follows. */
function streamProblem(resource: Resource, error: unknown): Unreadable {
  if (!(error instanceof WrongType)) throw error;
  return unreadable(resource, {}, error);
}

function unexpectedEnd(resource: Resource): Unreadable {
  return unreadable(resource, {}, new WrongType('', 'more: the answer ended early', undefined));
}
