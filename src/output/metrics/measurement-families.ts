// The metric families of measurements: lags, traces, and the objects that the controllers write.

import {
  convergenceBounds,
  lagOperations,
  lagOutputs,
  skewSeconds,
  triggerBounds,
  triggerQualities,
} from '../../audit/measure/lag.ts';
import { endpointConditions } from '../../audit/measure/endpoint-counts.ts';
import { fillRatio, surplusOf } from '../../audit/measure/fill.ts';
import {
  journeyLagOutputs,
  journeyOperations,
  programmingBounds,
} from '../../audit/measure/journey-lag.ts';
import { journeyEnds, journeyQualities } from '../../audit/measure/journey.ts';
import { largestBytes, objectCount, sizeBounds } from '../../audit/measure/size.ts';
import { outputResources } from '../../model/objects.ts';
import { spanLosses, traceChoices } from '../traces/sender.ts';
import { familiesOf } from './family.ts';
import type { MetricsState } from './state.ts';
import { hintModes, hintReasons } from './state.ts';

const { gauge, counter, histogram } = familiesOf<MetricsState>('endpoint_auditor_');

const travelLag = (lag: 'readiness' | 'removal', from: string) =>
  histogram({
    name: `${lag}_lag_seconds`,
    help:
      `${from} to the arrival of the output that says so, up to a second too high; at nodes, to ` +
      'the first reading of their rules that does. Clock skew to the cluster enters it.',
    labels: { output: journeyLagOutputs },
    source: 'audit/measure/journey-lag.ts',
    bounds: convergenceBounds,
    histogram: ({ travel }, { output }) => travel[lag][output],
  });

export const lagFamilies = [
  histogram({
    name: 'convergence_lag_seconds',
    help:
      'From the arrival of a change that made an output differ to the arrival of the writing ' +
      'that made it equal again, by one clock; at a node, to the first reading of its rules that ' +
      'is as expected.',
    labels: { output: lagOutputs, operation: lagOperations },
    source: 'audit/measure/lag.ts',
    bounds: convergenceBounds,
    histogram: ({ convergence }, { output, operation }) => convergence[output][operation],
  }),
  histogram({
    name: 'trigger_lag_seconds',
    help:
      'From the annotation last-change-trigger-time to the arrival of the object, up to a second ' +
      'too high; qualities ok and coarse only. Clock skew to the control plane enters it.',
    labels: { resource: outputResources },
    source: 'audit/measure/lag.ts',
    bounds: triggerBounds,
    histogram: ({ trigger }, { resource }) => trigger.lag[resource],
  }),
  counter({
    name: 'trigger_times_total',
    help: 'Writings by the controllers, by what their trigger time is worth.',
    labels: { resource: outputResources, quality: triggerQualities },
    source: 'audit/measure/lag.ts',
    value: ({ trigger }, { resource, quality }) => trigger.counts[resource][quality],
  }),
  travelLag('readiness', 'From the Ready transition of a pod, by its own time in whole seconds,'),
  travelLag('removal', 'From the deletion of a pod, or its becoming not ready, by its own time,'),
  histogram({
    name: 'node_programming_lag_seconds',
    help:
      'From the arrival of a slice or a Service to rules of a node that do as it says. Rules are ' +
      'read now and then: it was at least to the last reading that was wrong (least), and at ' +
      'most to the first that was right (most).',
    labels: { bound: programmingBounds },
    source: 'audit/measure/journey-lag.ts',
    bounds: convergenceBounds,
    histogram: ({ travel }, { bound }) => travel.programming[bound],
  }),
  counter({
    name: 'journeys_total',
    help:
      'Changes of pods that traffic is to see, one for each Service, by what their beginning is ' +
      'worth; those of ok, coarse and arrival are measured as readiness and removal lag.',
    labels: { operation: journeyOperations, quality: journeyQualities },
    source: 'audit/measure/journey-lag.ts',
    value: ({ travel }, { operation, quality }) => travel.begun[operation][quality],
  }),
  counter({
    name: 'journeys_ended_total',
    help:
      'Journeys that ended: complete at all outputs and nodes, overtaken by another change of ' +
      'the pod, gone with what they awaited, dropped since too many were open.',
    labels: { end: journeyEnds },
    source: 'audit/measure/journey.ts',
    value: ({ journeys }, { end }) => journeys.ended[end],
  }),
  gauge({
    name: 'journeys_open',
    help: 'Journeys that have not come to all outputs and nodes.',
    source: 'audit/measure/journey.ts',
    value: ({ journeys }) => journeys.openCount(),
  }),
  gauge({
    name: 'clock_ahead_seconds',
    help:
      'By how much the clock of the auditor is ahead of that of the API server, up to a second ' +
      'and the way too high; negative: it is behind. No lag is mended by it. Absent where ' +
      'nothing was created for half an hour.',
    stability: 'experimental',
    source: 'audit/measure/lag.ts',
    value: ({ skew, now }) => skewSeconds(skew, now),
  }),
];

export const traceFamilies = [
  counter({
    name: 'journeys_traced_total',
    help:
      'Journeys that ended while traces are sent, by why they have one: slow ones always, the ' +
      'others by the ratio; none: they have none.',
    labels: { choice: traceChoices },
    stability: 'experimental',
    source: 'output/traces/tracing.ts',
    value: ({ tracing }, { choice }) => tracing.journeys[choice],
  }),
  counter({
    name: 'spans_exported_total',
    help: 'Spans that the backend of traces took.',
    stability: 'experimental',
    source: 'output/traces/otel.ts',
    value: ({ tracing }) => tracing.exported,
  }),
  counter({
    name: 'spans_dropped_total',
    help:
      'Spans that are lost: they found no room (queue), the backend refused them, was away or ' +
      'did not answer (export), or were not sent before the end (shutdown).',
    labels: { reason: spanLosses },
    stability: 'experimental',
    source: 'output/traces/otel.ts',
    value: ({ tracing }, { reason }) => tracing.dropped[reason],
  }),
];

