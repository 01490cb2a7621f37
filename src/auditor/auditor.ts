// The auditor: applies the entries of an input to the store and to the audits.
//
//   entry ──► store ──► change ──► service auditor ──► pending findings ──► findings
//     │                   ├──────► node rules ────────────────┘
//     │                   └──────► samples, journeys
//     └─────► unreadable object ──► unknown outputs
//
// The audit begins when every resource that the input promises is complete, or when it ends.

import type { AgentEntry } from '../agent/client/scraper.ts';
import type { Finding } from '../audit/finding/catalogue.ts';
import { isUnsuppressed, type Suppression } from '../audit/finding/suppressions.ts';
import { continuePast, createSavedPast } from '../audit/past.ts';
import { observe } from '../audit/measure/histogram.ts';
import { countProgrammed, type Journey } from '../audit/measure/journey.ts';
import type { ReportedIncident } from '../audit/incident/report.ts';
import type { Nodes } from '../audit/node/nodes.ts';
import { createRuleImpacts } from '../audit/node/packet-impact.ts';
import { createConfirmer } from '../audit/pending/confirm.ts';
import { createPendingFindings } from '../audit/pending/pending.ts';
import { createWatchProgress, staleGrace } from '../audit/pending/progress.ts';
import { addSavedService, createReopening } from '../audit/service/checkpoint.ts';
import type { SavedService } from '../audit/service/checkpoint.ts';
import { createServiceAuditor, type ServiceAuditor } from '../audit/service/auditor.ts';
import type { LiveEntry } from '../cluster/decode/entry.ts';
import type { DumpEnd, DumpEntry } from '../cluster/files/dump.ts';
import type { RecordingEnd, RecordingEntry } from '../cluster/files/recording.ts';
import { createStore } from '../cluster/store/store.ts';
import type { Key, Resource, UnreadableObject, WatchEvent } from '../model/objects.ts';
import { forbiddenIn, isOfService, keyOfLost, unreadableKey } from '../model/objects.ts';
import { runToEnd, type Steps } from '../model/run-to-end.ts';
import { isInNamespaces, isInScope, mergedResources, type Scope } from '../model/scope.ts';
import { countOpened } from '../output/metrics/state.ts';
import { assumedRelease, createReleaseChoice } from '../shadow/detect-release.ts';
import type { Release } from '../shadow/release.ts';
import { createIncidentLedger, type KeptResolved, keptResolved } from './incidents.ts';
import { createNodeRules, type GivenRules, type NodeRulesOptions } from './node-rules.ts';
import {
  advanceJourneys,
  advanceJourneysOnNode,
  createSampledJourneys,
  restartJourneys,
  trackPod,
} from './open-journeys.ts';
import { addConvergence, countChange, createSamples } from './samples.ts';
import { createProxied } from './proxied.ts';
import { createSuppressions, noSuppressions } from './suppressions.ts';
import { createServiceTotals, impactsOf, markChanged, refreshTotals } from './totals.ts';
import type { TotalsOptions } from './totals.ts';

export interface AuditorOptions
  extends TotalsOptions, Pick<NodeRulesOptions, 'onProblem' | 'onReportError'> {
  /** Seconds that a difference must persist before it is a finding; 0 for a dump. */
  readonly settle: number;
  /** `null`: the release that the input names, else the newest. */
  readonly release: Release | null;
  readonly maxEndpointsPerSlice: number;
  readonly scope: Scope;
  readonly keep?: KeptResolved;
  /** Of a file; those of annotations are in the input. */
  readonly suppressions?: readonly Suppression[];
  /** The present time, Unix seconds, at which suppressions expire. */
  readonly today?: () => number;
  readonly onOpen: (finding: Finding) => void;
  readonly onResolve: (finding: Finding) => void;
  /** Called when a journey ends. */
  readonly onJourney: (journey: Journey) => void;
}

export type AuditorEntry = RecordingEntry | DumpEntry | LiveEntry | GivenRules | AgentEntry;

/** Live, this many differences are evaluated at once. */
export const openedAtOnce = 256;

type State = ReturnType<typeof createState>;
export type Auditor = ReturnType<typeof createAuditor>;

