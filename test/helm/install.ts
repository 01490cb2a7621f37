// The chart on a real API server: installed, upgraded and uninstalled by helm, with the CRDs of the
// Prometheus Operator there; and what it makes run. Server and agent are started as their pods say,
// in the file trees of their images: arguments, environment, user, capabilities, the files that are
// mounted, and a token of the ServiceAccount, by which what is not permitted is refused.

import type { ChildProcess } from 'node:child_process';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

import type { Client } from '../controlplane/client.ts';
import { awaitSettled, clientOf } from '../controlplane/client.ts';
import { createCluster } from '../controlplane/cluster.ts';
import type { ControlPlane } from '../controlplane/controlplane.ts';
import { newestVersion, startControlPlane } from '../controlplane/controlplane.ts';
import { freePort } from '../processes.ts';
import { chart } from './files.ts';
import { crds } from './schemas.ts';
import type { Pod } from './tree.ts';
import { startPod } from './tree.ts';

const run = promisify(execFile);

type Check = (name: string, problem: string | null) => void;

const namespace = 'monitoring';
const release = 'endpoint-auditor';
const within = `/api/v1/namespaces/${namespace}`;
const appsIn = `/apis/apps/v1/namespaces/${namespace}`;

async function until(isTrue: () => Promise<boolean>, what: string): Promise<void> {
  const deadline = Date.now() + 60_000;
  while (Date.now() < deadline) {
    if (await isTrue().catch(() => false)) return;
    await sleep(200);
  }
  throw new Error(`Waited in vain: ${what}`);
}

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

interface Container {
  readonly args: readonly string[];
  readonly env?: readonly {
    readonly name: string;
    readonly value?: string;
    readonly valueFrom?: { readonly fieldRef: { readonly fieldPath: string } };
  }[];
  readonly securityContext: { readonly capabilities: { readonly add?: readonly string[] } };
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string }[];
}

interface PodSpec {
  readonly serviceAccountName: string;
  readonly automountServiceAccountToken: boolean;
  readonly containers: readonly Container[];
  readonly volumes?: readonly {
    readonly name: string;
    readonly secret: {
      readonly secretName: string;
      readonly items?: readonly { readonly key: string; readonly path: string }[];
    };
  }[];
}

/** What the downward API tells a pod that runs on node-a1 and is the first of its set. */
const downward: Readonly<Record<string, string>> = {
  'spec.nodeName': 'node-a1',
  "metadata.labels['apps.kubernetes.io/pod-index']": '0',
};

async function filesOf({ call }: Client, spec: PodSpec, container: Container) {
  const files: Record<string, string> = {};
  for (const { name, mountPath } of container.volumeMounts ?? []) {
    const secret = spec.volumes?.find((volume) => volume.name === name)?.secret;
    const path = `${within}/secrets/${secret?.secretName ?? ''}`;
    const { data } = (await call('GET', path)) as { data: Record<string, string> };
    const items = secret?.items ?? Object.keys(data).map((key) => ({ key, path: key }));
    for (const item of items) {
      const text = Buffer.from(data[item.key] ?? '', 'base64').toString();
      files[join(mountPath, item.path)] = text;
    }
  }
  return files;
}

/** A token as the kubelet would have it mounted. */
async function tokenOf({ call }: Client, account: string): Promise<string> {
  const made = await call('POST', `${within}/serviceaccounts/${account}/token`, { spec: {} });
  return (made as { status: { token: string } }).status.token;
}

/** The pod that a workload makes, with all that the kubelet would give it. */
async function podOf(
  plane: ControlPlane,
  client: Client,
  path: string,
  containerfile: Pod['containerfile'],
): Promise<Pod & { readonly token: string | null }> {
  const { spec: workload } = (await client.call('GET', path)) as {
    spec: { template: { spec: PodSpec } };
  };
  const { spec } = workload.template;
  const [container] = spec.containers;
  if (container === undefined) throw new Error(`${path} has no container`);
  const env: Record<string, string> = {};
  for (const { name, value, valueFrom } of container.env ?? []) {
    env[name] = value ?? downward[valueFrom?.fieldRef.fieldPath ?? ''] ?? '';
  }
  const expand = (text: string): string =>
    text.replaceAll(/\$\((\w+)\)/g, (_all, name: string) => env[name] ?? '');
  const token = spec.automountServiceAccountToken
    ? await tokenOf(client, spec.serviceAccountName)
    : null;
  const account = '/var/run/secrets/kubernetes.io/serviceaccount';
  const mounted = await filesOf(client, spec, container);
  if (token !== null) {
    const own = { token, 'ca.crt': plane.ca, namespace };
    for (const [name, text] of Object.entries(own)) mounted[join(account, name)] = text;
  }
  const { hostname, port } = new URL(plane.server);
  return {
    containerfile,
    args: container.args.map(expand),
    env: { ...env, KUBERNETES_SERVICE_HOST: hostname, KUBERNETES_SERVICE_PORT: port },
    mounted,
    capabilities: container.securityContext.capabilities.add ?? [],
    token,
  };
}

async function sampleOf(base: string, series: string): Promise<number> {
  const text = await (await fetch(`${base}/metrics`)).text();
  const line = text.split('\n').find((one) => one.startsWith(`${series} `));
  if (line === undefined) throw new Error(`There is no ${series}`);
  return Number(line.slice(series.length + 1));
}

