// The reference auditor: slow and simple. For every event it computes the differences of all
// Services that the event can touch from nothing (cluster.ts), and keeps when each began, since
// when it had no excuse, and when it ended. Findings follow from that history:
//
// - A difference is pending from its start. It opens when its clock has run for the settle window.
// - The clock starts with the difference, and again when an event makes the controller sync
//   although a blind spot explained the difference (docs/decisions/0002), or when events were
//   missed before it opened (0010). Time without a watch does not count (0011).
// - A new difference of an address that was wrong before keeps the older clock, if it is the same
//   trouble: not of an explained one for an unexplained one, not of a lesser harm for a greater.
// - All open differences of one Service, output, code and cause are one finding.
//
// Causes follow from the event handlers of k8s.io/kubernetes@v1.36.3 pkg/controller/endpoint,
// endpointslice and endpointslicemirroring (`effectOf`), and docs/upstream-blind-spots.md.

import type { Output } from '../../src/audit/finding/catalogue.ts';
import { catalogue, isWorse, severities } from '../../src/audit/finding/catalogue.ts';
import type { Cause } from '../../src/audit/finding/causes.ts';
import type { Difference } from '../../src/audit/finding/difference.ts';
import type { AuditContext } from '../../src/audit/service/cache.ts';
import type { AuditorEntry } from '../../src/auditor/auditor.ts';
import type { AnyObject, Key, Resource } from '../../src/model/objects.ts';
import { unreadableKey } from '../../src/model/objects.ts';
import { assumedRelease, chooseRelease } from '../../src/shadow/detect-release.ts';
import { defaultMaxEndpointsPerSlice } from '../../src/shadow/endpointslice.ts';
import type { Release } from '../../src/shadow/release.ts';
import type { Located, View } from './cluster.ts';
import {
  createCluster,
  differencesOf,
  serviceKeys,
  servicesTouched,
  stateOf,
  trackSlices,
  unknownText,
  viewOf,
  write,
} from './cluster.ts';
import type { Effect } from './effects.ts';
import { canMake, effectOf, noEffect } from './effects.ts';
import type { ExpectedFinding, Known } from './findings.ts';
import { close, openAll } from './findings.ts';

export interface ReferenceOptions {
  readonly settle: number;
  readonly release?: Release | null;
  readonly maxEndpointsPerSlice?: number;
  /** Findings open when the caller says so, since reads confirm them. */
  readonly live?: boolean;
}

/** What each output depends on. */
const inputsOf: Readonly<Record<Output, readonly Resource[]>> = {
  endpoints: ['services', 'pods', 'endpoints'],
  endpointslices: ['services', 'pods', 'nodes', 'endpointslices'],
  mirrored: ['services', 'endpoints', 'endpointslices'],
  input: ['nodes', 'services', 'pods', 'endpoints', 'endpointslices'],
  node: ['services', 'endpointslices', 'nodes'],
};
const outputs = Object.keys(inputsOf) as Output[];

/** Seconds for which a watch may be gone without delaying anything. */
const grace = 5;

interface Spell {
  readonly from: number;
  missed: boolean;
}

export type Reference = ReturnType<typeof createReference>;

type State = ReturnType<typeof createState>;

const createState = (options: ReferenceOptions) => ({
  options,
  cluster: createCluster(),
  view: null as View | null,
  release: options.release ?? assumedRelease.release,
  promised: null as readonly Resource[] | null,
  kubernetes: null as string | null,
  begun: false,
  now: 0,
  /** The time of the latest entry. */
  at: 0,
  /** Changes so far. */
  events: 0,
  /** When a late event was last about a Service. */
  lateAt: new Map<Key, number>(),
  known: new Map<Key, Known[]>(),
  unknown: new Map<Key, string>(),
  watches: new Map<Resource, string>(),
  blind: new Map<Output, Spell>(),
  findings: [] as ExpectedFinding[],
  /** Service keys that the latest entry may have touched. */
  touched: new Set<Key>(),
});

