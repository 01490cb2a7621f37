// What the Endpoints and the slices of a Service list at an address in canonical form. Only the
// indexes of large objects are kept, so that one change of thousands of pods costs no full pass.

import { equalAddresses, equalEndpoints, equalLists } from '../../model/equality.ts';
import { getOrInsert } from '../../model/get-or-insert.ts';
import { canonicalIP } from '../../model/ip.ts';
import type { Endpoint, Endpoints, EndpointSlice, Listers } from '../../model/objects.ts';
import type { SubsetAddress } from '../../shadow/endpoints.ts';
import { repack } from '../../shadow/endpoints.ts';
import type { ServiceState } from './cache.ts';
import { isMember, isOfSameRole } from './cache.ts';

export interface SlicedEndpoint {
  readonly slice: EndpointSlice;
  readonly endpoint: Endpoint;
}

type Listings = Map<string, SubsetAddress[]>;
type Slicings = ReadonlyMap<string, readonly SlicedEndpoint[]>;

export type AddressIndex = ReturnType<typeof buildIndex>;
export type AddressEntries = ReturnType<typeof entriesAt>;

/** The addresses to index; `null` for all. */
type Addresses = ReadonlySet<string> | null;

const none: readonly never[] = [];

/** Adds an entry at an address, nearly always the only one: its list has room for no other. */
function append<T>(index: Map<string, T[]>, ip: string, entry: T): void {
  const entries = index.get(ip);
  if (entries === undefined) index.set(ip, [entry]);
  else entries.push(entry);
}

function indexEndpoints(endpoints: Endpoints | null, only: Addresses): Listings {
  const listings: Listings = new Map();
  for (const [subset, { addresses }] of (endpoints?.subsets ?? none).entries()) {
    for (const address of addresses) {
      const ip = canonicalIP(address.ip);
      if (only?.has(ip) !== false) append(listings, ip, { address, subset });
    }
  }
  return listings;
}

function indexSlices(slices: readonly EndpointSlice[], addresses: Addresses): Slicings {
  const slicings = new Map<string, SlicedEndpoint[]>();
  for (const slice of slices) {
    for (const endpoint of slice.endpoints) {
      for (const address of endpoint.addresses) {
        const ip = canonicalIP(address);
        if (addresses?.has(ip) === false) continue;
        const isRepeated =
          endpoint.addresses.length > 1 && slicings.get(ip)?.at(-1)?.endpoint === endpoint;
        if (!isRepeated) append(slicings, ip, { slice, endpoint });
      }
    }
  }
  return slicings;
}

const canonicalIPs = ({ addresses }: Endpoint): string[] => addresses.map(canonicalIP);

/** Endpoints with more addresses keep their index, Services with more slices those of each. */
const fewAddresses = 64;
const fewSlices = 1;

const keptListings = new WeakMap<Endpoints, Listings>();
const keptSlicings = new WeakMap<EndpointSlice, Slicings>();

const isLarge = ({ subsets }: Endpoints): boolean =>
  subsets.reduce((sum, { addresses }) => sum + addresses.length, 0) > fewAddresses;

function slicingsIn(slices: readonly EndpointSlice[], addresses: Addresses): Slicings {
  if (addresses === null || slices.length <= fewSlices) return indexSlices(slices, addresses);
  const indexes = slices.map((slice) =>
    getOrInsert(keptSlicings, slice, () => indexSlices([slice], null)),
  );
  const at = (ip: string): SlicedEndpoint[] => indexes.flatMap((index) => index.get(ip) ?? none);
  return new Map([...addresses].map((ip) => [ip, at(ip)]));
}

/** The entries of a Service at some addresses at least, or at all if `addresses` is `null`. */
export const buildIndex = (
  { endpoints, slices }: Pick<ServiceState, 'endpoints' | 'slices'>,
  addresses: Addresses,
) => ({
  listings:
    endpoints !== null && addresses !== null && isLarge(endpoints)
      ? getOrInsert(keptListings, endpoints, () => indexEndpoints(endpoints, null))
      : indexEndpoints(endpoints, addresses),
  slicings: slicingsIn(slices, addresses),
});

