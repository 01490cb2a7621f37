// Compares connections by Cilium's maps with those of the kernel:
//
//   npm run -s cilium:sockets -- FOLDER…
//
// Each folder has recorded maps (test/nodes/README.md). clang compiles the socket load balancing
// program of Cilium. sockets/main.go attaches it to a cgroup, with these maps, and connects TCP and
// UDP sockets to each frontend: in a network namespace that is the node, and in one of a pod. What
// the kernel did must be what connection.ts says of the same maps. Needs root, clang, Go and a
// cgroup2 file system. It prints each difference, and last the numbers; it ends with 1 if there is
// a difference.

import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

import { familyOf, isLoopback, joinHostPort } from '../../src/model/ip.ts';
import { readCiliumConfig } from '../../src/cluster/decode/cilium-config.ts';
import type { Packet } from '../../src/model/proxy-config.ts';
import { readBpftoolDump } from '../../src/rules/cilium/bpftool-dump.ts';
import { connect, type Connection } from '../../src/rules/cilium/connection.ts';
import {
  isUnspecified,
  type LoadBalancer,
  loadBalancerOf,
  nowhere,
} from '../../src/rules/cilium/load-balancer.ts';
import { placeWith } from '../../src/rules/cilium/packet-outcome.ts';
import { ciliumFoldersBelow } from '../nodes/folder.ts';
import { ciliumMaps, ciliumObjects } from '../nodes/walk.ts';
import { goProgram } from '../processes.ts';

const source = join(import.meta.dirname, 'load-balancer');

const run = (program: string, args: readonly string[], cwd?: string): string =>
  execFileSync(program, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] })
    .toString()
    .trim();

/** Compiles bpf_sock.c for a node that is the namespace with this cookie. */
function compile(cookie: string, object: string): void {
  const module = ['list', '-m', '-f', '{{.Dir}}', 'github.com/cilium/cilium'];
  const bpf = join(run(goProgram(), module, source), 'bpf');
  const defined = [
    'ENABLE_IPV4',
    'ENABLE_IPV6',
    'ENABLE_NODEPORT',
    `HOST_NETNS_COOKIE=${cookie}ULL`,
  ];
  run('clang', [
    ...['-O2', '-g', '--target=bpf', '-std=gnu99', '-mcpu=v3', '-nostdinc', '-w'],
    ...[`-I${bpf}`, `-I${join(bpf, 'include')}`, ...defined.map((it) => `-D${it}`)],
    ...['-c', join(bpf, 'bpf_sock.c'), '-o', object],
  ]);
}

/** A network namespace in which every address is one of its own, so that all is answered. */
function createPlace(name: string): void {
  run('ip', ['netns', 'add', name]);
  run('ip', ['-n', name, 'link', 'set', 'lo', 'up']);
  run('ip', ['-n', name, 'route', 'add', 'local', '0.0.0.0/0', 'dev', 'lo']);
  run('ip', ['-n', name, '-6', 'route', 'add', 'local', '::/0', 'dev', 'lo']);
}

/** Where cgroups of version 2 are. */
function cgroups(): string {
  const mounts = readFileSync('/proc/mounts', 'utf8').split('\n');
  const [, path] = mounts.find((line) => line.split(' ')[2] === 'cgroup2')?.split(' ') ?? [];
  if (path === undefined) throw new Error('Expected a cgroup2 file system');
  return path;
}

const within = (name: string): string[] => [`--net=/run/netns/${name}`];

interface Programs {
  readonly program: string;
  readonly object: string;
}

interface Question {
  readonly packet: Packet;
  readonly expected: Connection;
  readonly affine: boolean;
  readonly count: number;
}

/** Connections by their peer or their error. */
type Counts = Readonly<Record<string, number>>;

