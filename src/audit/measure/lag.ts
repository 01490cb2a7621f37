// Measures how long outputs take to follow their input, and the skew of clocks.
//
// Convergence lag goes from the arrival of the change that made an output wrong to the arrival of
// the write, or at a node the first reading of rules, that made it right. The audit makes samples.
//
// Trigger lag goes from the annotation endpoints.kubernetes.io/last-change-trigger-time to the
// arrival of the object. k8s.io/endpointslice@v0.36.3 util/trigger_time_tracker.go writes the least
// of the creation of the Service and the Ready transitions of its pods that are new since the last
// sync. Therefore each write has a quality, and only ok and coarse are measured:
//
//   - coarse: the annotation has whole seconds, so a lag below one second is only known as such
//   - absent: a sync without such news clears the annotation, an edit by another client keeps it,
//     long after the last version; a pod that was Ready before it was selected brings its old time
//   - restarted: it is the creation of the Service, which the controller process syncs for the
//     first time; a first write that is over a minute late looks the same
//   - skewed: another clock wrote it

import { recordOf } from '../../model/collections.ts';
import type { Endpoints, EndpointSlice, OutputResource, Service } from '../../model/objects.ts';
import { annotation, label, manager, outputResources } from '../../model/objects.ts';
import { createHistogram, observe } from './histogram.ts';

/** Seconds of the auditor's own work: microseconds for a change, a second for a full audit. */
export const durationBounds: readonly number[] = [
  0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5,
  1, 2.5, 10,
];

export const lagOutputs = ['endpoints', 'endpointslices', 'mirrored', 'node'] as const;
export type LagOutput = (typeof lagOutputs)[number];

export const lagOperations = ['add', 'remove', 'update'] as const;
export type LagOperation = (typeof lagOperations)[number];

export interface LagSample {
  readonly output: LagOutput;
  readonly operation: LagOperation;
  readonly seconds: number;
}

export type ConvergenceLag = ReturnType<typeof createConvergenceLag>;

export const convergenceBounds: readonly number[] = [
  0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
];

export const createConvergenceLag = () =>
  recordOf(lagOutputs, () => recordOf(lagOperations, () => createHistogram(convergenceBounds)));

export const countConvergence = (lag: ConvergenceLag, sample: LagSample): void =>
  observe(lag[sample.output][sample.operation], sample.seconds);

export const triggerQualities = ['ok', 'coarse', 'absent', 'restarted', 'skewed'] as const;

export type TriggerQuality = (typeof triggerQualities)[number];

interface TriggerSample {
  readonly resource: OutputResource;
  readonly quality: TriggerQuality;
  /** From the trigger time to the arrival, also if it is not measured; null if absent. */
  readonly seconds: number | null;
}

/** Seconds after which a version belongs to another sync. */
const longAfter = 60;

/** Seconds by which the writes of a controller that is behind may be late: the last bound. */
const longest = 600;

const rfc3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)$/;

/** The trigger time of an object, Unix seconds; null if it has none that is valid. */
function triggerTimeOf(object: Endpoints | EndpointSlice): number | null {
  const text = object.annotations[annotation.triggerTime] ?? '';
  const seconds = rfc3339.test(text) ? Date.parse(text) / 1000 : Number.NaN;
  return Number.isNaN(seconds) ? null : seconds;
}

function isStamped(object: Endpoints | EndpointSlice, service: Service | null): boolean {
  if ('subsets' in object) return service !== null && service.selector !== null;
  return object.labels[label.sliceManagedBy] === manager.slices;
}

function isNews(
  trigger: number,
  before: Endpoints | EndpointSlice | null,
  service: Service | null,
  at: number,
): boolean {
  // The controller writes pods that became Ready in the same second within ten seconds.
  if (before !== null && trigger === triggerTimeOf(before)) return at - before.at <= 10;
  if (trigger === service?.created) return true;
  const last = before?.at ?? -Infinity;
  const isOld = last - trigger > (at - last > longAfter ? longAfter : longest);
  if (isOld) return false;
  // A Service that changed after both the trigger and the last version may select other pods.
  return service === null || service.at <= trigger + 1 || service.at <= last;
}

/**
 * The trigger lag of one write after the first list: `before` is the version that it replaced, `at`
 * the arrival in Unix seconds. null for a deletion, or for an object of another client.
 */
export function triggerSample(
  before: Endpoints | EndpointSlice | null,
  after: Endpoints | EndpointSlice | null,
  service: Service | null,
  at: number,
): TriggerSample | null {
  if (after === null || !isStamped(after, service)) return null;
  const resource = 'subsets' in after ? 'endpoints' : 'endpointslices';
  const trigger = triggerTimeOf(after);
  if (trigger === null || !isNews(trigger, before, service, at)) {
    return { resource, quality: 'absent', seconds: null };
  }
  const seconds = at - trigger;
  const isRestart = trigger === service?.created && seconds > longAfter;
  const quality = seconds < -1 ? 'skewed' : seconds < 1 ? 'coarse' : 'ok';
  return { resource, quality: isRestart ? 'restarted' : quality, seconds };
}

export type TriggerLag = ReturnType<typeof createTriggerLag>;

export const triggerBounds: readonly number[] = [1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600];

export const createTriggerLag = () => ({
  lag: recordOf(outputResources, () => createHistogram(triggerBounds)),
  counts: recordOf(outputResources, () => recordOf(triggerQualities, () => 0)),
});

/** Counts a sample by its quality, and measures it if the quality allows. */
export function countTrigger(triggers: TriggerLag, sample: TriggerSample): void {
  const { resource, quality, seconds } = sample;
  triggers.counts[resource][quality]++;
  if (quality !== 'ok' && quality !== 'coarse') return;
  // A coarse lag may be negative by less than a second.
  observe(triggers.lag[resource], Math.max(0, seconds ?? 0));
}

/** Seconds of an interval: a distance expires after one or two of them, because clocks are set. */
const span = 900;

/**
 * The distance of the clocks of the API server and the auditor: the arrival of a new object minus
 * its creation time, less the delay and a part of a second. The least of many is the best bound.
 */
export const createClockSkew = () => ({
  /** Start of the current interval, Unix seconds; null before the first object. */
  from: null as number | null,
  /** The least distance of this interval and of the one before, seconds. */
  least: Infinity,
  before: Infinity,
});

export type ClockSkew = ReturnType<typeof createClockSkew>;

/** Observes a new object; objects of a list are older, and do no harm. */
export function observeCreated(skew: ClockSkew, created: number, at: number): void {
  skew.from ??= at;
  if (at - skew.from >= span) {
    skew.before = at - skew.from >= 2 * span ? Infinity : skew.least;
    skew.least = Infinity;
    skew.from = at;
  }
  skew.least = Math.min(skew.least, at - created);
}

/** Seconds by which the auditor's clock is ahead at most; null without a recent object. */
export function skewSeconds({ from, least, before }: ClockSkew, now: number): number | null {
  if (from === null || now - from >= 2 * span) return null;
  const seconds = Math.min(least, now - from >= span ? Infinity : before);
  return seconds === Infinity ? null : seconds;
}
