// Convergence lag over time: by output, how many changes it followed in each stretch of ten
// seconds, how long the middle one took and how long the longest; and of single Services the last
// samples. All that is kept is bounded: an hour of stretches in which something happened, and of
// the Services those that changed last.
//
// Left out: what has not followed yet, which no sample can tell of; the age of what is pending is
// the sign of that.

import type { Key } from '../../model/objects.ts';
import type { Histogram } from './histogram.ts';
import type { LagOperation, LagOutput } from './lag.ts';
import { convergenceBounds, createHistogram, lagOutputs, observe, quantile } from './lag.ts';

/** Seconds that one point stands for. */
const stretch = 10;

const kept = { stretches: 360, services: 2000, samples: 12 };

/** One change that an output of a Service followed. */
export interface FollowedChange {
  readonly service: Key;
  readonly output: LagOutput;
  readonly operation: LagOperation;
  readonly seconds: number;
  /** When it had followed, Unix seconds on the input's clock. */
  readonly at: number;
}

/** The stretches in which something followed, of all outputs on one axis of time, oldest first. */
export interface LagSeries {
  /** Their beginnings. */
  readonly at: readonly number[];
  /** Changes of all outputs. */
  readonly changes: readonly number[];
  /** Seconds; null: that output followed nothing then. */
  readonly median: Readonly<Record<LagOutput, readonly (number | null)[]>>;
  readonly longest: Readonly<Record<LagOutput, readonly (number | null)[]>>;
}

export interface LagHistory {
  note(followed: FollowedChange): void;
  series(): LagSeries;
  /** The last samples of one Service, latest first. */
  ofService(key: Key): readonly FollowedChange[];
}

type Stretch = Partial<Record<LagOutput, Histogram>>;

export function createLagHistory(): LagHistory {
  const stretches = new Map<number, Stretch>();
  const services = new Map<Key, FollowedChange[]>();
  return {
    note(followed) {
      const { output, seconds, at, service } = followed;
      const begin = Math.floor(at / stretch) * stretch;
      let there = stretches.get(begin);
      if (there === undefined) {
        there = {};
        stretches.set(begin, there);
        forget(stretches, kept.stretches);
      }
      observe((there[output] ??= createHistogram(convergenceBounds)), seconds);
      const before = services.get(service) ?? [];
      // What changed last comes last.
      services.delete(service);
      services.set(service, [followed, ...before].slice(0, kept.samples));
      forget(services, kept.services);
    },
    series: () => seriesOf([...stretches].sort(([a], [b]) => a - b)),
    ofService: (key) => services.get(key) ?? [],
  };
}

/** Leaves the last `most` of what was put there. */
function forget(map: Map<unknown, unknown>, most: number): void {
  const [oldest] = map.keys();
  if (map.size > most && oldest !== undefined) map.delete(oldest);
}

function seriesOf(stretches: readonly (readonly [number, Stretch])[]): LagSeries {
  const of = (
    pick: (histogram: Histogram) => number | null,
  ): Record<LagOutput, (number | null)[]> => {
    const lines = lagOutputs.map((output) => [
      output,
      stretches.map(([, there]) => (there[output] === undefined ? null : pick(there[output]))),
    ]);
    return Object.fromEntries(lines) as Record<LagOutput, (number | null)[]>;
  };
  const counts = stretches.map(([, there]) =>
    Object.values(there).reduce((sum, { count }) => sum + count, 0),
  );
  return {
    at: stretches.map(([at]) => at),
    changes: counts,
    median: of((histogram) => quantile(histogram, 0.5)),
    longest: of(({ largest }) => largest),
  };
}
