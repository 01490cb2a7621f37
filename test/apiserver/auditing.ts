// The whole live auditor against the fake API server, on a clock that jumps, with chance from a
// seed, on streams that may lag; what happens to the cluster and the streams is said below.
// The test compares the auditor with the state of the server itself (life.ts):
//
// - A finding that opens has lasted for the window, without a break, until now, or until the first
//   change of the Service that a stream has not delivered yet, or that it has lost since the read
//   that confirms the difference. While streams are apart, breaks of less than a second do not
//   count. Neither do breaks by objects that a stream has not delivered and that came and went,
//   which no read shows. All its inputs are and were watched.
// - A difference is found settle + 2 s after the Service was last touched and all streams are well.
// - What is over is not said any more, once all streams are well.
// - While a resource has no watch for longer than the grace, verdicts that rest on it are unknown.
// - In the end the cache and the findings equal those of a fresh auditor, nothing is pending,
//   and no watch and no timer is left.
//
// In lives with odd seeds, streams and servers break their promises (`spoil`): a watch loses an
// event, or sends a bookmark before it, or nothing at all; a WatchList does not end; two servers of
// different age answer; reads are slow or refused. A finding that opens must be true then, too.

import type { FreshRead } from '../../src/audit/pending/confirm.ts';
import type { PendingDifference } from '../../src/audit/pending/pending.ts';
import type { ServiceOutput } from '../../src/audit/service/enqueue.ts';
import { verdictOf } from '../../src/audit/service/verdict.ts';
import type { Auditor, AuditorOptions } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import type { MonotonicClock } from '../../src/auditor/event-loop.ts';
import type { LiveAuditor } from '../../src/auditor/live.ts';
import { connectAuditor } from '../../src/auditor/live.ts';
import { createReflectors } from '../../src/cluster/api/reflector.ts';
import type { ApiAnswer, ApiRequest } from '../../src/cluster/api/transport/connection.ts';
import type { Environment } from '../../src/cluster/api/transport/request.ts';
import type { AnyObject, Resource, WatchEvent } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { auditorDefaults } from '../build.ts';
import type { Interval, Life, Missing, Random, Truth, Undelivered } from './life.ts';
import {
  appOf,
  below,
  chanceFrom,
  createLife,
  cut,
  disturb,
  heal,
  names,
  oneOf,
  outputs,
  refuse,
  trackUndelivered,
  truthOf,
} from './life.ts';
import type { FakeServer, LostEvent, Raw, Saved, VirtualClock, Watch } from './server.ts';
import {
  createServer,
  createStream,
  eventOf,
  keyOf,
  statusAnswer,
  statusOf,
  virtualClock,
} from './server.ts';

const namespace = 'shop';

/** Seconds; short, so that much happens in few. */
export const settle = 10;

/** Seconds in which every wait of a reflector ends. */
const patience = 150;

/** Seconds after the window in which a lasting difference must be found. */
const late = 2;

/** Seconds without a read after which the auditor trusts the streams. */
const unread = 300;

/** Seconds for which a watch may be gone before that makes anything unknown. */
const grace = 5;

/** The resources that the comparison of an output needs. */
const needed: Readonly<Record<string, readonly Resource[]>> = {
  endpoints: ['services', 'pods', 'endpoints'],
  endpointslices: ['services', 'pods', 'nodes', 'endpointslices'],
  mirrored: ['services', 'endpoints', 'endpointslices'],
};

export interface Simulation {
  readonly clock: VirtualClock;
  readonly server: FakeServer;
  readonly truth: Truth;
  readonly auditor: Auditor;
  readonly attached: LiveAuditor;
  readonly environment: Environment;
  /** Seconds by which each resource's watch is behind. */
  readonly lags: Map<Resource, number>;
  /** What was not as it must be. */
  readonly violations: string[];
  readonly counts: typeof noCounts;
  pings: boolean;
  /** Whether a Service can be read by itself. */
  readable: boolean;
  /** The most seconds that pass between two steps of a life. */
  pause: number;
  /** Ends the spoils that end by themselves later. */
  readonly undo: Set<() => void>;
  /** Seconds until a read of a Service is answered. */
  readSeconds: number;
  /** Whether a lost event still makes the cache differ in what is audited. */
  isIncomplete(): boolean;
  /** Something happens to the streams. */
  disturbed(): void;
  /** The server's history went back. */
  restored(): void;
  pass(seconds: number): Promise<void>;
  /** Whether all streams have been well for twice the window. */
  isCalm(): boolean;
  /** Forgets what was over before a moment, while all is calm. */
  forget(before: number): void;
  /** Checks the end; the auditor is stopped. */
  end(): Promise<void>;
}

/**
 * An event that a watch did not send. It is hidden until the cache has its version or a later one.
 * No client can know of it if no read showed it in that time, no list, and not the event that came
 * next: the cache then goes from the state before the lost event to the one after the next, as if
 * nothing had been in between.
 */
interface Hidden extends LostEvent {
  /** The Services that it concerns, or will if they are created later. */
  readonly names: readonly string[];
  readonly from: number;
  /** Infinity while it is hidden. */
  to: number;
  /** Whether a client could know of it. */
  shown: boolean;
  /** Whether a read has shown it. */
  doubted: boolean;
}

