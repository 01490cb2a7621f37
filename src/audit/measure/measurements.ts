// The measurements that metrics and reports show: sums over all Services, and what is counted from
// the changes of the input. A new measurement needs a field here, a call in src/auditor that feeds
// it, and an entry in src/output/metrics.

import type { CapacityCounts, ConditionCounts, DuplicateCounts } from './endpoint-counts.ts';
import { noCapacity, noConditionCounts } from './endpoint-counts.ts';
import type { ClockSkew, ConvergenceLag, TriggerLag } from './lag.ts';
import { createClockSkew, createConvergenceLag, createTriggerLag, durationBounds } from './lag.ts';
import type { Fill } from './fill.ts';
import { noFill } from './fill.ts';
import type { Histogram } from './histogram.ts';
import { createHistogram } from './histogram.ts';
import type { JourneyLag } from './journey-lag.ts';
import { createJourneyLag } from './journey-lag.ts';
import type { Sizes } from './size.ts';
import { createSizes } from './size.ts';

/** Sums over the existing Services. */
export interface ServiceSums {
  readonly fill: Fill & { readonly max: number };
  readonly duplicates: DuplicateCounts;
  readonly conditions: ConditionCounts;
  readonly capacity: CapacityCounts;
}

export const createServiceSums = (max: number): ServiceSums => ({
  fill: { max, ...noFill() },
  duplicates: { equal: 0, conflicting: 0 },
  conditions: noConditionCounts(),
  capacity: noCapacity(),
});

/** Counts and histograms since the start. */
export interface Measurements {
  readonly sizes: Sizes;
  readonly trigger: TriggerLag;
  readonly convergence: ConvergenceLag;
  readonly travel: JourneyLag;
  readonly skew: ClockSkew;
  /** The time to process one entry: `full` for entries that start the audit, else `change`. */
  readonly durations: Readonly<Record<'full' | 'change', Histogram>>;
}

export const createMeasurements = (): Measurements => ({
  sizes: createSizes(),
  trigger: createTriggerLag(),
  convergence: createConvergenceLag(),
  travel: createJourneyLag(),
  skew: createClockSkew(),
  durations: { full: createHistogram(durationBounds), change: createHistogram(durationBounds) },
});
