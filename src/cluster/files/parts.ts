// Lists of endpoints of an Endpoints or an EndpointSlice, in parts that refer to another version.
// In a line of a recording:
//
//   "parts":[[[0,12],1,{"of":13,"ready":false,"serving":false,"terminating":false},[14,87]]]
//
// `[0,12]` are 12 endpoints from number 0 on of the version before, `1` is the next new one that
// the line has, and `{"of":13,…}` is number 13 of the version before with these conditions. An
// EndpointSlice has one list, and Endpoints have one for each subset: ready addresses, then others.

import { equalAddresses, equalEndpoints } from '../../model/equality.ts';
import type { Endpoint, EndpointAddress, ObjectOf, OutputResource } from '../../model/objects.ts';
import { type Fields, flag, isFields, optionalFlag, WrongType } from '../decode/json-fields.ts';

export type AnyOutput = ObjectOf[OutputResource];

export type AnyEndpoint = Endpoint | EndpointAddress;

/** Part of a list: known endpoints, as many new ones, or a known one with other conditions. */
type Part = [start: number, count: number] | number | TurnedPart;

interface TurnedPart {
  readonly of: number;
  readonly ready: boolean | null;
  readonly serving?: boolean | null;
  readonly terminating?: boolean | null;
}

/** A list with more changed endpoints is written whole, since each of them is searched for. */
const mostChanged = 32;

/**
 * The parts of a list, and what is new in it. It shares equal endpoints with the version before, as
 * in the store. `null` if it should be written whole.
 */
export function compareLists(list: readonly AnyEndpoint[], known: readonly AnyEndpoint[]) {
  let changed = 0;
  const compared = splitList(list, (item, next) => {
    if (changed > mostChanged) return null;
    // Shared endpoints are in the order of the version before.
    const start = known.indexOf(item, next);
    if (start >= 0) return start;
    if (++changed > mostChanged) return null;
    const of = known.findIndex((it) => isTurned(it, item));
    return of < 0 ? null : { of, ...conditionsOf(item) };
  });
  return changed > mostChanged ? null : compared;
}

/**
 * The parts of a list, and what is new in it. `find` returns the number of a known endpoint, the
 * part of one with other conditions, or `null` for a new one. `next` follows the last known one.
 */
export function splitList(
  list: readonly AnyEndpoint[],
  find: (item: AnyEndpoint, next: number) => number | TurnedPart | null,
) {
  const parts: Part[] = [];
  const added: AnyEndpoint[] = [];
  let next = 0;
  for (const item of list) {
    const last = parts.at(-1);
    const found = find(item, next);
    if (found === null) {
      added.push(item);
      if (typeof last === 'number') parts[parts.length - 1] = last + 1;
      else parts.push(1);
    } else if (typeof found === 'number') {
      if (found === next && Array.isArray(last)) last[1]++;
      else parts.push([found, 1]);
      next = found + 1;
    } else parts.push(found);
  }
  return { parts, added };
}

function conditionsOf(endpoint: AnyEndpoint): Omit<TurnedPart, 'of'> {
  if (!('serving' in endpoint)) return { ready: endpoint.ready };
  const { ready, serving, terminating } = endpoint;
  return { ready, serving, terminating };
}

/** Whether only the conditions differ. Ports are those of the subset. */
function isTurned(before: AnyEndpoint, after: AnyEndpoint): boolean {
  if ('serving' in before) {
    const isOther = !('serving' in after) || before.addresses[0] !== after.addresses[0];
    return !isOther && equalEndpoints({ ...before, ...conditionsOf(after) }, after);
  }
  if ('serving' in after || before.ip !== after.ip) return false;
  const { ready, ports } = after;
  return equalAddresses({ ...before, ready, ports }, after);
}

/** How many known endpoints the ranges have; NaN if a range has no positive count. */
export const countKnown = (lists: readonly unknown[]): number =>
  lists.flat().reduce<number>((sum, part) => {
    if (!Array.isArray(part)) return sum;
    const count: unknown = part[1];
    return sum + (typeof count === 'number' && count > 0 ? count : NaN);
  }, 0);

/**
 * The whole object, of one with only new endpoints. Throws WrongType if the base does not have the
 * endpoints of these parts, or if ranges repeat more of them than it has: short lines that each
 * double an object would fill the memory. Each other endpoint needs text of its own in the line.
 */
