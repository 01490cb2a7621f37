// Parts that several pages are made of: marks of verdicts and severities, findings as list items,
// ages and moments as people read them, and addresses of pages.
//
// A mark is a sign, a word and a colour, in this order: colour is never the only sign, and the sign
// is for the eye alone, so that a screen reader says the word once.

import type { Finding, Severity } from '../../audit/finding/catalogue.ts';
import type { Verdict } from '../../audit/finding/verdicts.ts';
import { truncate, formatTime } from '../text/format.ts';
import type { Html } from './template.ts';
import { joinHtml, noHtml, compileTemplate } from './template.ts';

/** A moment as `2026-11-21 10:56:46 UTC`. */
export const formatMoment = (seconds: number): string =>
  formatTime(seconds).replace('T', ' ').replace('Z', ' UTC');

/** How long ago, roughly: `12 s`, `4 min`, `3 h`, `5 d`. */
export function formatAge(seconds: number): string {
  const age = Math.max(0, seconds);
  if (age < 120) return `${Math.round(age)} s`;
  if (age < 7200) return `${Math.round(age / 60)} min`;
  return age < 172_800 ? `${Math.round(age / 3600)} h` : `${Math.round(age / 86_400)} d`;
}

// Addresses of pages.

const encoded = encodeURIComponent;

export const servicePath = (namespace: string, name: string): string =>
  `/services/${encoded(namespace)}/${encoded(name)}`;

export const nodePath = (node: string): string => `/nodes/${encoded(node)}`;

/** A query of those words that are said; '' where none is. */
export function formatQuery(words: Readonly<Record<string, string>>): string {
  const said = Object.entries(words).filter(([, value]) => value !== '');
  if (said.length === 0) return '';
  return `?${said.map(([name, value]) => `${encoded(name)}=${encoded(value)}`).join('&')}`;
}

// Marks.

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

const markTemplate = compileTemplate<{ tone: Tone; sign: string; word: string }>(
  '<span class="mark <%= it.tone %>"><span aria-hidden="true"><%= it.sign %></span>' +
    ' <%= it.word %></span>',
);

/** A sign with its word. */
export const renderMark = (tone: Tone, word: string = tone): Html =>
  markTemplate({ tone, sign: signs[tone], word });

// Findings.

const findingTemplate = compileTemplate<{
  key: string;
  tone: Tone;
  mark: Html;
  href: string;
  name: string;
  output: string;
  code: string;
  meaning: string;
  actual: string;
  expected: string;
  times: string;
  cause: string;
}>(`
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

/** What a finding is about, for people. */
export function formatSubject({ namespace, service, node }: Finding): string {
  const of = service === '' ? '' : `${namespace}/${service}`;
  if (node === null) return of;
  return of === '' ? `Node ${node}` : `${of} on ${node}`;
}

/** The page that tells most about a finding. */
export function findingPath({ namespace, service, node }: Finding): string {
  if (node !== null) return nodePath(node);
  return servicePath(namespace, service);
}

/** Words of one side, as many as a list can bear. */
const mostWords = 240;

/** One finding as a list item; `title` is what its code means. */
export function renderFinding(finding: Finding, title: string, now: number): Html {
  const { code, severity, output, cause, since, resolvedAt, actual, expected } = finding;
  const isOver = resolvedAt !== null;
  const age = formatAge((resolvedAt ?? now) - since);
  const tone: Tone = isOver ? 'resolved' : severity;
  return findingTemplate({
    key: `${code} ${formatSubject(finding)} ${since} ${String(isOver)}`,
    tone,
    mark: renderMark(tone, isOver ? `resolved ${severity}` : severity),
    href: findingPath(finding),
    name: truncate(formatSubject(finding), 130),
    output,
    code,
    meaning: title,
    actual: isOver ? '' : truncate(actual ?? (expected === null ? '' : 'nothing'), mostWords),
    expected: isOver ? '' : truncate(expected ?? '', mostWords),
    times: isOver
      ? `resolved at ${formatMoment(resolvedAt)} after ${age}`
      : `for ${age}, since ${formatMoment(since)}`,
    cause: cause ?? '',
  });
}

/** Findings as a list; '' where there are none. */
export function renderFindingList(items: Iterable<Html>): Html {
  const list = joinHtml(items);
  return list === '' ? noHtml : (`<ul class="findings">${list}</ul>` as Html);
}

// Numbers as bars.

export interface BarShare {
  readonly tone: Tone;
  readonly count: number;
}

const barTemplate = compileTemplate<{
  label: string;
  shares: readonly (BarShare & { width: number })[];
}>(
  '<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" role="img" ' +
    'aria-label="<%= it.label %>">' +
    '<% let x = 0; for (const one of it.shares) { %>' +
    '<rect class="<%= one.tone %>" x="<%= x %>" width="<%= one.width %>" height="1"></rect>' +
    '<% x += one.width; } %></svg>',
);

/** Shares side by side; what is not nothing can be seen, however little it is. */
export function renderBar(shares: readonly BarShare[], label: string): Html {
  const there = shares.filter(({ count }) => count > 0);
  const all = there.reduce((sum, { count }) => sum + count, 0);
  const least = 1.5;
  const raw = there.map((one) => ({ ...one, width: Math.max(least, (100 * one.count) / all) }));
  const wide = raw.reduce((sum, { width }) => sum + width, 0);
  const fit = (width: number): number => Number(((100 * width) / wide).toFixed(2));
  return barTemplate({ label, shares: raw.map((one) => ({ ...one, width: fit(one.width) })) });
}
