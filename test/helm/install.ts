// The chart on a real API server: installed, upgraded and uninstalled by helm, with the CRDs of the
// Prometheus Operator there; and what it makes run. Server and agent are started as their pods say,
// in the file trees of their images: arguments, environment, user, capabilities, the files that are
// mounted, and a token of the ServiceAccount, by which what is not permitted is refused. How they
// talk to each other is in pair.ts.

import type { ChildProcess } from 'node:child_process';
import { execFile } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

import type { Client } from '../controlplane/client.ts';
import { awaitSettled, clientOf } from '../controlplane/client.ts';
import { createCluster } from '../controlplane/cluster.ts';
import { newestVersion, startControlPlane } from '../controlplane/controlplane.ts';
import { endProgram, freePort } from '../processes.ts';
import { chart } from './files.ts';
import type { Check, Stage as PairStage } from './pair.ts';
import {
  checkAudit,
  checkPair,
  createAgentPod,
  createPair,
  issue,
  kubeProxyConfig,
} from './pair.ts';
import { appsIn, equal, namespace, podOf, statusOf, tokenOf, until, within } from './pods.ts';
import { crds } from './schemas.ts';
import { startPod } from './tree.ts';

const run = promisify(execFile);

const release = 'endpoint-auditor';

async function createDefinitions({ call }: Client): Promise<void> {
  const path = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
  for (const crd of crds()) {
    await call('POST', path, crd);
    await until(async () => {
      const known = (await call('GET', `${path}/${crd.metadata.name}`)) as {
        status?: { conditions?: { type: string; status: string }[] };
      };
      const conditions = known.status?.conditions ?? [];
      return conditions.some(({ type, status }) => type === 'Established' && status === 'True');
    }, `${crd.metadata.name} is established`);
  }
}

interface Stage extends PairStage {
  readonly helm: (...args: string[]) => Promise<string>;
}

/** A server without agents, as this machine's own; returns how many Services it audits. */
async function checkServer(stage: Stage, port: number, path: string): Promise<number> {
  const { plane, client, folder, check, children } = stage;
  const pod = await podOf(plane, client, path, 'Containerfile');
  const child = startPod(join(folder, 'server'), pod);
  children.push(child);
  const base = `http://127.0.0.1:${port}`;
  await until(async () => (await fetch(`${base}/readyz`)).ok, 'the server is ready');
  const judged = await checkAudit(check, base);
  await endProgram(child);
  return judged;
}

/** What the token of the server may do, and what it may not. */
async function checkRights({ plane, client, check }: Stage): Promise<void> {
  const token = await tokenOf(client, release);
  const ask = async (method: string, path: string): Promise<number> =>
    (await statusOf(`${plane.server}${path}`, { ca: plane.ca }, token, method)).status;
  const core = ['pods', 'services', 'nodes', 'endpoints'].map((name) => `/api/v1/${name}`);
  for (const path of [...core, '/apis/discovery.k8s.io/v1/endpointslices']) {
    check(`may list ${path}`, equal(await ask('GET', path), 200));
  }
  const forbidden = [
    ['GET', '/api/v1/secrets'],
    ['GET', '/api/v1/configmaps'],
    ['GET', `${within}/secrets/${release}-agent`],
    ['GET', '/apis/apps/v1/deployments'],
    ['DELETE', `${within}/services/${release}`],
    ['DELETE', '/api/v1/nodes/node-a1'],
  ] as const;
  for (const [method, path] of forbidden) {
    check(`may not ${method} ${path}`, equal(await ask(method, path), 403));
  }
}

