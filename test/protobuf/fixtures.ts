// What Go wrote (main.go): answers of an API server in JSON and the same in protobuf.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { readEnd, readTag } from '../../src/cluster/decode/protobuf/wire.ts';
import type { Resource } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';

export type Raw = Record<string, unknown>;

/** A page of a list, or a frame of a watch. */
export interface Answer {
  /** null: a Status. */
  readonly resource: Resource | null;
  readonly json: Raw;
  readonly protobuf: Buffer;
  /** The items of a page, as JSON; null for a frame. */
  readonly items: readonly Raw[] | null;
}

/** A message of an object, out of its envelopes, with the JSON of the same object. */
export interface Message {
  readonly resource: Resource;
  readonly json: Raw;
  readonly bytes: Buffer;
}

/** The fields of this number, which contain bytes. */
function parts(bytes: Buffer, number: number): Buffer[] {
  const found: Buffer[] = [];
  const cursor = { bytes, at: 0 };
  while (cursor.at < bytes.length) {
    const tag = readTag(cursor, bytes.length);
    const end = readEnd(cursor, bytes.length);
    if (tag >>> 3 === number) found.push(bytes.subarray(cursor.at, end));
    cursor.at = end;
  }
  return found;
}

function part(bytes: Buffer, number: number): Buffer {
  const [found] = parts(bytes, number);
  if (found === undefined) throw new Error(`Expected a field ${number}`);
  return found;
}

/** The length of the message of each item of a page. */
export function itemSizes({ protobuf }: Answer): number[] {
  return parts(part(protobuf.subarray(prefixLength), 2), 2).map(({ length }) => length);
}

const prefixLength = 4;

/** The objects of all frames with a change. */
export function messages(of: readonly Answer[]): Message[] {
  return of.flatMap(({ resource, json, protobuf, items }) => {
    if (resource === null || items !== null || json.type === 'BOOKMARK') return [];
    const event = protobuf.subarray(4);
    const object = part(part(event, 2), 1).subarray(prefixLength);
    return [{ resource, json: json.object as Raw, bytes: part(object, 2) }];
  });
}

const names = ['Node', 'Service', 'Pod', 'Endpoints', 'EndpointSlice'];

/** All answers in the order in which they were written. */
export function answers(): Answer[] {
  const bytes = gunzipSync(readFileSync(join(import.meta.dirname, 'objects.bin.gz')));
  const found: Answer[] = [];
  let at = 0;
  const next = (): Buffer => {
    const from = at + 4;
    at = from + bytes.readUInt32BE(at);
    return bytes.subarray(from, at);
  };
  while (at < bytes.length) {
    const json = JSON.parse(next().toString()) as Raw;
    const isFrame = json.type !== undefined;
    const of = (isFrame ? json.object : json) as Raw;
    const kind = String(of.kind);
    const index = names.findIndex((name) => kind === name || kind === `${name}List`);
    const items = isFrame ? null : ((json.items ?? []) as Raw[]);
    found.push({ resource: resources[index] ?? null, json, protobuf: next(), items });
  }
  return found;
}

// Objects with everything that they may have, so that leaving out one thing after the other shows
// every shape; and the odd ones that an API server accepts all the same.

const time = '2026-11-21T08:00:00Z';

const managedFields = [
  {
    manager: 'kube-controller-manager',
    operation: 'Update',
    apiVersion: 'v1',
    time,
    fieldsType: 'FieldsV1',
    fieldsV1: { 'f:metadata': { 'f:labels': { '.': {}, 'f:app': {} } }, 'k:{"ip":"10.0.0.1"}': {} },
    subresource: 'status',
  },
];

