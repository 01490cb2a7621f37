// Reads API objects: the one adapter from plain objects (JSON, YAML or protobuf) to the model.
//
// It reads an object as a controller does: through Go's decoder (json-fields.ts) and the defaults
// of the API (pkg/apis/core/v1 and pkg/apis/discovery/v1 of kubernetes@v1.36.3). Fields that the
// auditor does not use are ignored. Model objects share values with the raw object, so the caller
// must not change it afterwards.

import type {
  AnyObject,
  Endpoint,
  Endpoints,
  EndpointSlice,
  EndpointSubset,
  UnreadableObject,
  Node,
  ObjectOf,
  Port,
  Resource,
  Service,
  ServicePort,
} from '../../model/objects.ts';
import { annotation, kinds, label, portMapKey, resources } from '../../model/objects.ts';
import { minorIn } from '../../model/proxy-config.ts';
import { internLabels, internList, internWord } from './intern.ts';
import type { Fields } from './json-fields.ts';
import {
  clusterMeta,
  flag,
  integer,
  isFields,
  labelMap,
  list,
  namespacedMeta,
  noLabels,
  number,
  objectRef,
  oneOf,
  optional,
  optionalFlag,
  optionalList,
  optionalNumber,
  optionalText,
  optionalWord,
  ownerReference,
  quantity,
  readyCondition,
  stringMap,
  text,
  texts,
  unixSeconds,
  within,
  word,
  WrongType,
} from './json-fields.ts';
import { type Problem, valueText } from './problem.ts';
import { type PreviousPod, readPod } from './read-pod.ts';

/** The caller adds the source and line. */
export type Unreadable = Omit<Problem, 'source' | 'line' | 'lost'> & {
  readonly lost: UnreadableObject;
};

export type Projection<R extends Resource> =
  | { readonly object: ObjectOf[R]; readonly problem?: undefined }
  | { readonly object?: undefined; readonly problem: Unreadable };

export interface Known {
  readonly previousPod?: PreviousPod | undefined;
  /** The size of the object in bytes: of the message, or of JSON without managedFields. */
  readonly bytes?: number | null;
}

const sliceV1 = 'discovery.k8s.io/v1';
const sliceVersions: readonly unknown[] = [sliceV1, 'discovery.k8s.io/v1beta1'];

/** null: none that is read. Other API groups have Services too; items of a list lack apiVersion. */
export function resourceOfKind(apiVersion: unknown, kind: unknown): Resource | null {
  const resource = resources.find((resource) => kinds[resource] === kind) ?? null;
  if (resource === null || apiVersion === undefined) return resource;
  const versions = resource === 'endpointslices' ? sliceVersions : ['v1'];
  return versions.includes(apiVersion) ? resource : null;
}

/**
 * Projects a raw API object; `at` is its arrival, Unix seconds. Never throws for content: an object
 * that Go could not decode, or without a name or namespace, yields a problem that names the field.
 */
export function project<R extends Resource>(
  resource: R,
  raw: unknown,
  at: number,
  known: Known = {},
): Projection<R> {
  try {
    if (!isFields(raw)) throw new WrongType('', 'an object', raw);
    const read: Reader<R> = readers[resource];
    return { object: read(raw, at, known) };
  } catch (error) {
    if (!(error instanceof WrongType)) throw error;
    return { problem: unreadable(resource, raw, error) };
  }
}

/** The newest time in an object, Unix seconds, which it was read after; null if it has none. */
export function newestTimestamp(object: AnyObject): number | null {
  const trigger = 'annotations' in object ? object.annotations[annotation.triggerTime] : '';
  const times = [
    object.created,
    'turnedAt' in object ? object.turnedAt : null,
    unixSeconds(trigger ?? ''),
  ].filter((time) => time !== null);
  return times.length === 0 ? null : Math.max(...times);
}

/** Bytes of a raw object as JSON without managedFields; null if it is nested too deeply. */
export function jsonBytes(raw: unknown): number | null {
  if (!isFields(raw)) return null;
  const { metadata } = raw;
  const bare = isFields(metadata) ? { ...metadata, managedFields: undefined } : metadata;
  try {
    return Buffer.byteLength(JSON.stringify({ ...raw, metadata: bare }));
  } catch {
    return null;
  }
}

