// The settle window: a difference is pending for its length, then it opens a finding. When the
// difference ends, the finding is resolved. The caller passes the time, on the clock of the input.
//
// The clock of a difference starts when its unit ceases to be as expected, and again when an event
// wakes a controller. So a controller that keeps up with many changes, each a little late, is never
// reported. Differences of one output with the same cause are one finding, under the code of the
// worst of them. Findings of the output `input` are one per code.
//
// For live input the end of the window is not enough: `admit` decides whether all that the
// difference depends on is known up to that moment. Until then the difference waits and is tried
// again. Time in which no watch could show its end does not count (`delay`).

import type { Code, Finding, Output, Severity } from '../finding/catalogue.ts';
import { catalogue, isWorse } from '../finding/catalogue.ts';
import type { Cause } from '../finding/causes.ts';
import type { Difference } from '../finding/difference.ts';

/** What an output must do to become as expected. */
export type Operation = 'add' | 'remove' | 'update';

/** A known difference and its clock. It is pending until `openedAt` is set, then open. */
export interface PendingDifference {
  difference: Difference;
  readonly output: Output;
  /** The node whose rules differ; absent for outputs that belong to no node. */
  readonly node?: string;
  /** The key of one Service by which a difference of many Services can be confirmed. */
  readonly witness?: string;
  severity: Severity;
  cause: Cause | null;
  /** Whether the state of the input shows the cause, which ends with that state. */
  readonly shown: boolean;
  /** Whether the auditor saw the cause happen; otherwise it is only likely. */
  proven: boolean;
  /** When the cause happened. */
  readonly causeAt: number;
  /** When the clock was started last. */
  since: number;
  /** Seconds since then that do not count, because no watch could show the end. */
  unseen: number;
  /** Whether a change of the input made the difference, so that its end is a sample of lag. */
  byInput: boolean;
  /** The operation that would have ended the difference when it began. */
  readonly operation: Operation;
  /** When the change of the input came, or a later event that woke the controller. */
  readonly lateSince: number;
  openedAt: number | null;
  gone: boolean;
}

/** A finding while its differences come and go. */
interface OpenFinding {
  readonly key: string;
  readonly namespace: string;
  readonly service: string;
  readonly items: Set<PendingDifference>;
  /** The first differences that belonged to it at any time, up to the number that is shown. */
  readonly all: PendingDifference[];
  code: Code;
  severity: Severity;
  readonly openedAt: number;
  /** The finding as last rendered; `null` if it has changed since. */
  rendered: Finding | null;
}

/** A difference and its Service; both names are empty for a whole node. */
export interface OwnedDifference {
  readonly item: PendingDifference;
  readonly namespace: string;
  readonly service: string;
}

/** A difference and the end of its window. */
export interface Candidate extends OwnedDifference {
  at: number;
  /** The clock when the window started; a restart makes the candidate obsolete. */
  readonly since: number;
  /** The version up to which the input must be known; `null` until that is determined. */
  point: string | null;
}

export interface PendingFindings {
  /** Adds a new or restarted difference; it opens at the end of its window, not before `now`. */
  watch(item: PendingDifference, namespace: string, service: string, now: number): void;
  /** Opens differences whose windows the caller has measured. */
  openNow(items: readonly OwnedDifference[], at: number): void;
  /** Updates the finding of a changed difference; it keeps the worst severity that it ever had. */
  reweigh(item: PendingDifference): void;
  /** Removes a difference; its finding is resolved if that was the last one. */
  drop(item: PendingDifference, at: number): void;
  /** Opens differences whose window has ended by `now`, at most `burst`. */
  advance(now: number): void;
  /** When the next window ends; `null` if no difference is pending. */
  nextAt(): number | null;
  /** Differences whose window has ended and that were not admitted. */
  waiting(): ReadonlySet<Candidate>;
  /** Tries waiting differences again, at most `burst` in turn; opens those that are admitted. */
  retry(now: number): void;
  /**
   * Notes that between `from` and `to` no watch could show the end of differences of these outputs.
   * Their windows become longer by that, and do not end before `to + least`.
   */
  delay(outputs: ReadonlySet<Output>, from: number, to: number, least: number): void;
  open(): Finding[];
  /** Resolved findings, oldest first, at most `keep`; `forgotten` is the number of the others. */
  resolved(): readonly Finding[];
  forgotten(): number;
}