const metadata: Raw = {
  name: 'web-1',
  generateName: 'web-',
  namespace: 'shop',
  uid: '4f9a3f5e-7f0b-4a39-9d55-0a1c7d1b6a01',
  resourceVersion: '8041',
  generation: 3,
  creationTimestamp: time,
  deletionTimestamp: '2026-11-21T09:00:00Z',
  deletionGracePeriodSeconds: 30,
  labels: { app: 'web', 'app.kubernetes.io/name': 'web', empty: '', '1': 'a number' },
  annotations: {
    'endpoints.kubernetes.io/last-change-trigger-time': time,
    note: 'quotes " and \\ and\ttabs\nlines\u0001\u001f\b\f\r <&> ü \u2028 \u{1f600} \u007f',
  },
  ownerReferences: [
    { apiVersion: 'v1', kind: 'Service', name: 'web', uid: 'o-1', controller: true },
    { apiVersion: 'apps/v1', kind: 'X', name: 'x', uid: 'o-2', blockOwnerDeletion: false },
    { apiVersion: 'apps/v1', kind: 'Y', name: 'y', uid: '', controller: false },
  ],
  finalizers: ['foregroundDeletion', 'example.com/"odd"'],
  managedFields,
};

const condition = (type: string, status: string): Raw => ({
  type,
  status,
  lastProbeTime: null,
  lastTransitionTime: time,
  reason: 'Reason',
  message: 'message',
});

const container = (name: string, more: Raw): Raw => ({
  name,
  image: 'example/web:1',
  args: ['--a', '--b'],
  env: [{ name: 'A', value: 'b' }],
  resources: { limits: { memory: '256Mi' }, requests: { cpu: '100m' } },
  volumeMounts: [{ name: 'token', mountPath: '/token', readOnly: true }],
  readinessProbe: { httpGet: { path: '/', port: 'http' }, periodSeconds: 10 },
  ...more,
});

const pod: Raw = {
  metadata,
  spec: {
    volumes: [{ name: 'token', emptyDir: {} }],
    initContainers: [
      container('once', { ports: [{ name: 'never', containerPort: 1 }] }),
      container('mesh', {
        restartPolicy: 'Always',
        ports: [{ name: 'mesh', containerPort: 15001, protocol: 'TCP' }, { containerPort: 15002 }],
      }),
    ],
    containers: [
      container('app', {
        ports: [
          { name: 'http', containerPort: 8080, hostPort: 80, protocol: 'TCP', hostIP: '0.0.0.0' },
          { containerPort: 8081 },
          { name: 'dns', containerPort: 53, protocol: 'UDP' },
          { name: 'bare', containerPort: 65535 },
        ],
      }),
      container('metrics', { ports: [{ name: 'metrics', containerPort: 9090 }] }),
      container('quiet', {}),
    ],
    restartPolicy: 'Always',
    terminationGracePeriodSeconds: 30,
    nodeSelector: { disk: 'ssd' },
    nodeName: 'node-a',
    hostNetwork: true,
    hostname: 'web-1',
    subdomain: 'web',
    tolerations: [{ operator: 'Exists' }],
    priority: -5,
  },
  status: {
    observedGeneration: 3,
    phase: 'Running',
    conditions: [
      condition('Initialized', 'True'),
      condition('Ready', 'True'),
      condition('Ready', 'False'),
      condition('PodScheduled', 'True'),
    ],
    hostIP: '192.168.0.1',
    podIP: '10.0.0.1',
    podIPs: [{ ip: '10.0.0.1' }, { ip: 'fd00::1' }],
    startTime: time,
    containerStatuses: [{ name: 'app', ready: true, restartCount: 0, image: 'x', imageID: '' }],
    qosClass: 'Burstable',
  },
};

