// The catalogue of metric families, from which /metrics and docs/metrics.md are both made.
//
// Names follow Prometheus' conventions: the prefix endpoint_auditor_, base units, counters in
// _total, no label that is also in the name. No pod, address or object is a label: use
// /api/v1/findings and reports for those. A Service is one only in service-rows.ts. prom-client
// makes the families of the process (metrics.ts).

import { catalogue, severities } from '../../audit/finding/catalogue.ts';
import { unknownReasons, verdicts } from '../../audit/finding/verdicts.ts';
import { endpointConditions } from '../../audit/measure/endpoint-counts.ts';
import { fillRatio, surplusOf } from '../../audit/measure/fill.ts';
import {
  journeyEnds,
  journeyLagOutputs,
  journeyQualities,
  programmingBounds,
} from '../../audit/measure/journey.ts';
import {
  convergenceBounds,
  durationBounds,
  lagOperations,
  lagOutputs,
  skewSeconds,
  triggerBounds,
  triggerQualities,
} from '../../audit/measure/lag.ts';
import { largestBytes, objectCount, sizeBounds } from '../../audit/measure/size.ts';
import type { InputState } from '../../audit/pending/progress.ts';
import { verdictOutputs } from '../../audit/service/verdict.ts';
import { outputResources, resources } from '../../model/objects.ts';
import { spanLosses, traceChoices } from '../traces/sender.ts';
import type { MetricFamily, Sample } from './family.ts';
import { familiesOf } from './family.ts';
import type { MetricsState, OpenedFindings } from './state.ts';
import {
  agentStates,
  countOpened,
  hintModes,
  hintReasons,
  reconnectReasons,
  relistReasons,
  visitResults,
} from './state.ts';

const { gauge, counter, histogram, samples } = familiesOf<MetricsState>('endpoint_auditor_');
const experimental = familiesOf<MetricsState>('endpoint_auditor_', 'experimental');

const keysOf = <Key extends string>(record: Readonly<Record<Key, unknown>>): Key[] =>
  Object.keys(record) as Key[];

const codes = keysOf(catalogue);

/** One sample per code with its usual severity, and one per exception that occurred. */
function samplesByCode(counts: OpenedFindings): Sample[] {
  return codes.flatMap((code) =>
    severities.flatMap((severity) => {
      const fallback = catalogue[code].severity === severity ? 0 : undefined;
      const value = counts[code]?.[severity] ?? fallback;
      return value === undefined ? [] : [{ labels: { code, severity }, value }];
    }),
  );
}

/** A record, so that the compiler requires an entry for a new state. */
const watchStates = keysOf<InputState>({ listing: 1, synced: 1, relisting: 1, stale: 1, off: 1 });

/** The reasons to drop input that have a series from the start. */
const dropReasons = ['stale', 'repeated', 'unreadable', 'skipped'];

/** The counters of what watches sent, by result. */
const frameCounters = {
  delivered: 'events',
  repeated: 'repeated',
  stale: 'stale',
  bookmark: 'bookmarks',
  garbled: 'badFrames',
  unreadable: 'unreadable',
} as const;