export const packingFamilies = [
  gauge({
    name: 'endpointslices',
    help: 'Slices of the endpointslice controller.',
    source: 'audit/measure/fill.ts',
    value: ({ fill }) => fill.slices,
  }),
  gauge({
    name: 'endpointslices_minimum',
    help: 'The fewest slices that could list the same endpoints.',
    source: 'audit/measure/fill.ts',
    value: ({ fill }) => fill.minimum,
  }),
  gauge({
    name: 'endpointslices_surplus',
    help: 'Slices beyond the fewest that would do.',
    source: 'audit/measure/fill.ts',
    value: ({ fill }) => surplusOf(fill),
  }),
  gauge({
    name: 'slice_endpoints',
    help: 'Endpoints that the slices of the endpointslice controller list.',
    source: 'audit/measure/fill.ts',
    value: ({ fill }) => fill.endpoints,
  }),
  gauge({
    name: 'fill_ratio',
    help: 'Endpoints over the places that the slices have; absent where there are no slices.',
    source: 'audit/measure/fill.ts',
    value: ({ fill }) => fillRatio(fill, fill.max),
  }),
  gauge({
    name: 'duplicate_endpoints',
    help: 'Endpoints listed more than once in the slices of one Service, by whether entries agree.',
    labels: { kind: ['equal', 'conflicting'] },
    source: 'audit/measure/endpoint-counts.ts',
    value: ({ duplicates }, { kind }) => duplicates[kind],
  }),
  gauge({
    name: 'endpoints',
    help: 'Endpoints by condition in the slices that the controllers wrote, mirrored ones too.',
    labels: { condition: endpointConditions },
    source: 'audit/measure/endpoint-counts.ts',
    value: (state, { condition }) => state.conditions[condition],
  }),
  gauge({
    name: 'services_hinted',
    help:
      'Services whose ready endpoints carry topology hints, all of them or some, by what asks ' +
      'for hints: the annotation topology-mode (auto) or trafficDistribution (zone, node).',
    labels: { mode: hintModes, endpoints: ['all', 'some'] },
    source: 'auditor/totals.ts',
    value: ({ hints }, { mode, endpoints }) => hints[mode][endpoints],
  }),
  gauge({
    name: 'services_unhinted',
    help:
      'Services that ask for topology hints and have none, by the reason that their input gives ' +
      'now; none: it gives no reason.',
    labels: { mode: hintModes, reason: hintReasons },
    source: 'shadow/hints.ts',
    value: ({ hints }, { mode, reason }) => hints[mode].absent[reason] ?? 0,
  }),
];

export const sizeFamilies = [
  gauge({
    name: 'objects',
    help: 'Endpoints and EndpointSlice objects that exist, whoever writes them.',
    labels: { resource: outputResources },
    source: 'audit/measure/size.ts',
    value: ({ sizes }, { resource }) => objectCount(sizes[resource]),
  }),
  gauge({
    name: 'object_bytes_max',
    help: 'Bytes of the largest object, as protobuf; the API server refuses more than 1572864.',
    labels: { resource: outputResources },
    source: 'audit/measure/size.ts',
    value: ({ sizes }, { resource }) => largestBytes(sizes[resource]),
  }),
  histogram({
    name: 'object_bytes',
    help:
      'Bytes of every version of an object that arrived, as protobuf, the first list included; ' +
      'the API server refuses more than 1572864.',
    labels: { resource: outputResources },
    source: 'audit/measure/size.ts',
    bounds: sizeBounds,
    histogram: ({ sizes }, { resource }) => sizes[resource].versions,
  }),
  gauge({
    name: 'truncated_objects',
    help: 'Endpoints that say that they were cut down to 1000 addresses.',
    source: 'audit/measure/endpoint-counts.ts',
    value: ({ capacity }) => capacity.truncated,
  }),
  gauge({
    name: 'over_capacity_objects',
    help:
      'Endpoints with more than 1000 addresses, and slices of the controllers with more ' +
      'endpoints than --max-endpoints-per-slice.',
    labels: { resource: outputResources },
    source: 'audit/measure/endpoint-counts.ts',
    value: ({ capacity }, { resource }) => capacity.over[resource],
  }),
  counter({
    name: 'updates_total',
    help: 'Changes of objects, deletions included.',
    labels: { resource: outputResources },
    source: 'audit/measure/size.ts',
    value: ({ sizes }, { resource }) => sizes[resource].updates,
  }),
  counter({
    name: 'update_bytes_total',
    help: 'Bytes of the objects that changed, as protobuf: what one watcher is sent.',
    labels: { resource: outputResources },
    source: 'audit/measure/size.ts',
    value: ({ sizes }, { resource }) => sizes[resource].updateBytes,
  }),
  counter({
    name: 'update_fanout_bytes_total',
    help:
      'The same times the Nodes, without what kube-proxy leaves out; for Endpoints, what it ' +
      'would be if Nodes still watched them.',
    labels: { resource: outputResources },
    source: 'audit/measure/size.ts',
    value: ({ sizes }, { resource }) => sizes[resource].fanoutBytes,
  }),
];
