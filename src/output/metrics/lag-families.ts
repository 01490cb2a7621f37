// The families about lag. They are part of the catalogue (families.ts) and follow its rules; what
// each is measured from, the room measure says.

import { skewSeconds } from '../../audit/measure/clock-skew.ts';
import {
  journeyOperations,
  programmingBounds,
  journeyLagOutputs,
} from '../../audit/measure/journey-lag.ts';
import { journeyEnds, journeyQualities } from '../../audit/measure/journey.ts';
import {
  convergenceBounds,
  lagOperations,
  lagOutputs,
  triggerQualities,
  triggerBounds,
} from '../../audit/measure/lag.ts';
import { outputResources } from '../../model/objects.ts';
import type { MetricFamily } from './family.ts';

const prefix = 'endpoint_auditor_';

function travelLag(of: 'readiness' | 'removal', from: string): MetricFamily {
  return {
    name: `${prefix}${of}_lag_seconds`,
    type: 'histogram',
    help:
      `${from} to the arrival of the output that says so, up to a second too high; at nodes, to ` +
      'the first reading of their rules that does. Clock skew to the cluster enters it.',
    labels: { output: journeyLagOutputs },
    unit: 'seconds',
    stability: 'stable',
    source: 'audit/measure/journey-lag.ts',
    bounds: convergenceBounds,
    histograms: ({ travel }) =>
      journeyLagOutputs.map((output) => ({ labels: { output }, histogram: travel[of][output] })),
  };
}

export const lagFamilies: readonly MetricFamily[] = [
  {
    name: `${prefix}convergence_lag_seconds`,
    type: 'histogram',
    help:
      'From the arrival of a change that made an output differ to the arrival of the writing ' +
      'that made it equal again, by one clock; at a node, to the first reading of its rules that ' +
      'is as expected.',
    labels: { output: lagOutputs, operation: lagOperations },
    unit: 'seconds',
    stability: 'stable',
    source: 'audit/measure/lag.ts',
    bounds: convergenceBounds,
    histograms: ({ convergence }) =>
      lagOutputs.flatMap((output) =>
        lagOperations.map((operation) => ({
          labels: { output, operation },
          histogram: convergence[output][operation],
        })),
      ),
  },
  {
    name: `${prefix}trigger_lag_seconds`,
    type: 'histogram',
    help:
      'From the annotation last-change-trigger-time to the arrival of the object, up to a second ' +
      'too high; qualities ok and coarse only. Clock skew to the control plane enters it.',
    labels: { resource: outputResources },
    unit: 'seconds',
    stability: 'stable',
    source: 'audit/measure/lag.ts',
    bounds: triggerBounds,
    histograms: ({ trigger }) =>
      outputResources.map((resource) => ({
        labels: { resource },
        histogram: trigger.lag[resource],
      })),
  },
  {
    name: `${prefix}trigger_times_total`,
    type: 'counter',
    help: 'Writings by the controllers, by what their trigger time is worth.',
    labels: { resource: outputResources, quality: triggerQualities },
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/lag.ts',
    samples: ({ trigger }) =>
      outputResources.flatMap((resource) =>
        triggerQualities.map((quality) => ({
          labels: { resource, quality },
          value: trigger.counts[resource][quality],
        })),
      ),
  },
  travelLag('readiness', 'From the Ready transition of a pod, by its own time in whole seconds,'),
  travelLag('removal', 'From the deletion of a pod, or its becoming not ready, by its own time,'),
  {
    name: `${prefix}node_programming_lag_seconds`,
    type: 'histogram',
    help:
      'From the arrival of a slice or a Service to rules of a node that do as it says. Rules are ' +
      'read now and then: it was at least to the last reading that was wrong (least), and at ' +
      'most to the first that was right (most).',
    labels: { bound: programmingBounds },
    unit: 'seconds',
    stability: 'stable',
    source: 'audit/measure/journey-lag.ts',
    bounds: convergenceBounds,
    histograms: ({ travel }) =>
      programmingBounds.map((bound) => ({
        labels: { bound },
        histogram: travel.programming[bound],
      })),
  },
  {
    name: `${prefix}journeys_total`,
    type: 'counter',
    help:
      'Changes of pods that traffic is to see, one for each Service, by what their beginning is ' +
      'worth; those of ok, coarse and arrival are measured as readiness and removal lag.',
    labels: { operation: journeyOperations, quality: journeyQualities },
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/journey-lag.ts',
    samples: ({ travel }) =>
      journeyOperations.flatMap((operation) =>
        journeyQualities.map((quality) => ({
          labels: { operation, quality },
          value: travel.begun[operation][quality],
        })),
      ),
  },
  {
    name: `${prefix}journeys_ended_total`,
    type: 'counter',
    help:
      'Journeys that ended: complete at all outputs and nodes, overtaken by another change of ' +
      'the pod, gone with what they awaited, dropped since too many were open.',
    labels: { end: journeyEnds },
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/journey.ts',
    samples: ({ journeys }) =>
      journeyEnds.map((end) => ({ labels: { end }, value: journeys.ended[end] })),
  },
  {
    name: `${prefix}journeys_open`,
    type: 'gauge',
    help: 'Journeys that have not come to all outputs and nodes.',
    labels: {},
    unit: 'none',
    stability: 'stable',
    source: 'audit/measure/journey.ts',
    samples: ({ journeys }) => [{ labels: {}, value: journeys.openCount() }],
  },
  {
    name: `${prefix}clock_ahead_seconds`,
    type: 'gauge',
    help:
      'By how much the clock of the auditor is ahead of that of the API server, up to a second ' +
      'and the way too high; negative: it is behind. No lag is mended by it. Absent where ' +
      'nothing was created for half an hour.',
    labels: {},
    unit: 'seconds',
    stability: 'experimental',
    source: 'audit/measure/clock-skew.ts',
    samples({ skew, now }) {
      const value = skewSeconds(skew, now);
      return value === null ? [] : [{ labels: {}, value }];
    },
  },
];
