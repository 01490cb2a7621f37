// What a user, a kubelet and a scheduler do to one namespace, as operations that a case lists. Each
// has the words with which the recorded line describes it, and the requests that it makes.

import type { Method, Thing } from '../controlplane/controlplane.ts';

/** A request below a namespace: `/pods/a`, `/services`, `/endpoints`, `/endpointslices/x`. */
export type Ask = (method: Method, path: string, body?: object) => Promise<unknown>;

export interface Operation {
  readonly words: string;
  /** A user edits what the controllers write. */
  readonly byHand?: boolean;
  readonly run: (ask: Ask) => Promise<unknown>;
}

export interface PodPort {
  readonly name: string;
  readonly containerPort: number;
  readonly protocol?: string;
}

export interface PodShape {
  readonly ips?: readonly string[];
  readonly node?: string;
  /** null: the pod has no Ready condition. */
  readonly ready?: 'True' | 'False' | 'Unknown' | null;
  readonly phase?: 'Running' | 'Pending' | 'Succeeded' | 'Failed' | 'Unknown';
  readonly labels?: Readonly<Record<string, string>>;
  readonly ports?: readonly PodPort[];
  /** Ports of a restartable init container. */
  readonly sidecar?: readonly PodPort[];
  readonly spec?: object;
  readonly finalizers?: readonly string[];
}

const now = (): string => `${new Date().toISOString().slice(0, 19)}Z`;

const conditionsOf = (ready: PodShape['ready'], at: string): object[] =>
  ready === null
    ? [{ type: 'PodScheduled', status: 'True', lastTransitionTime: at }]
    : [{ type: 'Ready', status: ready, lastTransitionTime: at }];

const addressesOf = (ips: readonly string[]): object =>
  ips.length === 0 ? {} : { podIP: ips[0], podIPs: ips.map((ip) => ({ ip })) };

const specOf = ({ node = 'node-a1', ports = [], sidecar, spec = {} }: PodShape): object => ({
  ...(node === '' ? {} : { nodeName: node }),
  containers: [{ name: 'main', image: 'example.com/main', ports }],
  ...(sidecar === undefined
    ? {}
    : {
        initContainers: [
          { name: 'side', image: 'example.com/side', restartPolicy: 'Always', ports: sidecar },
        ],
      }),
  terminationGracePeriodSeconds: 3600,
  ...spec,
});

/** Ready and running on node-a1 with the label app=web unless the shape says otherwise. */
export function createPod(name: string, shape: PodShape = {}): Operation {
  const { node = 'node-a1', phase = 'Running', ready = 'True', ips = [] } = shape;
  const { labels = { app: 'web' }, finalizers = [] } = shape;
  return {
    words: `create pod ${name} node=${node} phase=${phase} ready=${ready} ips=${ips.join('+')}`,
    async run(ask) {
      await ask('POST', '/pods', { metadata: { name, labels, finalizers }, spec: specOf(shape) });
      const conditions = conditionsOf(ready, now());
      const status = { phase, conditions, ...addressesOf(ips) };
      await ask('PATCH', `/pods/${name}/status`, { status });
    },
  };
}

/** The kubelet reports another state; what the report leaves out stays. */
export function reportPod(
  name: string,
  { ready, phase, ips }: Pick<PodShape, 'ips' | 'phase' | 'ready'>,
): Operation {
  const words = [
    `pod ${name}`,
    ...(phase === undefined ? [] : [`phase=${phase}`]),
    ...(ready === undefined ? [] : [`Ready=${ready}`]),
    ...(ips === undefined ? [] : [`podIPs=${ips.join('+')}`]),
  ];
  return {
    words: words.join(' '),
    run: (ask) =>
      ask('PATCH', `/pods/${name}/status`, {
        status: {
          ...(phase === undefined ? {} : { phase }),
          ...(ready === undefined ? {} : { conditions: conditionsOf(ready, now()) }),
          ...(ips === undefined ? {} : addressesOf(ips)),
        },
      }),
  };
}

/** Labels that are null are removed. */
export const labelPod = (name: string, labels: Record<string, string | null>): Operation => ({
  words: `pod ${name} label ${textOf(labels)}`,
  run: (ask) => ask('PATCH', `/pods/${name}`, { metadata: { labels } }),
});

export const annotatePod = (name: string): Operation => ({
  words: `pod ${name} annotation only`,
  run: (ask) => ask('PATCH', `/pods/${name}`, { metadata: { annotations: { at: now() } } }),
});

/** Terminating until its kubelet confirms. */
export const deletePod = (name: string): Operation => ({
  words: `delete pod ${name} gracefully`,
  run: (ask) => ask('DELETE', `/pods/${name}`),
});

export const removePod = (name: string): Operation => ({
  words: `pod ${name} is gone (force delete)`,
  run: (ask) => ask('DELETE', `/pods/${name}?gracePeriodSeconds=0`),
});

