// Pods of the chart as the kubelet would make them of the objects on the API server: arguments,
// environment, mounted Secrets and ConfigMaps, and a token of their ServiceAccount.

import type { ChildProcess } from 'node:child_process';
import { execFile, execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

import { carry } from '../controlplane/inside.ts';
import { findPrograms, newestVersion } from '../controlplane/binaries.ts';
import type { Client, ControlPlane } from '../controlplane/controlplane.ts';
import { awaitSettled, clientOf, startControlPlane } from '../controlplane/controlplane.ts';
import { createCluster } from '../controlplane/cluster.ts';
import type { ProxiedSpace, Running, Space } from '../controlplane/nodes.ts';
import { createProxiedSpace, createSpace, proxyConfig, script } from '../controlplane/nodes.ts';
import { endProgram, freePort } from '../processes.ts';
import type { Pod } from './files.ts';
import { chart, crds, startPod } from './files.ts';

export const namespace = 'monitoring';
export const within = `/api/v1/namespaces/${namespace}`;
export const appsIn = `/apis/apps/v1/namespaces/${namespace}`;

/** Where agents run, and a node whose agent pod exists only on the API server. */
const node = 'node-a1';
const otherNode = 'node-a2';

const agentName = 'endpoint-auditor-agent';
const podOn = (of: string): string => `${agentName}-${of}`;

export async function until(isTrue: () => Promise<boolean>, what: string): Promise<void> {
  // An agent on a busy machine rests for a minute and longer.
  const deadline = Date.now() + 240_000;
  while (Date.now() < deadline) {
    if (await isTrue().catch(() => false)) return;
    await sleep(200);
  }
  throw new Error(`Waited in vain: ${what}`);
}

interface Container {
  readonly name: string;
  readonly args: readonly string[];
  readonly env?: readonly {
    readonly name: string;
    readonly value?: string;
    readonly valueFrom?: { readonly fieldRef: { readonly fieldPath: string } };
  }[];
  readonly securityContext: {
    readonly runAsUser?: number;
    readonly capabilities: { readonly add?: readonly string[] };
  };
  readonly ports?: readonly object[];
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string }[];
}

interface Volume {
  readonly name: string;
  readonly secret?: {
    readonly secretName: string;
    readonly items?: readonly { readonly key: string; readonly path: string }[];
  };
  readonly configMap?: { readonly name: string };
  readonly emptyDir?: object;
  readonly projected?: {
    readonly sources: readonly {
      readonly serviceAccountToken: { readonly audience: string; readonly path: string };
    }[];
  };
}

interface PodSpec {
  readonly serviceAccountName: string;
  readonly automountServiceAccountToken: boolean;
  readonly securityContext?: { readonly fsGroup?: number };
  readonly containers: readonly Container[];
  readonly volumes?: readonly Volume[];
}

/** The template of pods of a workload. */
interface Template {
  readonly metadata: { readonly labels: Readonly<Record<string, string>> };
  readonly spec: PodSpec;
}

export async function templateOf({ call }: Client, path: string): Promise<Template> {
  const { spec } = (await call('GET', path)) as { spec: { template: Template } };
  return spec.template;
}

/** The values of the downward API for the first pod of its set on that node. */
const downward: Readonly<Record<string, string>> = {
  'spec.nodeName': node,
  "metadata.labels['apps.kubernetes.io/pod-index']": '0',
};

type Texts = Readonly<Record<string, string>>;

/** The files of a volume, by their names in it. */
async function filesIn(client: Client, volume: Volume, account: string): Promise<Texts> {
  const { call } = client;
  const { secret, configMap, projected } = volume;
  if (projected !== undefined) {
    const tokens = projected.sources.map(async ({ serviceAccountToken: { audience, path } }) => {
      return [path, await podTokenOf(client, account, audience, podOn(node))] as const;
    });
    return Object.fromEntries(await Promise.all(tokens));
  }
  if (configMap !== undefined) {
    const { data } = (await call('GET', `${within}/configmaps/${configMap.name}`)) as {
      data: Texts;
    };
    return data;
  }
  const path = `${within}/secrets/${secret?.secretName ?? ''}`;
  const { data } = (await call('GET', path)) as { data: Texts };
  const items = secret?.items ?? Object.keys(data).map((key) => ({ key, path: key }));
  return Object.fromEntries(
    items.map((item) => [item.path, Buffer.from(data[item.key] ?? '', 'base64').toString()]),
  );
}

