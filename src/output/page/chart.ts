// The chart of the convergence lag, as SVG. It needs no script. Only the inner drawing stretches to
// the width of the page, so texts and points keep their size.

import { type LagOutput, lagOutputs } from '../../audit/measure/lag.ts';
import type { LagSeries } from '../../audit/measure/sample-history.ts';
import { recordOf } from '../../model/collections.ts';
import { formatClock, formatLag } from '../text/format.ts';
import { formatSpan, type Html, markup } from './parts.ts';

/** In pixels, but `width` is in units that stretch. */
const [width, height, margin] = [1000, 184, 8];

/** A line has at most this many points; each is the longest lag of its part of the time. */
const maxPoints = 120;

/** Seconds without a change that interrupt a line; more if its points cover more time. */
const gapSeconds = 40;

const partSize = ({ at }: LagSeries): number => Math.ceil(at.length / maxPoints);

const lagSteps = [0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 36_000];
const timeSteps = [10, 30, 60, 300, 600, 1800, 3600, 21_600, 86_400];

type LagPoint = ReturnType<typeof lagPoints>[number];

/** The points of the chart, in the order of time. */
export function lagPoints(series: LagSeries) {
  const { at, longest } = series;
  const size = partSize(series);
  return at.flatMap((moment, first) => {
    if (first % size !== 0) return [];
    const longestOf = (output: LagOutput): number | null => {
      const values = longest[output].slice(first, first + size);
      const known = values.filter((value) => value !== null);
      return known.length === 0 ? null : Math.max(...known);
    };
    /** Seconds; null if the output followed no change then. */
    return { at: moment, longest: recordOf(lagOutputs, longestOf) };
  });
}

type Scales = ReturnType<typeof scalesOf>;

/** Time is linear, lag is logarithmic. */
function scalesOf(points: readonly LagPoint[], values: readonly number[]) {
  const [from, until] = [points[0]?.at ?? 0, points.at(-1)?.at ?? 0];
  const [low, high] = [Math.min(0.01, ...values), Math.max(1, ...values)];
  const shareOf = (seconds: number): number => Math.log(seconds / low) / Math.log(high / low);
  const span = until - from;
  const step = timeSteps.find((seconds) => span / seconds <= 5) ?? 86_400;
  const first = Math.ceil(from / step) * step;
  const count = Math.max(0, Math.floor((until - first) / step) + 1);
  return {
    x: (at: number): number => Number(((width * (at - from)) / span).toFixed(1)),
    y: (seconds: number): number =>
      Number((margin + (height - 2 * margin) * (1 - shareOf(Math.max(low, seconds)))).toFixed(1)),
    lagTicks: lagSteps.filter((seconds) => seconds >= low && seconds <= high),
    timeTicks: Array.from({ length: count }, (_, index) => first + index * step),
  };
}

/** The path of one line, and one with a dot for each of its points. */
function pathsOf(output: LagOutput, points: readonly LagPoint[], { x, y }: Scales, gap: number) {
  let before: number | null = null;
  let [line, dots] = ['', ''];
  for (const { at, longest } of points) {
    const seconds = longest[output];
    if (seconds === null) continue;
    const place = `${x(at)} ${y(seconds)}`;
    line += `${before === null || at - before > gap ? 'M' : 'L'}${place}`;
    dots += `M${place}h0`;
    before = at;
  }
  return markup`<path class="line ${output}" d="${line}"></path>
<path class="dots ${output}" d="${dots}"></path>`;
}

const percent = (x: number): string => `${((100 * x) / width).toFixed(2)}%`;

/** Shows the values of a point while the pointer is over it. */
function renderHint(
  { at, longest }: LagPoint,
  index: number,
  points: readonly LagPoint[],
  names: ReadonlyMap<LagOutput, string>,
  { x }: Scales,
): Html {
  const left = x((at + (points[index - 1]?.at ?? at)) / 2);
  const right = x((at + (points[index + 1]?.at ?? at)) / 2);
  const texts = [...names].flatMap(([output, name]) => {
    const seconds = longest[output];
    return seconds === null ? [] : [`${name} ${formatLag(seconds)}`];
  });
  return markup`<rect class="hint" x="${percent(left)}" width="${percent(right - left)}"
 y="0" height="${height}"><title>${formatClock(at)} UTC: ${texts.join(', ')}</title></rect>`;
}

const swatch = (output: LagOutput): Html =>
  markup`<svg class="swatch" viewBox="0 0 28 6" aria-hidden="true">
<path class="line ${output}" d="M0 3h28"></path></svg>`;

/** The lines of the outputs that followed a change; null with fewer than two points. */
export function renderLagChart(
  series: LagSeries,
  outputNames: Readonly<Record<LagOutput, string>>,
): Html | null {
  const points = lagPoints(series);
  if (points.length < 2) return null;
  const drawn = lagOutputs.filter((output) => points.some(({ longest }) => longest[output]));
  const names = new Map(drawn.map((output) => [output, outputNames[output]]));
  const values = points.flatMap(({ longest }) => drawn.flatMap((output) => longest[output] ?? []));
  const scales = scalesOf(points, values);
  const grid = scales.lagTicks.map((lag) => ({ label: formatSpan(lag), y: scales.y(lag) }));
  const gap = gapSeconds * partSize(series);
  const isFine = (scales.timeTicks[1] ?? 0) - (scales.timeTicks[0] ?? 0) < 60;
  return markup`<figure class="chart"><ul class="legend">
${drawn.map((output) => markup`<li>${swatch(output)} ${outputNames[output]}</li>`)}</ul>
<div class="plot"><svg class="axis" aria-hidden="true">
${grid.map(({ label, y }) => markup`<text x="100%" y="${y + 4}">${label}</text>`)}
</svg><svg class="drawing" role="img"
 aria-label="Longest convergence lag over time; the table below has the numbers">
${grid.map(({ y }) => markup`<line x1="0" x2="100%" y1="${y}" y2="${y}"></line>`)}
${scales.timeTicks.map((at) => {
  const time = formatClock(at);
  const x = percent(scales.x(at));
  return markup`<text x="${x}" y="${height + 14}">${isFine ? time : time.slice(0, 5)}</text>`;
})}
<svg width="100%" height="${height}" viewBox="0 0 ${width} ${height}" preserveAspectRatio="none">
${drawn.map((output) => pathsOf(output, points, scales, gap))}</svg>
${points.map((point, index) => renderHint(point, index, points, names, scales))}
</svg></div></figure>`;
}
