// What a Prometheus would have scraped every five seconds while the recording was made: the program
// takes in the recording as fast as it can, and what it shows is written down with the times of the
// recording, for promtool to make blocks of. So rates are those of the cluster, and it takes no
// longer than reading.

import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, readFileSync, readdirSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { chromium } from 'playwright-core';

import type { Auditor } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import type { AuditorQueries } from '../../src/auditor/queries.ts';
import { createQueries, notLive } from '../../src/auditor/queries.ts';
import { replay } from '../../src/auditor/replay.ts';
import type { RecordingEntry } from '../../src/cluster/files/recording.ts';
import { recordingOf } from '../../src/commands/replay.ts';
import { createMetricsRenderer } from '../../src/output/metrics/metrics.ts';
import { folder as rulesFolder, ruleFiles } from '../alerts/alertmanager.ts';
import { auditorDefaults } from '../build.ts';
import { browserProgram } from '../processes.ts';
import { rank } from '../../dashboards/query.ts';
import { ask, programOf, startPrometheus } from '../prometheus/server.ts';

const run = promisify(execFile);

/** Seconds between scrapes. */
const interval = 5;

/** Unix seconds. */
interface Span {
  readonly from: number;
  readonly to: number;
}

const attached = 'job="endpoint-auditor",instance="127.0.0.1:9465"';

const renderMetrics = createMetricsRenderer();

/** What is shown now, each sample with a time and the labels of a scrape, without comments. */
async function samplesAt(answers: AuditorQueries, at: number): Promise<string> {
  const scrape = answers.scrape();
  let step = scrape.next();
  while (step.done !== true) step = scrape.next();
  let text = '';
  for await (const piece of renderMetrics(step.value, 'openmetrics')) text += piece;
  return text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const [sample = ''] = line.split(' # ');
      const end = sample.lastIndexOf(' ');
      const series = sample.slice(0, end);
      const labelled = series.endsWith('}')
        ? `${series.slice(0, -1)},${attached}}`
        : `${series}{${attached}}`;
      return `${labelled} ${sample.slice(end + 1)} ${at}\n`;
    })
    .join('');
}

const timeOf = (entry: RecordingEntry): number =>
  entry.kind === 'event' ? entry.event.at : entry.at;

/** Entries as they are; `scrape` is called between them, at every moment that is due. */
async function* scraped(
  entries: AsyncIterable<RecordingEntry>,
  auditor: Auditor,
  scrape: (at: number) => Promise<void>,
): AsyncGenerator<RecordingEntry> {
  let next: number | null = null;
  for await (const entry of entries) {
    next ??= Math.ceil(timeOf(entry));
    for (; next < timeOf(entry); next += interval) {
      for (let due = auditor.nextAt(); due !== null && due <= next; due = auditor.nextAt()) {
        auditor.advance(due);
      }
      await scrape(next);
    }
    yield entry;
  }
}

/** Writes down what was shown while the recording of this path is taken in. */
async function writeSamples(recording: string, file: string): Promise<Span> {
  const auditor = createAuditor({ ...auditorDefaults });
  const answers = createQueries(auditor, recording, notLive, { mode: 'all', max: 1000 });
  const entries = await recordingOf(recording, auditor, () => undefined);
  const out = createWriteStream(file);
  const moments: number[] = [];
  const scrape = async (at: number): Promise<void> => {
    moments.push(at);
    if (!out.write(await samplesAt(answers, at))) await once(out, 'drain');
  };
  const pace = { speed: Infinity, until: null };
  await replay(auditor, scraped(entries, auditor, scrape), pace);
  out.end('# EOF\n');
  await once(out, 'finish');
  const [from, to] = [moments[0], moments.at(-1)];
  if (from === undefined || to === undefined) throw new Error(`${recording}: it is too short`);
  return { from, to };
}

/**
 * Fills `directory`/data with what was scraped, and with what the recording rules make of it; it
 * is for a Prometheus to be started there with `flags`.
 */
