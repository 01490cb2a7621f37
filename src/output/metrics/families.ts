// The catalogue of metric families, from which /metrics and docs/metrics.md are both made.
//
// Names follow Prometheus' conventions: the prefix endpoint_auditor_, base units, counters in
// _total, no label that is also in the name. No pod, address or object is a label: use
// /api/v1/findings and reports for those. A Service is one only in service-families.ts. prom-client
// makes the families of the process; this file selects them.

import { catalogue, severities } from '../../audit/finding/catalogue.ts';
import type { Code } from '../../audit/finding/catalogue.ts';
import type { UnknownReason } from '../../audit/finding/verdicts.ts';
import { verdicts } from '../../audit/finding/verdicts.ts';
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

const { gauge, counter, histogram } = familiesOf<MetricsState>('endpoint_auditor_');

const keysOf = <Key extends string>(record: Readonly<Record<Key, unknown>>): Key[] =>
  Object.keys(record) as Key[];

const codes = keysOf(catalogue);

/** One sample per code with its usual severity, and one per exception that occurred. */
function samplesByCode(counts: OpenedFindings): Sample[] {
  return codes.flatMap((code: Code) =>
    severities.flatMap((severity) => {
      const fallback = catalogue[code].severity === severity ? 0 : undefined;
      const value = counts[code]?.[severity] ?? fallback;
      return value === undefined ? [] : [{ labels: { code, severity }, value }];
    }),
  );
}

// Records, so that the compiler requires an entry for a new reason or state.
const unknownReasons = keysOf<UnknownReason>({
  'pods-not-known': true,
  'nodes-not-known': true,
  'endpoints-not-known': true,
  'endpointslices-not-known': true,
  'object-unreadable': true,
  'input-stale': true,
  'node-not-known': true,
  'proxy-mode-not-modelled': true,
  'rules-not-known': true,
  'rules-not-whole': true,
  'rules-not-understood': true,
  'agent-absent': true,
  'agent-refused': true,
  'agent-stale': true,
});

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
  gauge({
    name: 'findings',
    help: 'Findings that stand, by code and severity.',
    labels: { code: codes, severity: severities },
    source: 'audit/pending/pending.ts',
    collect({ summary }) {
      const counts: OpenedFindings = {};
      for (const finding of summary.findings) countOpened(counts, finding);
      return samplesByCode(counts);
    },
  }),
  counter({
    name: 'findings_opened_total',
    help: 'Findings opened since the start, those that are resolved included.',
    labels: { code: codes, severity: severities },
    source: 'audit/pending/pending.ts',
    collect: ({ opened }) => samplesByCode(opened),
  }),
  gauge({
    name: 'services',
    help: 'Services that exist.',
    source: 'audit/summary.ts',
    value: ({ summary }) => summary.services,
  }),
  gauge({
    name: 'services_foreign',
    help: 'Services, or names without a Service, whose endpoints somebody else writes; not judged.',
    source: 'audit/summary.ts',
    value: ({ summary }) => summary.foreign,
  }),
  gauge({
    name: 'outputs',
    help:
      'Outputs of Services by verdict; a Service has one per output that somebody must write, ' +
      'and a Service port one (node) per node whose rules are known.',
    labels: { output: verdictOutputs, verdict: verdicts },
    source: 'audit/service/verdict.ts',
    value: ({ summary }, { output, verdict }) => summary.verdicts[output][verdict],
  }),
  gauge({
    name: 'outputs_unknown',
    help: 'Outputs that cannot be judged and Services that cannot be read, by the reason.',
    labels: { reason: unknownReasons },
    source: 'audit/service/verdict.ts',
    value: ({ summary }, { reason }) => summary.unknown[reason] ?? 0,
  }),
  gauge({
    name: 'pending_oldest_seconds',
    help: 'Age of the oldest difference that is within the settle window; 0 where there is none.',
    labels: { output: verdictOutputs },
    source: 'audit/summary.ts',
    value: ({ summary, now }, { output }) =>
      Math.max(0, now - (summary.pendingSince[output] ?? now)),
  }),
  histogram({
    name: 'audit_duration_seconds',
    help:
      'How long taking in one entry of the input kept the process busy, judging included; full: ' +
      'judging began with it, and everything was judged.',
    labels: { scope: ['full', 'change'] },
    stability: 'experimental',
    source: 'auditor/auditor.ts',
    bounds: durationBounds,
    histogram: ({ durations }, { scope }) => durations[scope],
  }),
  gauge({
    name: 'services_with_series',
    help: 'Services that have series of their own.',
    source: 'output/metrics/service-rows.ts',
    value: ({ perService }) => perService.rows.length,
  }),
  gauge({
    name: 'services_left_out',
    help: 'Services that would have series of their own but for --metrics.max-services.',
    source: 'output/metrics/service-rows.ts',
    value: ({ perService }) => perService.leftOut,
  }),
];

