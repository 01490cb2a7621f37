// Reconciles the known differences of one unit with those that an evaluation found.
//
// A change after which a unit differs is the cause if it wakes no controller
// (shadow/event-handlers.ts) or wrote the object itself, until a later wake, and if it makes such a
// difference (finding/causes.ts). Without history the comparison suggests a cause, which is only
// likely. A difference continues the clock of one that it replaces only if both are the same
// trouble (docs/decisions/0002-settle-window-per-address.md).

import type { Code, Output, Severity } from '../finding/catalogue.ts';
import { catalogue, severities } from '../finding/catalogue.ts';
import { type Cause, explains } from '../finding/causes.ts';
import type { Difference } from '../finding/difference.ts';
import type { UnknownReason } from '../finding/verdicts.ts';
import {
  type MissedChanges,
  type PendingDifference,
  type PendingFindings,
  refreshClock,
} from '../pending/pending.ts';
import type { AuditContext, ServiceState } from './cache.ts';
import type { ServiceOutput, WorkItem } from './enqueue.ts';
import { changedFields, type ObjectChange } from './object-changes.ts';

export interface ServiceDifference extends PendingDifference {
  /** Whether the state of the input shows the cause, which ends with that state. */
  readonly shown: boolean;
  readonly proven: boolean;
  readonly causeAt: number;
  /** Whether a change of the input made the difference, so that its end is a sample of lag. */
  byInput: boolean;
  readonly operation: Operation;
  /** The changes that made it what it is, oldest first, at most `mostChanges`. */
  changes: readonly ObjectChange[];
  /** When the change of the input came, or a later event that woke the controller. */
  readonly lateSince: number;
  lesser: readonly ServiceDifference[];
}

export interface ConvergenceSample {
  readonly output: ServiceOutput | 'node';
  readonly operation: Operation;
  readonly namespace: string;
  readonly service: string;
  /** `null` for outputs that belong to no node. */
  readonly node: string | null;
  readonly seconds: number;
  readonly at: number;
  /** It came in a list or just after a lost watch, so the time of the write is unknown. */
  readonly isListed?: boolean;
}

export type Unit = readonly [Output | 'slice', addressOrName?: string];

/** `null` if the unit of the key is no address. */
export function unitAddress(key: string): string | null {
  const [kind, address] = key.split(' ');
  return kind === 'slice' ? null : (address ?? null);
}

export interface ServiceAudit {
  readonly record: ServiceState;
  /** By the key of the unit; units without differences are absent. */
  items: Map<string, ServiceDifference[]>;
  /** The units with differences whose causes a wake may clear. */
  excused: Set<string>;
  /** `null` before the first difference. */
  missed: MissedChanges | null;
  unknown: ReadonlyMap<Output, UnknownReason>;
  /** What affects every unit: when it changes, all are evaluated again. */
  regime: number;
}

export interface Evaluation {
  readonly sink: FindingSink;
  readonly audit: ServiceAudit;
  readonly at: number;
  readonly item: WorkItem;
  /** No history is known: the start, or the end of a time in which the output was unknown. */
  readonly beginning: boolean;
  /** Changes were missed, so the order of what happened is not known. */
  readonly gap: boolean;
  /** Differences whose cause the event has ended, as `wake` left them. */
  readonly cleared: ServiceDifference[];
}

/** The evaluation of one unit, with the differences that it had. */
interface UnitEvaluation extends Evaluation {
  readonly unit: Unit;
  readonly existing: readonly ServiceDifference[];
}

export interface FindingSink {
  readonly context: AuditContext;
  readonly settle: PendingFindings;
  onConvergence?(sample: ConvergenceSample): void;
}

/** The items of a Service without differences. Shared, since most Services have none. */
export const noItems = new Map<string, ServiceDifference[]>();
export const noneExcused = new Set<string>();

const operations = { missing: 'add', unexpected: 'remove', different: 'update' } as const;
export type Operation = (typeof operations)[keyof typeof operations];

/** What ends a difference of this code. */
export const operationOf = (code: Code): Operation => operations[catalogue[code].difference];

/** Severity by the effect on traffic: `info` for a quiet difference with a proven blind spot. */
function severityOf(difference: Difference, cause: Cause | null, proven: boolean): Severity {
  if (difference.severity !== null) return difference.severity;
  const isQuiet = difference.quiet && proven && cause?.endsWith('-unnoticed') === true;
  return isQuiet ? 'info' : catalogue[difference.code].severity;
}

