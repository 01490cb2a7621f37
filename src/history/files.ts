// The files of a history: the few operations that the recorder and the reader need. Tests replace
// them by files that fail, or that lose what was not synced.

import { closeSync, constants, fstatSync, lstatSync, openSync, readSync, rmSync } from 'node:fs';
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** What an error of the system says. */
export const errorText = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);

export interface StoredFile {
  readonly name: string;
  readonly bytes: number;
}

/** A file that only grows. Each operation rejects with the error of the system. */
export interface AppendFile {
  append(bytes: Uint8Array): Promise<void>;
  /** Resolves when all that was appended survives a loss of power. */
  sync(): Promise<void>;
  close(): Promise<void>;
}

/** The folder of one history. Names have no slashes. */
export interface HistoryFiles {
  list(): Promise<readonly StoredFile[]>;
  /** The first `most` bytes, or all; rejects if these are more than a segment has. */
  read(name: string, most?: number): Promise<Uint8Array>;
  /** Creates a file, which must not exist. */
  create(name: string): Promise<AppendFile>;
  /** Renames a file; resolves when the new name survives a loss of power. */
  rename(from: string, to: string): Promise<void>;
  remove(name: string): Promise<void>;
}

/** Creates a file of a database. Throws for a link: SQLite would change a file elsewhere. */
export function createDatabaseFile(path: string): void {
  const { O_RDWR, O_CREAT, O_NOFOLLOW } = constants;
  closeSync(openSync(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0o600));
  removeForeignJournal(`${path}-journal`);
}

/** The end of a journal that names a further file (SQLite, pager.c `readSuperJournal`). */
const superJournalEnd = Buffer.from('d9d505f920a163d7', 'hex');

/**
 * Removes a journal that names a further file, which SQLite of Node 22 would delete. Such journals
 * are of transactions in several databases, which this program has none of. SQLite would wait for a
 * pipe without end, so a pipe or a link is removed, too. A folder there is an error.
 */
function removeForeignJournal(path: string): void {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return;
  if (!found.isFile()) {
    rmSync(path);
    return;
  }
  const file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const end = Buffer.alloc(superJournalEnd.length);
    readSync(file, end, 0, end.length, Math.max(0, fstatSync(file).size - end.length));
    if (end.equals(superJournalEnd)) rmSync(path);
  } finally {
    closeSync(file);
  }
}

/** A checkpoint of some million pods. Others may have written to the folder, also a sparse file. */
const mostBytes = 512 * 1024 * 1024;

async function readPart(path: string, most: number | undefined): Promise<Uint8Array> {
  const file = await open(path);
  try {
    const { size } = await file.stat();
    if (most !== undefined) {
      const bytes = new Uint8Array(Math.min(most, size));
      const { bytesRead } = await file.read(bytes);
      return bytes.subarray(0, bytesRead);
    }
    if (size <= mostBytes) return await file.readFile();
    throw new Error(`It has ${size} bytes, but segments have at most ${mostBytes}`);
  } finally {
    await file.close();
  }
}

/** The folder at a path. Its files are 0600. */
export function openFolder(path: string): HistoryFiles {
  const syncFolder = async (): Promise<void> => {
    const folder = await open(path, constants.O_RDONLY);
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  };
  return {
    async list() {
      const found: StoredFile[] = [];
      for (const entry of await readdir(path, { withFileTypes: true })) {
        if (!entry.isFile()) continue;
        // The recorder may remove a file while another process lists them.
        const known = await stat(join(path, entry.name)).catch(() => null);
        if (known !== null) found.push({ name: entry.name, bytes: known.size });
      }
      return found;
    },
    read: (name, most) => readPart(join(path, name), most),
    async create(name) {
      const file = await open(join(path, name), 'wx', 0o600);
      return {
        append: (bytes) => file.appendFile(bytes),
        sync: () => file.datasync(),
        close: () => file.close(),
      };
    },
    async rename(from, to) {
      await rename(join(path, from), join(path, to));
      await syncFolder();
    },
    remove: (name) => rm(join(path, name), { force: true }),
  };
}

/**
 * Creates the folder of a history if it does not exist; then others may not read it. The mode of a
 * folder that exists stays: the root of a volume often belongs to another user.
 */
export async function prepareFolder(path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 });
}
