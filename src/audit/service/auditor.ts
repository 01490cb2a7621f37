// Audits the Services of a cluster, one change of the listers at a time: the cache is updated
// (cache.ts), work items state what to compare (enqueue.ts), differences appear and end
// (reconcile.ts). A start from nothing gives the same differences, but not the causes of history.

import { getOrInsert } from '../../model/collections.ts';
import { canonicalIP } from '../../model/ip.ts';
import type { Change, EndpointSlice, Key, Listers, UnreadableObject } from '../../model/objects.ts';
import { unreadableKey } from '../../model/objects.ts';
import { runToEnd, type Steps } from '../../model/run-to-end.ts';
import { hintMode } from '../../shadow/hints.ts';
import type { Output } from '../finding/catalogue.ts';
import type { Difference } from '../finding/difference.ts';
import { type AddressIndex, buildIndex, entriesAt } from './address-index.ts';
import type { AuditContext, ServiceCache, ServiceState } from './cache.ts';
import {
  createServiceState,
  hasKind,
  isEmpty,
  isRetried,
  isWedged,
  loadCache,
  podsOf,
  slicesOf,
  updateCache,
} from './cache.ts';
import {
  type Reopening,
  restoreDifferences,
  restoreRecord,
  type SavedService,
} from './checkpoint.ts';
import { compareEndpoints, compareEndpointsAddress, truncationOf } from './endpoints.ts';
import { compareSlice, compareSlices, compareSlicesAddress } from './endpointslices.ts';
import { createWorkItem, enqueue, type WorkItem } from './enqueue.ts';
import { checkInput, checkInputAddress, leftBehindAddresses } from './input-checks.ts';
import { compareMirrored } from './mirroring.ts';
import type { Evaluation, FindingSink, ServiceAudit, Unit } from './reconcile.ts';
import {
  markMissed,
  noItems,
  noneExcused,
  reconcile,
  refreshClocks,
  unitAddress,
  wake,
} from './reconcile.ts';
import { isUnknown, isWithin, unknownOutputs } from './verdict.ts';

export type ServiceAuditor = ReturnType<typeof createServiceAuditor>;

export interface ServiceAuditorOptions extends FindingSink {
  onChange?(key: Key): void;
  onEvaluated?(item: WorkItem, change: Change): void;
}

/** By the key of the Service. */
type SavedServices = ReadonlyMap<Key, SavedService>;

type State = ReturnType<typeof createState>;

function createState(options: ServiceAuditorOptions) {
  const audited = new Map<Key, ServiceAudit>();
  const unreadable = new Map<string, UnreadableObject>();
  const cache: ServiceCache = {
    context: options.context,
    get: (key) => audited.get(key)?.record,
    getOrCreate: (key) => getOrCreate(state, key).record,
    autoHinted: new Set(),
    foreign: new Set(),
    leftBehind: new Map(),
  };
  /** Services with clocks that missed changes restart when they are read. */
  const missed = new Set<ServiceAudit>();
  const state = { options, cache, audited, unreadable, missed };
  return state;
}

export function createServiceAuditor(options: ServiceAuditorOptions) {
  const { context, settle } = options;
  const state = createState(options);
  const { cache, audited, unreadable } = state;
  return {
    audited: audited as ReadonlyMap<Key, ServiceAudit>,
    unreadable: unreadable as ReadonlyMap<string, UnreadableObject>,
    context,
    listers: context.listers,
    settle,
    /** Brings the clocks of all differences up to date; the caller reads them. */
    refresh(): void {
      for (const audit of state.missed) refreshClocks(audit);
      state.missed.clear();
    },
    /** Restarts the clocks of all differences that are no finding yet. */
    restartClocks(at: number): void {
      for (const audit of audited.values()) {
        markMissed(audit, { writes: new Set() }, at);
        state.missed.add(audit);
      }
    },
    /**
     * Starts with all objects of the listers, which must not change between the steps. `saved` has
     * what a checkpoint knows of Services; `restore` then continues their findings. With
     * `reopening`, each waits until it is admitted.
     */
    begin: (at: number, saved: SavedServices = new Map()) => begin(state, at, saved),
    restore(saved: SavedServices, at: number, reopening?: Reopening): void {
      const known = [...saved].flatMap(([key, service]) => {
        const audit = audited.get(key);
        return audit === undefined ? [] : [[audit, service] as const];
      });
      restoreDifferences(options, known, at, reopening);
      // Which Services wait for a controller depends on the clocks and causes that return.
      for (const [{ record }] of known) options.onChange?.(record.key);
    },
    /** Applies a change that the listers already contain; `late` if newer ones came before it. */
    apply(change: Change, late = false): void {
      updateCache(cache, change);
      for (const item of enqueue(cache, change)) {
        evaluate(state, item, change.at, change.gap === true || late);
        options.onEvaluated?.(item, change);
      }
    },
    *markUnreadable(lost: UnreadableObject, at: number): Steps {
      unreadable.set(unreadableKey(lost), lost);
      yield* updateUnknown(state, lost, at);
    },
    *markReadable(lost: UnreadableObject, at: number): Steps {
      if (unreadable.delete(unreadableKey(lost))) yield* updateUnknown(state, lost, at);
    },
  };
}

