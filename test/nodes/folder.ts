// Reads folders of the nodes form: recordings (proxy-config.yaml) and faults (fault.json, whose
// `base` is a recording), with their dumps, packets and objects, packed or not.

import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { parse } from 'yaml';

import { formatAddress, parseNetwork } from '../../src/model/ip.ts';
import { parseIptablesSave } from '../../src/rules/parse/iptables-save.ts';
import { parseNft } from '../../src/rules/parse/nft-ruleset.ts';
import type { Family, Rule, RuleSet } from '../../src/rules/ruleset.ts';
import { mergeRuleSets, rulesOf } from '../../src/rules/ruleset.ts';
import type { NodeContext } from '../../src/rules/walk/walk-state.ts';
import type { Destination, OutcomeShare, PacketOutcome } from '../../src/rules/walk/walk.ts';
import { walk } from '../rules/rulesets.ts';

export interface PacketLine {
  readonly about: string;
  readonly packet: {
    readonly from: 'pod' | 'node' | 'outside';
    readonly src: string;
    readonly dst: string;
    readonly protocol: 'TCP' | 'UDP' | 'SCTP';
    readonly dport: number;
  };
  readonly attempts: number;
  /** The sources that took turns, when `src` says "varied". */
  readonly srcs?: readonly string[];
  readonly outcomes: string | Readonly<Record<string, Seen>>;
  readonly passMasqueraded?: boolean;
  readonly inconclusive?: readonly string[];
}

export interface Seen {
  readonly count: number;
  /** some: most changed; a port that is drawn can be the packet's own. */
  readonly masqueraded?: boolean | 'some';
}

interface ProxyConfig {
  readonly nodeName: string;
  readonly objects?: string;
  readonly localAddresses?: readonly string[];
}

export interface Folder {
  readonly path: string;
  readonly isFault: boolean;
  /** All rules on the node, of both backends. */
  readonly ruleset: RuleSet;
  readonly node: NodeContext;
  readonly packets: readonly PacketLine[];
  /** Holds rules of others than kube-proxy. */
  readonly isForeign: boolean;
  /** A second backend has rules, and the dumps do not show which backend runs first. */
  readonly hasBothBackends: boolean;
}

const hasFile = (path: string, name: string): boolean =>
  existsSync(join(path, name)) || existsSync(join(path, `${name}.gz`));

/** Folders at or below this path that hold a recording or a fault of a kube-proxy. */
export const foldersBelow = (path: string): string[] =>
  allFoldersBelow(path).filter((folder) => !isCiliumFolder(folder));

/** Folders at or below this path that hold a recording or a fault of Cilium. */
export const ciliumFoldersBelow = (path: string): string[] =>
  allFoldersBelow(path).filter(isCiliumFolder);

const isCiliumFolder = (path: string): boolean => hasFile(path, 'cilium-maps.json');

function allFoldersBelow(path: string): string[] {
  const own = ['proxy-config.yaml', 'fault.json'].some((name) => existsSync(join(path, name)));
  const below = readdirSync(path, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() || statSync(join(path, entry.name)).isDirectory())
    .map((entry) => join(path, entry.name))
    .sort();
  return [...(own ? [path] : []), ...below.flatMap(allFoldersBelow)];
}

/** The bytes of a file, or of its packed form; null: there is neither. */
export function readBytes(path: string): Buffer | null {
  const found = [path, `${path}.gz`].find((name) => existsSync(name));
  if (found === undefined) return null;
  const bytes = readFileSync(found);
  return found.endsWith('.gz') ? gunzipSync(bytes) : bytes;
}

const readText = (path: string): string | null => readBytes(path)?.toString() ?? null;

/** Reads one folder whole. */
export function readFolder(path: string): Folder {
  const fault = readText(join(path, 'fault.json'));
  const base = fault === null ? path : resolve(path, (JSON.parse(fault) as { base: string }).base);
  const rulesets = readDumps(path);
  const others = readDumps(join(path, 'other-backend'));
  const packets = (readText(join(path, 'packets.ndjson')) ?? '').split('\n').filter(Boolean);
  return {
    path,
    isFault: fault !== null,
    ruleset: mergeRuleSets([...rulesets, ...others]),
    node: readNode(base),
    packets: packets.map((line) => JSON.parse(line) as PacketLine),
    isForeign: rulesets.some(isForeign),
    hasBothBackends: others.length > 0,
  };
}