export const hasManagedFields = (raw: unknown): boolean =>
  isFields(raw) && isFields(raw.metadata) && raw.metadata.managedFields !== undefined;

type Reader<R extends Resource> = (raw: Fields, at: number, known: Known) => ObjectOf[R];

const readers: { readonly [R in Resource]: Reader<R> } = {
  nodes: readNode,
  services: readService,
  pods: (raw, at, { previousPod }) => readPod(raw, at, previousPod),
  endpoints: readEndpoints,
  endpointslices: readEndpointSlice,
};

function readService(raw: Fields, at: number): Service {
  const meta = within(raw, 'metadata', namespacedMeta);
  const topologyAuto = within(raw, 'metadata', (metadata) =>
    within(metadata, 'annotations', isTopologyAuto),
  );
  const loadBalancerIPs = within(raw, 'status', (status) =>
    within(status, 'loadBalancer', virtualIPs),
  );
  return within(raw, 'spec', (spec) => {
    const clusterIPs = texts(spec, 'clusterIPs');
    const clusterIP = text(spec, 'clusterIP');
    const selector = labelMap(spec, 'selector');
    // Without a spread, which would make the object larger.
    return {
      key: meta.key,
      namespace: meta.namespace,
      name: meta.name,
      uid: meta.uid,
      resourceVersion: meta.resourceVersion,
      labels: internLabels(meta.labels),
      created: meta.created,
      deleting: meta.deleting,
      at,
      type: oneOf(
        spec,
        'type',
        ['ClusterIP', 'NodePort', 'LoadBalancer', 'ExternalName'],
        'ClusterIP',
      ),
      // One copy of equal text.
      clusterIP: clusterIPs.find((ip) => ip === clusterIP) ?? clusterIP,
      clusterIPs,
      externalIPs: texts(spec, 'externalIPs'),
      loadBalancerSourceRanges: texts(spec, 'loadBalancerSourceRanges'),
      internalTrafficPolicy: trafficPolicy(spec, 'internalTrafficPolicy'),
      externalTrafficPolicy: trafficPolicy(spec, 'externalTrafficPolicy'),
      affinitySeconds: affinitySeconds(spec),
      healthCheckNodePort: number(spec, 'healthCheckNodePort'),
      loadBalancerIPs,
      selector: Object.keys(selector).length === 0 ? null : selector,
      publishNotReadyAddresses: flag(spec, 'publishNotReadyAddresses'),
      ipFamilies: internList(texts(spec, 'ipFamilies')),
      ports: internList(list(spec, 'ports', servicePort)),
      trafficDistribution: optionalWord(spec, 'trafficDistribution'),
      topologyAuto,
    };
  });
}

/** Those that nodes answer for (IsVIPMode of pkg/proxy/util/utils.go); some have only hostnames. */
function virtualIPs(loadBalancer: Fields): readonly string[] {
  const ips = list(loadBalancer, 'ingress', (ingress) => {
    const ipMode = text(ingress, 'ipMode');
    return ipMode === '' || ipMode === 'VIP' ? text(ingress, 'ip') : '';
  });
  return ips.includes('') ? ips.filter((ip) => ip !== '') : ips;
}

/** kube-proxy treats every word except Local as Cluster. */
const trafficPolicy = (spec: Fields, name: string) =>
  text(spec, name) === 'Local' ? 'Local' : 'Cluster';

/** By default, DefaultClientIPServiceAffinitySeconds. */
function affinitySeconds(spec: Fields): number | null {
  const timeout = within(spec, 'sessionAffinityConfig', (config) =>
    within(config, 'clientIP', (clientIP) => optionalNumber(clientIP, 'timeoutSeconds')),
  );
  return text(spec, 'sessionAffinity') === 'ClientIP' ? (timeout ?? 10_800) : null;
}

/** hintsEnabled of k8s.io/endpointslice@v0.36.3 topologycache/utils.go. */
function isTopologyAuto(annotations: Fields): boolean {
  const { topologyAwareHints, topologyMode } = annotation;
  const name = Object.hasOwn(annotations, topologyAwareHints) ? topologyAwareHints : topologyMode;
  const value = annotations[name] ?? '';
  if (typeof value !== 'string') throw new WrongType(`["${name}"]`, 'a string', value);
  return value === 'Auto' || value === 'auto';
}

