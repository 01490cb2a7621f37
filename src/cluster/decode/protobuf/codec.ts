// Decodes protobuf responses of the API server while they arrive: lists, watches and errors.
//
// An API server writes `k8s\0` and a runtime.Unknown around a response
// (k8s.io/apimachinery@v0.36.3 pkg/runtime/serializer/protobuf/protobuf.go); the message is
// Unknown's field `raw`. A list is ListMeta, field 1, and then the items, field 2. A watch is a
// sequence of frames: a length of four bytes, big-endian, and a meta.v1.WatchEvent, whose object
// has prefix and envelope too. This file also reads a frame with prefix and envelope.
//
// Chunks end anywhere. The reader keeps the part of a chunk that is not complete, and decodes an
// object when the caller asks for it, so the caller can yield to the event loop between two. An
// unreadable object is a problem, and the reader goes on. After a wrong length or envelope it
// cannot find the next object: for the caller the body is cut off there. Frames have no raw
// objects; a recording asks for JSON.

import type { Resource } from '../../../model/objects.ts';
import { isOutput } from '../../../model/objects.ts';
import type { Codec, DecodeContext, Frame } from '../frame.ts';
import { bookmarkFrame, pageFrame, readStatus, versionOf } from '../frame.ts';
import { eventTypes, WrongType } from '../json-fields.ts';
import type { Projection } from '../json-objects.ts';
import { kinds, project, unreadable } from '../json-objects.ts';
import type { Bytes } from '../line-reader.ts';
import { textLimit } from '../line-reader.ts';
import { guessLost, valueText } from '../problem.ts';
import type { PreviousPod } from '../read-pod.ts';
import { readMessage } from './read-message.ts';
import type { Raw } from './schema.ts';
import { messageNamed } from './schema.ts';
import type { ByteSpan } from './wire.ts';
import { lengthType, readInt64, readTag, skip, tagOf } from './wire.ts';

/** The prefix of everything that Kubernetes writes as protobuf. */
const magic = Buffer.from('k8s\0', 'latin1');

export const protobufCodec: Codec = {
  mediaType: 'application/vnd.kubernetes.protobuf',
  watch: (body, context) => readBody(body, context, readFrames, endOfWatch),
  list: (body, context) => readBody(body, context, readItems, endOfList),
  status(body, code) {
    const bytes = bufferOf(body);
    try {
      const { kind, message } = unwrap({ bytes, at: 0, end: bytes.length });
      return kind === 'Status' ? readStatus(decode('Status', message), code) : null;
    } catch (error) {
      if (error instanceof WrongType) return null;
      throw error;
    }
  },
};

/** The part of a body that has arrived and has not been read. */
interface Intake {
  parts: Buffer[];
  length: number;
  /** How many bytes are needed to go on. */
  needed: number;
  /** Why nothing more can be read. */
  failure: WrongType | null;
  /** Bytes of the list that have not been read; null before the list begins. */
  left: number | null;
  listMeta: Raw;
}

/** Reads the values in some bytes that arrived `at`, and keeps the rest. */
type Parse = (
  intake: Intake,
  whole: Buffer,
  context: DecodeContext,
  at: number,
) => Generator<Frame, void>;

async function* readBody(
  body: Bytes,
  context: DecodeContext,
  parse: Parse,
  end: (intake: Intake, resource: Resource) => readonly Frame[],
): AsyncGenerator<Iterable<Frame>> {
  const intake: Intake = {
    parts: [],
    length: 0,
    needed: 0,
    failure: null,
    left: null,
    listMeta: {},
  };
  for await (const chunk of body) {
    yield readChunk(intake, chunk, context, context.now(), parse);
    if (intake.failure !== null) break;
  }
  yield end(intake, context.resource);
}

