// The overview: what stands, now, on one screen of whatever size, and what every other page shows
// besides its own.
//
// Order of the page is order of worth: is all well, which findings stand, the newest first, how all
// is judged and why some is not, how fast controllers follow, whether the watches and nodes are
// seen. It is made anew for each request and bounded, whatever the cluster holds.

import type { Finding, Severity } from '../../audit/finding/catalogue.ts';
import { catalogue, severities } from '../../audit/finding/catalogue.ts';
import type { Verdict } from '../../audit/finding/verdicts.ts';
import { fillRatio, surplusOf } from '../../audit/measure/fill.ts';
import { lagOperations, lagOutputs } from '../../audit/measure/lag.ts';
import type { LagSeries } from '../../audit/measure/sample-history.ts';
import { verdictOutputs, serviceOutputs } from '../../audit/service/verdict.ts';
import { formatLag, formatCount } from '../text/format.ts';
import { summarizeLag } from '../text/report.ts';
import { renderFrame } from './frame.ts';
import type { Tone } from './parts.ts';
import {
  formatAge,
  renderBar,
  renderFinding,
  renderFindingList,
  renderMark,
  nodePath,
} from './parts.ts';
import type { PageStatus } from './status.ts';
import type { Html } from './template.ts';
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

/** How all is, in one line. */
function headline({ metrics, notReady }: PageStatus): Headline {
  const { summary } = metrics;
  if (notReady !== null) {
    return {
      tone: 'info',
      sign: '◔',
      title: 'Not ready yet',
      text: notReady.replaceAll('\n', '; '),
    };
  }
  const among = `among ${formatCount(summary.services, 'Service')}`;
  const [worst] = severities.filter((one) => summary.findings.some((f) => f.severity === one));
  if (worst !== undefined) {
    const counts = severities.flatMap((severity) => {
      const count = summary.findings.filter((one) => one.severity === severity).length;
      return count === 0 ? [] : [`${count} ${severity}`];
    });
    const title = formatCount(summary.findings.length, 'finding');
    const sign = { critical: '▲', warning: '◆', info: '●' }[worst];
    return { tone: worst, sign, title, text: `${counts.join(', ')}, ${among}` };
  }
  const unknown = Object.values(summary.unknown).reduce((sum, count) => sum + count, 0);
  if (unknown > 0) {
    // Among them are Services of which not even that is known.
    const title = `${formatCount(unknown, 'output')} cannot be judged`;
    return { tone: 'warning', sign: '?', title, text: `no findings ${among}` };
  }
  if (summary.services === 0) {
    const text = 'Nothing is there to be judged: the input holds none, or none in this scope';
    return { tone: 'quiet', sign: '·', title: 'No Services', text };
  }
  const pending = verdictOutputs.reduce((sum, output) => sum + summary.verdicts[output].pending, 0);
  const text =
    pending === 0
      ? 'nothing differs'
      : `${formatCount(pending, 'output')} pending, may be on its way`;
  return {
    tone: 'conform',
    sign: '✓',
    title: `${formatCount(summary.services, 'Service')} conform`,
    text,
  };
}

export const verdictOrder: readonly Verdict[] = ['different', 'unknown', 'pending', 'conform'];

/** Verdicts as a bar with its numbers. */
export function verdictBar(counts: Readonly<Record<Verdict, number>>, what: string): VerdictBar {
  const shares = verdictOrder.map((verdict) => ({ tone: verdict, count: counts[verdict] }));
  const there = shares.filter(({ count }) => count > 0);
  const text = there.map(({ tone, count }) => `${count.toLocaleString('en')} ${tone}`).join(', ');
  return { name: what, text: text || 'none', bar: renderBar(shares, `${what}: ${text || 'none'}`) };
}

interface VerdictBar {
  readonly name: string;
  readonly text: string;
  readonly bar: Html;
}

const outputWords = {
  endpoints: 'Endpoints',
  endpointslices: 'EndpointSlices',
  mirrored: 'Mirrored slices',
  node: 'Service ports on nodes',
} as const;

interface LagRow {
  readonly name: string;
  readonly cells: readonly string[];
}

function lagRows({ metrics: { convergence } }: PageStatus): LagRow[] {
  return lagOutputs.flatMap((output) =>
    lagOperations.flatMap((operation) => {
      const { count, p50, p99, max } = summarizeLag(convergence[output][operation]);
      if (count === 0) return [];
      const cells = [count.toLocaleString('en'), formatLag(p50), formatLag(p99), formatLag(max)];
      return [{ name: `${outputWords[output]} ${operation}`, cells }];
    }),
  );
}

/** Seconds without any change after which a line is broken off. */
const quiet = 40;

