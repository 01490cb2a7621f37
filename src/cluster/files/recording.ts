// Reads a recording: the entries that a watch of the cluster delivered, one JSON object a line,
// plain or gzip.
//
//   {"kind":"header","format":1,"at":T,"kubernetes":"v1.36.3","resources":["nodes",…]}
//   {"kind":"object","at":T,"resource":"pods","type":"SYNC","object":{…}}
//   {"kind":"delta","at":T,"resource":"pods","type":"MODIFIED","base":"123","metadata":{…},…}
//   {"kind":"pod","at":T,"base":"123","ip":"10.0.0.7","targetRef":{…},…}
//   {"kind":"synced","at":T,"resource":"pods"}
//   {"kind":"watch","at":T,"resource":"pods","state":"stale"}
//   {"kind":"unreadable","at":T,"resource":"pods","type":"ADDED","namespace":…,"name":…,"labels":…}
//   {"kind":"clock","at":T}
//   {"kind":"zones","at":T,"zones":[…]}
//   {"kind":"service-state","at":T,"service":"shop/web","state":{…}}
//   {"kind":"audit-state","at":T,"part":"incident","state":{…}}
//   {"kind":"end","at":T}
//
// `at` is the arrival in Unix seconds. SYNC is an object of the first list, and BOOKMARK has only a
// time. `"gap":true` marks an object with missed changes before it. An object that is missing
// before `synced` does not exist. A checkpoint adds `bytes`, `arrived` (of this version) and
// `ipsSince` to objects, and what the audit knew: `zones`, states. entry.ts describes the
// lines about nodes; delta.ts, similar-pod.ts and pod-endpoints.ts those which only a history has.
// A recording may be damaged anywhere, above all at its end: a bad line is a problem, and the next
// line is read.

import type {
  Key,
  Labels,
  ObjectOf,
  OutputResource,
  Pod,
  Resource,
  UnreadableObject,
  WatchEvent,
} from '../../model/objects.ts';
import { isOutput, resources } from '../../model/objects.ts';
import type { LiveEntry, NodeConfigEntry, NodeRulesEntry, WatchState } from '../decode/entry.ts';
import { readNodeConfig, readNodeRules } from '../decode/entry.ts';
import type { DecodeContext } from '../decode/frame.ts';
import {
  eventTypes,
  type Fields,
  isFields,
  optionalTime,
  texts,
  word,
  WrongType,
} from '../decode/json-fields.ts';
import { objectText, project } from '../decode/json-objects.ts';
import { parseJson } from '../decode/json-text.ts';
import type { Bytes, Line } from '../decode/line-reader.ts';
import { lineBatches, plainBytes, textLimit } from '../decode/line-reader.ts';
import type { OnProblem, Problem } from '../decode/problem.ts';
import { boundedProblems, countWord, guessLost, problemAt, valueText } from '../decode/problem.ts';
import { applyDelta, type DeltaResource, hasDeltas } from './delta.ts';
import type { AnyOutput } from './parts.ts';
import { createReferredPods } from './pod-endpoints.ts';
import { objectBytes } from './recorder.ts';
import { readSimilarPod } from './similar-pod.ts';

/** Bytes, and how problems name them: a path, or `stdin`. */
export interface Source {
  readonly name: string;
  readonly bytes: Bytes;
}

/** `null`: the audit does not keep any. */
type PreviousOutput = (resource: OutputResource, key: Key) => AnyOutput | null | undefined;

export interface RecordingOptions {
  /** The pod of this key as delivered last, for Pod.ipsSince. */
  readonly previousPod?: DecodeContext['previousPod'] | undefined;
  /** The Endpoints or the slice of this key as delivered last, for deltas from it. */
  readonly previousOutput?: PreviousOutput | undefined;
  /** Longer lines, in bytes, are skipped. */
  readonly lineLimit?: number;
}

