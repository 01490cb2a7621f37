// The report of lags: one document for /api/v1/lag, with distributions and the worst samples, and a
// table of it for people.

import type { Histogram } from '../../audit/measure/histogram.ts';
import type { Journey, OpenJourneys } from '../../audit/measure/journey.ts';
import { journeyLagOutputs, programmingBounds } from '../../audit/measure/journey.ts';
import { lagOperations, lagOutputs, skewSeconds } from '../../audit/measure/lag.ts';
import type { Measurements } from '../../audit/measure/measurements.ts';
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

interface LagSource {
  readonly startedAt: () => number | null;
  readonly now: () => number | null;
  readonly journeys: Pick<OpenJourneys, 'open' | 'openCount' | 'ended'>;
  readonly samples: Measurements & {
    readonly worst: {
      readonly journeys: { list(now: number): readonly { journey: Journey; seconds: number }[] };
      readonly convergence: { list(now: number): readonly ConvergenceSample[] };
    };
  };
}

export type LagReport = ReturnType<typeof createLagReport>;

/** Times in Unix seconds on the input's clock. */
export function createLagReport({ samples, journeys, ...clock }: LagSource) {
  const { trigger, travel, skew, worst } = samples;
  const [from, now] = [clock.startedAt(), clock.now()];
  const begun = [...journeys.open()].map((journey) => journey.begun);
  return {
    format: 1 as const,
    from,
    now,
    distributions: listDistributions(samples),
    /** Writings of the controllers by the quality of their trigger time. */
    triggerTimes: trigger.counts,
    journeys: {
      open: journeys.openCount(),
      oldestBegun: begun.length === 0 ? null : Math.min(...begun),
      begun: travel.begun,
      ended: journeys.ended,
    },
    /** The upper bound of the auditor's clock minus the API server's; null if it is unknown. */
    clockAheadSeconds: skewSeconds(skew, now ?? 0),
    /** The worst samples of the last day, worst first. */
    worst: {
      journeys: worst.journeys.list(now ?? 0).map(({ journey, seconds }) => {
        const { namespace, service, pod, uid, podNode, addresses, operation, begun } = journey;
        const { quality, stages, nodes, end } = journey;
        const who = { namespace, service, pod, uid, podNode, addresses, operation };
        return { ...who, begun, quality, stages, nodes, end, seconds };
      }),
      convergence: worst.convergence.list(now ?? 0),
    },
  };
}

/** All distributions in seconds, including those without a value. */
export function listDistributions({
  convergence,
  trigger,
  travel,
}: Pick<Measurements, 'convergence' | 'trigger' | 'travel'>) {
  const distribution = (lag: string, output: string, bound: string | null, values: Histogram) => {
    const { bounds, counts, sum } = values;
    return {
      lag,
      output,
      /** The operation of a convergence lag, the bound of a programming lag; else null. */
      of: bound,
      sum,
      ...summarizeLag(values),
      bounds,
      /** One count for each bound, and one for the values above all bounds. */
      counts: [...counts],
    };
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

function journeyRow(journey: LagReport['worst']['journeys'][number]): string[] {
  const { namespace, service, pod, operation, quality, begun, seconds, end } = journey;
  const stages = (['arrival', ...journeyLagOutputs] as const).map((name) => {
    const stage = journey.stages.findLast((reached) => reached.stage === name);
    if (stage === undefined) return '-';
    const where = stage.node === null ? '' : ` ${stage.node}`;
    return formatLag(Math.max(0, stage.at - begun)) + where;
  });
  const name = [`${namespace}/${service}`, pod, operation, formatTime(begun), quality];
  return [formatLag(seconds), ...name, ...stages, end ?? 'open'];
}

/** Counts by a name: `add: 3 ok, 1 coarse; remove: none`. */
const formatGroups = (groups: Readonly<Record<string, Readonly<Record<string, number>>>>): string =>
  Object.entries(groups)
    .map(([name, counts]) => `${escapeInvisible(name)}: ${formatCounts(counts) || 'none'}`)
    .join('; ');

function renderTables(report: LagReport): string {
  const { distributions, worst, journeys, triggerTimes, clockAheadSeconds: ahead } = report;
  const measured = distributions
    .filter(({ count }) => count > 0)
    .map(({ lag, output, of: bound, count, p50, p99, max }) => {
      return [lag, output, bound ?? '-', String(count), ...[p50, p99, max].map(formatLag)];
    });
  const travels = worst.journeys.slice(0, 10).map(journeyRow);
  const late = worst.convergence.slice(0, 10).map((sample) => {
    const { seconds, namespace, service, output, node, operation, at } = sample;
    const where = node === null ? output : `${output} ${node}`;
    return [formatLag(seconds), `${namespace}/${service}`, where, operation, formatTime(at)];
  });
  const were = late.length === 1 ? 'was' : 'were';
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
      `\nThe ${formatCount(late.length, 'output')} that ${were} late for longest:`,
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
