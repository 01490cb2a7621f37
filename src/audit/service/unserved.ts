// Why a Service cannot receive traffic: no EndpointSlice of it has an endpoint that is usable.
//
// An endpoint is usable if it is ready, or terminating and still serving behind a cluster IP, where
// kube-proxy uses such endpoints if no other is ready (k8s.io/kubernetes@v1.36.3
// pkg/proxy/topology.go CategorizeEndpoints). Behind a cluster IP it needs a port and a family of
// the Service. The clients of a headless Service read the addresses from DNS, which lists those
// without a port too. The reason follows from the pods that the Service selects.
//
// Deployments are not read, so a Service that is scaled to zero looks like one whose selector is
// wrong: no pod matches.

import type { Endpoint, EndpointSlice, Port, Service, ServicePort } from '../../model/objects.ts';
import { isHeadless, isSelected } from '../../shadow/endpoints.ts';
import { addressTypesOf, expectedEndpoints, isStranded } from '../../shadow/endpointslice.ts';
import { isListed, resolvePorts } from '../../shadow/pod.ts';
import { type AuditContext, nodeOf, podsOf, type ServiceState } from './cache.ts';
import type { ServiceAudit } from './reconcile.ts';
import { isUnknown } from './verdict.ts';

/** Every reason, those that are closest to traffic first. */
export const unservedReasons = [
  /** Pods are ready, but no EndpointSlice has them yet: the verdict is pending or different. */
  'ready_pods_not_listed',
  /** Pods are ready, but no container names the target port of any Service port. */
  'named_port_missing',
  /** Pods are ready, but have no address of an IP family of the Service. */
  'ip_family_missing',
  /** Pods are ready, but their Nodes do not exist. */
  'node_missing',
  /** The Service has a cluster IP and no ports. */
  'no_service_ports',
  /** Pods match, but none is ready. */
  'no_ready_pod',
  /** All pods that match are terminating. */
  'all_pods_terminating',
  /** All pods that match have finished (phase Succeeded or Failed). */
  'all_pods_finished',
  /** No pod matches: the selector is wrong, or the workload is scaled to zero. */
  'selector_matches_nothing',
  /** Without a selector, and no client wrote a usable endpoint. */
  'no_selector_no_endpoints',
] as const;

export type UnservedReason = (typeof unservedReasons)[number];

/**
 * Why the Service cannot receive traffic; null if it can, if that is unknown, or if it needs no
 * endpoints: an ExternalName Service, a headless one without a selector, one that is being deleted.
 */
export function unservedReason(
  context: AuditContext,
  { record, unknown }: ServiceAudit,
): UnservedReason | null {
  const { listers } = context;
  const { service, slices, name } = record;
  if (service === null || service.deleting || service.type === 'ExternalName') return null;
  if (!listers.knows('endpointslices') || isUnknown(unknown, 'endpointslices')) return null;
  if (slices.some((slice) => isUsed(slice, name) && hasUsable(service, slice))) return null;
  if (!isSelected(service)) return isHeadless(service) ? null : 'no_selector_no_endpoints';
  return listers.knows('pods') ? reasonOfPods(context, record, service) : null;
}

/** kube-proxy and DNS find the slices of a Service by this label, no matter what manages them. */
const isUsed = ({ labels }: EndpointSlice, name: string): boolean =>
  labels['kubernetes.io/service-name'] === name;

/** Nodes find a port by name and protocol. To Cilium a port without a name is any. */
const isPortFound = (port: Port, { name, protocol }: ServicePort): boolean =>
  port.protocol === protocol && (port.name === name || name === '' || (port.name ?? '') === '');

/** Nodes read the slices of the families of the cluster IPs. */
const isReadByNodes = (service: Service, { addressType, ports }: EndpointSlice): boolean =>
  addressTypesOf(service).includes(addressType) &&
  ports.some((port) => service.ports.some((servicePort) => isPortFound(port, servicePort)));

function hasUsable(service: Service, slice: EndpointSlice): boolean {
  const headless = isHeadless(service);
  if (!headless && !isReadByNodes(service, slice)) return false;
  const isUsable = ({ ready, serving, terminating }: Endpoint): boolean =>
    ready !== false || (!headless && terminating === true && serving !== false);
  return slice.endpoints.some(isUsable);
}

function reasonOfPods(
  context: AuditContext,
  record: ServiceState,
  service: Service,
): UnservedReason {
  if (record.members.size === 0) return 'selector_matches_nothing';
  if (service.ports.length === 0 && !isHeadless(service)) return 'no_service_ports';
  const found = new Set<UnservedReason>();
  for (const pod of podsOf(context.listers, record)) {
    const node = nodeOf(context.listers, pod);
    const { release } = context;
    const isServing = service.publishNotReadyAddresses || (pod.ready && !pod.deleting);
    if (pod.terminal) found.add('all_pods_finished');
    else if (!isServing) found.add(pod.deleting ? 'all_pods_terminating' : 'no_ready_pod');
    else if (!isListed(pod, true)) found.add('no_ready_pod');
    else if (isStranded(service, node)) found.add('node_missing');
    else if (expectedEndpoints(service, pod, node, release).length === 0) {
      found.add('ip_family_missing');
    } else {
      const { ports } = resolvePorts(service, pod, release.sidecarPortsInSlices);
      const isPortless = ports.length === 0 && !isHeadless(service);
      found.add(isPortless ? 'named_port_missing' : 'ready_pods_not_listed');
    }
  }
  return unservedReasons.find((reason) => found.has(reason)) ?? 'no_ready_pod';
}
