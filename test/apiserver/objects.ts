// The versioned store of the fake API server: objects as the API writes them, the history of their
// changes as far as it is not compacted, and the one sequence of versions of them all.

import type { Resource } from '../../src/model/objects.ts';

export interface RawMeta {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  labels?: Record<string, string>;
  [field: string]: unknown;
}

export interface Raw {
  metadata: RawMeta;
  [field: string]: unknown;
}

export interface Stored {
  readonly resource: Resource;
  readonly key: string;
  readonly version: number;
  readonly raw: Raw;
}

/** One change; `raw` has the version of the change, also where it is a deletion. */
export interface Event extends Stored {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
}

export interface Saved {
  readonly version: number;
  readonly objects: ReadonlyMap<string, Stored>;
}

export interface Objects {
  /** The latest version of all. */
  version(): number;
  /** Creates or replaces, with a new version, and a new uid where it is created. */
  readonly put: (resource: Resource, raw: Raw) => Raw;
  /** False when there is no such object. */
  remove(resource: Resource, key: string): boolean;
  get(resource: Resource, key: string): Raw | undefined;
  /** Sorted by key, as etcd has them; as they were at a version that is not compacted. */
  readonly list: (resource: Resource, at?: number) => readonly Stored[];
  /** Changes after a version; null when they are compacted. */
  readonly after: (version: number) => readonly Event[] | null;
  /** Forgets the history up to now. */
  compact(): void;
  save(): Saved;
  /** The history goes back to what was saved, as when etcd is restored from a backup. */
  restore(saved: Saved): void;
  /** Calls back after every change. */
  onChange(call: (event: Event) => void): void;
}

const apiVersions: Partial<Record<Resource, string>> = { endpointslices: 'discovery.k8s.io/v1' };

export const kindOf: Readonly<Record<Resource, string>> = {
  nodes: 'Node',
  services: 'Service',
  pods: 'Pod',
  endpoints: 'Endpoints',
  endpointslices: 'EndpointSlice',
};

export const apiVersionOf = (resource: Resource): string => apiVersions[resource] ?? 'v1';

export const keyOf = ({ namespace, name }: RawMeta): string =>
  namespace === undefined ? name : `${namespace}/${name}`;

interface State {
  objects: Map<string, Stored>;
  history: Event[];
  compacted: number;
  version: number;
  uids: number;
  readonly listeners: ((event: Event) => void)[];
}

function record(state: State, event: Event): void {
  state.history.push(event);
  for (const call of state.listeners) call(event);
}

function put(state: State, resource: Resource, draft: Raw): Raw {
  const key = keyOf(draft.metadata);
  const place = `${resource} ${key}`;
  const before = state.objects.get(place);
  const uid = before?.raw.metadata.uid ?? `uid-${++state.uids}`;
  const version = ++state.version;
  const raw: Raw = {
    kind: kindOf[resource],
    apiVersion: apiVersionOf(resource),
    ...draft,
    metadata: { ...draft.metadata, uid, resourceVersion: String(version) },
  };
  const type = before === undefined ? 'ADDED' : 'MODIFIED';
  state.objects.set(place, { resource, key, version, raw });
  record(state, { resource, key, version, raw, type });
  return raw;
}

function remove(state: State, resource: Resource, key: string): boolean {
  const place = `${resource} ${key}`;
  const before = state.objects.get(place);
  if (before === undefined) return false;
  state.objects.delete(place);
  const version = ++state.version;
  const metadata = { ...before.raw.metadata, resourceVersion: String(version) };
  const raw = { ...before.raw, metadata };
  record(state, { resource, key, version, raw, type: 'DELETED' });
  return true;
}

function listAt(state: State, resource: Resource, at: number): readonly Stored[] {
  const objects = new Map(state.objects);
  for (const event of state.history.filter(({ version }) => version > at).reverse()) {
    const place = `${event.resource} ${event.key}`;
    const before = state.history.findLast(
      (other) => other.version < event.version && `${other.resource} ${other.key}` === place,
    );
    if (before === undefined || before.type === 'DELETED') objects.delete(place);
    else objects.set(place, before);
  }
  return [...objects.values()]
    .filter((one) => one.resource === resource)
    .sort((a, b) => (a.key < b.key ? -1 : 1));
}

export function createObjects(): Objects {
  const state: State = {
    objects: new Map(),
    history: [],
    compacted: 0,
    version: 100,
    uids: 0,
    listeners: [],
  };
  return {
    version: () => state.version,
    put: (resource, raw) => put(state, resource, raw),
    remove: (resource, key) => remove(state, resource, key),
    get: (resource, key) => state.objects.get(`${resource} ${key}`)?.raw,
    list: (resource, at = state.version) => listAt(state, resource, at),
    after: (version) =>
      version < state.compacted ? null : state.history.filter((one) => one.version > version),
    compact() {
      // Older versions stay for listAt: a lagging server answers from its memory.
      state.compacted = state.version;
    },
    save: () => ({ version: state.version, objects: new Map(state.objects) }),
    restore(saved) {
      state.objects = new Map(saved.objects);
      state.version = saved.version;
      state.history = state.history.filter(({ version }) => version <= saved.version);
      state.compacted = saved.version;
    },
    onChange: (call) => void state.listeners.push(call),
  };
}
