// The rules of a node as its agent tells them: a digest for each frontend that they answer for, and
// what becomes of the packets that it was asked about. Where the digest is that of a frontend which
// is served as it must be (rules/digest.ts), nothing needs to be walked; for the rest the packets
// are named that the agent must walk. Until it has, what becomes of them is not known.
//
// The digest is of packets from the node, a pod and outside. A pod of another node is taken to fare
// as one of those, unless the digest says otherwise of the frontend.

import type { Packet } from '../model/proxy.ts';
import { canonicalIP } from '../model/ip.ts';
import type { Claim } from '../rules/claims.ts';
import type { Asking } from '../rules/digest.ts';
import { digestOf, expectedWordsAt, keyOf, packetText } from '../rules/digest.ts';
import type { Outcome } from '../rules/walk.ts';
import type { Frontend } from '../shadow/forwarding.ts';
import { isAtNode } from '../shadow/forwarding.ts';
import type { Rules } from './node.ts';

/** What an agent has told of one round. */
export interface Told {
  readonly asking: Asking;
  /** The node's own addresses. */
  readonly localAddresses: readonly string[];
  readonly claims: readonly Claim[];
  /** By the keys of claims. */
  readonly digests: ReadonlyMap<string, string>;
  /** What it was asked, by the text of the packet. */
  readonly outcomes: ReadonlyMap<string, Outcome>;
}

export interface ReportedRules extends Rules {
  /** Frontends whose digest is not that of what must be there, where it would be known. */
  readonly divergent: () => number;
}

export function reportedRules(told: Told): ReportedRules {
  const needed = new Map<string, Packet>();
  /** What is expected where it is not what is told; null: several things are. */
  const otherwise = new Map<string, string | null>();
  const divergent = new Set<string>();
  const isAsked = new Set(told.asking.addresses.map(canonicalIP));
  return {
    brief: told,
    claims: told.claims,
    localAddresses: told.localAddresses,
    walk(packet) {
      const text = packetText(packet);
      const outcome = told.outcomes.get(text) ?? null;
      if (outcome === null) needed.set(text, packet);
      return outcome;
    },
    serves(forwarding, frontend, isNow) {
      const [claim, key] = claimOf(told.digests, frontend, isAsked.has(frontend.address));
      const digest = told.digests.get(key);
      const right = expectedWordsAt(claim, told.asking, (packet) => {
        return forwarding.expect(packet).fates;
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
    needed: () => [...needed.values()],
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
  digests: Told['digests'],
  { port, kind, address, protocol, dport }: Frontend,
  isAsked: boolean,
): readonly [Claim, string] {
  const family = port.family === 'IPv4' ? 'ip' : 'ip6';
  const claim: Claim = { family, address, protocol, port: dport, translators: 1 };
  const any = { ...claim, address: null };
  if (isAtNode(kind) && isAsked && digests.has(keyOf(any))) return [any, keyOf(any)];
  return [claim, keyOf(claim)];
}
