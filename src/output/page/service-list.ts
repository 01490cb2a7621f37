// The list of Services, and the list of those that cannot receive traffic.

import type { Suppressed } from '../../audit/finding/catalogue.ts';
import { suppressedLast, suppressedText } from '../../audit/finding/suppressions.ts';
import type { Verdict } from '../../audit/finding/verdicts.ts';
import { serviceOutputs } from '../../audit/service/verdict.ts';
import type { ListedService } from '../../auditor/explanations.ts';
import type { PageStatus } from '../../auditor/queries.ts';
import { recordOf } from '../../model/collections.ts';
import { formatCsv } from '../text/csv.ts';
import { truncate } from '../text/format.ts';
import type { UnservedRow } from '../text/unserved.ts';
import { renderFrame } from './frame.ts';
import type { Html, PageQuery } from './parts.ts';
import {
  createSearch,
  formatNumber,
  markup,
  namespacesOf,
  paginate,
  renderCard,
  renderDownload,
  renderFilter,
  renderFlushCard,
  renderMark,
  renderNothing,
  renderNumber,
  renderSelect,
  renderTable,
  servicePath,
  sortHeads,
  toneWord,
  verdictOrder,
} from './parts.ts';

// --- all Services ---

export type ServiceQuery = PageQuery<(typeof serviceFields)[number]>;

/** `q` are words that must all be in `namespace/name`. */
export const serviceFields = ['q', 'namespace', 'verdict', 'sort'] as const;

const servicesPerPage = 100;

const findingsOf = ({ health: { findings } }: ListedService): number =>
  findings.critical + findings.warning + findings.info;

const notReadyOf = ({ conditions }: ListedService): number =>
  conditions['not-ready'] + conditions.terminating + conditions['terminating-serving'];

/** The columns with numbers, by the key by which they sort. */
const numbers: Readonly<Record<string, (service: ListedService) => number>> = {
  findings: findingsOf,
  ready: ({ conditions }) => conditions.ready,
  'not-ready': notReadyOf,
  slices: ({ slices }) => slices,
};

const columns = [
  ['Service', 'name'],
  ['State', ''],
  ['Endpoints', ''],
  ['EndpointSlices', ''],
  ['Mirrored', ''],
  ['Findings', 'findings'],
  ['Ready', 'ready'],
  ['Not ready', 'not-ready'],
  ['Slices', 'slices'],
] as const;

const renderName = ({ namespace, name }: { readonly namespace: string; readonly name: string }) =>
  markup`<th scope="row"><span class="dim">${namespace}/</span><a class="name"
 href="${servicePath(namespace, name)}">${name}</a></th>`;

function renderListed(service: ListedService): Html {
  const { namespace, name, share, health } = service;
  const state = health.severity ?? health.verdict;
  const marks = serviceOutputs.map((output) => {
    const verdict = share.verdicts[output];
    return markup`<td class="left">${verdict !== null && renderMark(verdict)}</td>`;
  });
  const cells = Object.values(numbers).map((numberOf) =>
    renderNumber(formatNumber(numberOf(service))),
  );
  return markup`<tr data-row data-key="${namespace}/${name}">
${renderName(service)}<td class="left">${state !== null && renderMark(state)}
${share.unserved !== null && markup` ${renderMark('warning', 'no endpoints')}`}</td>
${marks}${cells}</tr>`;
}

const byName = (a: ListedService, b: ListedService): number =>
  `${a.namespace}/${a.name}` < `${b.namespace}/${b.name}` ? -1 : 1;

/** The Services of a query in its order; '' is theirs, worst first. */
function findServices(services: readonly ListedService[], query: ServiceQuery): ListedService[] {
  const { q, namespace, verdict, sort } = query;
  const matches = createSearch(q);
  const found = services.filter(
    (service) =>
      matches(`${service.namespace}/${service.name}`) &&
      ['', service.namespace].includes(namespace) &&
      ['', service.health.verdict].includes(verdict),
  );
  const numberOf = numbers[sort];
  if (numberOf !== undefined) found.sort((a, b) => numberOf(b) - numberOf(a));
  return sort === 'name' ? found.sort(byName) : found;
}

const wordOf = (verdict: Verdict | null): string => (verdict === null ? '' : toneWord(verdict));

/** Renders all Services that match the query as CSV, in pieces. */
export const renderServicesCsv = (services: readonly ListedService[], query: ServiceQuery) =>
  formatCsv<ListedService>(
    {
      namespace: ({ namespace }) => namespace,
      service: ({ name }) => name,
      verdict: ({ health }) => wordOf(health.verdict),
      severity: ({ health }) => health.severity,
      ...recordOf(
        serviceOutputs,
        (output) =>
          ({ share }: ListedService) =>
            wordOf(share.verdicts[output]),
      ),
      ...numbers,
      'without endpoints': ({ share }) => share.unserved,
    },
    findServices(services, query),
  );