export function createReference(options: ReferenceOptions) {
  const state = createState(options);
  return {
    state,
    take: (entry: AuditorEntry, late = false) => take(state, entry, late),
    advance: (at: number) => advance(state, at),
    findings: state.findings,
    /** Opens differences at a moment, in live mode. */
    open: (all: readonly Known[], at: number): void => openAll(state.findings, all, at),
    /** Restarts the clock of a difference. */
    restart: (one: Known, at: number): void => {
      restart(state, one, newClock(at));
    },
    isBlind: (output: Output) => state.blind.has(output),
  };
}

function advance(state: State, at: number): void {
  state.now = Math.max(state.now, at);
  if (!state.begun || state.options.live === true) return;
  const due = [...state.known.values()]
    .flat()
    .filter((one) => one.openedAt === null && one.due <= state.now && !state.blind.has(one.output));
  const times = Map.groupBy(due, (one) => one.due);
  for (const [time, all] of [...times].sort(([a], [b]) => a - b))
    openAll(state.findings, all, time);
}

function take(state: State, entry: AuditorEntry, late: boolean): void {
  const { cluster } = state;
  state.touched = new Set();
  const at = entry.kind === 'event' ? entry.event.at : 'at' in entry ? entry.at : state.now;
  advance(state, at);
  state.at = at;
  switch (entry.kind) {
    case 'event':
    case 'object':
      takeEvent(state, entry.event, late);
      break;
    case 'header':
      state.kubernetes = entry.kubernetes;
      state.promised ??= entry.resources;
      chooseTheRelease(state);
      break;
    case 'list':
      cluster.complete.add(entry.resource);
      break;
    case 'synced': {
      const isNew = !cluster.complete.has(entry.resource);
      for (const name of cluster.deleted.keys()) {
        if (name.startsWith(`${entry.resource} `)) cluster.deleted.delete(name);
      }
      cluster.complete.add(entry.resource);
      const isReady = state.promised?.every((one) => cluster.complete.has(one)) === true;
      if (isReady && (isNew || !state.begun)) begin(state);
      break;
    }
    case 'watch':
      takeWatch(state, entry.resource, entry.state);
      break;
    case 'unreadable':
      takeUnreadable(state, entry);
      break;
    case 'end':
      if (!state.begun) begin(state);
      advance(state, state.now);
      break;
    default:
  }
}

function chooseTheRelease(state: State): void {
  const { options, kubernetes, begun } = state;
  const { release } = chooseRelease(options.release ?? null, kubernetes, assumedRelease);
  if (begun && release !== state.release) {
    state.release = release;
    begin(state);
  }
  state.release = release;
}

const contextOf = ({ view, release, options }: State): AuditContext => {
  if (view === null) throw new Error('The audit has not begun');
  const { maxEndpointsPerSlice = defaultMaxEndpointsPerSlice } = options;
  return { listers: view.listers, release, maxEndpointsPerSlice };
};

function begin(state: State): void {
  for (const one of [...state.known.values()].flat()) close(one, state.at);
  state.begun = true;
  state.known.clear();
  state.unknown.clear();
  for (const map of ['lostSlices', 'wokenAt', 'slicesChangedAt'] as const) {
    state.cluster[map].clear();
  }
  state.view = viewOf(state.cluster);
  for (const key of serviceKeys(state.view)) {
    evaluate(state, key, { ...noEffect, beginning: true });
  }
}

// --- watches ---

function takeWatch(state: State, resource: Resource, is: string): void {
  const { watches, blind, options, cluster } = state;
  watches.set(resource, is);
  for (const output of outputs.filter((name) => inputsOf[name].includes(resource))) {
    const spell = blind.get(output);
    const isSeen = inputsOf[output].every((input) => isSeenBy(state, input));
    if (!isSeen && spell === undefined) {
      blind.set(output, { from: state.now, missed: is === 'relisting' });
    } else if (!isSeen && spell !== undefined && is === 'relisting') spell.missed = true;
    if (!isSeen || spell === undefined) continue;
    blind.delete(output);
    seeAgain(state, output, spell, options.settle);
  }
  if (state.begun || state.promised === null || resource === 'services') return;
  const others = state.promised.filter((other) => other !== resource);
  state.promised = is === 'off' ? others : [...others, resource];
  if (is === 'off' && others.every((one) => cluster.complete.has(one))) begin(state);
}

/** Without a watch, a resource says nothing, unless there never was any. */
function isSeenBy({ watches, cluster }: State, resource: Resource): boolean {
  const is = watches.get(resource);
  if (is === 'off') return !cluster.complete.has(resource);
  return is === undefined || is === 'synced';
}

