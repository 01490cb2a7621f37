// The loop that every command runs, from whichever door its input comes:
//
//   recording.ts ─┐ entry      ┌──────► store ──► change ──► ledger ──► settle ──► findings
//   kwok.ts ──────┼──────► Auditor.take           │            └──► convergence samples
//   dump.ts ──────┘            │                  └──► fill, sizes, trigger samples, journeys
//                              └──► unreadable objects ──► unknown
//
// Nothing is judged before every resource that the input promises is complete; what is missing when
// the input ends is not known, and the outputs that need it are unknown. Time is the input's own.

import type { FleetEntry } from '../agent/client/scraper.ts';
import type { Finding } from '../audit/finding/catalogue.ts';
import type { Journey } from '../audit/measure/journey.ts';
import type { PacketTrace } from '../audit/node/audit-node.ts';
import type { NodesSummary } from '../audit/node/nodes.ts';
import type { Confirmer } from '../audit/pending/confirm.ts';
import { createConfirmer } from '../audit/pending/confirm.ts';
import type { PendingFindings } from '../audit/pending/pending.ts';
import { createPendingFindings } from '../audit/pending/pending.ts';
import type { WatchProgress } from '../audit/pending/progress.ts';
import { createWatchProgress, staleGrace } from '../audit/pending/progress.ts';
import type { ServiceAuditor } from '../audit/service/auditor.ts';
import { createServiceAuditor } from '../audit/service/auditor.ts';
import type { AuditContext } from '../audit/service/cache.ts';
import type { LiveEntry } from '../cluster/decode/entry.ts';
import type { OnProblem } from '../cluster/decode/problem.ts';
import type { DumpEnd, DumpEntry } from '../cluster/files/dump.ts';
import type { RecordingEnd, RecordingEntry } from '../cluster/files/recording.ts';
import type { Store } from '../cluster/store/store.ts';
import { createStore, heldObjects } from '../cluster/store/store.ts';
import type { Key, UnreadableObject, Pod, Resource, WatchEvent } from '../model/objects.ts';
import { unreadableKey } from '../model/objects.ts';
import type { Steps } from '../model/run-to-end.ts';
import { runToEnd } from '../model/run-to-end.ts';
import type { Scope } from '../model/scope.ts';
import { isInNamespaces, isInScope, wholeCluster } from '../model/scope.ts';
import type { OpenedFindings } from '../output/metrics/state.ts';
import { countOpened } from '../output/metrics/state.ts';
import type { DetectedRelease } from '../shadow/detect-release.ts';
import { assumedRelease, chooseRelease, detectRelease } from '../shadow/detect-release.ts';
import type { Release } from '../shadow/release.ts';
import type { Measured, Measuring } from './measurements.ts';
import { createMeasuring } from './measurements.ts';
import type { GivenRules, NodeRules } from './node-rules.ts';
import { createNodeRules } from './node-rules.ts';
import { createServiceTotals } from './totals.ts';

export interface AuditorOptions {
  /** Seconds that a difference may stand before it is a finding; 0 for input of one moment. */
  readonly settle: number;
  /** null: the one that the input names, else the newest. */
  readonly release: Release | null;
  readonly maxEndpointsPerSlice: number;
  /** What is audited; without it, everything. */
  readonly scope?: Scope;
  /** The input is live, so that differences must be confirmed before they are findings. */
  readonly live?: boolean;
  readonly onOpen?: (finding: Finding) => void;
  readonly onResolve?: (finding: Finding) => void;
  /** What of the nodes' rules cannot be read. */
  readonly onProblem: OnProblem;
  /** A journey of a pod ended (measure/journey.ts). */
  readonly onJourney?: (journey: Journey) => void;
}

export type Entry = RecordingEntry | DumpEntry | LiveEntry | GivenRules | FleetEntry;