/** Both ways for server and agent to know each other, the last that of the default. */
async function checkAgents(stage: Stage, file: string): Promise<number> {
  const { plane, client, folder, check, helm } = stage;
  const pair = await createPair(plane, client, join(folder, 'pair'));
  const secrets = ['agent', 'agent-client'].map((name) => `${within}/secrets/${release}-${name}`);
  try {
    const mode = 'agent.auth.mode=cert-manager';
    const set = ['--create-namespace', '--values', file, '--set', mode];
    await helm('install', release, chart, ...set);
    check('helm install', null);
    await issue(client, join(folder, 'certificates'));
    await createAgentPod(client, pair);
    await checkPair(stage, pair, 'cert-manager');
    for (const path of secrets) await client.call('DELETE', path);
    await helm('upgrade', release, chart, '--values', file);
    return await checkPair(stage, pair, 'token');
  } finally {
    await pair.stop();
  }
}

async function checkChart(stage: Stage): Promise<void> {
  const { client, folder, check, helm } = stage;
  const all = { enabled: true };
  const values = {
    image: { registry: 'images.example.com' },
    agent: { ...all, proxyConfig: kubeProxyConfig },
    serviceMonitor: all,
    podMonitor: all,
    prometheusRule: all,
    dashboards: all,
    networkPolicy: all,
    podDisruptionBudget: { minAvailable: 1 },
  };
  const file = join(folder, 'values.yaml');
  writeFileSync(file, JSON.stringify(values));
  const services = await checkAgents(stage, file);
  const before = await client.call('GET', `${within}/secrets/${release}-agent`);
  await checkRights(stage);

  await helm('upgrade', release, chart, '--values', file, '--set', 'auditor.settle=20s');
  check('helm upgrade', null);
  const after = await client.call('GET', `${within}/secrets/${release}-agent`);
  const dataOf = (secret: unknown): unknown => (secret as { data: unknown }).data;
  check('an upgrade keeps the secret of the agents', equal(dataOf(after), dataOf(before)));

  // The last one wins; a pod has an address of its own, this machine's are shared.
  const port = await freePort();
  const listen = `extraArgs[0]=--listen=127.0.0.1:${port}`;
  const sharded = `shards=2,agent.enabled=false,podMonitor.enabled=false,${listen}`;
  await helm('upgrade', release, chart, '--values', file, '--set', sharded);
  const share = await checkServer(stage, port, `${appsIn}/statefulsets/${release}`);
  check(`a shard has its share: ${share}`, share > 0 && share < services ? null : `of ${services}`);

  await helm('uninstall', release);
  const isGone = (path: string): Promise<boolean> =>
    client.call('GET', path).then(
      () => false,
      () => true,
    );
  const paths = [
    `${appsIn}/statefulsets/${release}`,
    `${appsIn}/deployments/${release}`,
    `${appsIn}/daemonsets/${release}-agent`,
    `${within}/secrets/${release}-agent`,
    `/apis/rbac.authorization.k8s.io/v1/clusterroles/${release}`,
    `/apis/monitoring.coreos.com/v1/namespaces/${namespace}/prometheusrules/${release}`,
  ];
  for (const path of paths) {
    check(`helm uninstall: ${path} is gone`, (await isGone(path)) ? null : 'it is there');
  }
}

/** Starts a control plane, and does it all; `helm` is the path of the program. */
export async function checkInstall(helm: string, folder: string, check: Check): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const plane = await startControlPlane({ version: newestVersion });
  const client = clientOf(plane);
  const children: ChildProcess[] = [];
  const call = async (...args: string[]): Promise<string> => {
    const where = ['--kubeconfig', plane.kubeconfig, '--namespace', namespace];
    const { stdout } = await run(helm, [...args, ...where], {
      env: { ...process.env, HELM_CACHE_HOME: folder, HELM_CONFIG_HOME: folder },
    });
    return stdout;
  };
  try {
    await createDefinitions(client);
    await createCluster(client, newestVersion);
    await awaitSettled(client);
    await checkChart({ plane, client, folder, check, children, helm: call });
  } catch (error) {
    check('the chart on an API server', error instanceof Error ? (error.stack ?? '') : 'failed');
  } finally {
    await Promise.all(children.map((child) => endProgram(child)));
    client.close();
    await plane.stop();
  }
}