const servicePort = (port: Fields): ServicePort => ({
  name: word(port, 'name'),
  protocol: text(port, 'protocol') || 'TCP',
  port: number(port, 'port'),
  targetPort: targetPort(port),
  appProtocol: optionalWord(port, 'appProtocol'),
  nodePort: number(port, 'nodePort'),
});

/** The API server stores the port itself for 0 and ''. */
function targetPort(port: Fields): number | string {
  const value = port.targetPort;
  const target = typeof value === 'string' ? internWord(value) : number(port, 'targetPort');
  return target === 0 || target === '' ? number(port, 'port') : target;
}

function readNode(raw: Fields): Node {
  const meta = within(raw, 'metadata', clusterMeta);
  const { labels } = meta;
  const cidrs = within(raw, 'spec', podCIDRs);
  return within(raw, 'status', (status) => ({
    ...meta,
    // Left out to save memory: the audit needs only the labels below.
    labels: noLabels,
    zone: internWord(labels[label.zone] ?? ''),
    ready: readyCondition(status)?.status === 'True',
    controlPlane: ['control-plane', 'master'].some((role) =>
      Object.hasOwn(labels, `node-role.kubernetes.io/${role}`),
    ),
    cpuMillis: within(status, 'allocatable', (allocatable) => quantity(allocatable, 'cpu')),
    ...addressesOf(status),
    podCIDRs: cidrs,
    kubeletMinor: within(status, 'nodeInfo', (info) => minorIn(text(info, 'kubeletVersion'))),
  }));
}

/** A Node's IPs by type; GetNodeHostIPs of pkg/util/node/node.go takes internal ones first. */
function addressesOf(status: Fields): Pick<Node, 'addresses' | 'externalIPs'> {
  const all = list(status, 'addresses', (address) => ({
    type: text(address, 'type'),
    address: word(address, 'address'),
  }));
  const byType = (wanted: string) =>
    all.flatMap(({ type, address }) => (type === wanted ? address : []));
  return { addresses: byType('InternalIP'), externalIPs: byType('ExternalIP') };
}

function podCIDRs(spec: Fields): readonly string[] {
  const all = texts(spec, 'podCIDRs');
  const first = text(spec, 'podCIDR');
  return all.length === 0 && first !== '' ? [first] : all;
}

function readEndpoints(raw: Fields, at: number, known: Known): Endpoints {
  const meta = within(raw, 'metadata', namespacedMeta);
  const annotations = within(raw, 'metadata', (metadata) => stringMap(metadata, 'annotations'));
  const subsets = list(raw, 'subsets', endpointSubset);
  return {
    key: meta.key,
    namespace: meta.namespace,
    name: meta.name,
    uid: meta.uid,
    resourceVersion: meta.resourceVersion,
    labels: internLabels(meta.labels),
    created: meta.created,
    deleting: meta.deleting,
    at,
    annotations,
    subsets,
    bytes: known.bytes ?? null,
  };
}

function endpointSubset(subset: Fields): EndpointSubset {
  const ports = internList(list(subset, 'ports', subsetPort));
  const read = (ready: boolean) => (address: Fields) => ({
    ip: text(address, 'ip'),
    ready,
    ports,
    node: optionalWord(address, 'nodeName'),
    hostname: text(address, 'hostname'),
    target: optional(address, 'targetRef', objectRef),
  });
  const ready = list(subset, 'addresses', read(true));
  const notReady = list(subset, 'notReadyAddresses', read(false));
  const addresses = notReady.length === 0 ? ready : [...ready, ...notReady];
  return { ports, addresses, readyCount: ready.length };
}

const subsetPort = (port: Fields): Port => ({
  name: word(port, 'name'),
  protocol: text(port, 'protocol') || 'TCP',
  port: number(port, 'port'),
  appProtocol: optionalWord(port, 'appProtocol'),
});

