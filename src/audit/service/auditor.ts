// The ledger of a cluster under audit: what was judged of each Service, and since when. It follows
// a snapshot one change at a time.
//
//   change ─► touch.ts: units of the Services it concerns ─► judge (pure)
//                                                               │
//             standing.ts: differences come and go ◄────────────┘
//                 │                     │
//                 ▼                     ▼
//             settle.ts: pending ─►    lag samples
//             finding ─► resolved
//
// Judging every unit from nothing, as at the beginning, and following every change give the same
// differences; only history, and with it some causes, is known to the one who followed.

import { canonicalIP } from '../../model/ip.ts';
import type {
  Change,
  EndpointSlice,
  Key,
  UnreadableObject,
  Service,
  Listers,
} from '../../model/objects.ts';
import { unreadableKey } from '../../model/objects.ts';
import { hintMode } from '../../shadow/hints.ts';
import type { Output } from '../finding/catalogue.ts';
import type { Difference } from '../finding/difference.ts';
import type { PendingFindings } from '../pending/pending.ts';
import { dropIndex, setEndpoints, buildIndex } from './address-index.ts';
import type { AuditContext, ServiceState } from './cache.ts';
import {
  addPod,
  addSlice,
  createServiceState,
  isEmpty,
  isWedged,
  setService,
  slicesOf,
  spreadSlices,
  trimMembers,
} from './cache.ts';
import { judgeEndpoints, judgeEndpointsAddress, truncationOf } from './endpoints.ts';
import { judgeSlice, judgeSliceAddress, judgeSlices } from './endpointslices.ts';
import type { Records, WorkItem } from './enqueue.ts';
import { recordsNamed, enqueue, createWorkItem } from './enqueue.ts';
import { judgeInput, judgeInputAddress, leftBehindAddresses } from './input-checks.ts';
import { judgeMirrored } from './mirroring.ts';
import type { ServiceAudit, ConvergenceSample, FindingSink, Evaluation } from './reconcile.ts';
import { noItems, reconcile, wake } from './reconcile.ts';
import { isUnknown, isWithin, unknownOutputs } from './verdict.ts';

export interface ServiceAuditor {
  /** Takes in all that the snapshot holds, at the beginning. */
  begin(at: number): void;
  /**
   * The same in small steps, between which others may work; until the last the snapshot must not
   * change.
   */
  beginInSteps(at: number): Generator<undefined, void>;
  /**
   * Takes in one change, which the snapshot already holds; `late`: it happened before others that
   * were taken in.
   */
  apply(change: Change, late?: boolean): void;
  /** Notes that a version of an object could not be read, or that it can be again. */
  markUnreadable(unreadable: UnreadableObject, at: number): void;
  markReadable(lost: UnreadableObject, at: number): void;
  /** The same in small steps, as `beginInSteps`. */
  markUnreadableInSteps(lost: UnreadableObject, at: number): Generator<undefined, void>;
  markReadableInSteps(lost: UnreadableObject, at: number): Generator<undefined, void>;
  readonly audited: ReadonlyMap<Key, ServiceAudit>;
  /** What could not be read, each object once. */
  readonly lost: ReadonlyMap<string, UnreadableObject>;
  readonly listers: Listers;
  readonly settle: PendingFindings;
}

export interface ServiceAuditorOptions {
  readonly context: AuditContext;
  readonly settle: PendingFindings;
  onConvergence?(sample: ConvergenceSample): void;
  /** What is known of a Service, or of a name without one, may be another now. */
  onChange?(key: Key): void;
  /** What a change touched has been judged; called for each Service that it touched. */
  onEvaluated?(touch: WorkItem, change: Change): void;
}

