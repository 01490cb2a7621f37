// The catalogue of metric families, from which /metrics and docs/metrics.md are both made. No pod,
// address or object is a label; a Service is one only in service-rows.ts.

import { catalogue, severities } from '../../audit/finding/catalogue.ts';
import { unknownReasons, verdicts } from '../../audit/finding/verdicts.ts';
import { endpointConditions, fillRatio, surplusOf } from '../../audit/measure/endpoint-counts.ts';
import {
  journeyEnds,
  journeyLagOutputs,
  journeyQualities,
  programmingBounds,
} from '../../audit/measure/journey.ts';
import {
  lagOperations,
  lagOutputs,
  skewSeconds,
  triggerQualities,
} from '../../audit/measure/lag.ts';
import { largestBytes, objectCount } from '../../audit/measure/size.ts';
import type { InputState } from '../../audit/pending/progress.ts';
import { verdictOutputs } from '../../audit/service/verdict.ts';
import { outputResources, resources } from '../../model/objects.ts';
import { noTracingCounts } from '../traces/settings.ts';
import { familiesOf, nameFamilies } from './exposition.ts';
import type { MetricsState, OpenedFindings } from './state.ts';
import {
  countOpened,
  hintModes,
  hintReasons,
  noAgents,
  reconnectReasons,
  relistReasons,
} from './state.ts';

const { gauge, counter, histogram, samples } = familiesOf<MetricsState>();
const experimental = familiesOf<MetricsState>('experimental');

const keysOf = <Key extends string>(record: Readonly<Record<Key, unknown>>): Key[] =>
  Object.keys(record) as Key[];

const codes = keysOf(catalogue);

/** One sample per code with its usual severity, and one per exception that occurred. */
const findingFamily = (
  type: 'gauge' | 'counter',
  help: string,
  countsOf: (state: MetricsState) => OpenedFindings,
) => {
  const collect = (state: MetricsState) => {
    const counts = countsOf(state);
    return codes.flatMap((code) =>
      severities.flatMap((severity) => {
        const fallback = catalogue[code].severity === severity ? 0 : undefined;
        const value = counts[code]?.[severity] ?? fallback;
        return value === undefined ? [] : [{ labels: { code, severity }, value }];
      }),
    );
  };
  return samples(type, help, collect, { code: codes, severity: severities });
};

/** A record, so that the compiler requires an entry for a new state. */
const watchStates = keysOf<InputState>({ listing: 1, synced: 1, relisting: 1, stale: 1, off: 1 });

/** The reasons to drop input that have a series from the start. */
const dropReasons = ['stale', 'repeated', 'unreadable', 'skipped'];

const frameCounters = {
  delivered: 'events',
  repeated: 'repeated',
  stale: 'stale',
  bookmark: 'bookmarks',
  garbled: 'badFrames',
  unreadable: 'unreadable',
} as const;

const travelLag = (lag: 'readiness' | 'removal', from: string) =>
  histogram(
    `${from} to the arrival of the output that says so, up to a second too high; at nodes, to ` +
      'the first reading of their rules that does. Clock skew to the cluster enters it.',
    ({ travel }, { output }) => travel[lag][output],
    { output: journeyLagOutputs },
  );

