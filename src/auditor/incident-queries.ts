// Queries about incidents: lists for reports and pages, one by its name, and numbers.

import { bySeverity } from '../audit/finding/catalogue.ts';
import type { Incident } from '../audit/incident/open-incident.ts';
import { type ReportedIncident, reportIncident } from '../audit/incident/report.ts';
import type { Within } from '../audit/summary.ts';
import type { IncidentCounts, IncidentSeries } from '../output/metrics/state.ts';
import type { Auditor } from './auditor.ts';

type IncidentSource = Pick<Auditor, 'incidents' | 'earlier'>;

/** The open incidents and, if wanted, the resolved ones after them. */
export function listIncidents(
  { incidents, earlier }: IncidentSource,
  { timeless = false, resolved = false } = {},
): ReportedIncident[] {
  const report = (all: readonly Incident[]) => all.map((it) => reportIncident(it, timeless));
  const open = report(incidents.list());
  if (!resolved) return open;
  // One that continues after a restart has its earlier name.
  const names = new Set(open.map(({ id }) => id));
  const before = earlier.incidents.filter(({ id }) => !names.has(id));
  return [...open, ...before, ...report(incidents.resolved())];
}

/** The open incidents, the worst first, and the resolved ones, the oldest first. */
export function viewIncidents(
  auditor: IncidentSource,
): Readonly<Record<'open' | 'resolved', readonly ReportedIncident[]>> {
  const all = listIncidents(auditor, { resolved: true });
  const [open, resolved] = [true, false].map((isOpen) =>
    all.filter(({ resolvedAt }) => (resolvedAt === null) === isOpen),
  );
  return { open: (open ?? []).sort(bySeverity), resolved: resolved ?? [] };
}

/** An incident by its name, or that which took it; `null` if it is not known. */
export function findIncident(auditor: IncidentSource, id: string): ReportedIncident | null {
  const { incidents, earlier } = auditor;
  const current = incidents.currentId(id);
  const all = [...incidents.list(), ...incidents.resolved()];
  const found = all.find((incident) => incident.id === current);
  if (found !== undefined) return reportIncident(found);
  return earlier.incidents.findLast((it) => it.id === id || it.id === current) ?? null;
}

export type IncidentMeasures = ReturnType<typeof measureIncidents>;

/** Measures open incidents for /metrics. */
export function measureIncidents({ incidents }: Pick<IncidentSource, 'incidents'>) {
  const counts: IncidentCounts = {};
  const openIncidents = incidents.list().map((incident) => {
    const { kind, severity } = incident;
    const ofKind = (counts[kind] ??= {});
    ofKind[severity] = (ofKind[severity] ?? 0) + 1;
    return seriesOf(incident);
  });
  const forgottenIncidents = incidents.forgotten();
  return { incidents: counts, openIncidents, incidentOf: incidents.idOf, forgottenIncidents };
}

/** The only value; an empty text if there are none or several. */
function onlyOf(values: readonly string[]): string {
  const [first = '', ...others] = new Set(values);
  return others.length === 0 ? first : '';
}

/**
 * Its labels are those of the objects to blame, which stay the same while it is open: findings
 * come and go, and an alert with other labels is another alert.
 */
function seriesOf(incident: Incident): IncidentSeries {
  const { id, kind, objects, findings, worstSeverity: severity, reach } = incident;
  const isNode = (object: string): boolean => object.startsWith('Node ');
  const isService = (object: string): boolean => object.startsWith('Service ');
  const names = objects.map((object) => object.slice(object.lastIndexOf(' ') + 1));
  const namespaces = names.map((name) =>
    name.includes('/') ? name.slice(0, name.indexOf('/')) : '',
  );
  // An object that someone edited is one of the Service of its findings.
  const edited = kind === 'edited-by-someone' ? findings.map(({ service }) => service) : [];
  const services = objects.every(isService)
    ? names.map((name) => name.slice(name.indexOf('/') + 1))
    : edited;
  const namespace = onlyOf(namespaces);
  return {
    id,
    kind,
    severity,
    namespace,
    service: namespace === '' ? '' : onlyOf(services),
    node: objects.every(isNode) ? onlyOf(names) : '',
    services: reach.services,
  };
}

/** Whether an incident is about one of the Services that `within` selects, or about none at all. */
export function affects(
  { findings, objects }: Pick<ReportedIncident, 'findings' | 'objects'>,
  within: Within,
): boolean {
  if (findings.length > 0) {
    return findings.some((it) => it.namespace === '' || within(it.namespace, it.service));
  }
  const services = objects.flatMap((it) => {
    const [, namespace, name] = /^Service ([^/]*)\/(.*)$/.exec(it) ?? [];
    return namespace === undefined || name === undefined ? [] : { namespace, name };
  });
  return services.length === 0 || services.some(({ namespace, name }) => within(namespace, name));
}
