// The lock of a folder: one recorder writes to it. It is that of an SQLite database, which the
// kernel releases when the process ends, also by SIGKILL. So no process number is compared, which
// is 1 for every container.

import { join } from 'node:path';

import { createDatabaseFile } from './files.ts';

export type FolderLock = ReturnType<typeof lockFolder>;

/** SQLite of Node. An import would fail in an old Node before that gets a message. */
export const sqlite = () => process.getBuiltinModule('node:sqlite');

/** Locks a folder. Throws an Error for people if another process has locked it. */
export function lockFolder(path: string) {
  const name = join(path, 'lock');
  createDatabaseFile(name);
  const { DatabaseSync } = sqlite();
  const database = new DatabaseSync(name);
  try {
    database.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    if (!isBusy(error)) throw error;
    throw new Error(`${path}: Another process records to this folder`, { cause: error });
  }
  return { release: () => database.close() };
}

/** SQLITE_BUSY. */
const isBusy = (error: unknown): boolean => (error as { errcode?: number }).errcode === 5;
