// Counts and samples that the auditor collects while input arrives: lags, sizes, durations and
// opened findings (audit/measure defines them).

import { isMeasured, type Journey, journeyLength } from '../audit/measure/journey.ts';
import {
  countConvergence,
  countTrigger,
  observeCreated,
  triggerSample,
} from '../audit/measure/lag.ts';
import { createMeasurements } from '../audit/measure/measurements.ts';
import { createLagHistory, createTopSamples } from '../audit/measure/sample-history.ts';
import { trackSize } from '../audit/measure/size.ts';
import type { ConvergenceSample } from '../audit/service/reconcile.ts';
import type { Change, Endpoints, EndpointSlice, Key, Listers } from '../model/objects.ts';
import { isOutput, label } from '../model/objects.ts';
import type { OpenedFindings } from '../output/metrics/state.ts';

/** An ended journey with its length, and the Unix time of its end. */
type EndedJourney = Readonly<Record<'seconds' | 'at', number>> & { readonly journey: Journey };

/** How many of the worst journeys, and of the worst convergence samples, are kept. */
const keptWorst = 100;

export type Samples = ReturnType<typeof createSamples>;

export const createSamples = () => ({
  ...createMeasurements(),
  /** Convergence samples of the last hours, for charts. */
  history: createLagHistory(),
  worst: {
    journeys: createTopSamples<EndedJourney>(keptWorst),
    convergence: createTopSamples<ConvergenceSample>(keptWorst),
  },
  opened: {} as OpenedFindings,
});

/**
 * Counts a change that the listers contain; `isSkewed`: its own times are of another clock. Before
 * the first audit, only sizes are counted.
 */
export function countChange(
  samples: Samples,
  listers: Listers,
  change: Change,
  isAuditing: boolean,
  isSkewed = false,
): void {
  const { resource, at } = change;
  const created = change.before === null ? (change.after?.created ?? null) : null;
  if (isAuditing && created !== null) observeCreated(samples.skew, created, at);
  if (!isOutput(resource)) return;
  // The first list is not an update: its objects were written long before they arrived.
  trackSize(samples.sizes, change, isAuditing ? listers.nodes.size : null);
  // A list after a lost watch has objects that were written at any time before.
  if (!isAuditing || change.gap === true) return;
  const before = change.before as Endpoints | EndpointSlice | null;
  const after = change.after as Endpoints | EndpointSlice | null;
  const object = after ?? before;
  const service = object === null ? null : (listers.services.get(serviceKey(object)) ?? null);
  const sample = triggerSample(before, after, service, at);
  // What a watch delivers just after a loss may have been written before.
  if (sample === null || at - (sample.seconds ?? 0) < (change.backAt ?? -Infinity)) return;
  const isCompared = sample.quality === 'ok' || sample.quality === 'coarse';
  const quality = isSkewed && isCompared ? 'skewed' : sample.quality;
  countTrigger(samples.trigger, { ...sample, quality });
}

function serviceKey(object: Endpoints | EndpointSlice): Key {
  if ('subsets' in object) return object.key;
  return `${object.namespace}/${object.labels[label.serviceName] ?? ''}`;
}

/** Counts an output that became correct, unless only a list showed that. */
export function addConvergence(samples: Samples, sample: ConvergenceSample): void {
  if (sample.isListed === true) return;
  countConvergence(samples.convergence, sample);
  samples.worst.convergence.note(sample);
  samples.history.note({ ...sample, service: `${sample.namespace}/${sample.service}` });
}

/** Keeps a journey that ended. Abandoned journeys have no length. */
export function addJourney(samples: Samples, journey: Journey): void {
  const { end, stages } = journey;
  if (end === 'gone' || !isMeasured(journey)) return;
  const at = stages.at(-1)?.at ?? journey.begun;
  samples.worst.journeys.note({ journey, seconds: journeyLength(journey), at });
}
