// `serve` beside a real API server, with an agent that reads the maps of a running Cilium:
// `npm run -s cilium:live [NAME]`. Cilium differs from the API by itself: each case has a fresh
// load balancer, and a Service that must be found after the change, and not before. Then endpoints
// come and go without findings, and each fault of agent.ts must be found, and gone after its
// repair. The last line is `N passed, N failed`.

import { writeFileSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { awaitSoon, startProxy } from '../controlplane/auditor.ts';
import type { Client, ControlPlane } from '../controlplane/controlplane.ts';
import { clientOf, createAccount, startControlPlane } from '../controlplane/controlplane.ts';
import { carry, type QuickAgent } from '../controlplane/inside.ts';
import type { Outside, Running } from '../controlplane/nodes.ts';
import {
  agentPort,
  awaitConform,
  createAgents,
  createSpace,
  script,
  startOutside,
  writeKeys,
} from '../controlplane/nodes.ts';
import { addresses, faults, type LiveFault, services as faultyServices } from './agent.ts';
import type { CiliumLoadBalancer } from './load-balancer.ts';
import { newestCilium, startLoadBalancer } from './load-balancer.ts';
import { createNodes, deleteObjects, listObjects, namespace } from './objects.ts';
import { nodeIn } from './record.ts';

interface Cluster {
  readonly plane: ControlPlane;
  readonly client: Client;
  readonly server: CiliumServer;
}

interface RunningCluster extends Cluster {
  readonly balancer: CiliumLoadBalancer;
  readonly proxy: Awaited<ReturnType<typeof startProxy>>;
}

interface Case {
  readonly name: string;
  /** Why the maps differ afterwards. */
  readonly mechanism: string;
  readonly version?: string;
  readonly create: (client: Client) => Promise<void>;
  readonly change: (cluster: RunningCluster) => Promise<void>;
  /** The Service port that must be found; null: nothing may be. */
  readonly about: string | null;
}

const services = `/api/v1/namespaces/${namespace}/services`;
const slices = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;

const addressesIn = (ips: readonly string[]): object[] =>
  ips.map((ip) => ({ addresses: [ip], conditions: { ready: true }, nodeName: 'node-a' }));

const service = ({ call }: Client, name: string, spec: object = {}): Promise<unknown> =>
  call('POST', services, {
    metadata: { name },
    spec: { ports: [{ name: 'http', port: 80 }], ...spec },
  });

const slice = ({ call }: Client, name: string, of: string, ips: readonly string[]) =>
  call('POST', slices, {
    metadata: { name, labels: { 'kubernetes.io/service-name': of } },
    addressType: 'IPv4',
    endpoints: addressesIn(ips),
    ports: [{ name: 'http', port: 8080 }],
  });

const setAddresses = ({ call }: Client, name: string, ips: readonly string[]): Promise<unknown> =>
  call('PATCH', `${slices}/${name}`, { endpoints: addressesIn(ips) });

const affinity = { type: 'NodePort', sessionAffinity: 'ClientIP' };

/** The connection ends while an endpoint goes, and the API server forgets the events before. */
async function reconnect({ plane, client, proxy }: RunningCluster): Promise<void> {
  proxy.hold();
  await setAddresses(client, 'web-1', ['10.244.9.1']);
  await plane.restartApiserver();
  proxy.cut();
  proxy.release();
  // A reflector waits a moment before it lists again.
  await sleep(10_000);
}

const reconnectCase = (version: string, about: string | null): Case => ({
  name: `reconnect-${version}`,
  mechanism: 'the first list stores no Service name, so that the next one removes no orphans',
  version,
  create: async (client) => {
    await service(client, 'web');
    await slice(client, 'web-1', 'web', ['10.244.9.1', '10.244.9.2']);
  },
  change: reconnect,
  about,
});

const cases: readonly Case[] = [
  {
    name: 'endpoint-in-two-slices',
    mechanism: 'orphans are computed for each slice, so that one slice removes what another has',
    create: async (client) => {
      await service(client, 'moving');
      await slice(client, 'moving-1', 'moving', ['10.244.9.1', '10.244.9.2']);
      await slice(client, 'moving-2', 'moving', ['10.244.9.2', '10.244.9.3']);
    },
    change: async ({ client }) => {
      await setAddresses(client, 'moving-1', ['10.244.9.1']);
    },
    about: 'moving',
  },
  {
    name: 'slice-of-another-service',
    mechanism: 'events of slices have the key of the new Service; the old one keeps its endpoints',
    create: async (client) => {
      await service(client, 'old');
      await service(client, 'new');
      await slice(client, 'old-1', 'old', ['10.244.9.1']);
      await slice(client, 'moved', 'old', ['10.244.9.2']);
    },
    change: async ({ client }) => {
      const labels = { 'kubernetes.io/service-name': 'new' };
      await client.call('PATCH', `${slices}/moved`, { metadata: { labels } });
    },
    about: 'old',
  },
  {
    name: 'contested-external-ip',
    mechanism: 'a Service that lost an address is not tried again when the winner is deleted',
    create: async (client) => {
      const spec = { externalIPs: ['198.18.0.9'] };
      await service(client, 'first', spec);
      await slice(client, 'first-1', 'first', ['10.244.9.1']);
      await sleep(2000);
    },
    change: async ({ client, balancer }) => {
      await service(client, 'second', { externalIPs: ['198.18.0.9'] });
      await slice(client, 'second-1', 'second', ['10.244.9.2']);
      await balancer.settle();
      await sleep(1000);
      await client.call('DELETE', `${services}/first`);
      await client.call('DELETE', `${slices}/first-1`);
    },
    about: 'second',
  },
  {
    name: 'affinity-of-a-lost-backend',
    mechanism: 'affinity matches go with a backend that nothing uses; another Service uses it',
    create: async (client) => {
      await service(client, 'sticky', affinity);
      await slice(client, 'sticky-1', 'sticky', ['10.244.9.1', '10.244.9.2']);
      await service(client, 'other');
      await slice(client, 'other-1', 'other', ['10.244.9.2']);
    },
    change: async ({ client }) => {
      await setAddresses(client, 'sticky-1', ['10.244.9.1']);
    },
    about: 'sticky',
  },
  reconnectCase('v1.19.1', 'web'),
  reconnectCase('v1.19.3', null),
  reconnectCase(newestCilium, null),
];

// `serve` in a network namespace, with the agent of one node beside it. The agent runs where a load
// balancer has pinned its maps. The address of the node is one of the namespace.

interface CiliumServer {
  /** The name of the node. */
  readonly node: string;
  readonly outside: Outside;
  readonly startAgent: (balancer: CiliumLoadBalancer) => Running;
  readonly stop: () => Promise<void>;
}

const [nodeName, podCIDR] = ['node-a', '10.244.1.0/24'];
const [address, otherAddress] = ['172.18.0.2', 'fd00:18::2'];

/** The settle window in seconds. */
const settle = 5;

async function startServer(plane: ControlPlane, client: Client): Promise<CiliumServer> {
  const folder = await mkdtemp(join(tmpdir(), 'cilium-server-'));
  const keys = writeKeys(folder);
  const socket = join(folder, 'api.sock');
  const carrier = await carry(socket, new URL(plane.server).host);
  const space = createSpace(`ea-${String(process.pid)}-cilium`);
  for (const own of [address, otherAddress]) {
    space.run(['ip', 'addr', 'add', own, 'dev', 'lo']);
  }
  writeFileSync(join(folder, 'agents-token'), 'unused');
  const account = await createAccount(plane, client, folder, 'https://127.0.0.1:6443');
  await createAgents(client, [{ node: nodeName, address }]);
  const outside = startOutside({ space, folder, keys, account, settle, nodeFlags: [] });
  const { cert, key, ca } = keys;
  const settings: QuickAgent = {
    ...{ node: nodeName, nodeIPs: [address, otherAddress], podCIDRs: [podCIDR] },
    ...{ dataplane: 'cilium', rounds: '/dev/null', interval: 1, share: 1 },
    ...{ host: address, port: agentPort, access: { token: null, tls: { cert, key, ca } } },
  };
  return {
    node: nodeName,
    outside,
    startAgent: ({ inside }) =>
      space.start(
        [...inside, process.execPath, script('inside.ts'), 'agent', JSON.stringify(settings)],
        join(folder, 'agent.log'),
      ),
    async stop() {
      await outside.running.stop();
      await outside.bridge.stop();
      space.remove();
      carrier.close();
      await rm(folder, { recursive: true });
    },
  };
}

/** Runs a load balancer and its agent from the objects of now on. */
async function withCilium<T>(
  cluster: Cluster,
  version: string,
  use: (running: RunningCluster) => Promise<T>,
): Promise<T> {
  const { plane, client, server } = cluster;
  const node = nodeIn(await listObjects(client), server.node);
  const folder = await mkdtemp(join(tmpdir(), 'cilium-live-'));
  const proxy = await startProxy(plane.server);
  const kubeconfig = join(folder, 'kubeconfig');
  const text = await readFile(plane.kubeconfig, 'utf8');
  await writeFile(kubeconfig, text.replace(plane.server, proxy.server));
  const balancer = await startLoadBalancer({ version, node, flags: [], kubeconfig, folder });
  try {
    await balancer.command('hive/start');
    await balancer.settle();
    await balancer.pin();
    const agent = server.startAgent(balancer);
    try {
      return await use({ ...cluster, balancer, proxy });
    } finally {
      await agent.stop();
    }
  } finally {
    await balancer.stop();
    proxy.close();
    await rm(folder, { recursive: true });
  }
}

/** Seconds until a report, the settle window and the reads that confirm are over. */
const patience = 90;

const conform = ({ server }: Cluster): Promise<string[]> =>
  awaitConform({ outside: server.outside, nodes: [server] }, patience);

/** The objects and codes of findings. That of a whole node names one of its Services. */
const textsOf = async ({ server }: Cluster): Promise<string[]> =>
  (await server.outside.findings()).standing.map(({ code, object }) => `${object} ${code}`);

const isAbout = (text: string, name: string): boolean => text.includes(`${namespace}/${name}:`);

/** Waits for findings of a Service; null: there are none. */
async function awaitFound(cluster: Cluster, about: string): Promise<string[] | null> {
  let found: string[] = [];
  const isFound = async (): Promise<boolean> => {
    found = await textsOf(cluster);
    return found.some((text) => isAbout(text, about));
  };
  return (await awaitSoon(isFound, patience)) === null ? null : found;
}

/** Returns what is wrong; null: nothing. */
async function check(test: Case, cluster: Cluster): Promise<string | null> {
  const { version = newestCilium, about } = test;
  await deleteObjects(cluster.client);
  await test.create(cluster.client);
  return withCilium(cluster, version, async (running) => {
    const before = await conform(running);
    if (before.length > 0) return `before the change: ${before.join()}`;
    await test.change(running);
    await running.balancer.settle();
    if (about === null) {
      // A finding would be open by then.
      await sleep(15_000);
      const left = [...(await conform(running)), ...(await textsOf(running))];
      return left.length === 0 ? null : `found what is right: ${left.join()}`;
    }
    const found = await awaitFound(running, about);
    console.log(`  ${found?.join() ?? 'no finding'}`);
    return found?.every((text) => isAbout(text, about)) === true ? null : 'not found';
  });
}

async function createFaulty({ call }: Client): Promise<void> {
  for (const { metadata, spec, ...more } of faultyServices) {
    const { name } = metadata;
    await call('POST', services, { metadata: { name }, spec });
    if ('status' in more) await call('PATCH', `${services}/${name}/status`, more);
  }
}

type Report = (name: string, problem: string | null) => void;

async function checkFault(
  cluster: RunningCluster,
  { name, about, make }: LiveFault,
  setEndpoints: (of: string, ...last: number[]) => Promise<unknown>,
): Promise<string | null> {
  const repair = await make({ balancer: cluster.balancer, setEndpoints });
  const found = await awaitFound(cluster, about);
  console.log(`${name}: ${found?.join() ?? 'no finding'}`);
  await repair();
  const left = await conform(cluster);
  if (found === null) return 'not found';
  return left.length === 0 ? null : `after the repair: ${left.join()}`;
}

/** Endpoints that come and go, and then every fault. */
async function checkFaults(cluster: Cluster, report: Report): Promise<void> {
  const { client, server } = cluster;
  const setEndpoints = (of: string, ...last: number[]): Promise<unknown> =>
    setAddresses(client, `${of}-1`, addresses(...last));
  await deleteObjects(client);
  await createFaulty(client);
  await slice(client, 'web-1', 'web', addresses(1, 2));
  await slice(client, 'api-1', 'api', addresses(10, 11));
  await slice(client, 'shop-1', 'shop', addresses(30));
  await withCilium(cluster, newestCilium, async (running) => {
    const first = await conform(running);
    report('what Cilium wrote conforms', first.length === 0 ? null : first.join());
    const from = Date.now() / 1000;
    for (let round = 0; round < 100; round++) {
      await setEndpoints('web', 1, 2, 20 + (round % 30));
      await setEndpoints('shop', 30 + (round % 30));
      await sleep(200);
    }
    await setEndpoints('web', 1, 2);
    const left = await conform(running);
    const { standing, resolved } = await server.outside.findings();
    const opened = [...standing, ...resolved].filter(({ openedAt }) => openedAt >= from);
    const wrong = [...left, ...opened.map((found) => JSON.stringify(found))];
    report('200 changes of endpoints have no finding', wrong.length === 0 ? null : wrong.join());
    for (const fault of faults) {
      report(fault.name, await checkFault(running, fault, setEndpoints));
    }
  });
}

if (import.meta.main) {
  const [only = ''] = process.argv.slice(2);
  const plane = await startControlPlane();
  const client = clientOf(plane);
  let [passed, failed] = [0, 0];
  const report: Report = (name, problem) => {
    if (problem === null) passed++;
    else failed++;
    console.log(problem === null ? `ok   ${name}` : `FAIL ${name}: ${problem}`);
  };
  await createNodes(client);
  const server = await startServer(plane, client);
  const cluster = { plane, client, server };
  try {
    for (const test of cases.filter(({ name }) => name.includes(only))) {
      report(`${test.name}: ${test.mechanism}`, await check(test, cluster));
    }
    if ('faults'.includes(only)) await checkFaults(cluster, report);
  } finally {
    await server.stop();
    client.close();
    await plane.stop();
  }
  console.log(`${String(passed)} passed, ${String(failed)} failed`);
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
}
