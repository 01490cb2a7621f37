// The settle window: a difference is pending until it has stood for a while, then it is a finding,
// and when it is gone the finding is resolved. Time is passed in; it is the input's own clock.
//
// The clock of a difference starts when its unit ceases to be as expected, and anew when an event
// wakes a controller that slept till then. A controller that keeps up with a flood of changes, each
// a little late, is never reported, since every unit is as expected now and then. Differences that
// stand at one output and have the same cause are one finding, under the code of the worst of them;
// input findings are one per code.
//
// Where input is live, the end of the window is not enough: `admit` says whether everything that
// the difference rests on is known up to that moment. Until then it waits, and is asked for again.
// A time in which nothing could be seen does not count (`delay`).

import type { Code, Finding, Output, Severity } from '../finding/catalogue.ts';
import { catalogue, isWorse } from '../finding/catalogue.ts';
import type { Cause } from '../finding/causes.ts';
import type { Difference } from '../finding/difference.ts';

/** What an output has to do to become as expected. */
export type Operation = 'add' | 'remove' | 'update';

/** A difference that stands, with its clock. */
export interface PendingDifference {
  difference: Difference;
  readonly output: Output;
  /** Whose rules they are; absent for outputs that are no node's. */
  readonly node?: string;
  /** Where it is about many Services: one of them, by which it can be confirmed. */
  readonly witness?: string;
  severity: Severity;
  cause: Cause | null;
  /** The state of the input shows the cause, which ends with that state. */
  readonly shown: boolean;
  /** The cause was seen to happen; otherwise the input only looks like it. */
  proven: boolean;
  /** When that which the cause names happened. */
  readonly causeAt: number;
  /** When the clock was last started. */
  since: number;
  /** Seconds since then that do not count, as nobody could see it end. */
  unseen: number;
  /** Whether a change of the input made the difference, so that its end is a measure of lag. */
  byInput: boolean;
  /** What would have ended the difference as it began. */
  readonly operation: Operation;
  /** When that change came; a wake of whoever slept begins anew. */
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
  /** Those that belonged to it at any time, as many as are shown. */
  readonly ever: PendingDifference[];
  code: Code;
  severity: Severity;
  readonly openedAt: number;
  /** As it was last asked for; null: it has changed since. */
  rendered: Finding | null;
}

/** An item and the Service that it is about; '' and '' for a whole node. */
export interface OwnedDifference {
  readonly item: PendingDifference;
  readonly namespace: string;
  readonly service: string;
}

export interface PendingFindings {
  /** Takes in a new or restarted item; it opens when the window has passed, not before `now`. */
  watch(item: PendingDifference, namespace: string, service: string, now: number): void;
  /**
   * Opens these items now, whose windows were judged by whoever saw them, and tells of each finding
   * as a whole.
   */
  openNow(items: readonly OwnedDifference[], at: number): void;
  /** Takes note of an item that changed; a finding keeps the worst severity it ever had. */
  reweigh(item: PendingDifference): void;
  /** Takes an item out; its finding is resolved if it was the last. */
  drop(item: PendingDifference, at: number): void;
  /** Opens what has stood for the window by `now`, at most `burst` differences. */
  advance(now: number): void;
  /** When the next window ends, or null. */
  nextAt(): number | null;
  /** Differences whose window has passed and that were not admitted. */
  waiting(): ReadonlySet<Candidate>;
  /** Asks again for those that wait, at most `burst`, in turn; what is admitted opens now. */
  retry(now: number): void;
  /**
   * Between `from` and `to`, nobody could have seen differences of these outputs end. Their windows
   * are longer by that, and do not end before `to + least`.
   */
  delay(outputs: ReadonlySet<Output>, from: number, to: number, least: number): void;
  open(): Finding[];
  /** Resolved findings, oldest first; at most `keep`, `forgotten` counts the others. */
  resolved(): readonly Finding[];
  forgotten(): number;
}

export interface PendingFindingsOptions {
  /** Seconds. */
  readonly window: number;
  /** How many resolved findings are kept. */
  readonly keep: number;
  /** Whether a difference whose window has passed may be a finding; without it, all are. */
  admit?(due: Candidate): boolean;
  /** How many differences are looked at in one go; without it, all. */
  readonly burst?: number;
  /** Called for every difference that becomes one of a finding, before the finding is told. */
  onOpenDifference?(due: Candidate): void;
  onOpen?(finding: Finding): void;
  onResolve?(finding: Finding): void;
}

const shownItems = 100;

