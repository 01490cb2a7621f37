// The pages of one Service and of one node. The table of a Service compares the expected entry of
// each pod or address with the Endpoints, the slices and the nodes. The page of a node traces
// packets to one of its ports.

import { type EntryState, stateWords } from '../../audit/explain/conditions.ts';
import type { Explanation, Reason, ReasonMark } from '../../audit/explain/explanation.ts';
import type { ObservedEntry } from '../../audit/explain/pod-in-service.ts';
import type { ServiceTableRow } from '../../audit/explain/service-table.ts';
import { catalogue } from '../../audit/finding/catalogue.ts';
import {
  legal,
  type UnknownReason,
  unknownText,
  type Verdict,
} from '../../audit/finding/verdicts.ts';
import type { PacketGroup } from '../../audit/explain/node.ts';
import type { PacketTrace } from '../../audit/node/audit-node.ts';
import type { NodeVerdict } from '../../audit/node/node-state.ts';
import type { NodeOfService, NodeView, ServiceView } from '../../auditor/explanations.ts';
import { mostNodes, rowsPerPage } from '../../auditor/explanations.ts';
import type { PageStatus } from '../../auditor/queries.ts';
import { ipOf } from '../../model/ip.ts';
import type { Key } from '../../model/objects.ts';
import { formatOrigin, reasonSigns } from '../text/explain.ts';
import { formatCount, formatLag, truncate } from '../text/format.ts';
import { renderDetails, renderPacketDiff } from './diff.ts';
import {
  detailsOfFirst,
  renderCode,
  renderCommands,
  renderFindingList,
  renderResolved,
} from './finding-list.ts';
import { renderFrame, renderLinks } from './frame.ts';
import type { Html } from './parts.ts';
import {
  describeVerdicts,
  formatDateTime,
  formatNumber,
  formatQuery,
  markup,
  nodePath,
  renderBar,
  renderCard,
  renderCrumbs,
  renderFlushCard,
  renderMark,
  renderPageLinks,
  sortWorstFirst,
  renderTable,
  servicePath,
  verdictOrder,
} from './parts.ts';

// --- one Service ---

/** Above this number, all slices share one column, and each row names its slices. */
const mostColumns = 5;

type Cell = ReturnType<typeof cell>;

const cell = (tone: string, sign: string, word: string, detail = '') => {
  return { tone, sign, word, detail };
};

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

/** From which senders packets do otherwise; `from any sender` if from all. */
function describeSenders(packets: readonly PacketTrace[], all: number): string {
  const origins = [...new Set(packets.map(({ origin }) => origin))];
  return packets.length === all ? 'from any sender' : `from ${origins.join(', ')}`;
}

function nodeCell({ address }: ServiceTableRow, { verdict, reason, walked }: NodeOfService): Cell {
  if (verdict === 'unknown') return cell('absent', '?', 'unknown', unknownWord(reason));
  const includes = (endpoints: readonly string[]): boolean =>
    endpoints.some((endpoint) => ipOf(endpoint) === address);
  const wanted = walked.filter((packet) => includes(packet.wanted));
  const missing = wanted.filter(({ got }) => !includes(got));
  const extra = walked.filter(({ got, allowed }) => includes(got) && !includes(allowed));
  if (missing.length > 0) {
    const from = describeSenders(missing, wanted.length);
    // Some senders reach it, so most clients may be fine.
    return missing.length < wanted.length
      ? cell('part', '◐', 'partly unreachable', `not reached ${from}; others are ok`)
      : cell('wrong', '✗', 'unreachable', from);
  }
  if (extra.length > 0) {
    const from = describeSenders(extra, walked.length);
    return cell('wrong', '✗', 'gets traffic, expected none', from);
  }
  return wanted.length > 0 ? cell('ready', '●', 'gets traffic') : cell('absent', '–', 'gets none');
}

const entriesIn = (kind: 'Endpoints' | 'EndpointSlice', { entries }: ServiceTableRow) =>
  entries.filter(({ object }) => object.startsWith(`${kind} `));