/** One line of a recording. `at` is Unix seconds and never decreases. */
export type RecordingEntry =
  | Exclude<LiveEntry, { readonly kind: 'progress' }>
  | NodeConfigEntry
  | NodeRulesEntry
  | { readonly kind: 'clock'; readonly at: number }
  /** Zones that Nodes had before the checkpoint. */
  | { readonly kind: 'zones'; readonly at: number; readonly zones: readonly string[] }
  /** What the audit knew of a Service at the checkpoint. */
  | SavedState<'service-state', 'service'>
  /** Something else that it knew then; `part` says about what, such as `incident`. */
  | SavedState<'audit-state', 'part'>
  | NodeStateEntry
  | RecordingEnd;

/** What the rules of a node showed; `saved` is `null` if it was removed. */
export type NodeStateEntry = SavedState<'node-state', 'node'>;

/** The auditor reads `saved` itself. */
type SavedState<Kind extends string, Name extends string> = Readonly<Record<Name, string>> & {
  readonly kind: Kind;
  readonly at: number;
  readonly saved: unknown;
};

/** The last entry, also of a recording without a line for it. */
export interface RecordingEnd extends Readonly<Pick<Reading, 'at' | 'complete' | 'skipped'>> {
  readonly kind: 'end';
}

/**
 * Reads a recording, and reports the first 20 problems of each message. Throws an Error for API
 * objects, which are no recording at all. Errors of `source.bytes` itself pass through.
 */
export async function* readRecording(
  source: Source,
  onProblem: OnProblem,
  options: RecordingOptions = {},
): AsyncGenerator<RecordingEntry> {
  const reading = newReading(source.name, onProblem, options);
  const plain = plainBytes(source.bytes, (message, value) => (reading.damage = { message, value }));
  for await (const batch of lineBatches(plain, options.lineLimit ?? textLimit)) {
    for (const line of batch) {
      reading.line = line.number;
      const entry = readLine(reading, line);
      if (entry !== null) yield entry;
    }
  }
  if (reading.damage !== null) report(reading, reading.damage.message, reading.damage);
  else if (!reading.header) report(reading, 'Expected a header first');
  const { at, complete, skipped } = reading;
  yield { kind: 'end', at, complete, skipped };
}

export type Reading = ReturnType<typeof newReading>;

export const newReading = (
  source: string,
  onProblem: OnProblem,
  { previousPod, previousOutput }: RecordingOptions,
) => ({
  source,
  previousPod,
  previousOutput,
  onProblem: boundedProblems(onProblem),
  /** Lines that were not read, by kind. */
  skipped: new Map<string, number>(),
  /** The time of the latest line; 0 before the first. */
  at: 0,
  line: 0,
  /** A line that is not blank was met, and one with fields. */
  begun: false,
  header: false,
  /** The latest that was read from an object. */
  pod: undefined as Pod | undefined,
  /** Those of the first lists, to which the outputs of a checkpoint refer. */
  pods: createReferredPods(),
  /** Whether the last line is the recorder's own end. */
  complete: false,
  damage: null as { readonly message: string; readonly value: string | null } | null,
});

export function report(reading: Reading, message: string, extra?: Partial<Problem>): void {
  // A file without lines has no first one to blame.
  const line = reading.line === 0 ? null : reading.line;
  reading.onProblem(problemAt(reading.source, line, message, extra));
}

function reportField(reading: Reading, expected: string, field: string, value: unknown): void {
  report(reading, `Expected ${expected}`, { field, value: valueText(value) });
}

/** Reports an object that cannot be read, and returns its entry. */
export function lose(
  reading: Reading,
  type: WatchEvent['type'] | null,
  lost: UnreadableObject,
  message: string,
  details: Partial<Problem> = {},
): Extract<RecordingEntry, { kind: 'unreadable' }> {
  const object = lost.name === null ? null : objectText(lost);
  report(reading, message, { object, lost, ...details });
  return { kind: 'unreadable', at: reading.at, type, lost };
}

