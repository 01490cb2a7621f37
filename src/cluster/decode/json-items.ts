// Cuts JSON text into pieces that are small enough to parse: documents and the items of lists.
//
// `kubectl get pods -A -o json` of a large cluster is longer than a string may be (512 MiB). So a
// scanner cuts out the elements of a document's `items`, and each is parsed alone; a list that ends
// early, or has a broken item, is readable except there. The rest of the document is its envelope.
// In invalid JSON, a string ends with its line, and text between documents is skipped by lines.

import { parseJson } from './json-text.ts';
import { type Bytes, textLimit } from './line-reader.ts';

/** A piece of a file of documents, each an object or a list of objects. */
export interface Piece {
  /**
   * - document: an object that has no list `items`
   * - head: a list begins; text is its envelope as far as it is known, and may lack the kind
   * - item: an element of the list
   * - tail: the list is complete; text is its envelope
   * - stray: text that belongs to no document
   * - tooLong: a document or item longer than textLimit, without its text
   * - unfinished: the file ends within a document; text is the beginning of what is cut off
   */
  readonly type: 'document' | 'head' | 'item' | 'tail' | 'stray' | 'tooLong' | 'unfinished';
  /** Where it begins, from 1; of an unfinished one, where the file ends. */
  readonly line: number;
  readonly text: string;
}

/** What a piece holds, or why it cannot be parsed and in which of its lines, from 0. */
export type Parsed =
  { readonly value: unknown } | { readonly fault: string; readonly line: number };

/** What text that cannot be parsed seems to be. */
export interface Guess {
  readonly kind: string | null;
  readonly namespace: string | null;
  readonly name: string | null;
}

export interface Format {
  readonly name: 'JSON' | 'YAML';
  /** isDamaged is asked at the end: whether the source has ended early, whatever it looks like. */
  pieces(source: Bytes, isDamaged: () => boolean): AsyncGenerator<Piece[]>;
  parse(text: string): Parsed;
  guess(text: string): Guess;
}

export const jsonFormat: Format = {
  name: 'JSON',
  pieces: (source) => jsonPieces(source),
  parse(text) {
    try {
      return { value: parseJson(text) };
    } catch (error) {
      return { fault: String(error), line: 0 };
    }
  },
  guess(text) {
    // Every writer puts the kind first or orders fields by name, which comes to the same here.
    const kind = /"kind"\s*:\s*"(\w+)"/.exec(text.slice(0, 4096))?.[1] ?? null;
    return { kind, namespace: null, name: null };
  },
};

/** What each chunk completes. A document that is an array is a list with the envelope `{}`. */
export async function* jsonPieces(source: Bytes, limit = textLimit): AsyncGenerator<Piece[]> {
  const scan = createScan(limit);
  for await (const chunk of source) {
    if (scan.capture.from > 0) scan.capture.from = 0;
    for (let at = 0; at < chunk.length;) {
      const isWithin = scan.inString || scan.depth > scan.floor;
      at = isWithin ? skipNested(scan, chunk, at) : readBetween(scan, chunk, at);
    }
    keep(scan, chunk, chunk.length);
    if (scan.pieces.length > 0) yield scan.pieces.splice(0);
  }
  if (scan.depth > 0) emit(scan, 'unfinished', scan.line);
  else if (scan.capture.from >= 0) emit(scan, 'stray');
  if (scan.pieces.length > 0) yield scan.pieces;
}

type Scan = ReturnType<typeof createScan>;

const createScan = (limit: number) => ({
  limit,
  pieces: [] as Piece[],
  line: 1,
  /** Open brackets, and how many of them are around a value: none around a document. */
  depth: 0,
  floor: 0 as 0 | 1 | 2,
  inString: false,
  /** The next chunk begins with the second character of an escape. */
  escaped: false,
  /** The document has a list of items. */
  isList: false,
  /** The current value, and the document around its items. */
  capture: noCapture(1),
  envelope: noCapture(1),
});

/** The bytes of earlier chunks, and where the capture begins in this one (-1: there is none). */
const noCapture = (line: number) => ({ parts: [] as Uint8Array[], length: 0, from: -1, line });

const [newline, quote, comma, backslash] = [0x0a, 0x22, 0x2c, 0x5c];
const [openBracket, closeBracket, openBrace, recordSeparator] = [0x5b, 0x5d, 0x7b, 0x1e];

const isSpace = (byte: number): boolean =>
  byte === 0x20 || byte === newline || byte === 0x0d || byte === 0x09;