/** What the input has shown, before it has shown anything. */
const initialState = (maxEndpointsPerSlice: number) => ({
  /** Objects whose latest version could not be read, by their key. */
  unreadable: new Map<string, UnreadableObject>(),
  /** What a checkpoint knows of Services, until the audit begins. */
  saved: new Map<Key, SavedService>(),
  past: createSavedPast(),
  /** What was open before a restart, and what was resolved, the oldest first. */
  reopening: createReopening(),
  earlier: { findings: [] as readonly Finding[], incidents: [] as readonly ReportedIncident[] },
  promised: null as readonly Resource[] | null,
  services: null as ServiceAuditor | null,
  totals: createServiceTotals(assumedRelease.release, maxEndpointsPerSlice),
  now: null as number | null,
  startedAt: null as number | null,
  /** Whether the clock waits, since it was set back, and whether that of the server differs. */
  clock: { isWrong: false, isSkewed: false },
  /** When the comparison began, or began again. */
  begunAt: null as number | null,
  whole: null as boolean | null,
  taking: false,
  unreadableCount: 0,
  skippedCount: 0,
});

function createState(options: AuditorOptions) {
  const { live, settle: window, keep = keptResolved } = options;
  const complete = new Set<Resource>();
  const store = createStore(complete, options.scope.endpoints ? [] : ['endpoints']);
  const proxied = createProxied(options.scope, store);
  const samples = createSamples();
  const suppressions = createSuppressions({ ...noSuppressions, ...options });
  const releaseChoice = createReleaseChoice(options.release);
  const progress = createWatchProgress(options.live ? mergedResources(options.scope) : []);
  const services = (): ServiceAuditor | null => state.services;
  const others = proxied.others((service) => nodeRules.slicesOf(service));
  const confirmer = createConfirmer(progress, services, others);
  const findings = createPendingFindings({
    window: options.settle,
    keep: keep.findings,
    ...(options.live ? { burst: openedAtOnce } : {}),
    admit: (it) => (live ? confirmer.admit(it, state.now ?? 0) : !progress.isBlind(it.item.output)),
    openedBefore: (due) => state.reopening.take(due),
    onOpenDifference: (it) => markService(state, `${it.namespace}/${it.service}`),
    suppressedBy: (finding) => suppressions.suppressedBy(finding),
    onOpen: (finding) => noteOpened(state, finding),
    onResolve(finding) {
      ruleImpacts.noteFinding(finding, -1);
      incidents.remove(finding);
      options.onResolve(finding);
    },
  });
  const nodes = (): Nodes | null => nodeRules.nodes();
  const given = { listers: store.listers, window, services, nodes, progress, suppressions };
  const sources = { impacts: impactsOf(() => state), findings: () => findings.open() };
  const incidents = createIncidentLedger({ ...given, ...sources, live, keep: keep.incidents });
  const ruleImpacts = createRuleImpacts(nodes, (key) => markService(state, key));
  const journeys = createSampledJourneys(store.listers, samples, options.onJourney);
  const nodeRules = createNodeRules({
    listers: proxied.listers,
    settle: findings,
    onReading(reading) {
      for (const lag of reading.programmed) countProgrammed(samples.travel, lag);
      advanceJourneysOnNode(journeys, reading);
      ruleImpacts.noteReading(reading);
    },
    onConvergence(sample) {
      if (!state.clock.isWrong) addConvergence(samples, sample);
    },
    window: options.settle,
    minor: () => releaseChoice.current().release.minor,
    onProblem: options.onProblem,
    onReportError: options.onReportError,
  });
  const state = {
    options,
    complete,
    store,
    proxied,
    findings,
    suppressions,
    releaseChoice,
    incidents,
    progress,
    confirmer,
    nodeRules,
    ruleImpacts,
    samples,
    journeys,
    ...initialState(options.maxEndpointsPerSlice),
  };
  return state;
}

function noteOpened({ ruleImpacts, samples, incidents, options }: State, finding: Finding): void {
  ruleImpacts.noteFinding(finding, 1);
  if (isUnsuppressed(finding)) {
    countOpened(samples.opened, finding);
    incidents.add(finding);
  }
  options.onOpen(finding);
}

function markService({ services, totals, incidents }: State, key: Key): void {
  incidents.noteImpact(key);
  if (services !== null) markChanged(totals, services, key);
}