const service: Raw = {
  metadata: {
    ...metadata,
    annotations: {
      'service.kubernetes.io/topology-mode': 'Auto',
      'service.kubernetes.io/topology-aware-hints': 'auto',
    },
  },
  spec: {
    type: 'LoadBalancer',
    selector: { app: 'web', tier: '' },
    clusterIP: '10.96.0.10',
    clusterIPs: ['10.96.0.10', 'fd00:96::10'],
    externalIPs: ['198.51.100.7'],
    loadBalancerIP: '198.51.100.8',
    loadBalancerSourceRanges: ['198.51.100.0/24'],
    externalName: '',
    externalTrafficPolicy: 'Local',
    internalTrafficPolicy: 'Local',
    healthCheckNodePort: 31000,
    publishNotReadyAddresses: true,
    sessionAffinity: 'ClientIP',
    sessionAffinityConfig: { clientIP: { timeoutSeconds: 600 } },
    ipFamilies: ['IPv4', 'IPv6'],
    ipFamilyPolicy: 'RequireDualStack',
    allocateLoadBalancerNodePorts: false,
    loadBalancerClass: 'example.com/lb',
    trafficDistribution: 'PreferClose',
    ports: [
      { name: 'http', protocol: 'TCP', port: 80, targetPort: 'http', nodePort: 30080 },
      { name: 'grpc', port: 81, targetPort: 8081, appProtocol: 'kubernetes.io/h2c' },
      { name: 'zero', protocol: 'UDP', port: 82, targetPort: 0, appProtocol: '' },
      { name: 'none', protocol: 'SCTP', port: 83 },
      { name: 'text', protocol: 'TCP', port: 84, targetPort: '' },
    ],
  },
  status: {
    loadBalancer: {
      ingress: [
        { ip: '198.51.100.8', ipMode: 'Proxy' },
        { hostname: 'lb.example.com', ports: [{ port: 80, protocol: 'TCP' }] },
      ],
    },
    conditions: [],
  },
};

const node: Raw = {
  metadata: {
    ...metadata,
    namespace: undefined,
    labels: {
      'topology.kubernetes.io/zone': 'zone-a',
      'node-role.kubernetes.io/control-plane': '',
      'node-role.kubernetes.io/master': '',
    },
  },
  spec: { podCIDR: '10.244.0.0/24', taints: [{ key: 'x', effect: 'NoSchedule' }] },
  status: {
    capacity: { cpu: '32', memory: '256Gi', pods: '500' },
    allocatable: { cpu: '3920m', memory: '256Gi', pods: '500' },
    conditions: [condition('MemoryPressure', 'False'), condition('Ready', 'True')],
    addresses: [{ type: 'InternalIP', address: '192.168.0.1' }],
    images: [{ names: ['a', 'b'], sizeBytes: 1234567890123 }],
    nodeInfo: { kernelVersion: '6.12.0', kubeletVersion: 'v1.36.3' },
  },
};

const target = {
  kind: 'Pod',
  namespace: 'shop',
  name: 'web-1',
  uid: '4f9a3f5e',
  apiVersion: 'v1',
  resourceVersion: '12',
  fieldPath: 'spec.containers{app}',
};

const subset: Raw = {
  addresses: [
    { ip: '10.0.0.1', hostname: 'web-1', nodeName: 'node-a', targetRef: target },
    { ip: 'fd00::2', nodeName: 'node-b' },
    { ip: '10.0.0.3' },
  ],
  notReadyAddresses: [{ ip: '10.0.0.4', nodeName: '', targetRef: {} }],
  ports: [
    { name: 'http', port: 8080, protocol: 'TCP', appProtocol: 'http' },
    { port: 0, protocol: 'UDP', appProtocol: '' },
    { name: 'bare', port: 65535 },
  ],
};

const endpoints: Raw = {
  metadata,
  subsets: [subset, { ports: [{ port: 1 }] }, { addresses: [{ ip: '10.0.0.9' }] }, {}],
};

const sliceOf = (addressType: string, more: Raw): Raw => ({
  metadata: {
    ...metadata,
    labels: {
      'kubernetes.io/service-name': 'web',
      'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
    },
  },
  addressType,
  ...more,
});

