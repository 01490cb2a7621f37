// Random Services and EndpointSlices for Cilium, created in a real API server, which allocates the
// addresses. No controller writes the slices, so that they can have every form.
// `node test/cilium/objects.ts SEED COUNT` prints what a seed makes.

import { inParallel } from '../controlplane/cluster.ts';
import { randomBy } from '../controlplane/churn.ts';
import type { Client, Thing } from '../controlplane/controlplane.ts';

export type ObjectLists = Readonly<
  Record<'nodes' | 'services' | 'endpointslices' | 'pods', readonly Thing[]>
>;

/** Where all objects are. */
export const namespace = 'cilium-test';

/** Choices that a seed repeats. */
interface Dice {
  readonly chance: (probability: number) => boolean;
  /** From 0 on. */
  readonly below: (count: number) => number;
  readonly oneOf: <T>(list: readonly T[]) => T;
}

/** Choices that a seed repeats. */
export function diceOf(seed: number): Dice {
  const random = randomBy(seed);
  const below = (count: number): number => Math.floor(random() * count);
  return {
    below,
    chance: (probability) => random() < probability,
    oneOf: (list) => {
      const one = list[below(list.length)];
      if (one === undefined) throw new Error('Nothing to choose from');
      return one;
    },
  };
}

export const nodeNames = ['node-a', 'node-b', 'node-c'] as const;

const zones: Readonly<Record<string, string>> = { 'node-a': 'zone-1', 'node-b': 'zone-2' };

/** node-c has no zone. */
function nodeOf(name: string, at: number): object {
  const zone = zones[name];
  const labels = {
    'kubernetes.io/hostname': name,
    'service.cilium.io/node': at === 0 ? 'here' : 'there',
    ...(zone === undefined ? {} : { 'topology.kubernetes.io/zone': zone }),
  };
  return {
    metadata: { name, labels },
    spec: { podCIDRs: [`10.244.${at + 1}.0/24`, `fd00:10:244:${at + 1}::/64`] },
    status: {
      addresses: [
        { type: 'InternalIP', address: `172.18.0.${at + 2}` },
        { type: 'InternalIP', address: `fd00:18::${at + 2}` },
      ],
    },
  };
}

interface Port {
  readonly name?: string;
  readonly protocol: string;
  readonly port: number;
}

const portSets: readonly (readonly Port[])[] = [
  [{ name: 'http', protocol: 'TCP', port: 80 }],
  [{ protocol: 'TCP', port: 8080 }],
  [
    { name: 'http', protocol: 'TCP', port: 80 },
    { name: 'metrics', protocol: 'TCP', port: 9090 },
  ],
  [
    { name: 'dns', protocol: 'UDP', port: 53 },
    { name: 'dns-tcp', protocol: 'TCP', port: 53 },
  ],
  [{ name: 'ngap', protocol: 'SCTP', port: 38_412 }],
];

const familySets = [['IPv4'], ['IPv4'], ['IPv6'], ['IPv4', 'IPv6']] as const;
type Family = 'IPv4' | 'IPv6';

interface Plan {
  readonly name: string;
  readonly service: { readonly metadata: object; readonly spec: Readonly<Record<string, unknown>> };
  readonly ingress: readonly object[];
  readonly slices: readonly object[];
}

const annotationsOf = ({ chance, oneOf }: Dice): Record<string, string> => ({
  ...(chance(0.1) ? { 'service.cilium.io/lb-algorithm': oneOf(['maglev', 'random']) } : {}),
  ...(chance(0.1) ? { 'service.cilium.io/forwarding-mode': oneOf(['dsr', 'snat']) } : {}),
  ...(chance(0.1) ? { 'service.cilium.io/src-ranges-policy': oneOf(['deny', 'allow']) } : {}),
  ...(chance(0.05)
    ? { 'service.cilium.io/type': oneOf(['ClusterIP', 'NodePort', 'LoadBalancer']) }
    : {}),
  ...(chance(0.05) ? { 'service.cilium.io/node': oneOf(['here', 'there']) } : {}),
  ...(chance(0.1) ? { 'service.kubernetes.io/topology-mode': 'Auto' } : {}),
});

