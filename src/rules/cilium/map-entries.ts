// The entries of Cilium's load balancing maps, as every reader returns them and load-balancer.ts
// combines them: pkg/loadbalancer/maps/types.go and the flags of pkg/loadbalancer/loadbalancer.go,
// cilium@v1.20.2. The maps services_v2 and backends_v3 have this layout since Cilium 1.17.
//
// Left out: connection tracking, health, sockets (reverse_sk), the clients that affinity remembers,
// and cilium_skip_lb, which holds pods of local redirect policies.

import { type CIDR, joinHostPort, parseIP } from '../../model/ip.ts';
import { DumpError } from '../ruleset.ts';

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

/** Reads `10.0.0.1:80/TCP` or `[fd00::1]:80/UDP`; null: it is no address. */
export function readMapAddress(text: string): MapAddress | null {
  const form = /^(?:\[(?<six>[^\]]+)\]|(?<four>[^:]+)):(?<port>\d+)\/(?<protocol>\w+)$/;
  const { six, four, port, protocol = '' } = form.exec(text)?.groups ?? {};
  const ip = parseIP(six ?? four ?? '');
  const name = protocol.toLowerCase();
  if (ip === null || !Object.hasOwn(protocolNumbers, name)) return null;
  return {
    family: ip.family === 'IPv4' ? 'ip' : 'ip6',
    address: ip.text,
    port: Number(port),
    protocol: name as MapAddress['protocol'],
  };
}

/** `10.96.0.1:80/tcp`, with `/i` in the internal scope, as Cilium prints it. */
export const frontendKey = (
  { address, port, protocol }: Omit<MapAddress, 'family'>,
  scope: number,
): string => `${joinHostPort(address, port)}/${protocol}${scope === 0 ? '' : '/i'}`;

/**
 * Before 1.17, Cilium does not distinguish protocols. 1.17 keeps such frontends after an upgrade,
 * and has no others with `bpf-lb-proto-diff=false` (https://github.com/cilium/cilium/pull/33434).
 * The maps have the same layout, so all Services would seem to be missing.
 * @throws DumpError for such a frontend.
 */
export function checkProtocol(place: MapAddress): void {
  if (place.protocol !== 'any' || place.port === 0) return;
  const problem = 'a frontend for all protocols, as of Cilium before 1.17, is not known';
  throw new DumpError(problem, 1, frontendKey(place, 0));
}

/** An entry of slot 0 of services_v2: a frontend. */
export interface ServiceEntry extends MapAddress {
  readonly kind: 'service';
  /** 0: external, 1: internal. */
  readonly scope: number;
  /** The affinity timeout, with the algorithm in the upper byte. */
  readonly word: number;
  readonly count: number;
  readonly quarantined: number;
  readonly id: number;
  readonly flags: number;
}

/** Entries of other slots of services_v2: backends of a frontend. */
export interface SlotEntries {
  readonly kind: 'slots';
  /** The key of the frontend, by `frontendKey`. */
  readonly frontend: string;
  /** The number of a slot and the id of its backend, in turn. */
  readonly slots: readonly number[];
}

export type MapEntry =
  | ServiceEntry
  | SlotEntries
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
  /** Source ranges deny; in the entry of a slot: the backend is in quarantine. */
  deniesOrQuarantined: 1 << 14,
  dsr: 1 << 15,
} as const;

/** What a reader found. */
export interface MapsDump {
  readonly entries: readonly MapEntry[];
  /** Families whose maps are in the dump. */
  readonly families: readonly ('IPv4' | 'IPv6')[];
}
