// The overview: the state of the cluster on one screen, in the order of importance. It shows if all
// is well, the newest findings, the verdicts, the lags, the watches and the nodes. Each request
// renders it again, and its size is limited for any size of the cluster.

import { severities } from '../../audit/finding/catalogue.ts';
import { fillRatio, surplusOf } from '../../audit/measure/fill.ts';
import { lagOperations, lagOutputs } from '../../audit/measure/lag.ts';
import type { LagSeries } from '../../audit/measure/sample-history.ts';
import { serviceOutputs, verdictOutputs } from '../../audit/service/verdict.ts';
import { formatCount, formatLag } from '../text/format.ts';
import { summarizeLag } from '../text/report.ts';
import { renderFrame } from './frame.ts';
import type { Tone } from './parts.ts';
import {
  describeVerdicts,
  formatAge,
  nodePath,
  renderFindingList,
  renderMark,
  sortNewestFirst,
} from './parts.ts';
import type { PageStatus } from './status.ts';
import { compileTemplate } from './template.ts';

const shownFindings = 12;
const shownResolved = 6;
const shownNodes = 8;

interface Headline {
  readonly tone: Tone;
  readonly sign: string;
  readonly title: string;
  readonly text: string;
}

/** The state of the cluster in one line. */
function chooseHeadline({ metrics: { summary }, notReady }: PageStatus): Headline {
  if (notReady !== null) {
    const text = notReady.replaceAll('\n', '; ');
    return { tone: 'info', sign: '◔', title: 'Not ready yet', text };
  }
  const among = `among ${formatCount(summary.services, 'Service')}`;
  const counts = severities
    .map((severity) => ({
      severity,
      count: summary.findings.filter((finding) => finding.severity === severity).length,
    }))
    .filter(({ count }) => count > 0);
  const [worst] = counts;
  if (worst !== undefined) {
    const sign = { critical: '▲', warning: '◆', info: '●' }[worst.severity];
    const title = formatCount(summary.findings.length, 'finding');
    const texts = counts.map(({ severity, count }) => `${count} ${severity}`);
    return { tone: worst.severity, sign, title, text: `${texts.join(', ')}, ${among}` };
  }
  // Includes the Services that no version could be read of.
  const unknown = Object.values(summary.unknown).reduce((sum, count) => sum + count, 0);
  if (unknown > 0) {
    const title = `${formatCount(unknown, 'output')} cannot be judged`;
    return { tone: 'warning', sign: '?', title, text: `no findings ${among}` };
  }
  if (summary.services === 0) {
    const text = 'Nothing is there to be judged: the input holds none, or none in this scope';
    return { tone: 'quiet', sign: '·', title: 'No Services', text };
  }
  const pending = verdictOutputs.reduce((sum, output) => sum + summary.verdicts[output].pending, 0);
  const title = `${formatCount(summary.services, 'Service')} conform`;
  const text =
    pending === 0
      ? 'nothing differs'
      : `${formatCount(pending, 'output')} pending, may be on its way`;
  return { tone: 'conform', sign: '✓', title, text };
}

const outputWords = {
  endpoints: 'Endpoints',
  endpointslices: 'EndpointSlices',
  mirrored: 'Mirrored slices',
  node: 'Service ports on nodes',
} as const;

const lagRows = ({ metrics: { convergence } }: PageStatus) =>
  lagOutputs.flatMap((output) =>
    lagOperations.flatMap((operation) => {
      const { count, p50, p99, max } = summarizeLag(convergence[output][operation]);
      if (count === 0) return [];
      const cells = [count.toLocaleString('en'), formatLag(p50), formatLag(p99), formatLag(max)];
      return [{ name: `${outputWords[output]} ${operation}`, cells }];
    }),
  );

/** Seconds without a change that interrupt a line. */
const quietSeconds = 40;

const roundValue = (value: number | null): number | null =>
  value === null ? null : Number(value.toPrecision(4));

