// Finds out whether a file is a recording or a dump, by its beginning, so that every command takes
// both by one option.

import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';

import { plainBytes } from '../decode/line-reader.ts';
import { isArchive } from './archive.ts';
import { formatOf } from './dump.ts';
import { kwokResources } from './kwok.ts';

export type InputKind = 'recording' | 'dump';

const headBytes = 64 * 1024;

/** As the recorder writes lines; kinds of API objects begin with a capital letter. */
const recordedLine = /^\{"kind":"[a-z-]+"/m;

/** `null`: the file is neither. `-` is stdin. Rejects if the file cannot be opened. */
export async function inputKind(path: string): Promise<InputKind | null> {
  if (path !== '-' && ((await stat(path)).isDirectory() || isArchive(path))) return 'dump';
  if (/\.ya?ml(?:\.gz)?$/.test(path)) {
    return (await kwokResources(createReadStream(path))) === null ? 'dump' : 'recording';
  }
  const pieces: Uint8Array[] = [];
  const head = path === '-' ? headOfStdin() : createReadStream(path, { end: headBytes });
  for await (const piece of plainBytes(head, () => undefined)) pieces.push(piece);
  const bytes = Buffer.concat(pieces);
  if (bytes.includes(0)) return null;
  const text = bytes.toString();
  if (recordedLine.test(text)) return 'recording';
  return formatOf(path, text) === null ? null : 'dump';
}

/** The first chunk, which the next reader of stdin gets again. */
async function* headOfStdin(): AsyncGenerator<Uint8Array> {
  const { stdin } = process;
  await once(stdin, 'readable');
  const chunk = stdin.read() as Buffer | null;
  if (chunk === null) return;
  stdin.unshift(chunk);
  yield chunk;
}
