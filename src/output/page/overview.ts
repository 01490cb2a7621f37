// The overview: the state of the cluster on one screen, in the order of importance. Its size is
// limited for any size of the cluster.

import { severities } from '../../audit/finding/catalogue.ts';
import { isUnsuppressed } from '../../audit/finding/suppressions.ts';
import { unknownReasons, unknownText, type Verdict } from '../../audit/finding/verdicts.ts';
import { fillRatio, surplusOf } from '../../audit/measure/endpoint-counts.ts';
import { lagOperations, lagOutputs } from '../../audit/measure/lag.ts';
import type { InputState } from '../../audit/pending/progress.ts';
import { serviceOutputs, verdictOutputs } from '../../audit/service/verdict.ts';
import type { PageStatus } from '../../auditor/queries.ts';
import { formatCount, formatCounts, formatLag } from '../text/format.ts';
import { summarizeLag } from '../text/report.ts';
import type { UnservedRow } from '../text/unserved.ts';
import { renderLagChart } from './chart.ts';
import { renderFindingList } from './finding-list.ts';
import { renderFrame, renderLinks } from './frame.ts';
import { type IncidentView, noIncidents, renderIncidentCard, renderTimeline } from './incidents.ts';
import type { Html, Tone } from './parts.ts';
import {
  describeVerdicts,
  formatAge,
  formatDateTime,
  formatNumber,
  markup,
  nodePath,
  renderCard,
  renderFlushCard,
  renderMark,
  renderMore,
  renderNumber,
  renderTable,
  servicePath,
  signs,
  sortWorstFirst,
} from './parts.ts';
import { renderUnservedCard } from './service-list.ts';

const shownFindings = 12;
const shownResolved = 6;
const shownNodes = 8;

function chooseHeadline({
  metrics: { summary },
  notReady,
  lost,
  hasBegun,
}: PageStatus): Record<'title' | 'text', string> & { tone: Tone; sign?: string } {
  if (lost !== null && !hasBegun) {
    const text = 'The API server has not been read yet';
    return { tone: 'critical', title: 'Not connected', text };
  }
  // A lost connection has a notice above; the page shows the state before it.
  if (notReady !== null && lost === null) {
    const text = notReady.replaceAll('\n', '; ');
    return { tone: 'info', sign: signs.pending, title: 'Not ready yet', text };
  }
  const services = formatCount(summary.services, 'Service');
  const open = summary.findings.filter(isUnsuppressed);
  const suppressed = summary.findings.length - open.length;
  const counts = Map.groupBy(open, ({ severity }) => severity);
  const found = severities.filter((severity) => counts.has(severity));
  const [tone] = found;
  if (tone !== undefined) {
    const title = formatCount(open.length, 'finding');
    const texts = found.map((severity) => `${counts.get(severity)?.length ?? 0} ${severity}`);
    return { tone, title, text: `${texts.join(', ')}, among ${services}` };
  }
  // Includes the Services that no version could be read of.
  const unknown = Object.values(summary.unknown).reduce((sum, count) => sum + count, 0);
  if (unknown > 0) {
    const title = `${formatCount(unknown, 'output')} unknown`;
    return { tone: 'warning', sign: signs.unknown, title, text: `no findings among ${services}` };
  }
  if (summary.services === 0) {
    const text = 'The input contains none, or none in the namespaces that are audited';
    return { tone: 'quiet', title: 'No Services', text };
  }
  const pending = verdictOutputs.reduce((sum, output) => sum + summary.verdicts[output].pending, 0);
  const waiting = `${formatCount(pending, 'output')} pending: a controller may be writing it`;
  const quiet = suppressed === 0 ? 'no differences' : `${suppressed} suppressed`;
  const text = pending === 0 ? quiet : waiting;
  return { tone: 'conform', title: `${services} ok`, text };
}

const outputWords = {
  endpoints: 'Endpoints',
  endpointslices: 'EndpointSlices',
  mirrored: 'Mirrored slices',
  node: 'Service ports on nodes',
} as const;

const watchTones: Readonly<Record<InputState, Tone>> = {
  synced: 'conform',
  listing: 'pending',
  relisting: 'unknown',
  stale: 'unknown',
  off: 'quiet',
};

type Nodes = PageStatus['metrics']['summary']['nodes'];