/** null for a blank line and for one that cannot be read. */
function readLine(reading: Reading, line: Line): RecordingEntry | null {
  if (line.tooLong) return loseLine(reading, line.text, 'Line too long', String(line.bytes));
  const text = line.text.trim();
  if (text === '') return null;
  const first = !reading.begun;
  reading.begun = true;
  let fields: unknown;
  try {
    fields = parseJson(text);
  } catch {
    if (first && dumpStart.test(text)) refuseDump(reading);
    // The damage reports the half line at the end of a file that was cut off.
    if (!line.ended && reading.damage !== null) return null;
    const message = line.ended ? 'Expected JSON' : 'Unexpected end of line';
    return loseLine(reading, line.text, message, valueText(text));
  }
  if (first && isDump(fields)) refuseDump(reading);
  reading.complete = false;
  if (!isFields(fields)) {
    report(reading, 'Expected an object', { value: valueText(fields) });
    countWord(reading.skipped, 'no object');
    return null;
  }
  advance(reading, fields);
  if (!reading.header && fields.kind !== 'header') report(reading, 'Expected a header first');
  reading.header = true;
  try {
    return readFields(reading, fields, line);
  } catch (error) {
    if (!(error instanceof WrongType)) throw error;
    const { expected, field, value } = error;
    reportField(reading, expected, field, value);
    const kind = typeof fields.kind === 'string' ? fields.kind : '';
    const isNamed = field === 'resource' || field === 'state';
    countWord(reading.skipped, isNamed ? `no ${field}` : kind);
    return { kind: 'clock', at: reading.at };
  }
}

/** Throws WrongType for a wrong field. */
function readFields(reading: Reading, fields: Fields, line: Line): RecordingEntry {
  const { at } = reading;
  const { kind } = fields;
  switch (kind) {
    case 'header':
      return readHeader(reading, fields);
    case 'object':
      return readObject(reading, fields, line);
    case 'delta':
      return readDelta(reading, fields);
    case 'pod':
      return readPodLine(reading, fields);
    case 'synced':
      reading.pods.clear();
      return { kind, at, resource: wordIn(fields, 'resource', resources) };
    case 'watch': {
      const resource = wordIn(fields, 'resource', resources);
      return { kind, at, resource, state: wordIn(fields, 'state', watchStates) };
    }
    case 'access': {
      const resource = wordIn(fields, 'resource', resources);
      const [namespace, permitted] = [word(fields, 'namespace'), fields.permitted === true];
      return { kind, at, resource, namespace, permitted };
    }
    case 'unreadable':
      return readUnreadable(reading, fields);
    case 'clock':
      return { kind, at };
    case 'zones':
      return { kind, at, zones: texts(fields, 'zones') };
    case 'service-state':
      return { kind, at, service: word(fields, 'service'), saved: fields.state };
    case 'audit-state':
      return { kind, at, part: word(fields, 'part'), saved: fields.state };
    case 'node-state':
      return { kind, at, node: word(fields, 'node'), saved: fields.state };
    case 'end':
      reading.complete = true;
      return { kind: 'clock', at };
    case 'node-config':
      return readNodeConfig(fields, at);
    case 'node-rules':
      return readNodeRules(fields, at);
    default:
      throw new WrongType('kind', 'a kind of line', kind);
  }
}

const watchStates: readonly WatchState[] = ['listing', 'synced', 'relisting', 'stale', 'off'];