interface State extends Simulation {
  /** When a disturbance was last seen. */
  disturbedAt: number;
  readonly seen: WeakSet<PendingDifference>;
  readonly unwatched: Map<Resource, number>;
  /** Since when the auditor itself has not had a watch. */
  readonly unseen: Map<Resource, number>;
  /** When each read was requested that has no answer yet. */
  readonly unanswered: Map<ApiRequest, number>;
  /** Chunks that are on their way. */
  readonly chunks: Map<Resource, number>;
  readonly undelivered: Undelivered;
  /** Events that watches did not send, until the cache is as new, and since when. */
  readonly lost: Map<string, LostEvent & { readonly at: number }>;
  /** When each change was, by its version, and its Services; also those that do not exist yet. */
  readonly concerned: Map<number, { readonly at: number; readonly names: readonly string[] }>;
  readonly hidden: Hidden[];
  /** The latest read of each Service, and when it was answered. */
  readonly reads: Map<string, { readonly at: number; readonly read: FreshRead }>;
  /** By Service and resource: how many seconds behind the server of the latest read was. */
  readonly behind: Map<string, number>;
}

/** The chunks of a watch, each as late as its resource's stream is when it is written. */
function delayed(
  sim: State,
  resource: Resource,
  request: ApiRequest,
  answer: ApiAnswer,
): ApiAnswer {
  const { clock, lags, chunks } = sim;
  const body = createStream(request.signal);
  let due = 0;
  let queued = 0;
  const later = (call: () => void): void => {
    due = Math.max(due, clock.now() + (lags.get(resource) ?? 0));
    if (queued === 0 && due <= clock.now()) {
      call();
      return;
    }
    queued++;
    chunks.set(resource, (chunks.get(resource) ?? 0) + 1);
    sim.disturbed();
    clock.after(due - clock.now(), () => {
      queued--;
      chunks.set(resource, (chunks.get(resource) ?? 0) - 1);
      sim.disturbed();
      call();
    });
  };
  const pump = async (): Promise<void> => {
    try {
      for await (const chunk of answer.body) later(() => body.write(chunk));
      later(() => body.end());
    } catch (error) {
      later(() => body.fail(error as Error));
    }
  };
  void pump();
  return { ...answer, body };
}

/** Whether a request is a read of a Service or of the Nodes, not one of a reflector. */
const isRead = ({ path, query }: ApiRequest): boolean =>
  query.watch !== 'true' &&
  query.limit === undefined &&
  query.continue === undefined &&
  (path.includes('/namespaces/') || (path.endsWith('/nodes') && Object.keys(query).length === 0));

/** Notes by how much a server is behind that answered a read of one Service, or of all. */
function noteFreshness({ server, behind }: State, resource: Resource, request: ApiRequest): void {
  const asked = server.asked.findLast((one) => one.request === request);
  const { fieldSelector = '', labelSelector = '' } = request.query;
  const selected = /=([^,]*)$/.exec(fieldSelector || labelSelector)?.[1];
  for (const name of selected === undefined ? names : [selected]) {
    behind.set(`${name} ${resource}`, asked?.behind ?? 0);
  }
}

const resourceIn = (path: string): Resource | undefined =>
  resources.find((resource) => path.endsWith(`/${resource}`));

/** The answer to a read. One Service is not read in no time. */
async function answerRead(state: State, request: ApiRequest): Promise<ApiAnswer> {
  const { clock, server, unanswered } = state;
  const forget = () => unanswered.delete(request);
  unanswered.set(request, clock.now());
  request.signal.addEventListener('abort', forget);
  try {
    await clock.sleep(state.readSeconds, request.signal);
    if (!state.readable) return statusAnswer(429, 'TooManyRequests');
    const answer = await server.ask(request);
    const resource = resourceIn(request.path);
    if (resource !== undefined) noteFreshness(state, resource, request);
    return answer;
  } finally {
    forget();
  }
}

/** What reflectors have of the simulated world; the state is made after it. */
function environmentOf(
  clock: VirtualClock,
  server: FakeServer,
  random: () => number,
  stateOf: () => State,
): Environment {
  return {
    now: () => clock.now(),
    monotonic: () => clock.now(),
    random,
    sleep: (seconds, signal) => clock.sleep(seconds, signal),
    async ask(request) {
      const state = stateOf();
      const isReread = isRead(request);
      const answer = await (isReread ? answerRead(state, request) : server.ask(request));
      const resource = resourceIn(request.path);
      const isList = request.query.watch !== 'true' || 'sendInitialEvents' in request.query;
      if (isList && !isReread) state.disturbed();
      const isWatch = request.query.watch === 'true' && answer.status === 200;
      if (!isWatch || resource === undefined) return answer;
      state.unwatched.delete(resource);
      return delayed(state, resource, request, answer);
    },
    pings: () => stateOf().pings,
  };
}

/** The virtual clock as the loop of a live cluster has it. */
const liveClockOf = (clock: VirtualClock): MonotonicClock => ({
  now: () => clock.now(),
  monotonic: () => clock.now(),
  after: (seconds, call) => clock.after(seconds, call),
  soon: queueMicrotask,
});

/** An auditor whose entries and reads are noted once they are taken in. */
function followed(auditor: Auditor, undelivered: Undelivered, stateOf: () => State): Auditor {
  const { confirmer } = auditor;
  return {
    ...auditor,
    confirmer: {
      ...confirmer,
      answer(key, read) {
        const { failed } = confirmer.counts;
        confirmer.answer(key, read);
        // A server that is behind proves nothing.
        if (read === null || confirmer.counts.failed > failed) return;
        noteRead(stateOf(), key, read);
      },
    },
    *takeInSteps(entry) {
      yield* auditor.takeInSteps(entry);
      undelivered.took(entry);
      if (entry.kind === 'event') noteTaken(stateOf(), entry.event);
    },
  };
}

const noCounts = {
  ...{ opened: 0, resolved: 0, checked: 0, found: 0 },
  /** How often each spoil was used; events that were lost, and were noticed by a list. */
  ...{ early: 0, endless: 0, replica: 0, starved: 0, slow: 0, unread: 0, forbidden: 0 },
  ...{ lostAdded: 0, lostModified: 0, lostDeleted: 0, healed: 0, healedSeconds: 0 },
};

