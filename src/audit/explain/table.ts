// One Service as a table: a row for each address of each pod that it selects and for each address
// that something lists, with what is expected of it, what stands of it in the Endpoints and in each
// slice, and what the audit holds against that. What differs comes first.
//
// Nothing is judged here: what is expected the chain says (chain.ts), what stands stands.ts, what
// differs the items of the ledger. A table is shown in pages, and only the rows of one are made, so
// that a Service with thousands of pods costs no more than one with a hundred.

import { canonicalIP, parseIP } from '../../model/ip.ts';
import type { EndpointSlice, Key, Pod, Service } from '../../model/objects.ts';
import { expectedAddress, isSelected } from '../../shadow/endpoints.ts';
import type { PendingDifference } from '../pending/pending.ts';
import type { AuditContext, Role, ServiceState } from '../service/cache.ts';
import { nodeOf, roleOf } from '../service/cache.ts';
import type { ServiceAudit } from '../service/reconcile.ts';
import type { ListingPlace, EntryState } from './condition.ts';
import { evaluateConditions, decidingCondition } from './conditions.ts';
import type { ObservedEntry } from './observed.ts';
import { entriesAt } from './observed.ts';

/** A slice as a column. */
export interface SliceColumn {
  readonly name: string;
  readonly addressType: string;
  /** null: nobody's any more. */
  readonly role: Role | null;
  readonly endpoints: number;
}

export interface ServiceTableRow {
  /** In canonical form; '' for a pod without any. */
  readonly address: string;
  /** The pod that is selected, or that an entry names; null: none. */
  readonly pod: Key | null;
  /** It is one that the Service selects. */
  readonly selected: boolean;
  readonly node: string;
  /** null: nothing is expected of the controllers there, or it is not known what. */
  readonly expected: {
    readonly endpoints: EntryState | null;
    readonly slices: EntryState | null;
  };
  /** What keeps traffic from the pod, of what is expected; null: nothing. */
  readonly why: string | null;
  readonly entries: readonly ObservedEntry[];
  readonly items: readonly PendingDifference[];
}

export interface ServiceTable {
  readonly slices: readonly SliceColumn[];
  readonly rows: readonly ServiceTableRow[];
  /** Rows of all pages, and how many of them differ. */
  readonly total: number;
  readonly differing: number;
}

/** Which row it is, before it is made. */
interface Spot {
  readonly address: string;
  readonly pod: Pod | null;
}

/** The rows from the `from`-th on, at most `most`; `of` is what the ledger holds of the Service. */
export function serviceTable(
  context: AuditContext,
  of: ServiceAudit,
  from: number,
  most: number,
): ServiceTable {
  const { record } = of;
  const byAddress = itemsByAddress(of);
  const all = placesIn(record, byAddress.keys());
  const slices = record.slices.map((slice) => columnOf(context, record, slice));
  return {
    slices,
    rows: all.slice(from, from + most).map((place) => rowOf(context, of, place, byAddress)),
    total: all.length,
    differing: all.filter(({ address }) => byAddress.has(address)).length,
  };
}

function columnOf(context: AuditContext, record: ServiceState, slice: EndpointSlice): SliceColumn {
  const { name, addressType, endpoints } = slice;
  const role = roleOf(context.listers, record, slice);
  return { name, addressType, role, endpoints: endpoints.length };
}

/** What is held against single addresses. */
function itemsByAddress({ items }: ServiceAudit): Map<string, PendingDifference[]> {
  const found = new Map<string, PendingDifference[]>();
  for (const [unit, there] of items) {
    const [kind, address] = unit.split(' ');
    if (address === undefined || kind === 'slice') continue;
    found.set(address, [...(found.get(address) ?? []), ...there]);
  }
  return found;
}

/** Every row, those that differ first, then those of selected pods by name, then the others. */
function placesIn(record: ServiceState, differing: Iterable<string>): Spot[] {
  const members = new Map<string, Pod[]>();
  const without: Spot[] = [];
  const pods = [...record.members].sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const pod of pods) {
    if (pod.ips.length === 0) without.push({ address: '', pod });
    for (const ip of pod.ips) {
      const address = canonicalIP(ip);
      members.set(address, [...(members.get(address) ?? []), pod]);
    }
  }
  const rows: Spot[] = [];
  const seen = new Set<string>();
  const add = (address: string): void => {
    if (seen.has(address)) return;
    seen.add(address);
    const owners = members.get(address);
    if (owners === undefined) rows.push({ address, pod: null });
    else for (const pod of owners) rows.push({ address, pod });
  };
  for (const address of [...differing].sort()) add(address);
  for (const address of members.keys()) add(address);
  for (const { addresses } of record.endpoints?.subsets ?? []) {
    for (const { ip } of addresses) add(canonicalIP(ip));
  }
  for (const { endpoints } of record.slices) {
    for (const { addresses } of endpoints) for (const one of addresses) add(canonicalIP(one));
  }
  return [...rows, ...without];
}

function rowOf(
  context: AuditContext,
  of: ServiceAudit,
  { address, pod }: Spot,
  byAddress: ReadonlyMap<string, readonly PendingDifference[]>,
): ServiceTableRow {
  const { record } = of;
  const stands = address === '' ? [] : entriesAt(context.listers, record, address);
  const own = pod === null ? stands : stands.filter((one) => (one.pod ?? pod.key) === pod.key);
  const named = stands.find((stand) => stand.pod !== null)?.pod ?? null;
  const { expected, why } = expectedAt(context, record.service, pod, address);
  const other = context.listers.pods.get(named ?? '');
  return {
    address,
    pod: pod?.key ?? named,
    selected: pod !== null,
    node: pod?.node ?? other?.node ?? '',
    expected,
    why,
    // An address that two pods have is listed for one of them, and both rows must show it.
    entries: own.length === 0 ? stands : own,
    items: byAddress.get(address) ?? [],
  };
}

function expectedAt(
  { listers, release }: AuditContext,
  service: Service | null,
  pod: Pod | null,
  address: string,
): Pick<ServiceTableRow, 'expected' | 'why'> {
  const isTheirs = service !== null && isSelected(service);
  if (!isTheirs || !listers.knows('pods')) {
    return { expected: { endpoints: null, slices: null }, why: null };
  }
  if (pod === null) return { expected: { endpoints: 'absent', slices: 'absent' }, why: null };
  const chain = evaluateConditions({ service, pod, node: nodeOf(listers, pod) }, release);
  const family = parseIP(address)?.family ?? null;
  const at = (place: ListingPlace | null): EntryState | null =>
    chain.expected.find((outcome) => outcome.place === place)?.state ?? null;
  // The Endpoints list one address of a pod; of the others nothing is expected there.
  const listed = expectedAddress(service, pod, release)?.ip ?? null;
  const elsewhere = listed !== null && listed !== address;
  const slices = family === null ? 'absent' : at(family);
  const why = decidingCondition(chain, family !== null && slices !== null ? family : 'endpoints');
  return {
    expected: { endpoints: elsewhere ? null : at('endpoints'), slices },
    why: why?.text ?? null,
  };
}
