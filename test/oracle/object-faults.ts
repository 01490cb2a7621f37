// Labelled faults of Endpoints and EndpointSlices: snapshots of real controllers in which exactly
// one thing is changed. The pod, Node or Service that makes it wrong is looked up in the snapshot:
// a class whose precondition no snapshot meets has no instance.

import { chanceFrom } from '../apiserver/life.ts';
import type { Address, Endpoints, Slice } from '../controlplane/faults.ts';
import { gone, managedBy, serviceName, toNotReady } from '../controlplane/faults.ts';
import type { Thing } from '../controlplane/controlplane.ts';
import type { CaseRecord, VectorRecord } from './controllers.ts';

type Endpoint = NonNullable<Slice['endpoints']>[number];
type About = Readonly<Record<string, unknown>>;
type Verdict = 'info' | 'legal' | 'violation';

interface Service extends Thing {
  spec: {
    type: string;
    clusterIP?: string;
    selector?: Record<string, string>;
    ipFamilies?: string[];
    publishNotReadyAddresses?: boolean;
    trafficDistribution?: string;
    ports?: { name?: string; appProtocol?: string }[];
  };
}

interface Pod extends Thing {
  spec: { nodeName?: string; hostname?: string; subdomain?: string };
  status: {
    phase: string;
    podIPs?: { ip: string }[];
    conditions?: { type: string; status: string }[];
  };
}

/** One Service of a snapshot, with copies that a fault may change. */
interface Scene {
  readonly service: Service;
  readonly pods: readonly Pod[];
  readonly nodes: readonly Thing[];
  /** Those that the controllers wrote for the Service. */
  readonly slices: Slice[];
  readonly mirrored: Slice[];
  readonly endpoints: Endpoints | null;
  /** The lists that take the place of the base's. */
  readonly lists: { endpoints: Thing[]; endpointSlices: Thing[] };
  /** A number of the instance, for values that nothing else has. */
  readonly number: number;
}

/** Changes the scene; null: it has nothing that the fault could be about. */
type Apply = (scene: Scene) => About | null;

interface FaultClass {
  readonly verdict: Verdict;
  readonly note: string;
  readonly apply: Apply;
}

const zoneLabel = 'topology.kubernetes.io/zone';
const headlessLabel = 'service.kubernetes.io/headless';
const trigger = 'endpoints.kubernetes.io/last-change-trigger-time';

/** Those of a real object: what is empty may be absent. */
const subsetsOf = (endpoints: Partial<Endpoints>): Subset[] => endpoints.subsets ?? [];
const portsOf = (slice: Partial<Slice>): Slice['ports'] => slice.ports ?? [];

const without = (record: Record<string, string>, key: string): boolean =>
  Reflect.deleteProperty(record, key);

const labelsOf = ({ metadata }: Thing): Record<string, string> => (metadata.labels ??= {});

function annotationsOf({ metadata }: Thing): Record<string, string> {
  metadata.annotations ??= {};
  return metadata.annotations as Record<string, string>;
}

const isReady = ({ status }: Pod): boolean =>
  status.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') ?? false;
const isDeleting = ({ metadata }: Pod): boolean => metadata.deletionTimestamp !== undefined;
const isTerminal = ({ status }: Pod): boolean =>
  status.phase === 'Failed' || status.phase === 'Succeeded';

const isSelected = ({ service }: Scene, pod: Pod): boolean =>
  Object.entries(service.spec.selector ?? {}).every(
    ([key, value]) => pod.metadata.labels?.[key] === value,
  );

/** An endpoint with its slice and its pod. */
interface Place {
  readonly slice: Slice;
  readonly endpoint: Endpoint;
  readonly pod: Pod;
}

const placesIn = ({ slices, pods }: Scene): Place[] =>
  slices.flatMap((slice) =>
    (slice.endpoints ?? []).flatMap((endpoint) => {
      const pod = pods.find(({ metadata }) => metadata.uid === endpoint.targetRef?.uid);
      return pod === undefined || isTerminal(pod) ? [] : [{ slice, endpoint, pod }];
    }),
  );

const isLive = ({ pod, endpoint }: Place): boolean =>
  isReady(pod) && !isDeleting(pod) && endpoint.conditions.ready === true;

const aboutSlice = ({ metadata }: Slice, more: About = {}): About => ({
  ...{ kind: 'EndpointSlice', name: metadata.name, namespace: metadata.namespace },
  ...more,
});

const aboutPlace = ({ slice, endpoint, pod }: Place): About =>
  aboutSlice(slice, { addresses: [...endpoint.addresses], pod: pod.metadata.name });

