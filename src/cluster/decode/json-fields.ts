// Reads the fields of plain objects as Go's decoder does: an absent or null field is the zero value
// of its type (null for a reader named `optional…`), and a value of another type throws WrongType.
//
// Go accepts a null item of a list as a zero value; here it is an error, since no API server stores
// one. The file also reads what all kinds share in k8s.io/apimachinery: times, quantities, metadata
// and references.

import { isFields } from '../../model/collections.ts';
import type {
  Key,
  Labels,
  Meta,
  ObjectRef,
  OwnerReference,
  WatchEvent,
} from '../../model/objects.ts';
import { internLabels, internWord } from './intern.ts';

/** The event types of a watch (apimachinery@v0.36.3 pkg/watch/watch.go). */
export const eventTypes: ReadonlyMap<unknown, WatchEvent['type']> = new Map([
  ['ADDED', 'added'],
  ['MODIFIED', 'modified'],
  ['DELETED', 'deleted'],
]);

export type Fields = Readonly<Record<string, unknown>>;

export class WrongType extends Error {
  /** What should be there: `a string`. */
  readonly expected: string;
  readonly value: unknown;
  /** The path of the field from where the error was caught; empty: the value itself. */
  field: string;

  constructor(field: string, expected: string, value: unknown) {
    super(expected);
    this.field = field;
    this.expected = expected;
    this.value = value;
  }

  /** The same, seen from the object (or, with an index, the list) that holds the field. */
  inside(name: string, index?: number): this {
    const place = index === undefined ? name : `${name}[${index}]`;
    const joint = this.field === '' || this.field.startsWith('[') ? '' : '.';
    this.field = place + joint + this.field;
    return this;
  }
}

const noFields: Fields = Object.freeze({});
export const noLabels: Labels = Object.freeze({});
const noItems: readonly never[] = Object.freeze([]);

export { isFields };

/** A string; '' when absent. */
export const text = (fields: Fields, name: string): string => optionalText(fields, name) ?? '';

/** A string; null when absent. */
export function optionalText(fields: Fields, name: string): string | null {
  const value = fields[name];
  if (typeof value === 'string') return value;
  if (value === undefined || value === null) return null;
  throw new WrongType(name, 'a string', value);
}

/** A string that repeats from object to object, interned. */
export const word = (fields: Fields, name: string): string => internWord(text(fields, name));

/** A string that repeats from object to object, interned; null when absent. */
export function optionalWord(fields: Fields, name: string): string | null {
  const value = optionalText(fields, name);
  return value === null ? null : internWord(value);
}

/** One of a few words. An absent or empty field is `fallback`; an error where there is none. */
export function oneOf<T extends string>(
  fields: Fields,
  name: string,
  values: readonly T[],
  fallback?: T,
): T {
  const found = text(fields, name);
  const value = found === '' ? fallback : values.find((value) => value === found);
  if (value !== undefined) return value;
  const expected = `${values.slice(0, -1).join(', ')} or ${values.at(-1) ?? ''}`;
  throw new WrongType(name, expected, fields[name]);
}

/** A boolean; false when absent. */
export const flag = (fields: Fields, name: string): boolean => optionalFlag(fields, name) ?? false;

/** A boolean; null when absent. */
export function optionalFlag(fields: Fields, name: string): boolean | null {
  const value = fields[name];
  if (typeof value === 'boolean') return value;
  if (value === undefined || value === null) return null;
  throw new WrongType(name, 'a boolean', value);
}

/** An int32, as every port number is one to the decoder. */
export const number = (fields: Fields, name: string): number => optionalNumber(fields, name) ?? 0;

/** An int32; null when absent. */
export function optionalNumber(fields: Fields, name: string): number | null {
  const value = fields[name];
  if (value === undefined || value === null) return null;
  if (typeof value === 'number' && value === (value | 0)) return value;
  throw new WrongType(name, 'a 32-bit integer', value);
}

