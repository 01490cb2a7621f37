// Lags while input comes: what the ledger, the nodes and the journeys tell of them is counted, and
// the worst is kept for people who ask what it was. How each is measured, the room measure says.

import type { ClockSkew } from '../audit/measure/clock-skew.ts';
import { createClockSkew, observeCreated } from '../audit/measure/clock-skew.ts';
import type { JourneyLag } from '../audit/measure/journey-lag.ts';
import {
  countProgrammed,
  countStage,
  createJourneyLag,
  isMeasured,
} from '../audit/measure/journey-lag.ts';
import type { Journey, OpenJourneys } from '../audit/measure/journey.ts';
import { journeyLength } from '../audit/measure/journey.ts';
import type { ConvergenceLag } from '../audit/measure/lag.ts';
import { countConvergence, createConvergenceLag } from '../audit/measure/lag.ts';
import type { LagHistory } from '../audit/measure/sample-history.ts';
import { createLagHistory } from '../audit/measure/sample-history.ts';
import type { TopSamples } from '../audit/measure/top-samples.ts';
import { createTopSamples } from '../audit/measure/top-samples.ts';
import type { NodeReading } from '../audit/node/programming-lag.ts';
import type { ServiceAuditor } from '../audit/service/auditor.ts';
import type { WorkItem } from '../audit/service/enqueue.ts';
import type { ConvergenceSample } from '../audit/service/reconcile.ts';
import type { Change, Listers } from '../model/objects.ts';
import type { Release } from '../shadow/release.ts';
import { followJourneys } from './open-journeys.ts';

/** A journey that ended, with what it is ordered by. */
export interface Travelled {
  readonly journey: Journey;
  readonly seconds: number;
  readonly at: number;
}

/** The worst lags of the last day. */
export interface WorstLags {
  readonly journeys: TopSamples<Travelled>;
  readonly convergence: TopSamples<ConvergenceSample>;
}

export interface Lags {
  readonly convergence: ConvergenceLag;
  readonly travel: JourneyLag;
  readonly journeys: Pick<OpenJourneys, 'open' | 'openCount' | 'ended'>;
  readonly skew: ClockSkew;
  readonly history: LagHistory;
  readonly worst: WorstLags;
}

export interface LagMeasuring {
  readonly lags: Lags;
  /** Takes in a change of the input that the ledger already judged. */
  readonly take: (change: Change) => void;
  /** A Service was judged after a change. */
  readonly judged: (touch: WorkItem, change: Change) => void;
  /** The rules of a node were read. */
  readonly nodeJudged: (judgement: NodeReading) => void;
  /** An output is right again. */
  readonly converged: (sample: ConvergenceSample) => void;
  readonly follow: (serviceAuditor: ServiceAuditor, release: Release) => void;
}

/** How many of the worst journeys, and of the worst samples, are kept. */
const keptWorst = 100;

export function createLags(listers: Listers, onJourney: (journey: Journey) => void): LagMeasuring {
  const convergence = createConvergenceLag();
  const travel = createJourneyLag();
  const skew = createClockSkew();
  const history = createLagHistory();
  const worst: WorstLags = {
    journeys: createTopSamples(keptWorst),
    convergence: createTopSamples(keptWorst),
  };
  const travels = followJourneys(listers, {
    onStage(journey, stage) {
      countStage(travel, journey, stage);
    },
    onEnd(journey) {
      noteEnd(worst, journey);
      onJourney(journey);
    },
  });
  return {
    lags: { convergence, travel, journeys: travels.journeys, skew, history, worst },
    take(change) {
      const { before, after, at } = change;
      const created = before === null ? (after?.created ?? null) : null;
      if (created !== null) observeCreated(skew, created, at);
      travels.take(change);
    },
    judged: travels.judged,
    nodeJudged(judgement) {
      for (const one of judgement.programmed) countProgrammed(travel, one);
      travels.nodeJudged(judgement);
    },
    converged(sample) {
      countConvergence(convergence, sample);
      worst.convergence.note(sample);
      history.note({ ...sample, service: `${sample.namespace}/${sample.service}` });
    },
    follow: travels.follow,
  };
}

/** Journeys that were given up tell nothing of how long the way is. */
function noteEnd({ journeys }: WorstLags, journey: Journey): void {
  const { end, stages } = journey;
  if (end === 'gone' || !isMeasured(journey)) return;
  const at = stages.at(-1)?.at ?? journey.begun;
  journeys.note({ journey, seconds: journeyLength(journey), at });
}
