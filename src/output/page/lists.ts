// The pages that list findings, Services and nodes. The page of findings also explains their codes
// and causes, and links the documentation: a test compares the links to the runbook with the rules
// of the alerts.

import { catalogue, type Code, type Finding, severities } from '../../audit/finding/catalogue.ts';
import { type Cause, causes } from '../../audit/finding/causes.ts';
import type { Verdict } from '../../audit/finding/verdicts.ts';
import { serviceOutputs } from '../../audit/service/verdict.ts';
import type { PageStatus } from '../../auditor/queries.ts';
import type { ServiceNumbers } from '../metrics/service-rows.ts';
import { formatCount } from '../text/format.ts';
import { renderFrame } from './frame.ts';
import { sortNodes } from './overview.ts';
import type { Html, PageQuery } from './parts.ts';
import {
  createSearch,
  describeVerdicts,
  formatNumber,
  formatSubject,
  markup,
  nodePath,
  paginate,
  renderCard,
  renderFilter,
  renderFindingList,
  renderMark,
  renderNothing,
  renderNumber,
  renderSelect,
  renderTable,
  servicePath,
  sortNewestFirst,
  verdictOrder,
} from './parts.ts';

// --- links to the documentation ---

export const documents = 'https://github.com/endpoint-auditor/endpoint-auditor/blob/main/docs';

type Alerts = Readonly<Partial<Record<Code | Finding['output' | 'difference'], string | null>>>;

/** The alert of a code, else of its output, else of its difference; null if there is none. */
const alerts: Alerts = {
  'endpoints-orphaned': null,
  'slice-duplicate': null,
  'slice-surplus-empty': null,
  'left-behind': null,
  'left-behind-dead': 'EndpointsUnexpected',
  'address-shared': 'EndpointsUnexpected',
  'pod-without-node': 'EndpointsStale',
  'managers-several': 'TwoManagers',
  'foreign-endpoint-dead': 'TwoManagers',
  'slice-duplicate-conflicting': 'ConflictingDuplicates',
  'duplicate-conflicting': 'ConflictingDuplicates',
  'endpoints-truncated': 'EndpointsTruncated',
  'object-near-size-limit': 'ObjectNearSizeLimit',
  'hints-absent': 'HintsMissing',
  'node-rules-stale': 'NodeStale',
  mirrored: 'MirroredEndpointsStale',
  node: 'NodeRulesBroken',
  missing: 'EndpointsMissing',
  unexpected: 'EndpointsUnexpected',
  different: 'EndpointsStale',
};

/** The alert that a finding of this code fires; null if there is none. */
export function findAlert(code: Code): string | null {
  const { output, difference } = catalogue[code];
  const alert = [code, output, difference]
    .map((key) => alerts[key])
    .find((name) => name !== undefined);
  return alert ? `EndpointAuditor${alert}` : null;
}

/** The section of a code or a cause in the list of findings. */
export const findingUrl = (name: Code | `cause-${Cause}`): string =>
  `${documents}/findings.md#${name}`;

/** The section of an alert in the runbook. */
export const runbookUrl = (alert: string): string =>
  `${documents}/runbook.md#${alert.toLowerCase()}`;

// --- findings ---

export type FindingQuery = PageQuery<(typeof findingFields)[number]>;

/** `q` are words that must all be in the name, the code or the texts. */
export const findingFields = ['q', 'state', 'severity', 'output', 'code'] as const;

const outputs = ['endpoints', 'endpointslices', 'mirrored', 'node', 'input'];
const findingsPerPage = 50;

function createFilter({ q, ...query }: FindingQuery): (finding: Finding) => boolean {
  const matches = createSearch(q);
  return (finding) => {
    const { code, object, actual, expected, cause } = finding;
    const texts = [formatSubject(finding), code, object, actual, expected, cause];
    const isWanted = (['severity', 'output', 'code'] as const).every((field) =>
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
    const { title, condition, cure, upstream } = causes[cause];
    return renderEntry(`cause-${cause}`, `${title}. ${condition}`, cure, upstream, null);
  });
  const list = markup`<dl class="codes">${[codes, named]}</dl>`;
  return renderCard('codes', 'What the codes and causes mean', list);
}

