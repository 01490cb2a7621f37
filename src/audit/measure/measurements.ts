// The measurements that metrics and reports show. A new one needs a field here, a call in
// src/auditor that feeds it, and an entry in src/output/metrics.

import { capacityOf, countConditions, countDuplicates, fillOf } from './endpoint-counts.ts';
import { createHistogram } from './histogram.ts';
import { createJourneyLag } from './journey.ts';
import { createClockSkew, createConvergenceLag, createTriggerLag, durationBounds } from './lag.ts';
import { createSizes } from './size.ts';

export type ServiceSums = Readonly<ReturnType<typeof createServiceSums>>;

export const createServiceSums = (max: number) => ({
  fill: { max, ...fillOf([], max) },
  duplicates: countDuplicates([]),
  conditions: countConditions([]),
  capacity: capacityOf(null, [], { endpoints: 0, endpointslices: 0 }),
});

export type Measurements = Readonly<ReturnType<typeof createMeasurements>>;

export const createMeasurements = () => ({
  sizes: createSizes(),
  trigger: createTriggerLag(),
  convergence: createConvergenceLag(),
  travel: createJourneyLag(),
  skew: createClockSkew(),
  /** The time to process one entry: `full` for entries that start the audit, else `change`. */
  durations: { full: createHistogram(durationBounds), change: createHistogram(durationBounds) },
});
