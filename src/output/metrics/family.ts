// What a family of metrics is, and the state that its samples are made from.
//
// A family is data with one function from the state to its samples, so that a scrape and the
// documentation can both be made from it. Samples of the cluster are made at the scrape and never
// kept, those of one Service as long as nothing changes it (service-rows.ts), so no series outlives
// what it tells of. Times are on the input's clock: a replayed recording shows its
// own.
//
// Left out: which families there are (families.ts), and how they are written (metrics.ts).

import type { Code, Finding, Severity } from '../../audit/finding/catalogue.ts';
import { catalogue, severities } from '../../audit/finding/catalogue.ts';
import type { CapacityCounts } from '../../audit/measure/capacity.ts';
import type { ClockSkew } from '../../audit/measure/clock-skew.ts';
import type { ConditionCounts } from '../../audit/measure/conditions.ts';
import type { DuplicateTotals } from '../../audit/measure/duplicates.ts';
import type { FillTotals } from '../../audit/measure/fill.ts';
import type { Histogram } from '../../audit/measure/histogram.ts';
import type { JourneyLag } from '../../audit/measure/journey-lag.ts';
import type { OpenJourneys } from '../../audit/measure/journey.ts';
import type { ConvergenceLag, TriggerLag } from '../../audit/measure/lag.ts';
import type { Sizes } from '../../audit/measure/size.ts';
import type { ConfirmCounts } from '../../audit/pending/confirm.ts';
import type { Input } from '../../audit/pending/progress.ts';
import type { Summary } from '../../audit/summary.ts';
import type { Resource } from '../../model/objects.ts';
import type { TracingCounts } from '../traces/sender.ts';
import type { FamilyBase, SampleLabels, Sample } from './sample.ts';
import type { ServiceSeries } from './service-rows.ts';

/** Findings opened since the start, by code and severity. */
export type OpenedFindings = Partial<Record<Code, Partial<Record<Severity, number>>>>;

export function countOpened(opened: OpenedFindings, { code, severity }: Finding): void {
  const bySeverity = (opened[code] ??= {});
  bySeverity[severity] = (bySeverity[severity] ?? 0) + 1;
}

/** All that a scrape shows; times in Unix seconds on the input's clock. */
export interface MetricsState {
  readonly summary: Summary;
  readonly opened: OpenedFindings;
  readonly fill: FillTotals;
  readonly duplicates: DuplicateTotals;
  readonly conditions: ConditionCounts;
  readonly capacity: CapacityCounts;
  readonly hints: HintCounts;
  readonly durations: AuditDurations;
  readonly sizes: Sizes;
  readonly convergence: ConvergenceLag;
  readonly trigger: TriggerLag;
  readonly travel: JourneyLag;
  readonly journeys: Pick<OpenJourneys, 'openCount' | 'ended'>;
  readonly skew: ClockSkew;
  /** Input that was not used, by reason; the reasons must be few and fixed words. */
  readonly dropped: Readonly<Record<string, number>>;
  readonly now: number;
  /** When the input began. */
  readonly startedAt: number;
  /** The minor version of the release that is shadowed: 36 for 1.36. */
  readonly releaseMinor: number;
  /** Of endpoint-auditor itself. */
  readonly version: string;
  readonly ready: boolean;
  /** Of live input; empty where it is not. */
  readonly watches: WatchMetrics;
  readonly tracing: TracingCounts;
  /** Of the agents of nodes; all 0 where none are asked. */
  readonly agents: AgentMetrics;
  /** Services that have series of their own. */
  readonly perService: ServiceSeries;
}

/** What is known of the agents of nodes. */
export interface AgentMetrics {
  /** Nodes by how their agent stands. */
  readonly states: Readonly<Record<'answering' | 'stale' | 'refused' | 'absent', number>>;
  /** The moment of the oldest report of an agent that answers; null: there is none. */
  readonly oldestSeenAt: number | null;
  /** Frontends whose digest is not what follows from the cluster. */
  readonly divergent: number;
  readonly visits: Readonly<Record<'seen' | 'early' | 'refused' | 'silent', number>>;
  readonly bytes: number;
}

export const noAgents: AgentMetrics = {
  states: { answering: 0, stale: 0, refused: 0, absent: 0 },
  oldestSeenAt: null,
  divergent: 0,
  visits: { seen: 0, early: 0, refused: 0, silent: 0 },
  bytes: 0,
};

/** How long it took to take in one entry: what begins judging apart from what changes it. */
export type AuditDurations = Readonly<Record<'full' | 'change', Histogram>>;

/** What asks for topology hints: an annotation, or either kind of trafficDistribution. */
export const hintModes = ['auto', 'zone', 'node'] as const;

/** Why no ready endpoint has a hint; `none` where the input gives no reason for it. */
export const hintReasons = [
  'no-ready-endpoints',
  'node-information',
  'one-zone',
  'few-endpoints',
  'overload',
  'none',
] as const;

/** Services that ask for hints, by what their slices carry. */
export type HintCounts = Readonly<
  Record<
    (typeof hintModes)[number],
    {
      /** All ready endpoints have hints, or some of them. */
      all: number;
      some: number;
      readonly absent: Partial<Record<(typeof hintReasons)[number], number>>;
    }
  >
>;

export function noHintCounts(): HintCounts {
  const none = () => ({ all: 0, some: 0, absent: {} });
  return { auto: none(), zone: none(), node: none() };
}

/** What is known of the watches of a live cluster. */
export interface WatchMetrics {
  readonly inputs: ReadonlyMap<Resource, Input>;
  readonly confirmations: Readonly<ConfirmCounts>;
  /** What each watch has counted since the start. */
  readonly counters: ReadonlyMap<Resource, WatchCounts>;
}

/** Counts of one watch; cluster/listwatch.ts says what each is. */
export interface WatchCounts {
  readonly lists: number;
  readonly watches: number;
  readonly events: number;
  readonly repeated: number;
  readonly stale: number;
  readonly bookmarks: number;
  readonly badFrames: number;
  readonly unreadable: number;
  readonly throttled: number;
  readonly unauthorised: number;
  readonly denied: number;
  readonly bytes: number;
  readonly relists: Readonly<Record<'gone' | 'expired' | 'reset' | 'disorder', number>>;
  readonly reconnects: Readonly<
    Record<'eof' | 'timeout' | 'reset' | 'idle' | 'status' | 'frame' | 'older', number>
  >;
}

interface LabelledHistogram {
  readonly labels: SampleLabels;
  readonly histogram: Histogram;
}

export type MetricFamily = FamilyBase &
  (
    | {
        readonly type: 'gauge' | 'counter';
        readonly samples: (state: MetricsState) => readonly Sample[];
      }
    | {
        readonly type: 'histogram';
        readonly bounds: readonly number[];
        readonly histograms: (state: MetricsState) => readonly LabelledHistogram[];
      }
  );

// --- findings as samples ---

export const codes = Object.keys(catalogue) as Code[];

/** One sample per code with its usual severity, and one per exception that occurred. */
export function samplesByCode(counts: OpenedFindings): Sample[] {
  const samples: Sample[] = [];
  for (const code of codes) {
    for (const severity of severities) {
      const count = counts[code]?.[severity];
      const isUsual = catalogue[code].severity === severity;
      if (count === undefined && !isUsual) continue;
      samples.push({ labels: { code, severity }, value: count ?? 0 });
    }
  }
  return samples;
}
