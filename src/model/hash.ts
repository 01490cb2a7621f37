// A hash of short texts, for tables and for splitting work: quick, and the same on every machine.

/** FNV-1a, 32 bits without sign, over the UTF-8 of ASCII texts. */
export function fnv1a(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  return hash >>> 0;
}