async function mountedBy(client: Client, spec: PodSpec, container: Container): Promise<Texts> {
  const { volumes = [], serviceAccountName: account } = spec;
  const files: Record<string, string> = {};
  for (const { name, mountPath } of container.volumeMounts ?? []) {
    const volume = volumes.find((one) => one.name === name);
    if (volume === undefined) throw new Error(`There is no volume ${name}`);
    if (volume.emptyDir !== undefined) continue;
    for (const [file, text] of Object.entries(await filesIn(client, volume, account))) {
      files[join(mountPath, file)] = text;
    }
  }
  return files;
}

/** A token as the kubelet would have it mounted. */
export async function tokenOf({ call }: Client, account: string): Promise<string> {
  const made = await call('POST', `${within}/serviceaccounts/${account}/token`, { spec: {} });
  return (made as { status: { token: string } }).status.token;
}

/** A token for an audience, bound to a pod as the kubelet of its node has it. */
async function podTokenOf(
  { call }: Client,
  account: string,
  audience: string,
  pod: string,
): Promise<string> {
  const { metadata } = (await call('GET', `${within}/pods/${pod}`)) as {
    metadata: { uid: string };
  };
  const bound = { kind: 'Pod', apiVersion: 'v1', name: pod, uid: metadata.uid };
  const spec = { audiences: [audience], boundObjectRef: bound };
  const made = await call('POST', `${within}/serviceaccounts/${account}/token`, { spec });
  return (made as { status: { token: string } }).status.token;
}

/** The value of a field of the pod, as the kubelet has it. */
async function fieldOf({ call }: Client, path: string): Promise<string> {
  if (path !== 'status.hostIP') return downward[path] ?? '';
  const pod = (await call('GET', `${within}/pods/${podOn(node)}`)) as {
    status: { hostIP: string };
  };
  return pod.status.hostIP;
}

/** A container with all that the kubelet would give it; `own`: files of its ServiceAccount. */
async function containerOf(
  plane: Pick<ControlPlane, 'server'>,
  client: Client,
  spec: PodSpec,
  container: Container,
  own: Texts,
): Promise<Omit<Pod, 'containerfile' | 'others'>> {
  const env: Record<string, string> = {};
  for (const { name, value, valueFrom } of container.env ?? []) {
    env[name] = value ?? (await fieldOf(client, valueFrom?.fieldRef.fieldPath ?? ''));
  }
  const expand = (text: string): string =>
    text.replaceAll(/\$\((\w+)\)/g, (_all, name: string) => env[name] ?? '');
  const { hostname, port } = new URL(plane.server);
  const { securityContext, volumeMounts = [] } = container;
  const empty = (spec.volumes ?? []).filter(({ emptyDir }) => emptyDir !== undefined);
  const emptyDirs = volumeMounts.filter(({ name }) => empty.some((one) => one.name === name));
  return {
    args: container.args.map(expand),
    env: { ...env, KUBERNETES_SERVICE_HOST: hostname, KUBERNETES_SERVICE_PORT: port },
    mounted: { ...(await mountedBy(client, spec, container)), ...own },
    capabilities: securityContext.capabilities.add ?? [],
    user: securityContext.runAsUser ?? null,
    fsGroup: spec.securityContext?.fsGroup ?? null,
    emptyDirs: Object.fromEntries(emptyDirs.map(({ name, mountPath }) => [mountPath, name])),
  };
}

/** The pod that a workload makes; its container is the one with a port. */
export async function podOf(
  plane: Pick<ControlPlane, 'server' | 'ca'>,
  client: Client,
  path: string,
  containerfile: Pod['containerfile'],
): Promise<Pod & { readonly token: string | null }> {
  const { spec } = await templateOf(client, path);
  const token = spec.automountServiceAccountToken
    ? await tokenOf(client, spec.serviceAccountName)
    : null;
  const account = '/var/run/secrets/kubernetes.io/serviceaccount';
  const files = token === null ? {} : { token, 'ca.crt': plane.ca, namespace };
  const own = Object.fromEntries(
    Object.entries(files).map(([name, text]) => [join(account, name), text]),
  );
  const all = spec.containers.map(async (container) => ({
    hasPort: (container.ports ?? []).length > 0,
    pod: {
      containerfile,
      ...(await containerOf(plane, client, spec, container, own)),
      others: [],
    },
  }));
  const containers = await Promise.all(all);
  const main = containers.find(({ hasPort }) => hasPort);
  if (main === undefined) throw new Error(`${path} has no container with a port`);
  const others = containers.filter((one) => one !== main).map(({ pod }) => pod);
  return { ...main.pod, others, token };
}