/** Renders the page of findings. */
export function renderFindings(status: PageStatus, query: FindingQuery): string {
  const { metrics, resolved, forgotten } = status;
  const { q, state, severity, output, code } = query;
  const isResolved = state === 'resolved' || state === 'all';
  const all = [
    ...(state === 'resolved' ? [] : sortNewestFirst(metrics.summary.findings)),
    ...(isResolved ? [...resolved].reverse() : []),
  ];
  const found = all.filter(createFilter(query));
  const { shown, links } = paginate('findings', found, findingsPerPage, query, ['newer', 'older']);
  const codes = new Set<string>([...all.map((finding) => finding.code), code]);
  codes.delete('');
  const none = all.length === 0 ? 'None.' : 'None of these.';
  const older = `${formatCount(forgotten, 'older one')} are not kept any more.`;
  const main = markup`
<h1>Findings <small>${formatNumber(found.length)}</small></h1>
<p class="lead">What differs from what the controllers or kube-proxy should have written,
 newest first.</p>
${renderFilter('/findings', q, 'name, code, address', [
  renderSelect(['state', 'State'], ['resolved', 'all'], state, 'standing'),
  renderSelect(['severity', 'Severity'], severities, severity),
  renderSelect(['output', 'Output'], outputs, output),
  renderSelect(['code', 'Code'], [...codes].sort(), code),
])}
<section class="card flush" aria-label="Findings">
${shown.length === 0 ? renderNothing(none) : renderFindingList(shown, metrics.now)}</section>
${links}
${forgotten > 0 && isResolved && markup`<p class="dim">${older}</p>`}
${shown.length > 0 && explainAll(shown)}`;
  return renderFrame(status, '/findings', 'Findings', main);
}

// --- Services, those with the worst verdict first ---

export type ServiceQuery = PageQuery<(typeof serviceFields)[number]>;

/** `q` are words that must all be in `namespace/name`. */
export const serviceFields = ['q', 'verdict'] as const;

const servicesPerPage = 100;

/** The worst verdict on an output of a Service; null if no controller writes any. */
function worstVerdict({ share: { verdicts } }: ServiceNumbers): Verdict | null {
  const found = serviceOutputs.map((output) => verdicts[output]);
  return verdictOrder.find((verdict) => found.includes(verdict)) ?? null;
}

function renderListed({ namespace, name, share, conditions, slices }: ServiceNumbers): Html {
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

const listHeads = 'Service|Endpoints|EndpointSlices|mirrored|ready|not ready|slices'.split('|');

function findServices(services: Iterable<ServiceNumbers>, query: ServiceQuery): ServiceNumbers[] {
  const matches = createSearch(query.q);
  const found = [...services].flatMap((numbers) => {
    const key = `${numbers.namespace}/${numbers.name}`;
    const worst = worstVerdict(numbers);
    if (!matches(key) || !['', worst].includes(query.verdict)) return [];
    const rank = worst === null ? verdictOrder.length : verdictOrder.indexOf(worst);
    return [{ key, rank, numbers }];
  });
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
  const { shown, links } = paginate('Services', found, servicesPerPage, query);
  const none = renderNothing(status.notReady ?? 'None of that name and verdict.');
  const table = renderTable('Services', listHeads, shown.map(renderListed), 3);
  const select = renderSelect(['verdict', 'Verdict'], verdictOrder, verdict);
  const main = markup`
<h1>Services <small>${formatNumber(found.length)}</small></h1>
<p class="lead">Each with the verdict on what the controllers wrote for it, the worst first.</p>
${renderFilter('/services', q, 'namespace/name', [select])}
<section class="card flush">${shown.length === 0 ? none : table}</section>
${links}`;
  return renderFrame(status, '/services', 'Services', main);
}

// --- nodes ---

const mostNodes = 200;

/** Renders the page of nodes; each word of `query` must be in the name. */
export function renderNodes(status: PageStatus, query: string): string {
  const { nodes } = status.metrics.summary;
  const matches = createSearch(query);
  const found = sortNodes(nodes).filter(({ node }) => matches(node));
  const more = found.length - mostNodes;
  const all = status.clusterNodes ?? found.length;
  const isComplete = query.trim() !== '' || found.length === all;
  const none =
    nodes.length === 0
      ? 'No node’s rules are known: nobody has told of any, so nothing is judged on nodes.'
      : 'None of that name.';
  const heads = ['Node', 'Service ports', ...verdictOrder];
  const rows = found.slice(0, mostNodes).map((counts) => {
    const { node } = counts;
    return markup`<tr data-row data-key="${node}"><th scope="row">
<a class="name" href="${nodePath(node)}">${node}</a></th>
<td>${describeVerdicts(`Node ${node}`, counts).bar}</td>
${verdictOrder.map((verdict) => renderNumber(String(counts[verdict])))}</tr>`;
  });
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