/** Changes the first endpoint that `fits` accepts. */
const atEndpoint =
  (
    change: (place: Place, scene: Scene) => unknown,
    fits: (place: Place, scene: Scene) => boolean = isLive,
  ): Apply =>
  (scene) => {
    const place = placesIn(scene).find((one) => fits(one, scene));
    if (place === undefined) return null;
    const about = aboutPlace(place);
    return change(place, scene) === false ? null : about;
  };

const conditions = (place: Place, change: Endpoint['conditions']): unknown =>
  Object.assign(place.endpoint.conditions, change);

const publishes = ({ service }: Scene): boolean => service.spec.publishNotReadyAddresses === true;
const isHeadless = ({ service }: Scene): boolean => service.spec.clusterIP === 'None';
const nodeOf = ({ nodes }: Scene, name: string | undefined): Thing | undefined =>
  nodes.find(({ metadata }) => metadata.name === name);

const isZoned = (place: Place, scene: Scene): boolean => {
  const zone = nodeOf(scene, place.endpoint.nodeName)?.metadata.labels?.[zoneLabel];
  return isLive(place) && zone !== undefined && zone === place.endpoint.zone;
};

/** Another Node of the zone of an endpoint. */
const neighbourOf = ({ endpoint }: Place, { nodes }: Scene): string | undefined =>
  nodes.find(
    ({ metadata: { name, labels } }) =>
      name !== endpoint.nodeName && labels?.[zoneLabel] === endpoint.zone,
  )?.metadata.name;

/** A living pod that the Service does not select, and its address, which no endpoint has. */
function strangerTo(scene: Scene, { addressType }: Slice): { pod: Pod; ip: string } | null {
  const used = new Set(placesIn(scene).flatMap(({ endpoint }) => endpoint.addresses));
  for (const pod of scene.pods) {
    const ip = pod.status.podIPs?.[0]?.ip;
    if (ip === undefined || used.has(ip) || isSelected(scene, pod)) continue;
    if (isDeleting(pod) || isTerminal(pod)) continue;
    if (ip.includes(':') === (addressType === 'IPv6')) return { pod, ip };
  }
  return null;
}

const unusedAddress = ({ number }: Scene, { addressType }: Slice): string =>
  addressType === 'IPv4' ? `10.255.9.${number}` : `fd00:255::${number}`;

const remove = <T>(list: T[], one: T): unknown => list.splice(list.indexOf(one), 1);

