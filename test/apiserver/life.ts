// A reflector's world in process: the fake API server, a clock that jumps, chance from a seed, and
// the real store behind. It keeps every entry and checks, as they come, what must always hold.

import { isDeepStrictEqual } from 'node:util';

import type { InputState } from '../../src/audit/pending/progress.ts';
import type { ServiceOutput } from '../../src/audit/service/enqueue.ts';
import type { AuditorEntry } from '../../src/auditor/auditor.ts';
import type { Environment } from '../../src/cluster/api/transport/request.ts';
import type { CachedObjects } from '../../src/cluster/api/version-filter.ts';
import type { LiveEntry } from '../../src/cluster/decode/entry.ts';
import type { Store } from '../../src/cluster/store/store.ts';
import { createStore } from '../../src/cluster/store/store.ts';
import type { AnyObject, Resource } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import type { Api, EndpointsObject, ServiceObject, SliceObject } from '../scenarios/api.ts';
import { collectGarbage, syncEndpoints, syncMirror, syncSlices } from '../scenarios/api.ts';
import type {
  Asked,
  Clock,
  Event,
  FakeServer,
  Instead,
  Raw,
  Saved,
  Spoil,
  VirtualClock,
} from './server.ts';
import { createServer, keyOf, statusAnswer, statusOf, virtualClock } from './server.ts';

export interface World {
  readonly clock: VirtualClock;
  readonly server: FakeServer;
  readonly environment: Environment;
  readonly store: Store;
  readonly entries: LiveEntry[];
  readonly held: (resource: Resource) => CachedObjects;
  readonly deliver: (entries: readonly LiveEntry[]) => void;
  /** Whether the connection pings. */
  pings: boolean;
}

/** A generator of numbers from 0 to 1 (mulberry32). */
export function chanceFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export function heldIn(store: Store, resource: Resource): ReadonlyMap<string, AnyObject> {
  return store.objects[resource];
}

export function createWorld(seed = 1): World {
  const clock = virtualClock();
  const server = createServer(clock);
  const random = chanceFrom(seed);
  const store = createStore(new Set(resources));
  const entries: LiveEntry[] = [];
  const world: World = {
    clock,
    server,
    store,
    entries,
    pings: true,
    environment: {
      now: () => clock.now(),
      monotonic: () => clock.now(),
      random,
      sleep: (seconds, signal) => clock.sleep(seconds, signal),
      ask: (request) => server.ask(request),
      pings: () => world.pings,
    },
    held: (resource) => heldIn(store, resource),
    deliver(batch) {
      for (const entry of batch) {
        entries.push(entry);
        if (entry.kind === 'event') store.apply(entry.event);
        if (entry.kind === 'synced') store.listed(entry.resource);
      }
    },
  };
  return world;
}

/** The objects of a resource on the server and in the cache, as `key uid version`. */
export function compared(world: World, resource: Resource): { got: string[]; want: string[] } {
  const want = world.server.objects
    .list(resource)
    .map(({ raw: { metadata }, key }) => `${key} ${metadata.uid} ${metadata.resourceVersion}`);
  const got = [...heldIn(world.store, resource).values()].map(
    ({ key, uid, resourceVersion }) => `${key} ${uid} ${resourceVersion}`,
  );
  return { got: got.sort(), want: want.sort() };
}

// A random life of a cluster and of the connection to it, from a seed: objects come, change, go and
// come again while everything goes wrong that can. Afterwards all faults cease.

const disturbedResources: readonly Resource[] = [
  'pods',
  'pods',
  'endpointslices',
  'services',
  'nodes',
];
const spoils: readonly Spoil[] = ['garbled', 'cut', 'twice', 'swapped'];

/** Seconds after which a ping that is not answered ends a connection. */
const pingSeconds = 43;

/** Time in which every wait of a reflector ends. */
const patience = 150;

export type Random = () => number;

export const below = (random: Random, count: number): number => Math.floor(random() * count);

export function oneOf<T>(random: Random, values: readonly T[]): T {
  const value = values[below(random, values.length)];
  if (value === undefined) throw new Error('Nothing to choose from');
  return value;
}

