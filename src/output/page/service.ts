// The page of one Service: what is judged of it, why in words, and all of its pods and addresses as
// one table: what is expected, what stands in the Endpoints and in each slice, what nodes do with
// it. What differs is marked with a sign and said in words, and comes first.

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
import { truncate, formatLag } from '../text/format.ts';
import { renderFrame } from './frame.ts';
import {
  renderBar,
  renderFinding,
  renderFindingList,
  renderMark,
  formatMoment,
  nodePath,
} from './parts.ts';
import type { ServiceStatus } from './service-status.ts';
import type { PageStatus } from './status.ts';
import type { Html } from './template.ts';
import { noHtml, compileTemplate } from './template.ts';
import { renderReasonTree } from './reason-tree.ts';

/** The verdict on a Service at one node, over its ports. */
export interface NodeOfService {
  readonly node: string;
  readonly verdict: Verdict;
  /** null unless the verdict is unknown. */
  readonly reason: string | null;
  /** The packets to its ports, of a few nodes that are not conform; else none. */
  readonly walked: readonly PacketTrace[];
}

/** All that the page of a Service shows. */
export interface ServiceView {
  readonly status: ServiceStatus;
  readonly explanation: Explanation;
  readonly table: ServiceTable;
  /** The first of the rows among all of them. */
  readonly from: number;
  readonly maxEndpointsPerSlice: number;
  /** null: nothing is told of any node's rules. */
  readonly nodes: readonly NodeOfService[] | null;
  readonly lag: readonly FollowedChange[];
}

/** Rows that a page of the table has. */
export const rowsPerPage = 100;

/** Slices that have columns of their own; of more, each row names its own. */
const mostColumns = 5;
/** Nodes that have columns of their own: those that are not conform. */
export const mostNodes = 4;

interface Cell {
  readonly tone: string;
  readonly sign: string;
  readonly word: string;
  readonly detail: string;
}

interface Row {
  readonly key: string;
  readonly pod: string;
  readonly address: string;
  readonly node: string;
  readonly expected: string;
  readonly why: string;
  readonly cells: readonly Cell[];
}

const cell = (tone: string, sign: string, word: string, detail = ''): Cell => ({
  tone,
  sign,
  word,
  detail,
});

const standingTones: Readonly<Record<EntryState, readonly [string, string]>> = {
  absent: ['absent', '–'],
  'no-ports': ['not-ready', '○'],
  'not-ready': ['not-ready', '○'],
  'fewer-ports': ['not-ready', '◐'],
  ready: ['ready', '●'],
};

/** One place of one row: how the address stands there, marked where the audit holds it wrong. */
function placeCell(
  row: ServiceTableRow,
  stands: readonly ObservedEntry[],
  expected: EntryState | null,
  outputs: readonly string[],
): Cell {
  const [first] = stands;
  const held = row.items.filter(
    ({ output, difference }) => outputs.includes(output) && !legal.has(difference.code),
  );
  const standing = first?.state ?? 'absent';
  const [tone, sign] = standingTones[standing];
  const word = first === undefined ? 'absent' : stateWords[standing];
  const [worst] = held;
  if (worst === undefined || (first === undefined && expected === 'absent')) {
    return cell(tone, sign, word);
  }
  const isOpen = worst.openedAt !== null;
  const wanted =
    expected === null || expected === standing ? '' : `, expected ${stateWords[expected]}`;
  const text = `${isOpen ? '' : 'pending: '}${catalogue[worst.difference.code].title}`;
  return cell(
    `${isOpen ? 'wrong' : 'wait'}${standing === 'absent' ? '' : ` ${tone}`}`,
    isOpen ? '✗' : '◔',
    `${word}${wanted}`,
    text,
  );
}

