// Deltas between two versions of an Endpoints or an EndpointSlice. A change of one pod changes
// one of their endpoints, so a history writes that one, and where the others were in the version
// before. In a line of a recording:
//
//   "base":"123","parts":[[[0,12],1,[13,87]]],"object":{…}
//
// The object of the line has only new endpoints. Each list of endpoints has its parts: `[0,12]` are
// 12 endpoints from number 0 on of the version `base`, and `1` is the next one of the object. The
// EndpointSlice has one list, and Endpoints have one for each subset: ready addresses, then others.

import type { Endpoint, EndpointAddress, ObjectOf, OutputResource } from '../../model/objects.ts';
import { type Fields, WrongType } from '../decode/json-fields.ts';
import { writeObject } from './object-writer.ts';

export type AnyOutput = ObjectOf[OutputResource];

/** `[start, count]`: endpoints of the version before; a number: that many of the object. */
type Part = readonly [start: number, count: number] | number;

type AnyEndpoint = Endpoint | EndpointAddress;

export interface Delta {
  /** The API object with only the new endpoints. */
  readonly object: Fields;
  /** The size of the whole object. */
  readonly bytes: number;
  readonly base: string;
  readonly parts: readonly (readonly Part[])[];
}

/** A list with more new endpoints is written whole, since each of them is searched for. */
const mostNew = 32;

/**
 * The delta of an object from an earlier version, with which it shares equal endpoints, as in the
 * store. `null` if it should be written whole.
 */
export function deltaOf(
  resource: OutputResource,
  object: AnyOutput,
  base: AnyOutput,
): Delta | null {
  // A reader would compute the size from the line, which has only a part of the object.
  if (base.resourceVersion === '' || object.bytes === null) return null;
  const known = listsOf(base).flat();
  const all = listsOf(object);
  const lists = all.map((list) => compareLists(list, known));
  if (lists.some(({ added }) => added.length > mostNew)) return null;
  if (lengthOf(all) > lengthOf([known, ...lists.map(({ added }) => added)])) return null;
  return {
    object: writeObject(
      resource,
      withLists(
        object,
        lists.map(({ added }) => added),
      ),
    ),
    bytes: object.bytes,
    base: base.resourceVersion,
    parts: lists.map(({ parts }) => parts),
  };
}

/** The parts of a list, and what is new in it, up to one more than `mostNew`. */
function compareLists(list: readonly AnyEndpoint[], known: readonly AnyEndpoint[]) {
  const parts: (number | [number, number])[] = [];
  const added: AnyEndpoint[] = [];
  /** Shared endpoints are in the order of the version before. */
  let next = 0;
  for (const item of list) {
    if (added.length > mostNew) break;
    const last = parts.at(-1);
    const start = known.indexOf(item, next);
    if (start < 0) {
      added.push(item);
      if (typeof last === 'number') parts[parts.length - 1] = last + 1;
      else parts.push(1);
      continue;
    }
    if (start === next && typeof last === 'object') last[1]++;
    else parts.push([start, 1]);
    next = start + 1;
  }
  return { parts, added };
}

/**
 * The whole object, of one with only new endpoints. Throws WrongType if the base does not have the
 * endpoints of these parts, or if the object would have more than both: short lines that each
 * double an object would fill the memory.
 */
export function applyDelta<T extends AnyOutput>(object: T, base: T, parts: unknown): T {
  const known = listsOf(base).flat();
  const lists = listsOf(object);
  if (!Array.isArray(parts) || parts.length !== lists.length) throw wrongParts(parts);
  const most = lengthOf([known, ...lists]);
  if (!(countIn(parts) <= most)) throw wrongParts(parts);
  const whole = withLists(
    object,
    lists.map((added, index) => joinParts(parts[index], added, known)),
  );
  if (!isReadyFirst(whole)) throw wrongParts(parts);
  return whole;
}

const lengthOf = (lists: readonly (readonly unknown[])[]): number =>
  lists.reduce((sum, list) => sum + list.length, 0);

/** How many endpoints all parts have; NaN if one is no part. */
const countIn = (lists: readonly unknown[]): number =>
  lists.flat().reduce<number>((sum, part) => {
    const count: unknown = Array.isArray(part) ? part[1] : part;
    return sum + (typeof count === 'number' && count > 0 ? count : NaN);
  }, 0);

const isReadyFirst = (object: AnyOutput): boolean =>
  !('subsets' in object) ||
  object.subsets.every(({ addresses, readyCount }) =>
    addresses.slice(0, readyCount).every(({ ready }) => ready),
  );

const wrongParts = (parts: unknown): WrongType =>
  new WrongType('parts', 'parts of the version before', parts);

function joinParts(
  parts: unknown,
  added: readonly AnyEndpoint[],
  known: readonly AnyEndpoint[],
): readonly AnyEndpoint[] {
  if (!Array.isArray(parts)) throw wrongParts(parts);
  const ranges: (readonly AnyEndpoint[])[] = [];
  let next = 0;
  for (const part of parts as unknown[]) {
    const isKnown = Array.isArray(part);
    const [start, count] = isKnown ? (part as unknown[]) : [next, part];
    const items = rangeOf(isKnown ? known : added, start, count);
    if (items === null) throw wrongParts(parts);
    ranges.push(items);
    if (!isKnown) next += items.length;
  }
  if (next !== added.length) throw wrongParts(parts);
  return ranges.flat();
}

/** `null` if the list does not have all of them. */
function rangeOf<T>(list: readonly T[], start: unknown, count: unknown): readonly T[] | null {
  if (!Number.isInteger(start) || !Number.isInteger(count)) return null;
  const [from, to] = [Number(start), Number(start) + Number(count)];
  return from >= 0 && to > from && to <= list.length ? list.slice(from, to) : null;
}

const listsOf = (object: AnyOutput): readonly (readonly AnyEndpoint[])[] =>
  'subsets' in object ? object.subsets.map(({ addresses }) => addresses) : [object.endpoints];

/** The object with other lists of endpoints. */
function withLists<T extends AnyOutput>(object: T, lists: readonly (readonly AnyEndpoint[])[]): T {
  if (!('subsets' in object)) return { ...object, endpoints: lists[0] };
  const subsets = object.subsets.map((subset, index) => {
    // Addresses share the list of ports with their subset.
    const { ports } = subset;
    const list = (lists[index] ?? []) as readonly EndpointAddress[];
    const addresses = list.map((it) => (it.ports === ports ? it : { ...it, ports }));
    return { ...subset, addresses, readyCount: addresses.filter(({ ready }) => ready).length };
  });
  return { ...object, subsets };
}
