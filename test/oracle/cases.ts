// Cases for a control plane: what happens to one namespace, step by step. Directed cases are named
// by the situation that they make; random cases are drawn from a seed. Which addresses a case uses
// follows from its number, so that no two cases share one.

import { chanceFrom } from '../apiserver/life.ts';
import type { Operation, PodShape, SubsetShape } from './operations.ts';
import {
  annotatePod,
  changeEndpoints,
  changeService,
  createEndpoints,
  createPod,
  createService,
  createSlice,
  deleteEndpoints,
  deletePod,
  deleteService,
  dropFinalizers,
  editSlice,
  labelEndpoints,
  labelPod,
  removePod,
  reportPod,
  specOfService,
} from './operations.ts';

export interface Case {
  readonly name: string;
  readonly steps: readonly (readonly Operation[])[];
}

/** The k-th address of a case in each family. */
interface Addresses {
  readonly four: (k: number) => string;
  readonly six: (k: number) => string;
}

const addressesOf = (number: number): Addresses => ({
  four: (k) => `10.${128 + (number >> 6)}.${((number & 63) << 2) + (k >> 8)}.${k & 255}`,
  six: (k) => `fd00:244:${number.toString(16)}::${k.toString(16)}`,
});

type Steps = (addresses: Addresses) => readonly (readonly Operation[])[];

const workers = ['node-a2', 'node-b1', 'node-b2', 'node-c1', 'node-c2', 'node-a1'] as const;
const nodeOf = (k: number): string => workers[(k - 1) % workers.length] ?? 'node-a1';

/** Pods p1 to pN of the label app=web, spread over the nodes. */
const pods = ({ four }: Addresses, count: number, shape: PodShape = {}): Operation[] =>
  Array.from({ length: count }, (_, index) => {
    const k = index + 1;
    return createPod(`p${k}`, { node: nodeOf(k), ips: [four(k)], ...shape });
  });

const both = ({ four, six }: Addresses, k: number): string[] => [four(k), six(k)];

const headless = { clusterIP: 'None' };
const dual = { ipFamilyPolicy: 'PreferDualStack' };
const named = [{ name: 'http', port: 80, targetPort: 'http' }];
const http = (containerPort: number) => [{ name: 'http', containerPort }];
const toNothing = { selector: null };
const mode = (value: string) => ({ annotations: { 'service.kubernetes.io/topology-mode': value } });
const leader = { 'control-plane.alpha.kubernetes.io/leader': '{}' };
const notReadyOf = (slice: { endpoints: Record<string, unknown>[] | null }): object => ({
  endpoints: (slice.endpoints ?? []).map((endpoint) => ({
    ...endpoint,
    conditions: { ready: false, serving: false, terminating: false },
  })),
});

