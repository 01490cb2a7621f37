import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import {
  hasManagedFields,
  jsonBytes,
  newestTimestamp,
  objectText,
  project,
  resourceOfKind,
} from '../../../src/cluster/decode/json-objects.ts';
import type { ObjectOf, Pod, Resource } from '../../../src/model/objects.ts';
import { kinds, resources } from '../../../src/model/objects.ts';

const at = 1_800_000_000.5;
const created = Date.UTC(2026, 10, 21, 10, 53, 36) / 1000;

type Raw = Record<string, unknown>;

function metadata(more: Raw = {}): Raw {
  return {
    name: 'web-1',
    namespace: 'shop',
    uid: 'u1',
    resourceVersion: '42',
    creationTimestamp: '2026-11-21T10:53:36Z',
    labels: { app: 'web' },
    ...more,
  };
}

/** A valid object of each kind in which every field that is read is present. */
const full: Record<Resource, Raw> = {
  nodes: {
    metadata: metadata({
      name: 'node-a',
      deletionTimestamp: '2026-11-21T11:00:00Z',
      labels: { 'topology.kubernetes.io/zone': 'eu-1a', 'node-role.kubernetes.io/master': '' },
    }),
    spec: { podCIDR: '10.244.1.0/24', podCIDRs: ['10.244.1.0/24', 'fd00:1::/64'] },
    status: {
      addresses: [
        { type: 'ExternalIP', address: '198.51.100.1' },
        { type: 'Hostname', address: 'node-a' },
        { type: 'InternalIP', address: '172.18.0.2' },
        { type: 'InternalIP', address: 'fd00:18::2' },
      ],
      allocatable: { cpu: '3900m', memory: '256Gi' },
      conditions: [
        { type: 'MemoryPressure', status: 'False' },
        { type: 'Ready', status: 'True', lastTransitionTime: '2026-11-21T10:54:00Z' },
      ],
      nodeInfo: { kubeletVersion: 'v1.33.13' },
    },
  },
  services: {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: metadata({
      name: 'web',
      annotations: {
        'endpoint-auditor/suppress': 'slice-duplicate owner=a',
        'service.cilium.io/type': 'NodePort',
        'service.kubernetes.io/topology-mode': 'Disabled',
        'service.kubernetes.io/topology-aware-hints': 'Auto',
      },
    }),
    spec: {
      type: 'NodePort',
      clusterIP: '10.96.0.10',
      clusterIPs: ['10.96.0.10', 'fd00:10:96::10'],
      externalIPs: ['198.51.100.7'],
      loadBalancerSourceRanges: ['203.0.113.0/24'],
      internalTrafficPolicy: 'Local',
      externalTrafficPolicy: 'Local',
      healthCheckNodePort: 32_000,
      selector: { app: 'web' },
      publishNotReadyAddresses: true,
      ipFamilies: ['IPv6', 'IPv4'],
      ports: [
        {
          name: 'http',
          protocol: 'UDP',
          port: 80,
          targetPort: 'http',
          appProtocol: 'h2c',
          nodePort: 30_000,
        },
        { port: 81, targetPort: 8081 },
      ],
      trafficDistribution: 'PreferClose',
      sessionAffinity: 'ClientIP',
      sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } },
    },
    status: {
      loadBalancer: {
        ingress: [
          { ip: '192.0.2.1', ipMode: 'VIP' },
          { ip: '192.0.2.2', ipMode: 'Proxy' },
          { ip: '192.0.2.3' },
          { hostname: 'lb.example.com' },
        ],
      },
    },
  },
  pods: {
    metadata: metadata(),
    spec: {
      nodeName: 'node-a',
      hostNetwork: true,
      hostname: 'web-1',
      subdomain: 'web',
      containers: [
        {
          name: 'app',
          ports: [
            { name: 'http', containerPort: 8080, protocol: 'TCP' },
            { containerPort: 9000 },
            { name: 'dns', containerPort: 53, protocol: 'UDP' },
          ],
        },
        { name: 'other' },
      ],
      initContainers: [
        { name: 'once', ports: [{ name: 'setup', containerPort: 1 }] },
        {
          name: 'proxy',
          restartPolicy: 'Always',
          ports: [{ name: 'metrics', containerPort: 9090 }],
        },
      ],
    },
    status: {
      phase: 'Running',
      conditions: [
        { type: 'Initialized', status: 'True', lastTransitionTime: '2026-11-21T10:53:38Z' },
        { type: 'Ready', status: 'True', lastTransitionTime: '2026-11-21T10:53:42Z' },
        { type: 'Ready', status: 'False', lastTransitionTime: '2026-11-21T10:53:50Z' },
      ],
      podIP: '10.244.1.5',
      podIPs: [{ ip: '10.244.1.5' }, { ip: 'fd00::5' }],
    },
  },
  endpoints: {
    metadata: metadata({
      name: 'web',
      annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': '2026-11-21T10:54:35Z' },
    }),
    subsets: [
      {
        addresses: [
          {
            ip: '10.244.1.5',
            nodeName: 'node-a',
            hostname: 'web-1',
            targetRef: { kind: 'Pod', namespace: 'shop', name: 'web-1', uid: 'u1' },
          },
        ],
        notReadyAddresses: [{ ip: '10.244.1.6' }],
        ports: [{ name: 'http', port: 8080, protocol: 'TCP', appProtocol: 'h2c' }, { port: 9090 }],
      },
    ],
  },
  endpointslices: {
    apiVersion: 'discovery.k8s.io/v1beta1',
    kind: 'EndpointSlice',
    metadata: metadata({
      name: 'web-abcde',
      generation: 7,
      annotations: { example: 'yes' },
      ownerReferences: [
        { apiVersion: 'v1', kind: 'Service', name: 'web', uid: 's1', controller: true },
        { apiVersion: 'v1', kind: 'ConfigMap', name: 'other', uid: 'c1' },
      ],
    }),
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080, protocol: 'TCP', appProtocol: 'h2c' }],
    endpoints: [
      {
        addresses: ['10.244.1.5'],
        conditions: { ready: true, serving: true, terminating: false },
        hostname: 'web-1',
        nodeName: 'node-a',
        zone: 'eu-1a',
        targetRef: { kind: 'Pod', namespace: 'shop', name: 'web-1', uid: 'u1' },
        hints: { forZones: [{ name: 'eu-1a' }], forNodes: [{ name: 'node-a' }] },
      },
      {
        addresses: ['10.244.1.6'],
        topology: {
          'kubernetes.io/hostname': 'node-b',
          'topology.kubernetes.io/zone': 'eu-1b',
        },
      },
    ],
  },
};

