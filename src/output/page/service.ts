// The page of one Service: its verdicts, the explanation in words, and a table of its pods and
// addresses. The table compares the expected entry of each address with the Endpoints, the slices
// and the nodes. Differences have a sign and a text, and come first.

import type { EntryState } from '../../audit/explain/conditions.ts';
import { stateWords } from '../../audit/explain/conditions.ts';
import type { Explanation } from '../../audit/explain/explanation.ts';
import type { ObservedEntry } from '../../audit/explain/observed.ts';
import type { ServiceTable, ServiceTableRow } from '../../audit/explain/table.ts';
import { catalogue } from '../../audit/finding/catalogue.ts';
import type { Verdict } from '../../audit/finding/verdicts.ts';
import { legal } from '../../audit/finding/verdicts.ts';
import type { FollowedChange } from '../../audit/measure/sample-history.ts';
import type { PacketTrace } from '../../audit/node/audit-node.ts';
import { ipOf } from '../../model/ip.ts';
import { formatLag, truncate } from '../text/format.ts';
import { renderFrame } from './frame.ts';
import {
  formatMoment,
  nodePath,
  renderBar,
  renderFindingList,
  renderMark,
  renderPageLinks,
} from './parts.ts';
import { renderReasonTree } from './reason-tree.ts';
import type { ServiceStatus } from './service-status.ts';
import type { PageStatus } from './status.ts';
import { compileTemplate } from './template.ts';

/** The verdict on a Service at one node, over its ports. */
export interface NodeOfService {
  readonly node: string;
  readonly verdict: Verdict;
  /** null unless the verdict is unknown. */
  readonly reason: string | null;
  /** The traces of packets to its ports, on a few nodes that do not conform; else empty. */
  readonly walked: readonly PacketTrace[];
}

/** The data of the page of a Service. */
export interface ServiceView {
  readonly status: ServiceStatus;
  readonly explanation: Explanation;
  readonly table: ServiceTable;
  /** The index of the first shown row. */
  readonly from: number;
  readonly maxEndpointsPerSlice: number;
  /** null if the rules of no node are known. */
  readonly nodes: readonly NodeOfService[] | null;
  readonly lag: readonly FollowedChange[];
}

/** The number of rows on one page. */
export const rowsPerPage = 100;

/** Above this number, all slices share one column, and each row names its slices. */
const mostColumns = 5;
/** The number of nodes with columns of their own: those that do not conform. */
export const mostNodes = 4;

const cell = (tone: string, sign: string, word: string, detail = '') => ({
  tone,
  sign,
  word,
  detail,
});

type Cell = ReturnType<typeof cell>;

const stateMarks: Readonly<Record<EntryState, readonly [tone: string, sign: string]>> = {
  absent: ['absent', '–'],
  'no-ports': ['not-ready', '○'],
  'not-ready': ['not-ready', '○'],
  'fewer-ports': ['not-ready', '◐'],
  ready: ['ready', '●'],
};

const sliceOutputs = ['endpointslices', 'mirrored'];

/** The state of an address in one object or several, with the first difference of `outputs`. */
function entryCell(
  row: ServiceTableRow,
  entries: readonly ObservedEntry[],
  expected: EntryState | null,
  outputs: readonly string[],
): Cell {
  const state = entries[0]?.state ?? 'absent';
  const [tone, sign] = stateMarks[state];
  const word = entries.length === 0 ? 'absent' : stateWords[state];
  const worst = row.items.find(
    ({ output, difference }) => outputs.includes(output) && !legal.has(difference.code),
  );
  if (worst === undefined || (entries.length === 0 && expected === 'absent')) {
    return cell(tone, sign, word);
  }
  const { title } = catalogue[worst.difference.code];
  const suffix = state === 'absent' ? '' : ` ${tone}`;
  const words =
    expected === null || expected === state ? word : `${word}, expected ${stateWords[expected]}`;
  return worst.openedAt === null
    ? cell(`wait${suffix}`, '◔', words, `pending: ${title}`)
    : cell(`wrong${suffix}`, '✗', words, title);
}

/** The traffic of an address on a node that does not conform, by the traces of packets. */
function nodeCell({ address }: ServiceTableRow, { verdict, reason, walked }: NodeOfService): Cell {
  if (verdict === 'unknown') return cell('absent', '?', 'unknown', reason ?? '');
  const isAddress = (endpoint: string): boolean => ipOf(endpoint) === address;
  const packets = walked.map(({ wanted, allowed, got }) => ({
    isWanted: wanted.some(isAddress),
    isAllowed: allowed.some(isAddress),
    isSent: got.some(isAddress),
  }));
  const missing = packets.filter(({ isWanted, isSent }) => isWanted && !isSent).length;
  const extra = packets.filter(({ isAllowed, isSent }) => isSent && !isAllowed).length;
  const wanted = packets.filter(({ isWanted }) => isWanted).length;
  const part = (count: number, all: number): string =>
    count === all ? 'from anywhere' : `from ${count} of ${all} kinds of sender`;
  if (missing > 0) return cell('wrong', '✗', 'gets nothing', part(missing, wanted));
  if (extra > 0) {
    return cell('wrong', '✗', 'gets traffic, expected none', part(extra, packets.length));
  }
  return wanted > 0 ? cell('ready', '●', 'gets traffic') : cell('absent', '–', 'gets none');
}

