// Faults of the end-to-end test: each changes or deletes one object of the small cluster while the
// controllers sleep, and says which findings that must make, and no other above information.

import type { Plan, Pods } from './cluster.ts';
import { bystander } from './cluster.ts';
import type { Client, Thing } from './controlplane.ts';

interface Target {
  kind?: string;
  name?: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
}

interface Port {
  name?: string;
  port: number;
  protocol?: string;
  appProtocol?: string;
}

interface Endpoint {
  addresses: string[];
  conditions: { ready?: boolean; serving?: boolean; terminating?: boolean };
  hostname?: string;
  nodeName?: string;
  zone?: string;
  hints?: { forZones?: { name: string }[]; forNodes?: { name: string }[] };
  targetRef?: Target;
}

export interface Slice extends Thing {
  addressType: string;
  endpoints: Endpoint[] | null;
  ports: Port[];
}

export interface Address {
  ip: string;
  nodeName?: string;
  targetRef?: Target;
}

interface Subset {
  addresses?: Address[];
  notReadyAddresses?: Address[];
  ports?: Port[];
}

export interface Endpoints extends Thing {
  subsets: Subset[];
}

interface Pod extends Thing {
  status: {
    podIP: string;
    podIPs: { ip: string }[];
    conditions: { type: string; status: string }[];
  };
}

interface Fault {
  readonly title: string;
  /** `namespace/service output code` of each finding, in order. */
  readonly finds: readonly string[];
  /** Path of the object. */
  readonly at: (client: Client) => Promise<string>;
  /** What happens to it; null: it is deleted. */
  readonly change: ((object: Thing, client: Client) => void | Promise<void>) | null;
}

export function first<T>(list: readonly T[] | null | undefined): T {
  const one = list?.[0];
  if (one === undefined) throw new Error('Nothing is there to be spoilt');
  return one;
}

/** The path of a slice of the Service that has endpoints. */
async function sliceOf(
  { call }: Client,
  namespace: string,
  service: string,
  type: string,
): Promise<string> {
  const base = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;
  const query = `?labelSelector=kubernetes.io/service-name=${service}`;
  const { items } = (await call('GET', base + query)) as { items: Slice[] };
  const filled = items.filter(
    ({ addressType, endpoints }) => addressType === type && (endpoints ?? []).length > 0,
  );
  return `${base}/${first(filled).metadata.name}`;
}

const split = (key: string): [string, string] => key.split('/') as [string, string];

/** `, ` is between codes, which are sorted. */
const codesIn = (found: string): readonly string[] => (found === '' ? [] : found.split(', '));

export function inSlice(
  service: string,
  title: string,
  code: string,
  change: ((slice: Slice) => void) | null,
  { output = 'endpointslices', type = 'IPv4' } = {},
): Fault {
  return {
    title: `slice of ${service}: ${title}`,
    finds: codesIn(code).map((each) => `${service} ${output} ${each}`),
    at: (client) => sliceOf(client, ...split(service), type),
    change: change === null ? null : (object) => change(object as Slice),
  };
}

export function inEndpoints(
  service: string,
  title: string,
  found: string,
  change: ((endpoints: Endpoints) => void) | null,
): Fault {
  const [namespace, name] = split(service);
  return {
    title: `Endpoints of ${service}: ${title}`,
    finds: [`${service} ${found}`],
    at: () => Promise.resolve(`/api/v1/namespaces/${namespace}/endpoints/${name}`),
    change: change === null ? null : (object) => change(object as Endpoints),
  };
}

const podPath = (key: string): string => {
  const [namespace, name] = split(key);
  return `/api/v1/namespaces/${namespace}/pods/${name}`;
};

export const gone = '00000000-0000-4000-8000-000000000000';
const mirroredOutput = { output: 'mirrored' };

export function toNotReady(subset: Subset): void {
  const address = first(subset.addresses);
  subset.addresses = subset.addresses?.slice(1) ?? [];
  subset.notReadyAddresses = [...(subset.notReadyAddresses ?? []), address];
}

