// The page of all nodes with the verdicts on their Service ports, and the page of one node with its
// findings, its ports, and the traces of packets to one port.

import type { Finding } from '../../audit/finding/catalogue.ts';
import type { PacketTrace } from '../../audit/node/audit-node.ts';
import type { NodeVerdict } from '../../audit/node/verdicts.ts';
import { truncate } from '../text/format.ts';
import { renderFrame } from './frame.ts';
import { sortNodes } from './overview.ts';
import {
  createSearch,
  describeVerdicts,
  nodePath,
  renderFindingList,
  renderMark,
  servicePath,
  verdictOrder,
} from './parts.ts';
import type { PageStatus } from './status.ts';
import { compileTemplate } from './template.ts';

const perPage = 200;

const listTemplate = compileTemplate(`
<h1>Nodes <small><%= it.count %></small></h1>
<p class="lead">What the rules on each node do with the Service ports, as far as they are
 known.</p>
<form class="filter" method="get" action="/nodes" data-filter role="search" data-key="filter">
<label>Search<input type="search" name="q" value="<%= it.q %>" placeholder="name"
 autocomplete="off" spellcheck="false"></label><noscript><button>Filter</button></noscript></form>
<section class="card flush">
<% if (it.rows.length === 0) { %><p class="none dim" data-key="none"><br><%= it.none %></p>
<% } else { %><div class="scroll" tabindex="0" role="region" aria-label="Nodes"><table>
<thead><tr><th scope="col">Node</th><th scope="col" class="left">Service ports</th>
<th scope="col">different</th><th scope="col">unknown</th><th scope="col">pending</th>
<th scope="col">conform</th></tr></thead><tbody>
<% for (const row of it.rows) { %><tr data-row data-key="<%= row.name %>"><th scope="row">
<a class="name" href="<%= row.href %>"><%= row.name %></a></th><td><%~ row.bar %></td>
<% for (const count of row.counts) { %><td<% if (count === 0) { %> class="zero"<% } %>>
<%= count %></td><% } %></tr><% } %></tbody></table></div><% } %></section>
<% if (it.more !== '') { %><p class="dim"><%= it.more %></p><% } %>`);

/** Renders the page of nodes; each word of `query` must be in the name. */
export function renderNodes(status: PageStatus, query: string): string {
  const { nodes } = status.metrics.summary;
  const matches = createSearch(query);
  const found = sortNodes(nodes).filter(({ node }) => matches(node));
  const more = found.length - perPage;
  const count = found.length.toLocaleString('en');
  const all = status.clusterNodes ?? found.length;
  const isComplete = query.trim() !== '' || found.length === all;
  const main = listTemplate({
    q: query,
    count: isComplete ? count : `${count} of ${all}, with rules known`,
    rows: found.slice(0, perPage).map((counts) => ({
      ...describeVerdicts(counts.node, counts, `Node ${counts.node}`),
      href: nodePath(counts.node),
      counts: verdictOrder.map((verdict) => counts[verdict]),
    })),
    none:
      nodes.length === 0
        ? 'No node’s rules are known: nobody has told of any, so nothing is judged on nodes.'
        : 'None of that name.',
    more: more > 0 ? `and ${more} more: search for one by its name` : '',
  });
  return renderFrame(status, { place: '/nodes', title: 'Nodes', main });
}

/** The data of the page of a node. */
export interface NodeView {
  readonly node: string;
  /** Facts about the Node, such as `zone a` or `10.0.0.1`. */
  readonly facts: readonly string[];
  /** null if its rules are unknown. */
  readonly verdicts: readonly NodeVerdict[] | null;
  readonly standing: readonly Finding[];
  readonly resolved: readonly Finding[];
  /** The traces of packets to the port in the query; null without such a port. */
  readonly walked: readonly PacketTrace[] | null;
  /** The Service port in the query. */
  readonly asked: string | null;
}

