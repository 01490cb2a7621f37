// A cluster of the size that churns: hundreds of Services of all kinds in two namespaces, with some
// ten pods each, on nodes in three zones. The current state is known here, so that
// churn.ts knows what it can change.

import type { Client } from './client.ts';
import type { Node, Pod } from './cluster.ts';
import { addressing, bindPod, createNode, reportState } from './cluster.ts';

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

const http = { name: 'http', port: 80, targetPort: 8080 };
const metrics = { name: 'metrics', port: 9100, targetPort: 'metrics' };

interface Kind {
  readonly spec: object;
  readonly families?: readonly (4 | 6)[];
  readonly annotations?: object;
  readonly selectorless?: boolean;
}

const kinds: readonly [Kind, ...Kind[]] = [
  { spec: { ports: [http] } },
  { spec: { clusterIP: 'None', ports: [http] } },
  { spec: { ipFamilyPolicy: 'RequireDualStack', ports: [http] }, families: [4, 6] },
  { spec: { ports: [{ ...http, targetPort: 'http' }, metrics] } },
  { spec: { clusterIP: 'None', publishNotReadyAddresses: true, ports: [http] } },
  { spec: { ports: [http], trafficDistribution: 'PreferClose' } },
  { spec: { type: 'NodePort', ports: [http] } },
  { spec: { type: 'LoadBalancer', externalTrafficPolicy: 'Local', ports: [http] } },
  { spec: { ports: [{ name: 'dns', port: 53, protocol: 'UDP', targetPort: 5353 }] } },
  { spec: { ports: [http, metrics] } },
  { spec: { ports: [http] }, annotations: { 'service.kubernetes.io/topology-mode': 'Auto' } },
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