const labelsOf = ({ chance, oneOf }: Dice): Record<string, string> => ({
  ...(chance(0.08)
    ? { 'service.kubernetes.io/service-proxy-name': oneOf(['cilium', 'mesh']) }
    : {}),
  ...(chance(0.04) ? { 'service.kubernetes.io/headless': '' } : {}),
});

const ranges: Readonly<Record<Family, string>> = {
  IPv4: '203.0.113.0/24',
  IPv6: '2001:db8:1::/64',
};

function specOf(dice: Dice, families: readonly Family[], at: number, ports: readonly Port[]) {
  const { chance, oneOf, below } = dice;
  const type = oneOf(['ClusterIP', 'NodePort', 'NodePort', 'LoadBalancer', 'LoadBalancer']);
  const isBalanced = type === 'LoadBalancer';
  const isExternal = chance(0.2);
  const timeout = { clientIP: { timeoutSeconds: oneOf([1, 60, 10_800, 86_400]) } };
  return {
    type,
    ports,
    ipFamilies: families,
    ipFamilyPolicy: families.length === 2 ? 'RequireDualStack' : 'SingleStack',
    ...(chance(0.25) ? { sessionAffinity: 'ClientIP', sessionAffinityConfig: timeout } : {}),
    ...(chance(0.25) ? { internalTrafficPolicy: 'Local' } : {}),
    ...(type !== 'ClusterIP' && chance(0.35) ? { externalTrafficPolicy: 'Local' } : {}),
    ...(isExternal ? { externalIPs: [`198.18.${Math.floor(at / 200)}.${(at % 200) + 1}`] } : {}),
    ...(isBalanced && chance(0.4)
      ? { loadBalancerSourceRanges: families.map((family) => ranges[family]) }
      : {}),
    ...(isBalanced && chance(0.1)
      ? { loadBalancerClass: oneOf(['io.cilium/l2-announcer', 'io.cilium/bgp-control-plane']) }
      : {}),
    ...(chance(0.3)
      ? {
          trafficDistribution: oneOf(['PreferClose', 'PreferSameZone', 'PreferSameNode']),
        }
      : {}),
    ...(isBalanced && below(8) === 0 ? { allocateLoadBalancerNodePorts: false } : {}),
  };
}

function ingressOf({ chance, below }: Dice, families: readonly Family[], at: number): object[] {
  if (below(10) === 0) return [{ hostname: 'lb.example.org' }];
  return families.map((family) => ({
    ip: family === 'IPv4' ? `192.0.2.${(at % 250) + 1}` : `2001:db8:2::${at + 1}`,
    ...(chance(0.1) ? { ipMode: 'Proxy' } : {}),
  }));
}

function endpointOf(dice: Dice, address: string): object {
  const { chance, below, oneOf } = dice;
  const node = chance(0.95) ? oneOf(nodeNames) : undefined;
  const state = below(10);
  const conditions =
    state < 6
      ? { ready: true, serving: true, terminating: false }
      : state < 7
        ? {}
        : state < 8
          ? { ready: false, serving: false, terminating: false }
          : { ready: false, serving: state === 8, terminating: true };
  const zone = node === undefined ? undefined : zones[node];
  return {
    addresses: [address],
    conditions,
    ...(node === undefined ? {} : { nodeName: node }),
    ...(zone === undefined || chance(0.1) ? {} : { zone }),
    ...(chance(0.6) ? { hints: { forZones: [{ name: zone ?? 'zone-1' }] } } : {}),
  };
}

function slicesOf(
  dice: Dice,
  name: string,
  families: readonly Family[],
  at: number,
  ports: readonly Port[],
) {
  const { chance, below } = dice;
  return families.flatMap((family) =>
    Array.from({ length: chance(0.15) ? 0 : 1 + below(2) }, (_, slice) => {
      const count = below(6);
      const isAlike = chance(0.5);
      const endpoints = Array.from({ length: count }, (_, index) => {
        const last = slice * 10 + index + 1;
        const ip =
          family === 'IPv4' ? `10.244.${at}.${last}` : `fd00:10:244:ff:1:1:${at + 1}:${last}`;
        const own = endpointOf(dice, ip);
        const ready = { ready: true, serving: true, terminating: false };
        return isAlike ? { ...own, conditions: ready } : own;
      });
      return {
        metadata: {
          name: `${name}-${family.toLowerCase()}-${slice}`,
          labels: { 'kubernetes.io/service-name': name },
        },
        addressType: family,
        endpoints,
        ports: ports.map((port) => ({ ...port, port: port.port + (port.port < 1000 ? 8000 : 0) })),
      };
    }),
  );
}

