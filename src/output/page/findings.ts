// The page of open and resolved findings, which also explains their codes and causes.

import type { Code, Finding } from '../../audit/finding/catalogue.ts';
import { catalogue, severities } from '../../audit/finding/catalogue.ts';
import type { Cause } from '../../audit/finding/causes.ts';
import { causes } from '../../audit/finding/causes.ts';
import type { PageStatus } from '../../auditor/queries.ts';
import { findAlert, findingUrl, runbookUrl } from '../text/documentation-links.ts';
import { formatCount } from '../text/format.ts';
import { renderFrame } from './frame.ts';
import type { Html, PageQuery } from './parts.ts';
import {
  createSearch,
  formatNumber,
  formatSubject,
  markup,
  paginate,
  renderCard,
  renderFilter,
  renderFindingList,
  renderNothing,
  renderSelect,
  sortNewestFirst,
} from './parts.ts';

export type FindingQuery = PageQuery<(typeof findingFields)[number]>;

/** `q` are words that must all be in the name, the code or the texts. */
export const findingFields = ['q', 'state', 'severity', 'output', 'code'] as const;

const outputs = ['endpoints', 'endpointslices', 'mirrored', 'node', 'input'];
const perPage = 50;

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

function explainCode(code: Code): Html {
  const { title, meaning, remedy, upstream } = catalogue[code];
  return renderEntry(code, `${title}. ${meaning}`, remedy, upstream, findAlert(code));
}

function explainCause(cause: Cause): Html {
  const { title, condition, cure, upstream } = causes[cause];
  return renderEntry(`cause-${cause}`, `${title}. ${condition}`, cure, upstream, null);
}

function explainAll(findings: readonly Finding[]): Html {
  const codes = new Set(findings.map(({ code }) => code));
  const named = new Set(findings.map(({ cause }) => cause).filter((cause) => cause !== null));
  const entries = [...[...codes].sort().map(explainCode), ...[...named].sort().map(explainCause)];
  const list = markup`<dl class="codes">${entries}</dl>`;
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
  const { shown, links } = paginate('findings', found, perPage, query, ['newer', 'older']);
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
