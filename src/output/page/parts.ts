// Parts that several pages share. Colour is never the only sign: a mark also has a sign, which is
// hidden from screen readers, and a word.

import { bySeverity, type Finding, type Severity } from '../../audit/finding/catalogue.ts';
import { suppressedLast } from '../../audit/finding/suppressions.ts';
import { type Verdict, verdictWords } from '../../audit/finding/verdicts.ts';
import { recordOf } from '../../model/collections.ts';
import { escapeMarkup, formatTime } from '../text/format.ts';

export interface Html {
  readonly html: string;
}

/** A list is joined; `null` and `false` are empty. */
type MarkupValue = string | number | false | Html | null | readonly MarkupValue[];

function render(value: MarkupValue): string {
  if (value === null || value === false) return '';
  if (typeof value !== 'object') return escapeMarkup(String(value));
  return 'html' in value ? value.html : value.map(render).join('');
}

/** Makes HTML. Values that are not HTML are escaped; a line break after a value is omitted. */
export function markup(texts: TemplateStringsArray, ...values: readonly MarkupValue[]): Html {
  const raw = texts.map((text, index) => (index === 0 ? text : text.replace(/^\n/, '')));
  return { html: String.raw({ raw }, ...values.map(render)) };
}

/** A moment as `2026-11-21 10:56:46 UTC`. */
export const formatDateTime = (seconds: number): string =>
  formatTime(seconds).replace('T', ' ').replace('Z', ' UTC');

/** A rough age: `12 s`, `4 min`, `3 h`, `5 d`. */
export function formatAge(seconds: number): string {
  const age = Math.max(0, seconds);
  if (age < 120) return `${Math.round(age)} s`;
  if (age < 7200) return `${Math.round(age / 60)} min`;
  return age < 172_800 ? `${Math.round(age / 3600)} h` : `${Math.round(age / 86_400)} d`;
}

/** How long a finding or an incident is open, or was; '' if its times are not known. */
export function formatTimes(since: number | null, resolvedAt: number | null, now: number): string {
  const age = formatAge((resolvedAt ?? now) - (since ?? now));
  if (resolvedAt !== null) return `resolved at ${formatDateTime(resolvedAt)} after ${age}`;
  return since === null ? '' : `for ${age}, since ${formatDateTime(since)}`;
}

/** A round time: `10 ms`, `10 s`, `10 min` or `10 h`. */
export function formatSpan(seconds: number): string {
  if (seconds < 1) return `${seconds * 1000} ms`;
  if (seconds < 60) return `${seconds} s`;
  return seconds < 3600 ? `${seconds / 60} min` : `${seconds / 3600} h`;
}

/** A number with separators of thousands. */
export const formatNumber = (count: number): string => count.toLocaleString('en');

/** `encodeURIComponent` refuses half a character, as at the end of a text that was cut. */
const encoded = (text: string | number): string => encodeURIComponent(String(text).toWellFormed());

export const servicePath = (namespace: string, name: string): string =>
  `/services/${encoded(namespace)}/${encoded(name)}`;

export const nodePath = (node: string): string => `/nodes/${encoded(node)}`;

/** The query string of the parameters that are not ''; '' without any. */
export function formatQuery(parameters: Readonly<Record<string, string | number>>): string {
  const pairs = Object.entries(parameters)
    .filter(([, value]) => value !== '')
    .map(([name, value]) => `${encoded(name)}=${encoded(value)}`);
  return pairs.length === 0 ? '' : `?${pairs.join('&')}`;
}

export type Tone = Verdict | Severity | 'resolved' | 'quiet';

export const signs: Readonly<Record<Tone, string>> = {
  conform: '✓',
  pending: '◔',
  different: '✗',
  unknown: '?',
  critical: '▲',
  warning: '◆',
  info: '●',
  resolved: '✓',
  quiet: '·',
};

/** The word for a tone or a verdict. */
export const toneWord = (tone: string): string =>
  tone in verdictWords ? verdictWords[tone as Verdict] : tone;

/** A sign with its word. */
export const renderMark = (tone: Tone, word = toneWord(tone)): Html =>
  markup`<span class="mark ${tone}"><span aria-hidden="true">${signs[tone]}</span> ${word}</span>`;

/** The Service or node of a finding. */
export function formatSubject({ namespace, service, node }: Finding): string {
  const name = service === '' ? '' : `${namespace}/${service}`;
  if (node === null) return name;
  return name === '' ? `Node ${node}` : `${name} on ${node}`;
}

