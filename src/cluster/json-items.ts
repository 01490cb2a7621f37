// From a stream of bytes to pieces of text that are small enough to parse: lines, and the items of
// Kubernetes lists.
//
// `kubectl get pods -A -o json` of a large cluster is longer than a string may be (512 MiB), so a
// list is never parsed whole. A scanner that knows nothing but brackets, strings and newlines cuts
// the elements of a document's `items` out of it; each is then parsed alone. That also makes a list
// that ends early, or has one broken item, readable as far as it goes. What is left of the document
// without its items (apiVersion, kind, metadata) is the envelope. Two things are assumed of text
// that is no JSON, so that one fault does not swallow the rest: a string ends at the end of its
// line, and text between documents is skipped by lines.
//
// Everything arrives in chunks that end anywhere. Lines are framed by `\n` alone, because other
// separators (U+2028 in a label, say) are content.

import { createGunzip } from 'node:zlib';

export type Bytes = AsyncIterable<Uint8Array>;

/** Longer lines, documents and items are skipped: 64 MiB. */
export const textLimit = 64 * 1024 * 1024;

// --- plain bytes ---

/** How the compressed data ended, if not well. `message` is fixed, `detail` is zlib's own. */
export type OnDamage = (message: string, detail: string | null) => void;

/**
 * The bytes as UTF-8 without byte order mark: inflated if they begin as gzip does, recoded if they
 * begin with the mark of UTF-16, as files from Windows shells do. When compressed data end early or
 * are damaged, what could be inflated is delivered first, and then onDamage is called.
 */
export async function* plainBytes(source: Bytes, onDamage: OnDamage): AsyncGenerator<Uint8Array> {
  const inflated = withHead(source, 2, (head, whole) =>
    head[0] === 0x1f && head[1] === 0x8b ? inflate(whole, onDamage) : whole,
  );
  yield* withHead(inflated, 3, (head, whole) => {
    if (head[0] === 0xff && head[1] === 0xfe) return recode(whole, 'utf-16le');
    if (head[0] === 0xfe && head[1] === 0xff) return recode(whole, 'utf-16be');
    return head[0] === 0xef && head[1] === 0xbb && head[2] === 0xbf ? skip(whole, 3) : whole;
  });
}

/** Looks at the first `length` bytes or more, if there are as many, and goes on as they suggest. */
export async function* withHead<T>(
  source: Bytes,
  length: number,
  choose: (head: Uint8Array, whole: Bytes) => AsyncIterable<T>,
): AsyncGenerator<T> {
  const rest = source[Symbol.asyncIterator]();
  try {
    let head: Uint8Array = new Uint8Array(0);
    while (head.length < length) {
      const next = await rest.next();
      if (next.done === true) break;
      head = head.length === 0 ? next.value : Buffer.concat([head, next.value]);
    }
    yield* choose(head, restored(head, { [Symbol.asyncIterator]: () => rest }));
  } finally {
    await rest.return?.();
  }
}

async function* restored(head: Uint8Array, rest: Bytes): AsyncGenerator<Uint8Array> {
  if (head.length > 0) yield head;
  yield* rest;
}

async function* skip(source: Bytes, count: number): AsyncGenerator<Uint8Array> {
  let left = count;
  for await (const chunk of source) {
    if (left < chunk.length) yield chunk.subarray(left);
    left = Math.max(left - chunk.length, 0);
  }
}

async function* recode(source: Bytes, encoding: string): AsyncGenerator<Uint8Array> {
  const decoder = new TextDecoder(encoding);
  for await (const chunk of source) yield Buffer.from(decoder.decode(chunk, { stream: true }));
  yield Buffer.from(decoder.decode());
}

/**
 * A stream iterator would drop what is inflated but not yet read when an error comes. So the stream
 * is driven by hand: one chunk in, all that it yields out.
 */