function planOf(dice: Dice, at: number): Plan {
  const families = dice.oneOf(familySets);
  const ports = dice.oneOf(portSets);
  const name = `service-${at}`;
  const isHeadless = dice.chance(0.04);
  const labels = labelsOf(dice);
  const spec = isHeadless
    ? {
        clusterIP: 'None',
        ports,
        ipFamilies: families,
        ipFamilyPolicy: families.length === 2 ? 'RequireDualStack' : 'SingleStack',
      }
    : specOf(dice, families, at, ports);
  const slices = slicesOf(dice, name, families, at, ports);
  return {
    name,
    service: { metadata: { name, labels, annotations: annotationsOf(dice) }, spec },
    ingress: 'type' in spec && spec.type === 'LoadBalancer' ? ingressOf(dice, families, at) : [],
    // The controller copies these labels.
    slices: slices.map((slice) => ({
      ...slice,
      metadata: { ...slice.metadata, labels: { ...labels, ...slice.metadata.labels } },
    })),
  };
}

const services = `/api/v1/namespaces/${namespace}/services`;
const slices = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;

/** The nodes and the namespace, once. */
export async function createNodes({ call }: Client): Promise<void> {
  await call('POST', '/api/v1/namespaces', { metadata: { name: namespace } });
  for (const [at, name] of nodeNames.entries()) {
    const node = nodeOf(name, at) as { status: object };
    await call('POST', '/api/v1/nodes', node);
    await call('PATCH', `/api/v1/nodes/${name}/status`, { status: node.status });
  }
}

async function createPlan({ call }: Client, plan: Plan): Promise<void> {
  await call('POST', services, plan.service);
  const status = { loadBalancer: { ingress: plan.ingress } };
  if (plan.ingress.length > 0) await call('PATCH', `${services}/${plan.name}/status`, { status });
  for (const slice of plan.slices) await call('POST', slices, slice);
}

function plansOf(seed: number, count: number): Plan[] {
  const dice = diceOf(seed);
  return Array.from({ length: count }, (_, at) => planOf(dice, at));
}

/** Replaces all Services and slices by those of a seed. */
export async function createObjects(client: Client, seed: number, count: number): Promise<void> {
  const plans = plansOf(seed, count);
  await deleteObjects(client);
  await inParallel(plans, 8, (plan) => createPlan(client, plan));
}

/** Deletes all Services and slices. */
export async function deleteObjects(client: Client): Promise<void> {
  const old = ((await client.call('GET', services)) as { items: Thing[] }).items;
  await inParallel(old, 8, ({ metadata }) => client.call('DELETE', `${services}/${metadata.name}`));
  await client.call('DELETE', slices);
}

const paths: Readonly<Record<keyof ObjectLists, string>> = {
  nodes: '/api/v1/nodes',
  services: '/api/v1/services',
  endpointslices: '/apis/discovery.k8s.io/v1/endpointslices',
  pods: '/api/v1/pods',
};

/** The objects as the API server has them. */
export async function listObjects({ call }: Client): Promise<ObjectLists> {
  const lists = await Promise.all(
    Object.entries(paths).map(async ([kind, path]) => {
      const { items } = (await call('GET', path)) as { items: Thing[] };
      return [kind, items.map(withoutManagedFields)] as const;
    }),
  );
  return Object.fromEntries(lists) as unknown as ObjectLists;
}

function withoutManagedFields(thing: Thing): Thing {
  const metadata = { ...thing.metadata };
  delete metadata.managedFields;
  return { ...thing, metadata };
}

if (import.meta.main) {
  const [seed, count] = process.argv.slice(2).map(Number);
  console.log(JSON.stringify(plansOf(seed ?? 1, count ?? 10), null, 2));
}