/** What nothing has happened to yet. */
const untouched = () => ({
  lags: new Map<Resource, number>(),
  pings: true,
  readable: true,
  pause: 0,
  readSeconds: 0.005,
  unanswered: new Map<ApiRequest, number>(),
  lost: new Map<string, LostEvent & { readonly at: number }>(),
  concerned: new Map<number, { at: number; names: readonly string[] }>(),
  hidden: [] as Hidden[],
  behind: new Map<string, number>(),
  reads: new Map<string, { at: number; read: FreshRead }>(),
  undo: new Set<() => void>(),
  seen: new WeakSet<PendingDifference>(),
  unwatched: new Map<Resource, number>(),
  unseen: new Map<Resource, number>(),
  chunks: new Map<Resource, number>(),
});

/** What the program leaves behind when it has ended. */
async function checkLeft({ clock, server, violations }: State): Promise<void> {
  await clock.runUntil(clock.now());
  if (server.watches.size > 0) violations.push('watches are left behind');
  if (clock.pending() > 0) violations.push(`${clock.pending()} timers are left behind`);
}

/** A server whose faults `isDisturbed` recognizes. */
function soundServer(clock: VirtualClock): FakeServer {
  const server = createServer(clock);
  Object.assign(server.faults, { before: noFault, replica: noReplica });
  return server;
}

/** Objects of another namespace, so that its streams go on while those of the first hang. */
function writeOther({ objects }: FakeServer, other: string, turn: number): void {
  const of = (resource: string) => ({ name: `${resource}-${turn % 3}`, namespace: other });
  const drafts: Partial<Record<Resource, Raw>> = {
    pods: { metadata: of('pod'), spec: {}, status: {} },
    services: { metadata: of('service'), spec: {} },
    endpoints: { metadata: of('endpoints'), subsets: [] },
    endpointslices: { metadata: of('slice'), addressType: 'IPv4', ports: [], endpoints: [] },
  };
  for (const [resource, raw] of Object.entries(drafts) as [Resource, Raw][]) {
    const isRemoved = turn % 5 === 0 && objects.remove(resource, keyOf(raw.metadata));
    if (!isRemoved) objects.put(resource, raw);
  }
}

const liveAuditor = (
  counts: typeof noCounts,
  namespaces: readonly string[] | null,
  keep?: AuditorOptions['keep'],
): Auditor =>
  createAuditor({
    ...auditorDefaults,
    ...(keep && { keep }),
    scope: { ...auditorDefaults.scope, namespaces },
    settle,
    live: true,
    onOpen: () => counts.opened++,
    onResolve: () => counts.resolved++,
  });

function forget({ truth, undelivered, server, concerned }: State, before: number): void {
  truth.forget(before);
  undelivered.forget(before);
  server.objects.forget();
  server.asked.length = 0;
  for (const [version, { at }] of concerned) if (at < before) concerned.delete(version);
}

/** The auditor of the whole cluster, or of the namespace of the life and others beside it. */
export function createSimulation(
  seed: number,
  prepare: (sim: Simulation) => void,
  namespaces: readonly string[] | null = null,
  keep?: AuditorOptions['keep'],
): Simulation {
  const clock = virtualClock();
  const server = soundServer(clock);
  const truth = truthOf(server, clock, names);
  const random = chanceFrom(seed);
  const violations: string[] = [];
  const counts = { ...noCounts };
  const auditor = liveAuditor(counts, namespaces, keep);
  const undelivered = trackUndelivered(truth, clock);
  const environment = environmentOf(clock, server, random, () => state);
  const attached = connectAuditor({
    environment,
    clock: liveClockOf(clock),
    auditor: followed(auditor, undelivered, () => state),
    endpoints: true,
    onProblem: () => undefined,
    onQuiet: () => undefined,
  });
  const controller = new AbortController();
  let cancel: () => void = () => undefined;
  const state: State = {
    clock,
    server,
    truth,
    auditor,
    attached,
    environment,
    violations,
    counts,
    ...untouched(),
    disturbedAt: clock.now(),
    undelivered,
    disturbed: () => void (state.disturbedAt = clock.now()),
    restored: () => {
      undelivered.restored(truth.restored());
      // What was lost before the backup is still lost.
      const top = server.objects.version();
      for (const [id, { version }] of state.lost) if (version > top) state.lost.delete(id);
      const kept = state.hidden.filter(({ version }) => version <= top);
      state.hidden.splice(0, Infinity, ...kept);
    },
    isIncomplete: () => isIncomplete(state),
    pass: (seconds) => clock.runUntil(clock.now() + seconds),
    isCalm: () => state.disturbedAt < clock.now() - 2 * settle,
    forget: (before) => forget(state, before),
    async end() {
      await checkEnd(state);
      cancel();
      controller.abort();
      await clock.runUntil(clock.now());
      await run;
      await checkLeft(state);
    },
  };
  followLost(state);
  followOpened(state);
  prepare(state);
  const run = attached.run(controller.signal);
  const look = (): void => {
    check(state);
    cancel = clock.after(1, look);
  };
  look();
  return state;
}

// --- what must always hold ---

/** Checks each difference when it opens, also in a finding that is open already. */
function followOpened(state: State): void {
  const { findings } = state.auditor;
  for (const name of ['advance', 'retry'] as const) {
    const call = findings[name].bind(findings);
    findings[name] = (now) => {
      call(now);
      checkOpened(state);
    };
  }
}

