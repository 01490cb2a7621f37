// The loop that every command runs, from whichever door its input comes:
//
//   recording.ts ─┐ entry      ┌──────► store ──► change ──► ledger ──► settle ──► findings
//   kwok.ts ──────┼──────► Auditor.take           │            └──► convergence samples
//   dump.ts ──────┘            │                  └──► fill, sizes, trigger samples
//                              └──► unreadable objects ──► unknown
//
// Nothing is judged before every resource that the input promises is complete; what is missing when
// the input ends is not known, and the outputs that need it are unknown. Time is the input's own.

import type { ConvergenceSample, Ledger } from './audit/ledger.ts';
import { createLedger } from './audit/ledger.ts';
import type { Finding } from './audit/findings.ts';
import type { Context } from './audit/service.ts';
import type { Settle } from './audit/settle.ts';
import { createSettle } from './audit/settle.ts';
import type { DumpEntry } from './cluster/dump.ts';
import type { Lost } from './cluster/problem.ts';
import type { RecordingEntry } from './cluster/recording.ts';
import type { Store } from './cluster/store.ts';
import { createStore } from './cluster/store.ts';
import type { Change, Key, Pod, Resource, WatchEvent } from './model/objects.ts';
import type { Release } from './shadow/release.ts';
import { newestRelease, releaseOf } from './shadow/release.ts';

export interface AuditorOptions {
  /** Seconds that a difference may stand before it is a finding; 0 for input of one moment. */
  readonly settle: number;
  /** null: the one that the input names, else the newest. */
  readonly release: Release | null;
  readonly maxEndpointsPerSlice: number;
  onOpen?(finding: Finding): void;
  onResolve?(finding: Finding): void;
  onConvergence?(sample: ConvergenceSample): void;
  /** Every change that the ledger has taken in, also those before it began. */
  onChange?(change: Change, store: Store): void;
}

export interface Auditor {
  take(entry: RecordingEntry | DumpEntry): void;
  /** Opens what has stood for the window by `at`, on the input's clock. */
  advance(at: number): void;
  /** When the next difference becomes a finding; null when none is pending. */
  nextAt(): number | null;
  readonly store: Store;
  readonly settle: Settle;
  /** null until the input has named its release and every resource is complete. */
  ledger(): Ledger | null;
  release(): Release;
  /** The version that the input names, null where it names none. */
  kubernetes(): string | null;
  /** The input's clock: null before the first entry that tells the time. */
  now(): number | null;
  /** The latest version of a pod, for readers that need it. */
  previousPod(key: Key): Pod | undefined;
}

/** Resolved findings that are kept for reports and pages; more are counted. */
const keptFindings = 10_000;