/** A finite number, such as Unix seconds; null when absent. */
export function optionalTime(fields: Fields, name: string): number | null {
  const value = fields[name];
  if (value === undefined || value === null) return null;
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  throw new WrongType(name, 'a number', value);
}

/** An int64; not exact above 2^53. */
export function integer(fields: Fields, name: string): number {
  const value = fields[name] ?? 0;
  if (typeof value === 'number' && Number.isInteger(value)) return value;
  throw new WrongType(name, 'an integer', value);
}

/** What `read` makes of an object; of an empty object when absent. */
export function within<T>(fields: Fields, name: string, read: (part: Fields) => T): T {
  const value = fields[name] ?? noFields;
  if (!isFields(value)) throw new WrongType(name, 'an object', value);
  try {
    return read(value);
  } catch (error) {
    if (error instanceof WrongType) throw error.inside(name);
    throw error;
  }
}

/** What `read` makes of an object; null when absent. */
export const optional = <T>(fields: Fields, name: string, read: (part: Fields) => T): T | null =>
  (fields[name] ?? null) === null ? null : within(fields, name, read);

/** What `read` makes of each object of a list. */
export const list = <T>(fields: Fields, name: string, read: (item: Fields) => T): readonly T[] =>
  items(fields, name, isFields, 'an object', read);

/** A list of what `read` makes of each object; null when absent. */
export const optionalList = <T>(fields: Fields, name: string, read: (item: Fields) => T) =>
  (fields[name] ?? null) === null ? null : list(fields, name, read);

const isText = (item: unknown): item is string => typeof item === 'string';
const sameText = (item: string): string => item;

/** A list of strings; empty when absent. */
export const texts = (fields: Fields, name: string): readonly string[] =>
  items(fields, name, isText, 'a string', sameText);

function items<I, T>(
  fields: Fields,
  name: string,
  isItem: (item: unknown) => item is I,
  expected: string,
  read: (item: I) => T,
): readonly T[] {
  const value = fields[name];
  if (value === undefined || value === null) return noItems;
  if (!Array.isArray(value)) throw new WrongType(name, 'a list', value);
  if (value.length === 0) return noItems;
  // Of exact size, since pushing reserves room for more, and lists of one are most there are.
  const result = new Array<T>(value.length);
  let index = 0;
  try {
    for (; index < value.length; index++) {
      const item: unknown = value[index];
      if (!isItem(item)) throw new WrongType('', expected, item);
      result[index] = read(item);
    }
    return result;
  } catch (error) {
    if (error instanceof WrongType) throw error.inside(name, index);
    throw error;
  }
}

/** A map of strings. A null value is the empty string, as in Go. */
export function stringMap(fields: Fields, name: string): Labels {
  const value = fields[name];
  if (value === undefined || value === null) return noLabels;
  if (!isFields(value)) throw new WrongType(name, 'an object', value);
  let nulls = false;
  for (const key in value) {
    const text = value[key];
    if (text === null) nulls = true;
    else if (typeof text !== 'string') {
      throw new WrongType(`["${key}"]`, 'a string', text).inside(name);
    }
  }
  // Object.fromEntries defines properties, so that `__proto__` is a key like any other.
  return nulls
    ? Object.fromEntries(Object.entries(value).map(([key, text]) => [key, (text ?? '') as string]))
    : (value as Labels);
}

/** A label map or selector, interned. */
export const labelMap = (fields: Fields, name: string): Labels =>
  internLabels(stringMap(fields, name));

/** The time of a field (RFC 3339, or a Date from protobuf), Unix seconds; null if there is none. */
function moment(fields: Fields, name: string): number | null {
  const value = fields[name];
  return value instanceof Date ? small(value.getTime() / 1000) : unixSeconds(text(fields, name));
}

/** The same number; bitwise, so that V8 stores a whole number without a heap object. */
const small = (seconds: number): number => (seconds === (seconds | 0) ? seconds | 0 : seconds);