function joined(
  items: readonly PendingDifference[],
  pick: (item: PendingDifference) => string | null,
): string | null {
  const texts = new Set(items.map(pick).filter((text) => text !== null));
  if (texts.size === 0) return null;
  const shown = [...texts].slice(0, shownItems).join('; ');
  const more = texts.size - shownItems;
  return more > 0 ? `${shown}; and ${String(more)} more` : shown;
}

/**
 * The finding as it stands, or, when resolved, with all that belonged to it. Expected and actual
 * list up to 100 differences.
 */
function render(standing: OpenFinding, resolvedAt: number | null): Finding {
  // The worst first, so that object and field lead with what the code says.
  const all = resolvedAt === null ? standing.items : standing.ever;
  const items = [...all].sort(
    (a, b) =>
      Number(isWorse(b.severity, a.severity)) - Number(isWorse(a.severity, b.severity)) ||
      Number(b.difference.code === standing.code) - Number(a.difference.code === standing.code),
  );
  const { code, severity, namespace, service, openedAt } = standing;
  return {
    code,
    severity,
    difference: catalogue[code].difference,
    output: catalogue[code].output,
    namespace,
    service,
    node: items[0]?.node ?? null,
    object: joined(items, ({ difference }) => difference.object) ?? '',
    field: joined(items, ({ difference }) => difference.field) ?? '',
    expected: joined(items, ({ difference }) => difference.expected),
    actual: joined(items, ({ difference }) => difference.actual),
    cause: items[0]?.cause ?? null,
    since: items.reduce((least, { since }) => Math.min(least, since), Infinity),
    openedAt,
    resolvedAt,
  };
}

/** A difference and the end of its window. */
export interface Candidate {
  at: number;
  readonly since: number;
  readonly item: PendingDifference;
  readonly namespace: string;
  readonly service: string;
  /** Up to which version its input must be known; null: that is not known yet. */
  point: string | null;
}

/** A binary heap by time: items come in nearly, but not quite, in order. */
function pushDue(heap: Candidate[], due: Candidate): void {
  let index = heap.push(due) - 1;
  while (index > 0) {
    const parent = (index - 1) >> 1;
    const above = heap[parent];
    if (above === undefined || above.at <= due.at) break;
    heap[index] = above;
    heap[parent] = due;
    index = parent;
  }
}

function popDue(heap: Candidate[]): Candidate | undefined {
  const top = heap[0];
  const last = heap.pop();
  if (top === undefined || last === undefined || heap.length === 0) return top;
  let index = 0;
  heap[0] = last;
  for (;;) {
    const left = 2 * index + 1;
    const [a, b] = [heap[left], heap[left + 1]];
    const [child, value] =
      b !== undefined && a !== undefined && b.at < a.at ? [left + 1, b] : [left, a];
    if (value === undefined || value.at >= last.at) return top;
    heap[index] = value;
    heap[child] = last;
    index = child;
  }
}

/** A time in which nothing could be seen. */
interface Spell {
  readonly from: number;
  readonly to: number;
  readonly least: number;
}

interface Watched {
  readonly options: PendingFindingsOptions;
  readonly heap: Candidate[];
  readonly waiting: Set<Candidate>;
  readonly standings: Map<string, OpenFinding>;
  readonly homes: Map<PendingDifference, OpenFinding>;
  readonly resolved: Finding[];
  forgotten: number;
}

/** Opens an item; returns its finding if that is new. */
function openItem({ standings, homes }: Watched, due: Candidate, at: number): OpenFinding | null {
  const { item, namespace, service } = due;
  const { severity, output, cause, node } = item;
  const { code } = item.difference;
  item.openedAt = at;
  const apart = output === 'input' || (node !== undefined && service === '') ? code : (cause ?? '');
  const key = `${namespace}/${service} ${output} ${node ?? ''} ${apart}`;
  const known = standings.get(key);
  const standing = known ?? {
    key,
    namespace,
    service,
    items: new Set(),
    ever: [],
    code,
    severity,
    openedAt: at,
    rendered: null,
  };
  standings.set(key, standing);
  homes.set(item, standing);
  standing.rendered = null;
  standing.items.add(item);
  if (standing.ever.length < shownItems) standing.ever.push(item);
  weigh(standing, item);
  return known === undefined ? standing : null;
}

const codes = Object.keys(catalogue);

/** The worst gives a finding its code; of equals that open together, the first of the catalogue. */
function weigh(standing: OpenFinding, { severity, difference, openedAt }: PendingDifference): void {
  const equal = severity === standing.severity && openedAt === standing.openedAt;
  const first = codes.indexOf(difference.code) < codes.indexOf(standing.code);
  if (!isWorse(severity, standing.severity) && !(equal && first)) return;
  standing.severity = severity;
  standing.code = difference.code;
}

