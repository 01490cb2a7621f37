// What the tests of the outputs share: findings, and a state of the metrics, with defaults.

import { join } from 'node:path';

import fc from 'fast-check';
import protobuf from 'protobufjs';

import type { Finding } from '../../src/audit/finding/catalogue.ts';
import type { Verdict } from '../../src/audit/finding/verdicts.ts';
import { countConditions } from '../../src/audit/measure/endpoint-counts.ts';
import type { Journey, JourneyStage } from '../../src/audit/measure/journey.ts';
import { createJourneys } from '../../src/audit/measure/journey.ts';
import { createMeasurements, createServiceSums } from '../../src/audit/measure/measurements.ts';
import { createLagHistory } from '../../src/audit/measure/sample-history.ts';
import { unservedReasons } from '../../src/audit/service/unserved.ts';
import type { ListedService } from '../../src/auditor/explanations.ts';
import type { PageStatus } from '../../src/auditor/queries.ts';
import { recordOf } from '../../src/model/collections.ts';
import { newErrorCounts } from '../../src/model/connection.ts';
import type { ExpositionFormat, MetricFamily } from '../../src/output/metrics/exposition.ts';
import { createMetricsRenderer } from '../../src/output/metrics/metrics.ts';
import type { ServiceNumbers } from '../../src/output/metrics/service-rows.ts';
import { noServiceSeries } from '../../src/output/metrics/service-rows.ts';
import type { MetricsState } from '../../src/output/metrics/state.ts';
import {
  noAgents,
  noEventCounts,
  noHintCounts,
  noHistory,
} from '../../src/output/metrics/state.ts';
import type { LagReport } from '../../src/output/text/lag.ts';
import type { AuditReport } from '../../src/output/text/report.ts';
import { summarizeMeasures } from '../../src/output/text/report.ts';
import type { TraceSender } from '../../src/output/traces/otel.ts';
import type { TracingCounts, TracingSettings } from '../../src/output/traces/settings.ts';
import { noTracingCounts } from '../../src/output/traces/settings.ts';

/** 2026-11-21T10:56:46Z */
export const moment = Date.UTC(2026, 10, 21, 10, 56, 46) / 1000;

/** A finding with one difference, unless `more` has others. */
export function findingOf(more: Partial<Finding> = {}): Finding {
  const finding: Omit<Finding, 'differences'> & Partial<Finding> = {
    code: 'slice-endpoint-unexpected',
    severity: 'critical',
    difference: 'unexpected',
    output: 'endpointslices',
    namespace: 'shop',
    service: 'web',
    node: null,
    object: 'EndpointSlice shop/web-abcde',
    field: 'endpoints',
    expected: null,
    actual: '10.1.2.3 of pod web-1, ready',
    cause: null,
    causeProven: (more.cause ?? null) !== null,
    since: moment - 30,
    openedAt: moment,
    resolvedAt: null,
    suppressed: null,
    ...more,
  };
  const { code, field, expected, actual, object } = finding;
  const detail = { code, address: null, pod: null, field, expected, actual, object };
  return { differences: [detail], ...finding };
}

const verdicts = (more: Partial<Record<Verdict, number>> = {}): Record<Verdict, number> => ({
  conform: 0,
  pending: 0,
  different: 0,
  unknown: 0,
  ...more,
});

const noWatches: MetricsState['watches'] = {
  inputs: new Map(),
  confirmations: { asked: 0, confirmed: 0, lagging: 0, failed: 0 },
  counters: new Map(),
  errors: newErrorCounts(),
};

