// The settle window: a difference is pending for its length, then it opens a finding. The clock
// starts when a unit is no longer as expected, and again when an event wakes a controller. So a
// controller that keeps up with many changes, each a little late, is not reported.
//
// The differences of one owner, code and cause are one finding
// (docs/decisions/0029-one-finding-per-code-and-cause.md).

import { getOrInsert } from '../../model/collections.ts';
import type { Steps } from '../../model/run-to-end.ts';
import type {
  DifferenceDetail,
  Finding,
  Output,
  Severity,
  Suppressed,
} from '../finding/catalogue.ts';
import { bySeverity, catalogue, isWorse, openFindingKey } from '../finding/catalogue.ts';
import type { Cause } from '../finding/causes.ts';
import type { Difference } from '../finding/difference.ts';
import { detailsOf } from '../finding/difference.ts';
import { type PastFindings, pastOfOpen, type PastOfOpen } from './past-findings.ts';
import { createTimedQueue, mostObsolete } from './timed-queue.ts';

/** A known difference and its clock. It is pending until `openedAt` is set, then open. */
export interface PendingDifference {
  difference: Difference;
  /** Its details; absent if they are those of `difference`. */
  readonly details?: () => readonly DifferenceDetail[];
  readonly output: Output;
  /** The node whose rules differ; absent for outputs that belong to no node. */
  readonly node?: string;
  /** The key of one Service by which a difference of many Services can be confirmed. */
  readonly witness?: string;
  severity: Severity;
  readonly cause: Cause | null;
  /** Whether the cause is certain, not only likely; absent if there never is one. */
  readonly proven?: boolean;
  /** When the clock was started last. */
  since: number;
  /** Seconds since then that do not count, because no watch could show the end. */
  unseen: number;
  /** Differences of less harm that it replaced. A later one of their harm continues their clock. */
  lesser?: readonly PendingDifference[];
  openedAt: number | null;
  /** When changes were missed that may hide its end, while it was open; absent: none were. */
  doubtedAt?: number;
  gone: boolean;
  /** Whether its end is a sample of lag; not after changes were missed. */
  byInput?: boolean;
  /** The missed changes of its Service, and how many of them its clock has taken into account. */
  readonly missed?: MissedChanges;
  missedCount?: number;
}

/**
 * Changes of one Service that were missed. Each restarts the clocks of all pending differences that
 * it may hide the end of. A list may bring thousands, so a clock is restarted when it is read.
 */
export interface MissedChanges {
  count: number;
  /** The latest that may hide differences of an output. */
  readonly latest: Map<Output, { readonly at: number; readonly count: number }>;
}

/** Restarts the clock of a difference if changes were missed since it was read last. */
export function refreshClock(item: PendingDifference): void {
  const latest = item.missed?.latest.get(item.output);
  if (latest === undefined || item.gone) return;
  if ((item.missedCount ?? 0) >= latest.count) return;
  item.missedCount = latest.count;
  if (item.since >= latest.at) return;
  // A finding that is open stays, but no other difference may continue its clock.
  if (item.openedAt !== null) {
    item.doubtedAt = latest.at;
    return;
  }
  // The difference may have ended in between, so that its end is no measure of lag.
  Object.assign(item, { since: latest.at, unseen: 0, lesser: [], byInput: false });
}

/** A difference and its Service; both names are empty for a whole node. */
export interface OwnedDifference {
  readonly item: PendingDifference;
  readonly namespace: string;
  readonly service: string;
}

export interface Candidate extends OwnedDifference {
  /** The end of its window. */
  at: number;
  /** The clock when the window started; a restart makes the candidate wait for the new window. */
  readonly since: number;
}

/** When the finding of a difference, and the difference itself, opened before a restart. */
export interface EarlierOpening {
  readonly finding: number;
  readonly difference: number;
}

interface PendingFindingsOptions {
  /** Seconds of the settle window. */
  readonly window: number;
  readonly keep: number;
  /** Whether all is known that a difference depends on. If not, it waits and is tried again. */
  admit?(candidate: Candidate): boolean;
  /** When an admitted difference was open before a restart; `null` if it was not. */
  openedBefore?(candidate: Candidate): EarlierOpening | null;
  /** Differences to open at once; without it, all. */
  readonly burst?: number;
  onOpenDifference?(candidate: Candidate): void;
  /** How a finding is suppressed now; `null` if it is not. */
  suppressedBy?(finding: Finding): Suppressed | null;
  onOpen?(finding: Finding): void;
  onResolve?(finding: Finding): void;
}

/** A finding has the texts of this many differences. */
const shownItems = 100;

