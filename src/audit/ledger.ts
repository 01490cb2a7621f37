// The ledger of a cluster under audit: what was judged of each Service, and since when. It follows a
// snapshot one change at a time.
//
//   change ─► touched units of touched Services ─► judge (pure) ─► differences that came and went
//                                                                    │                │
//                                             settle: pending ─► finding      lag: input ─► output
//
// It also knows what no snapshot shows: which event made a difference. If that event wakes nobody
// upstream (shadow/wake.ts), or if the object itself changed while its input did not, the difference
// has a cause; a later event that wakes the controller ends that excuse and starts the clock anew.
// Differences that stand already when the ledger begins have no history: there, the conditions of
// the catalogue stand in, and the cause is marked as not proven.

import { canonicalIP } from '../model/ip.ts';
import type { Change, EndpointSlice, Key } from '../model/objects.ts';
import { hintMode } from '../shadow/hints.ts';
import type { Difference } from './compare.ts';
import { judgeEndpoints, judgeEndpointsAddress } from './endpoints.ts';
import { judgeSlice, judgeSliceAddress, judgeSlices } from './endpointslices.ts';
import type { Cause, Output } from './findings.ts';
import { catalogue } from './findings.ts';
import { judgeInput, judgeInputAddress, leftBehindAddresses } from './input.ts';
import { judgeMirrored } from './mirrored.ts';
import type { Context, ServiceRecord } from './service.ts';
import { addSlice, countPod, createRecord, isEmpty, setEndpoints, setService } from './service.ts';
import type { Item, Settle } from './settle.ts';
import type { Records, Touch, Written } from './touch.ts';
import { recordsNamed, touchedBy, touchOf } from './touch.ts';
import type { Lost, Unknown } from './verdict.ts';
import { isUnjudged, unknownOf } from './verdict.ts';

/** How long an output took to follow its input, at one address or in one object. */
export interface ConvergenceSample {
  readonly output: Written;
  readonly operation: 'add' | 'remove' | 'update';
  readonly seconds: number;
  readonly at: number;
}

/** A Service with what was judged of it. */
export interface Audited {
  readonly record: ServiceRecord;
  /** Differences that stand, by unit; units without any are absent. */
  readonly items: Map<string, Item[]>;
  /** Why an output cannot be judged. */
  unknown: ReadonlyMap<Output, Unknown>;
}

export interface Ledger {
  /** Takes in all that the snapshot holds, at the beginning. */
  begin(at: number): void;
  /** Takes in one change, which the snapshot already holds. */
  apply(change: Change): void;
  /** Notes that a version of an object could not be read, or that it can be again. */
  lose(lost: Lost, at: number): void;
  regain(lost: Lost, at: number): void;
  readonly audited: ReadonlyMap<Key, Audited>;
  readonly settle: Settle;
}

export interface LedgerOptions {
  readonly context: Context;
  readonly settle: Settle;
  onConvergence?(sample: ConvergenceSample): void;
}

const operations = { missing: 'add', unexpected: 'remove', different: 'update' } as const;

/** Blind spots in which upstream merely sleeps: nobody edited, and the next event cures. */
const asleep: readonly (Cause | null)[] = [
  'pod-phase-unnoticed',
  'pod-change-unnoticed',
  'node-change-unnoticed',
];

/** Whether a difference is information: upstream was seen to sleep, and no traffic suffers. */
function isQuiet(difference: Difference, cause: Cause | null, proven: boolean): boolean {
  return difference.quiet && proven && asleep.includes(cause);
}

/** What an evaluation is about: when, by which touch, or at the beginning. */
interface Occasion {
  readonly at: number;
  readonly touch: Touch;
  readonly beginning: boolean;
}