interface State {
  readonly context: AuditContext;
  readonly onTouch: (key: Key) => void;
  readonly keeping: FindingSink;
  readonly records: Records;
  readonly audited: Map<Key, ServiceAudit>;
  /** Services that left addresses behind, by address, and the reverse. */
  readonly leftBehindAt: Map<string, Set<ServiceState>>;
  readonly leftBehindOf: Map<ServiceState, string[]>;
  /** Services with topology-mode Auto. */
  readonly auto: Set<ServiceState>;
  /** Services with slices of other managers, by namespace. */
  readonly foreign: Map<string, Set<ServiceState>>;
  readonly lost: Map<string, UnreadableObject>;
}

export function createServiceAuditor(options: ServiceAuditorOptions): ServiceAuditor {
  const { context, settle } = options;
  const state: State = {
    context,
    onTouch: (key) => options.onChange?.(key),
    keeping: {
      settle,
      release: context.release,
      onConvergence: (sample) => options.onConvergence?.(sample),
    },
    records: {
      context,
      get: (key) => state.audited.get(key)?.record,
      getOrCreate: (key) => auditedOf(state, key).record,
      leftBehindAt: (address) => state.leftBehindAt.get(address) ?? [],
      auto: () => state.auto,
      foreignIn: (namespace) => state.foreign.get(namespace) ?? [],
    },
    audited: new Map(),
    leftBehindAt: new Map(),
    leftBehindOf: new Map(),
    auto: new Set(),
    foreign: new Map(),
    lost: new Map(),
  };
  return {
    audited: state.audited,
    lost: state.lost,
    listers: context.listers,
    settle,
    begin(at) {
      finish(begin(state, at));
    },
    beginInSteps: (at) => begin(state, at),
    apply(change, late = false) {
      settle.advance(change.at);
      const gap = change.gap === true || late;
      for (const touch of enqueue(state.records, change)) {
        // Any unit may have been as expected in between.
        if (change.gap === true) touch.whole = true;
        evaluate(state, touch, change.at, gap);
        options.onEvaluated?.(touch, change);
      }
    },
    markUnreadable(lost, at) {
      finish(lose(state, lost, at));
    },
    markReadable(lost, at) {
      finish(regain(state, lost, at));
    },
    markUnreadableInSteps: (lost, at) => lose(state, lost, at),
    markReadableInSteps: (lost, at) => regain(state, lost, at),
  };
}

/** Work that can be interrupted after every step. */
type Steps = Generator<undefined, void>;

function finish(steps: Steps): void {
  while (steps.next().done !== true);
}

function* begin(state: State, at: number): Steps {
  yield* load(state);
  for (const of of state.audited.values()) {
    of.unknown = unknownOutputs(state.context.listers, of.record, state.lost.values());
    judgeWhole(state, of, { at, touch: createWorkItem(of.record), beginning: true, gap: false });
    index(state, of.record);
    state.onTouch(of.record.key);
    yield;
  }
}

function* lose(state: State, lost: UnreadableObject, at: number): Steps {
  state.lost.set(unreadableKey(lost), lost);
  yield* judgeLost(state, lost, at);
}

function* regain(state: State, lost: UnreadableObject, at: number): Steps {
  if (state.lost.delete(unreadableKey(lost))) yield* judgeLost(state, lost, at);
}

function auditedOf(state: State, key: Key, service?: Service): ServiceAudit {
  const known = state.audited.get(key);
  if (known !== undefined) return known;
  const record = createServiceState(key, service);
  const unknown = unknownOutputs(state.context.listers, record, state.lost.values());
  const made: ServiceAudit = { record, items: noItems, unknown, regime: -1 };
  state.audited.set(key, made);
  return made;
}

