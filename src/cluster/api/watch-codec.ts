// The bodies of the API server's answers, cut into frames and decoded: the events of a watch, and
// the items of a list page (k8s.io/apimachinery@v0.36.3 pkg/apis/meta/v1/watch.go, types.go).
// Requests prefer protobuf, which costs a third of JSON. JSON comes from proxies that support
// nothing else, and where raw objects are wanted. Frames are decoded when they are read.

import { isOutput, type WatchEvent } from '../../model/objects.ts';
import type { Codec, DecodeContext, Frame } from '../decode/frame.ts';
import {
  bookmarkFrame,
  frameLimit,
  isOf,
  kindOf,
  otherFrame,
  pageFrame,
  readStatus,
  versionOf,
} from '../decode/frame.ts';
import { eventTypes, isFields } from '../decode/json-fields.ts';
import { jsonPieces, type Piece } from '../decode/json-items.ts';
import { jsonBytes, project } from '../decode/json-objects.ts';
import { parseJson } from '../decode/json-text.ts';
import { type Line, lineBatches } from '../decode/line-reader.ts';
import { guessLost, valueText } from '../decode/problem.ts';
import { protobufCodec } from '../decode/protobuf/codec.ts';
import type { ApiAnswer } from './transport/connection.ts';

const jsonCodec: Codec = {
  mediaType: 'application/json',
  async *watch(body, reading) {
    for await (const lines of lineBatches(body, frameLimit))
      yield decodeAll(lines, reading, watchFrame);
  },
  async *list(body, reading) {
    for await (const pieces of waitForKind(jsonPieces(body, frameLimit)))
      yield decodeAll(pieces, reading, listFrame);
  },
  status(body, code) {
    const value = parse(Buffer.from(body).toString());
    return isFields(value) ? readStatus(value, code) : null;
  },
};

/** The first is preferred. */
const codecs: readonly Codec[] = [protobufCodec, jsonCodec];

/** The Accept header; `raw`: whether frames carry raw objects. */
export function acceptOf(verb: 'list' | 'watch', raw: boolean): string {
  const suffix = verb === 'watch' ? ';stream=watch' : '';
  const accepted = raw ? [jsonCodec] : codecs;
  return accepted.map(({ mediaType }) => `${mediaType}${suffix}`).join(', ');
}

/** The codec for a Content-Type; null: none reads it. */
export function codecOf(contentType: string | undefined): Codec | null {
  const mediaType = contentType?.split(';')[0]?.trim().toLowerCase();
  return codecs.find((codec) => codec.mediaType === mediaType) ?? null;
}

/** The Status of a refusal, or what else it says; at most 64 KiB of it are read. */
export async function statusOf({ status, headers, body, expiredAt }: ApiAnswer) {
  let content = Buffer.alloc(0);
  for await (const chunk of body) {
    content = Buffer.concat([content, chunk]);
    if (content.length > 64 * 1024) break;
  }
  // Proxies answer in other languages.
  const { retryAfter, ...rest } = codecOf(headers['content-type'])?.status(content, status) ?? {
    reason: '',
    message: content.toString('utf8', 0, 200),
    retryAfter: null,
    causes: [],
  };
  const after = Number(headers['retry-after'] ?? Number.NaN);
  return {
    ...rest,
    code: status,
    retryAfter: after > 0 ? after : retryAfter,
    expiredAt: expiredAt ?? null,
  };
}

function* decodeAll<T>(
  parts: readonly T[],
  reading: DecodeContext,
  decode: (part: T, reading: DecodeContext, at: number) => Frame | null,
): Generator<Frame> {
  const at = reading.now();
  for (const part of parts) {
    const frame = decode(part, reading, at);
    if (frame !== null) yield frame;
  }
}

// --- JSON ---

/**
 * Items wait until something names their kind, or their list is complete; its end comes first then,
 * and without a version it is no list. API servers write the kind before the items. Of what has
 * more than 16 Mi characters before, items are taken, and the end of the list decides.
 */
