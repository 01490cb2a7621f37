// Deprecated names of metric families. /metrics has each family by both names for one release.

import type { MetricFamily } from './exposition.ts';

interface Renamed {
  readonly before: string;
  readonly after: string;
  /** Labels that the old name has under another name. */
  readonly labels?: Readonly<Record<string, string>>;
}

/** Release 0.3 removes them. */
const renamed: readonly Renamed[] = [
  { before: 'services_foreign', after: 'services_unmanaged' },
  { before: 'services_left_out', after: 'services_without_series' },
  { before: 'clock_ahead_seconds', after: 'clock_offset_seconds' },
  { before: 'journeys_total', after: 'pod_changes_total' },
  { before: 'journeys_ended_total', after: 'pod_changes_ended_total' },
  { before: 'journeys_open', after: 'pod_changes_open' },
  { before: 'journeys_traced_total', after: 'pod_changes_traced_total' },
  {
    before: 'services_hinted',
    after: 'services_with_hints',
    labels: { coverage: 'endpoints' },
  },
  { before: 'services_unhinted', after: 'services_without_hints' },
  { before: 'object_bytes_max', after: 'object_max_bytes' },
  { before: 'node_frontends_divergent', after: 'node_service_ports_divergent' },
  { before: 'agent_visits_total', after: 'agent_requests_total' },
];

/** The families by their deprecated names. Throws an error if one does not exist. */
export const renameFamilies = <State>(
  families: readonly MetricFamily<State>[],
): MetricFamily<State>[] =>
  renamed.map(({ before, after, labels = {} }) => {
    const family = families.find(({ name }) => name === `endpoint_auditor_${after}`);
    if (family === undefined) throw new Error(`No family ${after}`);
    const rename = <Value>(record: Readonly<Record<string, Value>>): Record<string, Value> =>
      Object.fromEntries(Object.entries(record).map(([key, value]) => [labels[key] ?? key, value]));
    return {
      ...family,
      name: `endpoint_auditor_${before}`,
      help: `Deprecated: use ${family.name}.`,
      labels: rename(family.labels),
      collect: (state) =>
        family.collect(state).map((sample) => ({ ...sample, labels: rename(sample.labels) })),
    };
  });
