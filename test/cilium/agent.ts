// Audits a node by a real agent that reads the pinned maps of a running Cilium:
// `npm run -s cilium:agent`. The collector of the agent has only CAP_BPF. First come changes with
// no findings, then faults: edited maps, a stopped load balancer, and writes that fail. Each fault
// must be found, and gone after its repair. The last line is `N passed, N failed`.
//
// The objects come from commands of the load balancer, so that no API server is needed.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

import { readReport } from '../../src/agent/client/report.ts';
import { defaultLimits } from '../../src/agent/collect.ts';
import { createAgent, type ScheduledAgent } from '../../src/agent/schedule.ts';
import { createPendingFindings } from '../../src/audit/pending/pending.ts';
import { createNodeRules } from '../../src/auditor/node-rules.ts';
import { project } from '../../src/cluster/decode/json-objects.ts';
import type { ObjectOf, Resource } from '../../src/model/objects.ts';
import type { Packet } from '../../src/model/proxy-config.ts';
import { runToEnd } from '../../src/model/run-to-end.ts';
import { packetText } from '../../src/rules/report/digest.ts';
import { decodeOutcomes } from '../../src/rules/report/outcome-json.ts';
import type { PacketOutcome } from '../../src/rules/walk/walk.ts';
import { storeOf } from '../build.ts';
import { endProgram } from '../processes.ts';
import { type CiliumLoadBalancer, pinnedAt, startLoadBalancer } from './load-balancer.ts';

const run = promisify(execFile);

const nodeName = 'node-a';
const [nodeIP, podCIDR] = ['172.18.0.2', '10.244.1.0/24'];

const service = (name: string, ip: string, spec: object = {}) => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name, namespace: 'test', uid: name, resourceVersion: '1' },
  spec: {
    clusterIP: ip,
    clusterIPs: [ip],
    ipFamilies: ['IPv4'],
    type: 'ClusterIP',
    ports: [{ name: 'http', port: 80, targetPort: 8080, protocol: 'TCP' }],
    ...spec,
  },
});

const slice = (of: string, ips: readonly string[]) => ({
  apiVersion: 'discovery.k8s.io/v1',
  kind: 'EndpointSlice',
  metadata: {
    name: `${of}-1`,
    namespace: 'test',
    uid: `${of}-1`,
    resourceVersion: '1',
    labels: { 'kubernetes.io/service-name': of },
  },
  addressType: 'IPv4',
  endpoints: ips.map((ip) => ({ addresses: [ip], conditions: { ready: true }, nodeName })),
  ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
});

const nodePort = { name: 'http', port: 80, targetPort: 8080, protocol: 'TCP', nodePort: 30_080 };

export const services = [
  service('web', '10.96.1.1', { type: 'NodePort', ports: [nodePort] }),
  service('api', '10.96.1.2', { sessionAffinity: 'ClientIP' }),
  {
    ...service('shop', '10.96.1.3', {
      type: 'LoadBalancer',
      ports: [{ ...nodePort, nodePort: 30_081 }],
      loadBalancerSourceRanges: ['198.51.100.0/25'],
    }),
    status: { loadBalancer: { ingress: [{ ip: '198.18.0.7' }] } },
  },
  service('empty', '10.96.1.4'),
];

/** Addresses of pods of the node by their last byte. */
export const addresses = (...last: number[]): string[] =>
  last.map((byte) => `10.244.1.${String(byte)}`);

const rawNode = {
  metadata: { name: nodeName, uid: nodeName, resourceVersion: '1' },
  spec: { podCIDRs: [podCIDR] },
  status: { addresses: [{ type: 'InternalIP', address: nodeIP }] },
};

/** A load balancer whose maps a fault may edit. */
export interface FaultyCilium {
  readonly balancer: CiliumLoadBalancer;
  /** Changes the endpoints of a Service to those with the last bytes. */
  readonly setEndpoints: (of: string, ...last: number[]) => Promise<unknown>;
}