async function* waitForKind(source: AsyncIterable<Piece[]>): AsyncGenerator<Piece[]> {
  const waiting: Piece[] = [];
  let length = 0;
  let isKnown = false;
  for await (const pieces of source) {
    if (isKnown) {
      yield pieces;
      continue;
    }
    waiting.push(...pieces);
    for (const { text } of pieces) length += text.length;
    isKnown =
      length > frameLimit ||
      pieces.some(({ type, text }) => type !== 'tail' && kindOf(parse(text)) !== '');
    const tail = pieces.find(({ type }) => type === 'tail');
    if (tail !== undefined && !isKnown) {
      const list = parse(tail.text);
      const isList = kindOf(list) !== '' || versionOf(list) !== '';
      const items = isList ? waiting.filter(({ type }) => type !== 'tail') : [];
      waiting.splice(0, waiting.length, tail, ...items);
      isKnown = true;
    }
    if (isKnown) yield waiting.splice(0);
  }
  yield waiting.filter(({ type }) => type !== 'item');
}

function watchFrame(line: Line, reading: DecodeContext, at: number): Frame | null {
  if (line.tooLong) return badFrame(reading, 'Event too long', line.text, !line.ended);
  const text = line.text.trim();
  if (text === '') return null;
  const event = parseObject(text, reading);
  if (!isFields(event)) return badFrame(reading, 'Expected a watch event', text, !line.ended);
  const { type: name, object } = event;
  if (name === 'BOOKMARK') return bookmarkFrame(object);
  if (name === 'ERROR') return { kind: 'status', status: readStatus(object, 0) };
  const type = eventTypes.get(name);
  if (type === undefined || (isFields(object) && !isOf(reading.resource, object))) {
    return badFrame(reading, 'Expected a watch event', text);
  }
  return objectFrame(reading, type, object, at);
}

function listFrame({ type, text }: Piece, reading: DecodeContext, at: number): Frame | null {
  switch (type) {
    case 'head': {
      const list = parse(text);
      return isFields(list) && !isOf(reading.resource, list, 'List') ? otherFrame : null;
    }
    case 'item': {
      const object = parseObject(text, reading);
      if (object === undefined) return badFrame(reading, 'Expected an item', text);
      if (isFields(object) && !isOf(reading.resource, object)) return otherFrame;
      return objectFrame(reading, 'added', object, at);
    }
    case 'tooLong':
      return badFrame(reading, 'Item too long', text);
    case 'unfinished':
      return badFrame(reading, 'Unexpected end of list', null, true);
    default:
      // A list without items may have `"items":null`.
      return pageFrame(parse(text), reading.resource) ?? badFrame(reading, 'Expected a list', text);
  }
}

const managedFields = '"managedFields":[{';

/** Parses an object with no managedFields, up to half of its text, unless it is wanted as it is. */
function parseObject(text: string, { raw }: DecodeContext): unknown {
  const at = raw ? -1 : text.indexOf(managedFields);
  const end = at < 0 ? -1 : text.indexOf(']', at);
  if (end < 0) return parse(text);
  // Where this is not the end of the list, but in a string or an inner list, the rest is no JSON.
  return parse(text.slice(0, at + managedFields.length - 1) + text.slice(end)) ?? parse(text);
}

/** The value of a JSON text; undefined if it is none. */
export function parse(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

function badFrame(
  reading: DecodeContext,
  message: string,
  text: string | null,
  cut = false,
): Frame {
  const lost = guessLost(reading.resource, text ?? '');
  return { kind: 'bad', message, value: text === null ? null : valueText(text), lost, cut };
}

function objectFrame(
  { resource, previousPod, raw: wanted }: DecodeContext,
  type: WatchEvent['type'],
  raw: unknown,
  at: number,
): Frame {
  const bytes = isOutput(resource) ? jsonBytes(raw) : null;
  const projection = project(resource, raw, at, { previousPod, bytes });
  const version = versionOf(raw);
  return { kind: 'object', type, projection, version, ...(wanted ? { raw } : {}) };
}
