// The page of findings: open and resolved ones, filtered by the query and split into pages. Below
// them it explains their codes and causes from the catalogue.

import type { Code, Finding } from '../../audit/finding/catalogue.ts';
import { catalogue, severities } from '../../audit/finding/catalogue.ts';
import type { Cause } from '../../audit/finding/causes.ts';
import { causes } from '../../audit/finding/causes.ts';
import { findAlert, findingUrl, runbookUrl } from '../text/documentation-links.ts';
import { formatCount } from '../text/format.ts';
import { renderFrame } from './frame.ts';
import {
  createSearch,
  formatQuery,
  formatSubject,
  paginate,
  renderFindingList,
  renderPageLinks,
  selectOptions,
  sortNewestFirst,
} from './parts.ts';
import type { PageStatus } from './status.ts';
import { compileTemplate } from './template.ts';

/** The query of the page; '' for parameters that are absent. */
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

function createFilter({ q, ...query }: FindingQuery): (finding: Finding) => boolean {
  const matches = createSearch(q);
  return (finding) => {
    const { severity, output, code, object, actual, expected, cause } = finding;
    const texts = [formatSubject(finding), code, object, actual, expected, cause];
    return (
      (query.severity === '' || query.severity === severity) &&
      (query.output === '' || query.output === output) &&
      (query.code === '' || query.code === code) &&
      matches(texts.join(' ').toLowerCase())
    );
  };
}

const findingsTemplate = compileTemplate(`
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
<%~ it.links %>
<% if (it.forgotten !== '') { %><p class="dim"><%= it.forgotten %></p><% } %>
<% if (it.explained.length > 0) { %><section class="card" aria-labelledby="h-codes">
<h2 id="h-codes">What the codes and causes mean</h2><dl class="codes">
<% for (const one of it.explained) { %><dt id="<%= one.id %>"><code><%= one.name %></code></dt>
<dd><%= one.text %></dd><dd class="cure">→ <%= one.cure %></dd>
<dd class="dim">Kubernetes code: <%= one.source %><% for (const link of one.links) { %> ·
<a href="<%= link.href %>"><%= link.text %></a><% } %></dd>
<% } %></dl></section><% } %>`);

function explainCode(code: Code) {
  const { title, meaning, remedy, upstream } = catalogue[code];
  const alert = findAlert(code);
  const links = [{ text: 'documentation', href: findingUrl(code) }];
  if (alert !== null) links.push({ text: `runbook: ${alert}`, href: runbookUrl(alert) });
  const text = `${title}. ${meaning}`;
  return { id: code, name: code, text, cure: remedy, source: upstream, links };
}

function explainCause(cause: Cause) {
  const { title, condition, cure, upstream } = causes[cause];
  const id = `cause-${cause}` as const;
  const links = [{ text: 'documentation', href: findingUrl(id) }];
  return { id, name: cause, text: `${title}. ${condition}`, cure, source: upstream, links };
}

/** Explains the codes and causes of findings, each once. */
function explainAll(findings: readonly Finding[]) {
  const codes = new Set(findings.map(({ code }) => code));
  const named = new Set(findings.map(({ cause }) => cause).filter((cause) => cause !== null));
  return [...[...codes].sort().map(explainCode), ...[...named].sort().map(explainCause)];
}

/** Renders the page of findings. */
export function renderFindings(status: PageStatus, query: FindingQuery): string {
  const { metrics, resolved, forgotten } = status;
  const { q, state, severity, output, code } = query;
  const isResolved = state === 'resolved' || state === 'all';
  const all = [
    ...(state === 'resolved' ? [] : sortNewestFirst(metrics.summary.findings)),
    ...(isResolved ? [...resolved].reverse() : []),
  ];
  const found = all.filter(createFilter(query));
  const { shown, links } = paginate(found, query.page, perPage, (page) => {
    return `/findings${formatQuery({ q, state, severity, output, code, page: String(page) })}`;
  });
  const codes = new Set([...all.map((finding) => finding.code), code]);
  codes.delete('');
  const select = (name: string, label: string, values: string[], chosen: string, any?: string) => ({
    name,
    label,
    options: selectOptions(['', ...values], chosen, any),
  });
  const main = findingsTemplate({
    q,
    choices: [
      select('state', 'State', ['resolved', 'all'], state, 'standing'),
      select('severity', 'Severity', [...severities], severity),
      select('output', 'Output', outputs, output),
      select('code', 'Code', [...codes].sort(), code),
    ],
    count: found.length.toLocaleString('en'),
    list: renderFindingList(shown, metrics.now),
    links: renderPageLinks({ what: 'findings', ...links, words: ['newer', 'older'] }),
    explained: explainAll(shown),
    forgotten:
      forgotten > 0 && isResolved
        ? `${formatCount(forgotten, 'older one')} are not kept any more.`
        : '',
    none: all.length === 0 ? 'None.' : 'None of these.',
  });
  return renderFrame(status, { place: '/findings', title: 'Findings', main });
}
