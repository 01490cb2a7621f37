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
  const scan = newScan(limit);
  for await (const chunk of source) {
    scan.from = scan.mode === 'outside' || scan.mode === 'list' ? -1 : 0;
    for (let index = 0; index < chunk.length;) index = steps[scan.mode](scan, chunk, index);
    if (scan.from >= 0) capture(scan, chunk.subarray(scan.from));
    if (scan.pieces.length > 0) yield scan.pieces.splice(0);
  }
  if (scan.mode === 'stray') emit(scan, 'stray', scan.start);
  else if (scan.mode !== 'outside') emit(scan, 'unfinished', scan.line);
  if (scan.pieces.length > 0) yield scan.pieces;
}

/** Where the scanner is. What is captured are the bytes of a document, item or stray text. */
interface Scan {
  readonly limit: number;
  readonly pieces: Piece[];
  mode: 'outside' | 'stray' | 'document' | 'list' | 'item' | 'scalar';
  line: number;
  /** Open brackets, and how many of them are open between the items of the current list. */
  depth: number;
  floor: number;
  inString: boolean;
  escaped: boolean;
  /** The name of the document's current field, and whether its value is next. */
  name: string;
  named: boolean;
  /** The document has a list of items. */
  list: boolean;
  /** The current capture: earlier chunks, where it begins in this one (-1: none), its line. */
  parts: Uint8Array[];
  captured: number;
  from: number;
  start: number;
  /** The capture of the document while items are captured, and the line where it begins. */
  envelope: Uint8Array[];
  envelopeStart: number;
}

function newScan(limit: number): Scan {
  return {
    limit,
    pieces: [],
    mode: 'outside',
    line: 1,
    depth: 0,
    floor: 0,
    inString: false,
    escaped: false,
    name: '',
    named: false,
    list: false,
    parts: [],
    captured: 0,
    from: -1,
    start: 1,
    envelope: [],
    envelopeStart: 1,
  };
}

/** Each takes bytes from the index on and returns the index of the first that it did not take. */
const steps: Record<Scan['mode'], (scan: Scan, chunk: Uint8Array, from: number) => number> = {
  outside: stepOutside,
  stray: stepStray,
  document: stepDocument,
  list: stepList,
  item: stepItem,
  scalar: stepScalar,
};

const newline = 0x0a;
const quote = 0x22;
const comma = 0x2c;
const colon = 0x3a;
const backslash = 0x5c;
const openBracket = 0x5b;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;

function stepOutside(scan: Scan, chunk: Uint8Array, from: number): number {
  const byte = chunk[from];
  if (byte === newline) scan.line++;
  // 0x1e separates the documents of a JSON text sequence.
  if (isSpace(byte) || byte === comma || byte === 0x1e) return from + 1;
  if (byte === openBracket) {
    scan.pieces.push({ type: 'head', line: scan.line, text: '{}' });
    scan.mode = 'list';
    scan.depth = scan.floor = 1;
    return from + 1;
  }
  scan.from = from;
  scan.start = scan.line;
  if (byte !== openBrace) {
    scan.mode = 'stray';
    return from;
  }
  scan.mode = 'document';
  scan.depth = 1;
  scan.named = scan.list = false;
  return from + 1;
}

function stepStray(scan: Scan, chunk: Uint8Array, from: number): number {
  const end = chunk.indexOf(newline, from);
  if (end < 0) return chunk.length;
  capture(scan, chunk.subarray(scan.from, end));
  emit(scan, 'stray', scan.start);
  scan.mode = 'outside';
  return end;
}

/** Within a document but outside its items. Only the fields of the document itself matter. */
function stepDocument(scan: Scan, chunk: Uint8Array, from: number): number {
  if (scan.depth > 1) return skipNested(scan, chunk, from, 1);
  const byte = chunk[from] ?? 0;
  if (byte === newline) scan.line++;
  if (scan.inString) return stepString(scan, chunk, from);
  switch (byte) {
    case quote:
      scan.inString = true;
      if (!scan.named) scan.name = '';
      break;
    case colon:
      scan.named = true;
      break;
    case comma:
      scan.named = false;
      break;
    case openBracket:
    case openBrace:
      scan.depth = 2;
      if (byte === openBracket && scan.named && scan.name === 'items') openList(scan, chunk, from);
      break;
    case closeBracket:
    case closeBrace:
      capture(scan, chunk.subarray(scan.from, from + 1));
      emit(scan, scan.list ? 'tail' : 'document', scan.start);
      scan.depth = 0;
      scan.mode = 'outside';
      break;
  }
  return from + 1;
}

