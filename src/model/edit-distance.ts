// The distance of two words, to guess which one a mistyped word means.

/** The number of letters to insert, delete or replace (Levenshtein). */
export function editDistance(a: string, b: string): number {
  const others = Array.from(b);
  let row = Array.from({ length: others.length + 1 }, (_, index) => index);
  for (const [line, letter] of Array.from(a).entries()) {
    const next = [line + 1];
    for (const [index, other] of others.entries()) {
      const replaced = (row[index] ?? 0) + (letter === other ? 0 : 1);
      next.push(Math.min(replaced, (row[index + 1] ?? 0) + 1, (next[index] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}