const ofEndpoints: Record<string, [string, Apply]> = {
  'slice-endpoint-missing': [
    'a ready pod is absent from every slice',
    atEndpoint(
      ({ slice, endpoint }) => remove(slice.endpoints ?? [], endpoint),
      (place, scene) =>
        isLive(place) &&
        placesIn(scene).filter(
          ({ endpoint }) => endpoint.addresses[0] === place.endpoint.addresses[0],
        ).length === 1,
    ),
  ],
  'slice-endpoint-of-deleted-pod': [
    'an endpoint whose pod no longer exists',
    (scene) => {
      const place = placesIn(scene).find(isLive);
      if (place === undefined) return null;
      const { slice, endpoint } = place;
      const addresses = [unusedAddress(scene, slice)];
      const targetRef = { ...endpoint.targetRef, name: 'gone', uid: gone };
      slice.endpoints?.push({ ...endpoint, addresses, targetRef });
      return aboutSlice(slice, { addresses, pod: 'gone' });
    },
  ],
  'slice-pod-not-selected': [
    'a pod that the selector does not match is listed',
    (scene) => {
      const place = placesIn(scene).find(isLive);
      const stranger = place === undefined ? null : strangerTo(scene, place.slice);
      if (place === undefined || stranger === null) return null;
      const { ip, pod } = stranger;
      const { name, namespace = '', uid } = pod.metadata;
      const targetRef = { kind: 'Pod', name, namespace, uid: String(uid) };
      place.slice.endpoints?.push({ ...place.endpoint, addresses: [ip], targetRef });
      return aboutSlice(place.slice, { addresses: [ip], pod: name });
    },
  ],
  'slice-ready-false-for-ready-pod': [
    'ready=false for a Ready, living pod',
    atEndpoint((place) => conditions(place, { ready: false })),
  ],
  'slice-ready-and-serving-false-for-ready-pod': [
    'the slice missed a change to Ready',
    atEndpoint(
      (place) => conditions(place, { ready: false, serving: false }),
      (place, scene) => isLive(place) && !publishes(scene),
    ),
  ],
  'slice-ready-true-for-not-ready-pod': [
    'ready=true (and serving=true) for a pod that is not Ready',
    atEndpoint(
      (place) => conditions(place, { ready: true, serving: true }),
      ({ pod }, scene) => !isReady(pod) && !isDeleting(pod) && !publishes(scene),
    ),
  ],
  'slice-serving-wrong': [
    'serving contradicts the Ready condition of the pod',
    atEndpoint((place) => conditions(place, { serving: false })),
  ],
  'slice-terminating-not-shown': [
    'a pod with deletionTimestamp has terminating=false',
    atEndpoint(
      (place) => conditions(place, { terminating: false }),
      ({ pod }) => isDeleting(pod),
    ),
  ],
  'slice-terminating-for-living-pod': [
    'terminating=true without deletionTimestamp',
    atEndpoint((place) => conditions(place, { terminating: true })),
  ],
  'slice-ready-true-for-terminating-pod': [
    'ready=true while terminating, without publishNotReadyAddresses',
    atEndpoint(
      (place) => conditions(place, { ready: true }),
      ({ pod }, scene) => isDeleting(pod) && !publishes(scene),
    ),
  ],
  'slice-not-ready-despite-publish-not-ready': [
    'publishNotReadyAddresses set, but ready=false',
    atEndpoint(
      (place) => conditions(place, { ready: false }),
      (_, scene) => publishes(scene),
    ),
  ],
  'slice-conditions-missing': [
    'conditions object emptied',
    atEndpoint(({ endpoint }) => (endpoint.conditions = {})),
  ],
  'slice-address-of-another-pod': [
    'IP reuse: the address belongs to a different living pod',
    atEndpoint(({ slice, endpoint }, scene) => {
      const stranger = strangerTo(scene, slice);
      if (stranger === null) return false;
      endpoint.addresses = [stranger.ip];
      return true;
    }),
  ],
  'slice-address-stale': [
    'the pod changed its IP, the slice kept an address that belongs to no pod',
    atEndpoint(
      ({ slice, endpoint }, scene) => (endpoint.addresses = [unusedAddress(scene, slice)]),
    ),
  ],
  'slice-target-uid-of-predecessor': [
    'targetRef.uid is that of an earlier pod of the same name',
    atEndpoint(({ endpoint }) => (endpoint.targetRef = { ...endpoint.targetRef, uid: gone })),
  ],
  'slice-target-ref-missing': [
    'targetRef removed',
    atEndpoint(({ endpoint }) => delete endpoint.targetRef),
  ],
  'slice-node-name-wrong': [
    'nodeName is another node of the same zone',
    atEndpoint((place, scene) => {
      const name = neighbourOf(place, scene);
      if (name === undefined) return false;
      place.endpoint.nodeName = name;
      return true;
    }, isZoned),
  ],
  'slice-node-name-missing': [
    'nodeName removed',
    atEndpoint(({ endpoint }) => delete endpoint.nodeName),
  ],
  'slice-zone-wrong': [
    'a zone that the node never had',
    atEndpoint(({ endpoint }) => (endpoint.zone = 'zone-q'), isZoned),
  ],
  'slice-zone-missing': [
    'zone removed, the node always had one',
    atEndpoint(({ endpoint }) => delete endpoint.zone, isZoned),
  ],
  'slice-hostname-missing': [
    'hostname dropped for a pod whose subdomain equals the Service name',
    atEndpoint(
      ({ endpoint }) => delete endpoint.hostname,
      ({ endpoint }) => endpoint.hostname !== undefined,
    ),
  ],
  'slice-hostname-wrong': [
    'another hostname',
    atEndpoint(
      ({ endpoint }) => (endpoint.hostname = 'other'),
      ({ endpoint }) => endpoint.hostname !== undefined,
    ),
  ],
  'slice-hostname-uncalled-for': [
    'hostname set although the pod has none for the Service',
    atEndpoint(
      ({ endpoint }) => (endpoint.hostname = 'other'),
      (place) => isLive(place) && place.endpoint.hostname === undefined,
    ),
  ],
  'hint-missing': [
    'trafficDistribution set, ready endpoint with a zone, no hint',
    atEndpoint(
      ({ endpoint }) => delete endpoint.hints,
      (place, scene) => isZoned(place, scene) && isSteered(place, scene),
    ),
  ],
  'hint-wrong-zone': [
    'the hint of trafficDistribution names another zone',
    atEndpoint(
      ({ endpoint }) => (endpoint.hints = { ...endpoint.hints, forZones: [{ name: 'zone-q' }] }),
      (place, scene) => isZoned(place, scene) && isSteered(place, scene),
    ),
  ],
  'hint-node-missing': [
    'PreferSameNode without forNodes',
    atEndpoint(
      ({ endpoint }) => delete endpoint.hints?.forNodes,
      ({ endpoint }) => endpoint.hints?.forNodes !== undefined,
    ),
  ],
  'hint-uncalled-for': [
    'hint on a Service with neither trafficDistribution nor topology-mode',
    atEndpoint(
      ({ endpoint }) => (endpoint.hints = { forZones: [{ name: endpoint.zone ?? 'zone-a' }] }),
      (place, { service }) =>
        isLive(place) &&
        service.spec.trafficDistribution === undefined &&
        annotationsOf(service)['service.kubernetes.io/topology-mode'] === undefined,
    ),
  ],
};

