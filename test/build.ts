// Small builders for tests: model objects with defaults that go well together. What a test does
// not say is a ready pod `web-1` at 10.0.0.1 on node-a in zone-a, selected by Service shop/web,
// whose one port http leads to 8080, with the Endpoints and the slice that the controllers write.

import { Readable } from 'node:stream';

import { catalogue, type Code, type Finding } from '../src/audit/finding/catalogue.ts';
import { createPendingFindings } from '../src/audit/pending/pending.ts';
import type { InputState } from '../src/audit/pending/progress.ts';
import type { ServiceAuditor } from '../src/audit/service/auditor.ts';
import { createServiceAuditor } from '../src/audit/service/auditor.ts';
import type { AuditContext, ServiceState } from '../src/audit/service/cache.ts';
import type { ServiceDifference } from '../src/audit/service/reconcile.ts';
import type { Auditor, AuditorEntry, AuditorOptions } from '../src/auditor/auditor.ts';
import { createAuditor } from '../src/auditor/auditor.ts';
import { createReport } from '../src/auditor/queries.ts';
import { project } from '../src/cluster/decode/json-objects.ts';
import type { Problem } from '../src/cluster/decode/problem.ts';
import { problemText } from '../src/cluster/decode/problem.ts';
import { readRecording, type RecordingEntry } from '../src/cluster/files/recording.ts';
import type { Store } from '../src/cluster/store/store.ts';
import { createStore } from '../src/cluster/store/store.ts';
import type {
  AnyObject,
  ContainerPort,
  Endpoint,
  EndpointAddress,
  Endpoints,
  EndpointSlice,
  EndpointSubset,
  Labels,
  Node,
  ObjectRef,
  OwnerReference,
  Pod,
  Port,
  Resource,
  Service,
  ServicePort,
  WatchEvent,
} from '../src/model/objects.ts';
import { label, manager, portMapKey, resources } from '../src/model/objects.ts';
import { runToEnd } from '../src/model/run-to-end.ts';
import { wholeCluster } from '../src/model/scope.ts';
import { newestRelease } from '../src/shadow/release.ts';

interface Named {
  readonly namespace?: string;
  readonly name?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly labels?: Labels;
  readonly created?: number | null;
  readonly deleting?: boolean;
  readonly at?: number;
}

function meta({ namespace = 'shop', name = 'web', ...more }: Named) {
  const key = namespace === '' ? name : `${namespace}/${name}`;
  return {
    key,
    namespace,
    name,
    uid: more.uid ?? `uid-${name}`,
    resourceVersion: more.resourceVersion ?? '',
    labels: more.labels ?? {},
    created: more.created ?? null,
    deleting: more.deleting ?? false,
    at: more.at ?? 0,
  };
}

export type Of<T> = Named & Partial<Omit<T, keyof Named | 'key' | 'portMap'>>;

export function servicePort(more: Partial<ServicePort> = {}): ServicePort {
  return {
    name: 'http',
    protocol: 'TCP',
    port: 80,
    targetPort: 8080,
    appProtocol: null,
    nodePort: 0,
    ...more,
  };
}

export function service(more: Of<Service> = {}): Service {
  return {
    type: 'ClusterIP',
    clusterIP: '10.96.0.1',
    clusterIPs: ['10.96.0.1'],
    externalIPs: [],
    loadBalancerIPs: [],
    loadBalancerSourceRanges: [],
    internalTrafficPolicy: 'Cluster',
    externalTrafficPolicy: 'Cluster',
    affinitySeconds: null,
    healthCheckNodePort: 0,
    selector: { app: 'web' },
    publishNotReadyAddresses: false,
    ipFamilies: ['IPv4'],
    ports: [servicePort()],
    trafficDistribution: null,
    topologyAuto: false,
    suppress: '',
    ciliumAnnotations: {},
    ...more,
    ...meta(more),
  };
}

export function containerPort(name: string, port: number, sidecar = false): ContainerPort {
  return { name, protocol: 'TCP', port, sidecar };
}

/** One list by reference, as the door interns them. */
const noPorts: readonly ContainerPort[] = [];