/** What a client shows and believes. */
interface Tls {
  readonly ca: string;
  readonly servername?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** The answer to a request with a token, or without; throws where there is none. */
export function statusOf(
  url: string,
  tls: Tls,
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
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end();
  });
}

export async function sampleOf(base: string, series: string): Promise<number> {
  const text = await (await fetch(`${base}/metrics`)).text();
  const line = text.split('\n').find((one) => one.startsWith(`${series} `));
  if (line === undefined) throw new Error(`There is no ${series}`);
  return Number(line.slice(series.length + 1));
}

/** null: equal; else in what they differ. */
export const equal = (got: unknown, want: unknown): string | null =>
  JSON.stringify(got) === JSON.stringify(want)
    ? null
    : `got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`;

// Server and agent as the chart makes them talk to each other: each as its pod says, in a network
// namespace of its own. That of the agent is a node, where a real kube-proxy has written rules; its
// DaemonSet's pod exists on the API server, so that the controllers list it in the slices by which
// the server finds it. All ways to know each other: a shared token, and client certificates of
// Helm and of cert-manager, which are made here as the chart's Certificates ask for them. Needs
// root.

type Check = (name: string, problem: string | null) => void;

/** The two namespaces, and how they are reached from outside. */
interface Pair {
  readonly of: ProxiedSpace;
  readonly outside: Space;
  /** Where the server is found, `http://…`, and the agent, `https://…`. */
  readonly server: string;
  readonly agent: string;
  readonly stop: () => Promise<void>;
}

/** The configuration of kube-proxy, which the agent reads. */
const kubeProxyConfig = JSON.stringify(proxyConfig(node, 'iptables', ''));

const agentPort = 9466;

export async function createPair(
  plane: ControlPlane,
  client: Client,
  folder: string,
): Promise<Pair> {
  mkdirSync(folder, { recursive: true });
  const file = (name: string): string => join(folder, name);
  const kubeProxy = (await findPrograms(plane.version, ['kube-proxy']))['kube-proxy'];
  const api = await carry(file('api.sock'), new URL(plane.server).host);
  const outside = createSpace(`ea-${process.pid}-server`);
  const of = await createProxiedSpace(
    { plane, kubeProxy, socket: file('api.sock'), outside },
    { node, n: 1, mode: 'iptables' },
  );
  const addresses = [{ type: 'InternalIP', address: of.address }];
  await client.call('PATCH', `/api/v1/nodes/${node}/status`, { status: { addresses } });
  const carried = [
    `127.0.0.1:6443=${file('api.sock')}`,
    `${file('server.sock')}=127.0.0.1:9465`,
    `${file('agent.sock')}=${of.address}:${agentPort}`,
  ];
  const bridge: Running = outside.start(
    [process.execPath, script('inside.ts'), 'carry', ...carried],
    file('bridge.log'),
  );
  const [server, agent] = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`];
  const carriers = [
    await carry(server, file('server.sock')),
    await carry(agent, file('agent.sock')),
  ];
  return {
    of,
    outside,
    server: `http://${server}`,
    agent: `https://${agent}`,
    async stop() {
      for (const name of [node, otherNode].map(podOn)) {
        const path = `${within}/pods/${name}?gracePeriodSeconds=0`;
        await client.call('DELETE', path).catch(() => undefined);
      }
      for (const one of [...carriers, api]) one.close();
      await bridge.stop();
      await of.stop();
      outside.remove();
    },
  };
}