export function createAuditor(options: AuditorOptions) {
  const state = createState(options);
  const { store, findings, incidents, progress, confirmer, samples, nodeRules } = state;
  return {
    options,
    store,
    findings,
    suppressions: state.suppressions,
    incidents,
    progress,
    confirmer,
    samples,
    journeys: state.journeys.journeys,
    take: (entry: AuditorEntry) => runToEnd(takeInSteps(state, entry)),
    /** Takes an entry in small steps. The caller runs all steps before it takes another entry. */
    takeInSteps: (entry: AuditorEntry) => takeInSteps(state, entry),
    /** Whether some steps of an entry have not run yet. */
    isTaking: () => state.taking,
    /** Sets the input's clock, and opens the differences whose settle window has ended. */
    advance: (at: number) => advance(state, at),
    clock: state.clock,
    /** Restarts what the rules of nodes and the journeys of pods measure. */
    restartMeasures: () => restartMeasures(state),
    /** Continues what was known of Services before a restart; findings open when confirmed. */
    continueServices: (saved: ReadonlyMap<Key, SavedService>) =>
      state.services?.restore(saved, state.now ?? 0, state.reopening),
    /** When the next settle window ends; `null` if no difference is pending. */
    nextAt: () => (state.services === null ? null : findings.nextAt()),
    refreshTotals() {
      state.services?.refresh();
      if (state.services !== null) refreshTotals(state.totals, state.services);
      return state.totals;
    },
    /** The verdicts of nodes; `null` if no rules of a node are known. */
    nodes: () => nodeRules.nodes()?.summary(state.now ?? 0) ?? null,
    /** What a history keeps of the rules of nodes; `null` before any are known. */
    savedNodes: (): Pick<Nodes, 'saved' | 'names'> | null => nodeRules.nodes(),
    /** The newest version of each object that the input must keep up to date. */
    held: state.proxied.held,
    /** The EndpointSlices of a Service of any shard; `null` until the audit has begun. */
    slicesOf: (service: Key) => (state.services === null ? null : nodeRules.slicesOf(service)),
    /** Packets to a Service port through the rules of a node; `null` if these are unknown. */
    walked: (node: string, service: Key, port: string) =>
      nodeRules.nodes()?.tracePort(node, service, port) ?? null,
    divergent: () => nodeRules.divergent(),
    /** Whether a resource of a namespace may be read. */
    mayRead: (resource: Resource, namespace: string): boolean =>
      store.listers.knows(resource) &&
      !state.unreadable.has(unreadableKey(forbiddenIn(resource, namespace))),
    /** Resources whose watch has been lost for long enough that verdicts are unknown. */
    stale: () => progress.unseenFor(staleGrace, state.now ?? 0),
    awaited: () => (state.promised ?? []).filter((resource) => !state.complete.has(resource)),
    /** `null` until the input has named its release and every resource is complete. */
    serviceAuditor(): ServiceAuditor | null {
      state.services?.refresh();
      return state.services;
    },
    released: state.releaseChoice.current,
    /** `null` if the input names no version. */
    kubernetes: state.releaseChoice.version,
    /** The input's clock; `null` before the first entry with a time. */
    now: () => state.now,
    startedAt: () => state.startedAt,
    begunAt: () => state.begunAt,
    /** Whether a recording has the end that its recorder wrote; `null` if no end was read. */
    complete: () => state.whole,
    dropped: () => droppedOf(state),
    earlier: state.earlier,
  };
}

/** Entries that were dropped, by reason. */
function droppedOf({ store, nodeRules, ...state }: State): Readonly<Record<string, number>> {
  const unreadable = state.unreadableCount + nodeRules.unreadable();
  return { ...store.dropped, unreadable, skipped: state.skippedCount };
}

function restartMeasures({ nodeRules, journeys }: State): void {
  nodeRules.nodes()?.restartClocks();
  if (journeys.audit !== null) restartJourneys(journeys, journeys.audit);
}

function advance(state: State, at: number): void {
  state.startedAt ??= at;
  state.now = Math.max(state.now ?? at, at);
  if (state.services === null) return;
  state.findings.advance(state.now);
  state.incidents.reviewAt(state.now);
}

/** The time of an entry on the input's clock; `null` if it has none. */
function timeOf(entry: AuditorEntry): number | null {
  if (entry.kind === 'event') return entry.event.at;
  return 'at' in entry ? entry.at : entry.kind === 'end' ? entry.newest : null;
}

