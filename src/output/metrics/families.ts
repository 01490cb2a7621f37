// The catalogue of families, from which /metrics and docs/metrics.md are both made, so that
// neither can know of a family, a label or a help text that the other does not.
//
// Names follow Prometheus' conventions: the prefix endpoint_auditor_, base units, counters in
// _total, no label that is also in the name. Every label has a small set of known values, which are
// there from the first scrape with 0, so that rates and alerts see the first event. No pod, address
// or object is ever a label: which ones is said by /api/v1/findings and by reports. A Service is
// one only in the families of service-families.ts. Families of the process itself are
// prom-client's; which of them are shown is said here.

import { severities } from '../../audit/finding/catalogue.ts';
import type { UnknownReason } from '../../audit/finding/verdicts.ts';
import { verdicts } from '../../audit/finding/verdicts.ts';
import { durationBounds } from '../../audit/measure/lag.ts';
import { verdictOutputs } from '../../audit/service/verdict.ts';
import { agentFamilies } from './agent-families.ts';
import type { MetricFamily, MetricsState, OpenedFindings } from './family.ts';
import { samplesByCode, codes, countOpened } from './family.ts';
import { lagFamilies } from './lag-families.ts';
import { packingFamilies, sizeFamilies } from './object-families.ts';
import type { Sample } from './sample.ts';
import { traceFamilies } from './trace-families.ts';
import { watchFamilies } from './watch-families.ts';

// --- samples ---

const one = (value: number, labels: Sample['labels'] = {}): Sample[] => [{ labels, value }];

// Made from a record, so that a reason that is new in audit/verdict.ts cannot be forgotten here.
const unknownReasons = Object.keys({
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
} satisfies Record<UnknownReason, true>) as UnknownReason[];

/** Reasons for which input is dropped that are known from the start. */
const dropReasons = ['stale', 'repeated', 'unreadable', 'skipped'] as const;

function standingFindings({ summary }: MetricsState): Sample[] {
  const counts: OpenedFindings = {};
  for (const finding of summary.findings) countOpened(counts, finding);
  return samplesByCode(counts);
}

function droppedSamples({ dropped }: MetricsState): Sample[] {
  const reasons = new Set([...dropReasons, ...Object.keys(dropped)]);
  return [...reasons].map((reason) => ({ labels: { reason }, value: dropped[reason] ?? 0 }));
}

// --- catalogue ---

const prefix = 'endpoint_auditor_';

const verdictFamilies: readonly MetricFamily[] = [
  {
    name: `${prefix}findings`,
    type: 'gauge',
    help: 'Findings that stand, by code and severity.',
    labels: { code: codes, severity: severities },
    unit: 'none',
    stability: 'stable',
    source: 'audit/pending/pending.ts',
    samples: standingFindings,
  },
  {
    name: `${prefix}findings_opened_total`,
    type: 'counter',
    help: 'Findings opened since the start, those that are resolved included.',
    labels: { code: codes, severity: severities },
    unit: 'none',
    stability: 'stable',
    source: 'audit/pending/pending.ts',
    samples: ({ opened }) => samplesByCode(opened),
  },
  {
    name: `${prefix}services`,
    type: 'gauge',
    help: 'Services that exist.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'audit/summary.ts',
    samples: ({ summary }) => one(summary.services),
  },
  {
    name: `${prefix}services_foreign`,
    type: 'gauge',
    help: 'Services, or names without a Service, whose endpoints somebody else writes; not judged.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'audit/summary.ts',
    samples: ({ summary }) => one(summary.foreign),
  },
  {
    name: `${prefix}outputs`,
    type: 'gauge',
    help:
      'Outputs of Services by verdict; a Service has one per output that somebody must write, ' +
      'and a Service port one (node) per node whose rules are known.',
    labels: { output: verdictOutputs, verdict: verdicts },
    unit: 'none',
    stability: 'stable',
    source: 'audit/service/verdict.ts',
    samples: ({ summary }) =>
      verdictOutputs.flatMap((output) =>
        verdicts.map((verdict) => ({
          labels: { output, verdict },
          value: summary.verdicts[output][verdict],
        })),
      ),
  },
  {
    name: `${prefix}outputs_unknown`,
    type: 'gauge',
    help: 'Outputs that cannot be judged and Services that cannot be read, by the reason.',
    labels: { reason: unknownReasons },
    unit: 'none',
    stability: 'stable',
    source: 'audit/service/verdict.ts',
    samples: ({ summary }) =>
      unknownReasons.map((reason) => ({
        labels: { reason },
        value: summary.unknown[reason] ?? 0,
      })),
  },
  {
    name: `${prefix}pending_oldest_seconds`,
    type: 'gauge',
    help: 'Age of the oldest difference that is within the settle window; 0 where there is none.',
    labels: { output: verdictOutputs },
    unit: 'seconds',
    stability: 'stable',
    source: 'audit/summary.ts',
    samples: ({ summary, now }) =>
      verdictOutputs.map((output) => ({
        labels: { output },
        value: Math.max(0, now - (summary.pendingSince[output] ?? now)),
      })),
  },
  {
    name: `${prefix}audit_duration_seconds`,
    type: 'histogram',
    help:
      'How long taking in one entry of the input kept the process busy, judging included; full: ' +
      'judging began with it, and everything was judged.',
    labels: { scope: ['full', 'change'] },
    unit: 'seconds',
    stability: 'experimental',
    source: 'auditor/auditor.ts',
    bounds: durationBounds,
    histograms: ({ durations }) => [
      { labels: { scope: 'full' }, histogram: durations.full },
      { labels: { scope: 'change' }, histogram: durations.change },
    ],
  },
  {
    name: `${prefix}services_with_series`,
    type: 'gauge',
    help: 'Services that have series of their own.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'output/metrics/service-rows.ts',
    samples: ({ perService }) => one(perService.rows.length),
  },
  {
    name: `${prefix}services_left_out`,
    type: 'gauge',
    help: 'Services that would have series of their own but for --metrics.max-services.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'output/metrics/service-rows.ts',
    samples: ({ perService }) => one(perService.leftOut),
  },
];

