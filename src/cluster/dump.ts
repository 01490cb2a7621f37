// A dump: the objects of a cluster in files, as kubectl, must-gather and people write them, all at
// one moment, more or less, and without the order of changes.
//
// A file holds JSON or YAML, whatever its name says, plain or gzip; it may hold several documents,
// and each is an object or a list of objects. Directories are read recursively and in order of
// names; what is in them and is none of the five kinds is counted and else ignored, since a
// must-gather holds everything there is. One fault does not hide the rest: JSON and YAML lists are
// cut into items before they are parsed (see json-items.ts, and yamlPieces below).
//
// A dump holds a resource if it has a list or an object of it: only then does an absent object not
// exist. Where a list is cut off or an item is broken, what is missing is Lost.
//
// YAML is version 1.2, so `yes` and `on` are strings; kubectl writes no such thing. Aliases reach
// only within an item, since items are parsed alone.

import { createReadStream } from 'node:fs';
import { readdir, realpath, stat } from 'node:fs/promises';
import { basename, extname, join } from 'node:path';
import { stdin as processStdin } from 'node:process';

import { parseDocument } from 'yaml';

import { jsonPieces, lineBatches, plainBytes, textLimit, withHead } from './json-items.ts';
import { boundedProblems, countWord, problemAt, valueText } from './problem.ts';
import { jsonBytes, newestTimestamp, objectText, project, resourceOfKind } from './project.ts';

import type { Key, Lost, Resource, WatchEvent } from '../model/objects.ts';
import type { Bytes, Line, Piece } from './json-items.ts';
import type { BoundedProblems, OnProblem, Problem } from './problem.ts';

export type DumpEntry =
  | {
      /** An object; `added` again with another version when a better one is found later. */
      readonly kind: 'object';
      readonly resource: Resource;
      readonly event: WatchEvent;
      readonly source: string;
      readonly line: number;
    }
  | { readonly kind: 'unreadable'; readonly lost: Lost }
  | {
      /** The dump holds this resource. Once for each, before its first object. */
      readonly kind: 'list';
      readonly resource: Resource;
    }
  | DumpEnd;

export interface DumpEnd {
  readonly kind: 'end';
  /** The newest moment that any object tells of, Unix seconds: the dump is no older than this. */
  readonly newest: number | null;
  /** Objects that were there more than once, with every repetition counted. */
  readonly duplicates: number;
  /** Objects of kinds that are not read, by kind. */
  readonly ignored: ReadonlyMap<string, number>;
  /** Problems by message, including those that were not reported any more. */
  readonly problems: ReadonlyMap<string, number>;
}

/**
 * Reads a dump from files, directories and `-` (stdin). Every object has the time 0, for a dump
 * does not say when it was made; the end says the newest moment it tells of.
 *
 * Of an object that is there twice the version with the higher resourceVersion counts, or the later
 * one where these are no decimal numbers. Content never makes it throw: problems are reported, the
 * first 20 of each message. A path that does not exist or cannot be opened throws.
 */
export async function* readDump(
  paths: readonly string[],
  onProblem: OnProblem,
  stdin: Bytes = processStdin,
): AsyncGenerator<DumpEntry> {
  const dump = newDump(onProblem);
  for (const path of paths) {
    if (path === '-') yield* readFile(dump, 'stdin', stdin);
    else if (!(await stat(path)).isDirectory()) {
      yield* readFile(dump, path, createReadStream(path, streamOptions));
    } else yield* readDirectory(dump, path);
  }
  const { newest, duplicates, ignored, problems } = dump;
  yield {
    kind: 'end',
    newest: newest === -Infinity ? null : newest,
    duplicates,
    ignored,
    problems: problems.counts,
  };
}

const streamOptions = { highWaterMark: 256 * 1024 };

interface Dump {
  readonly problems: BoundedProblems;
  readonly ignored: Map<string, number>;
  /** The resources that the dump holds, each with the version of every object so far. */
  readonly versions: Map<Resource, Map<Key, string>>;
  newest: number;
  duplicates: number;
}