/** Takes an entry, and measures how long that kept the process busy, without the pauses. */
function* takeInSteps(state: State, entry: AuditorEntry): Steps {
  const before = state.services;
  const steps = dispatch(state, entry);
  let seconds = 0;
  state.taking = true;
  for (;;) {
    const started = performance.now();
    const { done } = steps.next();
    seconds += (performance.now() - started) / 1000;
    if (done === true) break;
    yield;
  }
  state.taking = false;
  observe(state.samples.durations[state.services === before ? 'change' : 'full'], seconds);
}

function* dispatch(state: State, entry: AuditorEntry): Steps {
  const at = timeOf(entry);
  if (at !== null) advance(state, at);
  const { releaseChoice, services, store } = state;
  if (at !== null && services !== null && releaseChoice.review(store.listers, at)) {
    yield* begin(state, at);
  }
  switch (entry.kind) {
    case 'event':
    case 'object':
      return yield* takeEvent(state, entry.event);
    case 'header':
      return yield* takeHeader(state, entry);
    case 'list':
      state.complete.add(entry.resource);
      break;
    case 'synced':
      return yield* completeList(state, entry.resource, entry.at);
    case 'unreadable':
      return yield* takeUnreadable(state, 'type' in entry ? entry.type : null, entry.lost);
    case 'access': {
      const lost = forbiddenIn(entry.resource, entry.namespace);
      return yield* noteLost(state, lost, !entry.permitted, entry.at);
    }
    case 'progress':
      state.progress.bookmark(entry.resource, entry.resourceVersion, entry.at);
      break;
    case 'watch':
      return yield* takeWatchState(state, entry);
    case 'audit-state':
      if (!state.past.add(entry.part, entry.saved)) state.skippedCount++;
      break;
    case 'node-config':
    case 'node-rules':
    case 'given-rules':
    case 'node-state':
      state.nodeRules.take(entry, at ?? state.now ?? 0);
      break;
    case 'node-report':
      // The desired state of a node is unknown while its input is stale.
      if (!state.progress.isBlind('node')) yield* state.nodeRules.takeAgentEntry(entry);
      break;
    case 'node-unseen':
      return yield* state.nodeRules.takeAgentEntry(entry);
    case 'zones':
      state.store.noteZones(entry.zones);
      break;
    case 'service-state':
      if (!addSavedService(state.saved, entry.service, entry.saved)) state.skippedCount++;
      break;
    case 'clock':
      break;
    case 'end':
      return yield* finish(state, entry);
  }
}

function* takeHeader(state: State, header: AuditorEntry & { readonly kind: 'header' }): Steps {
  state.promised ??= header.resources;
  const isOther = state.releaseChoice.setVersion(header.kubernetes);
  if (state.services !== null && isOther) yield* begin(state, header.at);
}

/** Also for a resource that became permitted later. */
function* completeList(state: State, resource: Resource, at: number): Steps {
  const isNew = !state.complete.has(resource);
  state.proxied.listed(resource);
  state.complete.add(resource);
  const isReady = state.promised?.every((promised) => state.complete.has(promised)) === true;
  if (!isReady || (state.services !== null && !isNew)) return;
  state.releaseChoice.review(state.store.listers, at);
  yield* begin(state, at);
}

function* takeWatchState(state: State, entry: LiveEntry & { readonly kind: 'watch' }): Steps {
  const { progress, findings, services } = state;
  const { resource, at } = entry;
  for (const { missed, ...spell } of progress.setState(resource, entry.state, at)) {
    // Any change may have been missed, so the settle window restarts; else 5 s of sight suffice.
    const least = missed ? state.options.settle : 5;
    if (missed || spell.to - spell.from >= staleGrace) yield* findings.delay({ ...spell, least });
  }
  // A recording has no event loop that tries again what a short loss has kept from opening.
  if (!state.options.live) findings.retry(at);
  if (services !== null || state.promised === null || resource === 'services') return;
  // It begins without what is not permitted. Without Services all would seem left over.
  const others = state.promised.filter((promised) => promised !== resource);
  state.promised = entry.state === 'off' ? others : [...others, resource];
  if (entry.state === 'off' && others.every((other) => state.complete.has(other))) {
    yield* begin(state, at);
  }
}

