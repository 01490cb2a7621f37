// Records nodes: network namespaces in which a real kube-proxy of a release writes rules for the
// same Services in both modes, what the kernel does with packets under them, and under rules that
// are broken on purpose. The folders are those of test/nodes/README.md. Needs root.

import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';

import { stringify } from 'yaml';

import { chanceFrom } from '../apiserver/life.ts';
import { findPrograms } from '../controlplane/binaries.ts';
import { inParallel } from '../controlplane/cluster.ts';
import type { Client, ControlPlane, Thing } from '../controlplane/controlplane.ts';
import { awaitSettled, clientOf } from '../controlplane/controlplane.ts';
import { carry } from '../controlplane/inside.ts';
import type { Running, Space } from '../controlplane/nodes.ts';
import { createSpace, kubeconfigOf, proxyConfig, script } from '../controlplane/nodes.ts';
import type { PacketLine } from '../nodes/folder.ts';
import { cacheFolder, goProgram } from '../processes.ts';
import { askIn } from './controllers.ts';
import type { Operation } from './operations.ts';
import { changeService, createPod, createService, deletePod } from './operations.ts';
import type { RuleFault } from './rule-faults.ts';
import { iptablesFaults, nftablesFaults } from './rule-faults.ts';

export type Mode = 'iptables' | 'nftables';

const namespace = 'shop';

/** Settings of kube-proxy by node, apart from what every node has. */
const settings: readonly (readonly [string, object])[] = [
  ['node-a', { clusterCIDR: '10.244.0.0/16,fd00:10:244::/48', detectLocalMode: 'ClusterCIDR' }],
  [
    'node-b',
    {
      ...{ detectLocalMode: 'NodeCIDR', clusterCIDR: undefined },
      nodePortAddresses: ['172.18.0.0/24', 'fd00:18::/64'],
      iptables: { minSyncPeriod: '0s', localhostNodePorts: false },
    },
  ],
  [
    'node-c',
    {
      ...{ clusterCIDR: undefined, nodePortAddresses: ['primary'] },
      iptables: { masqueradeAll: true },
      nftables: { masqueradeAll: true },
    },
  ],
];

const dual = { ipFamilyPolicy: 'RequireDualStack' };
const port = (more: object = {}) => [{ name: 'http', port: 80, targetPort: 8080, ...more }];
const local = { externalTrafficPolicy: 'Local' };
const of = (app: string) => ({ selector: { app } });
const balancer = (nodePort: number) => ({ type: 'LoadBalancer', ports: port({ nodePort }) });

const services: readonly (readonly [string, object])[] = [
  ['web', { ports: port() }],
  ['two', { ...of('two'), ports: port() }],
  ['one', { ...of('one'), ports: port() }],
  ['dual', { ...dual, ports: port() }],
  ['six', { ipFamilies: ['IPv6'], ipFamilyPolicy: 'SingleStack', ports: port() }],
  ['client', { ...of('client'), ports: port() }],
  [
    'several',
    {
      ports: [
        ...port(),
        { name: 'dns', port: 53, targetPort: 5353, protocol: 'UDP' },
        { name: 'ngap', port: 38412, targetPort: 38412, protocol: 'SCTP' },
      ],
    },
  ],
  ['sticky', { ports: port(), sessionAffinity: 'ClientIP' }],
  ['internal-local', { ports: port(), internalTrafficPolicy: 'Local' }],
  ['internal-elsewhere', { ...of('three'), ports: port(), internalTrafficPolicy: 'Local' }],
  ['node-port', { type: 'NodePort', ports: port({ nodePort: 30080 }) }],
  ['node-port-dual', { ...dual, type: 'NodePort', ports: port({ nodePort: 30081 }) }],
  ['node-port-local', { ...local, type: 'NodePort', ports: port({ nodePort: 30082 }) }],
  ['balanced', balancer(30090)],
  ['balanced-local', { ...balancer(30091), ...local, healthCheckNodePort: 32100 }],
  ['local-elsewhere', { ...of('three'), ...balancer(30092), ...local, healthCheckNodePort: 32101 }],
  ['ranges', { ...balancer(30093), loadBalancerSourceRanges: ['198.51.100.0/24'] }],
  ['pending', balancer(30094)],
  ['proxied', balancer(30095)],
  ['external', { ports: port(), externalIPs: ['198.18.1.1'] }],
  ['nobody', { ...of('nobody'), ports: port() }],
  ['nobody-node-port', { ...of('nobody'), type: 'NodePort', ports: port({ nodePort: 30096 }) }],
  ['nobody-balanced', { ...of('nobody'), ...balancer(30097) }],
  ['ending', { ...of('ending'), ports: port() }],
  ['not-ready', { ...of('not-ready'), ports: port() }],
  ['near', { ports: port(), trafficDistribution: 'PreferClose' }],
  ['same-node', { ports: port(), trafficDistribution: 'PreferSameNode' }],
  ['host', { ...of('host'), ports: port() }],
  ['headless', { clusterIP: 'None', ports: port() }],
];

