// Decodes protobuf responses of the API server while they arrive: lists, watches and errors.
//
// An API server writes `k8s\0` and a runtime.Unknown around a response
// (k8s.io/apimachinery@v0.36.3 pkg/runtime/serializer/protobuf/protobuf.go); the message is
// Unknown's field `raw`. A list is ListMeta, field 1, and then the items, field 2. A watch is a
// sequence of frames: a length of four bytes, big-endian, and a meta.v1.WatchEvent, whose object
// has prefix and envelope too. This file also reads a frame with prefix and envelope.
//
// Chunks end anywhere. A reader keeps the part of a chunk that is not complete, and decodes an
// object when the caller asks for it, so the caller can yield to the event loop between two. An
// unreadable object is a problem, and the reader goes on. After a wrong length or envelope it
// cannot find the next object, so it reports that and stops.

import type { Resource, WatchEvent } from '../../../model/objects.ts';
import { eventTypes, WrongType } from '../json-fields.ts';
import type { Projection, Unreadable } from '../json-objects.ts';
import { kinds, unreadable } from '../json-objects.ts';
import { textLimit } from '../line-reader.ts';
import type { PreviousPod } from '../read-pod.ts';
import { readObject } from './objects.ts';
import { readMessage } from './read-message.ts';
import type { Raw } from './schema.ts';
import { messageNamed } from './schema.ts';
import { lengthType, readInt64, readTag, skip, tagOf } from './wire.ts';

/** The prefix of everything that Kubernetes writes as protobuf. */
const magic = Buffer.from('k8s\0', 'latin1');

/** A meta.v1.Status, which an API server sends instead of an object. */
export interface Status {
  readonly code: number;
  readonly reason: string;
  readonly message: string;
  readonly retryAfterSeconds: number;
  /** Reasons of the causes in its details. */
  readonly causes: readonly string[];
}

interface Reader<T> {
  /**
   * Reads a chunk of the body and yields what it completes; `at` is its arrival, Unix seconds. The
   * caller must iterate to the end before the next chunk, and before it reuses the bytes.
   */
  readonly read: (chunk: Uint8Array, at: number) => Generator<T, void>;
  /** Why the reader stopped; null if it did not. */
  readonly problem: () => Unreadable | null;
  /** Called after the last byte: null if the body is complete. */
  readonly end: () => Unreadable | null;
}

/** Reads one page of a list. */
export interface ListReader<R extends Resource> extends Reader<Projection<R>> {
  /** Of the list; '' before its first item. */
  readonly resourceVersion: () => string;
  readonly continueToken: () => string;
}

export type WatchMessage<R extends Resource> =
  | {
      readonly type: WatchEvent['type'];
      readonly projection: Projection<R>;
      /** metadata.resourceVersion, also of an unreadable object; '' if there is none. */
      readonly version: string;
    }
  | {
      readonly type: 'bookmark';
      readonly resourceVersion: string;
      /** Annotation k8s.io/initial-events-end: the initial objects are complete. */
      readonly initialEventsEnd: boolean;
    }
  | { readonly type: 'error'; readonly status: Status }
  /** Any other frame; its object is unknown. */
  | { readonly type: 'unreadable'; readonly problem: Unreadable };

export type WatchReader<R extends Resource> = Reader<WatchMessage<R>>;

interface ReaderOptions {
  readonly previousPod?: PreviousPod;
}

// --- incomplete bytes ---

/** The bytes that have not been read, and how many are needed to go on. */
interface Intake {
  parts: Buffer[];
  length: number;
  needed: number;
  problem: Unreadable | null;
}

const newIntake = (): Intake => ({ parts: [], length: 0, needed: 0, problem: null });

/** The bytes that have not been read, with the chunk; null if more are needed. */
function take(intake: Intake, chunk: Uint8Array): Buffer | null {
  const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  const { parts } = intake;
  intake.length += bytes.length;
  if (intake.length < intake.needed) {
    parts.push(Buffer.from(bytes));
    return null;
  }
  intake.parts = [];
  intake.length = 0;
  return parts.length === 0 ? bytes : Buffer.concat([...parts, bytes]);
}

/** Keeps a copy of the bytes from here; the next value needs this many. */
function keepRest(intake: Intake, whole: Buffer, from: number, needed: number): void {
  intake.parts = [Buffer.from(whole.subarray(from))];
  intake.length = whole.length - from;
  intake.needed = needed;
}

/** A reader whose `parse` reads the values in some bytes and keeps the rest. */
function createReader<T>(
  resource: Resource,
  intake: Intake,
  parse: (whole: Buffer, at: number) => Generator<T, void>,
  isComplete: () => boolean,
): Reader<T> {
  return {
    *read(chunk, at) {
      if (intake.problem !== null) return;
      try {
        const whole = take(intake, chunk);
        if (whole !== null) yield* parse(whole, at);
      } catch (error) {
        intake.problem = streamProblem(resource, error);
      }
    },
    problem: () => intake.problem,
    end: () => intake.problem ?? (isComplete() ? null : unexpectedEnd(resource)),
  };
}

