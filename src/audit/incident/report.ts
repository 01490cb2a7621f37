// An incident as every output shows it: with its severity, its reach and its remedy.

import type { Finding } from '../finding/catalogue.ts';
import { fillRemedy, type Remedy, remedyOf } from '../finding/remedies.ts';
import type { Incident } from './open-incident.ts';
import { type IncidentKind, kinds } from './kinds.ts';

/** What distinguishes a finding from the others that are open. */
type FindingName = Pick<Finding, 'code' | 'cause' | 'output' | 'namespace' | 'service' | 'node'>;

type Omitted = 'findings' | 'since' | 'openedAt' | 'services' | 'worstSeverity';

export interface ReportedIncident extends Omit<Incident, Omitted> {
  /** `null` for a dump, whose differences have no known age. */
  readonly since: number | null;
  readonly openedAt: number | null;
  readonly title: string;
  readonly remedy: Remedy;
  readonly findings: readonly FindingName[];
}

/** The remedy of the kind with the names of the incident, or that of its only finding. */
function remedyFor(kind: IncidentKind, { findings, object }: Incident): Remedy {
  const [first] = findings;
  const isKnown = kind === 'service-configuration' || kind === 'upstream-limit';
  if (first !== undefined && isKnown) return remedyOf(first);
  const [objectKind = '', name = ''] = object.split(' ');
  const [namespace = '', service = ''] = objectKind === 'Service' ? name.split('/') : [];
  const node = objectKind === 'Node' ? name : null;
  return fillRemedy(kinds[kind], first ?? { namespace, service, node, differences: [] });
}

/** `timeless` of a dump, which shows one moment. */
export function reportIncident(incident: Incident, timeless = false): ReportedIncident {
  const { id, kind, severity, object, objects, likely, changes, resolvedAt } = incident;
  const { since, openedAt, findings, evidence, impact, reach } = incident;
  const shown = { id, kind, severity, object, objects, likely, changes, resolvedAt, impact, reach };
  return {
    ...shown,
    title: kinds[kind].title,
    since: timeless ? null : since,
    openedAt: timeless ? null : openedAt,
    evidence: timeless ? evidence.map(({ text }) => ({ text, at: null })) : evidence,
    remedy: remedyFor(kind, incident),
    findings: findings.map(({ code, cause, output, namespace, service, node }) => {
      return { code, cause, output, namespace, service, node };
    }),
  };
}
