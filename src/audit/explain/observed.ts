// What stands of one pod: its entries in the Endpoints and slices of a Service, whoever wrote them,
// and the differences that the audit holds against them. What is compared and judged, compare.ts
// and the judges say; here it is only looked up.

import { canonicalIP, isAt } from '../../model/ip.ts';
import type {
  Endpoint,
  EndpointSlice,
  ObjectRef,
  Pod,
  Service,
  Listers,
} from '../../model/objects.ts';
import { label, portText } from '../../model/objects.ts';
import { isSelected } from '../../shadow/endpoints.ts';
import { isControllers, isOwnedBy } from '../../shadow/endpointslice.ts';
import type { PendingDifference } from '../pending/pending.ts';
import { dropIndex, listedAt, buildIndex } from '../service/address-index.ts';
import type { Role, ServiceState } from '../service/cache.ts';
import { roleOf, slicesAt } from '../service/cache.ts';
import type { ListedAddress } from '../service/compare.ts';
import { isReady, sliceObject } from '../service/compare.ts';
import type { ServiceAudit } from '../service/reconcile.ts';
import type { ListingPlace, EntryState } from './condition.ts';
import { entryStates } from './condition.ts';

/** One entry for a pod, or for an address. */
export interface ObservedEntry {
  /** Where it counts; null: it is another manager's, or nobody's. */
  readonly place: ListingPlace | null;
  readonly role: Role | null;
  readonly object: string;
  readonly address: string;
  /** The pod that the entry names, `namespace/name`; null: none. */
  readonly pod: string | null;
  readonly state: EntryState;
  readonly text: string;
}

const portsText = (ports: readonly { name: string | null }[], texts: readonly string[]): string =>
  ports.length === 0 ? 'no ports' : texts.join(', ');

const podNamed = (target: ObjectRef | null): string | null =>
  target?.kind === 'Pod' ? `${target.namespace}/${target.name}` : null;

function listedStand(record: ServiceState, ip: string, listed: ListedAddress): ObservedEntry {
  const { ready, ports, target } = listed;
  return {
    place: 'endpoints',
    role: null,
    object: `Endpoints ${record.key}`,
    address: ip,
    pod: podNamed(target),
    state: ready ? standing(record, ports.length) : 'not-ready',
    text: `${ip}, ${ready ? 'ready' : 'not ready'}, ${portsText(ports, ports.map(portText))}`,
  };
}

/** As step.ts has it, of what stands. */
function standing({ service }: ServiceState, ports: number): EntryState {
  const wanted = service?.ports.length ?? 0;
  if (ports === 0 && (wanted > 0 || service?.clusterIP !== 'None')) return 'no-ports';
  return ports < wanted ? 'fewer-ports' : 'ready';
}

function hintText({ forZones, forNodes }: Endpoint): string {
  const zones = (forZones ?? []).map((zone) => `zone ${zone}`);
  const nodes = (forNodes ?? []).map((node) => `Node ${node}`);
  const hints = [...zones, ...nodes];
  return hints.length === 0 ? '' : `, hint for ${hints.join(', ')}`;
}

function slicedStand(
  listers: Listers,
  record: ServiceState,
  slice: EndpointSlice,
  endpoint: Endpoint,
): ObservedEntry {
  const role = roleOf(listers, record, slice);
  const ready = isReady(endpoint);
  const end = endpoint.terminating === true ? ', terminating' : '';
  const conditions = `${ready ? 'ready' : 'not ready'}${end}`;
  const ports = portsText(slice.ports, slice.ports.map(portText));
  const { target } = endpoint;
  const whole = standing(record, slice.ports.length);
  return {
    place: role === 'controller' ? slice.addressType : null,
    role,
    object: sliceObject(slice),
    address: canonicalIP(endpoint.addresses[0] ?? ''),
    pod: podNamed(target),
    state: whole === 'no-ports' || ready ? whole : 'not-ready',
    text: `${endpoint.addresses.join(', ')}, ${conditions}, ${ports}${hintText(endpoint)}`,
  };
}

const isOf = ({ addresses }: Endpoint, address: string): boolean =>
  addresses.some((one) => isAt(one, address));

/** Whether the Endpoints or any slice of a Service list an address. */
function isListedIn(record: ServiceState, address: string): boolean {
  if (listedAt(record, address).length > 0) return true;
  return slicesAt(record, address).some(({ endpoints }) =>
    endpoints.some((endpoint) => isOf(endpoint, address)),
  );
}

/**
 * The Services that list one of these addresses, which are in canonical form. A Service of which
 * nothing differs and nothing is unknown lists its own pods' addresses and no others, so that its
 * entries need not be looked at; that keeps it from being a look at every address of a cluster.
 */