const isSteered = ({ endpoint }: Place, { service }: Scene): boolean =>
  service.spec.trafficDistribution !== undefined && endpoint.hints !== undefined;

const filled = ({ endpoints }: Slice): boolean => (endpoints ?? []).length > 0;

/** Changes the first slice that `fits` accepts. */
const atSlice =
  (
    change: (slice: Slice, scene: Scene) => unknown,
    fits: (slice: Slice, scene: Scene) => boolean = filled,
    more: (slice: Slice) => About = () => ({}),
  ): Apply =>
  (scene) => {
    const slice = scene.slices.find((one) => fits(one, scene));
    if (slice === undefined) return null;
    const about = aboutSlice(slice, more(slice));
    return change(slice, scene) === false ? null : about;
  };

const hasPorts = (slice: Slice): boolean => filled(slice) && portsOf(slice).length > 0;
const firstPort = (slice: Slice): About => ({ port: { ...portsOf(slice)[0] } });

/** Changes the first port of a slice with endpoints. */
const atPort = (change: (port: Slice['ports'][number]) => unknown): Apply =>
  atSlice(({ ports: [port] }) => (port === undefined ? false : change(port)), hasPorts, firstPort);

const drop = (slice: Slice, { lists }: Scene): unknown => remove(lists.endpointSlices, slice);

const isPropagated = (key: string, { service }: Scene): boolean =>
  !key.includes('kubernetes.io') && service.metadata.labels?.[key] !== undefined;

/** Takes a label of the Service from an object. */
const withoutLabel = (thing: Thing, scene: Scene): string | null => {
  const key = Object.keys(labelsOf(thing)).find((one) => isPropagated(one, scene));
  if (key !== undefined) without(labelsOf(thing), key);
  return key ?? null;
};

const ofSlices: Record<string, [string, Apply]> = {
  'slice-port-number-wrong': ['port number off by one', atPort((port) => port.port++)],
  'slice-port-name-wrong': [
    'port name differs from the name of the Service port',
    atPort((port) => (port.name = 'other')),
  ],
  'slice-port-protocol-wrong': [
    'protocol differs',
    atPort((port) => (port.protocol = port.protocol === 'UDP' ? 'TCP' : 'UDP')),
  ],
  'slice-port-missing': [
    'one port removed',
    atSlice(({ ports }) => ports.shift(), hasPorts, firstPort),
  ],
  'slice-port-extra': [
    'a port the Service does not have',
    atSlice(
      ({ ports }) => ports.push({ name: 'c', port: 9090, protocol: 'SCTP' }),
      hasPorts,
      () => ({ port: { name: 'c', port: 9090, protocol: 'SCTP' } }),
    ),
  ],
  'slice-app-protocol-missing': [
    'appProtocol of the Service port not carried',
    atPort((port) => (port.appProtocol === undefined ? false : delete port.appProtocol)),
  ],
  'slice-app-protocol-uncalled-for': [
    'appProtocol the Service does not have',
    atPort((port) => (port.appProtocol !== undefined ? false : (port.appProtocol = 'grpc'))),
  ],
  'slice-all-missing': [
    'the Service has endpoints but no slice',
    (scene) => {
      if (!scene.slices.some(filled)) return null;
      for (const slice of scene.slices) drop(slice, scene);
      return { kind: 'Service', name: scene.service.metadata.name };
    },
  ],
  'slice-placeholder-missing': [
    'no endpoints, and the empty placeholder slice is absent',
    atSlice(
      drop,
      (slice, { slices }) => !filled(slice) && slices.length === 1,
      ({ addressType }) => ({ addressType }),
    ),
  ],
  'slice-family-missing': [
    'a dual-stack Service lost every slice of one family',
    (scene) => {
      const lost = scene.slices.filter(({ addressType }) => addressType === 'IPv6');
      if (!lost.some(filled) || lost.length === scene.slices.length) return null;
      for (const slice of lost) drop(slice, scene);
      return { kind: 'Service', name: scene.service.metadata.name };
    },
  ],
  'slice-of-unsupported-family': [
    'an IPv6 slice for an IPv4-only Service',
    atSlice(
      (slice, scene) => {
        const copy = structuredClone(slice);
        copy.addressType = 'IPv6';
        for (const endpoint of copy.endpoints ?? [])
          endpoint.addresses = [unusedAddress(scene, copy)];
        copy.metadata.name += '-six';
        copy.metadata.uid = gone;
        scene.lists.endpointSlices.push(copy);
      },
      (slice, { service }) => filled(slice) && service.spec.ipFamilies?.join() === 'IPv4',
    ),
  ],
  'slice-owned-by-old-service-uid': [
    'the owner is a deleted Service of the same name',
    atSlice(({ metadata }) => {
      for (const owner of metadata.ownerReferences ?? []) owner.uid = gone;
    }),
  ],
  'slice-owner-reference-missing': [
    'ownerReferences removed',
    atSlice(({ metadata }) => delete metadata.ownerReferences),
  ],
  'slice-service-name-label-missing': [
    'kubernetes.io/service-name removed',
    atSlice(
      (slice) => without(labelsOf(slice), serviceName),
      filled,
      () => ({ label: serviceName }),
    ),
  ],
  'slice-managed-by-wrong': [
    'managed-by changed: the Service then has no slice of the controller',
    atSlice(
      (slice) => (labelsOf(slice)[managedBy] = 'other'),
      (slice, { slices }) => filled(slice) && slices.length === 1,
    ),
  ],
  'slice-headless-label-missing': [
    'headless Service, label absent',
    atSlice(
      (slice) => without(labelsOf(slice), headlessLabel),
      (slice, scene) => isHeadless(scene) && labelsOf(slice)[headlessLabel] !== undefined,
    ),
  ],
  'slice-headless-label-uncalled-for': [
    'label on the slice of a ClusterIP Service',
    atSlice(
      (slice) => (labelsOf(slice)[headlessLabel] = ''),
      (slice, scene) => filled(slice) && !isHeadless(scene),
    ),
  ],
  'slice-propagated-label-missing': [
    'a Service label is not on the slice',
    (scene) => {
      const [slice] = scene.slices;
      const label = slice === undefined ? null : withoutLabel(slice, scene);
      return slice === undefined || label === null ? null : aboutSlice(slice, { label });
    },
  ],
  'slice-propagated-label-stale': [
    'a label the Service no longer has',
    atSlice(
      (slice) => (labelsOf(slice).stale = 'yes'),
      filled,
      () => ({ label: 'stale' }),
    ),
  ],
};

