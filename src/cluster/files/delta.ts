// Deltas between two versions of a pod, an Endpoints or an EndpointSlice. Nearly every change is
// one of the status of a pod, and of its endpoint in both outputs. So a history writes only what
// has changed since the version before, and in which version that was. Lines of a recording:
//
//   {"kind":"delta","at":T,"resource":"pods","type":"MODIFIED","base":"123",
//    "metadata":{"name":…,"namespace":…,"resourceVersion":"124"},"ready":false,"turnedAt":T}
//   {"kind":"delta","at":T,"resource":"endpointslices","type":"MODIFIED","base":"125",
//    "metadata":{…},"parts":[[[0,12],1,[13,87]]],"endpoints":[{…}]}
//
// Everything else is as in version `base`. A pod may have `ready`, `turnedAt`, `ips` and
// `terminal`, and an output `bytes`, `generation` and `annotations`. `endpoints` or `subsets` have
// new endpoints as the API has them; parts.ts describes `parts`.

import { isDeepStrictEqual } from 'node:util';

import { equalTexts } from '../../model/equality.ts';
import type { AnyObject, ObjectOf, OutputResource, Pod, Resource } from '../../model/objects.ts';
import { isOutput } from '../../model/objects.ts';
import * as json from '../decode/json-fields.ts';
import { project } from '../decode/json-objects.ts';
import { safeAnnotations, writeObject } from './object-writer.ts';
import {
  type AnyOutput,
  applyParts,
  compareLists,
  countKnown,
  listsOf,
  withLists,
} from './parts.ts';

/** Resources whose versions may be written as deltas. */
export type DeltaResource = OutputResource | 'pods';

export const hasDeltas = (resource: Resource): resource is DeltaResource =>
  resource === 'pods' || isOutput(resource);

/** What a delta may change; an object with any other change is written whole. */
const changing: ReadonlySet<string> = new Set([
  ...['resourceVersion', 'ready', 'turnedAt', 'ips', 'ipsSince', 'terminal'],
  ...['at', 'bytes', 'generation', 'annotations', 'endpoints', 'subsets'],
]);

/** Whether only the values of these fields differ. */
export function isSameBut<T extends AnyObject>(
  fields: ReadonlySet<string>,
  object: T,
  base: T,
): boolean {
  for (const field in object) {
    const isSame = object[field] === base[field] || fields.has(field);
    if (!isSame && !isDeepStrictEqual(object[field], base[field])) return false;
  }
  return true;
}

/**
 * The fields of the delta of an object from an earlier version, with which it shares equal
 * endpoints, as in the store. `null` if it should be written whole.
 */
export function deltaOf<R extends DeltaResource>(
  resource: R,
  object: ObjectOf[R],
  base: ObjectOf[R],
): json.Fields | null {
  if (base.resourceVersion === '' || object.deleting) return null;
  if (!isSameBut(changing, object, base)) return null;
  if (!('bytes' in object)) return podDelta(object, base as Pod);
  // A reader would compute the size from the line, which has only a part of the object.
  if (object.bytes === null) return null;
  return outputDelta(resource as OutputResource, object, base as AnyOutput);
}

/** Undefined, which JSON leaves out, for a value that is as before. */
export const changed = <T>(before: T, after: T): T | undefined =>
  before === after || isDeepStrictEqual(before, after) ? undefined : after;

function podDelta(pod: Pod, base: Pod): json.Fields {
  const { name, namespace, resourceVersion } = pod;
  return {
    base: base.resourceVersion,
    metadata: { name, namespace, resourceVersion },
    ready: changed(base.ready, pod.ready),
    turnedAt: changed(base.turnedAt, pod.turnedAt),
    ips: changed(base.ips, pod.ips),
    terminal: changed(base.terminal, pod.terminal),
  };
}

