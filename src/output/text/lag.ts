// The report of lags: one document for /api/v1/lag, and a table of it for people. The document has
// the distributions, bucket by bucket, and the worst samples, so that a reader can see what a p99
// was.
//
// The table of a running server is rendered from its answer, so all of its cells are escaped.

import type { Histogram } from '../../audit/measure/histogram.ts';
import type { JourneyLag } from '../../audit/measure/journey-lag.ts';
import {
  journeyLagOutputs,
  journeyOperations,
  programmingBounds,
} from '../../audit/measure/journey-lag.ts';
import type { Journey, JourneyEnd, JourneyStageName } from '../../audit/measure/journey.ts';
import { journeyEnds, journeyQualities } from '../../audit/measure/journey.ts';
import type { ConvergenceLag, LagOperation, TriggerLag } from '../../audit/measure/lag.ts';
import { lagOperations, lagOutputs, triggerQualities } from '../../audit/measure/lag.ts';
import { outputResources } from '../../model/objects.ts';
import {
  escapeInvisible,
  formatCount,
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

/** A sample of convergence lag. */
export interface WorstSample {
  readonly output: string;
  readonly operation: LagOperation;
  readonly namespace: string;
  readonly service: string;
  readonly node: string | null;
  readonly seconds: number;
  readonly at: number;
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
    readonly convergence: readonly WorstSample[];
  };
}

function distribution(
  lag: Distribution['lag'],
  output: string,
  operation: string | null,
  histogram: Histogram,
): Distribution {
  const { bounds, counts, sum } = histogram;
  return {
    lag,
    output,
    of: operation,
    sum,
    ...summarizeLag(histogram),
    bounds,
    counts: [...counts],
  };
}

/** All distributions, including those without a value. */
export function listDistributions(
  convergence: ConvergenceLag,
  trigger: TriggerLag,
  travel: JourneyLag,
): Distribution[] {
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

/** Aligns the columns; the server's answer could contain any text, so cells are escaped. */
const table = (rows: readonly (readonly string[])[]): string[] =>
  formatTable(rows.map((row) => row.map((cell) => truncate(escapeInvisible(cell), 80))));

function distributionLines({ distributions }: LagReport): string[] {
  const rows = distributions
    .filter(({ count }) => count > 0)
    .map(({ lag, output, of, count, p50, p99, max }) => [
      lag,
      output,
      of ?? '-',
      String(count),
      ...[p50, p99, max].map(formatLag),
    ]);
  if (rows.length === 0) return ['No lag was measured'];
  return table([['LAG', 'OUTPUT', 'OF', 'COUNT', 'P50', 'P99', 'LONGEST'], ...rows]);
}

/** The time from the beginning of a journey to a stage; for nodes, to the last one. */
function stageText({ stages, begun }: Journey, name: JourneyStageName): string {
  const stage = stages.findLast(({ stage }) => stage === name);
  if (stage === undefined) return '-';
  const where = stage.node === null ? '' : ` ${stage.node}`;
  return `${formatLag(Math.max(0, stage.at - begun))}${where}`;
}

const stageNames: readonly JourneyStageName[] = ['arrival', 'endpoints', 'endpointslices', 'node'];

/** The number of samples in a table. */
const shown = 10;

function journeyLines({ worst }: LagReport): string[] {
  const rows = worst.journeys.slice(0, shown).map((journey) => {
    const { namespace, service, pod, operation, quality, begun, seconds, end } = journey;
    const name = [`${namespace}/${service}`, pod, operation, formatTime(begun), quality];
    const stages = stageNames.map((stage) => stageText(journey, stage));
    return [formatLag(seconds), ...name, ...stages, end ?? 'open'];
  });
  if (rows.length === 0) return [];
  const head = ['LONG', 'SERVICE', 'POD', 'CHANGE', 'BEGAN', 'QUALITY', 'ARRIVED', 'ENDPOINTS'];
  return [
    '',
    `The worst ${formatCount(rows.length, 'journey')} of pods, stage by stage:`,
    ...table([[...head, 'SLICES', 'LAST NODE', 'END'], ...rows]),
  ];
}

function sampleLines({ worst }: LagReport): string[] {
  const rows = worst.convergence
    .slice(0, shown)
    .map(({ seconds, namespace, service, output, node, operation, at }) => [
      formatLag(seconds),
      `${namespace}/${service}`,
      node === null ? output : `${output} ${node}`,
      operation,
      formatTime(at),
    ]);
  if (rows.length === 0) return [];
  return [
    '',
    `The ${rows.length} outputs that were late for longest:`,
    ...table([['LATE', 'SERVICE', 'OUTPUT', 'OPERATION', 'RIGHT AGAIN'], ...rows]),
  ];
}

/** Formats counts as `3 ok, 1 coarse`, without those that are 0. */
function formatCounts<K extends string>(
  names: readonly K[],
  counts: Readonly<Record<K, number>>,
): string {
  const some = names.filter((name) => counts[name] > 0);
  return some.length === 0 ? 'none' : some.map((name) => `${counts[name]} ${name}`).join(', ');
}

function noteLines(report: LagReport): string[] {
  const { journeys, triggerTimes, clockAheadSeconds: ahead } = report;
  const begun = journeyOperations
    .map(
      (operation) => `${operation}: ${formatCounts(journeyQualities, journeys.begun[operation])}`,
    )
    .join('; ');
  const worth = outputResources
    .map((output) => `${output}: ${formatCounts(triggerQualities, triggerTimes[output])}`)
    .join('; ');
  const oldest =
    journeys.oldestBegun === null ? '' : `, the oldest since ${formatTime(journeys.oldestBegun)}`;
  const clock =
    ahead === null
      ? 'not known'
      : `at most ${ahead < 0 ? '-' : ''}${formatLag(Math.abs(ahead))} ahead of the API server's`;
  return [
    '',
    `Journeys: ${formatCounts(journeyEnds, journeys.ended)}; ${journeys.open} open${oldest}`,
    `Beginnings of journeys: ${begun}`,
    `Trigger times: ${worth}`,
    `Clock of the auditor: ${clock}`,
  ];
}

/** The document as a table for people, or as JSON. */
export function renderLag(report: LagReport, format: 'table' | 'json'): string {
  if (format === 'json') return formatJson(report);
  const lines = [
    `Lag from ${formatTime(report.from)} to ${formatTime(report.now)}`,
    '',
    ...distributionLines(report),
    ...journeyLines(report),
    ...sampleLines(report),
    ...noteLines(report),
  ];
  return `${lines.join('\n')}\n`;
}
