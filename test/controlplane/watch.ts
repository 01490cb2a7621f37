// Lists and watches a real control plane as a ServiceAccount that may get, list and watch the five
// resources and nothing else, through WatchList and through pages, and compares what is delivered
// with what an administrator lists: after changes, after a restart of the API server, without one
// permission and with it again. `node test/controlplane/watch.ts [VERSION]` takes about two
// minutes, mostly for the pause after a refusal.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { pathOf } from '../../src/cluster/api/listwatch.ts';
import { readServices } from '../../src/cluster/api/read-fresh.ts';
import { createReflectors } from '../../src/cluster/api/reflector.ts';
import { createConnection } from '../../src/cluster/api/transport/connection.ts';
import { openAccount } from '../../src/cluster/api/transport/kubeconfig.ts';
import type { Environment } from '../../src/cluster/api/transport/request.ts';
import { problemText } from '../../src/cluster/decode/problem.ts';
import type { Store } from '../../src/cluster/store/store.ts';
import { createStore } from '../../src/cluster/store/store.ts';
import { resources } from '../../src/model/objects.ts';
import { heldIn } from '../apiserver/life.ts';
import { newestVersion, versions } from './binaries.ts';
import type { Client, ControlPlane, Thing } from './controlplane.ts';
import { clientOf, core, createAccount, permit, startControlPlane } from './controlplane.ts';

const shop = '/api/v1/namespaces/shop';
async function createPod(client: Client, index: number): Promise<void> {
  const name = `pod-${index}`;
  await client.call('POST', `${shop}/pods`, {
    metadata: { name, labels: { app: 'web' } },
    spec: { nodeName: 'node-a', containers: [{ name: 'c', image: 'i' }] },
  });
  const ip = `10.0.0.${index}`;
  const conditions = [{ type: 'Ready', status: 'True' }];
  const status = { phase: 'Running', podIP: ip, podIPs: [{ ip }], conditions };
  await client.call('PATCH', `${shop}/pods/${name}/status`, { status });
}

const deletePod = (client: Client, index: number) =>
  client.call('DELETE', `${shop}/pods/pod-${index}?gracePeriodSeconds=0`);

/** Whether the cache equals the state of the server. */
async function isSame(client: Client, store: Store): Promise<boolean> {
  for (const resource of resources) {
    const { items } = (await client.call('GET', pathOf(resource, null))) as { items: Thing[] };
    const want = items.map(({ metadata: { namespace, name, uid, resourceVersion } }) =>
      [namespace ?? '', name, uid, resourceVersion].join(' '),
    );
    const got = [...heldIn(store, resource).values()].map((one) =>
      [one.namespace, one.name, one.uid, one.resourceVersion].join(' '),
    );
    if (got.sort().join() !== want.sort().join()) return false;
  }
  return true;
}

let failed = 0;

async function check(name: string, isSo: () => boolean | Promise<boolean>, seconds = 60) {
  const began = performance.now();
  const passed = (): string => `${((performance.now() - began) / 1000).toFixed(1)} s`;
  while (!(await isSo())) {
    if (performance.now() - began > seconds * 1000) {
      failed++;
      console.log(`FAILED ${name} after ${passed()}`);
      return;
    }
    await sleep(50);
  }
  console.log(`ok     ${name} (${passed()})`);
}

interface Stage {
  readonly plane: ControlPlane;
  readonly client: Client;
  readonly store: Store;
  readonly environment: Environment;
  readonly reflectors: ReturnType<typeof createReflectors>;
}

async function play({ plane, client, store, environment, reflectors }: Stage): Promise<void> {
  const stateOf = (resource: (typeof resources)[number]) => reflectors.status.get(resource)?.state;
  const allSynced = () => resources.every((resource) => stateOf(resource) === 'synced');
  const same = () => isSame(client, store);
  await check('the first lists', async () => allSynced() && (await same()));
  await createPod(client, 31);
  await deletePod(client, 3);
  await check('changes', same);
  const signal = new AbortController().signal;
  const previousPod = () => undefined;
  const read = await readServices(
    { environment, mayRead: () => true, previousPod },
    'shop',
    ['web'],
    signal,
  );
  const cached = store.listers.endpoints.get('shop/web')?.resourceVersion;
  await check('one Service read again', () => {
    const found = read.get('web');
    const version = found?.endpoints?.objects[0]?.resourceVersion;
    return version === cached && found?.pods?.objects.length === 30;
  });
  await plane.restartApiserver();
  await deletePod(client, 4);
  await check('a restart', async () => allSynced() && (await same()));
  await permit(
    client,
    core.filter((resource) => resource !== 'pods'),
  );
  await plane.restartApiserver();
  const others = resources.filter((resource) => resource !== 'pods');
  await check('without pods', () => stateOf('pods') === 'off', 120);
  await check('all others', () => others.every((resource) => stateOf(resource) === 'synced'));
  await permit(client, core);
  await deletePod(client, 5);
  await check('with pods again', async () => allSynced() && (await same()), 120);
}

async function audit(stage: Omit<Stage, 'reflectors' | 'store'>, watchList: boolean) {
  const store = createStore(new Set(resources));
  const reflectors = createReflectors({
    environment: stage.environment,
    held: (resource) => heldIn(store, resource),
    deliver(entries) {
      for (const entry of entries) {
        if (entry.kind === 'event') store.apply(entry.event);
        if (entry.kind === 'synced') store.listed(entry.resource);
      }
    },
    onProblem: (problem) => console.log(`       ${problemText(problem)}`),
    endpoints: true,
    namespaces: null,
    watchList,
    raw: false,
  });
  const controller = new AbortController();
  const run = reflectors.run(controller.signal);
  await play({ ...stage, store, reflectors });
  for (const [resource, { counters }] of reflectors.status) {
    console.log(`       ${resource} ${JSON.stringify(counters)}`);
  }
  controller.abort();
  await run;
}

async function main(): Promise<void> {
  const version = versions.find((one) => one === process.argv[2]) ?? newestVersion;
  const folder = mkdtempSync(join(tmpdir(), 'watch-'));
  try {
    for (const watchList of [true, false]) {
      console.log(`${version}, ${watchList ? 'WatchList' : 'pages'}`);
      const plane = await startControlPlane({ version });
      const client = clientOf(plane);
      try {
        const { kubeconfig } = await createAccount(plane, client, folder);
        await client.call('POST', '/api/v1/namespaces', { metadata: { name: 'shop' } });
        await client.call('POST', '/api/v1/nodes', { metadata: { name: 'node-a' } });
        const spec = { selector: { app: 'web' }, ports: [{ port: 80, targetPort: 8080 }] };
        await client.call('POST', `${shop}/services`, { metadata: { name: 'web' }, spec });
        for (let index = 1; index <= 30; index++) await createPod(client, index);
        const account = openAccount({ kubeconfig, context: null });
        const environment = createConnection(account, () => Date.now() / 1000);
        await audit({ plane, client, environment }, watchList);
        environment.close();
      } finally {
        client.close();
        await plane.stop();
      }
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  process.exitCode = failed === 0 ? 0 : 1;
}

await main();