function read<R extends Resource>(resource: R, raw: unknown, known = {}): ObjectOf[R] {
  const projection = project(resource, raw, at, known);
  if (projection.problem !== undefined) throw new Error(JSON.stringify(projection.problem));
  return projection.object;
}

function problemOf(resource: Resource, raw: unknown) {
  const { problem } = project(resource, raw, at);
  return problem === undefined
    ? null
    : [problem.object, problem.field, problem.message, problem.value];
}

/** A deep copy with the value at the path set (undefined: deleted). */
function changed<T>(value: T, path: readonly (string | number)[], leaf: unknown): T {
  const copy = structuredClone(value);
  let holder = copy as Record<string | number, unknown>;
  for (const name of path.slice(0, -1)) {
    holder = holder[name] as Record<string | number, unknown>;
  }
  const last = path.at(-1) ?? '';
  if (leaf === undefined && !Array.isArray(holder)) Reflect.deleteProperty(holder, last);
  else holder[last] = leaf;
  return copy;
}

describe('a full object of each kind', () => {
  const meta = {
    namespace: 'shop',
    uid: 'u1',
    resourceVersion: '42',
    labels: { app: 'web' },
    created,
    deleting: false,
  };

  test('Node', () => {
    expect(read('nodes', full.nodes)).toEqual({
      ...meta,
      key: 'node-a',
      namespace: '',
      name: 'node-a',
      labels: {},
      deleting: true,
      zone: 'eu-1a',
      ready: true,
      controlPlane: true,
      cpuMillis: 3900,
      addresses: ['172.18.0.2', 'fd00:18::2'],
      externalIPs: ['198.51.100.1'],
      podCIDRs: ['10.244.1.0/24', 'fd00:1::/64'],
      kubeletMinor: 33,
      ciliumNode: null,
    });
  });

  test('Service', () => {
    expect(read('services', full.services)).toEqual({
      ...meta,
      at,
      key: 'shop/web',
      name: 'web',
      type: 'NodePort',
      clusterIP: '10.96.0.10',
      clusterIPs: ['10.96.0.10', 'fd00:10:96::10'],
      externalIPs: ['198.51.100.7'],
      loadBalancerIPs: ['192.0.2.1', '192.0.2.3'],
      loadBalancerSourceRanges: ['203.0.113.0/24'],
      internalTrafficPolicy: 'Local',
      externalTrafficPolicy: 'Local',
      affinitySeconds: 60,
      healthCheckNodePort: 32_000,
      selector: { app: 'web' },
      publishNotReadyAddresses: true,
      ipFamilies: ['IPv6', 'IPv4'],
      ports: [
        {
          name: 'http',
          protocol: 'UDP',
          port: 80,
          targetPort: 'http',
          appProtocol: 'h2c',
          nodePort: 30_000,
        },
        { name: '', protocol: 'TCP', port: 81, targetPort: 8081, appProtocol: null, nodePort: 0 },
      ],
      trafficDistribution: 'PreferClose',
      topologyAuto: true,
      suppress: 'slice-duplicate owner=a',
      ciliumAnnotations: { 'service.cilium.io/type': 'NodePort' },
    });
  });

  test('Pod', () => {
    expect(read('pods', full.pods)).toEqual({
      ...meta,
      key: 'shop/web-1',
      name: 'web-1',
      ref: { kind: 'Pod', namespace: 'shop', name: 'web-1', uid: 'u1' },
      node: 'node-a',
      hostNetwork: true,
      hostname: 'web-1',
      subdomain: 'web',
      ports: [
        { name: 'http', protocol: 'TCP', port: 8080, sidecar: false },
        { name: 'dns', protocol: 'UDP', port: 53, sidecar: false },
        { name: 'metrics', protocol: 'TCP', port: 9090, sidecar: true },
      ],
      terminal: false,
      ready: true,
      turnedAt: created + 6,
      ips: ['10.244.1.5', 'fd00::5'],
      ipsSince: created,
    });
  });

  test('Endpoints', () => {
    const ports = [
      { name: 'http', protocol: 'TCP', port: 8080, appProtocol: 'h2c' },
      { name: '', protocol: 'TCP', port: 9090, appProtocol: null },
    ];
    expect(read('endpoints', full.endpoints, { bytes: 12 })).toEqual({
      ...meta,
      at,
      key: 'shop/web',
      name: 'web',
      annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': '2026-11-21T10:54:35Z' },
      subsets: [
        {
          ports,
          addresses: [
            {
              ip: '10.244.1.5',
              ready: true,
              ports,
              node: 'node-a',
              hostname: 'web-1',
              target: { kind: 'Pod', namespace: 'shop', name: 'web-1', uid: 'u1' },
            },
            { ip: '10.244.1.6', ready: false, ports, node: null, hostname: '', target: null },
          ],
          readyCount: 1,
        },
      ],
      bytes: 12,
    });
  });

  test('EndpointSlice', () => {
    expect(read('endpointslices', full.endpointslices)).toEqual({
      ...meta,
      at,
      key: 'shop/web-abcde',
      name: 'web-abcde',
      generation: 7,
      annotations: { example: 'yes' },
      owners: [
        { apiVersion: 'v1', kind: 'Service', name: 'web', uid: 's1', controller: true },
        { apiVersion: 'v1', kind: 'ConfigMap', name: 'other', uid: 'c1', controller: false },
      ],
      addressType: 'IPv4',
      ports: [{ name: 'http', protocol: 'TCP', port: 8080, appProtocol: 'h2c' }],
      portMap: '"http" 8080 "TCP" "h2c"',
      endpoints: [
        {
          addresses: ['10.244.1.5'],
          ready: true,
          serving: true,
          terminating: false,
          hostname: 'web-1',
          node: 'node-a',
          zone: 'eu-1a',
          target: { kind: 'Pod', namespace: 'shop', name: 'web-1', uid: 'u1' },
          forZones: ['eu-1a'],
          forNodes: ['node-a'],
        },
        {
          addresses: ['10.244.1.6'],
          ready: null,
          serving: null,
          terminating: null,
          hostname: null,
          node: 'node-b',
          zone: 'eu-1b',
          target: null,
          forZones: null,
          forNodes: null,
        },
      ],
      bytes: null,
    });
  });
});

