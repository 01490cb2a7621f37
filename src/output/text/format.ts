// Formats names, times, lags and tables for people, for all texts and for the pages.
//
// An attacker may choose a name in the cluster, with escape sequences, carriage returns or
// right-to-left overrides. So no text for people contains an invisible character, and only this
// file decides how to write one.

import { styleText } from 'node:util';

import type { Finding } from '../../audit/finding/catalogue.ts';

/** A finding in a report; a dump is one moment and has no times. */
export type ReportedFinding = Omit<Finding, 'since' | 'openedAt'> & {
  readonly since: number | null;
  readonly openedAt: number | null;
};

const hidden = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Noncharacter_Code_Point}]/gu;

/** Escapes invisible characters: controls, overrides, surrogates. */
export const escapeInvisible = (text: string): string =>
  text.replace(hidden, (character) => {
    const code = (character.codePointAt(0) ?? 0).toString(16);
    return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, '0')}`;
  });

const markup = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

/** Escapes a text for elements and quoted attributes of XML and HTML. */
export const escapeMarkup = (text: string): string =>
  escapeInvisible(text).replace(
    /[&<>"']/g,
    (character) => markup[character as keyof typeof markup],
  );

/** Shortens a text to at most `length` characters, with an ellipsis at its end. */
export function truncate(text: string, length: number): string {
  if (text.length <= length) return text;
  const characters = Array.from(text.slice(0, 2 * length + 2));
  return characters.length <= length ? text : `${characters.slice(0, length - 1).join('')}…`;
}

/** A moment as `2026-11-21T10:56:46Z`; `-` for null. */
export function formatTime(seconds: number | null): string {
  const date = new Date((seconds ?? Number.NaN) * 1000);
  return Number.isNaN(date.getTime()) ? '-' : date.toISOString().replace(/\.\d+Z$/, 'Z');
}

/** The time of day of a moment, UTC: `10:56:46`. */
export const formatClock = (seconds: number | null): string =>
  /T(.*)Z$/.exec(formatTime(seconds))?.[1] ?? '-';

/** The time of day; the date too if it is another day than `now`. */
export const formatMoment = (moment: number, now: number): string =>
  formatTime(moment).slice(0, 10) === formatTime(now).slice(0, 10)
    ? formatClock(moment)
    : formatTime(moment);

/** A lag for people: `21 ms`, `1.2 s`, `3.5 min`. */
export function formatLag(seconds: number | null): string {
  if (seconds === null) return '-';
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 99.95) return `${Number(seconds.toPrecision(seconds < 9.95 ? 2 : 3))} s`;
  return `${Number((seconds / 60).toPrecision(2))} min`;
}

function sharedWords(text: string, other: string): number {
  let end = 0;
  while (end < text.length && text[end] === other[end]) end++;
  return text.lastIndexOf(' ', end - 1) + 1;
}

/** The difference on one line of `length`: a common beginning is written once, shortened first. */
export function formatDetail(finding: ReportedFinding, length: number): string {
  const { expected, actual } = finding;
  if (actual === null)
    return truncate(`missing: ${escapeInvisible(expected ?? 'nothing')}`, length);
  const got = escapeInvisible(actual);
  if (expected === null) return truncate(got, length);
  const want = escapeInvisible(expected);
  const between = ' instead of ';
  if (got.length + between.length + want.length <= length) return got + between + want;
  const shared = sharedWords(got, want);
  // The last word of it names what differs: `…port 8080 instead of 80`.
  const named = shared === 0 ? 0 : got.lastIndexOf(' ', shared - 2) + 1;
  const [gotRest, wantRest] = [got.slice(named), want.slice(shared)];
  const left = length - gotRest.length - between.length - wantRest.length;
  const before = truncate(got.slice(0, named), Math.max(1, left));
  // A short side leaves its room to the other.
  const room = length - before.length - between.length;
  const half = Math.floor(room / 2);
  const forGot = Math.max(half, room - wantRest.length);
  const forWant = Math.max(room - half, room - gotRest.length);
  return before + truncate(gotRest, forGot) + between + truncate(wantRest, forWant);
}

/** `endpoints`, or `node node-a` for the rules of a node. */
export const formatOutput = ({ output, node }: Pick<Finding, 'output' | 'node'>): string =>
  node === null ? output : `${output} ${escapeInvisible(node)}`;

/** The field as people read it; the JSON value for the packets as a whole is older. */
export const formatField = (field: string): string => (field === 'fate' ? 'outcome' : field);

/** The cause, marked if it is only likely; '' if none is known. */
export const formatCause = ({ cause, causeProven }: ReportedFinding): string =>
  cause === null ? '' : `${causeProven ? '' : 'likely '}${cause}`;

/** `1 finding`, `2 findings`. */
export const formatCount = (count: number, noun: string, plural = `${noun}s`): string =>
  `${count} ${count === 1 ? noun : plural}`;

/** `not verified: the cluster is v1.99.0, not 1.36`; '' without reasons. */
export const formatUnverified = (reasons: readonly string[]): string =>
  reasons.length === 0 ? '' : `not verified: ${escapeInvisible(reasons.join(', '))}`;

/** `3 different, 1 unknown`, without the counts that are 0. */
export const formatCounts = (counts: Readonly<Record<string, number | undefined>>): string =>
  Object.entries(counts)
    .flatMap(([word, count = 0]) => (count > 0 ? [`${count} ${escapeInvisible(word)}`] : []))
    .join(', ');

export interface RenderOptions {
  readonly colour: boolean;
  /** Columns of the terminal, or Infinity. */
  readonly width: number;
}

export type TextStyle = Parameters<typeof styleText>[0];

/** Applies a style if `colour` is true. */
export const paint = (colour: boolean, style: TextStyle, text: string): string =>
  colour ? styleText(style, text, { validateStream: false }) : text;

/** A text as lines of at most `width` columns; only a word that is longer exceeds it. */
export function wrap(
  text: string,
  first: string,
  rest: string,
  { width }: RenderOptions,
): string[] {
  const most = Math.max(24, width - rest.length);
  const lines: string[] = [];
  let line = '';
  for (const word of escapeInvisible(text).split(' ')) {
    if (line !== '' && line.length + 1 + word.length > most) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line].map((content, index) => (index === 0 ? first : rest) + content);
}

const gap = '   ';

/** The lines of a table with aligned columns. `style` may add escape sequences to a padded cell. */
export function formatTable(
  rows: readonly (readonly string[])[],
  style = (cell: string, _row: number, _column: number): string => cell,
): string[] {
  const widths = (rows[0] ?? []).map((_, column) =>
    rows.reduce((most, row) => Math.max(most, row[column]?.length ?? 0), 0),
  );
  return rows.map((row, index) =>
    row
      .map((cell, column) => style(cell.padEnd(widths[column] ?? 0), index, column))
      .join(gap)
      .trimEnd(),
  );
}

export const invisible = /[\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u007f-\u009f]/gu;

/** Escapes each UTF-16 code unit. */
export const codeUnits = (text: string): string =>
  text.replace(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** A document as JSON with a newline at its end and without invisible characters. */
export function formatJson(document: unknown): string {
  // JSON.stringify leaves some characters that terminals obey.
  return `${JSON.stringify(document, null, 2).replace(invisible, codeUnits)}\n`;
}
