// API objects with the fields that the shadowed components read or write. cluster/decode makes
// them, and nothing changes them later.
//
// Strings and label maps are interned. Absent and null fields of the API differ only where a
// controller distinguishes them (conditions, nodeName, zone, hints).

/** `namespace/name`, as client-go's MetaNamespaceKeyFunc writes it. */
export type Key = string;

export type Labels = Readonly<Record<string, string>>;

export type AddressType = 'IPv4' | 'IPv6' | 'FQDN';

export interface ObjectRef {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

/** The metadata of every object. */
export interface Meta {
  readonly key: Key;
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** Decimal as the API server writes it; '' where a file has none. */
  readonly resourceVersion: string;
  readonly labels: Labels;
  /** metadata.creationTimestamp, Unix seconds; null when absent. */
  readonly created: number | null;
  /** metadata.deletionTimestamp is set. */
  readonly deleting: boolean;
}

interface Arrived extends Meta {
  /** When this version arrived, in Unix seconds on the clock of the input. */
  readonly at: number;
}

export interface ServicePort {
  readonly name: string;
  readonly protocol: string;
  readonly port: number;
  /** A number, or the name of a container port; 0 when the API left it unset. */
  readonly targetPort: number | string;
  readonly appProtocol: string | null;
  /** 0: none. */
  readonly nodePort: number;
}

export interface Service extends Arrived {
  readonly type: 'ClusterIP' | 'NodePort' | 'LoadBalancer' | 'ExternalName';
  /** '' or 'None' mean that no IP is set: a headless Service, or an ExternalName one. */
  readonly clusterIP: string;
  /** spec.clusterIPs as written: one for each of `ipFamilies`. */
  readonly clusterIPs: readonly string[];
  readonly externalIPs: readonly string[];
  /** From status.loadBalancer.ingress, without those of ipMode Proxy, which lead to no node. */
  readonly loadBalancerIPs: readonly string[];
  /** CIDRs as written, which may have blanks around them. */
  readonly loadBalancerSourceRanges: readonly string[];
  readonly internalTrafficPolicy: 'Cluster' | 'Local';
  readonly externalTrafficPolicy: 'Cluster' | 'Local';
  /** Seconds for which ClientIP affinity holds; null: no affinity. */
  readonly affinitySeconds: number | null;
  readonly healthCheckNodePort: number;
  /** null: no selector. The API keeps no empty selector: `{}` is stored as absent. */
  readonly selector: Labels | null;
  readonly publishNotReadyAddresses: boolean;
  /** spec.ipFamilies as written; the first is the primary family. */
  readonly ipFamilies: readonly string[];
  readonly ports: readonly ServicePort[];
  readonly trafficDistribution: string | null;
  /** The topology annotation in force (the deprecated name has precedence) says Auto. */
  readonly topologyAuto: boolean;
  /** The annotation with suppressions of findings, cut if it is too long; '' without it. */
  readonly suppress: string;
  /** Annotations that Cilium reads: `service.cilium.io/…`, and their old names. */
  readonly ciliumAnnotations: Labels;
}

export interface ContainerPort {
  readonly name: string;
  readonly protocol: string;
  readonly port: number;
  /** It belongs to an init container with restartPolicy Always. */
  readonly sidecar: boolean;
}

export interface Pod extends Meta {
  /** How outputs refer to it, for all that do. */
  readonly ref: ObjectRef;
  /** spec.nodeName; '' while unscheduled. */
  readonly node: string;
  readonly hostNetwork: boolean;
  readonly hostname: string;
  readonly subdomain: string;
  /** Containers first, then restartable init containers, each in the order of the spec. */
  readonly ports: readonly ContainerPort[];
  /** status.phase is Succeeded or Failed. */
  readonly terminal: boolean;
  /** The first condition of type Ready has status True. */
  readonly ready: boolean;
  /** Unix seconds: of its deletion, or else of the last transition of Ready; null: of neither. */
  readonly turnedAt: number | null;
  /** status.podIPs as written (status.podIP where there is no list), in order. */
  readonly ips: readonly string[];
  /** When this pod was first seen with these ips, Unix seconds. */
  readonly ipsSince: number;
}

/** Of its labels nothing is kept but what follows. */
export interface Node extends Meta {
  /** Label topology.kubernetes.io/zone; '' when absent. */
  readonly zone: string;
  readonly ready: boolean;
  /** Label node-role.kubernetes.io/control-plane or .../master, which topology hints exclude. */
  readonly controlPlane: boolean;
  /** status.allocatable.cpu in millicores; 0 when absent. */
  readonly cpuMillis: number;
  /** The InternalIPs of status.addresses, as written. */
  readonly addresses: readonly string[];
  /** The ExternalIPs, as written: clouds translate them, so that no interface need have them. */
  readonly externalIPs: readonly string[];
  /** spec.podCIDRs (spec.podCIDR where there is no list). */
  readonly podCIDRs: readonly string[];
  /** Minor version in status.nodeInfo.kubeletVersion; null: it names no release of Kubernetes. */
  readonly kubeletMinor: number | null;
  /** Label service.cilium.io/node, which annotations of Services select; null when absent. */
  readonly ciliumNode: string | null;
}

/** One port of a subset or slice; `name` is '' when unnamed, null only where a slice says null. */
export interface Port {
  readonly name: string | null;
  readonly protocol: string | null;
  readonly port: number | null;
  readonly appProtocol: string | null;
}

export interface EndpointAddress {
  /** Those of its subset. */
  readonly ports: readonly Port[];
  readonly ip: string;
  readonly ready: boolean;
  readonly node: string | null;
  readonly hostname: string;
  readonly target: ObjectRef | null;
}

export interface EndpointSubset {
  readonly ports: readonly Port[];
  /** Ready ones first, then the notReadyAddresses. */
  readonly addresses: readonly EndpointAddress[];
  readonly readyCount: number;
}

export interface Endpoints extends Arrived {
  readonly annotations: Labels;
  readonly subsets: readonly EndpointSubset[];
  /** Size of the protobuf message, or of JSON without managedFields; null: JSON cannot hold it. */
  readonly bytes: number | null;
}

/** One endpoint of an EndpointSlice. Conditions are null where the object says nothing. */
export interface Endpoint {
  readonly addresses: readonly string[];
  readonly ready: boolean | null;
  readonly serving: boolean | null;
  readonly terminating: boolean | null;
  readonly hostname: string | null;
  readonly node: string | null;
  readonly zone: string | null;
  readonly target: ObjectRef | null;
  /** Zone names of hints.forZones, node names of hints.forNodes; null: the list is absent. */
  readonly forZones: readonly string[] | null;
  readonly forNodes: readonly string[] | null;
}

export interface OwnerReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid: string;
  readonly controller: boolean;
}

