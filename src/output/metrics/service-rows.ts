// The metric families with series of each Service, and a cache of their texts. Time alone never
// changes a sample. So the cache makes a text once per change of the Service, and a scrape only
// joins texts. Not here: the findings of a Service, which are few (families.ts counts them).
//
// The number of Services with series is limited. A Service keeps its series as long as it is
// selected, so that series do not come and go; the Services above the limit are counted.

import type { Verdict } from '../../audit/finding/verdicts.ts';
import { type ConditionCounts, endpointConditions } from '../../audit/measure/endpoint-counts.ts';
import type { Impact } from '../../audit/service/impact.ts';
import { isStale, serviceOutputs, type StaleResources } from '../../audit/service/verdict.ts';
import type { ServiceShare } from '../../audit/summary.ts';
import { type Key, type OutputResource, outputResources } from '../../model/objects.ts';
import { familiesOf, formatSamples, keysOf, nameFamilies } from './exposition.ts';

/** Verdicts as label values, with their names in JSON. */
export const verdictLabels = {
  ok: 'conform',
  pending: 'pending',
  mismatch: 'different',
  unknown: 'unknown',
} as const satisfies Readonly<Record<string, Verdict>>;

/** The numbers of one Service; a change makes another object. */
export interface ServiceNumbers {
  readonly namespace: string;
  readonly name: string;
  readonly share: ServiceShare;
  /** What open findings do to its traffic; null without one, or if it is not known. */
  readonly impact: Impact | null;
  /** Of the slices that the controllers wrote. */
  readonly conditions: ConditionCounts;
  readonly slices: number;
  /** Slices of the endpointslice controller beyond the necessary ones. */
  readonly surplus: number;
  readonly bytes: Readonly<Record<OutputResource, number>>;
  readonly audits: number;
}

export interface ServiceSeriesState {
  readonly numbers: ServiceNumbers;
  readonly stale: StaleResources;
}

const { gauge } = familiesOf<ServiceSeriesState>();
const experimental = familiesOf<ServiceSeriesState>('experimental');

export const serviceFamilies = nameFamilies('endpoint_auditor_service_', {
  verdict: gauge(
    'Always 1. The label is the verdict on the output; other verdicts have no series.',
    ({ numbers: { share }, stale }, { output, verdict }) => {
      const audited = share.verdicts[output];
      if (audited === null) return null;
      return verdictLabels[verdict] === (isStale(output, stale) ? 'unknown' : audited) ? 1 : null;
    },
    { output: serviceOutputs, verdict: keysOf(verdictLabels) },
  ),
  pending_since_timestamp_seconds: gauge(
    'Start of the oldest difference that is within the settle window. No series without one.',
    ({ numbers }, { output }) => numbers.share.pendingSince[output] ?? null,
    { output: serviceOutputs },
  ),
  misrouted_connections_ratio: experimental.gauge(
    'Share of new connections that fail or reach a wrong address, by the differences of its ' +
      'EndpointSlices and of rules of nodes. No series without an open finding.',
    ({ numbers }) => numbers.impact?.misrouted ?? null,
  ),
  unused_capacity_ratio: experimental.gauge(
    'Share of ready pods that get no connections, by the differences of its EndpointSlices and ' +
      'of rules of nodes. No series without an open finding.',
    ({ numbers }) => numbers.impact?.unused ?? null,
  ),
  audits_total: experimental.counter(
    'Evaluations of the Service since the auditor first saw it.',
    ({ numbers }) => numbers.audits,
  ),
  endpoints: gauge(
    'Endpoints in the EndpointSlices that the controllers wrote, by condition.',
    ({ numbers }, { condition }) => numbers.conditions[condition],
    { condition: endpointConditions },
  ),
  endpointslices: gauge(
    'EndpointSlices that the controllers wrote.',
    ({ numbers }) => numbers.slices,
  ),
  endpointslices_surplus: gauge(
    'EndpointSlices of the endpointslice controller above the minimum for the same endpoints.',
    ({ numbers }) => numbers.surplus,
  ),
  object_bytes: gauge(
    'Bytes of the Endpoints object, and bytes of all EndpointSlices that the controllers wrote.',
    ({ numbers }, { resource }) => numbers.bytes[resource],
    { resource: outputResources },
  ),
});

export const perServiceModes = ['findings', 'all', 'off'] as const;

export interface PerServiceOptions {
  /** The Services with open findings, all Services, or none. */
  readonly mode: (typeof perServiceModes)[number];
  readonly max: number;
}

export interface ServiceSeries {
  /** The texts of each Service, one per family; '' for a family without series. */
  readonly rows: readonly (readonly string[])[];
  /** Services without series because of the limit. */
  readonly leftOut: number;
  /** The number of Services, and of nodes, that series of findings may name. */
  readonly max: number;
}

export const noServiceSeries: ServiceSeries = { rows: [], leftOut: 0, max: 0 };

export interface ServiceRowsInput {
  readonly services: ReadonlyMap<Key, ServiceNumbers>;
  readonly open: ReadonlySet<Key>;
  readonly stale: StaleResources;
}

/** Returns a function that updates the cache, and yields after each text for other work. */
export function createServiceRows({ mode, max }: PerServiceOptions) {
  const cache = new Map<Key, { numbers: ServiceNumbers; stale: string; row: string[] }>();
  return function* (input: ServiceRowsInput): Generator<undefined, ServiceSeries> {
    const { services, open, stale } = input;
    if (mode === 'off') return noServiceSeries;
    const isSelected = (key: Key): boolean =>
      services.get(key)?.share.exists === true && (mode === 'all' || open.has(key));
    for (const key of cache.keys()) if (!isSelected(key)) cache.delete(key);
    const staleText = [...stale].sort().join(' ');
    let selected = 0;
    for (const key of mode === 'all' ? services.keys() : open) {
      const numbers = services.get(key);
      if (numbers?.share.exists !== true) continue;
      selected++;
      const cached = cache.get(key);
      if (cached === undefined && cache.size >= max) continue;
      if (cached?.numbers === numbers && cached.stale === staleText) continue;
      const state = { numbers, stale };
      const labels = { namespace: numbers.namespace, service: numbers.name };
      // One flat string: V8 stores a concatenation as a tree, which is ten times slower to join.
      const row = serviceFamilies.map((family) =>
        Buffer.from(formatSamples(family, state, 'text', labels)).toString(),
      );
      cache.set(key, { numbers, stale: staleText, row });
      yield;
    }
    const rows = Array.from(cache.values(), ({ row }) => row);
    return { rows, leftOut: selected - cache.size, max };
  };
}
