// The time bar: a slider over the recorded time, with the findings and the lag of then above it. It
// works without scripts: the slider is a form, and `?at=` is the moment that a page shows.

import { lagOutputs } from '../../audit/measure/lag.ts';
import type { PageStatus } from '../../auditor/queries.ts';
import { formatCount, formatLag, formatTime } from '../text/format.ts';
import { formatDateTime, formatSpan, type Html, markup } from './parts.ts';

/** Columns of the histogram. */
const columns = 96;

const height = 20;

/** A place in the page of a moment: the server of the present replaces it by the time bar. */
export const timeBarPlace = '<div id="time-bar"></div>';

type Column = Readonly<ReturnType<typeof columnsOf>[number]>;

type Recorded = Pick<PageStatus, 'metrics' | 'resolved' | 'lag'>;

/**
 * Of equal parts of the time: the findings that were open at some time of it, and the longest lag
 * of an output, seconds; 0 if nothing changed.
 */
function columnsOf({ metrics, resolved, lag }: Recorded, from: number) {
  const { now, summary } = metrics;
  const seconds = (now - from) / columns;
  const placeOf = (at: number): number =>
    Math.min(columns - 1, Math.max(0, Math.floor((at - from) / seconds)));
  const all = Array.from({ length: columns }, () => ({ findings: 0, lag: 0 }));
  for (const { openedAt, resolvedAt } of [...summary.findings, ...resolved]) {
    if (resolvedAt !== null && resolvedAt < from) continue;
    for (const column of all.slice(placeOf(openedAt), placeOf(resolvedAt ?? now) + 1)) {
      column.findings++;
    }
  }
  for (const [index, at] of lag.at.entries()) {
    if (at < from) continue;
    const column = all[placeOf(at)];
    const longest = Math.max(...lagOutputs.map((output) => lag.longest[output][index] ?? 0));
    if (column !== undefined) column.lag = Math.max(column.lag, longest);
  }
  return all;
}

function renderHistogram(shown: readonly Column[]): Html {
  const most = Math.max(1, ...shown.map(({ findings }) => findings));
  const longest = Math.max(...shown.map(({ lag }) => lag));
  const bars = shown.map(({ findings, lag }, x) => {
    const size = (height * findings) / most;
    const share = longest === 0 ? 0 : (height * lag) / longest;
    const [high, low] = [size, share].map((it) => Number(it.toFixed(1)));
    return markup`${
      findings > 0 &&
      markup`<rect class="open" x="${x}"
 y="${height - (high ?? 0)}" width="1" height="${high ?? 0}"></rect>`
    }
${
  lag > 0 &&
  markup`<rect class="late" x="${x}" y="${height + 2}" width="1"
 height="${low ?? 0}"></rect>`
}`;
  });
  const label = `Open findings over time, at most ${most}; longest lag ${formatLag(longest)}`;
  return markup`<svg viewBox="0 0 ${columns} ${2 * height + 2}" preserveAspectRatio="none"
 role="img" aria-label="${label}">${bars}</svg>`;
}

const steps = [-3600, -600, -60, -10, 10, 60, 600, 3600] as const;

const stepText = (seconds: number): string =>
  (seconds < 0 ? '−' : '+') + formatSpan(Math.abs(seconds));

/**
 * The time bar of a page that shows the moment `at`, or the present (null). Null if nothing is
 * recorded.
 */
export function renderTimeBar(status: PageStatus, at: number | null): Html | null {
  const { recordedSince: since, metrics, resolved } = status;
  const { now } = metrics;
  if (since === null || now - since < 1) return null;
  const from = Math.floor(since);
  const to = Math.floor(now);
  const value = Math.round(Math.min(Math.max(at ?? to, from), to));
  const links = steps.flatMap((seconds) => {
    const moment = value + seconds;
    if (moment <= from || moment >= to) return [];
    return [markup`<li><a href="?at=${moment}">${stepText(seconds)}</a></li>`];
  });
  const open = metrics.summary.findings.length;
  const counts = `${formatCount(open, 'finding')} open, ${resolved.length} resolved`;
  return markup`<form class="times" method="get" aria-label="Time" id="time-bar">
${renderHistogram(columnsOf(status, since))}
<input type="range" name="at" min="${from}" max="${to}" step="1" value="${value}"
 aria-label="Moment to show" aria-valuetext="${formatDateTime(value)}">
<p><span class="dim">${formatDateTime(from)}</span>
<output>${at === null ? `now: ${counts}` : formatDateTime(value)}</output>
<button>Show</button></p>
<ul class="chips">${links}${
    at !== null && markup`<li><a href="?" class="now">Live again</a></li>`
  }</ul></form>`;
}

/** The notice of a page that shows a moment of the history. */
export const renderHistoryNotice = (at: number): Html =>
  markup`<p class="notice history" role="status"><span aria-hidden="true">◷</span>
 History: this is the state at ${formatDateTime(at)}. <a href="?">Live again</a></p>`;

/** The page with the query of its request in the links and the form of its time bar. */
export function keepQuery(page: string, query: URLSearchParams): string {
  const others = [...query].filter(([name]) => name !== 'at');
  if (others.length === 0) return page;
  const text = new URLSearchParams(others).toString().replaceAll('&', '&amp;');
  const hidden = others.map(
    ([name, value]) => markup`<input type="hidden" name="${name}" value="${value}">`,
  );
  return page
    .replaceAll(' href="?"', () => ` href="?${text}"`)
    .replaceAll(' href="?at=', () => ` href="?${text}&amp;at=`)
    .replace(/<form class="times"[^>]*>/, (start) => start + markup`${hidden}`.html);
}

const ownAddress = /(<a [^>]*?href=")(\/(?!assets\/|docs\b|metrics\b|readyz\b)[^"#]*)(#[^"]*)?"/g;

/** The page with the moment in all links and forms to other pages. */
export function keepMoment(page: string, at: number): string {
  const text = formatTime(at);
  return page
    .replace(ownAddress, (whole, start: string, path: string, anchor = '') => {
      if (/[?;&]at=/.test(path)) return whole;
      return `${start}${path}${path.includes('?') ? '&amp;' : '?'}at=${text}${anchor}"`;
    })
    .replace(/<form (?![^>]*class="times")[^>]*>/g, (start) => {
      return `${start}<input type="hidden" name="at" value="${text}">`;
    });
}