function* load(state: State): Steps {
  const { context } = state;
  const { listers } = context;
  for (const service of listers.services.values()) {
    // Without its pods at first: going through the pods once is cheaper than once per Service.
    setService(context, auditedOf(state, service.key, service).record, service, []);
    yield;
  }
  for (const pod of listers.pods.values()) {
    for (const { key } of listers.servicesSelecting(pod.namespace, pod.labels)) {
      addPod(context, auditedOf(state, key).record, pod);
    }
    yield;
  }
  for (const { record } of state.audited.values()) trimMembers(record);
  for (const endpoints of listers.endpoints.values()) {
    setEndpoints(auditedOf(state, endpoints.key).record, endpoints);
    yield;
  }
  for (const slice of listers.slices.values()) {
    for (const record of recordsNamed(state.records, slice)) addSlice(record, slice);
    yield;
  }
}

/** So many addresses are looked up; for more, each of which would walk a slice, all are spread. */
const spreadFrom = 1000;

function evaluate(state: State, touch: WorkItem, at: number, gap: boolean): void {
  const { record } = touch;
  const of = auditedOf(state, record.key);
  const occasion: Evaluation = { at, touch, beginning: false, gap };
  wake(state.keeping, of, touch.wakes, at);
  const regime = regimeOf(state, record);
  // What was touched may be gone, so that the whole Service would not come upon it.
  const isSpread = touch.addresses.size > spreadFrom;
  if (isSpread) spreadSlices(state.context.listers, record);
  for (const address of touch.addresses) judgeAddress(state, of, address, occasion);
  if (isSpread) record.entries = null;
  for (const slice of touch.slices) judgeOneSlice(state, of, slice, occasion);
  touch.whole ||= regime !== of.regime;
  if (touch.whole) judgeWhole(state, of, occasion);
  else {
    if (touch.writes.size > 0) judgeMirror(state, of, occasion);
    judgeOutputs(state, of, occasion);
  }
  index(state, record);
  if (isEmpty(record) && of.items.size === 0) state.audited.delete(record.key);
  state.onTouch(record.key);
}

/** What a judge finds, nothing where the output cannot be judged. */
function judged(of: ServiceAudit, output: Output, judge: () => Difference[]): Difference[] {
  return isUnknown(of.unknown, output) ? [] : judge();
}

const none: readonly Difference[] = [];

function judgeAddress(state: State, of: ServiceAudit, address: string, occasion: Evaluation): void {
  const { context, keeping } = state;
  const { record } = of;
  const judges = (output: Output): boolean => !isUnknown(of.unknown, output);
  const endpoints = judges('endpoints') ? judgeEndpointsAddress(context, record, address) : none;
  const slices = judges('endpointslices') ? judgeSliceAddress(context, record, address) : none;
  const input = judgeInputAddress(context, record, address);
  if (of.items.size + endpoints.length + slices.length + input.length === 0) return;
  reconcile(keeping, of, `endpoints ${address}`, endpoints, occasion);
  reconcile(keeping, of, `endpointslices ${address}`, slices, occasion);
  reconcile(keeping, of, `input ${address}`, input, occasion);
}

function judgeOneSlice(
  { context, keeping }: State,
  of: ServiceAudit,
  slice: EndpointSlice,
  occasion: Evaluation,
): void {
  const { record } = of;
  // A slice that went, or names another Service now, leaves no differences behind.
  const found = record.slices.includes(slice)
    ? judged(of, 'endpointslices', () => judgeSlice(context, record, slice))
    : [];
  reconcile(keeping, of, `slice ${slice.name}`, found, occasion);
}

function judgeMirror({ context, keeping }: State, of: ServiceAudit, occasion: Evaluation): void {
  const found = judged(of, 'mirrored', () => judgeMirrored(context, of.record));
  reconcile(keeping, of, 'mirrored', found, occasion);
}

/** What is true of the outputs altogether; cheap, so that every touch judges it. */
function judgeOutputs({ context, keeping }: State, of: ServiceAudit, occasion: Evaluation): void {
  const { record } = of;
  const endpoints = judged(of, 'endpoints', () => judgeEndpoints(context, record));
  reconcile(keeping, of, 'endpoints', endpoints, occasion);
  const slices = judged(of, 'endpointslices', () => judgeSlices(context, record));
  reconcile(keeping, of, 'endpointslices', slices, occasion);
  reconcile(keeping, of, 'input', judgeInput(context, record), occasion);
}