/** The rule sets of all dumps in a folder. */
function readDumps(path: string): RuleSet[] {
  const nft = readBytes(join(path, 'nft.json'));
  const ip = readBytes(join(path, 'iptables-save.txt'));
  const ip6 = readBytes(join(path, 'ip6tables-save.txt'));
  return [
    ...(nft === null ? [] : [parseNft(nft)]),
    ...(ip === null ? [] : [parseIptablesSave(ip, 'ip')]),
    ...(ip6 === null ? [] : [parseIptablesSave(ip6, 'ip6')]),
  ];
}

interface NodeObject {
  readonly metadata: { readonly name: string };
  readonly spec?: { readonly podCIDRs?: readonly string[] };
  readonly status?: { readonly addresses?: readonly { type: string; address: string }[] };
}

/** How the recorded nodes call them; see the README. */
const interfaces = {
  outside: 'eth0',
  pod: 'veth0a1b2c3d',
  all: ['lo', 'eth0', 'veth0a1b2c3d', 'sink0'],
};

/** The node's own: what its object says, and the first two of its pods' range (sink, gateway). */
function readNode(base: string): NodeContext {
  const config = parse(readText(join(base, 'proxy-config.yaml')) ?? '{}') as ProxyConfig;
  const { localAddresses } = config;
  if (localAddresses !== undefined) return { localAddresses, interfaces };
  const text = config.objects === undefined ? null : readText(join(base, config.objects));
  const { nodes } = JSON.parse(text ?? '{"nodes": []}') as { nodes: readonly NodeObject[] };
  const own = nodes.find(({ metadata }) => metadata.name === config.nodeName);
  const addresses = own?.status?.addresses ?? [];
  const isAddress = (type: string): boolean => type === 'InternalIP' || type === 'ExternalIP';
  const ranges = (own?.spec?.podCIDRs ?? []).flatMap((cidr) => parseNetwork(cidr) ?? []);
  const ofPods = ranges.flatMap(({ low }) => [low, typeof low === 'number' ? low + 1 : low + 1n]);
  return {
    localAddresses: [
      ...addresses.filter(({ type }) => isAddress(type)).map(({ address }) => address),
      ...ofPods.map(formatAddress),
    ],
    interfaces,
  };
}

function isForeign(ruleset: RuleSet): boolean {
  return ruleset.tables.some((table) => {
    if (table.source === 'nft') return table.name !== 'kube-proxy';
    return [...table.chains.values()].some(
      ({ name, base }) => base === null && !name.startsWith('KUBE-'),
    );
  });
}

// Compares walks with what the kernel did with the same packets. What the kernel did must be
// possible by the walk; where the walk knows, the shares must fit too, and everything that it
// calls probable must have been seen when the attempts suffice for that.

export interface PacketCounts {
  packets: number;
  wrong: number;
  /** Of dumps with nothing but kube-proxy's rules. */
  unknown: number;
  foreignPackets: number;
  foreignUnknown: number;
}

/** What is asked of counts: this share of sound folders has no count outside of its band. */
const confidence = 0.999;

/** Walks all packets of a folder. */
export function checkPackets(folder: Folder, report: (line: string) => void): PacketCounts {
  const counts = { packets: 0, wrong: 0, unknown: 0, foreignPackets: 0, foreignUnknown: 0 };
  const tests = folder.packets.reduce((sum, { outcomes }) => sum + Object.keys(outcomes).length, 1);
  for (const line of folder.packets) {
    counts.packets++;
    if (folder.isForeign) counts.foreignPackets++;
    const outcomes = walksOf(folder, line);
    const isTracked = tracks(folder.ruleset, line.packet.dst.includes(':') ? 'ip6' : 'ip');
    const problem = problemOf(line, outcomes, (1 - confidence) / tests, isTracked);
    if (problem !== null) {
      counts.wrong++;
      report(describeProblem(folder, line, outcomes, problem));
    }
    if (folder.hasBothBackends || line.inconclusive !== undefined) continue;
    if (!outcomes.some(isUnknown)) continue;
    if (folder.isForeign) counts.foreignUnknown++;
    else counts.unknown++;
  }
  return counts;
}

