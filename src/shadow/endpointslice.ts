// Shadows the endpointslice controller: reconciler.go, utils.go and util/ of
// k8s.io/endpointslice@v0.36.3, used by pkg/controller/endpointslice of k8s.io/kubernetes@v1.36.3;
// release.ts has the differences between releases.
//
// The controller groups endpoints per Service and address type by port map, and spreads each group
// over slices of at most --max-endpoints-per-slice (100). The spread depends on all earlier states,
// so the shadow expects the endpoints in the slices of a Service, and properties of every slice
// (labels, owner, address type, size).
//
// Left out: names of slices, order, trigger-time annotations and annotations of others (all without
// meaning upstream), and hints (hints.ts).

import { isOfUid } from '../model/equality.ts';
import { type IPFamily, familyOf } from '../model/ip.ts';
import type { AddressType, EndpointSlice, Labels, Node, Pod, Service } from '../model/objects.ts';
import { label, manager } from '../model/objects.ts';
import { isHeadless } from './endpoints.ts';
import { addressesOf, carriesHostname, isListed, resolvePorts } from './pod.ts';
import type { Release } from './release.ts';

/** Of kube-controller-manager's --max-endpoints-per-slice. */
export const defaultMaxEndpointsPerSlice = 100;

/** The endpoint of a pod in slices of one address type. */
export type ExpectedEndpoint = Readonly<ReturnType<typeof expectedEndpoints>[number]>;

const isFamily = (name: string): name is IPFamily => name === 'IPv4' || name === 'IPv6';

/** The address types that the Service's slices must have. `utils.go` getAddressTypesForService. */
export function addressTypesOf(service: Service): readonly AddressType[] {
  const { ipFamilies } = service;
  if (ipFamilies.length > 0 && ipFamilies.every(isFamily)) return ipFamilies;
  const types = ipFamilies.filter(isFamily);
  if (types.length > 0) return types;
  if (isHeadless(service)) return ['IPv4', 'IPv6'];
  return [familyOf(service.clusterIP)];
}

/** Whether slices omit a pod because its Node does not exist (null); the controller retries it. */
export const isStranded = (service: Service, node: Node | null | undefined): boolean =>
  node === null && !service.publishNotReadyAddresses;

/**
 * The endpoints of a selected pod, one per address type that the Service and the pod share. `node`
 * is the pod's Node, null if it does not exist, undefined if Nodes are not known. `reconciler.go`
 * reconcileByAddressType, `utils.go` podToEndpoint.
 */
export function expectedEndpoints(
  service: Service,
  pod: Pod,
  node: Node | null | undefined,
  release: Release,
) {
  if (!isListed(pod, true) || isStranded(service, node)) return [];
  const { ports, portMap } = resolvePorts(service, pod, release.sidecarPortsInSlices);
  const expected = [];
  for (const addressType of addressTypesOf(service)) {
    const addresses: readonly string[] = addressesOf(pod, addressType);
    if (addresses.length === 0) continue;
    expected.push({
      addressType,
      addresses,
      ready: service.publishNotReadyAddresses || (pod.ready && !pod.deleting),
      serving: pod.ready,
      terminating: pod.deleting,
      hostname: carriesHostname(service, pod) ? pod.hostname : null,
      node: pod.node === '' ? null : pod.node,
      /** null if the Node has no zone; undefined if Nodes are not known: any may be right. */
      zone: node === undefined ? undefined : node === null || node.zone === '' ? null : node.zone,
      pod,
      ports,
      portMap,
    });
  }
  return expected;
}

/** Labels of slices that are never taken from the Service. `utils.go` isReservedLabelKey. */
const reserved: readonly string[] = [label.serviceName, label.sliceManagedBy, label.headless];

/** The labels of every slice of the Service. `utils.go` setEndpointSliceLabels. */
export function expectedSliceLabels(service: Service): Labels {
  const labels: Record<string, string> = {};
  for (const [key, value] of Object.entries(service.labels)) {
    if (!reserved.includes(key)) labels[key] = value;
  }
  if (isHeadless(service)) labels[label.headless] = '';
  labels[label.serviceName] = service.name;
  labels[label.sliceManagedBy] = manager.slices;
  return labels;
}

/** `utils.go` ownedBy, which ignores the controller flag; a Service without uid has its name. */
export const isOwnedBy = (slice: EndpointSlice, service: Service): boolean =>
  slice.owners.some(
    (owner) =>
      isOfUid(owner.uid, service) &&
      (service.uid !== '' || owner.name === service.name) &&
      owner.kind === 'Service' &&
      owner.apiVersion === 'v1',
  );

export const isControllers = (slice: EndpointSlice): boolean =>
  slice.labels[label.sliceManagedBy] === manager.slices;
