// What the tests of the outputs share: findings, and a state of the metrics, with defaults.

import type { Finding } from '../../src/audit/finding/catalogue.ts';
import type { Verdict } from '../../src/audit/finding/verdicts.ts';
import { noConditionCounts } from '../../src/audit/measure/endpoint-counts.ts';
import { createJourneys } from '../../src/audit/measure/journey.ts';
import { createMeasurements, createServiceSums } from '../../src/audit/measure/measurements.ts';
import { createLagHistory } from '../../src/audit/measure/sample-history.ts';
import type { ExpositionFormat } from '../../src/output/metrics/exposition.ts';
import type { MetricsState } from '../../src/output/metrics/state.ts';
import { noAgents, noHintCounts } from '../../src/output/metrics/state.ts';
import { createMetricsRenderer } from '../../src/output/metrics/metrics.ts';
import type { ServiceNumbers } from '../../src/output/metrics/service-families.ts';
import { noServiceSeries } from '../../src/output/metrics/service-rows.ts';
import type { PageStatus } from '../../src/output/page/status.ts';
import type { LagReport } from '../../src/output/text/lag.ts';
import type { AuditReport } from '../../src/output/text/report.ts';
import { summarizeMeasures } from '../../src/output/text/report.ts';
import { noTracingCounts } from '../../src/output/traces/tracing.ts';

/** 2026-11-21T10:56:46Z */
export const moment = Date.UTC(2026, 10, 21, 10, 56, 46) / 1000;

export function findingOf(more: Partial<Finding> = {}): Finding {
  return {
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
    since: moment - 30,
    openedAt: moment,
    resolvedAt: null,
    ...more,
  };
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
};

export function stateOf(more: Partial<MetricsState> = {}): MetricsState {
  return {
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
    },
    ...createServiceSums(100),
    ...createMeasurements(),
    opened: {},
    hints: noHintCounts(),
    journeys: createJourneys(),
    dropped: { stale: 3 },
    now: moment,
    startedAt: moment - 300,
    releaseMinor: 36,
    version: '1.2.3',
    ready: true,
    watches: noWatches,
    tracing: noTracingCounts(),
    agents: noAgents,
    perService: noServiceSeries,
    ...more,
  };
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
      hasPending: false,
      open: false,
    },
    conditions: { ...noConditionCounts(), ready: 2 },
    slices: 1,
    surplus: 0,
    bytes: { endpoints: 700, endpointslices: 900 },
    audits: 4,
    ...more,
  };
}

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
  };
  return stateOf({ summary, dropped: {}, ...more });
}

export function statusOf(more: Partial<PageStatus> = {}): PageStatus {
  return {
    metrics: stateOf(),
    resolved: [],
    forgotten: 0,
    notReady: null,
    clusterNodes: null,
    source: 'shop.ndjson.gz',
    kubernetes: 'v1.36.3',
    revision: '1',
    lag: createLagHistory().series(),
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
      verified: true,
      from: moment - 300,
      until: moment,
      complete: true,
    },
    namespace: null,
    findings: summary.findings,
    services: summary.services,
    verdicts: summary.verdicts,
    nodes: summary.nodes,
    unknown: summary.unknown,
    foreign: summary.foreign,
    dropped,
    problems: [],
    measures: summarizeMeasures(state),
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