const ofPods: Readonly<Record<string, Steps>> = {
  'terminating-ready-pod': (at) => [
    [createService('web'), ...pods(at, 3)],
    [deletePod('p1')],
    [removePod('p1')],
  ],
  'terminating-not-ready-pod': (at) => [
    [createService('web'), ...pods(at, 2), createPod('nr', { ready: 'False', ips: [at.four(9)] })],
    [deletePod('nr')],
    [removePod('nr')],
  ],
  'all-pods-terminating': (at) => [
    [createService('web'), ...pods(at, 3)],
    [deletePod('p1'), deletePod('p2'), deletePod('p3')],
    [reportPod('p1', { ready: 'False' })],
  ],
  'publish-not-ready-addresses': (at) => [
    [
      createService('web', { spec: { publishNotReadyAddresses: true } }),
      ...pods(at, 2),
      createPod('nr', { ready: 'False', ips: [at.four(9)] }),
    ],
    [deletePod('p1')],
    [specOfService('web', { publishNotReadyAddresses: false })],
  ],
  'finalizer-holds-pod': (at) => [
    [createService('web'), ...pods(at, 2, { finalizers: ['example.com/wait'] })],
    [deletePod('p1'), removePod('p1')],
    [dropFinalizers('p1')],
  ],
  'pod-recreated-same-name-new-ip': (at) => [
    [createService('web'), ...pods(at, 2)],
    [removePod('p1'), createPod('p1', { ips: [at.four(9)] })],
  ],
  'pod-recreated-same-name-same-ip': (at) => [
    [createService('web'), ...pods(at, 2)],
    [removePod('p1'), createPod('p1', { node: nodeOf(1), ips: [at.four(1)] })],
  ],
  'two-pods-same-ip': (at) => [
    [
      createService('web'),
      createPod('a', { ips: [at.four(1)] }),
      createPod('b', { ips: [at.four(1)] }),
    ],
    [reportPod('b', { ready: 'False' })],
    [removePod('b')],
  ],
  'failed-pod-keeps-ip-reused-by-live-pod': (at) => [
    [createService('web'), createPod('a', { ips: [at.four(1)] })],
    [
      reportPod('a', { phase: 'Failed', ready: 'False' }),
      createPod('b', { node: 'node-b1', ips: [at.four(1)] }),
    ],
  ],
  'ready-pod-turns-failed': (at) => [
    [createService('web'), ...pods(at, 2)],
    [reportPod('p1', { phase: 'Failed', ready: 'False' })],
  ],
  'ready-pod-turns-failed-condition-kept': (at) => [
    [createService('web'), ...pods(at, 2)],
    [reportPod('p1', { phase: 'Failed' })],
    [annotatePod('p2')],
    [labelPod('p2', { v: '2' })],
  ],
  'not-ready-pod-turns-succeeded': (at) => [
    [createService('web'), ...pods(at, 1), createPod('nr', { ready: 'False', ips: [at.four(9)] })],
    [reportPod('nr', { phase: 'Succeeded' })],
    [reportPod('p1', { ready: 'False' })],
  ],
  'failed-pod-back-to-running': (at) => [
    [createService('web'), createPod('f', { phase: 'Failed', ready: 'False', ips: [at.four(1)] })],
    [reportPod('f', { phase: 'Running' })],
    [reportPod('f', { ready: 'True' })],
  ],
  'every-phase-and-readiness': ({ four }) => [
    [
      createService('web'),
      ...(['Pending', 'Running', 'Succeeded', 'Failed', 'Unknown'] as const).flatMap((phase, i) =>
        (['True', 'False', 'Unknown', null] as const).map((ready, j) => {
          const k = 4 * i + j + 1;
          return createPod(`p${k}`, { phase, ready, node: nodeOf(k), ips: [four(k)] });
        }),
      ),
    ],
  ],
  'pod-ip-appears-later': (at) => [
    [createService('web'), createPod('p1', { phase: 'Pending', ready: 'False' })],
    [reportPod('p1', { phase: 'Running', ready: 'True', ips: [at.four(1)] })],
  ],
  'pod-ip-changes': (at) => [
    [createService('web'), ...pods(at, 2)],
    [reportPod('p1', { ips: [at.four(7)] })],
  ],
  'pod-gains-second-family': (at) => [
    [createService('web', { spec: dual }), ...pods(at, 2)],
    [reportPod('p1', { ips: both(at, 1) })],
  ],
  'pod-ip-order-swapped': (at) => [
    [createService('web', { spec: dual }), createPod('p1', { ips: both(at, 1) })],
    [reportPod('p1', { ips: [at.six(1), at.four(1)] })],
  ],
  'readiness-flips': (at) => [
    [createService('web'), ...pods(at, 4)],
    [reportPod('p1', { ready: 'False' }), reportPod('p2', { ready: 'False' })],
    [reportPod('p1', { ready: 'True' })],
    [reportPod('p2', { ready: null })],
  ],
  'pod-relabelled-away-and-back': (at) => [
    [createService('web'), ...pods(at, 3)],
    [labelPod('p1', { app: 'db' })],
    [labelPod('p1', { app: 'web' })],
  ],
  'host-network-pods': (at) => [
    [
      createService('web'),
      createPod('p1', { ips: ['10.0.0.1'], spec: { hostNetwork: true } }),
      ...pods(at, 1).slice(1),
      createPod('p2', { node: 'node-b1', ips: ['10.0.0.4'], spec: { hostNetwork: true } }),
    ],
    [reportPod('p2', { ready: 'False' })],
  ],
  'hostname-and-subdomain': (at) => {
    const spec = (hostname: string, subdomain: string) => ({ spec: { hostname, subdomain } });
    return [
      [
        createService('web', { spec: headless }),
        createPod('p1', { ips: [at.four(1)], ...spec('one', 'web') }),
        createPod('p2', { ips: [at.four(2)], ...spec('two', 'other') }),
        createPod('p3', { ips: [at.four(3)], spec: { hostname: 'three' } }),
      ],
      [reportPod('p1', { ready: 'False' })],
    ];
  },
  'hostname-on-cluster-ip-service': (at) => [
    [
      createService('web'),
      createPod('p1', { ips: [at.four(1)], spec: { hostname: 'one', subdomain: 'web' } }),
      ...pods(at, 3).slice(1),
    ],
  ],
  'scale-down-to-zero-and-up': (at) => [
    [createService('web'), ...pods(at, 4)],
    [1, 2, 3, 4].map((k) => removePod(`p${k}`)),
    pods(at, 2),
  ],
  'rolling-update': (at) => [
    [createService('web'), ...pods(at, 3)],
    [createPod('n1', { node: 'node-c1', ips: [at.four(11)] }), deletePod('p1')],
    [createPod('n2', { node: 'node-c2', ips: [at.four(12)] }), deletePod('p2'), removePod('p1')],
    [removePod('p2')],
  ],
};