const inputFamilies: readonly MetricFamily[] = [
  {
    name: `${prefix}dropped_total`,
    type: 'counter',
    help:
      'Input that was not used: events older than what is held (stale) or equal to it ' +
      '(repeated), objects that could not be read, lines that were skipped.',
    labels: { reason: dropReasons },
    unit: 'none',
    stability: 'experimental',
    source: 'cluster/store/store.ts',
    samples: droppedSamples,
  },
  {
    name: `${prefix}input_timestamp_seconds`,
    type: 'gauge',
    help: 'The clock of the input, which is not that of the scrape when a recording is replayed.',
    labels: {},
    unit: 'seconds',
    stability: 'stable',
    source: 'auditor/auditor.ts',
    samples: ({ now }) => one(now),
  },
  {
    name: `${prefix}input_start_timestamp_seconds`,
    type: 'gauge',
    help: 'When the input began, on its own clock.',
    labels: {},
    unit: 'seconds',
    stability: 'stable',
    source: 'auditor/auditor.ts',
    samples: ({ startedAt }) => one(startedAt),
  },
  {
    name: `${prefix}build_info`,
    type: 'gauge',
    help: 'Always 1; the label is the version of endpoint-auditor.',
    labels: { version: [] },
    unit: 'none',
    stability: 'stable',
    source: 'main.ts',
    samples: ({ version }) => one(1, { version }),
  },
  {
    name: `${prefix}release_info`,
    type: 'gauge',
    help: 'Always 1; the label is the Kubernetes release whose controllers are shadowed.',
    labels: { release: [] },
    unit: 'none',
    stability: 'stable',
    source: 'shadow/release.ts',
    samples: ({ releaseMinor }) => one(1, { release: `1.${releaseMinor}` }),
  },
];

/** The families as the documentation groups them. */
export const sections: readonly (readonly [string, readonly MetricFamily[]])[] = [
  ['Verdicts and findings', verdictFamilies],
  ['Lag', lagFamilies],
  ['Traces', traceFamilies],
  ['Packing of slices', packingFamilies],
  ['Sizes and watch traffic', sizeFamilies],
  ['Live input', watchFamilies],
  ['Agents of nodes', agentFamilies],
  ['Input and build', inputFamilies],
];

/** Every family of /metrics that is ours, in the order of the documentation. */
export const families: readonly MetricFamily[] = sections.flatMap(([, of]) => of);

// --- the process ---

/** A family of the process itself, which prom-client makes. */
interface ProcessFamily {
  readonly name: string;
  readonly type: 'gauge' | 'counter' | 'histogram';
  readonly labels: readonly string[];
  readonly help: string;
}

const processGauges: readonly (readonly [string, string])[] = [
  ['process_start_time_seconds', 'When the process started.'],
  ['process_resident_memory_bytes', 'Resident memory.'],
  ['process_virtual_memory_bytes', 'Virtual memory (Linux).'],
  ['process_heap_bytes', 'Data segment (Linux).'],
  ['process_open_fds', 'Open file descriptors (Linux).'],
  ['process_max_fds', 'The most file descriptors that may be open (Linux).'],
  ['nodejs_eventloop_lag_seconds', 'Event loop: lag at the scrape.'],
  ['nodejs_eventloop_lag_mean_seconds', 'Event loop: mean delay since the scrape before.'],
  ['nodejs_eventloop_lag_p50_seconds', 'Event loop: median delay since the scrape before.'],
  ['nodejs_eventloop_lag_p99_seconds', 'Event loop: 99th percentile since the scrape before.'],
  ['nodejs_eventloop_lag_max_seconds', 'Event loop: longest delay since the scrape before.'],
  ['nodejs_heap_size_total_bytes', 'Heap that V8 has allocated.'],
  ['nodejs_heap_size_used_bytes', 'Heap that is used.'],
  ['nodejs_external_memory_bytes', 'Memory outside the heap, such as buffers.'],
];

const plain = (
  type: ProcessFamily['type'],
  [name, help]: readonly [string, string],
  labels: readonly string[] = [],
): ProcessFamily => ({ name, type, labels, help });

/** The rest of what prom-client offers breaks naming rules or tells nothing here. */
export const processFamilies: readonly ProcessFamily[] = [
  plain('counter', ['process_cpu_seconds_total', 'CPU time spent.']),
  plain('counter', ['process_cpu_user_seconds_total', 'CPU time spent in user mode.']),
  plain('counter', ['process_cpu_system_seconds_total', 'CPU time spent in system mode.']),
  ...processGauges.map((family) => plain('gauge', family)),
  plain(
    'gauge',
    ['nodejs_version_info', 'Always 1; the labels are the version of Node.'],
    ['version', 'major', 'minor', 'patch'],
  ),
  plain('histogram', ['nodejs_gc_duration_seconds', 'Duration of garbage collections.'], ['kind']),
];