/** Whether two differences of one unit are the same one at two times. */
export const isSame = (a: Difference, b: Difference): boolean =>
  a.code === b.code && a.subject === b.subject;

/** Replaces the known differences of one unit by those that an evaluation found. */
export function reconcile(evaluation: Evaluation, unit: Unit, found: readonly Difference[]): void {
  const { sink, audit, at, gap } = evaluation;
  if (found.length === 0 && audit.items.size === 0) return;
  // The name of an output as a whole has no space.
  const key = unit.join(' ');
  const existing = audit.items.get(key) ?? [];
  if (existing.length === 0 && found.length === 0) return;
  for (const item of existing) refreshClock(item);
  const evaluated = { ...evaluation, unit, existing };
  const after: ServiceDifference[] = [];
  const left = [...existing];
  const fresh: Difference[] = [];
  for (const difference of found) {
    const index = left.findIndex((item) => isSame(item.difference, difference));
    const known = index < 0 ? undefined : left.splice(index, 1)[0];
    if (known === undefined) fresh.push(difference);
    else after.push(carryOn(evaluated, known, difference));
  }
  // An address or slice is as expected only if it has no difference at all.
  const isOneThing = unit.length > 1;
  for (const difference of fresh) {
    const { subject } = difference;
    const replaced = left.filter(
      (item) => isOneThing || (subject !== '' && item.difference.subject === subject),
    );
    const known = gap ? [] : replaced;
    const item = createItem(evaluated, difference, known);
    // Nothing writes the input, so each of its differences has a clock of its own.
    if (isOneThing && item.output !== 'input') Object.assign(item, continuedClock(item, known));
    sink.settle.watch(item, audit.record.namespace, audit.record.name, at);
    after.push(item);
  }
  for (const item of left) {
    const { subject } = item.difference;
    const goesOn = fresh.some((difference) => isOneThing || difference.subject === subject);
    end(evaluation, item, !goesOn);
  }
  setItems(audit, key, after);
}

/** Replaces the differences of a unit, also in the index of those that a wake may clear. */
export function setItems(audit: ServiceAudit, key: string, items: ServiceDifference[]): void {
  if (items.some(isExcused)) {
    if (audit.excused === noneExcused) audit.excused = new Set();
    audit.excused.add(key);
  } else audit.excused.delete(key);
  if (items.length === 0) {
    audit.items.delete(key);
    return;
  }
  if (audit.items === noItems) audit.items = new Map();
  audit.items.set(key, items);
}

/** Whether it has a cause that its input does not show: a wake of the controller ends it. */
const isExcused = ({ cause, shown }: ServiceDifference): boolean => cause !== null && !shown;

/** Restarts the clocks of the pending differences that missed changes may hide the end of. */
export function markMissed(
  audit: ServiceAudit,
  { writes }: Pick<WorkItem, 'writes'>,
  at: number,
): void {
  const { missed, items } = audit;
  if (missed === null || items.size === 0) return;
  // A sweep has the time at which its list was complete, and other events may have come since.
  const isEarlier = [...missed.latest.values()].some((it) => it.at > at);
  if (isEarlier) refreshClocks(audit);
  const count = ++missed.count;
  for (const output of missableOutputs) {
    if (isHidden(output, writes)) missed.latest.set(output, { at, count });
  }
}

const missableOutputs: readonly Output[] = ['endpoints', 'endpointslices', 'mirrored', 'input'];

/** Takes missed changes into account in all clocks of a Service. */
export function refreshClocks({ items }: ServiceAudit): void {
  for (const unit of items.values()) for (const item of unit) refreshClock(item);
}

/** The most seconds from an event to the write that answers it. */
const lateWrite = 60;

/** Whether traffic goes where it must, although something else is wrong. */
const isMetadata = (code: Code): boolean =>
  catalogue[code].difference === 'different' && !/-(readiness|conditions|ports)-/.test(code);

/** Harm to traffic, most harm first: the severity, then whether it goes where it must. */
const harmRank = ({ severity, difference: { code } }: PendingDifference): number =>
  2 * severities.indexOf(severity) + (isMetadata(code) ? 1 : 0);

const newClock = (at: number) => ({ since: at, unseen: 0, lesser: [] });

/** The clock that another difference may continue: not from before its end may have been missed. */
const certainClock = ({ since, unseen }: ServiceDifference, doubtedAt = -Infinity) =>
  since < doubtedAt ? { since: doubtedAt, unseen: 0 } : { since, unseen };

