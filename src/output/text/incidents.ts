// Incidents as text: a header line, then reach, evidence, changes and what to do.

import { fewOf } from '../../audit/explain/explanation.ts';
import { bySeverity } from '../../audit/finding/catalogue.ts';
import { changeText } from '../../audit/incident/evidence-lines.ts';
import { kinds } from '../../audit/incident/kinds.ts';
import type { ReportedIncident } from '../../audit/incident/report.ts';
import { severityStyles } from './findings.ts';
import {
  escapeInvisible,
  formatCount,
  formatMoment,
  paint,
  type RenderOptions,
  wrap,
} from './format.ts';

/** More objects, changes and incidents are only counted. */
const most = { objects: 5, changes: 5, incidents: 50 };

/** `Node a, Node b and 3 more`. */
export const formatObjects = (objects: readonly string[]): string => fewOf(objects, most.objects);

/** `3 Services in 1 namespace, 1 node, 8 endpoints`; '' if it affects nothing that is known. */
export function formatReach({ services, namespaces, nodes, endpoints }: ReportedIncident['reach']) {
  const inside = services === 0 ? '' : ` in ${formatCount(namespaces, 'namespace')}`;
  const parts = [
    services === 0 ? '' : formatCount(services, 'Service') + inside,
    nodes === 0 ? '' : formatCount(nodes, 'node'),
    endpoints === 0 ? '' : formatCount(endpoints, 'endpoint'),
  ];
  return parts.filter((part) => part !== '').join(', ');
}

const percent = (share: number): string => `${Number((100 * share).toPrecision(2))}%`;

/** What an incident does to the traffic of its Services, as a sentence; '' if that is not known. */
export function formatImpact(impact: ReportedIncident['impact']): string {
  if (impact === null) return '';
  const { misrouted, unused, worst } = impact;
  const most = worst > misrouted ? `, at most ${percent(worst)} at one place` : '';
  return (
    `${percent(misrouted)} of new connections are misrouted${most}, ` +
    `and ${percent(unused)} of the ready pods are unused`
  );
}

function renderIncident(
  incident: ReportedIncident,
  now: number | null,
  options: RenderOptions,
): string[] {
  const { kind, severity, title, objects, likely, since, resolvedAt } = incident;
  const { evidence, changes, impact, reach, remedy } = incident;
  const formatAt = (at: number | null): string =>
    at === null ? '' : ` ${formatMoment(at, now ?? at)}`;
  const block = (name: string, text: string): string[] =>
    text === '' ? [] : wrap(`${name}: ${text}`, '  ', '    ', options);
  const times = [
    since === null ? '' : `since${formatAt(since)}`,
    resolvedAt === null ? '' : `resolved${formatAt(resolvedAt)}`,
  ];
  const head = [severity, 'incident', kind, formatObjects(objects), ...times];
  const line = head.filter((part) => part !== '').join('  ');
  const painted = paint(options.colour, severityStyles[severity], severity);
  const header = painted + escapeInvisible(line).slice(severity.length);
  if (resolvedAt !== null) return [header];
  const causes = likely.map((it) => `${kinds[it].title} (${it})`).join('; ');
  return [
    header,
    ...wrap(`${title}.`, '  ', '  ', options),
    ...block('affects', formatReach(reach)),
    ...block('impact', formatImpact(impact)),
    ...block('likely causes', causes),
    ...evidence.flatMap(({ text, at }) => block('evidence', text + formatAt(at))),
    ...changes
      .slice(0, most.changes)
      .flatMap((change) => block('changed', changeText(change) + formatAt(change.at))),
    ...block('fix', remedy.text),
    ...remedy.commands.map((command) => `    ${command}`),
  ];
}

/** An incident in one line, for what belongs to it. */
export function formatIncident({ kind, severity, title, objects, reach }: ReportedIncident) {
  const affected = formatReach(reach);
  const rest = affected === '' ? '' : `; it affects ${affected}`;
  return `incident: ${title} (${severity} ${kind}, ${formatObjects(objects)})${rest}`;
}

/** Selects open incidents first, then severe ones, and keeps the given order. */
function shownOf(incidents: readonly ReportedIncident[]): ReportedIncident[] {
  const isResolved = ({ resolvedAt }: ReportedIncident): number => Number(resolvedAt !== null);
  return incidents
    .map((it, index) => ({ it, index }))
    .sort((a, b) => isResolved(a.it) - isResolved(b.it) || bySeverity(a.it, b.it))
    .slice(0, most.incidents)
    .sort((a, b) => a.index - b.index)
    .map(({ it }) => it);
}

/**
 * Lines that end with an empty one, open incidents first; none without incidents. Moments of
 * another day than `now` have their date.
 */
export function renderIncidents(
  incidents: readonly ReportedIncident[],
  now: number | null,
  options: RenderOptions,
): string[] {
  const more = incidents.length - most.incidents;
  const rest = more > 0 ? [`${formatCount(more, 'more incident')}: -o json lists all`, ''] : [];
  const blocks = shownOf(incidents).flatMap((incident) => [
    ...renderIncident(incident, now, options),
    '',
  ]);
  return [...blocks, ...rest];
}
