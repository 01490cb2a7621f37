import { expect, test } from 'vitest';

import type { Journey, JourneyLag, JourneyQuality } from '../../../src/audit/measure/journey.ts';
import {
  countProgrammed,
  countStage,
  createJourneyLag,
  exemplifyJourney,
  journeyLagOutputs,
  journeyQualities,
} from '../../../src/audit/measure/journey.ts';
import type { LagOperation } from '../../../src/audit/measure/lag.ts';
import { lagOperations } from '../../../src/audit/measure/lag.ts';
import { journeyOf, moment, usualStages } from '../../output/samples.ts';

const journey = (operation: LagOperation, quality: JourneyQuality): Journey => ({
  namespace: 'shop',
  service: 'web',
  pod: 'web-1',
  uid: 'u1',
  podNode: 'a',
  addresses: ['10.0.0.1'],
  operation,
  begun: 100,
  quality,
  stages: [],
  nodes: 0,
  end: null,
});

const stage = (name: 'arrival' | (typeof journeyLagOutputs)[number], at: number) =>
  ({ stage: name, at, within: 0, object: '', resourceVersion: '', node: null }) as const;

test('additions are readiness, removals removal, skewed and listed journeys neither', () => {
  const lag = createJourneyLag();
  for (const operation of lagOperations) {
    for (const quality of journeyQualities) {
      const one = journey(operation, quality);
      countStage(lag, one, stage('arrival', 101));
      for (const output of journeyLagOutputs) countStage(lag, one, stage(output, 102));
    }
  }
  for (const output of journeyLagOutputs) {
    // ok, coarse and arrival.
    expect(lag.readiness[output]).toMatchObject({ count: 3, sum: 6 });
    expect(lag.removal[output]).toMatchObject({ count: 3, sum: 6 });
  }
  for (const operation of lagOperations) {
    expect(Object.values(lag.begun[operation])).toEqual([1, 1, 1, 1, 1]);
  }
});

test('a stage before the beginning took no time', () => {
  const lag = createJourneyLag();
  countStage(lag, journey('add', 'coarse'), stage('endpointslices', 99.6));
  expect(lag.readiness.endpointslices).toMatchObject({ count: 1, sum: 0, largest: 0 });
});

test('programming lag is counted by its least and by its most', () => {
  const lag = createJourneyLag();
  countProgrammed(lag, { least: 0.5, most: 5.5 });
  expect(lag.programming.least).toMatchObject({ count: 1, sum: 0.5 });
  expect(lag.programming.most).toMatchObject({ count: 1, sum: 5.5 });
});

const traceId = 'cd'.repeat(16);

/** The lags of a journey, with its trace as exemplar. */
function lagOf(journey: Journey): JourneyLag {
  const lag = createJourneyLag();
  for (const stage of journey.stages) countStage(lag, journey, stage);
  exemplifyJourney(lag, journey, traceId);
  return lag;
}

const exemplarsOf = (lag: JourneyLag, kind: 'readiness' | 'removal') =>
  journeyLagOutputs.map((output) => Object.values(lag[kind][output].exemplars ?? []));

test('a journey is the exemplar of all its measured stages', () => {
  const lag = lagOf(journeyOf());
  expect(exemplarsOf(lag, 'readiness')).toEqual([
    [{ traceId, value: 0.625, at: moment + 0.625 }],
    [{ traceId, value: 0.75, at: moment + 0.75 }],
    [{ traceId, value: (usualStages[3]?.at ?? 0) - moment, at: usualStages[3]?.at }],
  ]);
  expect(exemplarsOf(lag, 'removal')).toEqual([[], [], []]);
  const removal = lagOf(journeyOf({ operation: 'remove' }));
  expect(exemplarsOf(removal, 'removal').flat()).toHaveLength(3);
});

test.each<Partial<Journey>>([{ operation: 'update' }, { quality: 'gap' }, { quality: 'skewed' }])(
  '%j is not measured and gives no exemplar',
  (more) => {
    const lag = lagOf(journeyOf(more));
    expect([exemplarsOf(lag, 'readiness'), exemplarsOf(lag, 'removal')].flat(2)).toEqual([]);
  },
);
