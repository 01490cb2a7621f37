// Files that are in a single-file executable (release/executable-main.ts).

import { basename, dirname } from 'node:path';
import { getRawAsset, isSea } from 'node:sea';
import { Readable } from 'node:stream';

/** The content of a path below that of the executable; `null` if the path is not there. */
export function openEmbedded(path: string): Readable | null {
  if (!isSea() || dirname(path) !== process.execPath) return null;
  return Readable.from([Buffer.from(getRawAsset(basename(path)))]);
}
