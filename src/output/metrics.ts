// The metrics: one catalogue of families, from which /metrics and docs/metrics.md are both made, so
// that neither can know of a family, a label or a help text that the other does not.
//
// Names follow Prometheus' conventions: the prefix endpoint_auditor_, base units, counters in
// _total, no label that is also in the name. Every label has a small set of known values, which are
// there from the first scrape with 0, so that rates and alerts see the first event. No pod,
// address, object or Service is ever a label: which ones is said by /api/v1/findings and by
// reports.
//
// What a scrape shows is rendered from the state of that moment into a registry of its own, so no
// series outlives what it tells of. prom-client has no histogram that can be filled from counts, so
// those are written here. Times are on the input's clock: a replayed recording shows its own.

import { Counter, Gauge, Registry, collectDefaultMetrics } from 'prom-client';

import type { Code, Finding, Severity } from '../audit/findings.ts';
import { catalogue, severities } from '../audit/findings.ts';
import type { Summary } from '../audit/summary.ts';
import type { Unknown, Verdict } from '../audit/verdict.ts';
import { written } from '../audit/verdict.ts';
import type { DuplicateTotals } from '../measure/duplicates.ts';
import type { FillTotals } from '../measure/fill.ts';
import { fillRatio, surplusOf } from '../measure/fill.ts';
import type { ConvergenceLag, Histogram, Quality, TriggerLag } from '../measure/lag.ts';
import {
  convergenceBounds,
  lagOperations,
  lagOutputs,
  qualities,
  triggerBounds,
} from '../measure/lag.ts';
import type { ResourceSizes, Sizes } from '../measure/size.ts';
import { largestBytes, objectCount, sizedResources } from '../measure/size.ts';

/** Findings opened since the start, by code and severity. */
export type OpenedFindings = Partial<Record<Code, Partial<Record<Severity, number>>>>;

export function countOpened(opened: OpenedFindings, { code, severity }: Finding): void {
  const bySeverity = (opened[code] ??= {});
  bySeverity[severity] = (bySeverity[severity] ?? 0) + 1;
}

/** All that a scrape shows; times in Unix seconds on the input's clock. */
export interface MetricsState {
  readonly summary: Summary;
  readonly opened: OpenedFindings;
  readonly fill: FillTotals;
  readonly duplicates: DuplicateTotals;
  readonly sizes: Sizes;
  readonly convergence: ConvergenceLag;
  readonly trigger: TriggerLag;
  /** Input that was not used, by reason; the reasons must be few and fixed words. */
  readonly dropped: Readonly<Record<string, number>>;
  readonly now: number;
  /** When the input began. */
  readonly startedAt: number;
  /** The minor version of the release that is shadowed: 36 for 1.36. */
  readonly releaseMinor: number;
  /** Of endpoint-auditor itself. */
  readonly version: string;
}

export type Labels = Readonly<Record<string, string>>;

interface Sample {
  readonly labels: Labels;
  readonly value: number;
}

interface Buckets {
  readonly labels: Labels;
  readonly histogram: Histogram;
}

interface FamilyBase {
  readonly name: string;
  readonly help: string;
  /** The labels with their values; no values: one, which only the state knows. */
  readonly labels: Readonly<Record<string, readonly string[]>>;
  readonly unit: 'seconds' | 'bytes' | 'ratio' | 'none';
  readonly stability: 'stable' | 'experimental';
  /** The file that makes the number. */
  readonly source: string;
}

export type Family = FamilyBase &
  (
    | {
        readonly type: 'gauge' | 'counter';
        readonly samples: (state: MetricsState) => readonly Sample[];
      }
    | {
        readonly type: 'histogram';
        readonly bounds: readonly number[];
        readonly histograms: (state: MetricsState) => readonly Buckets[];
      }
  );

// --- samples ---

const one = (value: number, labels: Labels = {}): Sample[] => [{ labels, value }];

const verdicts: readonly Verdict[] = ['conform', 'pending', 'different', 'unknown'];

// Made from a record, so that a reason that is new in audit/verdict.ts cannot be forgotten here.
const unknownReasons = Object.keys({
  'pods-not-known': true,
  'nodes-not-known': true,
  'endpoints-not-known': true,
  'endpointslices-not-known': true,
  'object-unreadable': true,
} satisfies Record<Unknown, true>) as Unknown[];