export interface PendingFindingsOptions {
  /** The length of the settle window in seconds. */
  readonly window: number;
  /** The number of resolved findings to keep. */
  readonly keep: number;
  /** Whether a difference may open after its window; without it, every difference may. */
  admit?(candidate: Candidate): boolean;
  /** The number of differences to open at once; without it, all. */
  readonly burst?: number;
  /** Called for every difference that opens, before `onOpen` for its finding. */
  onOpenDifference?(candidate: Candidate): void;
  onOpen?(finding: Finding): void;
  onResolve?(finding: Finding): void;
}

/** The number of differences whose texts a finding contains. */
const shownItems = 100;

const codes = Object.keys(catalogue);

function joined(
  items: readonly PendingDifference[],
  field: 'object' | 'field' | 'expected' | 'actual',
): string | null {
  const texts = new Set(items.flatMap(({ difference }) => difference[field] ?? []));
  if (texts.size === 0) return null;
  const shown = [...texts].slice(0, shownItems).join('; ');
  const more = texts.size - shownItems;
  return more > 0 ? `${shown}; and ${String(more)} more` : shown;
}

const severityOrder = (a: PendingDifference, b: PendingDifference): number =>
  Number(isWorse(b.severity, a.severity)) - Number(isWorse(a.severity, b.severity));

/** The finding with its current differences or, when it is resolved, with all that it had. */
function render(open: OpenFinding, resolvedAt: number | null): Finding {
  const { code, severity, namespace, service, openedAt } = open;
  // The worst first, so that object and field begin with those of the code.
  const items = [...(resolvedAt === null ? open.items : open.all)].sort(
    (a, b) =>
      severityOrder(a, b) ||
      Number(b.difference.code === code) - Number(a.difference.code === code),
  );
  return {
    code,
    severity,
    difference: catalogue[code].difference,
    output: catalogue[code].output,
    namespace,
    service,
    node: items[0]?.node ?? null,
    object: joined(items, 'object') ?? '',
    field: joined(items, 'field') ?? '',
    expected: joined(items, 'expected'),
    actual: joined(items, 'actual'),
    cause: items[0]?.cause ?? null,
    since: items.reduce((least, { since }) => Math.min(least, since), Infinity),
    openedAt,
    resolvedAt,
  };
}

/** The worst difference gives the code; of equal ones that open together, the catalogue decides. */
function weigh(open: OpenFinding, { severity, difference, openedAt }: PendingDifference): void {
  const isEqual = severity === open.severity && openedAt === open.openedAt;
  const isFirst = codes.indexOf(difference.code) < codes.indexOf(open.code);
  if (!isWorse(severity, open.severity) && !(isEqual && isFirst)) return;
  open.severity = severity;
  open.code = difference.code;
}

interface State {
  readonly options: PendingFindingsOptions;
  /** In the order of the ends of their windows. */
  queue: Candidate[];
  readonly waiting: Set<Candidate>;
  readonly findings: Map<string, OpenFinding>;
  readonly findingOf: Map<PendingDifference, OpenFinding>;
  readonly resolved: Finding[];
  forgotten: number;
}

/** Inserts a candidate by time: nearly always at the end. */
function insert({ queue }: State, candidate: Candidate): void {
  const before = queue.findLastIndex(({ at }) => at <= candidate.at);
  queue.splice(before + 1, 0, candidate);
}

/** Opens a difference; returns its finding if that is new. */
function openItem(state: State, candidate: Candidate, at: number): OpenFinding | null {
  const { item, namespace, service } = candidate;
  const { severity, output, cause, node } = item;
  const { code } = item.difference;
  item.openedAt = at;
  const isByCode = output === 'input' || (node !== undefined && service === '');
  const group = isByCode ? code : (cause ?? '');
  const key = `${namespace}/${service} ${output} ${node ?? ''} ${group}`;
  const known = state.findings.get(key);
  const open: OpenFinding = known ?? {
    ...{ key, namespace, service, code, severity },
    ...{ items: new Set(), all: [], openedAt: at, rendered: null },
  };
  state.findings.set(key, open);
  state.findingOf.set(item, open);
  open.rendered = null;
  open.items.add(item);
  if (open.all.length < shownItems) open.all.push(item);
  weigh(open, item);
  return known === undefined ? open : null;
}