const onNodes: Readonly<Record<string, Steps>> = {
  'pod-on-missing-node': (at) => [
    [
      createService('web'),
      ...pods(at, 2),
      createPod('lost', { node: 'node-gone', ips: [at.four(9)] }),
    ],
    [removePod('lost')],
  ],
  'pod-without-node': (at) => [
    [createService('web'), ...pods(at, 2)],
    [createPod('free', { node: '', ips: [at.four(9)] })],
    [removePod('free')],
  ],
  'node-zone-relabelled': (at) => [
    [createService('web'), createPod('p1', { node: 'node-x2', ips: [at.four(1)] })],
    [],
    [createPod('p2', { node: 'node-x2', ips: [at.four(2)] })],
  ],
  'node-deleted-and-back': (at) => [
    [
      createService('web'),
      createPod('p1', { node: 'node-x1', ips: [at.four(1)] }),
      ...pods(at, 3).slice(1),
    ],
    [],
    [],
    [reportPod('p2', { ready: 'False' })],
    [reportPod('p2', { ready: 'True' })],
  ],
  'pods-on-unusual-nodes': (at) => [
    [
      createService('web', { spec: { trafficDistribution: 'PreferClose' } }),
      createPod('p1', { node: 'node-notready', ips: [at.four(1)] }),
      createPod('p2', { node: 'node-cp', ips: [at.four(2)] }),
      createPod('p3', { node: 'node-b1', ips: [at.four(3)] }),
    ],
    [reportPod('p3', { ready: 'False' })],
  ],
  'traffic-distribution-toggled': (at) => [
    [createService('web'), ...pods(at, 5)],
    [specOfService('web', { trafficDistribution: 'PreferClose' })],
    [reportPod('p1', { ready: 'False' })],
    [specOfService('web', { trafficDistribution: null })],
  ],
  'traffic-distribution-prefer-same-zone': (at) => [
    [createService('web', { spec: { trafficDistribution: 'PreferSameZone' } }), ...pods(at, 4)],
    [deletePod('p1')],
  ],
  'traffic-distribution-prefer-same-node': (at) => [
    [createService('web', { spec: { trafficDistribution: 'PreferSameNode' } }), ...pods(at, 4)],
    [reportPod('p1', { ready: 'False' })],
    [specOfService('web', { trafficDistribution: 'PreferClose' })],
  ],
  'traffic-distribution-publish-not-ready': (at) => [
    [
      createService('web', {
        spec: { trafficDistribution: 'PreferClose', publishNotReadyAddresses: true },
      }),
      ...pods(at, 2),
      createPod('nr', { ready: 'False', ips: [at.four(9)] }),
    ],
  ],
  'topology-mode-auto': (at) => [
    [createService('web', mode('Auto')), ...pods(at, 9)],
    [reportPod('p1', { ready: 'False' })],
    [changeService('web', { metadata: mode('Disabled') })],
    [changeService('web', { metadata: mode('Auto') })],
  ],
  'topology-mode-auto-with-traffic-distribution': (at) => [
    [
      createService('web', { ...mode('Auto'), spec: { trafficDistribution: 'PreferClose' } }),
      ...pods(at, 9),
    ],
    [changeService('web', { metadata: { annotations: null } }, 'annotation removed')],
  ],
};

