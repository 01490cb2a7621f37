// Shares equal parts of Endpoints and slices with earlier versions and with pods, to save memory.
//
// Nearly every endpoint has the address, name and uid of a pod, and an update of a slice changes
// few endpoints. Comparisons then often find the same reference, and need not look further.

import { equalAddresses, equalEndpoints, equalRefs, equalTexts } from '../../model/equality.ts';
import type {
  Endpoint,
  EndpointAddress,
  Endpoints,
  EndpointSlice,
  ObjectRef,
  Pod,
} from '../../model/objects.ts';

/** The stored pods with an address in canonical form. */
type PodsAt = (address: string) => readonly Pod[];

/** The pod that `target` refers to; undefined if no stored pod has this address and reference. */
function targetPod(podsAt: PodsAt, target: ObjectRef | null, address: string): Pod | undefined {
  if (target === null) return undefined;
  return podsAt(address).find(({ ref }) => equalRefs(ref, target));
}

const lookAhead = 16;

/**
 * Finds equal items, in order, in the list of the version before: at the position behind the latest
 * one found, or a few places further, since few items come, go or change at a time.
 */
function createFollower<T>(
  known: readonly T[],
  isSame: (a: T, b: T) => boolean,
): (item: T) => T | undefined {
  let next = 0;
  let missed = 0;
  return (item) => {
    const end = Math.min(next + Math.min(2 * missed + 2, lookAhead), known.length);
    for (let index = next; index < end; index++) {
      const candidate = known[index];
      if (candidate === undefined || !isSame(candidate, item)) continue;
      [next, missed] = [index + 1, 0];
      return candidate;
    }
    missed++;
    return undefined;
  };
}

/** The slice, with the equal parts of the version before and of pods. */
export function sharedSlice(
  slice: EndpointSlice,
  before: EndpointSlice | null,
  podsAt: PodsAt,
): EndpointSlice {
  const find = createFollower(before?.endpoints ?? [], equalEndpoints);
  const endpoints = slice.endpoints.map((item) => find(item) ?? sharedEndpoint(item, podsAt));
  return { ...slice, endpoints };
}

function sharedEndpoint(endpoint: Endpoint, podsAt: PodsAt): Endpoint {
  const { addresses, hostname } = endpoint;
  const pod = targetPod(podsAt, endpoint.target, addresses[0] ?? '');
  if (pod === undefined) return endpoint;
  return {
    addresses: equalTexts(addresses, pod.ips) ? pod.ips : addresses.map((ip) => sameText(ip, pod)),
    ready: endpoint.ready,
    serving: endpoint.serving,
    terminating: endpoint.terminating,
    hostname: hostname === pod.hostname ? pod.hostname : hostname,
    node: endpoint.node,
    zone: endpoint.zone,
    target: pod.ref,
    forZones: endpoint.forZones,
    forNodes: endpoint.forNodes,
  };
}

const sameText = (ip: string, pod: Pod): string => pod.ips.find((text) => text === ip) ?? ip;

/** The Endpoints, with the equal parts of the version before and of pods. */
export function sharedEndpoints(
  endpoints: Endpoints,
  before: Endpoints | null,
  podsAt: PodsAt,
): Endpoints {
  const subsets = endpoints.subsets.map((subset, index) => {
    const find = createFollower(before?.subsets[index]?.addresses ?? [], isSame);
    const addresses = subset.addresses.map((item) => find(item) ?? sharedAddress(item, podsAt));
    return { ...subset, addresses };
  });
  return { ...endpoints, subsets };
}

/** The addresses of a subset share its list of ports by reference. */
const isSame = (a: EndpointAddress, b: EndpointAddress): boolean =>
  a.ports === b.ports && a.ip === b.ip && equalAddresses(a, b);

function sharedAddress(address: EndpointAddress, podsAt: PodsAt): EndpointAddress {
  const { ip, hostname } = address;
  const pod = targetPod(podsAt, address.target, ip);
  if (pod === undefined) return address;
  return {
    ip: sameText(ip, pod),
    ready: address.ready,
    ports: address.ports,
    node: address.node,
    hostname: hostname === pod.hostname ? pod.hostname : hostname,
    target: pod.ref,
  };
}