export const dropFinalizers = (name: string): Operation => ({
  words: `pod ${name} loses its finalizers`,
  run: (ask) => ask('PATCH', `/pods/${name}`, { metadata: { finalizers: null } }),
});

export interface ServiceShape {
  readonly spec?: Readonly<Record<string, unknown>>;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

const textOf = (value: unknown): string => JSON.stringify(value).replace(/"/g, '');

/** Selects app=web and forwards port 80 to 8080 unless the shape says otherwise. */
export function createService(name: string, shape: ServiceShape = {}): Operation {
  const { spec = {}, labels = {}, annotations = {} } = shape;
  const whole = { selector: { app: 'web' }, ports: [{ port: 80, targetPort: 8080 }], ...spec };
  return {
    words: `create service ${name} ${textOf({ ...whole, labels, annotations })}`,
    run: (ask) =>
      ask('POST', '/services', { metadata: { name, labels, annotations }, spec: whole }),
  };
}

/** A merge patch of the Service. */
export const changeService = (name: string, patch: object, words = textOf(patch)): Operation => ({
  words: `service ${name}: ${words}`,
  run: (ask) => ask('PATCH', `/services/${name}`, patch),
});

export const specOfService = (name: string, spec: object): Operation =>
  changeService(name, { spec });

export const deleteService = (name: string): Operation => ({
  words: `delete service ${name}`,
  run: (ask) => ask('DELETE', `/services/${name}`),
});

export interface SubsetShape {
  readonly ready?: readonly string[];
  readonly notReady?: readonly string[];
  readonly ports?: readonly object[];
}

const subsetOf = ({
  ready = [],
  notReady = [],
  ports = [{ port: 8080 }],
}: SubsetShape): object => ({
  addresses: ready.map((ip) => ({ ip })),
  notReadyAddresses: notReady.map((ip) => ({ ip })),
  ports,
});

/** Endpoints that a user writes for a Service without a selector. */
export const createEndpoints = (
  name: string,
  subsets: readonly SubsetShape[],
  metadata: object = {},
): Operation => ({
  words: `user creates Endpoints ${name} (${subsets.length} subsets)`,
  run: (ask) =>
    ask('POST', '/endpoints', { metadata: { name, ...metadata }, subsets: subsets.map(subsetOf) }),
});

export const changeEndpoints = (name: string, subsets: readonly SubsetShape[]): Operation => ({
  words: `user edits Endpoints ${name}: subsets replaced (${subsets.length})`,
  byHand: true,
  run: (ask) => ask('PATCH', `/endpoints/${name}`, { subsets: subsets.map(subsetOf) }),
});

export const labelEndpoints = (name: string, metadata: object): Operation => ({
  words: `user edits Endpoints ${name}: ${textOf(metadata)}`,
  byHand: true,
  run: (ask) => ask('PATCH', `/endpoints/${name}`, { metadata }),
});

export const deleteEndpoints = (name: string): Operation => ({
  words: `user deletes Endpoints ${name}`,
  byHand: true,
  run: (ask) => ask('DELETE', `/endpoints/${name}`),
});

/** A slice of another manager, or of a user. */
export const createSlice = (
  service: string,
  ips: readonly string[],
  manager: string,
): Operation => ({
  words: `user creates EndpointSlice ${service}-mine managed-by="${manager}"`,
  run: (ask) =>
    ask('POST', '/endpointslices', {
      metadata: {
        name: `${service}-mine`,
        labels: {
          'kubernetes.io/service-name': service,
          'endpointslice.kubernetes.io/managed-by': manager,
        },
      },
      addressType: 'IPv4',
      ports: [{ name: '', port: 8080, protocol: 'TCP' }],
      endpoints: ips.map((ip) => ({ addresses: [ip] })),
    }),
});

/** Edits the slice of a Service whose endpoints come first by address; null deletes it. */
export const editSlice = (
  service: string,
  words: string,
  edit: ((slice: Thing & { endpoints: Record<string, unknown>[] | null }) => object) | null,
): Operation => ({
  words: `user edits slice of ${service}: ${words}`,
  byHand: true,
  async run(ask) {
    const query = `?labelSelector=kubernetes.io/service-name=${service}`;
    const { items } = (await ask('GET', `/endpointslices${query}`)) as {
      items: (Thing & { endpoints: Record<string, unknown>[] | null })[];
    };
    const key = (slice: object): string => JSON.stringify('endpoints' in slice && slice.endpoints);
    const [slice] = items.sort((a, b) => key(a).localeCompare(key(b)));
    if (slice === undefined) throw new Error('no slice');
    const path = `/endpointslices/${slice.metadata.name}`;
    await (edit === null ? ask('DELETE', path) : ask('PATCH', path, edit(slice)));
  },
});