const aboutEndpoints = ({ metadata }: Endpoints, more: About = {}): About => ({
  ...{ kind: 'Endpoints', name: metadata.name, namespace: metadata.namespace },
  ...more,
});

/** Changes the number of a port, and returns the port before the change. */
function raisePort<T extends { port: number }>(port: T | undefined) {
  if (port === undefined) return false;
  const about = { port: { ...port } };
  port.port++;
  return about;
}

const atEndpoints =
  (change: (endpoints: Endpoints, scene: Scene) => About | false): Apply =>
  (scene) => {
    const { endpoints } = scene;
    const more = endpoints === null ? false : change(endpoints, scene);
    return endpoints === null || more === false ? null : aboutEndpoints(endpoints, more);
  };

type Subset = Endpoints['subsets'][number];

/** Changes an address of a living pod whose Ready condition is as wanted. */
const atAddress = (
  kind: 'addresses' | 'notReadyAddresses',
  change: (address: Address, subset: Subset, scene: Scene) => unknown,
  fits: (pod: Pod, scene: Scene) => boolean = (pod) => !isDeleting(pod),
): Apply =>
  atEndpoints((endpoints, scene) => {
    for (const subset of subsetsOf(endpoints)) {
      for (const address of subset[kind] ?? []) {
        const uid = address.targetRef?.uid;
        const pod = scene.pods.find(({ metadata }) => metadata.uid === uid);
        if (pod === undefined || isTerminal(pod) || !fits(pod, scene)) continue;
        const about = { addresses: [address.ip], pod: pod.metadata.name };
        return change(address, subset, scene) === false ? false : about;
      }
    }
    return false;
  });

