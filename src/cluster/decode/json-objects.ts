// Reads API objects: the one adapter from plain objects (JSON, YAML or protobuf) to the model.
//
// It reads an object as a controller does: through Go's decoder (json-fields.ts) and the defaults
// of the API (pkg/apis/core/v1 and pkg/apis/discovery/v1 of kubernetes@v1.36.3). Fields that the
// auditor does not use are ignored. Model objects share values with the raw object, so the caller
// must not change it afterwards.

import type * as api from '../../model/objects.ts';
import {
  annotation,
  kinds,
  label,
  mostSuppressText,
  portMapKey,
  resources,
} from '../../model/objects.ts';
import { minorIn } from '../../model/proxy-config.ts';
import { internLabels, internList, internWord } from './intern.ts';
import * as json from './json-fields.ts';
import { type Problem, valueText } from './problem.ts';
import { type PreviousPod, readPod } from './read-pod.ts';

/** The caller adds the source and line. */
export type Unreadable = Omit<Problem, 'source' | 'line' | 'lost'> & {
  readonly lost: api.UnreadableObject;
};

export type Projection<R extends api.Resource> =
  | { readonly object: api.ObjectOf[R]; readonly problem?: undefined }
  | { readonly object?: undefined; readonly problem: Unreadable };

export interface Known {
  readonly previousPod?: PreviousPod | undefined;
  /** The size of the object in bytes: of the message, or of JSON without managedFields. */
  readonly bytes?: number | null;
}

const sliceV1 = 'discovery.k8s.io/v1';
const sliceVersions: readonly unknown[] = [sliceV1, 'discovery.k8s.io/v1beta1'];

/** null: none that is read. Other API groups have Services too; items of a list lack apiVersion. */
export function resourceOfKind(apiVersion: unknown, kind: unknown): api.Resource | null {
  const resource = resources.find((resource) => kinds[resource] === kind) ?? null;
  if (resource === null || apiVersion === undefined) return resource;
  const versions = resource === 'endpointslices' ? sliceVersions : ['v1'];
  return versions.includes(apiVersion) ? resource : null;
}

/**
 * Projects a raw API object; `at` is its arrival, Unix seconds. Never throws for content: an object
 * that Go could not decode, or without a name or namespace, yields a problem that names the field.
 */
export function project<R extends api.Resource>(
  resource: R,
  raw: unknown,
  at: number,
  known: Known = {},
): Projection<R> {
  try {
    if (!json.isFields(raw)) throw new json.WrongType('', 'an object', raw);
    const read: Reader<R> = readers[resource];
    return { object: read(raw, at, known) };
  } catch (error) {
    if (!(error instanceof json.WrongType)) throw error;
    return { problem: unreadable(resource, raw, error) };
  }
}

/** The newest time in an object, Unix seconds, which it was read after; null if it has none. */
export function newestTimestamp(object: api.AnyObject): number | null {
  const trigger = 'annotations' in object ? object.annotations[annotation.triggerTime] : '';
  const times = [
    object.created,
    'turnedAt' in object ? object.turnedAt : null,
    json.unixSeconds(trigger ?? ''),
  ].filter((time) => time !== null);
  return times.length === 0 ? null : Math.max(...times);
}

/** Bytes of a raw object as JSON without managedFields; null if it is nested too deeply. */
export function jsonBytes(raw: unknown): number | null {
  if (!json.isFields(raw)) return null;
  const { metadata } = raw;
  const bare = json.isFields(metadata) ? { ...metadata, managedFields: undefined } : metadata;
  try {
    return Buffer.byteLength(JSON.stringify({ ...raw, metadata: bare }));
  } catch {
    return null;
  }
}

export const hasManagedFields = (raw: unknown): boolean =>
  json.isFields(raw) && json.isFields(raw.metadata) && raw.metadata.managedFields !== undefined;

type Reader<R extends api.Resource> = (
  raw: json.Fields,
  at: number,
  known: Known,
) => api.ObjectOf[R];

const readers: { readonly [R in api.Resource]: Reader<R> } = {
  nodes: readNode,
  services: readService,
  pods: (raw, at, { previousPod }) => readPod(raw, at, previousPod),
  endpoints: readEndpoints,
  endpointslices: readEndpointSlice,
};

