// Cuts JSON text into pieces that are small enough to parse: documents and the items of lists.
//
// `kubectl get pods -A -o json` of a large cluster is longer than a string may be (512 MiB), so a
// list is never parsed whole. A scanner of brackets, strings and newlines cuts out the elements of
// a document's `items`, and each is parsed alone. So a list that ends early, or has a broken item,
// is readable except there. The rest of the document (apiVersion, kind, metadata) is its envelope.
// In invalid JSON, a string ends with its line, and text between documents is skipped by lines.

import type { Bytes } from './line-reader.ts';
import { textLimit } from './line-reader.ts';

/** A piece of a file that may hold several documents, each an object or a list of objects. */
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

/** How text is written: how documents and items are cut out of it and parsed. */
export interface Format {
  readonly name: 'JSON' | 'YAML';
  /** isDamaged is asked at the end: whether the source has ended early, whatever it looks like. */
  pieces(source: Bytes, isDamaged: () => boolean): AsyncGenerator<Piece[]>;
  parse(text: string): Parsed;
  guess(text: string): Guess;
}

/** JSON documents that may follow each other. */
export const jsonFormat: Format = {
  name: 'JSON',
  pieces: (source) => jsonPieces(source),
  parse: parseJson,
  guess: guessJson,
};

/**
 * Cuts JSON text into documents and items and yields all that a chunk completes. Documents may
 * follow each other; a document that is an array is a list without envelope (`{}`).
 */
export async function* jsonPieces(source: Bytes, limit = textLimit): AsyncGenerator<Piece[]> {
  const scan: Scan = {
    limit,
    pieces: [],
    chunk: new Uint8Array(0),
    at: 0,
    line: 1,
    place: 'outside',
    parts: [],
    captured: 0,
    from: -1,
    start: 1,
  };
  const scanner = scanDocuments(scan);
  scanner.next();
  for await (const chunk of source) {
    scanner.next(chunk);
    if (scan.pieces.length > 0) yield scan.pieces.splice(0);
  }
  if (scan.place === 'stray') emit(scan, 'stray');
  else if (scan.place === 'inside') emit(scan, 'unfinished', scan.line);
  if (scan.pieces.length > 0) yield scan.pieces;
}

/** What the scanner has read, and what it captures: a document, an item or stray text. */
interface Scan {
  readonly limit: number;
  readonly pieces: Piece[];
  chunk: Uint8Array;
  /** The index in the chunk of the next byte. */
  at: number;
  line: number;
  /** Between documents, in text that belongs to none, or in a document. */
  place: 'outside' | 'stray' | 'inside';
  /** The current capture: earlier chunks, where it begins in this one (-1: none), its line. */
  parts: Uint8Array[];
  captured: number;
  from: number;
  start: number;
}

/** A part of the scanner: waits for chunks. */
type Scanner<T = void> = Generator<undefined, T, Uint8Array>;

const newline = 0x0a;
const quote = 0x22;
const comma = 0x2c;
const colon = 0x3a;
const backslash = 0x5c;
const openBracket = 0x5b;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;
/** It separates the documents of a JSON text sequence. */
const recordSeparator = 0x1e;

const isSpace = (byte: number | undefined): boolean =>
  byte === 0x20 || byte === newline || byte === 0x0d || byte === 0x09;

function* scanDocuments(scan: Scan): Scanner {
  for (;;) {
    scan.place = 'outside';
    const byte = yield* nextVisible(scan);
    scan.place = 'inside';
    if (byte === openBrace) yield* scanDocument(scan);
    else if (byte === openBracket) {
      scan.pieces.push({ type: 'head', line: scan.line, text: '{}' });
      scan.at++;
      yield* scanItems(scan);
      scan.pieces.push({ type: 'tail', line: scan.line, text: '{}' });
    } else {
      scan.place = 'stray';
      yield* scanStray(scan);
    }
  }
}

/** Passes over space and commas, up to the next byte. */
function* nextVisible(scan: Scan): Scanner<number> {
  for (;;) {
    if (scan.at >= scan.chunk.length) yield* nextChunk(scan);
    const byte = scan.chunk[scan.at] ?? 0;
    if (byte === newline) scan.line++;
    if (!isSpace(byte) && byte !== comma && byte !== recordSeparator) return byte;
    scan.at++;
  }
}

function* scanStray(scan: Scan): Scanner {
  begin(scan);
  for (let end = -1; end < 0;) {
    end = scan.chunk.indexOf(newline, scan.at);
    scan.at = end < 0 ? scan.chunk.length : end;
    if (end < 0) yield* nextChunk(scan);
  }
  emit(scan, 'stray');
}