export function stateOf(more: Partial<MetricsState> = {}): MetricsState {
  return {
    incidents: { 'controller-not-writing': { critical: 1 } },
    suppressedServices: 0,
    openIncidents: [
      {
        id: 'controller-not-writing.kube-controller-manager.1',
        kind: 'controller-not-writing',
        severity: 'critical',
        namespace: '',
        service: '',
        node: '',
        services: 2,
      },
    ],
    forgottenIncidents: 0,
    events: noEventCounts,
    incidentOf: () => null,
    summary: {
      services: 21,
      verdicts: {
        endpoints: verdicts({ conform: 19, pending: 1 }),
        endpointslices: verdicts({ conform: 19, different: 2 }),
        mirrored: verdicts({ unknown: 1 }),
        node: verdicts(),
      },
      nodes: [],
      unknown: { 'nodes-not-known': 1 },
      foreign: 2,
      findings: [findingOf(), findingOf({ service: 'api', severity: 'info' })],
      pendingSince: { endpoints: moment - 12 },
      unserved: recordOf(unservedReasons, () => 0),
    },
    ...createServiceSums(100),
    ...createMeasurements(),
    opened: {},
    hints: noHintCounts(),
    journeys: createJourneys(),
    dropped: { stale: 3 },
    now: moment,
    startedAt: moment - 300,
    release: '1.36',
    unverified: [],
    version: '1.2.3',
    shard: { index: 0, count: 1 },
    ready: true,
    watches: noWatches,
    tracing: noTracingCounts(),
    history: noHistory,
    agents: noAgents,
    perService: noServiceSeries,
    ...more,
  };
}

/** The bounds of the buckets of a family; none for a gauge or a counter. */
export function boundsOf(family: MetricFamily<never>): readonly number[] {
  if (family.type !== 'histogram') return [];
  const [sample] = (family as MetricFamily<MetricsState>).collect(stateOf());
  return typeof sample?.value === 'object' ? sample.value.bounds : [];
}

const renderMetrics = createMetricsRenderer();

/** What a scrape of a state gets. */
export async function exposition(
  state: MetricsState,
  format: ExpositionFormat = 'text',
): Promise<string> {
  let text = '';
  for await (const piece of renderMetrics(state, format)) text += piece;
  return text;
}

/** The series of a state whose names begin so, without this part of the name. */
export async function seriesOf(
  name: string,
  ...more: Parameters<typeof stateOf>
): Promise<string[]> {
  const prefix = `endpoint_auditor_${name}`;
  return (await exposition(stateOf(...more)))
    .split('\n')
    .filter((line) => line.startsWith(prefix))
    .map((line) => line.slice(prefix.length));
}

/** A Service whose two outputs conform, with two endpoints in one slice. */
export function numbersOf(more: Partial<ServiceNumbers> = {}): ServiceNumbers {
  return {
    namespace: 'shop',
    name: 'web',
    share: {
      exists: true,
      foreign: false,
      verdicts: { endpoints: 'conform', endpointslices: 'conform', mirrored: null },
      reasons: { endpoints: null, endpointslices: null, mirrored: null },
      pendingSince: {},
      unserved: null,
      hasPending: false,
      open: false,
    },
    impact: null,
    conditions: { ...countConditions([]), ready: 2 },
    slices: 1,
    surplus: 0,
    bytes: { endpoints: 700, endpointslices: 900 },
    audits: 4,
    ...more,
  };
}

/** Such a Service in the list of all, without a finding. */
export const listedOf = (more: Partial<ListedService> = {}): ListedService => ({
  ...numbersOf(more),
  health: {
    verdict: 'conform',
    severity: null,
    findings: { critical: 0, warning: 0, info: 0 },
    ...more.health,
  },
});

/** A state in which all is well. */
export function conformState(more: Partial<MetricsState> = {}): MetricsState {
  const summary: MetricsState['summary'] = {
    services: 21,
    verdicts: {
      endpoints: verdicts({ conform: 20 }),
      endpointslices: verdicts({ conform: 20 }),
      mirrored: verdicts({ conform: 1 }),
      node: verdicts(),
    },
    nodes: [],
    unknown: {},
    foreign: 0,
    findings: [],
    pendingSince: {},
    unserved: recordOf(unservedReasons, () => 0),
  };
  return stateOf({ summary, incidents: {}, openIncidents: [], dropped: {}, ...more });
}

export function statusOf(more: Partial<PageStatus> = {}): PageStatus {
  return {
    metrics: stateOf(),
    resolved: [],
    forgotten: 0,
    notReady: null,
    isLive: true,
    hasEnded: false,
    lost: null,
    hasBegun: true,
    shownAt: moment,
    clusterNodes: null,
    shard: null,
    source: 'shop.ndjson.gz',
    kubernetes: 'v1.36.3',
    revision: '1',
    lag: createLagHistory().series(),
    longestLags: [],
    cluster: null,
    links: [],
    hasMetrics: true,
    at: null,
    recordedSince: null,
    ...more,
  };
}

