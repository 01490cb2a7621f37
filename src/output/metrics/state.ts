// The state that all samples of a scrape are collected from. Times are in Unix seconds on the clock
// of the input.

import type { Code, Finding, Severity } from '../../audit/finding/catalogue.ts';
import type { IncidentKind } from '../../audit/incident/kinds.ts';
import type { OpenJourneys } from '../../audit/measure/journey.ts';
import type { Measurements, ServiceSums } from '../../audit/measure/measurements.ts';
import type { ConfirmCounts } from '../../audit/pending/confirm.ts';
import type { Input } from '../../audit/pending/progress.ts';
import type { Summary } from '../../audit/summary.ts';
import { recordOf } from '../../model/collections.ts';
import type { ErrorCounts } from '../../model/connection.ts';
import type { Resource } from '../../model/objects.ts';
import type { Scope } from '../../model/scope.ts';
import type { TracingCounts } from '../traces/settings.ts';
import type { ServiceSeries } from './service-rows.ts';

export interface MetricsState extends ServiceSums, Measurements {
  readonly summary: Summary;
  /** Services without usable endpoints that are suppressed; `summary` does not count them. */
  readonly suppressedServices: number;
  readonly opened: OpenedFindings;
  readonly incidents: IncidentCounts;
  /** The oldest first. */
  readonly openIncidents: readonly IncidentSeries[];
  /** Resolved incidents that pages and API do not have any more. */
  readonly forgottenIncidents: number;
  /** The name of the incident of an open finding; `null` if it has none. */
  readonly incidentOf: (finding: Finding) => string | null;
  readonly hints: HintCounts;
  readonly journeys: Pick<OpenJourneys, 'openCount' | 'ended'>;
  /** Dropped input by reason; the reasons are few, fixed words. */
  readonly dropped: Readonly<Record<string, number>>;
  readonly now: number;
  readonly startedAt: number;
  /** The minor version of the shadowed release: 36 for 1.36. */
  readonly release: string;
  /** Why the verdicts are not verified; empty if they are. */
  readonly unverified: readonly string[];
  readonly version: string;
  /** Which of the shards this process is; the first of one without shards. */
  readonly shard: NonNullable<Scope['shard']>;
  readonly ready: boolean;
  /** Empty if the input is not live. */
  readonly watches: WatchMetrics;
  readonly tracing: TracingCounts;
  /** Kubernetes Events that were written, and requests to write one that failed. */
  readonly events: Readonly<typeof noEventCounts>;
  /** All 0 without a history. */
  readonly history: HistoryMetrics;
  /** All 0 if no agents are scraped. */
  readonly agents: AgentMetrics;
  readonly perService: ServiceSeries;
}

/** Open incidents by kind and severity. */
export type IncidentCounts = Partial<Record<IncidentKind, Partial<Record<Severity, number>>>>;

/** An open incident with what it is about, and the number of Services that it affects. */
export interface IncidentSeries {
  readonly id: string;
  readonly kind: IncidentKind;
  /** The worst since it opened, so that an alert on it never has a lower one. */
  readonly severity: Severity;
  /** What it is about from its beginning to its end; empty strings if that is several or other. */
  readonly namespace: string;
  readonly service: string;
  readonly node: string;
  readonly services: number;
}

/** Findings opened since the start, by code and severity. */
export type OpenedFindings = Partial<Record<Code, Partial<Record<Severity, number>>>>;

/** Counts a finding by its code and severity. */
export function countOpened(opened: OpenedFindings, { code, severity }: Finding): OpenedFindings {
  const bySeverity = (opened[code] ??= {});
  bySeverity[severity] = (bySeverity[severity] ?? 0) + 1;
  return opened;
}

export const noEventCounts = { created: 0, repeated: 0, failed: 0 };

export type AgentMetrics = Readonly<typeof noAgents>;

export const noAgents = {
  states: { answering: 0, stale: 0, refused: 0, absent: 0 },
  /** The time of the oldest report of an answering agent; null if no agent answers. */
  oldestSeenAt: null as number | null,
  /** Frontends whose digest differs from the expected one. */
  divergent: 0,
  visits: { seen: 0, early: 0, refused: 0, silent: 0 },
  bytes: 0,
};

export type HistoryMetrics = Readonly<typeof noHistory>;

export const noHistory = {
  bytes: 0,
  /** Until when all is on the disk, Unix seconds; null before the first checkpoint. */
  writtenAt: null as number | null,
  /** The time of the oldest checkpoint, Unix seconds; null before the first. */
  oldest: null as number | null,
  lines: 0,
  droppedLines: 0,
  failures: 0,
};

/** Settings that request topology hints: an annotation, or either kind of trafficDistribution. */
export const hintModes = ['auto', 'zone', 'node'] as const;

/** Why no ready endpoint has a hint; `none` if the input has no reason for it. */
export const hintReasons = [
  'no-ready-endpoints',
  'node-information',
  'one-zone',
  'few-endpoints',
  'overload',
  'none',
] as const;

export type HintCounts = ReturnType<typeof noHintCounts>;

/** `all`: all ready endpoints of the Service have hints; `some`: some of them; `absent`: none. */
export const noHintCounts = () =>
  recordOf(hintModes, () => {
    const absent: Partial<Record<(typeof hintReasons)[number], number>> = {};
    return { all: 0, some: 0, absent };
  });

export interface WatchMetrics {
  readonly inputs: ReadonlyMap<Resource, Input>;
  readonly confirmations: Readonly<ConfirmCounts>;
  readonly counters: ReadonlyMap<Resource, WatchCounts>;
  /** Failed requests. */
  readonly errors: ErrorCounts;
}

export const relistReasons = ['gone', 'expired', 'reset', 'disorder', 'gap', 'starved'] as const;
export const reconnectReasons = [
  'eof',
  'timeout',
  'reset',
  'idle',
  'status',
  'frame',
  'older',
  'endless',
] as const;

type Counts<Name extends string> = Readonly<Record<Name, number>>;

/** The counters of one watch, which cluster/api/listwatch.ts describes. */
export interface WatchCounts
  extends
    Counts<'lists' | 'watches' | 'bytes' | 'throttled' | 'unauthorised' | 'denied'>,
    Counts<'events' | 'repeated' | 'stale' | 'bookmarks' | 'badFrames' | 'unreadable'> {
  readonly relists: Counts<(typeof relistReasons)[number]>;
  readonly reconnects: Counts<(typeof reconnectReasons)[number]>;
}