export interface EndpointSlice extends Arrived {
  readonly generation: number;
  readonly annotations: Labels;
  readonly owners: readonly OwnerReference[];
  readonly addressType: AddressType;
  readonly ports: readonly Port[];
  /** Equal for two slices exactly if their ports are equal as sets; see portMapKey. */
  readonly portMap: PortMapKey;
  readonly endpoints: readonly Endpoint[];
  readonly bytes: number | null;
}

export interface ObjectOf {
  services: Service;
  pods: Pod;
  nodes: Node;
  endpoints: Endpoints;
  endpointslices: EndpointSlice;
}

export type Resource = keyof ObjectOf;

export const resources = ['nodes', 'services', 'pods', 'endpoints', 'endpointslices'] as const;

export type OutputResource = 'endpoints' | 'endpointslices';

export const outputResources: readonly OutputResource[] = ['endpoints', 'endpointslices'];

export const isOutput = (resource: Resource): resource is OutputResource =>
  resource === 'endpoints' || resource === 'endpointslices';

export type AnyObject = ObjectOf[Resource];

/** A change of one object, as a watch or a file delivers it. */
export interface WatchEvent<R extends Resource = Resource> {
  readonly resource: R;
  /** `added` also for the objects of a first list. */
  readonly type: 'added' | 'modified' | 'deleted';
  readonly object: ObjectOf[R];
  /** Arrival, Unix seconds. */
  readonly at: number;
  /** Versions between the last one and this may have been missed (a relist). */
  readonly gap?: boolean;
  /** The object as it came, where it was asked for; never of a deletion that was not seen. */
  readonly raw?: unknown;
}

/** What an event did to the cached state: the versions before and after; both are never null. */
export interface Change<R extends Resource = Resource> {
  readonly resource: R;
  readonly before: ObjectOf[R] | null;
  readonly after: ObjectOf[R] | null;
  readonly at: number;
  /** Versions between the two may have been missed, of this object and of others (a relist). */
  readonly gap?: boolean;
  /** When the watch was back, just before: the change may have been made before that. */
  readonly backAt?: number;
}

/** CPU of the ready Nodes without a control plane, which topology hints count. */
export interface ZoneCapacity {
  /** A counted Node lacks its zone or its CPU: no Service gets hints. */
  readonly insufficient: boolean;
  readonly cpuMillisByZone: ReadonlyMap<string, number>;
}

/** Objects that could not be read; null: any. */
export interface UnreadableObject {
  readonly resource: Resource;
  /** null: not known; empty: that of objects of the whole cluster. */
  readonly namespace: string | null;
  readonly name: string | null;
  /** The labels, where they could be read although the object could not. */
  readonly labels: Labels | null;
  /** Whether that is for want of a permission in the namespace. */
  readonly isForbidden?: boolean;
}

