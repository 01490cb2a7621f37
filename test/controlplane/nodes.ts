// Nodes as network namespaces: in each a real kube-proxy and the agent of the node. The auditor has
// a namespace of its own, from which it reaches the agents over veth pairs, and the API server, as
// the kube-proxies do, over a bridge. Needs root.

import type { ChildProcess } from 'node:child_process';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import type { Tally } from './auditor.ts';
import { awaitSoon, program, report, say, secondsSince, textOfError } from './auditor.ts';
import { findPrograms } from './binaries.ts';
import { startChurn } from './churn.ts';
import { createMembersOf, createNode, createNodesOf, setZone } from './cluster.ts';
import type { Account, Client, ControlPlane } from './controlplane.ts';
import { awaitSettled, clientOf, createAccount } from './controlplane.ts';
import type { QuickAgent } from './inside.ts';
import { carry } from './inside.ts';

type Mode = 'iptables' | 'nftables';

/** A program that runs, with the end of what it says. */
export interface Running {
  readonly child: ChildProcess;
  /** All that it has said. */
  readonly log: () => string;
  readonly tail: () => string;
  readonly stop: () => Promise<void>;
}

/** A namespace. */
export interface Space {
  readonly name: string;
  /** Runs a program to its end; returns what it prints. */
  readonly run: (command: readonly string[], input?: string) => string;
  readonly start: (command: readonly string[], log: string) => Running;
  readonly remove: () => void;
}

const ip = (...args: readonly string[]): string =>
  execFileSync('ip', args, { stdio: 'pipe' }).toString();

export function createSpace(name: string): Space {
  ip('netns', 'add', name);
  ip('-n', name, 'link', 'set', 'lo', 'up');
  const inside = (command: readonly string[]): string[] => ['netns', 'exec', name, ...command];
  return {
    name,
    run: (command, input = '') =>
      execFileSync('ip', inside(command), { input, stdio: 'pipe', maxBuffer: 2 ** 27 }).toString(),
    start(command, log) {
      const out = openSync(log, 'a');
      const child = spawn('ip', inside(command), { stdio: ['ignore', out, out] });
      closeSync(out);
      const kill = (): void => void child.kill('SIGKILL');
      process.once('exit', kill);
      return {
        child,
        log: () => readFileSync(log, 'utf8'),
        tail: () => readFileSync(log, 'utf8').split('\n').slice(-30).join('\n'),
        async stop() {
          process.off('exit', kill);
          if (child.exitCode !== null || child.signalCode !== null) return;
          const gone = once(child, 'exit');
          child.kill('SIGCONT');
          child.kill('SIGTERM');
          const timer = setTimeout(kill, 3000);
          await gone;
          clearTimeout(timer);
        },
      };
    },
    remove: () => void ip('netns', 'delete', name),
  };
}

/** A node that is a namespace. */
export interface NodeSpace {
  readonly node: string;
  readonly mode: Mode;
  readonly space: Space;
  readonly address: string;
  readonly podCIDR: string;
  readonly proxy: Running;
  readonly agent: Running;
  /** The file with the rules of each round of the agent. */
  readonly rounds: string;
  /** Seconds from one round of its agent to the next, as they are now. */
  readonly period: () => number;
  readonly stop: () => Promise<void>;
}

export const agentPort = 9466;

/** Seconds between two rounds of an agent at least; they may be more. */
const interval = 2;

/** A namespace in which a real kube-proxy writes rules. */
export interface ProxiedSpace {
  readonly space: Space;
  readonly address: string;
  readonly podCIDR: string;
  readonly proxy: Running;
  /** A file of the namespace. */
  readonly file: (name: string) => string;
  /** Starts a program in it, which ends with it. */
  readonly begin: (name: string, command: readonly string[]) => Running;
  readonly stop: () => Promise<void>;
}

interface ProxyOptions {
  readonly plane: ControlPlane;
  readonly kubeProxy: string;
  /** Where the API server can be reached over the file system. */
  readonly socket: string;
  /** Of the auditor. */
  readonly outside: Space;
}

