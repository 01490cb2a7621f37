// The small cluster of the end-to-end test: seven nodes in three zones, Services of all kinds and
// their pods. Nobody schedules or runs anything here: every pod is created on its node, and its
// status is written as a kubelet would write it, step by step.

import { setTimeout as sleep } from 'node:timers/promises';

import type { Client } from './client.ts';
import type { Version } from './controlplane.ts';

interface Node {
  readonly name: string;
  readonly zone: string;
}

const node = (id: string): Node => ({ name: `node-${id}`, zone: `zone-${id.charAt(0)}` });

const workers = [node('a1'), node('a2'), node('b1'), node('b2'), node('c1'), node('c2')] as const;

/** A node that runs no pod and has no part in hints. */
const controlPlane = node('a0');

const nodes: readonly Node[] = [...workers, controlPlane];

type State = 'ready' | 'unready' | 'pending' | 'terminating' | 'succeeded' | 'failed';

interface Port {
  readonly containerPort: number;
  readonly name?: string;
  readonly protocol?: string;
}

/** The pods of one Service; one port, IPv4, ready, if nothing else is said. */
interface Pods {
  readonly count: number;
  readonly families?: readonly (4 | 6)[];
  readonly ports?: (index: number) => readonly Port[];
  /** By turns. */
  readonly states?: readonly [State, ...State[]];
  readonly labels?: (index: number) => Record<string, string>;
  readonly hostNetwork?: boolean;
  /** With the hostnames of a StatefulSet. */
  readonly named?: boolean;
}

/** A Service; with pods, it selects them by the label `app`. */
interface Plan {
  readonly name: string;
  readonly spec: Readonly<Record<string, unknown>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly pods?: Pods;
  /** What a user writes beside it. */
  readonly endpoints?: object;
  readonly slice?: object;
}

const http = [{ name: 'http', port: 80, targetPort: 8080 }];
const byName = [{ name: 'http', port: 80, targetPort: 'http' }];
const headless = { clusterIP: 'None' };
const both = { ipFamilyPolicy: 'RequireDualStack' };

const shop: readonly Plan[] = [
  {
    name: 'web',
    spec: { ports: http },
    pods: { count: 12, labels: (index) => (index < 4 ? { track: 'canary' } : {}) },
  },
  { name: 'web-headless', spec: { ...headless, ports: http, selector: { app: 'web' } } },
  { name: 'web-canary', spec: { ports: http, selector: { app: 'web', track: 'canary' } } },
  {
    name: 'api',
    spec: { ports: [...byName, { name: 'metrics', port: 9100, targetPort: 'metrics' }] },
    pods: {
      count: 10,
      ports: () => [
        { name: 'http', containerPort: 8080 },
        { name: 'metrics', containerPort: 9100 },
      ],
    },
  },
  {
    name: 'mixed',
    spec: { ports: byName },
    pods: { count: 8, ports: (index) => [{ name: 'http', containerPort: 8080 + (index % 2) }] },
  },
  { name: 'dual', spec: { ...both, ports: http }, pods: { count: 8, families: [4, 6] } },
  {
    name: 'db',
    spec: { ...headless, ...both, ports: [{ port: 5432 }] },
    pods: { count: 6, families: [4, 6], named: true },
  },
  {
    name: 'six',
    spec: { ipFamilies: ['IPv6'], ipFamilyPolicy: 'SingleStack', ports: http },
    pods: { count: 4, families: [6] },
  },
  {
    name: 'rolling',
    spec: { ports: http },
    pods: {
      count: 12,
      states: ['ready', 'terminating', 'unready', 'pending', 'succeeded', 'failed'],
    },
  },
  {
    name: 'early',
    spec: { ...headless, ports: http, publishNotReadyAddresses: true },
    pods: { count: 4, states: ['ready', 'unready'] },
  },
  { name: 'search', spec: { ports: http }, pods: { count: 14 } },
  { name: 'nobody', spec: { ports: http, selector: { app: 'nobody' } } },
];

