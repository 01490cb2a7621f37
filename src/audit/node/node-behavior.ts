// The input of a node audit: the node, what its rules do and what kube-proxy should program.

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

/** What the rules of a node do, from its dumps or from the report of its agent. */
export interface NodeBehavior {
  /** Addresses and ports that the rules handle. */
  readonly frontends: readonly RuleFrontend[];
  /** Addresses of the node's interfaces. */
  readonly localAddresses: readonly string[];
  /** null if the agent has not walked this packet. */
  walk(packet: Packet): PacketOutcome | null;
  /** Packets that the agent has yet to walk. */
  missingPackets(): readonly Packet[];
  /**
   * Whether a digest shows, without a walk, that the rules serve a frontend as expected.
   * `isCurrent`: the expectation is the current one and not an earlier one.
   */
  isKnownToServe(forwarding: Forwarding, frontend: Frontend, isCurrent: boolean): boolean;
  /** null if the rules come from dumps. */
  readonly digest: NodeDigest | null;
  /** The digests of one frontend; null if the rules come from dumps. */
  digestsAt(frontend: Frontend): Digests | null;
}

/** The part of an agent's report that needs no further questions. */
export interface NodeDigest {
  readonly asking: NodeSenders;
  /** By the keys of frontends. */
  readonly digests: ReadonlyMap<string, string>;
}
