// The small cluster of the end-to-end test: seven nodes in three zones, Services of all kinds and
// their pods. There is no scheduler and no kubelet: every pod is created on its node, and its
// status is written as a kubelet would write it, step by step.

import { setTimeout as sleep } from 'node:timers/promises';

import type { Version } from './binaries.ts';
import type { Client } from './controlplane.ts';

export interface Node {
  readonly name: string;
  readonly zone: string;
  /** 1 to 250: the last byte of its address. */
  readonly number: number;
}

const node = (id: string, number: number): Node => ({
  name: `node-${id}`,
  zone: `zone-${id.charAt(0)}`,
  number,
});

const workers = [
  node('a1', 1),
  node('a2', 2),
  node('b1', 3),
  node('b2', 4),
  node('c1', 5),
  node('c2', 6),
] as const;

/** A node that runs no pod and has no part in hints. */
const controlPlane = node('a0', 7);

const nodes: readonly Node[] = [...workers, controlPlane];

type State = 'ready' | 'unready' | 'pending' | 'terminating' | 'succeeded' | 'failed';

interface Port {
  readonly containerPort: number;
  readonly name?: string;
  readonly protocol?: string;
}

/** The pods of one Service; one port, IPv4, ready, if nothing else is said. */
export interface Pods {
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
export interface Plan {
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

const hostIP = (node: Node): string => `10.0.0.${node.number}`;

const zoneLabel = 'topology.kubernetes.io/zone';

/** Moves a Node to a zone; null: to none. */
export const setZone = ({ call }: Client, node: string, zone: string | null): Promise<unknown> =>
  call('PATCH', `/api/v1/nodes/${node}`, { metadata: { labels: { [zoneLabel]: zone } } });

export async function createNode({ call }: Client, node: Node): Promise<void> {
  const { name, zone } = node;
  const labels = {
    'kubernetes.io/hostname': name,
    [zoneLabel]: zone,
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

/** Gives out addresses, none of 65,536 twice; `range` below 16: none of another range either. */
export function addressing(range = 0): (families: readonly (4 | 6)[]) => string[] {
  let count = 0;
  return (families) => {
    count++;
    const four = `10.${240 + range}.${(count >> 8) & 255}.${count & 255}`;
    const six = `fd00:10:${240 + range}::${count.toString(16)}`;
    return families.map((family) => (family === 4 ? four : six));
  };
}

export interface Pod {
  readonly namespace: string;
  readonly name: string;
  readonly node: Node;
  readonly ips: readonly string[];
  readonly state: State;
  readonly labels: Record<string, string>;
  readonly spec: object;
  readonly ports: readonly Port[];
}

const podsIn = (namespace: string): string => `/api/v1/namespaces/${namespace}/pods`;

/** Creates a pod on its node; no kubelet has said anything of it yet. */
export async function bindPod({ call }: Client, pod: Pod): Promise<void> {
  const containers = [{ name: 'main', image: 'example.com/main', ports: pod.ports }];
  const spec = { ...pod.spec, nodeName: pod.node.name, containers };
  const metadata = { name: pod.name, labels: pod.labels };
  await call('POST', podsIn(pod.namespace), { metadata, spec });
}

/** Writes the status of a pod, as its kubelet would; a pending one has no address yet. */
export async function reportState({ call }: Client, pod: Pod, state: State): Promise<void> {
  const ips = state === 'pending' ? [] : pod.ips;
  const path = `${podsIn(pod.namespace)}/${pod.name}/status`;
  await call('PATCH', path, statusOf(state, pod.node, ips));
}

/** Asks for a pod to end; `now`: it is gone, else it is terminating until its kubelet says so. */
export async function deletePod({ call }: Client, pod: Pod, now: boolean): Promise<void> {
  const options = { kind: 'DeleteOptions', apiVersion: 'v1', gracePeriodSeconds: now ? 0 : 30 };
  await call('DELETE', `${podsIn(pod.namespace)}/${pod.name}`, options);
}

/** Creates a pod and takes it through the states that a kubelet reports on the way to its own. */
async function createPod(client: Client, pod: Pod): Promise<void> {
  await bindPod(client, pod);
  await reportState(client, pod, 'pending');
  if (pod.state === 'pending') return;
  await reportState(client, pod, 'unready');
  if (pod.state === 'unready') return;
  // A pod that fails without having been ready is nothing that the controllers wake up for.
  await reportState(client, pod, 'ready');
  if (pod.state !== 'ready') await reportState(client, pod, pod.state);
  // Its kubelet never says that it is gone, so it stays.
  if (pod.state === 'terminating') await deletePod(client, pod, false);
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
      ips: pods.hostNetwork ? [hostIP(node)] : addresses(pods.families ?? [4]),
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

export async function createService(
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

/** Whether a version knows all ways to say where traffic shall go. */
export const isLater = (version: Version): boolean => Number(version.split('.')[1]) >= 34;

export async function createNodes(client: Client): Promise<void> {
  for (const node of nodes) await createNode(client, node);
}

export async function createCluster(client: Client, version: Version): Promise<void> {
  const plans = { shop: [...shop, ...steered(isLater(version))], platform };
  const addresses = addressing();
  await createNodes(client);
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

// A cluster of the size that churns: hundreds of Services of all kinds in two namespaces, with some
// ten pods each, on nodes in three zones. The current state is known here, so that
// churn.ts knows what it can change.

/** A Service and its pods. */
export interface Member {
  readonly namespace: string;
  readonly name: string;
  readonly families: readonly (4 | 6)[];
  /** Its Endpoints are written by hand. */
  readonly selectorless: boolean;
  readonly manifest: object;
  readonly pods: Pod[];
  /** Pods that it ever had. */
  made: number;
  /** Locked by the worker that changes it. */
  busy: boolean;
}

export interface Fleet {
  readonly members: readonly Member[];
  /** Those that run pods. */
  readonly nodes: Node[];
  readonly addresses: ReturnType<typeof addressing>;
  /** Nodes that there ever were. */
  nodesMade: number;
}

export interface Size {
  readonly services: number;
  readonly pods: number;
  readonly nodes: number;
}

const fleetPort = { name: 'http', port: 80, targetPort: 8080 };
const metricsPort = { name: 'metrics', port: 9100, targetPort: 'metrics' };

interface Kind {
  readonly spec: object;
  readonly families?: readonly (4 | 6)[];
  readonly annotations?: object;
  readonly selectorless?: boolean;
}

const kinds: readonly [Kind, ...Kind[]] = [
  { spec: { ports: [fleetPort] } },
  { spec: { clusterIP: 'None', ports: [fleetPort] } },
  { spec: { ipFamilyPolicy: 'RequireDualStack', ports: [fleetPort] }, families: [4, 6] },
  { spec: { ports: [{ ...fleetPort, targetPort: 'http' }, metricsPort] } },
  { spec: { clusterIP: 'None', publishNotReadyAddresses: true, ports: [fleetPort] } },
  { spec: { ports: [fleetPort], trafficDistribution: 'PreferClose' } },
  { spec: { type: 'NodePort', ports: [fleetPort] } },
  { spec: { type: 'LoadBalancer', externalTrafficPolicy: 'Local', ports: [fleetPort] } },
  { spec: { ports: [{ name: 'dns', port: 53, protocol: 'UDP', targetPort: 5353 }] } },
  { spec: { ports: [fleetPort, metricsPort] } },
  { spec: { ports: [fleetPort] }, annotations: { 'service.kubernetes.io/topology-mode': 'Auto' } },
  { spec: { ports: [{ port: 80 }] }, selectorless: true },
];

const namespaces = ['fleet-a', 'fleet-b'] as const;

/** Where more than a thousand pods are, if there are as many. */
export const crowded = namespaces[0];

function memberAt(index: number): Member {
  const kind = kinds[index % kinds.length] ?? kinds[0];
  const name = `service-${index}`;
  const selectorless = kind.selectorless ?? false;
  const selector = selectorless ? {} : { selector: { app: name } };
  return {
    namespace: namespaces[Math.floor(index / kinds.length) % namespaces.length] ?? crowded,
    name,
    families: kind.families ?? [4],
    selectorless,
    manifest: {
      metadata: { name, labels: { app: name, team: 'fleet' }, annotations: kind.annotations },
      spec: { ...selector, ...kind.spec },
    },
    pods: [],
    made: 0,
    busy: false,
  };
}

export const servicePath = ({ namespace, name }: Member): string =>
  `/api/v1/namespaces/${namespace}/services/${name}`;

export const endpointsPath = ({ namespace, name }: Member): string =>
  `/api/v1/namespaces/${namespace}/endpoints/${name}`;

export const above = (path: string): string => path.slice(0, path.lastIndexOf('/'));

/** A new pod of a Service on a node, which is not created by that. */
export function newPod(fleet: Fleet, member: Member, node: Node): Pod {
  const index = member.made++;
  return {
    namespace: member.namespace,
    name: `${member.name}-${index}`,
    node,
    ips: fleet.addresses(member.families),
    state: 'ready',
    labels: { app: member.name, fleet: 'all', track: index % 4 === 0 ? 'canary' : 'stable' },
    spec: {},
    // As after an update that moved a port, every other generation.
    ports: [
      { name: 'http', containerPort: 8080 + (Math.floor(index / 20) % 2) },
      { name: 'metrics', containerPort: 9100 },
    ],
  };
}

export async function addNode(client: Client, fleet: Fleet): Promise<Node> {
  const number = ++fleet.nodesMade;
  const zone = `zone-${'abc'.charAt(number % 3)}`;
  const node = { name: `fleet-${number}`, zone, number: 8 + (number % 240) };
  await createNode(client, node);
  return node;
}

/** Addresses of a selectorless Service, written by hand; different ones for every `turn`. */
export function handWritten(member: Member, turn: number): object {
  const place = Number(member.name.slice(member.name.indexOf('-') + 1));
  const ip = (index: number): string => `192.0.${place % 250}.${1 + ((turn + index) % 250)}`;
  return {
    metadata: { name: member.name, labels: { app: member.name, turn: String(turn % 3) } },
    subsets: [
      {
        addresses: [{ ip: ip(0) }, { ip: ip(1) }],
        ...(turn % 2 === 0 ? {} : { notReadyAddresses: [{ ip: ip(2) }] }),
        ports: [{ port: 80 + (turn % 4 === 3 ? 1 : 0) }],
      },
    ],
  };
}

async function createMember(client: Client, fleet: Fleet, member: Member, pods: number) {
  const { call } = client;
  await call('POST', above(servicePath(member)), member.manifest);
  if (member.selectorless) {
    await call('POST', above(endpointsPath(member)), handWritten(member, 0));
    return;
  }
  for (let index = 0; index < pods; index++) {
    const node = fleet.nodes[(index * 7 + fleet.members.indexOf(member)) % fleet.nodes.length];
    if (node === undefined) throw new Error('A fleet needs nodes');
    const pod = newPod(fleet, member, node);
    await bindPod(client, pod);
    await reportState(client, pod, 'ready');
    member.pods.push(pod);
  }
}

/** Runs a number of workers, which take tasks from one queue. */
export async function inParallel<T>(
  list: readonly T[],
  workers: number,
  work: (one: T) => Promise<unknown>,
): Promise<void> {
  const left = list[Symbol.iterator]();
  const worker = async (): Promise<void> => {
    for (const one of left) await work(one);
  };
  await Promise.all(Array.from({ length: workers }, worker));
}

/** The Nodes of a fleet, and what will run on them, which is not created yet. */
export async function createNodesOf(client: Client, size: Size): Promise<Fleet> {
  const members = Array.from({ length: size.services }, (_, index) => memberAt(index));
  const fleet: Fleet = { members, nodes: [], addresses: addressing(1), nodesMade: 0 };
  for (const name of namespaces)
    await client.call('POST', '/api/v1/namespaces', { metadata: { name } });
  while (fleet.nodes.length < size.nodes) fleet.nodes.push(await addNode(client, fleet));
  return fleet;
}

export async function createMembersOf(client: Client, fleet: Fleet, size: Size): Promise<void> {
  const { members } = fleet;
  const running = members.filter(({ selectorless }) => !selectorless).length;
  const each = Math.ceil(size.pods / running);
  await inParallel(members, 12, (member) => createMember(client, fleet, member, each));
}
