// The outcome of the first packet of a connection by Cilium's load balancer, without the rest of
// its data path. Reference: cilium@v1.20.2 bpf/bpf_sock.c (__sock4_xlate_fwd, sock4_skip_xlate and
// sock4_wildcard_lookup_full: sockets of pods and of the node), bpf/lib/nodeport.h
// (nodeport_svc_lb4: packets from outside) and bpf/lib/lb.h (lb4_lookup_service, lb4_local).
//
// Pods and the node itself go through socket load balancing, which sees no source ranges and no
// Maglev tables. Without a reverse NAT entry, packets count as dropped: answers to clients outside
// keep the address of the backend, and so do those to pods whose sockets Cilium does not translate
// (`bpf-lb-sock-hostns-only`), which the maps do not show.
//
// Left out: network policies, encryption, routing, connections that exist already, and what Cilium
// does with a packet for an external IP that no address of the node is.

import { familyOf, isLoopback, isWithinAny } from '../../model/ip.ts';
import type { Packet } from '../../model/proxy-config.ts';
import type { BalancedFrontend, LoadBalancer } from './load-balancer.ts';
import { nowhere } from './load-balancer.ts';
import { frontendKey } from './map-entries.ts';

export interface NodePlace {
  isLocal(address: string): boolean;
  /** The ports of node ports; a frontend of another kind has others. */
  readonly nodePortRange: readonly [low: number, high: number];
}

export type Connection =
  | { readonly kind: 'pass' }
  | { readonly kind: 'drop' | 'reject'; readonly frontend: BalancedFrontend }
  | { readonly kind: 'unknown'; readonly frontend: BalancedFrontend; readonly reason: string }
  | {
      readonly kind: 'endpoints';
      readonly frontend: BalancedFrontend;
      /** By `ip:port`, and `nowhere`; of probability 0: only clients with affinity go there. */
      readonly shares: ReadonlyMap<string, number>;
      /** The source address is replaced where the endpoint is on another node. */
      readonly masqueraded: boolean;
    };

/** `address`: the destination of the packet, or the unspecified address. */
type Lookup = (address: string, scope: number) => BalancedFrontend | undefined;

const pass: Connection = { kind: 'pass' };

/** How a node with these frontends connects the packet. */
export function connect(balancer: LoadBalancer, packet: Packet, place: NodePlace): Connection {
  const { dst, dport: port, protocol, from } = packet;
  const lookup: Lookup = (address, scope) =>
    balancer.get(frontendKey({ address, port, protocol }, scope));
  if (from === 'outside') {
    const any = frontendKey({ address: dst, port: 0, protocol: 'any' }, 0);
    return connectFromOutside(lookup(dst, 0), balancer.get(any), packet);
  }
  const frontend = inScope(lookup, dst) ?? atAnyAddress(lookup, packet, place);
  if (frontend === undefined) return pass;
  // __sock4_xlate_fwd refuses a Service without backends before it looks at the address.
  const isOpen = frontend.slots.size > 0 && !frontend.hasSeveralKinds;
  if (isOpen && isSkipped(frontend, packet, place)) return pass;
  return balance(frontend, frontend.slots, false);
}

/** A frontend whose slots are one for each of its backends. */
export type EvenFrontend = Omit<BalancedFrontend, 'slots'>;

/**
 * Whether every packet to the address of a frontend has the same outcome on a node with `first`,
 * which has these different backends, as on a node with `second`, in the external scope. A quick
 * answer: false may be wrong.
 */
export function connectsAlike(
  first: EvenFrontend,
  backends: readonly { readonly text: string }[],
  second: BalancedFrontend,
): boolean {
  const { kind, routable, affinitySeconds, kept } = first;
  if (first.twoScopes || second.twoScopes || kind !== second.kind) return false;
  if (first.unknown !== null || second.unknown !== null || !first.reversed || !second.reversed) {
    return false;
  }
  if (routable !== second.routable || (routable && !isAlikeFromOutside(first, second)))
    return false;
  if (affinitySeconds !== second.affinitySeconds) return false;
  const { slots } = second;
  if (backends.length !== slots.size || kept.size !== second.kept.size) return false;
  for (const { text } of backends) if (slots.get(text) !== 1) return false;
  for (const endpoint of kept) if (!second.kept.has(endpoint)) return false;
  return true;
}

/** Without source ranges and Maglev tables. */
const isAlikeFromOutside = (first: EvenFrontend, second: EvenFrontend): boolean =>
  first.direct === second.direct &&
  first.externalLocal === second.externalLocal &&
  [first.sources, second.sources, first.places, second.places].every((it) => it === null);

function connectFromOutside(
  frontend: BalancedFrontend | undefined,
  any: BalancedFrontend | undefined,
  { src }: Packet,
): Connection {
  if (frontend === undefined) return any === undefined ? pass : { kind: 'drop', frontend: any };
  const { sources, routable, direct, externalLocal } = frontend;
  const isRefused = sources !== null && isWithinAny(src, sources.ranges) === sources.denied;
  if (isRefused || !routable) return { kind: 'drop', frontend };
  return balance(frontend, frontend.places ?? frontend.slots, !direct && !externalLocal);
}

function inScope(lookup: Lookup, address: string): BalancedFrontend | undefined {
  const frontend = lookup(address, 0);
  return frontend?.twoScopes === true ? lookup(address, 1) : frontend;
}

/** A node port or a host port at an address of the node. */
function atAnyAddress(lookup: Lookup, { dst, dport }: Packet, place: NodePlace) {
  if (!place.isLocal(dst)) return undefined;
  const frontend = inScope(lookup, familyOf(dst) === 'IPv4' ? '0.0.0.0' : '::');
  if (frontend === undefined || frontend.hasSeveralKinds) return frontend;
  const [low, high] = place.nodePortRange;
  const isInRange = dport >= low && dport <= high;
  if (isInRange) return frontend.kind === 'node port' ? frontend : undefined;
  const isServed = frontend.kind === 'host port' && (isLoopback(dst) || !frontend.loopback);
  return isServed ? frontend : undefined;
}

function isSkipped({ kind }: BalancedFrontend, { dst }: Packet, place: NodePlace): boolean {
  return (kind === 'external IP' || kind === 'host port') && !place.isLocal(dst);
}

function balance(
  frontend: BalancedFrontend,
  counts: ReadonlyMap<string, number>,
  masqueraded: boolean,
): Connection {
  const { unknown: reason, slots, kept, reversed } = frontend;
  if (reason !== null) return { kind: 'unknown', frontend, reason };
  if (slots.size === 0) return { kind: 'reject', frontend };
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const isLost = (counts.get(nowhere) ?? 0) === total;
  if (!reversed || isLost) return { kind: 'drop', frontend };
  const shares = new Map([...kept].map((endpoint) => [endpoint, 0]));
  // A table with fewer places than backends leaves some out.
  const isSmall = total < slots.size && [...counts.keys()].every((it) => slots.has(it));
  const even = isSmall ? slots : counts;
  for (const endpoint of even.keys()) {
    const count = counts.get(endpoint) ?? 0;
    // Places of a Maglev table are as even as whole numbers can be.
    const isEven = Math.abs(count - total / even.size) <= 1 + total / 1000;
    shares.set(endpoint, counts !== slots && isEven ? 1 / even.size : count / total);
  }
  return { kind: 'endpoints', frontend, shares, masqueraded };
}
