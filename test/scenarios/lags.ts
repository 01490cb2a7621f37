// What was measured of lag while a scenario was played, as lines that its `lag` blocks expect.

import type { Journey } from '../../src/audit/measure/journey.ts';
import { triggerSample } from '../../src/audit/measure/lag.ts';
import type { ConvergenceSample } from '../../src/audit/service/reconcile.ts';
import type { JourneyTracker } from '../../src/auditor/open-journeys.ts';
import { createJourneyTracker, trackPod } from '../../src/auditor/open-journeys.ts';
import type { Change, Endpoints, EndpointSlice, Listers } from '../../src/model/objects.ts';

export interface LagLines {
  readonly journeys: JourneyTracker;
  readonly converged: (sample: ConvergenceSample) => void;
  /** Takes in a change that the auditor has evaluated. */
  readonly take: (change: Change) => void;
  /** Lines since they were last asked for, in the order of the alphabet. */
  readonly lines: () => string[];
}

const text = (seconds: number): string => `${String(Math.round(seconds * 1000) / 1000)}s`;

function journeyLine({ namespace, service, pod, operation, ...journey }: Journey): string {
  const { begun, quality, stages, end } = journey;
  const reached = stages
    .filter(({ stage }) => stage !== 'arrival')
    .map(({ stage, at }) => `${stage}=${text(at - begun)}`);
  const words = [`${namespace}/${service}`, pod, operation, quality, ...reached, end ?? 'open'];
  return `journey ${words.join(' ')}`;
}

export function createLagLines(listers: Listers): LagLines {
  let lines: string[] = [];
  const journeys = createJourneyTracker(listers, {
    onStage: () => undefined,
    onEnd: (journey) => void lines.push(journeyLine(journey)),
  });
  return {
    journeys,
    converged(sample) {
      const { namespace, service, output, operation, seconds } = sample;
      lines.push(`converged ${namespace}/${service} ${output} ${operation} ${text(seconds)}`);
    },
    take(change) {
      trackPod(journeys, change);
      const { resource, before, after, at } = change;
      if (resource !== 'endpoints' && resource !== 'endpointslices') return;
      const object = after as Endpoints | EndpointSlice | null;
      const name = object?.labels['kubernetes.io/service-name'] ?? object?.name ?? '';
      const key = `${object?.namespace ?? ''}/${name}`;
      const service = listers.services.get(key) ?? null;
      const was = before as Endpoints | EndpointSlice | null;
      const sample = triggerSample(was, object, service, at);
      const { quality = '', seconds = null } = sample ?? {};
      if (seconds !== null) lines.push(`trigger ${key} ${resource} ${quality} ${text(seconds)}`);
    },
    lines() {
      const told = lines.sort();
      lines = [];
      return told;
    },
  };
}
