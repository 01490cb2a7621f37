// The pages that list findings and nodes. The page of findings also explains their codes
// and causes, and links the documentation: a test compares the links to the runbook with the rules
// of the alerts.

import { catalogue, type Code, type Finding, severities } from '../../audit/finding/catalogue.ts';
import { type Cause, causes } from '../../audit/finding/causes.ts';
import { suppressedText } from '../../audit/finding/suppressions.ts';
import type { PageStatus } from '../../auditor/queries.ts';
import { formatCsv } from '../text/csv.ts';
import { formatCount, formatTime } from '../text/format.ts';
import { renderFindingList } from './finding-list.ts';
import { renderFrame } from './frame.ts';
import { sortNodes } from './overview.ts';
import type { Html, PageQuery } from './parts.ts';
import {
  createSearch,
  describeVerdicts,
  formatNumber,
  formatSubject,
  markup,
  namespacesOf,
  nodePath,
  paginate,
  renderCard,
  renderDownload,
  renderFilter,
  renderNothing,
  renderNumber,
  renderSelect,
  renderTable,
  sortHeads,
  sortWorstFirst,
  toneWord,
  verdictOrder,
} from './parts.ts';

// --- links to the documentation ---

type Alerts = Readonly<Partial<Record<Code | Finding['output' | 'difference'], string | null>>>;

/** The alert of a code, else of its output, else of its difference; null if there is none. */
const alerts: Alerts = {
  'endpoints-orphaned': null,
  'slice-duplicate': null,
  'slice-surplus-empty': null,
  'left-behind': null,
  'left-behind-dead': 'Unexpected',
  'address-shared': 'Unexpected',
  'pod-without-node': 'Stale',
  'endpoints-labels-different': 'MetadataWrong',
  'endpoints-over-capacity-different': 'MetadataWrong',
  'slice-labels-different': 'MetadataWrong',
  'slice-owner-different': 'MetadataWrong',
  'mirror-labels-different': 'MetadataWrong',
  'mirror-owner-different': 'MetadataWrong',
  'managers-several': 'TwoManagers',
  'foreign-endpoint-dead': 'TwoManagers',
  'slice-duplicate-conflicting': 'DuplicatesConflict',
  'duplicate-conflicting': 'DuplicatesConflict',
  'endpoints-truncated': 'Truncated',
  'object-near-size-limit': 'ObjectNearSizeLimit',
  'hints-absent': 'HintsMissing',
  'node-rules-stale': 'NodeStale',
  mirrored: 'MirrorStale',
  node: 'NodeRulesBroken',
  missing: 'Missing',
  unexpected: 'Unexpected',
  different: 'Stale',
};

/** The alert that a finding of this code fires; null if there is none. */
export function findAlert(code: Code): string | null {
  const { output, difference } = catalogue[code];
  const alert = [code, output, difference]
    .map((key) => alerts[key])
    .find((name) => name !== undefined);
  return alert ? `Endpoints${alert}` : null;
}

/** The section of a code or a cause in the list of findings. */
export const findingUrl = (name: Code | `cause-${Cause}`): string => `/docs/findings.md#${name}`;

/** The section of an alert in the runbook. */
export const runbookUrl = (alert: string): string => `/docs/runbook.md#${alert.toLowerCase()}`;

// --- findings ---

export type FindingQuery = PageQuery<(typeof findingFields)[number]>;

/** `q` are words that must all be in the name, the code or the texts. */
export const findingFields = [
  'q',
  'namespace',
  'state',
  'severity',
  'output',
  'code',
  'sort',
] as const;

const bySubject = (a: Finding, b: Finding): number =>
  formatSubject(a) < formatSubject(b) ? -1 : 1;

/** The orders of findings; '' is worst first. */
const findingOrders: Readonly<Record<string, (findings: readonly Finding[]) => Finding[]>> = {
  newest: (findings) => findings.toSorted((a, b) => b.openedAt - a.openedAt),
  oldest: (findings) => findings.toSorted((a, b) => a.openedAt - b.openedAt),
  name: (findings) => findings.toSorted(bySubject),
};

const outputs = ['endpoints', 'endpointslices', 'mirrored', 'node', 'input'];
const findingsPerPage = 50;

function createFilter({ q, ...query }: FindingQuery): (finding: Finding) => boolean {
  const matches = createSearch(q);
  return (finding) => {
    const { code, object, actual, expected, cause } = finding;
    const texts = [formatSubject(finding), code, object, actual, expected, cause];
    const isWanted = (['namespace', 'severity', 'output', 'code'] as const).every((field) =>
      ['', finding[field]].includes(query[field]),
    );
    return isWanted && matches(texts.join(' ').toLowerCase());
  };
}

/** A code or a cause with its links; `text` is its title and meaning. */
function renderEntry(
  id: Code | `cause-${Cause}`,
  text: string,
  cure: string,
  upstream: string,
  alert: string | null,
): Html {
  const runbook = markup` · <a href="${runbookUrl(alert ?? '')}">runbook: ${alert}</a>`;
  return markup`<dt id="${id}"><code>${id.replace(/^cause-/, '')}</code></dt>
<dd>${text}</dd><dd class="cure">→ ${cure}</dd>
<dd class="dim">Kubernetes code: ${upstream}
 · <a href="${findingUrl(id)}">documentation</a>${alert !== null && runbook}</dd>`;
}

function explainAll(findings: readonly Finding[]): Html {
  const codes = [...new Set(findings.map(({ code }) => code))].sort().map((code) => {
    const { title, meaning, remedy, upstream } = catalogue[code];
    return renderEntry(code, `${title}. ${meaning}`, remedy, upstream, findAlert(code));
  });
  const named = [...new Set(findings.flatMap(({ cause }) => cause ?? []))].sort().map((cause) => {
    const { title, condition, remedy, upstream } = causes[cause];
    return renderEntry(`cause-${cause}`, `${title}. ${condition}`, remedy, upstream, null);
  });
  const list = markup`<dl class="codes">${[codes, named]}</dl>`;
  return renderCard('codes', 'Codes and causes on this page', list);
}

