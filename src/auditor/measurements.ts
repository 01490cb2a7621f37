// What is measured while input comes: sizes, updates and trigger samples change by change, and how
// long taking in an entry took. How each is measured, the room measure says. What is a sum over
// Services the tally of the ledger keeps (tally.ts); before there is a ledger, it is nothing.

import type { Histogram } from '../audit/measure/histogram.ts';
import type { Journey } from '../audit/measure/journey.ts';
import {
  countTrigger,
  createHistogram,
  createTriggerLag,
  durationBounds,
  observe,
  triggerSample,
} from '../audit/measure/lag.ts';
import { countUpdate, createSizes, trackSize } from '../audit/measure/size.ts';
import type { ServiceAuditor } from '../audit/service/auditor.ts';
import type { Change, Endpoints, EndpointSlice, Key, Listers } from '../model/objects.ts';
import { isOutput, label } from '../model/objects.ts';
import type { AuditDurations, OpenedFindings } from '../output/metrics/state.ts';
import type { Accumulators } from '../output/text/report.ts';
import type { Release } from '../shadow/release.ts';
import type { LagMeasuring, Lags } from './lag-samples.ts';
import { createLags } from './lag-samples.ts';
import type { ServiceTotals } from './totals.ts';

/**
 * What was measured since the input began; sums over Services are brought up to date by `refresh`.
 */
export interface Measured extends Accumulators, Lags {
  /** Findings opened so far. */
  readonly opened: OpenedFindings;
  readonly durations: AuditDurations;
  readonly tally: ServiceTotals;
  refresh(): void;
}

export interface Measuring {
  readonly measured: Measured;
  take(change: Change): void;
  /** What judgements tell of lags goes here. */
  readonly lags: Pick<LagMeasuring, 'judged' | 'nodeJudged' | 'converged'>;
  /** Notes how long it took to take in one entry, and whether judging began with it. */
  took(seconds: number, isBeginning: boolean): void;
  /** From now on, sums over Services are those of this ledger. */
  follow(serviceAuditor: ServiceAuditor, tally: ServiceTotals, release: Release): void;
}

export interface MeasuringOptions {
  readonly listers: Listers;
  readonly opened: OpenedFindings;
  /** What sums are until there is a ledger. */
  readonly tally: ServiceTotals;
  readonly onJourney: (journey: Journey) => void;
}

/** Measures what changes. */
export function createMeasuring(options: MeasuringOptions): Measuring {
  const { listers, opened, tally } = options;
  const sizes = createSizes();
  const lags = createLags(listers, options.onJourney);
  const trigger = createTriggerLag();
  const duration = (): Histogram => createHistogram(durationBounds);
  const durations = { full: duration(), change: duration() };
  let followed: { readonly serviceAuditor: ServiceAuditor; readonly tally: ServiceTotals } | null =
    null;
  const current = (): ServiceTotals => followed?.tally ?? tally;

  function take(change: Change): void {
    const { resource, at } = change;
    // The first list is no change: its objects were written long before they arrived.
    if (followed !== null) lags.take(change);
    if (!isOutput(resource)) return;
    trackSize(sizes, change);
    if (followed === null) return;
    countUpdate(sizes, change, listers.nodes.size);
    const before = change.before as Endpoints | EndpointSlice | null;
    const after = change.after as Endpoints | EndpointSlice | null;
    const object = after ?? before;
    const service = object === null ? null : listers.services.get(serviceOf(object));
    const sample = triggerSample(before, after, service ?? null, at);
    if (sample !== null) countTrigger(trigger, sample);
  }

  const measured: Measured = {
    ...lags.lags,
    sizes,
    trigger,
    opened,
    durations,
    get tally() {
      return current();
    },
    get fill() {
      return current().fill;
    },
    get duplicates() {
      return current().duplicates;
    },
    refresh() {
      followed?.tally.refresh(followed.serviceAuditor);
    },
  };
  return {
    measured,
    take,
    lags,
    took(seconds, isBeginning) {
      observe(isBeginning ? durations.full : durations.change, seconds);
    },
    follow(serviceAuditor, of, release) {
      followed = { serviceAuditor, tally: of };
      lags.follow(serviceAuditor, release);
    },
  };
}

/** The Service that an output belongs to, by its label or by its name. */
function serviceOf(object: Endpoints | EndpointSlice): Key {
  if ('subsets' in object) return object.key;
  return `${object.namespace}/${object.labels[label.serviceName] ?? ''}`;
}
