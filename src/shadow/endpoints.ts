// Shadows the endpoints controller: pkg/controller/endpoint/endpoints_controller.go and
// pkg/api/v1/endpoints/util.go (RepackSubsets) of k8s.io/kubernetes@v1.36.3; release.ts has the
// differences between releases.
//
// The controller repacks (address, port) pairs into subsets: ports with the same addresses share a
// subset. Since 1.35 it accepts any other packing of the same pairs; before, it writes its own. So
// the shadow expects an address with ports for each pod, and ignores order and hashes.
//
// Above 1,000 addresses over all subsets the object is truncated. Which addresses remain is
// arbitrary; how many of each subset remain is not, except for the order of the subsets.
//
// Left out: resourceVersion of targetRef (ignored upstream), the trigger-time annotation (it
// depends on batches of changes), annotations of others (kept upstream), pods with two Service
// ports of the same name and number (the API forbids them).

import { getOrInsert } from '../model/collections.ts';
import { familyOf } from '../model/ip.ts';
import type { EndpointAddress, Endpoints, Labels, Pod, Port, Service } from '../model/objects.ts';
import { label, manager, portKey } from '../model/objects.ts';
import { addressesOf, carriesHostname, isListed, resolvePorts } from './pod.ts';
import type { Release } from './release.ts';

/** The limit of addresses in one Endpoints object (maxCapacity). */
export const endpointsCapacity = 1000;

export type ExpectedAddress = Readonly<NonNullable<ReturnType<typeof expectedAddress>>>;

export const isSelected = (service: Service): boolean =>
  service.selector !== null && service.type !== 'ExternalName';

/** Whether no IP is set: such a Service is headless for the labels of what is written. */
export const isHeadless = (service: Service): boolean =>
  service.clusterIP === '' || service.clusterIP === 'None';

/** `IPv6`, or anything else for IPv4. */
export function primaryFamily(service: Service, pod: Pod): string {
  const first = service.ipFamilies[0];
  if (first !== undefined) return first;
  const address = isHeadless(service) ? (pod.ips[0] ?? '') : service.clusterIP;
  return familyOf(address);
}

/**
 * The address of a selected pod in the Service's Endpoints; null if the pod is terminal or
 * terminating, or has no address of the primary family or none of the Service's ports.
 * `endpoints_controller.go` syncService, podToEndpointAddressForService.
 */
export function expectedAddress(service: Service, pod: Pod, release: Release) {
  if (!isListed(pod, service.publishNotReadyAddresses)) return null;
  const [ip] = addressesOf(pod, primaryFamily(service, pod) === 'IPv6' ? 'IPv6' : 'IPv4');
  if (ip === undefined) return null;
  const { ports, portMap } = resolvePorts(service, pod, release.sidecarPortsInEndpoints);
  // Only a headless Service may have no ports; with ports, a pod that has none of them is left out.
  if (ports.length === 0 && (service.ports.length > 0 || service.clusterIP !== 'None')) return null;
  return {
    ip,
    ready: service.publishNotReadyAddresses || pod.ready,
    node: pod.node,
    hostname: carriesHostname(service, pod) ? pod.hostname : '',
    pod,
    ports,
    portMap,
  };
}

/**
 * The labels of the object: those of the Service verbatim, and two of the controller's own. `got`
 * are those that it has: during an upgrade, it may have the label of the newer controllers.
 */
export function expectedLabels(service: Service, release: Release, got: Labels = {}): Labels {
  const labels: Record<string, string> = { ...service.labels };
  // oxlint-disable-next-line typescript/no-dynamic-delete -- a fresh copy
  delete labels[label.headless];
  if (isHeadless(service)) labels[label.headless] = '';
  const isManaged = got[label.endpointsManagedBy] === manager.endpoints;
  if (release.endpointsManagedBy ?? isManaged) labels[label.endpointsManagedBy] = manager.endpoints;
  return labels;
}

/** An address in Endpoints, with the index of its subset. */
export interface SubsetAddress {
  readonly address: EndpointAddress;
  readonly subset: number;
}

/** An address under a port, with all its other fields from its first entry. */
export interface ListedAddress {
  readonly address: EndpointAddress;
  ready: boolean;
}

/** A port and its addresses by their identity; the port is null in a subset without ports. */
interface PortListing {
  readonly port: Port | null;
  readonly listed: Map<string, ListedAddress>;
}

/**
 * The addresses of each port. An address with a ready and a not ready entry under one port is not
 * ready. Upstream compares ports with an appProtocol by pointer, so two subsets never share one.
 * `util.go` mapAddressByPort.
 */
export function addressesByPort(
  entries: readonly SubsetAddress[],
  identity: (address: EndpointAddress) => string,
): PortListing[] {
  const ports = new Map<string, PortListing>();
  const first = new Map<string, EndpointAddress>();
  for (const { address, subset } of entries) {
    const id = identity(address);
    const source = getOrInsert(first, id, () => address);
    for (const [index, port] of (address.ports.length > 0 ? address.ports : [null]).entries()) {
      const isShared = (port?.appProtocol ?? null) === null;
      const key = isShared ? (port ? portKey(port) : '') : `${String(subset)} ${String(index)}`;
      const { listed } = getOrInsert(ports, key, (): PortListing => ({ port, listed: new Map() }));
      const known = getOrInsert(listed, id, () => ({ address: source, ready: true }));
      known.ready &&= address.ready;
    }
  }
  return [...ports.values()];
}

const uidOf = ({ target }: EndpointAddress): string => target?.uid ?? '';