async function fill(directory: string, recording: string): Promise<Span> {
  const promtool = await programOf('promtool');
  const samples = join(directory, 'samples');
  const data = join(directory, 'data');
  const span = await writeSamples(recording, samples);
  await run(promtool, ['tsdb', 'create-blocks-from', 'openmetrics', samples, data]);
  const server = await startPrometheus(directory, {}, flags);
  try {
    const files = ruleFiles.map((name) => join(rulesFolder, name));
    await run(promtool, [
      ...['tsdb', 'create-blocks-from', 'rules', `--url=${server.url}`, `--output-dir=${data}`],
      ...[`--start=${span.from}`, `--end=${span.to}`, `--eval-interval=${interval}s`, ...files],
    ]);
  } finally {
    await server.stop();
  }
  return span;
}

/** The recording may be old; no scrape marks the end of a series, so it ends with its samples. */
const flags = ['--storage.tsdb.retention.time=100y', `--query.lookback-delta=${interval}s`];

// The boards as they are committed, and their expressions as Grafana would send them.

export const folder = join(import.meta.dirname, '../../dashboards');

interface Target {
  readonly refId: string;
  readonly expr: string;
  readonly instant: boolean;
  readonly format?: 'table' | 'heatmap';
  readonly legendFormat?: string;
  readonly datasource: { readonly uid: string };
}

interface Linked {
  readonly title: string;
  readonly url?: string;
}

interface Override {
  readonly matcher: { readonly options: string };
  readonly properties: readonly { readonly id: string; readonly value: unknown }[];
}

export interface Panel {
  readonly id: number;
  readonly type: 'row' | 'timeseries' | 'stat' | 'table' | 'heatmap';
  readonly title: string;
  readonly description?: string;
  readonly gridPos: Readonly<Record<'x' | 'y' | 'w' | 'h', number>>;
  readonly datasource?: { readonly uid: string };
  readonly fieldConfig?: {
    readonly defaults: {
      readonly unit?: string;
      readonly min?: number;
      readonly max?: number;
      readonly custom?: {
        readonly stacking?: { readonly mode: string };
        readonly scaleDistribution?: { readonly type: string };
      };
    };
    readonly overrides: readonly Override[];
  };
  readonly targets?: readonly Target[];
  readonly transformations?: readonly { readonly id: string }[];
  readonly links?: readonly Linked[];
}

interface Variable {
  readonly name: string;
  readonly type: string;
  readonly query: string;
  readonly refresh?: number;
}

interface Dashboard {
  readonly uid: string;
  readonly title: string;
  readonly description: string;
  readonly schemaVersion: number;
  readonly editable: boolean;
  readonly tags: readonly string[];
  readonly links: readonly Linked[];
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly Variable[] };
  readonly annotations: { readonly list: readonly { name: string; expr?: string }[] };
}

/** Names of the boards, as of their files. */
export const names = readdirSync(folder)
  .filter((name) => name.endsWith('.json'))
  .map((name) => name.replace('.json', ''));

export const textOf = (name: string): string => readFileSync(join(folder, `${name}.json`), 'utf8');

export const readBoard = (name: string): Dashboard => JSON.parse(textOf(name)) as Dashboard;

/** Panels that show something; rows are headings. */
export const shownPanels = ({ panels }: Dashboard): readonly Panel[] =>
  panels.filter(({ type }) => type !== 'row');

interface Times {
  /** A duration of Prometheus. */
  readonly rateInterval: string;
  readonly range: string;
}

/** An expression with all clusters, namespaces and Services chosen. */
export const substituted = (expr: string, { rateInterval, range }: Times): string =>
  expr
    .replaceAll('$__rate_interval', rateInterval)
    .replaceAll('$__range', range)
    .replace(/"\$(?:cluster|namespace|service)"/g, '".*"');

/** What a variable lists: the samples and their label. */
export function listedBy({ query }: Variable): {
  readonly samples: string;
  readonly label: string;
} {
  const groups = /^label_values\((?<samples>.*), (?<label>\w+)\)$/.exec(query)?.groups;
  if (groups === undefined) throw new Error(`Not a list of labels: ${query}`);
  return { samples: groups.samples ?? '', label: groups.label ?? '' };
}