/** The pods of the DaemonSet on two nodes; that of the tests is ready, and in the slices. */
export async function createAgentPods({ call }: Client, { of }: Pair): Promise<void> {
  const template = await templateOf({ call } as Client, `${appsIn}/daemonsets/${agentName}`);
  const { labels } = template.metadata;
  const path = `${within}/pods`;
  const other = { name: podOn(otherNode) };
  await call('POST', path, { metadata: other, spec: { ...template.spec, nodeName: otherNode } });
  const metadata = { name: podOn(node), labels };
  await call('POST', path, { metadata, spec: { ...template.spec, nodeName: node } });
  const ready = { type: 'Ready', status: 'True', lastTransitionTime: new Date().toISOString() };
  const ips = { hostIP: of.address, podIP: of.address, podIPs: [{ ip: of.address }] };
  const status = { phase: 'Running', conditions: [ready], ...ips };
  await call('PATCH', `${path}/${metadata.name}/status`, { status });
}

interface Certificate {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly secretName: string;
    readonly isCA?: boolean;
    readonly dnsNames?: readonly string[];
    readonly commonName?: string;
    readonly usages?: readonly string[];
  };
}

const usages: Readonly<Record<string, string>> = {
  'server auth': 'serverAuth',
  'client auth': 'clientAuth',
};

/** The Secrets of the chart's Certificates, signed by an authority that is made for them. */
export async function issue({ call }: Client, folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const openssl = (...args: readonly string[]): void => {
    execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' });
  };
  const read = (name: string): string => readFileSync(join(folder, name)).toString('base64');
  const ec = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  openssl('req', '-x509', ...ec, '-subj', '/CN=ca', '-keyout', 'ca.key', '-out', 'ca.crt');
  const path = `/apis/cert-manager.io/v1/namespaces/${namespace}/certificates`;
  const { items } = (await call('GET', path)) as { items: Certificate[] };
  for (const { metadata, spec } of items.filter((one) => one.spec.isCA !== true)) {
    const { name } = metadata;
    const names = (spec.dnsNames ?? []).map((dns) => `DNS:${dns}`).join();
    const use = (spec.usages ?? []).map((usage) => usages[usage] ?? '').join();
    openssl(
      ...['req', '-x509', ...ec, '-subj', `/CN=${spec.commonName ?? ''}`],
      ...['-CA', 'ca.crt', '-CAkey', 'ca.key', '-addext', `extendedKeyUsage=${use}`],
      ...(names === '' ? [] : ['-addext', `subjectAltName=${names}`]),
      ...['-addext', 'basicConstraints=critical,CA:FALSE'],
      ...['-keyout', `${name}.key`, '-out', `${name}.crt`],
    );
    const data = {
      'ca.crt': read('ca.crt'),
      'tls.crt': read(`${name}.crt`),
      'tls.key': read(`${name}.key`),
    };
    const type = 'kubernetes.io/tls';
    const secret = { metadata: { name: spec.secretName }, type, data };
    await call('DELETE', `${within}/secrets/${spec.secretName}`).catch(() => undefined);
    await call('POST', `${within}/secrets`, secret);
  }
}

/** Where pods are started, and looked at. */
interface PairStage {
  readonly plane: ControlPlane;
  readonly client: Client;
  readonly folder: string;
  readonly check: Check;
  readonly children: ChildProcess[];
}

export const server = {
  workload: `${appsIn}/deployments/endpoint-auditor`,
  file: 'Containerfile',
} as const;
export const agent = {
  workload: `${appsIn}/daemonsets/${agentName}`,
  file: 'Containerfile.agent',
} as const;

/** How the server sees the agents of all nodes. */
export async function awaitAgents(base: string, state: string): Promise<void> {
  const series = `endpoint_auditor_node_agents{state="${state}"}`;
  await until(async () => (await sampleOf(base, series)) === 1, `the server sees one ${state}`);
}

type Mode = 'certificates' | 'cert-manager' | 'token';

/** The text of a file that is mounted somewhere. */
export const fileIn = (files: Pod['mounted'], name: string): string =>
  Object.entries(files).find(
    ([path]) => /\/(agents|tls)\//.test(path) && path.endsWith(`/${name}`),
  )?.[1] ?? '';