/** The page with the most details of a finding: on a node, the packets to the Service port. */
export function findingPath({ namespace, service, node, object }: Finding): string {
  if (node === null) return servicePath(namespace, service);
  const port = service === '' ? '' : (/^(\S+) at /.exec(object)?.[1] ?? '');
  return nodePath(node) + formatQuery({ port });
}

/**
 * Sorts findings by severity, and those of one severity by their age, the newest first. Suppressed
 * ones are last.
 */
export const sortWorstFirst = (findings: readonly Finding[]): Finding[] =>
  [...findings].sort((a, b) => suppressedLast(a, b) || bySeverity(a, b) || b.openedAt - a.openedAt);

/** Shares side by side; the smallest share is visible too. */
export function renderBar(shares: Readonly<Partial<Record<Tone, number>>>, label: string): Html {
  const visible = Object.entries(shares).filter(([, count]) => count > 0);
  const all = visible.reduce((sum, [, count]) => sum + count, 0);
  const widths = visible.map(([, count]) => Math.max(1.5, (100 * count) / all));
  const wide = widths.reduce((sum, width) => sum + width, 0);
  let x = 0;
  const bars = visible.map(([tone], index) => {
    const width = Number(((100 * (widths[index] ?? 0)) / wide).toFixed(2));
    const bar = markup`<rect class="${tone}" x="${x}" width="${width}" height="1"></rect>`;
    x += width;
    return bar;
  });
  return markup`<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" role="img"
 aria-label="${label}">${bars}</svg>`;
}

export const verdictOrder: readonly Verdict[] = ['different', 'unknown', 'pending', 'conform'];

/** The numbers of each verdict, as text and as a bar with a label that names `what`. */
export function describeVerdicts(what: string, counts: Readonly<Record<Verdict, number>>) {
  const texts = verdictOrder
    .filter((verdict) => counts[verdict] > 0)
    .map((verdict) => `${formatNumber(counts[verdict])} ${verdictWords[verdict]}`);
  const text = texts.join(', ') || 'none';
  const bar = renderBar(
    recordOf(verdictOrder, (verdict) => counts[verdict]),
    `${what}: ${text}`,
  );
  return { text, bar };
}

/** The path from a list to this page; an item without an address is text. */
export function renderCrumbs(items: readonly (readonly [name: string, path: string | null])[]) {
  const parts = items.map(
    ([name, path]) =>
      markup`<li>${path === null ? name : markup`<a href="${path}">${name}</a>`}</li>`,
  );
  return markup`<nav class="crumbs" aria-label="Breadcrumb"><ol>${parts}</ol></nav>`;
}

/** A part of a page; `id` names its heading. */
export const renderCard = (id: string, title: string | Html, content: MarkupValue, kind = '') =>
  markup`<section class="card${kind}" aria-labelledby="h-${id}"><h2 id="h-${id}">${title}</h2>
${content}</section>`;

/** A card without margins. Without content it shows `none`; it is null if that is null too. */
export function renderFlushCard(
  id: string,
  title: string | Html,
  content: readonly Html[],
  none: string | Html | null = null,
): Html | null {
  if (content.length === 0 && none === null) return null;
  const shown = content.length > 0 ? content : markup`<p class="none dim">${none}</p>`;
  return renderCard(id, title, shown, ' flush');
}

/** A list of findings or incidents; nothing without any. */
export const renderList = (items: readonly Html[]): Html[] =>
  items.length === 0 ? [] : [markup`<ul class="findings">${items}</ul>`];

/** A link to the rest of a list, if it has one. */
export function renderMore(
  count: number,
  href: string,
  [one, many]: readonly [string, string] = ['more', 'more'],
  kind: Html | null = markup` class="more"`,
): Html[] {
  const link = markup`<a href="${href}">${formatNumber(count)} ${count === 1 ? one : many}</a>`;
  return count <= 0 ? [] : [markup`<p${kind}>${link}</p>`];
}

/** What a list without a heading shows if nothing is in it. */
export const renderNothing = (text: string): Html =>
  markup`<p class="none dim" data-key="none"><br>${text}</p>`;

type Head = ReturnType<typeof sortHeads>[number];

/**
 * The heads of columns with their keys, '' for one without; `sort` is the key of the query. `order`
 * is null if the reader sorts by another column.
 */
export const sortHeads = (
  columns: readonly (readonly [text: string, key: string])[],
  path: string,
  query: Readonly<Record<string, string | number>>,
) =>
  columns.map(([text, key]) => {
    if (key === '') return text;
    const order = key === 'name' ? 'ascending' : 'descending';
    const href = path + formatQuery({ ...query, sort: key, page: '' });
    return { text, href, order: query.sort === key ? order : null };
  });

