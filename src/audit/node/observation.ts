// What is known of a node, from dumps or from an agent, which reports a digest for each frontend of
// the rules. A frontend with the expected digest (rules/report/digest.ts) needs no walk; for others
// the agent must walk packets, whose outcome is unknown until then. Digests cover packets from the
// node, a pod and outside; those of another node's pod are taken to have the same outcome.

import { canonicalIP, type CIDR } from '../../model/ip.ts';
import type { CiliumConfig } from '../../model/cilium-config.ts';
import type { Node } from '../../model/objects.ts';
import { defaultProxyConfig, type Packet, type ProxyConfig } from '../../model/proxy-config.ts';
import { ciliumConfigIn } from '../../rules/cilium/infer-config.ts';
import { loadBalancerOf } from '../../rules/cilium/load-balancer.ts';
import type { MapEntry } from '../../rules/cilium/map-entries.ts';
import {
  createConnector,
  frontendsInMaps,
  placeWith,
  rangesInMaps,
} from '../../rules/cilium/packet-outcome.ts';
import type { RulesDump } from '../../rules/parse/rules-dump.ts';
import type { Digests, NodeSenders } from '../../rules/report/digest.ts';
import { digestOf, expectedWordsAt, keyOf, packetText } from '../../rules/report/digest.ts';
import { frontendsInRules, type RuleFrontend } from '../../rules/report/frontends.ts';
import { modeIn, settingsIn } from '../../rules/report/infer-proxy-config.ts';
import { mergeRuleSets, type RuleSet } from '../../rules/ruleset.ts';
import type { NodeContext } from '../../rules/walk/walk-state.ts';
import { createWalk, type PacketOutcome } from '../../rules/walk/walk.ts';
import type { NodeForwarding } from '../../shadow/cilium/node-forwarding.ts';
import { type Forwarding, type Frontend, isAtNode } from '../../shadow/forwarding.ts';

export interface NodeInput {
  readonly forwarding: NodeForwarding;
  readonly node: Node;
  readonly rules: NodeBehavior;
}

export interface NodeBehavior {
  readonly frontends: readonly RuleFrontend[];
  readonly localAddresses: readonly string[];
  /** null if the agent has not walked this packet. */
  walk(packet: Packet): PacketOutcome | null;
  /** The source ranges that the node has for a frontend, if its data plane lists them. */
  readonly sourceRangesAt?: (frontend: Frontend) => readonly CIDR[];
  /** Whether it surely serves a frontend as expected, without a walk. */
  readonly isKnownToServe?: (forwarding: NodeForwarding, frontend: Frontend) => boolean;
  /** null if the rules come from dumps. */
  readonly report: ReportedBehavior['report'] | null;
}

export const behaviorOfRules = (ruleset: RuleSet, context: NodeContext): NodeBehavior => ({
  frontends: frontendsInRules(ruleset),
  localAddresses: context.localAddresses,
  walk: createWalk(ruleset, context),
  report: null,
});

export type NodeObservation = ReturnType<typeof observeDumps>;

export function observeDumps(
  dumps: readonly RulesDump[],
  { addresses }: Pick<Node, 'addresses'>,
  minor: number,
  given: Partial<ProxyConfig> = {},
) {
  const maps = dumps.flatMap((dump) => dump.maps ?? []);
  const dumpedFamilies = new Set<string>(dumps.flatMap((dump) => dump.families));
  if (dumps.some((dump) => dump.maps !== undefined)) {
    const { config, rules } = observeMaps(maps, addresses, minor, given);
    return { rules, config, families: dumpedFamilies, lacks: [] };
  }
  const ruleset = mergeRuleSets(dumps.map((dump) => dump.ruleset));
  const config = configOf(ruleset, minor, given);
  // kube-proxy takes these addresses from interfaces. The Node does not list all.
  const served = settingsIn(ruleset, config.mode).nodePortAddresses ?? [];
  const own = served.flatMap((text) => /^(?!127\.|::1\/)(.*)\/(?:32|128)$/.exec(text)?.[1] ?? []);
  return {
    rules: behaviorOfRules(ruleset, { localAddresses: [...new Set([...addresses, ...own])] }),
    config,
    families: dumpedFamilies,
    /** Missing parts that matter: in nftables mode, targets of leftover iptables rules do not. */
    lacks: ruleset.lacks.filter(({ kind }) => kind !== 'targets' || config.mode !== 'nftables'),
  };
}

/** Behavior by the maps of Cilium, which show its configuration. */
function observeMaps(
  maps: readonly MapEntry[],
  addresses: readonly string[],
  minor: number,
  given: Partial<ProxyConfig>,
) {
  const cilium = ciliumConfigIn(maps);
  const config = {
    ...defaultProxyConfig('cilium', minor),
    ...given,
    mode: 'cilium' as const,
    cilium,
  };
  const localAddresses = [...new Set([...addresses, ...cilium.nodePortAddresses])];
  return { config, rules: behaviorOfMaps(maps, localAddresses, cilium.nodePortRange) };
}

