// Walks packets through rule sets. Packets with the same rule set and node share one walk, so that
// later ones take what is known of earlier ones.

import type { Packet } from '../../src/model/proxy-config.ts';
import type { RuleSet } from '../../src/rules/ruleset.ts';
import type { NodeContext } from '../../src/rules/walk/walk-state.ts';
import type { PacketOutcome } from '../../src/rules/walk/walk.ts';
import { createWalk } from '../../src/rules/walk/walk.ts';

const walks = new WeakMap<RuleSet, WeakMap<NodeContext, ReturnType<typeof createWalk>>>();

export function walk(ruleset: RuleSet, node: NodeContext, packet: Packet): PacketOutcome {
  const byNode = walks.get(ruleset) ?? new WeakMap<NodeContext, ReturnType<typeof createWalk>>();
  walks.set(ruleset, byNode);
  const known = byNode.get(node) ?? createWalk(ruleset, node);
  byNode.set(node, known);
  return known(packet);
}
