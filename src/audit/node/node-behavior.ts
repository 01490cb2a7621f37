// The input of a node audit: the node, its rules and the forwarding that kube-proxy should program.

import type { Node } from '../../model/objects.ts';
import type { Packet } from '../../model/proxy-config.ts';
import type { NodeSenders, Digests } from '../../rules/report/digest.ts';
import type { RuleFrontend } from '../../rules/report/frontends.ts';
import type { PacketOutcome } from '../../rules/walk/walk.ts';
import type { Forwarding, Frontend } from '../../shadow/forwarding.ts';

export interface NodeInput {
  readonly forwarding: Forwarding;
  readonly node: Node;
  readonly rules: NodeBehavior;
}

/** What a node does, whoever walks its rules. */
export interface NodeBehavior {
  /** What they answer for. */
  readonly frontends: readonly RuleFrontend[];
  /** Addresses that are the node's own. */
  readonly localAddresses: readonly string[];
  /** null: nobody has walked this packet. */
  walk(packet: Packet): PacketOutcome | null;
  /** Packets that somebody wanted to know of, and that nobody has walked. */
  missingPackets(): readonly Packet[];
  /**
   * Whether it is known without a walk that a frontend is served as it must be. `isNow`: that is
   * what is expected, and not what once was.
   */
  isKnownToServe(forwarding: Forwarding, frontend: Frontend, isNow: boolean): boolean;
  /** What its agent tells in short; null: it has none. */
  readonly digest: NodeDigest | null;
  /** What the node says of a frontend in short; null: nobody has asked it. */
  digestsAt(frontend: Frontend): Digests | null;
}

/** What an agent tells of its node before it is asked. */
export interface NodeDigest {
  readonly asking: NodeSenders;
  /** By the keys of claims. */
  readonly digests: ReadonlyMap<string, string>;
}
