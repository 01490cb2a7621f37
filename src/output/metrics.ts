// /metrics: the catalogue of families.ts in Prometheus' text format, and what prom-client knows of
// the process.
//
// What a scrape shows is rendered from the state of that moment into a registry of its own, so no
// series outlives what it tells of. prom-client has no histogram that can be filled from counts, so
// those are written here.

import { Counter, Gauge, Registry, collectDefaultMetrics } from 'prom-client';

import { families, processFamilies } from './families.ts';
import type { Family, MetricsState } from './family.ts';

/** Content-Type of what renderMetrics returns. */
export const metricsContentType: string = Registry.PROMETHEUS_CONTENT_TYPE;

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

/** The text of one histogram family. Labels are words of the catalogue and need no escaping. */
function histogramText(
  family: Family & { readonly type: 'histogram' },
  state: MetricsState,
): string {
  const { name, help } = family;
  const lines = [`# HELP ${name} ${help}`, `# TYPE ${name} histogram`];
  for (const { labels, histogram } of family.histograms(state)) {
    const pairs = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
    const series = (suffix: string, more: readonly string[], value: number): string =>
      `${name}_${suffix}{${[...pairs, ...more].join(',')}} ${value}`;
    let below = 0;
    for (const [index, bound] of histogram.bounds.entries()) {
      below += histogram.counts[index] ?? 0;
      lines.push(series('bucket', [`le="${bound}"`], below));
    }
    lines.push(series('bucket', ['le="+Inf"'], histogram.count));
    lines.push(series('sum', [], histogram.sum), series('count', [], histogram.count));
  }
  return lines.join('\n');
}

/** What a scrape gets, in Prometheus' text format; see metricsContentType. */
export async function renderMetrics(state: MetricsState): Promise<string> {
  const registry = new Registry();
  const histograms: string[] = [];
  for (const family of families) {
    if (family.type === 'histogram') {
      histograms.push(histogramText(family, state));
      continue;
    }
    // prom-client shows an unlabelled metric as 0 before it has a value.
    const samples = family.samples(state);
    if (samples.length === 0) continue;
    const { name, help } = family;
    const configuration = {
      name,
      help,
      labelNames: Object.keys(family.labels),
      registers: [registry],
    };
    const isGauge = family.type === 'gauge';
    const metric = isGauge ? new Gauge(configuration) : new Counter(configuration);
    for (const { labels, value } of samples) metric.inc(labels, value);
  }
  const ofProcess = await processMetrics().metrics();
  return `${await registry.metrics()}\n${histograms.join('\n\n')}\n\n${ofProcess}`;
}