function walksOf({ ruleset, node }: Folder, { packet, srcs }: PacketLine): PacketOutcome[] {
  const protocol = packet.protocol.toLowerCase() as 'tcp' | 'udp' | 'sctp';
  const sources = srcs ?? [packet.src];
  const { dst, dport } = packet;
  const own = dst.includes(':') ? `[${dst}]:${dport}` : `${dst}:${dport}`;
  return sources.map((src) => asSeen(walk(ruleset, node, { ...packet, src, protocol }), own));
}

/** A translation to where the packet goes anyway leaves no trace in its entry: it passes. */
function asSeen(outcome: PacketOutcome, own: string): PacketOutcome {
  const same = outcome.destinations.get(own);
  if (same === undefined) return outcome;
  const { pass } = outcome;
  const isOne = pass.probability === 0 || pass.masqueraded === same.masqueraded;
  const probability = pass.probability + same.probability;
  return {
    ...outcome,
    destinations: new Map([...outcome.destinations].filter(([name]) => name !== own)),
    pass: { ...same, probability, masqueraded: isOne ? same.masqueraded : 'unknown' },
  };
}

const isUnknown = ({ unknown, destinations, pass }: PacketOutcome): boolean =>
  unknown.length > 0 ||
  (pass.probability > 0 && pass.masqueraded === 'unknown') ||
  [...destinations.values()].some(({ masqueraded }) => masqueraded === 'unknown');

/** The observed packets by outcome. */
function seenOf({ outcomes, attempts, passMasqueraded }: PacketLine): Map<string, Seen> {
  const pass = passMasqueraded === undefined ? {} : { masqueraded: passMasqueraded };
  if (typeof outcomes !== 'string') return new Map(Object.entries(outcomes));
  const seen = { count: attempts, ...(outcomes === 'pass' ? pass : {}) };
  return new Map([[outcomes, seen]]);
}

/** The outcomes of a walk that match this observation. */
function sharesFor(outcome: PacketOutcome, name: string): OutcomeShare[] {
  if (name === 'reject' || name === 'drop' || name === 'pass') return [outcome[name]];
  const port = name.slice(name.lastIndexOf(':') + 1);
  return [name, `node:${port}`, 'unknown'].flatMap((key) => outcome.destinations.get(key) ?? []);
}

const isPossible = (one: OutcomeShare): boolean =>
  one.probability > 0 || ('affinity' in one && (one as Destination).affinity);

/**
 * Whether anything on the node asks for connection tracking. What went on was seen by its entries:
 * on a node without any rule there are none, and a packet that went on looks dropped, or refused
 * when the node itself refused it.
 */
const tracks = ({ tables }: RuleSet, family: Family): boolean =>
  tables
    .filter((table) => table.family === family || table.family === 'inet')
    .flatMap((table) => [...table.chains.values()])
    .some(
      (chain) =>
        (chain.base?.type === 'nat' && rulesOf(chain).length > 0) ||
        rulesOf(chain).some(asksForState),
    );

const asksForState = ({ statements }: Rule): boolean =>
  statements.some(({ kind }) => kind === 'state');