/** Services with a wish where their traffic goes. */
const steered = (later: boolean): readonly Plan[] => [
  {
    name: 'near',
    spec: { ports: http, trafficDistribution: 'PreferClose' },
    pods: { count: 9, states: ['ready', 'ready', 'unready'] },
  },
  {
    name: 'same-zone',
    spec: { ports: http, trafficDistribution: later ? 'PreferSameZone' : 'PreferClose' },
    pods: { count: 6 },
  },
  {
    name: 'same-node',
    spec: { ports: http, trafficDistribution: later ? 'PreferSameNode' : 'PreferClose' },
    pods: { count: 6 },
  },
  {
    name: 'auto',
    spec: { ports: http },
    annotations: { 'service.kubernetes.io/topology-mode': 'Auto' },
    pods: { count: 12 },
  },
  {
    name: 'auto-few',
    spec: { ports: http },
    annotations: { 'service.kubernetes.io/topology-mode': 'Auto' },
    pods: { count: 2 },
  },
];

const outside = [{ addresses: [{ ip: '192.0.2.1' }, { ip: '192.0.2.2' }], ports: [{ port: 80 }] }];

const platform: readonly Plan[] = [
  { name: 'nodeport', spec: { type: 'NodePort', ports: http }, pods: { count: 6 } },
  {
    name: 'balanced',
    spec: { type: 'LoadBalancer', externalTrafficPolicy: 'Local', ports: http },
    pods: { count: 6 },
  },
  {
    name: 'dns',
    spec: {
      ports: [
        { name: 'dns', port: 53, protocol: 'UDP', targetPort: 'dns' },
        { name: 'dns-tcp', port: 53, protocol: 'TCP', targetPort: 'dns-tcp' },
      ],
    },
    pods: {
      count: 4,
      ports: () => [
        { name: 'dns', containerPort: 5353, protocol: 'UDP' },
        { name: 'dns-tcp', containerPort: 5353 },
      ],
    },
  },
  { name: 'sctp', spec: { ports: [{ port: 3868, protocol: 'SCTP' }] }, pods: { count: 2 } },
  {
    name: 'grpc',
    spec: { ports: [{ name: 'grpc', port: 443, appProtocol: 'kubernetes.io/h2c' }] },
    pods: { count: 4 },
  },
  { name: 'portless', spec: headless, pods: { count: 3 } },
  {
    name: 'no-such-port',
    spec: { ports: [{ name: 'http', port: 80, targetPort: 'nowhere' }] },
    pods: { count: 2 },
  },
  { name: 'agent', spec: { ...headless, ports: http }, pods: { count: 6, hostNetwork: true } },
  { name: 'external', spec: { type: 'ExternalName', externalName: 'example.com' } },
  { name: 'legacy', spec: { ports: [{ port: 80 }] }, endpoints: { subsets: outside } },
  {
    name: 'legacy-ports',
    spec: {
      ports: [
        { name: 'a', port: 80 },
        { name: 'b', port: 81 },
      ],
    },
    endpoints: {
      subsets: [
        {
          addresses: [{ ip: '192.0.2.11' }],
          notReadyAddresses: [{ ip: '192.0.2.12', hostname: 'slow' }],
          ports: [
            { name: 'a', port: 8080 },
            { name: 'b', port: 8081 },
          ],
        },
        { addresses: [{ ip: '192.0.2.13' }], ports: [{ name: 'a', port: 9080 }] },
      ],
    },
  },
  {
    name: 'legacy-dual',
    spec: { ...headless, ...both, ports: [{ port: 80 }] },
    endpoints: {
      subsets: [
        { addresses: [{ ip: '192.0.2.21' }, { ip: '2001:db8::21' }], ports: [{ port: 80 }] },
      ],
    },
  },
  {
    name: 'legacy-unmirrored',
    spec: { ports: [{ port: 80 }] },
    endpoints: {
      metadata: { labels: { 'endpointslice.kubernetes.io/skip-mirror': 'true' } },
      subsets: outside,
    },
  },
  { name: 'legacy-empty', spec: { ports: [{ port: 80 }] } },
  {
    name: 'foreign',
    spec: { ports: [{ port: 80 }] },
    slice: {
      addressType: 'IPv4',
      ports: [{ name: '', port: 80 }],
      endpoints: [{ addresses: ['192.0.2.31'], conditions: { ready: true } }],
    },
  },
];