function* readChunk(
  intake: Intake,
  chunk: Uint8Array,
  context: DecodeContext,
  at: number,
  parse: Parse,
): Generator<Frame, void> {
  try {
    const whole = take(intake, bufferOf(chunk));
    if (whole !== null) yield* parse(intake, whole, context, at);
  } catch (error) {
    if (!(error instanceof WrongType)) throw error;
    intake.failure = error;
  }
}

const bufferOf = ({ buffer, byteOffset, byteLength }: Uint8Array): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength);

/** The bytes that have not been read, with the chunk; null if more are needed. */
function take(intake: Intake, bytes: Buffer): Buffer | null {
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
  intake.length = whole.length - from;
  intake.parts = intake.length === 0 ? [] : [Buffer.from(whole.subarray(from))];
  intake.needed = needed;
}

/** The frame of something unreadable, which may be any object of the resource. */
function badFrame(resource: Resource, error: unknown, cut: boolean): Frame {
  if (!(error instanceof WrongType)) throw error;
  const [message, value] = [`Expected ${error.expected}`, valueText(error.value)];
  return { kind: 'bad', message, value, lost: guessLost(resource, ''), cut };
}

const endedEarly = () => new WrongType('', 'more: the answer ended early', undefined);

// --- lists ---

function* readItems(
  intake: Intake,
  whole: Buffer,
  { resource, previousPod }: DecodeContext,
  at: number,
): Generator<Frame, void> {
  let next = beginList(intake, whole);
  for (let head = nextField(intake, whole, next); head !== null;) {
    const message = { bytes: whole, at: head.from, end: head.to };
    if (head.tag === tagOf(1)) intake.listMeta = decode('ListMeta', message);
    else if (head.tag === tagOf(2)) {
      yield { kind: 'object', type: 'added', ...readObject(resource, message, at, previousPod) };
    }
    next = head.to;
    head = nextField(intake, whole, next);
  }
}

function endOfList({ failure, left, listMeta }: Intake, resource: Resource): readonly Frame[] {
  if (failure !== null || left !== 0) return [badFrame(resource, failure ?? endedEarly(), true)];
  const page = pageFrame({ metadata: listMeta });
  return [page ?? badFrame(resource, new WrongType('', 'a list', undefined), false)];
}

/** Where the fields of the list continue in these bytes. */
function beginList(intake: Intake, whole: Buffer): number {
  if (intake.left !== null) return 0;
  const envelope = readEnvelope(whole);
  if (envelope === null) {
    keepRest(intake, whole, 0, whole.length + 1);
    return whole.length;
  }
  intake.left = envelope.to - envelope.from;
  return envelope.from;
}