/** Renders the page of Services, which are sorted worst first. */
export function renderServices(
  status: PageStatus,
  services: readonly ListedService[],
  query: ServiceQuery,
): string {
  const { q, namespace, verdict } = query;
  const found = findServices(services, query);
  const { shown, links } = paginate('Services', found, servicesPerPage, query);
  const none = renderNothing(status.notReady ?? 'No Service matches.');
  const heads = sortHeads(columns, '/services', query);
  const table = renderTable('Services', heads, shown.map(renderListed), 4);
  const main = markup`
<h1>Services <small>${formatNumber(found.length)}</small></h1>
<p class="lead">The state is that of the worst finding, also on a node.
 <a href="/unserved">Services that cannot receive traffic</a></p>
${renderFilter('/services', q, 'namespace/name', [
  renderSelect(['namespace', 'Namespace'], namespacesOf(services, namespace), namespace),
  renderSelect(['verdict', 'Verdict'], verdictOrder, verdict, 'any', toneWord),
])}
<section class="card flush">${shown.length === 0 ? none : table}</section>
${links}${renderDownload('/services.csv', query)}`;
  return renderFrame(status, '/services', 'Services', main);
}

// --- Services that cannot receive traffic ---

const shownUnserved = 6;

const heading = 'Services that cannot receive traffic';

/** Marks a Service that a suppression accepts. The metric does not count it. */
const renderSuppressed = (it: Suppressed | null): Html | null =>
  it && markup` <small class="dim">Suppressed ${truncate(suppressedText(it), 300)}</small>`;

function renderUnserved(service: UnservedRow): Html {
  const { namespace, name, reason, detail, suppressed } = service;
  return markup`<tr data-row data-key="${namespace}/${name}">${renderName(service)}
<td class="left">${reason.replaceAll('_', ' ')}${renderSuppressed(suppressed)}</td>
<td class="left wrap dim">${truncate(detail, 400)}</td></tr>`;
}

/** The first of them for the overview. */
export function renderUnservedCard(services: readonly UnservedRow[]): Html | null {
  const first = services.toSorted(suppressedLast).slice(0, shownUnserved);
  const items = first.map(({ namespace, name, reason, detail, suppressed }) => {
    const text = truncate(detail, 160);
    return markup`<li data-key="${namespace}/${name}">
<a href="${servicePath(namespace, name)}">${namespace}/${name}</a>
<span>${reason.replaceAll('_', ' ')}
${renderSuppressed(suppressed)}</span><small class="dim">${text}</small></li>`;
  });
  const more = services.length - items.length;
  const all = markup`<p><a href="/unserved">${formatNumber(more)} more</a></p>`;
  const title = markup`${heading} <small>${formatNumber(services.length)}</small>`;
  const content = markup`<ul class="plain">${items}</ul>${more > 0 && all}`;
  return renderCard(
    'unserved',
    title,
    items.length > 0 ? content : markup`<p class="dim">None.</p>`,
  );
}

export type UnservedQuery = PageQuery<(typeof unservedFields)[number]>;

export const unservedFields = ['q', 'namespace'] as const;

/** Renders the page of the Services that cannot receive traffic. */
export function renderUnservedPage(
  status: PageStatus,
  services: readonly UnservedRow[],
  query: UnservedQuery,
): string {
  const { q, namespace } = query;
  const matches = createSearch(q);
  const found = services.filter(
    (service) =>
      matches(`${service.namespace}/${service.name} ${service.reason.replaceAll('_', ' ')}`) &&
      ['', service.namespace].includes(namespace),
  );
  const { shown, links } = paginate(
    'unserved',
    found.toSorted(suppressedLast),
    servicesPerPage,
    query,
  );
  const rows = shown.map(renderUnserved);
  const table = renderTable(heading, ['Service', 'Reason', 'Details'], rows, 2);
  const shownTable = rows.length === 0 ? [] : [table];
  const none = status.notReady ?? 'None.';
  const main = markup`
<h1>${heading} <small>${formatNumber(found.length)}</small></h1>
<p class="lead">They have no usable endpoint. The controllers may have written what they
 should.</p>
${renderFilter('/unserved', q, 'namespace/name, reason', [
  renderSelect(['namespace', 'Namespace'], namespacesOf(services, namespace), namespace),
])}
${renderFlushCard('unserved', 'Services', shownTable, none)}
${links}`;
  return renderFrame(status, '/services', heading, main);
}