/** Starts the program in a namespace, and asks it. */
async function ask(
  { program, object, name }: Programs & { readonly name: string },
  state: object,
  questions: readonly Question[],
): Promise<Counts[]> {
  const cgroup = join(cgroups(), name);
  mkdirSync(cgroup);
  const child: ChildProcess = spawn('nsenter', [...within(name), program, object, cgroup], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const gone = new Promise((resolve) => child.once('exit', resolve));
  child.stdin?.write(JSON.stringify(state));
  for (const { packet, count, affine } of questions) {
    const { protocol, dst: address, dport: port } = packet;
    child.stdin?.write(`\n${JSON.stringify({ protocol, address, port, count, affine })}`);
  }
  child.stdin?.end();
  const answers: Counts[] = [];
  if (child.stdout !== null) {
    for await (const line of createInterface({ input: child.stdout })) {
      answers.push(JSON.parse(line) as Counts);
    }
  }
  await gone;
  rmdirSync(cgroup);
  if (answers.length !== questions.length) throw new Error(`${name}: ${answers.length} answers`);
  return answers;
}

/** Connections to a frontend with this number of slots. */
const attempts = (slots: number): number => 20 + 15 * slots;

/** A reverse NAT entry that is missing matters to packets only: sockets keep their own. */
const bySockets = ({ get }: LoadBalancer): LoadBalancer => ({
  get: (key) => {
    const frontend = get(key);
    return frontend && { ...frontend, reversed: true };
  },
});

/** What is asked about the maps of a folder: each frontend, and a port beside it. */
function questionsOf(path: string) {
  const { file } = ciliumObjects(path);
  const { nodeAddresses = [], nodeAddressesNoNodePort = [] } = file;
  const { nodePortRange } = readCiliumConfig(file.config ?? {}, nodeAddresses);
  const local = [...nodeAddresses, ...nodeAddressesNoNodePort];
  const text = ciliumMaps(path);
  const { entries } = readBpftoolDump(text);
  const { frontends, masters } = loadBalancerOf(entries);
  const place = placeWith(local, nodePortRange);
  const questions: Record<'node' | 'pod', Question[]> = { node: [], pod: [] };
  for (const [key, { address, port, protocol, scope }] of masters) {
    if (scope !== 0 || (protocol !== 'tcp' && protocol !== 'udp')) continue;
    const frontend = frontends.get(key);
    const isIPv6 = familyOf(address) === 'IPv6';
    const own = local.filter((it) => familyOf(it) === familyOf(address));
    const any = [...own, isIPv6 ? '::1' : '127.0.0.1'];
    for (const dst of isUnspecified(address) ? any : [address]) {
      for (const from of ['node', 'pod'] as const) {
        // The loopback address of a pod is its own.
        if (from === 'pod' && isLoopback(dst)) continue;
        for (const dport of [port, port + 1]) {
          const packet = { from, src: isIPv6 ? '::1' : '127.0.0.1', dst, protocol, dport };
          const expected = connect(bySockets(frontends), packet, place);
          const slots = dport === port ? (frontend?.slots.size ?? 0) : 0;
          const affine = (frontend?.affinitySeconds ?? null) !== null;
          questions[from].push({ packet, expected, affine, count: attempts(slots) });
        }
      }
    }
  }
  const ports = entries.flatMap((it) => (it.kind === 'backend' ? [it.port] : []));
  const maps: unknown = JSON.parse(text);
  const state = { maps, local, nodePortRange, ports: [...new Set(ports)] };
  return { state, questions };
}

/** Standard deviations that a count may be away from the expected one. */
const widest = 6;

/** How the kernel differs; null: it does not. */
function differenceOf({ packet, expected, count }: Question, counts: Counts): string | null {
  const { dst, dport } = packet;
  if (expected.kind === 'pass') {
    const right = ['ECONNREFUSED', joinHostPort(dst, dport)];
    return Object.keys(counts).every((it) => right.includes(it)) ? null : 'it is connected';
  }
  if (expected.kind === 'unknown') return null;
  const shares =
    expected.kind === 'endpoints' ? expected.shares : new Map([['EHOSTUNREACH', 1] as const]);
  const wanted = new Map(
    [...shares].map(([it, share]) => [it === nowhere ? 'EHOSTUNREACH' : it, share]),
  );
  for (const [to, share] of wanted) {
    const seen = counts[to] ?? 0;
    const deviation = Math.sqrt(count * share * (1 - share));
    if (Math.abs(seen - count * share) > widest * deviation + 1) {
      return `${to}: ${seen} of ${count}, not ${(count * share).toFixed(1)}`;
    }
  }
  const others = Object.keys(counts).filter((it) => !wanted.has(it));
  return others.length === 0 ? null : `${others.join(', ')}: not expected`;
}

const places = { node: `ea-${process.pid}-node`, pod: `ea-${process.pid}-pod` } as const;

const tally = { folders: 0, asked: 0, connections: 0, unknown: 0, wrong: 0 };

/** Asks the kernel about the maps of a folder, and prints how it differs. */
async function checkFolder(programs: Programs, path: string): Promise<void> {
  tally.folders++;
  const { state, questions } = questionsOf(path);
  for (const from of ['node', 'pod'] as const) {
    const answers = await ask({ ...programs, name: places[from] }, state, questions[from]);
    for (const [at, question] of questions[from].entries()) {
      const { packet, expected, count } = question;
      const counts = answers[at] ?? {};
      const difference = differenceOf(question, counts);
      tally.asked++;
      tally.connections += count;
      if (expected.kind === 'unknown') tally.unknown++;
      if (difference === null) continue;
      tally.wrong++;
      console.log(JSON.stringify({ path, packet, expected: expected.kind, difference, counts }));
    }
  }
}

const folder = mkdtempSync(join(tmpdir(), 'sockets-'));
try {
  const programs = { program: join(folder, 'sockets'), object: join(folder, 'sockets.o') };
  const build = ['build', '-buildvcs=false', '-o', programs.program, './sockets'];
  run(goProgram(), build, source);
  for (const name of Object.values(places)) createPlace(name);
  compile(run('nsenter', [...within(places.node), programs.program, 'cookie']), programs.object);
  const folders = process.argv.slice(2).flatMap((path) => ciliumFoldersBelow(path));
  for (const path of folders) await checkFolder(programs, path);
} finally {
  for (const name of Object.values(places)) run('ip', ['netns', 'delete', name]);
  rmSync(folder, { recursive: true });
}
console.log(JSON.stringify(tally));
process.exitCode = tally.wrong > 0 || tally.asked === 0 ? 1 : 0;