const ofServices: Readonly<Record<string, Steps>> = {
  'service-created-before-pods': (at) => [[createService('web')], pods(at, 3)],
  'service-created-after-pods': (at) => [pods(at, 3), [createService('web')]],
  'service-deleted-and-recreated': (at) => [
    [createService('web'), ...pods(at, 3)],
    [deleteService('web')],
    [createService('web')],
  ],
  'service-replaced-at-once': (at) => [
    [createService('web'), ...pods(at, 3)],
    [deleteService('web'), createService('web', { labels: { team: 'b' } })],
  ],
  'service-without-ports': (at) => [
    [createService('web', { spec: { ...headless, ports: [] } }), ...pods(at, 2)],
    [reportPod('p1', { ready: 'False' })],
  ],
  'headless-service': (at) => [
    [createService('web', { spec: headless }), ...pods(at, 3)],
    [deletePod('p1')],
  ],
  'headless-dual-stack-service': (at) => [
    [
      createService('web', { spec: { ...headless, ipFamilyPolicy: 'RequireDualStack' } }),
      createPod('p1', { ips: both(at, 1) }),
      createPod('p2', { node: 'node-b1', ips: both(at, 2) }),
    ],
    [reportPod('p2', { ready: 'False' })],
  ],
  'node-port-service': (at) => [
    [createService('web', { spec: { type: 'NodePort' } }), ...pods(at, 2)],
    [specOfService('web', { type: 'LoadBalancer' })],
    [specOfService('web', { type: 'ClusterIP' })],
  ],
  'ipv6-service': (at) => [
    [
      createService('web', { spec: { ipFamilyPolicy: 'SingleStack', ipFamilies: ['IPv6'] } }),
      createPod('p1', { ips: [at.six(1)] }),
      createPod('p2', { ips: both(at, 2) }),
      createPod('p3', { ips: [at.four(3)] }),
    ],
    [reportPod('p2', { ready: 'False' })],
  ],
  'irregular-ipv6-format': (at) => [
    [
      createService('web', { spec: { ipFamilyPolicy: 'SingleStack', ipFamilies: ['IPv6'] } }),
      createPod('p1', { ips: [at.six(10).toUpperCase().replace('FD00:244', 'FD00:0244')] }),
    ],
    [createPod('p2', { ips: [at.six(2)] })],
  ],
  'dual-stack-becomes-single': (at) => [
    [
      createService('web', { spec: dual }),
      createPod('p1', { ips: both(at, 1) }),
      createPod('p2', { node: 'node-b1', ips: both(at, 2) }),
    ],
    [specOfService('web', { ipFamilyPolicy: 'SingleStack' })],
    [specOfService('web', { ipFamilyPolicy: 'PreferDualStack' })],
  ],
  'selector-changed': (at) => [
    [
      createService('web'),
      ...pods(at, 2),
      createPod('d', { labels: { app: 'db' }, ips: [at.four(9)] }),
    ],
    [specOfService('web', { selector: { app: 'db' } })],
    [specOfService('web', { selector: { app: 'nobody' } })],
  ],
  'selector-removed-and-restored': (at) => [
    [createService('web'), ...pods(at, 2)],
    [specOfService('web', toNothing)],
    [reportPod('p1', { ready: 'False' })],
    [specOfService('web', { selector: { app: 'web' } })],
  ],
  'cluster-ip-becomes-external-name': (at) => [
    [createService('web'), ...pods(at, 2)],
    [
      specOfService('web', {
        ...{ type: 'ExternalName', externalName: 'db.example.org', clusterIP: null },
        ...{ clusterIPs: null, ipFamilies: null, ipFamilyPolicy: null },
      }),
    ],
    [reportPod('p1', { ready: 'False' })],
  ],
  'overlapping-services': (at) => [
    [
      createService('web'),
      createService('all', { spec: headless }),
      createService('v2', { spec: { selector: { app: 'web', v: '2' } } }),
      ...pods(at, 2),
      createPod('n', { labels: { app: 'web', v: '2' }, ips: [at.four(9)] }),
    ],
    [labelPod('p1', { v: '2' })],
    [deleteService('all')],
  ],
  'labels-propagate': (at) => [
    [createService('web', { labels: { team: 'a', env: 'test' } }), ...pods(at, 2)],
    [changeService('web', { metadata: { labels: { team: 'b', env: null } } })],
  ],
  'reserved-labels-on-service': (at) => [
    [
      createService('web', {
        labels: {
          'endpointslice.kubernetes.io/managed-by': 'me',
          'kubernetes.io/service-name': 'other',
          'service.kubernetes.io/service-proxy-name': 'mesh',
        },
      }),
      ...pods(at, 2),
    ],
    [reportPod('p1', { ready: 'False' })],
  ],
};

