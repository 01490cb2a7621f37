// An index of objects by keys that follow from them, like an Indexer of client-go's tools/cache.
//
// Most keys have one object, which the map then has without a list around it.

const noObjects: readonly never[] = [];

/** An empty index. `keysOf` returns the keys of an object, each once. */
export function createIndex<T extends object>(keysOf: (object: T) => readonly string[]) {
  const entries = new Map<string, T | T[]>();
  const add = (key: string, object: T): void => {
    const entry = entries.get(key);
    if (entry === undefined) entries.set(key, object);
    else if (Array.isArray(entry)) entry.push(object);
    else entries.set(key, [entry, object]);
  };
  const remove = (key: string, object: T): void => {
    const entry = entries.get(key);
    if (!Array.isArray(entry)) {
      entries.delete(key);
      return;
    }
    const last = entry.pop();
    const index = entry.indexOf(object);
    if (last !== undefined && index >= 0) entry[index] = last;
    const [first] = entry;
    if (first !== undefined && entry.length === 1) entries.set(key, first);
  };
  const swap = (key: string, before: T, after: T): void => {
    const entry = entries.get(key);
    if (Array.isArray(entry)) entry[entry.indexOf(before)] = after;
    else entries.set(key, after);
  };
  return {
    /** Adds an object, removes one, or replaces a version by the next. */
    replace(before: T | null, after: T | null): void {
      const oldKeys = before === null ? noObjects : keysOf(before);
      const newKeys = after === null ? noObjects : keysOf(after);
      for (const key of oldKeys) {
        if (before === null) continue;
        if (after !== null && newKeys.includes(key)) swap(key, before, after);
        else remove(key, before);
      }
      for (const key of newKeys) if (after !== null && !oldKeys.includes(key)) add(key, after);
    },
    /** The objects of a key, in no order; valid until the next change. */
    get(key: string): readonly T[] {
      const entry = entries.get(key);
      return entry === undefined ? noObjects : Array.isArray(entry) ? entry : [entry];
    },
  };
}