/** Who is answered by the agent: each case, and the status. */
async function checkCallers(
  { check }: PairStage,
  { agent: base }: Pair,
  mode: Mode,
  files: { readonly agent: Pod['mounted']; readonly server: Pod['mounted'] },
): Promise<void> {
  const tls: Tls = {
    ca: fileIn(files.server, 'ca.crt'),
    servername: `${agentName}.${namespace}.svc`,
  };
  const own = { cert: fileIn(files.server, 'tls.crt'), key: fileIn(files.server, 'tls.key') };
  const agents = { cert: fileIn(files.agent, 'tls.crt'), key: fileIn(files.agent, 'tls.key') };
  const token = fileIn(files.server, 'token');
  const byCertificate = [
    ['with the certificate of the server', 200, { ...tls, ...own }, null],
    ['without a certificate', 401, tls, null],
    ['with the certificate of an agent', 401, { ...tls, ...agents }, null],
    ['with a token instead', 401, tls, 'x'],
  ] as const;
  const byMode = {
    certificates: byCertificate,
    'cert-manager': byCertificate,
    token: [
      ['with the token', 200, tls, token],
      ['without a token', 401, tls, null],
      ['with another token', 401, tls, 'x'],
    ],
  } as const;
  for (const [who, want, shown, bearer] of byMode[mode]) {
    const answer = await statusOf(`${base}/v1/report`, shown, bearer).catch(() => null);
    check(`${mode}: ${who}, the agent answers ${want}`, equal(answer?.status, want));
  }
}

/** A ready server audits without findings; returns how many Services it has. */
export async function checkAudit(check: Check, base: string): Promise<number> {
  const services = await sampleOf(base, 'endpoint_auditor_services');
  const conform = 'endpoint_auditor_outputs{output="endpointslices",verdict="ok"}';
  const ok = await sampleOf(base, conform);
  check(`the server audits: ${services} Services`, ok > 0 ? null : `${ok} are conform`);
  const found = (await (await fetch(`${base}/api/v1/findings`)).json()) as {
    standing: { severity: string; code: string }[];
  };
  const loud = found.standing.filter(({ severity }) => severity !== 'info');
  check('the server finds nothing wrong', equal(loud, []));
  return services;
}