const auditFamilies = [
  samples(
    'gauge',
    'findings',
    'Findings that stand, by code and severity.',
    ({ summary }) => {
      const counts: OpenedFindings = {};
      for (const finding of summary.findings) countOpened(counts, finding);
      return samplesByCode(counts);
    },
    { code: codes, severity: severities },
  ),
  samples(
    'counter',
    'findings_opened_total',
    'Findings opened since the start, those that are resolved included.',
    ({ opened }) => samplesByCode(opened),
    { code: codes, severity: severities },
  ),
  gauge('services', 'Services that exist.', ({ summary }) => summary.services),
  gauge(
    'services_foreign',
    'Services, or names without a Service, whose endpoints somebody else writes; not judged.',
    ({ summary }) => summary.foreign,
  ),
  gauge(
    'outputs',
    'Outputs of Services by verdict; a Service has one per output that somebody must write, ' +
      'and a Service port one (node) per node whose rules are known.',
    ({ summary }, { output, verdict }) => summary.verdicts[output][verdict],
    { output: verdictOutputs, verdict: verdicts },
  ),
  gauge(
    'outputs_unknown',
    'Outputs that cannot be judged and Services that cannot be read, by the reason.',
    ({ summary }, { reason }) => summary.unknown[reason] ?? 0,
    { reason: unknownReasons },
  ),
  gauge(
    'pending_oldest_seconds',
    'Age of the oldest difference that is within the settle window; 0 where there is none.',
    ({ summary, now }, { output }) => Math.max(0, now - (summary.pendingSince[output] ?? now)),
    { output: verdictOutputs },
  ),
  experimental.histogram(
    'audit_duration_seconds',
    'How long taking in one entry of the input kept the process busy, judging included; full: ' +
      'judging began with it, and everything was judged.',
    durationBounds,
    ({ durations }, { scope }) => durations[scope],
    { scope: ['full', 'change'] },
  ),
  gauge(
    'services_with_series',
    'Services that have series of their own.',
    ({ perService }) => perService.rows.length,
  ),
  gauge(
    'services_left_out',
    'Services that would have series of their own but for --metrics.max-services.',
    ({ perService }) => perService.leftOut,
  ),
];

const watchFamilies = [
  gauge(
    'ready',
    'Whether all that is needed is known and was seen within a minute: 1, else 0.',
    ({ ready }) => (ready ? 1 : 0),
  ),
  gauge(
    'watch_state',
    'The state of the watch of a resource: 1 for the one that it is in, else 0.',
    ({ watches }, { resource, state }) => (watches.inputs.get(resource)?.state === state ? 1 : 0),
    { resource: resources, state: watchStates },
  ),
  gauge(
    'watch_unseen_seconds',
    'For how long the watch of a resource has not been synced; 0 while it is.',
    ({ watches, now }, { resource }) =>
      Math.max(0, now - (watches.inputs.get(resource)?.blindSince ?? now)),
    { resource: resources },
  ),
  counter(
    'confirm_reads_total',
    'Reads of a Service before a difference of it becomes a finding: it stands (confirmed), ' +
      'the watch is behind what was read (lagging), or the read failed.',
    ({ watches }, { result }) => watches.confirmations[result],
    { result: ['confirmed', 'lagging', 'failed'] },
  ),
  experimental.counter(
    'watch_requests_total',
    'Lists that were complete, and watches that were accepted.',
    ({ watches }, { resource, verb }) =>
      watches.counters.get(resource)?.[verb === 'list' ? 'lists' : 'watches'] ?? 0,
    { resource: resources, verb: ['list', 'watch'] },
  ),
  experimental.counter(
    'watch_frames_total',
    'What watches and lists have sent, by what became of it.',
    ({ watches }, { resource, result }) =>
      watches.counters.get(resource)?.[frameCounters[result]] ?? 0,
    { resource: resources, result: keysOf(frameCounters) },
  ),
  experimental.counter(
    'watch_refusals_total',
    'Requests that the API server refused.',
    ({ watches }, { resource, reason }) => watches.counters.get(resource)?.[reason] ?? 0,
    { resource: resources, reason: ['throttled', 'unauthorised', 'denied'] },
  ),
  experimental.counter(
    'watch_relists_total',
    'New lists since history was lost.',
    ({ watches }, { resource, reason }) => watches.counters.get(resource)?.relists[reason] ?? 0,
    { resource: resources, reason: relistReasons },
  ),
  experimental.counter(
    'watch_reconnects_total',
    'Watches that ended and were opened again.',
    ({ watches }, { resource, reason }) => watches.counters.get(resource)?.reconnects[reason] ?? 0,
    { resource: resources, reason: reconnectReasons },
  ),
  experimental.counter(
    'watch_bytes_total',
    'Bytes that lists and watches have sent.',
    ({ watches }, { resource }) => watches.counters.get(resource)?.bytes ?? 0,
    { resource: resources },
  ),
];