/** What bears on every address of a Service: truncation, wedges, and pods that make syncs fail. */
function regimeOf({ context }: State, record: ServiceState): number {
  const truncated = truncationOf(record) !== null;
  const wedged = isWedged(context.listers, record);
  const { nodeless, stranded } = record;
  return (
    Number(truncated) + 2 * Number(nodeless > 0) + 4 * Number(stranded > 0) + 8 * Number(wedged)
  );
}

function judgeWhole(state: State, of: ServiceAudit, occasion: Evaluation): void {
  const { record } = of;
  of.regime = regimeOf(state, record);
  const listed = buildIndex(record);
  spreadSlices(state.context.listers, record);
  for (const address of listed.keys()) judgeAddress(state, of, address, occasion);
  for (const address of unlistedAddresses(of)) judgeAddress(state, of, address, occasion);
  record.entries = null;
  dropIndex(record);
  for (const slice of record.slices) judgeOneSlice(state, of, slice, occasion);
  judgeMirror(state, of, occasion);
  judgeOutputs(state, of, occasion);
}

/** Addresses besides those that the Endpoints list, at which something stands or must stand. */
function unlistedAddresses({ record, items }: ServiceAudit): Set<string> {
  const { listed, entries, members } = record;
  const addresses = new Set<string>();
  const add = (address: string): void => {
    if (listed?.has(address) !== true) addresses.add(address);
  };
  for (const ofRole of entries?.values() ?? []) for (const address of ofRole.keys()) add(address);
  for (const { ips } of members) for (const ip of ips) add(canonicalIP(ip));
  for (const unit of items.keys()) {
    const [kind, address] = unit.split(' ');
    if (address !== undefined && kind !== 'slice') add(address);
  }
  return addresses;
}

/** Keeps the indexes by which pods and Nodes find Services that do not select them. */
function index(state: State, record: ServiceState): void {
  const { context, auto, leftBehindAt, leftBehindOf } = state;
  const { service } = record;
  if (service !== null && hintMode(service, context.release) === 'auto') auto.add(record);
  else auto.delete(record);
  indexForeign(state, record);
  const addresses = [...leftBehindAddresses(context, record).keys()];
  const before = leftBehindOf.get(record);
  if (addresses.length === 0 && before === undefined) return;
  for (const address of before ?? []) {
    const there = leftBehindAt.get(address);
    there?.delete(record);
    if (there?.size === 0) leftBehindAt.delete(address);
  }
  leftBehindOf.delete(record);
  if (addresses.length > 0) leftBehindOf.set(record, addresses);
  for (const address of addresses) {
    leftBehindAt.set(address, (leftBehindAt.get(address) ?? new Set()).add(record));
  }
}

function indexForeign({ context, foreign }: State, record: ServiceState): void {
  const { namespace } = record;
  const there = foreign.get(namespace);
  const isForeign = slicesOf(context.listers, record, 'foreign').length > 0;
  if (isForeign) foreign.set(namespace, (there ?? new Set()).add(record));
  else if (there?.delete(record) === true && there.size === 0) foreign.delete(namespace);
}

/** Judges anew the Services of which something became unknown, or known again. */
function* judgeLost(state: State, lost: UnreadableObject, at: number): Steps {
  for (const of of state.audited.values()) {
    const { record } = of;
    if (!isWithin(lost, record)) continue;
    const unknown = unknownOutputs(state.context.listers, record, state.lost.values());
    const same =
      unknown.size === of.unknown.size &&
      [...unknown].every(([output, reason]) => of.unknown.get(output) === reason);
    of.unknown = unknown;
    if (same) continue;
    judgeWhole(state, of, { at, touch: createWorkItem(record), beginning: true, gap: false });
    state.onTouch(record.key);
    yield;
  }
}
