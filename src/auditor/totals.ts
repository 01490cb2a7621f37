// The numbers of the cluster as a sum over its Services, kept while the ledger follows the cluster:
// when something of a Service was judged, what it added is taken away and what it adds now is put
// in its place. So whoever asks pays for what has changed, and not for all that there is.
//
// What was touched waits until somebody asks, since much of it will be touched again; but no more
// than a few Services wait, so that whoever asks waits for no more than those. Beyond that, for
// each Service that comes, the one that waits longest is counted.

import type { CapacityCounts, CapacityLimits } from '../audit/measure/capacity.ts';
import { addCapacity, capacityOf, noCapacity } from '../audit/measure/capacity.ts';
import type { ConditionCounts } from '../audit/measure/conditions.ts';
import {
  addConditionCounts,
  countConditions,
  noConditionCounts,
} from '../audit/measure/conditions.ts';
import type { DuplicateTotals } from '../audit/measure/duplicates.ts';
import { createDuplicateTotals, setDuplicates } from '../audit/measure/duplicates.ts';
import type { FillTotals } from '../audit/measure/fill.ts';
import { createFillTotals, setFill, surplusOf } from '../audit/measure/fill.ts';
import type { NodesSummary } from '../audit/node/nodes.ts';
import type { ServiceAuditor } from '../audit/service/auditor.ts';
import { slicesOf } from '../audit/service/cache.ts';
import type { ServiceAudit } from '../audit/service/reconcile.ts';
import type { StaleResources } from '../audit/service/verdict.ts';
import type { Summary, SummaryTotals } from '../audit/summary.ts';
import { addShare, createTotals, shareOf, summaryOf } from '../audit/summary.ts';
import type { EndpointSlice, Key } from '../model/objects.ts';
import type { HintCounts } from '../output/metrics/state.ts';
import { noHintCounts } from '../output/metrics/state.ts';
import type { ServiceNumbers } from '../output/metrics/service-families.ts';
import { endpointsCapacity } from '../shadow/endpoints.ts';
import type { HintMode } from '../shadow/hints.ts';
import { hintMode, reasonOfNoHints } from '../shadow/hints.ts';
import type { Release } from '../shadow/release.ts';

/** What a Service adds, besides what the totals of measure/ keep of each. */
interface Counted extends ServiceNumbers {
  /** The slices that it was counted with, in the order of their names. */
  readonly judged: readonly EndpointSlice[];
  readonly written: readonly EndpointSlice[];
  readonly capacity: CapacityCounts;
  readonly hintMode: HintMode;
}

/** Sums over all Services; right for all that was touched once `refresh` was called. */
export interface ServiceTotals {
  /** Notes that a Service, or a name without one, must be counted anew. */
  touch(serviceAuditor: ServiceAuditor, key: Key): void;
  refresh(serviceAuditor: ServiceAuditor): void;
  readonly fill: FillTotals;
  readonly duplicates: DuplicateTotals;
  readonly conditions: ConditionCounts;
  readonly capacity: CapacityCounts;
  readonly services: ReadonlyMap<Key, ServiceNumbers>;
  /** Names with findings that stand. */
  readonly open: ReadonlySet<Key>;
  summary(
    serviceAuditor: ServiceAuditor,
    stale: StaleResources,
    nodes?: NodesSummary | null,
  ): Omit<Summary, 'findings'>;
  hints(serviceAuditor: ServiceAuditor): HintCounts;
}

interface State {
  readonly limits: CapacityLimits;
  readonly release: Release;
  /** How often each was touched. */
  readonly touched: Map<Key, number>;
  readonly services: Map<Key, Counted>;
  readonly open: Set<Key>;
  readonly restless: Set<Key>;
  /** Services that ask for hints. */
  readonly hinting: Set<Key>;
  readonly totals: SummaryTotals;
  readonly fill: FillTotals;
  readonly duplicates: DuplicateTotals;
  readonly conditions: ConditionCounts;
  readonly capacity: CapacityCounts;
}

/** Services that may wait to be counted: some milliseconds of work. */
const mostTouched = 256;

export function createServiceTotals(release: Release, maxEndpointsPerSlice: number): ServiceTotals {
  const state: State = {
    limits: { endpoints: endpointsCapacity, endpointslices: maxEndpointsPerSlice },
    release,
    touched: new Map(),
    services: new Map(),
    open: new Set(),
    restless: new Set(),
    hinting: new Set(),
    totals: createTotals(),
    fill: createFillTotals(maxEndpointsPerSlice),
    duplicates: createDuplicateTotals(),
    conditions: noConditionCounts(),
    capacity: noCapacity(),
  };
  const { touched, services, fill, duplicates, conditions, capacity, open } = state;
  return {
    touch(serviceAuditor, key) {
      touched.set(key, (touched.get(key) ?? 0) + 1);
      if (touched.size <= mostTouched) return;
      const [oldest] = touched;
      if (oldest !== undefined) recount(state, serviceAuditor, ...oldest);
    },
    refresh(serviceAuditor) {
      for (const [key, times] of touched) recount(state, serviceAuditor, key, times);
    },
    fill,
    duplicates,
    conditions,
    capacity,
    services,
    open,
    summary(serviceAuditor, stale, nodes = null) {
      return summaryOf(serviceAuditor, state.totals, sharesOf(state), { stale, nodes });
    },
    hints: (serviceAuditor) => hintCounts(state, serviceAuditor),
  };
}

