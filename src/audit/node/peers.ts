// Compares nodes by the digests of their agents. Where a rule cannot be evaluated, peers with the
// same expectation show what is usual. A node that differs from nearly all of them is reported, as
// information only, since most nodes may be wrong. Left out: nodes with dumps, without digests.

import { joinHostPort } from '../../model/ip.ts';
import type { Frontend } from '../../shadow/forwarding.ts';
import type { PacketDifference } from './aggregate.ts';
import type { NodeBehavior } from './observation.ts';

/** Frontends with unknown outcomes where this node differs from most nodes. */
export function outliersAmongPeers(
  doubtful: ReadonlySet<Frontend>,
  rules: NodeBehavior,
  peers: Iterable<NodeBehavior>,
): PacketDifference[] {
  if (doubtful.size === 0) return [];
  const compared = [...peers].slice(0, 100);
  return [...doubtful]
    .slice(0, 256)
    .filter((frontend) => isOutlier(frontend, rules, compared))
    .map(({ port, kind, address, protocol, dport }) => ({
      code: 'node-unlike-others',
      port,
      kind,
      frontend: `${joinHostPort(address, dport)}/${protocol}`,
      key: `${joinHostPort(address, dport)}/${protocol} anywhere unlike`,
      origin: 'anywhere',
      expected: 'what most nodes do',
      actual: 'something else, by rules that are not understood',
      rule: null,
      // It is unknown whether traffic suffers, and it changes no verdict.
      harmless: true,
    }));
}

function isOutlier(frontend: Frontend, rules: NodeBehavior, peers: NodeBehavior[]): boolean {
  const digests = rules.report?.digestsAt(frontend);
  if (typeof digests?.expected !== 'string') return false;
  const others = peers
    .map((peer) => peer.report?.digestsAt(frontend))
    .filter((other) => other?.expected === digests.expected);
  const groups = Map.groupBy(others, (other) => other?.actual ?? null);
  groups.delete(digests.actual);
  const largest = Math.max(0, ...[...groups.values()].map(({ length }) => length));
  // Some peers, and most nodes, must do the same.
  return largest >= 3 && largest >= 0.75 * (others.length + 1);
}