const nameOf = ({ object }: ObservedEntry): string => object.split('/').at(-1) ?? '';

/** The state of an address in all slices, with their names. */
function slicesCell(row: ServiceTableRow): Cell {
  const entries = entriesIn('EndpointSlice', row);
  const all = entryCell(row, entries, row.expected.slices, sliceOutputs);
  const detail = [entries.map(nameOf).join(', '), all.detail].filter(Boolean).join(': ');
  return { ...all, detail };
}

function sliceCell(row: ServiceTableRow, name: string, index: number): Cell {
  const entries = entriesIn('EndpointSlice', row);
  const found = entries.filter((entry) => nameOf(entry) === name);
  // Any slice could contain a missing address, so its mark is in the first column.
  const isMarked = found.length > 0 || (entries.length === 0 && index === 0);
  return isMarked
    ? entryCell(row, found, row.expected.slices, sliceOutputs)
    : entryCell(row, found, 'absent', []);
}

type Column = readonly [head: string, cellOf: (row: ServiceTableRow) => Cell];

function listColumns({ table, nodes, status }: ServiceView): Column[] {
  const names = table.slices.map(({ name }) => name);
  const hasEndpoints =
    status.outputs.some(({ output }) => output === 'endpoints') ||
    table.rows.some((row) => entriesIn('Endpoints', row).length > 0);
  const endpoints: Column = [
    'Endpoints',
    (row) => entryCell(row, entriesIn('Endpoints', row), row.expected.endpoints, ['endpoints']),
  ];
  const slices: Column = [`EndpointSlices (${names.length || 'none'})`, slicesCell];
  const shown = (nodes ?? []).filter(({ verdict }) => verdict !== 'conform').slice(0, mostNodes);
  return [
    ...(hasEndpoints ? [endpoints] : []),
    ...(names.length === 0 || names.length > mostColumns
      ? [slices]
      : names.map((name, index): Column => [name, (row) => sliceCell(row, name, index)])),
    ...shown.map((on): Column => [`node ${on.node}`, (row) => nodeCell(row, on)]),
  ];
}

function describeExpected(endpoints: EntryState | null, slices: EntryState | null): string {
  const word = (state: EntryState | null): string =>
    state === null ? 'not compared' : stateWords[state];
  return endpoints === slices || (endpoints === null && slices !== null)
    ? word(slices)
    : `Endpoints: ${word(endpoints)}; slices: ${word(slices)}`;
}

function renderCell({ tone, sign, word, detail }: Cell): Html {
  return markup`<td class="cell ${tone}">
<span class="sign" aria-hidden="true">${sign}</span> <b>${word}</b>
${detail !== '' && markup` <small>${detail}</small>`}</td>`;
}

function renderRow(row: ServiceTableRow, cells: readonly Cell[]): Html {
  const { address, pod, node, expected, selected } = row;
  const { endpoints, slices } = expected;
  const isStranger = !selected && slices !== null;
  const why = row.why ?? (isStranger ? 'no selected pod has this address' : '');
  return markup`<tr data-key="${address} ${pod ?? ''}"><th scope="row">
<span>${pod?.split('/')[1] ?? (selected ? '' : 'no pod')}</span>
 <small class="mono">${address === '' ? 'no address' : address}</small>
${node !== '' && markup` <small>on ${node}</small>`}</th>
<td>${describeExpected(endpoints, slices)}${why !== '' && markup`<small>${why}</small>`}</td>
${cells.map(renderCell)}</tr>`;
}

/** Rows with a wrong cell come first, then those with a partly wrong one. */
function toneRank(cells: readonly Cell[]): number {
  if (cells.some(({ tone }) => tone.startsWith('wrong'))) return 0;
  return cells.some(({ tone }) => tone === 'part') ? 1 : 2;
}

