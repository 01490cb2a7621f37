// Selects the Services with series of their own, and caches the texts of their series.
//
// The cache makes a text once per change of the Service. So a scrape of a hundred thousand series
// only joins texts. A Service that is gone loses its text at the next scrape.
//
// The number of Services with series is limited. A Service keeps its series as long as it is
// selected, so that series do not come and go; the Services above the limit are counted.

import type { Finding } from '../../audit/finding/catalogue.ts';
import type { StaleResources } from '../../audit/service/verdict.ts';
import type { Key } from '../../model/objects.ts';
import { formatLabels, formatSeries } from './exposition.ts';
import type { ServiceSeriesState, ServiceNumbers } from './service-families.ts';
import { serviceFamilies } from './service-families.ts';

export const perServiceModes = ['findings', 'all', 'off'] as const;

export interface PerServiceOptions {
  /** The Services with open findings, all Services, or none. */
  readonly mode: (typeof perServiceModes)[number];
  /** The maximum number of Services. */
  readonly max: number;
}

/** The texts of one Service, one per family; '' for a family without series. */
type ServiceRow = readonly string[];

/** The series of single Services in a scrape. */
export interface ServiceSeries {
  readonly rows: readonly ServiceRow[];
  /** Services without series because of the limit. */
  readonly leftOut: number;
}

export const noServiceSeries: ServiceSeries = { rows: [], leftOut: 0 };

export interface ServiceRowsInput {
  readonly services: ReadonlyMap<Key, ServiceNumbers>;
  /** The Services with open findings. */
  readonly open: ReadonlySet<Key>;
  readonly findings: () => readonly Finding[];
  readonly stale: StaleResources;
}

interface CachedRow {
  readonly numbers: ServiceNumbers;
  readonly stale: string;
  readonly row: ServiceRow;
}

function renderRow(state: ServiceSeriesState): ServiceRow {
  const { namespace, name: service } = state.numbers;
  return serviceFamilies.map(({ name, collect }) => {
    const series = collect(state).map(({ labels, value }) =>
      formatSeries(name, formatLabels({ namespace, service, ...labels }), value),
    );
    // One flat string: V8 stores a concatenation as a tree, which is ten times slower to join.
    return Buffer.from(series.join('')).toString();
  });
}

/**
 * Creates the cache. The returned function updates it, and yields after each text so that other
 * work can run.
 */
export function createServiceRows({
  mode,
  max,
}: PerServiceOptions): (input: ServiceRowsInput) => Generator<undefined, ServiceSeries> {
  const cache = new Map<Key, CachedRow>();
  return function* ({ services, open, findings, stale }) {
    if (mode === 'off') return noServiceSeries;
    const isSelected = (key: Key): boolean =>
      services.get(key)?.share.exists === true && (mode === 'all' || open.has(key));
    for (const key of cache.keys()) if (!isSelected(key)) cache.delete(key);
    const staleText = [...stale].sort().join(' ');
    let byService: Map<Key, Finding[]> | null = null;
    let selected = 0;
    for (const key of mode === 'all' ? services.keys() : open) {
      const numbers = services.get(key);
      if (numbers?.share.exists !== true) continue;
      selected++;
      const cached = cache.get(key);
      if (cached === undefined && cache.size >= max) continue;
      if (cached?.numbers === numbers && cached.stale === staleText) continue;
      byService ??= Map.groupBy(findings(), (finding) => `${finding.namespace}/${finding.service}`);
      const row = renderRow({ numbers, findings: byService.get(key) ?? [], stale });
      cache.set(key, { numbers, stale: staleText, row });
      yield;
    }
    return { rows: Array.from(cache.values(), ({ row }) => row), leftOut: selected - cache.size };
  };
}
