// How the differences of one unit come and go: what was found now against what stood before, which
// cause history shows for what is new, what a wake of a controller ends, and how long an output
// took to follow its input.
//
// History is what the ledger saw happen: a unit was as expected, then one change was taken in, and
// now it differs. If that change wakes nobody upstream (shadow/wake.ts), or if the object itself
// changed while its input did not, the difference has a cause. A later wake ends that excuse and
// starts the clock anew. Differences that stand when the ledger begins have no history: there, the
// conditions of the catalogue stand in, and the cause counts as not proven. So they do after a gap
// in the input, which hides what happened first; what is pending then may have been well in
// between, and its clock starts anew.

import type { Release } from '../../shadow/release.ts';
import type { Code, Output, Severity } from '../finding/catalogue.ts';
import { catalogue } from '../finding/catalogue.ts';
import type { Cause } from '../finding/causes.ts';
import type { Difference } from '../finding/difference.ts';
import type { UnknownReason } from '../finding/verdicts.ts';
import type { PendingDifference, Operation, PendingFindings } from '../pending/pending.ts';
import type { ServiceState } from './cache.ts';
import type { WorkItem, ServiceOutput } from './enqueue.ts';

/** How long an output took to follow its input, at one address or in one object. */
export interface ConvergenceSample {
  readonly output: ServiceOutput | 'node';
  readonly operation: Operation;
  readonly namespace: string;
  readonly service: string;
  /** null for outputs that are no node's. */
  readonly node: string | null;
  readonly seconds: number;
  readonly at: number;
}

/** A Service with what was judged of it. */
export interface ServiceAudit {
  readonly record: ServiceState;
  /** Differences that stand, by unit; units without any are absent. */
  items: Map<string, PendingDifference[]>;
  /** Why an output cannot be judged. */
  unknown: ReadonlyMap<Output, UnknownReason>;
  /** What holds for every unit alike; when it changes, all are judged anew. */
  regime: number;
}

/** What an evaluation is about: when, by which touch, or at the beginning. */
export interface Evaluation {
  readonly at: number;
  readonly touch: WorkItem;
  readonly beginning: boolean;
  /** Changes were missed: what happened in which order is not known. */
  readonly gap: boolean;
}

/** Where differences are kept and samples go. */
export interface FindingSink {
  readonly settle: PendingFindings;
  readonly release: Release;
  readonly onConvergence: ((sample: ConvergenceSample) => void) | undefined;
}

const operations = { missing: 'add', unexpected: 'remove', different: 'update' } as const;

/** What ends a difference of this code. */
export const operationOf = (code: Code): Operation => operations[catalogue[code].difference];

/** Blind spots in which upstream merely sleeps: nobody edited, and the next event cures. */
const asleep: readonly (Cause | null)[] = [
  'pod-phase-unnoticed',
  'pod-change-unnoticed',
  'node-change-unnoticed',
];

/**
 * Severity by what traffic suffers: none, where upstream was seen to sleep over a quiet difference.
 */
function severityOf(difference: Difference, cause: Cause | null, proven: boolean): Severity {
  if (difference.severity !== null) return difference.severity;
  const quiet = difference.quiet && proven && asleep.includes(cause);
  return quiet ? 'info' : catalogue[difference.code].severity;
}

/** Brings the standing differences of one unit in line with what was found now. */
export function reconcile(
  keeping: FindingSink,
  of: ServiceAudit,
  unit: string,
  found: readonly Difference[],
  occasion: Evaluation,
): void {
  if (found.length === 0 && of.items.size === 0) return;
  const before = of.items.get(unit) ?? [];
  if (before.length === 0 && found.length === 0) return;
  const after: PendingDifference[] = [];
  const left = [...before];
  const fresh: Difference[] = [];
  for (const difference of found) {
    const index = left.findIndex(
      (item) =>
        item.difference.code === difference.code && item.difference.subject === difference.subject,
    );
    const known = index < 0 ? undefined : left.splice(index, 1)[0];
    if (known === undefined) fresh.push(difference);
    else after.push(carryOn(keeping, of, known, difference, occasion));
  }
  // A unit that is one address is right when nothing differs there any more.
  const isAddress = unit.includes(' ');
  for (const difference of fresh) {
    // An address that was wrong one way and is wrong another has been wrong all the time.
    const wrong = isAddress && !occasion.gap ? oldestOf(left) : null;
    const { subject } = difference;
    const same = left.filter((one) => subject !== '' && one.difference.subject === subject);
    const first = wrong ?? (occasion.gap ? null : oldestOf(same));
    const clock = { since: wrong?.since ?? occasion.at, unseen: wrong?.unseen ?? 0, first };
    const item = started(keeping, difference, before, clock, occasion);
    keeping.settle.watch(item, of.record.namespace, of.record.name, occasion.at);
    after.push(item);
  }
  for (const item of left) {
    const { subject } = item.difference;
    const goesOn = fresh.some((one) => isAddress || one.subject === subject);
    end(keeping, of, item, !goesOn, occasion);
  }
  if (after.length === 0) of.items.delete(unit);
  else {
    if (of.items === noItems) of.items = new Map();
    of.items.set(unit, after);
  }
}

export const noItems = new Map<string, PendingDifference[]>();

/** The clock of a new difference, and the one that it takes the place of. */
interface Clock extends Pick<PendingDifference, 'since' | 'unseen'> {
  readonly first: PendingDifference | null;
}

const oldestOf = (items: readonly PendingDifference[]): PendingDifference | null =>
  items.reduce<PendingDifference | null>(
    (oldest, item) => (oldest === null || item.since < oldest.since ? item : oldest),
    null,
  );

