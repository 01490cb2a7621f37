// The files of a tar archive, plain or gzip, such as a must-gather that someone has packed. Nothing
// is unpacked to the disk, so the names of entries lead nowhere; links are skipped.

import { createReadStream } from 'node:fs';
import { Readable } from 'node:stream';

import { extract } from 'tar-stream';

import { type Bytes, plainBytes } from '../decode/line-reader.ts';

/** An archive with more entries or more inflated bytes is not read to its end. */
export const archiveLimits = { entries: 500_000, bytes: 64 * 1024 ** 3 };

export const isArchive = (path: string): boolean => /\.(?:tar|tar\.gz|tgz)$/i.test(path);

export interface ArchivedFile {
  readonly name: string;
  /** Must be read, or left, before the next file. */
  readonly bytes: Bytes;
}

/** The regular files of an archive. `onDamage` gets why the rest of it is not read. */
export async function* archivedFiles(
  path: string,
  onDamage: (message: string, value: string | null) => void,
  limits = archiveLimits,
): AsyncGenerator<ArchivedFile> {
  let [entries, bytes] = [0, 0];
  const archive = extract();
  async function* inflated(): AsyncGenerator<Uint8Array> {
    for await (const chunk of plainBytes(createReadStream(path), onDamage)) {
      bytes += chunk.length;
      if (bytes > limits.bytes) throw new Error('Archive too large');
      yield chunk;
    }
  }
  const source = Readable.from(inflated());
  source.on('error', (error) => archive.destroy(error));
  source.pipe(archive);
  try {
    for await (const entry of archive) {
      if (++entries > limits.entries) throw new Error('Too many entries in the archive');
      const chunks = entry[Symbol.asyncIterator]();
      // A reader that has seen enough must not end the archive, and the archive reports its errors.
      const end = { done: true, value: undefined } as const;
      const rest = { next: () => chunks.next().catch(() => end) } as AsyncIterator<Uint8Array>;
      const { type, name } = entry.header;
      if (type === 'file') yield { name, bytes: { [Symbol.asyncIterator]: () => rest } };
      entry.resume();
    }
  } catch (error) {
    onDamage('Cannot read the rest of the archive', error instanceof Error ? error.message : null);
  } finally {
    source.destroy();
  }
}