/** What the maps of Cilium do with packets. */
export function behaviorOfMaps(
  maps: readonly MapEntry[],
  localAddresses: readonly string[],
  nodePortRange: CiliumConfig['nodePortRange'],
): NodeBehavior {
  const balancer = loadBalancerOf(maps);
  return {
    frontends: frontendsInMaps(balancer),
    localAddresses,
    walk: createConnector(balancer, placeWith(localAddresses, nodePortRange)),
    sourceRangesAt: ({ address, protocol, dport: port }) =>
      rangesInMaps(balancer, { address, protocol, port }),
    isKnownToServe: (forwarding, frontend) =>
      'isServedBy' in forwarding && forwarding.isServedBy(balancer.frontends, frontend),
    report: null,
  };
}

/** kube-proxy's configuration: the given fields, else those that its rules show, else defaults. */
export function configOf(ruleset: RuleSet, minor: number, given: Partial<ProxyConfig> = {}) {
  const mode = given.mode ?? modeIn(ruleset);
  return { ...defaultProxyConfig(mode, minor), ...settingsIn(ruleset, mode), ...given };
}

export interface AgentAnswers extends Pick<NodeBehavior, 'frontends' | 'localAddresses'> {
  readonly asking: NodeSenders;
  /** By the keys of the frontends, in their order. */
  readonly digests: ReadonlyMap<string, string>;
  readonly outcomes: ReadonlyMap<string, PacketOutcome>;
  /** By the keys of frontends, of Cilium. */
  readonly sourceRanges?: ReadonlyMap<string, readonly CIDR[]>;
}

export type ReportedBehavior = Omit<ReturnType<typeof behaviorOfReport>, 'sourceRangesAt'> &
  Pick<NodeBehavior, 'sourceRangesAt'>;

export function behaviorOfReport(answers: AgentAnswers) {
  const { asking, digests, frontends, localAddresses, outcomes } = answers;
  const { sourceRanges = new Map<string, readonly CIDR[]>() } = answers;
  const missing = new Map<string, Packet>();
  /** Current expectations that the digests do not show; null if several outcomes are right. */
  const unserved = new Map<string, { expected: string | null; isDivergent: boolean }>();
  const nodeAddresses = new Set(asking.addresses.map(canonicalIP));
  // A node port is at any address of the node if the digest of that covers its address.
  const frontendOf = (frontend: Frontend): RuleFrontend => {
    const any = ruleFrontend(frontend, nodeAddresses);
    return digests.has(keyOf(any)) ? any : { ...any, address: frontend.address };
  };
  const report = {
    asking,
    digests,
    /** Keys of frontends whose source ranges no digest covers. */
    withRanges: [...sourceRanges.keys()],
    missingPackets: (): readonly Packet[] => [...missing.values()],
    /** Whether a digest shows, without a walk, that the rules serve a frontend as expected. */
    isKnownToServe({ expect }: Forwarding, frontend: Frontend, isCurrent: boolean): boolean {
      const inRules = frontendOf(frontend);
      const key = keyOf(inRules);
      const digest = digests.get(key);
      const words = expectedWordsAt(inRules, asking, (packet) => expect(packet).outcomes);
      const expected = words === null ? null : digestOf(words);
      const isServed = digest !== undefined && expected === digest;
      if (isServed || !isCurrent) return isServed;
      // Rules need no frontend that sends packets nowhere, nor one that `any address` includes.
      const isHandled = digest !== undefined || digests.has(keyOf({ ...inRules, address: null }));
      const isSent = words?.some((text) => text.includes(':')) === true;
      const isDivergent = words !== null && (digest !== undefined || (isSent && !isHandled));
      unserved.set(key, { expected, isDivergent });
      return false;
    },
    /** Forgets what was compared with the current expectation, before that is done again. */
    restart: () => unserved.clear(),
    digestsAt(frontend: Frontend): Digests {
      const key = keyOf(frontendOf(frontend));
      const actual = digests.get(key) ?? null;
      const { expected } = unserved.get(key) ?? { expected: actual };
      return { actual, expected };
    },
    divergent: (): number => [...unserved.values()].filter(({ isDivergent }) => isDivergent).length,
  };
  const walk = (packet: Packet): PacketOutcome | null => {
    const text = packetText(packet);
    if (!outcomes.has(text)) missing.set(text, packet);
    return outcomes.get(text) ?? null;
  };
  const sourceRangesAt = (frontend: Frontend): readonly CIDR[] =>
    sourceRanges.get(keyOf(frontendOf(frontend))) ?? [];
  return { frontends, localAddresses, walk, report, sourceRangesAt };
}

/** The frontend that the rules must have; a node port at one of these addresses is at any. */
export function ruleFrontend(it: Frontend, nodeAddresses: ReadonlySet<string>): RuleFrontend {
  const { port, kind, address, protocol, dport } = it;
  const isAny = isAtNode(kind) && nodeAddresses.has(address);
  const family = port.family === 'IPv4' ? 'ip' : 'ip6';
  return { family, address: isAny ? null : address, protocol, port: dport, translators: 1 };
}