function renderHead(head: Head, isLeft: boolean): Html {
  const left = isLeft && markup` class="left"`;
  if (typeof head === 'string') return markup`<th scope="col"${left}>${head}</th>`;
  const { text, href, order } = head;
  const sign = order === null ? '' : order === 'ascending' ? ' ↑' : ' ↓';
  return markup`<th scope="col"${left}${order !== null && markup` aria-sort="${order}"`}>
<a href="${href}">${text}</a>${sign}</th>`;
}

/** A scrollable table. After the first column, `texts` columns have text, and others numbers. */
export function renderTable(
  label: string,
  heads: readonly Head[],
  rows: readonly Html[],
  texts = 0,
  kind: string | null = null,
): Html {
  const columns = heads.map((head, index) => renderHead(head, index > 0 && index <= texts));
  return markup`<div class="scroll" tabindex="0" role="region" aria-label="${label}">
<table${kind !== null && markup` class="${kind}"`}>
${columns.length > 0 && markup`<thead><tr>${columns}</tr></thead>`}
<tbody>${rows}</tbody></table></div>`;
}

/** A cell with a number. */
export const renderNumber = (text: string): Html =>
  markup`<td${text === '0' && markup` class="zero"`}>${text}</td>`;

/** A test for texts that contain all words of a search. */
export function createSearch(query: string): (text: string) => boolean {
  const words = query.toLowerCase().split(/\s+/);
  return (text) => words.every((word) => text.includes(word));
}

/** A form that selects what a page lists, with a search and other fields. */
export const renderFilter = (
  path: string,
  q: string,
  placeholder: string,
  fields: readonly Html[] = [],
): Html =>
  markup`<form class="filter" method="get" action="${path}" data-filter role="search"
 data-key="filter"><label>Search<input type="search" name="q" value="${q}"
 placeholder="${placeholder}" autocomplete="off" spellcheck="false"></label>${fields}
<noscript><button>Filter</button></noscript></form>`;

/** More options would make a page too large; the search finds the others. */
const mostOptions = 300;

/** A field with options; the option '' is shown as `any`. */
export function renderSelect(
  [name, label]: readonly [name: string, label: string],
  values: readonly string[],
  chosen: string,
  any = 'any',
  wordOf = (value: string): string => value,
): Html {
  const options = ['', ...values.slice(0, mostOptions)].map((value) => {
    const selected = value === chosen && markup` selected`;
    const word = value === '' ? any : wordOf(value);
    return markup`<option value="${value}"${selected}>${word}</option>`;
  });
  return markup`<label>${label}<select name="${name}">${options}</select></label>`;
}

/** The namespaces of some objects, with the chosen one. */
export function namespacesOf(
  objects: readonly { readonly namespace: string }[],
  chosen: string,
): string[] {
  const names = new Set([...objects.map(({ namespace }) => namespace), chosen]);
  names.delete('');
  return [...names].sort();
}

/** A link to all rows of a list as CSV. */
export function renderDownload(path: string, query: PageQuery<never>): Html {
  const href = path + formatQuery({ ...query, page: '' });
  return markup`<p><a href="${href}" download>Download as CSV</a></p>`;
}

/** Links to the neighbours of a page, with a text between them; null if neither exists. */
export function renderPageLinks(
  what: string,
  before: string | null,
  after: string | null,
  pages: string | null = null,
  words: readonly [string, string] = ['before', 'after'],
): Html | null {
  if (before === null && after === null) return null;
  return markup`<nav class="pages" aria-label="Pages of ${what}">
${before !== null && markup`<a rel="prev" href="${before}">← ${words[0]}</a>`}
${pages !== null && markup`<span class="dim">${pages}</span>`}
${after !== null && markup`<a rel="next" href="${after}">${words[1]} →</a>`}</nav>`;
}

/** The parameters of a page, '' for absent ones; `page` counts from 1. */
export type PageQuery<Field extends string> = Readonly<Record<Field, string> & { page: number }>;

/** The rows of the queried page, and its links. `what`, in lower case, is also the path. */
export function paginate<T>(
  what: string,
  rows: readonly T[],
  perPage: number,
  query: PageQuery<never>,
  words?: readonly [string, string],
) {
  const last = Math.max(1, Math.ceil(rows.length / perPage));
  const current = Math.min(Math.max(1, query.page), last);
  const href = (page: number): string | null =>
    page < 1 || page > last ? null : `/${what.toLowerCase()}${formatQuery({ ...query, page })}`;
  const pages = `page ${current} of ${last}`;
  return {
    shown: rows.slice((current - 1) * perPage, current * perPage),
    links: renderPageLinks(what, href(current - 1), href(current + 1), pages, words),
  };
}