/** What is wrong with the walks of one line; null: nothing. */
export function problemOf(
  line: PacketLine,
  outcomes: readonly PacketOutcome[],
  allowed: number,
  isTracked = true,
): string | null {
  if (!isTracked && outcomes.every(passes))
    return typeof line.outcomes === 'string' ? null : 'passed';
  if (line.inconclusive !== undefined) {
    const possible = line.inconclusive.some((name) =>
      outcomes.some((outcome) => sharesFor(outcome, name).some(isPossible)),
    );
    return possible ? null : `none of ${line.inconclusive.join(', ')} is possible`;
  }
  for (const [name, { count, masqueraded }] of seenOf(line)) {
    const shares = outcomes.flatMap((outcome) => sharesFor(outcome, name)).filter(isPossible);
    if (shares.length === 0) return `${name} is not possible`;
    if (!shares.some((one) => mayMasquerade(one, masqueraded))) {
      return `${name} is masqueraded: ${String(masqueraded)}`;
    }
    if (isCertain(outcomes) && !fits(share(outcomes, name), line.attempts, count, allowed)) {
      return `${name}: ${count} of ${line.attempts} at ${share(outcomes, name)}`;
    }
  }
  return isCertain(outcomes) ? unseenOf(line, outcomes, allowed) : null;
}

const passes = ({ pass }: PacketOutcome): boolean => pass.probability === 1;

const mayMasquerade = ({ masqueraded: may }: OutcomeShare, is: Seen['masqueraded']): boolean =>
  is === undefined || may === 'unknown' || may === (is === 'some' ? true : is);

/** Shares are comparable: nothing is unknown, and no source is bound to one destination. */
const isCertain = (outcomes: readonly PacketOutcome[]): boolean =>
  outcomes.every(
    (outcome) =>
      !isUnknown(outcome) && ![...outcome.destinations.values()].some(({ affinity }) => affinity),
  );

function share(outcomes: readonly PacketOutcome[], name: string): number {
  const shares = outcomes.map((outcome) =>
    sharesFor(outcome, name).reduce((sum, { probability }) => sum + probability, 0),
  );
  return shares.reduce((sum, share) => sum + share, 0) / outcomes.length;
}

function unseenOf(
  line: PacketLine,
  outcomes: readonly PacketOutcome[],
  allowed: number,
): string | null {
  const seen = seenOf(line);
  const possible = new Set(outcomes.flatMap((outcome) => [...outcome.destinations.keys()]));
  for (const name of [...possible, 'reject', 'drop', 'pass']) {
    const isSeen = [...seen.keys()].some((other) =>
      outcomes.some((outcome) => sharesFor(outcome, other).includes(shareNamed(outcome, name))),
    );
    if (!isSeen && !fits(share(outcomes, name), line.attempts, 0, allowed)) {
      return `${name} was not seen`;
    }
  }
  return null;
}

const nowhere: OutcomeShare = { probability: 0, masqueraded: false, trace: () => [] };

function shareNamed(outcome: PacketOutcome, name: string): OutcomeShare {
  if (name === 'reject' || name === 'drop' || name === 'pass') return outcome[name];
  return outcome.destinations.get(name) ?? nowhere;
}

/** Whether a count out of a total is within the band of a binomial distribution. */
export function fits(share: number, attempts: number, count: number, allowed: number): boolean {
  if (share >= 1 - 1e-9) return count === attempts;
  let below = 0;
  let above = 0;
  let log = attempts * Math.log1p(-share);
  for (let k = 0; k <= attempts; k++) {
    if (k > 0) log += Math.log((attempts - k + 1) / k) + Math.log(share / (1 - share));
    const probability = share === 0 ? Number(k === 0) : Math.exp(log);
    if (k <= count) below += probability;
    if (k >= count) above += probability;
  }
  return Math.min(below, above) >= allowed / 2;
}

function describeProblem(
  { path }: Folder,
  line: PacketLine,
  outcomes: readonly PacketOutcome[],
  problem: string,
): string {
  const walks = outcomes.slice(0, 1).map((outcome) => {
    const { destinations, reject, drop, pass, unknown } = outcome;
    const shares = [...destinations, ['reject', reject], ['drop', drop], ['pass', pass]] as const;
    const likely = shares.filter(([, one]) => isPossible(one)).slice(0, 4);
    const ways = likely.map(([name, { probability, masqueraded, trace }]) => {
      const rules = trace().map(({ rule }) => rule.text);
      return { name, probability, masqueraded, rules };
    });
    return { ways, unknown };
  });
  const { about, packet, outcomes: seen } = line;
  return JSON.stringify({ problem, path, about, packet, seen, walks });
}