/** The n-th namespace, from 1; the Node object must be there. */
export async function createProxiedSpace(
  { plane, kubeProxy, socket, outside }: ProxyOptions,
  { node, n, mode }: { readonly node: string; readonly n: number; readonly mode: Mode },
): Promise<ProxiedSpace> {
  const space = createSpace(`ea-${process.pid}-${n}`);
  const started: Running[] = [];
  const file = (name: string): string => join(plane.directory, `${node}-${name}`);
  const begin = (name: string, command: readonly string[]): Running => {
    const running = space.start(command, file(`${name}.log`));
    started.push(running);
    return running;
  };
  const stop = async (): Promise<void> => {
    for (const one of started.reverse()) await one.stop();
    space.remove();
  };
  try {
    const address = link(outside, space, n);
    begin('bridge', [process.execPath, script('inside.ts'), 'carry', `127.0.0.1:6443=${socket}`]);
    writeFileSync(file('kubeconfig'), kubeconfigOf(plane));
    writeFileSync(file('proxy.yaml'), JSON.stringify(proxyConfig(node, mode, file('kubeconfig'))));
    const command = [kubeProxy, '--config', file('proxy.yaml'), '--v', '4'];
    const proxy = begin('kube-proxy', command);
    await sleep(100);
    return { space, address, podCIDR: `10.244.${n}.0/24`, proxy, file, begin, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

interface NodeOptions extends ProxyOptions {
  readonly access: QuickAgent['access'];
  readonly agentCommand: (settings: QuickAgent) => string[];
}

/** The n-th node, from 1; its Node object must be there. */
async function createNodeSpace(
  { access, agentCommand, ...options }: NodeOptions,
  n: number,
  mode: Mode,
): Promise<NodeSpace> {
  const node = `real-${mode}`;
  const proxied = await createProxiedSpace(options, { node, n, mode });
  const { space, address, podCIDR, proxy, file, begin, stop } = proxied;
  const rounds = file('rounds.ndjson');
  const settings: QuickAgent = {
    ...{ rounds, node, nodeIPs: [address], podCIDRs: [podCIDR], proxyConfig: file('proxy.yaml') },
    ...{ interval, share: 3, host: address, port: agentPort, access },
  };
  const agent = begin('agent', agentCommand(settings));
  const period = (): number => {
    const said = /\{"last":(?<last>[\d.]+),"pause":(?<pause>[\d.]+)\}\s*$/.exec(agent.tail());
    return said === null ? interval : Number(said.groups?.last) + Number(said.groups?.pause);
  };
  return { node, mode, space, address, podCIDR, proxy, agent, rounds, period, stop };
}

/** An agent with short pauses that logs its rounds. */
const quickAgent = (settings: QuickAgent): string[] => [
  ...[process.execPath, script('inside.ts'), 'agent', JSON.stringify(settings)],
];

export const script = (name: string): string => join(import.meta.dirname, name);

/** A veth pair; returns the node's address. */
function link(outside: Space, inside: Space, n: number): string {
  const near = `far${n}`;
  const peer = ['peer', 'name', 'eth0', 'netns', inside.name];
  ip('-n', outside.name, 'link', 'add', near, 'type', 'veth', ...peer);
  ip('-n', outside.name, 'addr', 'add', `172.18.${n}.1/24`, 'dev', near);
  ip('-n', outside.name, 'link', 'set', near, 'up');
  ip('-n', inside.name, 'addr', 'add', `172.18.${n}.2/24`, 'dev', 'eth0');
  ip('-n', inside.name, 'link', 'set', 'eth0', 'up');
  ip('-n', inside.name, 'route', 'add', 'default', 'via', `172.18.${n}.1`);
  return `172.18.${n}.2`;
}

export const kubeconfigOf = ({ ca, token }: ControlPlane): string =>
  JSON.stringify({
    'current-context': 'it',
    clusters: [
      {
        name: 'it',
        cluster: {
          server: 'https://127.0.0.1:6443',
          'certificate-authority-data': Buffer.from(ca).toString('base64'),
        },
      },
    ],
    users: [{ name: 'proxy', user: { token } }],
    contexts: [{ name: 'it', context: { cluster: 'it', user: 'proxy' } }],
  });

export const clusterCIDR = '10.244.0.0/16';

/** Its configuration; `kubeconfig` is a file. */
export const proxyConfig = (node: string, mode: Mode, kubeconfig: string): object => ({
  apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
  kind: 'KubeProxyConfiguration',
  mode,
  hostnameOverride: node,
  clusterCIDR,
  clientConnection: { kubeconfig },
  healthzBindAddress: '127.0.0.1:10256',
  metricsBindAddress: '127.0.0.1:10249',
  // What is the machine's own cannot be set in a namespace.
  conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: '0s', tcpCloseWaitTimeout: '0s' },
});

// The auditor outside the nodes: the program in a namespace of its own, with agents to ask, and
// what it serves. Its keys are made here: one authority for the agents' certificate and for its
// own.

/** The Service of the agents. */
const agents = { namespace: 'auditor', name: 'agents' } as const;

export interface Keys {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  readonly file: (name: string) => string;
}

/** An authority, a certificate for all agents, and one for the auditor. */
export function writeKeys(folder: string): Keys {
  const openssl = (...args: readonly string[]): void => {
    execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' });
  };
  const ec = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  const own = ['-keyout', 'agents-ca.key', '-out', 'agents-ca.crt'];
  openssl('req', '-x509', ...ec, '-subj', '/CN=agents-ca', ...own);
  const dns = `subjectAltName=DNS:${agents.name}.${agents.namespace}.svc`;
  const of = { agent: dns, client: 'extendedKeyUsage=clientAuth' };
  for (const [name, extension] of Object.entries(of)) {
    openssl(
      ...['req', '-x509', ...ec, '-subj', `/CN=${name}`],
      ...['-CA', 'agents-ca.crt', '-CAkey', 'agents-ca.key', '-addext', extension],
      ...['-addext', 'basicConstraints=critical,CA:FALSE'],
      ...['-keyout', `${name}.key`, '-out', `${name}.crt`],
    );
  }
  const file = (name: string): string => join(folder, name);
  const read = (name: string): string => readFileSync(file(name), 'utf8');
  return { ca: read('agents-ca.crt'), cert: read('agent.crt'), key: read('agent.key'), file };
}

/** A finding about a node. */
export interface NodeFound {
  readonly code: string;
  readonly severity: string;
  readonly output: string;
  readonly node: string | null;
  readonly namespace: string;
  readonly service: string;
  readonly object: string;
  readonly openedAt: number;
  readonly resolvedAt: number | null;
}

export interface Outside {
  /** Those about nodes, above information. */
  readonly findings: () => Promise<{ standing: NodeFound[]; resolved: NodeFound[] }>;
  readonly get: (path: string) => Promise<string>;
  /** Where it serves, over the file system. */
  readonly socket: string;
  readonly running: Running;
}

function ask(socketPath: string, path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath, path, timeout: 10_000, agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (part: string) => (text += part));
      response.on('end', () => {
        resolve(text);
      });
      // Without this, an answer that breaks off would never end.
      response.on('error', reject);
    });
    asked.on('error', reject);
    asked.on('timeout', () => asked.destroy(new Error(`${path}: no answer`)));
    asked.end();
  });
}