interface Live extends FaultyCilium {
  readonly agent: ScheduledAgent;
  readonly folder: string;
  readonly slices: Map<string, ReturnType<typeof slice>>;
}

type Sender = Pick<Live, 'balancer' | 'folder'>;

async function send(live: Sender, action: 'add' | 'update', object: object): Promise<void> {
  writeFileSync(join(live.folder, 'object.yaml'), JSON.stringify(object));
  await live.balancer.command(`k8s/${action} object.yaml`);
}

function read<R extends Resource>(resource: R, raw: object): ObjectOf[R] {
  const { object, problem } = project(resource, raw, 0);
  if (problem !== undefined) throw new Error(problem.message);
  return object;
}

/** `Service code` of all findings above information, by a report of now. */
async function findingsOf({ agent, slices }: Live): Promise<string[]> {
  await agent.round();
  const text = agent.report()?.text.toString() ?? '';
  const report = runToEnd(readReport(JSON.parse(text)));
  if (report.problems.length > 0) return report.problems.map((problem) => `unknown ${problem}`);
  const { listers } = storeOf([
    read('nodes', rawNode),
    ...services.map((raw) => read('services', raw)),
    ...[...slices.values()].map((raw) => read('endpointslices', raw)),
  ]);
  const settle = createPendingFindings({ window: 0, keep: 100 });
  const onProblem = (): void => undefined;
  const rules = createNodeRules({ listers, settle, window: 0, minor: () => 37, onProblem });
  rules.begin(0);
  const outcomes = new Map<string, PacketOutcome>();
  let needed: readonly Packet[] = [];
  const onNeed = (packets: readonly Packet[]): void => void (needed = packets);
  const seen = { kind: 'node-report', node: nodeName, at: 0, seenAt: 0, lasting: 30 } as const;
  const deliver = (version: string, answers: typeof outcomes | null): void => {
    const entry = { ...seen, report, etag: version, version, outcomes: answers, onNeed };
    runToEnd(rules.takeAgentEntry(entry));
  };
  deliver('1', null);
  if (needed.length > 0) {
    const asked = needed;
    const encoded = await agent.outcomes(asked);
    // On a busy machine, the process that read the maps has ended.
    if (encoded === null) return ['unknown: the agent did not answer'];
    const answers = runToEnd(decodeOutcomes(JSON.parse(JSON.stringify(encoded))));
    for (const [at, outcome] of answers.entries()) {
      const packet = asked[at];
      if (packet !== undefined) outcomes.set(packetText(packet), outcome);
    }
    deliver('2', outcomes);
  }
  const verdicts = rules.nodes()?.summary(0).verdicts.get(nodeName) ?? [];
  const unknown = verdicts.filter(({ verdict }) => verdict === 'unknown');
  const loud = settle.open().filter(({ severity }) => severity !== 'info');
  return [
    ...unknown.map(({ port, reason }) => `unknown ${port} ${String(reason)}`),
    ...loud.map(({ code, service: name }) => `${name} ${code}`),
  ];
}

/** An entry of a map, as bpftool prints it. */
interface Entry {
  readonly key: string[];
  readonly value: string[];
}

const bpftool = async ({ balancer }: FaultyCilium, ...args: string[]): Promise<string> => {
  const [program = '', ...inside] = balancer.inside;
  const { stdout } = await run(program, [...inside, 'bpftool', '-j', ...args]);
  return stdout;
};

const pinned = (map: string): string[] => ['pinned', `${pinnedAt}/cilium_lb4_${map}`];

const entriesOf = async (live: FaultyCilium, map: string): Promise<Entry[]> =>
  JSON.parse(await bpftool(live, 'map', 'dump', ...pinned(map))) as Entry[];

const write = (live: FaultyCilium, map: string, { key, value }: Entry): Promise<string> =>
  bpftool(live, 'map', 'update', ...pinned(map), 'key', ...key, 'value', ...value);

const remove = (live: FaultyCilium, map: string, { key }: Entry): Promise<string> =>
  bpftool(live, 'map', 'delete', ...pinned(map), 'key', ...key);

