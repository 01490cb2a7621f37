// One round of the agent in a process of its own. It reads the rules of the node, walks packets
// through them, and answers questions about details for a while. Then it exits, which frees many
// times the memory that an idle agent needs. If this process reaches its memory limit, the agent
// continues and the node is unknown.
//
// The agent (schedule.ts) sends an order, and then questions (channel.ts).

import { createHash } from 'node:crypto';
import { closeSync, existsSync, openSync, readdirSync, readSync } from 'node:fs';
import { Socket } from 'node:net';
import { hostname, networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import zlib from 'node:zlib';

import { canonicalIP } from '../model/ip.ts';
import type { NodeSenders } from '../rules/report/digest.ts';
import { keyOf } from '../rules/report/digest.ts';
import type { RuleFrontend } from '../rules/report/frontends.ts';
import type { InferredSettings } from '../rules/report/infer-proxy-config.ts';
import { lackText } from '../rules/ruleset.ts';
import type { Routes } from '../rules/walk/routes.ts';
import { readRoutes } from '../rules/walk/routes.ts';
import type {
  NodeSettings,
  PackedRules,
  ReaderAnswer,
  ReaderQuestion,
  ReaderReply,
  RoundCost,
  RoundOrder,
  RoundResult,
} from './channel.ts';
import { gather, pipe } from './channel.ts';
import type { CollectedDump, CollectedRules } from './collect.ts';
import { collect, programs } from './collect.ts';
import { fingerprintOf } from './fingerprint.ts';
import type { NodeFacts, NodeRuleSet, ProxyMode } from './report.ts';
import { askingOf, contextOf, detailsOf, digestsOf, outcomesOf, readDumps } from './report.ts';

/** What GET /v1/report answers. All that changes from round to round by itself is left out. */
export interface Report {
  readonly version: 1;
  readonly node: string;
  readonly nodeIPs: readonly string[];
  /** The node's own addresses in the walk and in the comparison, without loopback addresses. */
  readonly localAddresses: readonly string[];
  readonly podCIDRs: readonly string[];
  readonly mode: ProxyMode | null;
  readonly backend: 'nft' | 'legacy' | null;
  readonly proxyConfig: NodeSettings['proxyConfig'];
  /** By program: `read`, `empty`, `absent` or `failed`. */
  readonly programs: Readonly<Record<string, string>>;
  /** Reasons why the rules are unknown; then there are no frontends. */
  readonly problems: readonly string[];
  /** Of kube-proxy, as far as its rules show them. */
  readonly settings: InferredSettings;
  /** Who the packets are from that digests are of. */
  readonly asking: NodeSenders;
  /** 64 bits in hexadecimal, by frontend. */
  readonly frontends: Readonly<Record<string, string>>;
  /** Frontends that several tables translate for. */
  readonly doubled: readonly string[];
}

/** Names of chains are random and come again megabytes later: 64 MiB are looked back. */
const looksBack: zlib.ZstdOptions = {
  params: {
    [zlib.constants.ZSTD_c_compressionLevel]: 2,
    [zlib.constants.ZSTD_c_windowLog]: 26,
    [zlib.constants.ZSTD_c_hashLog]: 22,
  },
};

const compress = promisify<Buffer, zlib.ZstdOptions, Buffer>(zlib.zstdCompress);

const pack = (bytes: Buffer): Promise<Buffer> => compress(bytes, looksBack);

const unpack = promisify<Buffer, Buffer>(zlib.zstdDecompress);

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/** The largest number of addresses of one node; IPVS binds more to its own interface. */
const mostAddresses = 256;

const isLoopback = (address: string): boolean => address === '::1' || address.startsWith('127.');

/**
 * Read in every round, because interfaces change. Link-local addresses are left out: each pod
 * adds one, and no client uses them. Virtual IPs may be bound to the loopback interface.
 */
function placeOf({ node, nodeIPs, podCIDRs }: NodeSettings): NodeFacts {
  const known = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  const global = known.filter(({ address }) => !isLoopback(address) && !/^fe[89ab]/i.test(address));
  const first = (family: string): string[] =>
    global
      .filter((item) => !item.internal && item.family === family)
      .slice(0, 1)
      .map(({ address }) => address);
  const all = new Set(global.map(({ address }) => canonicalIP(address)));
  const interfaces = interfaceNames();
  return {
    node: node ?? hostname(),
    localAddresses: [...all].sort().slice(0, mostAddresses),
    interfaces,
    routes: routesTold(interfaces),
    nodeIPs: (nodeIPs.length > 0 ? nodeIPs : [...first('IPv4'), ...first('IPv6')]).map(canonicalIP),
    podCIDRs,
  };
}

const links = '/sys/class/net';

/** null if sysfs does not list them; then matches on interfaces are unknown. */
function interfaceNames(): readonly string[] | null {
  try {
    const entries = readdirSync(links, { withFileTypes: true });
    return entries.filter((entry) => entry.isSymbolicLink()).map(({ name }) => name);
  } catch {
    return null;
  }
}

/** null if the routes cannot be read; then most matches on interfaces are unknown. */
function routesTold(interfaces: readonly string[] | null): Routes | null {
  try {
    // An interface that has gone meanwhile is none of them.
    const devices = interfaces?.filter((name) => existsSync(join(links, name, 'device')));
    const [route, trie] = [readShort('/proc/net/route'), readShort('/proc/net/fib_trie')];
    return devices === undefined ? null : readRoutes(route, trie, devices);
  } catch {
    return null;
  }
}

/** More is a router's. */
const mostBytes = 1 << 20;

/**
 * Reads a file of procfs, which has no size.
 *
 * @throws RangeError where it is longer than that.
 */
function readShort(path: string): string {
  const bytes = Buffer.allocUnsafe(mostBytes);
  const file = openSync(path, 'r');
  try {
    for (let at = 0; at < mostBytes;) {
      const size = readSync(file, bytes, at, mostBytes - at, null);
      if (size === 0) return bytes.toString('latin1', 0, at);
      at += size;
    }
    throw new RangeError(`${path} is too long`);
  } finally {
    closeSync(file);
  }
}

interface Known {
  /** null if the rules of the node are unknown. */
  readonly standing: NodeRuleSet | null;
  readonly place: NodeFacts;
}

/** The result of a round: the state, the report, and the bytes for the pipe. */
interface Round extends Known {
  readonly reading: RoundResult;
  readonly bytes: readonly Buffer[];
}

/** Reads what was collected, and packs it for later. */
async function roundOf(
  settings: NodeSettings,
  place: NodeFacts,
  collected: CollectedRules,
  fingerprint: string | null,
  collecting: number,
): Promise<Round> {
  const { dumps } = collected;
  const [problems, standing] = readAll(collected);
  const report = reportOf(settings, place, { ...collected, problems }, standing);
  const kept = standing === null ? [] : dumps;
  const packed = await Promise.all(kept.map((dump) => pack(dump.bytes)));
  const sizes = packed.map((bytes) => bytes.length);
  const text = Buffer.from(`${JSON.stringify(report)}\n`);
  const reading: RoundResult = {
    reportSize: text.length,
    packedSize: total(sizes),
    etag: `"${createHash('sha256').update(text).digest('base64url').slice(0, 22)}"`,
    frontends: Object.keys(report.frontends).length,
    packed:
      standing === null
        ? null
        : { dumps: kept.map(({ program }, at) => ({ program, size: sizes[at] ?? 0 })), place },
    fingerprint: standing === null ? null : fingerprint,
    spent: spentOn(collected, collecting),
  };
  return { standing, place, reading, bytes: [text, ...packed] };
}

const spentOn = ({ dumps }: CollectedRules, collecting: number): RoundCost => ({
  bytes: total(dumps.map(({ bytes }) => bytes.length)),
  collecting,
  cpu: cpuSeconds(),
});

function readAll({ dumps, problems }: CollectedRules): [readonly string[], NodeRuleSet | null] {
  if (problems.length > 0) return [problems, null];
  try {
    const standing = readDumps(dumps);
    const { lacks } = standing.ruleset;
    return lacks.length === 0 ? [[], standing] : [[...new Set(lacks.map(lackText))], null];
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return [[error.message], null];
  }
}

function reportOf(
  { proxyConfig }: NodeSettings,
  place: NodeFacts,
  { states, problems }: CollectedRules,
  standing: NodeRuleSet | null,
): Report {
  return {
    version: 1,
    node: place.node,
    nodeIPs: place.nodeIPs,
    localAddresses: contextOf(place).localAddresses,
    podCIDRs: place.podCIDRs,
    mode: standing?.mode ?? null,
    backend: standing?.backend ?? null,
    proxyConfig,
    programs: states,
    problems,
    settings: standing?.settings ?? {},
    asking: askingOf(place, standing),
    frontends: standing === null ? {} : Object.fromEntries(digestsOf(standing, place)),
    doubled: (standing?.claims ?? []).filter(isDoubled).map(keyOf),
  };
}

const isDoubled = ({ address, translators }: RuleFrontend): boolean =>
  address !== null && translators > 1;

const total = (sizes: readonly number[]): number => sizes.reduce((sum, size) => sum + size, 0);

/** Reads what an earlier round packed. */
async function unpacked({ dumps, place }: PackedRules, bytes: Buffer): Promise<Known> {
  const read: Promise<CollectedDump>[] = [];
  let at = 0;
  for (const { program, size } of dumps) {
    const part = bytes.subarray(at, at + size);
    read.push(unpack(part).then((whole) => ({ program, bytes: whole })));
    at += size;
  }
  return { standing: readDumps(await Promise.all(read)), place };
}

function answerTo({ standing, place }: Known, question: ReaderQuestion): ReaderAnswer {
  if (standing === null) return null;
  return question.kind === 'details'
    ? detailsOf(standing, place, question.key)
    : outcomesOf(standing, place, question.packets);
}

async function carryOut(order: RoundOrder, beside: Socket, send: (reply: ReaderReply) => void) {
  if (order.kind === 'unpack') {
    return unpacked(order.packed, await gather(beside, order.packedSize));
  }
  const { settings } = order;
  const place = placeOf(settings);
  const begun = performance.now();
  const collected =
    order.kind === 'collect'
      ? await collect(settings.limits, settings.programs ?? programs)
      : { dumps: [], states: {}, problems: [order.problem] };
  const collecting = (performance.now() - begun) / 1000;
  const fingerprint = fingerprintOf(collected, place);
  if (order.kind === 'collect' && fingerprint !== null && fingerprint === order.last) {
    send({ kind: 'same', spent: spentOn(collected, collecting) });
    return { standing: null, place };
  }
  const { reading, bytes, ...known } = await roundOf(
    settings,
    place,
    collected,
    fingerprint,
    collecting,
  );
  send({ kind: 'read', reading });
  for (const part of bytes) beside.write(part);
  return known;
}

/** Serves the process that started this one, until it lets go of it. */
function serve(): void {
  const send = (reply: ReaderReply): void => void process.send?.(reply);
  const beside = new Socket({ fd: pipe });
  let known: Promise<Known> | null = null;
  let told = 0;
  process.on('message', (message: RoundOrder | ReaderQuestion) => {
    if (message.kind !== 'details' && message.kind !== 'outcomes') {
      known = carryOut(message, beside, (reply) => {
        told = cpuSeconds();
        send(reply);
      });
      return;
    }
    void known?.then((item) => {
      const answer = answerTo(item, message);
      const cpu = cpuSeconds() - told;
      told += cpu;
      send({ kind: 'answer', answer, cpu });
    });
  });
  process.on('disconnect', () => process.exit(0));
}

if (process.argv[1] === import.meta.filename) serve();