interface OutsideOptions {
  readonly space: Space;
  readonly folder: string;
  readonly keys: Keys;
  readonly account: Account;
  /** Seconds. */
  readonly settle: number;
  readonly nodeFlags: readonly string[];
}

/** Starts the bridge to the space and the auditor in it. */
export function startOutside(options: OutsideOptions): Outside & { readonly bridge: Running } {
  const { space, folder, keys, account, settle, nodeFlags } = options;
  const socket = join(folder, 'auditor.sock');
  const carried = [`127.0.0.1:6443=${join(folder, 'api.sock')}`, `${socket}=127.0.0.1:9465`];
  const command = [process.execPath, script('inside.ts'), 'carry', ...carried];
  const bridge = space.start(command, join(folder, 'bridge.log'));
  const args = ['serve', '--kubeconfig', account.kubeconfig, '--settle', `${settle}s`];
  const asking = [
    ...['--agents', `${agents.namespace}/${agents.name}`],
    ...['--agents-token-file', join(folder, 'agents-token')],
    ...['--agents-ca', keys.file('agents-ca.crt')],
    ...['--agents-cert', keys.file('client.crt'), '--agents-key', keys.file('client.key')],
  ];
  const auditor = [process.execPath, ...nodeFlags, program];
  const all = [...auditor, ...args, ...asking, '--listen', '127.0.0.1:9465'];
  const running = space.start(all, join(folder, 'auditor-nodes.log'));
  return {
    running,
    bridge,
    socket,
    get: (path) => ask(socket, path),
    async findings() {
      const text = await ask(socket, '/api/v1/findings');
      const { standing, resolved } = JSON.parse(text) as {
        standing: NodeFound[];
        resolved: NodeFound[];
      };
      const isLoud = ({ output, severity }: NodeFound): boolean =>
        output === 'node' && severity !== 'info';
      return { standing: standing.filter(isLoud), resolved: resolved.filter(isLoud) };
    },
  };
}

