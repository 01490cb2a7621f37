// The loop that every command runs, from whichever door its input comes:
//
//   recording.ts ─┐ entry      ┌──────► store ──► change ──► ledger ──► settle ──► findings
//   kwok.ts ──────┼──────► Auditor.take           │            └──► convergence samples
//   dump.ts ──────┘            │                  └──► fill, sizes, trigger samples
//                              └──► unreadable objects ──► unknown
//
// Nothing is judged before every resource that the input promises is complete; what is missing when
// the input ends is not known, and the outputs that need it are unknown. Time is the input's own.

import type { Ledger } from './audit/ledger.ts';
import { createLedger } from './audit/ledger.ts';
import type { Finding } from './audit/findings.ts';
import type { Context } from './audit/service.ts';
import type { Settle } from './audit/settle.ts';
import { createSettle } from './audit/settle.ts';
import { emptySummary, summarize } from './audit/summary.ts';
import type { DumpEnd, DumpEntry } from './cluster/dump.ts';
import type { RecordingEnd, RecordingEntry } from './cluster/recording.ts';
import type { Store } from './cluster/store.ts';
import { createStore } from './cluster/store.ts';
import { countConvergence } from './measure/lag.ts';
import type { Measured, Measuring } from './measuring.ts';
import { createMeasuring } from './measuring.ts';
import type { Key, Lost, Pod, Resource, WatchEvent } from './model/objects.ts';
import { lostKey } from './model/objects.ts';
import { version } from './config.ts';
import type { OpenedFindings } from './output/family.ts';
import { countOpened } from './output/family.ts';
import type { Report } from './output/report.ts';
import { measuresOf } from './output/report.ts';
import type { Status } from './output/page.ts';
import type { Release } from './shadow/release.ts';
import { newestRelease, releaseOf } from './shadow/release.ts';

export interface AuditorOptions {
  /** Seconds that a difference may stand before it is a finding; 0 for input of one moment. */
  readonly settle: number;
  /** null: the one that the input names, else the newest. */
  readonly release: Release | null;
  readonly maxEndpointsPerSlice: number;
  readonly onOpen?: (finding: Finding) => void;
  readonly onResolve?: (finding: Finding) => void;
}

export interface Auditor {
  take(entry: RecordingEntry | DumpEntry): void;
  /** Opens what has stood for the window by `at`, on the input's clock. */
  advance(at: number): void;
  /** When the next difference becomes a finding; null when none is pending. */
  nextAt(): number | null;
  readonly store: Store;
  readonly settle: Settle;
  readonly measured: Measured;
  /** null until the input has named its release and every resource is complete. */
  ledger(): Ledger | null;
  release(): Release;
  /** The version that the input names, null where it names none. */
  kubernetes(): string | null;
  /** The input's clock, and where it began; null before the first entry that tells the time. */
  now(): number | null;
  startedAt(): number | null;
  /** Whether a recording has the end that its recorder wrote; null: there is no such end (yet). */
  complete(): boolean | null;
  /** Input that was not used, by reason. */
  dropped(): Readonly<Record<string, number>>;
  /** The latest version of a pod, for readers that need it. */
  previousPod(key: Key): Pod | undefined;
}

/** Resolved findings that are kept for reports and pages; more are counted. */
const keptFindings = 10_000;

interface State {
  readonly options: AuditorOptions;
  readonly complete: Set<Resource>;
  readonly store: Store;
  readonly settle: Settle;
  readonly losses: Map<string, Lost>;
  readonly measuring: Measuring;
  promised: readonly Resource[] | null;
  kubernetes: string | null;
  ledger: Ledger | null;
  now: number | null;
  startedAt: number | null;
  whole: boolean | null;
  unreadable: number;
  skipped: number;
}

export function createAuditor(options: AuditorOptions): Auditor {
  const complete = new Set<Resource>();
  const opened: OpenedFindings = {};
  const settle = createSettle({
    window: options.settle,
    keep: keptFindings,
    onOpen(finding) {
      countOpened(opened, finding);
      options.onOpen?.(finding);
    },
    onResolve: (finding) => options.onResolve?.(finding),
  });
  const state: State = {
    options,
    complete,
    store: createStore(complete),
    settle,
    losses: new Map(),
    measuring: createMeasuring(options.maxEndpointsPerSlice, opened, () => state.ledger),
    promised: null,
    kubernetes: null,
    ledger: null,
    now: null,
    startedAt: null,
    whole: null,
    unreadable: 0,
    skipped: 0,
  };
  const { store, measuring } = state;
  return {
    take: (entry) => {
      take(state, entry);
    },
    advance: (at) => {
      tick(state, at);
    },
    nextAt: () => (state.ledger === null ? null : settle.nextAt()),
    store,
    settle,
    measured: measuring.measured,
    ledger: () => state.ledger,
    release: () => releaseFor(state),
    kubernetes: () => state.kubernetes,
    now: () => state.now,
    startedAt: () => state.startedAt,
    complete: () => state.whole,
    dropped: () => {
      const { unreadable, skipped } = state;
      return { ...store.dropped, unreadable, skipped };
    },
    previousPod: (key) => store.snapshot.pods.get(key),
  };
}

const releaseFor = ({ options, kubernetes }: State): Release =>
  options.release ?? releaseOf(kubernetes ?? '') ?? newestRelease;