/** The findings of a state in the order of a query, and those of them that match it. */
function findFindings({ metrics, resolved }: PageStatus, query: FindingQuery) {
  const { state, sort } = query;
  const order = findingOrders[sort] ?? sortWorstFirst;
  const all = [
    ...(state === 'resolved' ? [] : order(metrics.summary.findings)),
    ...(state === 'resolved' || state === 'all' ? [...resolved].reverse() : []),
  ];
  return { all, found: all.filter(createFilter(query)) };
}

const timeOf = (seconds: number | null): string => (seconds === null ? '' : formatTime(seconds));

/** Renders all findings that match the query as CSV, in pieces. */
export const renderFindingsCsv = (status: PageStatus, query: FindingQuery) =>
  formatCsv<Finding>(
    {
      severity: ({ severity }) => severity,
      namespace: ({ namespace }) => namespace,
      service: ({ service }) => service,
      node: ({ node }) => node,
      output: ({ output }) => output,
      code: ({ code }) => code,
      title: ({ code }) => catalogue[code].title,
      object: ({ object }) => object,
      expected: ({ expected }) => expected,
      actual: ({ actual }) => actual,
      cause: ({ cause }) => cause,
      since: ({ since }) => timeOf(since),
      resolved: ({ resolvedAt }) => timeOf(resolvedAt),
      suppressed: ({ suppressed }) => (suppressed === null ? '' : suppressedText(suppressed)),
    },
    findFindings(status, query).found,
  );

/** Renders the page of findings. */
export function renderFindings(status: PageStatus, query: FindingQuery): string {
  const { metrics, forgotten } = status;
  const { q, namespace, state, severity, output, code, sort } = query;
  const isResolved = state === 'resolved' || state === 'all';
  const { all, found } = findFindings(status, query);
  const { shown, links } = paginate('findings', found, findingsPerPage, query);
  const codes = new Set<string>([...all.map((finding) => finding.code), code]);
  codes.delete('');
  const none = all.length === 0 ? 'None.' : 'No finding matches.';
  const older = `${formatCount(forgotten, 'older finding')} no longer stored.`;
  const main = markup`
<h1>Findings <small>${formatNumber(found.length)}</small></h1>
<p class="lead">Differences from what the controllers and kube-proxy should have written.</p>
${renderFilter('/findings', q, 'name, code, address', [
  renderSelect(['namespace', 'Namespace'], namespacesOf(all, namespace), namespace),
  renderSelect(['state', 'State'], ['resolved', 'all'], state, 'open'),
  renderSelect(['severity', 'Severity'], severities, severity),
  renderSelect(['output', 'Output'], outputs, output),
  renderSelect(['code', 'Code'], [...codes].sort(), code),
  renderSelect(['sort', 'Order'], Object.keys(findingOrders), sort, 'worst'),
])}
<section class="card flush" aria-label="Findings">
${shown.length === 0 ? renderNothing(none) : renderFindingList(shown, metrics.now)}</section>
${links}
${renderDownload('/findings.csv', query)}
${forgotten > 0 && isResolved && markup`<p class="dim">${older}</p>`}
${shown.length > 0 && explainAll(shown)}`;
  return renderFrame(status, '/findings', 'Findings', main);
}

// --- nodes ---

export type NodeQuery = PageQuery<(typeof nodeFields)[number]>;

/** `q` are words that must all be in the name; `sort` is a verdict or `name`. */
export const nodeFields = ['q', 'sort'] as const;

const nodesPerPage = 200;

/** Renders the page of nodes. */
export function renderNodes(status: PageStatus, query: NodeQuery): string {
  const { q, sort } = query;
  const { nodes } = status.metrics.summary;
  const matches = createSearch(q);
  const verdict = verdictOrder.find((verdictName) => verdictName === sort);
  const found = sortNodes(nodes, verdict ?? (sort === 'name' ? null : 'worst')).filter(({ node }) =>
    matches(node),
  );
  const { shown, links } = paginate('Nodes', found, nodesPerPage, query);
  const all = status.clusterNodes ?? found.length;
  const isComplete = q.trim() !== '' || found.length === all;
  const none =
    nodes.length === 0
      ? 'No rules have been read from any node. Run the agents, or pass --rules NODE=FILE to audit.'
      : 'None of that name.';
  const columns = [
    ['Node', 'name'] as const,
    ['Service ports', ''] as const,
    ...verdictOrder.map((verdictName) => [toneWord(verdictName), verdictName] as const),
  ];
  const rows = shown.map((counts) => {
    const { node } = counts;
    return markup`<tr data-row data-key="${node}"><th scope="row">
<a class="name" href="${nodePath(node)}">${node}</a></th>
<td>${describeVerdicts(`Node ${node}`, counts).bar}</td>
${verdictOrder.map((verdictName) => renderNumber(String(counts[verdictName])))}</tr>`;
  });
  const table = renderTable('Nodes', sortHeads(columns, '/nodes', query), rows, 1);
  const main = markup`
<h1>Nodes
 <small>${formatNumber(found.length)}${!isComplete && ` of ${all}, with known rules`}</small></h1>
<p class="lead">Whether the rules on each node forward connections to Service ports
 as they should.</p>
${renderFilter('/nodes', q, 'name')}
<section class="card flush">${rows.length === 0 ? renderNothing(none) : table}</section>
${links}`;
  return renderFrame(status, '/nodes', 'Nodes', main);
}