/** Addresses of load balancers by Service. */
const ingress: Readonly<Record<string, object>> = {
  balanced: { ip: '198.18.0.1' },
  'balanced-local': { ip: '198.18.0.2' },
  'local-elsewhere': { ip: '198.18.0.3' },
  ranges: { ip: '198.18.0.4' },
  proxied: { ip: '198.18.0.5', ipMode: 'Proxy' },
  'nobody-balanced': { ip: '198.18.0.6' },
};

const nodeName = (n: number): string => `node-${'abc'.charAt(n - 1)}`;
const ips = (n: number, k: number): string[] => [`10.244.${n}.${k}`, `fd00:10:244:${n}::${k}`];

function podOf(app: string, n: number, k: number, more: object = {}): Operation {
  const shape = { ips: ips(n, k), node: nodeName(n), labels: { app } };
  return createPod(`${app}-${n}-${k}`, { ...shape, ...more });
}

const pods: readonly Operation[] = [
  ...[podOf('web', 1, 40), podOf('web', 1, 41), podOf('web', 2, 40), podOf('web', 3, 40)],
  ...[podOf('two', 1, 50), podOf('two', 2, 50), podOf('one', 2, 51), podOf('three', 3, 52)],
  ...[podOf('client', 1, 5), podOf('client', 2, 5), podOf('client', 3, 5)],
  ...[
    podOf('ending', 1, 53),
    podOf('ending', 2, 53),
    deletePod('ending-1-53'),
    deletePod('ending-2-53'),
  ],
  podOf('not-ready', 1, 54, { ready: 'False' }),
  ...[1, 2, 3].map((n) =>
    podOf('host', n, 5, { ips: [`172.18.0.${n + 1}`], spec: { hostNetwork: true } }),
  ),
];

async function createNodes({ call }: Client): Promise<void> {
  for (const n of [1, 2, 3]) {
    const name = nodeName(n);
    const labels = { 'topology.kubernetes.io/zone': n === 2 ? 'zone-2' : 'zone-1' };
    const podCIDRs = [`10.244.${n}.0/24`, `fd00:10:244:${n}::/64`];
    await call('POST', '/api/v1/nodes', {
      metadata: { name, labels: { 'kubernetes.io/hostname': name, ...labels } },
      spec: { podCIDR: podCIDRs[0], podCIDRs },
    });
    const addresses = [`172.18.0.${n + 1}`, `fd00:18::${n + 1}`].map((address) => ({
      type: 'InternalIP',
      address,
    }));
    const conditions = [{ type: 'Ready', status: 'True' }];
    await call('PATCH', `/api/v1/nodes/${name}/status`, { status: { addresses, conditions } });
  }
}

