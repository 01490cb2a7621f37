// Stores convergence lag over time: for each output and ten seconds the number of changes, their
// median and longest lag; for each Service the last samples; and the longest lags of a day.

import { recordOf, setLatest } from '../../model/collections.ts';
import type { Key } from '../../model/objects.ts';
import { createHistogram, type Histogram, observe, quantile } from './histogram.ts';
import { convergenceBounds, type LagOutput, lagOutputs, type LagSample } from './lag.ts';

const intervalSeconds = 10;

export interface FollowedChange extends LagSample {
  readonly service: Key;
  /** When it had followed, Unix seconds on the input's clock. */
  readonly at: number;
}

export type LagSeries = ReturnType<typeof seriesOf>;

type Interval = Partial<Record<LagOutput, Histogram>>;

export function createLagHistory() {
  const intervals = new Map<number, Interval>();
  const services = new Map<Key, FollowedChange[]>();
  return {
    note(change: FollowedChange): void {
      const { output, seconds, at, service } = change;
      const start = Math.floor(at / intervalSeconds) * intervalSeconds;
      const interval = intervals.get(start) ?? {};
      setLatest(intervals, start, interval, 360);
      observe((interval[output] ??= createHistogram(convergenceBounds)), seconds);
      const before = services.get(service) ?? [];
      setLatest(services, service, [change, ...before].slice(0, 12), 2000);
    },
    series: () => seriesOf([...intervals].sort(([a], [b]) => a - b)),
    /** The last samples of one Service, latest first. */
    ofService: (key: Key): readonly FollowedChange[] => services.get(key) ?? [],
  };
}

function seriesOf(intervals: readonly (readonly [number, Interval])[]) {
  const lines = (value: (histogram: Histogram) => number | null) =>
    recordOf(lagOutputs, (output) =>
      intervals.map(([, { [output]: histogram }]) => (histogram ? value(histogram) : null)),
    );
  return {
    at: intervals.map(([at]) => at),
    changes: intervals.map(([, interval]) =>
      Object.values(interval).reduce((sum, { count }) => sum + count, 0),
    ),
    /** Seconds; null if the output followed no change then. */
    median: lines((histogram) => quantile(histogram, 0.5)),
    longest: lines(({ largest }) => largest),
  };
}

const day = 86_400;

/** Stores the `most` longest samples of a day; of equal ones the earlier. */
export function createTopSamples<T extends Pick<FollowedChange, 'seconds' | 'at'>>(most: number) {
  let samples: T[] = [];
  return {
    note(sample: T): void {
      samples = [...samples.filter(({ at }) => sample.at - at < day), sample]
        .sort((a, b) => b.seconds - a.seconds)
        .slice(0, most);
    },
    list: (now: number): readonly T[] => samples.filter(({ at }) => now - at < day),
  };
}