describe('defaults', () => {
  test('a Service with nothing but its name', () => {
    expect(read('services', { metadata: { name: 'web', namespace: 'shop' } })).toEqual({
      key: 'shop/web',
      namespace: 'shop',
      name: 'web',
      uid: '',
      resourceVersion: '',
      labels: {},
      created: null,
      deleting: false,
      at,
      type: 'ClusterIP',
      clusterIP: '',
      clusterIPs: [],
      externalIPs: [],
      loadBalancerIPs: [],
      loadBalancerSourceRanges: [],
      internalTrafficPolicy: 'Cluster',
      externalTrafficPolicy: 'Cluster',
      affinitySeconds: null,
      healthCheckNodePort: 0,
      selector: null,
      publishNotReadyAddresses: false,
      ipFamilies: [],
      ports: [],
      trafficDistribution: null,
      topologyAuto: false,
      suppress: '',
      ciliumAnnotations: {},
    });
  });

  test.each<[unknown, number | string]>([
    [undefined, 80],
    [null, 80],
    [0, 80],
    ['', 80],
    [8080, 8080],
    ['http', 'http'],
    ['8080', '8080'],
  ])('targetPort %j of port 80 is %j', (targetPort, want) => {
    const raw = changed(full.services, ['spec', 'ports'], [{ port: 80, targetPort }]);
    expect(read('services', raw).ports[0]?.targetPort).toBe(want);
  });

  test('an empty selector counts as no selector', () => {
    expect(read('services', changed(full.services, ['spec', 'selector'], {})).selector).toBeNull();
  });

  test.each<[Raw | null, boolean]>([
    [null, false],
    [{ 'service.kubernetes.io/topology-mode': 'Auto' }, true],
    [{ 'service.kubernetes.io/topology-mode': 'auto' }, true],
    [{ 'service.kubernetes.io/topology-mode': 'AUTO' }, false],
    [{ 'service.kubernetes.io/topology-aware-hints': 'auto' }, true],
    [
      {
        'service.kubernetes.io/topology-mode': 'Auto',
        'service.kubernetes.io/topology-aware-hints': 'Disabled',
      },
      false,
    ],
  ])('topology annotations %j: %j', (annotations, want) => {
    const raw = changed(full.services, ['metadata', 'annotations'], annotations);
    expect(read('services', raw).topologyAuto).toBe(want);
  });

  test('a pod has podIP where it has no podIPs', () => {
    expect(read('pods', changed(full.pods, ['status', 'podIPs'], null)).ips).toEqual([
      '10.244.1.5',
    ]);
    expect(read('pods', changed(full.pods, ['status', 'podIPs'], [])).ips).toEqual(['10.244.1.5']);
    expect(read('pods', changed(full.pods, ['status'], null)).ips).toEqual([]);
  });

  test.each([
    ['Pending', false],
    ['Running', false],
    ['Unknown', false],
    ['Succeeded', true],
    ['Failed', true],
  ])('phase %s is terminal: %j', (phase, want) => {
    expect(read('pods', changed(full.pods, ['status', 'phase'], phase)).terminal).toBe(want);
  });

  test('v1 slices are not read for topology', () => {
    const raw = changed(full.endpointslices, ['apiVersion'], 'discovery.k8s.io/v1');
    expect(read('endpointslices', raw).endpoints[1]).toMatchObject({ node: null, zone: null });
  });

  test('an item of a list, which has no apiVersion, may be of v1beta1', () => {
    const raw = changed(full.endpointslices, ['apiVersion'], undefined);
    expect(read('endpointslices', raw).endpoints[1]).toMatchObject({ node: 'node-b' });
  });

  test('slice ports: the protocol has a default, name and port may be null', () => {
    const raw = changed(full.endpointslices, ['ports'], [{ name: null }]);
    expect(read('endpointslices', raw).ports).toEqual([
      { name: null, protocol: 'TCP', port: null, appProtocol: null },
    ]);
  });

  test('empty hint lists are lists', () => {
    const raw = changed(full.endpointslices, ['endpoints', 0, 'hints'], { forZones: [] });
    expect(read('endpointslices', raw).endpoints[0]).toMatchObject({
      forZones: [],
      forNodes: null,
    });
  });

  test('absent subsets, endpoints and ports are empty', () => {
    expect(read('endpoints', changed(full.endpoints, ['subsets'], null)).subsets).toEqual([]);
    const raw = { metadata: metadata(), addressType: 'IPv6', endpoints: null, ports: null };
    expect(read('endpointslices', raw)).toMatchObject({ endpoints: [], ports: [], portMap: '' });
  });
});