export interface LiveFault {
  readonly name: string;
  /** The Service that must be found. */
  readonly about: string;
  /** Makes the fault, and returns what repairs it. */
  readonly make: (live: FaultyCilium) => Promise<() => Promise<unknown>>;
}

/** Of services_v2: the bytes of `ip:port/tcp`, and the slot. */
const slotOf = (ip: string, port: number, slot: number) => {
  const numbers = [...ip.split('.').map(Number), port >> 8, port & 255, slot, 0, 6];
  return ({ key }: Entry): boolean => numbers.every((byte, at) => Number(key[at]) === byte);
};

/** A fault of the first entry that fits: another value, or none if `change` is null. */
const edited = (
  name: string,
  about: string,
  map: string,
  fits: (entry: Entry) => boolean,
  change: ((value: string[]) => string[]) | null,
): LiveFault => ({
  name,
  about,
  make: async (live) => {
    const entry = (await entriesOf(live, map)).find(fits);
    if (entry === undefined) throw new Error(`${map} has no such entry`);
    if (change === null) await remove(live, map, entry);
    else await write(live, map, { key: entry.key, value: change(entry.value) });
    return () => write(live, map, entry);
  },
});

const replaced =
  (at: number, ...bytes: string[]) =>
  (value: string[]): string[] =>
    value.with(at, bytes[0] ?? '').map((it, i) => bytes[i - at] ?? it);

const isBackend = (ip: string) => {
  const numbers = ip.split('.').map(Number);
  return ({ value }: Entry): boolean => numbers.every((byte, at) => Number(value[at]) === byte);
};

export const faults: readonly LiveFault[] = [
  edited('a slot is missing', 'web', 'services_v2', slotOf('10.96.1.1', 80, 2), null),
  edited(
    'a slot has no backend',
    'web',
    'services_v2',
    slotOf('10.96.1.1', 80, 1),
    replaced(0, '0xff', '0xff', '0xff'),
  ),
  edited('a backend is missing', 'web', 'backends_v3', isBackend('10.244.1.2'), null),
  edited(
    'a backend has the address of another pod',
    'api',
    'backends_v3',
    isBackend('10.244.1.11'),
    replaced(3, '0x63'),
  ),
  edited(
    'a count is too low',
    'api',
    'services_v2',
    slotOf('10.96.1.2', 80, 0),
    replaced(4, '0x01'),
  ),
  edited('a frontend is missing', 'api', 'services_v2', slotOf('10.96.1.2', 80, 0), null),
  edited('a node port is missing', 'web', 'services_v2', slotOf(nodeIP, 30_080, 0), null),
  edited('a reverse NAT entry is missing', 'api', 'reverse_nat', isBackend('10.96.1.2'), null),
  {
    name: 'a source range is missing',
    about: 'shop',
    make: async (live) => {
      const entries = await entriesOf(live, 'source_range');
      for (const entry of entries) await remove(live, 'source_range', entry);
      return async () => {
        for (const entry of entries) await write(live, 'source_range', entry);
      };
    },
  },
  {
    name: 'the load balancer is stopped while endpoints change',
    about: 'web',
    make: (live) => {
      live.balancer.signal('SIGSTOP');
      // It takes the event when it goes on.
      const taken = live.setEndpoints('web', 1, 2, 3);
      return Promise.resolve(() => {
        live.balancer.signal('SIGCONT');
        return taken;
      });
    },
  },
  {
    name: 'all writes fail',
    about: 'api',
    make: async (live) => {
      await live.balancer.command('fail-writes 1000');
      await live.setEndpoints('api', 10, 11, 12);
      return () => live.balancer.command('fail-writes 0');
    },
  },
];

let [passed, failed] = [0, 0];

function report(name: string, problem: string | null): void {
  if (problem === null) passed++;
  else failed++;
  console.log(
    `${problem === null ? 'ok  ' : 'FAIL'} ${name}${problem === null ? '' : `: ${problem}`}`,
  );
}

