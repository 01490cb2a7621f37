// What is measured of journeys (journey.ts): how long pods took to become ready for traffic, and to
// leave it, output by output; and how long nodes took to follow the slices.
//
// Readiness lag is from the pod's Ready transition, removal lag from its deletion or its becoming
// not ready, to each output that says so. The pod's own time is whole seconds, cut, so that both
// are up to a second too high; where the pod tells no time, its arrival stands in. Journeys whose
// beginning is skewed, or hidden in a list, are counted and not measured. At a node, the lag is up
// to the first reading of its rules that shows it, which is as late as readings are far apart.
//
// Programming lag is that of nodes alone, from the arrival of the slice or Service. It is known to
// lie between two readings, so it is counted twice, by its least and by its most.

import type { Histogram } from './histogram.ts';
import type { Journey, JourneyOperation, JourneyQuality, JourneyStage } from './journey.ts';
import { journeyQualities, journeySeconds } from './journey.ts';
import { convergenceBounds, createHistogram, observe } from './lag.ts';

export const journeyLagOutputs = ['endpoints', 'endpointslices', 'node'] as const;

export type JourneyLagOutput = (typeof journeyLagOutputs)[number];

export const journeyOperations = ['add', 'remove', 'update'] as const;

export const programmingBounds = ['least', 'most'] as const;

export interface JourneyLag {
  readonly readiness: Readonly<Record<JourneyLagOutput, Histogram>>;
  readonly removal: Readonly<Record<JourneyLagOutput, Histogram>>;
  readonly programming: Readonly<Record<(typeof programmingBounds)[number], Histogram>>;
  /** Journeys that began, by what their beginning is worth. */
  readonly begun: Readonly<Record<JourneyOperation, Record<JourneyQuality, number>>>;
}

export function createJourneyLag(): JourneyLag {
  const lag = (): Histogram => createHistogram(convergenceBounds);
  const outputs = () => ({ endpoints: lag(), endpointslices: lag(), node: lag() });
  const none = (): Record<JourneyQuality, number> => {
    return { ok: 0, coarse: 0, arrival: 0, skewed: 0, gap: 0 };
  };
  return {
    readiness: outputs(),
    removal: outputs(),
    programming: { least: lag(), most: lag() },
    begun: { add: none(), remove: none(), update: none() },
  };
}

const measured: ReadonlySet<JourneyQuality> = new Set(
  journeyQualities.filter((quality) => quality !== 'skewed' && quality !== 'gap'),
);

/** Whether the length of a journey means anything. */
export const isMeasured = ({ quality }: Journey): boolean => measured.has(quality);

/** Where a stage of a journey is measured; null: it is not. */
export function histogramOf(
  lag: JourneyLag,
  journey: Journey,
  { stage }: JourneyStage,
): Histogram | null {
  const { operation } = journey;
  if (stage === 'arrival' || operation === 'update' || !isMeasured(journey)) return null;
  return (operation === 'add' ? lag.readiness : lag.removal)[stage];
}

/** Counts the beginning of a journey, or measures the stage that it came to. */
export function countStage(lag: JourneyLag, journey: Journey, stage: JourneyStage): void {
  if (stage.stage === 'arrival') lag.begun[journey.operation][journey.quality]++;
  const histogram = histogramOf(lag, journey, stage);
  if (histogram !== null) observe(histogram, journeySeconds(journey, stage));
}

/** Counts a change that a node followed after at least and at most so many seconds. */
export function countProgrammed(
  { programming }: JourneyLag,
  { least, most }: { readonly least: number; readonly most: number },
): void {
  observe(programming.least, least);
  observe(programming.most, most);
}
