// Audits the Services of a cluster: it follows the listers one change at a time.
//
//   change ─► cache-update.ts ─► enqueue.ts: work items ─► compare the outputs (pure)
//                                                               │
//             reconcile.ts: differences appear and end ◄────────┘
//                 │                     │
//                 ▼                     ▼
//             pending.ts: pending ─►   lag samples
//             finding ─► resolved
//
// A start from nothing and following every change give the same differences. Only the history, and
// with it some causes, is known to an auditor that followed the changes.

import { canonicalIP } from '../../model/ip.ts';
import type {
  Change,
  EndpointSlice,
  Key,
  Listers,
  Service,
  UnreadableObject,
} from '../../model/objects.ts';
import { unreadableKey } from '../../model/objects.ts';
import type { Output } from '../finding/catalogue.ts';
import type { Difference } from '../finding/difference.ts';
import type { PendingFindings } from '../pending/pending.ts';
import type { AddressIndex } from './address-index.ts';
import { buildIndex, entriesAt } from './address-index.ts';
import { loadCache, updateAffected, updateCache } from './cache-update.ts';
import type { AuditContext, ServiceCache, ServiceState } from './cache.ts';
import { createServiceState, isEmpty, isWedged } from './cache.ts';
import { compareEndpoints, compareEndpointsAddress, truncationOf } from './endpoints.ts';
import { compareSlice, compareSlices, compareSlicesAddress } from './endpointslices.ts';
import type { WorkItem } from './enqueue.ts';
import { createWorkItem, enqueue } from './enqueue.ts';
import { checkInput, checkInputAddress } from './input-checks.ts';
import { compareMirrored } from './mirroring.ts';
import type { ConvergenceSample, Evaluation, FindingSink, ServiceAudit } from './reconcile.ts';
import { noItems, reconcile, unitAddress, wake } from './reconcile.ts';
import { isUnknown, isWithin, unknownOutputs } from './verdict.ts';

/** Work that can be interrupted after every step. */
type Steps = Generator<undefined, void>;

export interface ServiceAuditor {
  /** Starts with all objects of the listers. */
  begin(at: number): void;
  /** The same in small steps, during which the listers must not change. */
  beginInSteps(at: number): Steps;
  /** Applies a change that the listers already contain; `late` if newer ones came before it. */
  apply(change: Change, late?: boolean): void;
  /** Notes that a version of an object cannot be read, or that a later one can. */
  markUnreadable(unreadable: UnreadableObject, at: number): void;
  markReadable(unreadable: UnreadableObject, at: number): void;
  markUnreadableInSteps(unreadable: UnreadableObject, at: number): Steps;
  markReadableInSteps(unreadable: UnreadableObject, at: number): Steps;
  readonly audited: ReadonlyMap<Key, ServiceAudit>;
  /** The unreadable objects, each once. */
  readonly unreadable: ReadonlyMap<string, UnreadableObject>;
  readonly listers: Listers;
  readonly settle: PendingFindings;
}

export interface ServiceAuditorOptions {
  readonly context: AuditContext;
  readonly settle: PendingFindings;
  /** Receives how long an output took to follow its input. */
  onConvergence?(sample: ConvergenceSample): void;
  /** Called when the audit of a Service may have changed. */
  onChange?(key: Key): void;
  /** Called for each work item of a change after its evaluation. */
  onEvaluated?(item: WorkItem, change: Change): void;
}

interface State {
  readonly options: ServiceAuditorOptions;
  readonly sink: FindingSink;
  readonly cache: ServiceCache;
  readonly audited: Map<Key, ServiceAudit>;
  readonly unreadable: Map<string, UnreadableObject>;
}