function dropItem(watched: Watched, item: PendingDifference, at: number): void {
  const { options, standings, homes, resolved } = watched;
  item.gone = true;
  const standing = homes.get(item);
  if (standing === undefined) return;
  homes.delete(item);
  standing.rendered = null;
  standing.items.delete(item);
  if (standing.items.size > 0) return;
  const finding = render(standing, at);
  standings.delete(standing.key);
  resolved.push(finding);
  if (resolved.length > options.keep) {
    resolved.shift();
    watched.forgotten++;
  }
  options.onResolve?.(finding);
}

/** A due that was not overtaken: its item still stands, pending, with the clock it had then. */
function isAlive({ item, since }: Candidate): boolean {
  return !item.gone && item.openedAt === null && item.since === since;
}

/** Opens what may be opened, and tells of it at the end, so that a finding is told as a whole. */
function openThose(watched: Watched, dues: Iterable<Candidate>, at: number): void {
  const { waiting, options } = watched;
  const fresh = new Set<OpenFinding>();
  for (const due of dues) {
    waiting.delete(due);
    if (!isAlive(due)) continue;
    if (options.admit?.(due) === false) {
      waiting.add(due);
      continue;
    }
    const opened = openItem(watched, due, at);
    options.onOpenDifference?.(due);
    if (opened !== null) fresh.add(opened);
  }
  for (const standing of fresh) options.onOpen?.((standing.rendered ??= render(standing, null)));
}

function dueAt(heap: Candidate[], at: number, most: number): Candidate[] {
  const dues: Candidate[] = [];
  for (let due = heap[0]; due?.at === at && dues.length < most; due = heap[0]) {
    popDue(heap);
    dues.push(due);
  }
  return dues;
}

function first<T>(all: Iterable<T>, most: number): T[] {
  const some: T[] = [];
  for (const one of all) if (some.push(one) >= most) break;
  return some;
}

function delayAll(watched: Watched, outputs: ReadonlySet<Output>, spell: Spell): void {
  const { heap, waiting, options } = watched;
  const { from, to, least } = spell;
  const all = [...heap.splice(0), ...waiting].filter(isAlive);
  waiting.clear();
  for (const due of all) {
    if (outputs.has(due.item.output)) {
      // One that became another in that time came too late for its window, which is no reason to
      // wait for that time again.
      const ends = due.since + due.item.unseen + options.window;
      due.at = Math.max(ends + to - Math.max(from, due.since), to + least);
      due.item.unseen = due.at - options.window - due.since;
      due.point = null;
    }
    pushDue(heap, due);
  }
}

/** Watches items and keeps their findings. */
export function createPendingFindings(options: PendingFindingsOptions): PendingFindings {
  const heap: Candidate[] = [];
  const standings = new Map<string, OpenFinding>();
  const homes = new Map<PendingDifference, OpenFinding>();
  const resolved: Finding[] = [];
  const waiting = new Set<Candidate>();
  const { burst = Infinity } = options;
  const watched: Watched = { options, heap, waiting, standings, homes, resolved, forgotten: 0 };
  return {
    watch(item, namespace, service, now) {
      const at = Math.max(item.since + item.unseen + options.window, now);
      pushDue(heap, { at, since: item.since, item, namespace, service, point: null });
    },
    openNow(items, at) {
      const dues = items.map((one) => ({ ...one, at, since: one.item.since, point: null }));
      openThose(watched, dues, at);
    },
    reweigh(item) {
      const standing = homes.get(item);
      if (standing === undefined) return;
      standing.rendered = null;
      weigh(standing, item);
    },
    drop: (item, at) => {
      dropItem(watched, item, at);
    },
    advance(now) {
      let left = burst;
      for (let due = heap[0]; due !== undefined && due.at <= now && left > 0; due = heap[0]) {
        const dues = dueAt(heap, due.at, left);
        left -= dues.length;
        openThose(watched, dues, due.at);
      }
    },
    waiting: () => waiting,
    retry(now) {
      // Those that must wait on go to the end, so that each has its turn.
      if (waiting.size > 0) openThose(watched, first(waiting, burst), now);
    },
    delay(outputs, from, to, least) {
      delayAll(watched, outputs, { from, to, least });
    },
    nextAt() {
      for (let due = heap[0]; due !== undefined; due = heap[0]) {
        if (isAlive(due)) return due.at;
        popDue(heap);
      }
      return null;
    },
    open: () => [...standings.values()].map((one) => (one.rendered ??= render(one, null))),
    resolved: () => resolved,
    forgotten: () => watched.forgotten,
  };
}