const ofEndpointsObjects: Record<string, [string, Apply]> = {
  'endpoints-object-missing': [
    'a Service with selector has no Endpoints object',
    atEndpoints((endpoints, { lists }) => {
      remove(lists.endpoints, endpoints);
      return {};
    }),
  ],
  'endpoints-address-missing': [
    'a ready pod is absent from Endpoints',
    atAddress('addresses', (address, { addresses = [] }) => remove(addresses, address)),
  ],
  'endpoints-address-of-deleted-pod': [
    'an address whose pod no longer exists',
    atEndpoints((endpoints, { number }) => {
      const [subset] = subsetsOf(endpoints);
      const address = subset?.addresses?.[0];
      if (address === undefined || address.ip.includes(':')) return false;
      const ip = `10.255.9.${number}`;
      const targetRef = { ...address.targetRef, name: 'gone', uid: gone };
      subset?.addresses?.push({ ...address, ip, targetRef });
      return { addresses: [ip], pod: 'gone' };
    }),
  ],
  'endpoints-ready-pod-stuck-not-ready': [
    'a Ready pod is in notReadyAddresses',
    atEndpoints((endpoints, scene) => {
      const subset = subsetsOf(endpoints).find(({ addresses = [] }) => addresses.length > 0);
      const address = subset?.addresses?.[0];
      if (subset === undefined || address === undefined || publishes(scene)) return false;
      toNotReady(subset);
      return { addresses: [address.ip] };
    }),
  ],
  'endpoints-not-ready-pod-shown-ready': [
    'a pod that is not Ready is in addresses',
    atAddress('notReadyAddresses', (address, subset) => {
      remove(subset.notReadyAddresses ?? [], address);
      (subset.addresses ??= []).push(address);
    }),
  ],
  'endpoints-target-uid-of-predecessor': [
    'targetRef.uid of an earlier pod',
    atAddress('addresses', (address) => (address.targetRef = { ...address.targetRef, uid: gone })),
  ],
  'endpoints-node-name-wrong': [
    'another node',
    atAddress('addresses', (address) => (address.nodeName = 'node-other')),
  ],
  'endpoints-port-number-wrong': [
    'port number off by one',
    atEndpoints((endpoints) => {
      const [subset] = subsetsOf(endpoints);
      return raisePort(subset?.ports?.[0]);
    }),
  ],
  'endpoints-headless-label-missing': [
    'headless Service, label absent on Endpoints',
    atEndpoints((endpoints, scene) => {
      if (!isHeadless(scene) || labelsOf(endpoints)[headlessLabel] === undefined) return false;
      without(labelsOf(endpoints), headlessLabel);
      return {};
    }),
  ],
  'endpoints-managed-by-label-missing': [
    'endpoints.kubernetes.io/managed-by absent',
    atEndpoints((endpoints) => {
      const label = 'endpoints.kubernetes.io/managed-by';
      if (labelsOf(endpoints)[label] !== 'endpoint-controller') return false;
      without(labelsOf(endpoints), label);
      return {};
    }),
  ],
  'endpoints-label-not-propagated': [
    'a Service label is not on Endpoints',
    atEndpoints((endpoints, scene) => {
      const label = withoutLabel(endpoints, scene);
      return label === null ? false : { label };
    }),
  ],
  'endpoints-over-capacity-annotation-uncalled-for': [
    'annotation on an Endpoints of fewer than 1000 addresses',
    atEndpoints((endpoints) => {
      annotationsOf(endpoints)['endpoints.kubernetes.io/over-capacity'] = 'truncated';
      return {};
    }),
  ],
};

/** Changes a mirrored slice with endpoints. */
const atMirrored =
  (change: (slice: Slice, scene: Scene) => About | false): Apply =>
  (scene) => {
    const slice = scene.mirrored.find(filled);
    if (slice === undefined) return null;
    const about = aboutSlice(slice);
    const more = change(slice, scene);
    return more === false ? null : { ...about, ...more };
  };

const mirroredAs = (ready: boolean): Apply =>
  atMirrored(({ endpoints }) => {
    const endpoint = endpoints?.find(({ conditions: is }) => is.ready === ready);
    if (endpoint === undefined) return false;
    endpoint.conditions.ready = !ready;
    return { addresses: endpoint.addresses };
  });

const ofMirrored: Record<string, [string, Apply]> = {
  'mirror-slice-missing': [
    'Endpoints have addresses, no mirrored slice',
    atMirrored((slice, scene) => {
      drop(slice, scene);
      return {};
    }),
  ],
  'mirror-not-ready-shown-ready': ['a notReadyAddresses entry is ready=true', mirroredAs(false)],
  'mirror-ready-shown-not-ready': ['an addresses entry is ready=false', mirroredAs(true)],
  'mirror-address-missing': [
    'an address of Endpoints is not mirrored',
    atMirrored(({ endpoints }) => ({ addresses: endpoints?.shift()?.addresses })),
  ],
  'mirror-address-extra': [
    'an address that Endpoints no longer have',
    atMirrored((slice, scene) => {
      const addresses = [unusedAddress(scene, slice)];
      slice.endpoints?.push({ addresses, conditions: { ready: true } });
      return { addresses };
    }),
  ],
  'mirror-port-wrong': [
    'port number differs from the subset of Endpoints',
    atMirrored((slice) => raisePort(portsOf(slice)[0])),
  ],
  'mirror-owner-uid-of-old-endpoints': [
    'owned by an earlier Endpoints object',
    atMirrored(({ metadata }) => {
      for (const owner of metadata.ownerReferences ?? []) owner.uid = gone;
      return {};
    }),
  ],
};

