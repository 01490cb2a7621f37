// Reads maps as `bpftool -j` prints them, without a JSON parser: a large node has millions of
// bytes, and a text for each of them is most of what a JSON parser costs. Only this form is known
// here, without blanks. bpftool-dump.ts reads all other texts, and says what is wrong with them.

/** The entries of a map. All keys have one size, and all values. */
export interface ScannedMap {
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
): ReadonlyMap<string, ScannedMap> | null {
  const { start, head, tail, end } = forms[form];
  if (!text.startsWith(start)) return null;
  const maps = new Map<string, ScannedMap>();
  const space = new Uint8Array(Math.ceil(text.length / printed));
  let [at, used] = [start.length, 0];
  for (;;) {
    head.lastIndex = at;
    const name = head.exec(text)?.[1];
    const map = name === undefined ? null : scanEntries(text, head.lastIndex, space.subarray(used));
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

/** Writes the entries of a list to `space`, which has enough for the rest of the text. */
function scanEntries(text: string, from: number, space: Uint8Array) {
  if (text.startsWith('[]', from)) {
    return { keySize: 0, valueSize: 0, bytes: space.subarray(0, 0), end: from + 2 };
  }
  let [at, used] = [from, 0];
  const scan = (head: string): number => {
    const count = text.startsWith(head, at)
      ? scanBytes(text, at + head.length, space.subarray(used))
      : 0;
    at += head.length + printed * count;
    used += count;
    return count;
  };
  let [keySize, valueSize] = [0, 0];
  for (let head = '[{"key":['; at === from || text[at] !== ']'; head = ',{"key":[') {
    const [key, value] = [scan(head), scan(',"value":[')];
    if (used === key + value) [keySize, valueSize] = [key, value];
    const isEqual = key === keySize && value === valueSize;
    if (key === 0 || value === 0 || !isEqual || text[at] !== '}') return null;
    at++;
  }
  return { keySize, valueSize, bytes: space.subarray(0, used), end: at + 1 };
}

const [quote, zero, x, comma, close] = [34, 48, 120, 44, 93];

/** The value of a hexadecimal digit as bpftool prints it; -1: it is none. */
function digitOf(code: number): number {
  if (code >= 48 && code <= 57) return code - 48;
  return code >= 97 && code <= 102 ? code - 87 : -1;
}

/** How many bytes the list has; 0: none, or it is damaged. */
function scanBytes(text: string, from: number, space: Uint8Array): number {
  for (let [at, count] = [from, 0]; ; at += printed) {
    const digit = (index: number): number => digitOf(text.charCodeAt(at + index));
    const isPrefixed = text.charCodeAt(at + 1) === zero && text.charCodeAt(at + 2) === x;
    const isQuoted = text.charCodeAt(at) === quote && text.charCodeAt(at + 5) === quote;
    const [high, low] = [digit(3), digit(4)];
    if (!isPrefixed || !isQuoted || high < 0 || low < 0) return 0;
    space[count++] = high * 16 + low;
    const next = text.charCodeAt(at + 6);
    if (next === close) return count;
    if (next !== comma) return 0;
  }
}