const now = (): string => `${new Date().toISOString().slice(0, 19)}Z`;

const hostIP = (node: Node): string => `10.0.0.${nodes.indexOf(node) + 1}`;

async function createNode({ call }: Client, node: Node): Promise<void> {
  const { name, zone } = node;
  const labels = {
    'kubernetes.io/hostname': name,
    'topology.kubernetes.io/zone': zone,
    ...(node === controlPlane ? { 'node-role.kubernetes.io/control-plane': '' } : {}),
  };
  await call('POST', '/api/v1/nodes', { metadata: { name, labels } });
  const capacity = { cpu: '4', memory: '16Gi', pods: '110' };
  const ready = { type: 'Ready', status: 'True', reason: 'KubeletReady' };
  await call('PATCH', `/api/v1/nodes/${name}/status`, {
    status: {
      capacity,
      allocatable: capacity,
      addresses: [{ type: 'InternalIP', address: hostIP(node) }],
      conditions: [{ ...ready, lastHeartbeatTime: now(), lastTransitionTime: now() }],
    },
  });
}

const phases = {
  ready: 'Running',
  unready: 'Running',
  pending: 'Pending',
  terminating: 'Running',
  succeeded: 'Succeeded',
  failed: 'Failed',
} as const;

const isReady = (state: State): boolean => state === 'ready' || state === 'terminating';

function statusOf(state: State, node: Node, ips: readonly string[]): object {
  const conditionOf = (type: string, met: boolean): object => ({
    type,
    status: met ? 'True' : 'False',
    lastTransitionTime: now(),
  });
  return {
    status: {
      phase: phases[state],
      conditions: [
        conditionOf('PodScheduled', true),
        conditionOf('Initialized', state !== 'pending'),
        conditionOf('ContainersReady', isReady(state)),
        conditionOf('Ready', isReady(state)),
      ],
      hostIP: hostIP(node),
      hostIPs: [{ ip: hostIP(node) }],
      startTime: now(),
      ...(ips.length > 0 ? { podIP: ips[0], podIPs: ips.map((ip) => ({ ip })) } : {}),
    },
  };
}

/** Gives out addresses, as each node's network does. */
function addressing(): (node: Node, families: readonly (4 | 6)[]) => string[] {
  const used = new Map<Node, number>();
  return (node, families) => {
    const count = (used.get(node) ?? 0) + 1;
    used.set(node, count);
    const place = nodes.indexOf(node);
    const six = `fd00:10:244:${place}::${count.toString(16)}`;
    return families.map((family) => (family === 4 ? `10.244.${place}.${count}` : six));
  };
}

interface Pod {
  readonly namespace: string;
  readonly name: string;
  readonly node: Node;
  readonly ips: readonly string[];
  readonly state: State;
  readonly labels: Record<string, string>;
  readonly spec: object;
  readonly ports: readonly Port[];
}

