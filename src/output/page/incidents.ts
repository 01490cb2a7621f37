// Incidents on pages: a list for the overview, the list of all, and a page for each.

import { changeText } from '../../audit/incident/evidence-lines.ts';
import { kinds } from '../../audit/incident/kinds.ts';
import type { ReportedIncident } from '../../audit/incident/report.ts';
import type { PageStatus } from '../../auditor/queries.ts';
import { formatImpact, formatObjects, formatReach } from '../text/incidents.ts';
import { renderCommands, renderFindingList } from './finding-list.ts';
import { renderFrame } from './frame.ts';
import {
  formatAge,
  formatDateTime,
  formatNumber,
  formatTimes,
  type Html,
  markup,
  renderCard,
  renderFlushCard,
  renderList,
  renderMark,
  renderMore,
} from './parts.ts';

/** Open incidents, and resolved ones after them. */
export type IncidentView = Readonly<Record<'open' | 'resolved', readonly ReportedIncident[]>>;

export const noIncidents: IncidentView = { open: [], resolved: [] };

/** Incidents in the list and the timeline of the overview, and findings on the page of one. */
const shown = { overview: 8, timeline: 12, findings: 50 };

export const incidentPath = (id: string): string => `/incidents/${encodeURIComponent(id)}`;

function renderItem(incident: ReportedIncident, now: number): Html {
  const { id, kind, severity, title, objects, reach, since, resolvedAt } = incident;
  const isOpen = resolvedAt === null;
  const tone = isOpen ? severity : 'resolved';
  const mark = renderMark(tone, isOpen ? severity : `resolved ${severity}`);
  const affected = formatReach(reach);
  return markup`
<li class="finding ${tone}" data-row data-key="${id} ${String(!isOpen)}">
<p class="line" data-line>${mark}${' '}
<a class="name" href="${incidentPath(id)}">${title}</a>
<span class="where">${formatObjects(objects)}</span></p>
${affected !== '' && markup`<p class="say" data-line>${affected}</p>`}
<p class="dim" data-line>${formatTimes(since, resolvedAt, now)} · <code>${kind}</code></p></li>`;
}

const renderItems = (incidents: readonly ReportedIncident[], now: number): Html[] =>
  renderList(incidents.map((it) => renderItem(it, now)));

/** The open incidents for the overview, the worst first; null without any. */
export function renderIncidentCard({ open }: IncidentView, now: number): Html | null {
  const more = renderMore(open.length - shown.overview, '/incidents');
  const title = markup`Open incidents <small>${formatNumber(open.length)}, worst first</small>`;
  const first = renderItems(open.slice(0, shown.overview), now);
  return renderFlushCard('incidents', title, [...first, ...more]);
}

/** Seconds of the timeline. */
const day = 86_400;

/** The incidents that were open in the last 24 hours, the latest first; null without any. */
export function renderTimeline({ open, resolved }: IncidentView, now: number): Html | null {
  const recent = [...open, ...resolved]
    .filter(({ since, resolvedAt }) => since !== null && (resolvedAt ?? now) > now - day)
    .sort((a, b) => (b.since ?? 0) - (a.since ?? 0));
  const first = renderList(recent.slice(0, shown.timeline).map((it) => renderTime(it, now)));
  const more = renderMore(recent.length - shown.timeline, '/incidents');
  const title = markup`Incidents of the last 24 hours <small>latest first</small>`;
  return renderFlushCard('timeline', title, [...first, ...more]);
}

