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
const experimental = familiesOf<MetricsState>('endpoint_auditor_', 'experimental');

const travelLag = (lag: 'readiness' | 'removal', from: string) =>
  histogram(
    `${lag}_lag_seconds`,
    `${from} to the arrival of the output that says so, up to a second too high; at nodes, to ` +
      'the first reading of their rules that does. Clock skew to the cluster enters it.',
    convergenceBounds,
    ({ travel }, { output }) => travel[lag][output],
    { output: journeyLagOutputs },
  );

export const lagFamilies = [
  histogram(
    'convergence_lag_seconds',
    'From the arrival of a change that made an output differ to the arrival of the writing ' +
      'that made it equal again, by one clock; at a node, to the first reading of its rules that ' +
      'is as expected.',
    convergenceBounds,
    ({ convergence }, { output, operation }) => convergence[output][operation],
    { output: lagOutputs, operation: lagOperations },
  ),
  histogram(
    'trigger_lag_seconds',
    'From the annotation last-change-trigger-time to the arrival of the object, up to a second ' +
      'too high; qualities ok and coarse only. Clock skew to the control plane enters it.',
    triggerBounds,
    ({ trigger }, { resource }) => trigger.lag[resource],
    { resource: outputResources },
  ),
  counter(
    'trigger_times_total',
    'Writings by the controllers, by what their trigger time is worth.',
    ({ trigger }, { resource, quality }) => trigger.counts[resource][quality],
    { resource: outputResources, quality: triggerQualities },
  ),
  travelLag('readiness', 'From the Ready transition of a pod, by its own time in whole seconds,'),
  travelLag('removal', 'From the deletion of a pod, or its becoming not ready, by its own time,'),
  histogram(
    'node_programming_lag_seconds',
    'From the arrival of a slice or a Service to rules of a node that do as it says. Rules are ' +
      'read now and then: it was at least to the last reading that was wrong (least), and at ' +
      'most to the first that was right (most).',
    convergenceBounds,
    ({ travel }, { bound }) => travel.programming[bound],
    { bound: programmingBounds },
  ),
  counter(
    'journeys_total',
    'Changes of pods that traffic is to see, one for each Service, by what their beginning is ' +
      'worth; those of ok, coarse and arrival are measured as readiness and removal lag.',
    ({ travel }, { operation, quality }) => travel.begun[operation][quality],
    { operation: journeyOperations, quality: journeyQualities },
  ),
  counter(
    'journeys_ended_total',
    'Journeys that ended: complete at all outputs and nodes, overtaken by another change of ' +
      'the pod, gone with what they awaited, dropped since too many were open.',
    ({ journeys }, { end }) => journeys.ended[end],
    { end: journeyEnds },
  ),
  gauge('journeys_open', 'Journeys that have not come to all outputs and nodes.', ({ journeys }) =>
    journeys.openCount(),
  ),
  experimental.gauge(
    'clock_ahead_seconds',
    'By how much the clock of the auditor is ahead of that of the API server, up to a second ' +
      'and the way too high; negative: it is behind. No lag is mended by it. Absent where ' +
      'nothing was created for half an hour.',
    ({ skew, now }) => skewSeconds(skew, now),
  ),
];

export const traceFamilies = [
  experimental.counter(
    'journeys_traced_total',
    'Journeys that ended while traces are sent, by why they have one: slow ones always, the ' +
      'others by the ratio; none: they have none.',
    ({ tracing }, { choice }) => tracing.journeys[choice],
    { choice: traceChoices },
  ),
  experimental.counter(
    'spans_exported_total',
    'Spans that the backend of traces took.',
    ({ tracing }) => tracing.exported,
  ),
  experimental.counter(
    'spans_dropped_total',
    'Spans that are lost: they found no room (queue), the backend refused them, was away or ' +
      'did not answer (export), or were not sent before the end (shutdown).',
    ({ tracing }, { reason }) => tracing.dropped[reason],
    { reason: spanLosses },
  ),
];

