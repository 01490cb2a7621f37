// Metric families: each is one entry of a table, with a function that collects its samples from the
// state of a scrape. Samples are not stored, so no series outlives its object.
//
// /metrics and docs/metrics.md are both made from these entries. Every label has a fixed set of
// values, and each combination has a sample from the first scrape on. So rates and alerts see the
// first event.

import type { Histogram } from '../../audit/measure/histogram.ts';

export type SampleLabels = Readonly<Record<string, string>>;

/** One series with its value. */
export interface Sample {
  readonly labels: SampleLabels;
  readonly value: number;
}

interface LabelledHistogram {
  readonly labels: SampleLabels;
  readonly histogram: Histogram;
}

interface Base {
  readonly name: string;
  readonly help: string;
  /** The labels with their values; an empty list if only the state has the value. */
  readonly labels: Readonly<Record<string, readonly string[]>>;
  readonly unit: string;
  readonly stability: 'stable' | 'experimental';
  /** The file that measures the value. */
  readonly source: string;
}

/** A gauge or a counter. */
export interface ValueFamily<State> extends Base {
  readonly type: 'gauge' | 'counter';
  readonly collect: (state: State) => readonly Sample[];
}

export interface HistogramFamily<State> extends Base {
  readonly type: 'histogram';
  readonly bounds: readonly number[];
  readonly collect: (state: State) => readonly LabelledHistogram[];
}

export type MetricFamily<State> = ValueFamily<State> | HistogramFamily<State>;

type LabelValues = Readonly<Record<string, readonly string[]>>;
type OneOfEach<L extends LabelValues> = { readonly [Label in keyof L]: L[Label][number] };

interface Description<L extends LabelValues> {
  /** Without the prefix. */
  readonly name: string;
  readonly help: string;
  readonly labels?: L;
  readonly source: string;
  /** Default: stable. */
  readonly stability?: 'experimental';
}

/** Either the value of one combination of labels (null: no such series), or all samples. */
type ValueEntry<State, L extends LabelValues> = Description<L> &
  (
    | { readonly value: (state: State, labels: OneOfEach<L>) => number | null }
    | { readonly collect: (state: State) => readonly Sample[] }
  );

interface HistogramEntry<State, L extends LabelValues> extends Description<L> {
  readonly bounds: readonly number[];
  readonly histogram: (state: State, labels: OneOfEach<L>) => Histogram;
}

/** The combinations of label values; the last label varies first. */
function combine<L extends LabelValues>(labels: L): (OneOfEach<L> & SampleLabels)[] {
  let combined: SampleLabels[] = [{}];
  for (const [label, values] of Object.entries(labels)) {
    combined = combined.flatMap((first) => values.map((value) => ({ ...first, [label]: value })));
  }
  return combined as (OneOfEach<L> & SampleLabels)[];
}

/** The functions that make families with this prefix, for states of one type. */
export function familiesOf<State>(prefix: string) {
  const describe = (entry: Description<LabelValues>): Base => ({
    name: `${prefix}${entry.name}`,
    help: entry.help,
    labels: entry.labels ?? {},
    unit: /_(seconds|bytes|ratio)(?:_max)?(?:_total)?$/.exec(entry.name)?.[1] ?? 'none',
    stability: entry.stability ?? 'stable',
    source: entry.source,
  });

  function collector<L extends LabelValues>(
    entry: ValueEntry<State, L>,
  ): ValueFamily<State>['collect'] {
    if ('collect' in entry) return entry.collect;
    const combinations = combine(entry.labels ?? ({} as L));
    return (state) =>
      combinations.flatMap((labels) => {
        const value = entry.value(state, labels);
        return value === null ? [] : [{ labels, value }];
      });
  }
  const valueFamily =
    (type: 'gauge' | 'counter') =>
    <const L extends LabelValues>(entry: ValueEntry<State, L>): ValueFamily<State> => ({
      ...describe(entry),
      type,
      collect: collector(entry),
    });
  return {
    gauge: valueFamily('gauge'),
    counter: valueFamily('counter'),
    histogram: <const L extends LabelValues>(
      entry: HistogramEntry<State, L>,
    ): HistogramFamily<State> => {
      const combinations = combine(entry.labels ?? ({} as L));
      return {
        ...describe(entry),
        type: 'histogram',
        bounds: entry.bounds,
        collect: (state) =>
          combinations.map((labels) => ({ labels, histogram: entry.histogram(state, labels) })),
      };
    },
  };
}