function renderRows(view: ServiceView) {
  const { rows, total, differing } = view.table;
  const columns = listColumns(view);
  const heads = ['pod', 'expected', ...columns.map(([head]) => head)];
  const withCells = rows.map((row) => ({ row, cells: columns.map(([, cellOf]) => cellOf(row)) }));
  const ordered = withCells.sort((a, b) => toneRank(a.cells) - toneRank(b.cells));
  const lines = ordered.map(({ row, cells }) => renderRow(row, cells));
  const table = renderTable('Pods and addresses', heads, lines, 0, 'matrix');
  const counts = `${formatNumber(total)}, ${differing} differ in Endpoints or slices`;
  const title = markup`Pods and addresses <small>${counts}</small>`;
  const content = rows.length === 0 ? [] : [table];
  return renderFlushCard('matrix', title, content, 'It selects no pod, and nothing is listed.');
}

const markWords: Readonly<Record<ReasonMark, string>> = {
  yes: 'ok:',
  no: 'problem:',
  unknown: 'unknown:',
  note: '',
};

/** Differences of one reason. */
const shownDetails = 3;

/** What to do, with its commands below. */
function renderChange({ change, commands, managed }: Explanation | Reason): Html | null {
  if (change === null && commands.length === 0) return null;
  const more = markup`<div class="remedy">${renderCommands(commands, managed)}</div>`;
  const isShort = commands.length === 0 && managed === null;
  const text = change !== null && markup`<p class="cure">→ ${renderCode(change)}</p>`;
  return markup`${text}${!isShort && more}`;
}

/** The differences of the Service, if it is named, are first. */
function renderReason(reason: Reason, service: Key | null): Html {
  const { mark, text, changed, since, differences, parts } = reason;
  const [word, origin] = [markWords[mark], formatOrigin(reason)];
  return markup`<li class="${mark}">
<span class="sign" aria-hidden="true">${reasonSigns[mark]}</span>
${word !== '' && markup`<span class="sr">${word}</span> `}
<span>${text}${since !== null && `, since ${formatDateTime(since)}`}${
    changed !== null && ` at ${formatDateTime(changed.at)}`
  }</span>
${origin !== '' && markup`<small>${origin}</small>`}
${renderDetails(detailsOfFirst(differences, service), shownDetails)}
${renderChange(reason)}
${parts.length > 0 && markup`<ul>${parts.map((part) => renderReason(part, service))}</ul>`}</li>
`;
}

export function renderReasonTree(explanation: Explanation): Html {
  const { subject, answer, reasons } = explanation;
  const service = 'service' in subject ? subject.service : null;
  return markup`<p class="answer">${answer}</p>
${renderChange(explanation)}
<ul class="tree">${reasons.map((it) => renderReason(it, service))}</ul>`;
}

const maxItems = 12;

function renderSlices({ table: { slices }, maxEndpointsPerSlice: max }: ServiceView): Html {
  const items = slices.slice(0, maxItems).map(({ name, endpoints, role }) => {
    const shares = { info: endpoints, quiet: Math.max(0, max - endpoints) };
    const writer = markup` <span class="dim">(${role ?? 'without a manager'})</span>`;
    return markup`<li data-key="${name}">
<span class="mono">${name}${role !== 'controller' && writer}</span>
${renderBar(shares, `${endpoints} of ${max} endpoints`)}
<span class="count">${endpoints} / ${max}</span></li>`;
  });
  const more = slices.length - maxItems;
  return renderCard('fill', markup`EndpointSlices <small>endpoints / maximum</small>`, [
    slices.length === 0 && markup`<p class="dim">No EndpointSlices.</p>`,
    markup`<ul class="fills">${items}</ul>`,
    more > 0 && markup`<p class="dim">and ${formatCount(more, 'more slice')}</p>`,
  ]);
}

function renderNodes({ shard }: PageStatus, { nodes }: ServiceView): Html {
  const bad = (nodes ?? []).filter(({ verdict }) => verdict !== 'conform');
  const of = shard === null ? '' : ` of shard ${shard}`;
  const verb = nodes?.length === 1 ? 'forwards to it as it' : 'forward to it as they';
  const text =
    nodes === null
      ? 'No rules have been read from any node.'
      : `${nodes.length - bad.length} of ${formatCount(nodes.length, 'node')}${of} ${verb} should.`;
  const items = bad.slice(0, maxItems).map(
    ({ node, verdict, reason }) => markup`<li data-key="${node}">
<a href="${nodePath(node)}">${node}</a><span>${renderMark(verdict)}
<span class="dim">${unknownWord(reason)}</span></span></li>`,
  );
  const content = markup`<p class="dim">${text}</p><ul class="plain">${items}</ul>`;
  return renderCard('nodes', 'Nodes', content);
}

