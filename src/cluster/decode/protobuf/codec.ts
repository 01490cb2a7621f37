// Decodes protobuf responses of the API server while they arrive: lists, watches and errors.
//
// An API server writes `k8s\0` and a runtime.Unknown around a response
// (k8s.io/apimachinery@v0.36.3 pkg/runtime/serializer/protobuf/protobuf.go); the message is
// Unknown's field `raw`. A list is ListMeta, field 1, and then the items, field 2. A watch is a
// sequence of frames: a length of four bytes, big-endian, and a meta.v1.WatchEvent, whose object
// has prefix and envelope too. A frame may also have them.
//
// The reader decodes an object when the caller asks for it, so the caller can yield to the event
// loop between two. After an unreadable object it goes on, also after one that is too long, whose
// beginning it keeps. After a wrong length or envelope it cannot find the next object, and the body
// is cut off there. Frames have no raw objects.

import { isOutput, kinds, type Resource } from '../../../model/objects.ts';
import type { Codec, DecodeContext, Frame } from '../frame.ts';
import {
  bookmarkFrame,
  frameLimit,
  isOf,
  kindOf,
  otherFrame,
  pageFrame,
  readStatus,
  versionOf,
} from '../frame.ts';
import { eventTypes, WrongType } from '../json-fields.ts';
import { project, type Projection, unreadable } from '../json-objects.ts';
import type { Bytes } from '../line-reader.ts';
import { guessLost, valueText } from '../problem.ts';
import type { PreviousPod } from '../read-pod.ts';
import { type Raw, readMessage } from './message.ts';
import { type ByteSpan, lengthType, readInt64, readTag, skip, tagOf } from './wire.ts';

const magic = Buffer.from('k8s\0', 'latin1');
const noBuffer = Buffer.alloc(0);

export const protobufCodec: Codec = {
  mediaType: 'application/vnd.kubernetes.protobuf',
  watch: (body, context) => readBody(body, context, watchFraming(context)),
  list: (body, context) => readBody(body, context, listFraming(context)),
  status(body, code) {
    const bytes = bufferOf(body);
    try {
      const { typeMeta, message } = unwrap({ bytes, at: 0, end: bytes.length });
      return typeMeta.kind === 'Status' ? readStatus(decode('Status', message), code) : null;
    } catch (error) {
      if (error instanceof WrongType) return null;
      throw error;
    }
  },
};

interface Framing {
  /** The part that begins here. Its end, or just an earlier place, may be behind the bytes. */
  partAt(whole: Buffer, at: number): Part;
  /** The frame of a part that arrived `at`; null if it has none. */
  read(message: ByteSpan, tag: number, at: number): Frame | null;
  /** The frame of a part that is too long; of its bytes only the beginning is there. */
  readLong(message: ByteSpan): Frame;
  /** The last frame; `failure` is why nothing more can be read, `rest` the bytes that are left. */
  end(failure: WrongType | null, rest: number): Frame | null;
}

/** A value from one place to another; the tag is 0 for what is no field. */
type Part = ReturnType<typeof readPart>;

type Intake = ReturnType<typeof createIntake>;

/**
 * What has arrived and has not been read; `needed` is how many bytes are needed to go on, and
 * `skipped` how many that will arrive are left out.
 */
const createIntake = () => ({
  parts: [] as Buffer[],
  length: 0,
  needed: 0,
  skipped: 0,
  failure: null as WrongType | null,
});

async function* readBody(
  body: Bytes,
  { now }: DecodeContext,
  framing: Framing,
): AsyncGenerator<Iterable<Frame>> {
  const intake = createIntake();
  for await (const chunk of body) {
    yield readChunk(intake, bufferOf(chunk), framing, now());
    if (intake.failure !== null) break;
  }
  const last = framing.end(intake.failure, intake.length);
  if (last !== null) yield [last];
}

const bufferOf = (bytes: Uint8Array): Buffer =>
  Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** Reads the parts that a chunk completes, and keeps the rest. */
function* readChunk(
  intake: Intake,
  chunk: Buffer,
  framing: Framing,
  at: number,
): Generator<Frame, void> {
  let rest = chunk;
  while (rest.length > 0 && intake.failure === null) {
    const skipped = Math.min(intake.skipped, rest.length);
    intake.skipped -= skipped;
    rest = rest.subarray(skipped);
    // Only a part that began in an earlier chunk is copied, to put it together.
    const isHead = intake.length > 0 && intake.needed - intake.length < rest.length;
    const head = isHead ? rest.subarray(0, intake.needed - intake.length) : rest;
    rest = isHead ? rest.subarray(head.length) : noBuffer;
    intake.parts.push(head);
    intake.length += head.length;
    if (intake.length >= intake.needed) yield* readParts(intake, framing, at);
  }
}

