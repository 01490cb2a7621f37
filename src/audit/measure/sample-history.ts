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

/** The intervals and the Services that are kept, and the changes of each Service. */
const most = { intervals: 360, services: 2000, changes: 12 };

interface PastLags {
  /** By their start, the one that was set last at the end. */
  readonly intervals: readonly (readonly [number, Interval])[];
  /** Of each Service the latest first; the Service that changed last at the end. */
  readonly services: readonly (readonly FollowedChange[])[];
}

export type LagSeries = ReturnType<typeof seriesOf>;

export type Interval = Partial<Record<LagOutput, Histogram>>;

export function createLagHistory() {
  const intervals = new Map<number, Interval>();
  const services = new Map<Key, readonly FollowedChange[]>();
  return {
    note(change: FollowedChange): void {
      const { output, seconds, at, service } = change;
      const start = Math.floor(at / intervalSeconds) * intervalSeconds;
      const interval = intervals.get(start) ?? {};
      setLatest(intervals, start, interval, most.intervals);
      observe((interval[output] ??= createHistogram(convergenceBounds)), seconds);
      const before = services.get(service) ?? [];
      setLatest(services, service, [change, ...before].slice(0, most.changes), most.services);
    },
    series: () => seriesOf([...intervals].sort(([a], [b]) => a - b)),
    /** What a checkpoint has of it. The intervals change later. */
    past: (): PastLags => ({ intervals: [...intervals], services: [...services.values()] }),
    continuePast(past: PastLags): void {
      for (const [start, interval] of past.intervals.slice(-most.intervals)) {
        intervals.set(start, interval);
      }
      for (const changes of past.services.slice(-most.services)) {
        const [latest] = changes;
        if (latest !== undefined) services.set(latest.service, changes.slice(0, most.changes));
      }
    },
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
  /** No sample is older. */
  let oldest = Infinity;
  const set = (list: T[]): void => {
    samples = list;
    oldest = list.reduce((least, { at }) => Math.min(least, at), Infinity);
  };
  /** Where a sample belongs: behind those that are as long. */
  const placeOf = ({ seconds }: T): number => {
    let [from, to] = [0, samples.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if ((samples[middle]?.seconds ?? 0) < seconds) to = middle;
      else from = middle + 1;
    }
    return from;
  };
  return {
    note(sample: T): void {
      if (sample.at - oldest >= day) set(samples.filter(({ at }) => sample.at - at < day));
      const place = placeOf(sample);
      // Most of them are not among the longest.
      if (place >= most) return;
      samples.splice(place, 0, sample);
      if (samples.length > most) samples.pop();
      oldest = Math.min(oldest, sample.at);
    },
    list: (now: number): readonly T[] => samples.filter(({ at }) => now - at < day),
    all: (): readonly T[] => [...samples],
    continuePast: (past: readonly T[]): void => set(past.slice(0, most)),
  };
}