const agentFamilies = [
  gauge(
    'node_agents',
    'Nodes by how their agent stands: it answers, is not heard of (stale), does not accept us ' +
      'or is not understood (refused), or there is none (absent).',
    ({ agents }, { state }) => agents.states[state],
    { state: agentStates },
  ),
  gauge(
    'node_report_oldest_seconds',
    'Age of the oldest report of an agent that answers; 0 without any.',
    ({ agents, now }) => Math.max(0, now - (agents.oldestSeenAt ?? now)),
  ),
  experimental.gauge(
    'node_frontends_divergent',
    'Frontends of all nodes whose digest is not the one that follows from the cluster; those ' +
      'that no digest can tell of, such as with several right fates, are not among them.',
    ({ agents }) => agents.divergent,
  ),
  experimental.counter(
    'agent_visits_total',
    'Visits to agents: a report was there (seen), there was none yet (early), the agent did ' +
      'not accept us or was not understood (refused), or it did not answer (silent).',
    ({ agents }, { result }) => agents.visits[result],
    { result: visitResults },
  ),
  experimental.counter(
    'agent_bytes_total',
    'Bytes of the answers of agents.',
    ({ agents }) => agents.bytes,
  ),
];

const inputFamilies = [
  experimental.samples(
    'counter',
    'dropped_total',
    'Input that was not used: events older than what is held (stale) or equal to it ' +
      '(repeated), objects that could not be read, lines that were skipped.',
    ({ dropped }) =>
      [...new Set([...dropReasons, ...Object.keys(dropped)])].map((reason) => {
        return { labels: { reason }, value: dropped[reason] ?? 0 };
      }),
    { reason: dropReasons },
  ),
  gauge(
    'input_timestamp_seconds',
    'The clock of the input, which is not that of the scrape when a recording is replayed.',
    ({ now }) => now,
  ),
  gauge(
    'input_start_timestamp_seconds',
    'When the input began, on its own clock.',
    ({ startedAt }) => startedAt,
  ),
  samples(
    'gauge',
    'build_info',
    'Always 1; the label is the version of endpoint-auditor.',
    ({ version }) => [{ labels: { version }, value: 1 }],
    { version: [] },
  ),
  samples(
    'gauge',
    'release_info',
    'Always 1; the label is the Kubernetes release whose controllers are shadowed.',
    ({ releaseMinor }) => [{ labels: { release: `1.${releaseMinor}` }, value: 1 }],
    { release: [] },
  ),
];

const travelLag = (lag: 'readiness' | 'removal', from: string) =>
  histogram(
    `${lag}_lag_seconds`,
    `${from} to the arrival of the output that says so, up to a second too high; at nodes, to ` +
      'the first reading of their rules that does. Clock skew to the cluster enters it.',
    convergenceBounds,
    ({ travel }, { output }) => travel[lag][output],
    { output: journeyLagOutputs },
  );

const lagFamilies = [
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
    { operation: lagOperations, quality: journeyQualities },
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

const traceFamilies = [
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

const packingFamilies = [
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

const sizeFamilies = [
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

/** The families as the documentation groups them. */
export const sections: readonly (readonly [string, readonly MetricFamily<MetricsState>[]])[] = [
  ['Verdicts and findings', auditFamilies],
  ['Lag', lagFamilies],
  ['Traces', traceFamilies],
  ['Packing of slices', packingFamilies],
  ['Sizes and watch traffic', sizeFamilies],
  ['Live input', watchFamilies],
  ['Agents of nodes', agentFamilies],
  ['Input and build', inputFamilies],
];

/** Every family of /metrics except those of Services and the process, in documentation order. */
export const families = sections.flatMap(([, section]) => section);