export const packingFamilies = [
  gauge('endpointslices', 'Slices of the endpointslice controller.', ({ fill }) => fill.slices),
  gauge(
    'endpointslices_minimum',
    'The fewest slices that could list the same endpoints.',
    ({ fill }) => fill.minimum,
  ),
  gauge('endpointslices_surplus', 'Slices beyond the fewest that would do.', ({ fill }) =>
    surplusOf(fill),
  ),
  gauge(
    'slice_endpoints',
    'Endpoints that the slices of the endpointslice controller list.',
    ({ fill }) => fill.endpoints,
  ),
  gauge(
    'fill_ratio',
    'Endpoints over the places that the slices have; absent where there are no slices.',
    ({ fill }) => fillRatio(fill, fill.max),
  ),
  gauge(
    'duplicate_endpoints',
    'Endpoints listed more than once in the slices of one Service, by whether entries agree.',
    ({ duplicates }, { kind }) => duplicates[kind],
    { kind: ['equal', 'conflicting'] },
  ),
  gauge(
    'endpoints',
    'Endpoints by condition in the slices that the controllers wrote, mirrored ones too.',
    (state, { condition }) => state.conditions[condition],
    { condition: endpointConditions },
  ),
  gauge(
    'services_hinted',
    'Services whose ready endpoints carry topology hints, all of them or some, by what asks ' +
      'for hints: the annotation topology-mode (auto) or trafficDistribution (zone, node).',
    ({ hints }, { mode, endpoints }) => hints[mode][endpoints],
    { mode: hintModes, endpoints: ['all', 'some'] },
  ),
  gauge(
    'services_unhinted',
    'Services that ask for topology hints and have none, by the reason that their input gives ' +
      'now; none: it gives no reason.',
    ({ hints }, { mode, reason }) => hints[mode].absent[reason] ?? 0,
    { mode: hintModes, reason: hintReasons },
  ),
];

export const sizeFamilies = [
  gauge(
    'objects',
    'Endpoints and EndpointSlice objects that exist, whoever writes them.',
    ({ sizes }, { resource }) => objectCount(sizes[resource]),
    { resource: outputResources },
  ),
  gauge(
    'object_bytes_max',
    'Bytes of the largest object, as protobuf; the API server refuses more than 1572864.',
    ({ sizes }, { resource }) => largestBytes(sizes[resource]),
    { resource: outputResources },
  ),
  histogram(
    'object_bytes',
    'Bytes of every version of an object that arrived, as protobuf, the first list included; ' +
      'the API server refuses more than 1572864.',
    sizeBounds,
    ({ sizes }, { resource }) => sizes[resource].versions,
    { resource: outputResources },
  ),
  gauge(
    'truncated_objects',
    'Endpoints that say that they were cut down to 1000 addresses.',
    ({ capacity }) => capacity.truncated,
  ),
  gauge(
    'over_capacity_objects',
    'Endpoints with more than 1000 addresses, and slices of the controllers with more ' +
      'endpoints than --max-endpoints-per-slice.',
    ({ capacity }, { resource }) => capacity.over[resource],
    { resource: outputResources },
  ),
  counter(
    'updates_total',
    'Changes of objects, deletions included.',
    ({ sizes }, { resource }) => sizes[resource].updates,
    { resource: outputResources },
  ),
  counter(
    'update_bytes_total',
    'Bytes of the objects that changed, as protobuf: what one watcher is sent.',
    ({ sizes }, { resource }) => sizes[resource].updateBytes,
    { resource: outputResources },
  ),
  counter(
    'update_fanout_bytes_total',
    'The same times the Nodes, without what kube-proxy leaves out; for Endpoints, what it ' +
      'would be if Nodes still watched them.',
    ({ sizes }, { resource }) => sizes[resource].fanoutBytes,
    { resource: outputResources },
  ),
];