function* sharesOf({ restless, services }: State): Generator<Counted['share']> {
  for (const key of restless) {
    const share = services.get(key)?.share;
    if (share !== undefined) yield share;
  }
}

function recount(state: State, serviceAuditor: ServiceAuditor, key: Key, times: number): void {
  state.touched.delete(key);
  const before = state.services.get(key) ?? null;
  const audited = serviceAuditor.audited.get(key) ?? null;
  const judged =
    audited === null ? [] : slicesOf(serviceAuditor.listers, audited.record, 'controller');
  if (!isSame(before?.judged ?? [], judged)) {
    setFill(state.fill, key, judged);
    setDuplicates(state.duplicates, key, judged);
  }
  if (before !== null) add(state, before, -1);
  const after =
    audited === null ? null : countedOf(state, serviceAuditor, audited, judged, before, times);
  if (after === null) state.services.delete(key);
  else {
    add(state, after, 1);
    state.services.set(key, after);
  }
  mark(state.open, key, after?.share.open === true);
  mark(state.restless, key, after?.share.hasPending === true);
  mark(state.hinting, key, after !== null && after.hintMode !== 'none');
}

function mark(keys: Set<Key>, key: Key, isIn: boolean): void {
  if (isIn) keys.add(key);
  else keys.delete(key);
}

/** Versions of objects are never changed, so equal lists of them say the same. */
const isSame = (a: readonly EndpointSlice[], b: readonly EndpointSlice[]): boolean =>
  a === b || (a.length === b.length && a.every((slice, at) => slice === b[at]));

function add(state: State, counted: Counted, by: 1 | -1): void {
  addShare(state.totals, counted.share, by);
  addConditionCounts(state.conditions, counted.conditions, by);
  addCapacity(state.capacity, counted.capacity, by);
}

const bytesOf = (objects: readonly { readonly bytes: number | null }[]): number =>
  objects.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0);

function countedOf(
  state: State,
  { listers }: ServiceAuditor,
  audited: ServiceAudit,
  judged: readonly EndpointSlice[],
  before: Counted | null,
  times: number,
): Counted {
  const { record } = audited;
  const { key, namespace, name, service, endpoints } = record;
  const mirrored = slicesOf(listers, record, 'mirror');
  const written = mirrored.length === 0 ? judged : [...judged, ...mirrored];
  const known = before !== null && isSame(before.written, written) ? before : null;
  const fill = state.fill.byService.get(key);
  return {
    namespace,
    name,
    share: shareOf(listers, audited),
    judged,
    written: known?.written ?? written,
    conditions: known?.conditions ?? countConditions(written),
    slices: written.length,
    surplus: fill === undefined ? 0 : surplusOf(fill),
    bytes: {
      endpoints: endpoints?.bytes ?? 0,
      endpointslices: known?.bytes.endpointslices ?? bytesOf(written),
    },
    capacity: capacityOf(endpoints, written, state.limits),
    hintMode: service === null ? 'none' : hintMode(service, state.release),
    audits: (before?.audits ?? 0) + times,
  };
}

/**
 * Services that ask for hints, by what stands. Why hints are absent depends on Nodes that touch no
 * Service as long as none has hints, so it is looked up when somebody asks.
 */
function hintCounts({ hinting, services }: State, { listers }: ServiceAuditor): HintCounts {
  const counts = noHintCounts();
  const { zoneCapacity } = listers;
  const knowsNodes = listers.knows('nodes');
  for (const key of hinting) {
    const counted = services.get(key);
    if (counted === undefined || counted.hintMode === 'none') continue;
    const { ready, hinted } = counted.conditions;
    const of = counts[counted.hintMode];
    if (hinted > 0 && hinted === ready) of.all++;
    else if (hinted > 0) of.some++;
    else {
      const isAuto = counted.hintMode === 'auto' && knowsNodes;
      const known = isAuto ? reasonOfNoHints(zoneCapacity, ready) : null;
      const reason = ready === 0 ? 'no-ready-endpoints' : (known ?? 'none');
      of.absent[reason] = (of.absent[reason] ?? 0) + 1;
    }
  }
  return counts;
}