// --- lists ---

interface ListState {
  readonly intake: Intake;
  /** Bytes of the list that have not been read; null before the list begins. */
  left: number | null;
  meta: { readonly resourceVersion?: string; readonly continue?: string };
}

/** A reader for one page of this resource. */
export function createListReader<R extends Resource>(
  resource: R,
  { previousPod }: ReaderOptions = {},
): ListReader<R> {
  const state: ListState = { intake: newIntake(), left: null, meta: {} };
  function* parse(whole: Buffer, at: number): Generator<Projection<R>, void> {
    let next = beginList(state, whole);
    for (let head = nextField(state, whole, next); head !== null;) {
      const message = whole.subarray(head.from, head.to);
      if (head.tag === tagOf(1)) state.meta = decode('ListMeta', message);
      else if (head.tag === tagOf(2)) yield readObject(resource, message, at, previousPod);
      next = head.to;
      head = nextField(state, whole, next);
    }
  }
  return {
    ...createReader(resource, state.intake, parse, () => state.left === 0),
    resourceVersion: () => state.meta.resourceVersion ?? '',
    continueToken: () => state.meta.continue ?? '',
  };
}

/** Where the fields of the list continue in these bytes. */
function beginList(state: ListState, whole: Buffer): number {
  if (state.left !== null) return 0;
  const envelope = readEnvelope(whole);
  if (envelope === null) {
    keepRest(state.intake, whole, 0, whole.length + 1);
    return whole.length;
  }
  state.left = envelope.to - envelope.from;
  return envelope.from;
}

/** The field of the list that begins here; null at the end, or if it is not complete. */
function nextField(state: ListState, whole: Buffer, at: number): Head | null {
  const { left, intake } = state;
  if (left === null || left === 0) return null;
  const least = Math.min(left, headLimit);
  const head = whole.length - at < least ? null : readHead(whole, at, Math.min(left, textLimit));
  if (head === null || head.to > whole.length) {
    keepRest(intake, whole, at, head === null ? least : head.to - at);
    return null;
  }
  state.left = left - (head.to - at);
  if (state.left < 0) throw new WrongType('', 'a length', left);
  return head;
}

interface Head {
  readonly tag: number;
  /** Where the value begins, and where it ends; that may be behind the bytes there are. */
  readonly from: number;
  readonly to: number;
}

/** The most bytes of a tag with the number or length behind it. */
const headLimit = 15;

/** The tag of the field that begins here, and the place of its value, of a length up to `limit`. */
function readHead(whole: Buffer, at: number, limit: number): Head {
  const cursor = { bytes: whole, at };
  const tag = readTag(cursor, whole.length);
  const isLong = (tag & 7) === lengthType;
  const length = isLong ? readInt64(cursor, whole.length) : 0;
  if (length < 0 || length > limit) throw new WrongType('', 'a length', length);
  const from = cursor.at;
  if (!isLong) skip(cursor, tag, whole.length);
  return { tag, from, to: cursor.at + length };
}

/** The place of `raw` in the envelope; null if more bytes are needed. */
function readEnvelope(whole: Buffer): Head | null {
  const prefix = Math.min(whole.length, magic.length);
  if (magic.compare(whole, 0, prefix, 0, prefix) !== 0) {
    throw new WrongType('', 'the prefix of protobuf', whole.toString('latin1', 0, magic.length));
  }
  let at = magic.length;
  try {
    while (at < whole.length) {
      const head = readHead(whole, at, Infinity); // a list may have any length
      if (head.tag === tagOf(2)) return head;
      at = head.to;
    }
  } catch (error) {
    if (!(error instanceof WrongType) || whole.length - at >= headLimit) throw error;
  }
  return null;
}

/** Decodes the message of this name in the schema. */
function decode(name: string, bytes: Buffer): Raw {
  const raw: Raw = {};
  readMessage(messageNamed(name), { bytes, at: 0 }, bytes.length, raw);
  return raw;
}

// --- watches ---

/** The length before each frame. */
const frameHead = 4;

/** A reader for a watch of this resource. */
export function createWatchReader<R extends Resource>(
  resource: R,
  { previousPod }: ReaderOptions = {},
): WatchReader<R> {
  const intake = newIntake();
  function* parse(whole: Buffer, at: number): Generator<WatchMessage<R>, void> {
    let from = 0;
    for (let to = endOfFrame(whole, from); to <= whole.length; to = endOfFrame(whole, from)) {
      yield readFrame(resource, whole.subarray(from + frameHead, to), at, previousPod);
      from = to;
    }
    keepRest(intake, whole, from, endOfFrame(whole, from) - from);
  }
  return createReader(resource, intake, parse, () => intake.length === 0);
}

/** Where the frame that begins here ends, or at least its length. */
function endOfFrame(whole: Buffer, at: number): number {
  if (whole.length - at < frameHead) return at + frameHead;
  const length = whole.readUInt32BE(at);
  if (length > textLimit) throw new WrongType('', 'a length', length);
  return at + frameHead + length;
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
  previousPod: PreviousPod | undefined,
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
