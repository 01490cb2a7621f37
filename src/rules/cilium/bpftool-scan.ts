// Reads maps as `bpftool -j` prints them, without a JSON parser: a large node has millions of
// bytes, and a text for each of them is most of what a JSON parser costs. Only this form is known
// here, without blanks. bpftool-dump.ts reads all other texts, and says what is wrong with them.

/** The entries of a map. All keys have one size, and all values. */
export interface MapTable {
  readonly keySize: number;
  readonly valueSize: number;
  /** The key and the value of each entry. */
  readonly bytes: Uint8Array;
}

interface Form {
  readonly start: string;
  /** Before the list of entries; the group is the name of the map. */
  readonly head: RegExp;
  /** After the list of entries. */
  readonly tail: string;
  readonly end: string;
}

const forms = {
  object: { start: '{', head: /"(cilium_[\w:]+)":/y, tail: '', end: '}' },
  batch: {
    start: '[',
    head: /\{"command":\["map","dump","pinned","(?:[\w/.-]*\/)?(cilium_\w+)"\],"output":/y,
    tail: '}',
    end: ']',
  },
} as const satisfies Readonly<Record<string, Form>>;

/** The maps by name. null: the text has another form, or it is damaged. */
export function scanMaps(
  text: string,
  form: keyof typeof forms,
): ReadonlyMap<string, MapTable> | null {
  const { start, head, tail, end } = forms[form];
  const codes = new TextEncoder().encode(text);
  if (!text.startsWith(start) || codes.length !== text.length) return null;
  const maps = new Map<string, MapTable>();
  const space = new Uint8Array(Math.ceil(text.length / printed));
  let [at, used] = [start.length, 0];
  for (;;) {
    head.lastIndex = at;
    const name = head.exec(text)?.[1];
    const map = name === undefined ? null : scanEntries(codes, head.lastIndex, space, used);
    if (name === undefined || map === null || !text.startsWith(tail, map.end)) return null;
    maps.set(name, map);
    used += map.bytes.length;
    at = map.end + tail.length + 1;
    const next = text[at - 1];
    if (next === end) return at === text.length || text.slice(at) === '\n' ? maps : null;
    if (next !== ',') return null;
  }
}

/** Characters of a byte and of what follows it. */
const printed = '"0x0a",'.length;

/** Writes the entries of a list to `space`, from an offset with room for the whole text. */
function scanEntries(codes: Uint8Array, from: number, space: Uint8Array, offset: number) {
  if (isAt(codes, from, noEntries)) {
    return { keySize: 0, valueSize: 0, bytes: space.subarray(0, 0), end: from + noEntries.length };
  }
  let [at, used, keySize, valueSize] = [from, offset, 0, 0];
  for (let head = firstKey; at === from || codes[at] !== close; head = nextKey) {
    const key = scanBytes(codes, at, head, space, used);
    at += head.length + printed * key;
    const value = scanBytes(codes, at, valueHead, space, used + key);
    at += valueHead.length + printed * value;
    if (used === offset) {
      keySize = key;
      valueSize = value;
    }
    const isEqual = key === keySize && value === valueSize;
    if (key === 0 || value === 0 || !isEqual || codes[at] !== brace) return null;
    used += key + value;
    at++;
  }
  return { keySize, valueSize, bytes: space.subarray(offset, used), end: at + 1 };
}

const [noEntries, firstKey, nextKey, valueHead] = [
  ...['[]', '[{"key":[', ',{"key":[', ',"value":['].map((text) => new TextEncoder().encode(text)),
] as [Uint8Array, Uint8Array, Uint8Array, Uint8Array];

function isAt(codes: Uint8Array, at: number, expected: Uint8Array): boolean {
  for (let index = 0; index < expected.length; index++) {
    if (codes[at + index] !== expected[index]) return false;
  }
  return true;
}

const [quote, zero, x, comma, close, brace] = [34, 48, 120, 44, 93, 125];

/** By character code: the value of a hexadecimal digit as bpftool prints it; -1: it is none. */
const digits = new Int8Array(256).fill(-1);
for (let digit = 0; digit < 16; digit++) digits[digit.toString(16).charCodeAt(0)] = digit;

/** How many bytes the list after `head` has; 0: none, or it is damaged. */
function scanBytes(
  codes: Uint8Array,
  from: number,
  head: Uint8Array,
  space: Uint8Array,
  offset: number,
): number {
  if (!isAt(codes, from, head)) return 0;
  for (let [at, count] = [from + head.length, 0]; ; at += printed) {
    const isPrefixed = codes[at + 1] === zero && codes[at + 2] === x;
    const isQuoted = codes[at] === quote && codes[at + 5] === quote;
    const high = digits[codes[at + 3] ?? 0] ?? -1;
    const low = digits[codes[at + 4] ?? 0] ?? -1;
    if (!isPrefixed || !isQuoted || high < 0 || low < 0) return 0;
    space[offset + count++] = high * 16 + low;
    const next = codes[at + 6];
    if (next === close) return count;
    if (next !== comma) return 0;
  }
}