function newDump(onProblem: OnProblem): Dump {
  return {
    problems: boundedProblems(onProblem),
    ignored: new Map(),
    versions: new Map(),
    newest: -Infinity,
    duplicates: 0,
  };
}

// --- files ---

const dumpName = /\.(?:json|ya?ml)(?:\.gz)?$/i;

async function* readDirectory(dump: Dump, root: string): AsyncGenerator<DumpEntry> {
  // Symbolic links may lead back: each directory is read once, under whatever name comes first.
  const visited = new Set<string>();
  const pending = [root];
  for (let path = pending.pop(); path !== undefined; path = pending.pop()) {
    try {
      const status = await stat(path);
      if (status.isDirectory()) {
        const real = await realpath(path);
        if (visited.has(real)) continue;
        visited.add(real);
        const names = (await readdir(path)).filter((name) => !name.startsWith('.')).sort();
        for (const name of names.reverse()) pending.push(join(path, name));
      } else if (status.isFile() && (dumpName.test(path) || extname(basename(path)) === '')) {
        yield* readFile(dump, path, createReadStream(path, streamOptions), true);
      }
    } catch (error) {
      if (!isSystemError(error)) throw error;
      dump.problems.report(problemAt(path, null, 'Cannot read', { value: error.code ?? null }));
    }
  }
}

function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && 'syscall' in error;
}

interface File {
  readonly dump: Dump;
  readonly source: string;
  /** It was found in a directory, where files of any other purpose are too. */
  readonly found: boolean;
  format: Format;
  damage: { readonly message: string; readonly value: string | null } | null;
  /** The list whose items are being read. */
  list: List | null;
}

/** A list of objects, of which usually not all is known before its end. */
interface List {
  readonly apiVersion: unknown;
  /** The kind of items that do not say it themselves; null: not known (yet), or of any kind. */
  readonly kind: string | null;
  /** Items that wait for the kind, and how long their texts are. */
  readonly held: { readonly value: Fields; readonly line: number }[];
  heldLength: number;
  /** The resources of the items so far (null: another kind); whether each came in one run. */
  readonly seen: Set<Resource | null>;
  latest: Resource | null;
  grouped: boolean;
}

interface Format {
  readonly name: 'JSON' | 'YAML';
  pieces(source: Bytes, isDamaged: () => boolean): AsyncGenerator<Piece[]>;
  parse(text: string): Parsed;
  /** What a text that cannot be parsed seems to be. */
  guess(text: string): Guess;
}

interface Guess {
  readonly kind: string | null;
  readonly namespace: string | null;
  readonly name: string | null;
}

export type Parsed =
  { readonly value: unknown } | { readonly fault: string; readonly line: number };

type Fields = Readonly<Record<string, unknown>>;

/** Reads one file. One that was found and is neither named like a dump nor looks so is none. */
async function* readFile(
  dump: Dump,
  source: string,
  bytes: Bytes,
  found = false,
): AsyncGenerator<DumpEntry> {
  const file: File = { dump, source, found, format: yamlFormat, damage: null, list: null };
  const plain = plainBytes(bytes, (message, value) => (file.damage = { message, value }));
  const pieces = withHead(plain, headLength, (head, whole) => {
    const name = formatOf(source, Buffer.from(head.subarray(0, headLength)).toString());
    if (name === null && found && !dumpName.test(source)) return nothing();
    file.format = name === 'JSON' ? jsonFormat : yamlFormat;
    return file.format.pieces(whole, () => file.damage !== null);
  });
  let line = 1;
  for await (const batch of pieces) {
    for (const piece of batch) {
      yield* readPiece(file, piece);
      line = piece.line;
    }
  }
  if (file.damage !== null) report(file, line, file.damage.message, file.damage);
}

const headLength = 512;