export function pod(more: Of<Pod> = {}): Pod {
  const named = meta({ name: 'web-1', labels: { app: 'web' }, ...more });
  const { namespace, name, uid } = named;
  return {
    node: 'node-a',
    hostNetwork: false,
    hostname: '',
    subdomain: '',
    ports: noPorts,
    terminal: false,
    ready: true,
    turnedAt: 0,
    ips: ['10.0.0.1'],
    ipsSince: 0,
    ref: { kind: 'Pod', namespace, name, uid },
    ...more,
    ...named,
  };
}

export function node(more: Of<Node> = {}): Node {
  return {
    zone: 'zone-a',
    ready: true,
    controlPlane: false,
    cpuMillis: 4000,
    addresses: ['172.18.0.2'],
    externalIPs: [],
    podCIDRs: ['10.0.0.0/24'],
    kubeletMinor: null,
    ciliumNode: null,
    ...more,
    ...meta({ name: 'node-a', ...more, namespace: '' }),
  };
}

export function port(more: Partial<Port> = {}): Port {
  return { name: 'http', protocol: 'TCP', port: 8080, appProtocol: null, ...more };
}

export function target(name = 'web-1', more: Partial<ObjectRef> = {}): ObjectRef {
  return { kind: 'Pod', namespace: 'shop', name, uid: `uid-${name}`, ...more };
}

export function address(more: Partial<EndpointAddress> = {}): EndpointAddress {
  return {
    ip: '10.0.0.1',
    ready: true,
    ports: [port()],
    node: 'node-a',
    hostname: '',
    target: target(),
    ...more,
  };
}

/** A subset; ready addresses are put first, as the door does. */
export function subset(
  addresses: readonly EndpointAddress[] = [address()],
  ports: readonly Port[] = [port()],
): EndpointSubset {
  const all = addresses.map((one) => ({ ...one, ports }));
  const ready = all.filter((one) => one.ready);
  const others = all.filter((one) => !one.ready);
  return { ports, addresses: [...ready, ...others], readyCount: ready.length };
}

export function endpoints(more: Of<Endpoints> = {}): Endpoints {
  return {
    annotations: {},
    subsets: [subset()],
    bytes: null,
    ...more,
    ...meta({ labels: { [label.endpointsManagedBy]: manager.endpoints }, ...more }),
  };
}

export function endpoint(more: Partial<Endpoint> = {}): Endpoint {
  return {
    addresses: ['10.0.0.1'],
    ready: true,
    serving: true,
    terminating: false,
    hostname: null,
    node: 'node-a',
    zone: 'zone-a',
    target: target(),
    forZones: null,
    forNodes: null,
    ...more,
  };
}

export function owner(more: Partial<OwnerReference> = {}): OwnerReference {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    name: 'web',
    uid: 'uid-web',
    controller: true,
    ...more,
  };
}

export const sliceLabels: Labels = {
  [label.serviceName]: 'web',
  [label.sliceManagedBy]: manager.slices,
};

export function slice(more: Of<EndpointSlice> = {}): EndpointSlice {
  const ports = more.ports ?? [port()];
  return {
    generation: 1,
    annotations: {},
    owners: [owner()],
    addressType: 'IPv4',
    endpoints: [endpoint()],
    bytes: null,
    ...more,
    ...meta({ name: 'web-abcde', labels: sliceLabels, ...more }),
    ports,
    portMap: portMapKey(ports),
  };
}

/** A slice as the mirroring controller makes it of Endpoints shop/web. */
export function mirror(more: Of<EndpointSlice> = {}): EndpointSlice {
  return slice({
    name: 'web-mirror',
    labels: { [label.serviceName]: 'web', [label.sliceManagedBy]: manager.mirroring },
    owners: [owner({ kind: 'Endpoints' })],
    endpoints: [endpoint({ serving: null, terminating: null, zone: null })],
    ...more,
  });
}

/** A slice that another client writes for Service shop/web. */
export function foreign(more: Of<EndpointSlice> = {}): EndpointSlice {
  return slice({
    name: 'web-foreign',
    labels: { [label.serviceName]: 'web', [label.sliceManagedBy]: 'example.com/controller' },
    owners: [],
    ...more,
  });
}

/** The resource of a built object, by what only such objects have. */
export function resourceOf(object: AnyObject): Resource {
  if ('subsets' in object) return 'endpoints';
  if ('addressType' in object) return 'endpointslices';
  if ('selector' in object) return 'services';
  return 'cpuMillis' in object ? 'nodes' : 'pods';
}

export function event(type: WatchEvent['type'], object: AnyObject, at = 0): WatchEvent {
  return { resource: resourceOf(object), type, object, at };
}