function draft(random: Random, resource: Resource): Raw {
  const name = `${resource}-${below(random, 6)}`;
  const labels = { app: `app-${below(random, 3)}` };
  switch (resource) {
    case 'nodes':
      return { metadata: { name, labels } };
    case 'pods': {
      const podIPs = random() < 0.5 ? [] : [{ ip: `10.0.0.${below(random, 200)}` }];
      return { metadata: { name, namespace: 'shop', labels }, spec: {}, status: { podIPs } };
    }
    case 'services':
      return { metadata: { name, namespace: 'shop' }, spec: { selector: labels } };
    default: {
      const content = { addressType: 'IPv4', ports: [], endpoints: [] };
      return { metadata: { name, namespace: 'shop', labels }, ...content };
    }
  }
}

function change(server: FakeServer, random: Random): void {
  const { objects } = server;
  const resource = oneOf(random, disturbedResources);
  const raw = draft(random, resource);
  const { namespace, name } = raw.metadata;
  const key = namespace === undefined ? name : `${namespace}/${name}`;
  const removed = random() < 0.4 && objects.remove(resource, key);
  if (!removed || random() < 0.3) objects.put(resource, raw);
}

/** What the next requests are answered with instead. */
export function refuse(server: FakeServer, random: Random, among = disturbedResources): void {
  let left = 1 + below(random, 3);
  const resource = oneOf(random, among);
  const instead = oneOf<(asked: Asked) => Instead>(random, [
    () => statusAnswer(429, 'TooManyRequests', 'slow down', { 'retry-after': '7' }),
    () => statusAnswer(500, 'InternalError'),
    () => statusAnswer(503, 'ServiceUnavailable'),
    () => statusAnswer(504, 'Timeout'),
    () => statusAnswer(401, 'Unauthorized'),
    () => statusAnswer(410, 'Expired'),
    ({ verb }) => (verb === 'watch' ? statusAnswer(422, 'Invalid') : null),
    ({ verb }) => (verb === 'list' ? statusAnswer(403, 'Forbidden') : null),
    ({ verb }) => (verb === 'list' ? cutAnswer() : null),
    () => 'hang',
    () => 'reset',
  ]);
  server.faults.before = (asked) =>
    asked.resource === resource && left-- > 0 ? instead(asked) : null;
}

const cutAnswer = (): Instead => ({
  status: 200,
  headers: { 'content-type': 'application/json' },
  body: (async function* () {
    await Promise.resolve();
    yield Buffer.from('{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"metadata":');
  })(),
});

/** Breaks, freezes or spoils one watch, or all. */
export function disturb(world: Pick<World, 'server' | 'clock' | 'pings'>, random: Random): void {
  const { server, clock } = world;
  const watches = [...server.watches];
  if (watches.length === 0) return;
  const watch = oneOf(random, watches);
  const faults: readonly (() => void)[] = [
    () => watch.stream.end(),
    () => watch.stream.fail(new Error('connection reset')),
    () => watch.refuse(statusOf(410, 'Expired')),
    () => watch.refuse(statusOf(500, 'InternalError')),
    () => watch.spoils.push(oneOf(random, spoils)),
    () => watch.spoils.push(oneOf(random, spoils), oneOf(random, spoils)),
    () => server.reset(),
    () => {
      watch.freeze();
      if (world.pings) clock.after(pingSeconds, () => watch.stream.fail(new Error('no pong')));
    },
  ];
  oneOf(random, faults)();
}

/** How a body is cut into chunks. */
export function* cut(random: Random, bytes: Uint8Array): Generator<Uint8Array> {
  for (let start = 0; start < bytes.length;) {
    const end = start + 1 + below(random, 120);
    yield bytes.subarray(start, end);
    start = end;
  }
}

/** No fault any more. */
export function heal(server: FakeServer): void {
  server.faults.before = () => null;
  for (const watch of server.watches) watch.heal();
  server.faults.forbidden.clear();
  server.faults.lag = { versions: 0, until: 0 };
  server.faults.starved.clear();
  server.faults.initialEnd = 'once';
  server.faults.replica = () => 0;
}

interface Chaos {
  /** Called before the server's history goes back. */
  readonly onRestore: () => void;
}

