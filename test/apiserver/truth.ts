// What is true of the fake API server itself, at every moment: which outputs differ from what their
// controllers mean to write, address by address, and since when.
//
// What they mean to write says test/scenarios/controllers.ts, which shares no code with what is
// under test: every output is written into a copy, and the copy is compared with the server.

import { isDeepStrictEqual } from 'node:util';

import type { ServiceOutput } from '../../src/audit/service/enqueue.ts';
import type { Resource } from '../../src/model/objects.ts';
import type { Api, EndpointsObject, ServiceObject, SliceObject } from '../scenarios/api.ts';
import { collectGarbage, syncEndpoints, syncMirror, syncSlices } from '../scenarios/controllers.ts';
import type { Clock } from './clock.ts';
import type { Event, Raw } from './objects.ts';
import { keyOf } from './objects.ts';
import type { FakeServer } from './server.ts';

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
  /** The server's objects are others; returns which, with the Services that they concern. */
  restored(): readonly Change[];
}

/** That an object changed or went, by a version. */
export interface Change {
  readonly resource: Resource;
  readonly key: string;
  readonly version: number;
  readonly names: readonly string[];
}

interface State {
  readonly server: FakeServer;
  readonly clock: Clock;
  readonly names: readonly string[];
  readonly held: Held;
  readonly intervals: Map<string, Interval[]>;
  readonly standing: Map<string, { output: ServiceOutput; name: string; interval: Interval }>;
  readonly touched: Map<string, number>;
  readonly stale: Set<string>;
  staleAt: number;
}

/** Brings the intervals up to date with all that happened at the moment of the last change. */
function refresh(state: State): void {
  const { held, intervals, standing, stale, staleAt } = state;
  if (stale.size === 0) return;
  const { api, held: want } = copyOf(held);
  collectGarbage(api);
  for (const name of stale) {
    for (const output of outputs) {
      sync(api, output, name);
      const [is, must] = [unitsOf(held, output, name), unitsOf(want, output, name)];
      for (const unit of new Set([...is.keys(), ...must.keys()])) {
        const key = `${name} ${unit}`;
        if (is.get(unit) === must.get(unit) || standing.has(key)) continue;
        const interval = { from: staleAt, to: Infinity };
        standing.set(key, { output, name, interval });
        intervals.set(key, [...(intervals.get(key) ?? []), interval]);
      }
      for (const [key, one] of standing) {
        if (one.name !== name || one.output !== output) continue;
        const unit = key.slice(name.length + 1);
        if (is.get(unit) !== must.get(unit)) continue;
        one.interval.to = staleAt;
        standing.delete(key);
      }
    }
  }
  stale.clear();
}

function touch(state: State, names: readonly string[]): void {
  const now = state.clock.now();
  if (now !== state.staleAt) refresh(state);
  state.staleAt = now;
  for (const name of names) {
    state.stale.add(name);
    state.touched.set(name, now);
  }
}

const appOf = (raw: Raw | undefined): string => raw?.metadata.labels?.app ?? '';

/** The Services that an object has to do with. */
function namesOf(
  state: State,
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
function restore(state: State): Change[] {
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
  const state: State = {
    server,
    clock,
    names,
    held,
    intervals: new Map(),
    standing: new Map(),
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
      return [...state.standing.values()].map(({ name, output, interval }) => ({
        name,
        output,
        from: interval.from,
      }));
    },
    touchedAt: (name) => state.touched.get(name) ?? 0,
    held,
    onChange: (call) => void calls.push(call),
    restored() {
      if (clock.now() !== state.staleAt) refresh(state);
      const changes = restore(state);
      touch(state, names);
      return changes;
    },
  };
}
