// The frame of every page with the assets that it loads: none is from another server. A page is
// complete without scripts; a browser without scripts reloads it every 15 seconds.

import { createHash } from 'node:crypto';

import type { PageStatus } from '../../auditor/queries.ts';
import { failureText } from '../../model/connection.ts';
import { formatCount, formatUnverified, truncate } from '../text/format.ts';
import { expandLink, type LinkValues } from '../text/link-template.ts';
import { clientScript, style } from './asset-texts.ts';
import { formatDateTime, type Html, markup } from './parts.ts';
import { keepMoment, renderHistoryNotice, renderTimeBar, timeBarPlace } from './time-bar.ts';

const icon =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" ' +
  'rx="8" fill="#0f766e"/><g fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round" ' +
  'stroke-linejoin="round"><path d="M7 11h9"/><path d="M7 21h6"/><path d="m17 20 3.5 3.5L26 ' +
  '13"/></g></svg>';

const contents = {
  'style.css': style,
  'page.js': clientScript,
  'icon.svg': icon,
};

/** Texts by address, which has a hash of the text, so that browsers may cache it forever. */
export const assets: ReadonlyMap<string, string> = new Map(
  Object.entries(contents).map(([name, text]) => {
    const hash = createHash('sha256').update(text).digest('hex').slice(0, 12);
    return [`/assets/${hash}-${name}`, text];
  }),
);

export const assetPath = (name: keyof typeof contents): string =>
  [...assets.keys()].find((path) => path.endsWith(`-${name}`)) ?? '';

/** Why the page does not show the present; `null` while the API server answers. */
function renderLost({ lost, hasBegun }: PageStatus): Html | null {
  if (lost === null) return null;
  const shown = hasBegun ? 'The page shows the state at that time.' : 'Nothing has been read yet.';
  const since = formatDateTime(lost.since);
  return markup`<p class="notice critical" role="alert"><span aria-hidden="true">▲</span>
 ${failureText(lost)} since ${since} (${lost.message}). ${shown}
${lost.advice !== null && markup` ${lost.advice}`}</p>`;
}

/** The time bar. That of a moment is the one of the present, which its server adds. */
const renderTime = (status: PageStatus): Html | null =>
  status.at === null
    ? renderTimeBar(status, null)
    : markup`${renderHistoryNotice(status.at)}${{ html: timeBarPlace }}`;

/** Says that the time is that of a recording; null for live input. */
function renderReplay({ isLive, hasEnded, at }: PageStatus): Html | null {
  if (isLive || at !== null) return null;
  const text = hasEnded
    ? 'The replay of a recording has ended, and the page keeps its last state. To see it again, ' +
      'start the program again; --speed 1 replays it at its own speed.'
    : 'This is the replay of a recording.';
  return markup`<p class="notice info"><span aria-hidden="true">▷</span>
 Not live. ${text} All times are those of the recording.</p>`;
}

function warningsOf({ metrics, notReady, lost }: PageStatus): string[] {
  if (notReady !== null || lost !== null) return [];
  return [...metrics.watches.inputs].flatMap(([resource, { state, blindSince }]) => {
    if (state !== 'stale' && state !== 'relisting') return [];
    const seconds = Math.round(metrics.now - (blindSince ?? metrics.now));
    return `${resource} have not been seen for ${seconds} s: what depends on them is unknown`;
  });
}

function inputText({ metrics, kubernetes, source }: PageStatus): string {
  const parts = [
    truncate(source, 200),
    kubernetes === null ? '' : `Kubernetes ${truncate(kubernetes, 40)}`,
    `shadowed as ${metrics.release}`,
    formatUnverified(metrics.unverified.map((reason) => truncate(reason, 80))),
    formatCount(metrics.summary.services, 'Service'),
  ];
  return parts.filter((part) => part !== '').join(' · ');
}

