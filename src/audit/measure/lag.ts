// How long outputs take to follow their input, in two measures that can be held against each other.
//
// Convergence lag is the auditor's own: from the arrival of the change that made an output wrong to
// the arrival of the writing that made it right, by one clock, for additions, removals and updates.
// The ledger makes the samples, address by address and object by object, so that changes which
// overlap are told apart; here they are counted. An address that is written in several steps is
// late until the last, and what it had to do at first is the operation. Of a node it is up to the
// first reading of its rules that is right, and one sample for each Service.
//
// Trigger lag is upstream's: from the annotation endpoints.kubernetes.io/last-change-trigger-time
// to the arrival of the object. k8s.io/endpointslice@v0.36.3 util/trigger_time_tracker.go admits
// that the annotation may be wrong. What it says is the least, over the Service's creation and the
// Ready transitions of its pods, of those times that are new since the last sync. It follows that
//
//   - it is whole seconds, so a lag is an upper bound that is up to a second too high: below one
//     second nothing is known but that (coarse);
//   - a sync without such news (a pod is deleted, the Service or a Node changes) clears it, and an
//     edit by somebody else keeps it: that writing has no trigger of its own (absent);
//   - pods of one rolling update become Ready in the same second, so an unchanged value alone is no
//     edit; it is taken for one when it comes long after the version before;
//   - for a Service that the controller process has not synced before it is the creation of the
//     Service, so after a restart it may be months old (restarted);
//   - a pod that was Ready long before the Service selects it brings its old time. It is left out
//     (absent) where the Service itself changed, or where a version was written in between;
//   - it is written by another clock than the arrival (skewed).
//
// Every writing is counted by this quality. Only ok and coarse are measured; since the least bound
// of trigger lag is one second, a coarse sample falls into the bucket it belongs to, and leaving
// them out would leave only the slow ones. A first writing that is over a minute late cannot be
// told from a restart; convergence lag shows it.
//
// Left out: from a pod's own Ready transition on, which journeys tell (journey.ts). The mirroring
// controller writes no trigger time, and neither does anybody else, so their objects are not looked
// at.

import type { Endpoints, EndpointSlice, OutputResource, Service } from '../../model/objects.ts';
import { annotation, label, manager } from '../../model/objects.ts';
import type { Histogram } from './histogram.ts';

/** A histogram without values; `bounds` ascend. */
export function createHistogram(bounds: readonly number[]): Histogram {
  const counts = new Array<number>(bounds.length + 1).fill(0);
  return { bounds, counts, count: 0, sum: 0, largest: 0 };
}

export function observe(histogram: Histogram, value: number): void {
  const { bounds, counts } = histogram;
  let index = 0;
  while (index < bounds.length && value > (bounds[index] ?? Infinity)) index++;
  counts[index] = (counts[index] ?? 0) + 1;
  histogram.count++;
  histogram.sum += value;
  histogram.largest = Math.max(histogram.largest, value);
}

/** All values of histograms with equal bounds, of which there must be one. */
export function merged(histograms: readonly Histogram[]): Histogram {
  const sum = createHistogram(histograms[0]?.bounds ?? []);
  for (const { counts, count, sum: total, largest } of histograms) {
    for (const [index, here] of counts.entries()) {
      sum.counts[index] = (sum.counts[index] ?? 0) + here;
    }
    sum.count += count;
    sum.sum += total;
    sum.largest = Math.max(sum.largest, largest);
  }
  return sum;
}

/**
 * An estimate of a quantile (0 to 1), as Prometheus' histogram_quantile makes it: linear within the
 * bucket, whose lower end is 0 for the first. Never above the largest value, which is also the
 * answer where the bucket has no upper bound. null: there is no value.
 */
export function quantile(histogram: Histogram, q: number): number | null {
  const { bounds, counts, count, largest } = histogram;
  if (count === 0) return null;
  const rank = q * count;
  let below = 0;
  for (const [index, here] of counts.entries()) {
    const upper = bounds[index];
    if (upper === undefined) break;
    if (here > 0 && below + here >= rank) {
      const lower = bounds[index - 1] ?? 0;
      return Math.min(largest, lower + ((upper - lower) * (rank - below)) / here);
    }
    below += here;
  }
  return largest;
}

// --- how long the auditor's own work takes ---

/** Seconds: a change takes microseconds, a full audit of a large cluster a second. */
export const durationBounds: readonly number[] = [
  0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5,
  1, 2.5, 10,
];

// --- convergence lag ---

export const lagOutputs = ['endpoints', 'endpointslices', 'mirrored', 'node'] as const;
export const lagOperations = ['add', 'remove', 'update'] as const;

export type LagOutput = (typeof lagOutputs)[number];
export type LagOperation = (typeof lagOperations)[number];

/** How long an output took to follow its input, at one address or in one object. */
interface LagSample {
  readonly output: LagOutput;
  readonly operation: LagOperation;
  readonly seconds: number;
}