const ofPorts: Readonly<Record<string, Steps>> = {
  'named-port-differs-between-pods': (at) => [
    [
      createService('web', { spec: { ports: named } }),
      ...[1, 2, 3, 4].map((k) =>
        createPod(`p${k}`, { node: nodeOf(k), ips: [at.four(k)], ports: http(8080 + (k % 2)) }),
      ),
    ],
    [reportPod('p1', { ready: 'False' })],
    [removePod('p2')],
  ],
  'named-port-missing-in-some-pods': (at) => [
    [
      createService('web', { spec: { ports: named } }),
      createPod('p1', { ips: [at.four(1)], ports: http(8080) }),
      createPod('p2', { ips: [at.four(2)] }),
    ],
    [removePod('p1')],
  ],
  'one-of-two-named-ports-missing': (at) => [
    [
      createService('web', {
        spec: { ports: [...named, { name: 'metrics', port: 9100, targetPort: 'metrics' }] },
      }),
      createPod('p1', {
        ips: [at.four(1)],
        ports: [...http(8080), { name: 'metrics', containerPort: 9100 }],
      }),
      createPod('p2', { ips: [at.four(2)], ports: http(8080) }),
    ],
    [reportPod('p2', { ready: 'False' })],
  ],
  'sidecar-port': (at) => [
    [
      createService('web', { spec: { ports: named } }),
      createPod('p1', { ips: [at.four(1)], sidecar: http(9000) }),
      createPod('p2', { ips: [at.four(2)], ports: http(8080), sidecar: http(9000) }),
    ],
    [reportPod('p1', { ready: 'False' })],
  ],
  'ports-replaced': (at) => [
    [createService('web'), ...pods(at, 3)],
    [specOfService('web', { ports: [{ name: 'a', port: 81, targetPort: 8081 }] })],
    [specOfService('web', { ports: [{ name: 'a', port: 82, targetPort: 8081 }] })],
  ],
  'port-added': (at) => [
    [
      createService('web', { spec: { ports: [{ name: 'a', port: 80, targetPort: 8080 }] } }),
      ...pods(at, 3),
    ],
    [
      specOfService('web', {
        ports: [
          { name: 'a', port: 80, targetPort: 8080 },
          { name: 'b', port: 53, targetPort: 53, protocol: 'UDP' },
        ],
      }),
    ],
  ],
  'app-protocol-changed': (at) => [
    [
      createService('web', { spec: { ports: [{ name: 'a', port: 80, appProtocol: 'http' }] } }),
      ...pods(at, 2),
    ],
    [specOfService('web', { ports: [{ name: 'a', port: 80, appProtocol: 'kubernetes.io/h2c' }] })],
    [specOfService('web', { ports: [{ name: 'a', port: 80 }] })],
  ],
};