export function servicesListing(
  listers: Listers,
  audited: Iterable<ServiceAudit>,
  addresses: readonly string[],
): ServiceAudit[] {
  const selecting = new Set(
    addresses
      .flatMap((ip) => listers.podsAt(ip))
      .flatMap(({ namespace, labels }) => listers.servicesSelecting(namespace, labels))
      .map(({ key }) => key),
  );
  const found: ServiceAudit[] = [];
  for (const of of audited) {
    const { service } = of.record;
    if (service !== null && !selecting.has(of.record.key) && isInOrder(of, service)) continue;
    if (addresses.some((ip) => isListedIn(of.record, ip))) found.push(of);
  }
  return found;
}

/** Whether all that stands of a Service is judged, and is as it must be. */
function isInOrder({ record, items, unknown }: ServiceAudit, service: Service): boolean {
  if (items.size > 0 || unknown.size > 0 || service.deleting || !isSelected(service)) return false;
  return record.slices.every(
    (slice) =>
      isControllers(slice) &&
      slice.labels[label.serviceName] === record.name &&
      isOwnedBy(slice, service),
  );
}

/** The entries at an address, found through the indexes of the record where it has any. */
export function entriesAt(
  listers: Listers,
  record: ServiceState,
  address: string,
): ObservedEntry[] {
  const stands = listedAt(record, address).map((one) => listedStand(record, address, one));
  for (const slice of slicesAt(record, address)) {
    for (const endpoint of slice.endpoints) {
      if (!isOf(endpoint, address)) continue;
      stands.push({ ...slicedStand(listers, record, slice, endpoint), address });
    }
  }
  return stands;
}

/** Every entry of a Service that `wanted` takes by its address or by the pod that it names. */
export function entriesMatching(
  listers: Listers,
  record: ServiceState,
  wanted: (address: string, pod: string | null) => boolean,
): ObservedEntry[] {
  const stands: ObservedEntry[] = [];
  for (const [ip, listed] of buildIndex(record)) {
    for (const one of 'ip' in listed ? [listed] : listed) {
      if (wanted(ip, podNamed(one.target))) stands.push(listedStand(record, ip, one));
    }
  }
  dropIndex(record);
  for (const slice of record.slices) {
    for (const endpoint of slice.endpoints) {
      const pod = podNamed(endpoint.target);
      for (const one of endpoint.addresses) {
        const address = canonicalIP(one);
        if (!wanted(address, pod)) continue;
        stands.push({ ...slicedStand(listers, record, slice, endpoint), address });
      }
    }
  }
  return stands;
}

/** The entries of a pod: those that name it, and those at its addresses that name no other pod. */
export function entriesOfPod(listers: Listers, record: ServiceState, pod: Pod): ObservedEntry[] {
  const ips = new Set(pod.ips.map(canonicalIP));
  return entriesMatching(listers, record, (address, named) =>
    named === null ? ips.has(address) : named === pod.key,
  );
}

/** How a pod stands at a place: by the best of its entries, as traffic has it. */
export function observedState(stands: readonly ObservedEntry[], place: ListingPlace): EntryState {
  const there = stands
    .filter((stand) => stand.place === place)
    .map(({ state: standing }) => standing);
  return entryStates.findLast((one) => there.includes(one)) ?? 'absent';
}

/** Who manages a slice, for people. */
export function managerText(role: Role | null, slice: EndpointSlice | undefined): string {
  if (role === 'mirror') return 'mirrored from Endpoints';
  if (role !== 'foreign') return 'no slice of this Service any more';
  const by = slice?.labels[label.sliceManagedBy];
  return by === undefined || by === '' ? 'managed by nobody' : `managed by ${by}`;
}

const ofService: ReadonlySet<string> = new Set(['endpoints-missing']);

/**
 * The differences that stand about a pod of a Service: at its addresses and at the addresses where
 * entries name it, but for those about another pod there.
 */
export function itemsAbout(
  listers: Listers,
  of: ServiceAudit,
  pod: Pod,
  stands: readonly ObservedEntry[],
): PendingDifference[] {
  const ips = new Set([...pod.ips.map(canonicalIP), ...stands.map(({ address }) => address)]);
  const found: PendingDifference[] = [];
  for (const [unit, items] of of.items) {
    const [kind = '', address] = unit.split(' ');
    if (address === undefined) {
      for (const item of items) if (isWholeAbout(item, pod, ips, stands)) found.push(item);
    } else if (kind !== 'slice' && ips.has(address)) {
      const others = listers.podsAt(address).filter((other) => other !== pod);
      for (const item of items) {
        const { subject } = item.difference;
        const elsewhere = others.some(({ name, uid }) => subject === name || subject.endsWith(uid));
        const here = subject === pod.name || subject.endsWith(pod.uid);
        if (here || !elsewhere) found.push(item);
      }
    }
  }
  return found;
}

/** Whether a difference of the Service as a whole is about this pod too. */
function isWholeAbout(
  { difference: { code, subject } }: PendingDifference,
  pod: Pod,
  ips: ReadonlySet<string>,
  stands: readonly ObservedEntry[],
): boolean {
  if (ofService.has(code) || subject === pod.uid) return true;
  if (code === 'left-behind' || code === 'left-behind-dead') return stands.length > 0;
  return code.startsWith('mirror-') && ips.has(subject.split(' ')[0] ?? '');
}