/** The clock of a new difference: that of the oldest with the same cause and no less harm. */
function continuedClock(item: ServiceDifference, replaced: readonly ServiceDifference[]) {
  const known = replaced
    .flatMap((it) =>
      [it, ...it.lesser].map((known) => ({ ...known, ...certainClock(known, it.doubtedAt) })),
    )
    .filter(({ cause }) => cause === item.cause)
    .sort((a, b) => a.since - b.since);
  const isLesser = (it: ServiceDifference): boolean => harmRank(it) > harmRank(item);
  const { since, unseen } = known.find((it) => !isLesser(it)) ?? item;
  return { since, unseen, lesser: known.filter(isLesser) };
}

/** A new difference, which continues the lag and the clock of those that it replaces. */
function createItem(
  evaluation: UnitEvaluation,
  difference: Difference,
  replaced: readonly ServiceDifference[],
): ServiceDifference {
  const { audit, at, item, beginning, gap } = evaluation;
  const { output } = catalogue[difference.code];
  audit.missed ??= { count: 0, latest: new Map() };
  const isWrite = item.writes.has(output as ServiceOutput);
  const seen = beginning ? null : causeOf(evaluation, difference);
  // Endpoints that the API server refuses to the controller were written by another client.
  const isFrozen = isWrite && seen !== null && difference.cause === 'pod-without-node';
  const known = (isFrozen ? null : difference.cause) ?? seen;
  const cause = known ?? difference.hindrance ?? (beginning || gap ? difference.likelyCause : null);
  // The controller itself may answer an event late, with what is no longer as expected.
  const isDoubtful = isWrite && known === seen && (gap || at - audit.record.wokenAt <= lateWrite);
  const proven = known !== null && !isDoubtful;
  // No controller is late with what has another cause, or with what does no harm.
  const [first] = replaced
    .filter((it) => it.cause === cause && it.severity !== 'info')
    .sort((a, b) => a.lateSince - b.lateSince);
  return {
    difference,
    output,
    severity: severityOf(difference, cause, proven),
    cause,
    shown: cause !== null && (cause === difference.cause || cause === difference.hindrance),
    proven,
    causeAt: at,
    ...newClock(at),
    lateSince: first?.lateSince ?? at,
    // A controller that writes in several steps responds to the change before the first of them.
    byInput: first?.byInput ?? (!beginning && !isWrite),
    changes: changesOf(evaluation, first?.changes),
    operation: first?.operation ?? operationOf(difference.code),
    openedAt: null,
    gone: false,
    missed: audit.missed,
    missedCount: audit.missed.count,
  };
}

function causeOf(evaluation: UnitEvaluation, { code }: Difference): Cause | null {
  const { sink, item, existing } = evaluation;
  const { output } = catalogue[code];
  if (output === 'input' || output === 'node') return null;
  // What differed without a cause may differ for the same reason still.
  if (existing.some(({ cause }) => cause === null)) return null;
  const { release } = sink.context;
  const edited = output === 'mirrored' && !release.mirrorRepairsEdits ? 'hand-edited' : item.unseen;
  const asleep = item.wakes.has(output) ? null : (item.blindSpot ?? existing[0]?.cause ?? null);
  const cause = item.writes.has(output) ? edited : asleep;
  const isClaimed = cause !== null && !isElsewhere(evaluation) && explains(cause, code);
  return isClaimed ? cause : null;
}

/** After a gap the whole Service is compared, but a change of a pod affects its own addresses. */
function isElsewhere({ gap, item: { addresses }, unit: [, address] }: UnitEvaluation): boolean {
  return gap && address !== undefined && addresses.size > 0 && !addresses.has(address);
}

const mostChanges = 8;
const noChanges: readonly ObjectChange[] = [];

/** The changes that made a difference: of those before, the first and the last ones, and this. */
function changesOf(
  evaluation: UnitEvaluation,
  before: readonly ObjectChange[] = noChanges,
): readonly ObjectChange[] {
  const { item, audit } = evaluation;
  if (item.change === null || isElsewhere(evaluation)) return before;
  item.changes ??= changedFields(item.change, audit.record.service?.selector ?? null);
  if (before.length === 0) return item.changes;
  const all = [...before, ...item.changes.filter((change) => !before.includes(change))];
  return all.length > mostChanges ? [...all.slice(0, 1), ...all.slice(1 - mostChanges)] : all;
}