/** The same addresses in every run, so that rules can be compared. */
function clusterIPsOf(spec: object, last: number): object {
  if ('clusterIP' in spec) return {};
  const [four, six] = [`10.96.1.${last}`, `fd00:10:96::${last}`];
  if ('ipFamilies' in spec) return { clusterIP: six };
  const both = 'ipFamilyPolicy' in spec ? { clusterIPs: [four, six] } : {};
  return { clusterIP: four, ...both };
}

/** Creates everything and waits until the controllers have written the slices. */
async function createObjects(client: Client): Promise<void> {
  await createNodes(client);
  await client.call('POST', '/api/v1/namespaces', { metadata: { name: namespace } });
  const ask = askIn(client, namespace);
  for (const [index, [name, spec]] of services.entries()) {
    const fixed = clusterIPsOf(spec, index + 10);
    const made = createService(name, { spec: { ...fixed, ...spec } }).run(ask);
    // Older releases refuse some values of trafficDistribution, and go without that Service.
    if ('trafficDistribution' in spec) await made.catch(() => undefined);
    else await made;
    const given = ingress[name];
    if (given === undefined) continue;
    await ask('PATCH', `/services/${name}/status`, {
      status: { loadBalancer: { ingress: [given] } },
    });
  }
  await inParallel(pods, 1, (pod) => pod.run(ask));
  await changeService('pending', { metadata: { labels: { team: 'a' } } }).run(ask);
  await awaitSettled(client);
}

interface Service extends Thing {
  spec: {
    type: string;
    clusterIPs?: string[];
    externalIPs?: string[];
    ports: {
      name?: string;
      port: number;
      protocol: PacketLine['packet']['protocol'];
      nodePort?: number;
    }[];
  };
  status: { loadBalancer?: { ingress?: { ip?: string }[] } };
}

interface Objects {
  readonly services: readonly Service[];
  readonly endpointslices: readonly Thing[];
  readonly nodes: readonly Thing[];
}

async function readObjects({ call }: Client): Promise<Objects> {
  const read = async (path: string): Promise<Thing[]> => {
    const { items } = (await call('GET', path)) as { items: Thing[] };
    for (const { metadata } of items) delete metadata.managedFields;
    return items;
  };
  return {
    services: (await read('/api/v1/services')) as Service[],
    endpointslices: await read('/apis/discovery.k8s.io/v1/endpointslices'),
    nodes: await read('/api/v1/nodes'),
  };
}

// Namespaces of a node.

/** A node, its outside and its pod. */
interface Place {
  readonly n: number;
  readonly mode: Mode;
  readonly node: Space;
  readonly outside: Space;
  readonly pod: Space;
  readonly proxy: Running;
  readonly config: object;
  readonly stop: () => Promise<void>;
}

const senders = ['198.51.100.10', '203.0.113.7', '10.244.9.77', '2001:db8:51::10'];