/** Sorts nodes by the ports with a verdict, or with any but ok, most first; null: by name. */
export function sortNodes(nodes: Nodes, by: Verdict | 'worst' | null = 'worst'): Nodes {
  const countOf = (node: Nodes[number]): number => {
    if (by === null) return 0;
    return by === 'worst' ? node.different + node.unknown + node.pending : node[by];
  };
  return [...nodes].sort((a, b) => countOf(b) - countOf(a) || (a.node < b.node ? -1 : 1));
}

function renderStanding({ metrics: { summary, now }, notReady }: PageStatus) {
  const open = sortWorstFirst(summary.findings);
  const hidden = open.length - shownFindings;
  const more = renderMore(hidden, '/findings', ['more finding', 'more findings']);
  const title = markup`Open findings <small>${formatNumber(open.length)}, worst first</small>`;
  const content = [...renderFindingList(open.slice(0, shownFindings), now), ...more];
  const counts = verdictOutputs.map((output) => ({ ...summary.verdicts[output], conform: 0 }));
  const isAllOk = [summary.unknown, ...counts].every((group) => formatCounts(group) === '');
  const none = isAllOk
    ? 'None. Everything is as it should be.'
    : 'None, but not every output is known to be ok.';
  const text = notReady === null ? none : 'Nothing is compared yet.';
  return renderFlushCard('open', title, content, text);
}

function renderResolved({ metrics, resolved, forgotten }: PageStatus) {
  const shown = resolved.slice(-shownResolved).reverse();
  const count = resolved.length + forgotten;
  const path = '/findings?state=resolved';
  const more = renderMore(count - shown.length, path, ['more resolved', 'more resolved']);
  const title = markup`Resolved <small>${formatNumber(count)}</small>`;
  const content = [...renderFindingList(shown, metrics.now), ...more];
  return renderFlushCard('resolved', title, content, 'None yet.');
}

const shownLags = 5;

/** The longest lags, each with a link to its Service or node. */
function renderLongest({ longestLags }: PageStatus): Html | null {
  const items = longestLags.slice(0, shownLags).map((sample) => {
    const { namespace, service, node, output, operation, seconds, at } = sample;
    const name = `${namespace}/${service}`;
    const on = markup` on <a href="${nodePath(node ?? '')}">${node}</a>`;
    return markup`<li><span><a href="${servicePath(namespace, service)}">${name}</a>
${node !== null && on} <span class="dim">${outputWords[output]} ${operation}</span></span>
<span><b>${formatLag(seconds)}</b> <span class="dim">at ${formatDateTime(at)}</span></span></li>`;
  });
  if (items.length === 0) return null;
  return markup`<h3>Longest of the last day</h3><ul class="plain">${items}</ul>`;
}

const lagMetric = 'endpoint_auditor_convergence_lag_seconds_bucket';

function renderLag(status: PageStatus) {
  const { metrics, lag } = status;
  const { convergence } = metrics;
  const rows = lagOutputs.flatMap((output) =>
    lagOperations.flatMap((operation) => {
      const { count, p50, p99, max } = summarizeLag(convergence[output][operation]);
      const cells = [formatNumber(count), formatLag(p50), formatLag(p99), formatLag(max)];
      const name = markup`<th scope="row">${outputWords[output]} ${operation}</th>`;
      return count === 0 ? [] : markup`<tr>${name}${cells.map(renderNumber)}</tr>`;
    }),
  );
  const chart = renderLagChart(lag, outputWords);
  const heads = ['output', 'changes', 'p50', 'p99', 'longest'];
  const table = renderTable('Convergence lag', heads, rows);
  const span = 'from a change to the write that follows it';
  const title = markup`Convergence lag <small>${span}</small>`;
  const more = markup`<div class="inset">${renderLinks(status, { metric: lagMetric })}
${renderLongest(status)}</div>`;
  const content = rows.length === 0 ? [] : [...(chart === null ? [] : [chart]), table, more];
  return renderFlushCard('lag', title, content, 'No change has been measured yet.');
}

/** The verdicts on an output or a node, whose name is `what` in the label of the bar. */
function renderVerdicts(name: Html, what: string, counts: Readonly<Record<Verdict, number>>): Html {
  const { text, bar } = describeVerdicts(what, counts);
  return markup`<li><div class="top">${name}<span class="dim">${text}</span></div>${bar}</li>`;
}

