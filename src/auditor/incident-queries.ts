// Queries about incidents: lists for reports and pages, one by its name, and counts.

import { bySeverity } from '../audit/finding/catalogue.ts';
import { type ReportedIncident, reportIncident, severityOf } from '../audit/incident/report.ts';
import type { Within } from '../audit/summary.ts';
import type { IncidentCounts } from '../output/metrics/state.ts';
import type { Auditor } from './auditor.ts';

type IncidentSource = Pick<Auditor, 'incidents' | 'findings'>;

/** The open incidents and, if wanted, the resolved ones after them. */
export function listIncidents(
  { incidents, findings }: IncidentSource,
  { timeless = false, resolved = false } = {},
): ReportedIncident[] {
  const open = incidents.list(findings.open());
  const all = resolved ? [...open, ...incidents.resolved()] : open;
  return all.map((incident) => reportIncident(incident, timeless));
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
  const { incidents, findings } = auditor;
  const current = incidents.currentId(id);
  const all = [...incidents.list(findings.open()), ...incidents.resolved()];
  const found = all.find((incident) => incident.id === current);
  return found === undefined ? null : reportIncident(found);
}

/** Open incidents by kind and severity. */
export function countIncidents({ incidents, findings }: IncidentSource) {
  const counts: IncidentCounts = {};
  for (const { kind, findings: members } of incidents.list(findings.open())) {
    const ofKind = (counts[kind] ??= {});
    const severity = severityOf(kind, members);
    ofKind[severity] = (ofKind[severity] ?? 0) + 1;
  }
  return counts;
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