const wire = (node: Space, outside: Space, pod: Space, n: number): void => {
  const run = (at: Space, text: string): void => void at.run(['ip', ...text.split(' ')]);
  const pair = (near: string, far: string, at: Space): void => {
    run(node, `link add ${near} type veth peer name ${far} netns ${at.name}`);
    run(node, `link set ${near} up`);
    run(at, `link set ${far} up`);
  };
  pair('eth0', 'far0', outside);
  pair('veth0a1b2c3d', 'eth0', pod);
  // No one answers there, and no one is asked for an address first.
  pair('sink0', 'sink1', outside);
  run(node, 'link set sink0 arp off');
  const give = (at: Space, dev: string, addresses: readonly string[]): void => {
    for (const address of addresses) {
      run(at, `addr add ${address} dev ${dev}${address.includes(':') ? ' nodad' : ''}`);
    }
  };
  give(node, 'eth0', [`172.18.0.${n + 1}/24`, `fd00:18::${n + 1}/64`]);
  give(node, 'sink0', [`10.244.${n}.0/32`, `fd00:10:244:${n}::/128`]);
  give(node, 'veth0a1b2c3d', [`10.244.${n}.1/32`, `fd00:10:244:${n}::1/128`]);
  give(outside, 'far0', ['172.18.0.1/24', 'fd00:18::1/64']);
  give(
    outside,
    'far0',
    senders.map((address) => `${address}/${address.includes(':') ? 128 : 32}`),
  );
  give(pod, 'eth0', [`10.244.${n}.5/32`, `fd00:10:244:${n}::5/128`]);
  for (const [at, route] of [
    [node, 'route add default via 172.18.0.1'],
    [node, '-6 route add default via fd00:18::1'],
    [node, 'route add 10.244.0.0/16 dev sink0'],
    [node, '-6 route add fd00:10:244::/48 dev sink0'],
    [node, `route add 10.244.${n}.5/32 dev veth0a1b2c3d`],
    [node, `-6 route add fd00:10:244:${n}::5/128 dev veth0a1b2c3d`],
    [outside, `route add default via 172.18.0.${n + 1}`],
    [outside, `-6 route add default via fd00:18::${n + 1}`],
    [pod, `route add 10.244.${n}.1/32 dev eth0`],
    [pod, `route add default via 10.244.${n}.1`],
    [pod, `-6 route add fd00:10:244:${n}::1/128 dev eth0`],
    [pod, `-6 route add default via fd00:10:244:${n}::1`],
  ] as const) {
    run(at, route);
  }
};

/** Forwarding, no filter of sources, and no limit of errors. */
const kernel = [
  ...['ipv4/ip_forward=1', 'ipv6/conf/all/forwarding=1', 'ipv4/icmp_ratelimit=0'],
  ...['ipv6/icmp/ratelimit=0', 'ipv4/icmp_msgs_per_sec=1000000', 'ipv4/icmp_msgs_burst=1000000'],
  ...['ipv4/conf/all/rp_filter=0', 'ipv4/conf/default/rp_filter=0'],
  'ipv4/conf/all/send_redirects=0',
];

const setKernel = (space: Space): void => {
  const writes = kernel.map((one) => {
    const [name = '', value = ''] = one.split('=');
    return `echo ${value} > /proc/sys/net/${name} 2>/dev/null`;
  });
  space.run(['sh', '-c', `${writes.join('; ')}; true`]);
};

interface Recording {
  readonly plane: ControlPlane;
  readonly client: Client;
  readonly socket: string;
  readonly kubeProxy: string;
}