describe('ipsSince', () => {
  const first = read('pods', full.pods);
  const previous = { ...first, ipsSince: 7 };
  const known = (pod: Pod) => ({
    previousPod: (key: string) => (key === 'shop/web-1' ? pod : undefined),
  });

  test('the first version counts from creation', () => {
    expect(first.ipsSince).toBe(created);
    const raw = changed(full.pods, ['metadata', 'creationTimestamp'], undefined);
    expect(read('pods', raw).ipsSince).toBe(at);
  });
  test('equal addresses keep their time', () => {
    expect(read('pods', full.pods, known(previous)).ipsSince).toBe(7);
  });
  test('other addresses are new', () => {
    const raw = changed(full.pods, ['status', 'podIPs', 0, 'ip'], '10.244.1.9');
    expect(read('pods', raw, known(previous)).ipsSince).toBe(at);
    expect(read('pods', full.pods, known({ ...previous, ips: [] })).ipsSince).toBe(at);
  });
  test('a successor of the same name is another pod', () => {
    expect(read('pods', full.pods, known({ ...previous, uid: 'u0' })).ipsSince).toBe(created);
  });
});

describe('unreadable objects', () => {
  test.each<[string, Resource, unknown, (string | null)[]]>([
    ['null', 'pods', null, ['Pod', null, 'Expected an object', 'null']],
    ['a list', 'pods', [], ['Pod', null, 'Expected an object', '[]']],
    ['no metadata', 'nodes', {}, ['Node', 'metadata.name', 'Expected a name', null]],
    [
      'no name',
      'pods',
      { metadata: { namespace: 'shop' } },
      ['Pod in shop', 'metadata.name', 'Expected a name', null],
    ],
    [
      'no namespace',
      'pods',
      { metadata: { name: 'web-1' } },
      ['Pod web-1', 'metadata.namespace', 'Expected a namespace', null],
    ],
    [
      'a slash',
      'pods',
      { metadata: { name: 'a/b', namespace: 'shop' } },
      ['Pod shop/a/b', 'metadata.name', 'Expected a name without slashes', '"a/b"'],
    ],
    [
      'a string for a list',
      'pods',
      changed(full.pods, ['status', 'podIPs'], 'x'),
      ['Pod shop/web-1', 'status.podIPs', 'Expected a list', '"x"'],
    ],
    [
      'a number deep inside',
      'pods',
      changed(full.pods, ['status', 'podIPs', 1, 'ip'], 5),
      ['Pod shop/web-1', 'status.podIPs[1].ip', 'Expected a string', '5'],
    ],
    [
      'a null item',
      'pods',
      changed(full.pods, ['spec', 'containers', 1], null),
      ['Pod shop/web-1', 'spec.containers[1]', 'Expected an object', 'null'],
    ],
    [
      'a null string',
      'endpointslices',
      changed(full.endpointslices, ['endpoints', 1, 'addresses', 0], null),
      ['EndpointSlice shop/web-abcde', 'endpoints[1].addresses[0]', 'Expected a string', 'null'],
    ],
    [
      'a port out of range',
      'endpoints',
      changed(full.endpoints, ['subsets', 0, 'ports', 1, 'port'], 2 ** 31),
      ['Endpoints shop/web', 'subsets[0].ports[1].port', 'Expected a 32-bit integer', '2147483648'],
    ],
    [
      'a fraction',
      'services',
      changed(full.services, ['spec', 'ports', 0, 'targetPort'], 80.5),
      ['Service shop/web', 'spec.ports[0].targetPort', 'Expected a 32-bit integer', '80.5'],
    ],
    [
      'a label',
      'pods',
      changed(full.pods, ['metadata', 'labels', 'a.b/c'], 1),
      ['Pod shop/web-1', 'metadata.labels["a.b/c"]', 'Expected a string', '1'],
    ],
    [
      'a type that there is not',
      'services',
      changed(full.services, ['spec', 'type'], 'Cluster'),
      [
        'Service shop/web',
        'spec.type',
        'Expected ClusterIP, NodePort, LoadBalancer or ExternalName',
        '"Cluster"',
      ],
    ],
    [
      'no address type',
      'endpointslices',
      changed(full.endpointslices, ['addressType'], undefined),
      ['EndpointSlice shop/web-abcde', 'addressType', 'Expected IPv4, IPv6 or FQDN', null],
    ],
    [
      'no quantity',
      'nodes',
      changed(full.nodes, ['status', 'allocatable', 'cpu'], '4 cores'),
      ['Node node-a', 'status.allocatable.cpu', 'Expected a quantity', '"4 cores"'],
    ],
  ])('%s', (_, resource, raw, want) => {
    expect(problemOf(resource, raw)).toEqual(want);
  });

  test('what is lost is said as exactly as it is known', () => {
    const lost = (raw: unknown) => project('pods', raw, at).problem?.lost;
    expect(lost(changed(full.pods, ['spec'], 1))).toEqual({
      resource: 'pods',
      namespace: 'shop',
      name: 'web-1',
      labels: { app: 'web' },
    });
    expect(lost(changed(full.pods, ['metadata', 'labels', 'app'], 1))).toEqual({
      resource: 'pods',
      namespace: 'shop',
      name: 'web-1',
      labels: null,
    });
    expect(lost(7)).toEqual({ resource: 'pods', namespace: null, name: null, labels: {} });
    expect(project('nodes', 7, at).problem?.lost.namespace).toBe('');
  });

  test('fields that are not read are not looked at', () => {
    const raw = {
      ...full.pods,
      spec: { ...(full.pods.spec as Raw), volumes: 'x', tolerations: [7] },
      metadata: metadata({ annotations: 7, managedFields: 'x', ownerReferences: 1 }),
    };
    expect(read('pods', raw)).toEqual(read('pods', full.pods));
  });

  test('an object is named as people do', () => {
    const lost = { resource: 'pods', namespace: null, name: null, labels: null } as const;
    expect(objectText(lost)).toBe('Pod');
    expect(objectText({ ...lost, namespace: 'shop' })).toBe('Pod in shop');
    expect(objectText({ ...lost, name: 'web-1' })).toBe('Pod web-1');
    expect(objectText({ ...lost, namespace: 'shop', name: 'web-1' })).toBe('Pod shop/web-1');
  });
});

