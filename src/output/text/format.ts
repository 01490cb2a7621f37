// How names, times and lags are spelt for people, in every text and on the page.
//
// Names and values come from the cluster, and whoever may create a Service may try to have them
// read as something else: by a terminal (escape sequences, carriage returns, right-to-left
// overrides), by an XML reader, by a shell user who greps lines. So no text for people holds a
// character that cannot be seen, and nothing but this file decides how one is spelt out.

import type { Finding } from '../../audit/finding/catalogue.ts';

/** A finding as reports have it: of one moment nobody knows since when it stands. */
export type ReportedFinding = Omit<Finding, 'since' | 'openedAt'> & {
  readonly since: number | null;
  readonly openedAt: number | null;
};

const hidden = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Noncharacter_Code_Point}]/gu;

const escaped = (character: string): string => {
  const code = (character.codePointAt(0) ?? 0).toString(16);
  return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, '0')}`;
};

/** The text with every character that cannot be seen spelt out: controls, overrides, surrogates. */
export function escapeInvisible(text: string): string {
  return text.replace(hidden, escaped);
}

const markup: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** A text for XML and HTML, in elements and in quoted attributes, with nothing hidden. */
export function escapeMarkup(text: string): string {
  return escapeInvisible(text).replace(/[&<>"']/g, (character) => markup[character] ?? character);
}

/** The text, or its beginning and an ellipsis, so that it has at most `length` characters. */
export function truncate(text: string, length: number): string {
  if (text.length <= length) return text;
  const characters = Array.from(text.slice(0, 2 * length + 2));
  return characters.length <= length ? text : `${characters.slice(0, length - 1).join('')}…`;
}

/** A moment as `2026-11-21T10:56:46Z`; `-` where there is none. */
export function formatTime(seconds: number | null): string {
  const date = new Date((seconds ?? Number.NaN) * 1000);
  return Number.isNaN(date.getTime()) ? '-' : date.toISOString().replace(/\.\d+Z$/, 'Z');
}

/** The time of day of a moment, UTC: `10:56:46`. */
export function formatClock(seconds: number | null): string {
  return /T(.*)Z$/.exec(formatTime(seconds))?.[1] ?? '-';
}

/** A lag for people: `21 ms`, `1.2 s`, `3.5 min`. */
export function formatLag(seconds: number | null): string {
  if (seconds === null) return '-';
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 99.95) return `${Number(seconds.toPrecision(seconds < 9.95 ? 2 : 3))} s`;
  return `${Number((seconds / 60).toPrecision(2))} min`;
}

/** How much of both texts is the same words, from their beginning; a number is not cut in two. */
function sharedWords(one: string, other: string): number {
  let end = 0;
  while (end < one.length && one[end] === other[end]) end++;
  return one.lastIndexOf(' ', end - 1) + 1;
}

/**
 * What is wrong, in the finding's own words, on one line of at most `length` characters. Where
 * there is no room for all, what both sides begin with is said once, and cut first.
 */
export function formatDetail(finding: ReportedFinding, length: number): string {
  const { difference, expected, actual } = finding;
  if (actual === null)
    return truncate(`missing: ${escapeInvisible(expected ?? 'nothing')}`, length);
  const got = escapeInvisible(actual);
  if (expected === null) return truncate(got, length);
  const want = escapeInvisible(expected);
  const between = difference === 'missing' ? ' in place of ' : ', not ';
  const isWhole = got.length + between.length + want.length <= length;
  const shared = isWhole ? 0 : sharedWords(got, want);
  // The last word of it names what differs: `…port 8080, not 80`.
  const named = shared === 0 ? 0 : got.lastIndexOf(' ', shared - 2) + 1;
  const [gotRest, wantRest] = [got.slice(named), want.slice(shared)];
  const left = length - gotRest.length - between.length - wantRest.length;
  const before = truncate(got.slice(0, named), Math.max(1, left));
  return before + bothIn(gotRest, between, wantRest, length - before.length);
}

/** Two texts and what joins them; what is saved on a short one is the other's. */
function bothIn(got: string, between: string, want: string, length: number): string {
  const room = length - between.length;
  const half = Math.floor(room / 2);
  const forGot = Math.max(half, room - want.length);
  const forWant = Math.max(room - half, room - got.length);
  return truncate(got, forGot) + between + truncate(want, forWant);
}

/** `1 finding`, `2 findings`. */
export function formatCount(count: number, one: string, more = `${one}s`): string {
  return `${count} ${count === 1 ? one : more}`;
}
