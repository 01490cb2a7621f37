// What slices and Endpoints repeat of pods, and versions of their own version before, is held once.
//
// Nearly every endpoint has the address, the name and the uid of a pod, and an update of a slice
// changes few of its endpoints. So an output takes what is equal from what is held already, and
// stays equal to what arrived. Whoever compares two versions, or an endpoint with its pod, often
// finds the same reference and need not look further.

import { equalEndpoints, equalRefs, equalTexts } from '../../model/equality.ts';
import type {
  Endpoint,
  EndpointAddress,
  Endpoints,
  EndpointSlice,
  ObjectRef,
  Pod,
} from '../../model/objects.ts';

/** The pods that are held at an address in canonical form. */
type PodsAt = (address: string) => readonly Pod[];

/** The pod that an output refers to at an address as written; none where it is not held there. */
function podOf(podsAt: PodsAt, target: ObjectRef | null, address: string): Pod | undefined {
  if (target === null) return undefined;
  return podsAt(address).find(({ ref }) => equalRefs(ref, target));
}

/** How far to look for what follows, at most. */
const lookAhead = 16;

/**
 * Finds what is asked for, in order, in the list of the version before: where the one before it
 * stood, or some places behind that, since few come, go or change at a time.
 */
function createFollower<T>(
  known: readonly T[],
  isSame: (known: T, one: T) => boolean,
): (one: T) => T | undefined {
  let at = 0;
  let missed = 0;
  return (one) => {
    const end = Math.min(at + Math.min(2 * missed + 2, lookAhead), known.length);
    for (let index = at; index < end; index++) {
      const there = known[index];
      if (there === undefined || !isSame(there, one)) continue;
      [at, missed] = [index + 1, 0];
      return there;
    }
    missed++;
    return undefined;
  };
}

/** The slice with what is equal in the version before, and in the pods, taken from there. */
export function sharedSlice(
  slice: EndpointSlice,
  before: EndpointSlice | null,
  podsAt: PodsAt,
): EndpointSlice {
  const find = createFollower(before?.endpoints ?? [], equalEndpoints);
  const share = (one: Endpoint): Endpoint => find(one) ?? sharedEndpoint(one, podsAt);
  return { ...slice, endpoints: slice.endpoints.map(share) };
}

function sharedEndpoint(endpoint: Endpoint, podsAt: PodsAt): Endpoint {
  const { addresses, hostname } = endpoint;
  const pod = podOf(podsAt, endpoint.target, addresses[0] ?? '');
  if (pod === undefined) return endpoint;
  return {
    addresses: equalTexts(addresses, pod.ips) ? pod.ips : addresses.map((ip) => ownText(ip, pod)),
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

const ownText = (ip: string, pod: Pod): string => pod.ips.find((own) => own === ip) ?? ip;

/** The Endpoints with what is equal in the version before, and in the pods, taken from there. */
export function sharedEndpoints(
  endpoints: Endpoints,
  before: Endpoints | null,
  podsAt: PodsAt,
): Endpoints {
  const subsets = endpoints.subsets.map((subset, index) => {
    const find = createFollower(before?.subsets[index]?.addresses ?? [], isSame);
    const share = (one: EndpointAddress): EndpointAddress =>
      find(one) ?? sharedAddress(one, podsAt);
    return { ...subset, addresses: subset.addresses.map(share) };
  });
  return { ...endpoints, subsets };
}

/** Ports are shared by reference within a subset, and must stay so. */
const isSame = (a: EndpointAddress, b: EndpointAddress): boolean =>
  a.ports === b.ports &&
  a.ip === b.ip &&
  a.ready === b.ready &&
  a.node === b.node &&
  a.hostname === b.hostname &&
  equalRefs(a.target, b.target);

function sharedAddress(address: EndpointAddress, podsAt: PodsAt): EndpointAddress {
  const { ip, hostname } = address;
  const pod = podOf(podsAt, address.target, ip);
  if (pod === undefined) return address;
  return {
    ip: ownText(ip, pod),
    ready: address.ready,
    ports: address.ports,
    node: address.node,
    hostname: hostname === pod.hostname ? pod.hostname : hostname,
    target: pod.ref,
  };
}