describe('label maps', () => {
  const withLabels = (json: string) =>
    read('pods', { metadata: metadata({ labels: JSON.parse(json) as unknown }) }).labels;

  test('keys of Object.prototype are keys like any other', () => {
    const labels = withLabels('{"__proto__":"x","constructor":"y","n":null}');
    expect(Object.entries(labels)).toEqual([
      ['__proto__', 'x'],
      ['constructor', 'y'],
      ['n', ''],
    ]);
    expect(Object.getPrototypeOf(labels)).toBe(Object.prototype);
  });

  test('equal maps share one object', () => {
    expect(withLabels('{"a":"1","b":"2"}')).toBe(withLabels('{"a":"1","b":"2"}'));
    expect(withLabels('{"a":"1"}')).not.toEqual(withLabels('{"a":"2"}'));
  });

  test('different ports are not confused by interning', () => {
    const ports = (name: string) =>
      read('pods', changed(full.pods, ['spec', 'containers', 0, 'ports', 0, 'name'], name)).ports;
    expect(ports('a')[0]?.name).toBe('a');
    expect(ports('b')[0]?.name).toBe('b');
    expect(ports('a')).toBe(ports('a'));
  });
});

describe('moments', () => {
  test('a strange time is none, and a deletion with a strange time is a deletion', () => {
    const raw = changed(full.pods, ['metadata', 'creationTimestamp'], 'yesterday');
    expect(read('pods', raw).created).toBeNull();
    expect(
      read('pods', changed(full.pods, ['metadata', 'deletionTimestamp'], 'soon')),
    ).toMatchObject({ deleting: true });
  });

  test('the newest time in an object', () => {
    expect(newestTimestamp(read('pods', full.pods))).toBe(created + 6);
    expect(newestTimestamp(read('endpoints', full.endpoints))).toBe(created + 59);
    expect(newestTimestamp(read('nodes', full.nodes))).toBe(created);
    expect(newestTimestamp(read('nodes', { metadata: { name: 'a' } }))).toBeNull();
  });
});