/** Creates a pod and takes it through the states that a kubelet reports on the way to its own. */
async function createPod({ call }: Client, pod: Pod): Promise<void> {
  const path = `/api/v1/namespaces/${pod.namespace}/pods`;
  const containers = [{ name: 'main', image: 'example.com/main', ports: pod.ports }];
  const spec = { ...pod.spec, nodeName: pod.node.name, containers };
  await call('POST', path, { metadata: { name: pod.name, labels: pod.labels }, spec });
  const report = (state: State, ips: readonly string[]): Promise<unknown> =>
    call('PATCH', `${path}/${pod.name}/status`, statusOf(state, pod.node, ips));
  await report('pending', []);
  if (pod.state === 'pending') return;
  await report('unready', pod.ips);
  if (pod.state === 'unready') return;
  // A pod that fails without having been ready is nothing that the controllers wake up for.
  await report('ready', pod.ips);
  if (pod.state !== 'ready') await report(pod.state, pod.ips);
  // Its kubelet never says that it is gone, so it stays.
  if (pod.state === 'terminating') await call('DELETE', `${path}/${pod.name}`);
}

type Addresses = ReturnType<typeof addressing>;

function byTurns<T>(list: readonly [T, ...T[]], index: number): T {
  return list[index % list.length] ?? list[0];
}

async function createPods(
  client: Client,
  { namespace, app }: { namespace: string; app: string },
  pods: Pods,
  addresses: Addresses,
): Promise<void> {
  const portsOf = pods.ports ?? (() => [{ name: 'http', containerPort: 8080 }]);
  const states = pods.states ?? (['ready'] as const);
  for (let index = 0; index < pods.count; index++) {
    const node = byTurns(workers, index);
    const name = `${app}-${index}`;
    const ports = portsOf(index);
    await createPod(client, {
      namespace,
      name,
      node,
      ips: pods.hostNetwork ? [hostIP(node)] : addresses(node, pods.families ?? [4]),
      state: byTurns(states, index),
      labels: { app, ...pods.labels?.(index) },
      spec: {
        ...(pods.hostNetwork ? { hostNetwork: true } : {}),
        ...(pods.named ? { hostname: name, subdomain: app } : {}),
      },
      ports: pods.hostNetwork
        ? ports.map((port) => ({ ...port, hostPort: port.containerPort }))
        : ports,
    });
  }
}

async function createService(
  client: Client,
  namespace: string,
  plan: Plan,
  addresses: Addresses,
): Promise<void> {
  const { name, annotations, pods } = plan;
  const within = `namespaces/${namespace}`;
  const selector = pods === undefined ? {} : { selector: { app: name } };
  const metadata = { name, labels: { app: name, team: namespace }, annotations };
  const spec = { ...selector, ...plan.spec };
  await client.call('POST', `/api/v1/${within}/services`, { metadata, spec });
  if (plan.endpoints !== undefined) {
    const endpoints = { metadata: {}, ...plan.endpoints };
    Object.assign(endpoints.metadata, { name });
    await client.call('POST', `/api/v1/${within}/endpoints`, endpoints);
  }
  if (plan.slice !== undefined) {
    const labels = {
      'kubernetes.io/service-name': name,
      'endpointslice.kubernetes.io/managed-by': 'foreign.example.com',
    };
    const slice = { metadata: { name: `${name}-1`, labels }, ...plan.slice };
    await client.call('POST', `/apis/discovery.k8s.io/v1/${within}/endpointslices`, slice);
  }
  if (pods !== undefined) await createPods(client, { namespace, app: name }, pods, addresses);
}

/** A pod of no Service, older than all others. */
export const bystander = { namespace: 'platform', name: 'bystander-0' };

export async function createCluster(client: Client, version: Version): Promise<void> {
  const minor = Number(version.split('.')[1]);
  const plans = { shop: [...shop, ...steered(minor >= 34)], platform };
  const addresses = addressing();
  for (const node of nodes) await createNode(client, node);
  for (const name of Object.keys(plans)) {
    await client.call('POST', '/api/v1/namespaces', { metadata: { name } });
  }
  const app = 'bystander';
  await createPods(client, { namespace: bystander.namespace, app }, { count: 1 }, addresses);
  // Times of creation are whole seconds.
  await sleep(1000);
  const services = Object.entries(plans).flatMap(([namespace, of]) =>
    of.map((plan) => createService(client, namespace, plan, addresses)),
  );
  await Promise.all(services);
}