export function createServiceAuditor(options: ServiceAuditorOptions): ServiceAuditor {
  const { context, settle } = options;
  const { release } = context;
  const state: State = {
    options,
    sink: { settle, release, onConvergence: (sample) => options.onConvergence?.(sample) },
    cache: {
      context,
      get: (key) => state.audited.get(key)?.record,
      getOrCreate: (key, names) => getOrCreate(state, key, names).record,
      autoHinted: new Set(),
      foreign: new Set(),
      leftBehind: new Map(),
    },
    audited: new Map(),
    unreadable: new Map(),
  };
  return {
    audited: state.audited,
    unreadable: state.unreadable,
    listers: context.listers,
    settle,
    begin: (at) => {
      runToEnd(begin(state, at));
    },
    beginInSteps: (at) => begin(state, at),
    apply: (change, late = false) => {
      const gap = change.gap === true || late;
      updateCache(state.cache, change);
      for (const item of enqueue(state.cache, change)) {
        evaluate(state, item, change.at, gap);
        options.onEvaluated?.(item, change);
      }
    },
    markUnreadable: (unreadable, at) => {
      runToEnd(markUnreadable(state, unreadable, at));
    },
    markReadable: (unreadable, at) => {
      runToEnd(markReadable(state, unreadable, at));
    },
    markUnreadableInSteps: (unreadable, at) => markUnreadable(state, unreadable, at),
    markReadableInSteps: (unreadable, at) => markReadable(state, unreadable, at),
  };
}

function runToEnd(steps: Steps): void {
  while (steps.next().done !== true);
}

function getOrCreate(
  state: State,
  key: Key,
  names?: Pick<Service, 'namespace' | 'name'>,
): ServiceAudit {
  const known = state.audited.get(key);
  if (known !== undefined) return known;
  const record = createServiceState(key, names);
  const unknown = unknownOf(state, record);
  const audit: ServiceAudit = { record, items: noItems, unknown, regime: -1 };
  state.audited.set(key, audit);
  return audit;
}

const unknownOf = ({ options, unreadable }: State, record: ServiceState): ServiceAudit['unknown'] =>
  unknownOutputs(options.context.listers, record, unreadable.values());

function* begin(state: State, at: number): Steps {
  yield* loadCache(state.cache);
  for (const audit of state.audited.values()) {
    audit.unknown = unknownOf(state, audit.record);
    evaluateFirst(state, audit, at);
    updateAffected(state.cache, audit.record);
    yield;
  }
}

function* markUnreadable(state: State, unreadable: UnreadableObject, at: number): Steps {
  state.unreadable.set(unreadableKey(unreadable), unreadable);
  yield* updateUnknown(state, unreadable, at);
}

function* markReadable(state: State, unreadable: UnreadableObject, at: number): Steps {
  const isNews = state.unreadable.delete(unreadableKey(unreadable));
  if (isNews) yield* updateUnknown(state, unreadable, at);
}

/** Evaluates the Services again whose outputs became unknown, or known again. */
function* updateUnknown(state: State, unreadable: UnreadableObject, at: number): Steps {
  for (const audit of state.audited.values()) {
    if (!isWithin(unreadable, audit.record)) continue;
    const before = audit.unknown;
    audit.unknown = unknownOf(state, audit.record);
    const isSame =
      audit.unknown.size === before.size &&
      [...audit.unknown].every(([output, reason]) => before.get(output) === reason);
    if (isSame) continue;
    evaluateFirst(state, audit, at);
    yield;
  }
}

/** Evaluates a Service without known history. */
function evaluateFirst(state: State, audit: ServiceAudit, at: number): void {
  const item = createWorkItem(audit.record);
  evaluateWhole(state, audit, { at, item, beginning: true, gap: false });
  state.options.onChange?.(audit.record.key);
}

function evaluate(state: State, item: WorkItem, at: number, gap: boolean): void {
  const { record } = item;
  const audit = getOrCreate(state, record.key);
  const evaluation: Evaluation = { at, item, beginning: false, gap };
  wake(state.sink, audit, item.wakes, at);
  // An affected address may no longer be in the Service, so that a full evaluation would miss it.
  const index = buildIndex(record, item.addresses);
  for (const address of item.addresses) evaluateAddress(state, audit, address, evaluation, index);
  for (const slice of item.slices) evaluateSlice(state, audit, slice, evaluation);
  if (item.whole || regimeOf(state, record) !== audit.regime) {
    evaluateWhole(state, audit, evaluation);
  } else {
    if (item.writes.size > 0) evaluateMirrored(state, audit, evaluation);
    evaluateOutputs(state, audit, evaluation);
  }
  updateAffected(state.cache, record);
  if (isEmpty(record) && audit.items.size === 0) state.audited.delete(record.key);
  state.options.onChange?.(record.key);
}

