// The alerts on nodes and on an auditor that cannot see. A real kube-proxy writes rules in a
// network namespace, which an agent reads there, and is asked by the auditor; another auditor is
// cut off from the API server. Needs root.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { startAuditor } from '../controlplane/auditor.ts';
import { carry } from '../controlplane/bridge.ts';
import type { Client } from '../controlplane/client.ts';
import { awaitSettled } from '../controlplane/client.ts';
import type { ControlPlane } from '../controlplane/controlplane.ts';
import { newestVersion, startControlPlane } from '../controlplane/controlplane.ts';
import { createMembersOf, createNodesOf } from '../controlplane/fleet.ts';
import type { NodeSpace } from '../controlplane/netns.ts';
import type { Scene } from '../controlplane/nodefaults.ts';
import { nodeFaults, putBack, rulesOf, setEndpoints } from '../controlplane/nodefaults.ts';
import type { Nodes } from '../controlplane/nodes.ts';
import { awaitConform, withNodes } from '../controlplane/nodes.ts';
import { startProxy } from '../controlplane/proxy.ts';
import { awaitSoon } from '../controlplane/stage.ts';
import { shorter } from './arrivals.ts';
import type { Theatre } from './stages.ts';
import { play } from './stages.ts';

const broken = { alertname: 'EndpointAuditorNodeRulesBroken' };
const diverges = { alertname: 'EndpointAuditorNodeDiverges' };
const unknown = { alertname: 'EndpointAuditorUnknownShareHigh' };

function faultOf({ of }: Scene, name: string) {
  const fault = nodeFaults[of.mode].find((one) => one.name === name);
  if (fault === undefined) throw new Error(`There is no fault ${name}`);
  return fault;
}

/** Services change now and then, longer than any alert must hold. */
async function change(scene: Scene): Promise<void> {
  const until = performance.now() + 1000 * shorter(3 * 86_400);
  for (let turn = 0; performance.now() < until; turn++) {
    await setEndpoints(scene, scene.targets.slice(turn % 10, (turn % 10) + 1), 2 + (turn % 2));
    await sleep(2500);
  }
}

async function checkNode(theatre: Theatre, scene: Scene): Promise<void> {
  const { of } = scene;
  const begin = (): Promise<void> => change(scene);
  await play(theatre, { title: 'Services change', expected: [], begin });
  const rules = rulesOf(of);
  await play(theatre, {
    title: 'all of nat is flushed',
    expected: [broken, diverges],
    begin: async () => faultOf(scene, 'nat flushed').begin(scene),
    repair() {
      putBack(of, rules);
      return Promise.resolve();
    },
  });
  const stopped = faultOf(scene, 'kube-proxy stopped');
  await play(theatre, {
    title: 'kube-proxy hangs',
    expected: [{ alertname: 'EndpointAuditorNodeStale' }, diverges],
    begin: async () => stopped.begin(scene),
    repair: async () => stopped.end?.(scene),
  });
  const signal = (name: NodeJS.Signals) => () => Promise.resolve(of.agent.child.kill(name));
  await play(theatre, {
    title: 'the agent hangs',
    expected: [
      { alertname: 'EndpointAuditorAgentMissing', state: 'stale' },
      { ...unknown, output: 'node' },
    ],
    begin: signal('SIGSTOP'),
    repair: signal('SIGCONT'),
  });
}

/** An auditor with a wire of its own, which is cut; nothing changes meanwhile. */
async function checkBlind(theatre: Theatre, plane: ControlPlane, port: number): Promise<void> {
  const folder = join(plane.directory, 'nodes');
  const proxy = await startProxy(plane.server);
  const kubeconfig = join(folder, 'wired');
  const direct = readFileSync(plane.kubeconfig, 'utf8');
  writeFileSync(kubeconfig, direct.replace(plane.server, proxy.server));
  const auditor = await startAuditor({ kubeconfig, folder, settle: 5 });
  const carrier = await carry(`127.0.0.1:${port}`, new URL(auditor.base).host);
  try {
    await awaitSoon(async () => (await auditor.notReady()) === null, 60);
    await play(theatre, {
      title: 'nothing comes through',
      expected: [
        { alertname: 'EndpointAuditorNotReady' },
        ...['pods', 'services', 'nodes', 'endpoints', 'endpointslices'].map((resource) => ({
          alertname: 'EndpointAuditorWatchStale',
          resource,
        })),
        { ...unknown, output: 'endpoints' },
        { ...unknown, output: 'endpointslices' },
      ],
      begin() {
        proxy.hold();
        proxy.cut();
        return Promise.resolve();
      },
      repair() {
        proxy.release();
        return Promise.resolve();
      },
    });
  } finally {
    await auditor.stop();
    carrier.close();
    proxy.close();
  }
}

/** Services with pods on the node, so that there is something to be blind to. */
async function createServices(client: Client, node: NodeSpace): Promise<void> {
  const size = { services: 10, pods: 30, nodes: 0 };
  const fleet = await createNodesOf(client, size);
  fleet.nodes.push({ name: node.node, zone: 'zone-a', number: 200 });
  await createMembersOf(client, fleet, size);
  await awaitSettled(client);
}

/** `ports`: where the two auditors are to be found. */
export async function checkNodes(
  theatres: { readonly nodes: Theatre; readonly blind: Theatre },
  ports: { readonly nodes: number; readonly blind: number },
): Promise<void> {
  const plane = await startControlPlane({ version: newestVersion });
  const use = async (all: Omit<Nodes, 'tally'>): Promise<void> => {
    const { client, nodes, outside, targets } = all;
    const [of] = nodes;
    if (of === undefined) throw new Error('There is no node');
    await createServices(client, of);
    const carrier = await carry(`127.0.0.1:${ports.nodes}`, outside.socket);
    const late = await awaitConform(all, 60);
    if (late.length > 0) throw new Error(late.join('\n'));
    await Promise.all([
      checkNode(theatres.nodes, { client, of, targets }),
      checkBlind(theatres.blind, plane, ports.blind),
    ]);
    carrier.close();
  };
  try {
    await withNodes(plane, ['iptables'], use);
  } finally {
    await plane.stop();
  }
}
