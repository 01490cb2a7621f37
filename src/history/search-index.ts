// The search index of a history: a database in its folder, filled from the notes of the segments.
// Those who search bring it up to date, so that the recorder does nothing for it. It is a copy: if
// it is missing, damaged or of another version, it is filled again. If it cannot be written, it is
// kept in memory. Rows of removed segments are removed, unless they are open. So are the oldest
// rows, those of lag first, if the database has more than its part of the bytes of the history.

import { rmSync } from 'node:fs';
import { join } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';

import { openFindingKey } from '../audit/finding/catalogue.ts';
import type { ReportedIncident } from '../audit/incident/report.ts';
import { isFinding } from '../audit/finding/saved-finding.ts';
import { isReported } from '../audit/incident/saved-incidents.ts';
import { parseJson } from '../cluster/decode/json-text.ts';
import { type Form, isFields, isNumber, orNull } from '../model/collections.ts';
import { createDatabaseFile, errorText, type HistoryFiles, openFolder } from './files.ts';
import {
  isOpenFinding,
  type HistoryNote,
  type LagInterval,
  type OpenFinding,
  type PlacedNote,
  readNotes,
} from './notes.ts';
import { sqlite } from './lock.ts';
import type { OnLoss } from './reader.ts';
import { indexLimit, listSegments, type Segment } from './segments.ts';

/** The version of the tables. */
const version = 3;

/** The most rows of each table; the oldest are removed first. */
const mostRows = 100_000;

/** The most rows about damage. */
const mostLosses = 1000;

/** Its bytes in a small history. */
const leastBytes = 1024 * 1024;

const tables = `
  CREATE TABLE position (segment INTEGER, frame INTEGER, size REAL);
  INSERT INTO position VALUES (0, 0, 0);
  CREATE TABLE finding (name TEXT, opened REAL, resolved REAL, segment INTEGER, json TEXT,
    PRIMARY KEY (name, opened));
  CREATE INDEX finding_resolved ON finding (resolved);
  CREATE TABLE incident (name TEXT PRIMARY KEY, opened REAL, resolved REAL, segment INTEGER,
    json TEXT);
  CREATE INDEX incident_resolved ON incident (resolved);
  CREATE TABLE lag (opened REAL PRIMARY KEY, segment INTEGER, json TEXT);
  CREATE TABLE loss (segment INTEGER, text TEXT, PRIMARY KEY (segment, text));
  PRAGMA user_version = ${String(version)};
`;

/** A finding of the history. Only its beginning is known of some: then fields are absent. */
export interface IndexedFinding extends OpenFinding {
  /** Of one whose end was not recorded: when it was seen to be over. `null`: open at the end. */
  readonly resolvedAt: number | null;
}

export interface SearchIndex {
  /** Those that were open at some time from `from` to `to`, the oldest first. */
  readonly findings: (from: number, to: number) => IndexedFinding[];
  readonly incidents: (from: number, to: number) => ReportedIncident[];
  /** The intervals that begin from `from` to `to`. */
  readonly lag: (from: number, to: number) => (LagInterval & { readonly at: number })[];
  readonly close: () => void;
}

/**
 * Opens the index of a history and brings it up to date. `onLoss` is called with what is damaged in
 * the notes of its segments, also if they were read before: their incidents are still missing.
 */
export async function openIndex(
  path: string,
  onLoss: OnLoss = () => undefined,
): Promise<SearchIndex> {
  const files = openFolder(path);
  const name = join(path, 'index.sqlite');
  for (const place of [name, name, ':memory:']) {
    let database: DatabaseSync | null = null;
    try {
      database = openDatabase(place);
      for (const [name, text] of await update(database, files)) onLoss(name, text);
      return searchIn(database);
    } catch (error) {
      database?.close();
      if (place === ':memory:') throw error;
      // A damaged database; a locked one stays.
      if (isDamaged(error)) rmSync(name, { force: true });
    }
  }
  throw new Error('Unreachable');
}

/** SQLITE_CORRUPT, SQLITE_NOTADB and SQLITE_ERROR, such as for a missing table. */
const isDamaged = (error: unknown): boolean =>
  [11, 26, 1].includes((error as { errcode?: number }).errcode ?? 0);

