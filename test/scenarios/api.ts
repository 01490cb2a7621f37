// A miniature API server for scenarios: it holds raw objects, gives them what only an API server
// gives (uid, resourceVersion, creationTimestamp, generation, cluster IP), and keeps the watch
// events of what happened. Objects are plain JSON as a client would read them; the types name no
// more fields than scenarios use.
//
// The generation of an EndpointSlice rises with its content and its labels and with nothing else,
// as pkg/registry/discovery/endpointslice/strategy.go of kubernetes@v1.36.3 PrepareForUpdate has
// it.

import { isDeepStrictEqual } from 'node:util';

import type { Key, Resource } from '../../src/model/objects.ts';

export type StringMap = Record<string, string>;

export interface Owner {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
}

export interface Metadata {
  name: string;
  namespace?: string;
  uid: string;
  resourceVersion: string;
  creationTimestamp: string;
  generation?: number;
  deletionTimestamp?: string;
  deletionGracePeriodSeconds?: number;
  labels?: StringMap;
  annotations?: StringMap;
  ownerReferences?: Owner[];
}

export interface Condition {
  type: string;
  status: string;
  lastTransitionTime: string;
}

export interface ContainerPort {
  name: string;
  containerPort: number;
  protocol: string;
}

export interface Container {
  name: string;
  restartPolicy?: string;
  ports?: ContainerPort[];
}

export interface NodeObject {
  apiVersion: 'v1';
  kind: 'Node';
  metadata: Metadata;
  status: { allocatable?: { cpu: string }; conditions: Condition[] };
}

export interface PodObject {
  apiVersion: 'v1';
  kind: 'Pod';
  metadata: Metadata;
  spec: {
    nodeName?: string;
    hostname?: string;
    subdomain?: string;
    hostNetwork?: boolean;
    containers: Container[];
    initContainers?: Container[];
  };
  status: { phase: string; podIP?: string; podIPs?: { ip: string }[]; conditions?: Condition[] };
}

export interface ServicePort {
  name?: string;
  port: number;
  targetPort: number | string;
  protocol: string;
  appProtocol?: string;
}

export interface ServiceObject {
  apiVersion: 'v1';
  kind: 'Service';
  metadata: Metadata;
  spec: {
    type: string;
    selector?: StringMap;
    clusterIP?: string;
    ipFamilies?: string[];
    ports?: ServicePort[];
    externalName?: string;
    publishNotReadyAddresses?: boolean;
    trafficDistribution?: string;
  };
}

export interface Target {
  kind: 'Pod';
  namespace: string;
  name: string;
  uid: string;
}

export interface Address {
  ip: string;
  nodeName?: string;
  hostname?: string;
  targetRef?: Target;
}

export interface PortEntry {
  name?: string;
  port: number;
  protocol: string;
  appProtocol?: string;
}

export interface Subset {
  addresses?: Address[];
  notReadyAddresses?: Address[];
  ports?: PortEntry[];
}

export interface EndpointsObject {
  apiVersion: 'v1';
  kind: 'Endpoints';
  metadata: Metadata;
  subsets?: Subset[];
}

export interface EndpointEntry {
  addresses: string[];
  conditions: { ready?: boolean; serving?: boolean; terminating?: boolean };
  hostname?: string;
  nodeName?: string;
  zone?: string;
  targetRef?: Target;
  hints?: { forZones?: { name: string }[]; forNodes?: { name: string }[] };
}

export interface SliceObject {
  apiVersion: 'discovery.k8s.io/v1';
  kind: 'EndpointSlice';
  metadata: Metadata;
  addressType: string;
  ports: PortEntry[] | null;
  endpoints: EndpointEntry[] | null;
}

export interface ObjectsOf {
  nodes: NodeObject;
  services: ServiceObject;
  pods: PodObject;
  endpoints: EndpointsObject;
  endpointslices: SliceObject;
}

export type ApiObject = ObjectsOf[Resource];

/** One line of a watch, with the raw object. */
export interface RawEvent {
  readonly resource: Resource;
  readonly type: 'added' | 'modified' | 'deleted';
  readonly key: Key;
  readonly raw: ApiObject;
}

/** What a client sends: everything but what the server gives. */
export type Draft<R extends Resource> = Omit<ObjectsOf[R], 'metadata'> & {
  metadata: Partial<Metadata> & { name: string };
};