/** The first lines of JSON over several lines, and of YAML. */
const dumpStart = /^(?:[{[]|---.*|%YAML.*|(?:- )?(?:apiVersion|kind|items|metadata|spec):.*)$/;

const isDump = (fields: unknown): boolean =>
  Array.isArray(fields) || (isFields(fields) && ('apiVersion' in fields || 'items' in fields));

function refuseDump({ source }: Reading): never {
  throw new Error(`${source}: Expected a recording, found API objects (audit reads those)`);
}

function advance(reading: Reading, { at, kind }: Fields): void {
  if (typeof at !== 'number' || !Number.isFinite(at)) {
    reportField(reading, 'a time in Unix seconds', 'at', at);
  } else if (at < reading.at && kind !== 'node-rules') {
    reportField(reading, 'no time before that of the line above', 'at', at);
  } else {
    // Rules have the time when their dump began, and others may have come since.
    reading.at = Math.max(reading.at, at);
  }
}

function readHeader(reading: Reading, fields: Fields): RecordingEntry {
  if (fields.format !== 1) reportField(reading, 'format 1', 'format', fields.format);
  const named = Array.isArray(fields.resources) ? (fields.resources as unknown[]) : [];
  if (named.length === 0) {
    reportField(reading, 'a list of resources', 'resources', fields.resources);
  }
  for (const name of named.filter((name) => !resources.includes(name as Resource))) {
    reportField(reading, 'a resource', 'resource', name);
    countWord(reading.skipped, 'no resource');
  }
  return {
    kind: 'header',
    at: reading.at,
    kubernetes: typeof fields.kubernetes === 'string' ? fields.kubernetes : null,
    resources: resources.filter((resource) => named.includes(resource)),
  };
}

function wordIn<T extends string>(fields: Fields, name: string, words: readonly T[]): T {
  const word = words.find((word) => word === fields[name]);
  if (word === undefined) throw new WrongType(name, `a ${name}`, fields[name]);
  return word;
}

const typeOf = (name: unknown): WatchEvent['type'] | null =>
  name === 'SYNC' ? 'added' : (eventTypes.get(name) ?? null);

function readObject(reading: Reading, fields: Fields, line: Line): RecordingEntry {
  const { object: raw, type, gap } = fields;
  const resource = wordIn(fields, 'resource', resources);
  if (type === 'BOOKMARK') return { kind: 'clock', at: reading.at };
  const stated = optionalTime(fields, 'bytes');
  const bytes = isOutput(resource) ? (stated ?? objectBytes(line, raw)) : null;
  const entry = readChange(reading, resource, type, raw, bytes);
  if (entry.kind !== 'event') return entry;
  const whole = fields.pods === undefined ? entry : withEndpoints(reading, entry, fields.pods);
  if (whole.kind !== 'event') return whole;
  const event = withTimes(whole.event, fields);
  if (type === 'SYNC') reading.pods.add(resource, event.object);
  if (resource === 'pods') reading.pod = event.object as Pod;
  return { ...entry, event: gap === true ? { ...event, gap } : event };
}

/** The event with the endpoints of pods, to which a checkpoint refers. */
function withEndpoints(reading: Reading, entry: EventEntry, pods: unknown): RecordingEntry {
  const { resource, type, object } = entry.event;
  const { namespace, name, labels } = object;
  return orLost(reading, type, { resource, namespace, name, labels }, () => {
    if (!isOutput(resource)) throw new WrongType('pods', 'endpoints or endpointslices', resource);
    const whole = reading.pods.join(object as AnyOutput, pods);
    return { ...entry, event: { ...entry.event, object: whole } };
  });
}

/** The event of a line with only what has changed since the version before. */
function readDelta(reading: Reading, fields: Fields): RecordingEntry {
  const { at } = reading;
  const resource = wordIn(fields, 'resource', resources);
  const type = typeOf(fields.type);
  const metadata = isFields(fields.metadata) ? fields.metadata : {};
  const [namespace, name] = [textOf(metadata.namespace), textOf(metadata.name)];
  // Its labels may be others than those of the version that the reader has.
  const change = { resource, namespace, name, labels: null, type, base: fields.base };
  return followBase(reading, knownVersion(reading, change), change, (known) => {
    if (type === null || type === 'deleted') {
      throw new WrongType('type', 'ADDED or MODIFIED', fields.type);
    }
    const object = applyDelta(known, fields, at);
    const gap = fields.gap === true && { gap: true };
    return { kind: 'event', event: { resource, type, object, at, ...gap } };
  });
}

/** The event of a line with what differs from the latest pod that was written as an object. */
function readPodLine(reading: Reading, fields: Fields): RecordingEntry {
  const { at, pod } = reading;
  const [resource, type] = ['pods', 'added'] as const;
  const { namespace = null } = pod ?? {};
  const { base, targetRef } = fields;
  const name = isFields(targetRef) ? textOf(targetRef.name) : null;
  const change = { resource, namespace, name, labels: null, type, base };
  return followBase(reading, pod, change, (base) => {
    const object = readSimilarPod(base, fields);
    reading.pods.add(resource, object);
    return { kind: 'event', event: { resource, type, object, at } };
  });
}

interface BasedChange extends UnreadableObject {
  readonly type: WatchEvent['type'] | null;
  /** The resourceVersion of the known object. */
  readonly base: unknown;
}

/** What `read` makes of the known object that the line refers to; without it, this one is lost. */
function followBase<T extends ObjectOf[DeltaResource]>(
  reading: Reading,
  known: T | null | undefined,
  { type, base, ...lost }: BasedChange,
  read: (known: T) => EventEntry,
): RecordingEntry {
  if (known === null) return { kind: 'clock', at: reading.at };
  if (known === undefined || known.resourceVersion !== base || base === '') {
    const details = { field: 'base', value: valueText(base) };
    return lose(reading, type, lost, 'The version before it is missing', details);
  }
  return orLost(reading, type, lost, () => read(known));
}

/** What `read` makes of a line. An object that has a wrong field is lost. */
function orLost(
  reading: Reading,
  type: WatchEvent['type'] | null,
  lost: UnreadableObject,
  read: () => EventEntry,
): RecordingEntry {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof WrongType)) throw error;
    const details = { field: error.field, value: valueText(error.value) };
    return lose(reading, type, lost, `Expected ${error.expected}`, details);
  }
}

