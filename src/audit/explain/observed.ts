// Lists the actual entries of a Service: addresses of its Endpoints and endpoints of its slices,
// with the pod that each names, and the differences that concern one pod. It compares nothing.

import { canonicalIP } from '../../model/ip.ts';
import type { Endpoint, EndpointSlice, Key, Listers, ObjectRef, Pod } from '../../model/objects.ts';
import { label } from '../../model/objects.ts';
import { isSelected, repack } from '../../shadow/endpoints.ts';
import { isControllers, isOwnedBy } from '../../shadow/endpointslice.ts';
import type { Role, ServiceState } from '../service/cache.ts';
import { isMember, roleOf } from '../service/cache.ts';
import { isReady, portsText, readyText, sliceObject } from '../service/compare.ts';
import type { ServiceAudit, ServiceDifference } from '../service/reconcile.ts';
import type { EntryState, ListingPlace } from './conditions.ts';
import { entryStates, stateOf } from './conditions.ts';
import type { Reason } from './explanation.ts';
import { note } from './explanation.ts';

/** One entry at one address. */
export interface ObservedEntry {
  /** null if the endpointslice controller does not manage the slice. */
  readonly place: ListingPlace | null;
  /** The manager of the object if `place` is null. */
  readonly manager: string;
  readonly object: string;
  readonly address: string;
  /** The pod that the entry names, `namespace/name`; null if it names none. */
  readonly pod: Key | null;
  readonly state: EntryState;
  readonly text: string;
}

export const entryNote = ({ object, text }: ObservedEntry, end = ''): Reason =>
  note(`${object}: ${text}${end}`, { object });

/** Selects entries by address, in canonical form, and by the pod that they name. */
export type EntryFilter = (address: string, pod: Key | null) => boolean;

const podNamed = (target: ObjectRef | null): Key | null =>
  target?.kind === 'Pod' ? `${target.namespace}/${target.name}` : null;

/** The entries of the Endpoints, repacked as the controller does if an address is listed twice. */
function addressEntries(record: ServiceState, filter: EntryFilter): ObservedEntry[] {
  const { endpoints, key, service } = record;
  const listings = (endpoints?.subsets ?? []).flatMap(({ addresses }, subset) =>
    addresses.map((address) => ({ address, subset })),
  );
  const byAddress = Map.groupBy(listings, ({ address }) => canonicalIP(address.ip));
  return [...byAddress].flatMap(([address, group]) => {
    const listed = group.length > 1 ? repack(group) : group.map((listing) => listing.address);
    return listed
      .filter(({ target }) => filter(address, podNamed(target)))
      .map(({ ready, ports, target }) => ({
        place: 'endpoints',
        manager: '',
        object: `Endpoints ${key}`,
        address,
        pod: podNamed(target),
        state: ready ? stateOf(service, true, ports.length) : 'not-ready',
        text: `${address}, ${readyText(ready)}, ${portsText(ports)}`,
      }));
  });
}

function endpointText(endpoint: Endpoint, { ports }: EndpointSlice): string {
  const { addresses, terminating, forZones, forNodes } = endpoint;
  const hints = [
    ...(forZones ?? []).map((zone) => `zone ${zone}`),
    ...(forNodes ?? []).map((node) => `Node ${node}`),
  ].join(', ');
  const ready = readyText(isReady(endpoint)) + (terminating === true ? ', terminating' : '');
  const hint = hints === '' ? '' : `, hint for ${hints}`;
  return `${addresses.join(', ')}, ${ready}, ${portsText(ports)}${hint}`;
}

function sliceEntries(
  listers: Listers,
  record: ServiceState,
  slice: EndpointSlice,
  filter: EntryFilter,
): ObservedEntry[] {
  const role = roleOf(listers, record, slice);
  const place = role === 'controller' ? slice.addressType : null;
  const common = { place, manager: managerText(role, slice), object: sliceObject(slice) };
  return slice.endpoints.flatMap((endpoint) => {
    const pod = podNamed(endpoint.target);
    return [...new Set(endpoint.addresses.map(canonicalIP))]
      .filter((address) => filter(address, pod))
      .map((address) => ({
        ...common,
        address,
        pod,
        state: stateOf(record.service, isReady(endpoint), slice.ports.length),
        text: endpointText(endpoint, slice),
      }));
  });
}

