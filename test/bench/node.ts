// A dump of iptables-save as kube-proxy's iptables mode fills it on a large node, from a seed: in
// large-cluster form (no comments in chains of endpoints), nat and filter of one family. The rules
// of a chain are together, as iptables-save prints them.

import { spawn, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { build } from 'esbuild';

import { readerFlags } from '../../src/agent/schedule.ts';
import { auditNode } from '../../src/audit/node/audit-node.ts';
import { createClassAudit } from '../../src/audit/node/node-class.ts';
import { behaviorOfMaps, behaviorOfReport } from '../../src/audit/node/observation.ts';
import { createProxyCache } from '../../src/audit/node/proxy-cache.ts';
import { defaultCiliumConfig } from '../../src/model/cilium-config.ts';
import type { EndpointSlice, Node } from '../../src/model/objects.ts';
import { label } from '../../src/model/objects.ts';
import { defaultProxyConfig } from '../../src/model/proxy-config.ts';
import { readBpftoolDump } from '../../src/rules/cilium/bpftool-dump.ts';
import { parseIptablesSave } from '../../src/rules/parse/iptables-save.ts';
import { digestOf, expectedWordsAt, keyOf } from '../../src/rules/report/digest.ts';
import type { RuleFrontend } from '../../src/rules/report/frontends.ts';
import { createWalk } from '../../src/rules/walk/walk.ts';
import { ciliumForwarding } from '../../src/shadow/cilium/forwarding.ts';
import { expectedForwarding } from '../../src/shadow/forwarding.ts';
import {
  endpoint,
  event,
  node as newNode,
  service,
  slice,
  sliceLabels,
  storeOf,
  times,
} from '../build.ts';
import { cpuMicros, round } from './measure.ts';
import { buildBundle } from './program.ts';
import type { Walked } from './walking.ts';

/** A random number below `below`, from a linear congruential generator (Numerical Recipes). */
function generatorOf(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

interface GeneratedDump {
  readonly text: string;
  /** Cluster IPs; the port is 80. */
  readonly frontends: readonly string[];
}

const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

/** A number of Services, and the number of endpoints of each. */
function generateDump(services: number, endpoints: number, seed: number): GeneratedDump {
  const random = generatorOf(seed);
  const hash = (): string => Array.from({ length: 16 }, () => letters[random(32)]).join('');
  const chains: string[] = [];
  const ofServices: string[] = [];
  const ofEndpoints: string[] = [];
  const dispatch: string[] = [];
  const frontends: string[] = [];
  for (let service = 0; service < services; service++) {
    const name = `KUBE-SVC-${hash()}`;
    const address = `10.${96 + (service >> 16)}.${(service >> 8) & 255}.${service & 255}`;
    const about = `-m comment --comment "team-${service % 40}/service-${service}:http cluster IP"`;
    frontends.push(address);
    chains.push(`:${name} - [0:0]`);
    const frontend = `-d ${address}/32 -p tcp ${about} -m tcp --dport 80`;
    dispatch.push(`-A KUBE-SERVICES ${frontend} -j ${name}`);
    ofServices.push(`-A ${name} ! -s 10.244.0.0/16 ${frontend} -j KUBE-MARK-MASQ`);
    for (let endpoint = 0; endpoint < endpoints; endpoint++) {
      const pod = `10.${128 + random(64)}.${random(256)}.${random(256)}`;
      const separate = `KUBE-SEP-${hash()}`;
      const left = endpoints - endpoint;
      const share = `-m statistic --mode random --probability ${(1 / left).toFixed(11)} `;
      chains.push(`:${separate} - [0:0]`);
      ofServices.push(`-A ${name} ${left > 1 ? share : ''}-j ${separate}`);
      ofEndpoints.push(`-A ${separate} -s ${pod}/32 -j KUBE-MARK-MASQ`);
      ofEndpoints.push(`-A ${separate} -p tcp -m tcp -j DNAT --to-destination ${pod}:8080`);
    }
  }
  return { text: textOf(chains, dispatch, [...ofServices, ...ofEndpoints]), frontends };
}

const header = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-FORWARD - [0:0]
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SERVICES - [0:0]
`;

const base = `-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
`;

const last = '-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\nCOMMIT\n';

const textOf = (chains: string[], dispatch: string[], rules: string[]): string =>
  `${header}${chains.join('\n')}\n${base}${rules.join('\n')}\n${dispatch.join('\n')}\n${last}`;

// What reading and walking a large node costs: `npm run -s bench -- rules [SERVICES]`
// makes a dump of 10,000 Services with 15 endpoints each, reads it, and walks every frontend from a
// pod. Times are of the CPU, of one process, the best of the rounds.

function cpuMilliseconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

function timed<T>(work: () => T): readonly [T, number] {
  const start = cpuMilliseconds();
  const result = work();
  return [result, cpuMilliseconds() - start];
}

/** Prints a line for each of three rounds. */
export function benchRules(services: number): void {
  const { text, frontends } = generateDump(services, 15, 1);
  const bytes = new TextEncoder().encode(text);
  const megabytes = bytes.length / 1e6;
  const place = { localAddresses: ['172.18.0.2'] };
  globalThis.gc?.();
  const before = process.memoryUsage().rss;

  for (let times = 0; times < 3; times++) {
    const [ruleset, parse] = timed(() => parseIptablesSave(bytes, 'ip'));
    const afterParse = process.memoryUsage().rss;
    const [destinations, walks] = timed(() => {
      const walk = createWalk(ruleset, place);
      let count = 0;
      for (const dst of frontends) {
        const packet = { from: 'pod', src: '10.244.1.5', dst, protocol: 'tcp', dport: 80 } as const;
        count += walk(packet).destinations.size;
      }
      return count;
    });
    console.log(
      JSON.stringify({
        megabytes: Math.round(megabytes),
        parseMilliseconds: Math.round(parse),
        megabytesPerSecond: Math.round(megabytes / (parse / 1000)),
        walkMilliseconds: Math.round(walks),
        destinations,
        parseMemoryRatio: Math.round((afterParse - before) / bytes.length),
        memoryMegabytes: Math.round((process.memoryUsage().rss - before) / 1e6),
      }),
    );
  }
}

// The cost of a node report at the server: `npm run -s bench -- node` prints it next to the cost of
// the agent. Services with 15 endpoints each, on nodes of three zones; each node
// reports correct rules. The reference is one node that is evaluated alone, with all Services.

const endpoints = 15;
const nodeCount = 500;
/** Nodes that report. */
const measured = 12;

const config = { ...defaultProxyConfig('iptables', 36), clusterCIDRs: ['10.128.0.0/9'] };

const nodeAt = (at: number): Node =>
  newNode({
    name: `node-${at}`,
    zone: `zone-${at % 3}`,
    addresses: [`172.18.${at >> 8}.${at & 255}`],
    podCIDRs: [`10.${128 + (at >> 8)}.${at & 255}.0/24`],
  });

function sliceAt(at: number, count = endpoints): EndpointSlice {
  const ofNode = (n: number): number => (at * 7 + n * 31) % nodeCount;
  return slice({
    name: `web-${at}-1`,
    labels: { ...sliceLabels, [label.serviceName]: `web-${at}` },
    endpoints: times(count, (n) => {
      const own = ofNode(n);
      const address = `10.${128 + (own >> 8)}.${own & 255}.${1 + (at % 250)}`;
      return endpoint({ addresses: [address], node: `node-${own}`, zone: `zone-${own % 3}` });
    }),
  });
}

function worldOf(services: number) {
  const nodes = times(measured, nodeAt);
  const store = storeOf([
    ...nodes,
    ...times(services, (at) => {
      const clusterIP = `10.96.${at >> 8}.${at & 255}`;
      return service({ name: `web-${at}`, clusterIP, clusterIPs: [clusterIP] });
    }),
    ...times(services, (at) => sliceAt(at)),
  ]);
  const proxied = createProxyCache(store.listers);
  return { nodes, store, proxied };
}

/** The report of a node with correct rules. */
function reportedBy(node: Node, { services, slices }: ReturnType<typeof createProxyCache>) {
  const forwarding = expectedForwarding(services.values(), slices, node, config);
  const [own = ''] = node.addresses;
  const [range = ''] = node.podCIDRs;
  const pod = range.replace(/0\/24$/, '251');
  const asking = {
    ip: { node: own, pod, outside: '198.51.100.7' },
    ip6: { node: null, pod: null, outside: '2001:db8::7' },
    ...{ addresses: [own, '127.0.0.1'], pods: node.podCIDRs, strays: false },
  };
  const digests = new Map<string, string>();
  const frontends: RuleFrontend[] = [];
  for (const { address, protocol, dport: port } of forwarding.frontends) {
    const claim: RuleFrontend = { family: 'ip', address, protocol, port, translators: 1 };
    const words = expectedWordsAt(claim, asking, (packet) => forwarding.expect(packet).outcomes);
    digests.set(keyOf(claim), digestOf(words ?? []));
    frontends.push(claim);
  }
  const rules = behaviorOfReport({
    ...{ asking, frontends, digests, localAddresses: node.addresses, outcomes: new Map() },
  });
  return { node, rules, config };
}

const spent = (work: () => void): number => {
  const begun = cpuMicros();
  work();
  return (cpuMicros() - begun) / 1000;
};

/** CPU ms for a node: by itself, first and later ones of a kind, and after a Service changed. */
function measureAlike(services: number): NodeRow[] {
  const { nodes, store, proxied } = worldOf(services);
  const reported = nodes.map((node) => reportedBy(node, proxied));
  const alike = createClassAudit(proxied);
  const audit = (on: (typeof reported)[number]): void => {
    const steps = alike(on);
    for (let step = steps.next(); ; step = steps.next()) {
      if (step.done !== true) continue;
      const { differences } = step.value.audit;
      if (differences.length > 0) throw new Error(JSON.stringify(differences[0]));
      return;
    }
  };
  const alone = (on: (typeof reported)[number]): void => {
    const { node, rules } = on;
    const { services: all, slices } = proxied;
    auditNode({
      forwarding: expectedForwarding(all.values(), slices, node, config),
      node,
      rules,
    });
  };
  const few = reported.slice(0, 3);
  const single = spent(() => few.forEach(alone)) / few.length;
  const first = spent(() => few.forEach(audit)) / few.length;
  const later = spent(() => reported.forEach(audit)) / reported.length;
  const change = store.apply(event('modified', sliceAt(0, endpoints - 1), 1));
  if (change !== null) proxied.apply(change);
  const changed = spent(() => reported.forEach(audit)) / reported.length;
  return [
    [`server, ${services} Services: a node by itself, CPU ms`, round(single), ''],
    ['the first node of a kind, CPU ms', round(first), ''],
    ['each other node of a kind, CPU ms', round(later), ''],
    ['each of them when one Service has changed, CPU ms', round(changed), ''],
    ['the last in per cent of the first', round((100 * changed) / single), 10],
  ];
}

// The cost of a node with Cilium: `npm run -s bench -- node` reads its maps as bpftool prints them,
// and compares them with the Services.

const bytesOf = (number: number, length: number, isBig = false): string[] => {
  const hex = number.toString(16).padStart(2 * length, '0');
  const bytes = times(length, (at) => `0x${hex.slice(-2 * at - 2, hex.length - 2 * at)}`);
  return isBig ? bytes.reverse() : bytes;
};

const addressBytes = (address: string): string[] =>
  address.split('.').flatMap((byte) => bytesOf(Number(byte), 1));

/** The maps that Cilium writes for cluster IPs, as `bpftool -j map dump` prints them. */
function ciliumMapsOf({ store, proxied }: ReturnType<typeof worldOf>): string {
  const [frontends, backends, reverse]: { key: string[]; value: string[] }[][] = [[], [], []];
  const ids = new Map<string, number>();
  for (const [at, { key: service, clusterIPs }] of [...store.listers.services.values()].entries()) {
    const address = addressBytes(clusterIPs[0] ?? '');
    const place = [...address, ...bytesOf(80, 2, true)];
    const add = (slot: number, word: number, count: number): void => {
      const key = [...place, ...bytesOf(slot, 2), '0x06', '0x00', '0x00', '0x00'];
      const id = bytesOf(at + 1, 2, true);
      frontends?.push({
        key,
        value: [...bytesOf(word, 4), ...bytesOf(count, 2), ...id, ...bytesOf(0, 4)],
      });
    };
    const own = proxied.slices.get(service)?.[0]?.endpoints ?? [];
    add(0, 0, own.length);
    // All other ports of the address: packets are dropped.
    frontends?.push({ key: [...address, ...bytesOf(0, 8)], value: bytesOf(0, 12) });
    for (const [slot, { addresses }] of own.entries()) {
      const [address = ''] = addresses;
      const id = ids.get(address) ?? ids.size + 1;
      if (!ids.has(address)) {
        const port = bytesOf(8080, 2, true);
        const value = [...addressBytes(address), ...port, '0x06', '0x00', ...bytesOf(0, 4)];
        backends?.push({ key: bytesOf(id, 4), value });
      }
      ids.set(address, id);
      add(slot + 1, id, 0);
    }
    reverse?.push({ key: bytesOf(at + 1, 2, true), value: place });
  }
  return JSON.stringify({
    ...{ cilium_lb4_services_v2: frontends, cilium_lb4_backends_v3: backends },
    ...{ cilium_lb4_reverse_nat: reverse, cilium_lb4_source_range: [], cilium_lb4_maglev: [] },
    cilium_lb_affinity_match: [],
  });
}

/** CPU ms of the maps of one node. Throws if they differ from what the Services require. */
export function measureMaps(services: number): NodeRow[] {
  const world = worldOf(services);
  const { nodes, proxied } = world;
  const [node] = nodes;
  const text = ciliumMapsOf(world);
  const proxy = defaultProxyConfig('cilium', 0);
  const cilium = defaultCiliumConfig();
  const audit = (): void => {
    const { entries } = readBpftoolDump(text);
    const local = node?.addresses ?? [];
    const rules = behaviorOfMaps(entries, local, cilium.nodePortRange);
    if (node === undefined) return;
    const all = [proxied.services.values(), proxied.slices, node, proxy, cilium, local] as const;
    const { differences } = auditNode({ forwarding: ciliumForwarding(...all), node, rules });
    if (differences.length > 0) throw new Error(JSON.stringify(differences[0]));
  };
  const runs = times(3, () => spent(audit));
  return [
    [`maps of Cilium of ${services} Services, MB`, round(text.length / 1e6), ''],
    ['read and compare, CPU ms, the least of three', round(Math.min(...runs)), 1000],
  ];
}

// The cost of a large node for its agent: `npm run -s bench -- node [SERVICES]`. The rules of
// SERVICES Services with 15 endpoints each are loaded for real in a network namespace, which needs
// root; a process of its own reads what iptables-legacy-save prints there and walks all frontends,
// as the agent does in every round; then the agent itself runs there and reports. For a tenth of
// the Services iptables-nft-save runs beside it, for the ratio of both.
//
// Times are of the CPU: of programs by the shell's `times`.

type Backend = 'legacy' | 'nft';

interface Space {
  readonly run: (command: readonly string[], input?: string) => string;
  readonly inside: (command: readonly string[]) => string[];
}

/** Does something in a namespace that holds these rules. */
async function within<T>(backend: Backend, text: string, work: (space: Space) => T | Promise<T>) {
  const name = `ea-bench-${process.pid}`;
  const inside = (command: readonly string[]): string[] => ['netns', 'exec', name, ...command];
  const call = (args: readonly string[], input = ''): string => {
    const done = spawnSync('ip', args, { input, maxBuffer: 2 ** 29 });
    if (done.status === 0) return done.stdout.toString();
    throw new Error(`${args.join(' ')}: ${done.stderr.toString().slice(0, 500)}`);
  };
  call(['netns', 'add', name]);
  try {
    call(inside(['ip', 'link', 'set', 'lo', 'up']));
    call(inside([`iptables-${backend}-restore`]), text);
    return await work({ run: (command, input) => call(inside(command), input), inside });
  } finally {
    call(['netns', 'delete', name]);
  }
}

/** CPU seconds of a command's children, by the shell. */
function cost({ run }: Space, command: string): number {
  const times = run(['bash', '-c', `${command} >/dev/null; times`])
    .trim()
    .split('\n');
  const seconds = [...(times[1] ?? '').matchAll(/(\d+)m([\d.]+)s/g)];
  return seconds.reduce((sum, [, minutes, rest]) => sum + Number(minutes) * 60 + Number(rest), 0);
}

/** Bundles what reads and walks once, as the agent is; returns its path. */
async function bundleWalking(): Promise<string> {
  const outfile = join(await mkdtemp(join(tmpdir(), 'endpoint-auditor-bench-')), 'walking.cjs');
  const entryPoints = [join(import.meta.dirname, 'walking.ts')];
  await build({
    bundle: true,
    format: 'cjs',
    platform: 'node',
    target: 'node22',
    entryPoints,
    outfile,
  });
  return outfile;
}

/** The least of several processes, started as the agent starts what reads for it. */
function walked(walking: string, dump: string, rounds = 1): Walked {
  const runs = Array.from({ length: 5 }, () => {
    const args = [...readerFlags, walking, String(rounds)];
    const done = spawnSync(process.execPath, args, { input: dump, maxBuffer: 2 ** 29 });
    if (done.status !== 0) throw new Error(done.stderr.toString());
    return JSON.parse(done.stdout.toString()) as Walked;
  });
  return runs.reduce((least, one) => {
    return one.parse + one.walk < least.parse + least.walk ? one : least;
  });
}

interface AgentCost {
  readonly idleMiB: number;
  readonly peakMiB: number;
  /** Of the process that reads. */
  readonly readerMiB: number;
  readonly report: number;
  readonly unchanged: number;
}

/** A figure of a process; 0: it has ended. */
function mebibytes(pid: number, name: string): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return round(Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? 0) / 1024);
  } catch {
    return 0;
  }
}

async function agentIn({ inside }: Space): Promise<AgentCost> {
  const main = await buildBundle();
  const args = ['agent', '--listen', '127.0.0.1:9466', '--pod-cidrs', '10.244.0.0/24'];
  const child = spawn('ip', inside([process.execPath, main, ...args]), {
    stdio: 'ignore',
  });
  const url = 'http://127.0.0.1:9466/v1/report';
  const script = `const one = await fetch('${url}'); const text = await one.text();
    const again = await fetch('${url}', { headers: { 'if-none-match': one.headers.get('etag') } });
    const size = [...again.headers].join('').length + (await again.text()).length;
    console.log(JSON.stringify({ status: one.status, report: text.length, unchanged: size }));`;
  const { pid = 0 } = child;
  let readerMiB = 0;
  try {
    for (;;) {
      await sleep(1000);
      const [reader] = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ');
      if (reader) readerMiB = Math.max(readerMiB, mebibytes(Number(reader), 'VmHWM'));
      const asking = inside([process.execPath, '--input-type=module', '-e', script]);
      const asked = spawnSync('ip', asking).stdout.toString();
      const said = JSON.parse(asked || '{}') as Record<string, number>;
      if (said.status !== 200) continue;
      // Until what reads has ended.
      await sleep(8000);
      const sizes = { report: said.report ?? 0, unchanged: said.unchanged ?? 0 };
      const own = { idleMiB: mebibytes(pid, 'VmRSS'), peakMiB: mebibytes(pid, 'VmHWM') };
      return { ...own, readerMiB, ...sizes };
    }
  } finally {
    child.kill('SIGTERM');
  }
}

type NodeRow = readonly [name: string, reached: number, most: number | ''];

/** Measures a node with a number of Services. Throws if it cannot create a namespace. */
export async function measureNode(services: number): Promise<NodeRow[]> {
  const few = Math.ceil(services / 10);
  const walking = await bundleWalking();
  const large = generateDump(services, endpoints, 1).text;
  const [at, agent] = await within('legacy', large, async (space) => {
    const dump = space.run(['iptables-legacy-save']);
    return [walked(walking, dump), await agentIn(space)] as const;
  });
  const small = generateDump(few, endpoints, 1).text;
  const [own, compiled, theirs, smaller] = await within('nft', small, async (space) => {
    const saved = Math.min(...[1, 2, 3].map(() => cost(space, 'iptables-nft-save')));
    const dump = space.run(['iptables-nft-save']);
    const each = [walked(walking, dump), walked(walking, dump, 10)] as const;
    return [...each, saved, await agentIn(space)] as const;
  });
  return [
    [`dump of ${services} Services, MB`, round(at.bytes / 1e6), ''],
    ['frontends', at.frontends, ''],
    ['parse, CPU s', round(at.parse), ''],
    ['walk of all frontends from a pod, CPU s', round(at.walk), ''],
    ['digests of all frontends, CPU s', round(at.digests), ''],
    ['fingerprint of the dump, CPU s', round(at.fingerprint), ''],
    ['parse and walk, CPU s', round(at.parse + at.walk), 0.8],
    ['agent, idle, MiB', agent.idleMiB, 60],
    ['agent, peak, MiB', agent.peakMiB, ''],
    ['what reads for it, while it does, peak, MiB', agent.readerMiB, ''],
    ['report, bytes', agent.report, ''],
    ['unchanged report, bytes', agent.unchanged, 32 * 1024],
    [`agent with ${few} Services, idle, MiB`, smaller.idleMiB, 60],
    [`iptables-nft-save of ${few} Services, CPU s`, round(theirs), ''],
    [`parse and walk of ${few} Services, CPU s`, round(own.parse + own.walk), ''],
    ['the latter in per cent of the former', round((100 * (own.parse + own.walk)) / theirs), 25],
    ['the tenth time in one process, CPU s', round(compiled.parse + compiled.walk), ''],
    ...measureAlike(Math.ceil(services / 5)),
    ...measureMaps(services),
  ];
}