/** Reasons for which input is dropped that are known from the start. */
export const dropReasons = ['stale', 'repeated', 'unreadable', 'skipped'] as const;

const codes = Object.keys(catalogue) as Code[];

/** One sample per code with its usual severity, and one per exception that occurred. */
function byCode(counts: OpenedFindings): Sample[] {
  const samples: Sample[] = [];
  for (const code of codes) {
    for (const severity of severities) {
      const count = counts[code]?.[severity];
      const isUsual = catalogue[code].severity === severity;
      if (count === undefined && !isUsual) continue;
      samples.push({ labels: { code, severity }, value: count ?? 0 });
    }
  }
  return samples;
}

function standingFindings({ summary }: MetricsState): Sample[] {
  const counts: OpenedFindings = {};
  for (const finding of summary.findings) countOpened(counts, finding);
  return byCode(counts);
}

function droppedSamples({ dropped }: MetricsState): Sample[] {
  const reasons = new Set([...dropReasons, ...Object.keys(dropped)]);
  return [...reasons].map((reason) => ({ labels: { reason }, value: dropped[reason] ?? 0 }));
}

const perResource =
  (value: (sizes: ResourceSizes) => number) =>
  ({ sizes }: MetricsState): Sample[] =>
    sizedResources.map((resource) => ({ labels: { resource }, value: value(sizes[resource]) }));

// --- catalogue ---

const prefix = 'endpoint_auditor_';

const verdictFamilies: readonly Family[] = [
  {
    name: `${prefix}findings`,
    type: 'gauge',
    help: 'Findings that stand, by code and severity.',
    labels: { code: codes, severity: severities },
    unit: 'none',
    stability: 'stable',
    source: 'audit/settle.ts',
    samples: standingFindings,
  },
  {
    name: `${prefix}findings_opened_total`,
    type: 'counter',
    help: 'Findings opened since the start, those that are resolved included.',
    labels: { code: codes, severity: severities },
    unit: 'none',
    stability: 'stable',
    source: 'audit/settle.ts',
    samples: ({ opened }) => byCode(opened),
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
    help: 'Outputs of Services by verdict; a Service has one per output that somebody must write.',
    labels: { output: written, verdict: verdicts },
    unit: 'none',
    stability: 'stable',
    source: 'audit/verdict.ts',
    samples: ({ summary }) =>
      written.flatMap((output) =>
        verdicts.map((verdict) => ({
          labels: { output, verdict },
          value: summary.verdicts[output][verdict],
        })),
      ),
  },
  {
    name: `${prefix}outputs_unknown`,
    type: 'gauge',
    help: 'Outputs that cannot be judged, by the reason.',
    labels: { reason: unknownReasons },
    unit: 'none',
    stability: 'stable',
    source: 'audit/verdict.ts',
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
    labels: { output: written },
    unit: 'seconds',
    stability: 'stable',
    source: 'audit/summary.ts',
    samples: ({ summary, now }) =>
      written.map((output) => ({
        labels: { output },
        value: Math.max(0, now - (summary.pendingSince[output] ?? now)),
      })),
  },
];

const lagFamilies: readonly Family[] = [
  {
    name: `${prefix}convergence_lag_seconds`,
    type: 'histogram',
    help:
      'From the arrival of a change that made an output differ to the arrival of the writing ' +
      'that made it equal again, by one clock.',
    labels: { output: lagOutputs, operation: lagOperations },
    unit: 'seconds',
    stability: 'stable',
    source: 'measure/lag.ts',
    bounds: convergenceBounds,
    histograms: ({ convergence }) =>
      lagOutputs.flatMap((output) =>
        lagOperations.map((operation) => ({
          labels: { output, operation },
          histogram: convergence[output][operation],
        })),
      ),
  },
  {
    name: `${prefix}trigger_lag_seconds`,
    type: 'histogram',
    help:
      'From the annotation last-change-trigger-time to the arrival of the object, up to a second ' +
      'too high; qualities ok and coarse only. Clock skew to the control plane enters it.',
    labels: { resource: sizedResources },
    unit: 'seconds',
    stability: 'stable',
    source: 'measure/lag.ts',
    bounds: triggerBounds,
    histograms: ({ trigger }) =>
      sizedResources.map((resource) => ({
        labels: { resource },
        histogram: trigger.lag[resource],
      })),
  },
  {
    name: `${prefix}trigger_times_total`,
    type: 'counter',
    help: 'Writings by the controllers, by what their trigger time is worth.',
    labels: { resource: sizedResources, quality: qualities },
    unit: 'none',
    stability: 'stable',
    source: 'measure/lag.ts',
    samples: ({ trigger }) =>
      sizedResources.flatMap((resource) =>
        qualities.map((quality) => ({
          labels: { resource, quality },
          value: trigger.counts[resource][quality],
        })),
      ),
  },
];