/** A store that holds these objects; every resource is known unless others are named. */
export function storeOf(
  objects: readonly AnyObject[],
  known: readonly Resource[] = resources,
): Store {
  const store = createStore(new Set(known));
  for (const object of objects) store.apply(event('added', object));
  return store;
}

/** What judging needs around a store. */
export function contextOf(store: Store, more: Partial<AuditContext> = {}): AuditContext {
  return {
    listers: store.listers,
    release: newestRelease,
    maxEndpointsPerSlice: 100,
    ...more,
  };
}

/** `count` made by their index, from 0. */
export function times<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => make(index));
}

// What the tests of the loop share: entries as the doors make them, and an auditor that collects
// what opens. The Service selects pods that are not there, so both of its outputs are missing.

export const rawService = {
  metadata: { name: 'web', namespace: 'shop', uid: 'web', resourceVersion: '1' },
  spec: { clusterIP: '10.96.0.9', ipFamilies: ['IPv4'], selector: { app: 'web' }, ports: [] },
};

function projected(resource: Resource, raw: object, at: number): AnyObject {
  const projection = project(resource, raw, at);
  if (projection.problem !== undefined) throw new Error(projection.problem.message);
  return projection.object;
}

export const added = (resource: Resource, raw: object, at: number): RecordingEntry => ({
  kind: 'event',
  event: { resource, type: 'added', object: projected(resource, raw, at), at },
});

export const header = (at: number, kubernetes: string | null = 'v1.33.1'): RecordingEntry => ({
  kind: 'header',
  at,
  kubernetes,
  resources,
});

export const synced = (at: number, without: readonly Resource[] = []): RecordingEntry[] =>
  resources
    .filter((resource) => !without.includes(resource))
    .map((resource) => ({ kind: 'synced', at, resource }));

export const clock = (at: number): RecordingEntry => ({ kind: 'clock', at });

export const end = (at: number): RecordingEntry => ({
  kind: 'end',
  at,
  complete: true,
  skipped: new Map(),
});

export function auditorOf(
  settle: number,
  more: Partial<AuditorOptions> = {},
): { auditor: Auditor; opened: Finding[] } {
  const opened: Finding[] = [];
  const auditor = createAuditor({
    ...auditorDefaults,
    settle,
    onOpen: (finding) => opened.push(finding),
    ...more,
  });
  return { auditor, opened };
}

export const report = (auditor: Auditor, namespace: string | null = null) =>
  createReport(auditor, { kind: 'replay', sources: ['test'], namespace, problems: [] });

export async function* stream(entries: readonly RecordingEntry[]): AsyncGenerator<RecordingEntry> {
  for (const entry of entries) yield await Promise.resolve(entry);
}

/** Changes of the state of watches, of all resources unless some are named. */
export const watches = (
  at: number,
  state: InputState,
  of: readonly Resource[] = resources,
): AuditorEntry[] => of.map((resource) => ({ kind: 'watch', at, resource, state }));

/** All up to a version is known, of all resources unless some are named. */
export const progress = (
  at: number,
  resourceVersion: string,
  of: readonly Resource[] = resources,
): AuditorEntry[] => of.map((resource) => ({ kind: 'progress', at, resource, resourceVersion }));

/** A live cluster with one Service whose outputs are missing, audited since 101. */
export const lively = (without: readonly Resource[] = []): AuditorEntry[] => {
  const others = resources.filter((resource) => !without.includes(resource));
  return [
    header(100),
    ...watches(100, 'listing', others),
    ...watches(100, 'off', without),
    added('services', rawService, 100),
    ...progress(101, '50', others),
    ...synced(101, without),
    ...watches(101, 'synced', others),
  ];
};

/** Everything that waits is read, as of a version, and equals the cache. */
export function readAgain(auditor: Auditor, at: number, version: string): void {
  auditor.advance(at);
  const listed = <T>(objects: Iterable<T>) => ({ objects: [...objects], version });
  const { listers } = auditor.store;
  const next = () => auditor.confirmer.next(auditor.findings.waiting(), at);
  for (let keys = next(); keys.length > 0; keys = next()) {
    for (const key of keys) {
      const [namespace = '', name = ''] = key.split('/');
      const isOwn = (object: { readonly namespace: string; readonly name: string }): boolean =>
        object.namespace === namespace && object.name === name;
      const nodes = listed(listers.nodes.values());
      const services = listed([...listers.services.values()].filter(isOwn));
      const endpoints = listed([...listers.endpoints.values()].filter(isOwn));
      const rest = { endpointslices: listed([]), pods: listed([]) };
      const read = { services, endpoints, ...rest, version };
      auditor.confirmer.answer(key, key === '/' ? { nodes, version } : read);
    }
  }
}