function* readParts(intake: Intake, framing: Framing, at: number): Generator<Frame, void> {
  const only = intake.parts.length === 1 ? intake.parts[0] : undefined;
  const whole = only ?? Buffer.concat(intake.parts);
  let from = 0;
  let needed = 0;
  try {
    while (from < whole.length && needed === 0) {
      const part = framing.partAt(whole, from);
      const message = { bytes: whole, at: part.from, end: part.to };
      if (startEnd(part) > whole.length) needed = startEnd(part) - from;
      else {
        from = Math.min(part.to, whole.length);
        intake.skipped = part.to - from;
        const frame = isLong(part)
          ? framing.readLong(message)
          : framing.read(message, part.tag, at);
        if (frame !== null) yield frame;
      }
    }
  } catch (error) {
    if (!(error instanceof WrongType)) throw error;
    intake.failure = error;
  }
  intake.parts = from === whole.length ? [] : [from === 0 ? whole : whole.subarray(from)];
  intake.length = whole.length - from;
  intake.needed = needed;
}

/** Bytes of a part that is too long, which name its object. */
const startLimit = 64 * 1024;

const isLong = ({ from, to }: Part): boolean => to - from > frameLimit;

/** The end of what is kept of a part. */
const startEnd = (part: Part): number => (isLong(part) ? part.from + startLimit : part.to);

/** `object` is the beginning of the object. */
function longFrame(resource: Resource, object: ByteSpan, message: string): Frame {
  const raw = decodeStart(kinds[resource], object);
  const { lost } = unreadable(resource, raw, endedEarly());
  return { kind: 'bad', message, value: null, lost: { ...lost, labels: null }, cut: false };
}

function badFrame(resource: Resource, error: unknown, cut: boolean): Frame {
  if (!(error instanceof WrongType)) throw error;
  const [message, value] = [`Expected ${error.expected}`, valueText(error.value)];
  return { kind: 'bad', message, value, lost: guessLost(resource, ''), cut };
}

const endedEarly = () => new WrongType('', 'more: the answer ended early', undefined);

function listFraming({ resource, previousPod }: DecodeContext): Framing {
  let listMeta: Raw = {};
  let typeMeta: Raw = {};
  /** Bytes of the list that have not been read; null before the list begins. */
  let left: number | null = null;
  return {
    partAt(whole, at) {
      if (left === null) {
        const envelope = readEnvelope(whole);
        if (envelope === null) return { tag: 0, from: at, to: whole.length + 1 };
        left = envelope.raw.to - envelope.raw.from;
        ({ typeMeta } = envelope);
        return { tag: 0, from: at, to: envelope.raw.from };
      }
      // Behind the list, only the rest of its envelope follows.
      if (left === 0) return { tag: 0, from: at, to: whole.length };
      const least = Math.min(left, headLimit);
      if (whole.length - at < least) return { tag: 0, from: at, to: at + least };
      const part = readPart(whole, at, left);
      if (startEnd(part) > whole.length) return part;
      left -= part.to - at;
      if (left < 0) throw new WrongType('', 'a length', left + part.to - at);
      return part;
    },
    read(message, tag, at) {
      if (tag === 0 && !isOf(resource, typeMeta, 'List')) return otherFrame;
      if (tag === tagOf(1)) listMeta = decode('ListMeta', message);
      if (tag !== tagOf(2)) return null;
      return { kind: 'object', type: 'added', ...readObject(resource, message, at, previousPod) };
    },
    readLong: (message) => longFrame(resource, message, 'Item too long'),
    end(failure) {
      if (failure !== null || left !== 0) return badFrame(resource, failure ?? endedEarly(), true);
      const page = pageFrame({ ...typeMeta, metadata: listMeta }, resource);
      return page ?? badFrame(resource, new WrongType('', 'a list', undefined), false);
    },
  };
}

/** The most bytes of a tag with the number or length behind it. */
const headLimit = 15;

/** The field that begins here, with a value of a length up to `limit`. */
function readPart(whole: Buffer, at: number, limit: number) {
  const cursor = { bytes: whole, at };
  const tag = readTag(cursor, whole.length);
  const isLong = (tag & 7) === lengthType;
  const length = isLong ? readInt64(cursor, whole.length) : 0;
  if (length < 0 || length > limit) throw new WrongType('', 'a length', length);
  const from = cursor.at;
  if (!isLong) skip(cursor, tag, whole.length);
  return { tag, from, to: cursor.at + length };
}

/** The most bytes of an envelope before the list: it has a kind and a version. */
const envelopeLimit = 1024;

/** The field `raw` in the envelope, and the kind before it; null if more bytes are needed. */
function readEnvelope(whole: Buffer): { readonly raw: Part; readonly typeMeta: Raw } | null {
  const prefix = Math.min(whole.length, magic.length);
  if (magic.compare(whole, 0, prefix, 0, prefix) !== 0) throw noPrefix(whole, 0, prefix);
  let at = magic.length;
  let typeMeta: Raw = {};
  try {
    while (at < whole.length) {
      const part = readPart(whole, at, Infinity); // a list may have any length
      if (part.tag === tagOf(2)) return { raw: part, typeMeta };
      if (part.tag === tagOf(1) && part.to <= whole.length) {
        typeMeta = decode('TypeMeta', { bytes: whole, at: part.from, end: part.to });
      }
      at = part.to;
    }
  } catch (error) {
    if (!(error instanceof WrongType) || whole.length - at >= headLimit) throw error;
  }
  if (at > envelopeLimit) throw new WrongType('', 'a length', at);
  return null;
}

