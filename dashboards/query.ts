// PromQL as the boards use it, always of the clusters that are chosen. Where there is no label
// cluster, as with one cluster, "All" finds what there is: it matches the empty value too.

/** Windows follow the zoom and the scrape interval. */
const window = '[$__rate_interval]';

/** Samples of a family; `matchers` are of its own labels. */
export const of = (metric: string, ...matchers: readonly string[]): string =>
  `endpoint_auditor_${metric}{${['cluster=~"$cluster"', ...matchers].join(', ')}}`;

/** Samples of the single Services that are chosen. */
export const ofServices = (metric: string, ...matchers: readonly string[]): string =>
  of(`service_${metric}`, 'namespace=~"$namespace"', 'service=~"$service"', ...matchers);

/** Samples of the auditor's own process, which are known by what stands beside them. */
export const ofProcess = (metric: string): string =>
  `${metric} and on (job, instance) ${of('build_info')}`;

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

/** A quantile of what a histogram observed; `metric` without the suffix of its buckets. */
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
