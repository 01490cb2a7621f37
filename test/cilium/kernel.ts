// Compares what Cilium does by its maps with what the kernel does by them:
//
//   npm run -s cilium:kernel -- FOLDER…
//
// Each folder has recorded maps (test/nodes/README.md). clang compiles two programs of Cilium, and
// load-balancer/kernel runs them with these maps. Sockets are connected to each frontend and to the
// port beside it (bpf_sock.c): in a network namespace that is the node, and in one of a pod.
// Packets from outside go to the program of an interface (bpf_xdp.c). What the kernel did must be
// what connection.ts says of the same maps: of the recorded ones, and of those with entries that
// are lost or changed at random. Needs root, clang, Go and a cgroup2 file system. It prints each
// difference, and last the numbers; it ends with 1 if there is a difference.

import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

import { getOrInsert } from '../../src/model/collections.ts';
import { addressIn, familyOf, isLoopback, joinHostPort } from '../../src/model/ip.ts';
import { readCiliumConfig } from '../../src/cluster/decode/cilium-config.ts';
import type { Packet } from '../../src/model/proxy-config.ts';
import { readBpftoolDump } from '../../src/rules/cilium/bpftool-dump.ts';
import { connect, type Connection } from '../../src/rules/cilium/connection.ts';
import {
  type BalancedFrontend,
  isUnspecified,
  type LoadBalancer,
  loadBalancerOf,
  nowhere,
} from '../../src/rules/cilium/load-balancer.ts';
import type { MapAddress } from '../../src/rules/cilium/map-entries.ts';
import { placeWith } from '../../src/rules/cilium/packet-outcome.ts';
import { ciliumFoldersBelow } from '../nodes/folder.ts';
import { ciliumMaps, ciliumObjects } from '../nodes/walk.ts';
import { goProgram } from '../processes.ts';
import { type BpfMaps, byteText } from './load-balancer.ts';
import { diceOf } from './objects.ts';

type Dice = ReturnType<typeof diceOf>;

const source = join(import.meta.dirname, 'load-balancer');

const run = (program: string, args: readonly string[], cwd?: string): string =>
  execFileSync(program, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] })
    .toString()
    .trim();

