// What is seen of a node: its rules, and what they tell of the kube-proxy that wrote them.

import { canonicalIP } from '../../model/ip.ts';
import type { Node } from '../../model/objects.ts';
import type { Packet, ProxyConfig } from '../../model/proxy-config.ts';
import { defaultProxyConfig } from '../../model/proxy-config.ts';
import type { RulesDump } from '../../rules/parse/rules-dump.ts';
import type { NodeSenders } from '../../rules/report/digest.ts';
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
import type { NodeBehavior } from './node-behavior.ts';

/** The rules of a node, and what is known with them. */
export interface NodeObservation {
  readonly rules: NodeBehavior;
  /** Of kube-proxy. */
  readonly config: ProxyConfig;
  readonly families: ReadonlySet<string>;
  /** What stands on the node and the dumps do not tell. */
  readonly lacks: readonly Lack[];
}

/** What stands on the node by its dumps; null: one could not be read. `given`: see configOf. */
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

/**
 * kube-proxy's configuration: what is given of it, else what its rules tell, else as it is by
 * default.
 */
export function configOf(
  ruleset: RuleSet,
  minor: number,
  given: Partial<ProxyConfig> = {},
): ProxyConfig {
  const mode = given.mode ?? modeIn(ruleset);
  return { ...defaultProxyConfig(mode, minor), ...settingsIn(ruleset, mode), ...given };
}

/** Why there is nothing to judge by; null: there is. A dump that is null could not be read. */
export function unreadableReason({ dumps, given, sight }: Seen): NodeUnknownReason | null {
  if ([...dumps.values()].includes(null)) return 'rules-not-known';
  if (modeOf({ given, sight }) === 'ipvs') return 'proxy-mode-not-modelled';
  return relevantLacks({ given, sight }).length === 0 ? null : 'rules-not-whole';
}

/** What must be known besides: not where rules send that are left over from another mode. */
export function relevantLacks({ given, sight }: Omit<Seen, 'dumps'>): readonly Lack[] {
  const isNftables = modeOf({ given, sight }) === 'nftables';
  return (sight?.lacks ?? []).filter(({ kind }) => kind !== 'targets' || !isNftables);
}

const modeOf = ({ given, sight }: Omit<Seen, 'dumps'>): ProxyConfig['mode'] | undefined =>
  given.mode ?? sight?.config.mode;

interface Seen {
  readonly dumps: ReadonlyMap<string, RulesDump | null>;
  /** What somebody has said of kube-proxy's configuration. */
  readonly given: Partial<ProxyConfig>;
  readonly sight: NodeObservation | null;
}

// The rules of a node as its agent tells them: a digest for each frontend that they answer for, and
// what becomes of the packets that it was asked about. Where the digest is that of a frontend which
// is served as it must be (rules/digest.ts), nothing needs to be walked; for the rest the packets
// are named that the agent must walk. Until it has, what becomes of them is not known.
//
// The digest is of packets from the node, a pod and outside. A pod of another node is taken to fare
// as one of those, unless the digest says otherwise of the frontend.

/** What an agent has told of one round. */
export interface AgentAnswers {
  readonly asking: NodeSenders;
  /** The node's own addresses. */
  readonly localAddresses: readonly string[];
  readonly claims: readonly RuleFrontend[];
  /** By the keys of claims. */
  readonly digests: ReadonlyMap<string, string>;
  /** What it was asked, by the text of the packet. */
  readonly outcomes: ReadonlyMap<string, PacketOutcome>;
}

export interface ReportedBehavior extends NodeBehavior {
  /** Frontends whose digest is not that of what must be there, where it would be known. */
  readonly divergent: () => number;
}

export function behaviorOfReport(told: AgentAnswers): ReportedBehavior {
  const needed = new Map<string, Packet>();
  /** What is expected where it is not what is told; null: several things are. */
  const otherwise = new Map<string, string | null>();
  const divergent = new Set<string>();
  const isAsked = new Set(told.asking.addresses.map(canonicalIP));
  return {
    digest: told,
    frontends: told.claims,
    localAddresses: told.localAddresses,
    walk(packet) {
      const text = packetText(packet);
      const outcome = told.outcomes.get(text) ?? null;
      if (outcome === null) needed.set(text, packet);
      return outcome;
    },
    isKnownToServe(forwarding, frontend, isNow) {
      const [claim, key] = claimOf(told.digests, frontend, isAsked.has(frontend.address));
      const digest = told.digests.get(key);
      const right = expectedWordsAt(claim, told.asking, (packet) => {
        return forwarding.expect(packet).outcomes;
      });
      const expected = right === null ? null : digestOf(right);
      const isServed = digest !== undefined && expected === digest;
      if (!isNow) return isServed;
      if (isServed) otherwise.delete(key);
      else otherwise.set(key, expected);
      // Rules need not answer for what is sent nowhere, nor by itself for one of any addresses.
      const isAnswered =
        digest !== undefined || told.digests.has(keyOf({ ...claim, address: null }));
      const mustBe = right?.some(isSent) === true && !isAnswered;
      if (!isServed && right !== null && (digest !== undefined || mustBe)) divergent.add(key);
      else divergent.delete(key);
      return isServed;
    },
    digestsAt(frontend) {
      const [, key] = claimOf(told.digests, frontend, isAsked.has(frontend.address));
      const actual = told.digests.get(key) ?? null;
      return { actual, expected: otherwise.has(key) ? (otherwise.get(key) ?? null) : actual };
    },
    missingPackets: () => [...needed.values()],
    divergent: () => divergent.size,
  };
}

/** Whether words are of packets that are sent to an endpoint, as `ip:port`. */
const isSent = (words: string): boolean => words.includes(':');

/**
 * What rules must answer for, so that the frontend is served, and its key. At the node's own
 * addresses that is any of them or one; of any, the digest tells of those that were asked for.
 */
function claimOf(
  digests: AgentAnswers['digests'],
  { port, kind, address, protocol, dport }: Frontend,
  isAsked: boolean,
): readonly [RuleFrontend, string] {
  const family = port.family === 'IPv4' ? 'ip' : 'ip6';
  const claim: RuleFrontend = { family, address, protocol, port: dport, translators: 1 };
  const any = { ...claim, address: null };
  if (isAtNode(kind) && isAsked && digests.has(keyOf(any))) return [any, keyOf(any)];
  return [claim, keyOf(claim)];
}