export function createAuditor(options: AuditorOptions): Auditor {
  const complete = new Set<Resource>();
  const store = createStore(complete);
  const { onOpen, onResolve } = options;
  const settle = createSettle({
    window: options.settle,
    keep: keptFindings,
    ...(onOpen === undefined ? {} : { onOpen }),
    ...(onResolve === undefined ? {} : { onResolve }),
  });
  const losses = new Map<string, Lost>();
  let promised: readonly Resource[] | null = null;
  let kubernetes: string | null = null;
  let ledger: Ledger | null = null;
  let now: number | null = null;

  const release = (): Release =>
    options.release ?? releaseOf(kubernetes ?? '') ?? newestRelease;

  function begin(at: number): void {
    const context: Context = {
      snapshot: store.snapshot,
      release: release(),
      maxEndpointsPerSlice: options.maxEndpointsPerSlice,
    };
    const { onConvergence } = options;
    ledger = createLedger({
      context,
      settle,
      ...(onConvergence === undefined ? {} : { onConvergence }),
    });
    ledger.begin(at);
    for (const lost of losses.values()) ledger.lose(lost, at);
  }

  const lossKey = (resource: Resource, namespace: string | null, name: string | null): string =>
    `${resource} ${namespace ?? '*'}/${name ?? '*'}`;

  function apply(event: WatchEvent): void {
    const { resource, object, at } = event;
    const namespace = object.namespace === '' ? null : object.namespace;
    const lost = losses.get(lossKey(resource, namespace, object.name));
    const change = store.apply(event);
    if (change !== null) {
      ledger?.apply(change);
      options.onChange?.(change, store);
    }
    if (lost === undefined) return;
    losses.delete(lossKey(resource, namespace, object.name));
    ledger?.regain(lost, at);
  }

  function lose(lost: Lost, at: number): void {
    losses.set(lossKey(lost.resource, lost.namespace, lost.name), lost);
    ledger?.lose(lost, at);
  }

  function tick(at: number): void {
    now = Math.max(now ?? at, at);
    if (ledger !== null) settle.advance(now);
  }

  function take(entry: RecordingEntry | DumpEntry): void {
    switch (entry.kind) {
      case 'header':
        promised = entry.resources;
        kubernetes = entry.kubernetes;
        return tick(entry.at);
      case 'event':
        tick(entry.event.at);
        return apply(entry.event);
      case 'object':
        return apply(entry.event);
      case 'list':
        complete.add(entry.resource);
        return;
      case 'synced':
        tick(entry.at);
        complete.add(entry.resource);
        if (ledger === null && promised?.every((one) => complete.has(one)) === true) {
          begin(entry.at);
        }
        return;
      case 'unreadable':
        if ('at' in entry) tick(entry.at);
        return lose(entry.lost, now ?? 0);
      case 'clock':
        return tick(entry.at);
      case 'end':
        if ('at' in entry) tick(entry.at);
        else now = entry.newest ?? 0;
        if (ledger === null) begin(now ?? 0);
        settle.advance(now ?? 0);
    }
  }

  return {
    take,
    advance: tick,
    nextAt: () => (ledger === null ? null : settle.nextAt()),
    store,
    settle,
    ledger: () => ledger,
    release,
    kubernetes: () => kubernetes,
    now: () => now,
    previousPod: (key) => store.snapshot.pods.get(key),
  };
}

export interface Pace {
  /** Factor over the input's own speed; Infinity does not wait at all. */
  readonly speed: number;
  /** Where to stop on the input's clock; null: at its end. */
  readonly until: number | null;
  /** Aborts the waiting, and with it the replay. */
  readonly signal?: AbortSignal;
}

/** Entries of a recording in their own time, timers of the settle window between them. */
export async function replay(
  auditor: Auditor,
  entries: AsyncIterable<RecordingEntry>,
  pace: Pace,
): Promise<void> {
  const begun = performance.now();
  let origin: number | null = null;
  for await (const entry of entries) {
    const at = entry.kind === 'event' ? entry.event.at : entry.at;
    origin ??= at;
    if (pace.until !== null && at > pace.until) {
      auditor.take({ kind: 'end', at: pace.until, complete: true, ...nothingMore });
      return;
    }
    if (pace.speed !== Infinity) {
      const due = (moment: number): number =>
        begun + ((moment - (origin ?? moment)) / pace.speed) * 1000;
      for (let next = auditor.nextAt(); next !== null && next < at; next = auditor.nextAt()) {
        await until(due(next), pace.signal);
        auditor.advance(next);
      }
      await until(due(at), pace.signal);
    }
    if (pace.signal?.aborted === true) return;
    auditor.take(entry);
  }
}

const nothingMore = { skipped: new Map<string, number>(), problems: new Map<string, number>() };

/** Waits for a moment of performance.now(); returns at once when it is past or the signal fires. */
async function until(moment: number, signal: AbortSignal | undefined): Promise<void> {
  const wait = moment - performance.now();
  if (wait <= 0 || signal?.aborted === true) return;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, wait);
    signal?.addEventListener('abort', done, { once: true });
  });
}
