// What the Endpoints and the slices of a Service list at an address in canonical form.
//
// One address is looked up by a scan of the objects. Work on many addresses builds an index first
// and drops it afterwards, so that no memory is used per address of the cluster.

import { equalEndpoints, equalPorts, equalRefs } from '../../model/equality.ts';
import { canonicalIP, isAt } from '../../model/ip.ts';
import type { Endpoint, EndpointAddress, Endpoints, EndpointSlice } from '../../model/objects.ts';
import type { SubsetAddress } from '../../shadow/endpoints.ts';
import { repack } from '../../shadow/endpoints.ts';
import type { ServiceState } from './cache.ts';

/** An endpoint and the slice that lists it. */
export interface SlicedEndpoint {
  readonly slice: EndpointSlice;
  readonly endpoint: Endpoint;
}

/** The entries of a Service at one address. */
export interface AddressEntries {
  /** Of the Endpoints, repacked: one per pod and readiness. */
  readonly listed: readonly EndpointAddress[];
  /** Of all slices of the Service, in the order of the slices' names. */
  readonly sliced: readonly SlicedEndpoint[];
}

export type AddressIndex = ReadonlyMap<string, AddressEntries>;

const none: readonly never[] = [];
const noEntries: AddressEntries = { listed: none, sliced: none };

/** What is listed in several places is repacked, as the endpoints controller compares it. */
const merged = (places: readonly SubsetAddress[]): readonly EndpointAddress[] =>
  places.length > 1 ? repack(places) : places.map(({ address }) => address);

/** The entries at an address, found by a scan, or in the index if there is one. */
export function entriesAt(
  { endpoints, slices }: ServiceState,
  ip: string,
  index: AddressIndex | null = null,
): AddressEntries {
  if (index !== null) return index.get(ip) ?? noEntries;
  const places: SubsetAddress[] = [];
  for (const [subset, { addresses }] of (endpoints?.subsets ?? none).entries()) {
    for (const address of addresses) if (isAt(address.ip, ip)) places.push({ address, subset });
  }
  const sliced: SlicedEndpoint[] = [];
  for (const slice of slices) {
    for (const endpoint of slice.endpoints) {
      for (const address of endpoint.addresses) {
        if (!isAt(address, ip)) continue;
        sliced.push({ slice, endpoint });
        break;
      }
    }
  }
  return { listed: merged(places), sliced };
}

function append<T>(lists: Map<string, T[]>, key: string, value: T): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [value]);
  else list.push(value);
}

/** All entries of the Endpoints by address. */
export function indexEndpoints(
  endpoints: Endpoints | null,
): Map<string, readonly EndpointAddress[]> {
  const places = new Map<string, SubsetAddress[]>();
  for (const [subset, { addresses }] of (endpoints?.subsets ?? none).entries()) {
    for (const address of addresses) append(places, canonicalIP(address.ip), { address, subset });
  }
  return new Map([...places].map(([ip, all]) => [ip, merged(all)]));
}

function indexSlices(slices: readonly EndpointSlice[]): Map<string, SlicedEndpoint[]> {
  const sliced = new Map<string, SlicedEndpoint[]>();
  for (const slice of slices) {
    for (const endpoint of slice.endpoints) {
      const addresses = endpoint.addresses.map(canonicalIP);
      for (const [at, ip] of addresses.entries()) {
        if (addresses.indexOf(ip) === at) append(sliced, ip, { slice, endpoint });
      }
    }
  }
  return sliced;
}

/** All entries of a Service by address: those of the Endpoints first. */
export function buildIndex({ endpoints, slices }: ServiceState): AddressIndex {
  const index = new Map<string, AddressEntries>();
  const sliced = indexSlices(slices);
  for (const [ip, listed] of indexEndpoints(endpoints)) {
    index.set(ip, { listed, sliced: sliced.get(ip) ?? none });
  }
  for (const [ip, entries] of sliced) {
    if (!index.has(ip)) index.set(ip, { listed: none, sliced: entries });
  }
  return index;
}

/** The addresses that a slice lists. */
export const addressesIn = (slice: EndpointSlice | null): Set<string> =>
  new Set(slice?.endpoints.flatMap(({ addresses }) => addresses.map(canonicalIP)));

/** The keys at which two maps differ. */
function changedKeys<T>(
  before: ReadonlyMap<string, readonly T[]>,
  after: ReadonlyMap<string, readonly T[]>,
  isSame: (a: T, b: T) => boolean,
): Set<string> {
  const changed = new Set<string>();
  for (const [key, is] of after) {
    const was = before.get(key);
    if (was === undefined || !equalLists(was, is, isSame)) changed.add(key);
  }
  for (const key of before.keys()) if (!after.has(key)) changed.add(key);
  return changed;
}

function equalLists<T>(a: readonly T[], b: readonly T[], isSame: (a: T, b: T) => boolean): boolean {
  if (a.length !== b.length) return false;
  return a.every((value, index) => {
    const other = b[index];
    return other !== undefined && isSame(value, other);
  });
}

/** Whether two versions of a slice list the same endpoints in the same order. */
export const hasSameEndpoints = (a: EndpointSlice, b: EndpointSlice): boolean =>
  equalLists(a.endpoints, b.endpoints, equalEndpoints);

/** The addresses whose entries differ between two versions of the Endpoints. */
export const changedInEndpoints = (
  before: Endpoints | null,
  after: Endpoints | null,
): Set<string> => changedKeys(indexEndpoints(before), indexEndpoints(after), isSameAddress);

/** The addresses whose entries differ between two versions of a slice. */
export function changedInSlice(before: EndpointSlice, after: EndpointSlice): Set<string> {
  return changedKeys(indexSlices([before]), indexSlices([after]), (a, b) =>
    equalEndpoints(a.endpoint, b.endpoint),
  );
}

function isSameAddress(a: EndpointAddress, b: EndpointAddress): boolean {
  if (a === b) return true;
  return (
    a.ready === b.ready &&
    a.node === b.node &&
    a.hostname === b.hostname &&
    equalRefs(a.target, b.target) &&
    equalPorts(a.ports, b.ports)
  );
}
