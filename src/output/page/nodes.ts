// The page of all nodes, and the page of one with the traces of packets to one of its ports.

import type { PacketTrace } from '../../audit/node/audit-node.ts';
import type { NodeVerdict } from '../../audit/node/node-state.ts';
import type { NodeView } from '../../auditor/explanations.ts';
import type { PageStatus } from '../../auditor/queries.ts';
import { truncate } from '../text/format.ts';
import { renderFrame } from './frame.ts';
import { sortNodes } from './overview.ts';
import type { Html } from './parts.ts';
import {
  createSearch,
  describeVerdicts,
  formatNumber,
  markup,
  nodePath,
  renderCard,
  renderFilter,
  renderFindingList,
  renderFlushCard,
  renderMark,
  renderNothing,
  renderNumber,
  renderResolved,
  renderTable,
  servicePath,
  verdictOrder,
} from './parts.ts';

const perPage = 200;

type NodeCounts = PageStatus['metrics']['summary']['nodes'][number];

function renderRow(counts: NodeCounts): Html {
  const { node } = counts;
  return markup`<tr data-row data-key="${node}"><th scope="row">
<a class="name" href="${nodePath(node)}">${node}</a></th>
<td>${describeVerdicts(`Node ${node}`, counts).bar}</td>
${verdictOrder.map((verdict) => renderNumber(String(counts[verdict])))}</tr>`;
}

/** Renders the page of nodes; each word of `query` must be in the name. */
export function renderNodes(status: PageStatus, query: string): string {
  const { nodes } = status.metrics.summary;
  const matches = createSearch(query);
  const found = sortNodes(nodes).filter(({ node }) => matches(node));
  const more = found.length - perPage;
  const all = status.clusterNodes ?? found.length;
  const isComplete = query.trim() !== '' || found.length === all;
  const none =
    nodes.length === 0
      ? 'No node’s rules are known: nobody has told of any, so nothing is judged on nodes.'
      : 'None of that name.';
  const heads = ['Node', 'Service ports', ...verdictOrder];
  const rows = found.slice(0, perPage).map(renderRow);
  const table = renderTable('Nodes', heads, rows, 1);
  const main = markup`
<h1>Nodes
 <small>${formatNumber(found.length)}${!isComplete && ` of ${all}, with rules known`}</small></h1>
<p class="lead">What the rules on each node do with the Service ports, as far as they are
 known.</p>
${renderFilter('/nodes', query, 'name')}
<section class="card flush">${rows.length === 0 ? renderNothing(none) : table}</section>
${more > 0 && markup`<p class="dim">and ${more} more: search for one by its name</p>`}`;
  return renderFrame(status, '/nodes', 'Nodes', main);
}

const rank = ({ verdict }: NodeVerdict): number => verdictOrder.indexOf(verdict);

function renderPort(node: string, { port, verdict, reason }: NodeVerdict): Html {
  const path = `${nodePath(node)}?port=${encodeURIComponent(port.split(' ')[0] ?? '')}`;
  // `shop/web:http TCP IPv4` is a port of shop/web.
  const [namespace = '', name = ''] = (port.split(/[ :]/)[0] ?? '').split('/');
  return markup`<tr data-row data-key="${port}"><th scope="row">
<a class="name" href="${path}">${port}</a></th><td class="left">${renderMark(verdict)}</td>
<td class="left dim">${reason}</td>
<td><a href="${servicePath(namespace, name)}">Service</a></td></tr>`;
}

function renderTrace({ frontend, origin, verdict, expected, actual, rules }: PacketTrace): Html {
  const met = markup`<details><summary>Rules met</summary>
<ul class="rules" tabindex="0">${rules.map((rule) => markup`<li>${rule}</li>`)}</ul></details>`;
  return markup`<article data-key="${frontend} ${origin}">
<p>${renderMark(verdict)} <b class="mono">${frontend}</b>
 <span class="dim">from ${origin}</span></p>
<dl class="sides"><div><dt>expected</dt><dd>${expected}</dd></div>
<div><dt>found</dt><dd>${actual}</dd></div></dl>${rules.length > 0 && met}</article>`;
}

function renderWalk(port: string, traces: readonly PacketTrace[]): Html {
  const none = markup`<p class="dim">No such port is served there, or its rules are not known.</p>`;
  const title = markup`Packets to ${port} <small>walked through the rules that stand</small>`;
  return renderCard('walk', title, traces.length === 0 ? none : traces.map(renderTrace));
}

/** Renders the page of a node. */
export function renderNode(status: PageStatus, view: NodeView): string {
  const { node, standing, resolved, asked } = view;
  const { now } = status.metrics;
  const verdicts = [...(view.verdicts ?? [])].sort((a, b) => rank(a) - rank(b));
  const ports = verdicts.filter(({ port }) => port !== '');
  const whole = verdicts.find(({ port }) => port === '');
  const counts = { conform: 0, pending: 0, different: 0, unknown: 0 };
  for (const { verdict } of verdicts) counts[verdict]++;
  const { bar, text } = describeVerdicts(`Node ${node}`, counts);
  const more = ports.length - perPage;
  const unknown = view.verdicts === null ? 'nothing is told of its rules' : whole?.reason;
  const none = unknown === undefined ? 'Nothing: packets fare as they must.' : 'It is not known.';
  const rows = ports.slice(0, perPage).map((port) => renderPort(node, port));
  const table = [
    renderTable('Ports', [], rows),
    ...(more > 0 ? [markup`<p class="more dim">and ${more} more</p>`] : []),
  ];
  const title = markup`Ports <small>what is not conform first</small>`;
  const main = markup`
<p class="crumbs"><a href="/nodes">Nodes</a> /</p>
<h1>${node}</h1><p class="lead">${view.facts.join(' · ')}</p>
${renderCard('all', markup`Service ports <small>${unknown ?? text}</small>`, bar)}
${asked !== null && asked !== '' && renderWalk(asked, view.walked ?? [])}
${renderFlushCard('standing', 'What differs', renderFindingList(standing, now), none)}
${renderFlushCard('ports', title, ports.length === 0 ? [] : table, 'None is judged.')}
${renderResolved(resolved, now)}`;
  return renderFrame(status, '/nodes', truncate(`Node ${node}`, 120), main);
}