/** Lets a world live for some time, and then in peace until all must have recovered. */
export async function live(world: World, random: Random, chaos: Chaos): Promise<void> {
  const { server, clock } = world;
  let saved: Saved = server.objects.save();
  world.pings = random() < 0.7;
  server.watchList = random() < 0.5;
  server.bookmarkEvery = oneOf(random, [10, 60, 100_000]);
  server.faults.pageSize = oneOf(random, [1, 2, 500]);
  if (random() < 0.3) server.faults.chunks = (bytes) => cut(random, bytes);
  for (let steps = 5 + below(random, 25); steps > 0; steps--) {
    const chance = random();
    if (chance < 0.5) change(server, random);
    else if (chance < 0.75) disturb(world, random);
    else if (chance < 0.85) refuse(server, random);
    else if (chance < 0.9) server.objects.compact();
    else if (chance < 0.93) {
      server.faults.lag = { versions: 1 + below(random, 5), until: clock.now() + 4 };
    } else if (chance < 0.96) saved = server.objects.save();
    else if (saved.version < server.objects.version() && random() < 0.5) {
      heal(server);
      await clock.runUntil(clock.now()); // what was sent is read
      chaos.onRestore();
      server.objects.restore(saved);
      server.reset();
      await clock.runUntil(clock.now() + patience);
    } else heal(server);
    if (random() < 0.7) await clock.runUntil(clock.now() + random() * oneOf(random, [0, 2, 30]));
  }
  heal(server);
  await clock.runUntil(clock.now() + patience);
  change(server, random);
  await clock.runUntil(clock.now() + patience);
}

// What is true of the fake API server itself, at every moment: which outputs differ from what their
// controllers mean to write, address by address, and since when.
//
// What they mean to write says test/scenarios/api.ts, which shares no code with what is
// under test: every output is written into a copy, and the copy is compared with the server.

type Held = Record<Resource, Map<string, Raw>>;

const namespace = 'shop';

/** The release of the controllers. */
const minor = 36;

function apiOf(held: Held, put: Api['put'], remove: Api['remove']): Api {
  return {
    now: 0,
    get: (resource, key) => held[resource].get(key) as never,
    list: (resource) => [...held[resource].values()] as never[],
    put,
    remove,
    uid: () => null,
    serviceKeys: new Set(),
    takeEvents: () => [],
  };
}

/** A draft as the object that is there, would it be written. */
function given(draft: object & { metadata: object }, before: Raw | undefined): Raw {
  const { uid = 'new', resourceVersion = '' } = before?.metadata ?? {};
  return { ...draft, metadata: { ...draft.metadata, uid, resourceVersion } } as unknown as Raw;
}

/** A copy that may be written to. */
function copyOf(held: Held): { readonly api: Api; readonly held: Held } {
  const endpoints = new Map(held.endpoints);
  const copy = { ...held, endpoints, endpointslices: new Map(held.endpointslices) };
  const put: Api['put'] = (resource, draft) => {
    const key = keyOf(draft.metadata);
    const after = given(draft, copy[resource].get(key));
    copy[resource].set(key, after);
    return after as never;
  };
  return { api: apiOf(copy, put, (resource, key) => copy[resource].delete(key)), held: copy };
}

export const outputs: readonly ServiceOutput[] = ['endpoints', 'endpointslices', 'mirrored'];

/** One sync of the controller that writes an output of a Service. */
export function sync(api: Api, output: ServiceOutput, name: string): void {
  if (output === 'endpoints') syncEndpoints(api, namespace, name, minor);
  else if (output === 'endpointslices') syncSlices(api, namespace, name, minor);
  else syncMirror(api, namespace, name);
}

const writtenByController = 'endpoints.kubernetes.io/managed-by';

