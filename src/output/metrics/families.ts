// The catalogue of metric families, from which /metrics and docs/metrics.md are both made.
//
// Names follow Prometheus' conventions: the prefix endpoint_auditor_, base units, counters in
// _total, no label that is also in the name. No pod, address or object is a label: use
// /api/v1/findings and reports for those. A Service is one only in service-families.ts. prom-client
// makes the families of the process (metrics.ts).

import { catalogue, severities } from '../../audit/finding/catalogue.ts';
import { unknownReasons, verdicts } from '../../audit/finding/verdicts.ts';
import { durationBounds } from '../../audit/measure/lag.ts';
import type { InputState } from '../../audit/pending/progress.ts';
import { verdictOutputs } from '../../audit/service/verdict.ts';
import { resources } from '../../model/objects.ts';
import type { MetricFamily, Sample } from './family.ts';
import { familiesOf } from './family.ts';
import {
  lagFamilies,
  packingFamilies,
  sizeFamilies,
  traceFamilies,
} from './measurement-families.ts';
import type { MetricsState, OpenedFindings } from './state.ts';
import {
  agentStates,
  countOpened,
  reconnectReasons,
  relistReasons,
  visitResults,
} from './state.ts';

const { gauge, counter, samples } = familiesOf<MetricsState>('endpoint_auditor_');
const experimental = familiesOf<MetricsState>('endpoint_auditor_', 'experimental');

const keysOf = <Key extends string>(record: Readonly<Record<Key, unknown>>): Key[] =>
  Object.keys(record) as Key[];

const codes = keysOf(catalogue);

/** One sample per code with its usual severity, and one per exception that occurred. */
function samplesByCode(counts: OpenedFindings): Sample[] {
  return codes.flatMap((code) =>
    severities.flatMap((severity) => {
      const fallback = catalogue[code].severity === severity ? 0 : undefined;
      const value = counts[code]?.[severity] ?? fallback;
      return value === undefined ? [] : [{ labels: { code, severity }, value }];
    }),
  );
}

/** A record, so that the compiler requires an entry for a new state. */
const watchStates = keysOf<InputState>({
  listing: true,
  synced: true,
  relisting: true,
  stale: true,
  off: true,
});

/** The reasons to drop input that have a series from the start. */
const dropReasons = ['stale', 'repeated', 'unreadable', 'skipped'];

/** The counters of what watches sent, by result. */
const frameCounters = {
  delivered: 'events',
  repeated: 'repeated',
  stale: 'stale',
  bookmark: 'bookmarks',
  garbled: 'badFrames',
  unreadable: 'unreadable',
} as const;

const auditFamilies = [
  samples(
    'gauge',
    'findings',
    'Findings that stand, by code and severity.',
    ({ summary }) => {
      const counts: OpenedFindings = {};
      for (const finding of summary.findings) countOpened(counts, finding);
      return samplesByCode(counts);
    },
    { code: codes, severity: severities },
  ),
  samples(
    'counter',
    'findings_opened_total',
    'Findings opened since the start, those that are resolved included.',
    ({ opened }) => samplesByCode(opened),
    { code: codes, severity: severities },
  ),
  gauge('services', 'Services that exist.', ({ summary }) => summary.services),
  gauge(
    'services_foreign',
    'Services, or names without a Service, whose endpoints somebody else writes; not judged.',
    ({ summary }) => summary.foreign,
  ),
  gauge(
    'outputs',
    'Outputs of Services by verdict; a Service has one per output that somebody must write, ' +
      'and a Service port one (node) per node whose rules are known.',
    ({ summary }, { output, verdict }) => summary.verdicts[output][verdict],
    { output: verdictOutputs, verdict: verdicts },
  ),
  gauge(
    'outputs_unknown',
    'Outputs that cannot be judged and Services that cannot be read, by the reason.',
    ({ summary }, { reason }) => summary.unknown[reason] ?? 0,
    { reason: unknownReasons },
  ),
  gauge(
    'pending_oldest_seconds',
    'Age of the oldest difference that is within the settle window; 0 where there is none.',
    ({ summary, now }, { output }) => Math.max(0, now - (summary.pendingSince[output] ?? now)),
    { output: verdictOutputs },
  ),
  experimental.histogram(
    'audit_duration_seconds',
    'How long taking in one entry of the input kept the process busy, judging included; full: ' +
      'judging began with it, and everything was judged.',
    durationBounds,
    ({ durations }, { scope }) => durations[scope],
    { scope: ['full', 'change'] },
  ),
  gauge(
    'services_with_series',
    'Services that have series of their own.',
    ({ perService }) => perService.rows.length,
  ),
  gauge(
    'services_left_out',
    'Services that would have series of their own but for --metrics.max-services.',
    ({ perService }) => perService.leftOut,
  ),
];