/** What a node that is not conform does with an address, by the packets that were walked. */
function nodeCell({ address }: ServiceTableRow, { verdict, reason, walked }: NodeOfService): Cell {
  if (verdict === 'unknown') return cell('absent', '?', 'unknown', reason ?? '');
  const is = (endpoint: string): boolean => ipOf(endpoint) === address;
  const of = walked.map(({ wanted, allowed, got }) => ({
    want: wanted.some(is),
    may: allowed.some(is),
    got: got.some(is),
  }));
  const missing = of.filter(({ want, got }) => want && !got).length;
  const extra = of.filter(({ may, got }) => got && !may).length;
  const wants = of.filter(({ want }) => want).length;
  const part = (count: number, all: number): string =>
    count === all ? 'from anywhere' : `from ${count} of ${all} kinds of sender`;
  if (missing > 0) return cell('wrong', '✗', 'gets nothing', part(missing, wants));
  if (extra > 0) return cell('wrong', '✗', 'gets traffic, expected none', part(extra, of.length));
  return wants > 0 ? cell('ready', '●', 'gets traffic') : cell('absent', '–', 'gets none');
}

function rowOf(row: ServiceTableRow, columns: Columns): Row {
  const { address, pod, node, expected, why, selected } = row;
  const { endpoints, slices } = expected;
  const at = (stand: ObservedEntry): string => stand.object.split('/').at(-1) ?? '';
  const listed = row.entries.filter(({ object }) => object.startsWith('EndpointSlice'));
  const cells = columns.slices.map((name) => {
    const here = listed.filter((stand) => at(stand) === name);
    // Which slice must list it nobody says, so that what is missing is marked in the first.
    const isMissing = listed.length === 0 && name === columns.slices[0];
    const isHere = here.length > 0 || isMissing;
    return placeCell(
      row,
      here,
      isHere ? slices : 'absent',
      isHere ? ['endpointslices', 'mirrored'] : [],
    );
  });
  if (columns.slices.length === 0) {
    const one = placeCell(row, listed, slices, ['endpointslices', 'mirrored']);
    cells.push({
      ...one,
      detail: [listed.map(at).join(', '), one.detail].filter(Boolean).join(': '),
    });
  }
  const whole = endpoints === slices || endpoints === null ? slices : null;
  return {
    key: `${address} ${pod ?? ''}`,
    pod: pod?.split('/')[1] ?? (selected ? '' : 'no pod'),
    address: address === '' ? 'no address' : address,
    node,
    expected: wordOf(endpoints, slices, whole),
    why: why ?? (selected || slices === null ? '' : 'no selected pod has this address'),
    cells: [
      ...(columns.endpoints
        ? [
            placeCell(
              row,
              row.entries.filter(({ object }) => object.startsWith('Endpoints ')),
              endpoints,
              ['endpoints'],
            ),
          ]
        : []),
      ...cells,
      ...columns.nodes.map((one) => nodeCell(row, one)),
    ],
  };
}

function wordOf(
  endpoints: EntryState | null,
  slices: EntryState | null,
  whole: EntryState | null,
): string {
  if (whole !== null) return stateWords[whole];
  if (slices === null && endpoints === null) return 'not judged';
  const [a, b] = [endpoints, slices].map((one) => (one === null ? 'not judged' : stateWords[one]));
  return `Endpoints: ${a ?? ''}; slices: ${b ?? ''}`;
}

interface Columns {
  readonly endpoints: boolean;
  /** Empty: one column for all. */
  readonly slices: readonly string[];
  readonly nodes: readonly NodeOfService[];
}

function columnsOf({ table: matrix, nodes, status }: ServiceView): Columns {
  const names = matrix.slices.map(({ name }) => name);
  return {
    endpoints:
      status.outputs.some(({ output }) => output === 'endpoints') ||
      matrix.rows.some(({ entries: stands }) =>
        stands.some(({ object }) => object.startsWith('Endpoints ')),
      ),
    slices: names.length > mostColumns ? [] : names,
    nodes: (nodes ?? []).filter(({ verdict }) => verdict !== 'conform').slice(0, mostNodes),
  };
}

const heads = ({ endpoints, slices, nodes }: Columns, count: number): string[] => [
  ...(endpoints ? ['Endpoints'] : []),
  ...(slices.length > 0
    ? slices
    : [count === 0 ? 'EndpointSlices (none)' : `EndpointSlices (${count})`]),
  ...nodes.map(({ node }) => `node ${node}`),
];