export interface Auditor {
  take(entry: Entry): void;
  /** The same in small steps, between which others may work; they may take in nothing else. */
  takeInSteps(entry: Entry): Steps;
  /** Opens what has stood for the window by `at`, on the input's clock. */
  advance(at: number): void;
  /** When the next difference becomes a finding; null when none is pending. */
  nextAt(): number | null;
  readonly store: Store;
  readonly findings: PendingFindings;
  /** These two as the options say. */
  readonly live: boolean;
  readonly maxEndpointsPerSlice: number;
  readonly progress: WatchProgress;
  readonly confirmer: Confirmer;
  /** What was judged on nodes, as of now; null: nothing is told of any node's rules. */
  nodes(): NodesSummary | null;
  /** Packets of a Service port through the rules of a node; null: these are not known. */
  walked(node: string, service: Key, port: string): PacketTrace[] | null;
  /** Frontends of nodes that differ from what must be there, by what their agents tell. */
  divergent(): number;
  readonly measured: Measured;
  /** Resources that have not been seen for long enough that verdicts are unknown. */
  stale(): ReadonlySet<Resource>;
  /** Resources whose first list is awaited. */
  awaited(): readonly Resource[];
  /** null until the input has named its release and every resource is complete. */
  serviceAuditor(): ServiceAuditor | null;
  release(): Release;
  /** What told that release. */
  releaseBy(): DetectedRelease['by'];
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

/** Live, more differences than these are looked at in several goes, so that nobody waits long. */
export const openedAtOnce = 256;

interface State {
  readonly options: AuditorOptions;
  readonly complete: Set<Resource>;
  readonly store: Store;
  readonly findings: PendingFindings;
  readonly losses: Map<string, UnreadableObject>;
  readonly measuring: Measuring;
  readonly progress: WatchProgress;
  readonly nodeRules: NodeRules;
  /** Has a Service counted anew. */
  touch: (key: Key) => void;
  /** Judging began with the entry that is taken in. */
  began: boolean;
  promised: readonly Resource[] | null;
  kubernetes: string | null;
  guessed: DetectedRelease;
  services: ServiceAuditor | null;
  now: number | null;
  startedAt: number | null;
  whole: boolean | null;
  unreadable: number;
  skipped: number;
}

export function createAuditor(options: AuditorOptions): Auditor {
  const complete = new Set<Resource>();
  const opened: OpenedFindings = {};
  const progress = createWatchProgress();
  const confirmer = createConfirmer(progress, () => state.services);
  const findings = createPendingFindings({
    window: options.settle,
    keep: keptFindings,
    ...(options.live === true ? { burst: openedAtOnce } : {}),
    admit: (due) =>
      options.live === true ? confirmer.admit(due) : !progress.isBlind(due.item.output),
    onOpenDifference: ({ namespace, service }) => {
      state.touch(`${namespace}/${service}`);
    },
    onOpen(finding) {
      countOpened(opened, finding);
      options.onOpen?.(finding);
    },
    onResolve: (finding) => options.onResolve?.(finding),
  });
  const store = createStore(complete);
  const measuring = createMeasuring({
    listers: store.listers,
    opened,
    tally: createServiceTotals(assumedRelease.release, options.maxEndpointsPerSlice),
    onJourney: (journey) => options.onJourney?.(journey),
  });
  const nodeRules = createNodeRules({
    listers: store.listers,
    settle: findings,
    onReading: measuring.lags.nodeJudged,
    onConvergence: measuring.lags.converged,
    window: options.settle,
    minor: () => releasedFor(state).release.minor,
    onProblem: options.onProblem,
  });
  const state: State = {
    options,
    complete,
    store,
    findings,
    losses: new Map(),
    measuring,
    touch: () => undefined,
    began: false,
    progress,
    nodeRules,
    promised: null,
    kubernetes: null,
    guessed: assumedRelease,
    services: null,
    now: null,
    startedAt: null,
    whole: null,
    unreadable: 0,
    skipped: 0,
  };
  return auditorOf(state, confirmer);
}

function auditorOf(state: State, confirmer: Confirmer): Auditor {
  const { store, findings, measuring, progress } = state;
  return {
    live: state.options.live === true,
    take: (entry) => {
      runToEnd(timed(state, entry));
    },
    takeInSteps: (entry) => timed(state, entry),
    advance: (at) => {
      tick(state, at);
    },
    nextAt: () => (state.services === null ? null : findings.nextAt()),
    store,
    findings,
    progress,
    confirmer,
    nodes: () => state.nodeRules.nodes()?.summary(state.now ?? 0) ?? null,
    walked: (...asked) => state.nodeRules.nodes()?.tracePort(...asked) ?? null,
    maxEndpointsPerSlice: state.options.maxEndpointsPerSlice,
    divergent: () => state.nodeRules.divergent(),
    measured: measuring.measured,
    stale: () => progress.unseenFor(staleGrace, state.now ?? 0),
    awaited: () => (state.promised ?? []).filter((one) => !state.complete.has(one)),
    serviceAuditor: () => state.services,
    release: () => releasedFor(state).release,
    releaseBy: () => releasedFor(state).by,
    kubernetes: () => state.kubernetes,
    now: () => state.now,
    startedAt: () => state.startedAt,
    complete: () => state.whole,
    dropped: () => {
      const unreadable = state.unreadable + state.nodeRules.unreadable();
      return { ...store.dropped, unreadable, skipped: state.skipped };
    },
    previousPod: (key) => store.listers.pods.get(key),
  };
}

const releasedFor = ({ options, kubernetes, guessed }: State): DetectedRelease =>
  chooseRelease(options.release, kubernetes, guessed);

/** Takes in an entry and notes for how long that kept the process busy, pauses left out. */
function* timed(state: State, entry: Entry): Steps {
  const steps = takeInSteps(state, entry);
  let seconds = 0;
  state.began = false;
  for (;;) {
    const asked = performance.now();
    const isDone = steps.next().done;
    seconds += (performance.now() - asked) / 1000;
    if (isDone === true) break;
    yield;
  }
  state.measuring.took(seconds, state.began);
}

function* takeInSteps(state: State, entry: Entry): Steps {
  switch (entry.kind) {
    case 'header':
      tick(state, entry.at);
      yield* takeHeader(state, entry);
      break;
    case 'event':
      tick(state, entry.event.at);
      yield* takeEvent(state, entry.event);
      break;
    case 'object':
      yield* takeEvent(state, entry.event);
      break;
    case 'list':
      state.complete.add(entry.resource);
      break;
    case 'synced':
      tick(state, entry.at);
      yield* complete(state, entry.resource, entry.at);
      break;
    case 'unreadable':
      if ('at' in entry) tick(state, entry.at);
      yield* takeUnreadable(state, 'type' in entry ? entry.type : null, entry.lost);
      break;
    case 'progress':
      tick(state, entry.at);
      state.progress.bookmark(entry.resource, entry.resourceVersion, entry.at);
      break;
    case 'watch':
      tick(state, entry.at);
      yield* turn(state, entry);
      break;
    case 'node-config':
    case 'node-rules':
      tick(state, entry.at);
      state.nodeRules.take(entry, entry.at);
      break;
    case 'given-rules':
      state.nodeRules.take(entry, state.now ?? 0);
      break;
    case 'node-report':
    case 'node-unseen':
      tick(state, entry.at);
      // What a node should do is not known while what it is told cannot be seen.
      if (entry.kind === 'node-report' && state.progress.isBlind('node')) break;
      yield* state.nodeRules.takeAgentEntry(entry);
      break;
    case 'clock':
      tick(state, entry.at);
      break;
    case 'end':
      yield* finish(state, entry);
  }
}

/** What will be delivered; or that the control plane became another, which may judge otherwise. */
function* takeHeader(
  state: State,
  { kubernetes, resources, at }: Entry & { readonly kind: 'header' },
): Steps {
  const before = releasedFor(state).release;
  state.kubernetes = kubernetes;
  state.promised ??= resources;
  if (state.services !== null && releasedFor(state).release !== before) yield* begin(state, at);
}

/** A first list is complete, or one that was not expected any more. */
function* complete(state: State, resource: Resource, at: number): Steps {
  const isNew = !state.complete.has(resource);
  state.store.listed(resource);
  state.complete.add(resource);
  const isReady = state.promised?.every((one) => state.complete.has(one)) === true;
  if (isReady && (state.services === null || isNew)) yield* begin(state, at);
}

/** Seconds for which at least a difference must be seen to stand after it could not be seen. */
const leastSight = 5;

function* turn(state: State, entry: LiveEntry & { readonly kind: 'watch' }): Steps {
  const { progress, findings, services } = state;
  const { resource, at } = entry;
  for (const { output, from, to, missed } of progress.setState(resource, entry.state, at)) {
    // What was missed may have been anything: the window begins anew.
    const least = missed ? state.options.settle : leastSight;
    if (missed || to - from >= staleGrace) findings.delay(new Set([output]), from, to, least);
  }
  if (services !== null || state.promised === null) return;
  // What is not permitted is not waited for; it may be later.
  const others = state.promised.filter((one) => one !== resource);
  state.promised = entry.state === 'off' ? others : [...others, resource];
  if (entry.state === 'off' && others.every((one) => state.complete.has(one))) {
    yield* begin(state, at);
  }
}

function* takeUnreadable(
  state: State,
  type: WatchEvent['type'] | null,
  lost: UnreadableObject,
): Steps {
  const { scope = wholeCluster } = state.options;
  const isPlaced = lost.namespace !== null && lost.resource !== 'nodes';
  if (isPlaced && !isInNamespaces(scope, lost.namespace)) return;
  if (type === 'deleted') {
    const event = removalOf(state, lost);
    if (event !== null) {
      state.unreadable++;
      yield* takeEvent(state, event);
      return;
    }
  }
  yield* lose(state, lost);
}

function tick(state: State, at: number): void {
  state.startedAt ??= at;
  state.now = Math.max(state.now ?? at, at);
  if (state.services !== null) state.findings.advance(state.now);
}

function* finish(state: State, entry: RecordingEnd | DumpEnd): Steps {
  if ('at' in entry) {
    tick(state, entry.at);
    state.whole = entry.complete;
  } else {
    if (entry.newest !== null) tick(state, entry.newest);
    state.guessed = detectRelease(state.store.listers, entry.kubelet);
    state.store.dropped.repeated += entry.duplicates;
  }
  const skipped = 'at' in entry ? entry.skipped : entry.ignored;
  for (const count of skipped.values()) state.skipped += count;
  if (state.services === null) yield* begin(state, state.now ?? 0);
  state.findings.advance(state.now ?? 0);
}

/** Begins judging, or begins again where a resource is known that was not. */
function* begin(state: State, at: number): Steps {
  const { options, store, findings, measuring } = state;
  state.began = true;
  for (const { items } of state.services?.audited.values() ?? []) {
    for (const item of [...items.values()].flat()) findings.drop(item, at);
  }
  const context: AuditContext = {
    listers: store.listers,
    release: releasedFor(state).release,
    maxEndpointsPerSlice: options.maxEndpointsPerSlice,
  };
  const tally = createServiceTotals(context.release, options.maxEndpointsPerSlice);
  const services = createServiceAuditor({
    context,
    settle: findings,
    onChange: (key) => {
      tally.touch(services, key);
    },
    onEvaluated: measuring.lags.judged,
    onConvergence: measuring.lags.converged,
  });
  yield* services.beginInSteps(at);
  for (const lost of state.losses.values()) yield* services.markUnreadableInSteps(lost, at);
  state.services = services;
  state.touch = (key) => {
    tally.touch(services, key);
  };
  measuring.follow(services, tally, context.release);
  state.nodeRules.begin(at);
}

function* lose(state: State, lost: UnreadableObject): Steps {
  state.unreadable++;
  state.losses.set(unreadableKey(lost), lost);
  if (state.services !== null) yield* state.services.markUnreadableInSteps(lost, state.now ?? 0);
}

/**
 * A deletion needs no more than the name: that of the object that is held; null where none is.
 */
function removalOf(
  state: State,
  { resource, namespace, name }: UnreadableObject,
): WatchEvent | null {
  if (name === null) return null;
  const key = namespace === null || namespace === '' ? name : `${namespace}/${name}`;
  const held = heldObjects(state.store)[resource].get(key);
  if (held === undefined) return null;
  const object = { ...held, resourceVersion: '' };
  return { resource, type: 'deleted', object, at: state.now ?? 0 };
}

/** The event as it concerns what is audited: what leaves that is deleted; null: it does not. */
function scoped(state: State, event: WatchEvent): WatchEvent | null {
  const { scope } = state.options;
  const { resource, object } = event;
  if (scope === undefined || isInScope(scope, resource, object)) return event;
  const held = heldObjects(state.store)[resource].has(object.key);
  return held ? { ...event, type: 'deleted' } : null;
}

function* takeEvent(state: State, delivered: WatchEvent): Steps {
  const found = applyEvent(state, delivered);
  if (found !== null) yield* state.services?.markReadableInSteps(found, delivered.at) ?? [];
}

/** Returns what was lost and is known again by the event; null: nothing. */
function applyEvent(state: State, delivered: WatchEvent): UnreadableObject | null {
  const { losses, store, services, options, progress } = state;
  const { resourceVersion } = delivered.object;
  const late =
    options.live === true && progress.observe(delivered.resource, resourceVersion, delivered.at);
  const event = scoped(state, delivered);
  if (event === null) return null;
  const change = store.apply(event);
  if (change !== null) {
    services?.apply(change, late);
    state.nodeRules.apply(change);
    state.measuring.take(change);
  }
  if (losses.size === 0) return null;
  const { resource, object } = event;
  const key = unreadableKey({ resource, namespace: object.namespace, name: object.name });
  const lost = losses.get(key) ?? null;
  losses.delete(key);
  return lost;
}