const inSlices: readonly Fault[] = [
  inSlice('shop/web', 'deleted', 'slice-endpoint-missing', null),
  inSlice('shop/search', 'a ready pod not ready', 'slice-conditions-different', (slice) => {
    first(slice.endpoints).conditions = { ready: false, serving: false };
  }),
  inSlice('shop/near', 'an endpoint removed', 'slice-endpoint-missing', (slice) => {
    slice.endpoints = slice.endpoints?.slice(1) ?? [];
  }),
  inSlice(
    'shop/dual',
    'an IPv6 endpoint removed',
    'slice-endpoint-missing',
    (slice) => {
      slice.endpoints = slice.endpoints?.slice(1) ?? [];
    },
    { type: 'IPv6' },
  ),
  inSlice('shop/api', 'wrong port', 'slice-ports-different', (slice) => {
    first(slice.ports).port += 1;
  }),
  inSlice(
    'shop/db',
    'stale address',
    'slice-endpoint-missing, slice-endpoint-unexpected',
    (slice) => {
      first(slice.endpoints).addresses = ['10.244.9.9'];
    },
  ),
  inSlice('shop/web', 'wrong zone', 'slice-endpoint-different', (slice) => {
    first(slice.endpoints).zone = 'zone-z';
  }),
  inSlice('shop/same-zone', 'wrong zone and hint', 'slice-endpoint-different', (slice) => {
    const endpoint = first(slice.endpoints);
    endpoint.zone = 'zone-z';
    endpoint.hints = { forZones: [{ name: 'zone-z' }] };
  }),
  inSlice('platform/dns', 'pod of an earlier life', 'slice-endpoint-different', (slice) => {
    first(slice.endpoints).targetRef = { ...first(slice.endpoints).targetRef, uid: gone };
  }),
  inSlice('shop/same-node', 'hints removed', 'slice-hints-different', (slice) => {
    for (const endpoint of slice.endpoints ?? []) delete endpoint.hints;
  }),
  inSlice(
    'shop/six',
    'label removed',
    'slice-labels-different',
    ({ metadata }) => {
      delete metadata.labels?.team;
    },
    { type: 'IPv6' },
  ),
  inSlice('platform/grpc', 'owner removed', 'slice-owner-different', ({ metadata }) => {
    delete metadata.ownerReferences;
  }),
  inSlice(
    'platform/legacy',
    'address removed',
    'mirror-endpoint-missing',
    (slice) => {
      slice.endpoints = slice.endpoints?.slice(1) ?? [];
    },
    mirroredOutput,
  ),
  inSlice(
    'platform/legacy-ports',
    'wrong port',
    'mirror-ports-different',
    (slice) => {
      first(slice.ports).port += 1;
    },
    mirroredOutput,
  ),
];

const inEndpointsObjects: readonly Fault[] = [
  inEndpoints('shop/web', 'address removed', 'endpoints endpoints-address-missing', (endpoints) => {
    const subset = first(endpoints.subsets);
    subset.addresses = subset.addresses?.slice(1) ?? [];
  }),
  inEndpoints(
    'shop/mixed',
    'a ready pod not ready',
    'endpoints endpoints-readiness-different',
    ({ subsets }) => toNotReady(first(subsets)),
  ),
  inEndpoints(
    'platform/nodeport',
    'label removed',
    'endpoints endpoints-labels-different',
    ({ metadata }) => {
      delete metadata.labels?.team;
    },
  ),
  inEndpoints('platform/balanced', 'deleted', 'endpoints endpoints-missing', null),
  inEndpoints(
    'platform/legacy-dual',
    'no longer ready, and not mirrored',
    'mirrored mirror-conditions-different',
    ({ subsets }) => toNotReady(first(subsets)),
  ),
];

const inPods: readonly Fault[] = [
  {
    title: 'pod of shop/auto: no longer ready, and no client wrote it',
    finds: [
      'shop/auto endpoints endpoints-readiness-different',
      'shop/auto endpointslices slice-conditions-different',
    ],
    at: () => Promise.resolve(`${podPath('shop/auto-3')}/status`),
    change: (object) => {
      for (const condition of (object as Pod).status.conditions) {
        if (condition.type.endsWith('Ready')) condition.status = 'False';
      }
    },
  },
  {
    title: 'pods of shop/search and of no Service: one address',
    finds: ['shop/search input address-shared'],
    at: () => Promise.resolve(`${podPath(`${bystander.namespace}/${bystander.name}`)}/status`),
    change: async (object, { call }) => {
      const other = (await call('GET', podPath('shop/search-5'))) as Pod;
      const { status } = object as Pod;
      status.podIP = other.status.podIP;
      status.podIPs = other.status.podIPs;
    },
  },
];

export const faults: readonly Fault[] = [...inSlices, ...inEndpointsObjects, ...inPods];

/** What the server gives an object when it is created, and does not take from others. */
const given = ['uid', 'resourceVersion', 'creationTimestamp', 'generation', 'managedFields'];

function bare(object: Thing): Thing {
  const entries = Object.entries(object.metadata).filter(([field]) => !given.includes(field));
  return { ...object, metadata: Object.fromEntries(entries) as Thing['metadata'] };
}

/** Lets a fault happen; returns what undoes it. */
export async function inject(client: Client, fault: Fault): Promise<() => Promise<unknown>> {
  const path = await fault.at(client);
  const before = (await client.call('GET', path)) as Thing;
  if (fault.change === null) {
    await client.call('DELETE', path);
    const above = path.slice(0, path.lastIndexOf('/'));
    return () => client.call('POST', above, bare(before));
  }
  const after = structuredClone(before);
  await fault.change(after, client);
  await client.call('PUT', path, after);
  // Without the version that was read, so that it is written over whatever is there.
  delete before.metadata.resourceVersion;
  return () => client.call('PUT', path, before);
}

// How a fault of the live test is made: each has a Service of its own, named after its class, whose
// objects are spoilt by hand while the controllers sleep. What the classes are, injected.ts says.

export type Undo = () => Promise<unknown>;

export interface Injected {
  readonly namespace: string;
  /** The Service, named after the class. */
  readonly plan: Plan;
  /** `output code` of each finding, in order. */
  readonly finds: readonly string[];
  readonly spoil: (client: Client) => Promise<Undo>;
}