export function applyParts<T extends AnyOutput>(object: T, base: AnyOutput, parts: unknown): T {
  const known = listsOf(base).flat();
  if (!Array.isArray(parts) || !(countKnown(parts) <= known.length)) throw wrongParts(parts);
  const wrong = (value: unknown = parts): WrongType => wrongParts(value);
  return joinLists(object, parts, wrong, (part) => {
    if (isFields(part)) {
      return [turned(typeof part.of === 'number' ? known[part.of] : undefined, part)];
    }
    const [start, count] = Array.isArray(part) ? (part as unknown[]) : [];
    return rangeOf(known, start, count);
  });
}

const wrongParts = (parts: unknown): WrongType =>
  new WrongType('parts', 'parts of the version before', parts);

/**
 * The whole object, of one with only new endpoints. `knownOf` returns the endpoints of a part of
 * one of its lists, and `null` if they are missing. Throws what `wrong` makes of the parts of a
 * list; it gets none if those of all lists together are wrong.
 */
export function joinLists<T extends AnyOutput>(
  object: T,
  parts: unknown,
  wrong: (parts?: unknown) => WrongType,
  knownOf: (part: unknown, list: number) => readonly AnyEndpoint[] | null,
): T {
  const lists = listsOf(object);
  if (!Array.isArray(parts) || parts.length !== lists.length) throw wrong();
  const joined = lists.map((added, index) => {
    const own: unknown = parts[index];
    const list = Array.isArray(own) ? joinList(own, added, (part) => knownOf(part, index)) : null;
    if (list === null) throw wrong(own);
    return list;
  });
  const whole = withLists(object, joined);
  if (!isReadyFirst(whole)) throw wrong();
  return whole;
}

/** `null` if an endpoint is missing, or a new one is left over. */
function joinList(
  parts: readonly unknown[],
  added: readonly AnyEndpoint[],
  knownOf: (part: unknown) => readonly AnyEndpoint[] | null,
): readonly AnyEndpoint[] | null {
  const joined: AnyEndpoint[] = [];
  let next = 0;
  for (const part of parts) {
    const isNew = typeof part === 'number';
    const items = isNew ? rangeOf(added, next, part) : knownOf(part);
    if (items === null) return null;
    for (const item of items) joined.push(item);
    if (isNew) next += items.length;
  }
  return next === added.length ? joined : null;
}

/** Whether the ready addresses of each subset come first. */
const isReadyFirst = (object: AnyOutput): boolean =>
  !('subsets' in object) ||
  object.subsets.every(({ addresses, readyCount }) =>
    addresses.slice(0, readyCount).every(({ ready }) => ready),
  );

/** The endpoint with the conditions of the part. */
function turned(endpoint: AnyEndpoint | undefined, part: Fields): AnyEndpoint {
  if (endpoint === undefined) throw wrongParts(part);
  if (!('serving' in endpoint)) return { ...endpoint, ready: flag(part, 'ready') };
  return {
    ...endpoint,
    ready: optionalFlag(part, 'ready'),
    serving: optionalFlag(part, 'serving'),
    terminating: optionalFlag(part, 'terminating'),
  };
}

/** `null` if the list does not have all of them. */
export function rangeOf<T>(
  list: readonly T[],
  start: unknown,
  count: unknown,
): readonly T[] | null {
  if (!Number.isInteger(start) || !Number.isInteger(count)) return null;
  const [from, to] = [Number(start), Number(start) + Number(count)];
  return from >= 0 && to > from && to <= list.length ? list.slice(from, to) : null;
}

export const listsOf = (object: AnyOutput): readonly (readonly AnyEndpoint[])[] =>
  'subsets' in object ? object.subsets.map(({ addresses }) => addresses) : [object.endpoints];

/** The object with other lists of endpoints; without them, with empty ones. */
export function withLists<T extends AnyOutput>(
  object: T,
  lists: readonly (readonly AnyEndpoint[])[] = [],
): T {
  if (!('subsets' in object)) return { ...object, endpoints: lists[0] ?? [] };
  const subsets = object.subsets.map((subset, index) => {
    // Addresses share the list of ports with their subset.
    const { ports } = subset;
    const list = (lists[index] ?? []) as readonly EndpointAddress[];
    const addresses = list.map((it) => (it.ports === ports ? it : { ...it, ports }));
    return { ...subset, addresses, readyCount: addresses.filter(({ ready }) => ready).length };
  });
  return { ...object, subsets };
}