/** A document, of whose fields only the list `items` matters. */
function* scanDocument(scan: Scan): Scanner {
  begin(scan);
  scan.at++;
  const { start } = scan;
  let isList = false;
  /** The name of the current field, and whether its value is next. */
  let name = '';
  let isValue = false;
  for (;;) {
    if (scan.at >= scan.chunk.length) yield* nextChunk(scan);
    const byte = scan.chunk[scan.at++];
    if (byte === newline) scan.line++;
    else if (byte === colon) isValue = true;
    else if (byte === comma) isValue = false;
    else if (byte === quote && !isValue) name = yield* scanName(scan);
    else if (byte === openBracket && isValue && name === 'items') {
      yield* scanList(scan);
      scan.start = start;
      isList = true;
    } else if (byte === quote || byte === openBracket || byte === openBrace) {
      yield* skipValue(scan, byte);
    } else if (byte === closeBracket || byte === closeBrace) {
      emit(scan, isList ? 'tail' : 'document');
      return;
    }
  }
}

/** The name of a field, with its escapes, as far as it may be one that is looked for. */
function* scanName(scan: Scan): Scanner<string> {
  let name = '';
  let escaped = false;
  for (;;) {
    if (scan.at >= scan.chunk.length) yield* nextChunk(scan);
    const byte = scan.chunk[scan.at++] ?? 0;
    if (byte === newline) scan.line++;
    if (byte === newline || (byte === quote && !escaped)) return name;
    escaped = !escaped && byte === backslash;
    if (name.length < 16) name += String.fromCharCode(byte);
  }
}

/** The items of a document, whose capture goes on behind them. */
function* scanList(scan: Scan): Scanner {
  capture(scan);
  const envelope = scan.parts;
  const text = `${Buffer.concat(envelope).toString()}]}`;
  scan.pieces.push({ type: 'head', line: scan.start, text });
  reset(scan);
  yield* scanItems(scan);
  scan.parts = envelope;
  scan.captured = envelope.reduce((sum, part) => sum + part.length, 0);
  scan.from = scan.at - 1;
}

/** The items up to the bracket that ends their list. */
function* scanItems(scan: Scan): Scanner {
  for (;;) {
    const byte = yield* nextVisible(scan);
    if (byte === closeBracket) break;
    begin(scan);
    if (byte === quote || byte === openBracket || byte === openBrace) {
      scan.at++;
      yield* skipValue(scan, byte);
    } else yield* skipScalar(scan);
    emit(scan, 'item');
  }
  scan.at++;
}

/** An item that is a number, true, false, null or garbage. */
function* skipScalar(scan: Scan): Scanner {
  for (;;) {
    if (scan.at >= scan.chunk.length) yield* nextChunk(scan);
    const byte = scan.chunk[scan.at];
    if (byte === comma || byte === closeBracket || isSpace(byte)) return;
    scan.at++;
  }
}

/** Skips the rest of a string, object or list that begins with this byte. */
function* skipValue(scan: Scan, first: number): Scanner {
  let inString = first === quote;
  let depth = inString ? 0 : 1;
  let escaped = false;
  for (;;) {
    const { chunk } = scan;
    let { at, line } = scan;
    while (at < chunk.length && (inString || depth > 0)) {
      const byte = chunk[at++];
      if (byte === newline) line++;
      if (inString) {
        if (byte === newline || (byte === quote && !escaped)) inString = false;
        escaped = inString && !escaped && byte === backslash;
      } else if (byte === quote) inString = true;
      else if (byte === openBrace || byte === openBracket) depth++;
      else if (byte === closeBrace || byte === closeBracket) depth--;
    }
    scan.at = at;
    scan.line = line;
    if (!inString && depth === 0) return;
    yield* nextChunk(scan);
  }
}

/** Waits for a chunk with bytes. */
function* nextChunk(scan: Scan): Scanner {
  capture(scan);
  do scan.chunk = yield;
  while (scan.chunk.length === 0);
  scan.at = 0;
  if (scan.from >= 0) scan.from = 0;
}

// --- captures ---

function begin(scan: Scan): void {
  scan.from = scan.at;
  scan.start = scan.line;
}

/** Captures the bytes of this chunk up to the next one. */
function capture(scan: Scan): void {
  if (scan.from < 0) return;
  const part = scan.chunk.subarray(scan.from, scan.at);
  scan.captured += part.length;
  if (scan.captured > scan.limit) scan.parts = [];
  else if (part.length > 0) scan.parts.push(part);
  scan.from = scan.at;
}

/** Ends the capture and emits it. */
function emit(scan: Scan, type: Piece['type'], line = scan.start): void {
  capture(scan);
  const tooLong = scan.captured > scan.limit;
  const text = Buffer.concat(scan.parts).toString();
  scan.pieces.push({ type: tooLong && type !== 'unfinished' ? 'tooLong' : type, line, text });
  reset(scan);
}

function reset(scan: Scan): void {
  scan.parts = [];
  scan.captured = 0;
  scan.from = -1;
}

// --- parsing ---

function parseJson(text: string): Parsed {
  try {
    return { value: JSON.parse(text) as unknown };
  } catch (error) {
    return { fault: String(error), line: 0 };
  }
}

function guessJson(text: string): Guess {
  // Every writer puts the kind first or orders fields by name, which comes to the same here.
  const kind = /"kind"\s*:\s*"(\w+)"/.exec(text.slice(0, 4096))?.[1] ?? null;
  return { kind, namespace: null, name: null };
}