function take(state: State, entry: RecordingEntry | DumpEntry): void {
  switch (entry.kind) {
    case 'header':
      state.promised = entry.resources;
      state.kubernetes = entry.kubernetes;
      tick(state, entry.at);
      break;
    case 'event':
      tick(state, entry.event.at);
      applyEvent(state, entry.event);
      break;
    case 'object':
      applyEvent(state, entry.event);
      break;
    case 'list':
      state.complete.add(entry.resource);
      break;
    case 'synced':
      tick(state, entry.at);
      state.complete.add(entry.resource);
      if (state.ledger === null && state.promised?.every((one) => state.complete.has(one)) === true)
        begin(state, entry.at);
      break;
    case 'unreadable':
      if ('at' in entry) tick(state, entry.at);
      if ('type' in entry && entry.type === 'deleted' && removed(state, entry.lost)) break;
      lose(state, entry.lost);
      break;
    case 'clock':
      tick(state, entry.at);
      break;
    case 'end':
      finish(state, entry);
  }
}

function tick(state: State, at: number): void {
  state.startedAt ??= at;
  state.now = Math.max(state.now ?? at, at);
  if (state.ledger !== null) state.settle.advance(state.now);
}

function finish(state: State, entry: RecordingEnd | DumpEnd): void {
  if ('at' in entry) {
    tick(state, entry.at);
    state.whole = entry.complete;
    for (const count of entry.skipped.values()) state.skipped += count;
  } else {
    if (entry.newest !== null) tick(state, entry.newest);
    state.store.dropped.repeated += entry.duplicates;
    for (const count of entry.ignored.values()) state.skipped += count;
  }
  if (state.ledger === null) begin(state, state.now ?? 0);
  state.settle.advance(state.now ?? 0);
}

function begin(state: State, at: number): void {
  const { options, store, settle, measuring } = state;
  const context: Context = {
    snapshot: store.snapshot,
    release: releaseFor(state),
    maxEndpointsPerSlice: options.maxEndpointsPerSlice,
  };
  const ledger = createLedger({
    context,
    settle,
    onConvergence: (sample) => {
      countConvergence(measuring.measured.convergence, sample);
    },
  });
  ledger.begin(at);
  for (const lost of state.losses.values()) ledger.lose(lost, at);
  state.ledger = ledger;
}

function lose(state: State, lost: Lost): void {
  state.unreadable++;
  state.losses.set(lostKey(lost), lost);
  state.ledger?.lose(lost, state.now ?? 0);
}

/**
 * A deletion needs no more than the name: whether the object that is held could be removed by it.
 */
function removed(state: State, { resource, namespace, name }: Lost): boolean {
  if (name === null) return false;
  const { snapshot } = state.store;
  const held = {
    services: snapshot.services,
    pods: snapshot.pods,
    nodes: snapshot.nodes,
    endpoints: snapshot.endpoints,
    endpointslices: snapshot.slices,
  }[resource].get(namespace === null ? name : `${namespace}/${name}`);
  if (held === undefined) return false;
  state.unreadable++;
  const object = { ...held, resourceVersion: '' };
  applyEvent(state, { resource, type: 'deleted', object, at: state.now ?? 0 });
  return true;
}

function applyEvent(state: State, event: WatchEvent): void {
  const { losses, store, ledger } = state;
  const change = store.apply(event);
  if (change !== null) {
    ledger?.apply(change);
    state.measuring.take(change, store.snapshot);
  }
  if (losses.size === 0) return;
  const { resource, object, at } = event;
  const namespace = object.namespace === '' ? null : object.namespace;
  const key = lostKey({ resource, namespace, name: object.name });
  const lost = losses.get(key);
  if (lost === undefined) return;
  losses.delete(key);
  ledger?.regain(lost, at);
}

export interface ReportOptions {
  readonly kind: Report['kind'];
  readonly sources: readonly string[];
  /** Only this namespace; null: all. */
  readonly namespace: string | null;
  readonly problems: readonly string[];
}

const shownProblems = 20;

/** All that the auditor knows, as one document. */
export function reportOf(auditor: Auditor, options: ReportOptions): Report {
  const { kind, sources, namespace, problems } = options;
  const ledger = auditor.ledger();
  if (ledger === null) throw new Error('The input ended before it began');
  auditor.measured.refresh();
  const within = (one: { readonly namespace: string }): boolean =>
    namespace === null || one.namespace === namespace;
  const summary = summarize(ledger, within);
  const release = auditor.release();
  // A dump is one moment: nobody knows since when what differs does.
  const timeless = kind === 'audit';
  return {
    format: 1,
    kind,
    input: {
      sources,
      kubernetes: auditor.kubernetes(),
      release: `1.${String(release.minor)}`,
      verified: release.verified,
      from: timeless ? null : auditor.startedAt(),
      until: auditor.now(),
      complete: auditor.complete(),
    },
    namespace,
    findings: timeless
      ? summary.findings.map((finding) => ({ ...finding, since: null, openedAt: null }))
      : [...summary.findings, ...auditor.settle.resolved().filter(within)],
    services: summary.services,
    verdicts: summary.verdicts,
    unknown: summary.unknown,
    foreign: summary.foreign,
    dropped: auditor.dropped(),
    problems: problems.slice(0, shownProblems),
    measures: measuresOf(auditor.measured),
  };
}

/** The state at this moment for the server, whatever the input has told so far. */
export function statusOf(auditor: Auditor, source: string): Status {
  const ledger = auditor.ledger();
  auditor.measured.refresh();
  const { settle } = auditor;
  const now = auditor.now() ?? 0;
  return {
    metrics: {
      ...auditor.measured,
      summary: ledger === null ? emptySummary : summarize(ledger),
      dropped: auditor.dropped(),
      now,
      startedAt: auditor.startedAt() ?? now,
      releaseMinor: auditor.release().minor,
      version,
    },
    resolved: settle.resolved(),
    forgotten: settle.forgotten(),
    notReady: ledger === null ? 'The first lists are not complete' : null,
    source,
    kubernetes: auditor.kubernetes(),
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
