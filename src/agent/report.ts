// Makes a report from dumps, with a digest for every frontend (rules/report/digest.ts).
//
// The backend is found as kubernetes-sigs/iptables-wrappers finds it: by the chains that kubelet
// leaves in mangle, KUBE-IPTABLES-HINT (since 1.24) or KUBE-KUBELET-CANARY (since 1.17), else by
// the larger dump. The result is likely, but no evidence.

import { addressIn, parseCIDR, parseIP } from '../model/ip.ts';
import type { Packet } from '../model/proxy-config.ts';
import { createConnector, placeWith } from '../rules/cilium/packet-outcome.ts';
import { parseIptablesSave } from '../rules/parse/iptables-save.ts';
import { parseNft } from '../rules/parse/nft-ruleset.ts';
import type { NodeSenders, PacketWords, Senders } from '../rules/report/digest.ts';
import { digestOf, keyOf, packetsOf, wordsAt, wordsOf } from '../rules/report/digest.ts';
import { frontendsInRules } from '../rules/report/frontends.ts';
import { type InferredSettings, modeIn, settingsIn } from '../rules/report/infer-proxy-config.ts';
import { lackText, mergeRuleSets, type RuleSet } from '../rules/ruleset.ts';
import type { NodeContext } from '../rules/walk/walk-state.ts';
import { readCiliumRules } from './cilium-maps.ts';
import type { CollectedDump, CollectedRules } from './collect.ts';
import type { NodeFacts } from './node-facts.ts';
import { outsideAddress, type Walker, walkerOf } from './pod-interfaces.ts';

export type NodeRuleSet = ReturnType<typeof readDumps>;

/** Parses dumps. Throws DumpError if one of them has another form. */
export function readDumps(dumps: readonly CollectedDump[]) {
  const maps = dumps.find(({ program }) => program.prints === 'bpf maps');
  const rules = readRules(dumps.filter((dump) => dump !== maps));
  if (maps === undefined) return { ...rules, maps: null };
  const { cilium, frontends, sourceRanges, balancer } = readCiliumRules(maps.bytes.toString());
  const settings: InferredSettings = { cilium };
  return {
    ...rules,
    frontends,
    mode: 'cilium' as const,
    backend: null,
    settings,
    /** What Cilium does; `null` if its maps were not read. */
    maps: { balancer, cilium, sourceRanges, isAlone: rules.mode === null },
  };
}

function readRules(dumps: readonly CollectedDump[]) {
  const parsed = dumps.map(parseDump);
  const ruleset = mergeRuleSets(parsed.map((dump) => dump.ruleset));
  const mode = modeIn(ruleset);
  return {
    ruleset,
    frontends: frontendsInRules(ruleset),
    /** The mode of kube-proxy; `null` if it left no rules. */
    mode: mode === 'nftables' || hasChain(ruleset, 'nat', 'KUBE-SERVICES') ? mode : null,
    backend: backendOf(parsed),
    settings: settingsIn(ruleset, mode),
  };
}

/** Rules may be left over from before Cilium, and Cilium may leave node ports to kube-proxy. */
const twoDataplanes =
  'kube-proxy has rules here, and Cilium has maps: --dataplane says which of them forwards';

/** The most addresses of a node, since a walk looks at all; IPVS binds more to an interface. */
const mostAddresses = 1024;

/** The rules, or `null` and the reasons. */
export function parseRules(dumps: readonly CollectedDump[], facts: NodeFacts) {
  try {
    const rules = readDumps(dumps);
    const count = contextOf(facts).localAddresses.length;
    // Without some of them, packets to these seem to leave the node.
    if (count > mostAddresses) return { rules: null, problems: [tooManyAddresses(count)] };
    if (rules.maps?.isAlone === false) return { rules: null, problems: [twoDataplanes] };
    const lacks = new Set(rules.maps === null ? rules.ruleset.lacks.map(lackText) : []);
    return { rules: lacks.size === 0 ? rules : null, problems: [...lacks] };
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return { rules: null, problems: [error.message] };
  }
}

const tooManyAddresses = (count: number): string =>
  `The node has ${count} addresses, and at most ${mostAddresses} are read. Those of kube-ipvs0 ` +
  'are left over if kube-proxy is not in IPVS mode: kube-proxy --cleanup removes them';

const parseDump = ({ program: { name, prints, family }, bytes }: CollectedDump) => ({
  ruleset: prints === 'nft' ? parseNft(bytes) : parseIptablesSave(bytes, family),
  bytes: bytes.length,
  /** Of iptables; `null` for a dump of nft. */
  backend: /-(nft|legacy)-/.exec(name)?.[1] ?? null,
});

/** The backend of iptables; `null` if neither has rules. */
function backendOf(dumps: readonly ReturnType<typeof parseDump>[]): 'nft' | 'legacy' | null {
  const backends = ['nft', 'legacy'] as const;
  const [hinted] = ['KUBE-IPTABLES-HINT', 'KUBE-KUBELET-CANARY'].flatMap((hint) => {
    const having = dumps.filter(({ ruleset }) => hasChain(ruleset, 'mangle', hint));
    return backends.filter((name) => having.some(({ backend }) => backend === name));
  });
  if (hinted !== undefined) return hinted;
  const size = (name: string): number =>
    dumps.reduce((sum, { backend, bytes }) => sum + (backend === name ? bytes : 0), 0);
  if (size('nft') + size('legacy') === 0) return null;
  return size('legacy') > size('nft') ? 'legacy' : 'nft';
}