function dropItem(state: State, item: PendingDifference, at: number): void {
  const { options, resolved } = state;
  item.gone = true;
  const open = state.findingOf.get(item);
  if (open === undefined) return;
  state.findingOf.delete(item);
  open.rendered = null;
  open.items.delete(item);
  if (open.items.size > 0) return;
  const finding = render(open, at);
  state.findings.delete(open.key);
  resolved.push(finding);
  if (resolved.length > options.keep) {
    resolved.shift();
    state.forgotten++;
  }
  options.onResolve?.(finding);
}

/** Whether a candidate is still pending and its clock was not restarted. */
const isCurrent = ({ item, since }: Candidate): boolean =>
  !item.gone && item.openedAt === null && item.since === since;

/** Opens admitted candidates, then reports new findings, each with all of its differences. */
function openAll(state: State, candidates: Iterable<Candidate>, at: number): void {
  const { waiting, options } = state;
  const fresh = new Set<OpenFinding>();
  for (const candidate of candidates) {
    waiting.delete(candidate);
    if (!isCurrent(candidate)) continue;
    if (options.admit?.(candidate) === false) {
      waiting.add(candidate);
      continue;
    }
    const opened = openItem(state, candidate, at);
    options.onOpenDifference?.(candidate);
    if (opened !== null) fresh.add(opened);
  }
  for (const open of fresh) options.onOpen?.((open.rendered ??= render(open, null)));
}

/** Opens candidates up to a time; those of one moment together, so that they are one finding. */
function advance(state: State, now: number): void {
  const { burst = Infinity } = state.options;
  const most = Math.min(state.queue.length, burst);
  const end = state.queue.findIndex(({ at }) => at > now);
  const due = state.queue.splice(0, end < 0 ? most : Math.min(end, most));
  for (const [at, candidates] of Map.groupBy(due, (candidate) => candidate.at)) {
    openAll(state, candidates, at);
  }
}

function delay(
  state: State,
  outputs: ReadonlySet<Output>,
  from: number,
  to: number,
  least: number,
): void {
  const { window } = state.options;
  const candidates = [...state.queue, ...state.waiting].filter(isCurrent);
  state.waiting.clear();
  for (const candidate of candidates) {
    const { item, since } = candidate;
    if (!outputs.has(item.output)) continue;
    // A restart after `from` shortens the unseen time of the new window.
    const end = since + item.unseen + window;
    candidate.at = Math.max(end + to - Math.max(from, since), to + least);
    item.unseen = candidate.at - window - since;
    candidate.point = null;
  }
  state.queue = candidates.sort((a, b) => a.at - b.at);
}

/** Watches pending differences and keeps their findings. */
export function createPendingFindings(options: PendingFindingsOptions): PendingFindings {
  const { burst = Infinity } = options;
  const state: State = {
    options,
    queue: [],
    waiting: new Set(),
    findings: new Map(),
    findingOf: new Map(),
    resolved: [],
    forgotten: 0,
  };
  const { waiting, findings, findingOf } = state;
  return {
    watch(item, namespace, service, now) {
      const at = Math.max(item.since + item.unseen + options.window, now);
      insert(state, { at, since: item.since, item, namespace, service, point: null });
    },
    openNow(items, at) {
      const candidates = items.map((item) => ({
        ...item,
        at,
        since: item.item.since,
        point: null,
      }));
      openAll(state, candidates, at);
    },
    reweigh(item) {
      const open = findingOf.get(item);
      if (open === undefined) return;
      open.rendered = null;
      weigh(open, item);
    },
    drop: (item, at) => {
      dropItem(state, item, at);
    },
    advance: (now) => {
      advance(state, now);
    },
    waiting: () => waiting,
    retry(now) {
      // Candidates that must wait again move to the end, so that each has its turn.
      if (waiting.size > 0) openAll(state, [...waiting].slice(0, burst), now);
    },
    delay: (outputs, from, to, least) => {
      delay(state, outputs, from, to, least);
    },
    nextAt() {
      const first = state.queue.findIndex(isCurrent);
      state.queue.splice(0, first < 0 ? state.queue.length : first);
      return state.queue[0]?.at ?? null;
    },
    open: () => [...findings.values()].map((open) => (open.rendered ??= render(open, null))),
    resolved: () => state.resolved,
    forgotten: () => state.forgotten,
  };
}
