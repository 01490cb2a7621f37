// Stores convergence lag over time: for each output and ten seconds the number of changes, their
// median and longest lag; for each Service the last samples; and the longest lags of a day. An hour
// of intervals with changes and the Services that changed last are stored. A change that no output
// has followed yet has no sample.

import { recordOf } from '../../model/counts.ts';
import type { Key } from '../../model/objects.ts';
import type { Histogram } from './histogram.ts';
import { createHistogram, observe, quantile } from './histogram.ts';
import type { LagOperation, LagOutput } from './lag.ts';
import { convergenceBounds, lagOutputs } from './lag.ts';

/** Seconds of one interval. */
const intervalSeconds = 10;

const kept = { intervals: 360, services: 2000, samples: 12 };

/** One change that an output of a Service followed. */
export interface FollowedChange {
  readonly service: Key;
  readonly output: LagOutput;
  readonly operation: LagOperation;
  readonly seconds: number;
  /** When it had followed, Unix seconds on the input's clock. */
  readonly at: number;
}

/** The intervals with changes, oldest first. */
export interface LagSeries {
  /** The start of each interval. */
  readonly at: readonly number[];
  /** Changes of all outputs. */
  readonly changes: readonly number[];
  /** Seconds; null if the output followed no change then. */
  readonly median: Readonly<Record<LagOutput, readonly (number | null)[]>>;
  readonly longest: Readonly<Record<LagOutput, readonly (number | null)[]>>;
}

type Interval = Partial<Record<LagOutput, Histogram>>;

export function createLagHistory() {
  const intervals = new Map<number, Interval>();
  const services = new Map<Key, FollowedChange[]>();
  return {
    note(change: FollowedChange): void {
      const { output, seconds, at, service } = change;
      const start = Math.floor(at / intervalSeconds) * intervalSeconds;
      const interval = intervals.get(start) ?? {};
      intervals.set(start, interval);
      trim(intervals, kept.intervals);
      observe((interval[output] ??= createHistogram(convergenceBounds)), seconds);
      const before = services.get(service) ?? [];
      // The Services that changed last are the last in the map.
      services.delete(service);
      services.set(service, [change, ...before].slice(0, kept.samples));
      trim(services, kept.services);
    },
    series: (): LagSeries => seriesOf([...intervals].sort(([a], [b]) => a - b)),
    /** The last samples of one Service, latest first. */
    ofService: (key: Key): readonly FollowedChange[] => services.get(key) ?? [],
  };
}

/** Deletes the first entry if there are more than `most`. */
function trim(map: Map<unknown, unknown>, most: number): void {
  const [oldest] = map.keys();
  if (map.size > most && oldest !== undefined) map.delete(oldest);
}

function seriesOf(intervals: readonly (readonly [number, Interval])[]): LagSeries {
  const lines = (value: (histogram: Histogram) => number | null) => {
    return recordOf(lagOutputs, (output) =>
      intervals.map(([, { [output]: histogram }]) => (histogram ? value(histogram) : null)),
    );
  };
  return {
    at: intervals.map(([at]) => at),
    changes: intervals.map(([, interval]) =>
      Object.values(interval).reduce((sum, { count }) => sum + count, 0),
    ),
    median: lines((histogram) => quantile(histogram, 0.5)),
    longest: lines(({ largest }) => largest),
  };
}

// --- longest lags ---

interface Sample {
  readonly seconds: number;
  /** When it ended, Unix seconds. */
  readonly at: number;
}

const day = 86_400;

/** Stores the `most` longest samples of a day; of equal ones the earlier. */
export function createTopSamples<T extends Sample>(most: number) {
  let samples: T[] = [];
  return {
    note(sample: T): void {
      samples = [...samples.filter(({ at }) => sample.at - at < day), sample]
        .sort((a, b) => b.seconds - a.seconds)
        .slice(0, most);
    },
    /** Longest first, none older than a day. */
    list: (now: number): readonly T[] => samples.filter(({ at }) => now - at < day),
  };
}
