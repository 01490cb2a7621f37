// A recording made by kwok: what `kwokctl snapshot record` and `kwokctl snapshot export --record`
// write (sigs.k8s.io/kwok pkg/kwokctl/snapshot/save.go).
//
// It is a YAML file of many documents: first every object as it was at the beginning, then one
// ResourcePatch for each change, with the time since the beginning:
//
//   apiVersion: action.kwok.x-k8s.io/v1alpha1
//   kind: ResourcePatch
//   durationNanosecond: 1500000000
//   method: patch
//   resource:
//     resource: pods
//     version: v1
//   target:
//     name: web-1
//     namespace: shop
//   template:
//     status:
//       phase: Running
//
// The method is create (template is the object), patch or delete.
//
// Without patches it is a dump. Which resources were recorded is not said, and EndpointSlices are
// none of kwokctl's defaults; so the file is read twice, first for the resources that occur in it.
// Objects have no resourceVersion, all times are relative to the beginning, which is taken for the
// Unix epoch, and changes of different resources are in order of time only nearly.
//
// Patches are strategic merge patches. What is implemented is what a patch between two versions of
// an object may hold: maps are merged, null deletes, lists are replaced except those with a merge
// key among the fields that the audit reads ($patch, $setElementOrder). Lists of strings are
// replaced too, and $deleteFromPrimitiveList and $retainKeys, which concern none of those fields,
// are not followed.

import type { Resource, UnreadableObject, WatchEvent } from '../../model/objects.ts';
import { isOutput, resources } from '../../model/objects.ts';
import type { Fields } from '../decode/json-fields.ts';
import { isFields } from '../decode/json-fields.ts';
import type { Parsed, Piece } from '../decode/json-items.ts';
import { jsonBytes, kinds, objectText, project, resourceOfKind } from '../decode/json-objects.ts';
import type { Bytes } from '../decode/line-reader.ts';
import { lineBatches, plainBytes } from '../decode/line-reader.ts';
import type { BoundedProblems, OnProblem, Problem } from '../decode/problem.ts';
import { boundedProblems, countWord, problemAt, valueText } from '../decode/problem.ts';
import type { RecordingEntry, RecordingOptions } from './recording.ts';
import { parseYaml, yamlField, yamlPieces } from './yaml-items.ts';

export interface KwokSource {
  /** How problems name it. */
  readonly name: string;
  /** Opens the file from its beginning; called twice. */
  open(): Bytes;
}

const patchKind = 'ResourcePatch';