const hasChain = ({ tables }: RuleSet, table: string, chain: string): boolean =>
  tables.some(({ name, chains }) => name === table && chains.get(chain) !== undefined);

/** Index in the range of a pod that sends, behind the addresses that gateways have. */
const podOffset = 251n;

const podRangesOf = ({ podCIDRs }: NodeFacts, rules: NodeRuleSet | null): readonly string[] =>
  podCIDRs.length > 0 ? podCIDRs : (rules?.settings.clusterCIDRs ?? []);

/** The senders of the packets, which the auditor uses, too. Any pod's address will do. */
export function askingOf(facts: NodeFacts, rules: NodeRuleSet | null): NodeSenders {
  const { nodeIPs, podCIDRs } = facts;
  const senders = (family: 'ip' | 'ip6'): Senders => {
    const name = family === 'ip' ? 'IPv4' : 'IPv6';
    const range = podRangesOf(facts, rules)
      .map(parseCIDR)
      .find((item) => item?.family === name);
    return {
      node: nodeIPs.find((text) => parseIP(text)?.family === name) ?? null,
      pod: range ? addressIn(range, podOffset) : null,
      outside: outsideAddress[family],
    };
  };
  return {
    ip: senders('ip'),
    ip6: senders('ip6'),
    addresses: [...new Set([...nodeIPs, ...addressesOf(rules), '127.0.0.1'])],
    pods: podCIDRs,
    strays: rules?.mode === 'nftables',
  };
}

/** Where else Cilium has node ports. An entry for any address is behind those of addresses. */
const addressesOf = (rules: NodeRuleSet | null): readonly string[] =>
  rules?.maps ? [...rules.maps.cilium.nodePortAddresses, '::1'] : [];

export const contextOf = ({ localAddresses, interfaces, nodeIPs }: NodeFacts): NodeContext => ({
  localAddresses: [...new Set([...localAddresses, ...nodeIPs])],
  ...(interfaces === null ? {} : { interfaces: { all: interfaces } }),
});

export function walkerAt(rules: NodeRuleSet, facts: NodeFacts): Walker {
  const context = contextOf(facts);
  const { maps, ruleset } = rules;
  if (maps === null) return walkerOf(ruleset, context, facts.routes, podRangesOf(facts, rules));
  const { nodePortRange } = maps.cilium;
  return createConnector(maps.balancer, placeWith(context.localAddresses, nodePortRange));
}

/** Digests by frontend. */
export function digestsOf(rules: NodeRuleSet, facts: NodeFacts): Map<string, string> {
  const asking = askingOf(facts, rules);
  const walk = walkerAt(rules, facts);
  const wordsFor = (packet: Packet): PacketWords => {
    const outcome = walk(packet);
    return { words: wordsOf(outcome), endpoints: outcome.destinations.keys() };
  };
  const digests = rules.frontends.map(
    (frontend) => [keyOf(frontend), digestOf(wordsAt(frontend, asking, wordsFor))] as const,
  );
  return new Map(digests);
}

export type FrontendDetail = NonNullable<ReturnType<typeof detailsOf>>[number];

/** The packets behind the digest of one frontend; `null` if no rule serves it. */
export function detailsOf(rules: NodeRuleSet, facts: NodeFacts, key: string) {
  const frontend = rules.frontends.find((candidate) => keyOf(candidate) === key);
  if (frontend === undefined) return null;
  const walk = walkerAt(rules, facts);
  return packetsOf(frontend, askingOf(facts, rules)).map((packet) => {
    const outcome = walk(packet);
    const { reject, drop, pass, destinations, unknown } = outcome;
    /** By outcome: the rules on one of the ways to it. */
    const texts = Object.entries({ reject, drop, pass, ...Object.fromEntries(destinations) })
      .map(([name, { trace }]) => [name, trace().map(({ rule }) => rule.text)] as const)
      .filter(([, texts]) => texts.length > 0);
    return { packet, words: wordsOf(outcome), unknown, rules: Object.fromEntries(texts) };
  });
}

/** What GET /v1/report answers, without anything that changes by itself from round to round. */
export function createReport(
  proxyConfig: { readonly source: string; readonly text: string } | null,
  facts: NodeFacts,
  { states, problems }: Pick<CollectedRules, 'states' | 'problems'>,
  rules: NodeRuleSet | null,
) {
  const { localAddresses } = contextOf(facts);
  return {
    version: 1,
    node: facts.node,
    nodeIPs: facts.nodeIPs,
    /** Without loopback addresses, as in the walk and in the comparison. */
    localAddresses: localAddresses.slice(0, mostAddresses),
    /** All of them: agents before 0.2.0 sent the first 256 without a word. */
    addressCount: localAddresses.length,
    podCIDRs: facts.podCIDRs,
    mode: rules?.mode ?? null,
    backend: rules?.backend ?? null,
    proxyConfig,
    programs: states,
    /** Reasons why the rules are unknown; then there are no frontends. */
    problems,
    settings: rules?.settings ?? {},
    asking: askingOf(facts, rules),
    /** Digests of 64 bits in hexadecimal, by frontend. */
    frontends: rules === null ? {} : Object.fromEntries(digestsOf(rules, facts)),
    /** By frontend: source ranges in the maps of Cilium, which no digest covers. */
    ...(rules?.maps ? { sourceRanges: rules.maps.sourceRanges } : {}),
    /** Frontends that several tables translate for. */
    doubled: (rules?.frontends ?? [])
      .filter(({ address, translators }) => address !== null && translators > 1)
      .map(keyOf),
  };
}