const rfc3339 =
  /^(\d{4}-\d\d-\d\d)(T(?!2[4-9])[0-2]\d(?::[0-5]\d){2})(\.\d+)?(Z|[+-](?!2[4-9])[0-2]\d:[0-5]\d)$/;

/** Two digits of a text; NaN for others. */
function twoDigits(text: string, at: number): number {
  const tens = text.charCodeAt(at) - zero;
  const ones = text.charCodeAt(at + 1) - zero;
  return tens >= 0 && tens <= 9 && ones >= 0 && ones <= 9 ? 10 * tens + ones : NaN;
}

const [zero, hyphen, colon, capitalT, capitalZ] = [0x30, 0x2d, 0x3a, 0x54, 0x5a];

/** Whether the text has the separators of `2026-11-21T10:57:00Z`, the form of the API server. */
const isPlainTime = (text: string): boolean =>
  text.length === 20 &&
  text.charCodeAt(4) === hyphen &&
  text.charCodeAt(7) === hyphen &&
  text.charCodeAt(10) === capitalT &&
  text.charCodeAt(13) === colon &&
  text.charCodeAt(16) === colon &&
  text.charCodeAt(19) === capitalZ;

/** As `unixSeconds`, without a regular expression; null: not of this form, or not a time. */
function plainSeconds(text: string): number | null {
  if (!isPlainTime(text)) return null;
  const year = 100 * twoDigits(text, 0) + twoDigits(text, 2);
  const [month, day] = [twoDigits(text, 5), twoDigits(text, 8)];
  const [hour, minute, second] = [twoDigits(text, 11), twoDigits(text, 14), twoDigits(text, 17)];
  // Date.UTC takes 99 for 1999, and 30 February for a day of March.
  if (!(year >= 100 && month >= 1 && month <= 12 && day >= 1)) return null;
  if (!(hour < 24 && minute < 60 && second < 60)) return null;
  const midnight = Date.UTC(year, month - 1, day) / 1000;
  if (day > 28 && midnight >= Date.UTC(year, month, 1) / 1000) return null;
  return small(midnight + 3600 * hour + 60 * minute + second);
}

/** From RFC 3339; null for anything else, which Go refuses: here times only serve to measure. */
export function unixSeconds(text: string): number | null {
  const plain = plainSeconds(text);
  if (plain !== null || text === '') return plain;
  const [, date = '', time = '', fraction, zone = ''] = rfc3339.exec(text) ?? [];
  const whole = Date.parse(date + time + zone) / 1000;
  // Date.parse takes 30 February for a day of March.
  if (Number.isNaN(whole) || new Date(date).getUTCDate() !== Number(date.slice(-2))) return null;
  return fraction === undefined ? small(whole) : whole + Number(fraction);
}

const quantityForm =
  /^([+-]?)(\d{0,40})(?:\.(\d{0,40}))?(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,3}))?$/;
/** By powers of 1000 from the third negative one, and of 1024 from the first. */
const decimalSuffixes = 'num kMGTPE';
const binarySuffixes = ['Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'];

/** Thousandths, rounded away from zero (MilliValue of apimachinery@v0.36.3 pkg/api/resource). */
export function quantity(fields: Fields, name: string): number {
  const value = fields[name];
  if (value === undefined || value === null) return 0;
  const form = typeof value === 'number' ? String(value) : value;
  const match = typeof form === 'string' ? quantityForm.exec(form) : null;
  const digits = (match?.[2] ?? '') + (match?.[3] ?? '');
  if (match === null || digits === '') throw new WrongType(name, 'a quantity', value);
  const [, sign = '', , fraction = '', binary, decimal, exponent] = match;
  const suffix = 3 * (decimalSuffixes.indexOf(decimal ?? ' ') - 3);
  const power = Number(exponent ?? suffix) - fraction.length + 3;
  const factor = binary === undefined ? 1n : 1024n ** BigInt(binarySuffixes.indexOf(binary) + 1);
  const dividend = BigInt(digits) * factor * 10n ** BigInt(Math.max(power, 0));
  const divisor = 10n ** BigInt(Math.max(-power, 0));
  const thousandths = Number((dividend + divisor - 1n) / divisor);
  const bounded = Math.min(thousandths, Number.MAX_SAFE_INTEGER);
  return sign === '-' ? -bounded : bounded;
}

