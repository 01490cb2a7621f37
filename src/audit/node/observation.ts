// What is known of a node's rules and of the kube-proxy that wrote them, from dumps or from an
// agent.
//
// An agent reports a digest for each frontend of the rules, and the outcomes of packets that it was
// asked for. A frontend with the expected digest (rules/report/digest.ts) needs no walk. For the
// others the agent must walk packets; until then their outcome is unknown. Digests cover packets
// from the node, a pod and outside. Packets of another node's pod are taken to have the same
// outcome unless the digest of the frontend differs.

import { canonicalIP } from '../../model/ip.ts';
import type { Node } from '../../model/objects.ts';
import type { Packet, ProxyConfig } from '../../model/proxy-config.ts';
import { defaultProxyConfig } from '../../model/proxy-config.ts';
import type { RulesDump } from '../../rules/parse/rules-dump.ts';
import { digestOf, expectedWordsAt, keyOf, packetText } from '../../rules/report/digest.ts';
import type { RuleFrontend } from '../../rules/report/frontends.ts';
import { modeIn, settingsIn } from '../../rules/report/infer-proxy-config.ts';
import type { Lack, RuleSet } from '../../rules/ruleset.ts';
import { mergeRuleSets } from '../../rules/ruleset.ts';
import type { PacketOutcome } from '../../rules/walk/walk.ts';
import type { Frontend } from '../../shadow/forwarding.ts';
import { isAtNode } from '../../shadow/forwarding.ts';
import type { NodeUnknownReason } from '../finding/verdicts.ts';
import { behaviorOfRules } from './audit-node.ts';
import type { NodeBehavior, NodeDigest } from './node-behavior.ts';

export interface NodeObservation {
  readonly rules: NodeBehavior;
  /** Of the kube-proxy. */
  readonly config: ProxyConfig;
  /** Families whose rules are known. */
  readonly families: ReadonlySet<string>;
  /** Parts of the rules that the dumps lack. */
  readonly lacks: readonly Lack[];
}

/** Combines the dumps of a node; skips null, a dump that could not be read. */
export function observeDumps(
  dumps: Iterable<RulesDump | null>,
  { addresses }: Pick<Node, 'addresses'>,
  minor: number,
  given: Partial<ProxyConfig> = {},
): NodeObservation {
  const read = [...dumps].filter((dump) => dump !== null);
  const ruleset = mergeRuleSets(read.map((dump) => dump.ruleset));
  return {
    rules: behaviorOfRules(ruleset, { localAddresses: addresses }),
    config: configOf(ruleset, minor, given),
    families: new Set(read.flatMap((dump) => dump.families)),
    lacks: ruleset.lacks,
  };
}

/** kube-proxy's configuration: the given fields, else those that its rules show, else defaults. */
export function configOf(
  ruleset: RuleSet,
  minor: number,
  given: Partial<ProxyConfig> = {},
): ProxyConfig {
  const mode = given.mode ?? modeIn(ruleset);
  return { ...defaultProxyConfig(mode, minor), ...settingsIn(ruleset, mode), ...given };
}

/** What a node's observation is made from. */
interface ObservationSources {
  /** By source; null if the dump could not be read. */
  readonly dumps: ReadonlyMap<string, RulesDump | null>;
  /** Known configuration of kube-proxy. */
  readonly given: Partial<ProxyConfig>;
  readonly observation: NodeObservation | null;
}

/** Why the node cannot be audited; null if it can. */
export function unreadableReason(sources: ObservationSources): NodeUnknownReason | null {
  if ([...sources.dumps.values()].includes(null)) return 'rules-not-known';
  if (modeOf(sources) === 'ipvs') return 'proxy-mode-not-modelled';
  return relevantLacks(sources).length === 0 ? null : 'rules-not-whole';
}

/** Missing parts that matter: in nftables mode, targets of leftover iptables rules do not. */
export function relevantLacks(sources: ObservationSources): readonly Lack[] {
  const isNftables = modeOf(sources) === 'nftables';
  return (sources.observation?.lacks ?? []).filter(({ kind }) => kind !== 'targets' || !isNftables);
}

const modeOf = ({ given, observation }: ObservationSources): ProxyConfig['mode'] | undefined =>
  given.mode ?? observation?.config.mode;

/** The answers of an agent in one round. */
export interface AgentAnswers extends NodeDigest {
  readonly localAddresses: readonly string[];
  readonly claims: readonly RuleFrontend[];
  /** By the text of the packet. */
  readonly outcomes: ReadonlyMap<string, PacketOutcome>;
}

export interface ReportedBehavior extends NodeBehavior {
  /** How many frontends have another digest than expected. */
  readonly divergent: () => number;
}

export function behaviorOfReport(answers: AgentAnswers): ReportedBehavior {
  const { asking, digests, claims: frontends, localAddresses } = answers;
  const missing = new Map<string, Packet>();
  /** Expected digests that differ from the actual ones; null if several outcomes are right. */
  const expectedInstead = new Map<string, string | null>();
  const divergent = new Set<string>();
  const nodeAddresses = new Set(asking.addresses.map(canonicalIP));
  const find = (frontend: Frontend) => frontendInReport(digests, nodeAddresses, frontend);
  return {
    digest: answers,
    frontends,
    localAddresses,
    walk(packet) {
      const text = packetText(packet);
      const outcome = answers.outcomes.get(text) ?? null;
      if (outcome === null) missing.set(text, packet);
      return outcome;
    },
    isKnownToServe(forwarding, frontend, isCurrent) {
      const [inRules, key] = find(frontend);
      const digest = digests.get(key);
      const words = expectedWordsAt(inRules, asking, (packet) => {
        return forwarding.expect(packet).outcomes;
      });
      const expected = words === null ? null : digestOf(words);
      const isServed = digest !== undefined && expected === digest;
      if (!isCurrent) return isServed;
      if (isServed) expectedInstead.delete(key);
      else expectedInstead.set(key, expected);
      // Rules need no frontend that sends packets nowhere, nor one that `any address` includes.
      const isHandled = digest !== undefined || digests.has(keyOf({ ...inRules, address: null }));
      const isMissing = words?.some(isSent) === true && !isHandled;
      const isDivergent = words !== null && (digest !== undefined || isMissing);
      if (!isServed && isDivergent) divergent.add(key);
      else divergent.delete(key);
      return isServed;
    },
    digestsAt(frontend) {
      const [, key] = find(frontend);
      const actual = digests.get(key) ?? null;
      const expected = expectedInstead.get(key);
      return { actual, expected: expected === undefined ? actual : expected };
    },
    missingPackets: () => [...missing.values()],
    divergent: () => divergent.size,
  };
}

/** Whether words describe packets that are sent to an endpoint, as `ip:port`. */
const isSent = (words: string): boolean => words.includes(':');

/**
 * The frontend that the rules must have, with its key. A node port is at any address of the node if
 * the digest of that covers its address, else at its own.
 */
function frontendInReport(
  digests: ReadonlyMap<string, string>,
  nodeAddresses: ReadonlySet<string>,
  { port, kind, address, protocol, dport }: Frontend,
): readonly [RuleFrontend, string] {
  const family = port.family === 'IPv4' ? 'ip' : 'ip6';
  const frontend: RuleFrontend = { family, address, protocol, port: dport, translators: 1 };
  const any = { ...frontend, address: null };
  const isAny = isAtNode(kind) && nodeAddresses.has(address) && digests.has(keyOf(any));
  return isAny ? [any, keyOf(any)] : [frontend, keyOf(frontend)];
}
