// Makes a report from dumps: the backends that contain rules, the mode of kube-proxy, and a digest
// for every frontend that the rules serve (rules/report/digest.ts). The walk runs in slices, so
// that the agent can answer requests meanwhile.
//
// The mode is found as kubernetes-sigs/iptables-wrappers finds the backend: by the chains that
// kubelet leaves in mangle, KUBE-IPTABLES-HINT (since 1.24) or KUBE-KUBELET-CANARY (since 1.17),
// else by who has more rules. It says what is likely meant; it is no evidence of anything.

import { addressIn, parseCIDR, parseIP } from '../model/ip.ts';
import type { Packet } from '../model/proxy-config.ts';
import { parseIptablesSave } from '../rules/parse/iptables-save.ts';
import { parseNft } from '../rules/parse/nft-ruleset.ts';
import type { NodeSenders, PacketWords, Senders } from '../rules/report/digest.ts';
import { digestOf, keyOf, packetsOf, wordsAt, wordsOf } from '../rules/report/digest.ts';
import type { RuleFrontend } from '../rules/report/frontends.ts';
import { frontendsInRules } from '../rules/report/frontends.ts';
import type { InferredSettings } from '../rules/report/infer-proxy-config.ts';
import { modeIn, settingsIn } from '../rules/report/infer-proxy-config.ts';
import type { EncodedOutcomes } from '../rules/report/outcome-json.ts';
import { encodeOutcomes } from '../rules/report/outcome-json.ts';
import type { RuleSet } from '../rules/ruleset.ts';
import { mergeRuleSets } from '../rules/ruleset.ts';
import type { Routes } from '../rules/walk/routes.ts';
import type { NodeContext } from '../rules/walk/walk.ts';
import type { CollectedDump } from './collect.ts';
import type { Walker } from './pod-interfaces.ts';
import { nobodys, walkerOf } from './pod-interfaces.ts';

/** Facts about the node that are not rules. */
export interface NodeFacts {
  readonly node: string;
  /** Of the node's interfaces, in canonical form. */
  readonly localAddresses: readonly string[];
  readonly interfaces: readonly string[] | null;
  /** null: not known. */
  readonly routes: Routes | null;
  /** Those of the Node object; node ports are asked for there. */
  readonly nodeIPs: readonly string[];
  readonly podCIDRs: readonly string[];
}

export type ProxyMode = 'iptables' | 'nftables';

/** All rules of a node, parsed. */
export interface NodeRuleSet {
  readonly ruleset: RuleSet;
  readonly claims: readonly RuleFrontend[];
  /** null: kube-proxy left nothing here. */
  readonly mode: ProxyMode | null;
  /** Of iptables; null: neither has rules. */
  readonly backend: 'nft' | 'legacy' | null;
  /** Of kube-proxy, as far as its rules show them. */
  readonly settings: InferredSettings;
}

/** Details of one packet: what becomes of it, and by which rules. */
export interface FrontendDetail {
  readonly packet: Packet;
  /** As in the digest. */
  readonly words: string;
  readonly unknown: readonly { readonly reason: string; readonly rule: string }[];
  /** By outcome: the rules on one of the ways there. */
  readonly rules: Readonly<Record<string, readonly string[]>>;
}

/**
 * Reads dumps.
 *
 * @throws DumpError where one of them is none.
 */
export function readDumps(dumps: readonly CollectedDump[]): NodeRuleSet {
  const read = dumps.map((dump) => ({ dump, ruleset: rulesetOf(dump) }));
  const ruleset = mergeRuleSets(read.map((item) => item.ruleset));
  const of = (word: string): { ruleset: RuleSet; bytes: number }[] =>
    read
      .filter(({ dump }) => dump.program.name.includes(word))
      .map((item) => ({ ruleset: item.ruleset, bytes: item.dump.bytes.length }));
  const backend = backendOf(of('-nft-'), of('-legacy-'));
  const settings = settingsIn(ruleset, modeIn(ruleset));
  return { ruleset, claims: frontendsInRules(ruleset), mode: modeOf(ruleset), backend, settings };
}

function rulesetOf({ program, bytes }: CollectedDump): RuleSet {
  return program.prints === 'nft' ? parseNft(bytes) : parseIptablesSave(bytes, program.family);
}

interface Sized {
  readonly ruleset: RuleSet;
  readonly bytes: number;
}

