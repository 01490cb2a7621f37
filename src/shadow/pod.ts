// The conditions on pods that the endpoints and the endpointslice controller share:
// k8s.io/endpointslice@v0.36.3 util/controller_utils.go (ShouldPodBeInEndpoints, ShouldSetHostname)
// and utils.go (FindPort, getEndpointPorts).
//
// Of the phase, only "terminal" matters upstream. Restart policy and readiness gates do not.

import { getOrInsert } from '../model/collections.ts';
import { parseIP } from '../model/ip.ts';
import type { AddressType, Pod, Port, PortMapKey, Service, ServicePort } from '../model/objects.ts';
import { portMapKey } from '../model/objects.ts';

/** Whether a selected pod has an endpoint; terminating pods only with `includeTerminating`. */
export function isListed(pod: Pod, includeTerminating: boolean): boolean {
  if (pod.terminal || pod.ips.length === 0) return false;
  return includeTerminating || !pod.deleting;
}

/** In canonical form. */
export function addressesOf({ ips }: Pod, family: AddressType): string[] {
  const addresses: string[] = [];
  for (const text of ips) {
    const ip = parseIP(text);
    if (ip?.family === family) addresses.push(ip.text);
  }
  return addresses;
}

/** Whether an endpoint of this pod has the pod's hostname; the Service may have a cluster IP. */
export const carriesHostname = (service: Service, pod: Pod): boolean =>
  pod.hostname !== '' && pod.subdomain === service.name && pod.namespace === service.namespace;

/** The container port of a Service port; null if the pod has no such port. */
export function findPort(pod: Pod, servicePort: ServicePort, sidecars: boolean): number | null {
  const target = servicePort.targetPort;
  if (typeof target === 'number') return target;
  for (const port of pod.ports) {
    if (port.sidecar && !sidecars) continue;
    if (port.name === target && port.protocol === servicePort.protocol) return port.port;
  }
  return null;
}

interface ResolvedPorts {
  readonly ports: readonly Port[];
  readonly portMap: PortMapKey;
}

const noPorts: ResolvedPorts = { ports: [], portMap: '' };

function resolve(service: Service, pod: Pod, sidecars: boolean): ResolvedPorts {
  const ports: Port[] = [];
  for (const servicePort of service.ports) {
    const port = findPort(pod, servicePort, sidecars);
    if (port === null) continue;
    const { name, protocol, appProtocol } = servicePort;
    ports.push({ name, port, protocol, appProtocol });
  }
  return ports.length === 0 ? noPorts : { ports, portMap: portMapKey(ports) };
}

// A cache by the two lists that the ports depend on. Equal lists are mostly the same object.
type Resolved = WeakMap<Service['ports'], WeakMap<Pod['ports'], ResolvedPorts>>;
const withSidecars: Resolved = new WeakMap();
const withoutSidecars: Resolved = new WeakMap();

/**
 * The Service's ports on this pod, without named ports that the pod lacks: slices then have the pod
 * with fewer ports or none, Endpoints have it for the ports it has. `sidecars`: ports of
 * restartable init containers count, after those of containers.
 */
export function resolvePorts(service: Service, pod: Pod, sidecars: boolean): ResolvedPorts {
  if (service.ports.length === 0) return noPorts;
  const resolved = sidecars ? withSidecars : withoutSidecars;
  const ofService = getOrInsert(resolved, service.ports, () => new WeakMap());
  return getOrInsert(ofService, pod.ports, () => resolve(service, pod, sidecars));
}