// What a Prometheus answers to the expressions of panels, as Grafana would ask.

interface Series {
  readonly metric: Readonly<Record<string, string>>;
  readonly values: readonly (readonly [number, string])[];
}

interface Answered {
  readonly panel: Panel;
  readonly answers: readonly {
    readonly expr: string;
    readonly legend: string;
    readonly series: readonly Series[];
  }[];
}

/** All panels over all the time that there is, also those that Grafana asks for its end only. */
async function answersFor(
  url: string,
  panels: readonly Panel[],
  { from, to }: Span,
  step: number,
): Promise<Answered[]> {
  // Four scrapes, as Grafana takes it.
  const times = { rateInterval: `${4 * step}s`, range: `${Math.ceil(to - from)}s` };
  const answered: Answered[] = [];
  for (const panel of panels) {
    const answers = (panel.targets ?? []).map(async ({ expr, legendFormat = '' }) => {
      const query = substituted(expr, times);
      const span = { start: String(from), end: String(to), step: String(step) };
      const { result } = await ask<{ result: readonly Series[] }>(url, 'query_range', {
        query,
        ...span,
      });
      return { expr: query, legend: legendFormat, series: result };
    });
    answered.push({ panel, answers: await Promise.all(answers) });
  }
  return answered;
}

// Draws charts in the browser: this function runs there alone, so that it uses nothing but what it
// is given and what the page has, uPlot among it.

