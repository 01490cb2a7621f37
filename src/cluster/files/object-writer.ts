// Writes model objects as API objects with only the fields that the audit reads: the reverse of
// cluster/decode/json-objects.ts. Reading the result gives an equal model object. It has no
// environment variables, no arguments and no last-applied annotation.

import type * as api from '../../model/objects.ts';
import { annotation, kinds, label } from '../../model/objects.ts';
import type { Fields } from '../decode/json-fields.ts';

/** An API object of the resource. The caller must not change its parts, which it shares. */
export function writeObject<R extends api.Resource>(resource: R, object: api.ObjectOf[R]): Fields {
  const write: Writer<R> = writers[resource];
  const apiVersion = resource === 'endpointslices' ? 'discovery.k8s.io/v1' : 'v1';
  return { apiVersion, kind: kinds[resource], ...write(object) };
}

type Writer<R extends api.Resource> = (object: api.ObjectOf[R]) => Fields;

const writers: { readonly [R in api.Resource]: Writer<R> } = {
  nodes: writeNode,
  services: writeService,
  pods: writePod,
  endpoints: writeEndpoints,
  endpointslices: writeSlice,
};

/** Whole seconds in the form of the API server, which a reader parses fastest. */
const timeText = (seconds: number): string =>
  new Date(seconds * 1000).toISOString().replace('.000Z', 'Z');

/** Undefined, which JSON leaves out, for a value that is `null`. */
const given = <T>(value: T | null): T | undefined => value ?? undefined;

/** The same for a list or a map without entries: a history has one in nearly each object. */
const filled = <T extends object>(value: T): T | undefined =>
  Object.keys(value).length === 0 ? undefined : value;

function writeMeta(object: api.Meta, labels: api.Labels = object.labels): Fields {
  const { namespace, name, uid, resourceVersion, created, deleting } = object;
  return {
    name,
    namespace: namespace === '' ? undefined : namespace,
    uid,
    resourceVersion,
    labels,
    creationTimestamp: created === null ? undefined : timeText(created),
    deletionTimestamp: deleting ? timeText(created ?? 0) : undefined,
  };
}

function writeNode(node: api.Node): Fields {
  const labels = {
    ...(node.zone === '' ? {} : { [label.zone]: node.zone }),
    ...(node.controlPlane ? { 'node-role.kubernetes.io/control-plane': '' } : {}),
    ...(node.ciliumNode === null ? {} : { [label.ciliumNode]: node.ciliumNode }),
  };
  const { addresses, externalIPs, podCIDRs, kubeletMinor, cpuMillis } = node;
  return {
    metadata: writeMeta(node, labels),
    spec: { podCIDRs },
    status: {
      allocatable: cpuMillis === 0 ? undefined : { cpu: `${cpuMillis}m` },
      conditions: [{ type: 'Ready', status: node.ready ? 'True' : 'False' }],
      addresses: [
        ...addresses.map((address) => ({ type: 'InternalIP', address })),
        ...externalIPs.map((address) => ({ type: 'ExternalIP', address })),
      ],
      nodeInfo: kubeletMinor === null ? undefined : { kubeletVersion: `v1.${kubeletMinor}.0` },
    },
  };
}

function writeService(service: api.Service): Fields {
  const { affinitySeconds, loadBalancerIPs, topologyAuto, suppress, ciliumAnnotations } = service;
  const annotations = {
    ...ciliumAnnotations,
    ...(topologyAuto ? { [annotation.topologyMode]: 'Auto' } : {}),
    ...(suppress === '' ? {} : { [annotation.suppress]: suppress }),
  };
  return {
    metadata: { ...writeMeta(service), annotations: filled(annotations) },
    spec: {
      type: service.type,
      clusterIP: service.clusterIP,
      clusterIPs: service.clusterIPs,
      externalIPs: filled(service.externalIPs),
      loadBalancerSourceRanges: filled(service.loadBalancerSourceRanges),
      internalTrafficPolicy: service.internalTrafficPolicy,
      externalTrafficPolicy: service.externalTrafficPolicy,
      ...(affinitySeconds === null
        ? {}
        : {
            sessionAffinity: 'ClientIP',
            sessionAffinityConfig: { clientIP: { timeoutSeconds: affinitySeconds } },
          }),
      healthCheckNodePort: service.healthCheckNodePort,
      selector: given(service.selector),
      publishNotReadyAddresses: service.publishNotReadyAddresses,
      ipFamilies: service.ipFamilies,
      ports: service.ports.map((port) => ({ ...port, appProtocol: given(port.appProtocol) })),
      trafficDistribution: given(service.trafficDistribution),
    },
    status: { loadBalancer: { ingress: filled(loadBalancerIPs.map((ip) => ({ ip }))) } },
  };
}