/** An incident with a bar of the time in which it was open; the shortest is visible too. */
function renderTime(incident: ReportedIncident, now: number): Html {
  const { id, title, objects, severity, since, resolvedAt } = incident;
  const [from, to] = [since ?? now, resolvedAt ?? now];
  const placeOf = (at: number): number => 100 * Math.min(1, Math.max(0, 1 - (now - at) / day));
  const width = Math.max(0.5, placeOf(to) - placeOf(from));
  const x = Math.min(placeOf(from), 100 - width);
  const times = [formatDateTime(from), resolvedAt === null ? 'now' : formatDateTime(to)].join(
    ' to ',
  );
  return markup`
<li class="finding" data-row data-key="${id} time">
<p class="line" data-line><a class="name" href="${incidentPath(id)}">${title}</a>
<span class="where">${formatObjects(objects)}</span></p>
<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">
<rect class="${severity}" x="${x.toFixed(2)}" width="${width.toFixed(2)}" height="1"></rect></svg>
<p class="dim" data-line>${severity} · ${formatAge(to - from)}, ${times}</p></li>`;
}

/** The page that lists all incidents. */
export function renderIncidentsPage(status: PageStatus, { open, resolved }: IncidentView): string {
  const { now } = status.metrics;
  const latest = [...resolved].reverse();
  const main = markup`<h1>Incidents</h1>
<p class="lead">Each groups the findings that have one cause
 (<a href="/docs/incidents.md">documentation</a>).</p>
${renderFlushCard('open', 'Open', renderItems(open, now), 'None.')}
${renderFlushCard('resolved', 'Resolved', renderItems(latest, now), 'None yet.')}`;
  return renderFrame(status, '/incidents', 'Incidents', main);
}

const renderLines = (lines: readonly (readonly [text: string, at: number | null])[]): Html => {
  const items = lines.map(([text, at]) => {
    const time = at === null ? '' : formatDateTime(at);
    return markup`<li><span>${text}</span> <span class="dim">${time}</span></li>`;
  });
  return markup`<ul class="plain">${items}</ul>`;
};

/** The findings of an incident that are open now, by their names. */
function findingsOf({ findings }: ReportedIncident, { metrics }: PageStatus) {
  const keyOf = (it: ReportedIncident['findings'][number]): string =>
    `${it.namespace}/${it.service} ${it.node ?? ''} ${it.code} ${it.cause ?? ''}`;
  const keys = new Set(findings.map(keyOf));
  return metrics.summary.findings.filter((finding) => keys.has(keyOf(finding)));
}

/** The page of one incident. */
export function renderIncidentPage(status: PageStatus, incident: ReportedIncident): string {
  const { id, kind, severity, title, objects, likely, evidence, changes, remedy } = incident;
  const { now } = status.metrics;
  const isOpen = incident.resolvedAt === null;
  const times = formatTimes(incident.since, incident.resolvedAt, now);
  const all = isOpen ? findingsOf(incident, status) : [];
  const { text, commands, managed } = remedy;
  const causes = likely.map((it) => [`${kinds[it].title} (${it})`, null] as const);
  const affected = formatReach(incident.reach);
  const impact = formatImpact(incident.impact);
  const fix = markup`<p>${text}</p>${renderCommands(commands, managed)}`;
  const json = `/api/v1/incidents/${encodeURIComponent(id)}`;
  const main = markup`
<h1>${title}</h1>
<p class="lead">${renderMark(isOpen ? severity : 'resolved', severity)} ${formatObjects(objects)}
 · ${times}</p>
<p>${affected === '' ? '' : `It affects ${affected}.`} ${impact === '' ? '' : `There, ${impact}.`}
 <a href="/docs/incidents.md#${kind}"><code>${kind}</code></a> · <a href="${json}">JSON</a></p>
${causes.length > 0 && renderCard('likely', 'Likely causes', renderLines(causes))}
${renderCard('evidence', 'Evidence', renderLines(evidence.map((it) => [it.text, it.at])))}
${
  changes.length > 0 &&
  renderCard('changes', 'What changed', renderLines(changes.map((it) => [changeText(it), it.at])))
}
${isOpen && renderCard('fix', 'How to fix it', fix)}
${renderFlushCard(
  'findings',
  markup`Findings <small>${formatNumber(all.length)}</small>`,
  renderFindingList(all.slice(0, shown.findings), now),
)}`;
  return renderFrame(status, '/incidents', title, main);
}
