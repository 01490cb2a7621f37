// Parts that several pages share: marks of verdicts and severities, findings as list items, bars,
// searches, links to other pages, ages and moments.
//
// A mark is a sign, a word and a colour. Colour is never the only sign, and the sign is hidden from
// screen readers, which read the word once.

import type { Finding, Severity } from '../../audit/finding/catalogue.ts';
import { catalogue, severities } from '../../audit/finding/catalogue.ts';
import type { Verdict } from '../../audit/finding/verdicts.ts';
import { truncate, formatTime } from '../text/format.ts';
import type { Html } from './template.ts';
import { joinHtml, noHtml, compileTemplate } from './template.ts';

/** A moment as `2026-11-21 10:56:46 UTC`. */
export const formatMoment = (seconds: number): string =>
  formatTime(seconds).replace('T', ' ').replace('Z', ' UTC');

/** A rough age: `12 s`, `4 min`, `3 h`, `5 d`. */
export function formatAge(seconds: number): string {
  const age = Math.max(0, seconds);
  if (age < 120) return `${Math.round(age)} s`;
  if (age < 7200) return `${Math.round(age / 60)} min`;
  return age < 172_800 ? `${Math.round(age / 3600)} h` : `${Math.round(age / 86_400)} d`;
}

const encoded = encodeURIComponent;

export const servicePath = (namespace: string, name: string): string =>
  `/services/${encoded(namespace)}/${encoded(name)}`;

export const nodePath = (node: string): string => `/nodes/${encoded(node)}`;

/** The query string of the parameters that are not ''; '' without any. */
export function formatQuery(parameters: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(parameters)
    .filter(([, value]) => value !== '')
    .map(([name, value]) => `${encoded(name)}=${encoded(value)}`);
  return pairs.length === 0 ? '' : `?${pairs.join('&')}`;
}

export type Tone = Verdict | Severity | 'resolved' | 'quiet';

