// The content of /metrics: the families of families.ts, those of single Services, and those of the
// process, which prom-client makes.
//
// A registry would store each series as an object, and rendering a hundred thousand series would
// block the process for a quarter of a second. So this file joins texts, piece by piece.

import { collectDefaultMetrics, type MetricValue, Registry } from 'prom-client';

import type { ExpositionFormat } from './exposition.ts';
import {
  formatBound,
  formatHead,
  formatLabels,
  formatSamples,
  formatSeries,
} from './exposition.ts';
import { families } from './families.ts';
import { serviceFamilies } from './service-rows.ts';
import type { MetricsState } from './state.ts';

/** Returns a function that renders a scrape, and observes the process from its first call on. */
export function createMetricsRenderer() {
  let readProcess: ReturnType<typeof createProcessReader> | null = null;
  return async function* (state: MetricsState, format: ExpositionFormat) {
    readProcess ??= createProcessReader();
    const processText = formatProcess(await readProcess(), format);
    const texts = families.map((family) => {
      const text = formatSamples(family, state, format);
      return text === '' ? '' : formatHead(family, format, family.unit) + text;
    });
    yield texts.join('');
    yield* servicePieces(state.perService.rows, format);
    yield processText + (format === 'openmetrics' ? '# EOF\n' : '');
  };
}

/** Families of prom-client that break naming rules or have no use here. */
const unwanted = /_active_|_heap_space_|_utilization|_lag_(?:min|stddev|p90)_/;

function observeProcess(): Registry {
  const registry = new Registry();
  // The long interval turns off sampling of the event loop utilization, whose family is removed.
  collectDefaultMetrics({ register: registry, eventLoopUtilizationTimeout: 60_000 });
  for (const { name } of registry.getMetricsAsArray()) {
    if (unwanted.test(name)) registry.removeSingleMetric(name);
  }
  return registry;
}

/**
 * Reads the families of the process at most once per second. prom-client lists all open files to
 * count them. With thousands of clients, that costs a third of each scrape.
 */
function createProcessReader() {
  const registry = observeProcess();
  let read = registry.getMetricsAsJSON();
  let readAt = performance.now();
  return (): ReturnType<Registry['getMetricsAsJSON']> => {
    if (performance.now() - readAt >= 1000) {
      readAt = performance.now();
      read = registry.getMetricsAsJSON();
    }
    return read;
  };
}

type ProcessFamilies = Awaited<ReturnType<Registry['getMetricsAsJSON']>>;

function formatProcess(read: ProcessFamilies, format: ExpositionFormat): string {
  let text = '';
  for (const { name, help, type, values } of read) {
    if (values.length === 0) continue;
    text += formatHead({ name, help, type }, format);
    // Values of histograms name their series, which the types of prom-client leave out.
    for (const sample of values as readonly (MetricValue<string> & { metricName?: string })[]) {
      const { metricName, labels, value } = sample;
      const { le } = labels;
      // Bounds of prom-client are numbers, except for the last.
      const bound = formatBound(le === '+Inf' ? Infinity : Number(le), format);
      const labelText = formatLabels(le === undefined ? labels : { ...labels, le: bound });
      text += formatSeries(metricName ?? name, labelText, value);
    }
  }
  return text;
}

/** The number of Services in one piece: at most a tenth of a megabyte. */
const perPiece = 250;

function* servicePieces(
  rows: MetricsState['perService']['rows'],
  format: ExpositionFormat,
): Generator<string> {
  for (const [index, family] of serviceFamilies.entries()) {
    let head = formatHead(family, format, family.unit);
    for (let first = 0; first < rows.length; first += perPiece) {
      let piece = '';
      for (const row of rows.slice(first, first + perPiece)) piece += row[index] ?? '';
      if (piece === '') continue;
      yield head + piece;
      head = '';
    }
  }
}