const resourceForm = /^kind:[ \t]+["']?(\w+)|\bresource:[ \t]+["']?(\w+)/;

/**
 * The resources that occur in a kwok recording; null when it has no ResourcePatch, and so is none.
 * Reads lines only, and all of them; takes plain and gzip files.
 */
export async function kwokResources(bytes: Bytes): Promise<readonly Resource[] | null> {
  const found = new Set<unknown>();
  let patches = false;
  const ignoreDamage = () => undefined;
  for await (const batch of lineBatches(plainBytes(bytes, ignoreDamage))) {
    for (const { text } of batch) {
      const [, kind, resource] = resourceForm.exec(text) ?? [];
      if (kind === patchKind) patches = true;
      const known = resources.find((each) => each === resource || kinds[each] === kind);
      if (known !== undefined) found.add(known);
    }
  }
  return patches ? resources.filter((resource) => found.has(resource)) : null;
}

/** Whether a file is a kwok recording, and not just a dump of YAML documents. */
export async function isKwokRecording(bytes: Bytes): Promise<boolean> {
  return (await kwokResources(bytes)) !== null;
}

/**
 * Reads a kwok recording as readRecording reads the auditor's own, with times in seconds since its
 * beginning. Content never makes it throw.
 */
export async function* readKwok(
  source: KwokSource,
  onProblem: OnProblem,
  options: RecordingOptions = {},
): AsyncGenerator<RecordingEntry> {
  const found = (await kwokResources(source.open())) ?? [];
  yield { kind: 'header', at: 0, kubernetes: null, resources: found };
  const problems = boundedProblems(onProblem);
  const reading: Reading = {
    source: source.name,
    options,
    problems,
    raws: new Map(),
    skipped: new Map(),
    at: 0,
    patched: false,
  };
  let damage: Partial<Problem> & { message: string } = { message: '' };
  let line = 1;
  const plain = plainBytes(source.open(), (message, value) => (damage = { message, value }));
  for await (const batch of yamlPieces(plain, () => damage.message !== '')) {
    for (const piece of batch) {
      yield* readPiece(reading, piece, found);
      line = piece.line;
    }
  }
  if (!reading.patched) yield* synced(found);
  if (damage.message !== '') problems.report(problemAt(source.name, line, damage.message, damage));
  yield {
    kind: 'end',
    at: reading.at,
    complete: damage.message === '',
    skipped: reading.skipped,
    problems: problems.counts,
  };
}

interface Reading {
  readonly source: string;
  readonly options: RecordingOptions;
  readonly problems: BoundedProblems;
  /** The objects as they are now, by resource and key: what patches are applied to. */
  readonly raws: Map<string, unknown>;
  readonly skipped: Map<string, number>;
  at: number;
  /** The objects of the beginning are complete. */
  patched: boolean;
}

function* synced(found: readonly Resource[]): Generator<RecordingEntry> {
  for (const resource of found) yield { kind: 'synced', at: 0, resource };
}

function* readPiece(
  reading: Reading,
  { type, line, text }: Piece,
  found: readonly Resource[],
): Generator<RecordingEntry> {
  if (type === 'head' || type === 'tail') return; // kwokctl writes no lists
  const kind = yamlField(text, 'kind') ?? '';
  if (kind === patchKind && !reading.patched) {
    yield* synced(found);
    reading.patched = true;
  } else if (kind !== patchKind && resourceOfKind(undefined, kind) === null) {
    countWord(reading.skipped, kind);
    return;
  }
  const parsed: Parsed = type === 'document' ? parseYaml(text) : { fault: '', line: 0 };
  if ('fault' in parsed) {
    const lost = lostOf(text, kind);
    // The damage reports what is cut off.
    if (type !== 'unfinished') {
      const message = type === 'tooLong' ? 'Object too long' : 'Expected YAML';
      const object = lost === null ? null : objectText(lost);
      const value = parsed.fault === '' ? null : valueText(parsed.fault);
      report(reading, line + parsed.line, message, { value, object, lost });
    }
    if (lost !== null) yield { kind: 'unreadable', at: reading.at, type: null, lost };
  } else if (isFields(parsed.value)) {
    yield kind === patchKind
      ? readPatch(reading, parsed.value, line)
      : readObject(reading, parsed.value, line);
  }
}

function report(reading: Reading, line: number, message: string, extra?: Partial<Problem>): void {
  reading.problems.report(problemAt(reading.source, line, message, extra));
}

/** An object as it was at the beginning. */
function readObject(reading: Reading, raw: Fields, line: number): RecordingEntry {
  const resource = resourceOfKind(raw.apiVersion ?? undefined, raw.kind);
  if (resource === null) {
    countWord(reading.skipped, String(raw.kind));
    return { kind: 'clock', at: reading.at };
  }
  return change(reading, line, resource, 'added', raw);
}

function readPatch(reading: Reading, patch: Fields, line: number): RecordingEntry {
  const duration = patch.durationNanosecond;
  if (typeof duration === 'number' && Number.isFinite(duration)) {
    reading.at = Math.max(reading.at, duration / 1e9);
  } else {
    const value = valueText(duration);
    report(reading, line, 'Expected a number', { field: 'durationNanosecond', value });
  }
  const clock = { kind: 'clock', at: reading.at } as const;
  const { resource: version, target, method, template } = patch;
  const named = isFields(version) ? version.resource : undefined;
  const resource = resources.find((resource) => resource === named);
  if (resource === undefined) {
    countWord(reading.skipped, typeof named === 'string' ? named : patchKind);
    return clock;
  }
  const { name, namespace } = isFields(target) ? target : ({} as Fields);
  const key = JSON.stringify([resource, namespace ?? '', name]);
  const latest = reading.raws.get(key);
  if (method === 'delete' && latest !== undefined) {
    return change(reading, line, resource, 'deleted', latest);
  }
  if (method === 'create') return change(reading, line, resource, 'added', template);
  if (method === 'patch' && latest !== undefined) {
    return change(reading, line, resource, 'modified', merge(latest, template));
  }
  const lost = {
    resource,
    namespace: resource === 'nodes' ? '' : typeof namespace === 'string' ? namespace : null,
    name: typeof name === 'string' ? name : null,
    labels: null,
  };
  const known = method === 'delete' || method === 'patch';
  const message = known ? 'Expected a patch of a known object' : 'Expected create, patch or delete';
  report(reading, line, message, {
    object: objectText(lost),
    field: 'method',
    value: valueText(method),
    lost,
  });
  return { kind: 'unreadable', at: reading.at, type: null, lost };
}

/** The event of a change, after which the object is as `raw` says. */
function change(
  reading: Reading,
  line: number,
  resource: Resource,
  type: WatchEvent['type'],
  raw: unknown,
): RecordingEntry {
  const projection = project(resource, raw, reading.at, {
    previousPod: reading.options.previousPod,
    bytes: isOutput(resource) ? jsonBytes(raw) : null,
  });
  const { namespace, name } =
    projection.problem === undefined ? projection.object : projection.problem.lost;
  const key = JSON.stringify([resource, namespace, name]);
  if (type === 'deleted') reading.raws.delete(key);
  else reading.raws.set(key, raw);
  if (projection.problem !== undefined) {
    const { message, ...more } = projection.problem;
    report(reading, line, message, more);
    return { kind: 'unreadable', at: reading.at, type, lost: more.lost };
  }
  const { object } = projection;
  return { kind: 'event', event: { resource, type, object, at: reading.at } };
}

/** The object of a document that cannot be parsed, as far as its text names it. */
function lostOf(text: string, kind: string): UnreadableObject | null {
  const field = (name: string) =>
    new RegExp(`^ {2}${name}:[ \\t]+["']?([^\\s"']+)`, 'm').exec(text)?.[1] ?? null;
  const named = kind === patchKind ? field('resource') : null;
  const resource = resourceOfKind(undefined, kind) ?? resources.find((each) => each === named);
  if (resource === undefined) return null;
  // The target of a patch and the metadata of an object are both indented once.
  const namespace = resource === 'nodes' ? '' : field('namespace');
  return { resource, namespace, name: namespace === null ? null : field('name'), labels: null };
}

// --- patches ---

/** The lists that are merged by a key, of those that are read, by path. */
const mergeKeys: ReadonlyMap<string, string> = new Map([
  ['metadata.ownerReferences', 'uid'],
  ['spec.containers', 'name'],
  ['spec.containers.ports', 'containerPort'],
  ['spec.initContainers', 'name'],
  ['spec.initContainers.ports', 'containerPort'],
  ['spec.ports', 'port'],
  ['status.conditions', 'type'],
  ['status.podIPs', 'ip'],
]);

const orderPrefix = '$setElementOrder/';

/** What a strategic merge patch makes of a value; neither is changed. */
export function merge(base: unknown, patch: unknown, path = ''): unknown {
  if (!isFields(patch)) return patch;
  const replaced = patch.$patch === 'replace' || !isFields(base);
  const result = new Map<string, unknown>(replaced ? [] : Object.entries(base));
  const inner = (name: string) => (path === '' ? name : `${path}.${name}`);
  for (const [name, value] of Object.entries(patch)) {
    if (name.startsWith(orderPrefix)) {
      // The order of a list; perhaps no item has changed.
      const list = name.slice(orderPrefix.length);
      const changed = patch[list] ?? (mergeKeys.has(inner(list)) ? [] : undefined);
      if (Array.isArray(changed)) {
        const merged = mergeList(result.get(list), changed as unknown[], inner(list));
        result.set(list, inOrder(merged, value, inner(list)));
      }
    } else if (
      name.startsWith('$') ||
      (Array.isArray(value) && Object.hasOwn(patch, orderPrefix + name))
    ) {
      continue; // other directives are not followed, and lists with an order are merged above
    } else if (value === null || (isFields(value) && value.$patch === 'delete')) {
      result.delete(name);
    } else if (Array.isArray(value)) {
      result.set(name, mergeList(result.get(name), value as unknown[], inner(name)));
    } else {
      result.set(name, merge(result.get(name), value, inner(name)));
    }
  }
  return Object.fromEntries(result);
}

function mergeList(base: unknown, patch: readonly unknown[], path: string): readonly unknown[] {
  const key = mergeKeys.get(path);
  if (key === undefined) return patch;
  const isReplaced = patch.some((item) => isFields(item) && item.$patch === 'replace');
  const result = Array.isArray(base) && !isReplaced ? [...(base as unknown[])] : [];
  for (const item of patch) {
    if (isFields(item) && item.$patch === 'replace') continue;
    const index = isFields(item)
      ? result.findIndex((other) => isFields(other) && other[key] === item[key])
      : -1;
    const deleted = isFields(item) && item.$patch === 'delete';
    if (deleted && index >= 0) result.splice(index, 1);
    else if (index >= 0) result[index] = merge(result[index], item, path);
    else if (!deleted) result.push(merge({}, item, path));
  }
  return result;
}

/** The list in the order that a list of its keys gives; items that it does not name come last. */
function inOrder(list: readonly unknown[], order: unknown, path: string): readonly unknown[] {
  const key = mergeKeys.get(path);
  if (key === undefined || !Array.isArray(order)) return list;
  const keyOf = (item: unknown) => (isFields(item) ? item[key] : undefined);
  const positions = new Map((order as unknown[]).map((item, index) => [keyOf(item), index]));
  const position = (item: unknown) => positions.get(keyOf(item)) ?? positions.size;
  return list.toSorted((a, b) => position(a) - position(b));
}