function renderLag({ lag }: ServiceView) {
  const items = lag.map(
    ({ output, operation, seconds, at }) => markup`<li><span>${output} ${operation}</span><span>
<b>${formatLag(seconds)}</b> <span class="dim">${formatDateTime(at)}</span></span></li>`,
  );
  return renderCard('lag', markup`Lag <small>of the last changes</small>`, [
    lag.length === 0 && markup`<p class="dim">No change of this Service has been measured yet.</p>`,
    markup`<ul class="plain">${items}</ul>`,
  ]);
}

/** The worst verdict of nodes on the ports of a Service, and how many have it; null without any. */
function renderNodesChip({ nodes }: ServiceView): Html | null {
  const worst = verdictOrder.find((verdict) => nodes?.some((it) => it.verdict === verdict));
  if (nodes === null || worst === undefined) return null;
  const count = nodes.filter(({ verdict }) => verdict === worst).length;
  return markup`<li data-key="nodes"><span class="dim">nodes</span> ${renderMark(worst)}
 ${count < nodes.length && `on ${count} of ${nodes.length}`}</li>`;
}

/** Renders the page of a Service. */
export function renderService(status: PageStatus, view: ServiceView): string {
  const { namespace, service: name, outputs, standing, resolved, now } = view.status;
  const { table, from } = view;
  const { severity, verdict: worst } = view.explanation;
  const state = severity ?? worst;
  const chips = outputs.map(
    ({ output, verdict, reason }) => markup`<li data-key="${output}">
<span class="dim">${output}</span> ${renderMark(verdict)} ${unknownWord(reason)}</li>`,
  );
  const rowsFrom = (first: number): string =>
    servicePath(namespace, name) + formatQuery({ from: first <= 0 ? '' : first });
  const before = from > 0 ? rowsFrom(from - rowsPerPage) : null;
  const after = from + table.rows.length < table.total ? rowsFrom(from + rowsPerPage) : null;
  const findings = renderFindingList(sortWorstFirst(standing), now, `${namespace}/${name}`);
  const main = markup`
${renderCrumbs([
  ['Services', '/services'],
  [namespace, `/services${formatQuery({ namespace })}`],
])}
<h1>${name} <small>in ${namespace}</small> ${state !== null && renderMark(state)}</h1>
${renderLinks(status, { namespace, service: name })}
<ul class="chips">${chips}${renderNodesChip(view)}</ul>
${renderFlushCard('open', 'Open findings', findings, 'None.')}
<div class="grid"><div>${renderCard('why', 'Explanation', renderReasonTree(view.explanation))}</div>
<div>${renderSlices(view)}${renderNodes(status, view)}${renderLag(view)}</div></div>
${renderRows(view)}${renderPageLinks('pods', before, after)}
${renderResolved(resolved, now)}`;
  const title = truncate(`${namespace}/${name}`, 120);
  return renderFrame(status, '/services', title, main);
}

// --- one node ---

/** More ports are only counted. */
const mostPorts = 200;

const rank = ({ verdict }: NodeVerdict): number => verdictOrder.indexOf(verdict);

function renderPort(node: string, { port, verdict, reason }: NodeVerdict): Html {
  const path = `${nodePath(node)}?port=${encodeURIComponent(port.split(' ')[0] ?? '')}`;
  // `shop/web:http TCP IPv4` is a port of shop/web.
  const [namespace = '', name = ''] = (port.split(/[ :]/)[0] ?? '').split('/');
  return markup`<tr data-row data-key="${port}"><th scope="row">
<a class="name" href="${path}">${port}</a></th><td class="left">${renderMark(verdict)}</td>
<td class="left dim">${unknownWord(reason)}</td>
<td><a href="${servicePath(namespace, name)}">Service</a></td></tr>`;
}

