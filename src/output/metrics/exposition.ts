// Metric families and their two text formats: Prometheus' text format 0.0.4 and OpenMetrics 1.0.0.
//
// Each family has a function that collects its samples from the state of a scrape. So no series
// outlives its object. Every label has a fixed set of values, and each combination has a sample
// from the first scrape on, so that rates and alerts see the first event. Left out: timestamps of
// samples, and the protobuf format, which native histograms would require.

import type { Exemplar, Histogram } from '../../audit/measure/histogram.ts';

// --- families ---

export type SampleLabels = Readonly<Record<string, string>>;

export interface Sample {
  readonly labels: SampleLabels;
  readonly value: number | Histogram;
}

type LabelValues = Readonly<Record<string, readonly string[]>>;
type OneOfEach<L extends LabelValues> = { readonly [Label in keyof L]: L[Label][number] };

export interface MetricFamily<State> {
  readonly name: string;
  readonly type: 'gauge' | 'counter' | 'histogram';
  readonly help: string;
  /** The labels with their values; an empty list if only the state has the value. */
  readonly labels: LabelValues;
  readonly unit: string;
  readonly stability: 'stable' | 'experimental';
  readonly collect: (state: State) => readonly Sample[];
}

export type UnnamedFamily<State> = Omit<MetricFamily<State>, 'name' | 'unit'>;

/** The keys of a record as the values of a label. */
export const keysOf = <Key extends string>(record: Readonly<Record<Key, unknown>>): Key[] =>
  Object.keys(record) as Key[];

/** A sample per combination of labels, the last label first; none where the value is null. */
function collector<State, L extends LabelValues>(
  value: (state: State, labels: OneOfEach<L>) => Sample['value'] | null,
  labels: L,
): (state: State) => Sample[] {
  let combined: SampleLabels[] = [{}];
  for (const [label, values] of Object.entries(labels)) {
    combined = combined.flatMap((first) => values.map((name) => ({ ...first, [label]: name })));
  }
  return (state) =>
    combined.flatMap((labels) => {
      const found = value(state, labels as OneOfEach<L>);
      return found === null ? [] : [{ labels, value: found }];
    });
}

/** The functions that make families without a name, for states of one type. */
export function familiesOf<State>(stability: MetricFamily<State>['stability'] = 'stable') {
  /** For samples whose labels only the state knows. */
  const samples = (
    type: MetricFamily<State>['type'],
    help: string,
    collect: (state: State) => readonly Sample[],
    labels: LabelValues,
  ): UnnamedFamily<State> => ({ type, help, labels, stability, collect });
  const maker =
    (type: MetricFamily<State>['type']) =>
    <const L extends LabelValues>(
      help: string,
      value: (state: State, labels: OneOfEach<L>) => Sample['value'] | null,
      labels = {} as L,
    ) =>
      samples(type, help, collector(value, labels), labels);
  return {
    gauge: maker('gauge'),
    counter: maker('counter'),
    histogram: maker('histogram'),
    samples,
  };
}

/** Adds names with a prefix, and the units that names end with. */
export const nameFamilies = <State>(
  prefix: string,
  families: Readonly<Record<string, UnnamedFamily<State>>>,
): MetricFamily<State>[] =>
  Object.entries(families).map(([name, family]) => ({
    ...family,
    name: `${prefix}${name}`,
    unit: /_(seconds|bytes|ratio)(?:_max)?(?:_total)?$/.exec(name)?.[1] ?? 'none',
  }));

// --- formats ---

export type ExpositionFormat = 'text' | 'openmetrics';

export const contentTypes: Readonly<Record<ExpositionFormat, string>> = {
  text: 'text/plain; version=0.0.4; charset=utf-8',
  openmetrics: 'application/openmetrics-text; version=1.0.0; charset=utf-8',
};