const all = (): About => ({ kind: 'all' });

/** A change of every slice that means nothing. */
const everySlice =
  (change: (slice: Slice, scene: Scene) => unknown): Apply =>
  (scene) => {
    if (!scene.slices.some(filled)) return null;
    for (const slice of scene.slices) change(slice, scene);
    return all();
  };

const legal: Record<string, [string, Apply]> = {
  'order-shuffled': [
    'order of endpoints, ports, slices, addresses carries no meaning',
    (scene) => {
      if (!scene.slices.some(({ endpoints }) => (endpoints ?? []).length > 1)) return null;
      scene.lists.endpointSlices.reverse();
      for (const slice of scene.slices) {
        slice.endpoints?.reverse();
        portsOf(slice).reverse();
      }
      for (const { addresses } of subsetsOf(scene.endpoints ?? {})) addresses?.reverse();
      return all();
    },
  ],
  'slices-not-packed': [
    'the same endpoints spread over more slices than needed',
    (scene) => {
      const slice = scene.slices.find(({ endpoints }) => (endpoints ?? []).length > 1);
      const moved = slice?.endpoints?.pop();
      if (slice === undefined || moved === undefined) return null;
      const copy = structuredClone({ ...slice, endpoints: [moved] });
      copy.metadata.name += '-s';
      copy.metadata.uid = gone;
      scene.lists.endpointSlices.push(copy);
      return aboutSlice(copy);
    },
  ],
  'slice-name-suffix-and-generation-differ': [
    'names are generated; generation and resourceVersion count writes',
    everySlice(({ metadata }, { slices }) => {
      const at = slices.findIndex(({ metadata: { uid } }) => uid === metadata.uid);
      metadata.name = `${metadata.name.slice(0, -5)}zzzz${at}`;
      metadata.generation = 7;
    }),
  ],
  'trigger-time-annotation-absent': [
    'the annotation depends on history; absence is normal',
    everySlice((slice) => without(annotationsOf(slice), trigger)),
  ],
  'trigger-time-annotation-differs': [
    'Endpoints and slices may carry different values',
    everySlice((slice) => (annotationsOf(slice)[trigger] = '2026-01-01T00:00:00Z')),
  ],
  'slice-of-another-manager': [
    'a slice with a foreign managed-by label is not the controllers’ business',
    (scene) => {
      const slice = scene.slices.find(filled);
      if (slice === undefined) return null;
      const copy = structuredClone(slice);
      copy.metadata.name = `${slice.metadata.name}-mesh`;
      copy.metadata.uid = gone;
      delete copy.metadata.ownerReferences;
      labelsOf(copy)[managedBy] = 'mesh.example.com';
      scene.lists.endpointSlices.push(copy);
      return aboutSlice(copy);
    },
  ],
  'foreign-annotation': [
    'annotations written by others are kept by the controllers',
    everySlice((slice) => (annotationsOf(slice)['example.com/note'] = 'mine')),
  ],
  'target-ref-resource-version': [
    'targetRef.resourceVersion is ignored by the comparison of the controllers',
    everySlice(({ endpoints }) => {
      for (const { targetRef } of endpoints ?? []) {
        if (targetRef !== undefined) targetRef.resourceVersion = '1';
      }
    }),
  ],
};

const info: Record<string, [string, Apply]> = {
  'slice-extra-empty': [
    'an additional empty slice of the controller: serves no traffic',
    atSlice((slice, { lists }) => {
      const copy = structuredClone({ ...slice, endpoints: [] });
      copy.metadata.name += '-e';
      copy.metadata.uid = gone;
      lists.endpointSlices.push(copy);
    }),
  ],
  'slice-duplicate-endpoint-equal-conditions': [
    'the same endpoint in two slices of the same ports with equal conditions',
    atEndpoint(({ slice, endpoint }, { lists }) => {
      const copy = structuredClone({ ...slice, endpoints: [endpoint] });
      copy.metadata.name += '-d';
      copy.metadata.uid = gone;
      lists.endpointSlices.push(copy);
    }),
  ],
};

const labelled = (
  verdict: Verdict,
  classes: Record<string, [string, Apply]>,
): [string, FaultClass][] =>
  Object.entries(classes).map(([name, [note, apply]]) => [name, { verdict, note, apply }]);