/**
 * Repacks the entries of one IP, as the controller does before it compares. Entries with one uid
 * are one address; if it has ready and not ready ports, it has two entries.
 */
export function repack(entries: readonly SubsetAddress[]): EndpointAddress[] {
  if (entries.length < 2) return entries.map(({ address }) => address);
  const all = addressesByPort(entries, uidOf);
  return [...new Set(entries.map(({ address }) => uidOf(address)))].flatMap((uid) =>
    [true, false].flatMap((ready) => {
      const same = all.filter(({ listed }) => listed.get(uid)?.ready === ready);
      const address = same[0]?.listed.get(uid)?.address;
      const ports = same.flatMap(({ port }) => port ?? []);
      return address === undefined ? [] : [{ ...address, ready, ports }];
    }),
  );
}

/**
 * Whether subsets are as repacking leaves them, apart from order: no pod twice under a port, no
 * contradiction, no two subsets with the same addresses. `util.go` RepackSubsets.
 */
export function isPacked({ subsets }: Endpoints): boolean {
  const idOf = (address: EndpointAddress): string => `${address.ip} ${uidOf(address)}`;
  const all = subsets.flatMap(({ addresses }) => addresses);
  const lists = subsets.map(({ addresses }) => addresses.map(idOf).sort().join());
  const pairs = all.flatMap((it) =>
    (it.ports.length === 0 ? [''] : it.ports.map(portKey)).map((key) => `${idOf(it)} ${key}`),
  );
  const facts = all.map((address) => JSON.stringify({ ...address, ports: null }));
  const [a, b, c, d] = [lists, pairs, facts, all.map(idOf)].map((keys) => new Set(keys).size);
  return a === lists.length && b === pairs.length && c === d;
}

/** Pods with one list of ports, as resolvePorts names them, that are ready or that are not. */
export interface PortGroup {
  readonly ports: readonly Port[];
  readonly ready: boolean;
  readonly pods: number;
}

export interface SubsetCounts {
  /** See portKey; empty for a subset without ports. */
  readonly portKeys: readonly string[];
  readonly ready: number;
  readonly notReady: number;
}

/** The sizes of the repacked subsets: ports that are offered by the same groups share a subset. */
export function subsetCounts(groups: readonly PortGroup[]): SubsetCounts[] {
  const offeredBy = new Map<string, { groups: PortGroup[]; ids: string }>();
  for (const [id, group] of groups.entries()) {
    const keys = group.ports.length === 0 ? [''] : group.ports.map(portKey);
    for (const key of keys) {
      const port = getOrInsert(offeredBy, key, () => ({ groups: [], ids: '' }));
      port.groups.push(group);
      port.ids += `${String(id)},`;
    }
  }
  const subsets = new Map<string, { portKeys: string[]; ready: number; notReady: number }>();
  for (const [key, { groups: all, ids }] of offeredBy) {
    const count = (isReady: boolean): number =>
      all.reduce((sum, { ready, pods }) => sum + (ready === isReady ? pods : 0), 0);
    const create = () => ({ portKeys: [], ready: count(true), notReady: count(false) });
    const subset = getOrInsert(subsets, ids, create);
    if (key !== '') subset.portKeys.push(key);
  }
  return [...subsets.values()];
}

export type Truncation = NonNullable<ReturnType<typeof truncation>>;

/**
 * How upstream truncates subsets of these sizes; null if they fit. Each subset keeps its share,
 * rounded up, until the capacity is used up. The order of subsets is by hash, so any is allowed.
 * `endpoints_controller.go` truncateEndpoints.
 */
export function truncation(subsets: readonly SubsetCounts[]) {
  const ready = subsets.reduce((sum, subset) => sum + subset.ready, 0);
  const notReady = subsets.reduce((sum, subset) => sum + subset.notReady, 0);
  if (ready + notReady <= endpointsCapacity) return null;
  /** Ready addresses are cut too, and no other remains. */
  const cutsReady = ready > endpointsCapacity;
  /** How many addresses of the cut kind (ready or not) remain over all subsets. */
  const kept = cutsReady ? endpointsCapacity : endpointsCapacity - ready;
  const share = (size: number): number => Math.ceil((size / (cutsReady ? ready : notReady)) * kept);
  /** The most addresses that remain of each subset. */
  const shares = subsets.map((subset) => ({
    portKeys: subset.portKeys,
    ready: cutsReady ? share(subset.ready) : subset.ready,
    notReady: cutsReady ? 0 : share(subset.notReady),
  }));
  return { subsets: shares, cutsReady, kept };
}

/**
 * Whether subsets of these sizes can remain after that truncation, in any order: the capacity is
 * used up, no subset has more than its share, and only one has a part of its share, since later
 * ones get nothing. `actual` is in the order of `allowed.subsets`.
 */
export function isTruncationOf(
  allowed: Truncation,
  actual: readonly { ready: number; notReady: number }[],
): boolean {
  const [cut, whole] = allowed.cutsReady
    ? (['ready', 'notReady'] as const)
    : (['notReady', 'ready'] as const);
  let kept = 0;
  let partial = 0;
  for (const [index, most] of allowed.subsets.entries()) {
    const subset = actual[index] ?? { ready: 0, notReady: 0 };
    if (subset[cut] > most[cut] || subset[whole] !== most[whole]) return false;
    if (subset[cut] > 0 && subset[cut] < most[cut]) partial++;
    kept += subset[cut];
  }
  return kept === allowed.kept && partial <= 1;
}
