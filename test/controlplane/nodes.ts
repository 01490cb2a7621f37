// Nodes, live: the real kube-proxy in both modes against the real API server, each in a network
// namespace with an agent, and the auditor outside. While the cluster changes, nothing may be found
// on a node; then its rules are broken in one way after the other. Each fault must be found
// within the settle window and one round of the agent, and be gone after it was put right.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { createAccount } from './account.ts';
import { carry } from './bridge.ts';
import type { Tally } from './checks.ts';
import { report, say, secondsSince, textOfError } from './checks.ts';
import { startChurn } from './churn.ts';
import type { Client } from './client.ts';
import { awaitSettled, clientOf } from './client.ts';
import { createNode } from './cluster.ts';
import type { ControlPlane } from './controlplane.ts';
import { createMembersOf, createNodesOf } from './fleet.ts';
import { kubeProxyOf } from './kube-proxy.ts';
import type { Mode, NodeSpace } from './netns.ts';
import { agentPort, createNodeSpace, createSpace } from './netns.ts';
import type { NodeFault, Target } from './nodefaults.ts';
import { namespace, nodeFaults, putBack, rulesOf } from './nodefaults.ts';
import type { Keys, NodeFound, Outside } from './outside.ts';
import { agents, startOutside, writeKeys } from './outside.ts';
import { awaitSoon } from './stage.ts';

/** Why there can be no namespaces; null: there can. */
export function whyNoNamespaces(): string | null {
  if (process.getuid?.() !== 0) return 'not root';
  for (const program of ['ip', 'iptables', 'nft']) {
    if (spawnSync('which', [program]).status !== 0) return `no ${program}`;
  }
  const name = `ea-try-${process.pid}`;
  const made = spawnSync('ip', ['netns', 'add', name]);
  if (made.status !== 0) return made.stderr.toString().trim();
  spawnSync('ip', ['netns', 'delete', name]);
  return null;
}

/** Seconds. */
const settle = 5;
/** For the walk of the last report, the reads that confirm, and a busy machine. */
const slack = 4;

const size = { services: 60, pods: 400, nodes: 12 };

async function createTargets(client: Client): Promise<Target[]> {
  await client.call('POST', '/api/v1/namespaces', { metadata: { name: namespace } });
  const targets: Target[] = [];
  for (let index = 0; index < 10; index++) {
    const name = `web-${index}`;
    const type = index === 3 ? 'NodePort' : 'ClusterIP';
    const made = (await client.call('POST', `/api/v1/namespaces/${namespace}/services`, {
      metadata: { name },
      spec: { type, ports: [{ port: 80, targetPort: 8080 }] },
    })) as { spec: { clusterIP: string; ports: { nodePort?: number }[] } };
    const endpoints = [1, 2, 9].map((net) => `10.244.${net}.${100 + index}`);
    const nodes = ['real-iptables', 'real-nftables', undefined];
    await client.call('POST', `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`, {
      metadata: { name, labels: { 'kubernetes.io/service-name': name } },
      addressType: 'IPv4',
      ports: [{ name: '', port: 8080, protocol: 'TCP' }],
      endpoints: endpoints.map((address, at) => ({ addresses: [address], nodeName: nodes[at] })),
    });
    const { clusterIP, ports } = made.spec;
    targets.push({ name, clusterIP, nodePort: ports[0]?.nodePort ?? 0, endpoints });
  }
  return targets;
}

/** The Service of the agents, as a DaemonSet's would be. */
async function createAgents(client: Client, nodes: readonly NodeSpace[]): Promise<void> {
  const { name, namespace: within } = agents;
  await client.call('POST', `/api/v1/namespaces/${within}/services`, {
    metadata: { name },
    spec: { clusterIP: 'None', ports: [{ name: 'agent', port: agentPort }] },
  });
  await client.call('POST', `/apis/discovery.k8s.io/v1/namespaces/${within}/endpointslices`, {
    metadata: { name, labels: { 'kubernetes.io/service-name': name } },
    addressType: 'IPv4',
    ports: [{ name: 'agent', port: agentPort, protocol: 'TCP' }],
    endpoints: nodes.map(({ node, address }) => ({ addresses: [address], nodeName: node })),
  });
}

export interface Nodes {
  readonly client: Client;
  readonly nodes: readonly NodeSpace[];
  readonly outside: Outside;
  readonly targets: readonly Target[];
  readonly tally: Tally;
}

const textOf = (found: NodeFound): string => JSON.stringify(found);

/** Verdicts other than conform on our nodes. */
async function verdictsOf({ outside, nodes }: Pick<Nodes, 'nodes' | 'outside'>): Promise<string[]> {
  const page = JSON.parse(await outside.get('/api/v1/nodes')) as {
    nodes: { node: string; verdicts: Record<string, number> }[];
  };
  const own = new Set(nodes.map(({ node }) => node));
  const found = page.nodes.filter(({ node }) => own.has(node));
  const missing = own.size - found.length;
  return [
    ...(missing > 0 ? [`${missing} nodes are not judged`] : []),
    ...found
      .filter(({ verdicts }) => verdicts.conform === 0 || hasOthers(verdicts))
      .map((one) => JSON.stringify(one)),
  ];
}

const hasOthers = ({ different = 0, pending = 0, unknown = 0 }: Record<string, number>): boolean =>
  different + pending + unknown > 0;

export async function awaitConform(
  all: Pick<Nodes, 'nodes' | 'outside'>,
  seconds: number,
): Promise<string[]> {
  let wrong: string[] = [];
  const isSo = async (): Promise<boolean> => {
    wrong = await verdictsOf(all).catch((error: unknown) => [String(error)]);
    return wrong.length === 0;
  };
  return (await awaitSoon(isSo, seconds)) === null ? wrong : [];
}