const getOrCreate = (state: State, key: Key): ServiceAudit =>
  getOrInsert(state.audited, key, () => {
    const record = createServiceState(key);
    const unknown = unknownOf(state, record);
    return { record, items: noItems, excused: noneExcused, missed: null, unknown, regime: -1 };
  });

const unknownOf = ({ options, unreadable }: State, record: ServiceState): ServiceAudit['unknown'] =>
  unknownOutputs(options.context.listers, record, unreadable.values());

function* begin(state: State, at: number, saved: SavedServices): Steps {
  yield* loadCache(state.cache);
  for (const audit of state.audited.values()) {
    const before = saved.get(audit.record.key);
    if (before !== undefined) restoreRecord(audit.record, before);
    audit.unknown = unknownOf(state, audit.record);
    yield* evaluateFirst(state, audit, at);
    updateAffected(state.cache, audit.record);
    yield;
  }
}

function* updateUnknown(state: State, unreadable: UnreadableObject, at: number): Steps {
  for (const audit of state.audited.values()) {
    if (!isWithin(unreadable, audit.record)) continue;
    const before = audit.unknown;
    audit.unknown = unknownOf(state, audit.record);
    const isSame =
      audit.unknown.size === before.size &&
      [...audit.unknown].every(([output, reason]) => before.get(output) === reason);
    if (isSame) continue;
    // In one turn: what is unknown has changed already, and others may ask about the Service.
    runToEnd(evaluateFirst(state, audit, at));
    yield;
  }
}

function* evaluateFirst({ options }: State, audit: ServiceAudit, at: number): Steps {
  const item = createWorkItem(audit.record);
  yield* evaluateWhole({
    sink: options,
    audit,
    at,
    item,
    beginning: true,
    gap: false,
    cleared: [],
  });
  options.onChange?.(audit.record.key);
}

function evaluate(state: State, item: WorkItem, at: number, gap: boolean): void {
  const { options } = state;
  const { record } = item;
  const audit = getOrCreate(state, record.key);
  const known = { beginning: false, gap, cleared: [] };
  const evaluation: Evaluation = { sink: options, audit, at, item, ...known };
  if (item.wakes.has('endpointslices')) record.wokenAt = at;
  if (item.writes.has('endpointslices')) record.slicesChangedAt = at;
  // What had another cause until now may have a likely one: what hinders every sync, or what the
  // comparison suggests after missed changes.
  wake(evaluation);
  if (evaluation.cleared.length > 0 && (item.missed || isRetried(record))) audit.regime = -1;
  // A slice that was kept as a placeholder is none any more beside endpoints or another slice.
  if (audit.items.size > 0) {
    for (const slice of record.slices) if (slice.endpoints.length === 0) item.slices.add(slice);
  }
  // An affected address may no longer be in the Service, so that a full evaluation would miss it.
  if (item.addresses.size > 0) {
    const index = buildIndex(record, item.addresses);
    for (const ip of item.addresses) evaluateAddress(evaluation, index, ip);
  }
  for (const slice of item.slices) evaluateSlice(evaluation, slice);
  if (item.whole || regimeOf(options.context, audit) !== audit.regime) {
    runToEnd(evaluateWhole(evaluation));
  } else evaluateOutputs(evaluation, item.writes.size > 0);
  if (item.missed) {
    markMissed(audit, item, at);
    state.missed.add(audit);
  }
  updateAffected(state.cache, record);
  if (isEmpty(record) && audit.items.size === 0) state.audited.delete(record.key);
  options.onChange?.(record.key);
}

