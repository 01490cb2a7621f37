// docs/metrics.md as the catalogue renders to it.
// `vitest run -u test/output/metrics/families.test.ts` writes it; without -u the test compares.

import type { TriggerQuality } from '../src/audit/measure/lag.ts';
import { families, processFamilies, sections } from '../src/output/metrics/families.ts';
import type { MetricFamily } from '../src/output/metrics/family.ts';
import { serviceFamilies } from '../src/output/metrics/service-families.ts';

/** The most series of a family in any cluster; for a family of Services, per Service. */
export function cardinality(family: MetricFamily<never>): number {
  let series = 1;
  for (const [label, values] of Object.entries(family.labels)) {
    // An output of a Service has one verdict, and no series for the others.
    const isOne = label === 'verdict' && family.name === 'endpoint_auditor_service_verdict';
    series *= isOne ? 1 : Math.max(1, values.length);
  }
  // Of a histogram, a series per bucket, +Inf among them, and those of sum and count.
  return family.type === 'histogram' ? series * (family.bounds.length + 3) : series;
}

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

What \`/metrics\` shows. This page is generated from the catalogue in
\`src/output/metrics/families.ts\`, and a test keeps the two and the exposition equal.

No label holds the name of a pod, an address or an object, and but for the families of
[single Services](#single-services) none holds that of a Service, so their number of series does not
grow with the cluster: the column _series_ is the most there can be. What exactly is wrong is told
by \`/api/v1/findings\`. Scrapers that accept OpenMetrics get it: there, the names of counters have
no \`_total\` in what is said of the family. A family that is _experimental_ may change in a minor
release, a _stable_ one only in a major one.

Times are on the clock of the input: when a recording is replayed,
\`endpoint_auditor_input_timestamp_seconds\` is the time in the recording.`;

const singleServices = `## Single Services

These have the labels \`namespace\` and \`service\` besides those named here. Which Services have
them, \`--metrics.per-service\` says: \`findings\` (the default) those about which a finding stands,
\`all\`, or \`off\`. At most \`--metrics.max-services\` (1000) do: one that has them keeps them
while it may, the others are counted in \`endpoint_auditor_services_left_out\`. A Service that is
gone has no series. The column _series_ is the most that one Service has; most have about ten.`;

const triggerTimes = `## Trigger times

\`endpoint_auditor_trigger_times_total\` counts every writing of the endpoints and endpointslice
controllers by what its annotation \`endpoints.kubernetes.io/last-change-trigger-time\` is worth:`;

const qualityRows: readonly (readonly [TriggerQuality, string, string])[] = [
  ['ok', 'A second or more from it to the arrival, of which up to a second is rounding.', 'yes'],
  ['coarse', 'Less than the annotation’s resolution of one second; it falls into `le="1"`.', 'yes'],
  ['absent', 'No trigger time of its own: cleared, kept by an edit, or of an older event.', 'no'],
  ['restarted', 'The creation of the Service, which the controller writes after a restart.', 'no'],
  ['skewed', 'It arrived more than a second before its trigger time: the clocks differ.', 'no'],
];

const removals = `Removals and changes of the Service never have a trigger time.
\`endpoint_auditor_convergence_lag_seconds\` measures those too, by the auditor's own clock.`;

function rowsText(listed: readonly MetricFamily<never>[]): string {
  const rows = listed.map((family) => [
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
  return table([head, ...rows]);
}

/** The labels and their values, each once; one name may have other values in another family. */
function labelsText(): string {
  const rows = new Map<string, string[]>();
  for (const { labels } of [...families, ...serviceFamilies]) {
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
    ...sections.map(([title, section]) => `## ${title}\n\n${rowsText(section)}`),
    singleServices,
    rowsText(serviceFamilies),
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