function renderPackets({ first, origins, wrong }: PacketGroup): Html {
  const { kind, frontend, verdict, rules } = first;
  const met = markup`<details><summary>Rules met</summary>
<ul class="rules" tabindex="0">${rules.map((rule) => markup`<li>${rule}</li>`)}</ul></details>`;
  return markup`<article data-key="${frontend} ${origins.join(' ')}">
<p>${renderMark(verdict)} <b class="mono">${frontend}</b>
 <span class="dim">(${kind}) from ${origins.join(', ')}</span></p>
${wrong.map((problem) => markup`<p class="say">${capitalize(problem)}.</p>`)}
${verdict !== 'conform' && renderPacketDiff(first)}${rules.length > 0 && met}</article>`;
}

const capitalize = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** From where a port is reached as it should be, and from where not; null if all are equal. */
function describeReach(node: string, groups: readonly PacketGroup[]): string | null {
  const originsOf = (verdicts: readonly Verdict[]): string => {
    const found = groups.filter(({ first }) => verdicts.includes(first.verdict));
    const origins = [...new Set(found.flatMap((group) => group.origins))];
    return origins.join(', ').replace('the node itself', `${node} itself`);
  };
  const [bad, good] = [originsOf(['different']), originsOf(['conform'])];
  return bad === '' || good === '' ? null : `Mismatch only from ${bad}. From ${good} it is ok.`;
}

function renderWalk(node: string, port: string, groups: NodeView['walked']): Html {
  const title = markup`Packets to ${port} <small>evaluated with the rules of the node</small>`;
  const none = 'The node does not serve this port, or its rules are unknown.';
  if (groups === null || groups.length === 0) {
    return renderCard('walk', title, markup`<p class="dim">${none}</p>`);
  }
  const byFrontend = [...Map.groupBy(groups, ({ first }) => first.frontend).values()];
  return renderCard(
    'walk',
    title,
    byFrontend.map((group) => {
      const reach = describeReach(node, group);
      return [
        reach !== null && markup`<p class="answer">${group[0]?.first.frontend ?? ''}: ${reach}</p>`,
        ...group.map(renderPackets),
      ];
    }),
  );
}

/** Why a verdict is unknown, in words; '' without a reason. */
const unknownWord = (reason: UnknownReason | null): string =>
  reason === null ? '' : unknownText[reason];

const noRules = ({ shard }: PageStatus): Html =>
  shard === null
    ? markup`No rules have been read from this node. Run the agent or pass --rules NODE=FILE
 (<a href="/docs/nodes.md">how</a>).`
    : markup`Shard ${shard} has read no rules from this node. Another shard may audit it.`;

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
  const more = ports.length - mostPorts;
  const unknown = view.verdicts === null ? noRules(status) : unknownWord(whole?.reason ?? null);
  const isAllOk = counts.conform === verdicts.length;
  const none = isAllOk
    ? 'None: packets are forwarded as they should be.'
    : 'None, but not every Service port is known to be ok.';
  const rows = ports.slice(0, mostPorts).map((port) => renderPort(node, port));
  const table = [
    renderTable('Ports', [], rows),
    ...(more > 0 ? [markup`<p class="more dim">and ${more} more</p>`] : []),
  ];
  const title = markup`Service ports <small>worst first</small>`;
  const findings = renderFindingList(sortWorstFirst(standing), now);
  const main = markup`
${renderCrumbs([['Nodes', '/nodes']])}
<h1>${node}</h1><p class="lead">${view.facts.join(' · ')}</p>
${renderLinks(status, { node })}
${renderCard('all', markup`Verdicts <small>${unknown || text}</small>`, bar)}
${asked !== null && asked !== '' && renderWalk(node, asked, view.walked)}
${renderFlushCard('open', 'Open findings', findings, unknown || none)}
${ports.length > 0 && renderFlushCard('ports', title, table)}
${renderResolved(resolved, now)}`;
  return renderFrame(status, '/nodes', truncate(`Node ${node}`, 120), main);
}
