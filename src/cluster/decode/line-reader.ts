// Cuts a stream of bytes into lines of text.
//
// A file may be plain or gzip, UTF-8 or UTF-16, and end anywhere. The reader keeps no more than a
// chunk and a line. Only `\n` ends a line: other separators, such as U+2028, may be content.

import { createGunzip } from 'node:zlib';

export type Bytes = AsyncIterable<Uint8Array>;

/** Longer lines, documents and items are skipped: 64 MiB. */
export const textLimit = 64 * 1024 * 1024;

/** From this many bytes on, data that inflates to more than a multiple of its size is refused. */
const inflation = { from: 16 * 1024 * 1024, most: 200 };

/** From this many bytes on, compressed data is refused whose lines have fewer on average. */
const density = { from: 4 * 1024 * 1024, least: 8 };

const newline = 0x0a;

/** How the compressed data ended, if not well. `message` is fixed, `detail` is zlib's own. */
export type OnDamage = (message: string, detail: string | null) => void;

/** As UTF-8 without byte order mark; onDamage comes after what could be inflated. */
export async function* plainBytes(source: Bytes, onDamage: OnDamage): AsyncGenerator<Uint8Array> {
  const inflated = withHead(source, 2, (head, whole) =>
    head[0] === 0x1f && head[1] === 0x8b ? inflate(whole, onDamage) : whole,
  );
  yield* withHead(inflated, 3, (head, whole) => {
    if (head[0] === 0xff && head[1] === 0xfe) return recode(whole, 'utf-16le');
    if (head[0] === 0xfe && head[1] === 0xff) return recode(whole, 'utf-16be');
    const isMarked = head[0] === 0xef && head[1] === 0xbb && head[2] === 0xbf;
    return isMarked ? recode(whole, 'utf-8') : whole;
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

/** A TextDecoder drops the byte order mark. */
async function* recode(source: Bytes, encoding: string): AsyncGenerator<Uint8Array> {
  const decoder = new TextDecoder(encoding);
  for await (const chunk of source) yield Buffer.from(decoder.decode(chunk, { stream: true }));
  yield Buffer.from(decoder.decode());
}

/** Without the iterator of the stream, which would drop inflated data when an error occurs. */
async function* inflate(source: Bytes, onDamage: OnDamage): AsyncGenerator<Uint8Array> {
  const gunzip = createGunzip({ chunkSize: 64 * 1024 });
  const inflated: Buffer[] = [];
  let failure: NodeJS.ErrnoException | null = null;
  let [packed, plain, lines] = [0, 0, 0];
  gunzip.on('data', (piece: Buffer) => {
    plain += piece.length;
    lines += newlinesIn(piece);
    const fault = inflationFault(packed, plain, lines);
    if (fault === null) inflated.push(piece);
    else gunzip.destroy(new Error(fault));
  });
  gunzip.on('error', (error) => (failure = error));
  const closed = new Promise<void>((resolve) => gunzip.once('close', resolve));
  try {
    for await (const chunk of source) {
      packed += chunk.length;
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

function inflationFault(packed: number, plain: number, lines: number): string | null {
  if (plain > Math.max(inflation.from, packed * inflation.most)) {
    return `more than ${inflation.most} times its size`;
  }
  const isDense = plain > density.from && lines * density.least > plain;
  return isDense ? `lines of fewer than ${density.least} bytes` : null;
}

/** Lines of fewer bytes are short to `indexOf`, and this many of them are counted byte by byte. */
const short = { bytes: 64, most: 1000 };

/** Whether lines have fewer than 8 bytes on average, as no writer of objects writes them. */
export function areLinesShort(bytes: Uint8Array): boolean {
  let [lines, left, start] = [0, short.most, 0];
  for (let end = bytes.indexOf(newline); end >= 0; end = bytes.indexOf(newline, start)) {
    lines++;
    if (end - start < short.bytes && left-- === 0) {
      return newlinesIn(bytes) * density.least > bytes.length;
    }
    start = end + 1;
  }
  return lines * density.least > bytes.length;
}

/** `indexOf` costs more than the bytes of a short line, and `for of` five times as much. */
function newlinesIn(bytes: Uint8Array): number {
  let count = 0;
  let at = bytes.length;
  while (at-- > 0) if (bytes[at] === newline) count++;
  return count;
}

export interface Line {
  /** From 1. */
  readonly number: number;
  /** Without the newline. Of a line that is too long, only its first 4096 bytes. */
  readonly text: string;
  /** Its length in the file, without the newline. */
  readonly bytes: number;
  readonly tooLong: boolean;
  /** Whether a newline ends it: the last line of a file that is still being written has none. */
  readonly ended: boolean;
}

const keptLength = 4096;

/** Lines of a batch. */
const mostLines = 4096;

/** A file may consist of millions. */
const blankLine = (number: number): Line => ({
  number,
  text: '',
  bytes: 0,
  tooLong: false,
  ended: true,
});

/** The lines of UTF-8 text that each chunk completes, a few thousand at a time. */
export async function* lineBatches(source: Bytes, limit = textLimit): AsyncGenerator<Line[]> {
  let parts: Uint8Array[] = []; // of the line that is not complete
  let bytes = 0;
  let number = 1;
  const take = (part: Uint8Array) => {
    bytes += part.length;
    parts.push(part);
    if (bytes > limit) parts = [Buffer.concat(parts).subarray(0, keptLength)];
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
      if (start === end && bytes === 0) lines.push(blankLine(number++));
      else {
        take(chunk.subarray(start, end));
        lines.push(line(true));
      }
      start = end + 1;
      if (lines.length >= mostLines) yield lines.splice(0);
    }
    if (start < chunk.length) take(chunk.subarray(start));
    if (lines.length > 0) yield lines;
  }
  if (bytes > 0) yield [line(false)];
}
