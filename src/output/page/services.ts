// The page of Services: those with the worst verdict first, filtered by the query and split into
// pages.

import type { Verdict } from '../../audit/finding/verdicts.ts';
import { serviceOutputs } from '../../audit/service/verdict.ts';
import type { ServiceNumbers } from '../metrics/service-rows.ts';
import { renderFrame } from './frame.ts';
import {
  createSearch,
  formatNumber,
  formatQuery,
  paginate,
  renderFilter,
  renderMark,
  renderNothing,
  renderNumber,
  renderPageLinks,
  renderSelect,
  renderTable,
  servicePath,
  verdictOrder,
} from './parts.ts';
import type { PageStatus } from './status.ts';
import type { Html } from './template.ts';
import { markup } from './template.ts';

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

function renderRow({ namespace, name, share, conditions, slices }: ServiceNumbers): Html {
  const { ready, terminating } = conditions;
  const notReady = conditions['not-ready'] + terminating + conditions['terminating-serving'];
  const marks = serviceOutputs.map((output) => {
    const verdict = share.verdicts[output];
    return markup`<td class="left">${verdict !== null && renderMark(verdict)}</td>`;
  });
  const numbers = [ready, notReady, slices].map((count) => renderNumber(formatNumber(count)));
  return markup`<tr data-row data-key="${namespace}/${name}">
<th scope="row"><span class="dim">${namespace}/</span><a class="name"
 href="${servicePath(namespace, name)}">${name}</a></th>${marks}${numbers}</tr>`;
}

const heads = [
  'Service',
  'Endpoints',
  'EndpointSlices',
  'mirrored',
  'ready',
  'not ready',
  'slices',
];

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
  const none = renderNothing(status.notReady ?? 'None of that name and verdict.');
  const table = renderTable({ label: 'Services', heads, texts: 3 }, shown.map(renderRow));
  const select = renderSelect(['verdict', 'Verdict'], verdictOrder, verdict);
  const main = markup`
<h1>Services <small>${formatNumber(found.length)}</small></h1>
<p class="lead">Each with the verdict on what the controllers wrote for it, the worst first.</p>
${renderFilter('/services', q, 'namespace/name', [select])}
<section class="card flush">${shown.length === 0 ? none : table}</section>
${renderPageLinks({ what: 'Services', ...links })}`;
  return renderFrame(status, { place: '/services', title: 'Services', main });
}