const noPrefix = (bytes: Buffer, from: number, to: number): WrongType =>
  new WrongType('', 'the prefix of protobuf', bytes.toString('latin1', from, to));

/** The bytes of the length before each frame. */
const frameHead = 4;

/** A larger length is no length. */
const mostFrame = 256 * 1024 * 1024;

function watchFraming(context: DecodeContext): Framing {
  return {
    partAt(whole, at) {
      const from = at + frameHead;
      if (whole.length < from) return { tag: 0, from, to: from };
      const length = whole.readUInt32BE(at);
      if (length > mostFrame) throw new WrongType('', 'a length', length);
      return { tag: 0, from, to: from + length };
    },
    read: (message, _tag, at) => readFrame(message, context, at),
    readLong(message) {
      const event: { object?: { raw?: ByteSpan } } = decodeStart('WatchEvent', startOf(message));
      return longFrame(context.resource, startOf(event.object?.raw ?? noBytes), 'Event too long');
    },
    end: (failure, rest) =>
      failure === null && rest === 0
        ? null
        : badFrame(context.resource, failure ?? endedEarly(), true),
  };
}

function readFrame(frame: ByteSpan, { resource, previousPod }: DecodeContext, at: number): Frame {
  try {
    const plain = hasPrefix(frame) ? unwrap(frame).message : frame;
    const event: { type?: string; object?: { raw?: ByteSpan } } = decode('WatchEvent', plain);
    const { typeMeta, message } = unwrap(event.object?.raw ?? noBytes);
    if (event.type === 'BOOKMARK') return bookmarkFrame(decode('AnyObject', message));
    if (event.type === 'ERROR') {
      return { kind: 'status', status: readStatus(decode('Status', message), 0) };
    }
    const type = eventTypes.get(event.type);
    if (type === undefined) throw new WrongType('type', 'a type of event', event.type ?? '');
    const kind = kindOf(typeMeta);
    if (kind === '' || !isOf(resource, typeMeta)) {
      throw new WrongType('kind', 'the kind that is watched', kind);
    }
    return { kind: 'object', type, ...readObject(resource, message, at, previousPod) };
  } catch (error) {
    return badFrame(resource, error, false);
  }
}

const noBytes: ByteSpan = { bytes: noBuffer, at: 0, end: 0 };

function unwrap(range: ByteSpan) {
  const { bytes, at, end } = range;
  const from = Math.min(at + magic.length, end);
  if (!hasPrefix(range)) throw noPrefix(bytes, at, from);
  const { typeMeta = {}, raw }: { typeMeta?: Raw; raw?: ByteSpan } = decode('Unknown', {
    bytes,
    at: from,
    end,
  });
  return { typeMeta, message: raw ?? noBytes };
}

const hasPrefix = ({ bytes, at, end }: ByteSpan): boolean =>
  end - at >= magic.length && bytes.readUInt32BE(at) === magic.readUInt32BE(0);

/** What follows an envelope, whose end may be missing. */
function startOf(range: ByteSpan): ByteSpan {
  if (!hasPrefix(range)) return range;
  const unknown = { ...range, at: range.at + magic.length };
  const { raw = noBytes }: { raw?: ByteSpan } = decodeStart('Unknown', unknown);
  return raw;
}

/** The fields before the first that cannot be read. */
function decodeStart(name: string, { bytes, at, end }: ByteSpan): Raw {
  const raw: Raw = {};
  try {
    readMessage(name, { bytes, at }, end, raw);
  } catch (error) {
    if (!(error instanceof WrongType)) throw error;
  }
  return raw;
}

function decode(name: string, { bytes, at, end }: ByteSpan): Raw {
  const raw: Raw = {};
  readMessage(name, { bytes, at }, end, raw);
  return raw;
}

/**
 * Decodes an object that arrived `at`, in Unix seconds, by way of the plain objects that its JSON
 * would have. No value of the object refers to the bytes. Never throws for content. The version is
 * '' if it is absent or cannot be decoded.
 */
export function readObject<R extends Resource>(
  resource: R,
  { bytes, at: from, end }: ByteSpan,
  at: number,
  previousPod?: PreviousPod,
): { readonly projection: Projection<R>; readonly version: string } {
  const raw: Raw = {};
  try {
    readMessage(kinds[resource], { bytes, at: from }, end, raw);
  } catch (error) {
    if (!(error instanceof WrongType)) throw error;
    const problem = unreadable(resource, raw, error);
    // Labels behind the error would be missing.
    const lost = { ...problem.lost, ...(error.field.startsWith('metadata') && { labels: null }) };
    return { projection: { problem: { ...problem, lost } }, version: versionOf(raw) };
  }
  const known = { previousPod, bytes: isOutput(resource) ? end - from : null };
  return { projection: project(resource, raw, at, known), version: versionOf(raw) };
}
