// Reads a dump: the objects of a cluster in files, directories and archives, as kubectl, people and
// must-gather write them.
//
// One fault does not hide the rest: lists are cut into items before they are parsed. A dump covers
// a resource if it contains a list or an object of it. Only then does a missing object not exist.

import { createReadStream } from 'node:fs';
import { readdir, realpath, stat } from 'node:fs/promises';
import { extname, join, sep } from 'node:path';
import { Readable } from 'node:stream';

import type { Key, Resource, UnreadableObject, WatchEvent } from '../../model/objects.ts';
import { isOutput } from '../../model/objects.ts';
import { type Fields, isFields } from '../decode/json-fields.ts';
import { type Format, jsonFormat, type Piece } from '../decode/json-items.ts';
import {
  jsonBytes,
  newestTimestamp,
  objectText,
  project,
  resourceOfKind,
} from '../decode/json-objects.ts';
import { type Bytes, plainBytes, withHead } from '../decode/line-reader.ts';
import type { OnProblem, Problem } from '../decode/problem.ts';
import {
  boundedProblems,
  countWord,
  isSystemError,
  problemAt,
  systemReason,
  valueText,
} from '../decode/problem.ts';
import { archivedFiles, isArchive } from './archive.ts';
import { yamlFormat } from './yaml-items.ts';

export type DumpEntry =
  /** `added` again with another version when a better one is found later. */
  | { readonly kind: 'object'; readonly event: WatchEvent }
  | { readonly kind: 'unreadable'; readonly lost: UnreadableObject }
  /** The dump covers this resource: once for each, before its first object. */
  | { readonly kind: 'list'; readonly resource: Resource }
  | DumpEnd;

export interface DumpEnd extends Pick<Dump, 'newest' | 'kubelet' | 'duplicates' | 'ignored'> {
  readonly kind: 'end';
}

/**
 * Reads a dump from files, directories, archives and `-` (stdin). Only a path that cannot be opened
 * makes it throw. Every object has the time 0. Of two versions the higher or else the later counts.
 */
export async function* readDump(
  paths: readonly string[],
  onProblem: OnProblem,
  stdin: Bytes = process.stdin,
): AsyncGenerator<DumpEntry> {
  const dump = newDump(onProblem);
  for (const path of paths) {
    if (path === '-') yield* readFile(dump, 'stdin', stdin);
    else if ((await stat(path)).isDirectory()) yield* readDirectory(dump, path);
    else if (isArchive(path)) yield* readArchive(dump, path);
    else yield* readFile(dump, path, createReadStream(path, streamOptions));
  }
  const isLost = (it: Resource) => dump.unread.some((resources) => !resources.has(it));
  const lost = [...dump.versions.keys()].filter(isLost).map(anyOf);
  for (const item of lost) yield { kind: 'unreadable', lost: item };
  yield* missingPages(dump);
  const { newest, kubelet, duplicates, ignored } = dump;
  yield { kind: 'end', newest, kubelet, duplicates, ignored };
}

const streamOptions = { highWaterMark: 256 * 1024 };
const headLength = 512;

/** The reader stops after this many problems in a file. */
const mostFaults = 100_000;

type Dump = ReturnType<typeof newDump>;

const newDump = (onProblem: OnProblem) => ({
  onProblem: boundedProblems(onProblem),
  /** Objects of kinds that are not read, by kind. */
  ignored: new Map<string, number>(),
  /** The resources that the dump covers, each with the version of every object so far. */
  versions: new Map<Resource, Map<Key, string>>(),
  /** The newest time in any object, Unix seconds; null if there is none. */
  newest: null as number | null,
  /** The minor version of the newest kubelet of a Node, such as 36; null if no Node has one. */
  kubelet: null as number | null,
  duplicates: 0,
  /** For each file, or rest of one, that was not read: the resources that it cannot contain. */
  unread: [] as ReadonlySet<Resource | null>[],
  /** Lists with a page that another one follows, and those with a last page; see notePage. */
  continued: new Map<string, { readonly source: string; readonly resource: Resource }>(),
  ended: new Set<string>(),
});

const dumpName = /\.(?:json|ya?ml)(?:\.gz)?$/i;

const mayBeDump = (path: string): boolean => dumpName.test(path) || extname(path) === '';

