// The report of lags: one document for /api/v1/lag, and a table of it for people. The document has
// the distributions, bucket by bucket, and the worst samples, so that a reader can see what a p99
// was.
//
// The table of a running server is rendered from its answer, so all of its cells are escaped.

import type { Histogram } from '../../audit/measure/histogram.ts';
import type {
  Journey,
  JourneyEnd,
  JourneyLag,
  JourneyStageName,
} from '../../audit/measure/journey.ts';
import { journeyLagOutputs, programmingBounds } from '../../audit/measure/journey.ts';
import type { ConvergenceLag, TriggerLag } from '../../audit/measure/lag.ts';
import { lagOperations, lagOutputs } from '../../audit/measure/lag.ts';
import type { ConvergenceSample } from '../../audit/service/reconcile.ts';
import { outputResources } from '../../model/objects.ts';
import {
  escapeInvisible,
  formatCount,
  formatCounts,
  formatJson,
  formatLag,
  formatTable,
  formatTime,
  truncate,
} from './format.ts';
import { summarizeLag } from './report.ts';

/** One distribution, in seconds. */
export interface Distribution extends ReturnType<typeof summarizeLag> {
  readonly lag: 'convergence' | 'trigger' | 'readiness' | 'removal' | 'programming';
  readonly output: string;
  /** The operation of a convergence lag, the bound of a programming lag; else null. */
  readonly of: string | null;
  readonly sum: number;
  /** One count for each bound, and one for the values above all bounds. */
  readonly bounds: readonly number[];
  readonly counts: readonly number[];
}

/** A journey that ended, and its length. */
export interface WorstJourney extends Journey {
  readonly seconds: number;
}

/** Times in Unix seconds on the input's clock. */
export interface LagReport {
  readonly format: 1;
  readonly from: number | null;
  readonly now: number | null;
  readonly distributions: readonly Distribution[];
  /** Writings of the controllers by the quality of their trigger time. */
  readonly triggerTimes: TriggerLag['counts'];
  readonly journeys: {
    readonly open: number;
    /** The beginning of the oldest open journey. */
    readonly oldestBegun: number | null;
    readonly begun: JourneyLag['begun'];
    readonly ended: Readonly<Record<JourneyEnd, number>>;
  };
  /** The upper bound of the auditor's clock minus the API server's; null if it is unknown. */
  readonly clockAheadSeconds: number | null;
  /** The worst samples of the last day, worst first. */
  readonly worst: {
    readonly journeys: readonly WorstJourney[];
    readonly convergence: readonly ConvergenceSample[];
  };
}

/** All distributions, including those without a value. */
export function listDistributions(
  convergence: ConvergenceLag,
  trigger: TriggerLag,
  travel: JourneyLag,
): Distribution[] {
  const distribution = (
    lag: Distribution['lag'],
    output: string,
    bound: string | null,
    histogram: Histogram,
  ): Distribution => {
    const { bounds, counts, sum } = histogram;
    const summary = summarizeLag(histogram);
    return { lag, output, of: bound, sum, ...summary, bounds, counts: [...counts] };
  };
  return [
    ...lagOutputs.flatMap((output) =>
      lagOperations.map((operation) =>
        distribution('convergence', output, operation, convergence[output][operation]),
      ),
    ),
    ...outputResources.map((output) => distribution('trigger', output, null, trigger.lag[output])),
    ...(['readiness', 'removal'] as const).flatMap((lag) =>
      journeyLagOutputs.map((output) => distribution(lag, output, null, travel[lag][output])),
    ),
    ...programmingBounds.map((bound) =>
      distribution('programming', 'node', bound, travel.programming[bound]),
    ),
  ];
}

// --- for people ---

/** A table under its title; the server's answer could contain any text, so cells are escaped. */
function section(title: string, head: string, rows: readonly (readonly string[])[]): string[] {
  if (rows.length === 0) return [];
  const cells = [head.split('|'), ...rows].map((row) =>
    row.map((cell) => truncate(escapeInvisible(cell), 80)),
  );
  return [title, ...formatTable(cells)];
}

const distributionRow = (distribution: Distribution): string[] => {
  const { lag, output, of: bound, count, p50, p99, max } = distribution;
  return [lag, output, bound ?? '-', String(count), ...[p50, p99, max].map(formatLag)];
};

const stageNames: readonly JourneyStageName[] = ['arrival', 'endpoints', 'endpointslices', 'node'];

/** A journey with the time from its beginning to each stage; for nodes, to the last one. */
function journeyRow(journey: WorstJourney): string[] {
  const { namespace, service, pod, operation, quality, begun, seconds, end } = journey;
  const stages = stageNames.map((name) => {
    const stage = journey.stages.findLast((reached) => reached.stage === name);
    if (stage === undefined) return '-';
    const where = stage.node === null ? '' : ` ${stage.node}`;
    return formatLag(Math.max(0, stage.at - begun)) + where;
  });
  const name = [`${namespace}/${service}`, pod, operation, formatTime(begun), quality];
  return [formatLag(seconds), ...name, ...stages, end ?? 'open'];
}

const sampleRow = (sample: ConvergenceSample): string[] => {
  const { seconds, namespace, service, output, node, operation, at } = sample;
  const where = node === null ? output : `${output} ${node}`;
  return [formatLag(seconds), `${namespace}/${service}`, where, operation, formatTime(at)];
};

/** Counts by a name: `add: 3 ok, 1 coarse; remove: none`. */
const formatGroups = (groups: Readonly<Record<string, Readonly<Record<string, number>>>>): string =>
  Object.entries(groups)
    .map(([name, counts]) => `${escapeInvisible(name)}: ${formatCounts(counts) || 'none'}`)
    .join('; ');

function renderTables(report: LagReport): string {
  const { distributions, worst, journeys, triggerTimes, clockAheadSeconds: ahead } = report;
  const measured = distributions.filter(({ count }) => count > 0).map(distributionRow);
  const travels = worst.journeys.slice(0, 10).map(journeyRow);
  const late = worst.convergence.slice(0, 10).map(sampleRow);
  const since = journeys.oldestBegun;
  const oldest = since === null ? '' : `, the oldest since ${formatTime(since)}`;
  const clock =
    ahead === null
      ? 'not known'
      : `at most ${ahead < 0 ? '-' : ''}${formatLag(Math.abs(ahead))} ahead of the API server's`;
  return [
    `Lag from ${formatTime(report.from)} to ${formatTime(report.now)}`,
    ...(measured.length === 0 ? ['', 'No lag was measured'] : []),
    ...section('', 'LAG|OUTPUT|OF|COUNT|P50|P99|LONGEST', measured),
    ...section(
      `\nThe worst ${formatCount(travels.length, 'journey')} of pods, stage by stage:`,
      'LONG|SERVICE|POD|CHANGE|BEGAN|QUALITY|ARRIVED|ENDPOINTS|SLICES|LAST NODE|END',
      travels,
    ),
    ...section(
      `\nThe ${late.length} outputs that were late for longest:`,
      'LATE|SERVICE|OUTPUT|OPERATION|RIGHT AGAIN',
      late,
    ),
    '',
    `Journeys: ${formatCounts(journeys.ended) || 'none'}; ${journeys.open} open${oldest}`,
    `Beginnings of journeys: ${formatGroups(journeys.begun)}`,
    `Trigger times: ${formatGroups(triggerTimes)}`,
    `Clock of the auditor: ${clock}`,
    '',
  ].join('\n');
}

/** The document as a table for people, or as JSON. */
export const renderLag = (report: LagReport, format: 'table' | 'json'): string =>
  format === 'json' ? formatJson(report) : renderTables(report);
