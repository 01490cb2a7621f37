// Records with one value for each of some names, and sums of named numbers.

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