function internedMeta(metadata: json.Fields): api.Meta {
  const meta = json.namespacedMeta(metadata);
  return { ...meta, labels: internLabels(meta.labels) };
}

const serviceTypes = ['ClusterIP', 'NodePort', 'LoadBalancer', 'ExternalName'] as const;

function readService(raw: json.Fields, at: number): api.Service {
  const meta = json.within(raw, 'metadata', (metadata) => ({
    ...internedMeta(metadata),
    topologyAuto: json.within(metadata, 'annotations', isTopologyAuto),
    suppress: json.within(metadata, 'annotations', suppressText),
    ciliumAnnotations: json.within(metadata, 'annotations', ciliumAnnotations),
  }));
  const loadBalancerIPs = json.within(raw, 'status', (status) =>
    json.within(status, 'loadBalancer', virtualIPs),
  );
  return json.within(raw, 'spec', (spec) => {
    const clusterIPs = json.texts(spec, 'clusterIPs');
    const clusterIP = json.text(spec, 'clusterIP');
    const selector = json.labelMap(spec, 'selector');
    return {
      ...meta,
      at,
      type: json.oneOf(spec, 'type', serviceTypes, 'ClusterIP'),
      // One copy of equal text.
      clusterIP: clusterIPs.find((ip) => ip === clusterIP) ?? clusterIP,
      clusterIPs,
      externalIPs: json.texts(spec, 'externalIPs'),
      loadBalancerSourceRanges: json.texts(spec, 'loadBalancerSourceRanges'),
      internalTrafficPolicy: trafficPolicy(spec, 'internalTrafficPolicy'),
      externalTrafficPolicy: trafficPolicy(spec, 'externalTrafficPolicy'),
      affinitySeconds: affinitySeconds(spec),
      healthCheckNodePort: json.number(spec, 'healthCheckNodePort'),
      loadBalancerIPs,
      selector: Object.keys(selector).length === 0 ? null : selector,
      publishNotReadyAddresses: json.flag(spec, 'publishNotReadyAddresses'),
      ipFamilies: internList(json.texts(spec, 'ipFamilies')),
      ports: internList(json.list(spec, 'ports', servicePort)),
      trafficDistribution: json.optionalWord(spec, 'trafficDistribution'),
    };
  });
}

/** Those that nodes answer for (IsVIPMode of pkg/proxy/util/utils.go); some have only hostnames. */
function virtualIPs(loadBalancer: json.Fields): readonly string[] {
  const ips = json.list(loadBalancer, 'ingress', (ingress) => {
    const ipMode = json.text(ingress, 'ipMode');
    return ipMode === '' || ipMode === 'VIP' ? json.text(ingress, 'ip') : '';
  });
  return ips.includes('') ? ips.filter((ip) => ip !== '') : ips;
}

/** kube-proxy treats every word except Local as Cluster. */
const trafficPolicy = (spec: json.Fields, name: string) =>
  json.text(spec, name) === 'Local' ? 'Local' : 'Cluster';

/** By default, DefaultClientIPServiceAffinitySeconds. */
function affinitySeconds(spec: json.Fields): number | null {
  const timeout = json.within(spec, 'sessionAffinityConfig', (config) =>
    json.within(config, 'clientIP', (clientIP) => json.optionalNumber(clientIP, 'timeoutSeconds')),
  );
  return json.text(spec, 'sessionAffinity') === 'ClientIP' ? (timeout ?? 10_800) : null;
}

/** hintsEnabled of k8s.io/endpointslice@v0.36.3 topologycache/utils.go. */
function isTopologyAuto(annotations: json.Fields): boolean {
  const { topologyAwareHints, topologyMode } = annotation;
  const name = Object.hasOwn(annotations, topologyAwareHints) ? topologyAwareHints : topologyMode;
  const value = annotations[name] ?? '';
  if (typeof value !== 'string') throw new json.WrongType(`["${name}"]`, 'a string', value);
  return value === 'Auto' || value === 'auto';
}

/** One character too many shows that it is too long. A copy does not keep the whole text alive. */
function suppressText(annotations: json.Fields): string {
  const text = json.text(annotations, annotation.suppress);
  if (text.length <= mostSuppressText) return text;
  return Buffer.from(text.slice(0, mostSuppressText + 1)).toString();
}