describe('which kind of object', () => {
  test.each<[unknown, unknown, Resource | null]>([
    ['v1', 'Pod', 'pods'],
    [undefined, 'Pod', 'pods'],
    ['v1', 'Service', 'services'],
    ['serving.knative.dev/v1', 'Service', null],
    ['config.openshift.io/v1', 'Node', null],
    ['v1', 'Endpoints', 'endpoints'],
    ['v1', 'Node', 'nodes'],
    ['discovery.k8s.io/v1', 'EndpointSlice', 'endpointslices'],
    ['discovery.k8s.io/v1beta1', 'EndpointSlice', 'endpointslices'],
    ['discovery.k8s.io/v2', 'EndpointSlice', null],
    ['v1', 'EndpointSlice', null],
    [7, 'EndpointSlice', null],
    ['v1', 'ConfigMap', null],
    ['v1', '__proto__', null],
    ['v1', undefined, null],
  ])('%s %s: %s', (apiVersion, kind, want) => {
    expect(resourceOfKind(apiVersion, kind)).toBe(want);
  });

  test('kinds and resources are inverse', () => {
    for (const resource of resources) {
      expect(resourceOfKind(undefined, kinds[resource])).toBe(resource);
    }
  });
});

test('sizes leave managedFields out', () => {
  const bare = { metadata: { name: 'ü' }, x: 1 };
  const managed = { metadata: { name: 'ü', managedFields: [{}] }, x: 1 };
  expect(jsonBytes(bare)).toBe(Buffer.byteLength(JSON.stringify(bare)));
  expect(jsonBytes(managed)).toBe(jsonBytes(bare));
  expect(hasManagedFields(managed)).toBe(true);
  expect(hasManagedFields(bare)).toBe(false);
  expect(jsonBytes(7)).toBeNull();
  const deep: unknown = JSON.parse('{"a":'.repeat(100_000) + '1' + '}'.repeat(100_000));
  expect(jsonBytes(deep)).toBeNull();
});