export type ConvergenceLag = Readonly<Record<LagOutput, Readonly<Record<LagOperation, Histogram>>>>;

/** Seconds, from 10 ms to 10 minutes. */
export const convergenceBounds: readonly number[] = [
  0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
];

export function createConvergenceLag(): ConvergenceLag {
  const lag = (): Histogram => createHistogram(convergenceBounds);
  const operations = () => ({ add: lag(), remove: lag(), update: lag() });
  return {
    endpoints: operations(),
    endpointslices: operations(),
    mirrored: operations(),
    node: operations(),
  };
}

export function countConvergence(lag: ConvergenceLag, sample: LagSample): void {
  observe(lag[sample.output][sample.operation], sample.seconds);
}

// --- trigger lag ---

export const triggerQualities = ['ok', 'coarse', 'absent', 'restarted', 'skewed'] as const;

/** What a trigger time is worth; see the head of this file. */
export type TriggerQuality = (typeof triggerQualities)[number];

const measured: ReadonlySet<TriggerQuality> = new Set<TriggerQuality>(['ok', 'coarse']);

interface TriggerSample {
  readonly resource: OutputResource;
  readonly quality: TriggerQuality;
  /** From the trigger time to the arrival, also where it is not measured; null: absent. */
  readonly seconds: number | null;
}

/** Seconds: the resolution of the annotation. */
const resolution = 1;
/** Seconds within which pods that became Ready in the same second are written one after another. */
const sameSecond = 10;
/** Seconds after which a version is taken to be of another time. */
const longAfter = 60;

const rfc3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)$/;

/** The trigger time of an object, Unix seconds; null where it has none that can be read. */
function triggerTimeOf(object: Endpoints | EndpointSlice): number | null {
  const text = object.annotations[annotation.triggerTime] ?? '';
  const seconds = rfc3339.test(text) ? Date.parse(text) / 1000 : Number.NaN;
  return Number.isNaN(seconds) ? null : seconds;
}

/** Whether the controller that stamps trigger times writes this object. */
function isStamped(object: Endpoints | EndpointSlice, service: Service | null): boolean {
  if ('subsets' in object) return service !== null && service.selector !== null;
  return object.labels[label.sliceManagedBy] === manager.slices;
}

/** Whether a trigger time belongs to this writing and not to an older one. */
function isOwn(
  trigger: number,
  before: Endpoints | EndpointSlice | null,
  service: Service | null,
  at: number,
): boolean {
  if (before !== null && trigger === triggerTimeOf(before)) return at - before.at <= sameSecond;
  if (trigger === service?.created) return true;
  const last = before?.at ?? -Infinity;
  if (last - trigger > longAfter && at - last > longAfter) return false;
  // A Service that changed after both the trigger and the last version may have selected anew.
  return service === null || service.at <= trigger + resolution || service.at <= last;
}

/**
 * The trigger lag of one writing of Endpoints or of an EndpointSlice: `before` is the version that
 * it replaced, `service` the Service as it stands, `at` the arrival in Unix seconds. null where
 * there is nothing to count: a deletion, or an object of somebody else. Not for the first list,
 * whose objects arrive long after they were written.
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
  if (trigger === null || !isOwn(trigger, before, service, at)) {
    return { resource, quality: 'absent', seconds: null };
  }
  const seconds = at - trigger;
  return { resource, quality: qualityOf(seconds, trigger === service?.created), seconds };
}

function qualityOf(seconds: number, isCreation: boolean): TriggerQuality {
  if (isCreation && seconds > longAfter) return 'restarted';
  if (seconds < -resolution) return 'skewed';
  return seconds < resolution ? 'coarse' : 'ok';
}

export interface TriggerLag {
  readonly lag: Readonly<Record<OutputResource, Histogram>>;
  readonly counts: Readonly<Record<OutputResource, Record<TriggerQuality, number>>>;
}

/** Seconds, from the resolution of the annotation to 10 minutes. */
export const triggerBounds: readonly number[] = [1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600];

export function createTriggerLag(): TriggerLag {
  const counts = () => ({ ok: 0, coarse: 0, absent: 0, restarted: 0, skewed: 0 });
  const lag = (): Histogram => createHistogram(triggerBounds);
  return {
    lag: { endpoints: lag(), endpointslices: lag() },
    counts: { endpoints: counts(), endpointslices: counts() },
  };
}

/** Counts a sample by its quality, and measures it where that is good enough. */
export function countTrigger(triggers: TriggerLag, sample: TriggerSample): void {
  const { resource, quality, seconds } = sample;
  triggers.counts[resource][quality]++;
  // A coarse lag may be negative by less than the resolution; no lag is.
  if (seconds !== null && measured.has(quality)) {
    observe(triggers.lag[resource], Math.max(0, seconds));
  }
}
