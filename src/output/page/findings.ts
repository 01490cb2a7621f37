// The page of findings: those that stand and those that are resolved, filtered by what the address
// says, a page at a time, and below what their codes and causes mean, with the way out: what each
// means stands in the catalogue, so that nobody has to look it up elsewhere.

import type { Code, Finding } from '../../audit/finding/catalogue.ts';
import { catalogue, severities } from '../../audit/finding/catalogue.ts';
import type { Cause } from '../../audit/finding/causes.ts';
import { causes } from '../../audit/finding/causes.ts';
import { findAlert, findingUrl, runbookUrl } from '../text/documentation-links.ts';
import { formatCount } from '../text/format.ts';
import { renderFrame } from './frame.ts';
import { sortNewestFirst } from './overview.ts';
import { renderFinding, renderFindingList, formatQuery, formatSubject } from './parts.ts';
import type { PageStatus } from './status.ts';
import type { Html } from './template.ts';
import { compileTemplate } from './template.ts';

/** States besides `standing`, which is meant where nothing is said. */
const others = ['resolved', 'all'];

/** What the address asks for; '' where it says nothing. */
export interface FindingQuery {
  /** Words that must all be in the name, the code or the texts. */
  readonly q: string;
  readonly state: string;
  readonly severity: string;
  readonly output: string;
  readonly code: string;
  /** From 1. */
  readonly page: number;
}

const outputs = ['endpoints', 'endpointslices', 'mirrored', 'node', 'input'];
const perPage = 50;

function admits(query: FindingQuery): (finding: Finding) => boolean {
  const words = query.q
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '');
  return (finding) => {
    const { severity, output, code, object, actual, expected, cause } = finding;
    if (query.severity !== '' && query.severity !== severity) return false;
    if (query.output !== '' && query.output !== output) return false;
    if (query.code !== '' && query.code !== code) return false;
    if (words.length === 0) return true;
    const texts = [formatSubject(finding), code, object, actual, expected, cause];
    const text = texts.join(' ').toLowerCase();
    return words.every((word) => text.includes(word));
  };
}

interface Explained {
  readonly id: string;
  readonly name: string;
  readonly text: string;
  readonly cure: string;
  readonly source: string;
  readonly links: readonly { text: string; href: string }[];
}

interface Choice {
  readonly name: string;
  readonly label: string;
  readonly options: readonly { value: string; word: string; isChosen: boolean }[];
}

interface View {
  readonly q: string;
  readonly choices: readonly Choice[];
  readonly count: string;
  readonly list: Html;
  readonly before: string;
  readonly after: string;
  readonly pages: string;
  readonly explained: readonly Explained[];
  readonly forgotten: string;
  readonly none: string;
}

const findingsTemplate = compileTemplate<View>(`
<h1>Findings <small><%= it.count %></small></h1>
<p class="lead">What differs from what the controllers or kube-proxy should have written,
 newest first.</p>
<form class="filter" method="get" action="/findings" data-filter role="search" data-key="filter">
<label>Search<input type="search" name="q" value="<%= it.q %>" placeholder="name, code, address"
 autocomplete="off" spellcheck="false"></label>
<% for (const one of it.choices) { %><label><%= one.label %><select name="<%= one.name %>">
<% for (const option of one.options) { %><option value="<%= option.value %>"
<% if (option.isChosen) { %> selected<% } %>><%= option.word %></option><% } %></select></label>
<% } %><noscript><button>Filter</button></noscript></form>
<section class="card flush" aria-label="Findings">
<% if (it.list === '') { %><p class="none dim" data-key="none"><br><%= it.none %></p><% } %>
<%~ it.list %></section>
<% if (it.before !== '' || it.after !== '') { %><nav class="pages" aria-label="Pages of findings">
<% if (it.before !== '') { %><a rel="prev" href="<%= it.before %>">← newer</a><% } %>
<span class="dim"><%= it.pages %></span>
<% if (it.after !== '') { %><a rel="next" href="<%= it.after %>">older →</a><% } %></nav><% } %>
<% if (it.forgotten !== '') { %><p class="dim"><%= it.forgotten %></p><% } %>
<% if (it.explained.length > 0) { %><section class="card" aria-labelledby="h-codes">
<h2 id="h-codes">What the codes and causes mean</h2><dl class="codes">
<% for (const one of it.explained) { %><dt id="<%= one.id %>"><code><%= one.name %></code></dt>
<dd><%= one.text %></dd><dd class="cure">→ <%= one.cure %></dd>
<dd class="dim">Kubernetes code: <%= one.source %><% for (const link of one.links) { %> ·
<a href="<%= link.href %>"><%= link.text %></a><% } %></dd>
<% } %></dl></section><% } %>`);