function* takeUnreadable(
  state: State,
  type: WatchEvent['type'] | null,
  lost: UnreadableObject,
): Steps {
  const { resource, namespace } = lost;
  const hasNamespace = namespace !== null && resource !== 'nodes';
  if (hasNamespace && !isInNamespaces(state.options.scope, namespace)) return;
  state.unreadableCount++;
  const at = state.now ?? 0;
  // A deletion needs only the name.
  const key = type === 'deleted' ? keyOfLost(lost) : null;
  const cached = key === null ? undefined : state.proxied.held(resource).get(key);
  // An object that could not be read makes nothing unknown once it is gone.
  if (cached === undefined) return yield* noteLost(state, lost, key === null, at);
  const object = { ...cached, resourceVersion: '' };
  yield* takeEvent(state, { resource, type: 'deleted', object, at });
}

/** Notes what cannot be read, or can be read again. All that depends on it is unknown meanwhile. */
function* noteLost(state: State, lost: UnreadableObject, isLost: boolean, at: number): Steps {
  const { services, unreadable } = state;
  const key = unreadableKey(lost);
  if (isLost) unreadable.set(key, lost);
  else if (!unreadable.delete(key)) return;
  if (services === null) return;
  yield* isLost ? services.markUnreadable(lost, at) : services.markReadable(lost, at);
}

function* takeEvent(state: State, given: WatchEvent): Steps {
  const { store, services, options, progress, unreadable } = state;
  const { resource, object, at } = given;
  const order = options.live ? progress.observe(resource, object, at) : null;
  const event = order === 'gap' ? { ...given, gap: true } : given;
  const isInside = isInScope(options.scope, resource, object);
  const isKnown = isInside || store.objects[resource].has(object.key);
  // An object that leaves the scope is deleted.
  const applied = isKnown ? store.apply(isInside ? event : { ...event, type: 'deleted' }) : null;
  const change = applied && progress.delayed(applied);
  const seen = state.proxied.apply(event, change);
  if (seen !== null) {
    if (isOfService(seen)) state.suppressions.apply(seen);
    state.nodeRules.apply(seen);
  }
  if (change !== null) {
    services?.apply(change, order === 'late');
    if (!state.clock.isWrong) trackPod(state.journeys, change, state.clock.isSkewed);
    const isAuditing = services !== null && !state.clock.isWrong;
    countChange(state.samples, store.listers, change, isAuditing, state.clock.isSkewed);
  }
  if (unreadable.size === 0) return;
  const { namespace, name } = object;
  yield* noteLost(state, { resource, namespace, name, labels: null }, false, at);
}

function* finish(state: State, entry: RecordingEnd | DumpEnd): Steps {
  if ('at' in entry) state.whole = entry.complete;
  else {
    state.releaseChoice.guess(state.store.listers, entry.kubelet);
    state.store.dropped.repeated += entry.duplicates;
  }
  const skipped = 'at' in entry ? entry.skipped : entry.ignored;
  for (const count of skipped.values()) state.skippedCount += count;
  const now = state.now ?? 0;
  if (state.services === null) yield* begin(state, now);
  // A dump is one moment, so the age of its differences is unknown.
  if (!('at' in entry)) state.begunAt = null;
  state.findings.advance(now);
  state.incidents.reviewAt(now);
}

/** Begins the audit, or restarts it because another resource or another release is known. */
function* begin(state: State, at: number): Steps {
  const { options, store, findings, incidents, samples, journeys } = state;
  for (const { items } of state.services?.audited.values() ?? []) {
    for (const item of [...items.values()].flat()) findings.drop(item, at);
  }
  const { maxEndpointsPerSlice } = options;
  const { release } = state.releaseChoice.current();
  const rulesOf = (key: Key) => state.ruleImpacts.impactOn(key);
  const totals = createServiceTotals(release, maxEndpointsPerSlice, rulesOf, options);
  const services: ServiceAuditor = createServiceAuditor({
    context: { listers: store.listers, release, maxEndpointsPerSlice },
    settle: findings,
    onChange(key) {
      markChanged(totals, services, key);
      incidents.noteChange(key);
    },
    onEvaluated: (item, change) => advanceJourneys(journeys, item, change),
    onConvergence(sample) {
      if (!state.clock.isWrong) addConvergence(samples, sample);
      incidents.noteWrite(sample);
    },
  });
  yield* services.begin(at, state.saved);
  for (const object of state.unreadable.values()) yield* services.markUnreadable(object, at);
  state.services = services;
  state.begunAt = at;
  state.totals = totals;
  restartJourneys(journeys, { services, release });
  services.restore(state.saved, at);
  state.saved.clear();
  state.nodeRules.begin(at);
  continuePast(state, state.past);
}
