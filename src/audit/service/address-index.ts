// What the Endpoints and the slices of a Service list at an address in canonical form. Only the
// indexes of large objects are kept, so that one change of thousands of pods costs no full pass.

import { equalAddresses, equalEndpoints, equalLists } from '../../model/equality.ts';
import { getOrInsert } from '../../model/collections.ts';
import { canonicalIP } from '../../model/ip.ts';
import type { Endpoint, Endpoints, EndpointSlice, Listers } from '../../model/objects.ts';
import { repack, type SubsetAddress } from '../../shadow/endpoints.ts';
import { isMember, isOfSameRole, type ServiceState } from './cache.ts';

export interface SlicedEndpoint {
  readonly slice: EndpointSlice;
  readonly endpoint: Endpoint;
}

type Listings = Map<string, SubsetAddress[]>;
type EndpointsByAddress = Map<string, Endpoint[]>;

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

function indexSlice(slice: EndpointSlice | null, only: Addresses): EndpointsByAddress {
  const index: EndpointsByAddress = new Map();
  for (const endpoint of slice?.endpoints ?? none) {
    for (const address of endpoint.addresses) {
      const ip = canonicalIP(address);
      if (only?.has(ip) === false) continue;
      const isRepeated = endpoint.addresses.length > 1 && index.get(ip)?.at(-1) === endpoint;
      if (!isRepeated) append(index, ip, endpoint);
    }
  }
  return index;
}

const canonicalIPs = ({ addresses }: Endpoint): string[] => addresses.map(canonicalIP);

/** Endpoints with more addresses keep their index, Services with more slices those of each. */
const fewAddresses = 64;
const fewSlices = 1;

const keptListings = new WeakMap<Endpoints, Listings>();
const keptSlices = new WeakMap<EndpointSlice, EndpointsByAddress>();

const isLarge = ({ subsets }: Endpoints): boolean =>
  subsets.reduce((sum, { addresses }) => sum + addresses.length, 0) > fewAddresses;

/** The endpoints of slices at some addresses, or at all if `addresses` is `null`. */
function sliced(slices: readonly EndpointSlice[], addresses: Addresses) {
  const found = new Map<string, SlicedEndpoint[]>();
  const isKept = addresses !== null && slices.length > fewSlices;
  for (const slice of slices) {
    const kept = isKept ? keptSlices.get(slice) : undefined;
    const index = kept ?? indexSlice(slice, isKept ? null : addresses);
    if (isKept && kept === undefined) keptSlices.set(slice, index);
    for (const ip of (isKept ? addresses : index).keys()) {
      const endpoints = index.get(ip);
      if (endpoints === undefined) continue;
      for (const endpoint of endpoints) append(found, ip, { slice, endpoint });
    }
  }
  return found;
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
  slicings: sliced(slices, addresses),
});

/** What is at an address of the index of a Service. */
export function entriesAt(listers: Listers, record: ServiceState, index: AddressIndex, ip: string) {
  const { listings, slicings } = index;
  /** All pods at the address, of any namespace. */
  const pods = listers.podsAt(ip);
  /** Those that the Service selects, in the order of their uids. */
  const members = pods.filter((pod) => isMember(record, pod));
  if (members.length > 1) members.sort((a, b) => (a.uid < b.uid ? -1 : 1));
  /** Of the Endpoints, repacked: one per pod and readiness. */
  const listed = repack(listings.get(ip) ?? none);
  return { ip, record, pods, members, listed, sliced: slicings.get(ip) ?? none };
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

/** The addresses whose entries differ between two versions of the Endpoints. */
export function changedInEndpoints(before: Endpoints | null, after: Endpoints | null): Set<string> {
  const addresses = new Set<string>();
  const [old, next] = [before?.subsets ?? none, after?.subsets ?? none];
  for (let index = 0; index < Math.max(old.length, next.length); index++) {
    const [a, b] = [old[index]?.addresses ?? none, next[index]?.addresses ?? none];
    for (const { ip } of unshared(a, b)) addresses.add(canonicalIP(ip));
  }
  const isSame = (a: readonly SubsetAddress[], b: readonly SubsetAddress[]): boolean =>
    equalLists(repack(a), repack(b), equalAddresses);
  const changed = changedAmong(addresses, keptListings, before, after, indexEndpoints, isSame);
  if (after !== null && !isLarge(after)) keptListings.delete(after);
  return changed;
}

/** Of some addresses those whose entries differ. An index of `before` becomes that of `after`. */
function changedAmong<T extends object, E>(
  addresses: ReadonlySet<string>,
  kept: WeakMap<T, Map<string, E[]>>,
  before: T | null,
  after: T | null,
  index: (object: T | null, only: Addresses) => Map<string, E[]>,
  isSame: (a: readonly E[], b: readonly E[]) => boolean,
): Set<string> {
  const known = before === null ? undefined : kept.get(before);
  const was = known ?? index(before, addresses);
  const is = index(after, addresses);
  const changed = [...addresses].filter((ip) => !isSame(was.get(ip) ?? none, is.get(ip) ?? none));
  if (known === undefined || before === null) return new Set(changed);
  kept.delete(before);
  for (const ip of addresses) {
    const entries = is.get(ip);
    if (entries === undefined) known.delete(ip);
    else known.set(ip, entries);
  }
  if (after !== null) kept.set(after, known);
  return new Set(changed);
}

/** The addresses whose entries differ between two versions of a slice, or all if it differs. */
export function changedInSlice(before: EndpointSlice | null, after: EndpointSlice | null) {
  const isSameSlice =
    before !== null && after?.portMap === before.portMap && isOfSameRole(before, after);
  if (!isSameSlice) return new Set([...addressesIn(before), ...addressesIn(after)]);
  const addresses = new Set(unshared(before.endpoints, after.endpoints).flatMap(canonicalIPs));
  const isSame = (a: readonly Endpoint[], b: readonly Endpoint[]): boolean =>
    equalLists(a, b, equalEndpoints);
  return changedAmong(addresses, keptSlices, before, after, indexSlice, isSame);
}
