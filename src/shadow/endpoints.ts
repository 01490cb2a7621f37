// Shadows the endpoints controller: pkg/controller/endpoint/endpoints_controller.go and
// pkg/api/v1/endpoints/util.go (RepackSubsets) of k8s.io/kubernetes@v1.36.3; differences between
// releases are in release.ts.
//
// The controller writes one Endpoints object per Service with a selector. Its subsets are a
// repacked form of (address, port) pairs: ports that have the same addresses share a subset. The
// controller itself accepts any other packing of the same pairs, so the shadow says per pod which
// address with which ports must stand there, and leaves packing, order and hashes alone.
//
// Above 1,000 address entries, counted over all subsets, the object is truncated. Which addresses
// survive is arbitrary, how many of each subset survive is not, up to the order of the subsets.
//
// Left out: resourceVersion of targetRef (ignored upstream), the trigger-time annotation (it
// depends on how changes were batched), annotations of others (kept upstream), pods in which two
// Service ports of the same name and number meet (the API forbids them).

import { parseIP } from '../model/ip.ts';
import type { EndpointAddress, Labels, Pod, Port, PortMapKey, Service } from '../model/objects.ts';
import { label, manager, portKey } from '../model/objects.ts';
import { carriesHostname, isListed, resolvePorts } from './pod.ts';
import type { Release } from './release.ts';

/** Addresses that one Endpoints object holds at most (maxCapacity). */
export const endpointsCapacity = 1000;

/** One pod as an Endpoints object must list it: the address under each of the ports. */
export interface ExpectedAddress {
  readonly ip: string;
  readonly ready: boolean;
  readonly node: string;
  readonly hostname: string;
  readonly pod: Pod;
  readonly ports: readonly Port[];
  readonly portMap: PortMapKey;
}

/** Whether the endpoints and endpointslice controllers write anything for this Service. */
export function isSelected(service: Service): boolean {
  return service.selector !== null && service.type !== 'ExternalName';
}

/** Whether no IP is set: such a Service is headless for the labels of what is written. */
export function isHeadless(service: Service): boolean {
  return service.clusterIP === '' || service.clusterIP === 'None';
}

/** The IP family of the Service's Endpoints: `IPv6`, or anything else for IPv4. */
export function primaryFamily(service: Service, pod: Pod): string {
  const first = service.ipFamilies[0];
  if (first !== undefined) return first;
  const address = isHeadless(service) ? (pod.ips[0] ?? '') : service.clusterIP;
  return address.includes(':') ? 'IPv6' : 'IPv4';
}

/**
 * The address of a selected pod in the Service's Endpoints, or null when it is not listed: it is
 * terminal, terminating, has no address of the primary family, or none of the Service's ports.
 * `endpoints_controller.go` syncService, podToEndpointAddressForService.
 */