const isCiliums = (name: string): boolean => /^(?:service\.cilium\.io|io\.cilium)\//.test(name);

/** Nearly no Service has any. */
function ciliumAnnotations(annotations: json.Fields): api.Labels {
  const names = Object.keys(annotations).filter(isCiliums);
  if (names.length === 0) return json.noLabels;
  return Object.fromEntries(names.map((name) => [name, json.text(annotations, name)]));
}

const servicePort = (port: json.Fields): api.ServicePort => ({
  name: json.word(port, 'name'),
  protocol: json.text(port, 'protocol') || 'TCP',
  port: json.number(port, 'port'),
  targetPort: targetPort(port),
  appProtocol: json.optionalWord(port, 'appProtocol'),
  nodePort: json.number(port, 'nodePort'),
});

/** The API server stores the port itself for 0 and ''. */
function targetPort(port: json.Fields): number | string {
  const value = port.targetPort;
  const target = typeof value === 'string' ? internWord(value) : json.number(port, 'targetPort');
  return target === 0 || target === '' ? json.number(port, 'port') : target;
}

function readNode(raw: json.Fields): api.Node {
  const meta = json.within(raw, 'metadata', json.clusterMeta);
  const { labels } = meta;
  const cidrs = json.within(raw, 'spec', podCIDRs);
  return json.within(raw, 'status', (status) => ({
    ...meta,
    // Left out to save memory: the audit needs only the labels below.
    labels: json.noLabels,
    zone: internWord(labels[label.zone] ?? ''),
    ready: json.readyCondition(status)?.status === 'True',
    controlPlane: ['control-plane', 'master'].some((role) =>
      Object.hasOwn(labels, `node-role.kubernetes.io/${role}`),
    ),
    cpuMillis: json.within(status, 'allocatable', (allocatable) =>
      json.quantity(allocatable, 'cpu'),
    ),
    ...addressesOf(status),
    podCIDRs: cidrs,
    kubeletMinor: json.within(status, 'nodeInfo', (info) =>
      minorIn(json.text(info, 'kubeletVersion')),
    ),
    ciliumNode: labels[label.ciliumNode] ?? null,
  }));
}

/** A Node's IPs by type; GetNodeHostIPs of pkg/util/node/node.go takes internal ones first. */
function addressesOf(status: json.Fields): Pick<api.Node, 'addresses' | 'externalIPs'> {
  const all = json.list(status, 'addresses', (address) => ({
    type: json.text(address, 'type'),
    address: json.word(address, 'address'),
  }));
  const byType = (wanted: string) =>
    all.flatMap(({ type, address }) => (type === wanted ? address : []));
  return { addresses: byType('InternalIP'), externalIPs: byType('ExternalIP') };
}

function podCIDRs(spec: json.Fields): readonly string[] {
  const all = json.texts(spec, 'podCIDRs');
  const first = json.text(spec, 'podCIDR');
  return all.length === 0 && first !== '' ? [first] : all;
}

function readEndpoints(raw: json.Fields, at: number, known: Known): api.Endpoints {
  const meta = json.within(raw, 'metadata', (metadata) => ({
    ...internedMeta(metadata),
    annotations: json.stringMap(metadata, 'annotations'),
  }));
  const subsets = json.list(raw, 'subsets', endpointSubset);
  return { ...meta, at, subsets, bytes: known.bytes ?? null };
}

function endpointSubset(subset: json.Fields): api.EndpointSubset {
  const ports = internList(json.list(subset, 'ports', subsetPort));
  const read = (ready: boolean) => (address: json.Fields) => ({
    ip: json.text(address, 'ip'),
    ready,
    ports,
    node: json.optionalWord(address, 'nodeName'),
    hostname: json.text(address, 'hostname'),
    target: json.optional(address, 'targetRef', json.objectRef),
  });
  const ready = json.list(subset, 'addresses', read(true));
  const notReady = json.list(subset, 'notReadyAddresses', read(false));
  const addresses = notReady.length === 0 ? ready : [...ready, ...notReady];
  return { ports, addresses, readyCount: ready.length };
}

const subsetPort = (port: json.Fields): api.Port => ({
  name: json.word(port, 'name'),
  protocol: json.text(port, 'protocol') || 'TCP',
  port: json.number(port, 'port'),
  appProtocol: json.optionalWord(port, 'appProtocol'),
});