/** What was not seen for a while does not count, and some seconds must be seen after it. */
function seeAgain(state: State, output: Output, { from, missed }: Spell, settle: number): void {
  const { now } = state;
  for (const one of [...state.known.values()].flat()) {
    if (one.output !== output || one.openedAt !== null) continue;
    if (!missed && now - from < grace) {
      one.due = Math.max(one.due, one.due < now ? now : one.due);
      continue;
    }
    const least = missed ? settle : grace;
    const end = one.clock + one.unseen + settle;
    one.due = Math.max(end + now - Math.max(from, one.clock), now + least);
    one.unseen = one.due - settle - one.clock;
    for (const other of one.lesser) other.unseen += now - Math.max(from, other.clock);
  }
}

// --- events ---

function takeUnreadable(state: State, entry: AuditorEntry & { kind: 'unreadable' }): void {
  const { cluster } = state;
  const { lost } = entry;
  const { resource, namespace, name } = lost;
  const key = namespace === null || namespace === '' ? name : `${namespace}/${name ?? ''}`;
  const object = (cluster[resource] as Map<Key, AnyObject>).get(key ?? '');
  if ('type' in entry && entry.type === 'deleted' && object !== undefined) {
    const event = { resource, type: 'deleted' as const, at: state.at };
    takeEvent(state, { ...event, object: { ...object, resourceVersion: '' } }, false);
    return;
  }
  cluster.unreadable.set(unreadableKey(lost), lost);
  evaluateAll(state);
}

function evaluateAll(state: State): void {
  if (!state.begun) return;
  state.view = viewOf(state.cluster);
  for (const key of new Set([...serviceKeys(state.view), ...state.known.keys()])) {
    evaluate(state, key, noEffect);
  }
}

function takeEvent(
  state: State,
  event: (AuditorEntry & { kind: 'event' })['event'],
  late: boolean,
): void {
  const { cluster } = state;
  const change = write(cluster, event);
  if (change !== null && state.begun) {
    const before = state.view ?? viewOf(cluster);
    trackSlices(cluster, change);
    state.view = viewOf(cluster, change.resource, before);
    const touched = servicesTouched(before, state.view, change, state.events++);
    const namespace = (change.after ?? change.before)?.namespace ?? '';
    for (const key of state.known.keys()) if (key.startsWith(`${namespace}/`)) touched.add(key);
    for (const key of touched) {
      const effect = effectOf(state.view, contextOf(state), change, key);
      if (effect.wakes.has('endpointslices')) cluster.wokenAt.set(key, state.at);
      if (effect.writes.has('endpointslices')) cluster.slicesChangedAt.set(key, state.at);
      if (late && effect.isConcerned) state.lateAt.set(key, state.at);
      evaluate(state, key, {
        ...effect,
        gap: change.gap === true || late,
        late: change.gap !== true,
      });
    }
  }
  const { resource, object } = event;
  const name = unreadableKey({ resource, namespace: object.namespace, name: object.name });
  if (cluster.unreadable.delete(name)) evaluateAll(state);
}

// --- differences ---

const asleep: readonly (Cause | null)[] = [
  'pod-phase-unnoticed',
  'pod-change-unnoticed',
  'node-change-unnoticed',
];

const severityOf = ({ severity, quiet, code }: Difference, cause: Cause | null, proven: boolean) =>
  severity ?? (quiet && proven && asleep.includes(cause) ? 'info' : catalogue[code].severity);