/** The entries of a Service that the filter takes: those of its Endpoints, then of its slices. */
export const observedEntries = (
  listers: Listers,
  record: ServiceState,
  filter: EntryFilter,
): ObservedEntry[] => [
  ...addressEntries(record, filter),
  ...record.slices.flatMap((slice) => sliceEntries(listers, record, slice, filter)),
];

/** The entries that name a pod, and those at its addresses that name no pod. */
export function entriesOfPod(listers: Listers, record: ServiceState, pod: Pod): ObservedEntry[] {
  const ips = new Set(pod.ips.map(canonicalIP));
  return observedEntries(listers, record, (address, named) =>
    named === null ? ips.has(address) : named === pod.key,
  );
}

/** The state of a pod at a place: that of its best entry, because one entry brings traffic. */
export function observedState(entries: readonly ObservedEntry[], place: ListingPlace): EntryState {
  const states = entries.filter((entry) => entry.place === place).map(({ state }) => state);
  return entryStates.findLast((state) => states.includes(state)) ?? 'absent';
}

/**
 * The Services that list one of these addresses, which are in canonical form. A Service without
 * differences lists only the addresses of its own pods, so its entries need no scan.
 */
export function servicesListing(
  listers: Listers,
  audited: Iterable<ServiceAudit>,
  addresses: readonly string[],
): ServiceAudit[] {
  const pods = addresses.flatMap((ip) => listers.podsAt(ip));
  const isListed = (text: string): boolean => addresses.includes(canonicalIP(text));
  return [...audited].filter((service) => {
    const { endpoints, slices } = service.record;
    if (isConform(service) && !pods.some((pod) => isMember(service.record, pod))) return false;
    const subsets = endpoints?.subsets ?? [];
    return (
      subsets.some((subset) => subset.addresses.some(({ ip }) => isListed(ip))) ||
      slices.some((slice) => slice.endpoints.some((endpoint) => endpoint.addresses.some(isListed)))
    );
  });
}

/** Whether all entries of a Service are compared, and none differs. */
function isConform({ record: { service, name, slices }, items, unknown }: ServiceAudit): boolean {
  if (service === null || service.deleting || !isSelected(service)) return false;
  const isCompared = (slice: EndpointSlice): boolean =>
    isControllers(slice) && slice.labels[label.serviceName] === name && isOwnedBy(slice, service);
  return items.size === 0 && unknown.size === 0 && slices.every(isCompared);
}

/** The manager of a slice. */
export function managerText(role: Role | null, { labels }: EndpointSlice): string {
  if (role === 'mirror') return 'mirrored from Endpoints';
  if (role !== 'foreign') return 'no slice of this Service any more';
  const manager = labels[label.sliceManagedBy] ?? '';
  return `managed by ${manager || 'nobody'}`;
}

/**
 * The differences of a Service that concern a pod: those at its addresses and at the addresses of
 * its entries, without those of another pod at the same address.
 */
export function itemsAbout(
  listers: Listers,
  audited: ServiceAudit,
  pod: Pod,
  entries: readonly ObservedEntry[],
): ServiceDifference[] {
  const ips = new Set([...pod.ips.map(canonicalIP), ...entries.map(({ address }) => address)]);
  return [...audited.items].flatMap(([unit, items]) => {
    const [kind, address] = unit.split(' ');
    if (address === undefined) {
      // A difference of the Service as a whole.
      return items.filter(({ difference: { code, subject } }) => {
        if (code === 'endpoints-missing' || subject === pod.uid) return true;
        if (code === 'left-behind' || code === 'left-behind-dead') return entries.length > 0;
        return code.startsWith('mirror-') && ips.has(subject.split(' ')[0] ?? '');
      });
    }
    if (kind === 'slice' || !ips.has(address)) return [];
    const others = listers.podsAt(address).filter((other) => other !== pod);
    return items.filter(({ difference: { subject } }) => {
      const isAbout = ({ name, uid }: Pod): boolean => subject === name || subject.endsWith(uid);
      return isAbout(pod) || !others.some(isAbout);
    });
  });
}