function started(
  keeping: FindingSink,
  difference: Difference,
  standing: readonly PendingDifference[],
  { since, unseen, first }: Clock,
  { at, touch, beginning, gap }: Evaluation,
): PendingDifference {
  const { output } = catalogue[difference.code];
  const writes = touch.writes.has(output as ServiceOutput);
  const seen = beginning ? null : causeOf(keeping, touch, output, standing);
  const known = difference.cause ?? seen ?? difference.hindrance;
  // What was missed may have woken the controller before the change that wakes nobody.
  const guess = gap && output !== 'input' && !writes ? touch.blindSpot : null;
  const cause = known ?? guess ?? (beginning || gap ? difference.likelyCause : null);
  const proven = known !== null;
  return {
    difference,
    output,
    severity: severityOf(difference, cause, proven),
    cause,
    shown: cause !== null && (cause === difference.cause || cause === difference.hindrance),
    proven,
    causeAt: at,
    since,
    unseen,
    lateSince: first?.lateSince ?? at,
    // A controller that writes in several steps answers to the change that began them.
    byInput: first?.byInput ?? (!beginning && !writes),
    operation: first?.operation ?? operationOf(difference.code),
    openedAt: null,
    gone: false,
  };
}

/** The cause that history shows: the unit was as expected, and then this happened. */
function causeOf(
  { release }: FindingSink,
  touch: WorkItem,
  output: Output,
  standing: readonly PendingDifference[],
): Cause | null {
  if (output === 'input' || output === 'node') return null;
  const [first] = standing;
  if (first !== undefined) {
    return standing.every(({ cause }) => cause !== null) ? first.cause : null;
  }
  if (!touch.writes.has(output)) return touch.wakes.has(output) ? null : touch.blindSpot;
  return output === 'mirrored' && !release.mirrorRepairsEdits ? 'hand-edited' : touch.unseen;
}

/** Writings of one controller that were missed hide nothing of what the other writes. */
function isHidden({ output }: PendingDifference, { writes }: WorkItem): boolean {
  if (writes.size === 0 || (output !== 'endpoints' && output !== 'endpointslices')) return true;
  return writes.has(output);
}

/** A difference that stood before and stands still; what is expected or actual may have moved. */
function carryOn(
  keeping: FindingSink,
  of: ServiceAudit,
  item: PendingDifference,
  difference: Difference,
  { at, gap, touch }: Evaluation,
): PendingDifference {
  const likely = gap && item.causeAt === at ? difference.likelyCause : null;
  // What kept the controller from its work may end by a change that wakes nobody.
  const awake = item.output === 'input' || touch.wakes.has(item.output as ServiceOutput);
  const kept = !item.shown ? item.cause : awake ? null : touch.blindSpot;
  const cause = difference.cause ?? kept ?? difference.hindrance ?? likely;
  const proven = item.proven || cause !== item.cause;
  const severity = severityOf(difference, cause, proven);
  const isMissed = gap && isHidden(item, touch) && item.openedAt === null && item.since < at;
  // When it was right in between, if it was, nobody saw, so that its end measures nothing.
  const missed = { since: at, unseen: 0, byInput: false };
  if (cause !== item.cause) {
    const shown = cause !== null && cause !== kept && cause !== likely;
    // What kept the controller from its work is over: it has the window from now on.
    const afresh = item.shown && cause === null ? { since: at, unseen: 0 } : {};
    const clock = isMissed ? missed : afresh;
    const next = { ...item, difference, severity, cause, shown, proven, ...clock, causeAt: at };
    return again(keeping, of, next, item, at);
  }
  if (isMissed) {
    const next = { ...item, difference, severity, ...missed };
    return again(keeping, of, next, item, at);
  }
  item.difference = difference;
  item.severity = severity;
  keeping.settle.reweigh(item);
  return item;
}

/** Replaces an item by one that belongs to another finding. */
function again(
  { settle }: FindingSink,
  of: ServiceAudit,
  next: PendingDifference,
  item: PendingDifference,
  at: number,
): PendingDifference {
  settle.drop(item, at);
  next.openedAt = null;
  next.gone = false;
  settle.watch(next, of.record.namespace, of.record.name, at);
  return next;
}

/** `healed`: the unit is as expected now, and not just wrong in another way. */
function end(
  keeping: FindingSink,
  { record: { namespace, name: service } }: ServiceAudit,
  item: PendingDifference,
  healed: boolean,
  { at, touch }: Evaluation,
): void {
  keeping.settle.drop(item, at);
  const output = item.output as ServiceOutput;
  if (!healed || !item.byInput || item.severity === 'info' || !touch.writes.has(output)) return;
  const { operation } = item;
  const seconds = at - item.lateSince;
  keeping.onConvergence?.({ output, operation, namespace, service, node: null, seconds, at });
}

/** A wake ends every excuse that is older, and starts the clock of what it excused. */
export function wake(
  keeping: FindingSink,
  of: ServiceAudit,
  woken: ReadonlySet<ServiceOutput>,
  at: number,
): void {
  if (woken.size === 0 || of.items.size === 0) return;
  for (const [unit, items] of of.items) {
    if (items.every(({ cause }) => cause === null)) continue;
    const next = items.map((item) => {
      const excused = item.cause !== null && !item.shown;
      if (!excused || item.causeAt >= at || !woken.has(item.output as ServiceOutput)) return item;
      const severity = severityOf(item.difference, null, false);
      const fresh = { cause: null, causeAt: at, proven: false, byInput: true };
      const awake = { ...item, severity, ...fresh, since: at, lateSince: at, unseen: 0 };
      return again(keeping, of, awake, item, at);
    });
    of.items.set(unit, next);
  }
}
