// The settle window: a difference is pending for its length, then it opens a finding. The clock
// starts when a unit is no longer as expected, and again when an event wakes a controller. So a
// controller that keeps up with many changes, each a little late, is not reported.
//
// The differences of one owner, code and cause are one finding
// (docs/decisions/0029-one-finding-per-code-and-cause.md).

import { getOrInsert } from '../../model/collections.ts';
import type { DifferenceDetail, Finding, Output, Severity } from '../finding/catalogue.ts';
import { bySeverity, catalogue, isWorse } from '../finding/catalogue.ts';
import type { Cause } from '../finding/causes.ts';
import type { Difference } from '../finding/difference.ts';
import { detailsOf } from '../finding/difference.ts';

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
  readonly lesser?: readonly PendingDifference[];
  openedAt: number | null;
  gone: boolean;
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
  /** The clock when the window started; a restart makes the candidate obsolete. */
  readonly since: number;
}

interface PendingFindingsOptions {
  /** Seconds of the settle window. */
  readonly window: number;
  readonly keep: number;
  /** Whether all is known that a difference depends on. If not, it waits and is tried again. */
  admit?(candidate: Candidate): boolean;
  /** Differences to open at once; without it, all. */
  readonly burst?: number;
  onOpenDifference?(candidate: Candidate): void;
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
  };
}

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

/** Differences with equal keys are one finding. */
const keyOf = ({ item, namespace, service }: Candidate): string =>
  `${namespace}/${service} ${item.node ?? ''} ${item.difference.code} ${item.cause ?? ''}`;

const rendered = (open: OpenFinding): Finding => (open.rendered ??= render(open, null));

function noteChange(open: OpenFinding, { severity }: PendingDifference): void {
  open.rendered = null;
  if (isWorse(severity, open.worst)) open.worst = severity;
}

function createFindings(options: PendingFindingsOptions) {
  const findings = new Map<string, OpenFinding>();
  const findingOf = new Map<PendingDifference, OpenFinding>();
  const resolved: Finding[] = [];
  let forgotten = 0;
  const waiting = new Set<Candidate>();
  return {
    waiting,
    /** Opens admitted differences, then reports new findings, each with all of its differences. */
    openAll: (candidates: Iterable<Candidate>, at: number): void => {
      const fresh = new Set<OpenFinding>();
      for (const candidate of candidates) {
        const { item } = candidate;
        waiting.delete(candidate);
        if (!isCurrent(candidate)) continue;
        if (options.admit?.(candidate) === false) {
          waiting.add(candidate);
          continue;
        }
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
      for (const open of fresh) options.onOpen?.(rendered(open));
    },
    /** Updates the finding of a difference whose texts or severity have changed. */
    update(item: PendingDifference): void {
      const open = findingOf.get(item);
      if (open !== undefined) noteChange(open, item);
    },
    /** Removes a difference; its finding is resolved if that was the last one. */
    drop(item: PendingDifference, at: number): void {
      item.gone = true;
      const open = findingOf.get(item);
      if (open === undefined) return;
      findingOf.delete(item);
      open.rendered = null;
      open.items.delete(item);
      if (open.items.size > 0) return;
      const finding = render(open, at);
      findings.delete(open.key);
      resolved.push(finding);
      if (resolved.length > options.keep) {
        resolved.shift();
        forgotten++;
      }
      options.onResolve?.(finding);
    },
    open: (): Finding[] => [...findings.values()].map(rendered),
    /** Resolved findings, oldest first, at most `keep`; `forgotten` is the number of the others. */
    resolved: (): readonly Finding[] => resolved,
    forgotten: (): number => forgotten,
  };
}

/** Whether it is still pending and its clock was not restarted. */
const isCurrent = ({ item, since }: Candidate): boolean =>
  !item.gone && item.openedAt === null && item.since === since;

export type PendingFindings = ReturnType<typeof createPendingFindings>;

export function createPendingFindings(options: PendingFindingsOptions) {
  const { window, burst = Infinity } = options;
  const { openAll, waiting, ...findings } = createFindings(options);
  /** In the order of the ends of their windows. */
  let queue: Candidate[] = [];
  return {
    ...findings,
    /** Adds a new or restarted difference; it does not open before `now`. */
    watch(item: PendingDifference, namespace: string, service: string, now: number): void {
      const { since } = item;
      const at = Math.max(since + item.unseen + window, now);
      // Nearly always at the end.
      const before = queue.findLastIndex((candidate) => candidate.at <= at);
      queue.splice(before + 1, 0, { at, since, item, namespace, service });
    },
    /** Opens differences whose windows the caller has measured. */
    openNow(items: readonly OwnedDifference[], at: number): void {
      const candidates = items.map((it) => ({ ...it, at, since: it.item.since }));
      openAll(candidates, at);
    },
    /** Opens differences whose window has ended by `now`, at most `burst`. */
    advance(now: number): void {
      if ((queue[0]?.at ?? Infinity) > now) return;
      const most = Math.min(queue.length, burst);
      const end = queue.findIndex(({ at }) => at > now);
      const due = queue.splice(0, end < 0 ? most : Math.min(end, most));
      // Those of one moment open together, so that they are one finding.
      for (const [at, candidates] of Map.groupBy(due, (it) => it.at)) openAll(candidates, at);
    },
    /** When the next window ends; `null` if no difference is pending. */
    nextAt(): number | null {
      const first = queue.findIndex(isCurrent);
      queue.splice(0, first < 0 ? queue.length : first);
      return queue[0]?.at ?? null;
    },
    /** Differences whose window has not ended. */
    pending: (): readonly Candidate[] => queue.filter(isCurrent),
    waiting: (): ReadonlySet<Candidate> => waiting,
    /** Tries waiting differences again, at most `burst` in turn; opens those that are admitted. */
    retry(now: number): void {
      // Candidates that must wait again move to the end, so that each has its turn.
      if (waiting.size > 0) openAll([...waiting].slice(0, burst), now);
    },
    /** Delays outputs that no watch showed until `to`; no window ends before `to + least`. */
    delay(outputs: ReadonlySet<Output>, from: number, to: number, least: number): void {
      const isDelayed = (it: Candidate): boolean => isCurrent(it) && outputs.has(it.item.output);
      const delayed = [...queue, ...waiting].filter(isDelayed);
      for (const candidate of delayed) {
        const { item, since } = candidate;
        waiting.delete(candidate);
        // A restart after `from` shortens the unseen time of the new window.
        const end = since + item.unseen + window;
        candidate.at = Math.max(end + to - Math.max(from, since), to + least);
        item.unseen = candidate.at - window - since;
        for (const it of item.lesser ?? []) it.unseen += to - Math.max(from, it.since);
      }
      const others = queue.filter((it) => !isDelayed(it));
      queue = [...others, ...delayed].sort((a, b) => a.at - b.at);
    },
  };
}