export function expectedAddress(
  service: Service,
  pod: Pod,
  release: Release,
): ExpectedAddress | null {
  if (!isListed(pod, service.publishNotReadyAddresses)) return null;
  const wantIPv6 = primaryFamily(service, pod) === 'IPv6';
  let ip: string | null = null;
  for (const text of pod.ips) {
    const parsed = parseIP(text);
    if (parsed !== null && (parsed.family === 'IPv6') === wantIPv6) {
      ip = parsed.text;
      break;
    }
  }
  if (ip === null) return null;
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

/** The labels of the object: those of the Service verbatim, and two of the controller's own. */
export function expectedLabels(service: Service, release: Release): Labels {
  const labels: Record<string, string> = { ...service.labels };
  // eslint-disable-next-line @typescript-eslint/no-dynamic-delete -- a fresh copy
  delete labels[label.headless];
  if (isHeadless(service)) labels[label.headless] = '';
  if (release.endpointsManagedBy) labels[label.endpointsManagedBy] = manager.endpoints;
  return labels;
}

/** One place at which Endpoints list an address, with the index of its subset. */
export interface SubsetAddress {
  readonly address: EndpointAddress;
  readonly subset: number;
}

/**
 * What repacking makes of an address that is listed several times, before the controller compares:
 * what has one uid is one address, and the first listing says all of it but its ports. At a port
 * that is listed twice not ready trumps ready, and where ports say both there is an entry for each.
 * Ports with an appProtocol are told apart by pointer, so two subsets never have the same one.
 * `util.go` mapAddressByPort.
 */
export function repack(listings: readonly SubsetAddress[]): EndpointAddress[] {
  const entries = new Map<string, { first: EndpointAddress; ports: Map<string, Listed> }>();
  for (const { address, subset } of listings) {
    const uid = address.target?.uid ?? '';
    const entry = entries.get(uid) ?? { first: address, ports: new Map<string, Listed>() };
    entries.set(uid, entry);
    const ports = address.ports.length === 0 ? [null] : address.ports;
    for (const [index, port] of ports.entries()) {
      const shared = (port?.appProtocol ?? null) === null;
      const key =
        port === null ? '' : shared ? portKey(port) : `${String(subset)} ${String(index)}`;
      const known = entry.ports.get(key);
      if (known === undefined) entry.ports.set(key, { port, ready: address.ready });
      else known.ready &&= address.ready;
    }
  }
  return [...entries.values()].flatMap(({ first, ports }) =>
    [true, false].flatMap((ready) => {
      const same = [...ports.values()].filter((one) => one.ready === ready);
      const own = same.flatMap(({ port }) => (port === null ? [] : [port]));
      return same.length === 0 ? [] : [{ ...first, ready, ports: own }];
    }),
  );
}

/** null: no port at all, as a subset without ports has it. */
interface Listed {
  readonly port: Port | null;
  ready: boolean;
}

/** How many pods share one list of ports; the counts are of addresses. */
export interface PortGroup {
  readonly ports: readonly Port[];
  ready: number;
  notReady: number;
}

export interface SubsetCounts {
  /** Keys of its ports, see portKey; a subset without ports has none. */
  readonly portKeys: readonly string[];
  readonly ready: number;
  readonly notReady: number;
}

/**
 * The sizes of the repacked subsets: ports that are offered by the same groups share a subset.
 * `groups` holds pods by their resolved ports, as resolvePorts names them.
 */
export function subsetCounts(groups: Iterable<PortGroup>): SubsetCounts[] {
  const offeredBy = new Map<string, { groups: PortGroup[]; ids: string }>();
  let id = 0;
  for (const group of groups) {
    if (group.ready + group.notReady === 0) continue;
    const keys = group.ports.length === 0 ? [''] : group.ports.map(portKey);
    for (const key of keys) {
      const port = offeredBy.get(key) ?? { groups: [], ids: '' };
      port.groups.push(group);
      port.ids += `${String(id)},`;
      offeredBy.set(key, port);
    }
    id++;
  }
  const subsets = new Map<string, { portKeys: string[]; ready: number; notReady: number }>();
  for (const [key, port] of offeredBy) {
    const subset = subsets.get(port.ids);
    if (subset !== undefined) subset.portKeys.push(key);
    else {
      const ready = port.groups.reduce((sum, group) => sum + group.ready, 0);
      const notReady = port.groups.reduce((sum, group) => sum + group.notReady, 0);
      subsets.set(port.ids, { portKeys: key === '' ? [] : [key], ready, notReady });
    }
  }
  return [...subsets.values()];
}

export interface TruncatedSubset {
  readonly portKeys: readonly string[];
  /** Addresses that survive at most, when this subset's turn comes early enough. */
  readonly ready: number;
  readonly notReady: number;
}

export interface Truncation {
  readonly subsets: readonly TruncatedSubset[];
  /** Ready addresses are cut too, and no others survive. */
  readonly cutsReady: boolean;
  /** How many of the kind that is cut (ready, else not ready) survive over all subsets. */
  readonly kept: number;
}

/**
 * How upstream truncates subsets of these sizes, or null when they fit. Each subset keeps its
 * rounded up share, in the order of the subsets and until the capacity is used up; that order is a
 * hash, so any is allowed. `endpoints_controller.go` truncateEndpoints.
 */
export function truncation(subsets: readonly SubsetCounts[]): Truncation | null {
  const ready = subsets.reduce((sum, subset) => sum + subset.ready, 0);
  const notReady = subsets.reduce((sum, subset) => sum + subset.notReady, 0);
  if (ready + notReady <= endpointsCapacity) return null;
  const cutsReady = ready > endpointsCapacity;
  const kept = cutsReady ? endpointsCapacity : endpointsCapacity - ready;
  const total = cutsReady ? ready : notReady;
  const shares = subsets.map((subset) => {
    const share = Math.ceil(((cutsReady ? subset.ready : subset.notReady) / total) * kept);
    return cutsReady
      ? { portKeys: subset.portKeys, ready: share, notReady: 0 }
      : { portKeys: subset.portKeys, ready: subset.ready, notReady: share };
  });
  return { subsets: shares, cutsReady, kept };
}

/**
 * Whether subsets of these sizes could be left by that truncation, whatever the order: all of the
 * capacity is used, no subset has more than its share, and only one may have a part of its share,
 * since whoever comes after it got nothing. `actual` is in the order of `truncation.subsets`.
 */
export function isTruncationOf(
  allowed: Truncation,
  actual: readonly { ready: number; notReady: number }[],
): boolean {
  let kept = 0;
  let partial = 0;
  for (const [index, share] of allowed.subsets.entries()) {
    const subset = actual[index] ?? { ready: 0, notReady: 0 };
    const [cut, most] = allowed.cutsReady
      ? [subset.ready, share.ready]
      : [subset.notReady, share.notReady];
    if (cut > most) return false;
    if (!allowed.cutsReady && subset.ready !== share.ready) return false;
    if (allowed.cutsReady && subset.notReady !== 0) return false;
    if (cut > 0 && cut < most) partial++;
    kept += cut;
  }
  return kept === allowed.kept && partial <= 1;
}
