// Operations on maps and on records with one value for each of some names, and forms of values.

/** Whether a value is an object with names: no list and no null. */
export const isFields = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

interface MapLike<K, V> {
  get(key: K): V | undefined;
  set(key: K, value: V): unknown;
}

/** The value of a key, which is created if the map lacks it. */
export function getOrInsert<K, V>(map: MapLike<K, V>, key: K, create: () => V): V {
  const existing = map.get(key);
  if (existing !== undefined) return existing;
  const value = create();
  map.set(key, value);
  return value;
}

/** Sets a value as the latest one, and deletes the oldest if there are more than `most`. */
export function setLatest<K, V>(map: Map<K, V>, key: K, value: V, most: number): void {
  map.delete(key);
  map.set(key, value);
  if (map.size <= most) return;
  const [oldest] = map.keys();
  if (oldest !== undefined) map.delete(oldest);
}

/** Adds to the count of a key, which is 0 if the map lacks it. */
export const addCount = <K>(counts: Map<K, number>, key: K, count: number): void =>
  void counts.set(key, (counts.get(key) ?? 0) + count);

/** The same function, which keeps its latest results: of `most` arguments. */
export function remembering<K, V>(compute: (key: K) => V, most: number): (key: K) => V {
  const latest = new Map<K, { readonly value: V }>();
  return (key) => {
    const known = latest.get(key);
    if (known !== undefined) return known.value;
    const value = compute(key);
    setLatest(latest, key, { value }, most);
    return value;
  };
}

/** A record with the value of each name. */
export const recordOf = <K extends string, V>(
  names: readonly K[],
  value: (name: K) => V,
): Record<K, V> => Object.fromEntries(names.map((name) => [name, value(name)])) as Record<K, V>;

type CountTree = Record<string, number>;

/** Adds numbers to those of the same name, in groups too, or subtracts them (`by` is -1). */
export function addCounts<T extends object>(sum: T, counts: T, by: 1 | -1): void {
  const sums = sum as CountTree;
  for (const [name, count] of Object.entries(counts as Record<string, number | CountTree>)) {
    if (typeof count === 'number') sums[name] = (sums[name] ?? 0) + by * count;
    else addCounts(sums[name] as unknown as CountTree, count, by);
  }
}

/** The values that a map has for these keys. */
export function* valuesOf<K, V>(map: ReadonlyMap<K, V>, keys: Iterable<K>): Generator<V, void> {
  for (const key of keys) {
    const value = map.get(key);
    if (value !== undefined) yield value;
  }
}

/** Whether a value that was read, which may be anything, has some form. */
export type Form<T = unknown> = (value: unknown) => value is T;

/** What has a form. */
export type FormOf<F> = F extends Form<infer T> ? T : never;

export const isText: Form<string> = (value) => typeof value === 'string';
export const isFlag: Form<boolean> = (value) => typeof value === 'boolean';
export const isNumber = Number.isFinite as Form<number>;

export const isOneOf =
  <W extends string>(words: readonly W[]): Form<W> =>
  (value): value is W =>
    typeof value === 'string' && words.includes(value as W);

export const orNull =
  <T>(form: Form<T>): Form<T | null> =>
  (value) =>
    value === null || form(value);

export const isListOf =
  <T>(form: Form<T>): Form<readonly T[]> =>
  (value) =>
    Array.isArray(value) && value.every(form);

/** The form of objects that have at least these fields. */
export function hasForms<F extends Readonly<Record<string, Form>>>(
  forms: F,
): Form<{ readonly [N in keyof F]: FormOf<F[N]> }> {
  const entries = Object.entries(forms);
  return (value): value is { readonly [N in keyof F]: FormOf<F[N]> } =>
    isFields(value) && entries.every(([name, form]) => form(value[name]));
}