async function createPlace(recording: Recording, n: number, mode: Mode): Promise<Place> {
  const { plane, socket, kubeProxy } = recording;
  const spaces = ['node', 'out', 'pod'].map((kind) =>
    createSpace(`or-${process.pid}-${mode.slice(0, 3)}${n}-${kind}`),
  ) as [Space, Space, Space];
  const [node, outside, pod] = spaces;
  const started: Running[] = [];
  const stop = async (): Promise<void> => {
    for (const one of started.reverse()) await one.stop();
    for (const space of spaces) space.remove();
  };
  try {
    setKernel(node);
    wire(node, outside, pod, n);
    const file = (name: string): string => join(plane.directory, `${node.name}-${name}`);
    const begin = (name: string, command: readonly string[]): Running => {
      const running = node.start(command, file(`${name}.log`));
      started.push(running);
      return running;
    };
    const carrier = [script('inside.ts'), 'carry', `127.0.0.1:6443=${socket}`];
    begin('bridge', [process.execPath, ...carrier]);
    writeFileSync(file('kubeconfig'), kubeconfigOf(plane));
    const [name = '', more = {}] = settings[n - 1] ?? [];
    const config = { ...proxyConfig(name, mode, file('kubeconfig')), ...more };
    writeFileSync(file('proxy.yaml'), JSON.stringify(config));
    await sleep(500);
    const proxy = begin('kube-proxy', [kubeProxy, '--config', file('proxy.yaml')]);
    const shown = { ...config, clientConnection: { kubeconfig: 'kubeconfig' } };
    return { n, mode, node, outside, pod, proxy, config: shown, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

// Dumps.

type Dump = Readonly<Record<string, string>>;

const readers: Readonly<Record<Mode, Readonly<Record<string, readonly string[]>>>> = {
  iptables: {
    'iptables-save.txt': ['iptables-save'],
    'ip6tables-save.txt': ['ip6tables-save'],
  },
  nftables: {
    'nft.json': ['nft', '-j', 'list', 'ruleset'],
    'nft.txt': ['nft', 'list', 'ruleset'],
  },
};

const dumpOf = ({ mode, node }: Place): Dump =>
  Object.fromEntries(
    Object.entries(readers[mode]).map(([name, command]) => [name, node.run(command)]),
  );

/** Waits until the rules have every Service and stay as they are. */
async function awaitRules(place: Place): Promise<Dump> {
  let before = '';
  for (let seconds = 0; seconds < 90; seconds += 2) {
    await sleep(2000);
    if (place.proxy.child.exitCode !== null) break;
    const dump = dumpOf(place);
    const text = Object.values(dump)
      .join('\n')
      .replace(/\[\d+:\d+\]|^#.*$|expires \w+/gm, '');
    const hasAll =
      text.includes('shop/web') && text.includes('shop/host') && text.includes('shop/six');
    if (hasAll && text === before) return dump;
    before = text;
  }
  throw new Error(`kube-proxy on ${place.node.name} wrote no rules:\n${place.proxy.tail()}`);
}

function restore({ mode, node }: Place, dump: Dump): void {
  if (mode === 'nftables') {
    node.run(['nft', '-f', '-'], `flush ruleset\n${dump['nft.txt'] ?? ''}`);
    return;
  }
  // A dump without table raw leaves it as it is.
  const raw = '*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n';
  node.run(['iptables-restore'], `${raw}${dump['iptables-save.txt'] ?? ''}`);
  node.run(['ip6tables-restore'], dump['ip6tables-save.txt']);
}

// Packets.

/** Senders of a family: the node, its pod, and others. */
const fromOf = (n: number, six: boolean) =>
  six
    ? { node: `fd00:18::${n + 1}`, pod: `fd00:10:244:${n}::5`, outside: '2001:db8:51::10' }
    : { node: `172.18.0.${n + 1}`, pod: `10.244.${n}.5`, outside: '198.51.100.10' };

type Asked = Pick<PacketLine, 'about' | 'attempts' | 'packet'>;

/** Packets to one Service port, at every address where it may be served. */
function packetsTo(n: number, service: Service, at: Service['spec']['ports'][number]): Asked[] {
  const { name, namespace: space = '' } = service.metadata;
  const about = `${space}/${name}${at.name === undefined ? '' : `:${at.name}`}`;
  const asked: Asked[] = [];
  const add = (
    kind: string,
    [from, src, dst]: [PacketLine['packet']['from'], string, string],
    dport: number,
    attempts: number,
    protocol = at.protocol,
  ): void => {
    const packet = { from, src, dst, protocol, dport };
    asked.push({ about: `${about} ${kind}`, packet, attempts });
  };
  const { clusterIPs = [], externalIPs = [] } = service.spec;
  for (const dst of clusterIPs.filter((one) => one !== 'None')) {
    const from = fromOf(n, dst.includes(':'));
    add('clusterIP', ['pod', from.pod, dst], at.port, 40);
    add('clusterIP', ['node', from.node, dst], at.port, 12);
    add('clusterIP', ['outside', from.outside, dst], at.port, 12);
    add('clusterIP, wrong port', ['pod', from.pod, dst], 9, 3);
    add(
      'clusterIP, other protocol',
      ['pod', from.pod, dst],
      at.port,
      3,
      at.protocol === 'UDP' ? 'TCP' : 'UDP',
    );
  }
  const given = (service.status.loadBalancer?.ingress ?? []).flatMap(({ ip: one }) => one ?? []);
  for (const dst of [...externalIPs, ...given]) {
    const from = fromOf(n, false);
    const kind = given.includes(dst) ? 'loadBalancer' : 'externalIP';
    for (const src of senders.slice(0, 3)) add(kind, ['outside', src, dst], at.port, 12);
    add(kind, ['pod', from.pod, dst], at.port, 12);
    add(kind, ['node', from.node, dst], at.port, 12);
  }
  if (at.nodePort !== undefined) {
    for (const six of clusterIPs.map((one) => one.includes(':'))) {
      const from = fromOf(n, six);
      add('nodePort', ['outside', from.outside, from.node], at.nodePort, 12);
      add('nodePort', ['pod', from.pod, from.node], at.nodePort, 12);
      add('nodePort', ['node', from.node, from.node], at.nodePort, 12);
      const loopback = six ? '::1' : '127.0.0.1';
      add('nodePort, localhost', ['node', loopback, loopback], at.nodePort, 12);
      if (!six)
        add(
          'nodePort, source is a pod elsewhere',
          ['outside', '10.244.9.77', from.node],
          at.nodePort,
          12,
        );
    }
  }
  return asked;
}

/** Every packet that a node is asked about. */
const packetsOf = (n: number, objects: Objects): Asked[] => {
  const { node, outside } = fromOf(n, false);
  const stray: Asked['packet'] = {
    from: 'outside',
    src: outside,
    dst: node,
    protocol: 'TCP',
    dport: 30999,
  };
  return [
    ...objects.services.flatMap((service) =>
      service.spec.ports.flatMap((at) => packetsTo(n, service, at)),
    ),
    { about: 'unused node port', packet: stray, attempts: 3 },
    {
      about: 'unallocated cluster IP',
      packet: { ...stray, dst: '10.96.200.200', dport: 80 },
      attempts: 3,
    },
  ];
};

/** The program that sends packets, built by Go. */
function senderProgram(): string {
  const path = join(cacheFolder('oracle'), 'packets');
  const cwd = join(import.meta.dirname, 'packets');
  execFileSync(goProgram(), ['build', '-o', path, '.'], { cwd, stdio: 'pipe' });
  return path;
}

/** Sends packets on a node and shows what the kernel did with them. */
function askKernel(place: Place, asked: readonly Asked[], program: string): PacketLine[] {
  const { node, outside, pod, n } = place;
  const spaces = { node, outside, pod };
  const input = asked.map(({ packet: { from, ...packet }, attempts }) =>
    JSON.stringify({ space: spaces[from].name, ...packet, attempts }),
  );
  const output = execFileSync(program, [node.name], {
    input: `${input.join('\n')}\n`,
    maxBuffer: 2 ** 26,
  });
  const answers = output.toString().trim().split('\n');
  return asked.map((one, index) =>
    lineOf(one, JSON.parse(answers[index] ?? '[]') as readonly string[], n),
  );
}

/** What was seen, and what the method could not distinguish. */
function lineOf(
  { about, packet, attempts }: Asked,
  answers: readonly string[],
  n: number,
): PacketLine {
  const seen = new Map<string, { count: number; masqueraded: number }>();
  for (const answer of answers) {
    const [name = '', mark] = answer.split(' ');
    const entry = seen.get(name) ?? { count: 0, masqueraded: 0 };
    entry.count++;
    if (mark === 'm') entry.masqueraded++;
    seen.set(name, entry);
  }
  const inconclusive = inconclusiveOf(packet, seen, n);
  const [first = ''] = seen.keys();
  const isPlain = seen.size === 1 && !first.includes(':');
  const outcomes = Object.fromEntries(
    [...seen].map(([name, { count, masqueraded }]) => {
      const is = masqueraded === 0 ? false : masqueraded === count ? true : ('some' as const);
      return [name, name.includes(':') || name === 'pass' ? { count, masqueraded: is } : { count }];
    }),
  );
  const passed = seen.get('pass');
  return {
    ...{ about, packet, attempts },
    outcomes: isPlain ? first : outcomes,
    ...(isPlain && passed !== undefined ? { passMasqueraded: passed.masqueraded > 0 } : {}),
    ...(inconclusive === null ? {} : { inconclusive }),
  };
}

function inconclusiveOf(
  { from, src, dst }: PacketLine['packet'],
  seen: ReadonlyMap<string, unknown>,
  n: number,
): string[] | null {
  const own = [`172.18.0.${n + 1}`, `fd00:18::${n + 1}`, '127.0.0.1', '::1'];
  // The entry is confirmed on the way out; INPUT may still refuse the packet.
  if (from === 'node' && own.includes(dst) && seen.has('pass')) return ['pass', 'reject', 'drop'];
  // The error goes to the sink.
  if (src === '10.244.9.77' && seen.has('drop')) return ['reject', 'drop'];
  return null;
}

// Folders.

const write = (folder: string, name: string, text: string): void => {
  writeFileSync(join(folder, `${name}.gz`), gzipSync(text, { level: 9 }));
};

const backends = { iptables: 'iptables-nft', nftables: 'nftables' } as const;

function writeDump(folder: string, dump: Dump, lines: readonly PacketLine[]): void {
  for (const [name, text] of Object.entries(dump)) write(folder, name, text);
  write(folder, 'packets.ndjson', lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
}

/** What the kernel did with a packet, without counts. */
const outcomeText = ({ outcomes, passMasqueraded }: PacketLine): string =>
  typeof outcomes === 'string'
    ? `${outcomes} ${String(passMasqueraded)}`
    : Object.entries(outcomes)
        .map(([name, { masqueraded }]) => `${name} ${String(masqueraded)}`)
        .sort()
        .join();

interface Base {
  readonly place: Place;
  readonly dump: Dump;
  readonly lines: readonly PacketLine[];
  readonly objects: Objects;
}

/** The rules of a node after a fault; false: it could not be made. */
function breakRules({ place, dump, objects }: Base, name: string): boolean {
  const { mode, node } = place;
  if (mode === 'nftables') {
    const addresses = objects.services.map(
      ({ metadata, spec }) => [metadata.name, spec.clusterIPs?.[0] ?? ''] as const,
    );
    const text = nftablesFaults[name]?.script(dump['nft.txt'] ?? '', new Map(addresses)) ?? null;
    if (text !== null) node.run(['nft', '-f', '-'], text);
    return text !== null;
  }
  const edited = iptablesFaults[name]?.edit((dump['iptables-save.txt'] ?? '').split('\n')) ?? null;
  if (edited !== null) node.run(['iptables-restore'], edited.join('\n'));
  return edited !== null;
}

interface Out {
  /** Folder of recordings and faults. */
  readonly folder: string;
  readonly version: string;
  /** Classes of faults in each mode. */
  readonly classes: number;
  /** Chooses the classes. */
  readonly seed: number;
}

/** Breaks the rules of a node in every way and records what comes of it. */
function recordFaults(base: Base, out: Out, program: string, say: (line: string) => void): number {
  const { place, dump, lines } = base;
  const faults: Readonly<Record<string, RuleFault>> =
    place.mode === 'iptables' ? iptablesFaults : nftablesFaults;
  const known = new Map(lines.map((line) => [JSON.stringify(line.packet), line]));
  const at = `${backends[place.mode]}-${nodeName(place.n)}`;
  const random = chanceFrom(out.seed);
  const order = Object.entries(faults).map((entry) => ({ entry, rank: random() }));
  const chosen = order.sort((a, b) => a.rank - b.rank).slice(0, out.classes);
  let count = 0;
  place.proxy.child.kill('SIGSTOP');
  for (const { entry } of chosen) {
    const [name, { about, violation, note }] = entry;
    if (!breakRules(base, name)) {
      say(`${at}: no place for ${name}`);
      continue;
    }
    const asked = lines.filter(
      (line, index) => index % 8 === 0 || (about !== '' && line.about.startsWith(`${about} `)),
    );
    const outcomes = askKernel(place, asked, program).map((line) => {
      const was = known.get(JSON.stringify(line.packet));
      const changed = was !== undefined && outcomeText(was) !== outcomeText(line);
      return changed ? { ...line, changed } : line;
    });
    const folder = join(out.folder, 'faults', `${out.version}-${at}`, name);
    mkdirSync(folder, { recursive: true });
    const shown = Object.entries(dumpOf(place)).filter(([file]) => file !== 'nft.txt');
    writeDump(folder, Object.fromEntries(shown), outcomes);
    const packetsWithAnotherFate = outcomes.filter((line) => 'changed' in line).length;
    const fault = {
      ...{ class: name, about, violation, note },
      ...{ mode: backends[place.mode], node: nodeName(place.n) },
      base: `../../../recordings/${out.version}/${backends[place.mode]}/${nodeName(place.n)}`,
      ...{ packetsWithAnotherFate, packetsTried: outcomes.length },
    };
    writeFileSync(join(folder, 'fault.json'), `${JSON.stringify(fault, null, 1)}\n`);
    restore(place, dump);
    count++;
  }
  return count;
}

/** Records nodes of both modes with their faults; returns the folders. */
export async function recordNodes(
  plane: ControlPlane,
  nodes: number,
  out: Out,
  say: (line: string) => void,
): Promise<string[]> {
  const client = clientOf(plane);
  const socket = join(plane.directory, 'api.sock');
  const carrier = await carry(socket, new URL(plane.server).host);
  const { 'kube-proxy': kubeProxy } = await findPrograms(plane.version, ['kube-proxy']);
  const recording = { plane, client, socket, kubeProxy };
  const places: Place[] = [];
  const root = join(out.folder, 'recordings', out.version);
  const folders = [root];
  try {
    await createObjects(client);
    const objects = await readObjects(client);
    const program = senderProgram();
    rmSync(root, { recursive: true, force: true });
    mkdirSync(root, { recursive: true });
    write(root, 'objects.json', JSON.stringify(objects));
    for (let n = 1; n <= Math.min(nodes, settings.length); n++) {
      places.push(await createPlace(recording, n, 'iptables'));
      places.push(await createPlace(recording, n, 'nftables'));
    }
    for (const place of places) {
      const { n, mode, config } = place;
      const dump = await awaitRules(place);
      const lines = askKernel(place, packetsOf(n, objects), program);
      const folder = join(root, backends[mode], nodeName(n));
      mkdirSync(folder, { recursive: true });
      writeDump(folder, dump, lines);
      const backend = mode === 'iptables' ? 'nft' : 'nftables';
      const facts = { version: plane.version, mode, backend, nodeName: nodeName(n) };
      const described = { ...facts, objects: '../../objects.json', config };
      writeFileSync(join(folder, 'proxy-config.yaml'), stringify(described));
      const faulty = join(out.folder, 'faults', `${out.version}-${backends[mode]}-${nodeName(n)}`);
      rmSync(faulty, { recursive: true, force: true });
      const faults = n === 1 ? recordFaults({ place, dump, lines, objects }, out, program, say) : 0;
      if (faults > 0) folders.push(faulty);
      say(`${nodeName(n)} ${mode}: ${lines.length} packets, ${faults} faults`);
    }
    return folders;
  } finally {
    for (const place of places) await place.stop();
    carrier.close();
    client.close();
  }
}