async function* readDirectory(dump: Dump, root: string): AsyncGenerator<DumpEntry> {
  // Symbolic links may lead back: each directory is read once, under whatever name comes first.
  const visited = new Set<string>();
  const pending = [root];
  const inside = `${await realpath(root)}${sep}`;
  for (let path = pending.pop(); path !== undefined; path = pending.pop()) {
    let mayContainObjects = mayBeDump(path);
    try {
      const [status, real] = [await stat(path), await realpath(path)];
      mayContainObjects ||= status.isDirectory();
      if (!`${real}${sep}`.startsWith(inside)) {
        // The directory may be of another person, and a problem quotes lines of the file.
        dump.onProblem(problemAt(path, null, 'Is a link out of the directory'));
        if (mayContainObjects) dump.unread.push(new Set());
      } else if (status.isDirectory()) {
        if (visited.has(real)) continue;
        visited.add(real);
        const names = (await readdir(path)).filter((name) => !name.startsWith('.')).sort();
        for (const name of names.reverse()) pending.push(join(path, name));
      } else if (status.isFile() && mayBeDump(path)) {
        yield* readFile(dump, path, createReadStream(path, streamOptions), true);
      }
    } catch (error) {
      if (!isSystemError(error)) throw error;
      dump.onProblem(problemAt(path, null, 'Cannot read', { value: systemReason(error) }));
      if (mayContainObjects) dump.unread.push(new Set());
    }
  }
}

async function* readArchive(dump: Dump, path: string): AsyncGenerator<DumpEntry> {
  const onDamage = (message: string, value: string | null): void => {
    dump.onProblem(problemAt(path, null, message, { value }));
    dump.unread.push(new Set());
  };
  for await (const { name, bytes } of archivedFiles(path, onDamage)) {
    const isHidden = /(?:^|\/)\.[^./]/.test(name);
    if (isHidden || !mayBeDump(name)) continue;
    yield* readFile(dump, `${path}/${name}`, bytes, true);
  }
}

type File = ReturnType<typeof newFile>;

/** `found`: in a directory, which may have files of any other purpose too. */
const newFile = (dump: Dump, source: string, found: boolean) => ({
  dump,
  source,
  found,
  format: yamlFormat,
  damage: null as { readonly message: string; readonly value: string | null } | null,
  list: null as List | null,
  entries: [] as DumpEntry[],
  faults: 0,
  /** It has objects of resources that are read. */
  isDump: false,
});

type List = ReturnType<typeof newList>;

function newList({ apiVersion, kind }: Fields) {
  const isNamed = typeof kind === 'string' && kind.endsWith('List') && kind !== 'List';
  return {
    apiVersion: apiVersion ?? undefined,
    /** The kind of items that do not say it themselves; null: not known (yet), or of any kind. */
    kind: isNamed ? kind.slice(0, -'List'.length) : null,
    /** Items that wait for the kind, and how long their texts are. */
    waiting: [] as { readonly value: Fields; readonly line: number }[],
    waitingLength: 0,
    /** The resources of the items so far (null: another kind); whether each came in one run. */
    seen: new Set<Resource | null>(),
    latest: null as Resource | null,
    grouped: true,
  };
}

/** A file that was found and is neither named like a dump nor looks so is none. */
async function* readFile(dump: Dump, source: string, bytes: Bytes, found = false) {
  const file = newFile(dump, source, found);
  const plain = plainBytes(bytes, (message, value) => (file.damage = { message, value }));
  const pieces = withHead<Piece[]>(plain, headLength, (head, whole) => {
    const format = formatOf(source, Buffer.from(head.subarray(0, headLength)).toString());
    const isEmpty = head.length === 0;
    if (format === null && (isEmpty || head.includes(0) || (found && !dumpName.test(source)))) {
      if (!found) report(file, null, isEmpty ? 'Is empty' : 'Is neither JSON nor YAML');
      return Readable.from([]);
    }
    file.format = format ?? yamlFormat;
    return file.format.pieces(whole, () => file.damage !== null);
  });
  let line = 1;
  for await (const batch of pieces) {
    for (const piece of batch) {
      readPiece(file, piece);
      yield* file.entries.splice(0);
      line = piece.line;
    }
    if (file.faults <= mostFaults) continue;
    if (found && !file.isDump) return;
    file.damage = { message: 'Too many problems to read the rest', value: null };
    break;
  }
  if (file.damage === null) return;
  report(file, line, file.damage.message, file.damage);
  dump.unread.push(new Set());
}