/** The object as delivered last; `null` if the audit does not keep such objects. */
function knownVersion(reading: Reading, { resource, namespace, name }: UnreadableObject) {
  const key = `${namespace ?? ''}/${name ?? ''}`;
  if (!hasDeltas(resource)) return undefined;
  return resource === 'pods' ? reading.previousPod?.(key) : reading.previousOutput?.(resource, key);
}

type EventEntry = Extract<RecordingEntry, { kind: 'event' }>;

/** The event with the times of its object that a checkpoint states. */
function withTimes(event: WatchEvent, fields: Fields): WatchEvent {
  const arrived = optionalTime(fields, 'arrived');
  const ipsSince = optionalTime(fields, 'ipsSince');
  if (arrived === null && ipsSince === null) return event;
  const times = {
    ...(arrived !== null && { at: arrived }),
    ...(ipsSince !== null && { ipsSince }),
  };
  return { ...event, object: { ...event.object, ...times } };
}

/** The entry of a change of this type, as watches name it; what cannot be read is reported. */
export function readChange(
  reading: Reading,
  resource: Resource,
  typeName: unknown,
  raw: unknown,
  bytes: number | null,
): Extract<RecordingEntry, { kind: 'event' | 'unreadable' }> {
  const { at, previousPod } = reading;
  const type = typeOf(typeName);
  const { object, problem } = project(resource, raw, at, { previousPod, bytes });
  if (problem !== undefined) return lose(reading, type, problem.lost, problem.message, problem);
  if (type !== null) return { kind: 'event', event: { resource, type, object, at } };
  const { namespace, name, labels } = object;
  const message = 'Expected SYNC, ADDED, MODIFIED, DELETED or BOOKMARK';
  const details = { field: 'type', value: valueText(typeName) };
  return lose(reading, type, { resource, namespace, name, labels }, message, details);
}

const textOf = (value: unknown): string | null => (typeof value === 'string' ? value : null);

function readUnreadable(reading: Reading, fields: Fields): RecordingEntry {
  const { namespace, name, labels } = fields;
  const isMap = isFields(labels) && Object.values(labels).every((it) => typeof it === 'string');
  const lost = {
    resource: wordIn(fields, 'resource', resources),
    namespace: textOf(namespace),
    name: textOf(name),
    labels: isMap ? (labels as Labels) : null,
  };
  return lose(reading, typeOf(fields.type), lost, 'The recorder could not read the object');
}

/** The beginning of a line that cannot be parsed may still name the object. */
function loseLine(reading: Reading, text: string, message: string, value: string | null) {
  const named = /"resource":"([a-z]+)"/.exec(text)?.[1];
  const resource = resources.find((resource) => resource === named);
  const type = /"type":"([A-Z]+)"/.exec(text)?.[1];
  if (resource === undefined || type === 'BOOKMARK') {
    report(reading, message, { value });
    return null;
  }
  return lose(reading, typeOf(type), guessLost(resource, text), message, { value });
}