/** Asks again until what is found fits, since Cilium repeats what failed with growing pauses. */
async function findUntil(
  live: Live,
  fits: (found: readonly string[]) => boolean,
): Promise<string[]> {
  for (let left = 20; ; left--) {
    const found = await findingsOf(live);
    if (fits(found) || left === 0) return found;
    await sleep(1000);
  }
}

/** The collector of the agent: on the node of the load balancer, as root with only CAP_BPF. */
async function startCollector({ inside }: CiliumLoadBalancer, socket: string) {
  const [program = '', ...args] = inside;
  const privileges = ['setpriv', '--bounding-set=-all,+bpf', '--inh-caps=-all'];
  const main = join(import.meta.dirname, '../../src/main.ts');
  const command = [process.execPath, main, 'agent', '--collect-at', socket];
  const all = [...args, ...privileges, ...command, '--dataplane', 'cilium'];
  const child = spawn(program, all, { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(child.stdout, 'data');
  return child;
}

/** Changes without a fault: endpoints come and go. */
async function checkChurn(live: Live): Promise<void> {
  const first = await findUntil(live, (found) => found.length === 0);
  report('what Cilium wrote has no finding', first.length === 0 ? null : first.join(', '));
  for (let round = 0; round < 3; round++) {
    await live.setEndpoints('web', 1, 2, 20 + round);
    await live.setEndpoints('shop', 30 + round);
    await live.balancer.settle();
    const found = await findingsOf(live);
    const name = `after change ${String(round + 1)} of endpoints there is no finding`;
    report(name, found.length === 0 ? null : found.join(', '));
  }
  await live.setEndpoints('web', 1, 2);
  await live.balancer.settle();
}

async function checkFault(live: Live, { name, about, make }: LiveFault): Promise<void> {
  const isAbout = (found: readonly string[]): boolean =>
    found.some((text) => text.startsWith(`${about} `));
  const repair = await make(live);
  const found = await findUntil(live, isAbout);
  await repair();
  const left = await findUntil(live, (texts) => texts.length === 0);
  const problem = !isAbout(found)
    ? `it was not found, but ${found.join(', ') || 'nothing'}`
    : left.length > 0
      ? `after the repair there is ${left.join(', ')}`
      : null;
  report(`${name} (${found.join(', ')})`, problem);
}

if (import.meta.main) {
  const folder = mkdtempSync(join(tmpdir(), 'cilium-agent-'));
  const node = { name: nodeName, labels: {}, addresses: [nodeIP], otherAddresses: ['10.244.1.1'] };
  const options = { node, flags: [], kubeconfig: null, folder };
  const balancer = await startLoadBalancer(options);
  const socket = join(folder, 'collector.sock');
  const agent = createAgent({
    ...{ node: nodeName, nodeIPs: [nodeIP], podCIDRs: [podCIDR], proxyConfig: null },
    ...{ interval: 1, limits: defaultLimits, collector: socket },
    onProblem: (text) => {
      console.log(`  ${text}`);
    },
  });
  const slices: Live['slices'] = new Map();
  const setEndpoints = async (of: string, ...last: number[]): Promise<void> => {
    const object = slice(of, addresses(...last));
    slices.set(of, object);
    await send({ balancer, folder }, 'update', object);
  };
  const live: Live = { balancer, agent, folder, slices, setEndpoints };
  try {
    await balancer.command('hive/start');
    for (const object of services) await send(live, 'add', object);
    const first = [slice('web', addresses(1, 2)), slice('api', addresses(10, 11))];
    for (const object of [...first, slice('shop', addresses(30))]) {
      live.slices.set(object.metadata.labels['kubernetes.io/service-name'], object);
      await send(live, 'add', object);
    }
    await balancer.settle();
    await balancer.pin();
    const collector = await startCollector(balancer, socket);
    try {
      await checkChurn(live);
      for (const fault of faults) await checkFault(live, fault);
    } finally {
      await endProgram(collector);
    }
  } finally {
    await balancer.stop();
    rmSync(folder, { recursive: true });
  }
  console.log(`${String(passed)} passed, ${String(failed)} failed`);
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
}