const nodeTemplate = compileTemplate(`
<p class="crumbs"><a href="/nodes">Nodes</a> /</p>
<h1><%= it.node %></h1><p class="lead"><%= it.facts %></p>
<section class="card" aria-labelledby="h-all"><h2 id="h-all">Service ports
 <small><%= it.text %></small></h2><%~ it.bar %></section>
<% if (it.asked !== '') { %><section class="card" aria-labelledby="h-walk">
<h2 id="h-walk">Packets to <%= it.asked %> <small>walked through the rules that stand</small></h2>
<% if (it.walked.length === 0) { %><p class="dim">No such port is served there, or its rules are not
 known.</p><% } %>
<% for (const one of it.walked) { %><article data-key="<%= one.frontend %> <%= one.origin %>">
<p><%~ one.mark %> <b class="mono"><%= one.frontend %></b>
 <span class="dim">from <%= one.origin %></span></p>
<dl class="sides"><div><dt>expected</dt><dd><%= one.expected %></dd></div>
<div><dt>found</dt><dd><%= one.actual %></dd></div></dl>
<% if (one.rules.length > 0) { %><details><summary>Rules met</summary>
<ul class="rules" tabindex="0"><% for (const rule of one.rules) { %><li><%= rule %></li>
<% } %></ul></details><% } %></article><% } %>
</section><% } %>
<section class="card flush" aria-labelledby="h-standing">
<h2 id="h-standing">What differs</h2>
<% if (it.standing === '') { %><p class="none dim"><%= it.none %></p><% } %>
<%~ it.standing %></section>
<section class="card flush" aria-labelledby="h-ports"><h2 id="h-ports">Ports
 <small>what is not conform first</small></h2>
<% if (it.ports.length === 0) { %><p class="none dim">None is judged.</p><% } else { %>
<div class="scroll" tabindex="0" role="region" aria-label="Ports"><table><tbody>
<% for (const one of it.ports) { %><tr data-row data-key="<%= one.name %>"><th scope="row">
<a class="name" href="<%= one.href %>"><%= one.name %></a></th><td class="left"><%~ one.mark %></td>
<td class="left dim"><%= one.reason %></td><td><a href="<%= one.service %>">Service</a></td></tr>
<% } %></tbody></table></div><% } %>
<% if (it.morePorts !== '') { %><p class="more dim"><%= it.morePorts %></p><% } %></section>
<% if (it.resolved !== '') { %><section class="card flush" aria-labelledby="h-resolved">
<h2 id="h-resolved">Resolved findings</h2><%~ it.resolved %></section><% } %>`);

const rank = ({ verdict }: NodeVerdict): number => verdictOrder.indexOf(verdict);

function portRow(node: string, { port, verdict, reason }: NodeVerdict) {
  // `shop/web:http TCP IPv4` is a port of shop/web.
  const [namespace = '', name = ''] = (port.split(/[ :]/)[0] ?? '').split('/');
  return {
    name: port,
    href: `${nodePath(node)}?port=${encodeURIComponent(port.split(' ')[0] ?? '')}`,
    service: servicePath(namespace, name),
    mark: renderMark(verdict),
    reason: reason ?? '',
  };
}

/** Renders the page of a node. */
export function renderNode(status: PageStatus, view: NodeView): string {
  const { node, standing, resolved } = view;
  const verdicts = [...(view.verdicts ?? [])].sort((a, b) => rank(a) - rank(b));
  const ports = verdicts.filter(({ port }) => port !== '');
  const whole = verdicts.find(({ port }) => port === '');
  const counts = { conform: 0, pending: 0, different: 0, unknown: 0 };
  for (const { verdict } of verdicts) counts[verdict]++;
  const { bar, text } = describeVerdicts(`Node ${node}`, counts);
  const { now } = status.metrics;
  const more = ports.length - perPage;
  const unknown = view.verdicts === null ? 'nothing is told of its rules' : whole?.reason;
  const main = nodeTemplate({
    node,
    facts: view.facts.join(' · '),
    bar,
    text: unknown ?? text,
    standing: renderFindingList(standing, now),
    none: unknown === undefined ? 'Nothing: packets fare as they must.' : 'It is not known.',
    asked: view.asked ?? '',
    walked: (view.walked ?? []).map((trace) => ({ ...trace, mark: renderMark(trace.verdict) })),
    ports: ports.slice(0, perPage).map((port) => portRow(node, port)),
    morePorts: more > 0 ? `and ${more} more` : '',
    resolved: renderFindingList(resolved.slice(-10).reverse(), now),
  });
  return renderFrame(status, { place: '/nodes', title: truncate(`Node ${node}`, 120), main });
}