/** The status of a request with a token; null where it is not even answered. */
function statusOf(
  url: string,
  tls: { readonly ca: string; readonly servername?: string },
  token: string | null,
  method = 'GET',
): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    const headers = token === null ? {} : { authorization: `Bearer ${token}` };
    const request = httpsRequest(url, { ...tls, method, headers, agent: false }, (response) => {
      let text = '';
      response.on('data', (part: Buffer) => {
        text += part.toString();
      });
      response.on('end', () => {
        resolve({ status: response.statusCode ?? 0, text });
      });
    });
    request.on('error', reject);
    request.end();
  });
}

interface Stage {
  readonly plane: ControlPlane;
  readonly client: Client;
  readonly folder: string;
  readonly check: Check;
  readonly children: ChildProcess[];
  readonly helm: (...args: string[]) => Promise<string>;
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), 5000);
  await gone;
  clearTimeout(timer);
}

const equal = (got: unknown, want: unknown): string | null =>
  JSON.stringify(got) === JSON.stringify(want)
    ? null
    : `got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`;

async function checkServer(stage: Stage, port: number, path: string): Promise<number> {
  const { plane, client, folder, check, children } = stage;
  const pod = await podOf(plane, client, path, 'Containerfile');
  const tree = join(folder, `server-${children.length}`);
  const child = startPod(tree, pod);
  children.push(child);
  const base = `http://127.0.0.1:${port}`;
  await until(async () => (await fetch(`${base}/readyz`)).ok, 'the server is ready');
  const services = await sampleOf(base, 'endpoint_auditor_services');
  const conform = 'endpoint_auditor_outputs{output="endpointslices",verdict="conform"}';
  const judged = await sampleOf(base, conform);
  check(`the server audits: ${services} Services`, judged > 0 ? null : `${judged} are conform`);
  const found = (await (await fetch(`${base}/api/v1/findings`)).json()) as {
    standing: { severity: string; code: string }[];
  };
  const loud = found.standing.filter(({ severity }) => severity !== 'info');
  check('the server finds nothing wrong', equal(loud, []));
  await stop(child);
  return services;
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

async function checkAgent(stage: Stage, port: number): Promise<void> {
  const { plane, client, folder, check, children } = stage;
  const pod = await podOf(
    plane,
    client,
    `${appsIn}/daemonsets/${release}-agent`,
    'Containerfile.agent',
  );
  check('the agent has no token of the API server', equal(pod.token, null));
  const child = startPod(join(folder, 'agent'), pod);
  children.push(child);
  const secret = '/etc/endpoint-auditor/tls';
  const tls = {
    ca: pod.mounted[`${secret}/ca.crt`] ?? '',
    servername: `${release}-agent.${namespace}.svc`,
  };
  const token = pod.mounted[`${secret}/token`] ?? '';
  const report = `https://127.0.0.1:${port}/v1/report`;
  await until(
    async () => (await statusOf(report, tls, token)).status === 200,
    'the agent has a report',
  );
  const { text } = await statusOf(report, tls, token);
  const { node, problems } = JSON.parse(text) as { node: string; problems: string[] };
  check('the agent tells of its node', equal(node, 'node-a1'));
  check('the agent could read the rules', equal(problems, []));
  check('nobody else is answered', equal((await statusOf(report, tls, null)).status, 401));
  check('nor one with another token', equal((await statusOf(report, tls, 'x')).status, 401));
  await stop(child);
}

async function checkChart(stage: Stage): Promise<void> {
  const { client, folder, check, helm } = stage;
  const [port, agentPort] = [await freePort(), await freePort()];
  const all = { enabled: true };
  const values = {
    image: { registry: 'images.example.com' },
    // The last one wins; a pod has an address of its own, this machine's are shared.
    extraArgs: [`--listen=127.0.0.1:${port}`],
    agent: { ...all, port: agentPort, extraArgs: [`--listen=127.0.0.1:${agentPort}`] },
    serviceMonitor: all,
    podMonitor: all,
    prometheusRule: all,
    dashboards: all,
    networkPolicy: all,
    podDisruptionBudget: { minAvailable: 1 },
  };
  const file = join(folder, 'values.yaml');
  writeFileSync(file, JSON.stringify(values));
  await helm('install', release, chart, '--create-namespace', '--values', file);
  check('helm install', null);
  const before = await client.call('GET', `${within}/secrets/${release}-agent`);

  const services = await checkServer(stage, port, `${appsIn}/deployments/${release}`);
  await checkRights(stage);
  await checkAgent(stage, agentPort);

  await helm('upgrade', release, chart, '--values', file, '--set', 'auditor.settle=20s');
  check('helm upgrade', null);
  const after = await client.call('GET', `${within}/secrets/${release}-agent`);
  const dataOf = (secret: unknown): unknown => (secret as { data: unknown }).data;
  check('an upgrade keeps the secret of the agents', equal(dataOf(after), dataOf(before)));

  const sharded = 'shards=2,agent.enabled=false,podMonitor.enabled=false';
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
    await Promise.all(children.map(stop));
    client.close();
    await plane.stop();
  }
}