const packingFamilies: readonly Family[] = [
  {
    name: `${prefix}endpointslices`,
    type: 'gauge',
    help: 'Slices of the endpointslice controller.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'measure/fill.ts',
    samples: ({ fill }) => one(fill.slices),
  },
  {
    name: `${prefix}endpointslices_minimum`,
    type: 'gauge',
    help: 'The fewest slices that could list the same endpoints.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'measure/fill.ts',
    samples: ({ fill }) => one(fill.minimum),
  },
  {
    name: `${prefix}endpointslices_surplus`,
    type: 'gauge',
    help: 'Slices beyond the fewest that would do.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'measure/fill.ts',
    samples: ({ fill }) => one(surplusOf(fill)),
  },
  {
    name: `${prefix}slice_endpoints`,
    type: 'gauge',
    help: 'Endpoints that the slices of the endpointslice controller list.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'measure/fill.ts',
    samples: ({ fill }) => one(fill.endpoints),
  },
  {
    name: `${prefix}fill_ratio`,
    type: 'gauge',
    help: 'Endpoints over the places that the slices have; absent where there are no slices.',
    labels: {},
    unit: 'ratio',
    stability: 'stable',
    source: 'measure/fill.ts',
    samples: ({ fill }) => {
      const ratio = fillRatio(fill, fill.max);
      return ratio === null ? [] : one(ratio);
    },
  },
  {
    name: `${prefix}duplicate_endpoints`,
    type: 'gauge',
    help: 'Endpoints listed more than once in the slices of one Service, by whether entries agree.',
    labels: { kind: ['equal', 'conflicting'] },
    unit: 'none',
    stability: 'stable',
    source: 'measure/duplicates.ts',
    samples: ({ duplicates }) => [
      { labels: { kind: 'equal' }, value: duplicates.equal },
      { labels: { kind: 'conflicting' }, value: duplicates.conflicting },
    ],
  },
];

const sizeFamilies: readonly Family[] = [
  {
    name: `${prefix}objects`,
    type: 'gauge',
    help: 'Endpoints and EndpointSlice objects that exist, whoever writes them.',
    labels: { resource: sizedResources },
    unit: 'none',
    stability: 'stable',
    source: 'measure/size.ts',
    samples: perResource(objectCount),
  },
  {
    name: `${prefix}object_bytes_max`,
    type: 'gauge',
    help: 'Bytes of the largest object as JSON; the API server refuses more than 1572864.',
    labels: { resource: sizedResources },
    unit: 'bytes',
    stability: 'stable',
    source: 'measure/size.ts',
    samples: perResource(largestBytes),
  },
  {
    name: `${prefix}updates_total`,
    type: 'counter',
    help: 'Changes of objects, deletions included.',
    labels: { resource: sizedResources },
    unit: 'none',
    stability: 'stable',
    source: 'measure/size.ts',
    samples: perResource(({ updates }) => updates),
  },
  {
    name: `${prefix}update_bytes_total`,
    type: 'counter',
    help: 'Bytes of the objects that changed, as JSON: what one watcher is sent.',
    labels: { resource: sizedResources },
    unit: 'bytes',
    stability: 'stable',
    source: 'measure/size.ts',
    samples: perResource(({ updateBytes }) => updateBytes),
  },
  {
    name: `${prefix}update_fanout_bytes_total`,
    type: 'counter',
    help:
      'The same times the Nodes, without what kube-proxy leaves out; for Endpoints, what it ' +
      'would be if Nodes still watched them.',
    labels: { resource: sizedResources },
    unit: 'bytes',
    stability: 'stable',
    source: 'measure/size.ts',
    samples: perResource(({ fanoutBytes }) => fanoutBytes),
  },
];