/** Compiles a program of Cilium for Maglev tables of this size. */
function compile(program: string, folder: string, defined: readonly string[], places = 1021) {
  const module = ['list', '-m', '-f', '{{.Dir}}', 'github.com/cilium/cilium'];
  const bpf = join(run(goProgram(), module, source), 'bpf');
  const config = readFileSync(join(bpf, 'node_config.h'), 'utf8');
  writeFileSync(
    join(folder, 'node_config.h'),
    config.replace(/(?<=define LB_MAGLEV_LUT_SIZE\s+)\d+/, String(places)),
  );
  const object = join(folder, `${program}-${places}.o`);
  const all = ['ENABLE_IPV4', 'ENABLE_IPV6', 'ENABLE_NODEPORT', ...defined];
  run('clang', [
    ...['-O2', '-g', '--target=bpf', '-std=gnu99', '-mcpu=v3', '-nostdinc', '-w'],
    ...[folder, bpf, join(bpf, 'include')].map((it) => `-I${it}`),
    ...[...all.map((it) => `-D${it}`), '-c', join(bpf, `${program}.c`), '-o', object],
  ]);
  return object;
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

interface Question {
  readonly packet: Packet;
  readonly expected: Connection;
  readonly affine: boolean;
  readonly count: number;
}

/** Connections by their peer or their error. */
type Counts = Readonly<Record<string, number>>;

/** Starts the program with its maps, and asks it. */
async function ask(
  [command = '', ...args]: readonly string[],
  given: object,
  questions: readonly Question[],
): Promise<Counts[]> {
  const child: ChildProcess = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const gone = new Promise((resolve) => child.once('exit', resolve));
  child.stdin?.write(JSON.stringify(given));
  for (const { packet, count, affine } of questions) {
    const { protocol, src: source, dst: address, dport: port } = packet;
    const question = { protocol, source, address, port, count, affine };
    child.stdin?.write(`\n${JSON.stringify(question)}`);
  }
  child.stdin?.end();
  const answers: Counts[] = [];
  if (child.stdout !== null) {
    for await (const line of createInterface({ input: child.stdout })) {
      answers.push(JSON.parse(line) as Counts);
    }
  }
  await gone;
  if (answers.length !== questions.length) throw new Error(`${command}: ${answers.length} answers`);
  return answers;
}

/** Connections to a frontend with this number of slots. */
const attempts = (slots: number): number => Math.min(20 + 15 * slots, 600);

/** A reverse NAT entry that is missing matters to answers only. */
const unanswered = ({ get }: LoadBalancer): LoadBalancer => ({
  get: (key) => {
    const frontend = get(key);
    return frontend && { ...frontend, reversed: true };
  },
});

/** Changes an entry of a frontend: its flags, its count, or the backend of a slot. */
function damageService(width: number, { key, value }: BpfMaps[string][number], dice: Dice): void {
  const [backend, count, flags] = [0, 4, 8];
  const isSlot = key.slice(width + 2, width + 4).some((byte) => byte !== byteText(0));
  const at = isSlot ? backend : dice.chance(0.4) ? count : flags + dice.below(2);
  const before = Number(value[at]);
  value[at] = byteText(
    at >= flags ? before ^ (1 << dice.below(8)) : dice.below(at === 0 ? 256 : 6),
  );
}

/** The maps with one of 16 entries lost, and one of 8 of the frontends changed. */
function damaged(maps: BpfMaps, dice: Dice): BpfMaps {
  const damagedMap = (name: string): BpfMaps[string] =>
    (maps[name] ?? []).flatMap(({ key, value }) => {
      // The inner tables of Maglev.
      if (name.includes(':')) return [{ key, value }];
      if (dice.chance(1 / 16)) return [];
      const entry = { key, value: [...value] };
      const width = name.includes('lb6') ? 16 : 4;
      if (name.endsWith('services_v2') && dice.chance(1 / 8)) damageService(width, entry, dice);
      return [entry];
    });
  return Object.fromEntries(Object.keys(maps).map((name) => [name, damagedMap(name)]));
}

/** Sources of packets from outside: one of no range, and one of a range of the frontend. */
function sourcesOf(frontend: BalancedFrontend | undefined, isIPv6: boolean): string[] {
  const [range] = frontend?.sources?.ranges ?? [];
  const inside = range === undefined ? [] : [addressIn(range, 1n)];
  return [isIPv6 ? '2001:db8::7' : '198.51.100.7', ...inside];
}

/** The first packets of connections to a frontend, and to the port beside it. */
function* packetsTo(
  { address, port, protocol }: Pick<MapAddress, 'address' | 'port'> & Pick<Packet, 'protocol'>,
  frontend: BalancedFrontend | undefined,
  local: readonly string[],
): Generator<Packet> {
  const isIPv6 = familyOf(address) === 'IPv6';
  const loopback = isIPv6 ? '::1' : '127.0.0.1';
  const any = [...local.filter((it) => familyOf(it) === familyOf(address)), loopback];
  for (const dport of [port, port + 1]) {
    for (const dst of isUnspecified(address) ? any : [address]) {
      yield { from: 'node', src: loopback, dst, protocol, dport };
      // The loopback address of a pod is its own.
      if (!isLoopback(dst)) yield { from: 'pod', src: loopback, dst, protocol, dport };
    }
    if (isUnspecified(address)) continue;
    for (const src of sourcesOf(frontend, isIPv6)) {
      yield { from: 'outside', src, dst: address, protocol, dport };
    }
  }
}

/** What is asked about the maps of a folder. */
function questionsOf(path: string, maps: BpfMaps) {
  const { file } = ciliumObjects(path);
  const { nodeAddresses = [], nodeAddressesNoNodePort = [] } = file;
  const config = readCiliumConfig(file.config ?? {}, nodeAddresses);
  const { nodePortRange, algorithm, algorithmAnnotation: byService } = config;
  const local = [...nodeAddresses, ...nodeAddressesNoNodePort];
  const { entries } = readBpftoolDump(JSON.stringify(maps));
  const { frontends, masters } = loadBalancerOf(entries);
  const place = placeWith(local, nodePortRange);
  const questions: Question[] = [];
  for (const [key, master] of masters) {
    const { scope, protocol } = master;
    if (scope !== 0 || (protocol !== 'tcp' && protocol !== 'udp')) continue;
    for (const packet of packetsTo({ ...master, protocol }, frontends.get(key), local)) {
      const expected = connect(unanswered(frontends), packet, place);
      const used = expected.kind === 'pass' ? null : expected.frontend;
      // The program leaves an external policy Local to a later one, which is not run here.
      if (packet.from === 'outside' && used?.externalLocal === true) continue;
      const affine = used !== null && used.affinitySeconds !== null;
      // Other clients may be outside of the source range, so that one connects, once.
      const isAlone = packet.from === 'outside' && affine && used.sources !== null;
      const count = isAlone ? 1 : attempts(used?.slots.size ?? 0);
      questions.push({ packet, expected, affine: affine && !isAlone, count });
    }
  }
  const backends = entries.flatMap((it) =>
    it.kind === 'backend' ? [joinHostPort(it.address, it.port)] : [],
  );
  const isMaglev = algorithm === 'maglev';
  return { given: { maps, local, nodePortRange, backends, isMaglev, byService }, questions };
}

/** Standard deviations that a count may be away from the expected one. */
const widest = 6;

/** The exact shares of a Maglev table, which the audit rounds. */
function sharesOf(
  { frontend, shares }: Extract<Connection, { kind: 'endpoints' }>,
  from: Packet['from'],
): ReadonlyMap<string, number> {
  if (from !== 'outside' || frontend.places === null) return shares;
  const total = [...frontend.places.values()].reduce((sum, places) => sum + places, 0);
  return new Map([...frontend.places].map(([endpoint, places]) => [endpoint, places / total]));
}

/** How the kernel differs; null: it does not. */
function differenceOf({ packet, expected, count }: Question, counts: Counts): string | null {
  const { from, dst, dport } = packet;
  const stopped = from === 'outside' ? 'drop' : 'EHOSTUNREACH';
  if (expected.kind === 'pass') {
    const right = ['ECONNREFUSED', joinHostPort(dst, dport)];
    return Object.keys(counts).every((it) => right.includes(it)) ? null : 'it is connected';
  }
  if (expected.kind === 'unknown') return null;
  const shares = expected.kind === 'endpoints' ? sharesOf(expected, from) : new Map([[nowhere, 1]]);
  const wanted = new Map([...shares].map(([it, share]) => [it === nowhere ? stopped : it, share]));
  for (const [to, share] of wanted) {
    const seen = counts[to] ?? 0;
    const deviation = Math.sqrt(count * share * (1 - share));
    const isLost = seen === 0 && count * share > 14;
    if (isLost || Math.abs(seen - count * share) > widest * deviation + 1) {
      return `${to}: ${seen} of ${count}, not ${(count * share).toFixed(1)}`;
    }
  }
  const others = Object.keys(counts).filter((it) => !wanted.has(it));
  return others.length === 0 ? null : `${others.join(', ')}: not expected`;
}

const places = { node: `ea-${process.pid}-node`, pod: `ea-${process.pid}-pod` } as const;
const folder = mkdtempSync(join(tmpdir(), 'kernel-'));
const program = join(folder, 'kernel');
const tally = { folders: 0, asked: 0, connections: 0, unknown: 0, wrong: 0 };

/** The most that may be unknown, all of it in damaged maps. */
const mostUnknown = 0.02;

/** The program for packets, by the size of Maglev tables. */
const packetObjects = new Map<number, string>();

/** The command that answers for a sender. */
function commandFor(from: Packet['from'], sockets: string, maps: BpfMaps): string[] {
  if (from !== 'outside') {
    const name = places[from];
    return ['nsenter', ...within(name), program, 'sockets', sockets, join(cgroups(), name)];
  }
  const table = Object.keys(maps).find((name) => name.startsWith('cilium_maglev_inner:'));
  const size = (maps[table ?? '']?.[0]?.value.length ?? 4 * 1021) / 4;
  const object = getOrInsert(packetObjects, size, () =>
    compile('bpf_xdp', folder, ['ENABLE_NODEPORT_ACCELERATION'], size),
  );
  return [program, 'packets', object];
}

/** Asks the kernel about maps of a folder, and prints how it differs. */
async function checkMaps(
  sockets: string,
  path: string,
  state: 'recorded' | 'damaged',
  maps: BpfMaps,
): Promise<void> {
  const { given, questions } = questionsOf(path, maps);
  for (const from of ['node', 'pod', 'outside'] as const) {
    const own = questions.filter(({ packet }) => packet.from === from);
    const answers = await ask(commandFor(from, sockets, maps), given, own);
    for (const [at, question] of own.entries()) {
      const { packet, expected, count } = question;
      const counts = answers[at] ?? {};
      const isSound = state === 'recorded' && expected.kind === 'unknown';
      const difference = isSound ? 'it is unknown' : differenceOf(question, counts);
      tally.asked++;
      tally.connections += count;
      if (expected.kind === 'unknown') tally.unknown++;
      if (difference === null) continue;
      tally.wrong++;
      console.log(
        JSON.stringify({ path, state, packet, expected: expected.kind, difference, counts }),
      );
    }
  }
}

try {
  run(goProgram(), ['build', '-buildvcs=false', '-o', program, './kernel'], source);
  for (const name of Object.values(places)) {
    createPlace(name);
    mkdirSync(join(cgroups(), name));
  }
  const cookie = run('nsenter', [...within(places.node), program, 'cookie']);
  const sockets = compile('bpf_sock', folder, [`HOST_NETNS_COOKIE=${cookie}ULL`]);
  const folders = process.argv.slice(2).flatMap((path) => ciliumFoldersBelow(path));
  for (const [at, path] of folders.entries()) {
    const maps = JSON.parse(ciliumMaps(path)) as BpfMaps;
    await checkMaps(sockets, path, 'recorded', maps);
    await checkMaps(sockets, path, 'damaged', damaged(maps, diceOf(at)));
  }
  tally.folders = folders.length;
} finally {
  for (const name of Object.values(places)) {
    if (existsSync(`/run/netns/${name}`)) run('ip', ['netns', 'delete', name]);
    if (existsSync(join(cgroups(), name))) rmdirSync(join(cgroups(), name));
  }
  rmSync(folder, { recursive: true });
}
console.log(JSON.stringify(tally));
const isEnough = tally.asked > 0 && tally.unknown <= mostUnknown * tally.asked;
process.exitCode = tally.wrong > 0 || !isEnough ? 1 : 0;