/** The report of a state. */
export function reportOf(state: MetricsState, more: Partial<AuditReport> = {}): AuditReport {
  const { summary, dropped } = state;
  return {
    format: 1,
    kind: 'replay',
    input: {
      sources: ['shop.ndjson.gz'],
      kubernetes: 'v1.36.3',
      release: '1.36',
      releaseBy: 'version',
      releaseEvidence: null,
      verified: true,
      unverified: [],
      from: moment - 300,
      until: moment,
      complete: true,
    },
    namespace: null,
    selector: null,
    foreignServices: [],
    nodesWithoutRules: null,
    cluster: null,
    findings: summary.findings,
    services: summary.services,
    verdicts: summary.verdicts,
    nodes: summary.nodes,
    unknown: summary.unknown,
    foreign: summary.foreign,
    incidents: [],
    servicesWithoutEndpoints: [],
    dropped,
    problems: [],
    measures: summarizeMeasures(state, [['shop/web', state.fill]]),
    ...more,
  };
}

/** Lag of five minutes, with a journey and a sample that were long. */
export const lagReport: LagReport = {
  format: 1,
  from: moment - 300,
  now: moment,
  distributions: [
    {
      lag: 'convergence',
      output: 'endpoints',
      of: 'add',
      count: 2,
      sum: 700.5,
      p50: 0.5,
      p99: 9.9,
      max: 700,
      bounds: [1],
      counts: [1, 1],
    },
    {
      lag: 'removal',
      output: 'node',
      of: null,
      count: 0,
      sum: 0,
      p50: null,
      p99: null,
      max: null,
      bounds: [1],
      counts: [0, 0],
    },
  ],
  triggerTimes: {
    endpoints: { ok: 4, coarse: 0, absent: 0, restarted: 1, skewed: 0 },
    endpointslices: { ok: 0, coarse: 0, absent: 0, restarted: 0, skewed: 0 },
  },
  journeys: {
    open: 2,
    oldestBegun: moment - 30,
    begun: {
      add: { ok: 2, coarse: 0, arrival: 0, skewed: 0, gap: 0 },
      remove: { ok: 0, coarse: 0, arrival: 1, skewed: 0, gap: 0 },
      update: { ok: 0, coarse: 0, arrival: 0, skewed: 0, gap: 0 },
    },
    ended: { complete: 3, overtaken: 1, gone: 0, dropped: 0 },
  },
  clockAheadSeconds: -0.5,
  worst: {
    journeys: [
      {
        namespace: 'shop',
        service: 'web',
        pod: 'web-1',
        uid: 'u-1',
        podNode: 'a',
        addresses: ['10.0.0.1'],
        operation: 'remove',
        begun: moment - 60,
        quality: 'ok',
        stages: (
          [
            ['arrival', -58.5, null],
            ['endpointslices', 0, null],
            ['node', 0.5, 'a'],
            ['node', 1, 'b'],
          ] as const
        ).map(([stage, at, node]) => ({
          stage,
          at: moment + at,
          within: 0,
          object: '',
          resourceVersion: '',
          node,
        })),
        nodes: 2,
        end: 'complete',
        seconds: 61,
      },
    ],
    convergence: [
      {
        output: 'node',
        operation: 'update',
        namespace: 'shop',
        service: 'web',
        node: 'a',
        seconds: 9,
        at: moment,
      },
    ],
  },
};
/** What pages show of elements and attributes, entities read. */
export const wordsIn = (html: string): string =>
  html
    .replace(/<[^>]*>/g, ' ')
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&amp;', '&')
    .replace(/\s+/g, ' ');