const inputFamilies: readonly Family[] = [
  {
    name: `${prefix}dropped_total`,
    type: 'counter',
    help:
      'Input that was not used: events older than what is held (stale) or equal to it ' +
      '(repeated), objects that could not be read, lines that were skipped.',
    labels: { reason: dropReasons },
    unit: 'none',
    stability: 'experimental',
    source: 'cluster/store.ts',
    samples: droppedSamples,
  },
  {
    name: `${prefix}input_timestamp_seconds`,
    type: 'gauge',
    help: 'The clock of the input, which is not that of the scrape when a recording is replayed.',
    labels: {},
    unit: 'seconds',
    stability: 'stable',
    source: 'serve.ts',
    samples: ({ now }) => one(now),
  },
  {
    name: `${prefix}input_start_timestamp_seconds`,
    type: 'gauge',
    help: 'When the input began, on its own clock.',
    labels: {},
    unit: 'seconds',
    stability: 'stable',
    source: 'serve.ts',
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

const sections: readonly (readonly [string, readonly Family[]])[] = [
  ['Verdicts and findings', verdictFamilies],
  ['Lag', lagFamilies],
  ['Packing of slices', packingFamilies],
  ['Sizes and watch traffic', sizeFamilies],
  ['Input and build', inputFamilies],
];

/** Every family of /metrics that is ours, in the order of the documentation. */
export const families: readonly Family[] = sections.flatMap(([, of]) => of);

/** The most series of a family, whatever the size of the cluster. */
export function cardinality(family: Family): number {
  let series = 1;
  for (const values of Object.values(family.labels)) series *= Math.max(1, values.length);
  // Of a histogram, a series per bucket, +Inf among them, and those of sum and count.
  return family.type === 'histogram' ? series * (family.bounds.length + 3) : series;
}

/** A family of the process itself, which prom-client makes. */
export interface ProcessFamily {
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

// --- exposition ---

/** Content-Type of what renderMetrics returns. */
export const metricsContentType: string = Registry.PROMETHEUS_CONTENT_TYPE;

let processRegistry: Registry | null = null;

/** Observes the process from the first call on: garbage collections before it are not counted. */
function processMetrics(): Registry {
  if (processRegistry !== null) return processRegistry;
  const registry = new Registry();
  // The utilization that is sampled at this interval is not kept.
  collectDefaultMetrics({ register: registry, eventLoopUtilizationTimeout: 60_000 });
  const kept = new Set(processFamilies.map(({ name }) => name));
  for (const { name } of registry.getMetricsAsArray()) {
    if (!kept.has(name)) registry.removeSingleMetric(name);
  }
  return (processRegistry = registry);
}

/** The text of one histogram family. Labels are words of the catalogue and need no escaping. */
function histogramText(
  family: Family & { readonly type: 'histogram' },
  state: MetricsState,
): string {
  const { name, help } = family;
  const lines = [`# HELP ${name} ${help}`, `# TYPE ${name} histogram`];
  for (const { labels, histogram } of family.histograms(state)) {
    const pairs = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
    const series = (suffix: string, more: readonly string[], value: number): string =>
      `${name}_${suffix}{${[...pairs, ...more].join(',')}} ${value}`;
    let below = 0;
    for (const [index, bound] of histogram.bounds.entries()) {
      below += histogram.counts[index] ?? 0;
      lines.push(series('bucket', [`le="${bound}"`], below));
    }
    lines.push(series('bucket', ['le="+Inf"'], histogram.count));
    lines.push(series('sum', [], histogram.sum), series('count', [], histogram.count));
  }
  return lines.join('\n');
}

/** What a scrape gets, in Prometheus' text format; see metricsContentType. */
export async function renderMetrics(state: MetricsState): Promise<string> {
  const registry = new Registry();
  const histograms: string[] = [];
  for (const family of families) {
    if (family.type === 'histogram') {
      histograms.push(histogramText(family, state));
      continue;
    }
    // prom-client shows an unlabelled metric as 0 before it has a value.
    const samples = family.samples(state);
    if (samples.length === 0) continue;
    const { name, help } = family;
    const configuration = {
      name,
      help,
      labelNames: Object.keys(family.labels),
      registers: [registry],
    };
    const isGauge = family.type === 'gauge';
    const metric = isGauge ? new Gauge(configuration) : new Counter(configuration);
    for (const { labels, value } of samples) metric.inc(labels, value);
  }
  const ofProcess = await processMetrics().metrics();
  return `${await registry.metrics()}\n${histograms.join('\n\n')}\n\n${ofProcess}`;
}

// --- documentation ---

/** A Markdown table whose columns are padded, as Prettier wants it. */
function table(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) =>
    rows.reduce((most, row) => Math.max(most, row[column]?.length ?? 0), 3),
  );
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`;
  const [head = [], ...body] = rows;
  return [line(head), line(widths.map((width) => '-'.repeat(width))), ...body.map(line)].join('\n');
}

const code = (words: readonly string[]): string =>
  words.length === 0 ? '' : words.map((word) => `\`${word}\``).join(', ');

const introduction = `# Metrics

What \`/metrics\` shows. This page is generated from the catalogue in \`src/output/metrics.ts\`, and
a test keeps the two and the exposition equal, names and labels alike.

No label holds the name of a pod, an address, an object or a Service, so the number of series does
not grow with the cluster: the column _series_ is the most there can be. Which Service a number is
about is told by \`/api/v1/findings\`. A family that is _experimental_ may change in a minor
release, a _stable_ one only in a major one.

Times are on the clock of the input: when a recording is replayed,
\`endpoint_auditor_input_timestamp_seconds\` is the time in the recording.`;

const triggerTimes = `## Trigger times

\`endpoint_auditor_trigger_times_total\` counts every writing of the endpoints and endpointslice
controllers by what its annotation \`endpoints.kubernetes.io/last-change-trigger-time\` is worth:`;

const qualityRows: readonly (readonly [Quality, string, string])[] = [
  ['ok', 'A second or more from it to the arrival, of which up to a second is rounding.', 'yes'],
  ['coarse', 'Less than the annotation’s resolution of one second; it falls into `le="1"`.', 'yes'],
  ['absent', 'No trigger time of its own: cleared, kept by an edit, or of an older event.', 'no'],
  ['restarted', 'The creation of the Service, which the controller writes after a restart.', 'no'],
  ['skewed', 'It arrived more than a second before its trigger time: the clocks differ.', 'no'],
];

const removals = `Removals and changes of the Service never have a trigger time.
\`endpoint_auditor_convergence_lag_seconds\` measures those too, by the auditor's own clock.`;

function sectionText([title, of]: readonly [string, readonly Family[]]): string {
  const rows = of.map((family) => [
    code([family.name]),
    family.type,
    code(Object.keys(family.labels)),
    family.unit === 'none' ? '' : family.unit,
    String(cardinality(family)),
    family.stability,
    code([family.source]),
    family.help,
  ]);
  const head = ['metric', 'type', 'labels', 'unit', 'series', 'stability', 'made by', 'help'];
  return `## ${title}\n\n${table([head, ...rows])}`;
}

/** The labels and their values, each once; one name may have other values in another family. */
function labelsText(): string {
  const rows = new Map<string, string[]>();
  for (const { labels } of families) {
    for (const [label, values] of Object.entries(labels)) {
      const isLong = values.length > 12;
      const text = isLong ? 'the codes in [findings.md](findings.md)' : code(values);
      rows.set(`${label} ${text}`, [code([label]), values.length === 0 ? 'one' : text]);
    }
  }
  return `## Labels\n\n${table([['label', 'values'], ...rows.values()])}`;
}

/** The text of docs/metrics.md. */
export function metricsDocument(): string {
  const blocks = [
    introduction,
    ...sections.map(sectionText),
    labelsText(),
    triggerTimes,
    table([
      ['quality', 'meaning', 'measured'],
      ...qualityRows.map(([quality, ...rest]) => [code([quality]), ...rest]),
    ]),
    removals,
    '## The process itself',
    table([
      ['metric', 'type', 'labels', 'help'],
      ...processFamilies.map(({ name, type, labels, help }) => [
        code([name]),
        type,
        code(labels),
        help,
      ]),
    ]),
  ];
  return `${blocks.join('\n\n')}\n`;
}
