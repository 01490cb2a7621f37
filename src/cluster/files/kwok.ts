// A recording made by kwok: what `kwokctl snapshot record` and `kwokctl snapshot export --record`
// write (sigs.k8s.io/kwok pkg/kwokctl/snapshot/save.go).
//
// It is YAML: every object as it was at the beginning, then one ResourcePatch for each change:
//
//   apiVersion: action.kwok.x-k8s.io/v1alpha1
//   kind: ResourcePatch
//   durationNanosecond: 1500000000
//   method: patch
//   resource: { resource: pods, version: v1 }
//   target: { name: web-1, namespace: shop }
//   template: { status: { phase: Running } }
//
// The method is create (template is the object), patch or delete. The file does not say which
// resources were recorded, so it is read twice, first for the resources that occur in it. Times are
// relative to the beginning, which is taken for the Unix epoch. Objects have no resourceVersion.
// Patches are strategic merge patches with $patch and $setElementOrder.

import type { Resource, UnreadableObject } from '../../model/objects.ts';
import { isOutput, kinds, resources } from '../../model/objects.ts';
import { type Fields, isFields } from '../decode/json-fields.ts';
import type { Parsed, Piece } from '../decode/json-items.ts';
import { jsonBytes, objectText, resourceOfKind } from '../decode/json-objects.ts';
import { type Bytes, lineBatches, plainBytes } from '../decode/line-reader.ts';
import { countWord, type OnProblem, valueText } from '../decode/problem.ts';
import type { Reading, RecordingEntry, RecordingOptions, Source } from './recording.ts';
import { lose, newReading, readChange, report } from './recording.ts';
import { guessYaml, parseYamlItem, yamlField, yamlPieces } from './yaml-items.ts';

const patchKind = 'ResourcePatch';