// What can go wrong with the rules of a node, done to the rules that a real kube-proxy wrote, each
// at a Service of its own, and repaired by restoring the earlier rules.

/** A Service that a fault may be at. */
interface Target {
  readonly name: string;
  readonly clusterIP: string;
  /** 0: it has none. */
  readonly nodePort: number;
  /** Addresses of its endpoints, all at port 8080. */
  readonly endpoints: readonly string[];
}

const namespace = 'real';

export interface Scene {
  readonly client: Client;
  readonly of: NodeSpace;
  readonly targets: readonly Target[];
}

interface NodeFault {
  readonly name: string;
  /** What may be found; the first finding must be one of these. */
  readonly codes: readonly string[];
  readonly begin: (scene: Scene) => Promise<void> | void;
  /** Without it, the rules of before are put back. */
  readonly end?: (scene: Scene) => Promise<void> | void;
}

function targetAt({ targets }: Scene, index: number): Target {
  const target = targets[index];
  if (target === undefined) throw new Error('Too few Services');
  return target;
}

const slicePath = (name: string): string =>
  `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices/${name}`;

/** The largest number of endpoints of several Services. */
export async function setEndpoints(
  { client }: Scene,
  targets: readonly Target[],
  count: number,
): Promise<void> {
  for (const { name, endpoints } of targets) {
    const list = endpoints.slice(0, count).map((address) => ({ addresses: [address] }));
    await client.call('PATCH', slicePath(name), { endpoints: list });
  }
}

const stopped: NodeFault = {
  name: 'kube-proxy stopped',
  codes: ['node-rules-stale'],
  async begin(scene) {
    // `ip netns exec` becomes the program that it runs.
    scene.of.proxy.child.kill('SIGSTOP');
    // Each node its own number, so that it is another than before.
    await setEndpoints(scene, scene.targets.slice(4), scene.of.mode === 'iptables' ? 2 : 1);
  },
  end({ of }) {
    of.proxy.child.kill('SIGCONT');
  },
};

// iptables.

function linesWith({ of }: Scene, table: string, ...parts: readonly string[]): string[] {
  const lines = of.space.run(['iptables-save', '-t', table]).split('\n');
  const found = lines.filter((line) => parts.every((part) => line.includes(part)));
  if (found.length === 0) throw new Error(`No rule with ${parts.join(', ')}`);
  return found;
}

function restore({ of }: Scene, table: string, ...commands: readonly string[]): void {
  const input = `*${table}\n${commands.join('\n')}\nCOMMIT\n`;
  of.space.run(['iptables-restore', '--noflush'], input);
}

const deleted = (line: string): string => line.replace(/^-A/, '-D');

