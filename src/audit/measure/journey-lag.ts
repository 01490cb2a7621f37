// Measures journeys (journey.ts): how long pods took to become ready for traffic and to leave it,
// by output, and how long nodes took to follow the slices.
//
// Readiness lag begins at the Ready transition of the pod, removal lag at its deletion or at its
// becoming not ready. Pods have times in whole seconds, so a lag may be a second too high; without
// such a time, the arrival is the beginning. Journeys with a skewed beginning, or one in a list,
// are counted and not measured. At a node, a lag ends with the first reading of the rules that
// shows the change.
//
// Programming lag is that of nodes, from the arrival of the slice or Service. It lies between two
// readings of the rules, so its least and its most value are both counted.

import { recordOf } from '../../model/counts.ts';
import type { Histogram } from './histogram.ts';
import { createHistogram, exemplify, observe } from './histogram.ts';
import type { Journey, JourneyStage } from './journey.ts';
import { journeyQualities, journeySeconds } from './journey.ts';
import { convergenceBounds } from './lag.ts';

export const journeyLagOutputs = ['endpoints', 'endpointslices', 'node'] as const;

export const journeyOperations = ['add', 'remove', 'update'] as const;

export const programmingBounds = ['least', 'most'] as const;

export type JourneyLag = ReturnType<typeof createJourneyLag>;

const createLag = (): Histogram => createHistogram(convergenceBounds);

export const createJourneyLag = () => ({
  readiness: recordOf(journeyLagOutputs, createLag),
  removal: recordOf(journeyLagOutputs, createLag),
  programming: recordOf(programmingBounds, createLag),
  /** The number of journeys, by the quality of their beginning. */
  begun: recordOf(journeyOperations, () => recordOf(journeyQualities, () => 0)),
});

/** Whether the length of a journey is meaningful. */
export const isMeasured = ({ quality }: Journey): boolean =>
  quality !== 'skewed' && quality !== 'gap';

/** The histogram of a stage; null if it is not measured. */
function histogramOf(lag: JourneyLag, journey: Journey, { stage }: JourneyStage): Histogram | null {
  const { operation } = journey;
  if (stage === 'arrival' || operation === 'update' || !isMeasured(journey)) return null;
  return (operation === 'add' ? lag.readiness : lag.removal)[stage];
}

/** Counts the beginning of a journey, or measures the stage that it reached. */
export function countStage(lag: JourneyLag, journey: Journey, stage: JourneyStage): void {
  if (stage.stage === 'arrival') lag.begun[journey.operation][journey.quality]++;
  const histogram = histogramOf(lag, journey, stage);
  if (histogram !== null) observe(histogram, journeySeconds(journey, stage));
}

/** Makes the stages of a journey exemplars with the id of its trace. */
export function exemplifyJourney(lag: JourneyLag, journey: Journey, traceId: string): void {
  for (const stage of journey.stages) {
    const histogram = histogramOf(lag, journey, stage);
    const value = journeySeconds(journey, stage);
    if (histogram !== null) exemplify(histogram, { traceId, value, at: stage.at });
  }
}

/** Counts a change that a node followed after at least and at most this many seconds. */
export function countProgrammed(
  { programming }: JourneyLag,
  { least, most }: { readonly least: number; readonly most: number },
): void {
  observe(programming.least, least);
  observe(programming.most, most);
}