function backendOf(nft: readonly Sized[], legacy: readonly Sized[]): NodeRuleSet['backend'] {
  const sized = { nft, legacy };
  for (const hint of ['KUBE-IPTABLES-HINT', 'KUBE-KUBELET-CANARY']) {
    for (const backend of ['nft', 'legacy'] as const) {
      if (sized[backend].some(({ ruleset }) => hasChain(ruleset, 'mangle', hint))) return backend;
    }
  }
  const size = (dumps: readonly Sized[]): number =>
    dumps.reduce((sum, dump) => sum + dump.bytes, 0);
  if (nft.length + legacy.length === 0) return null;
  return size(legacy) > size(nft) ? 'legacy' : 'nft';
}

const hasChain = ({ tables }: RuleSet, table: string, chain: string): boolean =>
  tables.some(({ name, chains }) => name === table && chains.get(chain) !== undefined);

function modeOf(ruleset: RuleSet): ProxyMode | null {
  const { tables } = ruleset;
  if (tables.some(({ source, name }) => source === 'nft' && name === 'kube-proxy')) {
    return 'nftables';
  }
  return hasChain(ruleset, 'nat', 'KUBE-SERVICES') ? 'iptables' : null;
}

/** Behind the addresses that gateways have. */
const podOffset = 251n;

/** Networks of the node's pods. */
const podsOf = ({ podCIDRs }: NodeFacts, standing: NodeRuleSet | null): readonly string[] =>
  podCIDRs.length > 0 ? podCIDRs : (standing?.settings.clusterCIDRs ?? []);

/**
 * The sources that the report assumes: the auditor must compare with the same. Without a
 * configured pod range, any address that the rules treat as a pod's is suitable.
 */
export function askingOf(place: NodeFacts, standing: NodeRuleSet | null): NodeSenders {
  const { nodeIPs, podCIDRs } = place;
  const ranges = podsOf(place, standing);
  const senders = (family: 'ip' | 'ip6'): Senders => {
    const name = family === 'ip' ? 'IPv4' : 'IPv6';
    const range = ranges.map(parseCIDR).find((item) => item?.family === name) ?? null;
    return {
      node: nodeIPs.find((text) => parseIP(text)?.family === name) ?? null,
      pod: range === null ? null : addressIn(range, podOffset),
      outside: nobodys[family],
    };
  };
  const addresses = [...nodeIPs, '127.0.0.1'];
  const strays = standing?.mode === 'nftables';
  return { ip: senders('ip'), ip6: senders('ip6'), addresses, pods: podCIDRs, strays };
}

export function contextOf({ localAddresses, interfaces, nodeIPs }: NodeFacts): NodeContext {
  const own = [...new Set([...localAddresses, ...nodeIPs])];
  return interfaces === null
    ? { localAddresses: own }
    : { localAddresses: own, interfaces: { all: interfaces } };
}

const walkerAt = (standing: NodeRuleSet, place: NodeFacts): Walker =>
  walkerOf(standing.ruleset, contextOf(place), place.routes, podsOf(place, standing));

/** Digests by frontend, one step after each: the caller decides when to go on. */
export function* digestsOf(
  standing: NodeRuleSet,
  place: NodeFacts,
): Generator<readonly [string, string]> {
  const asking = askingOf(place, standing);
  const walk = walkerAt(standing, place);
  const look = (packet: Packet): PacketWords => {
    const outcome = walk(packet);
    return { words: wordsOf(outcome), endpoints: outcome.destinations.keys() };
  };
  for (const claim of standing.claims) yield [keyOf(claim), digestOf(wordsAt(claim, asking, look))];
}

/** What becomes of these packets. */
export function outcomesOf(
  standing: NodeRuleSet,
  place: NodeFacts,
  packets: readonly Packet[],
): EncodedOutcomes {
  return encodeOutcomes(packets.map(walkerAt(standing, place)));
}

/** The details behind the digest of one frontend; null if no rule serves it. */
export function detailsOf(
  standing: NodeRuleSet,
  place: NodeFacts,
  key: string,
): FrontendDetail[] | null {
  const claim = standing.claims.find((claim) => keyOf(claim) === key);
  if (claim === undefined) return null;
  const walk = walkerAt(standing, place);
  return packetsOf(claim, askingOf(place, standing)).map((packet) => {
    const outcome = walk(packet);
    const { reject, drop, pass, destinations, unknown } = outcome;
    const fates = Object.entries({ reject, drop, pass, ...Object.fromEntries(destinations) });
    const rules = fates.map(([fate, { trace }]) => [fate, trace().map(({ rule }) => rule.text)]);
    const met = rules.filter(([, texts]) => texts !== undefined && texts.length > 0);
    return {
      packet,
      words: wordsOf(outcome),
      unknown,
      rules: Object.fromEntries(met) as FrontendDetail['rules'],
    };
  });
}
