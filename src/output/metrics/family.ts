// Metric families: each is one entry of a table, with a function that collects its samples from the
// state of a scrape. Samples are not stored, so no series outlives its object.
//
// /metrics and docs/metrics.md are both made from these entries. Every label has a fixed set of
// values, and each combination has a sample from the first scrape on. So rates and alerts see the
// first event.

import type { Histogram } from '../../audit/measure/histogram.ts';

export type SampleLabels = Readonly<Record<string, string>>;

/** One series with its value. */
export interface Sample<Value = number> {
  readonly labels: SampleLabels;
  readonly value: Value;
}

interface Base {
  readonly name: string;
  readonly help: string;
  /** The labels with their values; an empty list if only the state has the value. */
  readonly labels: LabelValues;
  readonly unit: string;
  readonly stability: 'stable' | 'experimental';
}

/** A gauge or a counter. */
export interface ValueFamily<State> extends Base {
  readonly type: 'gauge' | 'counter';
  readonly collect: (state: State) => readonly Sample[];
}

export interface HistogramFamily<State> extends Base {
  readonly type: 'histogram';
  readonly bounds: readonly number[];
  readonly collect: (state: State) => readonly Sample<Histogram>[];
}

export type MetricFamily<State> = ValueFamily<State> | HistogramFamily<State>;

type LabelValues = Readonly<Record<string, readonly string[]>>;
type OneOfEach<L extends LabelValues> = { readonly [Label in keyof L]: L[Label][number] };

/** A sample per combination of labels, the last label first; none where the value is null. */
function collector<State, L extends LabelValues, Value>(
  value: (state: State, labels: OneOfEach<L>) => Value | null,
  labels: L,
): (state: State) => Sample<Value>[] {
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

/** The functions that make families with this prefix, for states of one type. */
export function familiesOf<State>(prefix: string, stability: Base['stability'] = 'stable') {
  const describe = (name: string, help: string, labels: LabelValues): Base => ({
    name: `${prefix}${name}`,
    help,
    labels,
    unit: /_(seconds|bytes|ratio)(?:_max)?(?:_total)?$/.exec(name)?.[1] ?? 'none',
    stability,
  });
  /** For samples whose labels only the state knows, or that take one pass for all labels. */
  const samples = (
    type: 'gauge' | 'counter',
    name: string,
    help: string,
    collect: (state: State) => readonly Sample[],
    labels: LabelValues,
  ): ValueFamily<State> => ({ ...describe(name, help, labels), type, collect });
  const valueFamily =
    (type: 'gauge' | 'counter') =>
    <const L extends LabelValues>(
      name: string,
      help: string,
      value: (state: State, labels: OneOfEach<L>) => number | null,
      labels = {} as L,
    ) =>
      samples(type, name, help, collector(value, labels), labels);
  const histogram = <const L extends LabelValues>(
    name: string,
    help: string,
    bounds: readonly number[],
    value: (state: State, labels: OneOfEach<L>) => Histogram,
    labels = {} as L,
  ): HistogramFamily<State> => ({
    ...describe(name, help, labels),
    type: 'histogram',
    bounds,
    collect: collector(value, labels),
  });
  return { gauge: valueFamily('gauge'), counter: valueFamily('counter'), histogram, samples };
}
