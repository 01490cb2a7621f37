// The state of Cilium's load balancer on a node: which backends each frontend has. Both the maps
// (`loadBalancerOf`) and the desired state (shadow/cilium) have this form, so that one function
// (connection.ts) finds the outcome of packets for both. Reference: pkg/loadbalancer/maps/types.go
// and bpf/lib/lb.h, cilium@v1.20.2.
//
// The state of a backend (active, terminating) is not read: it belongs to an address, not to a
// Service, and the counts of a frontend decide (pkg/loadbalancer/reconciler/bpf_reconciler.go).

import { addCount, getOrInsert, remembering } from '../../model/collections.ts';
import { type CIDR, joinHostPort } from '../../model/ip.ts';
import type { MapAddress, MapEntry, ServiceEntry } from './map-entries.ts';
import { frontendKey, serviceFlags } from './map-entries.ts';

export type BalancedKind =
  'cluster IP' | 'external IP' | 'load balancer IP' | 'node port' | 'host port';

/** A frontend of the load balancer, in one scope. */
export interface BalancedFrontend {
  readonly kind: BalancedKind;
  /** Reached from outside the cluster; others are for the node's own sockets. */
  readonly routable: boolean;
  /** Sockets of the node use the internal scope. */
  readonly twoScopes: boolean;
  readonly externalLocal: boolean;
  /** Answers go to the client directly: DSR. */
  readonly direct: boolean;
  /** For the loopback address only: a host port. */
  readonly loopback: boolean;
  /** null: sources are not checked. */
  readonly sources: { readonly ranges: readonly CIDR[]; readonly denied: boolean } | null;
  /** null: no session affinity. */
  readonly affinitySeconds: number | null;
  /**
   * Of connections at random, by `ip:port`: how many slots it has. `nowhere` counts the slots
   * without a backend, which drop the connection.
   */
  readonly slots: ReadonlyMap<string, number>;
  /** Places in the Maglev table; null: packets from outside go to a random slot. */
  readonly places: ReadonlyMap<string, number> | null;
  /** Backends that a client with affinity may keep. */
  readonly kept: ReadonlySet<string>;
  /** Whether answers get the address of the frontend. */
  readonly reversed: boolean;
  /** Why its outcome is not known; null: it is. */
  readonly unknown: string | null;
  /** Whether the entry has several kinds, so that what skips some kinds may skip it or not. */
  readonly hasSeveralKinds: boolean;
  /** The entries, as a reader of findings sees them. */
  readonly text: string;
}

export const nowhere = '';

export const noBackends: ReadonlySet<string> = new Set();

/** Frontends by `frontendKey`. A wildcard entry has the port 0 and the protocol `any`. */
export type LoadBalancer = Pick<ReadonlyMap<string, BalancedFrontend>, 'get'>;

const unspecified: ReadonlySet<string> = new Set(['0.0.0.0', '::']);

export const isUnspecified = (address: string): boolean => unspecified.has(address);

interface Maps {
  readonly masters: ServiceEntry[];
  /** By the key of the frontend: as in entries. */
  readonly slots: Map<string, number[]>;
  /** `ip:port` by id. Both families share one space of ids. */
  readonly backends: Readonly<Record<MapAddress['family'], Map<number, string>>>;
  /** Backends of other clusters. */
  readonly remote: Set<number>;
  /** Frontends by id. */
  readonly reverse: Readonly<Record<MapAddress['family'], Map<number, string>>>;
  readonly ranges: Map<string, CIDR[]>;
  readonly matches: Map<number, number[]>;
  readonly maglev: Map<string, ReadonlyMap<number, number> | null>;
}

/** The algorithm in the upper byte of a master's first word; 0: the node's default. */
const maglevAlgorithm = 2;

const algorithmOf = ({ word }: ServiceEntry): number => word >>> 24;