const signs: Readonly<Record<Tone, string>> = {
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

const markTemplate = compileTemplate(
  '<span class="mark <%= it.tone %>"><span aria-hidden="true"><%= it.sign %></span>' +
    ' <%= it.word %></span>',
);

/** A sign with its word. */
export const renderMark = (tone: Tone, word: string = tone): Html =>
  markTemplate({ tone, sign: signs[tone], word });

const findingTemplate = compileTemplate(`
<li class="finding <%= it.tone %>" data-row data-key="<%= it.key %>">
<p class="line"><%~ it.mark %> <a class="name" href="<%= it.href %>"><%= it.name %></a>
<span class="where"><%= it.output %></span></p>
<p class="say"><%= it.meaning %></p>
<% if (it.actual !== '' || it.expected !== '') { %>
<dl class="sides">
<% if (it.actual !== '') { %><div><dt>found</dt><dd><%= it.actual %></dd></div><% } %>
<% if (it.expected !== '') { %><div><dt>expected</dt><dd><%= it.expected %></dd></div><% } %>
</dl>
<% } %>
<p class="dim"><%= it.times %><% if (it.cause !== '') { %> · cause:
 <a href="/findings?code=<%= it.code %>#cause-<%= it.cause %>"><%= it.cause %></a><% } %>
 · <a href="/findings?code=<%= it.code %>#<%= it.code %>"><code><%= it.code %></code></a></p>
</li>`);

/** The Service or node of a finding. */
export function formatSubject({ namespace, service, node }: Finding): string {
  const name = service === '' ? '' : `${namespace}/${service}`;
  if (node === null) return name;
  return name === '' ? `Node ${node}` : `${name} on ${node}`;
}

/** The page with the most details of a finding. */
export const findingPath = ({ namespace, service, node }: Finding): string =>
  node === null ? servicePath(namespace, service) : nodePath(node);

/** The maximum length of the expected and the actual value in a list. */
const maxValue = 240;

/** One finding as a list item. */
export function renderFinding(finding: Finding, now: number): Html {
  const { code, severity, output, cause, since, resolvedAt, actual, expected } = finding;
  const isResolved = resolvedAt !== null;
  const age = formatAge((resolvedAt ?? now) - since);
  const tone: Tone = isResolved ? 'resolved' : severity;
  return findingTemplate({
    key: `${code} ${formatSubject(finding)} ${since} ${String(isResolved)}`,
    tone,
    mark: renderMark(tone, isResolved ? `resolved ${severity}` : severity),
    href: findingPath(finding),
    name: truncate(formatSubject(finding), 130),
    output,
    code,
    meaning: catalogue[code].title,
    actual: isResolved ? '' : truncate(actual ?? (expected === null ? '' : 'nothing'), maxValue),
    expected: isResolved ? '' : truncate(expected ?? '', maxValue),
    times: isResolved
      ? `resolved at ${formatMoment(resolvedAt)} after ${age}`
      : `for ${age}, since ${formatMoment(since)}`,
    cause: cause ?? '',
  });
}

/** Findings as a list; '' without any. */
export function renderFindingList(findings: readonly Finding[], now: number): Html {
  const list = joinHtml(findings.map((finding) => renderFinding(finding, now)));
  return list === '' ? noHtml : (`<ul class="findings">${list}</ul>` as Html);
}

/** Sorts findings by their opening, the latest first, and those of one moment by severity. */
export function sortNewestFirst(findings: readonly Finding[]): Finding[] {
  const rank = ({ severity }: Finding): number => severities.indexOf(severity);
  return [...findings].sort((a, b) => b.openedAt - a.openedAt || rank(a) - rank(b));
}

interface BarShare {
  readonly tone: Tone;
  readonly count: number;
}

const barTemplate = compileTemplate(
  '<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" role="img" ' +
    'aria-label="<%= it.label %>">' +
    '<% let x = 0; for (const one of it.shares) { %>' +
    '<rect class="<%= one.tone %>" x="<%= x %>" width="<%= one.width %>" height="1"></rect>' +
    '<% x += one.width; } %></svg>',
);

/** Shares side by side; the smallest share is visible too. */
export function renderBar(shares: readonly BarShare[], label: string): Html {
  const visible = shares.filter(({ count }) => count > 0);
  const all = visible.reduce((sum, { count }) => sum + count, 0);
  const raw = visible.map(({ tone, count }) => ({
    tone,
    width: Math.max(1.5, (100 * count) / all),
  }));
  const wide = raw.reduce((sum, { width }) => sum + width, 0);
  const fit = (width: number): number => Number(((100 * width) / wide).toFixed(2));
  return barTemplate({
    label,
    shares: raw.map(({ tone, width }) => ({ tone, width: fit(width) })),
  });
}

/** The verdicts in the order of pages, the worst first. */
export const verdictOrder: readonly Verdict[] = ['different', 'unknown', 'pending', 'conform'];

/** The numbers of each verdict, as text and as a bar. */
export function describeVerdicts(
  name: string,
  counts: Readonly<Record<Verdict, number>>,
  what = name,
): { readonly name: string; readonly text: string; readonly bar: Html } {
  const shares = verdictOrder.map((verdict) => ({ tone: verdict, count: counts[verdict] }));
  const text =
    shares
      .filter(({ count }) => count > 0)
      .map(({ tone, count }) => `${count.toLocaleString('en')} ${tone}`)
      .join(', ') || 'none';
  return { name, text, bar: renderBar(shares, `${what}: ${text}`) };
}

/** A test for texts that contain all words of a search. */
export function createSearch(query: string): (text: string) => boolean {
  const words = query.toLowerCase().split(/\s+/);
  return (text) => words.every((word) => text.includes(word));
}

/** The options of a select element; '' is shown as `any`. */
export const selectOptions = (values: readonly string[], chosen: string, any = 'any') =>
  values.map((value) => ({
    value,
    word: value === '' ? any : value,
    isChosen: value === chosen,
  }));

const pageLinksTemplate = compileTemplate(`<nav class="pages" aria-label="Pages of <%= it.what %>">
<% if (it.before !== '') { %><a rel="prev" href="<%= it.before %>">← <%= it.words[0] %></a><% } %>
<% if (it.pages !== '') { %><span class="dim"><%= it.pages %></span>
<% } %>
<% if (it.after !== '') { %><a rel="next" href="<%= it.after %>"><%= it.words[1] %> →</a><% } %>
</nav>`);

interface PageLinks {
  /** The items on the pages. */
  readonly what: string;
  /** The addresses of the neighbours; '' without one. */
  readonly before: string;
  readonly after: string;
  /** The text between the links. */
  readonly pages?: string;
  readonly words?: readonly [string, string];
}

/** Links to the previous and the next page; '' without neighbours. */
export const renderPageLinks = (links: PageLinks): Html =>
  links.before === '' && links.after === ''
    ? noHtml
    : pageLinksTemplate({ pages: '', words: ['before', 'after'], ...links });

/** One page of rows, with the links to its neighbours. */
export function paginate<T>(
  rows: readonly T[],
  page: number,
  perPage: number,
  href: (page: number) => string,
): { readonly shown: readonly T[]; readonly links: Omit<PageLinks, 'what'> } {
  const last = Math.max(1, Math.ceil(rows.length / perPage));
  const current = Math.min(Math.max(1, page), last);
  return {
    shown: rows.slice((current - 1) * perPage, current * perPage),
    links: {
      before: current > 1 ? href(current - 1) : '',
      after: current < last ? href(current + 1) : '',
      pages: `page ${current} of ${last}`,
    },
  };
}