interface View {
  readonly namespace: string;
  readonly name: string;
  readonly outputs: readonly { output: string; mark: Html; reason: string }[];
  readonly explained: Html;
  readonly heads: readonly string[];
  readonly rows: readonly Row[];
  readonly total: string;
  readonly before: string;
  readonly after: string;
  readonly fills: readonly { name: string; bar: Html; text: string; role: string }[];
  readonly moreFills: string;
  readonly nodes: readonly { node: string; href: string; mark: Html; text: string }[];
  readonly nodesText: string;
  readonly lag: readonly { name: string; lag: string; at: string }[];
  readonly standing: Html;
  readonly resolved: Html;
}

const serviceTemplate = compileTemplate<View>(`
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
<% if (it.before !== '' || it.after !== '') { %><nav class="pages" aria-label="Pages of pods">
<% if (it.before !== '') { %><a rel="prev" href="<%= it.before %>">← before</a><% } %>
<% if (it.after !== '') { %><a rel="next" href="<%= it.after %>">after →</a><% } %></nav><% } %>
<% if (it.standing !== '') { %><section class="card flush" aria-labelledby="h-standing">
<h2 id="h-standing">Standing findings</h2><%~ it.standing %></section><% } %>
<% if (it.resolved !== '') { %><section class="card flush" aria-labelledby="h-resolved">
<h2 id="h-resolved">Resolved findings</h2><%~ it.resolved %></section><% } %>`);

const mostFills = 12;

function fillsOf({ table: matrix, maxEndpointsPerSlice: max }: ServiceView): View['fills'] {
  return matrix.slices.slice(0, mostFills).map(({ name, endpoints, role }) => ({
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
}

function nodesOf({ nodes }: ServiceView): Pick<View, 'nodes' | 'nodesText'> {
  if (nodes === null) {
    return { nodes: [], nodesText: 'No node’s rules are known, so it is not judged what they do.' };
  }
  const bad = nodes.filter(({ verdict }) => verdict !== 'conform');
  const good = nodes.length - bad.length;
  return {
    nodes: bad.slice(0, mostFills).map(({ node, verdict, reason }) => ({
      node,
      href: nodePath(node),
      mark: renderMark(verdict),
      text: reason ?? '',
    })),
    nodesText: `${good} of ${nodes.length} nodes forward it as they must.`,
  };
}

/** The page of a Service as HTML. */
export function renderService(status: PageStatus, view: ServiceView): string {
  const { namespace, service: name, outputs, standing, resolved, now } = view.status;
  const { table: matrix, from } = view;
  const columns = columnsOf(view);
  const more = matrix.slices.length - mostFills;
  const rowsAt = (at: number): string => (at <= 0 ? '?' : `?from=${at}`);
  const items = (list: typeof standing): Html =>
    renderFindingList(list.map((one) => renderFinding(one, catalogue[one.code].title, now)));
  const main = serviceTemplate({
    namespace,
    name,
    outputs: outputs.map(({ output, verdict, reason }) => ({
      output,
      mark: renderMark(verdict),
      reason: reason ?? '',
    })),
    explained: renderReasonTree(view.explanation),
    heads: heads(columns, matrix.slices.length),
    rows: matrix.rows.map((row) => rowOf(row, columns)),
    total: `${matrix.total.toLocaleString('en')}, ${matrix.differing} differ`,
    before: from > 0 ? rowsAt(from - rowsPerPage) : '',
    after: from + matrix.rows.length < matrix.total ? rowsAt(from + rowsPerPage) : '',
    fills: fillsOf(view),
    moreFills: more > 0 ? `and ${more} more slices` : '',
    ...nodesOf(view),
    lag: view.lag.map(({ output, operation, seconds, at }) => ({
      name: `${output} ${operation}`,
      lag: formatLag(seconds),
      at: formatMoment(at).slice(11),
    })),
    standing: items(standing),
    resolved: resolved.length === 0 ? noHtml : items(resolved.slice(-10).reverse()),
  });
  const title = truncate(`${namespace}/${name}`, 120);
  return renderFrame(status, { place: '/services', title, main });
}