/** Whether missed changes may hide the end of a difference: a write hides only its own output. */
function isHidden(output: Output, writes: WorkItem['writes']): boolean {
  if (writes.size === 0 || (output !== 'endpoints' && output !== 'endpointslices')) return true;
  return writes.has(output);
}

function carryOn(evaluation: UnitEvaluation, item: ServiceDifference, difference: Difference) {
  const { sink, at, gap, item: work, cleared } = evaluation;
  const likely = gap && cleared.includes(item) ? difference.likelyCause : null;
  const kept = item.shown ? null : item.cause;
  // A change that wakes no controller may end what the input showed as the cause.
  const isWoken = item.output === 'input' || work.wakes.has(item.output as ServiceOutput);
  const isEnded = item.shown && item.cause !== difference.hindrance;
  const asleep = isEnded && !isWoken ? work.blindSpot : null;
  const known = kept ?? difference.cause ?? asleep;
  const cause = known ?? difference.hindrance ?? likely;
  const isOtherCause = cause !== item.cause;
  const proven = isOtherCause ? known !== null : item.proven;
  const severity = severityOf(difference, cause, proven);
  const { expected, actual } = item.difference;
  if (difference.expected !== expected || difference.actual !== actual) {
    item.changes = changesOf(evaluation, item.changes);
  }
  const isDoubted = gap && isHidden(item.output, work.writes) && item.since < at;
  const isMissed = isDoubted && item.openedAt === null;
  if (isDoubted && !isMissed) item.doubtedAt = at;
  // What did no harm, or had a cause that is gone: the controller has the full window from now on.
  const isRestarted =
    (item.severity === 'info' && severity !== 'info') ||
    (isOtherCause && item.shown && cause === null);
  if (!isOtherCause && !isRestarted && !isMissed) {
    item.difference = difference;
    item.severity = severity;
    sink.settle.update(item);
    return item;
  }
  const next: ServiceDifference = { ...item, difference, severity };
  if (isOtherCause) {
    const shown = cause !== null && (cause === difference.cause || cause === difference.hindrance);
    Object.assign(next, { cause, shown, proven, causeAt: at });
  }
  if (isRestarted) Object.assign(next, { ...newClock(at), lateSince: at });
  // The difference may have ended in between, so that its end is no measure of lag.
  if (isMissed) Object.assign(next, { ...newClock(at), byInput: false });
  return restart(evaluation, next, item);
}

function restart(
  { sink: { settle }, audit: { record }, at }: Evaluation,
  next: ServiceDifference,
  item: ServiceDifference,
): ServiceDifference {
  settle.drop(item, at);
  Object.assign(next, certainClock(next, next.doubtedAt), { openedAt: null, gone: false });
  settle.watch(next, record.namespace, record.name, at);
  return next;
}

function end(evaluation: Evaluation, item: ServiceDifference, isCured: boolean): void {
  const { sink, audit, at, item: work } = evaluation;
  sink.settle.drop(item, at);
  const output = item.output as ServiceOutput;
  if (!isCured || !item.byInput || item.severity === 'info' || !work.writes.has(output)) return;
  const { namespace, name: service } = audit.record;
  const { operation } = item;
  const seconds = at - item.lateSince;
  const sample = { output, operation, namespace, service, node: null, seconds, at };
  const isDelayed = item.lateSince < (work.change?.backAt ?? -Infinity);
  sink.onConvergence?.(work.missed || isDelayed ? { ...sample, isListed: true } : sample);
}

/** Clears older causes of the outputs whose controllers wake, and restarts their clocks. */
export function wake(evaluation: Evaluation): void {
  const { audit, at } = evaluation;
  const { wakes } = evaluation.item;
  if (wakes.size === 0 || audit.excused.size === 0) return;
  for (const key of [...audit.excused]) {
    const items = audit.items.get(key) ?? [];
    const next = items.map((item) => {
      const isOver = isExcused(item) && item.causeAt < at;
      if (!isOver || !wakes.has(item.output as ServiceOutput)) return item;
      const severity = severityOf(item.difference, null, false);
      const unexplained = { cause: null, causeAt: at, proven: false, byInput: true };
      const clock = { ...newClock(at), lateSince: at };
      const cleared = restart(evaluation, { ...item, severity, ...unexplained, ...clock }, item);
      evaluation.cleared.push(cleared);
      return cleared;
    });
    setItems(audit, key, next);
  }
}
