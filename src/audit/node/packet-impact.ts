// What the rules of one node do to new connections: the share of each Service that fails or
// reaches a wrong address, and the share of its endpoints that get none (docs/impact.md).

import { addCount, getOrInsert } from '../../model/collections.ts';
import type { Key } from '../../model/objects.ts';
import type { ExpectedOutcome } from '../../model/proxy-config.ts';
import type { PacketOutcome } from '../../rules/walk/walk.ts';
import type { ProxiedPort } from '../../shadow/service-port.ts';
import type { Impact, NodeImpact } from '../service/impact.ts';
import type { Finding } from '../finding/catalogue.ts';
import { ends, rounding } from './compare-packet.ts';
import { type ProbeSender, probesOf } from './probes.ts';

/** What the rules do to the connections that begin with one packet. */
export function impactOfPacket(want: ExpectedOutcome, outcome: PacketOutcome): Impact {
  const { destinations } = outcome;
  const sum = (shares: readonly { readonly probability: number }[]): number =>
    Math.min(
      1,
      shares.reduce((total, { probability }) => total + probability, 0),
    );
  if (want.kind !== 'endpoints') {
    // A connection that must be refused fails in any case, unless it reaches an address.
    return { misrouted: want.kind === 'pass' ? 0 : sum([...destinations.values()]), unused: 0 };
  }
  const { endpoints } = want;
  const wrong = [...destinations].filter(([name]) => !endpoints.has(name));
  const isMissing = (name: string): boolean =>
    (destinations.get(name)?.probability ?? 0) <= rounding;
  return {
    misrouted: sum([...wrong.map(([, it]) => it), ...ends.map((end) => outcome[end])]),
    unused: [...endpoints.keys()].filter(isMissing).length / endpoints.size,
  };
}

/** Sums over packets that do harm, by Service. */
export type ImpactSums = Map<Key, { misrouted: number; unused: number }>;

const serviceOf = ({ namespace, service }: ProxiedPort): Key => `${namespace}/${service}`;

export function addImpact(sums: ImpactSums, port: ProxiedPort, impact: Impact): void {
  const sum = getOrInsert(sums, serviceOf(port), () => ({ misrouted: 0, unused: 0 }));
  sum.misrouted += impact.misrouted;
  sum.unused += impact.unused;
}

const noImpact: NodeImpact = { services: new Map(), misrouted: 0, unused: 0, worst: 0 };

/** The means over all packets that test the frontends of each Service. */
export function impactOfNode(sums: ImpactSums, sender: ProbeSender): NodeImpact {
  if (sums.size === 0) return noImpact;
  const { frontends, expect } = sender.forwarding;
  const packets = new Map<Key, number>();
  for (const frontend of frontends) {
    const key = serviceOf(frontend.port);
    if (!sums.has(key)) continue;
    const counted = probesOf(sender, frontend).filter(({ packet }) =>
      expect(packet).outcomes.some(({ kind }) => kind !== 'pass'),
    );
    addCount(packets, key, counted.length);
  }
  const services = new Map<Key, Impact>();
  const total = { misrouted: 0, unused: 0, worst: 0 };
  for (const [key, sum] of sums) {
    const count = Math.max(1, packets.get(key) ?? 0);
    // A sum of rounded shares may be above the count.
    const impact = {
      misrouted: Math.min(1, sum.misrouted / count),
      unused: Math.min(1, sum.unused / count),
    };
    services.set(key, impact);
    total.misrouted += impact.misrouted;
    total.unused += impact.unused;
    total.worst = Math.max(total.worst, impact.misrouted);
  }
  return { services, ...total };
}

interface ImpactsOfNodes {
  impactOf(node: string): NodeImpact | null;
  impactOn(service: Key): Impact;
}

/**
 * What the rules of nodes do to the Services that have open findings about them. `onChange` is
 * called for a Service whose impact may have changed.
 */
export function createRuleImpacts(
  nodes: () => ImpactsOfNodes | null,
  onChange: (key: Key) => void,
) {
  /** The number of open findings about nodes, by Service. */
  const open = new Map<Key, number>();
  const last = new Map<string, NodeImpact>();
  return {
    /** Notes that a finding was opened (1) or resolved (-1). */
    noteFinding({ node, namespace, service }: Finding, by: 1 | -1): void {
      if (node === null || service === '') return;
      const key = `${namespace}/${service}`;
      const count = (open.get(key) ?? 0) + by;
      if (count > 0) open.set(key, count);
      else open.delete(key);
      onChange(key);
    },
    noteReading({ node }: { readonly node: string }): void {
      const before = last.get(node) ?? noImpact;
      const after = nodes()?.impactOf(node) ?? noImpact;
      if (after === before) return;
      if (after === noImpact) last.delete(node);
      else last.set(node, after);
      for (const key of open.keys()) {
        if (before.services.has(key) || after.services.has(key)) onChange(key);
      }
    },
    /** `null` without an open finding about a node that names the Service. */
    impactOn: (key: Key): Impact | null =>
      open.has(key) ? (nodes()?.impactOn(key) ?? null) : null,
  };
}