function joined(
  items: readonly PendingDifference[],
  field: 'object' | 'field' | 'expected' | 'actual',
): string | null {
  const texts = [...new Set(items.flatMap(({ difference }) => difference[field] ?? []))];
  const more = texts.length - shownItems;
  const rest = more > 0 ? [`and ${String(more)} more`] : [];
  return texts.length === 0 ? null : [...texts.slice(0, shownItems), ...rest].join('; ');
}

const detailsIn = (items: readonly PendingDifference[]): DifferenceDetail[] =>
  items.flatMap(({ difference, details }) => details?.() ?? detailsOf(difference));

/** Its current differences or, when it is resolved, the first of all that it had; worst first. */
function render(open: OpenFinding, resolvedAt: number | null): Finding {
  const { code, cause, node, namespace, service, openedAt } = open;
  const items = [...(resolvedAt === null ? open.items : open.all)].sort(bySeverity);
  const { difference, output } = catalogue[code];
  // A resolved finding must not keep objects of the cluster in memory.
  const kept = resolvedAt === null ? null : detailsIn(items).slice(0, shownItems);
  return {
    code,
    severity: resolvedAt === null ? (items[0]?.severity ?? open.worst) : open.worst,
    difference,
    output,
    namespace,
    service,
    node,
    object: joined(items, 'object') ?? '',
    field: joined(items, 'field') ?? '',
    expected: joined(items, 'expected'),
    actual: joined(items, 'actual'),
    get differences() {
      return kept ?? detailsIn(items);
    },
    cause,
    causeProven: cause !== null && items.every(({ proven }) => proven === true),
    since: items.reduce((least, { since }) => Math.min(least, since), Infinity),
    openedAt,
    resolvedAt,
    suppressed: null,
  };
}

/** A copy that is suppressed; the details are computed when they are read. */
const withSuppressed = (finding: Finding, suppressed: Suppressed): Finding =>
  Object.defineProperties({} as Finding, {
    ...Object.getOwnPropertyDescriptors(finding),
    suppressed: { value: suppressed, enumerable: true },
  });

type OpenFinding = ReturnType<typeof newFinding>;

const newFinding = ({ item, namespace, service }: Candidate, key: string, openedAt: number) => ({
  key,
  code: item.difference.code,
  cause: item.cause,
  node: item.node ?? null,
  namespace,
  service,
  openedAt,
  items: new Set<PendingDifference>(),
  /** The first differences that belonged to it at any time, up to the number that is shown. */
  all: [] as PendingDifference[],
  /** The worst severity that it ever had. */
  worst: item.severity,
  /** `null` if it has changed since it was rendered. */
  rendered: null as Finding | null,
});

const keyOf = ({ item, namespace, service }: Candidate): string => {
  const { node = null, cause, difference } = item;
  return openFindingKey({ namespace, service, node, code: difference.code, cause });
};

const rendered = (open: OpenFinding): Finding => (open.rendered ??= render(open, null));

function noteChange(open: OpenFinding, { severity }: PendingDifference): void {
  open.rendered = null;
  if (isWorse(severity, open.worst)) open.worst = severity;
}

function continueOpen(open: OpenFinding | undefined, { worst, ended }: PastOfOpen): void {
  if (open === undefined) return;
  if (isWorse(worst, open.worst)) open.worst = worst;
  const all = [...ended.map((it) => ({ ...it, unseen: 0, gone: true })), ...open.all];
  all.sort((a, b) => (a.openedAt ?? 0) - (b.openedAt ?? 0));
  open.all = all.slice(0, shownItems);
}