const mine = ({ four }: Addresses): SubsetShape[] => [
  { ready: [four(1), four(2)], notReady: [four(3)] },
];
const bare = { spec: { selector: undefined } };

const byHand: Readonly<Record<string, Steps>> = {
  'mirrored-endpoints': (at) => [
    [createService('web', bare), createEndpoints('web', mine(at))],
    [changeEndpoints('web', [{ ready: [at.four(1)] }])],
    [changeEndpoints('web', [])],
  ],
  'mirrored-subsets-with-the-same-ports': (at) => [
    [
      createService('web', bare),
      createEndpoints('web', [
        { ready: [at.four(1)] },
        { ready: [at.four(2)], notReady: [at.four(1)] },
      ]),
    ],
  ],
  'mirrored-two-families': (at) => [
    [
      createService('web', bare),
      createEndpoints('web', [{ ready: [at.four(1), at.six(1)] }], { labels: { team: 'a' } }),
    ],
    [labelEndpoints('web', { labels: { team: 'b' } })],
  ],
  'mirror-skip-label-added': (at) => [
    [createService('web', bare), createEndpoints('web', mine(at))],
    [labelEndpoints('web', { labels: { 'endpointslice.kubernetes.io/skip-mirror': 'true' } })],
    [labelEndpoints('web', { labels: { 'endpointslice.kubernetes.io/skip-mirror': null } })],
  ],
  'mirror-leader-annotation': (at) => [
    [createService('web', bare), createEndpoints('web', mine(at), { annotations: leader })],
    [labelEndpoints('web', { annotations: { 'control-plane.alpha.kubernetes.io/leader': null } })],
  ],
  'mirrored-endpoints-deleted': (at) => [
    [createService('web', bare), createEndpoints('web', mine(at))],
    [deleteEndpoints('web')],
  ],
  'mirrored-service-deleted': (at) => [
    [createService('web', bare), createEndpoints('web', mine(at))],
    [deleteService('web')],
  ],
  'endpoints-without-service': (at) => [
    [createEndpoints('alone', mine(at))],
    [createService('alone', bare)],
  ],
  'slice-of-another-manager': (at) => [
    [
      createService('web'),
      ...pods(at, 2),
      createSlice('web', [at.four(9)], 'my-controller.example.com'),
    ],
    [reportPod('p1', { ready: 'False' })],
  ],
  'slice-edited-by-user-is-repaired': (at) => [
    [createService('web'), ...pods(at, 3)],
    [editSlice('web', 'all endpoints not ready', notReadyOf)],
  ],
  'slice-deleted-by-user-is-restored': (at) => [
    [createService('web'), ...pods(at, 3)],
    [editSlice('web', 'deleted', null)],
  ],
  'mirrored-slice-edited-by-user': (at) => [
    [createService('web', bare), createEndpoints('web', mine(at))],
    [editSlice('web', 'all endpoints not ready', notReadyOf)],
  ],
  'endpoints-edited-by-user-not-repaired': (at) => [
    [createService('web'), ...pods(at, 3)],
    [changeEndpoints('web', [{ ready: [at.four(9)] }])],
    [reportPod('p1', { ready: 'False' })],
  ],
  'endpoints-deleted-by-user-are-restored': (at) => [
    [createService('web'), ...pods(at, 3)],
    [deleteEndpoints('web')],
  ],
};

const large: Readonly<Record<string, Steps>> = {
  'more-pods-than-a-slice-holds': (at) => [
    [createService('web'), ...pods(at, 130)],
    Array.from({ length: 40 }, (_, index) => removePod(`p${index + 1}`)),
    [reportPod('p60', { ready: 'False' })],
  ],
};