const endpoint: Raw = {
  addresses: ['10.0.0.1', '10.0.0.2'],
  conditions: { ready: true, serving: true, terminating: false },
  hostname: 'web-1',
  nodeName: 'node-a',
  zone: 'zone-a',
  targetRef: target,
  deprecatedTopology: { 'kubernetes.io/hostname': 'node-z', 'topology.kubernetes.io/zone': 'z' },
  hints: { forZones: [{ name: 'zone-a' }, { name: 'zone-b' }], forNodes: [{ name: 'node-a' }] },
};

const slice = sliceOf('IPv4', {
  endpoints: [
    endpoint,
    { addresses: ['10.0.0.3'], conditions: { ready: false } },
    { addresses: ['10.0.0.4'], conditions: {}, hostname: '', nodeName: '', zone: '', hints: {} },
    { addresses: [] },
  ],
  ports: [
    { name: 'http', protocol: 'TCP', port: 8080, appProtocol: 'http' },
    { name: '', protocol: 'UDP', port: 0, appProtocol: '' },
    {},
  ],
});

const fqdn = sliceOf('FQDN', { endpoints: [{ addresses: ['a.example.com'] }], ports: null });
const empty = sliceOf('IPv6', { endpoints: null, ports: [] });
const ipv6 = sliceOf('IPv6', { endpoints: [{ ...endpoint, addresses: ['fd00::1'] }], ports: [{}] });

const copy = (raw: Raw): Raw => JSON.parse(JSON.stringify(raw)) as Raw;

/** The paths of all fields and items below a value, outermost first. */
function paths(value: unknown): (string | number)[][] {
  if (typeof value !== 'object' || value === null) return [];
  const names = Array.isArray(value) ? value.map((_, index) => index) : Object.keys(value);
  return names.flatMap((name) => {
    const inner = (value as Record<string | number, unknown>)[name];
    return [[name], ...paths(inner).map((path) => [name, ...path])];
  });
}

/** Copies of an object, each without one of its fields or items. */
function* without(raw: Raw): Generator<Raw> {
  for (const path of paths(raw)) {
    if (path.includes('managedFields')) continue;
    const result = copy(raw);
    let holder: unknown = result;
    for (const name of path.slice(0, -1))
      holder = (holder as Record<string | number, unknown>)[name];
    const last = path.at(-1) ?? '';
    if (Array.isArray(holder)) holder.splice(Number(last), 1);
    else Reflect.deleteProperty(holder as object, last);
    yield result;
  }
}

/** Lines for the generator: full objects, each with everything left out once, and odd ones. */
export function* oddLines(): Generator<Raw> {
  const full: readonly (readonly [string, Raw])[] = [
    ['pods', pod],
    ['services', service],
    ['nodes', node],
    ['endpoints', endpoints],
    ['endpointslices', slice],
    ['endpointslices', ipv6],
  ];
  for (const [resource, object] of full) {
    yield { resource, object };
    for (const less of without(object)) yield { resource, object: less };
  }
  for (const object of [fqdn, empty]) yield { resource: 'endpointslices', object };
  for (const cpu of ['1', '1500m', '0', '0.1', '1e3', '128Gi', '1u'])
    yield {
      resource: 'nodes',
      object: { metadata: { name: 'n' }, status: { allocatable: { cpu } } },
    };
  for (const creationTimestamp of [null, '1969-12-31T23:59:59Z', '0001-01-01T00:00:00Z'])
    yield { resource: 'nodes', object: { metadata: { name: 'n', creationTimestamp } } };
  for (const generation of [-1, 127, 128, 2 ** 31, 2 ** 52])
    yield {
      resource: 'endpointslices',
      object: sliceOf('IPv4', { metadata: { ...metadata, generation } }),
    };
  for (const labels of [JSON.parse('{"__proto__":"x"}') as Raw, { ü: 'é', '\u2028': '😀' }])
    yield { resource: 'pods', object: { metadata: { ...metadata, labels } } };
}