/** Every class by name. */
const classes: ReadonlyMap<string, FaultClass> = new Map([
  ...labelled('violation', { ...ofEndpoints, ...ofSlices, ...ofEndpointsObjects, ...ofMirrored }),
  ...labelled('legal', legal),
  ...labelled('info', info),
]);

const isManaged = (slice: Slice, by: string): boolean =>
  slice.metadata.labels?.[managedBy] === `${by}.k8s.io`;

/** The scenes of a case line: one for each Service that can be spoilt. */
function sceneOf(base: CaseRecord, name: string, nodes: readonly Thing[], number: number): Scene {
  const lists = structuredClone({ endpoints: base.endpoints, endpointSlices: base.endpointSlices });
  const service = base.services.find(({ metadata }) => metadata.name === name) as Service;
  const slices = (lists.endpointSlices as Slice[]).filter(
    ({ metadata }) => metadata.labels?.[serviceName] === name,
  );
  const hasSelector = Object.keys(service.spec.selector ?? {}).length > 0;
  const own = (lists.endpoints as Endpoints[]).find(({ metadata }) => metadata.name === name);
  return {
    ...{ service, nodes, number, pods: base.pods as Pod[] },
    slices: hasSelector
      ? slices.filter((slice) => isManaged(slice, 'endpointslice-controller'))
      : [],
    mirrored: hasSelector
      ? []
      : slices.filter((slice) => isManaged(slice, 'endpointslicemirroring-controller')),
    endpoints: hasSelector ? (own ?? null) : null,
    lists: lists as Scene['lists'],
  };
}

/** Operations that leave a Service in a state that the controllers do not follow from. */
const disturbs = (words: string): boolean =>
  /^user edits|^user deletes|REJECTED|node=(?:node-gone)? /.test(words);

/** A Service of a snapshot, and the Nodes of that moment. */
export interface Target {
  readonly base: CaseRecord;
  readonly service: string;
  readonly nodes: readonly Thing[];
}

/** The Services of the case lines of a file that can be spoilt. */
export function targetsIn(records: readonly VectorRecord[]): Target[] {
  const lines = records.filter((record) => record.kind === 'case');
  const nodes = new Map(
    records.filter((record) => record.kind === 'nodes').map(({ step, items }) => [step, items]),
  );
  const disturbed = new Set(
    lines.filter(({ ops }) => ops.some(disturbs)).map((record) => record.case),
  );
  return lines
    .filter((record) => !disturbed.has(record.case) && !/external|reserved|x[12]/.test(record.case))
    .flatMap((base) =>
      base.services
        .filter(({ spec }) => (spec as Service['spec']).type !== 'ExternalName')
        .map(({ metadata: { name: service } }) => {
          return { base, service, nodes: nodes.get(base.step) ?? [] };
        }),
    );
}

/** The outputs of a snapshot with one thing changed, and what that is about. */
export interface Spoilt extends Readonly<Scene['lists']> {
  readonly about: About;
}

/** Applies a fault to a Service; null: the snapshot has nothing that it could be about. */
export function spoil(fault: string, target: Target, number: number): Spoilt | null {
  const { base, service, nodes } = target;
  const scene = sceneOf(base, service, nodes, number);
  const about = classes.get(fault)?.apply(scene) ?? null;
  return about === null ? null : { about, ...scene.lists };
}

/** The names of all classes, with their verdicts. */
export const verdicts: ReadonlyMap<string, Verdict> = new Map(
  [...classes].map(([name, { verdict }]) => [name, verdict]),
);

/** `count` faults of every class, made from the case lines of a file. */
export function makeFaults(
  file: string,
  records: readonly VectorRecord[],
  { seed, count }: { readonly seed: number; readonly count: number },
): object[] {
  const random = chanceFrom(seed);
  const targets = targetsIn(records);
  const faults: object[] = [];
  for (const [fault, verdict] of verdicts) {
    const order = targets.map((target) => ({ target, rank: random() }));
    const used = new Set<string>();
    for (const { target } of order.sort((a, b) => a.rank - b.rank)) {
      if (used.size >= count) break;
      const { case: of, step } = target.base;
      if (used.has(of)) continue;
      const spoilt = spoil(fault, target, used.size + 1);
      if (spoilt === null) continue;
      used.add(of);
      const { about, ...lists } = spoilt;
      const where = { file, case: of, step };
      faults.push({ kind: 'fault', fault, verdict, base: where, about, ...lists });
    }
  }
  const described = [...classes].map(
    ([name, { verdict, note }]) => [name, { verdict, note }] as const,
  );
  const header = {
    kind: 'header',
    seed,
    bases: [file],
    faults: Object.fromEntries(described) as object,
  };
  return [header, ...faults];
}
