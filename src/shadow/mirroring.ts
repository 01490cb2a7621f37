// Shadows the endpointslicemirroring controller: pkg/controller/endpointslicemirroring/ of
// k8s.io/kubernetes@v1.36.3 (reconciler.go, reconciler_helpers.go, utils.go) and the repacking
// before it, pkg/api/v1/endpoints/util.go.
//
// The controller copies Endpoints of a Service without selector into slices: one slice per port map
// and address type, with at most 1,000 addresses of each repacked subset.
//
// The shadow follows two oddities. An address keeps node and hostname of its first subset. Ports
// with an appProtocol are compared by pointer, so no two of them merge; if such subsets disagree
// about the readiness of an address, both values are allowed.
//
// Left out: the trigger time (never mirrored), and which of two addresses remains if one repacked
// subset has the same address for two uids of one pod name (upstream keeps either).

import { getOrInsert } from '../model/collections.ts';
import { parseIP } from '../model/ip.ts';
import type * as api from '../model/objects.ts';
import { annotation, label, manager, portMapKey } from '../model/objects.ts';
import { addressesByPort, type ListedAddress } from './endpoints.ts';
import { isMirrorable } from './event-handlers.ts';

/** Default of kube-controller-manager's --mirroring-max-endpoints-per-subset, and per slice too. */
export const maxEndpointsPerSubset = 1000;

export interface MirroredEndpoint {
  readonly address: string;
  /** null if subsets disagree; upstream keeps the last in an order of hashes. */
  readonly ready: boolean | null;
  readonly source: api.EndpointAddress;
}

export interface MirroredGroup {
  readonly addressType: api.AddressType;
  readonly ports: readonly api.Port[];
  readonly portMap: api.PortMapKey;
  /** By endpointIdentity; of more than maxEndpointsPerSubset, a slice has any of that number. */
  readonly endpoints: ReadonlyMap<string, MirroredEndpoint>;
}

/** Whether the controller mirrors these Endpoints: syncEndpoints. */
export const isMirrored = (service: api.Service | null, endpoints: api.Endpoints | null): boolean =>
  endpoints !== null && service !== null && service.selector === null && isMirrorable(endpoints);

export const isMirror = (slice: api.EndpointSlice): boolean =>
  slice.labels[label.sliceManagedBy] === manager.mirroring;

/** The identity of an endpoint within one port map. `util/endpointset.go` hashEndpoint. */
export function endpointIdentity(
  address: string,
  hostname: string | null,
  target: { namespace: string; name: string } | null,
): string {
  const name = target === null ? '' : `${target.namespace}/${target.name}`;
  return `${address}|${hostname ?? ''}|${name}`;
}

type Listed = ReadonlyMap<string, ListedAddress>;

/** Ports with the same addresses in the same state, which repacking puts into one subset. */
function repackAll(endpoints: api.Endpoints): { ports: api.Port[]; listed: Listed }[] {
  const entries = endpoints.subsets.flatMap(({ addresses }, subset) =>
    addresses.map((address) => ({ address, subset })),
  );
  const ports = addressesByPort(entries, ({ ip, target }) => `${ip}|${target?.uid ?? ''}`);
  const stateOf = ({ listed }: { listed: Listed }): string =>
    JSON.stringify([...listed].map(([id, { ready }]) => `${id}|${String(ready)}`).sort());
  return [...Map.groupBy(ports, stateOf).values()].map((all) => ({
    ports: all.flatMap(({ port }) => port ?? []),
    listed: all[0]?.listed ?? new Map(),
  }));
}

function inUpstreamOrder(listed: Iterable<ListedAddress>): ListedAddress[] {
  const order = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
  return [...listed].sort(
    (a, b) =>
      Number(b.ready) - Number(a.ready) ||
      order(a.address.ip, b.address.ip) ||
      order(a.address.target?.uid ?? '', b.address.target?.uid ?? ''),
  );
}

/** The content of the mirrored slices; none is empty. Addresses that are no IP do not count. */
export function expectedMirror(endpoints: api.Endpoints): MirroredGroup[] {
  const groups = new Map<string, MirroredGroup & { endpoints: Map<string, MirroredEndpoint> }>();
  for (const { ports, listed } of repackAll(endpoints)) {
    const portMap = portMapKey(ports);
    let added = 0;
    for (const { address, ready } of inUpstreamOrder(listed.values())) {
      if (added >= maxEndpointsPerSubset) break;
      const ip = parseIP(address.ip);
      if (ip === null) continue;
      added++;
      const addressType = ip.family;
      const empty = { addressType, ports, portMap, endpoints: new Map() };
      const group = getOrInsert(groups, `${addressType} ${portMap}`, () => empty);
      const identity = endpointIdentity(ip.text, address.hostname, address.target);
      const known = group.endpoints.get(identity);
      const disputed = known !== undefined && known.ready !== ready;
      const one = { address: ip.text, ready: disputed ? null : ready, source: address };
      group.endpoints.set(identity, one);
    }
  }
  return [...groups.values()];
}

/** The labels of every mirrored slice: those of the Endpoints, two overwritten. */
export const expectedMirrorLabels = (endpoints: api.Endpoints): api.Labels => ({
  ...endpoints.labels,
  [label.serviceName]: endpoints.name,
  [label.sliceManagedBy]: manager.mirroring,
});

/** The annotations of every mirrored slice: those of the Endpoints but two. */
export const expectedMirrorAnnotations = (endpoints: api.Endpoints): api.Labels =>
  Object.fromEntries(
    Object.entries(endpoints.annotations).filter(
      ([key]) => key !== annotation.triggerTime && key !== annotation.lastApplied,
    ),
  );