/** Notes which events watches do not send. */
function followLost(state: State): void {
  const { server, truth, clock, counts, lost, concerned, hidden } = state;
  const note = ({ version, type, resource, key }: LostEvent): void => {
    if (!server.lost.some((event) => event.version === version)) return;
    const event = { version, type, resource, key };
    // A bookmark may have passed the event some time before a watch lost it.
    const { names, at: from } = concerned.get(version) ?? { names: [], at: clock.now() };
    hidden.push({ ...event, names, from, to: Infinity, shown: false, doubted: false });
    const counter = {
      ADDED: 'lostAdded',
      MODIFIED: 'lostModified',
      DELETED: 'lostDeleted',
    } as const;
    counts[counter[type]]++;
    lost.set(`${resource} ${key}`, { ...event, at: clock.now() });
  };
  // An event is lost before or after the truth follows it.
  truth.onChange((event, before, names) => {
    const pods = event.resource === 'pods' ? [event.raw, before] : [];
    concerned.set(event.version, { at: clock.now(), names: [...names, ...pods.map(appOf)] });
    note(event);
  });
  server.onLost = (event) => {
    if (concerned.has(event.version)) note(event);
  };
}

/** A lost event is not hidden any more. A list shows it, and so may the event that came next. */
function noteTaken({ hidden, clock, attached }: State, event: WatchEvent): void {
  const { resource, type, object, gap } = event;
  for (const one of hidden) {
    if (one.to < Infinity || one.resource !== resource || one.key !== object.key) continue;
    if (type !== 'deleted' && Number(object.resourceVersion) < one.version) continue;
    one.to = clock.now();
    one.shown ||= gap === true || attached.watches.get(resource)?.state !== 'synced';
  }
}

/**
 * A read shows what was lost: an object in another version than the cache has it, or none. But a
 * version that a watch still has to send hides what was lost before it, as the next event does.
 */
function noteRead(state: State, service: string, read: FreshRead): void {
  const { hidden, auditor, reads, clock } = state;
  const [, name = ''] = service.split('/');
  reads.set(name, { at: clock.now(), read });
  const isLost = (resource: Resource, object: AnyObject): boolean =>
    hidden.some(
      (one) =>
        one.resource === resource &&
        one.key === object.key &&
        one.version === Number(object.resourceVersion),
    );
  for (const one of hidden) {
    const { resource, key, version, names } = one;
    const list = read[resource];
    if (one.to < Infinity || !list || Number(list.version) < version) continue;
    const found = (list.objects as readonly AnyObject[]).find((object) => object.key === key);
    const cached = auditor.store.objects[resource].get(key);
    const isMember =
      (name === '' || names.includes(name)) && (resource !== 'pods' || cached?.labels.app === name);
    one.shown ||=
      found === undefined
        ? cached !== undefined && isMember
        : Number(found.resourceVersion) >= version &&
          isLost(resource, found) &&
          (cached !== undefined || one.doubted);
    // What is not cached may have been deleted after one list, but not if it is in a second one.
    one.doubted ||= found !== undefined;
  }
}

const violate = (state: State, text: string): void => {
  state.violations.push(`at ${(state.clock.now() - 1_700_000_000).toFixed(2)} s: ${text}`);
};

/** Whether an object is among those that any Service has to do with. */
function isRelevant({ truth, auditor }: State, { resource, key }: LostEvent): boolean {
  if (resource !== 'pods') return true;
  const raw = truth.held.pods.get(key);
  const apps = [raw?.metadata.labels?.app, auditor.store.objects.pods.get(key)?.labels.app];
  return [...truth.held.services.values()].some((service) => {
    const { selector } = service.spec as { selector?: { app: string } };
    return selector !== undefined && apps.includes(selector.app);
  });
}

/** Whether a watch has not sent all that was written. */
const isBehind = ({ held, delayed, behind }: Watch): boolean =>
  held !== null || delayed.length > 0 || behind > 0;

/** Whether a stream still has events that were written before. */
const isOnItsWay = ({ chunks, server }: State, resource: Resource): boolean =>
  (chunks.get(resource) ?? 0) > 0 ||
  [...server.watches].some((watch) => watch.resource === resource && isBehind(watch));

/** Forgets the lost events that the cache has caught up with; whether others matter. */
function isIncomplete(state: State): boolean {
  const { lost, auditor, server, counts, clock } = state;
  for (const [id, { resource, key, version, at }] of lost) {
    const cached = auditor.store.objects[resource].get(key);
    const isNew = Number(cached?.resourceVersion ?? 0) >= version;
    // What is not cached may still come from before the deletion that was lost.
    const isKnown = cached !== undefined || server.objects.get(resource, key) !== undefined;
    if (!isNew && (isKnown || isOnItsWay(state, resource))) continue;
    lost.delete(id);
    counts.healed++;
    counts.healedSeconds += clock.now() - at;
  }
  return [...lost.values()].some((event) => isRelevant(state, event));
}

function isDisturbed(state: State): boolean {
  const { server, lags, chunks, attached, auditor, clock } = state;
  const { readable, readSeconds, unanswered } = state;
  const { starved, forbidden } = server.faults;
  if (!readable || readSeconds > 0.1 || isIncomplete(state)) return true;
  if ([...unanswered.values()].some((at) => at < clock.now() - 0.1)) return true;
  if (starved.size > 0 || forbidden.size > 0 || server.faults.replica !== noReplica) return true;
  if ([...lags.values(), ...chunks.values()].some((one) => one > 0)) return true;
  if (server.faults.before !== noFault) return true;
  for (const watch of server.watches) {
    if (watch.frozen || watch.spoils.length > 0 || isBehind(watch)) return true;
  }
  const { watches } = attached;
  // What was forbidden in a namespace is asked for again once per minute.
  return resources.some(
    (resource) =>
      watches.get(resource)?.state !== 'synced' || !auditor.mayRead(resource, namespace),
  );
}

/** Replaces a server that answers every request itself. */
const noFault = (): null => null;

/** Only one server answers. */
const noReplica = (): number => 0;

