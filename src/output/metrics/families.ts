// The catalogue of metric families, from which /metrics and docs/metrics.md are both made. No pod,
// address or object is a label. Namespace, service, node and incident are labels only in
// finding-families.ts, incident-families.ts and service-rows.ts: all of them have a limit.

import { severities } from '../../audit/finding/catalogue.ts';
import { unknownReasons } from '../../audit/finding/verdicts.ts';
import { incidentKinds } from '../../audit/incident/kinds.ts';
import { endpointConditions, fillRatio, surplusOf } from '../../audit/measure/endpoint-counts.ts';
import { journeyLagOutputs, journeyQualities } from '../../audit/measure/journey.ts';
import {
  lagOperations,
  lagOutputs,
  skewSeconds,
  triggerQualities,
} from '../../audit/measure/lag.ts';
import { largestBytes, objectCount } from '../../audit/measure/size.ts';
import type { InputState } from '../../audit/pending/progress.ts';
import { unservedReasons } from '../../audit/service/unserved.ts';
import { verdictOutputs } from '../../audit/service/verdict.ts';
import { failureReasons, requestKinds } from '../../model/connection.ts';
import { outputResources, type Resource, resources } from '../../model/objects.ts';
import { noTracingCounts } from '../traces/settings.ts';
import { buildInfo, releaseInfo, shards } from './build-families.ts';
import { familiesOf, keysOf, nameFamilies } from './exposition.ts';
import {
  nodeFindings,
  openedFindings,
  openFindings,
  serviceFindings,
  suppressedFindings,
} from './finding-families.ts';
import { incidentServices } from './incident-families.ts';
import { renameFamilies } from './renamed.ts';
import { verdictLabels } from './service-rows.ts';
import type { MetricsState, WatchMetrics } from './state.ts';
import {
  hintModes,
  hintReasons,
  noAgents,
  noEventCounts,
  reconnectReasons,
  relistReasons,
} from './state.ts';

const { gauge, counter, histogram } = familiesOf<MetricsState>();
const experimental = familiesOf<MetricsState>('experimental');

/** A record, so that the compiler requires an entry for a new state. */
const watchStates = keysOf<InputState>({ listing: 1, synced: 1, relisting: 1, stale: 1, off: 1 });

/** Before its first list a watch is listing; null without a watch, as in a replay. */
const watchStateOf = ({ inputs, counters }: WatchMetrics, resource: Resource): InputState | null =>
  inputs.get(resource)?.state ?? (counters.has(resource) ? 'listing' : null);

/** The reasons to drop input that have a series from the start. */
const dropReasons = ['stale', 'repeated', 'unreadable', 'skipped'];

// Label values, with the names of the same in the state.

const frameCounters = {
  delivered: 'events',
  repeated: 'repeated',
  stale: 'stale',
  bookmark: 'bookmarks',
  'decode-error': 'badFrames',
  unreadable: 'unreadable',
} as const;

const refusalCounters = {
  throttled: 'throttled',
  unauthorized: 'unauthorised',
  forbidden: 'denied',
} as const;

const visitCounters = {
  success: 'seen',
  'not-ready': 'early',
  refused: 'refused',
  'no-answer': 'silent',
} as const;

const boundLabels = { lower: 'least', upper: 'most' } as const;

const endLabels = {
  complete: 'complete',
  superseded: 'overtaken',
  deleted: 'gone',
  dropped: 'dropped',
} as const;

const travelLag = (lag: 'readiness' | 'removal', from: string) =>
  histogram(
    `${from} to the arrival of the output with the change, overestimated by up to 1 s. For ` +
      'output=node: to the first reading of the rules with the change. Includes the clock offset ' +
      'to the cluster.',
    ({ travel }, { output }) => travel[lag][output],
    { output: journeyLagOutputs },
  );

const hintedServices = 'Services whose ready endpoints have topology hints';

