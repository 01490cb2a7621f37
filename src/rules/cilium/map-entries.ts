// The entries of Cilium's load balancing maps, as every reader returns them and load-balancer.ts
// combines them: pkg/loadbalancer/maps/types.go and the flags of pkg/loadbalancer/loadbalancer.go,
// cilium@v1.20.2. The maps services_v2 and backends_v3 have this layout since Cilium 1.17.
//
// Left out: connection tracking, health, sockets (reverse_sk), the clients that affinity remembers,
// and cilium_skip_lb, which holds pods of local redirect policies.

import type { CIDR } from '../../model/ip.ts';

/** The number of an IP protocol; 0 in the entries that match every port of an address. */
export const protocolNumbers = { any: 0, tcp: 6, udp: 17, sctp: 132 } as const;

/** `ip:port` with the protocol: how readers and frontends name an address. */
export interface MapAddress {
  readonly family: 'ip' | 'ip6';
  /** In canonical form. */
  readonly address: string;
  readonly port: number;
  readonly protocol: keyof typeof protocolNumbers;
}

/** An entry of services_v2: of slot 0, a frontend; of another, one of its backends. */
export interface ServiceEntry extends MapAddress {
  readonly kind: 'service';
  /** 0: external, 1: internal. */
  readonly scope: number;
  readonly slot: number;
  /** The id of a backend; in slot 0 the affinity timeout, with the algorithm in the upper byte. */
  readonly word: number;
  readonly count: number;
  readonly quarantined: number;
  readonly id: number;
  readonly flags: number;
}

export type MapEntry =
  | ServiceEntry
  | (MapAddress & { readonly kind: 'backend'; readonly id: number; readonly cluster: number })
  | (Omit<MapAddress, 'protocol'> & { readonly kind: 'reverse nat'; readonly id: number })
  | { readonly kind: 'source range'; readonly id: number; readonly range: CIDR }
  | { readonly kind: 'affinity match'; readonly id: number; readonly backend: number }
  | {
      readonly kind: 'maglev';
      readonly family: 'ip' | 'ip6';
      readonly id: number;
      /** How many places of the table each backend has; null: the table was not read. */
      readonly places: ReadonlyMap<number, number> | null;
    };

/** Bits of `flags`. */
export const serviceFlags = {
  externalIP: 1 << 0,
  nodePort: 1 << 1,
  externalLocal: 1 << 2,
  hostPort: 1 << 3,
  affinity: 1 << 4,
  loadBalancer: 1 << 5,
  routable: 1 << 6,
  sourceRanges: 1 << 7,
  localRedirect: 1 << 8,
  otherFamily: 1 << 9,
  proxy: 1 << 10,
  loopback: 1 << 11,
  internalLocal: 1 << 12,
  twoScopes: 1 << 13,
  /** In slot 0: source ranges deny; in another: the backend is in quarantine. */
  deniesOrQuarantined: 1 << 14,
  dsr: 1 << 15,
} as const;

/** What a reader found. */
export interface MapsDump {
  readonly entries: readonly MapEntry[];
  /** Families whose maps are in the dump. */
  readonly families: readonly ('IPv4' | 'IPv6')[];
}