function* itemsOf({
  auditor,
}: State): Generator<{ name: string; unit: string; item: PendingDifference }> {
  for (const { record, items } of auditor.serviceAuditor()?.audited.values() ?? []) {
    for (const [unit, all] of items) {
      if (unit.startsWith('input')) continue;
      for (const item of all) yield { name: record.name, unit, item };
    }
  }
}

/** How life.ts calls a unit of the auditor's. */
const truthUnit = (unit: string): string => (unit.startsWith('slice ') ? 'endpointslices' : unit);

/** Intervals without the breaks that are shorter than some seconds. */
function joined(intervals: readonly Interval[], seconds: number): Interval[] {
  const all: Interval[] = [];
  for (const { from, to } of intervals.toSorted((a, b) => a.from - b.from)) {
    const last = all.at(-1);
    if (last !== undefined && from - last.to < seconds) last.to = Math.max(last.to, to);
    else all.push({ from, to });
  }
  return all;
}

/** A resource that was seen once and has had no watch for a while. */
function isUnseen({ attached, undelivered, unseen, clock }: State, resource: Resource): boolean {
  const { state: is } = attached.watches.get(resource) ?? {};
  if (is === 'synced' || !undelivered.wasListed(resource)) unseen.delete(resource);
  else if (!unseen.has(resource)) unseen.set(resource, clock.now());
  return (unseen.get(resource) ?? Infinity) < clock.now();
}

/** Whether no read of a Service could show any of this, since it came to the Service and went. */
const isPassed = ({ server, auditor }: State, name: string, missing: readonly Missing[]): boolean =>
  missing.length > 0 &&
  missing.every(({ resource, key }) => {
    const object = server.objects.get(resource, key);
    if (object === undefined) return true;
    return resource === 'pods' && appOf(object) !== name && !auditor.store.objects.pods.has(key);
  });

/** Whether the cache lacks an object that came, and that was deleted again after this change. */
const isAbsentAgain = ({ server, auditor }: State, { resource, key, version }: Missing): boolean =>
  !auditor.store.objects[resource].has(key) &&
  server.objects
    .history()
    .some(
      (event) =>
        event.resource === resource &&
        event.key === key &&
        event.type === 'DELETED' &&
        event.version >= version,
    );

/** A read confirms a difference until the next one, so none has shown what was lost after it. */
const isLostAfter = (read: FreshRead, { resource, version, to }: Hidden): boolean =>
  to === Infinity && version > Number(read[resource]?.version ?? Infinity);

/** Whether the cache has this version of an object, or a later one. */
function isTaken(
  { auditor, server }: State,
  resource: Resource,
  { key, version }: Pick<LostEvent, 'key' | 'version'>,
): boolean {
  const cached = auditor.store.objects[resource].get(key);
  if (cached === undefined) return server.objects.get(resource, key) === undefined;
  return Number(cached.resourceVersion) >= version;
}

/** When the changes of a Service were made that arrive later than their bookmarks. */
const overtaken = (state: State, name: string, from: readonly Resource[]) =>
  [...state.server.watches]
    .filter(({ resource }) => from.includes(resource))
    .flatMap(({ resource, overtaken: frames }) =>
      frames.map(eventOf).filter((event) => !isTaken(state, resource, event)),
    )
    .flatMap(({ version }) => state.concerned.get(version) ?? [])
    .flatMap(({ names: concerns, at }) => (concerns.includes(name) ? at : []));

function checkOpened(state: State): void {
  const { seen, truth, clock, undelivered, disturbedAt, counts } = state;
  const now = clock.now();
  for (const { name, unit, item } of itemsOf(state)) {
    if (item.openedAt === null || seen.has(item)) continue;
    seen.add(item);
    if (item.severity === 'info') continue;
    counts.checked++;
    const code = `${name} ${unit} ${item.difference.code}`;
    const resources = needed[item.output] ?? [];
    for (const one of resources) if (isUnseen(state, one)) violate(state, `${code}: no ${one}`);
    const seenFor = now - item.since - undelivered.unseenFor(resources, item.since, grace);
    if (seenFor < settle - 0.01) violate(state, `${code} opens, seen for ${seenFor.toFixed(2)} s`);
    const isApart = disturbedAt >= now - settle - late;
    const all = truth.intervals(name, truthUnit(unit));
    const missing = undelivered.of(name, resources);
    const shown = missing.filter((one) => !isAbsentAgain(state, one));
    const unseen = state.hidden.filter(
      (it) => !it.shown && it.names.includes(name) && resources.includes(it.resource),
    );
    const last = state.reads.get(name);
    const readAt = Math.max(last?.at ?? 0, item.since + settle);
    const lost = last?.at === readAt ? unseen.filter((it) => isLostAfter(last.read, it)) : [];
    const known = Math.min(now, ...shown.map(({ at }) => at));
    const lostAt = Math.min(
      now,
      ...lost.map(({ from }) => from),
      ...overtaken(state, name, resources),
    );
    // The read may be of a server that is behind, and show what was then.
    const behind = Math.max(...resources.map((it) => state.behind.get(`${name} ${it}`) ?? 0));
    const window = settle - behind - 0.01;
    // Streams that are less than a second apart may hide a break of less than a second.
    const hasLasted = (intervals: readonly Interval[]): boolean =>
      joined(intervals, isApart ? 1 : 0.001).some(({ from, to }) =>
        [known, lostAt, now].some((end) => from <= end - window && to >= end),
      );
    if (hasLasted(all)) continue;
    const isNow = all.at(-1)?.to === Infinity;
    if (isNow && (hasLasted([...all, ...unseen]) || isPassed(state, name, missing))) continue;
    // Streams are trusted without a read. None can show that they have lost an event.
    const isUnread = now - readAt >= unread - 0.01;
    if (isUnread && unseen.some(({ to }) => to === Infinity)) continue;
    const text = all
      .slice(-4)
      .map((one) => `${(one.from - now).toFixed(2)}..${(one.to - now).toFixed(2)}`);
    const kind = `${isApart ? 'apart' : 'together'}, known until ${(known - now).toFixed(2)}`;
    violate(state, `${code} opens, ${kind}; true: ${text.join(' ')}`);
  }
}