function readEndpointSlice(raw: Fields, at: number, known: Known): EndpointSlice {
  const meta = within(raw, 'metadata', namespacedMeta);
  const { generation, annotations, owners } = within(raw, 'metadata', (metadata) => ({
    generation: integer(metadata, 'generation'),
    annotations: stringMap(metadata, 'annotations'),
    owners: list(metadata, 'ownerReferences', ownerReference),
  }));
  const addressType = oneOf(raw, 'addressType', ['IPv4', 'IPv6', 'FQDN']);
  const ports = internList(list(raw, 'ports', slicePort));
  // Only an object that names its version is known to be v1; the items of a list do not.
  const endpoints = list(raw, 'endpoints', raw.apiVersion === sliceV1 ? endpoint : betaEndpoint);
  return {
    key: meta.key,
    namespace: meta.namespace,
    name: meta.name,
    uid: meta.uid,
    resourceVersion: meta.resourceVersion,
    labels: internLabels(meta.labels),
    created: meta.created,
    deleting: meta.deleting,
    generation,
    annotations,
    owners,
    at,
    addressType,
    ports,
    portMap: internWord(portMapKey(ports)),
    endpoints,
    bytes: known.bytes ?? null,
  };
}

/** The API server fills in the protocol; a null name is left, for that is how it is then stored. */
const slicePort = (port: Fields): Port => ({
  name: optionalWord(port, 'name'),
  protocol: text(port, 'protocol') || 'TCP',
  port: optionalNumber(port, 'port'),
  appProtocol: optionalWord(port, 'appProtocol'),
});

function endpoint(endpoint: Fields): Endpoint {
  const conditions = within(endpoint, 'conditions', (conditions) => ({
    ready: optionalFlag(conditions, 'ready'),
    serving: optionalFlag(conditions, 'serving'),
    terminating: optionalFlag(conditions, 'terminating'),
  }));
  const hints = within(endpoint, 'hints', (hints) => ({
    forZones: optionalList(hints, 'forZones', (hint) => word(hint, 'name')),
    forNodes: optionalList(hints, 'forNodes', (hint) => word(hint, 'name')),
  }));
  return {
    addresses: texts(endpoint, 'addresses'),
    ready: conditions.ready,
    serving: conditions.serving,
    terminating: conditions.terminating,
    hostname: optionalText(endpoint, 'hostname'),
    node: optionalWord(endpoint, 'nodeName'),
    zone: optionalWord(endpoint, 'zone'),
    target: optional(endpoint, 'targetRef', objectRef),
    forZones: hints.forZones,
    forNodes: hints.forNodes,
  };
}

/** discovery.k8s.io/v1beta1 has a map `topology` where v1 has nodeName and zone. */
function betaEndpoint(raw: Fields): Endpoint {
  const read = endpoint(raw);
  if (read.node !== null && read.zone !== null) return read;
  return within(raw, 'topology', (topology) => ({
    ...read,
    node: read.node ?? optionalWord(topology, 'kubernetes.io/hostname'),
    zone: read.zone ?? optionalWord(topology, label.zone),
  }));
}

export function unreadable(resource: Resource, raw: unknown, error: WrongType): Unreadable {
  const lost = lostOf(resource, isFields(raw) && isFields(raw.metadata) ? raw.metadata : {});
  return {
    object: objectText(lost),
    field: error.field === '' ? null : error.field,
    value: valueText(error.value),
    message: `Expected ${error.expected}`,
    lost,
  };
}

function lostOf(resource: Resource, metadata: Fields): UnreadableObject {
  const named = (value: unknown) => (typeof value === 'string' && value !== '' ? value : null);
  const namespace = resource === 'nodes' ? '' : named(metadata.namespace);
  const lost = { resource, namespace, name: named(metadata.name) };
  try {
    return { ...lost, labels: labelMap(metadata, 'labels') };
  } catch {
    return { ...lost, labels: null };
  }
}

/** An object as people name it: `Pod shop/web-1`, `Pod in shop`, `Pod`. */
export function objectText({ resource, namespace, name }: UnreadableObject): string {
  const kind = kinds[resource];
  const place = namespace ?? '';
  if (name === null) return place === '' ? kind : `${kind} in ${place}`;
  return place === '' ? `${kind} ${name}` : `${kind} ${place}/${name}`;
}
