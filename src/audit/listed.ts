// What the Endpoints of a Service list at each address in canonical form: nearly always one entry.
//
// A few addresses are quickly looked through; only of larger objects an index is kept, since what
// is kept for every address of a cluster is much.

import { equalPort, equalPorts, equalRefs } from '../model/equal.ts';
import { canonicalIP, isAt } from '../model/ip.ts';
import type { Endpoints } from '../model/objects.ts';
import type { ListedAddress } from './compare.ts';
import type { ServiceRecord } from './service.ts';

type Listed = ListedAddress | readonly ListedAddress[];

/** Endpoints address by address. */
export type Listing = ReadonlyMap<string, Listed>;

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
export function listedAt(record: ServiceRecord, ip: string): readonly ListedAddress[] {
  const { endpoints } = record;
  if (endpoints === null) return noneListed;
  if (record.listed === null && !isFew(endpoints)) record.listed = listingOf(endpoints);
  if (record.listed !== null) return asList(record.listed.get(ip));
  let there: Listed | undefined;
  for (const { addresses } of endpoints.subsets) {
    for (const address of addresses) if (isAt(address.ip, ip)) there = joined(there, address);
  }
  return asList(there);
}

/** Takes in a new version of the Endpoints. */
export function setEndpoints(record: ServiceRecord, endpoints: Endpoints | null): void {
  record.endpoints = endpoints;
  record.roles = null;
  record.handWritten = null;
  record.listed = null;
}

/** Takes in a new version of the Endpoints; returns the addresses at which it differs. */
export function replaceEndpoints(record: ServiceRecord, endpoints: Endpoints | null): Set<string> {
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
export function spreadListed(record: ServiceRecord): Listing {
  return (record.listed ??= listingOf(record.endpoints));
}

export function foldListed(record: ServiceRecord): void {
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

function listingOf(endpoints: Endpoints | null): Listing {
  const listing = new Map<string, Listed>();
  for (const { addresses } of endpoints?.subsets ?? []) {
    for (const address of addresses) {
      const ip = canonicalIP(address.ip);
      listing.set(ip, joined(listing.get(ip), address));
    }
  }
  return listing;
}

/** Adds an address of one more subset to what is listed there. */
function joined(there: Listed | undefined, address: ListedAddress): Listed {
  if (there === undefined) return address;
  const entries = asList(there);
  const index = entries.findIndex((one) => isOneWith(one, address));
  const known = entries[index];
  if (known === undefined) return [...entries, address];
  const ports = [...known.ports, ...address.ports];
  const merged = { ...known, ports, ready: known.ready && address.ready };
  return entries.length === 1 ? merged : entries.with(index, merged);
}

/**
 * Whether an address under other ports belongs to the same entry. Not ready trumps ready at one
 * port; at two ports they are two entries, as repacking has it.
 */
function isOneWith(known: ListedAddress, { target, ready, ports }: ListedAddress): boolean {
  if (known.target?.uid !== target?.uid) return false;
  return known.ready === ready || ports.some((a) => known.ports.some((b) => equalPort(a, b)));
}
