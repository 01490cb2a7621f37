// The frame of every page: its head, the links to the other pages, the state of the connection, and
// the foot.
//
// A page is complete without scripts; a browser without scripts reloads it every 15 seconds. With
// the script (browser/) it follows the cluster, and a mark in the head shows whether it does.

import { truncate, formatCount } from '../text/format.ts';
import { assetPath } from './assets.ts';
import { formatMoment } from './parts.ts';
import type { PageStatus } from './status.ts';
import type { Html } from './template.ts';
import { compileTemplate } from './template.ts';

const places = [
  ['/', 'Overview'],
  ['/findings', 'Findings'],
  ['/services', 'Services'],
  ['/nodes', 'Nodes'],
] as const;

export interface PageContent {
  /** The path of the section of the page. */
  readonly place: (typeof places)[number][0];
  readonly title: string;
  readonly main: Html;
}

const frameTemplate = compileTemplate(`<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<title><%= it.title %> · endpoint-auditor</title>
<link rel="stylesheet" href="<%= it.paths.style %>">
<link rel="icon" href="<%= it.paths.icon %>">
<script src="<%= it.paths.charts %>" defer></script>
<script src="<%= it.paths.script %>" defer></script>
<noscript><meta http-equiv="refresh" content="15"></noscript>
</head><body data-revision="<%= it.revision %>">
<a class="skip" href="#main">Skip to content</a>
<header><div class="wide">
<a class="brand" href="/"><span class="logo" aria-hidden="true"></span>endpoint-auditor</a>
<nav aria-label="Pages"><ul>
<% for (const one of it.places) { %>
<li><a href="<%= one.path %>"<% if (one.isHere) { %> aria-current="page"<% } %>>
<%= one.name %><% if (one.count !== '') { %> <span class="count"><%= one.count %></span>
<% } %></a></li>
<% } %>
</ul></nav>
<p class="live" id="live" data-state="still"><span class="dot" aria-hidden="true"></span>
<span id="live-word" role="status">as of</span>
<time id="moment"><%= it.moment %></time></p>
</div></header>
<main id="main" class="wide" tabindex="-1">
<div class="lost" id="lost" role="alert" data-keep></div>
<% for (const text of it.warnings) { %><p class="notice warning" role="status">
<span aria-hidden="true">◆</span> <%= text %></p><% } %>
<%~ it.main %>
</main>
<footer class="wide"><p><%= it.input %></p>
<p>endpoint-auditor <%= it.version %> · <a href="/metrics">metrics</a> ·
<a href="/api/v1/findings">findings as JSON</a> · <a href="/readyz">readiness</a> ·
<span class="keys"><kbd>/</kbd> search, <kbd>↑</kbd> <kbd>↓</kbd> in lists</span></p></footer>
</body></html>
`);

/** One sentence for each resource whose watch is interrupted. */
function warningsOf({ metrics, notReady }: PageStatus): string[] {
  if (notReady !== null) return [];
  const { inputs } = metrics.watches;
  return [...inputs].flatMap(([resource, { state, blindSince }]) => {
    if (state !== 'stale' && state !== 'relisting') return [];
    const seconds = Math.round(metrics.now - (blindSince ?? metrics.now));
    return `${resource} have not been seen for ${seconds} s: what rests on them is unknown`;
  });
}

function inputText({ metrics, kubernetes, source }: PageStatus): string {
  const parts = [
    truncate(source, 200),
    kubernetes === null ? '' : `Kubernetes ${truncate(kubernetes, 40)}`,
    `shadowed as 1.${metrics.releaseMinor}`,
    formatCount(metrics.summary.services, 'Service'),
  ];
  return parts.filter((part) => part !== '').join(' · ');
}

/** A whole page. */
export function renderFrame(status: PageStatus, page: PageContent): string {
  const { metrics, revision } = status;
  const { summary } = metrics;
  const counts: Readonly<Record<string, number>> = {
    '/findings': summary.findings.length,
    '/services': summary.services,
    '/nodes': summary.nodes.length,
  };
  return frameTemplate({
    ...page,
    places: places.map(([path, name]) => ({
      path,
      name,
      count: counts[path]?.toLocaleString('en') ?? '',
      isHere: path === page.place,
    })),
    revision,
    moment: formatMoment(metrics.now),
    input: inputText(status),
    version: metrics.version,
    warnings: warningsOf(status),
    paths: {
      style: assetPath('style.css'),
      script: assetPath('page.js'),
      charts: assetPath('charts.js'),
      icon: assetPath('icon.svg'),
    },
  });
}
