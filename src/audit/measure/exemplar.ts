// Exemplars: of each bucket of a histogram, the latest value that somebody can look at as a trace.
// They say which one to look at, never how many there are, so a value that is not in the histogram
// is none of its exemplars.
//
// Left out: exemplars of counters, and more than one per bucket, which OpenMetrics does not have.

import type { Exemplar, Histogram } from './histogram.ts';
import type { JourneyLag } from './journey-lag.ts';
import { histogramOf } from './journey-lag.ts';
import type { Journey } from './journey.ts';
import { journeySeconds } from './journey.ts';

/** Makes a value that was observed the exemplar of its bucket. */
export function exemplify(histogram: Histogram, exemplar: Exemplar): void {
  const { bounds, counts } = histogram;
  const above = bounds.findIndex((bound) => exemplar.value <= bound);
  const index = above === -1 ? bounds.length : above;
  if ((counts[index] ?? 0) === 0) return;
  (histogram.exemplars ??= [])[index] = exemplar;
}

/** Makes what was measured of a journey exemplars with the id of its trace. */
export function exemplifyJourney(lag: JourneyLag, journey: Journey, traceId: string): void {
  for (const stage of journey.stages) {
    const histogram = histogramOf(lag, journey, stage);
    if (histogram === null) continue;
    exemplify(histogram, { traceId, value: journeySeconds(journey, stage), at: stage.at });
  }
}