/** null if text with this beginning looks like neither. */
export function formatOf(source: string, head: string): Format | null {
  const begin = head.trimStart();
  if (/^[[{]/.test(begin) || /\.json(?:\.gz)?$/i.test(source)) return jsonFormat;
  if (/^(?:---|#|%YAML|apiVersion:|items:|kind:)/.test(begin)) return yamlFormat;
  // Warnings may have got into a pipe before the output.
  return /^[[{]/m.test(begin) ? jsonFormat : null;
}

/** Counts a value that is not an API object; a problem unless a directory contained the file. */
function alien(file: File, line: number, message: string, value: string | null): void {
  countWord(file.dump.ignored, 'no kind');
  if (file.found) file.faults++;
  else report(file, line, message, { value });
}

function report(file: File, line: number | null, message: string, extra?: Partial<Problem>): void {
  file.faults++;
  file.dump.onProblem(problemAt(file.source, line, message, extra));
}

function readPiece(file: File, piece: Piece): void {
  const { type, line, text } = piece;
  switch (type) {
    case 'document':
    case 'item':
      if (type === 'document') file.list = null;
      readText(file, piece);
      break;
    case 'head':
      file.list = newList(envelopeOf(file, text));
      announce(file, itemResource(file.list));
      break;
    case 'tail':
      closeList(file, envelopeOf(file, text));
      break;
    case 'stray':
      if (text.trim() === '---') break;
      report(file, line, 'Expected JSON', { value: valueText(text.trim()) });
      break;
    case 'tooLong':
      reportLost(file, piece, 'Object too long', null);
      break;
    case 'unfinished': {
      const { message, value } = file.damage ?? { message: 'Unexpected end', value: null };
      file.damage = null;
      reportLost(file, piece, message, value);
      // A list of one kind is the output of one command, which ends with it.
      const { kind, seen } = file.list ?? { kind: null, seen: new Set<null>() };
      if (kind === null) file.dump.unread.push(seen);
      closeList(file, {});
      break;
    }
  }
}

function readText(file: File, piece: Piece): void {
  const { type, line, text } = piece;
  const parsed = file.format.parse(text);
  if ('fault' in parsed) {
    const place = { ...piece, line: line + parsed.line };
    reportLost(file, place, `Expected ${file.format.name}`, valueText(parsed.fault));
    return;
  }
  const { value } = parsed;
  // A YAML document may be empty, and may be a list without any envelope.
  if (type === 'document' && (value === null || value === undefined)) return;
  const values = Array.isArray(value) ? (value as unknown[]) : [value];
  for (const value of values) readValue(file, value, line, text.length);
}

const waitingLimit = 256 * 1024 * 1024;
const nestingLimit = 4;

function readValue(file: File, value: unknown, line: number, length: number, nesting = 0): void {
  if (!isFields(value)) {
    alien(file, line, 'Expected an object', valueText(value));
    return;
  }
  const { list } = file;
  const kind = value.kind ?? list?.kind ?? undefined;
  if (kind === undefined && list !== null) {
    list.waitingLength += length;
    if (list.waitingLength <= waitingLimit) list.waiting.push({ value, line });
  } else if (typeof kind !== 'string') {
    alien(file, line, 'Expected a kind', valueText(kind));
  } else if (kind.endsWith('List') && nesting < nestingLimit) {
    file.list = newList(value);
    const items = Array.isArray(value.items) ? (value.items as unknown[]) : [];
    for (const item of items) readValue(file, item, line, 0, nesting + 1);
    closeList(file, value);
    file.list = list;
  } else {
    readObject(file, value, line, value.apiVersion ?? list?.apiVersion, kind);
  }
}

function readObject(file: File, value: Fields, line: number, apiVersion: unknown, kind: string) {
  const { dump, list } = file;
  const resource = resourceOfKind(apiVersion, kind);
  if (list !== null) {
    if (list.seen.has(resource) && list.latest !== resource) list.grouped = false;
    list.seen.add(resource);
    list.latest = resource;
  }
  if (resource === null) {
    countWord(dump.ignored, kind);
    return;
  }
  announce(file, resource);
  file.isDump = true;
  const bytes = isOutput(resource) ? jsonBytes(value) : null;
  const projection = project(resource, value, 0, { bytes });
  if (projection.problem !== undefined) {
    const { message, ...more } = projection.problem;
    report(file, line, message, more);
    file.entries.push({ kind: 'unreadable', lost: more.lost });
    return;
  }
  const { object } = projection;
  const kubelet = 'kubeletMinor' in object ? object.kubeletMinor : null;
  dump.kubelet = greater(dump.kubelet, kubelet);
  dump.newest = greater(dump.newest, newestTimestamp(object));
  if (!isBest(dump, resource, object.key, object.resourceVersion)) return;
  const event: WatchEvent = { resource, type: 'added', object, at: 0 };
  file.entries.push({ kind: 'object', event });
}

const greater = (known: number | null, value: number | null): number | null =>
  known === null || value === null ? (known ?? value) : Math.max(known, value);

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

function announce({ dump, entries }: File, resource: Resource | null): void {
  if (resource === null || dump.versions.has(resource)) return;
  dump.versions.set(resource, new Map());
  entries.push({ kind: 'list', resource });
}

const itemResource = ({ apiVersion, kind }: List): Resource | null =>
  kind === null ? null : resourceOfKind(apiVersion, kind);

function envelopeOf(file: File, text: string): Fields {
  const parsed = file.format.parse(text);
  return 'value' in parsed && isFields(parsed.value) ? parsed.value : {};
}

/** The pages of a list, as `kubectl get --raw` with a limit gets them, have one version. */
function notePage({ dump, source }: File, resource: Resource, { metadata }: Fields): void {
  const { resourceVersion, continue: next } = isFields(metadata) ? metadata : ({} as Fields);
  const page = `${resource} ${typeof resourceVersion === 'string' ? resourceVersion : ''}`;
  if (typeof next === 'string' && next !== '') dump.continued.set(page, { source, resource });
  else dump.ended.add(page);
}

function* missingPages({ continued, ended, onProblem }: Dump): Generator<DumpEntry> {
  for (const [page, { source, resource }] of continued) {
    if (ended.has(page)) continue;
    const lost = anyOf(resource);
    const message = 'The list goes on, and the next page is missing';
    onProblem(problemAt(source, null, message, { object: objectText(lost), lost }));
    yield { kind: 'unreadable', lost };
  }
}

/** The kind of a list may follow its items. */
function closeList(file: File, envelope: Fields): void {
  const { list } = file;
  const whole = newList(envelope);
  const resource = itemResource(whole);
  announce(file, resource);
  if (resource !== null) notePage(file, resource, envelope);
  if (list === null) return;
  const line = list.waiting[0]?.line ?? 0;
  if (list.waiting.length > 0 && whole.kind === null) {
    const value = `${list.waiting.length} objects`;
    alien(file, line, 'Expected a kind of the list or of its items', value);
  }
  if (list.waitingLength > waitingLimit) {
    const lost = resource === null ? null : anyOf(resource);
    report(file, line, 'Expected the kind of a list before its items', { lost });
    if (lost !== null) file.entries.push({ kind: 'unreadable', lost });
  }
  for (const { value, line } of whole.kind === null ? [] : list.waiting) {
    readObject(file, value, line, value.apiVersion ?? whole.apiVersion, whole.kind ?? '');
  }
  file.list = null;
}

const unnamed = { namespace: null, name: null, labels: null };
const anyOf = (resource: Resource): UnreadableObject => ({ resource, ...unnamed });

/** Reports unreadable text, and yields the objects that it may contain. */
function reportLost(file: File, piece: Piece, message: string, value: string | null): void {
  const { type, line, text } = piece;
  const unfinished = type === 'unfinished';
  const { kind, namespace, name } = file.format.guess(text);
  const resource = kind === null ? null : resourceOfKind(undefined, kind.replace(/List$/, ''));
  const lost: UnreadableObject[] = [];
  if (resource !== null) {
    // A cluster-wide object has no namespace, and a namespace is no certain sign of a name.
    const place = resource === 'nodes' ? '' : namespace;
    lost.push({ ...anyOf(resource), namespace: place, name: place === null ? null : name });
  }
  if (unfinished || kind === null) lost.push(...behind(file.list, unfinished).map(anyOf));
  const [first = null] = lost;
  const object = first === null ? null : objectText(first);
  report(file, line, message, { value, object, lost: first });
  for (const item of lost) file.entries.push({ kind: 'unreadable', lost: item });
}

/** The resources that may follow the latest item: kubectl writes one resource after the other. */
function behind(list: List | null, unfinished: boolean): readonly Resource[] {
  if (list === null) return [];
  const named = itemResource(list);
  if (named !== null) return [named];
  const seen = list.grouped || !unfinished ? [list.latest] : [...list.seen];
  return seen.filter((resource) => resource !== null);
}
