// Small builders for tests: model objects with defaults that go well together. What a test does
// not say is a ready pod `web-1` at 10.0.0.1 on node-a in zone-a, selected by Service shop/web,
// whose one port http leads to 8080, with the Endpoints and the slice that the controllers write.

import type { AuditContext } from '../src/audit/service/cache.ts';
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
