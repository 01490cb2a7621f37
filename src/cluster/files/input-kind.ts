// Finds out whether a file is a recording, a dump or a report, by its beginning, so that every
// command takes recordings and dumps by one option, and names what it does not take.

import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';

import { plainBytes } from '../decode/line-reader.ts';
import { isArchive } from './archive.ts';
import { formatOf } from './dump.ts';
import { kwokResources } from './kwok.ts';

/** A report is one of this program, in a format of `audit -o`. */
export type InputKind = 'recording' | 'dump' | 'report' | 'sarif' | 'junit';

const headBytes = 64 * 1024;

/** As the recorder writes lines; kinds of API objects begin with a capital letter. */
const recordedLine = /^\{"kind":"[a-z-]+"/m;

/** The beginnings of reports. A recording has `kind` before `format`. */
const reportForms = [
  ['report', /^\s*\{\s*"format":\s*\d+,/],
  ['report', /^format: \d+\nkind: /],
  ['sarif', /^\s*\{\s*"\$schema":\s*"[^"]*sarif/],
  ['junit', /^\s*(?:<\?xml[^>]*>\s*)?<testsuites?[\s>]/],
] as const;

/** `null`: the file is none of them. `-` is stdin. Rejects if the file cannot be opened. */
export async function inputKind(path: string): Promise<InputKind | null> {
  if (path !== '-' && ((await stat(path)).isDirectory() || isArchive(path))) return 'dump';
  const pieces: Uint8Array[] = [];
  const head = path === '-' ? headOfStdin() : createReadStream(path, { end: headBytes });
  for await (const piece of plainBytes(head, () => undefined)) pieces.push(piece);
  const bytes = Buffer.concat(pieces);
  const text = bytes.toString();
  const report = reportForms.find(([, form]) => form.test(text));
  if (report !== undefined) return report[0];
  if (/\.ya?ml(?:\.gz)?$/.test(path)) {
    return (await kwokResources(createReadStream(path))) === null ? 'dump' : 'recording';
  }
  if (bytes.includes(0)) return null;
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