/** The tags of a page with the names of their attributes, and nothing of what they say. */
export const tagsIn = (html: string): string[] =>
  (html.match(/<[^>]*>/g) ?? []).map((tag) => tag.replace(/="[^"]*"/g, ''));

/** Names that try to be more than names. */
export const hostileNames = [
  '<script>alert(1)</script>',
  '"><img src=x onerror=alert(1)>',
  "' onmouseover='alert(1)",
  '</title><svg onload=alert(1)>',
  'a\u202eb\u0000\u001b[31m',
  '<%= it.version %>',
  'javascript:alert(1)',
  '../../metrics?x=1#y',
];

// Journeys with defaults that go well together: pod shop/web-1 of Service shop/web turned ready at
// `moment`, was seen half a second later, and came to Endpoints, its slice and one node by 0.9 s.

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

// Names by an attacker who wants them to be read as something else: texts, findings and reports for
// properties, and the characters that a text for people may not contain.

/** Text by an attacker who wants it to be read as something else. */
export const hostileText = fc
  .array(
    fc.oneof(
      fc.constantFrom('\u001b[31m', '\u009b2J', '\r', '\n', '\t', '\u202e', '\u2028', '\u0000'),
      fc.constantFrom('<b>', '&amp;', '"', "'", ']]>', '<!--', '\ufffe', '\ud800', '\udc00', '😀'),
      fc.integer({ min: 0, max: 0xffff }).map((unit) => String.fromCharCode(unit)),
      fc.string({ unit: 'binary' }),
    ),
    { maxLength: 12 },
  )
  .map((parts) => parts.join(''));

export const hostileFinding: fc.Arbitrary<Finding> = fc
  .record({
    namespace: hostileText,
    service: hostileText,
    object: hostileText,
    field: hostileText,
    expected: fc.option(hostileText),
    actual: fc.option(hostileText),
    resolvedAt: fc.option(fc.constant(moment + 5)),
    severity: fc.constantFrom('critical', 'warning', 'info'),
    difference: fc.constantFrom('missing', 'unexpected', 'different'),
  })
  .map((more) => findingOf(more as Partial<Finding>));

export const hostileReport: fc.Arbitrary<AuditReport> = fc
  .tuple(fc.array(hostileFinding, { maxLength: 4 }), hostileText)
  .map(([findings, text]) =>
    reportOf(stateOf(), {
      findings,
      problems: [text],
      dropped: { [text]: 3 },
      input: {
        ...reportOf(stateOf()).input,
        sources: [text],
        release: text,
        verified: false,
        unverified: [text],
      },
    }),
  );

/** What no text for people may hold, newlines apart: what cannot be seen, and half characters. */
export const invisible = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u;
/** Whether a text hides something; newlines are for the eye. */
export const hides = (text: string): boolean => invisible.test(text.replaceAll('\n', ''));

// What was sent over OTLP, decoded by what protobufjs made of the protocol's own definitions. The
// package has it from a time when the exporters used it themselves; those of today encode by hand.

interface Value {
  readonly stringValue?: string | null;
  readonly doubleValue?: number | null;
}

export interface Valued {
  readonly key: string;
  readonly value?: Value | null;
}

interface Reference {
  readonly traceId: Uint8Array;
  readonly spanId: Uint8Array;
}

export interface OtlpSpan extends Reference {
  readonly parentSpanId: Uint8Array;
  readonly name: string;
  /** A Long, whose text is its number. */
  readonly startTimeUnixNano: unknown;
  readonly endTimeUnixNano: unknown;
  readonly attributes: readonly Valued[];
  readonly links: readonly Reference[];
}

interface Request {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly Valued[] };
    readonly scopeSpans: readonly {
      readonly scope: { readonly name: string };
      readonly spans: readonly OtlpSpan[];
    }[];
  }[];
}

/** The definitions of OpenTelemetry, v1.11.0 of their repository. */
const definitions = new protobuf.Root();
const folder = join(import.meta.dirname, '../protobuf');
definitions.resolvePath = (_origin, target) => join(folder, target);
definitions.loadSync('opentelemetry/proto/collector/trace/v1/trace_service.proto');
const request = definitions.lookupType(
  'opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest',
);

export const hex = (id: Uint8Array | undefined): string => Buffer.from(id ?? []).toString('hex');

/** The scopes of a request, each with the attributes of its resource. */
export function decodeTraces(bytes: Uint8Array) {
  const { resourceSpans } = request.decode(bytes) as unknown as Request;
  return resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.map(({ scope, spans }) => ({
      resource: resource.attributes,
      name: scope.name,
      spans,
    })),
  );
}