function explainedOf(findings: readonly Finding[]): Explained[] {
  const codes = new Set(findings.map(({ code }) => code));
  const named = new Set(findings.flatMap(({ cause }) => (cause === null ? [] : [cause])));
  return [...[...codes].sort().map(codeText), ...[...named].sort().map(causeText)];
}

function codeText(code: Code): Explained {
  const { title, meaning, remedy, upstream } = catalogue[code];
  const text = `${title}. ${meaning}`;
  const alert = findAlert(code);
  const links = [
    { text: 'documentation', href: findingUrl(code) },
    ...(alert === null ? [] : [{ text: `runbook: ${alert}`, href: runbookUrl(alert) }]),
  ];
  return { id: code, name: code, text, cure: remedy, source: upstream, links };
}

function causeText(cause: Cause): Explained {
  const { title, condition, cure, upstream } = causes[cause];
  const id = `cause-${cause}` as const;
  const text = `${title}. ${condition}`;
  const links = [{ text: 'documentation', href: findingUrl(id) }];
  return { id, name: cause, text, cure, source: upstream, links };
}

function choicesOf(query: FindingQuery, codes: readonly string[]): Choice[] {
  const choice = (name: keyof FindingQuery, label: string, values: readonly string[]): Choice => ({
    name,
    label,
    options: values.map((value) => ({
      value,
      word: value === '' ? 'any' : value,
      isChosen: value === String(query[name]),
    })),
  });
  const state = choice('state', 'State', ['', ...others]);
  return [
    { ...state, options: state.options.map((one) => (one.value === '' ? standing(one) : one)) },
    choice('severity', 'Severity', ['', ...severities]),
    choice('output', 'Output', ['', ...outputs]),
    choice('code', 'Code', ['', ...codes]),
  ];
}

const standing = <T extends { word: string }>(option: T): T => ({ ...option, word: 'standing' });

/** The page of findings as HTML. */
export function renderFindings(status: PageStatus, query: FindingQuery): string {
  const { metrics, resolved, forgotten } = status;
  const { summary, now } = metrics;
  const isStanding = query.state !== 'resolved';
  const isResolved = query.state === 'resolved' || query.state === 'all';
  const all = [
    ...(isStanding ? sortNewestFirst(summary.findings) : []),
    ...(isResolved ? [...resolved].reverse() : []),
  ];
  const found = all.filter(admits(query));
  const last = Math.max(1, Math.ceil(found.length / perPage));
  const page = Math.min(Math.max(1, query.page), last);
  const shown = found.slice((page - 1) * perPage, page * perPage);
  const at = (number: number): string => {
    const { q, state, severity, output, code } = query;
    return `/findings${formatQuery({ q, state, severity, output, code, page: String(number) })}`;
  };
  const codes = [...new Set([...all.map(({ code }) => code as string), query.code])]
    .filter((code) => code !== '')
    .sort();
  const main = findingsTemplate({
    q: query.q,
    choices: choicesOf(query, codes),
    count: found.length.toLocaleString('en'),
    list: renderFindingList(shown.map((one) => renderFinding(one, catalogue[one.code].title, now))),
    before: page > 1 ? at(page - 1) : '',
    after: page < last ? at(page + 1) : '',
    pages: `page ${page} of ${last}`,
    explained: explainedOf(shown),
    forgotten:
      forgotten > 0 && isResolved
        ? `${formatCount(forgotten, 'older one')} are not kept any more.`
        : '',
    none: all.length === 0 ? 'None.' : 'None of these.',
  });
  return renderFrame(status, { place: '/findings', title: 'Findings', main });
}
