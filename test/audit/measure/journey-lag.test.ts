import { expect, test } from 'vitest';

import {
  countProgrammed,
  countStage,
  createJourneyLag,
  journeyOperations,
  journeyLagOutputs,
} from '../../../src/audit/measure/journey-lag.ts';
import type {
  Journey,
  JourneyOperation,
  JourneyQuality,
} from '../../../src/audit/measure/journey.ts';
import { journeyQualities } from '../../../src/audit/measure/journey.ts';

const journey = (operation: JourneyOperation, quality: JourneyQuality): Journey => ({
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

test('an addition is readiness, a removal removal, and what is skewed or listed is neither', () => {
  const lag = createJourneyLag();
  for (const operation of journeyOperations) {
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
  for (const operation of journeyOperations) {
    expect(Object.values(lag.begun[operation])).toEqual([1, 1, 1, 1, 1]);
  }
});

test('a stage that seems to come before the beginning took no time', () => {
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