/** Replaces what is known of a Service by what is found in it now. */
function evaluate(state: State, key: Key, given: Effect): void {
  const { cluster, view, at: now } = state;
  if (view === null) return;
  const context = contextOf(state);
  const service = stateOf(cluster, view, context, key);
  const unknown = unknownText(cluster, context.listers, service);
  const text = JSON.stringify([...unknown].sort());
  const beginning = given.beginning || (state.unknown.get(key) ?? text) !== text;
  const effect = { ...given, beginning };
  state.unknown.set(key, text);
  state.touched.add(key);
  const known = state.known.get(key) ?? [];
  const cleared = new Set(known.filter((one) => wake(state, one, effect)));
  const before = known.map(({ unit, cause }) => ({ unit, cause }));
  const left = [...known];
  const next: Known[] = [];
  const fresh: Located[] = [];
  for (const found of differencesOf(context, service, unknown)) {
    const index = left.findIndex(
      ({ unit, difference: { code, subject } }) =>
        unit === found.unit &&
        code === found.difference.code &&
        subject === found.difference.subject,
    );
    const [one] = index < 0 ? [] : left.splice(index, 1);
    if (one === undefined) fresh.push(found);
    else {
      carryOn(state, one, found.difference, effect, cleared.has(one));
      next.push(one);
    }
  }
  for (const found of fresh) {
    const existing = before.filter(({ unit }) => unit === found.unit).map(({ cause }) => cause);
    const replaced = left.filter(({ unit }) => unit === found.unit);
    next.push(start(state, key, found, existing, replaced, effect));
  }
  for (const one of left) close(one, now);
  if (next.length > 0) {
    state.known.set(key, next);
    return;
  }
  state.known.delete(key);
  if (service.service === null && service.endpoints === null && service.slices.length === 0) {
    // syncService of pkg/controller/endpointslice forgets what it wrote for a deleted Service.
    cluster.wokenAt.delete(key);
    cluster.slicesChangedAt.delete(key);
  }
}

function restart(state: State, one: Known, changes: Partial<Known>): void {
  close(one, state.at);
  Object.assign(one, changes);
  Object.assign(one, certain(one, one.doubtedAt));
  one.due = Math.max(one.clock + one.unseen + state.options.settle, state.at);
}

const newClock = (at: number) => ({ clock: at, unseen: 0, lesser: [] });

/** Whether the controller must sync now, so that what excused the difference is over. */
function wake(state: State, one: Known, { wakes }: Effect): boolean {
  const { at: now } = state;
  if (one.cause === null || one.shown || one.causeAt >= now || !wakes.has(one.output)) return false;
  const severity = severityOf(one.difference, null, false);
  const cleared = { cause: null, causeAt: now, proven: false, severity };
  restart(state, one, { ...cleared, ...newClock(now) });
  return true;
}

function carryOn(
  state: State,
  one: Known,
  difference: Difference,
  effect: Effect,
  isCleared: boolean,
): void {
  const { at: now } = state;
  const { wakes, blindSpot, gap, writes, isConcerned, addresses, late } = effect;
  const [, ip] = one.unit.split(' ');
  // An output as a whole is compared at each event, mirrored slices at writes.
  const isWhole = ip === undefined && (one.unit !== 'mirrored' || writes.size > 0);
  const isListed = addresses === null || (ip !== undefined && addresses.has(ip));
  const isAbout = isConcerned && (!late || isWhole || isListed);
  const likely = gap && isAbout && isCleared ? difference.likelyCause : null;
  const isWoken = one.output === 'input' || wakes.has(one.output);
  const kept = one.shown ? null : one.cause;
  const isStill = one.shown && one.cause === difference.hindrance;
  const asleep = one.shown && !isWoken && !isStill ? blindSpot : null;
  const known = kept ?? difference.cause ?? asleep;
  const cause = known ?? difference.hindrance ?? likely;
  one.difference = difference;
  // A late write of an output hides only what happened to that output.
  const isOwnWrite = writes.size === 0 || writes.has(one.output);
  const isHidden = isOwnWrite || (one.output !== 'endpoints' && one.output !== 'endpointslices');
  const isMissed = gap && isAbout && isHidden;
  const wasMissed = isMissed && one.openedAt === null && one.clock < now;
  const isOtherCause = cause !== one.cause;
  const proven = isOtherCause ? known !== null : one.proven;
  const severity = severityOf(difference, cause, proven);
  const isNowHarm = one.severity === 'info' && severity !== 'info';
  const clock = isNowHarm || (one.shown && cause === null) ? newClock(now) : {};
  if (isOtherCause) {
    const shown = cause === difference.cause || cause === difference.hindrance;
    restart(state, one, {
      cause,
      shown: shown && cause !== null,
      proven,
      causeAt: now,
      severity,
      ...clock,
    });
  } else if (isNowHarm) restart(state, one, { severity, ...clock });
  one.severity = severity;
  const { finding } = one;
  if (finding !== null && isWorse(severity, finding.severity)) finding.severity = severity;
  if (wasMissed) restart(state, one, newClock(now));
  else if (isMissed && one.clock < now) one.doubtedAt = now;
}