export const namespace = 'faults';

export const http = [{ name: 'http', port: 80, targetPort: 8080 }];
export const two = [...http, { name: 'metrics', port: 9100, targetPort: 9100 }];

/** Options of a Service that is not plain: four pods, one of them not ready. */
export interface Shape {
  readonly spec?: object;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly pods?: Partial<Pods> | null;
  readonly endpoints?: object;
  /** Of the slice that is spoilt. */
  readonly type?: string;
  readonly output?: string;
}

export function planOf(name: string, shape: Shape): Plan {
  const { spec = {}, annotations = {}, pods = {}, endpoints } = shape;
  return {
    name,
    annotations,
    spec: { ports: http, ...spec },
    ...(pods === null || endpoints !== undefined
      ? {}
      : { pods: { count: 4, states: ['ready', 'ready', 'unready'], ...pods } }),
    ...(endpoints === undefined ? {} : { endpoints }),
  };
}

function of(name: string, finds: readonly string[], fault: Fault, shape: Shape): Injected {
  return {
    namespace,
    plan: planOf(name, shape),
    finds,
    spoil: (client) => inject(client, fault),
  };
}

type Spoil<T> = ((object: T) => void) | null;

/** A slice is spoilt; `found` is '' where nothing may be found. */
export function slice(
  name: string,
  found: string,
  change: Spoil<Slice>,
  shape: Shape = {},
): Injected {
  const { type = 'IPv4', output = 'endpointslices' } = shape;
  const fault = inSlice(`${namespace}/${name}`, name, '', change, { output, type });
  const finds = codesIn(found).map((code) => `${output} ${code}`);
  return of(name, finds, fault, shape);
}

/** Endpoints are spoilt; `found` is what it makes of them, or with the output before it. */
export function endpoints(
  name: string,
  found: string,
  change: Spoil<Endpoints>,
  shape: Shape = {},
): Injected {
  const finds = codesIn(found).map((each) => (each.includes(' ') ? each : `endpoints ${each}`));
  const fault = inEndpoints(`${namespace}/${name}`, name, '', change);
  return of(name, finds, fault, shape);
}

export const headless = { clusterIP: 'None' };
export const dual: Shape = {
  spec: { ipFamilyPolicy: 'RequireDualStack' },
  pods: { families: [4, 6] },
};
export const allReady: Shape = { pods: { states: ['ready'] } };
export const terminating: Shape = { pods: { states: ['ready', 'terminating'] } };
const outside = [
  {
    addresses: [{ ip: '192.0.2.1' }, { ip: '192.0.2.2' }],
    notReadyAddresses: [{ ip: '192.0.2.3' }],
    ports: [{ port: 80 }],
  },
];
export const mirrored: Shape = {
  output: 'mirrored',
  spec: { ports: [{ port: 80 }] },
  endpoints: { metadata: { labels: { team: 'faults' } }, subsets: outside },
};
export const named: Shape = { spec: headless, pods: { states: ['ready'], named: true } };
export const steered = (trafficDistribution: string): Shape => ({
  spec: { trafficDistribution },
  pods: { states: ['ready'] },
});

export const readyIn = ({ endpoints }: Slice): Endpoint =>
  first(endpoints?.filter(({ conditions }) => conditions.ready === true));
export const notReadyIn = ({ endpoints }: Slice): Endpoint =>
  first(endpoints?.filter(({ conditions }) => conditions.ready !== true));

export const without = (slice: Slice): void => void slice.endpoints?.shift();

/** An endpoint that has all of another, but that its pod is gone. */
export const ghost = (endpoint: Endpoint): Endpoint => ({
  ...endpoint,
  addresses: ['10.99.0.1'],
  targetRef: { ...endpoint.targetRef, name: 'ghost', uid: gone },
});

export const address = (endpoints: Endpoints) => first(first(endpoints.subsets).addresses);

export const managedBy = 'endpointslice.kubernetes.io/managed-by';
export const serviceName = 'kubernetes.io/service-name';

export const slicesIn = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;

export async function sliceNamed({ call }: Client, service: string): Promise<Slice> {
  const query = `?labelSelector=${serviceName}=${service}`;
  const { items } = (await call('GET', slicesIn + query)) as { items: Slice[] };
  return first(items);
}

/** Beside the slice of a Service, another is created that differs from it. */
export function surplus(
  name: string,
  found: string,
  change: (slice: Slice) => void,
  shape: Shape = {},
): Injected {
  const { output = 'endpointslices' } = shape;
  return {
    namespace,
    plan: planOf(name, shape),
    finds: codesIn(found).map((code) => `${output} ${code}`),
    async spoil(client) {
      const { addressType, endpoints, ports, metadata } = await sliceNamed(client, name);
      const { labels, ownerReferences } = metadata;
      const copy = {
        metadata: { name: `${name}-surplus`, labels, ownerReferences } as Thing['metadata'],
        addressType,
        endpoints,
        ports,
      };
      change(copy);
      await client.call('POST', slicesIn, copy);
      return () => client.call('DELETE', `${slicesIn}/${name}-surplus`);
    },
  };
}