/** Every directed case by name. */
export const directed = { ...ofPods, ...onNodes, ...ofServices, ...ofPorts, ...byHand, ...large };

// Random cases.

type Kind = 'selector' | 'headless' | 'custom';

/** What a random case has so far. */
interface Draft {
  readonly random: () => number;
  readonly addresses: Addresses;
  readonly kind: Kind;
  /** By name: the phase of its life. */
  readonly living: Map<string, 'running' | 'terminating'>;
  readonly services: Map<string, 'here' | 'gone'>;
  made: number;
}

const below = ({ random }: Draft, count: number): number => Math.floor(random() * count);

function oneOf<T>(draft: Draft, list: readonly [T, ...T[]]): T {
  return list[below(draft, list.length)] ?? list[0];
}

const shapes: readonly [object, ...object[]] = [
  {},
  {},
  { type: 'NodePort' },
  { type: 'LoadBalancer' },
  dual,
  { publishNotReadyAddresses: true },
  { trafficDistribution: 'PreferClose' },
  { trafficDistribution: 'PreferSameZone' },
  { trafficDistribution: 'PreferSameNode' },
  { ports: named },
  { ports: [...named, { name: 'dns', port: 53, targetPort: 5353, protocol: 'UDP' }] },
  { selector: { app: 'web', v: '2' } },
];

function drawService(draft: Draft, name: string): Operation {
  const ports = oneOf(draft, [{}, {}, { appProtocol: 'http' }]);
  const spec: Record<string, unknown> = {
    ports: [{ port: 80, targetPort: 8080, ...ports }],
    ...oneOf(draft, shapes),
  };
  if (draft.kind === 'headless') Object.assign(spec, headless, { type: 'ClusterIP' });
  if (draft.kind === 'custom') spec.selector = undefined;
  draft.services.set(name, 'here');
  const labels = oneOf<Record<string, string>>(draft, [{}, { team: 'a' }, { env: 'test' }]);
  return createService(name, { spec, labels });
}

const otherPhases = ['Pending', 'Succeeded', 'Failed', 'Unknown'] as const;

const unusual = ['node-x1', 'node-x2', 'node-notready', 'node-cp', 'node-gone'] as const;

function drawPod(draft: Draft): Operation {
  const k = ++draft.made;
  const name = `p${k}`;
  draft.living.set(name, 'running');
  const { four, six } = draft.addresses;
  const ips = oneOf(draft, [[four(k)], [four(k)], [four(k), six(k)], [six(k)], []]);
  const node = draft.random() < 0.06 ? oneOf(draft, unusual) : oneOf(draft, workers);
  const phase = draft.random() < 0.85 ? 'Running' : oneOf(draft, otherPhases);
  return createPod(name, {
    ...{ ips, node, phase },
    ready: oneOf(draft, ['True', 'True', 'True', 'False', null]),
    labels: oneOf(draft, [{ app: 'web' }, { app: 'web', v: '2' }, { app: 'web' }, { app: 'db' }]),
    ports: oneOf(draft, [http(8080), http(8081), []]),
    ...(draft.random() < 0.1 ? { sidecar: http(9000) } : {}),
    ...(draft.random() < 0.2
      ? { spec: { hostname: name, subdomain: oneOf(draft, ['web', 'other']) } }
      : {}),
  });
}

function changePod(draft: Draft): Operation {
  const names = [...draft.living.keys()];
  const name = names[below(draft, names.length)];
  if (name === undefined || names.length < 2) return drawPod(draft);
  const { four } = draft.addresses;
  if (draft.living.get(name) === 'terminating' && draft.random() < 0.7) {
    draft.living.delete(name);
    return removePod(name);
  }
  const kind = below(draft, 10);
  if (kind < 4) return reportPod(name, { ready: oneOf(draft, ['True', 'False', null]) });
  if (kind < 6) {
    draft.living.set(name, 'terminating');
    return deletePod(name);
  }
  if (kind === 6) return labelPod(name, { app: oneOf(draft, ['web', 'db']) });
  if (kind === 7) {
    const phase = oneOf(draft, otherPhases);
    return reportPod(name, { phase, ready: oneOf(draft, ['True', 'False']) });
  }
  if (kind === 8) return reportPod(name, { ips: [four(100 + ++draft.made)], ready: 'True' });
  return annotatePod(name);
}