function renderSections({ metrics: { summary } }: PageStatus, place: string): Html[] {
  const sections = [
    ['/', 'Overview', null],
    ['/incidents', 'Incidents', null],
    ['/findings', 'Findings', summary.findings.length],
    ['/services', 'Services', summary.services],
    ['/nodes', 'Nodes', summary.nodes.length],
    ['/docs', 'Docs', null],
  ] as const;
  return sections.map(([path, name, count]) => {
    const current = path === place && markup` aria-current="page"`;
    const items =
      count !== null && markup` <span class="count">${count.toLocaleString('en')}</span>\n`;
    return markup`<li><a href="${path}"${current}>
${name}${items}</a></li>
`;
  });
}

/**
 * Links to other programs that have all the values that they need; null without any. With a metric
 * only those that need it, such as to a graph of it.
 */
export function renderLinks({ links, cluster }: PageStatus, values: LinkValues): Html | null {
  const items = links.flatMap((template) => {
    if (values.metric !== undefined && !template.url.includes('{metric}')) return [];
    const url = expandLink(template, { cluster, ...values });
    return url === null ? [] : [markup`<li><a href="${url}">${template.name} ↗</a></li>`];
  });
  return items.length === 0 ? null : markup`<ul class="chips">${items}</ul>`;
}

const earlierLink = /<span class="before">.*?\bat=([^"&]*).*?<\/span>/gs;

/** As in page/browser/client.ts. */
const lostWord = 'no answer since';

/** A whole page; `place` is the path of its section. */
export function renderFrame(
  status: PageStatus,
  place: '/' | '/incidents' | '/findings' | '/services' | '/nodes' | '/docs' | '/search',
  title: string,
  main: Html,
): string {
  const { metrics, revision, cluster, lost, shownAt, hasMetrics, at } = status;
  const of = cluster === null ? '' : ` · ${cluster}`;
  const isStatic = place === '/docs' || at !== null;
  const history = at !== null && markup` class="is-history"`;
  const { html } = markup`<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}${of} · endpoint-auditor</title>
<link rel="stylesheet" href="${assetPath('style.css')}">
<link rel="icon" href="${assetPath('icon.svg')}">
<script src="${assetPath('page.js')}" defer></script>
${!isStatic && markup`<noscript><meta http-equiv="refresh" content="15"></noscript>`}
</head><body data-revision="${revision}"${history}${isStatic && markup` data-static`}>
<a class="skip" href="#main">Skip to content</a>
<header><div class="wide">
<a class="brand" href="/"><span class="logo" aria-hidden="true"></span>endpoint-auditor</a>
${
  cluster !== null &&
  markup`<span class="cluster"><span class="sr">Cluster</span>
 ${truncate(cluster, 60)}</span>`
}
<nav aria-label="Pages"><ul>
${renderSections(status, place)}
</ul></nav>
<form class="find" action="/search" role="search" aria-label="Everything">
<input type="search" name="q" aria-label="Pod, IP, Service or node"
 placeholder="Search" autocomplete="off" spellcheck="false" required></form>
<p class="live" id="live" data-state="${lost === null ? 'still' : 'lost'}">
<span class="dot" aria-hidden="true"></span>
<span id="live-word" role="status">${lost === null ? 'as of' : lostWord}</span>
<time id="moment">${formatDateTime(shownAt)}</time></p>
</div></header>
<main id="main" class="wide" tabindex="-1">
<div class="lost" id="lost" role="alert" data-keep></div>
${place !== '/docs' && renderTime(status)}
${renderReplay(status)}
${renderLost(status)}
${warningsOf(status).map(
  (text) => markup`<p class="notice warning" role="status">
<span aria-hidden="true">◆</span> ${text}</p>`,
)}
${main}
</main>
<footer class="wide"><p>${inputText(status)}</p>
<p>endpoint-auditor ${metrics.version} ·
 ${hasMetrics && markup`<a href="/metrics">metrics</a> ·`}
 <a href="/api/v1/findings">findings as JSON</a> · <a href="/readyz">readiness</a>
<span class="keys"> · <kbd>/</kbd> search, <kbd>↑</kbd> <kbd>↓</kbd> in lists</span></p></footer>
</body></html>
`;
  if (at !== null) return keepMoment(html, at);
  // Nothing earlier than the history can be shown.
  const { recordedSince } = status;
  return html.replace(earlierLink, (link, moment: string) =>
    Date.parse(moment) / 1000 < (recordedSince ?? Infinity) ? '' : link,
  );
}