/** The content of an output of a Service by unit: an address, or everything without one. */
function unitsOf(held: Held, output: ServiceOutput, name: string): Map<string, string> {
  const units = new Map<string, string>();
  const add = (unit: string, value: unknown): void => {
    units.set(unit, `${units.get(unit) ?? ''}${JSON.stringify(value)}`);
  };
  if (output === 'endpoints') {
    const found = held.endpoints.get(`${namespace}/${name}`) as EndpointsObject | undefined;
    const service = held.services.get(`${namespace}/${name}`) as ServiceObject | undefined;
    if (found === undefined || service?.spec.selector === undefined) {
      // Objects that users write are no controller's output.
      const left = service === undefined && writtenByController in (found?.metadata.labels ?? {});
      if (left) add('endpoints', 'left behind');
      return units;
    }
    add('endpoints', found.metadata.labels);
    for (const { addresses = [], notReadyAddresses = [], ports } of found.subsets ?? []) {
      for (const one of addresses) add(`endpoints ${one.ip}`, [true, one, ports]);
      for (const one of notReadyAddresses) add(`endpoints ${one.ip}`, [false, one, ports]);
    }
    return units;
  }
  const manager = output === 'mirrored' ? 'endpointslicemirroring' : 'endpointslice';
  for (const raw of held.endpointslices.values()) {
    const { metadata, ports, endpoints } = raw as unknown as SliceObject;
    const { labels = {} } = metadata;
    if (labels['kubernetes.io/service-name'] !== name) continue;
    if (!labels['endpointslice.kubernetes.io/managed-by']?.startsWith(`${manager}-`)) continue;
    add(output, [labels, metadata.ownerReferences?.map(({ uid }) => uid)]);
    for (const one of endpoints ?? []) {
      add(output === 'mirrored' ? output : `${output} ${one.addresses[0] ?? ''}`, [one, ports]);
    }
  }
  return units;
}

export interface Interval {
  readonly from: number;
  /** Infinity while it lasts. */
  to: number;
}

export interface Truth {
  /** The controllers' client. */
  readonly api: Api;
  /** When a unit of an output of a Service differed, oldest first. */
  intervals(name: string, unit: string): readonly Interval[];
  /** The outputs that differ now, with the earliest beginning of what still does. */
  differing(): { readonly name: string; readonly output: ServiceOutput; readonly from: number }[];
  /** When something last changed that a Service has to do with. */
  touchedAt(name: string): number;
  readonly held: Held;
  /** Calls back after each change, with what was there before. */
  onChange(call: (event: Event, before: Raw | undefined, names: readonly string[]) => void): void;
  /** Forgets what was over before a moment. */
  forget(before: number): void;
  /** The server's objects are others; returns which, with the Services that they concern. */
  restored(): readonly Change[];
}

/** That an object changed or went, by a version. */
interface Change {
  readonly resource: Resource;
  readonly key: string;
  readonly version: number;
  readonly names: readonly string[];
}

interface TruthState {
  readonly server: FakeServer;
  readonly clock: Clock;
  readonly names: readonly string[];
  readonly held: Held;
  readonly intervals: Map<string, Interval[]>;
  readonly openIntervals: Map<string, { output: ServiceOutput; name: string; interval: Interval }>;
  readonly touched: Map<string, number>;
  readonly stale: Set<string>;
  staleAt: number;
}

/** Brings the intervals up to date with all that happened at the moment of the last change. */
function refresh(state: TruthState): void {
  const { held, intervals, openIntervals, stale, staleAt } = state;
  if (stale.size === 0) return;
  const { api, held: want } = copyOf(held);
  collectGarbage(api);
  for (const name of stale) {
    for (const output of outputs) {
      sync(api, output, name);
      const [is, must] = [unitsOf(held, output, name), unitsOf(want, output, name)];
      for (const unit of new Set([...is.keys(), ...must.keys()])) {
        const key = `${name} ${unit}`;
        if (is.get(unit) === must.get(unit) || openIntervals.has(key)) continue;
        const interval = { from: staleAt, to: Infinity };
        openIntervals.set(key, { output, name, interval });
        intervals.set(key, [...(intervals.get(key) ?? []), interval]);
      }
      for (const [key, one] of openIntervals) {
        if (one.name !== name || one.output !== output) continue;
        const unit = key.slice(name.length + 1);
        if (is.get(unit) !== must.get(unit)) continue;
        one.interval.to = staleAt;
        openIntervals.delete(key);
      }
    }
  }
  stale.clear();
}

function touch(state: TruthState, names: readonly string[]): void {
  const now = state.clock.now();
  if (now !== state.staleAt) refresh(state);
  state.staleAt = now;
  for (const name of names) {
    state.stale.add(name);
    state.touched.set(name, now);
  }
}

