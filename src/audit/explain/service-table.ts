// A Service as a table: a row for each address of each selected pod, and for each other address
// that the Service lists, with the expected entry and the actual ones.

import { getOrInsert } from '../../model/collections.ts';
import { canonicalIP, parseIP } from '../../model/ip.ts';
import type { Listers, Pod, Service } from '../../model/objects.ts';
import { expectedAddress, isSelected } from '../../shadow/endpoints.ts';
import type { AuditContext, ServiceState } from '../service/cache.ts';
import { nodeOf, podsOf, roleOf } from '../service/cache.ts';
import { type ServiceAudit, type ServiceDifference, unitAddress } from '../service/reconcile.ts';
import { decidingCondition, type EntryState, evaluateConditions } from './conditions.ts';
import { observedEntries } from './pod-in-service.ts';

export type ServiceTable = ReturnType<typeof serviceTable>;
export type ServiceTableRow = ServiceTable['rows'][number];

/** At most `most` rows, beginning with the row of index `from`, or those of the last page. */
export function serviceTable(
  input: AuditContext,
  audited: ServiceAudit,
  from: number,
  most: number,
) {
  const { listers } = input;
  const { record } = audited;
  const items = itemsByAddress(audited);
  const all = placesIn(listers, record, items.keys());
  // Rows may be gone since a link was made.
  const first = Math.min(from, Math.max(0, Math.ceil(all.length / most) - 1) * most);
  const page = all.slice(first, first + most);
  const addresses = new Set(page.map(({ address }) => address));
  const entries = Map.groupBy(
    observedEntries(listers, record, (address) => addresses.has(address)),
    ({ address }) => address,
  );
  return {
    /** The index of the first of these rows. */
    from: first,
    /** Each slice as a column; the role is null if it belongs to no Service any more. */
    slices: record.slices.map((slice) => ({
      name: slice.name,
      addressType: slice.addressType,
      role: roleOf(listers, record, slice),
      endpoints: slice.endpoints.length,
    })),
    rows: page.map(({ address, pod }) => {
      const found = entries.get(address) ?? [];
      const named = found.find((entry) => entry.pod !== null)?.pod ?? null;
      const ofPod = pod === null ? [] : found.filter((entry) => (entry.pod ?? pod.key) === pod.key);
      return {
        /** In canonical form; '' for a pod without an address. */
        address,
        /** The selected pod, or the pod that an entry names; null without either. */
        pod: pod?.key ?? named,
        selected: pod !== null,
        node: (pod ?? listers.pods.get(named ?? ''))?.node ?? '',
        ...expectedAt(input, record.service, pod, address),
        // If two pods have the address, an entry names one of them, and both rows show it.
        entries: ofPod.length === 0 ? found : ofPod,
        items: items.get(address) ?? [],
      };
    }),
    total: all.length,
    differing: all.filter(({ address }) => items.has(address)).length,
  };
}

function itemsByAddress({ items }: ServiceAudit): Map<string, ServiceDifference[]> {
  const found = new Map<string, ServiceDifference[]>();
  for (const [unit, differences] of items) {
    const address = unitAddress(unit);
    if (address !== null) getOrInsert(found, address, () => []).push(...differences);
  }
  return found;
}

type Place = Readonly<{ address: string; pod: Pod | null }>;

/** Places that differ come first. */
function placesIn(listers: Listers, record: ServiceState, differing: Iterable<string>): Place[] {
  const pods = [...podsOf(listers, record)].sort((a, b) => (a.name < b.name ? -1 : 1));
  const owned = pods.flatMap((pod) => pod.ips.map((ip) => ({ address: canonicalIP(ip), pod })));
  const owners = Map.groupBy(owned, ({ address }) => address);
  const endpoints = (record.endpoints?.subsets ?? []).flatMap(({ addresses }) => addresses);
  const sliced = record.slices.flatMap((slice) => slice.endpoints);
  const addresses = new Set([
    ...[...differing].sort(),
    ...owners.keys(),
    ...endpoints.map(({ ip }) => canonicalIP(ip)),
    ...sliced.flatMap((endpoint) => endpoint.addresses.map(canonicalIP)),
  ]);
  const without = pods.filter(({ ips }) => ips.length === 0);
  return [
    ...[...addresses].flatMap(
      (address): Place[] => owners.get(address) ?? [{ address, pod: null }],
    ),
    ...without.map((pod) => ({ address: '', pod })),
  ];
}

/** null: nothing is expected there, or the pods are unknown. `why`: what keeps traffic from it. */
function expectedAt(
  { listers, release }: AuditContext,
  service: Service | null,
  pod: Pod | null,
  address: string,
): { expected: Record<'endpoints' | 'slices', EntryState | null>; why: string | null } {
  const isKnown = service !== null && isSelected(service) && listers.knows('pods');
  if (!isKnown || pod === null) {
    const state = isKnown ? 'absent' : null;
    return { expected: { endpoints: state, slices: state }, why: null };
  }
  const pair = { service, pod, node: nodeOf(listers, pod) };
  const { conditions, expected } = evaluateConditions(pair, release);
  const family = parseIP(address)?.family;
  const slices = family === undefined ? 'absent' : (expected.get(family) ?? null);
  const place = family !== undefined && slices !== null ? family : 'endpoints';
  const why = decidingCondition(conditions, [place, expected.get(place) ?? 'absent']);
  // Endpoints list one address of a pod; nothing is expected of its other addresses there.
  const listed = expectedAddress(service, pod, release)?.ip ?? address;
  const endpoints = listed === address ? (expected.get('endpoints') ?? null) : null;
  return { expected: { endpoints, slices }, why: why?.reason.text ?? null };
}