// --- properties ---

type Path = readonly (string | number)[];

/** The paths of all fields and items of a value. */
function pathsOf(value: unknown, path: Path = []): Path[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, inner]) => {
    const here = [...path, Array.isArray(value) ? Number(name) : name];
    return [here, ...pathsOf(inner, here)];
  });
}

const required = new Set(['metadata', 'metadata.name', 'metadata.namespace', 'addressType']);
const wrongs: unknown[] = ['x', '', 7.5, -1, true, null, [], {}, [null], [7], ['x'], { a: 1 }];

describe.each(resources)('any %s', (resource) => {
  const raw = full[resource];
  const paths = pathsOf(raw);

  test('is readable without any of its optional fields', () => {
    const optional = paths.filter(
      (path) => typeof path.at(-1) === 'string' && !required.has(path.join('.')),
    );
    const choice = fc.tuple(fc.subarray(optional), fc.boolean());
    const check = ([removed, asNull]: [Path[], boolean]) => {
      // Deep ones first, so that the way to the next one is still there.
      const ordered = removed.toSorted((a, b) => b.length - a.length);
      const less = ordered.reduce(
        (raw, path) => changed(raw, path, asNull ? null : undefined),
        raw,
      );
      expect(project(resource, less, at).problem).toBeUndefined();
    };
    for (const path of optional) check([[path], true]);
    for (const path of optional) check([[path], false]);
    fc.assert(fc.property(choice, check), { numRuns: 300 });
  });

  test('never throws, and says which field has a wrong value', () => {
    let readable = 0;
    let unreadable = 0;
    for (const path of paths) {
      for (const wrong of wrongs) {
        const { problem } = project(resource, changed(raw, path, wrong), at);
        if (problem === undefined) {
          readable++;
          continue;
        }
        unreadable++;
        const place = path.reduce<string>((text, part) => {
          if (typeof part === 'number') return `${text}[${part}]`;
          const name = text.endsWith('labels') || part.includes('/') ? `["${part}"]` : part;
          return text === '' || name.startsWith('[') ? text + name : `${text}.${name}`;
        }, '');
        const field = problem.field ?? 'none';
        const plain = (text: string) => text.replace(/\["(.*?)"\]/g, '.$1');
        expect(plain(field).startsWith(plain(place)) || plain(place).startsWith(plain(field))).toBe(
          true,
        );
      }
    }
    expect(readable).toBeGreaterThan(0);
    expect(unreadable).toBeGreaterThan(0);
  });

  test('never throws for anything at all', () => {
    fc.assert(
      fc.property(fc.anything({ withNullPrototype: true }), fc.subarray(paths), (value, where) => {
        project(resource, value, at);
        const [path] = where;
        if (path !== undefined) project(resource, changed(raw, path, value), at);
      }),
      { numRuns: 300 },
    );
  });
});
