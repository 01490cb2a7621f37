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

import type { Resource, WatchEvent } from '../../../model/objects.ts';
import { eventTypes, WrongType } from '../json-fields.ts';
import type { Known, Projection, Unreadable } from '../json-objects.ts';
import { kinds, unreadable } from '../json-objects.ts';
import { textLimit } from '../line-reader.ts';
import { readObject } from './objects.ts';
import { readMessage } from './read-message.ts';
import type { Raw } from './schema.ts';
import { messageNamed } from './schema.ts';
import { lengthType, readInt64, readTag, skip, tagOf } from './wire.ts';

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
 * A chunk in the fewest pieces: first what was kept with as much of the chunk as that lacked, then
 * the rest of it in place. Whoever reads a piece keeps what it cannot read, before it goes on.
 */
function* pieces(intake: Intake, chunk: Uint8Array): Generator<Buffer, void> {
  let rest: Buffer = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  while (intake.held > 0 && rest.length > 0) {
    const part = rest.subarray(0, intake.needed - intake.held);
    rest = rest.subarray(part.length);
    carry(intake, part);
    if (intake.held < intake.needed) return;
    const whole = intake.carry.subarray(0, intake.held);
    intake.held = 0;
    yield whole;
    if (intake.held === 0 && intake.carry.length > carryLimit) intake.carry = Buffer.alloc(0);
  }
  if (rest.length > 0) yield rest;
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
  return {
    *read(chunk, at) {
      if (state.problem !== null || state.left === 0) return;
      try {
        for (const whole of pieces(state.intake, chunk)) {
          for (let next = beginList(state, whole); next !== null;) {
            const head = nextField(state, whole, next);
            if (head === null) break;
            if (head.tag === tagOf(2)) {
              const message = whole.subarray(head.from, head.to);
              yield readObject(resource, message, at, held.previousPod);
            } else if (head.tag === tagOf(1)) readListMeta(state, whole, head);
            next = head.to;
          }
        }
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

/** Where the fields of the list go on in these bytes; null where it has not begun in them. */
function beginList(state: ListState, whole: Buffer): number | null {
  if (state.left !== null) return 0;
  const begin = readEnvelope(whole);
  if (begin === null) {
    keepRest(state.intake, whole, 0, whole.length + 1);
    return null;
  }
  state.left = begin.to - begin.from;
  return begin.from;
}

/** The field of the list that begins here, if all of it is there; null: it is kept, or none is. */
function nextField(state: ListState, whole: Buffer, at: number): Head | null {
  const left = state.left ?? 0;
  if (left <= 0) return null;
  const head = readHead(whole, at, Math.min(left, textLimit));
  if (head !== null && head.to - at > left) throw new WrongType('', 'a length', left);
  if (head === null || head.to > whole.length) {
    keepRest(state.intake, whole, at, head === null ? whole.length - at + 1 : head.to - at);
    return null;
  }
  state.left = left - (head.to - at);
  return head;
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
  const meta: ListMeta = decode('ListMeta', bytes.subarray(from, to));
  state.resourceVersion = meta.resourceVersion ?? state.resourceVersion;
  state.continueToken = meta.continue ?? state.continueToken;
}

interface ListMeta {
  readonly resourceVersion?: string;
  readonly continue?: string;
}

/** Decodes the message of this name in the schema. */
function decode(name: string, bytes: Buffer): Raw {
  const raw: Raw = {};
  readMessage(messageNamed(name), { bytes, at: 0 }, bytes.length, raw);
  return raw;
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
        for (const whole of pieces(state.intake, chunk)) {
          for (let from = 0; ;) {
            const to = endOfFrame(state, whole, from);
            if (to === null) break;
            yield readFrame(resource, whole.subarray(from + frameHead, to), at, held);
            from = to;
          }
        }
      } catch (error) {
        state.problem = streamProblem(resource, error);
      }
    },
    problem: () => state.problem,
    end: () => state.problem ?? (state.intake.held === 0 ? null : unexpectedEnd(resource)),
  };
}

/** Where the frame that begins here ends; null: it is not all there, and is kept. */
function endOfFrame({ intake }: WatchState, whole: Buffer, at: number): number | null {
  if (whole.length - at < frameHead) {
    keepRest(intake, whole, at, frameHead);
    return null;
  }
  const length = whole.readUInt32BE(at);
  if (length > textLimit) throw new WrongType('', 'a length', length);
  const to = at + frameHead + length;
  if (to > whole.length) {
    keepRest(intake, whole, at, frameHead + length);
    return null;
  }
  return to;
}

interface TypeMeta {
  readonly apiVersion?: string;
  readonly kind?: string;
}

/** The object in an envelope: its kind, and its message. */
interface Enveloped {
  readonly kind: string;
  readonly message: Buffer;
}

const noBytes = Buffer.alloc(0);

/** Takes prefix and envelope off. */
function unwrap(bytes: Buffer): Enveloped {
  if (!hasPrefix(bytes)) {
    throw new WrongType('', 'the prefix of protobuf', bytes.toString('latin1', 0, magic.length));
  }
  const unknown: { typeMeta?: TypeMeta; raw?: Buffer } = decode(
    'Unknown',
    bytes.subarray(magic.length),
  );
  return { kind: unknown.typeMeta?.kind ?? '', message: unknown.raw ?? noBytes };
}

const hasPrefix = (bytes: Buffer): boolean =>
  bytes.length >= magic.length && bytes.readUInt32BE(0) === magic.readUInt32BE(0);

function readFrame<R extends Resource>(
  resource: R,
  frame: Buffer,
  at: number,
  { previousPod }: Held,
): WatchMessage<R> {
  try {
    const event: { type?: string; object?: { raw?: Buffer } } = decode(
      'WatchEvent',
      hasPrefix(frame) ? unwrap(frame).message : frame,
    );
    const { kind, message } = unwrap(event.object?.raw ?? noBytes);
    if (event.type === 'BOOKMARK') return readBookmark(message);
    if (event.type === 'ERROR') return { type: 'error', status: statusOf(message) };
    const type = eventTypes.get(event.type);
    if (type === undefined) throw new WrongType('type', 'a type of event', event.type ?? '');
    if (kind !== kinds[resource]) throw new WrongType('kind', 'the kind that is watched', kind);
    const projection = readObject(resource, message, at, previousPod);
    const version = projection.object?.resourceVersion ?? readVersion(message);
    return { type, projection, version };
  } catch (error) {
    return { type: 'unreadable', problem: streamProblem(resource, error) };
  }
}

interface AnyObjectMessage {
  readonly metadata?: {
    readonly resourceVersion?: string;
    readonly annotations?: Readonly<Record<string, string>>;
  };
}

function readBookmark(message: Buffer): WatchMessage<never> {
  const { metadata = {} }: AnyObjectMessage = decode('AnyObject', message);
  const { resourceVersion = '', annotations = {} } = metadata;
  const initialEventsEnd = annotations['k8s.io/initial-events-end'] === 'true';
  return { type: 'bookmark', resourceVersion, initialEventsEnd };
}

/** The version of an object that cannot be read otherwise; '' if that cannot be read either. */
function readVersion(message: Buffer): string {
  try {
    const { metadata }: AnyObjectMessage = decode('AnyObject', message);
    return metadata?.resourceVersion ?? '';
  } catch (error) {
    if (error instanceof WrongType) return '';
    throw error;
  }
}

// --- statuses ---

interface StatusMessage extends Partial<Pick<Status, 'code' | 'reason' | 'message'>> {
  readonly details?: {
    readonly retryAfterSeconds?: number;
    readonly causes?: readonly { readonly reason?: string }[];
  };
}

function statusOf(bytes: Buffer): Status {
  const status: StatusMessage = decode('Status', bytes);
  const { code = 0, reason = '', message = '', details } = status;
  const { retryAfterSeconds = 0, causes = [] } = details ?? {};
  return {
    code,
    reason,
    message,
    retryAfterSeconds,
    causes: causes.map(({ reason = '' }) => reason),
  };
}

/** The Status in the body of an error response; null if the body is something else. */
export function readStatus(body: Uint8Array): Status | null {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  try {
    const { kind, message } = unwrap(bytes);
    return kind === 'Status' ? statusOf(message) : null;
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