function sorted(entries: readonly MapEntry[]): Maps {
  const maps: Maps = {
    masters: [],
    slots: new Map(),
    backends: { ip: new Map(), ip6: new Map() },
    remote: new Set(),
    reverse: { ip: new Map(), ip6: new Map() },
    ranges: new Map(),
    matches: new Map(),
    maglev: new Map(),
  };
  for (const entry of entries) {
    if (entry.kind === 'service') {
      maps.masters.push(entry);
    } else if (entry.kind === 'slots') {
      const others = maps.slots.get(entry.frontend);
      if (others === undefined) maps.slots.set(entry.frontend, entry.slots.slice());
      else others.push(...entry.slots);
    } else if (entry.kind === 'backend') {
      maps.backends[entry.family].set(entry.id, joinHostPort(entry.address, entry.port));
      if (entry.cluster !== 0) maps.remote.add(entry.id);
    } else if (entry.kind === 'reverse nat') {
      maps.reverse[entry.family].set(entry.id, joinHostPort(entry.address, entry.port));
    } else if (entry.kind === 'source range') {
      getOrInsert(maps.ranges, `${entry.range.family} ${entry.id}`, () => []).push(entry.range);
    } else if (entry.kind === 'affinity match') {
      getOrInsert(maps.matches, entry.id, () => []).push(entry.backend);
    } else {
      maps.maglev.set(`${entry.family} ${entry.id}`, entry.places);
    }
  }
  return maps;
}

/** The frontends that the maps serve. */
export function loadBalancerOf(entries: readonly MapEntry[]) {
  const maps = sorted(entries);
  const isDefault = isMaglevByDefault(maps.masters, (it) => tableOf(it, maps) !== undefined);
  const usesMaglev = (master: ServiceEntry): boolean => {
    const algorithm = algorithmOf(master);
    return algorithm === 0 ? isDefault : algorithm === maglevAlgorithm;
  };
  const masters = new Map<string, ServiceEntry>();
  for (const master of maps.masters) masters.set(frontendKey(master, master.scope), master);
  // Each has a list of backends: a node has too many of them to keep all.
  const get = remembering((key: string) => {
    const master = masters.get(key);
    return master && frontendOf(master, key, maps, usesMaglev(master));
  }, 64);
  return { frontends: { get }, masters: masters as ReadonlyMap<string, ServiceEntry> };
}

/**
 * Whether frontends without an algorithm of their own use Maglev: most that may have a table have
 * one. Cilium leaves a table behind when no annotation asks for it any more (updateFrontend).
 */
export function isMaglevByDefault(
  masters: readonly ServiceEntry[],
  hasTable: (master: ServiceEntry) => boolean,
): boolean {
  const { routable, localRedirect, proxy } = serviceFlags;
  const asked = masters.filter(
    (it) =>
      it.scope === 0 &&
      it.count > 0 &&
      algorithmOf(it) === 0 &&
      // A redirected cluster IP has no table, and a proxied frontend does not show its algorithm.
      (it.flags & (routable | localRedirect | proxy)) === routable,
  );
  return 2 * asked.filter(hasTable).length > asked.length;
}

const tableOf = ({ family, id }: ServiceEntry, { maglev }: Maps) => maglev.get(`${family} ${id}`);

/**
 * Without its Maglev table, a frontend drops packets from outside. A table that was not read counts
 * as right: null.
 */
function placesOf(
  master: ServiceEntry,
  maps: Maps,
  endpointOf: (backend: number) => string,
): Map<string, number> | null {
  const table = tableOf(master, maps);
  if (table === undefined) return new Map([[nowhere, 1]]);
  if (table === null) return null;
  const places = new Map<string, number>();
  for (const [backend, count] of table) addCount(places, endpointOf(backend), count);
  return places;
}