function evaluateUnit(
  evaluation: Evaluation,
  output: Output,
  unit: Unit,
  compare: (context: AuditContext, record: ServiceState) => Difference[],
): void {
  const { sink, audit } = evaluation;
  const found = isUnknown(audit.unknown, output) ? [] : compare(sink.context, audit.record);
  reconcile(evaluation, unit, found);
}

const addressComparisons = [
  ['endpoints', compareEndpointsAddress],
  ['endpointslices', compareSlicesAddress],
  ['input', checkInputAddress],
] as const;

function evaluateAddress(evaluation: Evaluation, index: AddressIndex, ip: string): void {
  const { sink, audit } = evaluation;
  const { record, unknown } = audit;
  const entries = entriesAt(sink.context.listers, record, index, ip);
  for (const [output, compare] of addressComparisons) {
    const found = isUnknown(unknown, output) ? [] : compare(sink.context, entries);
    if (found.length > 0 || audit.items.size > 0) reconcile(evaluation, [output, ip], found);
  }
}

function evaluateSlice(evaluation: Evaluation, slice: EndpointSlice): void {
  evaluateUnit(evaluation, 'endpointslices', ['slice', slice.name], (context, record) =>
    // A slice that is gone, or names another Service now, has no differences.
    record.slices.includes(slice) ? compareSlice(context, record, slice) : [],
  );
}

/** Evaluates the outputs as wholes: cheap enough for every work item, except mirrored slices. */
function evaluateOutputs(evaluation: Evaluation, withMirrored: boolean): void {
  if (withMirrored) evaluateUnit(evaluation, 'mirrored', ['mirrored'], compareMirrored);
  evaluateUnit(evaluation, 'endpoints', ['endpoints'], compareEndpoints);
  evaluateUnit(evaluation, 'endpointslices', ['endpointslices'], compareSlices);
  evaluateUnit(evaluation, 'input', ['input'], checkInput);
}

/** What affects every address of a Service: truncation, wedges, and pods that make syncs fail. */
function regimeOf({ listers }: AuditContext, { record, items }: ServiceAudit): number {
  return (
    (truncationOf(record) === null ? 0 : 1) +
    (hasKind(record, 'nodeless') ? 2 : 0) +
    (items.size > 0 && isRetried(record) ? 4 : 0) +
    (isWedged(listers, record) ? 8 : 0)
  );
}

/** The addresses that one step compares. */
const addressesAtOnce = 100;

function* evaluateWhole(evaluation: Evaluation): Steps {
  const { sink, audit } = evaluation;
  const { record } = audit;
  audit.regime = regimeOf(sink.context, audit);
  const index = buildIndex(record, null);
  let count = 0;
  for (const ip of [
    ...index.listings.keys(),
    ...unlistedAddresses(sink.context.listers, audit, index),
  ]) {
    evaluateAddress(evaluation, index, ip);
    if (++count % addressesAtOnce === 0) yield;
  }
  for (const slice of record.slices) evaluateSlice(evaluation, slice);
  evaluateOutputs(evaluation, true);
}

function unlistedAddresses(
  listers: Listers,
  { record, items }: ServiceAudit,
  index: AddressIndex,
): Set<string> {
  const addresses = new Set<string>();
  const add = (ip: string): void => {
    if (!index.listings.has(ip)) addresses.add(ip);
  };
  for (const ip of index.slicings.keys()) add(ip);
  for (const { ips } of podsOf(listers, record)) for (const ip of ips) add(canonicalIP(ip));
  for (const key of items.keys()) {
    const address = unitAddress(key);
    if (address !== null) add(address);
  }
  return addresses;
}

function updateAffected(cache: ServiceCache, record: ServiceState): void {
  const { context, autoHinted, foreign, leftBehind } = cache;
  const { service } = record;
  const isAuto = service !== null && hintMode(service, context.release) === 'auto';
  autoHinted[isAuto ? 'add' : 'delete'](record);
  const isForeign = slicesOf(context.listers, record, 'foreign').length > 0;
  foreign[isForeign ? 'add' : 'delete'](record);
  const addresses = leftBehindAddresses(context, record);
  if (addresses.size === 0) leftBehind.delete(record);
  else leftBehind.set(record, new Set(addresses.keys()));
}