function createFindings(options: PendingFindingsOptions) {
  const findings = new Map<string, OpenFinding>();
  const findingOf = new Map<PendingDifference, OpenFinding>();
  const marked = (finding: Finding): Finding => {
    const suppressed = options.suppressedBy?.(finding) ?? null;
    return suppressed === null ? finding : withSuppressed(finding, suppressed);
  };
  const resolved: Finding[] = [];
  let forgotten = 0;
  return {
    /** Opens admitted differences, then reports new findings, each with all of its differences. */
    openAll: (candidates: Iterable<Candidate>, at: number): void => {
      const fresh = new Set<OpenFinding>();
      for (const candidate of candidates) {
        const { item } = candidate;
        if (item.gone || item.openedAt !== null) continue;
        item.openedAt = at;
        const key = keyOf(candidate);
        const open = getOrInsert(findings, key, () => newFinding(candidate, key, at));
        if (open.all.length === 0) fresh.add(open);
        findingOf.set(item, open);
        open.items.add(item);
        if (open.all.length < shownItems) open.all.push(item);
        noteChange(open, item);
        options.onOpenDifference?.(candidate);
      }
      for (const open of fresh) options.onOpen?.(marked(rendered(open)));
    },
    /** Updates the finding of a difference whose texts or severity have changed. */
    update(item: PendingDifference): void {
      const open = findingOf.get(item);
      if (open !== undefined) noteChange(open, item);
    },
    dropOpen: (item: PendingDifference, at: number): void => {
      item.gone = true;
      const open = findingOf.get(item);
      if (open === undefined) return;
      findingOf.delete(item);
      open.rendered = null;
      open.items.delete(item);
      if (open.items.size > 0) return;
      const finding = marked(render(open, at));
      findings.delete(open.key);
      resolved.push(finding);
      if (resolved.length > options.keep) {
        resolved.shift();
        forgotten++;
      }
      options.onResolve?.(finding);
    },
    open: (): Finding[] => [...findings.values()].map((open) => marked(rendered(open))),
    /** Resolved findings, oldest first, at most `keep`; `forgotten` is the number of the others. */
    resolved: (): readonly Finding[] => resolved,
    forgotten: (): number => forgotten,
    /** What a checkpoint has of the past. What is open, it has with the Services. */
    past: (): PastFindings => ({
      resolved: [...resolved],
      forgotten,
      open: [...findings.values()].flatMap(pastOfOpen),
    }),
    /** Continues the past; what is open must be open again. */
    continuePast(past: PastFindings): void {
      resolved.push(...past.resolved.slice(-options.keep));
      forgotten = past.forgotten;
      for (const it of past.open) continueOpen(findings.get(it.key), it);
    },
  };
}

export type PendingFindings = ReturnType<typeof createPendingFindings>;

const endOf = ({ item }: OwnedDifference, window: number): number =>
  item.since + item.unseen + window;

function isRestarted({ item, since }: Candidate): boolean {
  refreshClock(item);
  return item.since !== since;
}

/** The pending differences: in a queue until the end of their windows, then waiting. */
function createCandidates(window: number, burst: number) {
  /** The latest of each pending difference; all others are obsolete. */
  const current = new Map<PendingDifference, Candidate>();
  const waiting = new Set<Candidate>();
  const isCurrent = (candidate: Candidate): boolean => current.get(candidate.item) === candidate;
  const queue = createTimedQueue(isCurrent);
  const remove = (item: PendingDifference): void => {
    const candidate = current.get(item);
    if (candidate !== undefined) waiting.delete(candidate);
    current.delete(item);
  };
  const create = ({ item, namespace, service }: OwnedDifference, at: number): Candidate => {
    const candidate = { at, since: item.since, item, namespace, service };
    remove(item);
    current.set(item, candidate);
    return candidate;
  };
  const add = (owned: OwnedDifference, now: number): Candidate => {
    const candidate = create(owned, Math.max(endOf(owned, window), now));
    queue.insert(candidate, 2 * current.size + mostObsolete);
    return candidate;
  };
  /** The same one, or another in the queue if its clock has been restarted. */
  const renewed = (candidate: Candidate): Candidate =>
    isRestarted(candidate) ? add(candidate, -Infinity) : candidate;
  const isValid = (it: Candidate): boolean => isCurrent(it) && renewed(it) === it;
  return {
    waiting,
    /** Creates the candidate of a difference whose window the caller has measured. */
    create,
    /** Adds a difference to the queue; its window does not end before `now`. */
    add,
    remove,
    /** Whether it is still pending. If its clock was restarted, it returns to the queue. */
    isValid,
    /** Takes those whose windows have ended by `now` out of the queue, at most `burst`. */
    takeDue(now: number): Candidate[] {
      const due: Candidate[] = [];
      // A restarted window may have ended, too.
      for (let left = burst; left > 0 && (queue.first()?.at ?? Infinity) <= now;) {
        const taken = queue.take(now, left);
        left -= taken.length;
        due.push(...taken.filter(isValid));
      }
      return due.sort((a, b) => a.at - b.at);
    },
    /** The first of the queue; of more than `burst` with restarted clocks, one of them. */
    first(): Candidate | null {
      for (let left = burst; left > 0; left--) {
        const head = queue.first();
        if (head === undefined || isValid(head)) return head ?? null;
        queue.trim();
      }
      return queue.first() ?? null;
    },
    queued: (): readonly Candidate[] => queue.current().map(renewed),
    items: () => [...current.keys()],
    /** Moves the end of a window; `requeue` must follow. One that waits returns to the queue. */
    move(item: PendingDifference, newEndOf: (since: number) => number): void {
      const known = current.get(item);
      if (known === undefined) return;
      const moved = isRestarted(known) ? create(known, known.at) : known;
      waiting.delete(moved);
      moved.at = newEndOf(moved.since);
    },
    requeue: () => queue.replace([...current.values()].filter((it) => !waiting.has(it))),
    size: () => ({ entries: queue.size(), pending: current.size }),
  };
}