const watchFamilies = [
  gauge(
    'ready',
    'Whether all that is needed is known and was seen within a minute: 1, else 0.',
    ({ ready }) => (ready ? 1 : 0),
  ),
  gauge(
    'watch_state',
    'The state of the watch of a resource: 1 for the one that it is in, else 0.',
    ({ watches }, { resource, state }) => (watches.inputs.get(resource)?.state === state ? 1 : 0),
    { resource: resources, state: watchStates },
  ),
  gauge(
    'watch_unseen_seconds',
    'For how long the watch of a resource has not been synced; 0 while it is.',
    ({ watches, now }, { resource }) =>
      Math.max(0, now - (watches.inputs.get(resource)?.blindSince ?? now)),
    { resource: resources },
  ),
  counter(
    'confirm_reads_total',
    'Reads of a Service before a difference of it becomes a finding: it stands (confirmed), ' +
      'the watch is behind what was read (lagging), or the read failed.',
    ({ watches }, { result }) => watches.confirmations[result],
    { result: ['confirmed', 'lagging', 'failed'] },
  ),
  experimental.counter(
    'watch_requests_total',
    'Lists that were complete, and watches that were accepted.',
    ({ watches }, { resource, verb }) =>
      watches.counters.get(resource)?.[verb === 'list' ? 'lists' : 'watches'] ?? 0,
    { resource: resources, verb: ['list', 'watch'] },
  ),
  experimental.counter(
    'watch_frames_total',
    'What watches and lists have sent, by what became of it.',
    ({ watches }, { resource, result }) =>
      watches.counters.get(resource)?.[frameCounters[result]] ?? 0,
    { resource: resources, result: keysOf(frameCounters) },
  ),
  experimental.counter(
    'watch_refusals_total',
    'Requests that the API server refused.',
    ({ watches }, { resource, reason }) => watches.counters.get(resource)?.[reason] ?? 0,
    { resource: resources, reason: ['throttled', 'unauthorised', 'denied'] },
  ),
  experimental.counter(
    'watch_relists_total',
    'New lists since history was lost.',
    ({ watches }, { resource, reason }) => watches.counters.get(resource)?.relists[reason] ?? 0,
    { resource: resources, reason: relistReasons },
  ),
  experimental.counter(
    'watch_reconnects_total',
    'Watches that ended and were opened again.',
    ({ watches }, { resource, reason }) => watches.counters.get(resource)?.reconnects[reason] ?? 0,
    { resource: resources, reason: reconnectReasons },
  ),
  experimental.counter(
    'watch_bytes_total',
    'Bytes that lists and watches have sent.',
    ({ watches }, { resource }) => watches.counters.get(resource)?.bytes ?? 0,
    { resource: resources },
  ),
];

const agentFamilies = [
  gauge(
    'node_agents',
    'Nodes by how their agent stands: it answers, is not heard of (stale), does not accept us ' +
      'or is not understood (refused), or there is none (absent).',
    ({ agents }, { state }) => agents.states[state],
    { state: agentStates },
  ),
  gauge(
    'node_report_oldest_seconds',
    'Age of the oldest report of an agent that answers; 0 without any.',
    ({ agents, now }) => Math.max(0, now - (agents.oldestSeenAt ?? now)),
  ),
  experimental.gauge(
    'node_frontends_divergent',
    'Frontends of all nodes whose digest is not the one that follows from the cluster; those ' +
      'that no digest can tell of, such as with several right fates, are not among them.',
    ({ agents }) => agents.divergent,
  ),
  experimental.counter(
    'agent_visits_total',
    'Visits to agents: a report was there (seen), there was none yet (early), the agent did ' +
      'not accept us or was not understood (refused), or it did not answer (silent).',
    ({ agents }, { result }) => agents.visits[result],
    { result: visitResults },
  ),
  experimental.counter(
    'agent_bytes_total',
    'Bytes of the answers of agents.',
    ({ agents }) => agents.bytes,
  ),
];

const inputFamilies = [
  experimental.samples(
    'counter',
    'dropped_total',
    'Input that was not used: events older than what is held (stale) or equal to it ' +
      '(repeated), objects that could not be read, lines that were skipped.',
    ({ dropped }) =>
      [...new Set([...dropReasons, ...Object.keys(dropped)])].map((reason) => {
        return { labels: { reason }, value: dropped[reason] ?? 0 };
      }),
    { reason: dropReasons },
  ),
  gauge(
    'input_timestamp_seconds',
    'The clock of the input, which is not that of the scrape when a recording is replayed.',
    ({ now }) => now,
  ),
  gauge(
    'input_start_timestamp_seconds',
    'When the input began, on its own clock.',
    ({ startedAt }) => startedAt,
  ),
  samples(
    'gauge',
    'build_info',
    'Always 1; the label is the version of endpoint-auditor.',
    ({ version }) => [{ labels: { version }, value: 1 }],
    { version: [] },
  ),
  samples(
    'gauge',
    'release_info',
    'Always 1; the label is the Kubernetes release whose controllers are shadowed.',
    ({ releaseMinor }) => [{ labels: { release: `1.${releaseMinor}` }, value: 1 }],
    { release: [] },
  ),
];

/** The families as the documentation groups them. */
export const sections: readonly (readonly [string, readonly MetricFamily<MetricsState>[]])[] = [
  ['Verdicts and findings', auditFamilies],
  ['Lag', lagFamilies],
  ['Traces', traceFamilies],
  ['Packing of slices', packingFamilies],
  ['Sizes and watch traffic', sizeFamilies],
  ['Live input', watchFamilies],
  ['Agents of nodes', agentFamilies],
  ['Input and build', inputFamilies],
];

/** Every family of /metrics except those of Services and the process, in documentation order. */
export const families = sections.flatMap(([, section]) => section);
