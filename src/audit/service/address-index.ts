// What the Endpoints of a Service list at each address in canonical form: nearly always one entry.
//
// A few addresses are quickly looked through; only of larger objects an index is kept, since what
// is kept for every address of a cluster is much. A new version mostly has what the one before has
// but for a few addresses, and the store has made one of what is equal; so the two are walked along
// together, and what is at the other addresses is not looked at.

import { equalPorts, equalRefs } from '../../model/equality.ts';
import { canonicalIP, isAt } from '../../model/ip.ts';
import type { Endpoints } from '../../model/objects.ts';
import type { SubsetAddress as ListedIn } from '../../shadow/endpoints.ts';
import { repack } from '../../shadow/endpoints.ts';
import type { Listed, AddressIndex, ServiceState } from './cache.ts';
import type { ListedAddress } from './compare.ts';

/** Up to how many addresses are looked through. */
const few = 256;

function isFew(endpoints: Endpoints | null): boolean {
  if (endpoints === null) return true;
  let addresses = 0;
  for (const subset of endpoints.subsets) addresses += subset.addresses.length;
  return addresses <= few;
}

const noneListed: readonly ListedAddress[] = [];

const asList = (there: Listed | undefined): readonly ListedAddress[] =>
  there === undefined ? noneListed : 'ip' in there ? [there] : there;

/** What the Endpoints list at an address; one entry per pod. */
export function listedAt(record: ServiceState, ip: string): readonly ListedAddress[] {
  const { endpoints } = record;
  if (endpoints === null) return noneListed;
  if (record.listed === null && !isFew(endpoints)) record.listed = listingOf(endpoints);
  if (record.listed !== null) return asList(record.listed.get(ip));
  return lookedUp(endpoints, ip);
}

/** What is listed at an address, by a look at all of them. */
function lookedUp(endpoints: Endpoints, ip: string): readonly ListedAddress[] {
  const there: ListedIn[] = [];
  for (const [subset, { addresses }] of endpoints.subsets.entries()) {
    for (const address of addresses) if (isAt(address.ip, ip)) there.push({ address, subset });
  }
  return there.length > 1 ? repack(there) : there.map(({ address }) => address);
}

/** Takes in a new version of the Endpoints. */
export function setEndpoints(record: ServiceState, endpoints: Endpoints | null): void {
  record.endpoints = endpoints;
  record.roles = null;
  record.handWritten = null;
  record.listed = null;
}

/** Takes in a new version of the Endpoints; returns the addresses at which it differs. */
export function replaceEndpoints(record: ServiceState, endpoints: Endpoints | null): Set<string> {
  const changed = changedAddresses(record.endpoints, endpoints);
  return endpoints === null || changed === null
    ? replaceAll(record, endpoints)
    : replaceSome(record, endpoints, changed);
}

/** Up to how many addresses are looked up one by one. */
const fewChanged = 8;

/**
 * Addresses outside which two versions have the same entries, in canonical form; null: the versions
 * must be compared as wholes.
 */
function changedAddresses(before: Endpoints | null, after: Endpoints | null): Set<string> | null {
  if (before === null || after?.subsets.length !== before.subsets.length) return null;
  const changed = new Set<string>();
  for (const [index, { addresses }] of after.subsets.entries()) {
    const was = before.subsets[index]?.addresses ?? [];
    let [at, wasAt] = [0, 0];
    while (at < addresses.length || wasAt < was.length) {
      const [is, old] = [addresses[at], was[wasAt]];
      if (is === old) {
        at++;
        wasAt++;
        continue;
      }
      // One that came, one that went, or one in the place of another.
      const came = old !== undefined && addresses[at + 1] === old;
      const went = !came && is !== undefined && was[wasAt + 1] === is;
      if (is !== undefined && !went) {
        changed.add(canonicalIP(is.ip));
        at++;
      }
      if (old !== undefined && !came) {
        changed.add(canonicalIP(old.ip));
        wasAt++;
      }
      if (changed.size > fewChanged) return null;
    }
  }
  return changed;
}

/** As replaceEndpoints, where only these addresses can differ. */
function replaceSome(
  record: ServiceState,
  endpoints: Endpoints,
  changed: ReadonlySet<string>,
): Set<string> {
  const before = [...changed].map((ip) => [ip, listedAt(record, ip)] as const);
  const index = record.listed;
  setEndpoints(record, endpoints);
  if (!isFew(endpoints)) record.listed = index;
  const touched = new Set<string>();
  for (const [ip, was] of before) {
    const now = lookedUp(endpoints, ip);
    const [only] = now;
    if (only === undefined) index?.delete(ip);
    else index?.set(ip, now.length === 1 ? only : now);
    if (!isSame(was, now)) touched.add(ip);
  }
  return touched;
}

function replaceAll(record: ServiceState, endpoints: Endpoints | null): Set<string> {
  const before = record.listed ?? listingOf(record.endpoints);
  const after = listingOf(endpoints);
  setEndpoints(record, endpoints);
  if (!isFew(endpoints)) record.listed = after;
  const touched = new Set<string>();
  for (const [ip, listed] of after) if (!isSame(before.get(ip), listed)) touched.add(ip);
  for (const ip of before.keys()) if (!after.has(ip)) touched.add(ip);
  return touched;
}

/** Looks all addresses up at once, until `foldListed`. */
export function buildIndex(record: ServiceState): AddressIndex {
  return (record.listed ??= listingOf(record.endpoints));
}

export function dropIndex(record: ServiceState): void {
  if (isFew(record.endpoints)) record.listed = null;
}

function isSame(before: Listed | undefined, after: Listed): boolean {
  if (before === after) return true;
  if (before !== undefined && 'ip' in before && 'ip' in after) return isSameEntry(before, after);
  const [was, now] = [asList(before), asList(after)];
  if (was.length !== now.length) return false;
  return now.every((one, index) => isSameEntry(was[index], one));
}

function isSameEntry(a: ListedAddress | undefined, b: ListedAddress): boolean {
  if (a === undefined) return false;
  return (
    a.ready === b.ready &&
    a.node === b.node &&
    a.hostname === b.hostname &&
    equalRefs(a.target, b.target) &&
    equalPorts(a.ports, b.ports)
  );
}

function listingOf(endpoints: Endpoints | null): AddressIndex {
  const listing = new Map<string, Listed>();
  const subsets = endpoints?.subsets ?? [];
  const repeated = new Set<string>();
  for (const { addresses } of subsets) {
    for (const address of addresses) {
      const ip = canonicalIP(address.ip);
      if (listing.has(ip)) repeated.add(ip);
      else listing.set(ip, address);
    }
  }
  if (repeated.size === 0) return listing;
  const listings = new Map<string, ListedIn[]>();
  for (const [subset, { addresses }] of subsets.entries()) {
    for (const address of addresses) {
      const ip = canonicalIP(address.ip);
      if (!repeated.has(ip)) continue;
      const there = listings.get(ip);
      if (there === undefined) listings.set(ip, [{ address, subset }]);
      else there.push({ address, subset });
    }
  }
  for (const [ip, there] of listings) {
    const entries = repack(there);
    listing.set(ip, entries.length === 1 && entries[0] !== undefined ? entries[0] : entries);
  }
  return listing;
}