const watchFamilies = [
  gauge({
    name: 'ready',
    help: 'Whether all that is needed is known and was seen within a minute: 1, else 0.',
    source: 'auditor/queries.ts',
    value: ({ ready }) => (ready ? 1 : 0),
  }),
  gauge({
    name: 'watch_state',
    help: 'The state of the watch of a resource: 1 for the one that it is in, else 0.',
    labels: { resource: resources, state: watchStates },
    source: 'audit/pending/progress.ts',
    value: ({ watches }, { resource, state }) =>
      watches.inputs.get(resource)?.state === state ? 1 : 0,
  }),
  gauge({
    name: 'watch_unseen_seconds',
    help: 'For how long the watch of a resource has not been synced; 0 while it is.',
    labels: { resource: resources },
    source: 'audit/pending/progress.ts',
    value: ({ watches, now }, { resource }) =>
      Math.max(0, now - (watches.inputs.get(resource)?.blindSince ?? now)),
  }),
  counter({
    name: 'confirm_reads_total',
    help:
      'Reads of a Service before a difference of it becomes a finding: it stands (confirmed), ' +
      'the watch is behind what was read (lagging), or the read failed.',
    labels: { result: ['confirmed', 'lagging', 'failed'] },
    source: 'audit/pending/confirm.ts',
    value: ({ watches }, { result }) => watches.confirmations[result],
  }),
  counter({
    name: 'watch_requests_total',
    help: 'Lists that were complete, and watches that were accepted.',
    labels: { resource: resources, verb: ['list', 'watch'] },
    stability: 'experimental',
    source: 'cluster/api/reflector.ts',
    value: ({ watches }, { resource, verb }) =>
      watches.counters.get(resource)?.[verb === 'list' ? 'lists' : 'watches'] ?? 0,
  }),
  counter({
    name: 'watch_frames_total',
    help: 'What watches and lists have sent, by what became of it.',
    labels: { resource: resources, result: keysOf(frameCounters) },
    stability: 'experimental',
    source: 'cluster/api/reflector.ts',
    value: ({ watches }, { resource, result }) =>
      watches.counters.get(resource)?.[frameCounters[result]] ?? 0,
  }),
  counter({
    name: 'watch_refusals_total',
    help: 'Requests that the API server refused.',
    labels: { resource: resources, reason: ['throttled', 'unauthorised', 'denied'] },
    stability: 'experimental',
    source: 'cluster/api/reflector.ts',
    value: ({ watches }, { resource, reason }) => watches.counters.get(resource)?.[reason] ?? 0,
  }),
  counter({
    name: 'watch_relists_total',
    help: 'New lists since history was lost.',
    labels: { resource: resources, reason: relistReasons },
    stability: 'experimental',
    source: 'cluster/api/reflector.ts',
    value: ({ watches }, { resource, reason }) =>
      watches.counters.get(resource)?.relists[reason] ?? 0,
  }),
  counter({
    name: 'watch_reconnects_total',
    help: 'Watches that ended and were opened again.',
    labels: { resource: resources, reason: reconnectReasons },
    stability: 'experimental',
    source: 'cluster/api/reflector.ts',
    value: ({ watches }, { resource, reason }) =>
      watches.counters.get(resource)?.reconnects[reason] ?? 0,
  }),
  counter({
    name: 'watch_bytes_total',
    help: 'Bytes that lists and watches have sent.',
    labels: { resource: resources },
    stability: 'experimental',
    source: 'cluster/api/reflector.ts',
    value: ({ watches }, { resource }) => watches.counters.get(resource)?.bytes ?? 0,
  }),
];

const agentFamilies = [
  gauge({
    name: 'node_agents',
    help:
      'Nodes by how their agent stands: it answers, is not heard of (stale), does not accept us ' +
      'or is not understood (refused), or there is none (absent).',
    labels: { state: agentStates },
    source: 'agent/client/scraper.ts',
    value: ({ agents }, { state }) => agents.states[state],
  }),
  gauge({
    name: 'node_report_oldest_seconds',
    help: 'Age of the oldest report of an agent that answers; 0 without any.',
    source: 'agent/client/scraper.ts',
    value: ({ agents, now }) => Math.max(0, now - (agents.oldestSeenAt ?? now)),
  }),
  gauge({
    name: 'node_frontends_divergent',
    help:
      'Frontends of all nodes whose digest is not the one that follows from the cluster; those ' +
      'that no digest can tell of, such as with several right fates, are not among them.',
    stability: 'experimental',
    source: 'audit/node/observation.ts',
    value: ({ agents }) => agents.divergent,
  }),
  counter({
    name: 'agent_visits_total',
    help:
      'Visits to agents: a report was there (seen), there was none yet (early), the agent did ' +
      'not accept us or was not understood (refused), or it did not answer (silent).',
    labels: { result: visitResults },
    stability: 'experimental',
    source: 'agent/client/scraper.ts',
    value: ({ agents }, { result }) => agents.visits[result],
  }),
  counter({
    name: 'agent_bytes_total',
    help: 'Bytes of the answers of agents.',
    stability: 'experimental',
    source: 'agent/client/client.ts',
    value: ({ agents }) => agents.bytes,
  }),
];