/** The label by which Services select a pod. */
export const appOf = (raw: Raw | undefined): string => raw?.metadata.labels?.app ?? '';

/** The Services that an object has to do with. */
function namesOf(
  state: TruthState,
  { resource, raw }: Pick<Event, 'resource' | 'raw'>,
  before: Raw | undefined,
): string[] {
  const { names, held } = state;
  if (resource === 'nodes') return [...names];
  if (resource === 'endpoints' || resource === 'services') return [raw.metadata.name];
  if (resource === 'endpointslices') {
    return [raw, before].flatMap((one) => {
      const name = one?.metadata.labels?.['kubernetes.io/service-name'];
      return name === undefined ? [] : [name];
    });
  }
  const apps = [appOf(raw), appOf(before)];
  return names.filter((name) => {
    const service = held.services.get(`${namespace}/${name}`) as ServiceObject | undefined;
    return apps.includes(service?.spec.selector?.app ?? '-');
  });
}

/** Takes in all that the server has; returns what is other than before. */
function restore(state: TruthState): Change[] {
  const { server, held } = state;
  const all = (Object.keys(held) as Resource[]).flatMap((resource) => {
    const now = new Map(server.objects.list(resource).map((one) => [one.key, one]));
    return [...new Set([...held[resource].keys(), ...now.keys()])].flatMap((key) => {
      const [before, after] = [held[resource].get(key), now.get(key)];
      const raw = after?.raw ?? before;
      if (raw === undefined || after?.raw === before) return [];
      const version = after?.version ?? server.objects.version();
      return [{ resource, key, version, raw, before, after: after?.raw }];
    });
  });
  const concerned = (): string[][] => all.map(({ before, ...one }) => namesOf(state, one, before));
  const until = concerned();
  for (const { resource, key, after } of all) {
    if (after === undefined) held[resource].delete(key);
    else held[resource].set(key, after);
  }
  const since = concerned();
  return all.map(({ resource, key, version }, index) => {
    const names = [...(until[index] ?? []), ...(since[index] ?? [])];
    return { resource, key, version, names };
  });
}

function forgetIntervals({ intervals }: TruthState, before: number): void {
  for (const [key, list] of intervals) {
    const kept = list.filter(({ to }) => to >= before);
    intervals.set(key, kept);
  }
}

/** Follows a server that has no objects yet; `names` are those of all Services there ever are. */
export function truthOf(server: FakeServer, clock: Clock, names: readonly string[]): Truth {
  const calls: Parameters<Truth['onChange']>[0][] = [];
  const held: Held = {
    nodes: new Map(),
    services: new Map(),
    pods: new Map(),
    endpoints: new Map(),
    endpointslices: new Map(),
  };
  const state: TruthState = {
    server,
    clock,
    names,
    held,
    intervals: new Map(),
    openIntervals: new Map(),
    touched: new Map(),
    stale: new Set(),
    staleAt: clock.now(),
  };
  server.objects.onChange((event) => {
    const { resource, key, type, raw } = event;
    const before = held[resource].get(key);
    // What a Service selected until now counts too.
    if (clock.now() !== state.staleAt) refresh(state);
    if (type === 'DELETED') held[resource].delete(key);
    else held[resource].set(key, raw);
    const concerned = namesOf(state, event, before);
    touch(state, concerned);
    for (const call of calls) call(event, before, concerned);
  });
  const put: Api['put'] = (resource, draft) => {
    const key = keyOf(draft.metadata);
    const before = held[resource].get(key);
    if (before !== undefined) {
      const { kind, apiVersion } = before;
      const after = { kind, apiVersion, ...given(draft, before) };
      if (isDeepStrictEqual(after, before)) return before as never;
    }
    return server.objects.put(resource, draft) as never;
  };
  return {
    api: apiOf(held, put, (resource, key) => server.objects.remove(resource, key)),
    intervals(name, unit) {
      refresh(state);
      return state.intervals.get(`${name} ${unit}`) ?? [];
    },
    differing() {
      refresh(state);
      return [...state.openIntervals.values()].map(({ name, output, interval }) => ({
        name,
        output,
        from: interval.from,
      }));
    },
    touchedAt: (name) => state.touched.get(name) ?? 0,
    held,
    onChange: (call) => void calls.push(call),
    forget: (before) => forgetIntervals(state, before),
    restored() {
      if (clock.now() !== state.staleAt) refresh(state);
      const changes = restore(state);
      touch(state, names);
      return changes;
    },
  };
}