function checkFound(state: State): void {
  const { truth, clock, auditor, disturbedAt, counts } = state;
  const now = clock.now();
  const window = settle + late;
  if (disturbedAt > now - window) return;
  const serviceAuditor = auditor.serviceAuditor();
  for (const { name, output, from } of truth.differing()) {
    if (Math.max(from, truth.touchedAt(name)) > now - window) continue;
    counts.found++;
    const items = [...(serviceAuditor?.audited.get(`shop/${name}`)?.items.values() ?? [])].flat();
    if (items.some((item) => item.output === output && item.openedAt !== null)) continue;
    violate(state, `${name} ${output} differs for ${(now - from).toFixed(1)} s and is not found`);
  }
}

/** A finding whose difference is over is resolved at once where no stream lags. */
function checkOver(state: State): void {
  const { truth, clock, disturbedAt } = state;
  if (disturbedAt > clock.now() - late) return;
  for (const { name, unit, item } of itemsOf(state)) {
    if (item.openedAt === null || item.severity === 'info') continue;
    const last = truth.intervals(name, truthUnit(unit)).at(-1);
    if (last !== undefined && last.to > clock.now() - 0.5) continue;
    violate(state, `${name} ${unit} ${item.difference.code} is over and still said`);
  }
}

function checkUnknown(state: State): void {
  const { server, auditor, clock, unwatched, chunks, attached } = state;
  const now = clock.now();
  const watched = new Set([...server.watches].map(({ resource }) => resource));
  const stale = auditor.stale();
  for (const resource of resources) {
    if (watched.has(resource) || (chunks.get(resource) ?? 0) > 0) unwatched.delete(resource);
    else if (!unwatched.has(resource)) unwatched.set(resource, now);
    const since = unwatched.get(resource) ?? now;
    if (now - since < grace + late || !attached.watches.has(resource)) continue;
    const isOff = attached.watches.get(resource)?.state === 'off';
    if (!isOff && !stale.has(resource)) violate(state, `${resource} is not said to be stale`);
    const serviceAuditor = auditor.serviceAuditor();
    for (const audited of serviceAuditor?.audited.values() ?? []) {
      for (const output of outputs) {
        if (serviceAuditor === null || needed[output]?.includes(resource) !== true) continue;
        const verdict = verdictOf(serviceAuditor.listers, audited, output, stale);
        // If Nodes were never known, a difference can be that does not depend on them.
        const isNever = resource === 'nodes' && !serviceAuditor.listers.knows('nodes');
        const isKnown = isNever && verdict === 'different';
        if (verdict !== null && verdict !== 'unknown' && !isKnown) {
          violate(state, `${audited.record.name} ${output} is ${verdict} without ${resource}`);
        }
      }
    }
  }
}

function check(state: State): void {
  if (isDisturbed(state)) state.disturbed();
  for (const resource of resources) isUnseen(state, resource);
  checkOpened(state);
  checkFound(state);
  checkOver(state);
  checkUnknown(state);
}

// --- the end ---

const differences = (auditor: Auditor): string[] =>
  [...(auditor.serviceAuditor()?.audited.values() ?? [])]
    .flatMap(({ record, items }) =>
      [...items].flatMap(([unit, all]) =>
        all.map(({ difference: { code, subject } }) => `${record.key} ${unit} ${code} ${subject}`),
      ),
    )
    .sort();

/** What an auditor finds that has just been started. */
async function fresh({ clock, environment }: State): Promise<Auditor> {
  const auditor = createAuditor({ ...auditorDefaults, settle: 0 });
  const reflectors = createReflectors({
    environment,
    held: (resource) => auditor.store.objects[resource],
    deliver(entries) {
      for (const entry of entries) auditor.take(entry);
    },
    onProblem: () => undefined,
    endpoints: true,
    namespaces: null,
    watchList: false,
    raw: false,
  });
  const controller = new AbortController();
  const run = reflectors.run(controller.signal);
  await clock.runUntil(clock.now());
  controller.abort();
  await clock.runUntil(clock.now());
  await run;
  return auditor;
}

async function checkEnd(state: State): Promise<void> {
  const { auditor, truth } = state;
  for (const resource of resources) {
    // A lost event of a pod that no Service selects need not be noticed.
    const isLost = (name: string) => state.lost.has(`${resource} ${namespace}/${name}`);
    const want = [...truth.held[resource].values()].flatMap(
      ({ metadata: { name, uid, resourceVersion } }) =>
        isLost(name) ? [] : `${name} ${uid} ${resourceVersion}`,
    );
    const got = [...auditor.store.objects[resource].values()].flatMap(
      ({ name, uid, resourceVersion }) => (isLost(name) ? [] : `${name} ${uid} ${resourceVersion}`),
    );
    if (got.sort().join() !== want.sort().join()) {
      violate(state, `${resource}: ${got.join()} instead of ${want.join()}`);
    }
    const { state: is } = state.attached.watches.get(resource) ?? {};
    if (is !== 'synced') violate(state, `${resource} is ${is ?? 'absent'}`);
  }
  const other = differences(await fresh(state));
  const own = differences(auditor);
  if (own.join() !== other.join()) {
    violate(state, `found ${own.join()}; a fresh auditor finds ${other.join()}`);
  }
  for (const { name, unit, item } of itemsOf(state)) {
    if (item.openedAt === null)
      violate(state, `${name} ${unit} ${item.difference.code} is pending`);
  }
  if (auditor.nextAt() !== null) violate(state, 'a window has not ended');
  if ([...auditor.findings.waiting()].some(({ item }) => !item.gone)) violate(state, 'one waits');
  if (auditor.stale().size > 0) violate(state, `${[...auditor.stale()].join()} stale`);
}

