// Interns values that repeat: one copy of each label set, port list and node name.
//
// Full tables are emptied, so equal values are not always identical. An interned value must never
// change. The tables of maps and lists are small, because they also store the JSON of each value:
// objects of one template arrive together. Long values are not shared: the labels of one object may
// have a MiB, and a client could fill a table by changing them 500 times.

import type { Labels } from '../../model/objects.ts';
import { equalLabels } from '../../model/selector.ts';

/** The most values of a table, and the most characters of a word, or of the JSON of a value. */
const wordLimit = { count: 50_000, length: 512 };
const textLimit = { count: 500, length: 4096 };

const words = new Map<string, string>();
const maps = new Map<string, Labels>();
const lists = new Map<string, readonly unknown[]>();

/** Returns the copy of a short string that repeats, as names of nodes, ports and zones do. */
export const internWord = (text: string): string => intern(words, text, text, wordLimit);

let latest: Labels = {};

/** Returns the copy of a label map or selector. Annotations do not repeat. */
export function internLabels(labels: Labels): Labels {
  // Objects of one template arrive together, and to compare costs less than a key of the map.
  if (!equalLabels(labels, latest))
    latest = intern(maps, JSON.stringify(labels), labels, textLimit);
  return latest;
}

/** Lists of different types share a table, since their objects differ in their properties. */
export const internList = <T>(list: readonly T[]): readonly T[] =>
  intern(lists, JSON.stringify(list), list, textLimit) as readonly T[];

function intern<T>(table: Map<string, T>, key: string, value: T, limit: typeof wordLimit): T {
  if (key.length > limit.length) return value;
  const known = table.get(key);
  if (known !== undefined) return known;
  if (table.size >= limit.count) table.clear();
  table.set(key, value);
  return value;
}