// What the streams still owe the auditor: every change of the fake API server that has not been
// taken in yet, from the entries that are. It says up to which moment a Service is known, whatever
// the auditor itself makes of the versions that it has seen.

export interface Undelivered {
  /** What has not been taken in of a Service, as far as it is of `needed`. */
  of(name: string, needed: readonly Resource[]): readonly Missing[];
  /** An entry has been taken in. */
  took(entry: AuditorEntry): void;
  /** The history of the server went back, and with it these objects. */
  restored(changes: readonly Change[]): void;
  /** Forgets the times without a watch that were over before a moment. */
  forget(before: number): void;
  /** Whether a list of the resource was ever complete. */
  wasListed(resource: Resource): boolean;
  /**
   * For how long, since a moment, one of these was not watched: where that took `least` seconds or
   * ended in a list.
   */
  unseenFor(needed: readonly Resource[], since: number, least: number): number;
}

/** A time in which a resource had no watch. */
interface Spell {
  readonly resource: Resource;
  readonly from: number;
  /** Infinity while it lasts. */
  to: number;
  listed: boolean;
}

/** A change that the auditor does not know yet, and when it happened. */
export interface Missing extends Change {
  readonly at: number;
}

/** Follows a server that has no objects yet. */
export function trackUndelivered(truth: Truth, clock: Clock): Undelivered {
  const listed = new Set<Resource>();
  let spells: Spell[] = [];
  let changes: Missing[] = [];
  truth.onChange(({ resource, key, version }, _before, concerned) => {
    changes.push({ resource, key, version, names: concerned, at: clock.now() });
  });
  const settle = (resource: Resource, key: string | null, version: number): void => {
    changes = changes.filter(
      (one) =>
        one.resource !== resource || one.version > version || (key !== null && one.key !== key),
    );
  };
  const turn = (resource: Resource, state: InputState): void => {
    const last = spells.findLast((one) => one.resource === resource && one.to === Infinity);
    if (state === 'synced') {
      if (last !== undefined) last.to = clock.now();
    } else if (last !== undefined) last.listed ||= state === 'relisting';
    else if (listed.has(resource)) {
      const missed = state === 'relisting';
      spells.push({ resource, from: clock.now(), to: Infinity, listed: missed });
    }
  };
  return {
    of: (name, needed) =>
      changes.filter((one) => needed.includes(one.resource) && one.names.includes(name)),
    took(entry) {
      if (entry.kind === 'watch') turn(entry.resource, entry.state);
      else if (entry.kind === 'synced') listed.add(entry.resource);
      else if (entry.kind === 'progress') {
        settle(entry.resource, null, Number(entry.resourceVersion));
      } else if (entry.kind === 'event') {
        const { resource, object } = entry.event;
        settle(resource, object.key, Number(object.resourceVersion));
      }
    },
    restored(others) {
      changes = others.map((one) => ({ ...one, at: clock.now() }));
    },
    forget(before) {
      spells = spells.filter(({ to }) => to >= before);
    },
    wasListed: (resource) => listed.has(resource),
    unseenFor(needed, since, least) {
      let [until, sum] = [since, 0];
      for (const { resource, from, to, listed: missed } of spells) {
        if (!needed.includes(resource)) continue;
        const end = Math.min(to, clock.now());
        if (!missed && end - from < least) continue;
        sum += Math.max(0, end - Math.max(from, until));
        until = Math.max(until, end);
      }
      return sum;
    },
  };
}

// A random life of a small cluster on the fake API server: Services, pods and Nodes come and change
// and go, and the controllers follow after random delays. Sometimes a controller stops for longer
// than any window, or a user edits its output by hand: those faults must be found.

/** Every Service there may be; the last has no selector. */
export const names: readonly string[] = ['s0', 's1', 's2', 'manual'];

const nodes = ['node-a', 'node-b'];