/** A time in which no watch showed these outputs. Their windows end at `to + least` or later. */
interface DelayingSpell {
  readonly outputs: ReadonlySet<Output>;
  readonly from: number;
  readonly to: number;
  readonly least: number;
}

/** How many differences one step of a delay takes. */
const delayedAtOnce = 1000;

/** Delays the windows of some outputs in steps. Before the last step, no finding may open. */
function* delayWindows(
  candidates: ReturnType<typeof createCandidates>,
  window: number,
  { outputs, from, to, least }: DelayingSpell,
): Steps {
  for (const [index, item] of candidates.items().entries()) {
    if (index % delayedAtOnce === 0) yield;
    if (!outputs.has(item.output)) continue;
    candidates.move(item, (since) => {
      // A restart after `from` shortens the unseen time of the new window.
      const end = since + item.unseen + window;
      const at = Math.max(end + to - Math.max(from, since), to + least);
      item.unseen = at - window - since;
      for (const it of item.lesser ?? []) it.unseen += to - Math.max(from, it.since);
      return at;
    });
  }
  candidates.requeue();
}

/** Opens those that were open before a restart at their earlier times, and the others now. */
function openByMoment(
  openAll: (candidates: Iterable<Candidate>, at: number) => void,
  admitted: readonly Candidate[],
  options: PendingFindingsOptions,
  at: number,
): void {
  const earlier = new Map(admitted.map((it) => [it, options.openedBefore?.(it) ?? null]));
  const groups = Map.groupBy(admitted, (it) => earlier.get(it)?.finding ?? at);
  // The earliest first, since it is the time of the finding.
  for (const [moment, together] of [...groups].sort(([a], [b]) => a - b)) {
    openAll(together, moment);
    for (const it of together) {
      const before = earlier.get(it) ?? null;
      if (before !== null) it.item.openedAt = before.difference;
    }
  }
}

export function createPendingFindings(options: PendingFindingsOptions) {
  const { window, burst = Infinity } = options;
  const { openAll, dropOpen, ...findings } = createFindings(options);
  const candidates = createCandidates(window, burst);
  const { waiting } = candidates;
  /** Opens those that are still pending and admitted; the others wait. */
  const openAdmitted = (due: readonly Candidate[], at: number): void => {
    const admitted = due.filter((candidate) => {
      if (!candidates.isValid(candidate)) return false;
      const isAdmitted = options.admit?.(candidate) !== false;
      if (isAdmitted) candidates.remove(candidate.item);
      else waiting.add(candidate);
      return isAdmitted;
    });
    openByMoment(openAll, admitted, options, at);
  };
  return {
    ...findings,
    /** Removes a difference; its finding is resolved if that was the last one. */
    drop(item: PendingDifference, at: number): void {
      candidates.remove(item);
      dropOpen(item, at);
    },
    /** Adds a new or restarted difference; it does not open before `now`. */
    watch(item: PendingDifference, namespace: string, service: string, now: number): void {
      candidates.add({ item, namespace, service }, now);
    },
    /** Opens differences whose windows the caller has measured. */
    openNow(items: readonly OwnedDifference[], at: number): void {
      const due = items.map((it) => candidates.create(it, at));
      openAdmitted(due, at);
    },
    /** Opens again what was open at a checkpoint, and is not pending. */
    reopen: openAll,
    /** Opens differences whose window has ended by `now`, at most `burst`. */
    advance(now: number): void {
      // Those of one moment open together, so that they are one finding.
      const due = candidates.takeDue(now);
      if (due.length === 0) return; // as for most events
      const groups = Map.groupBy(due, ({ at }) => at);
      for (const [at, together] of groups) openAdmitted(together, at);
    },
    /** When the next window ends; `null` if no difference is pending. */
    nextAt: (): number | null => candidates.first()?.at ?? null,
    /** Differences whose window has not ended. */
    pending: candidates.queued,
    waiting: (): ReadonlySet<Candidate> => waiting,
    /** The entries of the queue, and the pending differences: in the queue or waiting. */
    size: candidates.size,
    /** Tries waiting differences again, at most `burst` in turn; opens those that are admitted. */
    retry(now: number): void {
      // Candidates that must wait again move to the end, so that each has its turn.
      const due = [...waiting].slice(0, burst);
      for (const candidate of due) waiting.delete(candidate);
      openAdmitted(due, now);
    },
    delay: (spell: DelayingSpell) => delayWindows(candidates, window, spell),
  };
}