// Random lives of a cluster that the whole auditor watches (auditing.ts), each from a seed: things
// come and go (life.ts) while streams lag, break, freeze and are withheld (life.ts), reads fail,
// controllers stop, and the server's history is forgotten or goes back.

/** Controllers stop: one, or all. */
export function halt(life: Life, among: readonly ServiceOutput[], random: Random): void {
  const seconds = settle * (0.3 + 2 * random());
  for (const output of among) life.stop(output, seconds);
}

export function upset(sim: Simulation, life: Life, random: Random): void {
  const { server, lags, clock } = sim;
  const chance = random();
  if (chance < 0.2) halt(life, random() < 0.4 ? outputs : [oneOf(random, outputs)], random);
  else if (chance < 0.45) {
    sim.disturbed();
    disturb(sim, random);
  } else if (chance < 0.53) {
    sim.disturbed();
    refuse(server, random, resources);
    clock.after(random() * 20, () => (server.faults.before = noFault));
  } else if (chance < 0.68) withhold(sim, life, random);
  else if (chance < 0.92) {
    sim.disturbed();
    // The auditor does not read Nodes again, so it cannot know how far behind their stream is.
    const resource = oneOf<Resource>(random, ['pods', 'services', 'endpoints', 'endpointslices']);
    lags.set(resource, random() * oneOf(random, [1, 6, 12, 60]));
    clock.after(random() * 60, () => lags.delete(resource));
  } else server.objects.compact();
}

/**
 * A resource can be neither watched nor listed for a while, in which controllers may stop; then its
 * history may be gone.
 */
function withhold(sim: Simulation, life: Life, random: Random): void {
  const { server, clock } = sim;
  const resource = oneOf(random, [...resources, 'endpoints', 'endpointslices'] as const);
  sim.disturbed();
  server.faults.before = (asked) =>
    asked.resource === resource && !isRead(asked.request)
      ? statusAnswer(503, 'ServiceUnavailable')
      : null;
  for (const watch of [...server.watches]) if (watch.resource === resource) watch.stream.end();
  const isForgotten = random() < 0.7;
  const seconds = random() * 2 * settle;
  if (random() < 0.6)
    clock.after(seconds * (0.4 + 0.6 * random()), () => halt(life, outputs, random));
  clock.after(seconds, () => {
    server.faults.before = noFault;
    if (isForgotten) server.objects.compact();
  });
}

/** A stream or a server breaks a promise, or a read fails. */
function spoil(sim: Simulation, random: Random): void {
  const { server, clock, counts } = sim;
  const { faults } = server;
  // No read shows what is lost of other namespaces: their Services select no pods.
  const isOwn = (watch: Watch): boolean => [null, namespace].includes(watch.namespace);
  const watches = [...server.watches].filter(isOwn);
  if (watches.length === 0) return;
  sim.disturbed();
  const watch = oneOf(random, watches);
  const { resource } = watch;
  const chance = random();
  const later = (seconds: number, call: () => void): void => {
    sim.undo.add(clock.after(random() * seconds, call));
  };
  if (chance < 0.4) watch.spoils.push('lost');
  else if (chance < 0.5) {
    counts.early++;
    watch.spoils.push('early');
  } else if (chance < 0.6) {
    counts.endless++;
    faults.initialEnd = oneOf(random, ['missing', 'low', 'twice']);
    watch.refuse(statusOf(410, 'Expired'));
    later(200, () => (faults.initialEnd = 'once'));
  } else if (chance < 0.7) {
    counts.replica++;
    const seconds = 0.2 + random() * 4;
    faults.replica = () => (random() < 0.5 ? seconds : 0);
    if (random() < 0.5) server.reset();
    later(120, () => {
      faults.replica = noReplica;
      for (const { behind, stream } of [...server.watches]) if (behind > 0) stream.end();
    });
  } else if (chance < 0.8) {
    counts.starved++;
    faults.starved.add(resource);
    watch.freeze();
    later(300, () => faults.starved.delete(resource));
  } else if (chance < 0.87) {
    counts.slow++;
    sim.readSeconds = random() * 20;
    later(120, () => (sim.readSeconds = 0.005));
  } else if (chance < 0.94) {
    counts.unread++;
    sim.readable = false;
    // After five minutes without a read, the auditor trusts the streams.
    if (random() < 0.5) sim.pause = 150;
    later(sim.pause > 0 ? 1500 : 120, () => Object.assign(sim, { readable: true, pause: 0 }));
  } else {
    counts.forbidden++;
    const verbs = oneOf(random, [['list'], ['list', 'watch']]);
    for (const verb of verbs) faults.forbidden.add(`${verb} ${resource}`);
    if (random() < 0.5) watch.stream.end();
    later(300, () => {
      for (const verb of verbs) faults.forbidden.delete(`${verb} ${resource}`);
    });
  }
}

export function calm(sim: Simulation): void {
  heal(sim.server);
  sim.server.faults.before = noFault;
  for (const undo of sim.undo) undo();
  sim.undo.clear();
  sim.server.faults.replica = noReplica;
  Object.assign(sim, { readable: true, pause: 0, readSeconds: 0.005 });
  sim.lags.clear();
  sim.disturbed();
}

/**
 * Nothing is written until all must have noticed: versions that pass the known ones before that
 * look like versions that were lost (docs/decisions/0007).
 */
