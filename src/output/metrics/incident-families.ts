// The metric family with a series of each open incident, and the names that series of findings may
// have for their incident. Both have the same limit, so that an alert on an incident and the alerts
// on its findings always have equal labels (docs/runbook.md).

import { severities } from '../../audit/finding/catalogue.ts';
import { incidentKinds } from '../../audit/incident/kinds.ts';
import { getOrInsert } from '../../model/collections.ts';
import { familiesOf, type Sample } from './exposition.ts';
import type { MetricsState } from './state.ts';

const { samples } = familiesOf<MetricsState>();

/**
 * Open incidents with a name in a label. Ten of one kind become one at the next review
 * (audit/incident/incidents.ts), so only findings of the last second can exceed it.
 */
export const maxNamedIncidents = 9 * incidentKinds.length;

type OpenIncidents = Pick<MetricsState, 'openIncidents'>;

/** The names that labels may have: those of the oldest incidents. */
export const namedIncidents = ({ openIncidents }: OpenIncidents): ReadonlySet<string> =>
  new Set(openIncidents.slice(0, maxNamedIncidents).map(({ id }) => id));

function countServices(state: OpenIncidents): Sample[] {
  const named = namedIncidents(state);
  const rest = new Map<string, Sample & { value: number }>();
  const own: Sample[] = [];
  for (const { id, kind, severity, namespace, service, node, services } of state.openIncidents) {
    if (named.has(id)) {
      const labels = { incident: id, kind, severity, namespace, service, node };
      own.push({ labels, value: services });
      continue;
    }
    const labels = { incident: '', kind, severity, namespace: '', service: '', node: '' };
    getOrInsert(rest, `${kind} ${severity}`, () => ({ labels, value: 0 })).value += services;
  }
  return [...own, ...rest.values()];
}

export const incidentServices = samples(
  'gauge',
  'Services that each open incident affects, 0 if it affects none. The labels have its name, ' +
    'kind and worst severity, and the namespace, Service or node that it is about if that is ' +
    `one. No series without an open incident. Above ${String(maxNamedIncidents)} incidents, the ` +
    'others share series with an empty name.',
  countServices,
  {
    incident: [],
    kind: incidentKinds,
    severity: severities,
    namespace: [],
    service: [],
    node: [],
  },
);