function frontendOf(
  master: ServiceEntry,
  key: string,
  maps: Maps,
  usesMaglev: boolean,
): BalancedFrontend {
  const { family, id, flags } = master;
  const has = (flag: number): boolean => (flags & flag) !== 0;
  const ids = backendsOf(master, maps.slots.get(key));
  const backends = maps.backends[family];
  const endpointOf = (backend: number): string => backends.get(backend) ?? nowhere;
  const isUnclear = kinds.filter(has).length > 1;
  const isRoutable = has(serviceFlags.routable);
  const isAffine = has(serviceFlags.affinity);
  const reverse = maps.reverse[family].get(id);
  return {
    kind: kindOf(flags),
    routable: isRoutable,
    twoScopes: has(serviceFlags.twoScopes),
    externalLocal: has(serviceFlags.externalLocal),
    direct: has(serviceFlags.dsr),
    loopback: has(serviceFlags.loopback),
    sources: has(serviceFlags.sourceRanges)
      ? { ranges: rangesOf(master, maps), denied: has(serviceFlags.deniesOrQuarantined) }
      : null,
    affinitySeconds: isAffine ? master.word & 0xffffff : null,
    slots: slotsOf(master, ids, endpointOf),
    places: usesMaglev && isRoutable ? placesOf(master, maps, endpointOf) : null,
    kept: isAffine
      ? new Set((maps.matches.get(id) ?? []).map(endpointOf).filter(Boolean))
      : noBackends,
    reversed:
      isUnspecified(master.address) || reverse === joinHostPort(master.address, master.port),
    unknown: isUnclear ? 'its entry has several kinds' : unknownIn(master, ids, maps),
    hasSeveralKinds: isUnclear,
    text: `${key} id ${id} count ${master.count} flags 0x${flags.toString(16)}`,
  };
}

const rangesOf = ({ family, id }: ServiceEntry, { ranges }: Maps): readonly CIDR[] =>
  ranges.get(`${family === 'ip' ? 'IPv4' : 'IPv6'} ${id}`) ?? [];

function slotsOf(
  { count }: ServiceEntry,
  ids: readonly number[],
  endpointOf: (backend: number) => string,
): ReadonlyMap<string, number> {
  const slots = new Map<string, number>();
  for (const backend of ids) slots.set(endpointOf(backend), 1);
  // Counting costs more, and few frontends have two slots with one backend.
  if (slots.size < ids.length) {
    slots.clear();
    for (const backend of ids) addCount(slots, endpointOf(backend), 1);
  }
  // A slot without an entry has no backend.
  if (ids.length < count) addCount(slots, nowhere, count - ids.length);
  return slots;
}

/** The ids in the slots that connections use, in the order of the slots. */
function backendsOf({ count }: ServiceEntry, slots: readonly number[] = []): number[] {
  const bySlot: number[] = [];
  for (let at = 0; at < slots.length; at += 2) {
    const [slot = 0, backend = 0] = [slots[at], slots[at + 1]];
    if (slot <= count) bySlot[slot] = backend;
  }
  // Without the slots that are missing.
  return Object.values(bySlot);
}

export function kindOf(flags: number): BalancedKind {
  if ((flags & serviceFlags.externalIP) !== 0) return 'external IP';
  if ((flags & serviceFlags.nodePort) !== 0) return 'node port';
  if ((flags & serviceFlags.loadBalancer) !== 0) return 'load balancer IP';
  return (flags & serviceFlags.hostPort) === 0 ? 'cluster IP' : 'host port';
}

const reasons: readonly (readonly [flag: number, reason: string])[] = [
  [serviceFlags.localRedirect, 'a local redirect policy redirects the Service'],
  [serviceFlags.otherFamily, 'Cilium translates the Service to the other address family'],
  [serviceFlags.proxy, "Cilium's proxy balances the Service"],
];

/** Cilium sets at most one (NewSvcFlag); its programs ask for them in different orders. */
const kinds = [
  serviceFlags.externalIP,
  serviceFlags.nodePort,
  serviceFlags.hostPort,
  serviceFlags.loadBalancer,
];

function unknownIn(master: ServiceEntry, ids: readonly number[], maps: Maps): string | null {
  const { flags } = master;
  const reason = reasons.find(([flag]) => (flags & flag) !== 0)?.[1];
  if (reason !== undefined) return reason;
  if (ids.some((id) => maps.remote.has(id))) return 'a backend is in another cluster';
  const isDelegated = (flags & serviceFlags.loopback) !== 0 && kindOf(flags) !== 'host port';
  if (isDelegated) return 'a proxy on the node takes the connections of the Service';
  return null;
}
