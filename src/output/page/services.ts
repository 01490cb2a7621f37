// The page of Services: those with the worst verdict first, filtered by the query and split into
// pages.

import type { Verdict } from '../../audit/finding/verdicts.ts';
import { serviceOutputs } from '../../audit/service/verdict.ts';
import type { ServiceNumbers } from '../metrics/service-families.ts';
import { renderFrame } from './frame.ts';
import {
  createSearch,
  formatQuery,
  paginate,
  renderMark,
  renderPageLinks,
  selectOptions,
  servicePath,
  verdictOrder,
} from './parts.ts';
import type { PageStatus } from './status.ts';
import { compileTemplate, noHtml } from './template.ts';

/** The query of the page; '' for parameters that are absent. */
export interface ServiceQuery {
  /** Words that must all be in `namespace/name`. */
  readonly q: string;
  readonly verdict: string;
  /** From 1. */
  readonly page: number;
}

const perPage = 100;

/** The worst verdict on an output of a Service; null if no controller writes any. */
function worstVerdict({ share: { verdicts } }: ServiceNumbers): Verdict | null {
  const found = serviceOutputs.map((output) => verdicts[output]);
  return verdictOrder.find((verdict) => found.includes(verdict)) ?? null;
}

const servicesTemplate = compileTemplate(`
<h1>Services <small><%= it.count %></small></h1>
<p class="lead">Each with the verdict on what the controllers wrote for it, the worst first.</p>
<form class="filter" method="get" action="/services" data-filter role="search" data-key="filter">
<label>Search<input type="search" name="q" value="<%= it.q %>" placeholder="namespace/name"
 autocomplete="off" spellcheck="false"></label>
<label>Verdict<select name="verdict"><% for (const one of it.verdicts) { %>
<option value="<%= one.value %>"<% if (one.isChosen) { %> selected<% } %>><%= one.word %></option>
<% } %></select></label><noscript><button>Filter</button></noscript></form>
<section class="card flush">
<% if (it.rows.length === 0) { %><p class="none dim" data-key="none"><br><%= it.none %></p>
<% } else { %><div class="scroll" tabindex="0" role="region" aria-label="Services"><table>
<thead><tr><th scope="col">Service</th><th scope="col" class="left">Endpoints</th>
<th scope="col" class="left">EndpointSlices</th><th scope="col" class="left">mirrored</th>
<th scope="col">ready</th><th scope="col">not ready</th><th scope="col">slices</th></tr></thead>
<tbody><% for (const row of it.rows) { %><tr data-row data-key="<%= row.key %>">
<th scope="row"><span class="dim"><%= row.namespace %>/</span><a class="name"
 href="<%= row.href %>"><%= row.name %></a></th>
<% for (const one of row.marks) { %><td class="left"><%~ one %></td><% } %>
<% for (const one of row.cells) { %><td<% if (one === '0') { %> class="zero"<% } %>><%= one %></td>
<% } %></tr><% } %></tbody></table></div><% } %></section>
<%~ it.links %>`);

function serviceRow({ namespace, name, share, conditions, slices }: ServiceNumbers) {
  const { ready, terminating } = conditions;
  const notReady = conditions['not-ready'] + terminating + conditions['terminating-serving'];
  return {
    href: servicePath(namespace, name),
    key: `${namespace}/${name}`,
    name,
    namespace,
    marks: serviceOutputs.map((output) => {
      const verdict = share.verdicts[output];
      return verdict === null ? noHtml : renderMark(verdict);
    }),
    cells: [ready, notReady, slices].map((count) => count.toLocaleString('en')),
  };
}

/** The Services that match the query, those with the worst verdict first, then by name. */
function findServices(services: Iterable<ServiceNumbers>, query: ServiceQuery): ServiceNumbers[] {
  const matches = createSearch(query.q);
  const found: { key: string; rank: number; numbers: ServiceNumbers }[] = [];
  for (const numbers of services) {
    const key = `${numbers.namespace}/${numbers.name}`;
    if (!matches(key)) continue;
    const worst = worstVerdict(numbers);
    if (query.verdict !== '' && query.verdict !== worst) continue;
    const rank = worst === null ? verdictOrder.length : verdictOrder.indexOf(worst);
    found.push({ key, rank, numbers });
  }
  found.sort((a, b) => a.rank - b.rank || (a.key < b.key ? -1 : 1));
  return found.map(({ numbers }) => numbers);
}

/** Renders the page of Services. */
export function renderServices(
  status: PageStatus,
  services: Iterable<ServiceNumbers>,
  query: ServiceQuery,
): string {
  const { q, verdict } = query;
  const found = findServices(services, query);
  const { shown, links } = paginate(found, query.page, perPage, (page) => {
    return `/services${formatQuery({ q, verdict, page: String(page) })}`;
  });
  const main = servicesTemplate({
    q,
    count: found.length.toLocaleString('en'),
    verdicts: selectOptions(['', ...verdictOrder], verdict),
    rows: shown.map(serviceRow),
    none: status.notReady ?? 'None of that name and verdict.',
    links: renderPageLinks({ what: 'Services', ...links }),
  });
  return renderFrame(status, { place: '/services', title: 'Services', main });
}
