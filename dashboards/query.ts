// PromQL for the boards, always for the selected clusters. "All" also matches series that have no
// label `cluster`.

/** Windows follow the zoom and the scrape interval. */
const window = '[$__rate_interval]';

/** Samples of a family; `matchers` are for its own labels. */
export const of = (metric: string, ...matchers: readonly string[]): string =>
  `endpoint_auditor_${metric}{${['cluster=~"$cluster"', ...matchers].join(', ')}}`;

/** Samples of the selected Services. */
export const ofServices = (metric: string, ...matchers: readonly string[]): string =>
  of(`service_${metric}`, 'namespace=~"$namespace"', 'service=~"$service"', ...matchers);

/** Samples of the auditor's own process, identified by the build of the same target. */
export const ofProcess = (metric: string): string =>
  `${metric} and on (cluster, job, instance) ${of('build_info')}`;

/** The severities, worst first, for panels that show each. */
const severities = ['critical', 'warning', 'info'];

/** A label with the position of the severity, by which tables are sorted. */
export const rank = 'rank';

/** Adds the label `rank` to samples with a label `severity`. */
export const ranked = (samples: string): string =>
  severities.reduce(
    (inner, severity, at) =>
      `label_replace(${inner}, "${rank}", "${at + 1}", "severity", "${severity}")`,
    samples,
  );

/** A query per severity, worst first; `samplesOf` returns the samples with a matcher. */
export const bySeverity = (samplesOf: (matcher: string) => string) =>
  severities.map((severity) => {
    return { expr: sum(samplesOf(`severity="${severity}"`)), legend: severity };
  });

const by = (labels: readonly string[]): string =>
  labels.length === 0 ? '' : ` by (${labels.join(', ')})`;

export const sum = (samples: string, ...labels: readonly string[]): string =>
  `sum${by(labels)} (${samples})`;

export const max = (samples: string, ...labels: readonly string[]): string =>
  `max${by(labels)} (${samples})`;

/** Per second. */
export const rate = (samples: string, ...labels: readonly string[]): string =>
  sum(`rate(${samples}${window})`, ...labels);

/** Within one step of the graph. */
export const increase = (samples: string, ...labels: readonly string[]): string =>
  sum(`increase(${samples}${window})`, ...labels);

/** A quantile of a histogram; `metric` without the suffix of its buckets. */
export const quantile = (
  share: number,
  metric: string,
  labels: readonly string[],
  ...matchers: readonly string[]
): string =>
  `histogram_quantile(${share}, ${rate(of(`${metric}_bucket`, ...matchers), 'le', ...labels)})`;

/** Observations by bucket, for a heatmap. */
export const buckets = (metric: string, ...matchers: readonly string[]): string =>
  increase(of(`${metric}_bucket`, ...matchers), 'le');