// What tests do with problems that they do not expect.

/** Fails the test that reports a problem which it does not expect. */
function throwProblem(problem: Problem): never {
  throw new Error(`unexpected problem: ${problemText(problem)}`);
}

// The options of an auditor in a test: a recording of the whole cluster, problems are thrown.

const ignore = (): void => undefined;

export const auditorDefaults: AuditorOptions = {
  settle: 30,
  release: null,
  maxEndpointsPerSlice: 100,
  scope: wholeCluster,
  live: false,
  onOpen: ignore,
  onResolve: ignore,
  onJourney: ignore,
  onProblem: throwProblem,
};

// Evaluates a Service of a store as an auditor does at its start, for tests of single comparers.

interface Evaluated {
  readonly context: AuditContext;
  readonly serviceAuditor: ServiceAuditor;
  readonly record: ServiceState;
  /** All differences of this Service, in the order of its units. */
  readonly items: readonly ServiceDifference[];
}

/** Everything about the Service of this name in namespace shop. */
export function auditService(
  objects: readonly AnyObject[],
  more: Partial<AuditContext> = {},
  known: readonly Resource[] = resources,
  name = 'web',
): Evaluated {
  const context = contextOf(storeOf(objects, known), more);
  const serviceAuditor = createServiceAuditor({
    context,
    settle: createPendingFindings({ window: 0, keep: 100 }),
  });
  runToEnd(serviceAuditor.begin(0));
  const audited = serviceAuditor.audited.get(`shop/${name}`);
  if (audited === undefined) throw new Error(`Nothing is known of ${name}`);
  const items = [...audited.items.values()].flat();
  return { context, serviceAuditor, record: audited.record, items };
}

/** A difference in a few words: code, severity as it is, and its cause if it has one. */
export function itemText({ difference, severity, cause }: ServiceDifference): string {
  return [difference.code, severity, cause].filter((part) => part !== null).join(' ');
}

/** The differences at one output, in a few words. */
export function textsOf(of: Evaluated, output: ServiceDifference['output']): string[] {
  return of.items.filter((item) => item.output === output).map(itemText);
}

/** The bytes in chunks of these lengths, over and over. */
export async function* chunks(bytes: Uint8Array, lengths: readonly number[] = [1000]) {
  await Promise.resolve();
  for (let start = 0, index = 0; start < bytes.length; index++) {
    const length = Math.max(lengths[index % lengths.length] ?? 1, 1);
    yield bytes.subarray(start, start + length);
    start += length;
  }
}

/** The items of all batches. */
export async function all<T>(batches: AsyncIterable<T[]>): Promise<T[]> {
  const result: T[] = [];
  for await (const batch of batches) result.push(...batch);
  return result;
}

/** An open finding about shop/web without differences, as the catalogue describes its code. */
export function plainFinding(code: Code, more: Partial<Finding> = {}): Finding {
  const { output, severity, difference } = catalogue[code];
  return {
    code,
    severity,
    difference,
    output,
    namespace: 'shop',
    service: 'web',
    node: null,
    object: 'Endpoints shop/web',
    field: '',
    expected: null,
    actual: null,
    differences: [],
    cause: null,
    causeProven: false,
    since: 10,
    openedAt: 40,
    resolvedAt: null,
    suppressed: null,
    ...more,
  };
}

/** What a recording with these lines after its header has, and the messages of its problems. */
export async function readLines(...lines: readonly object[]) {
  const first = { kind: 'header', format: 1, at: 1, kubernetes: null, resources: ['pods'] };
  const text = [first, ...lines].map((it) => `${JSON.stringify(it)}\n`).join('');
  const source = { name: 'recording', bytes: Readable.from([Buffer.from(text)]) };
  const problems: string[] = [];
  const entries: RecordingEntry[] = [];
  const reading = readRecording(source, ({ message }) => problems.push(message));
  for await (const entry of reading) entries.push(entry);
  return { problems, entries: entries.slice(1, -1) };
}
