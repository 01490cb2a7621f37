// Server and agent as the chart makes them talk to each other: each as its pod says, in a network
// namespace of its own. That of the agent is a node, where a real kube-proxy has written rules; its
// DaemonSet's pod exists on the API server, so that the controllers list it in the slices by which
// the server finds it. Both ways to know each other: a shared token, and client certificates, which
// are made here as the chart's Certificates ask for them. Needs root.

import type { ChildProcess } from 'node:child_process';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { carry } from '../controlplane/bridge.ts';
import type { Client } from '../controlplane/client.ts';
import type { ControlPlane } from '../controlplane/controlplane.ts';
import { kubeProxyOf } from '../controlplane/kube-proxy.ts';
import type { ProxiedSpace, Running, Space } from '../controlplane/netns.ts';
import { createProxiedSpace, createSpace, proxyConfig, script } from '../controlplane/netns.ts';
import { endProgram, freePort } from '../processes.ts';
import type { Tls } from './pods.ts';
import {
  appsIn,
  equal,
  namespace,
  node,
  podOf,
  sampleOf,
  statusOf,
  templateOf,
  until,
  within,
} from './pods.ts';
import type { Pod } from './tree.ts';
import { startPod } from './tree.ts';

export type Check = (name: string, problem: string | null) => void;

/** The two namespaces, and how they are reached from outside. */
export interface Pair {
  readonly of: ProxiedSpace;
  readonly outside: Space;
  /** Where the server is found, `http://…`, and the agent, `https://…`. */
  readonly server: string;
  readonly agent: string;
  readonly stop: () => Promise<void>;
}

/** The configuration of kube-proxy, which the agent reads. */
export const kubeProxyConfig = JSON.stringify(proxyConfig(node, 'iptables', ''));

const agentName = 'endpoint-auditor-agent';
const agentPort = 9466;

export async function createPair(
  plane: ControlPlane,
  client: Client,
  folder: string,
): Promise<Pair> {
  mkdirSync(folder, { recursive: true });
  const file = (name: string): string => join(folder, name);
  const kubeProxy = await kubeProxyOf(plane.version);
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
    [process.execPath, script('bridge.ts'), ...carried],
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
      for (const one of [...carriers, api]) one.close();
      await bridge.stop();
      await of.stop();
      outside.remove();
    },
  };
}

/** The pod of the DaemonSet on its node, ready; the controllers list it. */
export async function createAgentPod({ call }: Client, { of }: Pair): Promise<void> {
  const template = await templateOf({ call } as Client, `${appsIn}/daemonsets/${agentName}`);
  const metadata = { name: `${agentName}-0`, labels: template.metadata.labels };
  const path = `${within}/pods`;
  await call('POST', path, { metadata, spec: { ...template.spec, nodeName: node } });
  const ready = { type: 'Ready', status: 'True', lastTransitionTime: new Date().toISOString() };
  const ips = { podIP: of.address, podIPs: [{ ip: of.address }] };
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
export interface Stage {
  readonly plane: ControlPlane;
  readonly client: Client;
  readonly folder: string;
  readonly check: Check;
  readonly children: ChildProcess[];
}

const server = {
  workload: `${appsIn}/deployments/endpoint-auditor`,
  file: 'Containerfile',
} as const;
const agent = {
  workload: `${appsIn}/daemonsets/${agentName}`,
  file: 'Containerfile.agent',
} as const;

/** How the server sees the agents of all nodes. */
async function awaitAgents(base: string, state: string): Promise<void> {
  const series = `endpoint_auditor_node_agents{state="${state}"}`;
  await until(async () => (await sampleOf(base, series)) === 1, `the server sees one ${state}`);
}

type Mode = 'token' | 'cert-manager';

/** The text of a file that is mounted somewhere. */
const mounted = (files: Pod['mounted'], name: string): string =>
  Object.entries(files).find(
    ([path]) => /\/(agents|tls)\//.test(path) && path.endsWith(`/${name}`),
  )?.[1] ?? '';

/** Who is answered by the agent: each case, and the status. */
async function checkCallers(
  { check }: Stage,
  { agent: base }: Pair,
  mode: Mode,
  files: { readonly agent: Pod['mounted']; readonly server: Pod['mounted'] },
): Promise<void> {
  const tls: Tls = {
    ca: mounted(files.server, 'ca.crt'),
    servername: `${agentName}.${namespace}.svc`,
  };
  const own = { cert: mounted(files.server, 'tls.crt'), key: mounted(files.server, 'tls.key') };
  const agents = { cert: mounted(files.agent, 'tls.crt'), key: mounted(files.agent, 'tls.key') };
  const token = mounted(files.server, 'token');
  const byMode = {
    token: [
      ['with the token', 200, tls, token],
      ['without a token', 401, tls, null],
      ['with another token', 401, tls, 'x'],
    ],
    'cert-manager': [
      ['with the certificate of the server', 200, { ...tls, ...own }, null],
      ['without a certificate', 401, tls, null],
      ['with a certificate that is not for clients', 401, { ...tls, ...agents }, null],
      ['with a token instead', 401, tls, 'x'],
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
  const conform = 'endpoint_auditor_outputs{output="endpointslices",verdict="conform"}';
  const judged = await sampleOf(base, conform);
  check(`the server audits: ${services} Services`, judged > 0 ? null : `${judged} are conform`);
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
  for (const name of ['tls.crt', 'tls.key'] as const) other[name] = mounted(agents.mounted, name);
  const texts = Object.entries(pod.mounted).map(([path, text]) => {
    const name = path.replace(/^.*\/agents\//, '');
    return [path, name in other ? other[name as keyof typeof other] : text];
  });
  return { ...pod, mounted: Object.fromEntries(texts) as Pod['mounted'] };
}

/** Whether all that packets meet on the node is known, and right. */
async function isRight(base: string): Promise<boolean> {
  const { nodes } = (await (await fetch(`${base}/api/v1/nodes`)).json()) as {
    nodes: { node: string; verdicts: Record<string, number> }[];
  };
  const { conform = 0, ...others } = nodes.find((one) => one.node === node)?.verdicts ?? {};
  return conform > 0 && Object.values(others).every((count) => count === 0);
}

/** Starts both, and looks at what one sees of the other; returns how many Services there are. */
export async function checkPair(stage: Stage, pair: Pair, mode: Mode): Promise<number> {
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
  check(`${mode}: the server judges the rules of the node, and all are right`, null);
  const services = await checkAudit(check, base);
  await checkCallers(stage, pair, mode, { agent: agentPod.mounted, server: serverPod.mounted });
  await endProgram(own);
  const stranger = begin('stranger', strangerOf(serverPod, agentPod), outside);
  await awaitAgents(base, 'refused');
  check(`${mode}: a server that the agent does not know is refused, and says so`, null);
  await endProgram(stranger);
  await endProgram(agents);
  return services;
}