const inputFamilies = [
  counter({
    name: 'dropped_total',
    help:
      'Input that was not used: events older than what is held (stale) or equal to it ' +
      '(repeated), objects that could not be read, lines that were skipped.',
    labels: { reason: dropReasons },
    stability: 'experimental',
    source: 'cluster/store/store.ts',
    collect: ({ dropped }) =>
      [...new Set([...dropReasons, ...Object.keys(dropped)])].map((reason) => {
        return { labels: { reason }, value: dropped[reason] ?? 0 };
      }),
  }),
  gauge({
    name: 'input_timestamp_seconds',
    help: 'The clock of the input, which is not that of the scrape when a recording is replayed.',
    source: 'auditor/auditor.ts',
    value: ({ now }) => now,
  }),
  gauge({
    name: 'input_start_timestamp_seconds',
    help: 'When the input began, on its own clock.',
    source: 'auditor/auditor.ts',
    value: ({ startedAt }) => startedAt,
  }),
  gauge({
    name: 'build_info',
    help: 'Always 1; the label is the version of endpoint-auditor.',
    labels: { version: [] },
    source: 'main.ts',
    collect: ({ version }) => [{ labels: { version }, value: 1 }],
  }),
  gauge({
    name: 'release_info',
    help: 'Always 1; the label is the Kubernetes release whose controllers are shadowed.',
    labels: { release: [] },
    source: 'shadow/release.ts',
    collect: ({ releaseMinor }) => [{ labels: { release: `1.${releaseMinor}` }, value: 1 }],
  }),
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

/** A family of the process, which prom-client makes. */
interface ProcessFamily {
  readonly name: string;
  readonly type: 'gauge' | 'counter' | 'histogram';
  readonly help: string;
  readonly labels: readonly string[];
}

const processFamily = (
  type: ProcessFamily['type'],
  name: string,
  help: string,
  labels: readonly string[] = [],
): ProcessFamily => ({ name, type, labels, help });

const inVersion = ['version', 'major', 'minor', 'patch'];

/** The other families of prom-client break naming rules or have no use here. */
export const processFamilies: readonly ProcessFamily[] = [
  processFamily('counter', 'process_cpu_seconds_total', 'CPU time spent.'),
  processFamily('counter', 'process_cpu_user_seconds_total', 'CPU time spent in user mode.'),
  processFamily('counter', 'process_cpu_system_seconds_total', 'CPU time spent in system mode.'),
  processFamily('gauge', 'process_start_time_seconds', 'When the process started.'),
  processFamily('gauge', 'process_resident_memory_bytes', 'Resident memory.'),
  processFamily('gauge', 'process_virtual_memory_bytes', 'Virtual memory (Linux).'),
  processFamily('gauge', 'process_heap_bytes', 'Data segment (Linux).'),
  processFamily('gauge', 'process_open_fds', 'Open file descriptors (Linux).'),
  processFamily('gauge', 'process_max_fds', 'The most file descriptors that may be open (Linux).'),
  processFamily('gauge', 'nodejs_eventloop_lag_seconds', 'Event loop: lag at the scrape.'),
  processFamily(
    'gauge',
    'nodejs_eventloop_lag_mean_seconds',
    'Event loop: mean delay since the scrape before.',
  ),
  processFamily(
    'gauge',
    'nodejs_eventloop_lag_p50_seconds',
    'Event loop: median delay since the scrape before.',
  ),
  processFamily(
    'gauge',
    'nodejs_eventloop_lag_p99_seconds',
    'Event loop: 99th percentile since the scrape before.',
  ),
  processFamily(
    'gauge',
    'nodejs_eventloop_lag_max_seconds',
    'Event loop: longest delay since the scrape before.',
  ),
  processFamily('gauge', 'nodejs_heap_size_total_bytes', 'Heap that V8 has allocated.'),
  processFamily('gauge', 'nodejs_heap_size_used_bytes', 'Heap that is used.'),
  processFamily(
    'gauge',
    'nodejs_external_memory_bytes',
    'Memory outside the heap, such as buffers.',
  ),
  processFamily(
    'gauge',
    'nodejs_version_info',
    'Always 1; the labels are the version of Node.',
    inVersion,
  ),
  processFamily('histogram', 'nodejs_gc_duration_seconds', 'Duration of garbage collections.', [
    'kind',
  ]),
];
