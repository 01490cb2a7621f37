// The page of a search, and the page of a pod, which the search leads to.

import type { PageStatus } from '../../auditor/queries.ts';
import type { PodView, SearchMatch, SearchResult } from '../../auditor/search.ts';
import { truncate } from '../text/format.ts';
import { renderReasonTree } from './details.ts';
import { renderFrame, renderLinks } from './frame.ts';
import {
  formatNumber,
  markup,
  nodePath,
  renderCard,
  renderCrumbs,
  renderTable,
  servicePath,
} from './parts.ts';

export function matchPath({ kind, key }: SearchMatch): string {
  const [namespace = '', name = ''] = key.split('/');
  if (kind === 'Node') return nodePath(key);
  const path = servicePath(namespace, name);
  return kind === 'Service' ? path : path.replace('/services/', '/pods/');
}

/** The only match, or the only exact one; null if there are none or several. */
export function onlyMatch({ matches, total }: SearchResult): SearchMatch | null {
  const [first, ...others] = matches.filter(({ exact }) => exact);
  if (first !== undefined) return others.length === 0 ? first : null;
  return total === 1 ? (matches[0] ?? null) : null;
}

/** Renders the matches of a search. */
export function renderSearch(status: PageStatus, result: SearchResult): string {
  const { query, matches, total, explanation } = result;
  const rows = matches.map((match) => {
    const { kind, key } = match;
    return markup`<tr data-row data-key="${kind} ${key}"><th scope="row">
<a class="name" href="${matchPath(match)}">${key}</a></th><td class="left">${kind}</td></tr>`;
  });
  const none = `No pod, IP address, Service or node matches ${truncate(query, 100)}.`;
  const table = renderTable('Matches', ['Name', 'Kind'], rows, 1);
  const more = total - matches.length;
  const main = markup`
<h1>Search <small>${formatNumber(total)}</small></h1>
<form class="filter" action="/search"><label>Pod, IP, Service or node
<input type="search" name="q" value="${query}"
 autocomplete="off" spellcheck="false"></label><button>Find</button></form>
${explanation !== null && renderCard('why', 'Explanation', renderReasonTree(explanation))}
${rows.length > 0 && markup`<section class="card flush">${table}</section>`}
${rows.length === 0 && explanation === null && markup`<p>${none}</p>`}
${more > 0 && markup`<p class="dim">and ${formatNumber(more)} more: add another word</p>`}`;
  return renderFrame(status, '/search', `Search ${truncate(query, 60)}`, main);
}

/** Renders the page of a pod. */
export function renderPod(status: PageStatus, view: PodView): string {
  const { namespace, name, node, ready, ips, services, explanation } = view;
  const known = ready === null ? 'this pod does not exist' : ready ? 'Ready' : 'not Ready';
  const facts = [known, ...ips].join(' · ');
  const items = services.map((key) => {
    const [, service = ''] = key.split('/');
    return markup`<li><a href="${servicePath(namespace, service)}">${key}</a></li>`;
  });
  const on = markup` · on <a href="${nodePath(node)}">${node}</a>`;
  const main = markup`${renderCrumbs([
    ['Pods', null],
    [namespace, null],
  ])}
<h1>${name} <small>pod in ${namespace}</small></h1>
<p class="lead">${facts}${node !== '' && on}</p>
${renderLinks(status, { namespace, pod: name, node })}
${renderCard('why', 'Explanation', renderReasonTree(explanation))}
${renderCard('services', 'Services that select it', [
  items.length === 0 && markup`<p class="dim">None.</p>`,
  markup`<ul class="plain">${items}</ul>`,
])}`;
  return renderFrame(status, '/search', truncate(`Pod ${namespace}/${name}`, 120), main);
}
