// Where nobody can say whether a node does what it must, since a rule is not understood, other
// nodes tell what is usual: if nearly all of those for which the same is expected do one thing, and
// this node another, somebody should know. They are compared by the digests that agents send.
//
// It is information and no more, since the many may be wrong and the one right. Where the rules are
// understood the expectation judges, and the neighbours do not matter.
//
// Left out: nodes of which dumps are at hand instead of reports, which have no digests.

import type { Frontend } from '../../shadow/forwarding.ts';
import type { PacketDifference } from './aggregate.ts';
import type { NodeBehavior } from './node-behavior.ts';

/** So many others, and so large a part of all, must do alike. */
const usual = { others: 3, share: 0.75 };

/** More than these are not compared: where all is unknown a part will tell. */
const most = { frontends: 256, others: 100 };

/** At which of these frontends, of which something is unknown, it does not what most do. */
export function outliersAmongPeers(
  doubtful: ReadonlySet<Frontend>,
  own: NodeBehavior,
  others: Iterable<NodeBehavior>,
): PacketDifference[] {
  if (doubtful.size === 0) return [];
  const peers = [...others].slice(0, most.others);
  if (peers.length < usual.others) return [];
  return [...doubtful]
    .slice(0, most.frontends)
    .filter((frontend) => isUnlike(frontend, own, peers))
    .map(differenceAt);
}

function isUnlike(frontend: Frontend, own: NodeBehavior, others: readonly NodeBehavior[]): boolean {
  const here = own.digestsAt(frontend);
  if (typeof here?.expected !== 'string') return false;
  const counts = new Map<string | null, number>();
  let all = 0;
  for (const other of others) {
    const there = other.digestsAt(frontend);
    if (there?.expected !== here.expected) continue;
    counts.set(there.actual, (counts.get(there.actual) ?? 0) + 1);
    all++;
  }
  counts.delete(here.actual);
  const alike = Math.max(0, ...counts.values());
  return alike >= usual.others && alike >= usual.share * (all + 1);
}

function differenceAt({ port, kind, address, protocol, dport }: Frontend): PacketDifference {
  const host = address.includes(':') ? `[${address}]` : address;
  return {
    code: 'node-unlike-others',
    port,
    frontend: `${host}:${dport}/${protocol}`,
    subject: 'unlike',
    kind,
    family: port.family,
    origin: 'anywhere',
    expected: 'what most nodes do',
    actual: 'something else, by rules that are not understood',
    rule: null,
    untranslated: false,
    // Whether anybody suffers is not known, and it makes no verdict.
    harmless: true,
  };
}