/** A chart as it is given to the page; times in Unix seconds. */
interface Chart {
  /** The id of the element that it is drawn in. */
  readonly id: string;
  readonly unit: string;
  readonly isStacked: boolean;
  readonly isSigned: boolean;
  readonly isLog: boolean;
  readonly most: number | null;
  readonly at: readonly number[];
  readonly lines: readonly {
    readonly colour: string;
    /** Of the area below, where lines are stacked. */
    readonly fill: string;
    /** Some values are alone between gaps. */
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
function drawCharts(charts: readonly Chart[]): void {
  const { uPlot, document } = globalThis as unknown as Browser;
  const axis = { stroke: '#8e8e9a', grid: { stroke: '#2c2f36', width: 1 }, ticks: { show: false } };
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
    return round(value);
  }

  for (const chart of charts) {
    const target = document.getElementById(chart.id);
    if (target === null) continue;
    const range = (_: unknown, least: number | null, most: number | null): [number, number] => {
      if (chart.isLog) return [(least ?? 0.001) / 1.5, (most ?? 1) * 1.5];
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
        scales: { y: { range, ...(chart.isLog ? { distr: 3 } : {}) } },
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
            values: (_: unknown, splits: readonly (number | null)[]) =>
              splits.map((value) => (value === null ? '' : said(value, chart.unit))),
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

// Pictures of the boards: what a Prometheus answered, at the places that the panels have, drawn by
// uPlot in a Chromium without a window. They show the data of a board, and are not Grafana's own.

const images = join(import.meta.dirname, '../../docs/images');
const packages = createRequire(import.meta.url);

const [cell, line, gap] = [50, 27, 6];
const paper = '#181b1f';

const named: Readonly<Record<string, string>> = {
  red: '#f2495c',
  orange: '#ff9830',
  yellow: '#fade2a',
  green: '#73bf69',
  blue: '#5794f2',
  text: '#8e8e9a',
};

const palette = [
  ...['#73bf69', '#f2cc0c', '#8ab8ff', '#ff780a', '#f2495c', '#5794f2', '#b877d9'],
  ...['#37872d', '#fade2a', '#447ebc', '#e02f44', '#8f3bb8', '#96d98d', '#ffb357'],
];

/** A colour on the paper, at less than half its strength. */
function faint(colour: string): string {
  const part = (text: string, at: number): number => parseInt(text.slice(at, at + 2), 16);
  const mixed = [1, 3, 5].map((at) => Math.round(0.4 * part(colour, at) + 0.6 * part(paper, at)));
  return `#${mixed.map((value) => value.toString(16).padStart(2, '0')).join('')}`;
}

const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

const valueOf = (text: string | undefined): number | null => {
  const value = Number(text);
  return text === undefined || !Number.isFinite(value) ? null : value;
};

interface Line {
  readonly name: string;
  readonly colour: string;
  readonly values: readonly (number | null)[];
}

const nameOf = (legend: string, { metric }: Series): string =>
  legend.replace(/\{\{(\w+)\}\}/g, (_, label: string) => metric[label] ?? '').trim();

/** The series of a panel, each with a value or nothing for each moment. */
function linesOf({ panel, answers }: Answered, moments: readonly number[]): Line[] {
  const fixed = new Map(
    (panel.fieldConfig?.overrides ?? []).flatMap(({ matcher, properties }) =>
      properties
        .filter(({ id }) => id === 'color')
        .map(({ value }) => [matcher.options, (value as { fixedColor: string }).fixedColor]),
    ),
  );
  const all = answers.flatMap(({ legend, series }) =>
    series.map((one) => ({ name: nameOf(legend, one), series: one })),
  );
  return all.map(({ name, series }, index) => {
    const known = new Map(series.values);
    const colour = named[fixed.get(name) ?? ''] ?? palette[index % palette.length] ?? '';
    return { name, colour, values: moments.map((moment) => valueOf(known.get(moment))) };
  });
}

/** A value with its unit, as in charts.ts. */
function said(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined) return '–';
  const round = (of: number): string => String(Number(of.toPrecision(3)));
  if (unit === 'percentunit') return `${round(value * 100)} %`;
  if (unit === 's') return Math.abs(value) < 1 ? `${round(value * 1000)} ms` : `${round(value)} s`;
  if (unit === 'bytes') return value < 1024 ? `${round(value)} B` : `${round(value / 1024)} KiB`;
  if (unit === 'bool_yes_no') return value === 0 ? 'No' : 'Yes';
  return round(value);
}

const last = ({ values }: Line): number | null | undefined =>
  values.findLast((value) => value !== null);

function statHtml(lines: readonly Line[], unit: string): string {
  const items = lines.map((one) => {
    const name = lines.length > 1 ? `<small>${escaped(one.name)}</small>` : '';
    return `<div style="color:${one.colour}">${name}<b>${said(last(one), unit)}</b></div>`;
  });
  return `<div class="stats">${items.join('')}</div>`;
}

/** The values at the end; if there are none, at the last moment with a value. */
function tableHtml({ answers, panel }: Answered, moments: readonly number[]): string {
  const unit = panel.fieldConfig?.defaults.unit ?? '';
  const [first] = answers;
  const found = (first?.series ?? []).flatMap(({ metric }) => Object.keys(metric));
  const listed = /by \(([^)]*)\)/.exec(first?.expr ?? '')?.[1]?.split(', ') ?? [];
  const labels = listed.filter((label) => found.includes(label));
  const at = moments.findLast((moment) =>
    first?.series.some(({ values }) => values.some(([when]) => when === moment)),
  );
  const rows = (first?.series ?? []).flatMap(({ metric, values }) => {
    const value = valueOf(new Map(values).get(at ?? 0));
    if (value === null) return [];
    return [{ cells: labels.map((label) => metric[label] ?? ''), value, at: metric[rank] ?? '' }];
  });
  rows.sort((a, b) => a.at.localeCompare(b.at) || b.value - a.value);
  const html = rows.slice(0, 7).map(({ cells, value }) => {
    const texts = [...cells, said(value, unit)];
    return `<tr>${texts.map((text) => `<td>${escaped(text)}</td>`).join('')}</tr>`;
  });
  const heads = [...labels, ''].map((label) => `<th>${label}</th>`).join('');
  return `<table><tr>${heads}</tr>${html.join('')}</table>`;
}

/** A column for each moment, a line for each bucket that was ever hit. */
function heatmapHtml({ answers, panel }: Answered, moments: readonly number[]): string {
  const unit = panel.fieldConfig?.defaults.unit ?? '';
  const bounds = (answers[0]?.series ?? [])
    .map(({ metric, values }) => {
      return { bound: Number(metric.le?.replace('Inf', 'Infinity')), below: new Map(values) };
    })
    .sort((a, b) => a.bound - b.bound);
  const rows = bounds.map(({ bound, below }, index) => {
    const before = bounds[index - 1]?.below;
    const counts = moments.map((moment) => {
      return Math.max(0, Number(below.get(moment) ?? 0) - Number(before?.get(moment) ?? 0));
    });
    return { name: Number.isFinite(bound) ? said(bound, unit) : 'more', counts };
  });
  const hit = rows.filter(({ counts }) => counts.some((count) => count > 0.01));
  const most = Math.max(...hit.flatMap(({ counts }) => counts), 1);
  const lines = hit.reverse().map(({ name, counts }) => {
    const cells = counts.map((count) => {
      const strength = Math.round(100 * (count / most) ** 0.5);
      return `<i style="background:rgb(255 120 10 / ${strength}%)"></i>`;
    });
    return `<div><span>≤ ${name}</span>${cells.join('')}</div>`;
  });
  return `<div class="heat">${lines.join('')}</div>`;
}

function legendHtml(lines: readonly Line[]): string {
  const shown = lines.slice(0, 8).map(({ name, colour }) => {
    return `<span><i style="background:${colour}"></i>${escaped(name)}</span>`;
  });
  const more =
    lines.length > shown.length ? `<span>and ${lines.length - shown.length} more</span>` : '';
  return `<div class="legend">${shown.join('')}${more}</div>`;
}

interface Page {
  readonly html: string;
  readonly charts: readonly Chart[];
}

/** Each line on those before it, the highest first, so that the others are drawn over it. */
function stacked(lines: readonly Line[]): Line[] {
  let below: readonly number[] = [];
  const sums = lines.map((one) => {
    below = one.values.map((value, index) => (below[index] ?? 0) + (value ?? 0));
    return { ...one, values: below };
  });
  return sums.reverse();
}

function isLone(value: number | null, at: number, all: readonly (number | null)[]): boolean {
  return value !== null && (all[at - 1] ?? null) === null && (all[at + 1] ?? null) === null;
}

/** What is in a panel; of charts, the place where they will be. */
function contentOf(answered: Answered, moments: readonly number[]): Page {
  const { panel } = answered;
  const unit = panel.fieldConfig?.defaults.unit ?? '';
  const lines = linesOf(answered, moments);
  const html = (text: string): Page => ({ html: text, charts: [] });
  if (lines.length === 0) return html('<p>No data</p>');
  if (panel.type === 'stat') return html(statHtml(lines, unit));
  if (panel.type === 'table') return html(tableHtml(answered, moments));
  if (panel.type === 'heatmap') return html(heatmapHtml(answered, moments));
  const { custom, max } = panel.fieldConfig?.defaults ?? {};
  const isStacked = custom?.stacking?.mode === 'normal';
  const chart: Chart = {
    id: `chart-${panel.id}`,
    unit,
    isStacked,
    isSigned: panel.fieldConfig?.defaults.min === undefined,
    isLog: custom?.scaleDistribution?.type === 'log',
    most: max ?? null,
    at: moments,
    lines: (isStacked ? stacked(lines) : lines).map(({ colour, values }) => {
      return { colour, fill: faint(colour), isSparse: values.some(isLone), values };
    }),
  };
  const place = `<div class="chart" id="${chart.id}"></div>`;
  return { html: place + legendHtml(lines), charts: [chart] };
}

function placeOf({ gridPos: { x, y, w, h } }: Panel): string {
  const [left, top] = [x * cell + gap / 2, y * line + gap / 2];
  return `left:${left}px;top:${top}px;width:${w * cell - gap}px;height:${h * line - gap}px`;
}

const style = `
  body { margin: 0; background: #111217; color: #ccccdc; font: 12px sans-serif; width: 1200px;
    position: relative; }
  section { position: absolute; box-sizing: border-box; background: ${paper}; padding: 6px 8px;
    border: 1px solid #2c2f36; border-radius: 3px; display: flex; flex-direction: column;
    overflow: hidden; }
  section.row { background: none; border: none; padding: 3px 8px; }
  h2 { font: 600 12px sans-serif; margin: 0 0 4px; } section.row h2 { font-size: 14px; }
  p { margin: auto; color: #8e8e9a; }
  .chart { flex: 1; min-height: 0; }
  .legend { display: flex; flex-wrap: wrap; gap: 0 10px; font-size: 11px; max-height: 28px;
    overflow: hidden; }
  .legend i { display: inline-block; width: 12px; height: 3px; margin-right: 4px;
    vertical-align: middle; }
  .stats { display: flex; flex: 1; justify-content: space-around; align-items: center; }
  .stats b { font-size: 24px; display: block; } .stats small { color: #ccccdc; }
  table { font: inherit; border-collapse: collapse; width: 100%; }
  td, th { text-align: left; padding: 3px 8px; border-bottom: 1px solid #2c2f36; }
  td:last-child { text-align: right; }
  .heat { flex: 1; display: flex; flex-direction: column; }
  .heat div { flex: 1; display: flex; align-items: center; }
  .heat span { width: 70px; font-size: 11px; color: #8e8e9a; }
  .heat i { flex: 1; height: calc(100% - 1px); }
`;

function pageOf(rows: readonly Panel[], answered: readonly Answered[], span: Span): Page {
  const count = Math.floor((span.to - span.from) / interval) + 1;
  const moments = Array.from({ length: count }, (_, index) => span.from + index * interval);
  const contents = answered.map((one) => ({ ...one, ...contentOf(one, moments) }));
  const sections = [
    ...rows.map(
      (row) => `<section class="row" style="${placeOf(row)}"><h2>${row.title}</h2></section>`,
    ),
    ...contents.map(
      ({ panel, html }) =>
        `<section style="${placeOf(panel)}"><h2>${escaped(panel.title)}</h2>${html}</section>`,
    ),
  ];
  const css = readFileSync(packages.resolve('uplot/dist/uPlot.min.css'), 'utf8');
  const head = `<!doctype html><meta charset="utf-8"><style>${css}${style}</style>`;
  return { html: head + sections.join(''), charts: contents.flatMap(({ charts }) => charts) };
}

const bottomOf = ({ gridPos: { y, h } }: Panel): number => y + h;

/** Whether a panel shows a value other than 0. */
const hasValue = ({ answers }: Answered): boolean =>
  answers.some(({ series }) =>
    series.some(({ values }) => values.some(([, value]) => Number(value) > 0)),
  );

/** The end of the last row with a value; the rows below are left out. */
function endOf(panels: readonly Panel[], answered: readonly Answered[]): number {
  const filled = answered.filter(hasValue).map(({ panel }) => panel.gridPos.y);
  const below = panels.filter(({ type, gridPos: { y } }) => {
    return type === 'row' && y > Math.max(...filled);
  });
  return Math.min(...below.map(({ gridPos: { y } }) => y), Math.max(...panels.map(bottomOf)));
}

/** Draws docs/images/dashboard-NAME.png. */
async function draw(
  name: string,
  panels: readonly Panel[],
  answered: readonly Answered[],
  span: Span,
): Promise<void> {
  const rows = panels.filter(({ type }) => type === 'row');
  const { html, charts } = pageOf(rows, answered, span);
  const args = ['--no-sandbox', '--font-render-hinting=none', '--disable-lcd-text'];
  const browser = await chromium.launch({ executablePath: browserProgram(), args });
  try {
    const viewport = { width: 24 * cell, height: endOf(panels, answered) * line };
    const page = await browser.newPage({ viewport });
    await page.setContent(html);
    await page.addScriptTag({ path: packages.resolve('uplot/dist/uPlot.iife.min.js') });
    await page.evaluate(drawCharts, charts);
    await page.screenshot({ path: join(images, `dashboard-${name}.png`) });
  } finally {
    await browser.close();
  }
}

// Every panel of every board before a real Prometheus that holds what was shown while the recording
// was made: `npm run panels`. Each expression, and each variable, must be answered, one of each
// panel not by 0 alone, unless `silent` lists the panel with the reason. With --pictures, what
// is answered is drawn to docs/images.

const recording = join(import.meta.dirname, '../recordings/shop.ndjson.gz');

const noWatches = 'a recording has no watches';
const allKnown = 'the recording has all inputs';
const noAgents = 'the rules are in the recording, so no agent runs';
const noBackend = 'no tracing backend runs';

/** Panels that the recording leaves at 0 or without an answer, and why. */
const silent: Readonly<Record<string, string>> = {
  'overview: Unknown outputs': allKnown,
  'overview: Firing alerts': 'no rule of an alert is evaluated',
  'overview: Unknown verdicts by reason': allKnown,
  'overview: Stale watches': noWatches,
  'overview: Relists and reconnects per second': noWatches,
  'overview: Dropped input per second': 'the recording is complete',
  'overview: Confirmation reads per second': 'a recording cannot be read again',
  'lag: Traced pod changes per second': noBackend,
  'lag: Spans per second': noBackend,
  'endpointslices: Services that request hints and have none': 'all that request hints have them',
  'nodes: Unknown nodes by reason': allKnown,
  'nodes: Nodes by state of their agent': noAgents,
  'nodes: Oldest report': noAgents,
  'nodes: Divergent Service ports': noAgents,
  'nodes: Requests to agents per second': noAgents,
  'nodes: Traffic from agents': noAgents,
  'nodes: Failed rounds per second': noAgents,
  'nodes: CPU of the agents': noAgents,
  'nodes: Memory of the agents': noAgents,
  'nodes: Size of the rules': noAgents,
};

const problems: string[] = [];

function check(isRight: boolean, what: string): void {
  if (!isRight) problems.push(what);
}

/** Each expression must be answered, and one of them not by nothing but 0. */
function checkPanel(place: string, { answers }: Answered): void {
  const values = answers.map(({ series }) => series.flatMap((one) => one.values));
  const [filled, nonzero] = [
    values.every((of) => of.some(([, value]) => value !== 'NaN')),
    values.some((of) => of.some(([, value]) => value !== 'NaN' && Number(value) !== 0)),
  ];
  const isSilent = place in silent;
  const unanswered = answers.filter((_, index) => values[index]?.length === 0);
  for (const { expr } of unanswered) check(isSilent, `${place}: nothing answers ${expr}`);
  check(
    (filled && nonzero) || isSilent,
    `${place}: nothing but 0, and no reason is known for that`,
  );
  check(
    !(filled && nonzero) || !isSilent,
    `${place}: filled, though a reason is known why it is not`,
  );
}

async function runPanels(directory: string): Promise<void> {
  const span = await fill(directory, recording);
  const server = await startPrometheus(directory, {}, flags);
  try {
    let panels = 0;
    for (const name of names) {
      const board = readBoard(name);
      for (const variable of board.templating.list.filter(({ type }) => type === 'query')) {
        // One cluster needs no label: then there is nothing to choose from.
        if (variable.name === 'cluster') continue;
        const { samples, label } = listedBy(variable);
        const match = samples.replace(/"\$\w+"/g, '".*"');
        const times = { start: String(span.from), end: String(span.to) };
        const query = { 'match[]': match, ...times };
        const values = await ask<string[]>(server.url, `label/${label}/values`, query);
        check(values.length > 0, `${name}: nothing to choose from for ${variable.name}`);
      }
      const answered = await answersFor(server.url, shownPanels(board), span, interval);
      for (const one of answered) checkPanel(`${name}: ${one.panel.title}`, one);
      panels += answered.length;
      if (process.argv.includes('--pictures')) await draw(name, board.panels, answered, span);
    }
    process.stdout.write(`${panels} panels of ${names.length} boards\n`);
  } finally {
    await server.stop();
  }
}

async function main(): Promise<void> {
  const began = performance.now();
  const directory = await mkdtemp(join(tmpdir(), 'panels-'));
  try {
    await runPanels(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
  for (const problem of problems) process.stdout.write(`${problem}\n`);
  const seconds = Math.round((performance.now() - began) / 1000);
  process.stdout.write(`${problems.length} problems in ${seconds} s\n`);
  process.exitCode = problems.length === 0 ? 0 : 1;
}

if (import.meta.main) await main();