/** The format that an Accept header prefers; text if it accepts neither. */
export function negotiateFormat(accept = '*/*'): ExpositionFormat {
  const ranges = accept.split(',').map((range) => {
    const [type = '', ...parameters] = range.split(';').map((part) => part.trim().toLowerCase());
    const values = parameters.map((part) => part.split('='));
    const { q, version } = Object.fromEntries(values) as Partial<Record<string, string>>;
    return { type, version: version?.replaceAll('"', ''), quality: Number(q ?? 1) };
  });
  const qualityOf = (types: readonly string[], wanted: string): number =>
    ranges
      .filter(({ type, version = wanted }) => types.includes(type) && version === wanted)
      .reduce((best, { quality }) => (quality > best ? quality : best), 0);
  const open = qualityOf(['application/openmetrics-text'], '1.0.0');
  const isOpen = open > 0 && open >= qualityOf(['text/plain', 'text/*', '*/*'], '0.0.4');
  return isOpen ? 'openmetrics' : 'text';
}

const escapes: Readonly<Record<string, string>> = { '\\': '\\\\', '"': '\\"', '\n': '\\n' };

/** Labels as they appear between braces. */
export const formatLabels = (labels: Readonly<Partial<Record<string, string | number>>>): string =>
  Object.entries(labels)
    .map(
      ([label, value]) =>
        `${label}="${String(value).replace(/[\\"\n]/g, (char) => escapes[char] ?? '')}"`,
    )
    .join(',');

const formatNumber = (value: number): string =>
  value === Infinity ? '+Inf' : value === -Infinity ? '-Inf' : String(value);

/** One series. `labels` are formatted; only OpenMetrics has exemplars. */
export function formatSeries(
  name: string,
  labels: string,
  value: number,
  exemplar?: Exemplar,
): string {
  const series = `${name}${labels === '' ? '' : `{${labels}}`} ${formatNumber(value)}`;
  if (exemplar === undefined) return `${series}\n`;
  const { traceId, value: observed, at } = exemplar;
  return `${series} # {trace_id="${traceId}"} ${formatNumber(observed)} ${formatNumber(at)}\n`;
}

/** The series of a family; `common` are labels of all of them. */
export const formatSamples = <State>(
  { name, collect }: MetricFamily<State>,
  state: State,
  format: ExpositionFormat,
  common: SampleLabels = {},
): string =>
  collect(state)
    .map(({ labels, value }) => {
      const text = formatLabels({ ...common, ...labels });
      return typeof value === 'number'
        ? formatSeries(name, text, value)
        : formatHistogram(name, text, value, format);
    })
    .join('');

function formatHistogram(
  name: string,
  labels: string,
  { bounds, counts, exemplars, sum, count }: Histogram,
  format: ExpositionFormat,
): string {
  const prefix = labels === '' ? '' : `${labels},`;
  let text = '';
  let below = 0;
  for (const [index, bound] of [...bounds, Infinity].entries()) {
    below += counts[index] ?? 0;
    const le = `${prefix}le="${formatBound(bound, format)}"`;
    const exemplar = format === 'openmetrics' ? exemplars?.[index] : undefined;
    text += formatSeries(`${name}_bucket`, le, below, exemplar);
  }
  text += formatSeries(`${name}_sum`, labels, sum);
  return text + formatSeries(`${name}_count`, labels, count);
}

/** The lines before the samples of a family. `help` has no line break and no backslash. */
export function formatHead(
  family: { readonly name: string; readonly type: string; readonly help: string },
  format: ExpositionFormat,
  unit = 'none',
): string {
  const isOpen = format === 'openmetrics';
  const { type, help } = family;
  const name = isOpen && type === 'counter' ? family.name.replace(/_total$/, '') : family.name;
  const unitLine = isOpen && name.endsWith(`_${unit}`) ? `# UNIT ${name} ${unit}\n` : '';
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${unitLine}`;
}

/** The upper bound of a bucket, as a label. */
export const formatBound = (bound: number, format: ExpositionFormat): string =>
  formatNumber(bound) + (format === 'openmetrics' && Number.isInteger(bound) ? '.0' : '');
