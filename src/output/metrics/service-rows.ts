// Which Services have series of their own, and their texts.
//
// A text is made once per change: a Service that nothing happened to keeps it from scrape to
// scrape, one that is gone loses it at the next, so no series outlives its Service. With a hundred
// thousand series this is what makes a scrape cheap: it only joins texts that are there.
//
// How many Services have series is bounded. One that has them keeps them while it may, so that
// series do not come and go; the others wait, and are counted.

import type { Finding } from '../../audit/finding/catalogue.ts';
import type { StaleResources } from '../../audit/service/verdict.ts';
import type { Key } from '../../model/objects.ts';
import { labelsText, seriesText } from './exposition.ts';
import type { ServiceNumbers, ServiceSeriesState } from './service-families.ts';
import { serviceFamilies } from './service-families.ts';

export const perServiceModes = ['findings', 'all', 'off'] as const;

/** Which Services have series of their own. */
export interface PerServiceOptions {
  /** Those with findings that stand, all, or none. */
  readonly mode: (typeof perServiceModes)[number];
  /** At most so many. */
  readonly max: number;
}

/** The texts of one Service, one per family; '' where it has no series. */
type Row = readonly string[];

/** What a scrape shows of single Services. */
export interface ServiceSeries {
  readonly rows: readonly Row[];
  /** Services that would have series but for the bound. */
  readonly leftOut: number;
}

export const noServiceSeries: ServiceSeries = { rows: [], leftOut: 0 };

/** What is known when somebody asks. */
export interface ServiceRowsInput {
  readonly services: ReadonlyMap<Key, ServiceNumbers>;
  /** Those of them with findings that stand. */
  readonly open: ReadonlySet<Key>;
  readonly findings: () => readonly Finding[];
  readonly stale: StaleResources;
}

interface Kept {
  readonly numbers: ServiceNumbers;
  readonly stale: string;
  readonly row: Row;
}

function rowOf(state: ServiceSeriesState): Row {
  const { namespace, name: service } = state.numbers;
  const names = labelsText({ namespace, service });
  return serviceFamilies.map(({ name, samples }) => {
    let text = '';
    for (const { labels, value } of samples(state)) {
      const more = labelsText(labels);
      text += seriesText(name, more === '' ? names : `${names},${more}`, value);
    }
    return flat(text);
  });
}

/**
 * The same text in one piece. V8 keeps what was put together as a tree of its parts, and would go
 * through the tree at every scrape: ten times what it takes to copy the text.
 */
function flat(text: string): string {
  return Buffer.from(text).toString();
}

function byService(findings: readonly Finding[]): Map<Key, Finding[]> {
  const grouped = new Map<Key, Finding[]>();
  for (const finding of findings) {
    const key = `${finding.namespace}/${finding.service}`;
    const there = grouped.get(key);
    if (there === undefined) grouped.set(key, [finding]);
    else there.push(finding);
  }
  return grouped;
}

const none: readonly Finding[] = [];

/**
 * Keeps the texts; the returned function brings them up to date in small steps, between which
 * others may work.
 */
export function createServiceRows({
  mode,
  max,
}: PerServiceOptions): (known: ServiceRowsInput) => Generator<undefined, ServiceSeries> {
  const kept = new Map<Key, Kept>();
  return function* (known) {
    if (mode === 'off') return noServiceSeries;
    const { services, open } = known;
    const isShown = (key: Key): boolean =>
      services.get(key)?.share.exists === true && (mode === 'all' || open.has(key));
    for (const key of kept.keys()) if (!isShown(key)) kept.delete(key);
    const stale = [...known.stale].sort().join(' ');
    let findings: Map<Key, Finding[]> | null = null;
    let wanted = 0;
    for (const key of mode === 'all' ? services.keys() : open) {
      const numbers = services.get(key);
      if (numbers?.share.exists !== true) continue;
      wanted++;
      const before = kept.get(key);
      if (before === undefined && kept.size >= max) continue;
      if (before?.numbers === numbers && before.stale === stale) continue;
      findings ??= byService(known.findings());
      const row = rowOf({ numbers, findings: findings.get(key) ?? none, stale: known.stale });
      kept.set(key, { numbers, stale, row });
      yield;
    }
    return { rows: Array.from(kept.values(), ({ row }) => row), leftOut: wanted - kept.size };
  };
}