async function* inflate(source: Bytes, onDamage: OnDamage): AsyncGenerator<Uint8Array> {
  const gunzip = createGunzip({ chunkSize: 64 * 1024 });
  const inflated: Buffer[] = [];
  let failure: NodeJS.ErrnoException | null = null;
  gunzip.on('data', (piece: Buffer) => inflated.push(piece));
  gunzip.on('error', (error) => (failure = error));
  const closed = new Promise<void>((resolve) => gunzip.once('close', resolve));
  try {
    for await (const chunk of source) {
      const written = new Promise<void>((resolve) => gunzip.write(chunk, () => resolve()));
      await Promise.race([written, closed]); // an error leaves a write without answer
      yield* inflated.splice(0);
      if (gunzip.destroyed) break;
    }
    if (!gunzip.destroyed) gunzip.end();
    await closed;
    yield* inflated.splice(0);
  } finally {
    gunzip.destroy();
  }
  const error = failure as NodeJS.ErrnoException | null;
  if (error === null) return;
  if (error.code === 'Z_BUF_ERROR') onDamage('Unexpected end of gzip data', null);
  else onDamage('Damaged gzip data', error.message);
}

// --- lines ---

export interface Line {
  /** From 1. */
  readonly number: number;
  /** Without the newline. Of a line that is too long, only its first 4096 bytes. */
  readonly text: string;
  /** Its length as it stands in the file, without the newline. */
  readonly bytes: number;
  readonly tooLong: boolean;
  /** Whether a newline ends it: the last line of a file that is still being written has none. */
  readonly ended: boolean;
}

const headLength = 4096;
const newline = 0x0a;

/** Cuts UTF-8 text into lines and yields all that a chunk completes. */
export async function* lineBatches(source: Bytes, limit = textLimit): AsyncGenerator<Line[]> {
  let parts: Uint8Array[] = []; // of the line that is not complete
  let bytes = 0;
  let number = 1;
  const take = (part: Uint8Array) => {
    bytes += part.length;
    parts.push(part);
    if (bytes > limit) parts = [Buffer.concat(parts).subarray(0, headLength)];
  };
  const line = (ended: boolean): Line => {
    const whole = parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts);
    const text = Buffer.from(whole.buffer, whole.byteOffset, whole.byteLength).toString();
    const result = { number, text, bytes, tooLong: bytes > limit, ended };
    parts = [];
    bytes = 0;
    number++;
    return result;
  };
  for await (const chunk of source) {
    const lines: Line[] = [];
    let start = 0;
    for (let end = chunk.indexOf(newline); end >= 0; end = chunk.indexOf(newline, start)) {
      take(chunk.subarray(start, end));
      lines.push(line(true));
      start = end + 1;
    }
    if (start < chunk.length) take(chunk.subarray(start));
    if (lines.length > 0) yield lines;
  }
  if (bytes > 0) yield [line(false)];
}

// --- items ---

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

/** What a byte may mean to a scanner: a quote, an opening or closing bracket, … */
const meanings = new Uint8Array(256);
const [opening, closing] = [1, 2];
meanings[openBrace] = meanings[openBracket] = opening;
meanings[closeBrace] = meanings[closeBracket] = closing;
for (const byte of [quote, backslash, newline]) meanings[byte] = byte;

/**
 * Runs over nested values until no more than `floor` brackets are open; returns the index behind
 * the last byte taken. This is where nearly all bytes pass, hence the two tight loops.
 */
function skipNested(scan: Scan, chunk: Uint8Array, from: number, floor: number): number {
  const { length } = chunk;
  let { depth, line, inString, escaped } = scan;
  let index = from;
  while (index < length && (inString || depth > floor)) {
    let meaning = meanings[chunk[index++] ?? 0] ?? 0;
    if (inString) {
      while (!escaped && meaning < quote && meaning !== newline && index < length) {
        meaning = meanings[chunk[index++] ?? 0] ?? 0;
      }
      if (meaning === newline || (meaning === quote && !escaped)) inString = false;
      escaped = inString && !escaped && meaning === backslash;
    } else {
      while (meaning === 0 && index < length) meaning = meanings[chunk[index++] ?? 0] ?? 0;
      if (meaning === quote) inString = true;
      else if (meaning === opening) depth++;
      else if (meaning === closing) depth--;
    }
    if (meaning === newline) line++;
  }
  scan.depth = depth;
  scan.line = line;
  scan.inString = inString;
  scan.escaped = escaped;
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