export const sections = Object.entries({
  'Verdicts and findings': {
    findings: findingFamily('gauge', 'Findings that stand, by code and severity.', ({ summary }) =>
      summary.findings.reduce(countOpened, {}),
    ),
    findings_opened_total: findingFamily(
      'counter',
      'Findings opened since the start, by their severity at that time; resolved ones too.',
      ({ opened }) => opened,
    ),
    services: gauge('Services that exist.', ({ summary }) => summary.services),
    services_foreign: gauge(
      'Services, or names without a Service, whose endpoints somebody else writes; not judged.',
      ({ summary }) => summary.foreign,
    ),
    outputs: gauge(
      'Outputs of Services by verdict; a Service has one per output that somebody must write, ' +
        'and a Service port one (node) per node whose rules are known.',
      ({ summary }, { output, verdict }) => summary.verdicts[output][verdict],
      { output: verdictOutputs, verdict: verdicts },
    ),
    outputs_unknown: gauge(
      'Outputs that cannot be judged and Services that cannot be read, by the reason.',
      ({ summary }, { reason }) => summary.unknown[reason] ?? 0,
      { reason: unknownReasons },
    ),
    pending_oldest_seconds: gauge(
      'Age of the oldest difference that is within the settle window; 0 where there is none.',
      ({ summary, now }, { output }) => Math.max(0, now - (summary.pendingSince[output] ?? now)),
      { output: verdictOutputs },
    ),
    audit_duration_seconds: experimental.histogram(
      'How long taking in one entry of the input kept the process busy, judging included; full: ' +
        'judging began with it, and everything was judged.',
      ({ durations }, { scope }) => durations[scope],
      { scope: ['full', 'change'] },
    ),
    services_with_series: gauge(
      'Services that have series of their own.',
      ({ perService }) => perService.rows.length,
    ),
    services_left_out: gauge(
      'Services that would have series of their own but for --metrics.max-services.',
      ({ perService }) => perService.leftOut,
    ),
  },
  Lag: {
    convergence_lag_seconds: histogram(
      'From the arrival of a change that made an output differ to the arrival of the writing ' +
        'that made it equal again, by one clock; at a node, to the first reading of its rules ' +
        'that is as expected.',
      ({ convergence }, { output, operation }) => convergence[output][operation],
      { output: lagOutputs, operation: lagOperations },
    ),
    trigger_lag_seconds: histogram(
      'From the annotation last-change-trigger-time to the arrival of the object, up to a second ' +
        'too high; qualities ok and coarse only. Clock skew to the control plane enters it.',
      ({ trigger }, { resource }) => trigger.lag[resource],
      { resource: outputResources },
    ),
    trigger_times_total: counter(
      'Writings by the controllers, by what their trigger time is worth.',
      ({ trigger }, { resource, quality }) => trigger.counts[resource][quality],
      { resource: outputResources, quality: triggerQualities },
    ),
    readiness_lag_seconds: travelLag(
      'readiness',
      'From the Ready transition of a pod, by its own time in whole seconds,',
    ),
    removal_lag_seconds: travelLag(
      'removal',
      'From the deletion of a pod, or its becoming not ready, by its own time,',
    ),
    node_programming_lag_seconds: histogram(
      'From the arrival of a slice or a Service to rules of a node that do as it says. Rules are ' +
        'read now and then: it was at least to the last reading that was wrong (least), and at ' +
        'most to the first that was right (most).',
      ({ travel }, { bound }) => travel.programming[bound],
      { bound: programmingBounds },
    ),
    journeys_total: counter(
      'Changes of pods that traffic is to see, one for each Service, by what their beginning is ' +
        'worth; those of ok, coarse and arrival are measured as readiness and removal lag.',
      ({ travel }, { operation, quality }) => travel.begun[operation][quality],
      { operation: lagOperations, quality: journeyQualities },
    ),
    journeys_ended_total: counter(
      'Journeys that ended: complete at all outputs and nodes, overtaken by another change of ' +
        'the pod, gone with what they awaited, dropped since too many were open.',
      ({ journeys }, { end }) => journeys.ended[end],
      { end: journeyEnds },
    ),
    journeys_open: gauge('Journeys that have not come to all outputs and nodes.', ({ journeys }) =>
      journeys.openCount(),
    ),
    clock_ahead_seconds: experimental.gauge(
      'By how much the clock of the auditor is ahead of that of the API server, up to a second ' +
        'and the way too high; negative: it is behind. No lag is mended by it. Absent where ' +
        'nothing was created for half an hour.',
      ({ skew, now }) => skewSeconds(skew, now),
    ),
  },
  Traces: {
    journeys_traced_total: experimental.counter(
      'Journeys that ended while traces are sent, by why they have one: slow ones always, the ' +
        'others by the ratio; none: they have none.',
      ({ tracing }, { choice }) => tracing.journeys[choice],
      { choice: keysOf(noTracingCounts().journeys) },
    ),
    spans_exported_total: experimental.counter(
      'Spans that the backend of traces took.',
      ({ tracing }) => tracing.exported,
    ),
    spans_dropped_total: experimental.counter(
      'Spans that are lost: they found no room (queue), the backend refused them, was away or ' +
        'did not answer (export), or were not sent before the end (shutdown).',
      ({ tracing }, { reason }) => tracing.dropped[reason],
      { reason: keysOf(noTracingCounts().dropped) },
    ),
  },
  'Packing of slices': {
    endpointslices: gauge('Slices of the endpointslice controller.', ({ fill }) => fill.slices),
    endpointslices_minimum: gauge(
      'The fewest slices that could list the same endpoints.',
      ({ fill }) => fill.minimum,
    ),
    endpointslices_surplus: gauge('Slices beyond the fewest that would do.', ({ fill }) =>
      surplusOf(fill),
    ),
    slice_endpoints: gauge(
      'Endpoints that the slices of the endpointslice controller list.',
      ({ fill }) => fill.endpoints,
    ),
    fill_ratio: gauge(
      'Endpoints over the places that the slices have; absent where there are no slices.',
      ({ fill }) => fillRatio(fill, fill.max),
    ),
    duplicate_endpoints: gauge(
      'Endpoints listed more than once in the slices of one Service, by whether entries agree.',
      ({ duplicates }, { kind }) => duplicates[kind],
      { kind: ['equal', 'conflicting'] },
    ),
    endpoints: gauge(
      'Endpoints by condition in the slices that the controllers wrote, mirrored ones too.',
      (state, { condition }) => state.conditions[condition],
      { condition: endpointConditions },
    ),
    services_hinted: gauge(
      'Services whose ready endpoints carry topology hints, all of them or some, by what asks ' +
        'for hints: the annotation topology-mode (auto) or trafficDistribution (zone, node).',
      ({ hints }, { mode, endpoints }) => hints[mode][endpoints],
      { mode: hintModes, endpoints: ['all', 'some'] },
    ),
    services_unhinted: gauge(
      'Services that ask for topology hints and have none, by the reason that their input gives ' +
        'now; none: it gives no reason.',
      ({ hints }, { mode, reason }) => hints[mode].absent[reason] ?? 0,
      { mode: hintModes, reason: hintReasons },
    ),
  },
  'Sizes and watch traffic': {
    objects: gauge(
      'Endpoints and EndpointSlice objects that exist, whoever writes them.',
      ({ sizes }, { resource }) => objectCount(sizes[resource]),
      { resource: outputResources },
    ),
    object_bytes_max: gauge(
      'Bytes of the largest object, as protobuf; the API server refuses more than 1572864.',
      ({ sizes }, { resource }) => largestBytes(sizes[resource]),
      { resource: outputResources },
    ),
    object_bytes: histogram(
      'Bytes of every version of an object that arrived, as protobuf, the first list included; ' +
        'the API server refuses more than 1572864.',
      ({ sizes }, { resource }) => sizes[resource].versions,
      { resource: outputResources },
    ),
    truncated_objects: gauge(
      'Endpoints that say that they were cut down to 1000 addresses.',
      ({ capacity }) => capacity.truncated,
    ),
    over_capacity_objects: gauge(
      'Endpoints with more than 1000 addresses, and slices of the controllers with more ' +
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
      'Bytes of the objects that changed, as protobuf: what one watcher is sent.',
      ({ sizes }, { resource }) => sizes[resource].updateBytes,
      { resource: outputResources },
    ),
    update_fanout_bytes_total: counter(
      'The same times the Nodes, without what kube-proxy leaves out; for Endpoints, what it ' +
        'would be if Nodes still watched them.',
      ({ sizes }, { resource }) => sizes[resource].fanoutBytes,
      { resource: outputResources },
    ),
  },
  'Live input': {
    ready: gauge(
      'Whether all that is needed is known and was seen within a minute: 1, else 0.',
      ({ ready }) => (ready ? 1 : 0),
    ),
    watch_state: gauge(
      'The state of the watch of a resource: 1 for the one that it is in, else 0.',
      ({ watches }, { resource, state }) => (watches.inputs.get(resource)?.state === state ? 1 : 0),
      { resource: resources, state: watchStates },
    ),
    watch_unseen_seconds: gauge(
      'For how long the watch of a resource has not been synced; 0 while it is.',
      ({ watches, now }, { resource }) =>
        Math.max(0, now - (watches.inputs.get(resource)?.blindSince ?? now)),
      { resource: resources },
    ),
    confirm_reads_total: counter(
      'Reads of Services, before a finding opens and in turn, and of all Nodes: the cache has ' +
        'all that was read (confirmed), it lacks something (lagging), or the read failed.',
      ({ watches }, { result }) => watches.confirmations[result],
      { result: ['confirmed', 'lagging', 'failed'] },
    ),
    watch_requests_total: experimental.counter(
      'Lists that were complete, and watches that were accepted.',
      ({ watches }, { resource, verb }) =>
        watches.counters.get(resource)?.[verb === 'list' ? 'lists' : 'watches'] ?? 0,
      { resource: resources, verb: ['list', 'watch'] },
    ),
    watch_frames_total: experimental.counter(
      'What watches and lists have sent, by what became of it.',
      ({ watches }, { resource, result }) =>
        watches.counters.get(resource)?.[frameCounters[result]] ?? 0,
      { resource: resources, result: keysOf(frameCounters) },
    ),
    watch_refusals_total: experimental.counter(
      'Requests that the API server refused.',
      ({ watches }, { resource, reason }) => watches.counters.get(resource)?.[reason] ?? 0,
      { resource: resources, reason: ['throttled', 'unauthorised', 'denied'] },
    ),
    watch_relists_total: experimental.counter(
      'New lists since history or an event was lost.',
      ({ watches }, { resource, reason }) => watches.counters.get(resource)?.relists[reason] ?? 0,
      { resource: resources, reason: relistReasons },
    ),
    watch_reconnects_total: experimental.counter(
      'Watches that ended and were opened again.',
      ({ watches }, { resource, reason }) =>
        watches.counters.get(resource)?.reconnects[reason] ?? 0,
      { resource: resources, reason: reconnectReasons },
    ),
    watch_bytes_total: experimental.counter(
      'Bytes that lists and watches have sent.',
      ({ watches }, { resource }) => watches.counters.get(resource)?.bytes ?? 0,
      { resource: resources },
    ),
  },
  'Agents of nodes': {
    node_agents: gauge(
      'Nodes by how their agent stands: it answers, is not heard of (stale), does not accept us ' +
        'or is not understood (refused), or there is none (absent).',
      ({ agents }, { state }) => agents.states[state],
      { state: keysOf(noAgents.states) },
    ),
    node_report_oldest_seconds: gauge(
      'Age of the oldest report of an agent that answers; 0 without any.',
      ({ agents, now }) => Math.max(0, now - (agents.oldestSeenAt ?? now)),
    ),
    node_frontends_divergent: experimental.gauge(
      'Frontends of all nodes whose digest is not the one that follows from the cluster; those ' +
        'that no digest can tell of, such as with several right fates, are not among them.',
      ({ agents }) => agents.divergent,
    ),
    agent_visits_total: experimental.counter(
      'Visits to agents: a report was there (seen), there was none yet (early), the agent did ' +
        'not accept us or was not understood (refused), or it did not answer (silent).',
      ({ agents }, { result }) => agents.visits[result],
      { result: keysOf(noAgents.visits) },
    ),
    agent_bytes_total: experimental.counter(
      'Bytes of the answers of agents.',
      ({ agents }) => agents.bytes,
    ),
  },
  'Input and build': {
    dropped_total: experimental.samples(
      'counter',
      'Input that was not used: events older than what is held (stale) or equal to it ' +
        '(repeated), objects that could not be read, lines that were skipped.',
      ({ dropped }) =>
        [...new Set([...dropReasons, ...Object.keys(dropped)])].map((reason) => {
          return { labels: { reason }, value: dropped[reason] ?? 0 };
        }),
      { reason: dropReasons },
    ),
    input_timestamp_seconds: gauge(
      'The clock of the input, which is not that of the scrape when a recording is replayed.',
      ({ now }) => now,
    ),
    input_start_timestamp_seconds: gauge(
      'When the input began, on its own clock.',
      ({ startedAt }) => startedAt,
    ),
    build_info: samples(
      'gauge',
      'Always 1; the label is the version of endpoint-auditor.',
      ({ version }) => [{ labels: { version }, value: 1 }],
      { version: [] },
    ),
    release_info: samples(
      'gauge',
      'Always 1; the audited Kubernetes release, and whether verdicts on the cluster are verified.',
      ({ release, unverified }) => [
        { labels: { release, verified: String(unverified.length === 0) }, value: 1 },
      ],
      { release: [], verified: [] },
    ),
  },
}).map(([title, section]) => [title, nameFamilies('endpoint_auditor_', section)] as const);

/** Every family of /metrics except those of Services and the process, in documentation order. */
export const families = sections.flatMap(([, section]) => section);