async function checkChurn(all: Nodes, seconds: number): Promise<void> {
  const { client, outside, tally } = all;
  const fleet = await createNodesOf(client, size);
  await awaitSettled(client);
  await createMembersOf(client, fleet, size);
  await awaitSettled(client);
  const begun = performance.now();
  const churn = startChurn({ client, fleet, rate: 15, seed: 2 });
  while (secondsSince(begun) < seconds && churn.error() === null) await sleep(100);
  await churn.stop();
  await awaitSettled(client);
  const { standing, resolved } = await outside.findings();
  const error = churn.error();
  const wrong = [...standing, ...resolved].map(textOf);
  if (error !== null) wrong.push(textOfError(error));
  const changes = [...churn.changes.values()].reduce((sum, count) => sum + count, 0);
  const late = await awaitConform(all, 90);
  report(tally, `nodes: ${changes} changes in ${seconds} s, no finding`, [...wrong, ...late]);
}

async function checkFault(all: Nodes, of: NodeSpace, fault: NodeFault): Promise<void> {
  const { client, outside, targets, tally } = all;
  const title = `nodes: ${of.mode}, ${fault.name}`;
  const scene = { client, of, targets };
  const rules = rulesOf(of);
  const standing = async (): Promise<NodeFound[]> =>
    (await outside.findings()).standing.filter(({ node }) => node === of.node);
  const wrong: string[] = [];
  await fault.begin(scene);
  const allowed = of.period() + settle + slack;
  let found: NodeFound[] = [];
  const isFound = async (): Promise<boolean> => (found = await standing()).length > 0;
  const took = await awaitSoon(isFound, allowed + 15);
  if (took === null || took > allowed) {
    wrong.push(
      `${took === null ? 'not found' : `found after ${took.toFixed(1)} s`}, ` +
        `not within ${allowed.toFixed(1)} s`,
    );
  }
  const codes = found.map(({ code }) => code);
  if (codes.some((code) => !fault.codes.includes(code))) wrong.push(...found.map(textOf));
  if (fault.end === undefined) putBack(of, rules);
  else await fault.end(scene);
  const gone = await awaitSoon(
    async () => (await standing()).length === 0,
    of.period() + slack + 15,
  );
  if (gone === null) wrong.push('still found after it was put right', ...found.map(textOf));
  const times = `${(took ?? NaN).toFixed(1)} s, gone after ${(gone ?? NaN).toFixed(1)} s`;
  report(tally, `${title}: ${codes.join(', ')} after ${times}`, wrong);
}

async function checkAll(all: Nodes, churn: number): Promise<void> {
  const { tally, nodes } = all;
  report(tally, 'nodes: both are judged, and conform', await awaitConform(all, 60));
  await checkChurn(all, churn);
  for (const of of nodes) {
    for (const fault of nodeFaults[of.mode]) await checkFault(all, of, fault);
  }
}

/** Keys of the agents: one asks for a certificate, the other for a token. */
function accessOf(keys: Keys, mode: Mode, token: string) {
  const { cert, key, ca } = keys;
  return mode === 'iptables'
    ? { token: null, tls: { cert, key, ca } }
    : { token, tls: { cert, key, ca: null } };
}

/** Nodes of some modes, with the auditor that asks their agents, for as long as they are used. */
export async function withNodes(
  plane: ControlPlane,
  modes: readonly Mode[],
  use: (all: Omit<Nodes, 'tally'>) => Promise<void>,
): Promise<void> {
  const folder = join(plane.directory, 'nodes');
  mkdirSync(folder);
  const client = clientOf(plane);
  const kubeProxy = await kubeProxyOf(plane.version);
  const keys = writeKeys(folder);
  const socket = join(folder, 'api.sock');
  const carrier = await carry(socket, new URL(plane.server).host);
  const space = createSpace(`ea-${process.pid}-out`);
  const nodes: NodeSpace[] = [];
  let outside: ReturnType<typeof startOutside> | null = null;
  const token = 'a-token-of-agents';
  try {
    for (const [at, mode] of modes.entries()) {
      await createNode(client, { name: `real-${mode}`, zone: 'zone-a', number: 200 + at });
      const status = { addresses: [{ type: 'InternalIP', address: `172.18.${at + 1}.2` }] };
      await client.call('PATCH', `/api/v1/nodes/real-${mode}/status`, { status });
      const spec = { podCIDR: `10.244.${at + 1}.0/24`, podCIDRs: [`10.244.${at + 1}.0/24`] };
      await client.call('PATCH', `/api/v1/nodes/real-${mode}`, { spec });
      const access = accessOf(keys, mode, token);
      const options = { plane, kubeProxy, socket, outside: space, access };
      nodes.push(await createNodeSpace(options, at + 1, mode));
    }
    const account = await createAccount(plane, client, folder, 'https://127.0.0.1:6443');
    const targets = await createTargets(client);
    await createAgents(client, nodes);
    outside = startOutside({ space, folder, keys, token, account, settle });
    await use({ client, nodes, outside, targets });
  } catch (error) {
    say(outside?.running.tail() ?? '');
    throw error;
  } finally {
    await outside?.running.stop();
    await outside?.bridge.stop();
    for (const one of nodes) await one.stop();
    space.remove();
    carrier.close();
    client.close();
  }
}

export async function testNodes(plane: ControlPlane, churn: number, tally: Tally): Promise<void> {
  await withNodes(plane, ['iptables', 'nftables'], async (all) => {
    await checkAll({ ...all, tally }, churn);
    const wrong = existsSync(all.outside.socket) ? [] : ['gone'];
    report(tally, 'nodes: the auditor still runs', wrong);
  });
}