export function createLedger(options: LedgerOptions): Ledger {
  const { context, settle } = options;
  const { snapshot } = context;
  const audited = new Map<Key, Audited>();
  const leftBehindAt = new Map<string, Set<ServiceRecord>>();
  const leftBehindOf = new Map<ServiceRecord, string[]>();
  const auto = new Set<ServiceRecord>();
  const lostObjects = new Map<string, Lost>();

  const records: Records = {
    context,
    get: (key) => audited.get(key)?.record,
    getOrCreate: (key) => auditedOf(key).record,
    leftBehindAt: (address) => leftBehindAt.get(address) ?? [],
    auto: () => auto,
  };

  function auditedOf(key: Key): Audited {
    const known = audited.get(key);
    if (known !== undefined) return known;
    const record = createRecord(key);
    const made: Audited = { record, items: new Map(), unknown: new Map() };
    made.unknown = unknownOf(snapshot, record, lostObjects.values());
    audited.set(key, made);
    return made;
  }

  /** Brings the standing differences of one unit in line with what was found now. */
  function reconcile(of: Audited, unit: string, found: Difference[], occasion: Occasion): void {
    const before = of.items.get(unit) ?? [];
    if (before.length === 0 && found.length === 0) return;
    const after: Item[] = [];
    const left = [...before];
    const fresh: Difference[] = [];
    for (const difference of found) {
      const index = left.findIndex(
        (item) =>
          item.difference.code === difference.code &&
          item.difference.subject === difference.subject,
      );
      const known = index < 0 ? undefined : left.splice(index, 1)[0];
      if (known === undefined) fresh.push(difference);
      else after.push(carryOn(of, known, difference, occasion));
    }
    // An address that was wrong one way and is wrong another has been wrong all the time.
    const continued = unit.includes(' ') ? left : [];
    const since = continued.reduce((least, item) => Math.min(least, item.since), occasion.at);
    for (const difference of fresh) after.push(start(of, difference, before, since, occasion));
    for (const item of left) end(item, fresh.length === 0, occasion);
    if (after.length === 0) of.items.delete(unit);
    else of.items.set(unit, after);
  }

  function start(
    of: Audited,
    difference: Difference,
    standing: readonly Item[],
    since: number,
    occasion: Occasion,
  ): Item {
    const { at, touch, beginning } = occasion;
    const { output, severity } = catalogue[difference.code];
    const writes = touch.writes.has(output as Written);
    const seen = beginning ? null : causeOf(touch, output, writes, standing);
    const cause = difference.cause ?? (beginning ? difference.likelyCause : seen);
    const proven = cause !== null && (difference.cause !== null || !beginning);
    const item: Item = {
      difference,
      output,
      severity: difference.severity ?? (isQuiet(difference, cause, proven) ? 'info' : severity),
      cause,
      proven,
      causeAt: at,
      since,
      byInput: !beginning && !writes,
      openedAt: null,
      gone: false,
    };
    settle.watch(item, of.record.namespace, of.record.name, at);
    return item;
  }

  /** The cause that history shows: the unit was as expected, and then this happened. */
  function causeOf(
    touch: Touch,
    output: Output,
    writes: boolean,
    standing: readonly Item[],
  ): Cause | null {
    if (output === 'input') return null;
    const inherited = standing[0]?.cause ?? null;
    if (standing.length > 0) return standing.every((item) => item.cause !== null) ? inherited : null;
    if (!writes) return touch.woken.has(output as Written) ? null : touch.blind;
    const repaired = output === 'mirrored' && context.release.mirrorRepairsEdits;
    return output === 'mirrored' && !repaired ? 'hand-edited' : touch.unseen;
  }

  /** A difference that stood before and stands still; what is expected or actual may have moved. */
  function carryOn(of: Audited, item: Item, difference: Difference, occasion: Occasion): Item {
    const { at, touch } = occasion;
    // Input and output that changed at one moment leave open which came first: then the object
    // itself is the evidence of who wrote it last.
    const likely = touch.writes.size > 0 && item.causeAt === at ? difference.likelyCause : null;
    const cause = difference.cause ?? item.cause ?? likely;
    const proven = item.proven || cause !== item.cause;
    const usual = isQuiet(difference, cause, proven)
      ? 'info'
      : catalogue[difference.code].severity;
    const severity = difference.severity ?? usual;
    if (cause !== item.cause) {
      return again(of, { ...item, difference, severity, cause, proven }, item, item.since, at);
    }
    item.difference = difference;
    if (severity !== item.severity) {
      item.severity = severity;
      settle.reweigh(item);
    }
    return item;
  }

  /** Replaces an item by one that belongs to another finding, with a clock that starts at `since`. */
  function again(of: Audited, next: Item, item: Item, since: number, at: number): Item {
    settle.drop(item, at);
    next.since = since;
    next.openedAt = null;
    next.gone = false;
    settle.watch(next, of.record.namespace, of.record.name, at);
    return next;
  }

  /** `healed`: the unit is as expected now, and not just wrong in another way. */
  function end(item: Item, healed: boolean, { at, touch }: Occasion): void {
    settle.drop(item, at);
    const output = item.output as Written;
    if (!healed || !item.byInput || item.severity === 'info' || !touch.writes.has(output)) return;
    const operation = operations[catalogue[item.difference.code].difference];
    options.onConvergence?.({ output, operation, seconds: at - item.since, at });
  }

  /** A wake ends every excuse that is older, and starts the clock of what it excused. */
  function wake(of: Audited, woken: ReadonlySet<Written>, at: number): void {
    if (woken.size === 0 || of.items.size === 0) return;
    for (const [unit, items] of of.items) {
      const next = items.map((item) => {
        const excused = item.cause !== null && item.difference.cause === null;
        if (!excused || item.causeAt >= at || !woken.has(item.output as Written)) return item;
        return again(of, { ...item, cause: null, proven: false, byInput: true }, item, at, at);
      });
      of.items.set(unit, next);
    }
  }

  function judgeAddress(of: Audited, address: string, occasion: Occasion): void {
    const { record } = of;
    const judged = (output: Output): boolean => !isUnjudged(of.unknown, output);
    const ep = judged('endpoints') ? judgeEndpointsAddress(context, record, address) : [];
    reconcile(of, `endpoints ${address}`, ep, occasion);
    const eps = judged('endpointslices') ? judgeSliceAddress(context, record, address) : [];
    reconcile(of, `endpointslices ${address}`, eps, occasion);
    reconcile(of, `input ${address}`, judgeInputAddress(context, record, address), occasion);
  }

  function judgeOneSlice(of: Audited, slice: EndpointSlice, occasion: Occasion): void {
    const here = of.record.slices.has(slice) && !isUnjudged(of.unknown, 'endpointslices');
    const found = here ? judgeSlice(context, of.record, slice) : [];
    reconcile(of, `slice ${slice.name}`, found, occasion);
  }

  /** What is true of the outputs altogether; cheap, so that every touch judges it. */
  function judgeOutputs(of: Audited, occasion: Occasion): void {
    const { record } = of;
    const judged = (output: Output): boolean => !isUnjudged(of.unknown, output);
    const ep = judged('endpoints') ? judgeEndpoints(context, record) : [];
    reconcile(of, 'endpoints', ep, occasion);
    const eps = judged('endpointslices') ? judgeSlices(context, record) : [];
    reconcile(of, 'endpointslices', eps, occasion);
    reconcile(of, 'input', judgeInput(context, record), occasion);
  }

  function judgeWhole(of: Audited, occasion: Occasion): void {
    const { record } = of;
    const addresses = new Set([...record.listed.keys(), ...record.slicesAt.keys()]);
    for (const key of record.members.keys()) {
      for (const ip of snapshot.pods.get(key)?.ips ?? []) addresses.add(canonicalIP(ip));
    }
    for (const unit of of.items.keys()) {
      const [kind, address] = unit.split(' ');
      if (address !== undefined && kind !== 'slice') addresses.add(address);
    }
    for (const address of addresses) judgeAddress(of, address, occasion);
    for (const slice of record.slices) judgeOneSlice(of, slice, occasion);
    reconcile(of, 'mirrored', judgedMirror(of), occasion);
    judgeOutputs(of, occasion);
  }

  function judgedMirror(of: Audited): Difference[] {
    return isUnjudged(of.unknown, 'mirrored') ? [] : judgeMirrored(context, of.record);
  }

  function evaluate(touch: Touch, at: number): void {
    const { record } = touch;
    const of = auditedOf(record.key);
    const occasion: Occasion = { at, touch, beginning: false };
    wake(of, touch.woken, at);
    if (touch.whole) judgeWhole(of, occasion);
    else {
      for (const address of touch.addresses) judgeAddress(of, address, occasion);
      for (const slice of touch.slices) judgeOneSlice(of, slice, occasion);
      if (touch.writes.size > 0) reconcile(of, 'mirrored', judgedMirror(of), occasion);
      judgeOutputs(of, occasion);
    }
    index(record);
    if (isEmpty(record) && of.items.size === 0) audited.delete(record.key);
  }

  /** Keeps the indexes by which pods and Nodes find Services that do not select them. */
  function index(record: ServiceRecord): void {
    const { service } = record;
    const isAuto = service !== null && hintMode(service, context.release) === 'auto';
    if (isAuto) auto.add(record);
    else auto.delete(record);
    const addresses = [...leftBehindAddresses(context, record).keys()];
    const before = leftBehindOf.get(record);
    if (addresses.length === 0 && before === undefined) return;
    for (const address of before ?? []) leftBehindAt.get(address)?.delete(record);
    leftBehindOf.delete(record);
    if (addresses.length > 0) leftBehindOf.set(record, addresses);
    for (const address of addresses) {
      const there = leftBehindAt.get(address) ?? new Set();
      leftBehindAt.set(address, there.add(record));
    }
  }

  function loadAll(): void {
    for (const service of snapshot.services.values()) {
      // Without its pods at first: going through the pods once is cheaper than once per Service.
      setService(context, auditedOf(service.key).record, service, []);
    }
    for (const pod of snapshot.pods.values()) {
      for (const { key } of snapshot.servicesSelecting(pod.namespace, pod.labels)) {
        countPod(context, auditedOf(key).record, pod.key);
      }
    }
    for (const endpoints of snapshot.endpoints.values()) {
      setEndpoints(auditedOf(endpoints.key).record, endpoints);
    }
    for (const slice of snapshot.slices.values()) {
      for (const record of recordsNamed(records, slice)) addSlice(record, slice);
    }
  }

  function judgeLost(lost: Lost, at: number): void {
    for (const of of audited.values()) {
      if (of.record.namespace !== lost.namespace && lost.namespace !== null) continue;
      of.unknown = unknownOf(snapshot, of.record, lostObjects.values());
      judgeWhole(of, { at, touch: touchOf(of.record), beginning: true });
    }
  }

  const lostKey = ({ resource, namespace, name }: Lost): string =>
    `${resource} ${namespace ?? ''}/${name ?? ''}`;

  return {
    audited,
    settle,
    begin(at) {
      loadAll();
      for (const of of audited.values()) {
        of.unknown = unknownOf(snapshot, of.record, lostObjects.values());
        judgeWhole(of, { at, touch: touchOf(of.record), beginning: true });
        index(of.record);
      }
    },
    apply(change) {
      settle.advance(change.at);
      for (const touch of touchedBy(records, change)) evaluate(touch, change.at);
    },
    lose(lost, at) {
      lostObjects.set(lostKey(lost), lost);
      judgeLost(lost, at);
    },
    regain(lost, at) {
      if (lostObjects.delete(lostKey(lost))) judgeLost(lost, at);
    },
  };
}