/** The same server with another token, and with a certificate that is not for clients. */
function strangerOf(pod: Pod, agents: Pod): Pod {
  const other = { token: 'x', 'tls.crt': '', 'tls.key': '' };
  for (const name of ['tls.crt', 'tls.key'] as const) other[name] = fileIn(agents.mounted, name);
  const texts = Object.entries(pod.mounted).map(([path, text]) => {
    const name = path.replace(/^.*\/agents\//, '');
    return [path, name in other ? other[name as keyof typeof other] : text];
  });
  return { ...pod, mounted: Object.fromEntries(texts) as Pod['mounted'] };
}

/** Whether all that packets meet on the node is known, and right. */
export async function isRight(base: string): Promise<boolean> {
  const { nodes } = (await (await fetch(`${base}/api/v1/nodes`)).json()) as {
    nodes: { node: string; verdicts: Record<string, number> }[];
  };
  const { conform = 0, ...others } = nodes.find((one) => one.node === node)?.verdicts ?? {};
  return conform > 0 && Object.values(others).every((count) => count === 0);
}

/** Starts both, and looks at what one sees of the other; returns how many Services there are. */
async function checkPair(stage: PairStage, pair: Pair, mode: Mode): Promise<number> {
  const { plane, client, folder, check, children } = stage;
  const { of, outside, server: base } = pair;
  const within = { ...plane, server: 'https://127.0.0.1:6443' };
  const agentPod = await podOf(within, client, agent.workload, agent.file);
  const serverPod = await podOf(within, client, server.workload, server.file);
  check(`${mode}: the agent has no token of the API server`, equal(agentPod.token, null));
  const begin = (name: string, pod: Pod, { name: space }: Space): ChildProcess => {
    const child = startPod(join(folder, `${name}-${mode}`), pod, space);
    children.push(child);
    return child;
  };
  const agents = begin('agent', agentPod, of.space);
  const own = begin('server', serverPod, outside);
  await until(async () => (await fetch(`${base}/readyz`)).ok, 'the server is ready');
  await awaitAgents(base, 'answering');
  check(`${mode}: the agent answers the server`, null);
  await until(() => isRight(base), 'all that packets meet on the node is right');
  check(`${mode}: the server audits the rules of the node, and all are right`, null);
  const services = await checkAudit(check, base);
  await checkCallers(stage, pair, mode, { agent: agentPod.mounted, server: serverPod.mounted });
  await endProgram(own);
  const stranger = begin('stranger', strangerOf(serverPod, agentPod), outside);
  await awaitAgents(base, 'refused');
  check(`${mode}: a server that the agent does not know is refused, and says so`, null);
  await endProgram(stranger);
  await endProgram(agents);
  if (mode !== 'token') await checkOtherNode(stage, pair, mode, agentPod, serverPod);
  return services;
}

/** An agent with the key of all and the token of another node is refused. */
async function checkOtherNode(
  { client, folder, check, children }: PairStage,
  { of, outside, server: base }: Pair,
  mode: Mode,
  agentPod: Pod,
  serverPod: Pod,
): Promise<void> {
  const audience = 'endpoint-auditor';
  const token = await podTokenOf(client, agentName, audience, podOn(otherNode));
  const path = '/etc/endpoint-auditor/identity/token';
  check(`${mode}: the agent has a token of its own`, equal(path in agentPod.mounted, true));
  const pods = [
    ['impostor', { ...agentPod, mounted: { ...agentPod.mounted, [path]: token } }, of.space],
    ['misled', serverPod, outside],
  ] as const;
  const running = pods.map(([name, pod, { name: space }]) =>
    startPod(join(folder, `${name}-${mode}`), pod, space),
  );
  children.push(...running);
  await awaitAgents(base, 'refused');
  check(`${mode}: an agent with the token of another node is refused`, null);
  await Promise.all(running.map((child) => endProgram(child)));
}

// The chart on a real API server: installed, upgraded and uninstalled by helm, with the CRDs of the
// Prometheus Operator there; and what it makes run. Server and agent are started as their pods say,
// in the file trees of their images: arguments, environment, user, capabilities, the files that are
// mounted, and a token of the ServiceAccount, by which what is not permitted is refused. How they
// talk to each other is in pair.ts.

const run = promisify(execFile);

export const release = 'endpoint-auditor';

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

export interface Stage extends PairStage {
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
  const services = await checkAudit(check, base);
  await endProgram(child);
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
    ['POST', `/apis/events.k8s.io/v1/namespaces/default/events`],
    ['DELETE', `${within}/services/${release}`],
    ['DELETE', '/api/v1/nodes/node-a1'],
  ] as const;
  for (const [method, path] of forbidden) {
    check(`may not ${method} ${path}`, equal(await ask(method, path), 403));
  }
}

/** All ways for server and agent to know each other; ends with that of the default. */
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
    await createAgentPods(client, pair);
    await checkPair(stage, pair, 'cert-manager');
    for (const path of secrets) await client.call('DELETE', path);
    await helm('upgrade', release, chart, '--values', file);
    const services = await checkPair(stage, pair, 'certificates');
    for (const path of secrets) await client.call('DELETE', path);
    await helm('upgrade', release, chart, '--values', file, '--set', 'agent.auth.mode=token');
    await checkPair(stage, pair, 'token');
    await helm('upgrade', release, chart, '--values', file);
    return services;
  } finally {
    await pair.stop();
  }
}

export async function checkChart(stage: Stage): Promise<void> {
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
    `${within}/secrets/${release}-agent-client`,
    `/apis/rbac.authorization.k8s.io/v1/clusterroles/${release}`,
    `/apis/monitoring.coreos.com/v1/namespaces/${namespace}/prometheusrules/${release}`,
  ];
  for (const path of paths) {
    check(`helm uninstall: ${path} is gone`, (await isGone(path)) ? null : 'it is there');
  }
}

/** Starts a control plane for some suites, which leave it as it was; `helm` is its path. */
export async function checkInstall(
  helm: string,
  folder: string,
  check: Check,
  suites: readonly ((stage: Stage) => Promise<void>)[],
): Promise<void> {
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
    for (const suite of suites) {
      await suite({ plane, client, folder, check, children, helm: call });
    }
  } catch (error) {
    check('the chart on an API server', error instanceof Error ? (error.stack ?? '') : 'failed');
  } finally {
    await Promise.all(children.map((child) => endProgram(child)));
    client.close();
    await plane.stop();
  }
}