/** The field of the list that begins here; null at the end, or if it is not complete. */
function nextField(intake: Intake, whole: Buffer, at: number): Head | null {
  const { left } = intake;
  if (left === null || left === 0) return null;
  const least = Math.min(left, headLimit);
  const head = whole.length - at < least ? null : readHead(whole, at, Math.min(left, textLimit));
  if (head === null || head.to > whole.length) {
    keepRest(intake, whole, at, head === null ? least : head.to - at);
    return null;
  }
  intake.left = left - (head.to - at);
  if (intake.left < 0) throw new WrongType('', 'a length', left);
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
  if (magic.compare(whole, 0, prefix, 0, prefix) !== 0) throw noPrefix(whole, 0, prefix);
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

const noPrefix = (bytes: Buffer, from: number, to: number): WrongType =>
  new WrongType('', 'the prefix of protobuf', bytes.toString('latin1', from, to));

// --- watches ---

/** The length before each frame. */
const frameHead = 4;

function* readFrames(
  intake: Intake,
  whole: Buffer,
  context: DecodeContext,
  at: number,
): Generator<Frame, void> {
  let from = 0;
  for (let end = endOfFrame(whole, from); end <= whole.length; end = endOfFrame(whole, from)) {
    yield readFrame({ bytes: whole, at: from + frameHead, end }, context, at);
    from = end;
  }
  keepRest(intake, whole, from, endOfFrame(whole, from) - from);
}

function endOfWatch({ failure, length }: Intake, resource: Resource): readonly Frame[] {
  if (failure === null && length === 0) return [];
  return [badFrame(resource, failure ?? endedEarly(), true)];
}

/** Where the frame that begins here ends, or at least its length. */
function endOfFrame(whole: Buffer, at: number): number {
  if (whole.length - at < frameHead) return at + frameHead;
  const length = whole.readUInt32BE(at);
  if (length > textLimit) throw new WrongType('', 'a length', length);
  return at + frameHead + length;
}

function readFrame(frame: ByteSpan, { resource, previousPod }: DecodeContext, at: number): Frame {
  try {
    const plain = hasPrefix(frame) ? unwrap(frame).message : frame;
    const event: { type?: string; object?: { raw?: ByteSpan } } = decode('WatchEvent', plain);
    const { kind, message } = unwrap(event.object?.raw ?? noBytes);
    if (event.type === 'BOOKMARK') return bookmarkFrame(decode('AnyObject', message));
    if (event.type === 'ERROR') {
      return { kind: 'status', status: readStatus(decode('Status', message), 0) };
    }
    const type = eventTypes.get(event.type);
    if (type === undefined) throw new WrongType('type', 'a type of event', event.type ?? '');
    if (kind !== kinds[resource]) throw new WrongType('kind', 'the kind that is watched', kind);
    return { kind: 'object', type, ...readObject(resource, message, at, previousPod) };
  } catch (error) {
    return badFrame(resource, error, false);
  }
}

// --- messages ---

/** The object in an envelope: its kind, and its message. */
interface Enveloped {
  readonly kind: string;
  readonly message: ByteSpan;
}

const noBytes: ByteSpan = { bytes: Buffer.alloc(0), at: 0, end: 0 };

/** Takes prefix and envelope off. */
function unwrap(range: ByteSpan): Enveloped {
  const { bytes, at, end } = range;
  const from = Math.min(at + magic.length, end);
  if (!hasPrefix(range)) throw noPrefix(bytes, at, from);
  const { typeMeta, raw }: UnknownMessage = decode('Unknown', { bytes, at: from, end });
  return { kind: typeMeta?.kind ?? '', message: raw ?? noBytes };
}

interface UnknownMessage {
  readonly typeMeta?: { readonly kind?: string };
  readonly raw?: ByteSpan;
}

const hasPrefix = ({ bytes, at, end }: ByteSpan): boolean =>
  end - at >= magic.length && bytes.readUInt32BE(at) === magic.readUInt32BE(0);

/** Decodes the message of this name in the schema. */
function decode(name: string, { bytes, at, end }: ByteSpan): Raw {
  const raw: Raw = {};
  readMessage(messageNamed(name), { bytes, at }, end, raw);
  return raw;
}

interface Decoded<R extends Resource> {
  readonly projection: Projection<R>;
  /** metadata.resourceVersion; '' if it is absent or cannot be decoded. */
  readonly version: string;
}

/**
 * Decodes the message of an object of this resource, which arrived `at`, in Unix seconds, by way of
 * the plain objects that the JSON of the same object would have. Never throws for content: an
 * unreadable object is a problem. The `bytes` of Endpoints and EndpointSlices are the length of the
 * message. No value refers to the bytes.
 */
export function readObject<R extends Resource>(
  resource: R,
  { bytes, at: from, end }: ByteSpan,
  at: number,
  previousPod?: PreviousPod,
): Decoded<R> {
  const raw: Raw = {};
  try {
    readMessage(messageNamed(kinds[resource]), { bytes, at: from }, end, raw);
  } catch (error) {
    if (!(error instanceof WrongType)) throw error;
    return { projection: { problem: unreadable(resource, raw, error) }, version: versionOf(raw) };
  }
  const known = { previousPod, bytes: isOutput(resource) ? end - from : null };
  return { projection: project(resource, raw, at, known), version: versionOf(raw) };
}