/** The data of the chart, as JSON for the script of the page; '' without data. */
export function lagDrawing({ at, longest }: LagSeries): string {
  if (at.length < 2) return '';
  const breaks = at.map((moment, index) => moment - (at[index - 1] ?? moment) > quietSeconds);
  const spread = <T>(values: readonly T[], gap: (before: T) => T): T[] =>
    values.flatMap((value, index) =>
      breaks[index] === true ? [gap(values[index - 1] ?? value), value] : [value],
    );
  const lines = lagOutputs
    .filter((output) => longest[output].some((value) => value !== null))
    .map((output) => ({
      name: outputWords[output],
      values: spread(longest[output].map(roundValue), () => null),
    }));
  return JSON.stringify({ at: spread(at, (before) => before + 1), lines });
}

const overviewTemplate = compileTemplate(`
<section class="head <%= it.head.tone %>" aria-label="How all is" role="status">
<span class="sign" aria-hidden="true"><%= it.head.sign %></span>
<div><h1><%= it.head.title %></h1><p><%= it.head.text %></p></div></section>
<div class="grid"><div>
<section class="card flush" aria-labelledby="h-standing">
<h2 id="h-standing">Standing findings <small><%= it.count %>, newest first</small></h2>
<% if (it.findings === '') { %><p class="none dim">
<%= it.isReady ? 'None. What should be written is what stands.' : 'Not judged yet.' %></p>
<% } %><%~ it.findings %>
<% if (it.moreFindings !== '') { %><p class="more"><a href="/findings">
<%= it.moreFindings %></a></p><% } %></section>
<section class="card flush" aria-labelledby="h-lag">
<h2 id="h-lag">Convergence lag <small>from the change to the writing that follows it</small></h2>
<% if (it.lag.length === 0) { %><p class="none dim">Nothing measured yet.</p><% } else { %>
<% if (it.chart !== '') { %><figure class="chart" data-chart="<%= it.chart %>"
 aria-label="Longest convergence lag in each ten seconds, by output; the table below sums it up">
<div class="plot" data-keep></div></figure><% } %>
<div class="scroll" tabindex="0" role="region" aria-label="Convergence lag"><table>
<thead><tr><th scope="col">output</th><th scope="col">changes</th><th scope="col">p50</th>
<th scope="col">p99</th><th scope="col">longest</th></tr></thead><tbody>
<% for (const row of it.lag) { %><tr><th scope="row"><%= row.name %></th>
<% for (const cell of row.cells) { %><td><%= cell %></td><% } %></tr><% } %>
</tbody></table></div><% } %></section>
</div><div>
<section class="card" aria-labelledby="h-verdicts"><h2 id="h-verdicts">Verdicts</h2>
<ul class="verdicts">
<% for (const one of it.verdicts) { %><li><div class="top"><b><%= one.name %></b>
<span class="dim"><%= one.text %></span></div><%~ one.bar %></li><% } %></ul>
<% for (const note of it.notes) { %><p class="dim"><%= note %></p><% } %></section>
<% if (it.unknown.length > 0) { %>
<section class="card" aria-labelledby="h-unknown"><h2 id="h-unknown">Unknown, and why</h2>
<ul class="plain"><% for (const one of it.unknown) { %><li><span><%= one.reason %></span>
<b><%= one.count %></b></li><% } %></ul></section><% } %>
<% if (it.nodes.length > 0) { %>
<section class="card" aria-labelledby="h-nodes"><h2 id="h-nodes">Nodes
 <small>Service ports by verdict</small></h2>
<ul class="verdicts"><% for (const one of it.nodes) { %><li><div class="top">
<a href="<%= one.href %>"><%= one.name %></a><span class="dim"><%= one.text %></span></div>
<%~ one.bar %></li><% } %></ul>
<% if (it.moreNodes !== '') { %><p><a href="/nodes"><%= it.moreNodes %></a></p><% } %></section>
<% } %>
<% if (it.watches.length > 0) { %>
<section class="card" aria-labelledby="h-watches"><h2 id="h-watches">Watches</h2>
<ul class="plain"><% for (const one of it.watches) { %><li><span><%= one.resource %></span>
<span><%~ one.mark %> <span class="dim"><%= one.text %></span></span></li><% } %></ul></section>
<% } %>
<section class="card flush" aria-labelledby="h-resolved">
<h2 id="h-resolved">Resolved <small><%= it.resolvedCount %></small></h2>
<% if (it.resolved === '') { %><p class="none dim">None yet.</p><% } %><%~ it.resolved %>
<% if (it.moreResolved !== '') { %><p class="more">
<a href="/findings?state=resolved"><%= it.moreResolved %></a></p><% } %></section>
<% if (it.packing !== '') { %><section class="card" aria-labelledby="h-packing">
<h2 id="h-packing">Packing</h2><p class="lead"><%= it.packing %></p></section><% } %>
</div></div>`);