const resourceForm = /^kind:[ \t]+["']?(\w+)|\bresource:[ \t]+["']?(\w+)/;

/** The resources that occur in a kwok recording; null: it has no ResourcePatch, and is a dump. */
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

/** Reads a kwok recording with objects of these resources as readRecording reads others. */
export async function* readKwok(
  source: Source,
  found: readonly Resource[],
  onProblem: OnProblem,
  options: RecordingOptions = {},
): AsyncGenerator<RecordingEntry> {
  yield { kind: 'header', at: 0, kubernetes: null, resources: found };
  const reading: KwokReading = {
    ...newReading(source.name, onProblem, options),
    line: 1,
    unsynced: [...found],
    raws: new Map(),
  };
  const plain = plainBytes(source.bytes, (message, value) => (reading.damage = { message, value }));
  for await (const batch of yamlPieces(plain, () => reading.damage !== null)) {
    for (const piece of batch) yield* readPiece(reading, piece);
  }
  yield* endSnapshot(reading);
  if (reading.damage !== null) report(reading, reading.damage.message, reading.damage);
  reading.complete = reading.damage === null;
  const { at, complete, skipped } = reading;
  yield { kind: 'end', at, complete, skipped };
}

interface KwokReading extends Reading {
  readonly unsynced: Resource[];
  /** The current objects, by resource and key. */
  readonly raws: Map<string, unknown>;
}

function* endSnapshot({ unsynced }: KwokReading): Generator<RecordingEntry> {
  for (const resource of unsynced.splice(0)) yield { kind: 'synced', at: 0, resource };
}

function* readPiece(reading: KwokReading, { type, line, text }: Piece): Generator<RecordingEntry> {
  reading.line = line;
  if (type === 'head' || type === 'tail') return; // kwokctl writes no lists
  const kind = yamlField(text, 'kind') ?? '';
  if (kind === patchKind) yield* endSnapshot(reading);
  else if (resourceOfKind(undefined, kind) === null) {
    countWord(reading.skipped, kind);
    return;
  }
  const parsed: Parsed = type === 'document' ? parseYamlItem(text) : { fault: '', line: 0 };
  if ('value' in parsed) {
    if (!isFields(parsed.value)) return;
    const entry = kind === patchKind ? readPatch : readInitial;
    yield entry(reading, parsed.value) ?? { kind: 'clock', at: reading.at };
    return;
  }
  const lost = lostOf(text, kind);
  // The damage reports what is cut off.
  if (type !== 'unfinished') {
    const object = lost === null ? null : objectText(lost);
    const value = parsed.fault === '' ? null : valueText(parsed.fault);
    reading.line = line + parsed.line;
    const message = type === 'tooLong' ? 'Object too long' : 'Expected YAML';
    report(reading, message, { value, object, lost });
    reading.line = line;
  }
  if (lost !== null) yield { kind: 'unreadable', at: reading.at, type: null, lost };
}

/** null if it is of a kind that is not read. */
function readInitial(reading: KwokReading, raw: Fields): RecordingEntry | null {
  const resource = resourceOfKind(raw.apiVersion ?? undefined, raw.kind);
  if (resource !== null) return change(reading, resource, 'ADDED', raw);
  countWord(reading.skipped, String(raw.kind));
  return null;
}

/** null if it is of a resource that is not read. */
function readPatch(reading: KwokReading, patch: Fields): RecordingEntry | null {
  const { durationNanosecond: duration, resource: version, target, method, template } = patch;
  if (typeof duration === 'number' && Number.isFinite(duration)) {
    reading.at = Math.max(reading.at, duration / 1e9);
  } else {
    const value = valueText(duration);
    report(reading, 'Expected a number', { field: 'durationNanosecond', value });
  }
  const named = isFields(version) ? version.resource : undefined;
  const resource = resources.find((resource) => resource === named);
  if (resource === undefined) {
    countWord(reading.skipped, typeof named === 'string' ? named : patchKind);
    return null;
  }
  const { name, namespace } = isFields(target) ? target : ({} as Fields);
  const latest = reading.raws.get(JSON.stringify([resource, namespace ?? '', name]));
  if (method === 'create') return change(reading, resource, 'ADDED', template);
  const isKnown = method === 'delete' || method === 'patch';
  if (isKnown && latest !== undefined) {
    return method === 'delete'
      ? change(reading, resource, 'DELETED', latest)
      : change(reading, resource, 'MODIFIED', merge(latest, template));
  }
  const lost = {
    resource,
    namespace: resource === 'nodes' ? '' : typeof namespace === 'string' ? namespace : null,
    name: typeof name === 'string' ? name : null,
    labels: null,
  };
  const text = isKnown ? 'Expected a patch of a known object' : 'Expected create, patch or delete';
  const details = { object: objectText(lost), field: 'method', value: valueText(method) };
  return lose(reading, null, lost, text, details);
}

function change(
  reading: KwokReading,
  resource: Resource,
  type: 'ADDED' | 'MODIFIED' | 'DELETED',
  raw: unknown,
): RecordingEntry {
  const bytes = isOutput(resource) ? jsonBytes(raw) : null;
  const entry = readChange(reading, resource, type, raw, bytes);
  const { namespace, name } = entry.kind === 'event' ? entry.event.object : entry.lost;
  const key = JSON.stringify([resource, namespace, name]);
  if (type === 'DELETED') reading.raws.delete(key);
  else reading.raws.set(key, raw);
  return entry;
}

function lostOf(text: string, kind: string): UnreadableObject | null {
  const named = /^ {2}resource:[ \t]+["']?(\w+)/m.exec(text)?.[1];
  const resource = resourceOfKind(undefined, kind) ?? resources.find((each) => each === named);
  if (resource === undefined) return null;
  const guess = guessYaml(text, kind === patchKind ? 'target' : 'metadata');
  const namespace = resource === 'nodes' ? '' : guess.namespace;
  return { resource, namespace, name: namespace === null ? null : guess.name, labels: null };
}

// --- patches ---

/** The merge keys of lists, by path. */
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
  if (Array.isArray(patch)) return mergeList(base, patch, path);
  if (!isFields(patch)) return patch;
  const isReplaced = patch.$patch === 'replace' || !isFields(base);
  const result = new Map<string, unknown>(isReplaced ? [] : Object.entries(base));
  const inner = (name: string) => (path === '' ? name : `${path}.${name}`);
  for (const [name, value] of Object.entries(patch)) {
    if (name.startsWith('$')) continue;
    const isDeleted = value === null || (isFields(value) && value.$patch === 'delete');
    if (isDeleted) result.delete(name);
    else result.set(name, merge(result.get(name), value, inner(name)));
  }
  // Orders come last, since they are of lists as they are now.
  for (const [name, order] of Object.entries(patch)) {
    const list = name.startsWith(orderPrefix) ? name.slice(orderPrefix.length) : '';
    if (result.has(list)) result.set(list, inOrder(result.get(list), order, inner(list)));
  }
  return Object.fromEntries(result);
}

function mergeList(base: unknown, patch: readonly unknown[], path: string): readonly unknown[] {
  const key = mergeKeys.get(path);
  if (key === undefined) return patch;
  const isReplaced = patch.some((item) => isFields(item) && item.$patch === 'replace');
  const result = Array.isArray(base) && !isReplaced ? [...(base as unknown[])] : [];
  for (const item of patch) {
    const { $patch: directive, [key]: id } = isFields(item) ? item : ({} as Fields);
    if (directive === 'replace') continue;
    const found = isFields(item)
      ? result.findIndex((other) => isFields(other) && other[key] === id)
      : -1;
    if (directive === 'delete') result.splice(found, found < 0 ? 0 : 1);
    else result[found < 0 ? result.length : found] = merge(result[found], item, path);
  }
  return result;
}

/** Items that `order` does not name come last. */
function inOrder(list: unknown, order: unknown, path: string): unknown {
  const key = mergeKeys.get(path);
  if (key === undefined || !Array.isArray(list) || !Array.isArray(order)) return list;
  const keyOf = (item: unknown) => (isFields(item) ? item[key] : undefined);
  const positions = new Map((order as unknown[]).map((item, index) => [keyOf(item), index]));
  const position = (item: unknown) => positions.get(keyOf(item)) ?? positions.size;
  return list.toSorted((a, b) => position(a) - position(b)) as unknown;
}
