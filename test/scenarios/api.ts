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

interface Metadata {
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

interface ContainerPort {
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

interface Address {
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

interface ObjectsOf {
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
  readonly objects: Map<string, ApiObject>;
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
  const before = state.objects.get(place) as ObjectsOf[R] | undefined;
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
  state.objects.set(place, after);
  if (resource === 'services') state.serviceKeys.add(key);
  const type = before === undefined ? 'added' : 'modified';
  state.events.push({ resource, type, key, raw: after });
  return after;
}

function remove(state: State, resource: Resource, key: Key): boolean {
  const place = `${resource} ${key}`;
  const before = state.objects.get(place);
  if (before === undefined) return false;
  state.objects.delete(place);
  const metadata = { ...before.metadata, resourceVersion: String(++state.version) };
  state.events.push({ resource, type: 'deleted', key, raw: { ...before, metadata } });
  return true;
}

export function createApi(): Api {
  const state: State = {
    objects: new Map(),
    lives: new Map(),
    serviceKeys: new Set(),
    events: [],
    version: 100,
  };
  const { objects, lives, serviceKeys } = state;
  const api: Api = {
    now: 0,
    get: <R extends Resource>(resource: R, key: Key) =>
      objects.get(`${resource} ${key}`) as ObjectsOf[R] | undefined,
    list: <R extends Resource>(resource: R) =>
      [...objects]
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

// What the three controllers write, in the simplest words: a second opinion beside src/shadow, by
// which scenarios state correct output in one line (`controllers sync`). It reads and writes raw
// objects, shares no code with what is under test, and was compared with what real controllers
// of 1.30, 1.33 and 1.36 wrote.
//
// Every sync writes from nothing: slices are packed again in the order of the pods' names, under
// descriptive names (`web-ipv4`, `web-ipv4-2`, `db-mirror-ipv4`). Left out: hints by
// topology-mode Auto (none are written), trigger times, and truncation of more than one subset.

const headlessLabel = 'service.kubernetes.io/headless';
const serviceNameLabel = 'kubernetes.io/service-name';
const sliceManagedBy = 'endpointslice.kubernetes.io/managed-by';
const endpointsManagedBy = 'endpoints.kubernetes.io/managed-by';
const zoneLabel = 'topology.kubernetes.io/zone';
const overCapacity = 'endpoints.kubernetes.io/over-capacity';
const triggerTime = 'endpoints.kubernetes.io/last-change-trigger-time';
const lastApplied = 'kubectl.kubernetes.io/last-applied-configuration';
const leader = 'control-plane.alpha.kubernetes.io/leader';
const sliceController = 'endpointslice-controller.k8s.io';
const mirroringController = 'endpointslicemirroring-controller.k8s.io';

type Family = 'IPv4' | 'IPv6';

const familyOf = (ip: string): Family => (ip.includes(':') ? 'IPv6' : 'IPv4');

/** Splits a list into parts of at most this many. */
function chunks<T>(list: readonly T[], size: number): T[][] {
  const parts: T[][] = [];
  for (let start = 0; start < list.length; start += size) {
    parts.push(list.slice(start, start + size));
  }
  return parts;
}

function groupBy<T>(list: readonly T[], key: (item: T) => string): T[][] {
  const groups = new Map<string, T[]>();
  for (const item of list) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return [...groups.values()];
}

// --- pods ---

const isPodReady = ({ status }: PodObject): boolean =>
  status.conditions?.find(({ type }) => type === 'Ready')?.status === 'True';

const ipsOf = ({ status }: PodObject): string[] => (status.podIPs ?? []).map(({ ip }) => ip);

const byNumber = new Intl.Collator('en', { numeric: true });

/** The pods that a Service selects and that are not over, in the order of their names. */
function selectedPods(api: Api, service: ServiceObject): PodObject[] {
  const { selector } = service.spec;
  return api
    .list('pods')
    .filter(({ metadata, status }) => {
      if (metadata.namespace !== service.metadata.namespace) return false;
      if (status.phase === 'Succeeded' || status.phase === 'Failed') return false;
      const { labels } = metadata;
      return Object.entries(selector ?? {}).every(([name, value]) => labels?.[name] === value);
    })
    .sort((a, b) => byNumber.compare(a.metadata.name, b.metadata.name));
}

const targetOf = ({ metadata }: PodObject): Target => ({
  kind: 'Pod',
  namespace: metadata.namespace ?? '',
  name: metadata.name,
  uid: metadata.uid,
});

/** The ports of the Service on this pod; named ones that it lacks are left out. */
function portsOn(service: ServiceObject, pod: PodObject, sidecars: boolean): PortEntry[] {
  const containers = pod.spec.containers.flatMap(({ ports }) => ports ?? []);
  const others = (pod.spec.initContainers ?? [])
    .filter(({ restartPolicy }) => sidecars && restartPolicy === 'Always')
    .flatMap(({ ports }) => ports ?? []);
  const found: PortEntry[] = [];
  for (const { name = '', port, targetPort, protocol, appProtocol } of service.spec.ports ?? []) {
    const target = targetPort === 0 ? port : targetPort;
    const number =
      typeof target === 'number'
        ? target
        : [...containers, ...others].find((one) => one.name === target && one.protocol === protocol)
            ?.containerPort;
    if (number === undefined) continue;
    const entry: PortEntry = { name, port: number, protocol };
    if (appProtocol !== undefined) entry.appProtocol = appProtocol;
    found.push(entry);
  }
  return found;
}

function hostnameOf(service: ServiceObject, { spec }: PodObject): { hostname?: string } {
  const { hostname = '', subdomain } = spec;
  return hostname !== '' && subdomain === service.metadata.name ? { hostname } : {};
}

const isSelecting = ({ spec }: ServiceObject): boolean =>
  spec.type !== 'ExternalName' && Object.keys(spec.selector ?? {}).length > 0;

const hasClusterIP = ({ spec }: ServiceObject): boolean =>
  spec.clusterIP !== undefined && spec.clusterIP !== '' && spec.clusterIP !== 'None';

// --- the endpoints controller ---

interface Offer {
  readonly address: Address;
  readonly isReady: boolean;
  readonly port: PortEntry | null;
}

/** Each address under each of its ports. */
function offersOf(api: Api, service: ServiceObject, minor: number): Offer[] {
  const { spec } = service;
  const publishes = spec.publishNotReadyAddresses === true;
  const offers: Offer[] = [];
  for (const pod of selectedPods(api, service)) {
    if (pod.metadata.deletionTimestamp !== undefined && !publishes) continue;
    const ips = ipsOf(pod);
    const family =
      spec.ipFamilies?.[0] ??
      familyOf(hasClusterIP(service) ? (spec.clusterIP ?? '') : (ips[0] ?? ''));
    const ip = ips.find((one) => familyOf(one) === family);
    if (ip === undefined) continue;
    const address: Address = {
      ip,
      nodeName: pod.spec.nodeName ?? '',
      ...hostnameOf(service, pod),
      targetRef: targetOf(pod),
    };
    const isReady = publishes || isPodReady(pod);
    const ports = portsOn(service, pod, minor >= 32);
    for (const port of ports) offers.push({ address, isReady, port });
    const mayHaveNone = (spec.ports ?? []).length === 0 && spec.clusterIP === 'None';
    if (mayHaveNone) offers.push({ address, isReady, port: null });
  }
  return offers;
}

/** Ports that have the same addresses share a subset. */
function subsetsOf(offers: readonly Offer[]): Subset[] {
  const perPort = groupBy(offers, ({ port }) => JSON.stringify(port));
  const shared = groupBy(perPort, (list) =>
    JSON.stringify(
      list.map(({ address, isReady }) => [address.ip, address.targetRef?.uid, isReady]),
    ),
  );
  return shared.map((lists) => {
    const subset: Subset = {};
    for (const { address, isReady } of lists[0] ?? []) {
      if (isReady) (subset.addresses ??= []).push(address);
      else (subset.notReadyAddresses ??= []).push(address);
    }
    const ports = lists.flatMap((list) => list[0]?.port ?? []);
    if (ports.length > 0) {
      subset.ports = ports.map(({ name = '', ...port }) =>
        name === '' ? port : { name, ...port },
      );
    }
    return subset;
  });
}

/** Cuts one subset to 1,000 addresses, ready ones first; says whether it had to. */
function truncate(subsets: Subset[]): boolean {
  const sizeOf = ({ addresses = [], notReadyAddresses = [] }: Subset): number =>
    addresses.length + notReadyAddresses.length;
  const total = subsets.reduce((sum, subset) => sum + sizeOf(subset), 0);
  const [subset] = subsets;
  if (total <= 1000 || subset === undefined) return false;
  if (subsets.length > 1) throw new Error('Cannot truncate several subsets: write them out');
  subset.addresses = (subset.addresses ?? []).slice(0, 1000);
  subset.notReadyAddresses = (subset.notReadyAddresses ?? []).slice(
    0,
    1000 - subset.addresses.length,
  );
  return true;
}

export function syncEndpoints(api: Api, namespace: string, name: string, minor: number): void {
  const key = `${namespace}/${name}`;
  const service = api.get('services', key);
  if (service === undefined) {
    api.remove('endpoints', key);
    return;
  }
  if (!isSelecting(service)) return;
  const subsets = subsetsOf(offersOf(api, service, minor));
  const labels: StringMap = { ...service.metadata.labels };
  Reflect.deleteProperty(labels, headlessLabel);
  if (!hasClusterIP(service)) labels[headlessLabel] = '';
  if (minor >= 33) labels[endpointsManagedBy] = 'endpoint-controller';
  const annotations: StringMap = { ...api.get('endpoints', key)?.metadata.annotations };
  Reflect.deleteProperty(annotations, overCapacity);
  if (truncate(subsets)) annotations[overCapacity] = 'truncated';
  const isValid = subsets.every(({ addresses = [], notReadyAddresses = [] }) =>
    [...addresses, ...notReadyAddresses].every(({ nodeName }) => nodeName !== ''),
  );
  // The API server refuses an empty nodeName, and with it the whole object.
  if (!isValid) return;
  const draft: Draft<'endpoints'> = {
    apiVersion: 'v1',
    kind: 'Endpoints',
    metadata: { namespace, name, labels, ...(isEmpty(annotations) ? {} : { annotations }) },
    ...(subsets.length === 0 ? {} : { subsets }),
  };
  api.put('endpoints', draft);
}

const isEmpty = (map: StringMap): boolean => Object.keys(map).length === 0;

// --- the endpointslice controller ---

const distributions: readonly [since: number, value: string][] = [
  [31, 'PreferClose'],
  [34, 'PreferSameZone'],
  [34, 'PreferSameNode'],
];

/** The hints of a ready endpoint by spec.trafficDistribution. */
function addHints(service: ServiceObject, entry: EndpointEntry, minor: number): void {
  const { trafficDistribution: wanted } = service.spec;
  if (!distributions.some(([since, value]) => value === wanted && minor >= since)) return;
  if (entry.conditions.ready !== true) return;
  if (service.metadata.annotations?.['service.kubernetes.io/topology-mode'] === 'Auto') return;
  const noZone = minor < 33 ? '' : undefined;
  const zone = entry.zone ?? noZone;
  const hints: NonNullable<EndpointEntry['hints']> = {};
  if (zone !== undefined) hints.forZones = [{ name: zone }];
  if (wanted === 'PreferSameNode' && entry.nodeName !== undefined) {
    hints.forNodes = [{ name: entry.nodeName }];
  }
  if (hints.forZones !== undefined || hints.forNodes !== undefined) entry.hints = hints;
}

interface Placed {
  readonly entry: EndpointEntry;
  readonly ports: PortEntry[];
}

/** The endpoints of one family, each with its ports. */
function placedEndpoints(
  api: Api,
  service: ServiceObject,
  family: Family,
  minor: number,
): Placed[] {
  const publishes = service.spec.publishNotReadyAddresses === true;
  const placed: Placed[] = [];
  for (const pod of selectedPods(api, service)) {
    const addresses = ipsOf(pod).filter((ip) => familyOf(ip) === family);
    const { nodeName = '' } = pod.spec;
    const node = api.get('nodes', nodeName);
    if (addresses.length === 0 || (node === undefined && !publishes)) continue;
    const serving = isPodReady(pod);
    const terminating = pod.metadata.deletionTimestamp !== undefined;
    const ready = publishes || (serving && !terminating);
    const zone = node?.metadata.labels?.[zoneLabel] ?? '';
    const entry: EndpointEntry = {
      addresses,
      conditions: { ready, serving, terminating },
      ...hostnameOf(service, pod),
      ...(nodeName === '' ? {} : { nodeName }),
      ...(zone === '' ? {} : { zone }),
      targetRef: targetOf(pod),
    };
    addHints(service, entry, minor);
    placed.push({ entry, ports: portsOn(service, pod, minor >= 33) });
  }
  return placed;
}

function sliceLabels(service: ServiceObject): StringMap {
  const labels: StringMap = { ...service.metadata.labels };
  for (const name of [headlessLabel, serviceNameLabel, sliceManagedBy]) {
    Reflect.deleteProperty(labels, name);
  }
  if (!hasClusterIP(service)) labels[headlessLabel] = '';
  labels[serviceNameLabel] = service.metadata.name;
  labels[sliceManagedBy] = sliceController;
  return labels;
}

const isOwnedBy = ({ metadata }: SliceObject, uid: string): boolean =>
  (metadata.ownerReferences ?? []).some((owner) => owner.uid === uid);

/** Slices of one manager by their Service's name. */
function slicesOf(api: Api, namespace: string, name: string, manager: string): SliceObject[] {
  return api.list('endpointslices').filter(({ metadata }) => {
    const { labels } = metadata;
    const ours = labels?.[sliceManagedBy] === manager && labels[serviceNameLabel] === name;
    return ours && metadata.namespace === namespace;
  });
}

function familiesOf(service: ServiceObject): Family[] {
  const { ipFamilies, clusterIP } = service.spec;
  if (ipFamilies !== undefined) return ipFamilies as Family[];
  return hasClusterIP(service) ? [familyOf(clusterIP ?? '')] : ['IPv4', 'IPv6'];
}

export function syncSlices(api: Api, namespace: string, name: string, minor: number): void {
  const service = api.get('services', `${namespace}/${name}`);
  if (service === undefined || !isSelecting(service)) return;
  const { uid } = service.metadata;
  const owner = { apiVersion: 'v1', kind: 'Service', name, uid, controller: true };
  const drafts: Draft<'endpointslices'>[] = [];
  for (const family of familiesOf(service)) {
    const placed = placedEndpoints(api, service, family, minor);
    const full = groupBy(placed, ({ ports }) => JSON.stringify(ports)).flatMap((group) =>
      chunks(group, 100),
    );
    for (const [index, part] of (full.length === 0 ? [[]] : full).entries()) {
      const metadata = {
        namespace,
        name: `${name}-${family.toLowerCase()}${index === 0 ? '' : `-${index + 1}`}`,
        labels: sliceLabels(service),
        ownerReferences: [owner],
      };
      const ports = part[0]?.ports ?? [];
      drafts.push(
        sliceDraft(
          metadata,
          family,
          ports,
          part.map(({ entry }) => entry),
        ),
      );
    }
  }
  replaceSlices(api, slicesOf(api, namespace, name, sliceController), drafts, uid);
}

function sliceDraft(
  metadata: Draft<'endpointslices'>['metadata'],
  family: Family,
  ports: PortEntry[],
  endpoints: EndpointEntry[],
): Draft<'endpointslices'> {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata,
    addressType: family,
    ports: ports.length === 0 ? null : ports,
    endpoints: endpoints.length === 0 ? null : endpoints,
  };
}

/** Writes the drafts and deletes what they do not replace; a stranger's name is not taken. */
function replaceSlices(
  api: Api,
  existing: readonly SliceObject[],
  drafts: readonly Draft<'endpointslices'>[],
  uid: string,
): void {
  const kept = new Set<string>();
  for (const draft of drafts) {
    const { namespace } = draft.metadata;
    let { name } = draft.metadata;
    for (let life = 2; ; life++) {
      const there = api.get('endpointslices', keyOf({ namespace, name }));
      const isOurs = existing.some(({ metadata }) => metadata.uid === there?.metadata.uid);
      if (there === undefined || (isOurs && isOwnedBy(there, uid))) break;
      name = `${draft.metadata.name}.${life}`;
    }
    const key = keyOf({ namespace, name });
    const annotations = api.get('endpointslices', key)?.metadata.annotations;
    const metadata = { ...(annotations === undefined ? {} : { annotations }), ...draft.metadata };
    kept.add(api.put('endpointslices', { ...draft, metadata: { ...metadata, name } }).metadata.uid);
  }
  for (const { metadata } of existing) {
    if (!kept.has(metadata.uid)) api.remove('endpointslices', keyOf(metadata));
  }
}

// --- the endpointslicemirroring controller ---

/** Only the first 1,000 of a subset are mirrored: ready ones, then by their text. */
function mirroredEntries({ addresses = [], notReadyAddresses = [] }: Subset): EndpointEntry[] {
  const byText = (a: Address, b: Address): number => (a.ip < b.ip ? -1 : a.ip > b.ip ? 1 : 0);
  const all = [
    ...[...addresses].sort(byText).map((address) => ({ address, ready: true })),
    ...[...notReadyAddresses].sort(byText).map((address) => ({ address, ready: false })),
  ];
  return all.slice(0, 1000).map(({ address, ready }) => ({
    addresses: [address.ip],
    conditions: { ready },
    ...(address.hostname === undefined ? {} : { hostname: address.hostname }),
    ...(address.nodeName === undefined ? {} : { nodeName: address.nodeName }),
    ...(address.targetRef === undefined ? {} : { targetRef: address.targetRef }),
  }));
}

function mirrorDrafts({ metadata, subsets = [] }: EndpointsObject): Draft<'endpointslices'>[] {
  const { namespace = '', name, uid, labels, annotations } = metadata;
  const kept = Object.entries(annotations ?? {}).filter(
    ([key]) => key !== triggerTime && key !== lastApplied,
  );
  const groups = groupBy(
    subsets.flatMap((subset) =>
      mirroredEntries(subset).map((entry) => ({ entry, ports: subset.ports ?? [] })),
    ),
    ({ entry, ports }) => `${familyOf(entry.addresses[0] ?? '')} ${JSON.stringify(ports)}`,
  );
  return groups.map((group, index) => {
    const family = familyOf(group[0]?.entry.addresses[0] ?? '');
    const ports = (group[0]?.ports ?? []).map((port) => ({ name: '', ...port }));
    const meta = {
      namespace,
      name: `${name}-mirror${index === 0 ? '' : `-${index + 1}`}`,
      labels: { ...labels, [serviceNameLabel]: name, [sliceManagedBy]: mirroringController },
      ...(kept.length === 0 ? {} : { annotations: Object.fromEntries(kept) }),
      ownerReferences: [{ apiVersion: 'v1', kind: 'Endpoints', name, uid, controller: true }],
    };
    return sliceDraft(
      meta,
      family,
      ports,
      group.map(({ entry }) => entry),
    );
  });
}

export function syncMirror(api: Api, namespace: string, name: string): void {
  const key = `${namespace}/${name}`;
  const service = api.get('services', key);
  const endpoints = api.get('endpoints', key);
  const existing = slicesOf(api, namespace, name, mirroringController);
  const isMirrored =
    service !== undefined &&
    endpoints !== undefined &&
    Object.keys(service.spec.selector ?? {}).length === 0 &&
    endpoints.metadata.labels?.['endpointslice.kubernetes.io/skip-mirror'] !== 'true' &&
    endpoints.metadata.annotations?.[leader] === undefined;
  const drafts = isMirrored ? mirrorDrafts(endpoints) : [];
  for (const { metadata } of existing) {
    if (!drafts.some((draft) => draft.metadata.name === metadata.name)) {
      api.remove('endpointslices', keyOf(metadata));
    }
  }
  for (const draft of drafts) api.put('endpointslices', draft);
}

// --- the garbage collector ---

/** Deletes slices whose owners are all gone. */
export function collectGarbage(api: Api): void {
  const living = new Set(
    [...api.list('services'), ...api.list('endpoints')].map(({ metadata }) => metadata.uid),
  );
  for (const { metadata } of api.list('endpointslices')) {
    const owners = metadata.ownerReferences ?? [];
    if (owners.length > 0 && owners.every(({ uid }) => !living.has(uid))) {
      api.remove('endpointslices', keyOf(metadata));
    }
  }
}
