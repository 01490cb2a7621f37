// Draws charts in the browser: this function runs there alone, so that it uses nothing but what it
// is given and what the page has, uPlot among it.

/** A chart as it is given to the page; times in Unix seconds. */
export interface Chart {
  /** The id of the element that it is drawn in. */
  readonly id: string;
  readonly unit: string;
  readonly isStacked: boolean;
  readonly isSigned: boolean;
  readonly most: number | null;
  readonly at: readonly number[];
  readonly lines: readonly {
    readonly colour: string;
    /** Of the area below, where lines are stacked. */
    readonly fill: string;
    /** Some values stand alone between gaps. */
    readonly isSparse: boolean;
    readonly values: readonly (number | null)[];
  }[];
}

interface Area {
  readonly clientWidth: number;
  readonly clientHeight: number;
}

interface Plot {
  new (options: object, data: readonly (readonly (number | null)[])[], target: Area): unknown;
  tzDate(date: Date, zone: string): Date;
}

/** What the page has, as far as it is used here. */
interface Browser {
  readonly uPlot: Plot;
  readonly document: { getElementById(id: string): Area | null };
}

/** Draws all of them. */
export function drawCharts(charts: readonly Chart[]): void {
  const { uPlot, document } = globalThis as unknown as Browser;
  const grey = '#8e8e9a';
  const powersOfTwo = Array.from({ length: 40 }, (_, power) => 2 ** power);

  function said(value: number, unit: string): string {
    const round = (of: number): string => String(Number(of.toPrecision(3)));
    if (unit === 'percentunit') return `${round(value * 100)} %`;
    if (unit === 's')
      return Math.abs(value) < 1 ? `${round(value * 1000)} ms` : `${round(value)} s`;
    if (unit === 'bytes' || unit === 'binBps') {
      const words = ['B', 'KiB', 'MiB', 'GiB'];
      const step = value < 1 ? 0 : Math.min(3, Math.floor(Math.log2(value) / 10));
      return `${round(value / 1024 ** step)} ${words[step] ?? ''}${unit === 'binBps' ? '/s' : ''}`;
    }
    return unit === 'cps' ? `${round(value)} c/s` : round(value);
  }

  for (const chart of charts) {
    const target = document.getElementById(chart.id);
    if (target === null) continue;
    const axis = { stroke: grey, grid: { stroke: '#2c2f36', width: 1 }, ticks: { show: false } };
    const range = (_: unknown, least: number | null, most: number | null): [number, number] => {
      const low = chart.isSigned ? Math.min(0, least ?? 0) : 0;
      const high = chart.most ?? Math.max(most ?? 0, 0);
      return [low * 1.1, high === low ? low + 1 : high * 1.05];
    };
    new uPlot(
      {
        width: target.clientWidth,
        height: target.clientHeight,
        legend: { show: false },
        cursor: { show: false },
        tzDate: (at: number) => uPlot.tzDate(new Date(at * 1000), 'Etc/UTC'),
        scales: { y: { range } },
        axes: [
          {
            ...axis,
            values: '{HH}:{mm}',
            space: 50,
            incrs: [60, 120, 300, 600, 3600],
            size: 24,
            font: '11px sans-serif',
          },
          {
            ...axis,
            size: 62,
            space: 28,
            ...(/[bB]/.test(chart.unit) ? { incrs: powersOfTwo } : {}),
            font: '11px sans-serif',
            values: (_: unknown, splits: readonly number[]) =>
              splits.map((value) => said(value, chart.unit)),
          },
        ],
        series: [
          {},
          ...chart.lines.map(({ colour, fill, isSparse }) => ({
            stroke: colour,
            width: 1.5,
            // A value between two gaps is no line.
            points: { show: isSparse, size: 3, fill: colour },
            ...(chart.isStacked ? { fill } : {}),
          })),
        ],
      },
      [chart.at, ...chart.lines.map(({ values }) => values)],
      target,
    );
  }
}
