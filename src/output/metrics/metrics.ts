// /metrics: the catalogue of families.ts, the families of single Services, and what prom-client
// knows of the process.
//
// Everything is text from the start: a registry would hold each series as an object, and filling
// and rendering it would block for a quarter of a second where a hundred thousand series are shown.
// Texts of single Services are there already (service-rows.ts) and are joined piece by piece, so
// that others can work between two pieces.

import type { MetricValue } from 'prom-client';
import { collectDefaultMetrics, Registry } from 'prom-client';

import type { ExpositionFormat } from './exposition.ts';
import { boundText, ends, headText, labelsText, seriesText } from './exposition.ts';
import { families, processFamilies } from './families.ts';
import type { MetricFamily, MetricsState } from './family.ts';
import { serviceFamilies } from './service-families.ts';

let processRegistry: Registry | null = null;

/** Observes the process from the first call on: garbage collections before it are not counted. */
function processMetrics(): Registry {
  if (processRegistry !== null) return processRegistry;
  const registry = new Registry();
  // The utilization that is sampled at this interval is not kept.
  collectDefaultMetrics({ register: registry, eventLoopUtilizationTimeout: 60_000 });
  const kept = new Set(processFamilies.map(({ name }) => name));
  for (const { name } of registry.getMetricsAsArray()) {
    if (!kept.has(name)) registry.removeSingleMetric(name);
  }
  return (processRegistry = registry);
}

function histogramText(
  family: MetricFamily & { readonly type: 'histogram' },
  state: MetricsState,
  format: ExpositionFormat,
): string {
  const { name } = family;
  let text = '';
  for (const { labels, histogram } of family.histograms(state)) {
    const known = labelsText(labels);
    const before = known === '' ? '' : `${known},`;
    let below = 0;
    for (const [index, bound] of [...histogram.bounds, Infinity].entries()) {
      below += histogram.counts[index] ?? 0;
      const le = `${before}le="${boundText(bound, format)}"`;
      const exemplar = format === 'openmetrics' ? histogram.exemplars?.[index] : undefined;
      text += seriesText(`${name}_bucket`, le, below, exemplar);
    }
    text += seriesText(`${name}_sum`, known, histogram.sum);
    text += seriesText(`${name}_count`, known, histogram.count);
  }
  return text;
}

function familyText(family: MetricFamily, state: MetricsState, format: ExpositionFormat): string {
  let text = '';
  if (family.type === 'histogram') text = histogramText(family, state, format);
  else {
    for (const { labels, value } of family.samples(state)) {
      text += seriesText(family.name, labelsText(labels), value);
    }
  }
  return text === '' ? '' : headText(family, format, family.unit) + text;
}

/** prom-client has numbers as bounds, but for the last. */
const boundOf = (le: string | number | undefined): number =>
  le === '+Inf' ? Infinity : Number(le);

async function processText(format: ExpositionFormat): Promise<string> {
  let text = '';
  for (const { name, help, type, values } of await processMetrics().getMetricsAsJSON()) {
    if (values.length === 0) continue;
    text += headText({ name, help, type }, format);
    // Of histograms, each value names its series; the types of prom-client leave that out.
    for (const one of values as readonly (MetricValue<string> & { metricName?: string })[]) {
      const labels: Record<string, string> = {};
      for (const [label, value] of Object.entries(one.labels)) {
        labels[label] = label === 'le' ? boundText(boundOf(value), format) : String(value);
      }
      text += seriesText(one.metricName ?? name, labelsText(labels), one.value);
    }
  }
  return text;
}

/** Services whose texts are joined in one piece: a tenth of a megabyte at most. */
const joined = 250;

/** What a scrape gets, piece by piece. */
export async function* renderMetrics(
  state: MetricsState,
  format: ExpositionFormat,
): AsyncGenerator<string, void> {
  const ofProcess = await processText(format);
  let text = '';
  for (const family of families) text += familyText(family, state, format);
  yield text;
  const { rows } = state.perService;
  for (const [index, family] of serviceFamilies.entries()) {
    let isFirst = true;
    for (let at = 0; at < rows.length; at += joined) {
      let piece = '';
      for (const row of rows.slice(at, at + joined)) piece += row[index] ?? '';
      if (piece === '') continue;
      yield isFirst ? headText(family, format, family.unit) + piece : piece;
      isFirst = false;
    }
  }
  yield ofProcess + ends[format];
}
