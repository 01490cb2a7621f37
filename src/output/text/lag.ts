// What was measured of lag, as one document: for /api/v1/lag, and for people as a table. The
// document is the distributions, bucket by bucket, and the worst of what was measured, so that
// whoever reads a p99 can see what it was.
//
// The table of a running server is made from what that server answered, so nothing in it is taken
// to be harmless: text.ts spells it out.

import type { Histogram } from '../../audit/measure/histogram.ts';
import type { JourneyLag } from '../../audit/measure/journey-lag.ts';
import {
  journeyOperations,
  programmingBounds,
  journeyLagOutputs,
} from '../../audit/measure/journey-lag.ts';
import type { Journey, JourneyEnd, JourneyStageName } from '../../audit/measure/journey.ts';
import { journeyEnds, journeyQualities } from '../../audit/measure/journey.ts';
import type {
  ConvergenceLag,
  LagOperation,
  TriggerQuality,
  TriggerLag,
} from '../../audit/measure/lag.ts';
import { lagOperations, lagOutputs, triggerQualities } from '../../audit/measure/lag.ts';
import { outputResources } from '../../model/objects.ts';
import { truncate, formatLag, formatCount, escapeInvisible, formatTime } from './format.ts';
import { formatJson, summarizeLag } from './report.ts';

/** One distribution; seconds. */
export interface Distribution {
  readonly lag: 'convergence' | 'trigger' | 'readiness' | 'removal' | 'programming';
  readonly output: string;
  /** Of convergence the operation, of programming the bound; null: neither. */
  readonly of: string | null;
  readonly count: number;
  readonly sum: number;
  readonly p50: number | null;
  readonly p99: number | null;
  readonly max: number | null;
  /** Values up to each bound and above the one before; the last is above all. */
  readonly bounds: readonly number[];
  readonly counts: readonly number[];
}

/** A journey that ended, and how long it was. */
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
  /** Writings of the controllers by what their trigger time is worth. */
  readonly triggerTimes: TriggerLag['counts'];
  readonly journeys: {
    readonly open: number;
    /** When the oldest that is open began. */
    readonly oldestBegun: number | null;
    readonly begun: JourneyLag['begun'];
    readonly ended: Readonly<Record<JourneyEnd, number>>;
  };
  /** By how much the auditor's clock is ahead of the API server's, at most; null: not known. */
  readonly clockAheadSeconds: number | null;
  /** The worst of the last day, worst first. */
  readonly worst: {
    readonly journeys: readonly WorstJourney[];
    readonly convergence: readonly WorstSample[];
  };
}

const distribution = (
  lag: Distribution['lag'],
  output: string,
  of: string | null,
  histogram: Histogram,
): Distribution => {
  const { bounds, counts, sum } = histogram;
  return { lag, output, of, sum, ...summarizeLag(histogram), bounds, counts: [...counts] };
};

/** Every distribution there is, those without a value too. */
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

const gap = '   ';

/** Lines of equal columns; the cells are spelt out. */
function table(rows: readonly (readonly string[])[]): string[] {
  const cells = rows.map((row) => row.map((cell) => truncate(escapeInvisible(cell), 80)));
  const widths: number[] = [];
  for (const row of cells) {
    for (const [column, { length }] of row.entries()) {
      widths[column] = Math.max(widths[column] ?? 0, length);
    }
  }
  return cells.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join(gap)
      .trimEnd(),
  );
}

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

/** How long after its beginning a journey came to a stage; of nodes, to the last. */
function stageText({ stages, begun }: Journey, name: JourneyStageName): string {
  const stage = stages.findLast((one) => one.stage === name);
  if (stage === undefined) return '-';
  const where = stage.node === null ? '' : ` ${stage.node}`;
  return `${formatLag(Math.max(0, stage.at - begun))}${where}`;
}

const stageNames: readonly JourneyStageName[] = ['arrival', 'endpoints', 'endpointslices', 'node'];

/** How many of the worst are shown. */
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

/** `3 ok, 1 coarse` of counts that are not 0. */
function counted<K extends string>(
  names: readonly K[],
  counts: Readonly<Record<K, number>>,
): string {
  const some = names.filter((name) => counts[name] > 0);
  return some.length === 0 ? 'none' : some.map((name) => `${counts[name]} ${name}`).join(', ');
}

function noteLines(report: LagReport): string[] {
  const { journeys, triggerTimes, clockAheadSeconds: ahead } = report;
  const begun = journeyOperations
    .map((operation) => `${operation}: ${counted(journeyQualities, journeys.begun[operation])}`)
    .join('; ');
  const worth = outputResources
    .map(
      (output) => `${output}: ${counted<TriggerQuality>(triggerQualities, triggerTimes[output])}`,
    )
    .join('; ');
  const oldest =
    journeys.oldestBegun === null ? '' : `, the oldest since ${formatTime(journeys.oldestBegun)}`;
  const clock =
    ahead === null
      ? 'not known'
      : `at most ${ahead < 0 ? '-' : ''}${formatLag(Math.abs(ahead))} ahead of the API server's`;
  return [
    '',
    `Journeys: ${counted(journeyEnds, journeys.ended)}; ${journeys.open} open${oldest}`,
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