/** The chain that a rule leads to. */
const chainOf = (line: string | undefined): string => /-j (\S+)/.exec(line ?? '')?.[1] ?? '';

const iptables: readonly NodeFault[] = [
  {
    name: 'rule deleted',
    codes: ['node-frontend-missing'],
    begin(scene) {
      const { clusterIP } = targetAt(scene, 0);
      const lines = linesWith(scene, 'nat', '-A KUBE-SERVICES', `${clusterIP}/32`);
      restore(scene, 'nat', ...lines.map(deleted));
    },
  },
  {
    name: 'wrong DNAT',
    codes: ['node-endpoint-unexpected', 'node-endpoint-missing'],
    begin(scene) {
      const [endpoint = ''] = targetAt(scene, 1).endpoints;
      const [line = ''] = linesWith(scene, 'nat', `--to-destination ${endpoint}:8080`);
      restore(scene, 'nat', deleted(line), line.replace(endpoint, '10.9.9.9'));
    },
  },
  {
    name: 'chain flushed',
    codes: ['node-frontend-missing'],
    begin(scene) {
      const { clusterIP } = targetAt(scene, 2);
      const [line] = linesWith(scene, 'nat', '-A KUBE-SERVICES', `${clusterIP}/32`);
      restore(scene, 'nat', `-F ${chainOf(line)}`);
    },
  },
  {
    name: 'node port removed',
    codes: ['node-frontend-missing'],
    begin(scene) {
      const { nodePort } = targetAt(scene, 3);
      const lines = linesWith(scene, 'nat', '-A KUBE-NODEPORTS', `--dport ${nodePort} `);
      restore(scene, 'nat', ...lines.map(deleted));
    },
  },
  {
    name: 'foreign DROP',
    codes: ['node-foreign-rule', 'node-frontend-blocked'],
    begin(scene) {
      restore(scene, 'raw', `-I PREROUTING -d ${targetAt(scene, 0).clusterIP} -j DROP`);
    },
    end(scene) {
      restore(scene, 'raw', `-D PREROUTING -d ${targetAt(scene, 0).clusterIP} -j DROP`);
    },
  },
  {
    name: 'marks for masquerading gone',
    codes: ['node-masquerade-missing', 'node-rules-different'],
    begin: (scene) => {
      restore(scene, 'nat', '-F KUBE-MARK-MASQ');
    },
  },
  {
    name: 'nat flushed',
    codes: ['node-rules-flushed'],
    begin: ({ of }) => void of.space.run(['iptables', '-t', 'nat', '-F']),
  },
  stopped,
];

// nftables.

const nftables: readonly NodeFault[] = [
  {
    name: 'map element deleted',
    codes: ['node-frontend-missing', 'node-frontend-blocked'],
    begin(scene) {
      const element = `${targetAt(scene, 0).clusterIP} . tcp . 80`;
      const at = ['ip', 'kube-proxy', 'service-ips', `{ ${element} }`];
      scene.of.space.run(['nft', 'delete', 'element', ...at]);
    },
  },
  {
    name: 'wrong DNAT',
    codes: ['node-endpoint-unexpected', 'node-endpoint-missing', 'node-frontend-missing'],
    begin(scene) {
      const chain = serviceChain(scene, targetAt(scene, 1).name);
      const rule = `add rule ip kube-proxy ${chain} meta l4proto tcp dnat to 10.9.9.9:8080`;
      scene.of.space.run(['nft', '-f', '-'], `flush chain ip kube-proxy ${chain}\n${rule}\n`);
    },
  },
  {
    name: 'chain flushed',
    codes: ['node-frontend-missing', 'node-frontend-blocked'],
    begin(scene) {
      const chain = serviceChain(scene, targetAt(scene, 2).name);
      scene.of.space.run(['nft', '-f', '-'], `flush chain ip kube-proxy ${chain}\n`);
    },
  },
  {
    name: 'node port removed',
    codes: ['node-frontend-missing', 'node-frontend-blocked'],
    begin(scene) {
      const element = `{ tcp . ${targetAt(scene, 3).nodePort} }`;
      const at = ['ip', 'kube-proxy', 'service-nodeports', element];
      scene.of.space.run(['nft', 'delete', 'element', ...at]);
    },
  },
  {
    name: 'foreign DROP',
    codes: ['node-foreign-rule', 'node-frontend-blocked'],
    begin(scene) {
      const { clusterIP } = targetAt(scene, 0);
      const hook = 'type filter hook prerouting priority -300;';
      const table = `table ip other { chain early { ${hook} ip daddr ${clusterIP} drop; }; }`;
      scene.of.space.run(['nft', '-f', '-'], table);
    },
    end: ({ of }) => void of.space.run(['nft', 'delete', 'table', 'ip', 'other']),
  },
  stopped,
];