const current = Object.entries({
  'Verdicts and findings': {
    findings: openFindings,
    suppressed_findings: suppressedFindings,
    findings_opened_total: openedFindings,
    incidents: gauge(
      'Open incidents, which group findings by their cause, by kind and severity.',
      ({ incidents }, { kind, severity }) => incidents[kind]?.[severity] ?? 0,
      { kind: incidentKinds, severity: severities },
    ),
    incident_services: incidentServices,
    incidents_dropped_total: counter(
      'Resolved incidents that the timeline does not have any more: it has the last 1,000.',
      ({ forgottenIncidents }) => forgottenIncidents,
    ),
    kubernetes_events_total: experimental.counter(
      'Kubernetes Events on Services that incidents affect, by result. 0 without --events.',
      ({ events }, { result }) => events[result],
      { result: keysOf(noEventCounts) },
    ),
    service_findings: serviceFindings,
    node_findings: nodeFindings,
    services: gauge('Services that exist.', ({ summary }) => summary.services),
    services_unmanaged: gauge(
      'Services, or names without a Service, whose endpoints a user or another controller ' +
        'writes. They have no verdict.',
      ({ summary }) => summary.foreign,
    ),
    services_without_endpoints: gauge(
      'Services that cannot receive traffic, because no EndpointSlice of them has a usable ' +
        'endpoint, by reason, without suppressed ones.',
      ({ summary }, { reason }) => summary.unserved[reason],
      { reason: unservedReasons },
    ),
    outputs: gauge(
      'One per Service and kind of object that Kubernetes should write, by verdict. Deprecated ' +
        'value output=node: use endpoint_auditor_node_service_ports.',
      ({ summary }, { output, verdict }) => summary.verdicts[output][verdictLabels[verdict]],
      { output: verdictOutputs, verdict: keysOf(verdictLabels) },
    ),
    node_service_ports: gauge(
      'One per Service port and node whose rules are known, by verdict.',
      ({ summary }, { verdict }) => summary.verdicts.node[verdictLabels[verdict]],
      { verdict: keysOf(verdictLabels) },
    ),
    outputs_unknown: gauge(
      'Outputs and Service ports of nodes with the verdict unknown, and Services that cannot be ' +
        'decoded, by reason.',
      ({ summary }, { reason }) => summary.unknown[reason] ?? 0,
      { reason: unknownReasons },
    ),
    pending_oldest_seconds: gauge(
      'Age of the oldest difference that is within the settle window. 0 without one.',
      ({ summary, now }, { output }) => Math.max(0, now - (summary.pendingSince[output] ?? now)),
      { output: verdictOutputs },
    ),
    audit_duration_seconds: experimental.histogram(
      'CPU-blocking time per input event, evaluation included. scope=full is the initial ' +
        'evaluation of everything.',
      ({ durations }, { scope }) => durations[scope],
      { scope: ['full', 'change'] },
    ),
    services_with_series: gauge(
      'Services that have series of their own.',
      ({ perService }) => perService.rows.length,
    ),
    services_without_series: gauge(
      'Services without series of their own because of the limit --metrics-max-services.',
      ({ perService }) => perService.leftOut,
    ),
  },
  Lag: {
    convergence_lag_seconds: histogram(
      'From the arrival of a change to the arrival of the write that follows it, both by the ' +
        'clock of the auditor. For output=node: to the first reading of rules that are correct.',
      ({ convergence }, { output, operation }) => convergence[output][operation],
      { output: lagOutputs, operation: lagOperations },
    ),
    trigger_lag_seconds: histogram(
      'From the annotation last-change-trigger-time to the arrival of the object, overestimated ' +
        'by up to 1 s. Only trigger times of quality ok and coarse. Includes the clock offset to ' +
        'the control plane.',
      ({ trigger }, { resource }) => trigger.lag[resource],
      { resource: outputResources },
    ),
    trigger_times_total: counter(
      'Writes of the controllers, by the quality of their trigger time.',
      ({ trigger }, { resource, quality }) => trigger.counts[resource][quality],
      { resource: outputResources, quality: triggerQualities },
    ),
    readiness_lag_seconds: travelLag(
      'readiness',
      'From the Ready transition of a pod, by the time in its status,',
    ),
    removal_lag_seconds: travelLag(
      'removal',
      'From the deletion of a pod, or its transition to not ready, by the time in the pod,',
    ),
    node_programming_lag_seconds: histogram(
      'From the arrival of an EndpointSlice or a Service to rules of a node that implement it. ' +
        'Rules are read at intervals. bound=lower: to the last reading without the change. ' +
        'bound=upper: to the first reading with it.',
      ({ travel }, { bound }) => travel.programming[boundLabels[bound]],
      { bound: keysOf(boundLabels) },
    ),
    pod_changes_total: counter(
      'Pod changes that the outputs of a Service should follow, one per Service, by the quality ' +
        'of their start time. ok, coarse and arrival are in the readiness and removal lag.',
      ({ travel }, { operation, quality }) => travel.begun[operation][quality],
      { operation: lagOperations, quality: journeyQualities },
    ),
    pod_changes_ended_total: counter(
      'Pod changes that are no longer followed. complete: all outputs and nodes have the change. ' +
        'superseded: the pod or Service changed again before. deleted: an awaited object was ' +
        'deleted. dropped: too many were open.',
      ({ journeys }, { end }) => journeys.ended[endLabels[end]],
      { end: keysOf(endLabels) },
    ),
    pod_changes_open: gauge(
      'Pod changes that some outputs or nodes do not have yet.',
      ({ journeys }) => journeys.openCount(),
    ),
    clock_offset_seconds: experimental.gauge(
      'Clock offset to the API server, overestimated by up to 1 s plus latency. Positive: the ' +
        'auditor is ahead. Lag metrics are not corrected for it. No series if nothing was ' +
        'created for 30 minutes.',
      ({ skew, now }) => skewSeconds(skew, now),
    ),
  },
  Traces: {
    pod_changes_traced_total: experimental.counter(
      'Finished pod changes while tracing is on, by sampling decision: slow (always traced), ' +
        'ratio (sampled), none (not traced).',
      ({ tracing }, { choice }) => tracing.journeys[choice],
      { choice: keysOf(noTracingCounts().journeys) },
    ),
    spans_exported_total: experimental.counter(
      'Spans that the tracing backend accepted.',
      ({ tracing }) => tracing.exported,
    ),
    spans_dropped_total: experimental.counter(
      'Spans that are lost. queue: the queue was full. export: the backend refused them or did ' +
        'not answer. shutdown: not sent before the process ended.',
      ({ tracing }, { reason }) => tracing.dropped[reason],
      { reason: keysOf(noTracingCounts().dropped) },
    ),
  },
  History: {
    history_bytes: experimental.gauge(
      'Bytes of the history on the disk; 0 without --history.',
      ({ history }) => history.bytes,
    ),
    history_written_timestamp_seconds: experimental.gauge(
      'Unix time until which the history is on the disk; 0 before its first checkpoint.',
      ({ history }) => history.writtenAt ?? 0,
    ),
    history_lines_total: experimental.counter(
      'Lines of the history that are on the disk.',
      ({ history }) => history.lines,
    ),
    history_dropped_lines_total: experimental.counter(
      'Lines that the history lacks, because the disk failed or was too slow.',
      ({ history }) => history.droppedLines,
    ),
    history_failures_total: experimental.counter(
      'Failures of the disk. Each ended a segment of the history.',
      ({ history }) => history.failures,
    ),
  },
  'Packing of slices': {
    endpointslices: gauge(
      'EndpointSlices of the endpointslice controller.',
      ({ fill }) => fill.slices,
    ),
    endpointslices_minimum: gauge(
      'The minimum of EndpointSlices that can list the same endpoints.',
      ({ fill }) => fill.minimum,
    ),
    endpointslices_surplus: gauge('EndpointSlices above the minimum.', ({ fill }) =>
      surplusOf(fill),
    ),
    slice_endpoints: gauge(
      'Endpoints in the EndpointSlices of the endpointslice controller.',
      ({ fill }) => fill.endpoints,
    ),
    fill_ratio: gauge(
      'Endpoints divided by the capacity of all EndpointSlices. No series without EndpointSlices.',
      ({ fill }) => fillRatio(fill, fill.max),
    ),
    duplicate_endpoints: gauge(
      'Endpoints that several EndpointSlices of one Service list, by whether the entries agree.',
      ({ duplicates }, { kind }) => duplicates[kind],
      { kind: ['equal', 'conflicting'] },
    ),
    endpoints: gauge(
      'Endpoints in the EndpointSlices that the controllers wrote, mirrored ones included, by ' +
        'condition.',
      (state, { condition }) => state.conditions[condition],
      { condition: endpointConditions },
    ),
    services_with_hints: gauge(
      `${hintedServices}, all of them or some, by what requests hints: the annotation ` +
        'topology-mode (auto) or trafficDistribution (zone, node).',
      ({ hints }, { mode, coverage }) => hints[mode][coverage],
      { mode: hintModes, coverage: ['all', 'some'] },
    ),
    services_without_hints: gauge(
      'Services that request topology hints and have none, by what requests hints and by reason. ' +
        'reason=none: the input has no reason for it.',
      ({ hints }, { mode, reason }) => hints[mode].absent[reason] ?? 0,
      { mode: hintModes, reason: hintReasons },
    ),
  },
  'Sizes and watch traffic': {
    objects: gauge(
      'Endpoints and EndpointSlice objects that exist, those of other writers included.',
      ({ sizes }, { resource }) => objectCount(sizes[resource]),
      { resource: outputResources },
    ),
    object_max_bytes: gauge(
      'Size of the largest object as protobuf. The API server refuses more than 1572864.',
      ({ sizes }, { resource }) => largestBytes(sizes[resource]),
      { resource: outputResources },
    ),
    object_bytes: histogram(
      'Size of every object version that arrived, as protobuf, the first list included.',
      ({ sizes }, { resource }) => sizes[resource].versions,
      { resource: outputResources },
    ),
    truncated_objects: gauge(
      'Endpoints objects with the annotation that marks them as truncated to 1000 addresses.',
      ({ capacity }) => capacity.truncated,
    ),
    over_capacity_objects: gauge(
      'Endpoints with more than 1000 addresses, and EndpointSlices of the controllers with more ' +
        'endpoints than --max-endpoints-per-slice.',
      ({ capacity }, { resource }) => capacity.over[resource],
      { resource: outputResources },
    ),
    updates_total: counter(
      'Changes of objects, deletions included.',
      ({ sizes }, { resource }) => sizes[resource].updates,
      { resource: outputResources },
    ),
    update_bytes_total: counter(
      'Size of the objects that changed, as protobuf: the watch traffic to one client.',
      ({ sizes }, { resource }) => sizes[resource].updateBytes,
      { resource: outputResources },
    ),
    update_fanout_bytes_total: counter(
      'Estimated watch traffic to all nodes: bytes changed multiplied by the number of nodes, ' +
        'without objects that kube-proxy ignores. Hypothetical for Endpoints, which nodes no ' +
        'longer watch.',
      ({ sizes }, { resource }) => sizes[resource].fanoutBytes,
      { resource: outputResources },
    ),
  },
  'Live input': {
    ready: gauge(
      'Whether the auditor has read everything that it needs, and received it within the last ' +
        'minute: 1 or 0.',
      ({ ready }) => (ready ? 1 : 0),
    ),
    watch_state: gauge(
      'State of the watch of a resource: 1 for the current state, 0 for the others.',
      ({ watches }, { resource, state }) => (watchStateOf(watches, resource) === state ? 1 : 0),
      { resource: resources, state: watchStates },
    ),
    watch_unseen_seconds: gauge(
      'Time since the watch of a resource was last synced, or since the start before its first ' +
        'list is complete. 0 while it is synced.',
      ({ watches, now, startedAt }, { resource }) => {
        const since = watchStateOf(watches, resource) === 'listing' ? startedAt : now;
        return Math.max(0, now - (watches.inputs.get(resource)?.blindSince ?? since));
      },
      { resource: resources },
    ),
    confirm_reads_total: counter(
      'Reads that verify the cache, before a finding opens and at intervals. confirmed: the ' +
        'cache is current. lagging: the cache lacks a change. failed: the read failed.',
      ({ watches }, { result }) => watches.confirmations[result],
      { result: ['confirmed', 'lagging', 'failed'] },
    ),
    watch_requests_total: experimental.counter(
      'Lists that completed, and watches that the API server accepted.',
      ({ watches }, { resource, verb }) =>
        watches.counters.get(resource)?.[verb === 'list' ? 'lists' : 'watches'] ?? 0,
      { resource: resources, verb: ['list', 'watch'] },
    ),
    watch_frames_total: experimental.counter(
      'Objects and bookmarks from lists and watches, by result. stale and repeated: not newer ' +
        'than the cache. decode-error: not a watch event. unreadable: not a valid object.',
      ({ watches }, { resource, result }) =>
        watches.counters.get(resource)?.[frameCounters[result]] ?? 0,
      { resource: resources, result: keysOf(frameCounters) },
    ),
    watch_errors_total: counter(
      'Requests to the API server that failed, by resource and reason. The resource version is ' +
        'the request of /version, which comes before the lists.',
      ({ watches }, { resource, reason }) => watches.errors[resource][reason],
      { resource: requestKinds, reason: failureReasons },
    ),
    watch_refusals_total: experimental.counter(
      'Requests that the API server refused, by status: 429 (throttled), 401 (unauthorized), ' +
        '403 (forbidden).',
      ({ watches }, { resource, reason }) =>
        watches.counters.get(resource)?.[refusalCounters[reason]] ?? 0,
      { resource: resources, reason: keysOf(refusalCounters) },
    ),
    watch_relists_total: experimental.counter(
      'Lists that replace a watch which can no longer continue, by reason.',
      ({ watches }, { resource, reason }) => watches.counters.get(resource)?.relists[reason] ?? 0,
      { resource: resources, reason: relistReasons },
    ),
    watch_reconnects_total: experimental.counter(
      'Watches that ended and were opened again, by reason.',
      ({ watches }, { resource, reason }) =>
        watches.counters.get(resource)?.reconnects[reason] ?? 0,
      { resource: resources, reason: reconnectReasons },
    ),
    watch_bytes_total: experimental.counter(
      'Bytes received from lists and watches.',
      ({ watches }, { resource }) => watches.counters.get(resource)?.bytes ?? 0,
      { resource: resources },
    ),
  },
  'Agents of nodes': {
    node_agents: gauge(
      'Nodes by the state of their agent. stale: it has stopped answering. refused: it rejects ' +
        'the auditor, or sends an invalid report. absent: the node has no agent.',
      ({ agents }, { state }) => agents.states[state],
      { state: keysOf(noAgents.states) },
    ),
    node_report_oldest_seconds: gauge(
      'Age of the oldest report of an answering agent. 0 without one.',
      ({ agents, now }) => Math.max(0, now - (agents.oldestSeenAt ?? now)),
    ),
    node_service_ports_divergent: experimental.gauge(
      'Addresses and ports of Services on all nodes whose rules have another hash than expected. ' +
        'Excludes those with several correct outcomes, which have no expected hash.',
      ({ agents }) => agents.divergent,
    ),
    agent_requests_total: experimental.counter(
      'Requests to agents. success: a report. not-ready: no report exists yet. refused: the ' +
        'agent rejected the auditor, or sent an invalid report. no-answer: no connection or a ' +
        'timeout.',
      ({ agents }, { result }) => agents.visits[visitCounters[result]],
      { result: keysOf(visitCounters) },
    ),
    agent_bytes_total: experimental.counter(
      'Bytes received from agents.',
      ({ agents }) => agents.bytes,
    ),
  },
  'Input and build': {
    dropped_total: experimental.samples(
      'counter',
      'Input that was not used. stale: older than the cached object. repeated: the same version. ' +
        'unreadable: not a valid object. skipped: an invalid line of a recording.',
      ({ dropped }) =>
        [...new Set([...dropReasons, ...Object.keys(dropped)])].map((reason) => {
          return { labels: { reason }, value: dropped[reason] ?? 0 };
        }),
      { reason: dropReasons },
    ),
    input_timestamp_seconds: gauge(
      'Current time of the input. It differs from the time of the scrape while a recording is ' +
        'replayed.',
      ({ now }) => now,
    ),
    input_start_timestamp_seconds: gauge(
      'Time at which the input began.',
      ({ startedAt }) => startedAt,
    ),
    build_info: buildInfo,
    release_info: releaseInfo,
    shards,
  },
}).map(([title, section]) => [title, nameFamilies('endpoint_auditor_', section)] as const);

/** The sections of docs/metrics.md, with every family except those of single Services. */
export const sections = [
  ...current,
  ['Deprecated names', renameFamilies(current.flatMap(([, section]) => section))] as const,
];

/** Every family of /metrics except those of single Services and the process. */
export const families = sections.flatMap(([, section]) => section);