const patches: readonly [object, ...object[]] = [
  { trafficDistribution: 'PreferClose' },
  { trafficDistribution: 'PreferSameNode' },
  { trafficDistribution: null },
  { publishNotReadyAddresses: true },
  { publishNotReadyAddresses: false },
  { ports: [{ name: 'a', port: 81, targetPort: 8081 }] },
  { ports: [{ name: 'a', port: 82, targetPort: 'http' }] },
  { ipFamilyPolicy: 'PreferDualStack' },
  { selector: { app: 'db', v: null } },
  { selector: { app: 'web', v: null } },
];

function changeOne(draft: Draft): Operation {
  const names = [...draft.services.keys()];
  const name = names[below(draft, names.length)] ?? 'web';
  if (draft.services.get(name) === 'gone') return drawService(draft, name);
  const kind = below(draft, 8);
  if (kind === 0) {
    draft.services.set(name, 'gone');
    return deleteService(name);
  }
  if (kind === 1) {
    return changeService(name, { metadata: { labels: { team: oneOf(draft, ['b', null]) } } });
  }
  if (kind === 2)
    return changeService(name, { metadata: mode(oneOf(draft, ['Auto', 'Disabled'])) });
  if (kind === 3 && draft.random() < 0.3) return deleteEndpoints(name);
  if (kind === 4 && draft.random() < 0.3) return editSlice(name, 'not ready', notReadyOf);
  return specOfService(name, oneOf(draft, patches));
}

function changeMine(draft: Draft): Operation {
  const { four, six } = draft.addresses;
  const some = (from: number): string[] =>
    Array.from({ length: below(draft, 4) }, (_, index) => oneOf(draft, [four, six])(from + index));
  const ports = [{ port: oneOf(draft, [8080, 8081]), name: 'a' }];
  const subsets = [{ ready: some(1), notReady: some(10), ports }, { ready: some(20) }];
  const filled = subsets.filter(({ ready, notReady = [] }) => ready.length + notReady.length > 0);
  return changeEndpoints('web', filled);
}

function randomCase(seed: number, at: number, number: number): Case {
  const random = chanceFrom(seed * 7919 + at);
  const chance = random();
  const kind: Kind = chance < 0.65 ? 'selector' : chance < 0.85 ? 'headless' : 'custom';
  const addresses = addressesOf(number);
  const draft: Draft = { random, addresses, kind, living: new Map(), services: new Map(), made: 0 };
  const first = [drawService(draft, 'web')];
  if (random() < 0.25) first.push(drawService(draft, 'web-2'));
  if (kind === 'custom') first.push(createEndpoints('web', mine(addresses)));
  for (let count = below(draft, 7); count > 0; count--) first.push(drawPod(draft));
  const steps = [first];
  for (let left = 1 + below(draft, 4); left > 0; left--) {
    const operations: Operation[] = [];
    for (let count = below(draft, 4); count > 0; count--) {
      const isMine = kind === 'custom' && random() < 0.6;
      const change = random();
      if (isMine) operations.push(changeMine(draft));
      else if (change < 0.2) operations.push(drawPod(draft));
      else operations.push(change < 0.75 ? changePod(draft) : changeOne(draft));
    }
    steps.push(operations);
  }
  const name = `r${String(at).padStart(4, '0')}-s${seed}-small-${kind}`;
  return { name, steps };
}

/** All directed cases and `count` random ones. */
export function casesOf(seed: number, count: number): Case[] {
  const named = Object.entries(directed).map(([name, steps], at) => ({
    name,
    steps: steps(addressesOf(at)),
  }));
  const random = Array.from({ length: count }, (_, at) => randomCase(seed, at, named.length + at));
  return [...named, ...random];
}