/** Takes a byte between values, or of a value without quotes and brackets: garbage or a scalar. */
function readBetween(scan: Scan, chunk: Uint8Array, at: number): number {
  const { floor } = scan;
  const byte = chunk[at] ?? 0;
  if (scan.capture.from >= 0) {
    const isEndOfItem = byte === comma || byte === closeBracket || isSpace(byte);
    if (floor === 0 ? byte !== newline : !isEndOfItem) return at + 1;
    keep(scan, chunk, at);
    emit(scan, floor === 0 ? 'stray' : 'item');
    return at;
  }
  if (byte === newline) scan.line++;
  if (isSpace(byte) || byte === comma || byte === recordSeparator) return at + 1;
  if (byte === closeBracket && floor > 0) endList(scan, at);
  else if (byte === openBracket && floor === 0) {
    scan.pieces.push({ type: 'head', line: scan.line, text: '{}' });
    scan.depth = scan.floor = 1;
  } else {
    scan.capture = { ...noCapture(scan.line), from: at };
    if (floor === 0) scan.isList = false;
    if (byte === openBrace || byte === openBracket) scan.depth++;
    else scan.inString = byte === quote && floor > 0;
  }
  return at + 1;
}

/** The bytes that mean something in nested values, where nearly all bytes are. */
const isMeaningful = new Uint8Array(256);
for (const byte of Buffer.from('\n"\\{}[]')) isMeaningful[byte] = 1;

/** Takes bytes of a string, object or list up to its end, or to the items of a document. */
function skipNested(scan: Scan, chunk: Uint8Array, from: number): number {
  const { floor } = scan;
  let { depth, line, inString } = scan;
  const { length } = chunk;
  let at = scan.escaped && chunk[from] !== newline ? from + 1 : from;
  while (inString || depth > floor) {
    while (at < length && isMeaningful[chunk[at] ?? 0] === 0) at++;
    if (at >= length) break;
    const byte = chunk[at++];
    if (byte === quote) inString = !inString;
    else if (byte === newline) {
      line++;
      inString = false;
    } else if (inString) {
      if (byte === backslash && chunk[at] !== newline) at++;
    } else if (byte === openBrace || byte === openBracket) {
      depth++;
      const isListOfDocument = byte === openBracket && depth === 2 && floor === 0;
      if (isListOfDocument && beginItems(scan, chunk, at)) break;
    } else if (byte !== backslash) depth--;
  }
  scan.escaped = at > chunk.length;
  scan.depth = depth;
  scan.line = line;
  scan.inString = inString;
  if (!inString && depth === floor) {
    keep(scan, chunk, at);
    emit(scan, floor > 0 ? 'item' : scan.isList ? 'tail' : 'document');
  }
  return at;
}

/** Bytes before the list of items that have the name of its field, with some space. */
const fieldLength = 64;

/** The latest bytes of the capture. A document may have lists by the thousand, so only these. */
function latestText({ parts, from }: Scan['capture'], chunk: Uint8Array, at: number): string {
  const latest = [...parts.slice(-fieldLength), chunk.subarray(from, at)];
  return Buffer.concat(latest.map((part) => part.subarray(-fieldLength))).toString();
}

/** Begins the list of items if the field of the document whose list begins has this name. */
function beginItems(scan: Scan, chunk: Uint8Array, at: number): boolean {
  if (!/[{,]\s*"items"\s*:\s*\[$/.test(latestText(scan.capture, chunk, at))) return false;
  keep(scan, chunk, at);
  if (scan.capture.length > scan.limit) return false;
  const text = Buffer.concat(scan.capture.parts).toString();
  scan.pieces.push({ type: 'head', line: scan.capture.line, text: `${text}]}` });
  scan.envelope = scan.capture;
  scan.capture = noCapture(scan.line);
  scan.floor = 2;
  return true;
}

/** Ends the list of items, whose document goes on behind it unless it is an array. */
function endList(scan: Scan, at: number): void {
  if (scan.floor === 1) scan.pieces.push({ type: 'tail', line: scan.line, text: '{}' });
  else {
    scan.capture = { ...scan.envelope, from: at };
    scan.isList = true;
  }
  scan.depth--;
  scan.floor = 0;
}

/** Captures the bytes of this chunk before `to`, of a value that is not too long. */
function keep({ capture, limit }: Scan, chunk: Uint8Array, to: number): void {
  if (capture.from < 0) return;
  const part = chunk.subarray(capture.from, to);
  capture.length += part.length;
  if (capture.length > limit) capture.parts = [];
  else if (part.length > 0) capture.parts.push(part);
  capture.from = to;
}

function emit(scan: Scan, type: Piece['type'], line = scan.capture.line): void {
  const { parts, length } = scan.capture;
  const tooLong = length > scan.limit && type !== 'unfinished';
  const text = Buffer.concat(parts).toString();
  scan.pieces.push({ type: tooLong ? 'tooLong' : type, line, text });
  scan.capture = noCapture(scan.line);
}