/** The metadata of an object without namespace; an error where it has no name. */
export function clusterMeta(metadata: Fields): Meta {
  // Pods refer to their Node by the same string.
  const name = internWord(identity(metadata, 'name'));
  return { ...meta(metadata, '', name), name };
}

export function namespacedMeta(metadata: Fields): Meta {
  const namespace = internWord(identity(metadata, 'namespace'));
  return meta(metadata, namespace, keyOf(namespace, identity(metadata, 'name')));
}

/** As `namespacedMeta`, without interned values: an object that is known has them. */
export function plainMeta(metadata: Fields): Meta {
  const namespace = identity(metadata, 'namespace');
  return meta(metadata, namespace, `${namespace}/${identity(metadata, 'name')}`);
}

function meta(metadata: Fields, namespace: string, key: Key): Meta {
  return {
    key,
    namespace,
    name: text(metadata, 'name'),
    uid: text(metadata, 'uid'),
    resourceVersion: text(metadata, 'resourceVersion'),
    labels: stringMap(metadata, 'labels'),
    created: moment(metadata, 'creationTimestamp'),
    deleting: isDeleting(metadata),
  };
}

/** One copy of the namespace with its slash; long keys refer to it and to the name. */
export const keyOf = (namespace: string, name: string): Key => internWord(`${namespace}/`) + name;

const isDeleting = (metadata: Fields): boolean =>
  metadata.deletionTimestamp instanceof Date || text(metadata, 'deletionTimestamp') !== '';

/** The most seconds of a time.Duration of Go. With a longer one, the API server's sum overflows. */
const longestDuration = 9_223_372_036;

/**
 * When a client requested the deletion, Unix seconds; null if that is unknown: deletionTimestamp
 * minus the grace period (BeforeDelete of pkg/registry/rest/delete.go).
 */
export function deletionAsked(metadata: Fields): number | null {
  const at = moment(metadata, 'deletionTimestamp');
  if (at === null || (metadata.deletionGracePeriodSeconds ?? null) === null) return null;
  const grace = integer(metadata, 'deletionGracePeriodSeconds');
  return Math.abs(grace) > longestDuration ? null : at - grace;
}

/** A name or namespace. Slashes, which the API forbids, would make keys ambiguous. */
export function identity(metadata: Fields, name: 'name' | 'namespace'): string {
  const value = text(metadata, name);
  if (value === '') throw new WrongType(name, `a ${name}`, undefined);
  if (value.includes('/')) throw new WrongType(name, `a ${name} without slashes`, value);
  // Bytes that are no UTF-8 become this character, so that two names could become one.
  if (value.includes('\uFFFD')) throw new WrongType(name, `a ${name} in UTF-8`, value);
  return value;
}

export const ownerReference = (owner: Fields): OwnerReference => ({
  apiVersion: word(owner, 'apiVersion'),
  kind: word(owner, 'kind'),
  name: text(owner, 'name'),
  uid: text(owner, 'uid'),
  controller: flag(owner, 'controller'),
});

export const objectRef = (target: Fields): ObjectRef => ({
  kind: word(target, 'kind'),
  namespace: word(target, 'namespace'),
  name: text(target, 'name'),
  uid: text(target, 'uid'),
});

const readyOf = (condition: Fields) =>
  text(condition, 'type') === 'Ready'
    ? { status: text(condition, 'status'), since: moment(condition, 'lastTransitionTime') }
    : null;

/** The status and time of the first condition Ready (GetPodCondition of pkg/api/v1/pod/util.go). */
export const readyCondition = (status: Fields) =>
  list(status, 'conditions', readyOf).find((condition) => condition !== null);