/** A byte of a string that is the name or value of one of the document's fields. */
function stepString(scan: Scan, chunk: Uint8Array, from: number): number {
  const byte = chunk[from] ?? 0;
  if (byte === newline || (byte === quote && !scan.escaped)) {
    scan.inString = scan.escaped = false;
    return from + 1;
  }
  scan.escaped = !scan.escaped && byte === backslash;
  // A name with an escape is none that is looked for, and keeps its backslash.
  if (!scan.named && scan.name.length < 16) scan.name += String.fromCharCode(byte);
  return from + 1;
}

/** Puts the capture of the document aside, up to and with the bracket that opens its items. */
function openList(scan: Scan, chunk: Uint8Array, bracket: number): void {
  capture(scan, chunk.subarray(scan.from, bracket + 1));
  const text = `${Buffer.concat(scan.parts).toString()}]}`;
  scan.pieces.push({ type: 'head', line: scan.start, text });
  scan.envelope = scan.parts;
  scan.envelopeStart = scan.start;
  scan.parts = [];
  scan.captured = 0;
  scan.from = -1;
  scan.list = true;
  scan.floor = 2;
  scan.mode = 'list';
}

/** Between two items. */
function stepList(scan: Scan, chunk: Uint8Array, from: number): number {
  const byte = chunk[from];
  if (byte === newline) scan.line++;
  if (isSpace(byte) || byte === comma) return from + 1;
  if (byte === closeBracket) {
    closeList(scan, from);
    return from + 1;
  }
  scan.from = from;
  scan.start = scan.line;
  scan.mode = 'item';
  if (byte === openBrace || byte === openBracket) scan.depth++;
  else if (byte === quote) scan.inString = true;
  else scan.mode = 'scalar';
  return from + 1;
}

function closeList(scan: Scan, bracket: number): void {
  scan.depth--;
  if (scan.depth === 0) {
    scan.pieces.push({ type: 'tail', line: scan.line, text: '{}' });
    scan.mode = 'outside';
    return;
  }
  scan.parts = scan.envelope;
  scan.start = scan.envelopeStart;
  scan.captured = scan.parts.reduce((sum, part) => sum + part.length, 0);
  scan.from = bracket;
  scan.mode = 'document';
}

function stepItem(scan: Scan, chunk: Uint8Array, from: number): number {
  const end = skipNested(scan, chunk, from, scan.floor);
  if (scan.depth <= scan.floor && !scan.inString) closeItem(scan, chunk, end);
  return end;
}

/** An item that is a number, true, false, null or garbage. */
function stepScalar(scan: Scan, chunk: Uint8Array, from: number): number {
  for (let end = from; end < chunk.length; end++) {
    const byte = chunk[end];
    if (byte === comma || byte === closeBracket || isSpace(byte)) {
      closeItem(scan, chunk, end);
      return end;
    }
  }
  return chunk.length;
}

function closeItem(scan: Scan, chunk: Uint8Array, end: number): void {
  capture(scan, chunk.subarray(scan.from, end));
  emit(scan, 'item', scan.start);
  scan.mode = 'list';
}

/**
 * Skips nested values until no more than `floor` brackets are open; returns the index behind the
 * last byte taken.
 */
function skipNested(scan: Scan, chunk: Uint8Array, from: number, floor: number): number {
  let { depth, line, inString, escaped } = scan;
  let index = from;
  while (index < chunk.length && (inString || depth > floor)) {
    const byte = chunk[index++];
    if (byte === newline) line++;
    if (inString) {
      if (byte === newline || (byte === quote && !escaped)) inString = false;
      escaped = inString && !escaped && byte === backslash;
    } else if (byte === quote) inString = true;
    else if (byte === openBrace || byte === openBracket) depth++;
    else if (byte === closeBrace || byte === closeBracket) depth--;
  }
  Object.assign(scan, { depth, line, inString, escaped });
  return index;
}

function capture(scan: Scan, part: Uint8Array): void {
  scan.captured += part.length;
  if (scan.captured > scan.limit) scan.parts = [];
  else if (part.length > 0) scan.parts.push(part);
}

/** Ends the capture and emits it. */
function emit(scan: Scan, type: Piece['type'], line: number): void {
  const tooLong = scan.captured > scan.limit;
  const text = Buffer.concat(scan.parts).toString();
  scan.pieces.push({ type: tooLong && type !== 'unfinished' ? 'tooLong' : type, line, text });
  scan.parts = [];
  scan.captured = 0;
  scan.from = -1;
}

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === newline || byte === 0x0d || byte === 0x09;
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