/** What a chart shows, as the script of the page reads it; '' where there is nothing to show. */
export function lagDrawing({ at, longest }: LagSeries): string {
  if (at.length < 2) return '';
  const breaks = at.map((moment, index) => moment - (at[index - 1] ?? moment) > quiet);
  const spread = <T>(values: readonly T[], gap: (before: T) => T): T[] =>
    values.flatMap((value, index) =>
      breaks[index] === true ? [gap(values[index - 1] ?? value), value] : [value],
    );
  const lines = lagOutputs
    .filter((output) => longest[output].some((value) => value !== null))
    .map((output) => ({
      name: outputWords[output],
      values: spread(longest[output].map(rounded), () => null),
    }));
  return JSON.stringify({ at: spread(at, (before) => before + 1), lines });
}

const rounded = (value: number | null): number | null =>
  value === null ? null : Number(value.toPrecision(4));

interface View {
  readonly head: Headline;
  readonly findings: Html;
  readonly count: string;
  readonly moreFindings: string;
  readonly resolved: Html;
  readonly resolvedCount: string;
  readonly moreResolved: string;
  readonly isReady: boolean;
  readonly verdicts: readonly VerdictBar[];
  readonly unknown: readonly { reason: string; count: number }[];
  readonly notes: readonly string[];
  readonly chart: string;
  readonly lag: readonly LagRow[];
  readonly packing: string;
  readonly watches: readonly { resource: string; mark: Html; text: string }[];
  readonly nodes: readonly { name: string; href: string; bar: Html; text: string }[];
  readonly moreNodes: string;
}

const overviewTemplate = compileTemplate<View>(`
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

function packingText({ metrics: { fill, duplicates } }: PageStatus): string {
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

function watchRows({ metrics: { watches, now } }: PageStatus): View['watches'] {
  return [...watches.inputs].map(([resource, { state, blindSince }]) => ({
    resource,
    mark: renderMark(watchTones[state] ?? 'quiet', state),
    text:
      state === 'synced' || state === 'off' ? '' : `for ${formatAge(now - (blindSince ?? now))}`,
  }));
}

/** Nodes, those first that are not all conform. */
export function sortNodes(
  nodes: PageStatus['metrics']['summary']['nodes'],
): PageStatus['metrics']['summary']['nodes'] {
  const bad = (one: (typeof nodes)[number]): number => one.different + one.unknown + one.pending;
  return [...nodes].sort((a, b) => bad(b) - bad(a) || (a.node < b.node ? -1 : 1));
}

function notesOf({ metrics: { summary, now } }: PageStatus): string[] {
  const since = Object.values(summary.pendingSince);
  return [
    since.length === 0
      ? ''
      : `The oldest difference pends for ${formatAge(now - Math.min(...since))}.`,
    summary.foreign === 0 ? '' : `Written by others, not judged: ${summary.foreign}.`,
  ].filter((note) => note !== '');
}

/** Findings of the worst severity of each moment first. */
export const sortNewestFirst = (findings: readonly Finding[]): Finding[] => {
  const rank = (severity: Severity): number => severities.indexOf(severity);
  return [...findings].sort(
    (a, b) => b.openedAt - a.openedAt || rank(a.severity) - rank(b.severity),
  );
};

const more = (count: number, what: string): string =>
  count <= 0 ? '' : `${count.toLocaleString('en')} more ${what}`;

/** The overview as HTML. */
export function renderOverview(status: PageStatus): string {
  const { metrics, resolved, forgotten } = status;
  const { summary, now } = metrics;
  const standing = sortNewestFirst(summary.findings);
  const gone = resolved.slice(-shownResolved).reverse();
  const items = (list: readonly Finding[]): Html =>
    renderFindingList(list.map((one) => renderFinding(one, catalogue[one.code].title, now)));
  const nodes = sortNodes(summary.nodes);
  const hasNodes = nodes.length > 0;
  const main = overviewTemplate({
    head: headline(status),
    isReady: status.notReady === null,
    findings: items(standing.slice(0, shownFindings)),
    count: standing.length.toLocaleString('en'),
    moreFindings: more(standing.length - shownFindings, 'findings'),
    resolved: items(gone),
    resolvedCount: (resolved.length + forgotten).toLocaleString('en'),
    moreResolved: more(resolved.length + forgotten - gone.length, 'resolved'),
    verdicts: (hasNodes ? verdictOutputs : serviceOutputs).map((output) =>
      verdictBar(summary.verdicts[output], outputWords[output]),
    ),
    unknown: Object.entries(summary.unknown).map(([reason, count]) => ({ reason, count })),
    notes: notesOf(status),
    chart: lagDrawing(status.lag),
    lag: lagRows(status),
    packing: packingText(status),
    watches: watchRows(status),
    nodes: nodes.slice(0, shownNodes).map((one) => {
      const { text, bar } = verdictBar(one, `Node ${one.node}`);
      return { name: one.node, href: nodePath(one.node), text, bar };
    }),
    moreNodes: more(nodes.length - shownNodes, 'nodes'),
  });
  return renderFrame(status, { place: '/', title: headline(status).title, main });
}
