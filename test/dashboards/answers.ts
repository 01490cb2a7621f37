// What a Prometheus would have scraped every five seconds while the recording was made: the program
// takes in the recording as fast as it can, and what it shows is written down with the times of the
// recording, for promtool to make blocks of. So rates are those of the cluster, and it takes no
// longer than reading.

import { auditorDefaults } from '../auditor-defaults.ts';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

import type { Auditor } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { createQueries, notLive } from '../../src/auditor/queries.ts';
import { replay } from '../../src/auditor/replay.ts';
import type { RecordingEntry } from '../../src/cluster/files/recording.ts';
import { recordingOf } from '../../src/commands/replay.ts';
import type { AuditorQueries } from '../../src/output/http/server.ts';
import { createMetricsRenderer } from '../../src/output/metrics/metrics.ts';
import { folder as rulesFolder, ruleFiles } from '../alerts/alertmanager.ts';
import { ask, programOf, startPrometheus } from '../prometheus/server.ts';

const run = promisify(execFile);

/** Seconds between scrapes. */
export const interval = 5;

/** Unix seconds. */
export interface Span {
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
export async function fill(directory: string, recording: string): Promise<Span> {
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
export const flags = ['--storage.tsdb.retention.time=100y', `--query.lookback-delta=${interval}s`];

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
      readonly custom?: { readonly stacking?: { readonly mode: string } };
    };
    readonly overrides: readonly Override[];
  };
  readonly targets?: readonly Target[];
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

export interface Series {
  readonly metric: Readonly<Record<string, string>>;
  readonly values: readonly (readonly [number, string])[];
}

export interface Answered {
  readonly panel: Panel;
  readonly answers: readonly {
    readonly expr: string;
    readonly legend: string;
    readonly series: readonly Series[];
  }[];
}

/** All panels over all the time that there is, also those that Grafana asks for its end only. */
export async function answersFor(
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