function writePod(pod: api.Pod): Fields {
  const { deleting, turnedAt, ready } = pod;
  // A grace period of 0, since turnedAt is the time at which the deletion was requested.
  const deletion =
    deleting && turnedAt !== null
      ? { deletionTimestamp: timeText(turnedAt), deletionGracePeriodSeconds: 0 }
      : {};
  const since = deleting || turnedAt === null ? undefined : timeText(turnedAt);
  const condition = {
    type: 'Ready',
    status: ready ? 'True' : 'False',
    lastTransitionTime: since,
  };
  const portsOf = (isSidecar: boolean) =>
    pod.ports
      .filter(({ sidecar }) => sidecar === isSidecar)
      .map(({ name, protocol, port }) => ({ name, protocol, containerPort: port }));
  const sidecarPorts = filled(portsOf(true));
  return {
    metadata: { ...writeMeta(pod), ...deletion },
    spec: {
      nodeName: pod.node,
      hostNetwork: pod.hostNetwork,
      hostname: pod.hostname,
      subdomain: pod.subdomain,
      containers: [{ ports: portsOf(false) }],
      initContainers: sidecarPorts && [{ restartPolicy: 'Always', ports: sidecarPorts }],
    },
    status: {
      phase: pod.terminal ? 'Succeeded' : 'Running',
      podIPs: pod.ips.map((ip) => ({ ip })),
      conditions: [condition],
    },
  };
}

/** An annotation that kubectl writes has the whole object. */
export const safeAnnotations = (annotations: api.Labels): api.Labels =>
  Object.hasOwn(annotations, annotation.lastApplied)
    ? { ...annotations, [annotation.lastApplied]: '' }
    : annotations;

const writePort = (port: api.Port): Fields => ({
  name: given(port.name),
  protocol: given(port.protocol),
  port: given(port.port),
  appProtocol: given(port.appProtocol),
});

function writeEndpoints(endpoints: api.Endpoints): Fields {
  const writeAddress = ({ ip, hostname, node, target }: api.EndpointAddress): Fields => ({
    ip,
    hostname: hostname === '' ? undefined : hostname,
    nodeName: given(node),
    targetRef: given(target),
  });
  return {
    metadata: {
      ...writeMeta(endpoints),
      annotations: filled(safeAnnotations(endpoints.annotations)),
    },
    subsets: endpoints.subsets.map(({ addresses, readyCount, ports }) => ({
      addresses: filled(addresses.slice(0, readyCount).map(writeAddress)),
      notReadyAddresses: filled(addresses.slice(readyCount).map(writeAddress)),
      ports: ports.map(writePort),
    })),
  };
}

function writeSlice(slice: api.EndpointSlice): Fields {
  const { annotations, generation, owners, addressType, ports, endpoints } = slice;
  const named = (names: readonly string[] | null) => names?.map((name) => ({ name }));
  const hintsOf = ({ forZones, forNodes }: api.Endpoint): Fields | undefined =>
    forZones === null && forNodes === null
      ? undefined
      : { forZones: named(forZones), forNodes: named(forNodes) };
  return {
    metadata: {
      ...writeMeta(slice),
      annotations: filled(safeAnnotations(annotations)),
      generation,
      ownerReferences: owners,
    },
    addressType,
    ports: ports.map(writePort),
    endpoints: endpoints.map((endpoint) => ({
      addresses: endpoint.addresses,
      conditions: {
        ready: given(endpoint.ready),
        serving: given(endpoint.serving),
        terminating: given(endpoint.terminating),
      },
      hostname: given(endpoint.hostname),
      zone: given(endpoint.zone),
      // As in Endpoints: a frame of a history packs both once.
      nodeName: given(endpoint.node),
      targetRef: given(endpoint.target),
      hints: hintsOf(endpoint),
    })),
  };
}