function formatPacking({ metrics: { fill, duplicates } }: PageStatus): string {
  const ratio = fillRatio(fill, fill.max);
  if (ratio === null) return '';
  return [
    `${formatCount(fill.slices, 'slice')}, ${surplusOf(fill)} more than needed`,
    `${Math.round(ratio * 100)} % of their places taken`,
    `${duplicates.equal + duplicates.conflicting} duplicate endpoints`,
  ].join(' · ');
}

const watchTones: Readonly<Record<string, Tone>> = {
  synced: 'conform',
  listing: 'pending',
  relisting: 'unknown',
  stale: 'unknown',
  off: 'quiet',
};

const watchRows = ({ metrics: { watches, now } }: PageStatus) =>
  [...watches.inputs].map(([resource, { state, blindSince }]) => ({
    resource,
    mark: renderMark(watchTones[state] ?? 'quiet', state),
    text:
      state === 'synced' || state === 'off' ? '' : `for ${formatAge(now - (blindSince ?? now))}`,
  }));

type Nodes = PageStatus['metrics']['summary']['nodes'];

/** Sorts nodes by the number of ports that do not conform, the most first. */
export function sortNodes(nodes: Nodes): Nodes {
  const bad = ({ different, unknown, pending }: Nodes[number]): number =>
    different + unknown + pending;
  return [...nodes].sort((a, b) => bad(b) - bad(a) || (a.node < b.node ? -1 : 1));
}

function listNotes({ metrics: { summary, now } }: PageStatus): string[] {
  const since = Object.values(summary.pendingSince);
  const notes: string[] = [];
  if (since.length > 0) {
    notes.push(`The oldest difference pends for ${formatAge(now - Math.min(...since))}.`);
  }
  if (summary.foreign > 0) notes.push(`Written by others, not judged: ${summary.foreign}.`);
  return notes;
}

const formatMore = (count: number, what: string): string =>
  count <= 0 ? '' : `${count.toLocaleString('en')} more ${what}`;

/** Renders the overview. */
export function renderOverview(status: PageStatus): string {
  const { summary, now } = status.metrics;
  const open = sortNewestFirst(summary.findings);
  const resolved = status.resolved.slice(-shownResolved).reverse();
  const resolvedCount = status.resolved.length + status.forgotten;
  const nodes = sortNodes(summary.nodes);
  const head = chooseHeadline(status);
  const main = overviewTemplate({
    head,
    isReady: status.notReady === null,
    findings: renderFindingList(open.slice(0, shownFindings), now),
    count: open.length.toLocaleString('en'),
    moreFindings: formatMore(open.length - shownFindings, 'findings'),
    resolved: renderFindingList(resolved, now),
    resolvedCount: resolvedCount.toLocaleString('en'),
    moreResolved: formatMore(resolvedCount - resolved.length, 'resolved'),
    verdicts: (nodes.length > 0 ? verdictOutputs : serviceOutputs).map((output) =>
      describeVerdicts(outputWords[output], summary.verdicts[output]),
    ),
    unknown: Object.entries(summary.unknown).map(([reason, count]) => ({ reason, count })),
    notes: listNotes(status),
    chart: lagDrawing(status.lag),
    lag: lagRows(status),
    packing: formatPacking(status),
    watches: watchRows(status),
    nodes: nodes.slice(0, shownNodes).map((counts) => ({
      ...describeVerdicts(counts.node, counts, `Node ${counts.node}`),
      href: nodePath(counts.node),
    })),
    moreNodes: formatMore(nodes.length - shownNodes, 'nodes'),
  });
  return renderFrame(status, { place: '/', title: head.title, main });
}