async function restore(sim: Simulation, life: Life, saved: Saved): Promise<void> {
  calm(sim);
  for (const output of outputs) life.stop(output, 3 * patience);
  await sim.pass(patience); // what was sent is read, also on streams that lag
  sim.server.objects.restore(saved);
  sim.restored();
  sim.server.reset();
  await sim.pass(patience);
  life.recover();
  life.restored();
}

/** Much happens in little time. */
async function hurry(sim: Simulation, life: Life, random: Random): Promise<void> {
  for (let steps = 1 + below(random, 4); steps > 0; steps--) {
    life.step();
    await sim.pass(random() * oneOf(random, [1, settle / 2]));
  }
}

/** The cache has caught up with all lost events, at the latest by the next read of the Nodes. */
async function recover(sim: Simulation): Promise<void> {
  const isFrozen = (): boolean => [...sim.server.watches].some(({ frozen }) => frozen);
  for (let waited = 0; sim.isIncomplete() || isFrozen(); waited += patience) {
    if (waited > 3 * 3600) {
      sim.violations.push('a lost event is not noticed');
      return;
    }
    for (const name of names) writeUnknown(sim, name);
    await sim.pass(patience);
  }
}

/** A Service whose creation was lost is noticed with the next Endpoints of its name. */
function writeUnknown({ auditor, truth, server }: Simulation, name: string): void {
  const key = `${namespace}/${name}`;
  const isKnown = [auditor.store.objects, truth.held].map(
    ({ services, endpoints }) => services.has(key) || endpoints.has(key),
  );
  if (isKnown[0] || !isKnown[1]) return;
  const subsets = [{ addresses: [{ ip: '10.9.0.9' }], ports: [{ port: 8080 }] }];
  const written = truth.held.endpoints.get(key) ?? { metadata: { name, namespace }, subsets };
  server.objects.put('endpoints', written);
}

/** Seconds in which the disturbances end that `calm` does not undo. */
const disturbance = 60;

/** Every wait of a reflector ends; `isShort`: not later than all streams are well. */
async function wait(sim: Simulation, isShort: boolean): Promise<void> {
  const least = isShort ? disturbance : patience;
  for (let waited = 0; waited < least || (waited < patience && !sim.isCalm()); waited += settle) {
    await sim.pass(settle);
  }
}

/** `isShort`: most lives end as soon as all streams are well, since a long wait costs most. */
export async function endLife(
  sim: Simulation,
  life: Life,
  isSpoilt: boolean,
  isShort = false,
): Promise<void> {
  calm(sim);
  life.recover();
  await wait(sim, isShort);
  if (isSpoilt) await recover(sim);
  life.step();
  await sim.pass(2 * settle);
  // The step may have made a lost event relevant.
  if (isSpoilt && sim.isIncomplete()) {
    await recover(sim);
    await sim.pass(2 * settle);
  }
  await sim.end();
}

/** One life, from a seed; `watch` is called before it begins; `null`: of the whole cluster. */
export async function auditSeed(
  seed: number,
  watch: (sim: Simulation) => void = () => undefined,
  namespaces: readonly string[] | null = null,
): Promise<Simulation> {
  const random = chanceFrom(seed + 1_000_000);
  let life: Life | undefined;
  const prepare = (made: Simulation): void => {
    const { server, clock, truth } = made;
    watch(made);
    made.pings = random() < 0.7;
    // What controllers write comes late all the time.
    const late = oneOf<Resource>(random, ['endpoints', 'endpointslices']);
    if (random() < 0.3) made.lags.set(late, 1 + random() * 0.8 * settle);
    if (random() < 0.25) {
      made.readable = false;
      made.undo.add(clock.after(random() * 12 * settle, () => (made.readable = true)));
    }
    server.watchList = random() < 0.5;
    server.bookmarkEvery = oneOf(random, [1, 5, 60, 100_000]);
    server.faults.pageSize = oneOf(random, [1, 2, 500]);
    if (random() < 0.1) server.faults.chunks = (bytes) => cut(random, bytes);
    const isSmall = random() < 0.5;
    life = createLife(server, clock, truth, random, {
      pods: isSmall ? 2 : 8,
      services: isSmall ? 1 : 3,
      slowness: oneOf(random, [1, 5, settle * 0.8]),
    });
  };
  const sim = createSimulation(seed, prepare, namespaces);
  if (life === undefined) throw new Error('There is no life');
  const others = namespaces?.filter((name) => name !== namespace) ?? [];
  const isCalm = random() < 0.1;
  const isSpoilt = seed % 2 === 1;
  const extra = chanceFrom(seed + 2_000_000);
  const restores = random() < 0.08;
  let saved: Saved | null = null;
  for (let steps = 8 + below(random, 18); steps > 0; steps--) {
    for (const other of others) writeOther(sim.server, other, steps);
    if (isSpoilt && extra() < 0.3) spoil(sim, extra);
    if (sim.pause > 0) await sim.pass(extra() * sim.pause);
    if (isCalm || random() < 0.75) life.step();
    else {
      if (random() < 0.4) await hurry(sim, life, random);
      upset(sim, life, random);
      if (random() < 0.4) {
        await hurry(sim, life, random);
        halt(life, random() < 0.6 ? outputs : [oneOf(random, outputs)], random);
      }
    }
    if (restores && random() < 0.1) {
      if (saved === null) saved = sim.server.objects.save();
      else if (saved.version < sim.server.objects.version()) {
        await restore(sim, life, saved);
        saved = null;
      }
    }
    if (random() < 0.7) await sim.pass(random() * oneOf(random, [0, 1, 5, 2 * settle]));
  }
  // After a restore, controllers write later than that.
  await endLife(sim, life, isSpoilt, !restores && extra() < 0.8);
  return sim;
}