/** What is at an address of the index. */
export function entriesAt(
  listers: Listers,
  record: ServiceState,
  { listings, slicings }: AddressIndex,
  ip: string,
) {
  /** All pods at the address, of any namespace. */
  const pods = listers.podsAt(ip);
  /** Those that the Service selects, in the order of their uids. */
  const members = pods.filter((pod) => isMember(record, pod));
  if (members.length > 1) members.sort((a, b) => (a.uid < b.uid ? -1 : 1));
  /** Of the Endpoints, repacked: one per pod and readiness. */
  const listed = repack(listings.get(ip) ?? none);
  return { ip, pods, members, listed, sliced: slicings.get(ip) ?? none };
}

/** The addresses that a slice lists. */
export const addressesIn = (slice: EndpointSlice | null): Set<string> =>
  new Set(slice?.endpoints.flatMap(canonicalIPs));

/** What came or went between two lists. The store makes equal items the same object. */
function unshared<T extends object>(before: readonly T[], after: readonly T[]): T[] {
  const found: T[] = [];
  let old = 0;
  let next = 0;
  while (old < before.length || next < after.length) {
    const was = before[old];
    const is = after[next];
    if (was === is) {
      old++;
      next++;
      continue;
    }
    const isAdded = was !== undefined && after[next + 1] === was;
    const isRemoved = !isAdded && is !== undefined && before[old + 1] === is;
    if (is !== undefined && !isRemoved) {
      found.push(is);
      next++;
    }
    if (was !== undefined && !isAdded) {
      found.push(was);
      old++;
    }
  }
  return found;
}

/** Whether two versions of a slice list the same endpoints in the same order. */
export const hasSameEndpoints = (a: EndpointSlice, b: EndpointSlice): boolean =>
  equalLists(a.endpoints, b.endpoints, equalEndpoints);

/** The addresses whose entries differ between two versions of the Endpoints. */
export function changedInEndpoints(before: Endpoints | null, after: Endpoints | null): Set<string> {
  const addresses = new Set<string>();
  const [old, next] = [before?.subsets ?? none, after?.subsets ?? none];
  for (let index = 0; index < Math.max(old.length, next.length); index++) {
    const [a, b] = [old[index]?.addresses ?? none, next[index]?.addresses ?? none];
    for (const { ip } of unshared(a, b)) addresses.add(canonicalIP(ip));
  }
  const kept = before === null ? undefined : keptListings.get(before);
  const was = kept ?? indexEndpoints(before, addresses);
  const is = indexEndpoints(after, addresses);
  const changed = [...addresses].filter(
    (ip) => !equalLists(repack(was.get(ip) ?? none), repack(is.get(ip) ?? none), equalAddresses),
  );
  if (kept === undefined || before === null) return new Set(changed);
  keptListings.delete(before);
  if (after !== null && isLarge(after)) {
    for (const ip of addresses) {
      const places = is.get(ip);
      if (places === undefined) kept.delete(ip);
      else kept.set(ip, places);
    }
    keptListings.set(after, kept);
  }
  return new Set(changed);
}

/** The addresses whose entries differ between two versions of a slice, or all if it differs. */
export function changedInSlice(
  before: EndpointSlice | null,
  after: EndpointSlice | null,
): Set<string> {
  const isSameSlice =
    before !== null && after?.portMap === before.portMap && isOfSameRole(before, after);
  if (!isSameSlice) return new Set([...addressesIn(before), ...addressesIn(after)]);
  const addresses = new Set(unshared(before.endpoints, after.endpoints).flatMap(canonicalIPs));
  const [was, is] = [indexSlices([before], addresses), indexSlices([after], addresses)];
  const isSame = (a: SlicedEndpoint, b: SlicedEndpoint): boolean =>
    equalEndpoints(a.endpoint, b.endpoint);
  return new Set(
    [...addresses].filter((ip) => !equalLists(was.get(ip) ?? none, is.get(ip) ?? none, isSame)),
  );
}
