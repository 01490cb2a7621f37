// What can go wrong with the rules of a node, done to the rules that a real kube-proxy wrote, each
// at a Service of its own, and repaired by restoring the earlier rules.

import type { Client } from './client.ts';
import type { NodeSpace } from './netns.ts';

/** A Service that a fault may be at. */
export interface Target {
  readonly name: string;
  readonly clusterIP: string;
  /** 0: it has none. */
  readonly nodePort: number;
  /** Addresses of its endpoints, all at port 8080. */
  readonly endpoints: readonly string[];
}

export const namespace = 'real';

export interface Scene {
  readonly client: Client;
  readonly of: NodeSpace;
  readonly targets: readonly Target[];
}

export interface NodeFault {
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