/** The chain that chooses an endpoint. */
function serviceChain({ of }: Scene, name: string): string {
  const text = of.space.run(['nft', 'list', 'chains', 'ip']);
  const chain = new RegExp(`chain (service-\\w+-${namespace}/${name}/tcp/\\S*)`).exec(text)?.[1];
  if (chain === undefined) throw new Error(`No chain of ${name}`);
  return chain;
}

export const nodeFaults = { iptables, nftables } as const;

/** All rules of the node, to be put back. */
export function rulesOf({ mode, space }: NodeSpace): string {
  return space.run(mode === 'iptables' ? ['iptables-save'] : ['nft', 'list', 'ruleset']);
}

export function putBack({ mode, space }: NodeSpace, rules: string): void {
  if (mode === 'iptables') space.run(['iptables-restore'], rules);
  else space.run(['nft', '-f', '-'], `flush ruleset\n${rules}`);
}

// Nodes, live: the real kube-proxy in both modes against the real API server, each in a network
// namespace with an agent, and the auditor outside. While the cluster changes, nothing may be found
// on a node; then its rules are broken in one way after the other. Each fault must be found, and be
// gone after it was put right. It takes the settle window and one round of the agent, longer on a
// busy machine; the time is printed.

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
const slack = 60;

const zoneOfNodes = 'zone-a';

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
export async function createAgents(
  client: Client,
  nodes: readonly Pick<NodeSpace, 'node' | 'address'>[],
): Promise<void> {
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

interface NamedNodes extends Pick<Nodes, 'outside'> {
  readonly nodes: readonly Pick<NodeSpace, 'node'>[];
}

/** Verdicts other than conform on our nodes. */
async function verdictsOf({ outside, nodes }: NamedNodes): Promise<string[]> {
  const page = JSON.parse(await outside.get('/api/v1/nodes')) as {
    nodes: { node: string; verdicts: Record<string, number> }[];
  };
  const own = new Set(nodes.map(({ node }) => node));
  const found = page.nodes.filter(({ node }) => own.has(node));
  const missing = own.size - found.length;
  return [
    ...(missing > 0 ? [`${missing} nodes are not audited`] : []),
    ...found
      .filter(({ verdicts }) => verdicts.conform === 0 || hasOthers(verdicts))
      .map((one) => JSON.stringify(one)),
  ];
}

const hasOthers = ({ different = 0, pending = 0, unknown = 0 }: Record<string, number>): boolean =>
  different + pending + unknown > 0;

export async function awaitConform(all: NamedNodes, seconds: number): Promise<string[]> {
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
  const openFindings = async (): Promise<NodeFound[]> =>
    (await outside.findings()).standing.filter(({ node }) => node === of.node);
  const wrong: string[] = [];
  await fault.begin(scene);
  let found: NodeFound[] = [];
  const isFound = async (): Promise<boolean> => (found = await openFindings()).length > 0;
  const took = await awaitSoon(isFound, of.period() + settle + slack);
  if (took === null) wrong.push('not found');
  const codes = found.map(({ code }) => code);
  if (codes.some((code) => !fault.codes.includes(code))) wrong.push(...found.map(textOf));
  if (fault.end === undefined) putBack(of, rules);
  else await fault.end(scene);
  const gone = await awaitSoon(
    async () => (await openFindings()).length === 0,
    of.period() + slack,
  );
  if (gone === null) wrong.push('still found after it was put right', ...found.map(textOf));
  const times = `${(took ?? NaN).toFixed(1)} s, gone after ${(gone ?? NaN).toFixed(1)} s`;
  report(tally, `${title}: ${codes.join(', ')} after ${times}`, wrong);
}

async function checkAll(all: Nodes, churn: number): Promise<void> {
  const { tally, nodes } = all;
  report(tally, 'nodes: both are audited, and conform', await awaitConform(all, 60));
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
    : { token, tls: { cert, key } };
}

/**
 * Moves the Node of a kube-proxy to another zone and back until its proxier logs the zone. From
 * 1.34 on, it may miss the zone that its Node has at the start: NewNodeTopologyConfig can receive
 * the Node before the proxier is registered (Run of cmd/kube-proxy/app/server.go, 1.37.2). Its
 * rules then ignore zones until that label changes, which is a true finding.
 */
async function announceZone(client: Client, { node, proxy }: NodeSpace): Promise<void> {
  const isKnown = (): boolean => /Updated proxier node (?:topology )?labels/.test(proxy.log());
  for (let seconds = 0; (await awaitSoon(isKnown, 1)) === null; seconds++) {
    if (seconds > 60) throw new Error(proxy.tail());
    for (const zone of ['zone-b', zoneOfNodes]) await setZone(client, node, zone);
  }
}

export interface NodesOptions {
  /** The settle window of the auditor in seconds. */
  readonly window?: number;
  /** Flags of the Node that runs the auditor. */
  readonly nodeFlags?: readonly string[];
  /** The command of an agent in its namespace. */
  readonly agentCommand?: (settings: QuickAgent) => string[];
}

/** Nodes of some modes, with the auditor that asks their agents, for as long as they are used. */
export async function withNodes(
  plane: ControlPlane,
  modes: readonly Mode[],
  use: (all: Omit<Nodes, 'tally'> & { readonly account: Account }) => Promise<void>,
  { window = settle, nodeFlags = [], agentCommand = quickAgent }: NodesOptions = {},
): Promise<void> {
  const folder = join(plane.directory, 'nodes');
  mkdirSync(folder);
  const client = clientOf(plane);
  const kubeProxy = (await findPrograms(plane.version, ['kube-proxy']))['kube-proxy'];
  const keys = writeKeys(folder);
  const socket = join(folder, 'api.sock');
  const carrier = await carry(socket, new URL(plane.server).host);
  const space = createSpace(`ea-${process.pid}-out`);
  const nodes: NodeSpace[] = [];
  let outside: ReturnType<typeof startOutside> | null = null;
  const token = 'a-token-of-agents';
  writeFileSync(join(folder, 'agents-token'), token);
  try {
    for (const [at, mode] of modes.entries()) {
      await createNode(client, { name: `real-${mode}`, zone: zoneOfNodes, number: 200 + at });
      const status = { addresses: [{ type: 'InternalIP', address: `172.18.${at + 1}.2` }] };
      await client.call('PATCH', `/api/v1/nodes/real-${mode}/status`, { status });
      const spec = { podCIDR: `10.244.${at + 1}.0/24`, podCIDRs: [`10.244.${at + 1}.0/24`] };
      await client.call('PATCH', `/api/v1/nodes/real-${mode}`, { spec });
      const access = accessOf(keys, mode, token);
      const options = { plane, kubeProxy, socket, outside: space, access, agentCommand };
      const node = await createNodeSpace(options, at + 1, mode);
      nodes.push(node);
      await announceZone(client, node);
    }
    const account = await createAccount(plane, client, folder, 'https://127.0.0.1:6443');
    const targets = await createTargets(client);
    await createAgents(client, nodes);
    outside = startOutside({ space, folder, keys, account, settle: window, nodeFlags });
    await use({ client, nodes, outside, targets, account });
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
