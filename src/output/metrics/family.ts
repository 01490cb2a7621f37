// Metric families, each with a function that collects its samples from the state of a scrape. So no
// series outlives its object. Every label has a fixed set of values, and each combination has a
// sample from the first scrape on, so that rates and alerts see the first event.

import type { Histogram } from '../../audit/measure/histogram.ts';

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

type UnnamedFamily<State> = Omit<MetricFamily<State>, 'name' | 'unit'>;

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