export interface Life {
  /** One thing happens. */
  step(): void;
  /** Every controller runs again. */
  recover(): void;
  /** The controller of an output stops for a number of seconds. */
  stop(output: ServiceOutput, seconds: number): void;
  /** The controllers restart, as after a restore of the server from a backup. */
  restored(): void;
}

/** How much there is, and how fast. */
interface Shape {
  /** Pods there may be at a time. */
  readonly pods: number;
  /** Services with a selector. */
  readonly services: number;
  /** The longest that a controller takes. */
  readonly slowness: number;
}

interface LifeState extends Shape {
  readonly server: FakeServer;
  readonly clock: VirtualClock;
  readonly truth: Truth;
  readonly random: Random;
  readonly queued: Set<string>;
  readonly stoppedUntil: Map<ServiceOutput, number>;
  ips: number;
}

const isReady = (random: Random, likely = 0.8): object[] => [
  { type: 'Ready', status: random() < likely ? 'True' : 'False' },
];

function putNode({ server, random }: LifeState, name: string): void {
  const labels = { 'topology.kubernetes.io/zone': `zone-${below(random, 3)}` };
  const status = { allocatable: { cpu: '4' }, conditions: [{ type: 'Ready', status: 'True' }] };
  server.objects.put('nodes', { metadata: { name, labels }, status });
}

function putService({ server, random }: LifeState, name: string): void {
  const app = name === 'manual' ? {} : { selector: { app: name } };
  server.objects.put('services', {
    metadata: { name, namespace, labels: { team: `team-${below(random, 3)}` } },
    spec: {
      type: 'ClusterIP',
      clusterIP: '10.96.0.9',
      ipFamilies: ['IPv4'],
      ...app,
      ports: [{ name: 'http', port: 80, targetPort: 8080, protocol: 'TCP' }],
    },
  });
}

/** A pod comes, becomes ready or not, or gets an address. */
/** Addresses of a long life are used again. */
const podIP = (number: number): string => `10.0.${(number >> 8) & 255}.${number & 255}`;

function putPod(state: LifeState, name: string): void {
  const { server, random, services } = state;
  const before = server.objects.get('pods', `${namespace}/${name}`);
  const status = before?.status as { podIPs: { ip: string }[] } | undefined;
  const ip = status?.podIPs[0]?.ip ?? podIP(++state.ips);
  const app = oneOf(random, names.slice(0, services));
  const { labels = { app } } = before?.metadata ?? {};
  const podIPs = before === undefined && random() < 0.3 ? [] : [{ ip }];
  const fresh = { nodeName: oneOf(random, nodes), containers: [{ name: 'web' }] };
  server.objects.put('pods', {
    metadata: { name, namespace, labels: random() < 0.1 ? { app } : labels },
    spec: before?.spec ?? fresh,
    status: { phase: 'Running', podIPs, conditions: isReady(random) },
  });
}

/** A pod begins to end. */
function drain({ server }: LifeState, name: string): void {
  const before = server.objects.get('pods', `${namespace}/${name}`);
  if (before === undefined) return;
  const deletionTimestamp = '2026-01-01T00:00:00Z';
  server.objects.put('pods', { ...before, metadata: { ...before.metadata, deletionTimestamp } });
}

/** What people write for the Service without selector. */
function putManual({ server, random }: LifeState): void {
  const addresses = ['10.9.0.1', '10.9.0.2', '10.9.0.3'].filter(() => random() < 0.6);
  const ports = [{ name: 'http', port: 8080, protocol: 'TCP' }];
  const subsets =
    addresses.length === 0 ? [] : [{ addresses: addresses.map((ip) => ({ ip })), ports }];
  server.objects.put('endpoints', { metadata: { name: 'manual', namespace }, subsets });
}

