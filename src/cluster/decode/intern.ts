// One copy of each value that repeats.
//
// A fleet has 150,000 pods and a handful of label sets, port lists and node names. Values that
// repeat are therefore interned by content, in tables that are emptied when they grow too large.
// What is interned again after that is another copy, so values that are not identical may be equal.
// An interned value must never be changed, for others have it too.
//
// A table of words costs little more than the words. One of maps or lists holds the text of each
// besides, so it is small: objects of one template come in a row, and later versions take what is
// equal from the version before (assemble.ts).

import type { Labels } from '../../model/objects.ts';

const wordLimit = 50_000;
const textLimit = 2000;

const words = new Map<string, string>();
const maps = new Map<string, Labels>();
const lists = new Map<string, readonly unknown[]>();

/** Returns the copy of a short string that repeats, as names of nodes, ports and zones do. */
export function internWord(text: string): string {
  return intern(words, text, text, wordLimit);
}

/** Returns the copy of a label map or selector. Annotations do not repeat. */
export function internLabels(labels: Labels): Labels {
  return intern(maps, JSON.stringify(labels), labels, textLimit);
}

/**
 * Returns the copy of a list of plain objects. Lists of different kinds of objects are not
 * confused, for these differ in their properties.
 */
export function internList<T>(list: readonly T[]): readonly T[] {
  return intern(lists, JSON.stringify(list), list, textLimit) as readonly T[];
}

function intern<T>(table: Map<string, T>, key: string, value: T, limit: number): T {
  const known = table.get(key);
  if (known !== undefined) return known;
  if (table.size >= limit) table.clear();
  table.set(key, value);
  return value;
}