/** What the beginning of a file looks like; null: neither. */
function formatOf(source: string, head: string): Format['name'] | null {
  const begin = head.trimStart();
  if (/^[[{]/.test(begin) || /\.json(?:\.gz)?$/i.test(source)) return 'JSON';
  if (/^(?:---|#|%YAML|apiVersion:|items:|kind:)/.test(begin)) return 'YAML';
  // Warnings may have got into a pipe before the output.
  return /^[[{]/m.test(begin) ? 'JSON' : null;
}

// eslint-disable-next-line @typescript-eslint/require-await, require-yield -- an empty stream
async function* nothing(): AsyncGenerator<never> {
  return;
}

/** What is no API object. In a file that was found it is none of ours, and only counted. */
function alien(file: File, line: number, message: string, value: string | null): void {
  if (file.found) countWord(file.dump.ignored, 'no kind');
  else report(file, line, message, { value });
}

function report(file: File, line: number, message: string, more?: Partial<Problem>): void {
  file.dump.problems.report(problemAt(file.source, line, message, more));
}

// --- documents and lists ---

function* readPiece(file: File, piece: Piece): Generator<DumpEntry> {
  const { type, line, text } = piece;
  switch (type) {
    case 'document':
    case 'item':
      if (type === 'document') file.list = null;
      yield* readText(file, piece);
      break;
    case 'head':
      file.list = newList(envelopeOf(file, text));
      yield* hold(file.dump, itemResource(file.list));
      break;
    case 'tail':
      yield* closeList(file, envelopeOf(file, text));
      break;
    case 'stray':
      if (text.trim() === '---') break;
      report(file, line, 'Expected JSON', { value: valueText(text.trim()) });
      break;
    case 'tooLong':
      yield* lose(file, line, 'Object too long', text, { value: null });
      break;
    case 'unfinished': {
      const { message, value } = file.damage ?? { message: 'Unexpected end', value: null };
      file.damage = null;
      yield* lose(file, line, message, text, { value, unfinished: true });
      yield* closeList(file, {});
      break;
    }
  }
}

function* readText(file: File, { type, line, text }: Piece): Generator<DumpEntry> {
  const parsed = file.format.parse(text);
  if ('fault' in parsed) {
    const message = `Expected ${file.format.name}`;
    yield* lose(file, line + parsed.line, message, text, { value: valueText(parsed.fault) });
    return;
  }
  const { value } = parsed;
  // A YAML document may be empty, and may be a list without any envelope.
  if (type === 'document' && (value === null || value === undefined)) return;
  const values = Array.isArray(value) ? (value as unknown[]) : [value];
  for (const value of values) yield* readValue(file, value, line, text.length);
}

const heldLimit = 256 * 1024 * 1024;
const nestingLimit = 4;

function* readValue(
  file: File,
  value: unknown,
  line: number,
  length: number,
  nesting = 0,
): Generator<DumpEntry> {
  if (!isFields(value)) {
    alien(file, line, 'Expected an object', valueText(value));
    return;
  }
  const { list } = file;
  const kind = value.kind ?? list?.kind ?? undefined;
  if (kind === undefined && list !== null) {
    list.heldLength += length;
    if (list.heldLength <= heldLimit) list.held.push({ value, line });
  } else if (typeof kind !== 'string') {
    alien(file, line, 'Expected a kind', valueText(kind));
  } else if (kind.endsWith('List') && nesting < nestingLimit) {
    file.list = newList(value);
    yield* hold(file.dump, itemResource(file.list));
    const items = Array.isArray(value.items) ? (value.items as unknown[]) : [];
    for (const item of items) yield* readValue(file, item, line, 0, nesting + 1);
    yield* closeList(file, value);
    file.list = list;
  } else {
    yield* readObject(file, value, line, value.apiVersion ?? list?.apiVersion, kind);
  }
}

function* readObject(
  file: File,
  value: Fields,
  line: number,
  apiVersion: unknown,
  kind: string,
): Generator<DumpEntry> {
  const { dump, source, list } = file;
  const resource = resourceOfKind(apiVersion, kind);
  if (list !== null) noteResource(list, resource);
  if (resource === null) {
    countWord(dump.ignored, kind);
    return;
  }
  yield* hold(dump, resource);
  const measured = resource === 'endpoints' || resource === 'endpointslices';
  const projection = project(resource, value, 0, { bytes: measured ? jsonBytes(value) : null });
  if (projection.problem !== undefined) {
    const { message, ...more } = projection.problem;
    report(file, line, message, more);
    yield { kind: 'unreadable', lost: more.lost };
    return;
  }
  const { object } = projection;
  dump.newest = Math.max(dump.newest, newestTimestamp(object) ?? -Infinity);
  if (!isBest(dump, resource, object.key, object.resourceVersion)) return;
  const event: WatchEvent = { resource, type: 'added', object, at: 0 };
  yield { kind: 'object', resource, event, source, line };
}

/** Whether this is the first or a better version of the object; notes it. */
function isBest(dump: Dump, resource: Resource, key: Key, version: string): boolean {
  const versions = dump.versions.get(resource);
  const known = versions?.get(key);
  if (known !== undefined) {
    dump.duplicates++;
    const decimal = /^\d{1,40}$/.test(version) && /^\d{1,40}$/.test(known);
    if (decimal && BigInt(version) <= BigInt(known)) return false;
  }
  versions?.set(key, version);
  return true;
}

/** Says, once, that the dump holds a resource. */
function* hold(dump: Dump, resource: Resource | null): Generator<DumpEntry> {
  if (resource === null || dump.versions.has(resource)) return;
  dump.versions.set(resource, new Map());
  yield { kind: 'list', resource };
}

function newList(envelope: Fields): List {
  const { apiVersion, kind } = envelope;
  const named = typeof kind === 'string' && kind.endsWith('List') && kind !== 'List';
  return {
    apiVersion: apiVersion ?? undefined,
    kind: named ? kind.slice(0, -'List'.length) : null,
    held: [],
    heldLength: 0,
    seen: new Set(),
    latest: null,
    grouped: true,
  };
}

function itemResource(list: List): Resource | null {
  return list.kind === null ? null : resourceOfKind(list.apiVersion, list.kind);
}

function noteResource(list: List, resource: Resource | null): void {
  if (list.seen.has(resource) && list.latest !== resource) list.grouped = false;
  list.seen.add(resource);
  list.latest = resource;
}

function envelopeOf(file: File, text: string): Fields {
  const parsed = file.format.parse(text);
  return 'value' in parsed && isFields(parsed.value) ? parsed.value : {};
}

/** The list has ended, and so its kind is known, if it has any. */
function* closeList(file: File, envelope: Fields): Generator<DumpEntry> {
  const { list } = file;
  const whole = newList(envelope);
  const resource = itemResource(whole);
  yield* hold(file.dump, resource);
  if (list === null) return;
  const line = list.held[0]?.line ?? 0;
  if (list.held.length > 0 && whole.kind === null) {
    const value = `${list.held.length} objects`;
    alien(file, line, 'Expected a kind of the list or of its items', value);
  }
  if (list.heldLength > heldLimit) {
    const lost = resource === null ? null : anyOf(resource);
    report(file, line, 'Expected the kind of a list before its items', { lost });
    if (lost !== null) yield { kind: 'unreadable', lost };
  }
  for (const { value, line } of whole.kind === null ? [] : list.held) {
    const apiVersion = value.apiVersion ?? whole.apiVersion;
    yield* readObject(file, value, line, apiVersion, whole.kind ?? '');
  }
  file.list = null;
}

// --- what could not be read ---

const anyOf = (resource: Resource): Lost => ({
  resource,
  namespace: null,
  name: null,
  labels: null,
});

/** Reports what cannot be read and says what is lost by it, as far as its text tells. */
function* lose(
  file: File,
  line: number,
  message: string,
  text: string,
  what: { readonly value: string | null; readonly unfinished?: boolean },
): Generator<DumpEntry> {
  const { kind, namespace, name } = file.format.guess(text);
  const own = kind === null ? null : resourceOfKind(undefined, kind.replace(/List$/, ''));
  const lost: Lost[] = [];
  if (own !== null) {
    // A cluster-wide object has no namespace, and a namespace is no certain sign of a name.
    const place = own === 'nodes' ? '' : namespace;
    lost.push({
      resource: own,
      namespace: place,
      name: place === null ? null : name,
      labels: null,
    });
  }
  if (what.unfinished === true || kind === null) {
    for (const resource of behind(file.list, what.unfinished === true)) {
      lost.push(anyOf(resource));
    }
  }
  const [first = null] = lost;
  const object = first === null ? null : objectText(first);
  report(file, line, message, { value: what.value, object, lost: first });
  for (const one of lost) yield { kind: 'unreadable', lost: one };
}

/**
 * The resources that may be behind the latest item of a list. kubectl writes one resource after the
 * other, so if the list looks like that, the latest one, else any of those seen.
 */
function behind(list: List | null, unfinished: boolean): readonly Resource[] {
  if (list === null) return [];
  const named = itemResource(list);
  if (named !== null) return [named];
  const seen = list.grouped || !unfinished ? [list.latest] : [...list.seen];
  return seen.filter((resource) => resource !== null);
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

// --- JSON ---

const jsonFormat: Format = {
  name: 'JSON',
  pieces: (source) => jsonPieces(source),
  parse(text) {
    try {
      return { value: JSON.parse(text) as unknown };
    } catch (error) {
      return { fault: String(error), line: 0 };
    }
  },
  guess(text) {
    // Every writer puts the kind first or orders fields by name, which comes to the same here.
    const kind = /"kind"\s*:\s*"(\w+)"/.exec(text.slice(0, 4096))?.[1] ?? null;
    return { kind, namespace: null, name: null };
  },
};

// --- YAML ---

const yamlFormat: Format = {
  name: 'YAML',
  pieces: yamlPieces,
  parse: parseKnownYaml,
  guess: guessYaml,
};

/** Where the cutter of YAML is. Lines belong to the current document or item. */
interface Cut {
  readonly pieces: Piece[];
  mode: 'document' | 'items' | 'tail';
  lines: string[];
  length: number;
  start: number;
  /** The column of the dashes; -1 before the first item. */
  column: number;
  /** The document without its items, and where it begins. */
  envelope: string[];
  envelopeStart: number;
}

/**
 * Cuts YAML text into documents and the items of their lists and yields all that a chunk completes.
 *
 * No parser is needed to find them: `---` at the beginning of a line is a separator even in the
 * middle of a string, and within the block sequence `items` of a document a line with a dash in the
 * column of the first dash begins an item, since whatever belongs to an item is indented further.
 * A list that does not say its kind before its items and not after them either is cut off; half an
 * item could look like a whole one, so the last one is then not delivered.
 */
export async function* yamlPieces(
  source: Bytes,
  isDamaged: () => boolean = () => false,
): AsyncGenerator<Piece[]> {
  const cut: Cut = {
    pieces: [],
    mode: 'document',
    lines: [],
    length: 0,
    start: 1,
    column: -1,
    envelope: [],
    envelopeStart: 1,
  };
  let end = 1;
  for await (const batch of lineBatches(source)) {
    for (const line of batch) {
      cutLine(cut, line);
      end = line.number;
    }
    if (cut.pieces.length > 0) yield cut.pieces.splice(0);
  }
  closeDocument(cut, end, isDamaged());
  if (cut.pieces.length > 0) yield cut.pieces;
}

const separator = /^(?:---|\.\.\.)(?:\s|$)/;
const itemsForm = /^items:\s*(?:#.*)?$/;
const blankForm = /^\s*(?:#.*)?$/;

function cutLine(cut: Cut, line: Line): void {
  const { number } = line;
  const text = line.text.endsWith('\r') ? line.text.slice(0, -1) : line.text;
  if (separator.test(text)) {
    closeDocument(cut, number, false);
    const rest = text.slice(3);
    if (text.startsWith('-') && !blankForm.test(rest)) {
      cut.start = number;
      addLine(cut, `   ${rest}`);
    }
    return;
  }
  if (cut.mode === 'items' && !blankForm.test(text)) {
    const column = text.search(/[^ ]/);
    const dash = /^-(?:\s|$)/.test(text.slice(column));
    if (cut.column < 0 && dash) cut.column = column;
    if (column === cut.column && dash) {
      closeItem(cut);
      cut.start = number;
    } else if (column <= cut.column || cut.column < 0) {
      closeItem(cut);
      cut.mode = 'tail';
      cut.lines = cut.envelope;
      cut.start = cut.envelopeStart;
    }
  }
  addLine(cut, text);
  if (cut.mode === 'document' && itemsForm.test(text)) {
    cut.pieces.push({ type: 'head', line: cut.start, text: cut.lines.join('\n') });
    cut.envelope = cut.lines;
    cut.envelopeStart = cut.start;
    cut.lines = [];
    cut.mode = 'items';
    cut.column = -1;
  }
}

function addLine(cut: Cut, text: string): void {
  cut.length += text.length + 1;
  if (cut.length <= textLimit) cut.lines.push(text);
  else cut.lines = [];
}

function closeItem(cut: Cut): void {
  // Before the first item there may be blank lines.
  if (cut.column >= 0 && !cut.lines.every((line) => blankForm.test(line))) emit(cut, 'item');
  cut.lines = [];
  cut.length = 0;
}

function closeDocument(cut: Cut, line: number, damaged: boolean): void {
  const hasKind = cut.envelope.some((line) => line.startsWith('kind:'));
  if (cut.mode === 'items' && (damaged || !hasKind)) {
    cut.start = line;
    emit(cut, 'unfinished');
  } else if (cut.mode === 'items') {
    closeItem(cut);
    cut.lines = cut.envelope;
    emit(cut, 'tail');
  } else if (!cut.lines.every((line) => blankForm.test(line) || line.startsWith('%'))) {
    if (damaged) cut.start = line;
    emit(cut, damaged ? 'unfinished' : cut.mode);
  }
  cut.mode = 'document';
  cut.lines = [];
  cut.length = 0;
  cut.envelope = [];
  cut.start = line + 1;
}

function emit(cut: Cut, type: Piece['type']): void {
  const tooLong = cut.length > textLimit;
  const text = cut.lines.join('\n');
  cut.pieces.push({ type: tooLong ? 'tooLong' : type, line: cut.start, text });
}

/** Parses one document, or an item as a sequence of one. */
export function parseYaml(text: string): Parsed {
  try {
    const document = parseDocument(absoluteTimes(text), yamlOptions);
    const [error] = document.errors;
    if (error !== undefined) {
      return { fault: error.message, line: text.slice(0, error.pos[0]).split('\n').length - 1 };
    }
    const value: unknown = document.toJS({ maxAliasCount: 100 });
    // An alias may contain itself; JSON finds out.
    if (text.includes('&')) JSON.stringify(value);
    return { value };
  } catch (error) {
    return { fault: error instanceof Error ? error.message : '', line: 0 };
  }
}

/**
 * As parseYaml, but looks into nothing that is not read: neither into objects of other kinds nor
 * into the greater part of pods and nodes. The parser is slow, and a must-gather holds a lot.
 */
function parseKnownYaml(text: string): Parsed {
  const kind = yamlField(text, 'kind');
  if (kind === null || kind.endsWith('List')) return parseYaml(text);
  const apiVersion = yamlField(text, 'apiVersion') ?? undefined;
  const resource = resourceOfKind(apiVersion, kind);
  if (resource === null) return { value: { apiVersion, kind } };
  if (resource !== 'pods' && resource !== 'nodes') return parseYaml(text);
  const parsed = parseYaml(withoutUnread(text));
  return 'value' in parsed ? parsed : parseYaml(text);
}

/** Fields of pods and nodes that are large and not read. */
const unread = new Set([
  ...['managedFields', 'annotations', 'ownerReferences', 'tolerations', 'affinity', 'volumes'],
  ...['volumeMounts', 'env', 'envFrom', 'args', 'command', 'resources', 'securityContext'],
  ...['livenessProbe', 'readinessProbe', 'startupProbe', 'lifecycle', 'containerStatuses'],
  ...['initContainerStatuses', 'topologySpreadConstraints', 'capacity', 'images', 'nodeInfo'],
]);

/** The text without the blocks of unread fields. A label stays, for its value is on its line. */
function withoutUnread(text: string): string {
  let inside = -1; // the column of the field whose block is left out
  const lines = text.split('\n').filter((line) => {
    const column = line.search(/[^ ]/);
    if (inside >= 0 && (column < 0 || column > inside)) return false;
    if (column === inside && line.startsWith('- ', column)) return false;
    const [, before, name] = /^( *(?:- +)?)(\w+):$/.exec(line) ?? [];
    inside = before !== undefined && unread.has(name ?? '') ? before.length : -1;
    return true;
  });
  return lines.join('\n');
}

const yamlOptions = {
  // As Go does: the last of equal keys counts, and `<<` merges.
  uniqueKeys: false,
  merge: true,
  logLevel: 'silent',
  prettyErrors: false,
} as const;

/** The unquoted value of a field of the document or item itself, or null. Cheap, and no parser. */
export function yamlField(text: string, name: string): string | null {
  const column = indentOf(text);
  if (text.startsWith(`${name}:`, column)) return scalarAt(text, column + name.length + 1);
  const before = `\n${' '.repeat(column)}${name}:`;
  const index = text.indexOf(before);
  return index < 0 ? null : scalarAt(text, index + before.length);
}

/** The column of the fields of a document (0) or of an item (behind the dash). */
function indentOf(text: string): number {
  return /^ *- +/.exec(text)?.[0].length ?? 0;
}

/** A word as kinds and names are; what begins otherwise (`|`, `&`) only a parser can read. */
function scalarAt(text: string, index: number): string | null {
  return /^[ \t]+["']?(\w[\w./-]*)/.exec(text.slice(index, index + 300))?.[1] ?? null;
}

function guessYaml(text: string): Guess {
  const column = indentOf(text);
  const lines = text.split('\n');
  const begin = lines.findIndex((line) => line.slice(column).startsWith('metadata:')) + 1;
  const found = { namespace: null as string | null, name: null as string | null };
  const inner = lines[begin]?.search(/\S/) ?? -1;
  for (let index = begin; begin > 0 && inner > column && index < lines.length; index++) {
    const line = lines[index] ?? '';
    const indent = line.search(/\S/);
    if (indent >= 0 && indent < inner) break;
    for (const field of ['namespace', 'name'] as const) {
      if (line.startsWith(`${field}:`, inner)) {
        found[field] ??= scalarAt(line, inner + field.length + 1);
      }
    }
  }
  return { kind: yamlField(text, 'kind'), ...found };
}

const relativeTime = /\$\(time-offset-nanosecond (-?\d{1,18})\)/g;

/**
 * kwokctl writes times as nanoseconds relative to the beginning of its snapshot or recording, which
 * it does not tell; it is taken for the Unix epoch.
 */
function absoluteTimes(text: string): string {
  return text.replace(relativeTime, (_, offset: string) => {
    const nanoseconds = BigInt(offset);
    const second = 1_000_000_000n;
    const fraction = ((nanoseconds % second) + second) % second;
    const seconds = Number((nanoseconds - fraction) / second);
    const whole = new Date(seconds * 1000).toISOString().slice(0, 19);
    return `${whole}.${fraction.toString().padStart(9, '0')}Z`;
  });
}
