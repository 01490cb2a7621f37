// Cuts YAML text into documents and the items of lists, as json-items.ts does, and parses them.
// `---` at the beginning of a line separates documents, even within a string. The parser is slow
// (4 MB/s), so objects of other kinds are not parsed. Aliases reach only within an item.

import { Composer, type CST, type Document, Parser, type ScalarTag, type Tags } from 'yaml';

import type { Format, Guess, Parsed, Piece } from '../decode/json-items.ts';
import { resourceOfKind } from '../decode/json-objects.ts';
import { type Bytes, type Line, lineBatches, textLimit } from '../decode/line-reader.ts';

export const yamlFormat: Format = {
  name: 'YAML',
  pieces: yamlPieces,
  parse: parseKnownYaml,
  guess: (text) => guessYaml(text),
};

/**
 * Yields the documents and list items that a chunk completes. A list without a kind is cut off: its
 * last item is not delivered, since it may be half an item. `isDamaged` is asked at the end.
 */
export async function* yamlPieces(source: Bytes, isDamaged: () => boolean = () => false) {
  const cut = newCut();
  let end = 1;
  for await (const batch of lineBatches(source)) {
    for (const line of batch) {
      cutLine(cut, line);
      end = line.number;
    }
    if (cut.pieces.length > 0) yield cut.pieces.splice(0);
  }
  closeDocument(cut, end, isDamaged());
  if (cut.pieces.length > 0) yield cut.pieces;
}

type Cut = ReturnType<typeof newCut>;

const newCut = () => ({
  pieces: [] as Piece[],
  mode: 'document' as 'document' | 'items' | 'tail',
  /** The lines of the current document or item, their length, and where they begin. */
  lines: [] as string[],
  length: 0,
  start: 1,
  /** The column of the dashes; -1 before the first item. */
  column: -1,
  /** The document without its items, and where it begins. */
  envelope: [] as string[],
  envelopeStart: 1,
});