function outputDelta(
  resource: OutputResource,
  object: AnyOutput,
  base: AnyOutput,
): json.Fields | null {
  const known = listsOf(base).flat();
  const lists = listsOf(object).map((list) => compareLists(list, known));
  if (!lists.every((it) => it !== null)) return null;
  const parts = lists.map((it) => it.parts);
  if (countKnown(parts) > known.length) return null;
  const added = lists.map((it) => it.added);
  const isNew = !hasSamePorts(object, base) || added.some(({ length }) => length > 0);
  const { endpoints, subsets } = isNew ? writeObject(resource, withLists(object, added)) : {};
  const { name, namespace, resourceVersion, annotations } = object;
  const generation = 'generation' in object ? object.generation : undefined;
  const before = 'generation' in base ? base.generation : undefined;
  return {
    base: base.resourceVersion,
    metadata: { name, namespace, resourceVersion },
    bytes: changed(base.bytes, object.bytes),
    generation: changed(before, generation),
    annotations: changed(base.annotations, annotations) && safeAnnotations(annotations),
    parts,
    endpoints,
    subsets,
  };
}

/** Whether the subsets have the same ports; a slice whose ports differ is written whole. */
const hasSamePorts = (object: AnyOutput, base: AnyOutput): boolean =>
  !('subsets' in object) ||
  !('subsets' in base) ||
  isDeepStrictEqual(
    object.subsets.map(({ ports }) => ports),
    base.subsets.map(({ ports }) => ports),
  );

/** The object of a delta that arrived at a time. Throws WrongType. */
export function applyDelta(base: Pod | AnyOutput, delta: json.Fields, at: number): Pod | AnyOutput {
  const resourceVersion = json.within(delta, 'metadata', (it) => json.text(it, 'resourceVersion'));
  if ('ips' in base) return changedPod({ ...base, resourceVersion }, delta, at);
  const shell = emptyOutput(base, delta, at);
  return applyParts({ ...shell, resourceVersion }, base, delta.parts);
}

function changedPod(base: Pod, delta: json.Fields, at: number): Pod {
  const { ready, turnedAt, terminal } = delta;
  const ips = delta.ips === undefined ? base.ips : json.texts(delta, 'ips');
  const hasSameIPs = equalTexts(ips, base.ips);
  return {
    ...base,
    ready: ready === undefined ? base.ready : json.flag(delta, 'ready'),
    turnedAt: turnedAt === undefined ? base.turnedAt : timeIn(delta, 'turnedAt'),
    terminal: terminal === undefined ? base.terminal : json.flag(delta, 'terminal'),
    ips: hasSameIPs ? base.ips : ips,
    ipsSince: hasSameIPs ? base.ipsSince : at,
  };
}

/** Unix seconds of the years that RFC 3339 can write: 0 to 9999. */
const writable = { from: -62_167_219_200, to: 253_402_300_800 };

/** Unix seconds; `null` when absent. Throws WrongType for a time that RFC 3339 cannot write. */
export function timeIn(line: json.Fields, name: 'turnedAt' | 'created'): number | null {
  const time = json.optionalTime(line, name);
  if (time === null || (time >= writable.from && time < writable.to)) return time;
  throw new json.WrongType(name, 'a time of RFC 3339', time);
}

/** The output of a delta with only its new endpoints. */
function emptyOutput(base: AnyOutput, delta: json.Fields, at: number): AnyOutput {
  const bytes = json.optionalTime(delta, 'bytes') ?? base.bytes;
  const annotations =
    delta.annotations === undefined ? base.annotations : json.stringMap(delta, 'annotations');
  const common = { at, bytes, annotations };
  if ('subsets' in base) {
    const { subsets } = delta.subsets === undefined ? withLists(base) : read('endpoints', delta);
    return { ...base, ...common, subsets };
  }
  const { endpoints } =
    delta.endpoints === undefined ? withLists(base) : read('endpointslices', delta);
  const generation =
    delta.generation === undefined ? base.generation : json.integer(delta, 'generation');
  return { ...base, ...common, generation, endpoints };
}

/** What has the new endpoints, as an API object. */
function read<R extends OutputResource>(resource: R, delta: json.Fields): ObjectOf[R] {
  const { metadata, endpoints, subsets } = delta;
  const apiVersion = resource === 'endpointslices' ? 'discovery.k8s.io/v1' : 'v1';
  const raw = { apiVersion, metadata, addressType: 'IPv4', endpoints, subsets };
  const { object, problem } = project(resource, raw, 0);
  if (problem === undefined) return object;
  throw new json.WrongType(problem.field ?? '', 'readable endpoints', problem.value);
}
