// Nodes as network namespaces: in each a real kube-proxy and the agent of the node. The auditor has
// a namespace of its own, from which it reaches the agents over veth pairs, and the API server, as
// the kube-proxies do, over a bridge. Needs root.

import type { ChildProcess } from 'node:child_process';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import type { ControlPlane } from './controlplane.ts';
import type { QuickAgent } from './quickagent.ts';

export type Mode = 'iptables' | 'nftables';

/** A program that runs, with the end of what it says. */
export interface Running {
  readonly child: ChildProcess;
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
  /** Seconds from one round of its agent to the next, as they are now. */
  readonly period: () => number;
  readonly stop: () => Promise<void>;
}

export const agentPort = 9466;

/** Seconds between two rounds of an agent at least; they may be more. */
export const interval = 2;

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

export interface ProxyOptions {
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
    begin('bridge', [process.execPath, script('bridge.ts'), `127.0.0.1:6443=${socket}`]);
    writeFileSync(file('kubeconfig'), kubeconfigOf(plane));
    writeFileSync(file('proxy.yaml'), JSON.stringify(proxyConfig(node, mode, file('kubeconfig'))));
    const proxy = begin('kube-proxy', [kubeProxy, '--config', file('proxy.yaml')]);
    await sleep(100);
    return { space, address, podCIDR: `10.244.${n}.0/24`, proxy, file, begin, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

export interface NodeOptions extends ProxyOptions {
  readonly access: QuickAgent['access'];
}

/** The n-th node, from 1; its Node object must be there. */
export async function createNodeSpace(
  { access, ...options }: NodeOptions,
  n: number,
  mode: Mode,
): Promise<NodeSpace> {
  const node = `real-${mode}`;
  const proxied = await createProxiedSpace(options, { node, n, mode });
  const { space, address, podCIDR, proxy, file, begin, stop } = proxied;
  const settings: QuickAgent = {
    ...{ node, nodeIPs: [address], podCIDRs: [podCIDR], proxyConfig: file('proxy.yaml') },
    ...{ interval, share: 3, host: address, port: agentPort, access },
  };
  const command = [process.execPath, script('quickagent.ts'), JSON.stringify(settings)];
  const agent = begin('agent', command);
  const period = (): number => {
    const said = /\{"last":(?<last>[\d.]+),"pause":(?<pause>[\d.]+)\}\s*$/.exec(agent.tail());
    return said === null ? interval : Number(said.groups?.last) + Number(said.groups?.pause);
  };
  return { node, mode, space, address, podCIDR, proxy, agent, period, stop };
}

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

const kubeconfigOf = ({ ca, token }: ControlPlane): string =>
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

/** Its configuration; `kubeconfig` is a file. */
export const proxyConfig = (node: string, mode: Mode, kubeconfig: string): object => ({
  apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
  kind: 'KubeProxyConfiguration',
  mode,
  hostnameOverride: node,
  clusterCIDR: '10.244.0.0/16',
  clientConnection: { kubeconfig },
  healthzBindAddress: '127.0.0.1:10256',
  metricsBindAddress: '127.0.0.1:10249',
  // What is the machine's own cannot be set in a namespace.
  conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: '0s', tcpCloseWaitTimeout: '0s' },
});