function readEndpointSlice(raw: json.Fields, at: number, known: Known): api.EndpointSlice {
  const meta = json.within(raw, 'metadata', (metadata) => ({
    ...internedMeta(metadata),
    generation: json.integer(metadata, 'generation'),
    annotations: json.stringMap(metadata, 'annotations'),
    owners: json.list(metadata, 'ownerReferences', json.ownerReference),
  }));
  const addressType = json.oneOf(raw, 'addressType', ['IPv4', 'IPv6', 'FQDN']);
  const ports = internList(json.list(raw, 'ports', slicePort));
  // Only an object that names its version is known to be v1; the items of a list do not.
  const readEndpoint = raw.apiVersion === sliceV1 ? endpoint : betaEndpoint;
  const endpoints = json.list(raw, 'endpoints', readEndpoint);
  const portMap = internWord(portMapKey(ports));
  return { ...meta, at, addressType, ports, portMap, endpoints, bytes: known.bytes ?? null };
}

/** The API server fills in the protocol; a null name is left, for that is how it is then stored. */
const slicePort = (port: json.Fields): api.Port => ({
  name: json.optionalWord(port, 'name'),
  protocol: json.text(port, 'protocol') || 'TCP',
  port: json.optionalNumber(port, 'port'),
  appProtocol: json.optionalWord(port, 'appProtocol'),
});

function endpoint(endpoint: json.Fields): api.Endpoint {
  const conditions = json.within(endpoint, 'conditions', (conditions) => ({
    ready: json.optionalFlag(conditions, 'ready'),
    serving: json.optionalFlag(conditions, 'serving'),
    terminating: json.optionalFlag(conditions, 'terminating'),
  }));
  const hints = json.within(endpoint, 'hints', (hints) => ({
    forZones: json.optionalList(hints, 'forZones', (hint) => json.word(hint, 'name')),
    forNodes: json.optionalList(hints, 'forNodes', (hint) => json.word(hint, 'name')),
  }));
  return {
    addresses: json.texts(endpoint, 'addresses'),
    ready: conditions.ready,
    serving: conditions.serving,
    terminating: conditions.terminating,
    hostname: json.optionalText(endpoint, 'hostname'),
    node: json.optionalWord(endpoint, 'nodeName'),
    zone: json.optionalWord(endpoint, 'zone'),
    target: json.optional(endpoint, 'targetRef', json.objectRef),
    forZones: hints.forZones,
    forNodes: hints.forNodes,
  };
}

/** discovery.k8s.io/v1beta1 has a map `topology` where v1 has nodeName and zone. */
function betaEndpoint(raw: json.Fields): api.Endpoint {
  const read = endpoint(raw);
  if (read.node !== null && read.zone !== null) return read;
  return json.within(raw, 'topology', (topology) => ({
    ...read,
    node: read.node ?? json.optionalWord(topology, 'kubernetes.io/hostname'),
    zone: read.zone ?? json.optionalWord(topology, label.zone),
  }));
}

export function unreadable(
  resource: api.Resource,
  raw: unknown,
  error: json.WrongType,
): Unreadable {
  const lost = lostOf(
    resource,
    json.isFields(raw) && json.isFields(raw.metadata) ? raw.metadata : {},
  );
  return {
    object: objectText(lost),
    field: error.field === '' ? null : error.field,
    value: valueText(error.value),
    message: `Expected ${error.expected}`,
    lost,
  };
}

function lostOf(resource: api.Resource, metadata: json.Fields): api.UnreadableObject {
  const named = (value: unknown) => (typeof value === 'string' && value !== '' ? value : null);
  const namespace = resource === 'nodes' ? '' : named(metadata.namespace);
  const lost = { resource, namespace, name: named(metadata.name) };
  try {
    return { ...lost, labels: json.labelMap(metadata, 'labels') };
  } catch {
    return { ...lost, labels: null };
  }
}

/** An object as people name it: `Pod shop/web-1`, `Pod in shop`, `Pod`. */
export function objectText({ resource, namespace, name }: api.UnreadableObject): string {
  const kind = kinds[resource];
  const place = namespace ?? '';
  if (name === null) return place === '' ? kind : `${kind} in ${place}`;
  return place === '' ? `${kind} ${name}` : `${kind} ${place}/${name}`;
}