function start(
  state: State,
  key: Key,
  found: Located,
  existing: readonly (Cause | null)[],
  replaced: readonly Known[],
  effect: Effect,
): Known {
  const { at: now, release, options } = state;
  const { output, difference } = found;
  const { gap, beginning, writes } = effect;
  const seen = beginning ? null : causeOf(release, found, existing, effect);
  const isWrite = writes.has(output);
  // What the API server refuses to the controller was written by another client.
  const isFrozen = isWrite && seen !== null && difference.cause === 'pod-without-node';
  const evident = (isFrozen ? null : difference.cause) ?? seen;
  const likely = difference.hindrance ?? (beginning || gap ? difference.likelyCause : null);
  const cause = evident ?? likely;
  // The controller may answer an event late, with what is no longer as expected.
  const wokenAt = state.cluster.wokenAt.get(key) ?? -Infinity;
  const isDoubtful = isWrite && evident === seen && (gap || now - wokenAt <= lateWrite);
  const proven = evident !== null && !isDoubtful;
  const severity = severityOf(difference, cause, proven);
  const one: Known = {
    ...found,
    key,
    severity,
    cause,
    shown: cause !== null && (cause === difference.cause || cause === difference.hindrance),
    proven,
    causeAt: now,
    clock: now,
    unseen: 0,
    lesser: [],
    due: 0,
    openedAt: null,
    doubtedAt: -Infinity,
    finding: null,
  };
  if (!gap && found.unit.includes(' ') && output !== 'input') continueClock(one, replaced);
  one.due = Math.max(one.clock + one.unseen + options.settle, now);
  return one;
}

/** What is said about an endpoint or a slice, while traffic goes where it must. */
const metadata =
  /-(address|endpoint|hints|labels|owner)-different$|^slice-(oversized|duplicate-conflicting)$/;

/** Greater harm first: the severity, then whether traffic is affected. */
const harmOf = ({ severity, difference }: Known): number =>
  severities.indexOf(severity) * 2 + Number(metadata.test(difference.code));

/** The clock of the oldest trouble that the difference goes on with; the others are remembered. */
function continueClock(one: Known, replaced: readonly Known[]): void {
  const all = replaced
    .flatMap((it) =>
      [it, ...it.lesser].map((other) => ({ ...other, ...certain(other, it.doubtedAt) })),
    )
    .filter(({ cause }) => cause === one.cause)
    .sort((a, b) => a.clock - b.clock);
  const same = all.find((it) => harmOf(it) <= harmOf(one));
  if (same !== undefined) Object.assign(one, { clock: same.clock, unseen: same.unseen });
  one.lesser = all.filter((it) => harmOf(it) > harmOf(one));
}

/** The clock without the time before changes were missed. */
const certain = ({ clock, unseen }: Known, doubtedAt: number) =>
  clock < doubtedAt ? { clock: doubtedAt, unseen: 0 } : { clock, unseen };

/** Seconds from an event within which the controller may still write its answer. */
const lateWrite = 60;

/** The cause that the event itself shows. */
function causeOf(
  release: Release,
  { output, unit, difference }: Located,
  existing: readonly (Cause | null)[],
  { wakes, writes, blindSpot, unnoticed, gap, addresses }: Effect,
): Cause | null {
  if (output === 'input' || output === 'node') return null;
  // A difference without a cause was there first, so the event is not the cause of it.
  if (existing.includes(null)) return null;
  const [, ip] = unit.split(' ');
  // After missed events all is compared, but the event is about its own addresses.
  const isElsewhere = ip !== undefined && gap && addresses !== null && addresses.size > 0;
  if (isElsewhere && !addresses.has(ip)) return null;
  const edited = output === 'mirrored' && !release.mirrorRepairsEdits ? 'hand-edited' : unnoticed;
  const asleep = wakes.has(output) ? null : (blindSpot ?? existing[0] ?? null);
  const cause = writes.has(output) ? edited : asleep;
  return cause !== null && canMake(cause, difference.code) ? cause : null;
}
