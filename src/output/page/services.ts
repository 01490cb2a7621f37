// The list of Services: what is not as it should be first, filtered by what the address says, a
// page at a time. With ten thousand Services it is found by name as fast as with ten.

import type { Verdict } from '../../audit/finding/verdicts.ts';
import { serviceOutputs } from '../../audit/service/verdict.ts';
import type { ServiceNumbers } from '../metrics/service-families.ts';
import { renderFrame } from './frame.ts';
import { verdictOrder } from './overview.ts';
import { renderMark, formatQuery, servicePath } from './parts.ts';
import type { PageStatus } from './status.ts';
import type { Html } from './template.ts';
import { noHtml, compileTemplate } from './template.ts';

/** What the address asks for; '' where it says nothing. */
export interface ServiceQuery {
  /** Words that must all be in `namespace/name`. */
  readonly q: string;
  readonly verdict: string;
  /** From 1. */
  readonly page: number;
}

const perPage = 100;

/** The worst over the outputs of a Service; null: nobody writes anything for it. */
function worstOf({ share: { verdicts } }: ServiceNumbers): Verdict | null {
  const there = serviceOutputs.map((output) => verdicts[output]);
  return verdictOrder.find((verdict) => there.includes(verdict)) ?? null;
}

interface Row {
  readonly href: string;
  readonly key: string;
  readonly name: string;
  readonly namespace: string;
  readonly marks: readonly Html[];
  readonly cells: readonly string[];
}

interface View {
  readonly q: string;
  readonly count: string;
  readonly verdicts: readonly { value: string; word: string; isChosen: boolean }[];
  readonly rows: readonly Row[];
  readonly none: string;
  readonly before: string;
  readonly after: string;
  readonly pages: string;
}

const servicesTemplate = compileTemplate<View>(`
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
<% if (it.before !== '' || it.after !== '') { %><nav class="pages" aria-label="Pages of Services">
<% if (it.before !== '') { %><a rel="prev" href="<%= it.before %>">← before</a><% } %>
<span class="dim"><%= it.pages %></span>
<% if (it.after !== '') { %><a rel="next" href="<%= it.after %>">after →</a><% } %></nav><% } %>`);

function rowOf(numbers: ServiceNumbers): Row {
  const { namespace, name, share, conditions, slices } = numbers;
  const { ready, terminating } = conditions;
  const others = conditions['not-ready'] + terminating + conditions['terminating-serving'];
  return {
    href: servicePath(namespace, name),
    key: `${namespace}/${name}`,
    name,
    namespace,
    marks: serviceOutputs.map((output) => {
      const verdict = share.verdicts[output];
      return verdict === null ? noHtml : renderMark(verdict);
    }),
    cells: [ready, others, slices].map((count) => count.toLocaleString('en')),
  };
}

/** Those that are asked for, the worst first, then by name. */
function inOrder(services: Iterable<ServiceNumbers>, query: ServiceQuery): ServiceNumbers[] {
  const words = query.q
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '');
  const found: { key: string; rank: number; numbers: ServiceNumbers }[] = [];
  for (const numbers of services) {
    const key = `${numbers.namespace}/${numbers.name}`;
    if (!words.every((word) => key.includes(word))) continue;
    const worst = worstOf(numbers);
    if (query.verdict !== '' && query.verdict !== worst) continue;
    const rank = worst === null ? verdictOrder.length : verdictOrder.indexOf(worst);
    found.push({ key, rank, numbers });
  }
  found.sort((a, b) => a.rank - b.rank || (a.key < b.key ? -1 : 1));
  return found.map(({ numbers }) => numbers);
}

/** The list of Services as HTML. */
export function renderServices(
  status: PageStatus,
  services: Iterable<ServiceNumbers>,
  query: ServiceQuery,
): string {
  const found = inOrder(services, query);
  const last = Math.max(1, Math.ceil(found.length / perPage));
  const page = Math.min(Math.max(1, query.page), last);
  const at = (number: number): string => {
    const { q, verdict } = query;
    return `/services${formatQuery({ q, verdict, page: String(number) })}`;
  };
  const main = servicesTemplate({
    q: query.q,
    count: found.length.toLocaleString('en'),
    verdicts: ['', ...verdictOrder].map((value) => ({
      value,
      word: value === '' ? 'any' : value,
      isChosen: value === query.verdict,
    })),
    rows: found.slice((page - 1) * perPage, page * perPage).map(rowOf),
    none: status.notReady ?? 'None of that name and verdict.',
    before: page > 1 ? at(page - 1) : '',
    after: page < last ? at(page + 1) : '',
    pages: `page ${page} of ${last}`,
  });
  return renderFrame(status, { place: '/services', title: 'Services', main });
}