const separator = /^(?:---|\.\.\.)(?:\s|$)/;
const itemsForm = /^items:\s*(?:#.*)?$/;
const blankForm = /^\s*(?:#.*)?$/;

function cutLine(cut: Cut, line: Line): void {
  const { number } = line;
  const text = line.text.endsWith('\r') ? line.text.slice(0, -1) : line.text;
  if (separator.test(text)) {
    closeDocument(cut, number, false);
    const rest = text.slice(3);
    if (text.startsWith('-') && !blankForm.test(rest)) {
      cut.start = number;
      addLine(cut, `   ${rest}`);
    }
    return;
  }
  if (cut.mode === 'items' && !blankForm.test(text)) {
    const column = text.search(/[^ ]/);
    const isDash = /^-(?:\s|$)/.test(text.slice(column));
    if (cut.column < 0 && isDash) cut.column = column;
    if (cut.column < 0 || column <= cut.column) {
      closeItem(cut);
      if (isDash && column === cut.column) begin(cut, 'items', number);
      else begin(cut, 'tail', cut.envelopeStart, cut.envelope);
    }
  }
  addLine(cut, text);
  if (cut.mode === 'document' && itemsForm.test(text)) {
    emit(cut, 'head');
    Object.assign(cut, { envelope: cut.lines, envelopeStart: cut.start, column: -1 });
    begin(cut, 'items', number + 1);
  }
}

function begin(cut: Cut, mode: Cut['mode'], start: number, lines: string[] = []): void {
  Object.assign(cut, { mode, start, lines, length: 0 });
}

/** A document or an item with more lines is skipped, like one that is too long. */
const lineLimit = 4 * 1024 * 1024;

function addLine(cut: Cut, text: string): void {
  cut.length += Math.max(text.length + 1, textLimit / lineLimit);
  if (cut.length <= textLimit) cut.lines.push(text);
  else cut.lines = [];
}

function closeItem(cut: Cut): void {
  // Before the first item there may be blank lines.
  if (cut.column >= 0 && !cut.lines.every((line) => blankForm.test(line))) emit(cut, 'item');
}

function closeDocument(cut: Cut, line: number, damaged: boolean): void {
  const hasKind = cut.envelope.some((line) => line.startsWith('kind:'));
  if (cut.mode === 'items' && (damaged || !hasKind)) emit(cut, 'unfinished', line);
  else if (cut.mode === 'items') {
    closeItem(cut);
    begin(cut, 'tail', cut.envelopeStart, cut.envelope);
    emit(cut, 'tail');
  } else if (!cut.lines.every((line) => blankForm.test(line) || line.startsWith('%'))) {
    if (damaged) emit(cut, 'unfinished', line);
    else emit(cut, cut.mode);
  }
  begin(cut, 'document', line + 1);
  cut.envelope = [];
}

function emit({ pieces, lines, length, start }: Cut, type: Piece['type'], line = start): void {
  const isTooLong = length > textLimit;
  pieces.push({ type: isTooLong ? 'tooLong' : type, line, text: lines.join('\n') });
}

/**
 * A number that is out of range is a text for Go, which writes it without quotes: a label may be a
 * commit such as `12e4567`, or have 40 hexadecimal digits (resolve.go of sigs.k8s.io/yaml v1.6.0).
 */
const largeNumber: ScalarTag = {
  tag: 'tag:yaml.org,2002:float',
  default: true,
  test: /^(?:[-+]?(?:\.\d+|\d+(?:\.\d*)?)[eE][-+]?\d+|0x0*[1-9a-fA-F][0-9a-fA-F]{16,})$/,
  resolve(text) {
    const value = text.startsWith('0x') ? Infinity : Number(text);
    return Number.isFinite(value) ? value : text;
  },
};

const yamlOptions = {
  // As Go does: the last of equal keys counts, and `<<` merges.
  uniqueKeys: false,
  merge: true,
  customTags: (tags: Tags): Tags => [largeNumber, ...tags],
  logLevel: 'silent',
  prettyErrors: false,
} as const;

/** The first fault of a text; a text may have a million, and each would be an object. */
class YamlFault extends Error {
  readonly #at: number;

  constructor(message: string, at: number) {
    super(message);
    this.#at = at;
  }

  linesBefore(text: string): number {
    return text.slice(0, this.#at).split('\n').length - 1;
  }
}

type Place = number | readonly [number, number] | { readonly offset: number };

/** The tokens of a text until the first error; the composer would keep all, without `onError`. */
function* soundTokens(text: string): Generator<CST.Token> {
  for (const token of new Parser().parse(text)) {
    if (token.type === 'error') throw new YamlFault(token.message, token.offset);
    yield token;
  }
}

/** The first document, as parseDocument has it; `undefined` if there is none. */
function composeFirst(text: string): Document.Parsed | undefined {
  const composer = new Composer(yamlOptions);
  let fault: YamlFault | null = null;
  Object.assign(composer, {
    onError(place: Place, _code: string, message: string, isWarning?: boolean): void {
      if (isWarning === true) return;
      const at = typeof place === 'number' ? place : 'offset' in place ? place.offset : place[0];
      // The parser catches it in each level, and reports another error there.
      throw (fault ??= new YamlFault(message, at));
    },
  });
  const [first, second] = composer.compose(soundTokens(text), true, text.length);
  if (second === undefined) return first;
  throw new YamlFault('Source contains multiple documents', second.range[0]);
}

/** Parses one document, or an item as a sequence of one. */
export function parseYamlItem(text: string): Parsed {
  try {
    const value: unknown = composeFirst(absoluteTimes(text))?.toJS({ maxAliasCount: 100 }) ?? null;
    // An alias may contain itself; JSON finds out.
    if (text.includes('&')) JSON.stringify(value);
    return { value };
  } catch (error) {
    const line = error instanceof YamlFault ? error.linesBefore(text) : 0;
    return { fault: error instanceof Error ? error.message : '', line };
  }
}

const relativeTime = /\$\(time-offset-nanosecond (-?\d{1,18})\)/g;

/** kwokctl writes times in nanoseconds since an unknown beginning, taken for the Unix epoch. */
function absoluteTimes(text: string): string {
  return text.replace(relativeTime, (_, offset: string) => {
    const nanoseconds = BigInt(offset);
    const second = 1_000_000_000n;
    const fraction = ((nanoseconds % second) + second) % second;
    const seconds = Number((nanoseconds - fraction) / second);
    const whole = new Date(seconds * 1000).toISOString().slice(0, 19);
    return `${whole}.${fraction.toString().padStart(9, '0')}Z`;
  });
}

/** As parseYamlItem, but of objects of other kinds it parses only the kind. */
function parseKnownYaml(text: string): Parsed {
  const kind = yamlField(text, 'kind');
  if (kind === null || kind.endsWith('List')) return parseYamlItem(text);
  const apiVersion = yamlField(text, 'apiVersion') ?? undefined;
  const isRead = resourceOfKind(apiVersion, kind) !== null;
  return isRead ? parseYamlItem(text) : { value: { apiVersion, kind } };
}

/** The unquoted value of a field of the document or item itself; null if it has none. */
export function yamlField(text: string, name: string): string | null {
  const { fields, column } = fieldsOf(text);
  return fieldAt(fields, column, name);
}

/** What a document or item seems to be, whose field `part` has its name. */
export function guessYaml(text: string, part = 'metadata'): Guess {
  const { fields, column } = fieldsOf(text);
  const begin = new RegExp(`^ {${column}}${part}:.*\\n(( {${column + 1},})\\S[^]*)`, 'm');
  const [, rest = '', { length: inner } = ''] = begin.exec(fields) ?? [];
  const [names = ''] = rest.split(new RegExp(`^(?! {${inner}}|\\s*$)`, 'm'));
  const [namespace, name] = [fieldAt(names, inner, 'namespace'), fieldAt(names, inner, 'name')];
  return { kind: fieldAt(fields, column, 'kind'), namespace, name };
}

function fieldsOf(text: string): { readonly fields: string; readonly column: number } {
  const [indent = ''] = /^ *- +/.exec(text) ?? [];
  return { fields: ' '.repeat(indent.length) + text.slice(indent.length), column: indent.length };
}

/** A word as kinds and names are; what begins otherwise (`|`, `&`) only a parser can read. */
const fieldAt = (text: string, column: number, name: string): string | null =>
  new RegExp(`^ {${column}}${name}:[ \\t]+["']?(\\w[\\w./-]*)`, 'm').exec(text)?.[1] ?? null;
