// Journeys with defaults that go well together: pod shop/web-1 of Service shop/web turned ready at
// `moment`, was seen half a second later, and came to Endpoints, its slice and one node by 0.9 s.

import type { Journey, JourneyStage } from '../../src/audit/measure/journey.ts';
import type {
  TraceSender,
  TracingCounts,
  TracingSettings,
} from '../../src/output/traces/sender.ts';
import { moment } from './samples.ts';

export function stageOf(more: Partial<JourneyStage> = {}): JourneyStage {
  return {
    stage: 'arrival',
    at: moment + 0.5,
    within: 0,
    object: 'Pod shop/web-1',
    resourceVersion: '100',
    node: null,
    ...more,
  };
}

export const usualStages: readonly JourneyStage[] = [
  stageOf(),
  stageOf({
    stage: 'endpoints',
    at: moment + 0.625,
    object: 'Endpoints shop/web',
    resourceVersion: '101',
  }),
  stageOf({
    stage: 'endpointslices',
    at: moment + 0.75,
    object: 'EndpointSlice shop/web-abcde',
    resourceVersion: '102',
  }),
  stageOf({
    stage: 'node',
    at: moment + 0.9,
    within: 0.1,
    object: 'Node node-b',
    resourceVersion: '',
    node: 'node-b',
  }),
];

export function journeyOf(more: Partial<Journey> = {}): Journey {
  return {
    namespace: 'shop',
    service: 'web',
    pod: 'web-1',
    uid: 'uid-web-1',
    podNode: 'node-a',
    addresses: ['10.0.0.1'],
    operation: 'add',
    begun: moment,
    quality: 'coarse',
    stages: usualStages,
    nodes: 1,
    end: 'complete',
    ...more,
  };
}

export const settingsOf = (more: Partial<TracingSettings> = {}): TracingSettings => ({
  exporter: 'otlp',
  ratio: 1,
  limits: { queue: 2048, batch: 512, delayMs: 20, timeoutMs: 1000 },
  ...more,
});

/** All that was counted must come to this. */
export function spansCounted({ exported, dropped }: TracingCounts): number {
  return exported + dropped.queue + dropped.export + dropped.shutdown;
}

/** A sender that keeps what it is sent while `isOpen` says so. */
export function keeping(isOpen: () => boolean = () => true) {
  const sent: Parameters<TraceSender['send']>[0][] = [];
  const sender: TraceSender = {
    send(kept) {
      if (!isOpen()) return false;
      sent.push(kept);
      return true;
    },
    close: () => Promise.resolve(),
  };
  return { sender, sent };
}
