// The frame of every page with the assets that it loads: none is from another server. A page is
// complete without scripts; a browser without scripts reloads it every 15 seconds.

import { createHash } from 'node:crypto';

import type { PageStatus } from '../../auditor/queries.ts';
import { formatCount, formatUnverified, truncate } from '../text/format.ts';
import { clientScript, style, uplotScript } from './asset-texts.ts';
import { formatMoment, type Html, markup } from './parts.ts';

const icon =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" ' +
  'rx="8" fill="#0f766e"/><g fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round" ' +
  'stroke-linejoin="round"><path d="M7 11h9"/><path d="M7 21h6"/><path d="m17 20 3.5 3.5L26 ' +
  '13"/></g></svg>';

const contents = {
  'style.css': style,
  'page.js': clientScript,
  'charts.js': uplotScript,
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

function warningsOf({ metrics, notReady }: PageStatus): string[] {
  if (notReady !== null) return [];
  return [...metrics.watches.inputs].flatMap(([resource, { state, blindSince }]) => {
    if (state !== 'stale' && state !== 'relisting') return [];
    const seconds = Math.round(metrics.now - (blindSince ?? metrics.now));
    return `${resource} have not been seen for ${seconds} s: what rests on them is unknown`;
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
    ['/findings', 'Findings', summary.findings.length],
    ['/services', 'Services', summary.services],
    ['/nodes', 'Nodes', summary.nodes.length],
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

/** A whole page; `place` is the path of its section. */
export function renderFrame(
  status: PageStatus,
  place: '/' | '/findings' | '/services' | '/nodes',
  title: string,
  main: Html,
): string {
  const { metrics, revision } = status;
  return markup`<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title} · endpoint-auditor</title>
<link rel="stylesheet" href="${assetPath('style.css')}">
<link rel="icon" href="${assetPath('icon.svg')}">
<script src="${assetPath('charts.js')}" defer></script>
<script src="${assetPath('page.js')}" defer></script>
<noscript><meta http-equiv="refresh" content="15"></noscript>
</head><body data-revision="${revision}">
<a class="skip" href="#main">Skip to content</a>
<header><div class="wide">
<a class="brand" href="/"><span class="logo" aria-hidden="true"></span>endpoint-auditor</a>
<nav aria-label="Pages"><ul>
${renderSections(status, place)}
</ul></nav>
<p class="live" id="live" data-state="still"><span class="dot" aria-hidden="true"></span>
<span id="live-word" role="status">as of</span>
<time id="moment">${formatMoment(metrics.now)}</time></p>
</div></header>
<main id="main" class="wide" tabindex="-1">
<div class="lost" id="lost" role="alert" data-keep></div>
${warningsOf(status).map(
  (text) => markup`<p class="notice warning" role="status">
<span aria-hidden="true">◆</span> ${text}</p>`,
)}
${main}
</main>
<footer class="wide"><p>${inputText(status)}</p>
<p>endpoint-auditor ${metrics.version} · <a href="/metrics">metrics</a> ·
<a href="/api/v1/findings">findings as JSON</a> · <a href="/readyz">readiness</a> ·
<span class="keys"><kbd>/</kbd> search, <kbd>↑</kbd> <kbd>↓</kbd> in lists</span></p></footer>
</body></html>
`.html;
}