/** A user edits what a controller wrote. */
function edit({ server, truth, random }: LifeState): void {
  if (random() < 0.5) {
    const all = [...truth.held.endpoints.values()].filter(
      ({ metadata }) => metadata.name !== 'manual',
    );
    if (all.length === 0) return;
    const { metadata } = oneOf(random, all);
    const labels = random() < 0.3 ? { ...metadata.labels, edited: 'yes' } : metadata.labels;
    const subsets = random() < 0.5 ? [] : [{ addresses: [{ ip: '10.8.0.1' }] }];
    server.objects.put('endpoints', {
      metadata: { ...metadata, ...(labels && { labels }) },
      subsets,
    });
    return;
  }
  const all = [...truth.held.endpointslices.values()];
  if (all.length === 0) return;
  const slice = oneOf(random, all);
  const key = `${namespace}/${slice.metadata.name}`;
  if (random() < 0.3) server.objects.remove('endpointslices', key);
  else {
    const endpoints = (slice.endpoints as object[] | null) ?? [];
    const edited = endpoints
      .slice(1)
      .map((one) => ({ ...one, conditions: { ready: random() < 0.5 } }));
    server.objects.put('endpointslices', { ...slice, endpoints: edited });
  }
}

/** One sync, unless it is queued already; a stopped controller does it when it continues. */
function queue(state: LifeState, output: ServiceOutput, name: string): void {
  const { clock, random, slowness, queued, stoppedUntil, truth } = state;
  const key = `${output} ${name}`;
  if (queued.has(key)) return;
  queued.add(key);
  const work = (): void => {
    const until = stoppedUntil.get(output) ?? 0;
    if (until > clock.now()) {
      clock.after(until - clock.now() + random(), work);
      return;
    }
    queued.delete(key);
    sync(truth.api, output, name);
  };
  clock.after(0.01 + random() * oneOf(random, [0.1, 1, slowness]), work);
}

function follow(state: LifeState): void {
  const { truth, clock } = state;
  truth.onChange(({ resource, type }, _before, concerned) => {
    for (const name of concerned) {
      if (resource === 'endpoints') queue(state, 'mirrored', name);
      else if (resource !== 'endpointslices')
        for (const output of outputs) queue(state, output, name);
    }
    if (type !== 'DELETED' || (resource !== 'services' && resource !== 'endpoints')) return;
    clock.after(0.5, () => {
      collectGarbage(truth.api);
    });
  });
}

/**
 * Whether a change of a Node is seen at once. The auditor does not read Nodes again, so it cannot
 * know how far behind a stream is that hangs unnoticed (docs/decisions/0010).
 */
const isSeen = ({ watches }: FakeServer): boolean =>
  [...watches].every(({ resource, frozen, spoils }) => {
    return resource !== 'nodes' || !(frozen || spoils.length > 0);
  });

function step(state: LifeState): void {
  const { server, random, truth, pods, services } = state;
  const pod = `p${below(random, pods)}`;
  const name = oneOf(random, [...names.slice(0, services), 'manual']);
  const chance = random();
  if (chance < 0.55) putPod(state, pod);
  else if (chance < 0.65) drain(state, pod);
  else if (chance < 0.75) server.objects.remove('pods', `${namespace}/${pod}`);
  else if (chance < 0.82) putService(state, name);
  else if (chance < 0.86) server.objects.remove('services', `${namespace}/${name}`);
  else if (chance < 0.91) putManual(state);
  else if (chance < 0.93) {
    if (isSeen(server)) putNode(state, oneOf(random, nodes));
  } else if (truth.held.services.size > 0) edit(state);
}

/** `truth` follows the same server. */
export function createLife(
  server: FakeServer,
  clock: VirtualClock,
  truth: Truth,
  random: Random,
  shape: Shape,
): Life {
  const state: LifeState = {
    server,
    clock,
    truth,
    random,
    ...shape,
    queued: new Set(),
    stoppedUntil: new Map(),
    ips: 0,
  };
  follow(state);
  for (const name of nodes) putNode(state, name);
  for (const name of [...names.slice(0, shape.services), 'manual']) {
    if (random() < 0.7) putService(state, name);
  }
  for (let index = 0; index < shape.pods; index++) if (random() < 0.6) putPod(state, `p${index}`);
  return {
    step() {
      step(state);
    },
    stop(output, seconds) {
      state.stoppedUntil.set(output, clock.now() + seconds);
    },
    recover() {
      state.stoppedUntil.clear();
    },
    restored() {
      collectGarbage(truth.api);
      for (const output of outputs) for (const name of names) queue(state, output, name);
    },
  };
}