interface Columns {
  readonly endpoints: boolean;
  /** Empty if all slices share one column. */
  readonly slices: readonly string[];
  readonly nodes: readonly NodeOfService[];
}

const endpointsEntries = ({ entries }: ServiceTableRow): ObservedEntry[] =>
  entries.filter(({ object }) => object.startsWith('Endpoints '));

function chooseColumns({ table, nodes, status }: ServiceView): Columns {
  const names = table.slices.map(({ name }) => name);
  return {
    endpoints:
      status.outputs.some(({ output }) => output === 'endpoints') ||
      table.rows.some((row) => endpointsEntries(row).length > 0),
    slices: names.length > mostColumns ? [] : names,
    nodes: (nodes ?? []).filter(({ verdict }) => verdict !== 'conform').slice(0, mostNodes),
  };
}

function columnHeads({ endpoints, slices, nodes }: Columns, count: number): string[] {
  const all = count === 0 ? 'EndpointSlices (none)' : `EndpointSlices (${count})`;
  return [
    ...(endpoints ? ['Endpoints'] : []),
    ...(slices.length > 0 ? slices : [all]),
    ...nodes.map(({ node }) => `node ${node}`),
  ];
}

function sliceCells(row: ServiceTableRow, columns: readonly string[]): Cell[] {
  const nameOf = ({ object }: ObservedEntry): string => object.split('/').at(-1) ?? '';
  const entries = row.entries.filter(({ object }) => object.startsWith('EndpointSlice'));
  const expected = row.expected.slices;
  if (columns.length === 0) {
    const all = entryCell(row, entries, expected, sliceOutputs);
    const detail = [entries.map(nameOf).join(', '), all.detail].filter(Boolean).join(': ');
    return [{ ...all, detail }];
  }
  return columns.map((name, index) => {
    const found = entries.filter((entry) => nameOf(entry) === name);
    // Any slice could contain a missing address, so its mark is in the first column.
    const isMarked = found.length > 0 || (entries.length === 0 && index === 0);
    return isMarked
      ? entryCell(row, found, expected, sliceOutputs)
      : entryCell(row, found, 'absent', []);
  });
}

function tableRow(row: ServiceTableRow, columns: Columns) {
  const { address, pod, node, expected, why, selected } = row;
  const { endpoints, slices } = expected;
  return {
    key: `${address} ${pod ?? ''}`,
    pod: pod?.split('/')[1] ?? (selected ? '' : 'no pod'),
    address: address === '' ? 'no address' : address,
    node,
    expected: describeExpected(endpoints, slices),
    why: why ?? (selected || slices === null ? '' : 'no selected pod has this address'),
    cells: [
      ...(columns.endpoints
        ? [entryCell(row, endpointsEntries(row), endpoints, ['endpoints'])]
        : []),
      ...sliceCells(row, columns.slices),
      ...columns.nodes.map((on) => nodeCell(row, on)),
    ],
  };
}

function describeExpected(endpoints: EntryState | null, slices: EntryState | null): string {
  const word = (state: EntryState | null): string =>
    state === null ? 'not judged' : stateWords[state];
  return endpoints === slices || (endpoints === null && slices !== null)
    ? word(slices)
    : `Endpoints: ${word(endpoints)}; slices: ${word(slices)}`;
}