function openDatabase(place: string): DatabaseSync {
  if (place !== ':memory:') createDatabaseFile(place);
  const database = new (sqlite().DatabaseSync)(place, { timeout: 2000 });
  try {
    // After a loss of power it may be damaged, and is filled again.
    database.exec('PRAGMA synchronous = OFF');
    // A new file gets smaller when rows are removed.
    database.exec('PRAGMA auto_vacuum = FULL');
    const { user_version: found } = database.prepare('PRAGMA user_version').get() ?? {};
    if (found !== version || schemaOf(database) !== ownSchema()) clear(database);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

function clear(database: DatabaseSync): void {
  const drops = ['position', 'finding', 'incident', 'lag', 'loss'].map(
    (it) => `DROP TABLE IF EXISTS ${it};`,
  );
  database.exec(`BEGIN IMMEDIATE; ${drops.join(' ')} ${tables} COMMIT`);
}

/** What the tables are, and whether there are views or triggers, which could take forever. */
const schemaOf = (database: DatabaseSync): string =>
  JSON.stringify(
    database.prepare('SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name').all(),
  );

function ownSchema(): string {
  const database = new (sqlite().DatabaseSync)(':memory:');
  database.exec(tables);
  const schema = schemaOf(database);
  database.close();
  return schema;
}

/** Reads the notes that are not in the database. Returns what is damaged, by segment. */
async function update(
  database: DatabaseSync,
  files: HistoryFiles,
): Promise<readonly Parameters<OnLoss>[]> {
  const segments = await listSegments(files);
  const newest = segments.at(-1)?.number ?? 0;
  const known = positionOf(database);
  // Another history has taken the place of the one that was read.
  if (known.segment > newest) clear(database);
  const from = known.segment > newest ? { segment: 0, frame: 0 } : known;
  for (const segment of segments) {
    if (segment.number < from.segment) continue;
    const first = segment.number === from.segment ? from.frame : 0;
    const lose = (text: string): void => noteLoss(database, segment.number, text);
    write(database, await notesFrom(files, segment, first, lose), segment.number, first);
    removeOld(database, segments);
  }
  return lossesIn(database, segments);
}

function noteLoss(database: DatabaseSync, segment: number, text: string): void {
  if (rowsIn(database, 'loss') >= mostLosses) return;
  database.prepare('INSERT OR IGNORE INTO loss VALUES (?, ?)').run(segment, text);
}

const lossesIn = (database: DatabaseSync, segments: readonly Segment[]): Parameters<OnLoss>[] =>
  segments.flatMap(({ name, number }) => {
    const rows = database.prepare('SELECT text FROM loss WHERE segment = ?').all(number);
    return rows.map(({ text }): Parameters<OnLoss> => {
      return [name, `${String(text)}: incidents may be missing`];
    });
  });

interface Position {
  readonly segment: number;
  readonly frame: number;
}

const positionOf = (database: DatabaseSync): Position =>
  database.prepare('SELECT segment, frame FROM position').get() as unknown as Position;

/** The notes of a segment; none if it cannot be read. */
async function notesFrom(
  files: HistoryFiles,
  segment: Segment,
  first: number,
  lose: (text: string) => void,
): Promise<readonly PlacedNote[]> {
  const notes: PlacedNote[] = [];
  try {
    for await (const note of readNotes(files, segment, first, lose)) notes.push(note);
    return notes;
  } catch (error) {
    // The recorder may remove a segment while it is read.
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') lose(errorText(error));
    return [];
  }
}

/** The notes of a segment are one transaction, so that none is read twice or left out. */
function write(
  database: DatabaseSync,
  notes: readonly PlacedNote[],
  number: number,
  first: number,
): void {
  const last = notes.at(-1);
  if (last === undefined) return;
  database.exec('BEGIN IMMEDIATE');
  try {
    // Another process may have written these notes, and later ones, since they were read.
    const { segment: at, frame } = positionOf(database);
    if (at > number || (at === number && frame > first)) {
      database.exec('ROLLBACK');
      return;
    }
    const apply = createWriter(database, number);
    for (const { note } of notes) apply(note);
    const move = database.prepare('UPDATE position SET segment = ?, frame = ?');
    move.run(number, last.frame + 1);
    database.exec('COMMIT');
  } catch (error) {
    database.exec('ROLLBACK');
    throw error;
  }
}

/** Writes notes to the tables. */
function createWriter(database: DatabaseSync, segment: number): (note: HistoryNote) => void {
  const insert = (table: string, or: string) =>
    database.prepare(`INSERT OR ${or} INTO ${table} VALUES (?, ?, ?, ${String(segment)}, ?)`);
  const put = { finding: insert('finding', 'REPLACE'), incident: insert('incident', 'REPLACE') };
  const find = insert('finding', 'IGNORE');
  const putLag = database.prepare(`INSERT OR REPLACE INTO lag VALUES (?, ${String(segment)}, ?)`);
  const ends = ['finding', 'incident'].map((table) =>
    database.prepare(
      `UPDATE ${table} SET resolved = ?, segment = ${String(segment)}
       WHERE resolved IS NULL AND name NOT IN (SELECT value FROM json_each(?))`,
    ),
  );
  const remove = database.prepare('DELETE FROM incident WHERE name = ? AND resolved IS NULL');
  const putIncident = (it: ReportedIncident): void => {
    put.incident.run(it.id, it.openedAt, it.resolvedAt, JSON.stringify(it));
  };
  const limit = database.prepare('UPDATE position SET size = ?');
  return (note) => {
    if (note.note === 'open') {
      const { findings, incidents, at, size } = note;
      limit.run(size);
      const names = [findings.map(openFindingKey), incidents.map(({ id }) => id)];
      // What is no longer open has ended while nothing was recorded, or its note is lost.
      const ended = note.isPartial === true ? [] : ends;
      for (const [index, end] of ended.entries()) end.run(at, JSON.stringify(names[index]));
      for (const it of findings) {
        find.run(openFindingKey(it), it.openedAt, null, JSON.stringify(it));
      }
      for (const it of incidents) putIncident(it);
    } else if (note.note === 'incident') putIncident(note.incident);
    else if (note.note === 'merged') remove.run(note.id);
    else if (note.note === 'lag') putLag.run(note.at, JSON.stringify(note.interval));
    else {
      const { finding } = note;
      const { openedAt, resolvedAt } = finding;
      put.finding.run(openFindingKey(finding), openedAt, resolvedAt, JSON.stringify(finding));
    }
  };
}

/** Which rows may be removed: what is open stays. */
const removable = {
  finding: 'resolved IS NOT NULL',
  incident: 'resolved IS NOT NULL',
  lag: 'TRUE',
};

function removeOld(database: DatabaseSync, segments: readonly Segment[]): void {
  const oldest = segments[0]?.number ?? 0;
  database.prepare('DELETE FROM loss WHERE segment < ?').run(oldest);
  for (const [table, condition] of Object.entries(removable)) {
    database.prepare(`DELETE FROM ${table} WHERE segment < ? AND ${condition}`).run(oldest);
    removeOldest(database, table, rowsIn(database, table) - mostRows);
  }
  const size = numberOf(database, 'SELECT size FROM position');
  const most = Math.max(leastBytes, indexLimit(size));
  // Lag can be measured again from the segments.
  for (const names of [['lag'], ['finding', 'incident']]) {
    while (bytesOf(database) > most) {
      const removed = names.map((table) =>
        removeOldest(database, table, Math.ceil(rowsIn(database, table) / 8)),
      );
      if (Math.max(...removed) === 0) break;
    }
  }
}

/** Removes the oldest rows, and returns their number. */
function removeOldest(database: DatabaseSync, table: string, count: number): number {
  if (count <= 0) return 0;
  const condition = removable[table as keyof typeof removable];
  const remove = `DELETE FROM ${table} WHERE rowid IN
    (SELECT rowid FROM ${table} WHERE ${condition} ORDER BY opened LIMIT ?)`;
  return Number(database.prepare(remove).run(count).changes);
}

const numberOf = (database: DatabaseSync, query: string): number =>
  Number(Object.values(database.prepare(query).get() ?? {})[0]);

const rowsIn = (database: DatabaseSync, table: string): number =>
  numberOf(database, `SELECT count(*) FROM ${table}`);

const bytesOf = (database: DatabaseSync): number =>
  (numberOf(database, 'PRAGMA page_count') - numberOf(database, 'PRAGMA freelist_count')) *
  numberOf(database, 'PRAGMA page_size');

interface Row {
  readonly opened: number;
  readonly resolved: number | null;
  readonly json: string;
}

/** The object of a row with its end; `null` if another program has written it. */
function valueOf({ json, resolved }: Row, form: Form): object | null {
  try {
    if (!orNull(isNumber)(resolved)) return null;
    const value: unknown = parseJson(json);
    const all = isFields(value) ? { ...value, resolvedAt: resolved } : value;
    return form(all) ? (all as object) : null;
  } catch {
    return null;
  }
}

function searchIn(database: DatabaseSync): SearchIndex {
  const openIn =
    <T extends object>(table: string, form: Form) =>
    (from: number, to: number): T[] => {
      const rows = database
        .prepare(
          `SELECT opened, resolved, json FROM ${table}
           WHERE opened <= ? AND (resolved IS NULL OR resolved >= ?) ORDER BY opened, name`,
        )
        .all(to, from) as unknown as Row[];
      return rows.flatMap((row) => (valueOf(row, form) ?? []) as T | []);
    };
  return {
    findings: openIn('finding', (value) => isFinding(value) || isOpenFinding(value)),
    incidents: openIn('incident', isReported),
    lag: (from, to) =>
      (
        database
          .prepare('SELECT opened, json FROM lag WHERE opened BETWEEN ? AND ? ORDER BY opened')
          .all(from, to) as unknown as Row[]
      ).map(({ opened: at, json }) => ({ at, ...(JSON.parse(json) as LagInterval) })),
    close: () => database.close(),
  };
}