export interface Api {
  /** Seconds of the scenario. */
  now: number;
  get<R extends Resource>(resource: R, key: Key): ObjectsOf[R] | undefined;
  list<R extends Resource>(resource: R): ObjectsOf[R][];
  /** Creates or replaces; nothing happens if nothing differs. */
  put<R extends Resource>(resource: R, draft: Draft<R>): ObjectsOf[R];
  /** False when there is no such object. */
  remove(resource: Resource, key: Key): boolean;
  /** The uid of an object by this name, of its latest life or of the one that is counted. */
  uid(resource: Resource, key: Key, life?: number): string | null;
  /** Every Service key that ever was. */
  readonly serviceKeys: ReadonlySet<Key>;
  /** The events since the last call. */
  takeEvents(): RawEvent[];
}

/** The moment of a scenario's `at 0s`, Unix seconds. */
export const epoch = Date.UTC(2026, 0, 1) / 1000;

export function timestamp(seconds: number): string {
  return new Date((epoch + seconds) * 1000).toISOString().replace('.000Z', 'Z');
}

export function keyOf(metadata: { name: string; namespace?: string | undefined }): Key {
  const { name, namespace } = metadata;
  return namespace === undefined ? name : `${namespace}/${name}`;
}

/** Content without metadata, as the generation of a slice sees it. */
function contentOf(object: ApiObject): object {
  return { ...object, metadata: { labels: object.metadata.labels ?? {} } };
}

const withoutVersion = (object: ApiObject): object => ({
  ...object,
  metadata: { ...object.metadata, resourceVersion: '' },
});

interface State {
  readonly held: Map<string, ApiObject>;
  /** How many objects of a name there were. */
  readonly lives: Map<string, number>;
  readonly serviceKeys: Set<Key>;
  events: RawEvent[];
  version: number;
}

const uidOf = (place: string, life: number): string => `${place.replace(/[ /]/g, '-')}-${life}`;

/** The metadata that the server gives to a new object, or keeps of the one before. */
function given(
  { lives }: State,
  place: string,
  now: number,
  before: ApiObject | undefined,
): Metadata {
  if (before !== undefined) return before.metadata;
  const life = (lives.get(place) ?? 0) + 1;
  lives.set(place, life);
  const uid = uidOf(place, life);
  const base = { name: '', uid, resourceVersion: '', creationTimestamp: timestamp(now) };
  return place.startsWith('endpointslices ') ? { ...base, generation: 1 } : base;
}

function put<R extends Resource>(
  state: State,
  resource: R,
  draft: Draft<R>,
  now: number,
): ObjectsOf[R] {
  const key = keyOf(draft.metadata);
  const place = `${resource} ${key}`;
  const before = state.held.get(place) as ObjectsOf[R] | undefined;
  const kept = given(state, place, now, before);
  const { uid, resourceVersion, creationTimestamp, generation } = kept;
  const server: Partial<Metadata> = { uid, resourceVersion, creationTimestamp };
  if (generation !== undefined) server.generation = generation;
  const after = { ...draft, metadata: { ...draft.metadata, ...server } } as ObjectsOf[R];
  if (before !== undefined && isDeepStrictEqual(withoutVersion(before), withoutVersion(after))) {
    return before;
  }
  const changed = before !== undefined && !isDeepStrictEqual(contentOf(before), contentOf(after));
  if (changed && generation !== undefined) after.metadata.generation = generation + 1;
  after.metadata.resourceVersion = String(++state.version);
  state.held.set(place, after);
  if (resource === 'services') state.serviceKeys.add(key);
  const type = before === undefined ? 'added' : 'modified';
  state.events.push({ resource, type, key, raw: after });
  return after;
}

function remove(state: State, resource: Resource, key: Key): boolean {
  const place = `${resource} ${key}`;
  const before = state.held.get(place);
  if (before === undefined) return false;
  state.held.delete(place);
  const metadata = { ...before.metadata, resourceVersion: String(++state.version) };
  state.events.push({ resource, type: 'deleted', key, raw: { ...before, metadata } });
  return true;
}

export function createApi(): Api {
  const state: State = {
    held: new Map(),
    lives: new Map(),
    serviceKeys: new Set(),
    events: [],
    version: 100,
  };
  const { held, lives, serviceKeys } = state;
  const api: Api = {
    now: 0,
    get: <R extends Resource>(resource: R, key: Key) =>
      held.get(`${resource} ${key}`) as ObjectsOf[R] | undefined,
    list: <R extends Resource>(resource: R) =>
      [...held]
        .filter(([place]) => place.startsWith(`${resource} `))
        .map(([, object]) => object as ObjectsOf[R]),
    put: (resource, draft) => put(state, resource, draft, api.now),
    remove: (resource, key) => remove(state, resource, key),
    uid(resource, key, life) {
      const place = `${resource} ${key}`;
      const latest = lives.get(place);
      return latest === undefined ? null : uidOf(place, life ?? latest);
    },
    serviceKeys,
    takeEvents() {
      const taken = state.events;
      state.events = [];
      return taken;
    },
  };
  return api;
}