/** A later loss with the same key replaces the earlier one. */
export const unreadableKey = (lost: Omit<UnreadableObject, 'labels'>): string =>
  `${lost.resource} ${lost.namespace ?? '*'}/${lost.isForbidden ? '' : (lost.name ?? '*')}`;

/** The key of an object that cannot be read; null: it may be any. */
export function keyOfLost({ namespace, name }: UnreadableObject): Key | null {
  if (name === null || namespace === null) return null;
  return namespace === '' ? name : `${namespace}/${name}`;
}

/** Whether it is a change of a Service. */
export const isOfService = (change: Change): change is Change<'services'> =>
  change.resource === 'services';

/** What is lost without the permission to read a resource in a namespace. */
export const forbiddenIn = (resource: Resource, namespace: string): UnreadableObject => ({
  resource,
  namespace,
  name: null,
  labels: null,
  isForbidden: true,
});

export interface Listers {
  /** Whether the input delivers this resource at all. */
  knows(resource: Resource): boolean;
  /** Whether the user left this resource out, so that nothing is compared with it. */
  omits(resource: Resource): boolean;
  readonly services: ReadonlyMap<Key, Service>;
  readonly endpoints: ReadonlyMap<Key, Endpoints>;
  readonly nodes: ReadonlyMap<string, Node>;
  readonly pods: ReadonlyMap<Key, Pod>;
  podsIn(namespace: string): readonly Pod[];
  podsOn(node: string): Iterable<Pod>;
  /** Pods with this address in canonical form, of all namespaces. */
  podsAt(ip: string): readonly Pod[];
  /** Services whose selector matches, ExternalName ones too. */
  servicesSelecting(namespace: string, labels: Labels): Service[];
  readonly slices: ReadonlyMap<Key, EndpointSlice>;
  readonly zoneCapacity: ZoneCapacity;
  /** Zones that a Node had at any time since the input began. */
  readonly zonesSeen: ReadonlySet<string>;
}

/** Port maps: the unit by which slices are grouped. Compare with ===; never parse. */
export type PortMapKey = string;

const quoted = (value: string | null): string => (value === null ? '-' : JSON.stringify(value));

/** One port in a form whose order and equality are those of its four fields. */
export function portKey(port: Port): string {
  const [name, protocol, app] = [port.name, port.protocol, port.appProtocol].map(quoted);
  return `${name ?? ''} ${String(port.port)} ${protocol ?? ''} ${app ?? ''}`;
}

/** In any order. k8s.io/endpointslice@v0.36.3 util/controller_utils.go NewPortMapKey. */
export function portMapKey(ports: readonly Port[]): PortMapKey {
  const first = ports[0];
  if (first === undefined) return '';
  return ports.length === 1 ? portKey(first) : ports.map(portKey).sort().join(',');
}

/** A port as people write it: `http 8080/TCP`, with the app protocol where there is one. */
export function portText(port: Port): string {
  const name = port.name === null || port.name === '' ? '' : `${port.name} `;
  const app = port.appProtocol === null ? '' : ` (${port.appProtocol})`;
  return `${name}${String(port.port)}/${String(port.protocol)}${app}`;
}

export const kinds: Readonly<Record<Resource, string>> = {
  nodes: 'Node',
  services: 'Service',
  pods: 'Pod',
  endpoints: 'Endpoints',
  endpointslices: 'EndpointSlice',
};

export const label = {
  headless: 'service.kubernetes.io/headless',
  serviceName: 'kubernetes.io/service-name',
  sliceManagedBy: 'endpointslice.kubernetes.io/managed-by',
  endpointsManagedBy: 'endpoints.kubernetes.io/managed-by',
  skipMirror: 'endpointslice.kubernetes.io/skip-mirror',
  serviceProxyName: 'service.kubernetes.io/service-proxy-name',
  zone: 'topology.kubernetes.io/zone',
  ciliumNode: 'service.cilium.io/node',
} as const;

export const annotation = {
  triggerTime: 'endpoints.kubernetes.io/last-change-trigger-time',
  overCapacity: 'endpoints.kubernetes.io/over-capacity',
  leader: 'control-plane.alpha.kubernetes.io/leader',
  lastApplied: 'kubectl.kubernetes.io/last-applied-configuration',
  topologyMode: 'service.kubernetes.io/topology-mode',
  topologyAwareHints: 'service.kubernetes.io/topology-aware-hints',
  /** Of this program: suppressions of findings about the Service. */
  suppress: 'endpoint-auditor/suppress',
} as const;

/** The longest annotation with suppressions that is read. */
export const mostSuppressText = 4096;

export const manager = {
  endpoints: 'endpoint-controller',
  slices: 'endpointslice-controller.k8s.io',
  mirroring: 'endpointslicemirroring-controller.k8s.io',
} as const;