function renderSummary({ metrics: { summary, now } }: PageStatus): Html {
  const { nodes, verdicts, pendingSince, foreign } = summary;
  const items = (nodes.length > 0 ? verdictOutputs : serviceOutputs).map((output) => {
    const name = outputWords[output];
    return renderVerdicts(markup`<b>${name}</b>`, name, verdicts[output]);
  });
  const since = Object.values(pendingSince);
  const age = formatAge(now - Math.min(...since));
  return renderCard('verdicts', 'Verdicts', [
    markup`<ul class="verdicts">${items}</ul>`,
    since.length > 0 && markup`<p class="dim">The oldest pending difference is ${age} old.</p>`,
    foreign > 0 &&
      markup`<p class="dim">Written by other controllers or users, not compared: ${foreign}.</p>`,
  ]);
}

function renderNodes({ metrics: { summary } }: PageStatus): Html {
  const nodes = sortNodes(summary.nodes);
  const items = nodes.slice(0, shownNodes).map((counts) => {
    const { node } = counts;
    return renderVerdicts(markup`<a href="${nodePath(node)}">${node}</a>`, `Node ${node}`, counts);
  });
  const hidden = nodes.length - shownNodes;
  const more = renderMore(hidden, '/nodes', ['more node', 'more nodes'], null);
  const title = markup`Nodes <small>Service ports by verdict</small>`;
  return renderCard('nodes', title, markup`<ul class="verdicts">${items}</ul>${more}`);
}

function renderWatches({ metrics: { watches, now } }: PageStatus): Html {
  const items = [...watches.inputs].map(([resource, { state, blindSince }]) => {
    const isSeen = state === 'synced' || state === 'off';
    const text = isSeen ? '' : `for ${formatAge(now - (blindSince ?? now))}`;
    return markup`<li><span>${resource}</span>
<span>${renderMark(watchTones[state], state)} <span class="dim">${text}</span></span></li>`;
  });
  return renderCard('watches', 'Watches', markup`<ul class="plain">${items}</ul>`);
}

/** How full the slices are; `null` without slices. */
function renderPacking({ metrics: { fill, duplicates } }: PageStatus): Html | null {
  const ratio = fillRatio(fill, fill.max);
  if (ratio === null) return null;
  const text = [
    `${formatCount(fill.slices, 'EndpointSlice')}, ${surplusOf(fill)} more than needed`,
    `${Math.round(ratio * 100)} % full`,
    formatCount(duplicates.equal + duplicates.conflicting, 'duplicate endpoint'),
  ].join(' · ');
  return renderCard('packing', 'EndpointSlice packing', markup`<p class="lead">${text}</p>`);
}

/** Renders the overview. */
export function renderOverview(
  status: PageStatus,
  unserved: readonly UnservedRow[] = [],
  incidents: IncidentView = noIncidents,
): string {
  const { tone, title, text, sign = signs[tone] } = chooseHeadline(status);
  const { summary, watches } = status.metrics;
  const unknown = unknownReasons.flatMap((reason) => {
    const count = summary.unknown[reason] ?? 0;
    return count === 0 ? [] : markup`<li><span>${unknownText[reason]}</span> <b>${count}</b></li>`;
  });
  const reasons = markup`<ul class="plain">${unknown}</ul>`;
  const main = markup`
<section class="head ${tone}" aria-label="State of the cluster" role="status">
<span class="sign" aria-hidden="true">${sign}</span>
<div><h1>${title}</h1><p>${text}</p></div></section>
<div class="grid"><div>${renderIncidentCard(incidents, status.metrics.now)}
${renderTimeline(incidents, status.metrics.now)}
${renderStanding(status)}${renderLag(status)}</div><div>
${renderSummary(status)}${renderUnservedCard(unserved)}
${unknown.length > 0 && renderCard('unknown', 'Unknown, by reason', reasons)}
${summary.nodes.length > 0 && renderNodes(status)}
${watches.inputs.size > 0 && renderWatches(status)}
${renderResolved(status)}${renderPacking(status)}
</div></div>`;
  return renderFrame(status, '/', title, main);
}