const serviceTemplate = compileTemplate(`
<p class="crumbs"><a href="/services">Services</a> /
 <a href="/services?q=<%= encodeURIComponent(it.namespace + '/') %>"><%= it.namespace %></a> /</p>
<h1><%= it.name %> <small>in <%= it.namespace %></small></h1>
<ul class="chips"><% for (const one of it.outputs) { %><li data-key="<%= one.output %>">
<span class="dim"><%= one.output %></span> <%~ one.mark %> <%= one.reason %></li><% } %></ul>
<div class="grid"><div>
<section class="card" aria-labelledby="h-why"><h2 id="h-why">In words</h2><%~ it.explained %>
</section></div><div>
<section class="card" aria-labelledby="h-fill"><h2 id="h-fill">Slices
 <small>places taken</small></h2>
<% if (it.fills.length === 0) { %><p class="dim">No slices.</p><% } %>
<ul class="fills"><% for (const one of it.fills) { %><li data-key="<%= one.name %>">
<span class="mono"><%= one.name %><% if (one.role !== '') { %> <span class="dim">(<%= one.role %>)
</span><% } %></span><%~ one.bar %><span class="count"><%= one.text %></span></li><% } %></ul>
<% if (it.moreFills !== '') { %><p class="dim"><%= it.moreFills %></p><% } %></section>
<section class="card" aria-labelledby="h-nodes"><h2 id="h-nodes">Nodes</h2>
<p class="dim"><%= it.nodesText %></p>
<ul class="plain"><% for (const one of it.nodes) { %><li data-key="<%= one.node %>">
<a href="<%= one.href %>"><%= one.node %></a><span><%~ one.mark %>
<span class="dim"><%= one.text %></span></span></li><% } %></ul></section>
<section class="card" aria-labelledby="h-lag"><h2 id="h-lag">Lag <small>of the last changes</small>
</h2><% if (it.lag.length === 0) { %><p class="dim">Nothing measured yet.</p><% } %>
<ul class="plain"><% for (const one of it.lag) { %><li><span><%= one.name %></span>
<span><b><%= one.lag %></b> <span class="dim"><%= one.at %></span></span></li><% } %></ul></section>
</div></div>
<section class="card flush" aria-labelledby="h-matrix">
<h2 id="h-matrix">Pods and addresses <small><%= it.total %></small></h2>
<% if (it.rows.length === 0) { %><p class="none dim">It selects no pod, and nothing is listed.</p>
<% } else { %><div class="scroll" tabindex="0" role="region" aria-label="Pods and addresses">
<table class="matrix"><thead><tr><th scope="col">pod</th><th scope="col">expected</th>
<% for (const head of it.heads) { %><th scope="col"><%= head %></th><% } %></tr></thead><tbody>
<% for (const row of it.rows) { %><tr data-key="<%= row.key %>"><th scope="row">
<span><%= row.pod %></span> <small class="mono"><%= row.address %></small>
<% if (row.node !== '') { %><small>on <%= row.node %></small><% } %></th>
<td><%= row.expected %><% if (row.why !== '') { %><small><%= row.why %></small><% } %></td>
<% for (const one of row.cells) { %><td class="cell <%= one.tone %>">
<span class="sign" aria-hidden="true"><%= one.sign %></span> <b><%= one.word %></b>
<% if (one.detail !== '') { %><small><%= one.detail %></small><% } %></td><% } %></tr><% } %>
</tbody></table></div><% } %></section>
<%~ it.links %>
<% if (it.standing !== '') { %><section class="card flush" aria-labelledby="h-standing">
<h2 id="h-standing">Standing findings</h2><%~ it.standing %></section><% } %>
<% if (it.resolved !== '') { %><section class="card flush" aria-labelledby="h-resolved">
<h2 id="h-resolved">Resolved findings</h2><%~ it.resolved %></section><% } %>`);

/** The maximum length of the lists of slices and nodes. */
const maxItems = 12;

const sliceRows = ({ table, maxEndpointsPerSlice: max }: ServiceView) =>
  table.slices.slice(0, maxItems).map(({ name, endpoints, role }) => ({
    name,
    text: `${endpoints} / ${max}`,
    bar: renderBar(
      [
        { tone: 'info', count: endpoints },
        { tone: 'quiet', count: Math.max(0, max - endpoints) },
      ],
      `${endpoints} of ${max} places taken`,
    ),
    role: role === 'controller' ? '' : (role ?? 'nobody’s'),
  }));

function nodeRows({ nodes }: ServiceView) {
  if (nodes === null) {
    return { nodes: [], nodesText: 'No node’s rules are known, so it is not judged what they do.' };
  }
  const bad = nodes.filter(({ verdict }) => verdict !== 'conform');
  return {
    nodes: bad.slice(0, maxItems).map(({ node, verdict, reason }) => ({
      node,
      href: nodePath(node),
      mark: renderMark(verdict),
      text: reason ?? '',
    })),
    nodesText: `${nodes.length - bad.length} of ${nodes.length} nodes forward it as they must.`,
  };
}

/** Renders the page of a Service. */
export function renderService(status: PageStatus, view: ServiceView): string {
  const { namespace, service: name, outputs, standing, resolved, now } = view.status;
  const { table, from } = view;
  const columns = chooseColumns(view);
  const more = table.slices.length - maxItems;
  const rowsFrom = (first: number): string => (first <= 0 ? '?' : `?from=${first}`);
  const main = serviceTemplate({
    namespace,
    name,
    outputs: outputs.map(({ output, verdict, reason }) => ({
      output,
      mark: renderMark(verdict),
      reason: reason ?? '',
    })),
    explained: renderReasonTree(view.explanation),
    heads: columnHeads(columns, table.slices.length),
    rows: table.rows.map((row) => tableRow(row, columns)),
    total: `${table.total.toLocaleString('en')}, ${table.differing} differ`,
    links: renderPageLinks({
      what: 'pods',
      before: from > 0 ? rowsFrom(from - rowsPerPage) : '',
      after: from + table.rows.length < table.total ? rowsFrom(from + rowsPerPage) : '',
    }),
    fills: sliceRows(view),
    moreFills: more > 0 ? `and ${more} more slices` : '',
    ...nodeRows(view),
    lag: view.lag.map(({ output, operation, seconds, at }) => ({
      name: `${output} ${operation}`,
      lag: formatLag(seconds),
      at: formatMoment(at).slice(11),
    })),
    standing: renderFindingList(standing, now),
    resolved: renderFindingList(resolved.slice(-10).reverse(), now),
  });
  const title = truncate(`${namespace}/${name}`, 120);
  return renderFrame(status, { place: '/services', title, main });
}
