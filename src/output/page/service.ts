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
  formatNumber,
  formatQuery,
  nodePath,
  renderBar,
  renderCard,
  renderFindingList,
  renderFlushCard,
  renderMark,
  renderPageLinks,
  renderResolved,
  renderTable,
} from './parts.ts';
import { renderReasonTree } from './reason-tree.ts';
import type { PageStatus, ServiceStatus } from './status.ts';
import type { Html } from './template.ts';
import { markup } from './template.ts';

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

function describeExpected(endpoints: EntryState | null, slices: EntryState | null): string {
  const word = (state: EntryState | null): string =>
    state === null ? 'not judged' : stateWords[state];
  return endpoints === slices || (endpoints === null && slices !== null)
    ? word(slices)
    : `Endpoints: ${word(endpoints)}; slices: ${word(slices)}`;
}

function renderCell({ tone, sign, word, detail }: Cell): Html {
  return markup`<td class="cell ${tone}">
<span class="sign" aria-hidden="true">${sign}</span> <b>${word}</b>
${detail !== '' && markup` <small>${detail}</small>`}</td>`;
}

function renderRow(row: ServiceTableRow, columns: Columns): Html {
  const { address, pod, node, expected, selected } = row;
  const { endpoints, slices } = expected;
  const isStranger = !selected && slices !== null;
  const why = row.why ?? (isStranger ? 'no selected pod has this address' : '');
  const cells = [
    ...(columns.endpoints ? [entryCell(row, endpointsEntries(row), endpoints, ['endpoints'])] : []),
    ...sliceCells(row, columns.slices),
    ...columns.nodes.map((on) => nodeCell(row, on)),
  ];
  return markup`<tr data-key="${address} ${pod ?? ''}"><th scope="row">
<span>${pod?.split('/')[1] ?? (selected ? '' : 'no pod')}</span>
 <small class="mono">${address === '' ? 'no address' : address}</small>
${node !== '' && markup` <small>on ${node}</small>`}</th>
<td>${describeExpected(endpoints, slices)}${why !== '' && markup`<small>${why}</small>`}</td>
${cells.map(renderCell)}</tr>`;
}

function renderRows(view: ServiceView): Html {
  const { rows, slices, total, differing } = view.table;
  const columns = chooseColumns(view);
  const heads = ['pod', 'expected', ...columnHeads(columns, slices.length)];
  const table = { label: 'Pods and addresses', heads, kind: 'matrix' };
  return renderFlushCard(
    'matrix',
    markup`Pods and addresses <small>${formatNumber(total)}, ${differing} differ</small>`,
    rows.length === 0
      ? []
      : [
          renderTable(
            table,
            rows.map((row) => renderRow(row, columns)),
          ),
        ],
    'It selects no pod, and nothing is listed.',
  );
}

/** The maximum length of the lists of slices and nodes. */
const maxItems = 12;

function renderSlices({ table: { slices }, maxEndpointsPerSlice: max }: ServiceView): Html {
  const items = slices.slice(0, maxItems).map(({ name, endpoints, role }) => {
    const shares = { info: endpoints, quiet: Math.max(0, max - endpoints) };
    const writer = markup` <span class="dim">(${role ?? 'nobody’s'})</span>`;
    return markup`<li data-key="${name}">
<span class="mono">${name}${role !== 'controller' && writer}</span>
${renderBar(shares, `${endpoints} of ${max} places taken`)}
<span class="count">${endpoints} / ${max}</span></li>`;
  });
  const more = slices.length - maxItems;
  return renderCard('fill', markup`Slices <small>places taken</small>`, [
    slices.length === 0 && markup`<p class="dim">No slices.</p>`,
    markup`<ul class="fills">${items}</ul>`,
    more > 0 && markup`<p class="dim">and ${more} more slices</p>`,
  ]);
}

function renderNodes({ nodes }: ServiceView): Html {
  const bad = (nodes ?? []).filter(({ verdict }) => verdict !== 'conform');
  const text =
    nodes === null
      ? 'No node’s rules are known, so it is not judged what they do.'
      : `${nodes.length - bad.length} of ${nodes.length} nodes forward it as they must.`;
  const items = bad.slice(0, maxItems).map(
    ({ node, verdict, reason }) => markup`<li data-key="${node}">
<a href="${nodePath(node)}">${node}</a><span>${renderMark(verdict)}
<span class="dim">${reason}</span></span></li>`,
  );
  return renderCard(
    'nodes',
    'Nodes',
    markup`<p class="dim">${text}</p><ul class="plain">${items}</ul>`,
  );
}

function renderLag({ lag }: ServiceView): Html {
  const items = lag.map(
    ({ output, operation, seconds, at }) => markup`<li><span>${output} ${operation}</span><span>
<b>${formatLag(seconds)}</b> <span class="dim">${formatMoment(at).slice(11)}</span></span></li>`,
  );
  return renderCard('lag', markup`Lag <small>of the last changes</small>`, [
    lag.length === 0 && markup`<p class="dim">Nothing measured yet.</p>`,
    markup`<ul class="plain">${items}</ul>`,
  ]);
}

/** Renders the page of a Service. */
export function renderService(status: PageStatus, view: ServiceView): string {
  const { namespace, service: name, outputs, standing, resolved, now } = view.status;
  const { table, from } = view;
  const chips = outputs.map(
    ({ output, verdict, reason }) => markup`<li data-key="${output}">
<span class="dim">${output}</span> ${renderMark(verdict)} ${reason}</li>`,
  );
  const open = renderFindingList(standing, now);
  const rowsFrom = (first: number): string => (first <= 0 ? '?' : `?from=${first}`);
  const links = renderPageLinks({
    what: 'pods',
    before: from > 0 ? rowsFrom(from - rowsPerPage) : null,
    after: from + table.rows.length < table.total ? rowsFrom(from + rowsPerPage) : null,
  });
  const main = markup`
<p class="crumbs"><a href="/services">Services</a> /
 <a href="/services${formatQuery({ q: `${namespace}/` })}">${namespace}</a> /</p>
<h1>${name} <small>in ${namespace}</small></h1>
<ul class="chips">${chips}</ul>
<div class="grid"><div>${renderCard('why', 'In words', renderReasonTree(view.explanation))}</div>
<div>${renderSlices(view)}${renderNodes(view)}${renderLag(view)}</div></div>
${renderRows(view)}${links}
${open.length > 0 && renderFlushCard('standing', 'Standing findings', open, '')}
${renderResolved(resolved, now)}`;
  const title = truncate(`${namespace}/${name}`, 120);
  return renderFrame(status, { place: '/services', title, main });
}