/** The differences of an output; none if it is unknown. */
const known = (
  { unknown }: ServiceAudit,
  output: Output,
  compare: () => Difference[],
): Difference[] => (isUnknown(unknown, output) ? [] : compare());

function evaluateAddress(
  { options: { context }, sink }: State,
  audit: ServiceAudit,
  address: string,
  evaluation: Evaluation,
  index: AddressIndex,
): void {
  const { record } = audit;
  const entries = entriesAt(context.listers, record, index, address);
  const endpoints = known(audit, 'endpoints', () =>
    compareEndpointsAddress(context, record, entries),
  );
  const slices = known(audit, 'endpointslices', () =>
    compareSlicesAddress(context, record, entries),
  );
  const input = checkInputAddress(context, record, entries);
  reconcile(sink, audit, { kind: 'address', output: 'endpoints', address }, endpoints, evaluation);
  reconcile(
    sink,
    audit,
    { kind: 'address', output: 'endpointslices', address },
    slices,
    evaluation,
  );
  reconcile(sink, audit, { kind: 'address', output: 'input', address }, input, evaluation);
}

function evaluateSlice(
  { options: { context }, sink }: State,
  audit: ServiceAudit,
  slice: EndpointSlice,
  evaluation: Evaluation,
): void {
  const { record } = audit;
  // A slice that is gone, or names another Service now, has no differences.
  const found = record.slices.includes(slice)
    ? known(audit, 'endpointslices', () => compareSlice(context, record, slice))
    : [];
  reconcile(sink, audit, { kind: 'slice', name: slice.name }, found, evaluation);
}

function evaluateMirrored(
  { options: { context }, sink }: State,
  audit: ServiceAudit,
  evaluation: Evaluation,
): void {
  const found = known(audit, 'mirrored', () => compareMirrored(context, audit.record));
  reconcile(sink, audit, { kind: 'output', output: 'mirrored' }, found, evaluation);
}

/** Evaluates the outputs as wholes, which is cheap enough for every work item. */
function evaluateOutputs(
  { options: { context }, sink }: State,
  audit: ServiceAudit,
  evaluation: Evaluation,
): void {
  const { record } = audit;
  const endpoints = known(audit, 'endpoints', () => compareEndpoints(context, record));
  reconcile(sink, audit, { kind: 'output', output: 'endpoints' }, endpoints, evaluation);
  const slices = known(audit, 'endpointslices', () => compareSlices(context, record));
  reconcile(sink, audit, { kind: 'output', output: 'endpointslices' }, slices, evaluation);
  reconcile(
    sink,
    audit,
    { kind: 'output', output: 'input' },
    checkInput(context, record),
    evaluation,
  );
}

/** What affects every address of a Service: truncation, wedges, and pods that make syncs fail. */
function regimeOf({ options }: State, record: ServiceState): number {
  const flags = [
    truncationOf(record) !== null,
    record.nodeless > 0,
    record.stranded > 0,
    isWedged(options.context.listers, record),
  ];
  return flags.reduce((sum, flag, bit) => sum + (flag ? 2 ** bit : 0), 0);
}

function evaluateWhole(state: State, audit: ServiceAudit, evaluation: Evaluation): void {
  const { record } = audit;
  audit.regime = regimeOf(state, record);
  const index = buildIndex(record, null);
  for (const address of allAddresses(audit, index)) {
    evaluateAddress(state, audit, address, evaluation, index);
  }
  for (const slice of record.slices) evaluateSlice(state, audit, slice, evaluation);
  evaluateMirrored(state, audit, evaluation);
  evaluateOutputs(state, audit, evaluation);
}

/** The addresses of entries, of pods and of known differences. */
function allAddresses({ record, items }: ServiceAudit, index: AddressIndex): Set<string> {
  const addresses = new Set([...index.listings.keys(), ...index.slicings.keys()]);
  for (const { ips } of record.members.keys()) for (const ip of ips) addresses.add(canonicalIP(ip));
  for (const key of items.keys()) {
    const address = unitAddress(key);
    if (address !== null) addresses.add(address);
  }
  return addresses;
}
