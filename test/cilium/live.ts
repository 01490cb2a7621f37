// Lets a running Cilium differ from the API by itself, and audits its maps before and after:
// `npm run -s cilium:live [NAME]`. Each case has a fresh load balancer and a Service that must be
// found after the change, and not before. A repair must end the finding. The last line is
// `N passed, N failed`.

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { startProxy } from '../controlplane/auditor.ts';
import type { Client, ControlPlane } from '../controlplane/controlplane.ts';
import { clientOf, startControlPlane } from '../controlplane/controlplane.ts';
import { ciliumInput, summarizeNode } from '../nodes/walk.ts';
import type { CiliumLoadBalancer } from './load-balancer.ts';
import { newestCilium, startLoadBalancer } from './load-balancer.ts';
import { createNodes, deleteObjects, listObjects, namespace } from './objects.ts';
import { nodeIn, writeObjects, writeState } from './record.ts';

interface Cluster {
  readonly plane: ControlPlane;
  readonly client: Client;
  readonly balancer: CiliumLoadBalancer;
  readonly proxy: Awaited<ReturnType<typeof startProxy>>;
}

interface Case {
  readonly name: string;
  /** Why the maps differ afterwards. */
  readonly mechanism: string;
  readonly version?: string;
  readonly create: (client: Client) => Promise<void>;
  readonly change: (cluster: Cluster) => Promise<void>;
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
async function reconnect({ plane, client, proxy }: Cluster): Promise<void> {
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

/** Service ports with findings above information, by the maps and the objects of now. */
async function findingsOf({ client, balancer }: Cluster, version: string): Promise<string[]> {
  await balancer.settle();
  const out = await mkdtemp(join(tmpdir(), 'cilium-live-'));
  try {
    const lists = await listObjects(client);
    const node = nodeIn(lists, 'node-a');
    const objects = writeObjects(out, 'objects', lists);
    await writeState(balancer, { version, node, flags: {}, objects }, join(out, 'state'));
    const { findings } = summarizeNode(ciliumInput(join(out, 'state')));
    const loud = findings.filter(({ severity }) => severity !== 'info');
    return loud.map(
      ({ code, service: name, difference }) => `${name} ${code} ${difference.object}`,
    );
  } finally {
    await rm(out, { recursive: true });
  }
}

/** Returns what is wrong; null: nothing. */
async function check(test: Case, plane: ControlPlane, client: Client): Promise<string | null> {
  const { version = newestCilium, about } = test;
  await deleteObjects(client);
  await test.create(client);
  const node = nodeIn(await listObjects(client), 'node-a');
  const folder = await mkdtemp(join(tmpdir(), 'cilium-live-'));
  const proxy = await startProxy(plane.server);
  const kubeconfig = join(folder, 'kubeconfig');
  const text = await readFile(plane.kubeconfig, 'utf8');
  await writeFile(kubeconfig, text.replace(plane.server, proxy.server));
  const balancer = await startLoadBalancer({ version, node, flags: [], kubeconfig, folder });
  const cluster = { plane, client, balancer, proxy };
  try {
    await balancer.command('hive/start');
    const before = await findingsOf(cluster, version);
    if (before.length > 0) return `found before the change: ${before.join()}`;
    await test.change(cluster);
    await sleep(2000);
    const found = await findingsOf(cluster, version);
    console.log(`  ${found.join() || 'no finding'}`);
    if (about === null) return found.length === 0 ? null : 'found what is right';
    return found.length > 0 && found.every((it) => it.startsWith(`${about} `)) ? null : 'not found';
  } finally {
    await balancer.stop();
    proxy.close();
    await rm(folder, { recursive: true });
  }
}

if (import.meta.main) {
  const [only = ''] = process.argv.slice(2);
  const plane = await startControlPlane();
  const client = clientOf(plane);
  let [passed, failed] = [0, 0];
  try {
    await createNodes(client);
    for (const test of cases.filter(({ name }) => name.includes(only))) {
      console.log(`${test.name}: ${test.mechanism}`);
      const problem = await check(test, plane, client);
      if (problem === null) passed++;
      else failed++;
      if (problem !== null) console.log(`  FAILED: ${problem}`);
    }
  } finally {
    client.close();
    await plane.stop();
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
}
