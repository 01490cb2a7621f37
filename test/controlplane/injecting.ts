// How a fault of the live test is made: each has a Service of its own, named after its class, whose
// objects are spoilt by hand while the controllers sleep. What the classes are, injected.ts says.

import type { Client, Thing } from './client.ts';
import type { Plan, Pods } from './cluster.ts';
import type { Endpoint, Endpoints, Fault, Slice } from './faults.ts';
import { first, gone, inEndpoints, inject, inSlice } from './faults.ts';

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

const outputOf = (found: string): string => found.slice(0, found.indexOf(' '));
const codeOf = (found: string): string => found.slice(found.indexOf(' ') + 1);

function of(name: string, finds: readonly string[], fault: Fault, shape: Shape): Injected {
  return {
    namespace,
    plan: planOf(name, shape),
    finds,
    spoil: (client) => inject(client, fault),
  };
}

export type Spoil<T> = ((object: T) => void) | null;

/** A slice is spoilt; `found` is '' where nothing may be found. */
export function slice(
  name: string,
  found: string,
  change: Spoil<Slice>,
  shape: Shape = {},
): Injected {
  const { type = 'IPv4', output = 'endpointslices' } = shape;
  const fault = inSlice(`${namespace}/${name}`, name, '', change, { output, type });
  return of(name, found === '' ? [] : [`${output} ${found}`], fault, shape);
}

/** Endpoints are spoilt; `found` is what it makes of them, or with the output before it. */
export function endpoints(
  name: string,
  found: string,
  change: Spoil<Endpoints>,
  shape: Shape = {},
): Injected {
  const full = found.includes(' ') || found === '' ? found : `endpoints ${found}`;
  const fault = inEndpoints(`${namespace}/${name}`, name, full, change);
  return of(name, full === '' ? [] : [`${outputOf(full)} ${codeOf(full)}`], fault, shape);
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
    finds: found === '' ? [] : [`${output} ${found}`],
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
