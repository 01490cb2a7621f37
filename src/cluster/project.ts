// From an API object to the model: the only reader of API fields.
//
// An object is seen as a controller sees it, that is, through Go's decoder and the API's defaults
// (pkg/apis/core/v1 and pkg/apis/discovery/v1 of kubernetes@v1.36.3): an absent or null field is
// its zero value or default, a field that nobody here reads is never looked at, and a value of the
// wrong type anywhere else makes the whole object unreadable. Where Go is more lenient than that (a
// null item of a list is a zero value to it) the object is refused all the same: no API server ever
// stored one.
//
// Readers are functions from the fields of one JSON object to a value. They throw WrongType, which
// collects the field's path on its way out; so a path costs nothing until something is wrong.
//
// A fleet has 150,000 pods and a handful of label sets, port lists and node names. Repeated values
// are therefore interned by content, in tables that are emptied when they grow too large. A label
// map that was read is kept as it came: whoever calls must not change a raw object afterwards.

import { annotation, label, portMapKey } from '../model/objects.ts';
import { valueText } from './problem.ts';

import type {
  AnyObject,
  Condition,
  ContainerPort,
  Endpoint,
  EndpointAddress,
  EndpointSlice,
  EndpointSubset,
  Endpoints,
  Key,
  Labels,
  Lost,
  Node,
  ObjectOf,
  ObjectRef,
  OwnerReference,
  Pod,
  Port,
  Resource,
  Service,
  ServicePort,
} from '../model/objects.ts';
import type { Problem } from './problem.ts';

/** What is wrong with an object; the caller adds where it was found. */
export type Unreadable = Omit<Problem, 'source' | 'line' | 'lost'> & { readonly lost: Lost };

export type Projection<R extends Resource> =
  { readonly object: ObjectOf[R]; readonly problem?: undefined } | { readonly problem: Unreadable };

/** What only the caller knows of an object. */
export interface Known {
  /** The latest version of the pod of this key, for `ipsSince`. */
  readonly previousPod?: ((key: Key) => Pod | undefined) | undefined;
  /** Length of the object as JSON without managedFields. */
  readonly bytes?: number | null;
}

export const kinds: Readonly<Record<Resource, string>> = {
  nodes: 'Node',
  services: 'Service',
  pods: 'Pod',
  endpoints: 'Endpoints',
  endpointslices: 'EndpointSlice',
};

const sliceV1 = 'discovery.k8s.io/v1';
const sliceVersions: readonly unknown[] = [sliceV1, 'discovery.k8s.io/v1beta1'];

/**
 * The resource of objects with this apiVersion and kind; null: none that is read. Other API groups
 * have Services and Nodes too. An absent apiVersion is taken for the right one, since the items of
 * a list have none.
 */
export function resourceOfKind(apiVersion: unknown, kind: unknown): Resource | null {
  switch (kind) {
    case 'EndpointSlice':
      return apiVersion === undefined || sliceVersions.includes(apiVersion)
        ? 'endpointslices'
        : null;
    case 'Node':
    case 'Service':
    case 'Pod':
    case 'Endpoints':
      if (apiVersion !== undefined && apiVersion !== 'v1') return null;
      return kind === 'Endpoints' ? 'endpoints' : (`${kind.toLowerCase()}s` as Resource);
    default:
      return null;
  }
}

/**
 * Projects a raw API object (parsed JSON or YAML) of this resource; `at` is its arrival, Unix
 * seconds. Never throws for content: an object that Go could not decode, or that has no name (or no
 * namespace, where its kind has one), yields a problem that names the field.
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

/**
 * The newest moment that a projected object tells of (creation, Ready transition, trigger time),
 * Unix seconds: no proof that the object was read then, but it cannot have been read before.
 */
export function newestTimestamp(object: AnyObject): number | null {
  const times = [object.created];
  if ('readySince' in object) times.push(object.readySince);
  if ('annotations' in object) {
    times.push(unixSeconds(object.annotations[annotation.triggerTime] ?? ''));
  }
  const newest = Math.max(...times.map((time) => time ?? -Infinity));
  return newest === -Infinity ? null : newest;
}

/** Length of a raw object as JSON without managedFields, in bytes; null when it cannot be told. */
export function jsonBytes(raw: unknown): number | null {
  try {
    if (!isFields(raw)) return null;
    const { metadata } = raw;
    const managed = isFields(metadata) && metadata.managedFields !== undefined;
    const bare = managed ? { ...raw, metadata: { ...metadata, managedFields: undefined } } : raw;
    return Buffer.byteLength(JSON.stringify(bare));
  } catch {
    return null; // nested too deeply for JSON.stringify
  }
}

/** Whether a raw object still has the managedFields that sizes leave out. */
export function hasManagedFields(raw: unknown): boolean {
  return isFields(raw) && isFields(raw.metadata) && raw.metadata.managedFields !== undefined;
}

// --- fields ---

type Fields = Readonly<Record<string, unknown>>;

class WrongType extends Error {
  readonly expected: string;
  readonly value: unknown;
  field: string;

  constructor(field: string, expected: string, value: unknown) {
    super(expected);
    this.field = field;
    this.expected = expected;
    this.value = value;
  }

  /** The same, seen from the object (or, with an index, the list) that holds the field. */
  inside(name: string, index?: number): this {
    const place = index === undefined ? name : `${name}[${index}]`;
    const joint = this.field === '' || this.field.startsWith('[') ? '' : '.';
    this.field = place + joint + this.field;
    return this;
  }
}

const noFields: Fields = Object.freeze({});
const noLabels: Labels = Object.freeze({});
const empty: readonly never[] = Object.freeze([]);

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function text(fields: Fields, name: string): string {
  return optionalText(fields, name) ?? '';
}

function optionalText(fields: Fields, name: string): string | null {
  const value = fields[name];
  if (typeof value === 'string') return value;
  if (value === undefined || value === null) return null;
  throw new WrongType(name, 'a string', value);
}

function condition(fields: Fields, name: string): Condition {
  const value = fields[name];
  if (typeof value === 'boolean') return value;
  if (value === undefined || value === null) return null;
  throw new WrongType(name, 'a boolean', value);
}

function flag(fields: Fields, name: string): boolean {
  return condition(fields, name) ?? false;
}

/** An int32, as every port number is one to the decoder. */
function optionalNumber(fields: Fields, name: string): number | null {
  const value = fields[name];
  if (value === undefined || value === null) return null;
  if (typeof value === 'number' && value === (value | 0)) return value;
  throw new WrongType(name, 'a 32-bit integer', value);
}

function number(fields: Fields, name: string): number {
  return optionalNumber(fields, name) ?? 0;
}

/** An int64; those above 2^53 are not exact, and are none that a generation reaches. */
function integer(fields: Fields, name: string): number {
  const value = fields[name] ?? 0;
  if (typeof value === 'number' && Number.isInteger(value)) return value;
  throw new WrongType(name, 'an integer', value);
}

/** The moment that a field names, Unix seconds; null when it is absent or not RFC 3339. */
function moment(fields: Fields, name: string): number | null {
  const value = optionalText(fields, name);
  return value === null ? null : unixSeconds(value);
}

/** The value of a field that holds an object; an absent one is an empty object. */
function within<T>(fields: Fields, name: string, read: (part: Fields) => T): T {
  const value = fields[name] ?? noFields;
  if (!isFields(value)) throw new WrongType(name, 'an object', value);
  try {
    return read(value);
  } catch (error) {
    if (error instanceof WrongType) throw error.inside(name);
    throw error;
  }
}

function optional<T>(fields: Fields, name: string, read: (part: Fields) => T): T | null {
  const value = fields[name];
  return value === undefined || value === null ? null : within(fields, name, read);
}

function items<T>(
  fields: Fields,
  name: string,
  expected: string,
  is: (item: unknown) => boolean,
  read: (item: never) => T,
): readonly T[] {
  const value = fields[name];
  if (value === undefined || value === null) return empty;
  if (!Array.isArray(value)) throw new WrongType(name, 'a list', value);
  if (value.length === 0) return empty;
  let index = 0;
  try {
    const result: T[] = [];
    for (; index < value.length; index++) {
      const item: unknown = value[index];
      if (!is(item)) throw new WrongType('', expected, item);
      result.push(read(item as never));
    }
    return result;
  } catch (error) {
    if (error instanceof WrongType) throw error.inside(name, index);
    throw error;
  }
}

function list<T>(fields: Fields, name: string, read: (item: Fields) => T): readonly T[] {
  return items(fields, name, 'an object', isFields, read);
}

function optionalList<T>(fields: Fields, name: string, read: (item: Fields) => T) {
  const value = fields[name];
  return value === undefined || value === null ? null : list(fields, name, read);
}

function texts(fields: Fields, name: string): readonly string[] {
  return items(fields, name, 'a string', isText, asItIs);
}

const isText = (value: unknown) => typeof value === 'string';
const asItIs = (value: string) => value;

/** A map of strings. A null value is the empty string, as in Go. */
function stringMap(fields: Fields, name: string): Labels {
  const value = fields[name];
  if (value === undefined || value === null) return noLabels;
  if (!isFields(value)) throw new WrongType(name, 'an object', value);
  let nulls = false;
  for (const key in value) {
    const text = value[key];
    if (text === null) nulls = true;
    else if (typeof text !== 'string') {
      throw new WrongType(`["${key}"]`, 'a string', text).inside(name);
    }
  }
  // Object.fromEntries defines properties, so that `__proto__` is a key like any other.
  return nulls
    ? Object.fromEntries(Object.entries(value).map(([key, text]) => [key, (text ?? '') as string]))
    : (value as Labels);
}

// --- interning ---

const tableLimit = 50_000;
const words = new Map<string, string>();
const maps = new Map<string, Labels>();
const portLists = new Map<string, readonly unknown[]>();

function interned<T>(table: Map<string, T>, key: string, value: T): T {
  const known = table.get(key);
  if (known !== undefined) return known;
  if (table.size >= tableLimit) table.clear();
  table.set(key, value);
  return value;
}

function word(text: string): string {
  return text === '' ? '' : interned(words, text, text);
}

function optionalWord(fields: Fields, name: string): string | null {
  const value = optionalText(fields, name);
  return value === null ? null : word(value);
}

/** A label map or selector, interned: those repeat, which annotations do not. */
function labelMap(fields: Fields, name: string): Labels {
  const map = stringMap(fields, name);
  return map === noLabels ? map : interned(maps, JSON.stringify(map), map);
}

function internedPorts<T>(ports: readonly T[]): readonly T[] {
  if (ports.length === 0) return empty;
  // Lists of different kinds of ports have different keys, for they differ in their properties.
  return interned(portLists, JSON.stringify(ports), ports) as readonly T[];
}

// --- metadata ---

type Meta = Omit<Node, 'zone' | 'ready' | 'controlPlane' | 'cpuMillis' | 'at'>;

function clusterMeta(metadata: Fields): Meta {
  return meta(metadata, '');
}

function namespacedMeta(metadata: Fields): Meta {
  return meta(metadata, word(identity(metadata, 'namespace')));
}

function meta(metadata: Fields, namespace: string): Meta {
  const name = identity(metadata, 'name');
  return {
    key: namespace === '' ? name : `${namespace}/${name}`,
    namespace,
    name,
    uid: text(metadata, 'uid'),
    resourceVersion: text(metadata, 'resourceVersion'),
    labels: labelMap(metadata, 'labels'),
    created: moment(metadata, 'creationTimestamp'),
    deleting: text(metadata, 'deletionTimestamp') !== '',
  };
}

/** A name or namespace. Slashes, which the API forbids, would make keys ambiguous. */
function identity(metadata: Fields, name: 'name' | 'namespace'): string {
  const value = text(metadata, name);
  if (value === '') throw new WrongType(name, `a ${name}`, metadata[name]);
  if (value.includes('/')) throw new WrongType(name, `a ${name} without slashes`, value);
  return value;
}

const annotations = (metadata: Fields) => stringMap(metadata, 'annotations');

function ownerReference(owner: Fields): OwnerReference {
  return {
    apiVersion: word(text(owner, 'apiVersion')),
    kind: word(text(owner, 'kind')),
    name: text(owner, 'name'),
    uid: text(owner, 'uid'),
    controller: flag(owner, 'controller'),
  };
}

function objectRef(target: Fields): ObjectRef {
  return {
    kind: word(text(target, 'kind')),
    namespace: word(text(target, 'namespace')),
    name: text(target, 'name'),
    uid: text(target, 'uid'),
  };
}

// --- kinds ---

type Reader<R extends Resource> = (raw: Fields, at: number, known: Known) => ObjectOf[R];

const readers: { readonly [R in Resource]: Reader<R> } = {
  nodes: readNode,
  services: readService,
  pods: readPod,
  endpoints: readEndpoints,
  endpointslices: readEndpointSlice,
};

function readService(raw: Fields, at: number): Service {
  const meta = within(raw, 'metadata', namespacedMeta);
  const topologyAuto = within(raw, 'metadata', (metadata) =>
    within(metadata, 'annotations', isTopologyAuto),
  );
  return within(raw, 'spec', (spec) => ({
    ...meta,
    at,
    type: serviceType(spec),
    clusterIP: text(spec, 'clusterIP'),
    selector: serviceSelector(spec),
    publishNotReadyAddresses: flag(spec, 'publishNotReadyAddresses'),
    ipFamilies: texts(spec, 'ipFamilies'),
    ports: internedPorts(list(spec, 'ports', servicePort)),
    trafficDistribution: optionalWord(spec, 'trafficDistribution'),
    topologyAuto,
  }));
}

function serviceType(spec: Fields): Service['type'] {
  const type = text(spec, 'type');
  switch (type) {
    case '':
      return 'ClusterIP';
    case 'ClusterIP':
    case 'NodePort':
    case 'LoadBalancer':
    case 'ExternalName':
      return type;
    default:
      throw new WrongType('type', 'ClusterIP, NodePort, LoadBalancer or ExternalName', type);
  }
}

function serviceSelector(spec: Fields): Labels | null {
  const selector = labelMap(spec, 'selector');
  return Object.keys(selector).length === 0 ? null : selector;
}

/** hintsEnabled of k8s.io/endpointslice@v0.36.3 topologycache/utils.go. */
function isTopologyAuto(annotations: Fields): boolean {
  const deprecated = Object.hasOwn(annotations, annotation.topologyAwareHints);
  const name = deprecated ? annotation.topologyAwareHints : annotation.topologyMode;
  if (!Object.hasOwn(annotations, name)) return false;
  const value = annotations[name] ?? '';
  if (typeof value !== 'string') throw new WrongType(`["${name}"]`, 'a string', value);
  return value === 'Auto' || value === 'auto';
}

function servicePort(port: Fields): ServicePort {
  return {
    name: word(text(port, 'name')),
    protocol: text(port, 'protocol') || 'TCP',
    port: number(port, 'port'),
    targetPort: targetPort(port),
    appProtocol: optionalWord(port, 'appProtocol'),
  };
}

/** 0 and '' are as good as absent to the API server, which then stores the port itself. */
function targetPort(port: Fields): number | string {
  const value = port.targetPort;
  const target = typeof value === 'string' ? word(value) : number(port, 'targetPort');
  return target === 0 || target === '' ? number(port, 'port') : target;
}

function readPod(raw: Fields, at: number, known: Known): Pod {
  const meta = within(raw, 'metadata', namespacedMeta);
  const spec = within(raw, 'spec', podSpec);
  const status = within(raw, 'status', podStatus);
  const latest = known.previousPod?.(meta.key);
  const previous = latest?.uid === meta.uid ? latest : undefined;
  const same = previous !== undefined && equalTexts(previous.ips, status.ips);
  return {
    ...meta,
    at,
    node: spec.node,
    hostNetwork: spec.hostNetwork,
    hostname: spec.hostname,
    subdomain: spec.subdomain,
    ports: spec.ports,
    terminal: status.terminal,
    ready: status.ready,
    readySince: status.readySince,
    ips: same ? previous.ips : status.ips,
    ipsSince: same ? previous.ipsSince : previous === undefined ? (meta.created ?? at) : at,
  };
}

function podSpec(spec: Fields) {
  const containers = list(spec, 'containers', containerPorts).flat();
  const sidecars = list(spec, 'initContainers', sidecarPorts).flat();
  return {
    node: word(text(spec, 'nodeName')),
    hostNetwork: flag(spec, 'hostNetwork'),
    hostname: text(spec, 'hostname'),
    subdomain: word(text(spec, 'subdomain')),
    ports: internedPorts([...containers, ...sidecars]),
  };
}

function containerPorts(container: Fields): readonly ContainerPort[] {
  return list(container, 'ports', containerPort).filter((port) => port.name !== '');
}

/** The ports of an init container, if it is restartable; those of others nobody can reach. */
function sidecarPorts(container: Fields): readonly ContainerPort[] {
  if (text(container, 'restartPolicy') !== 'Always') return empty;
  return containerPorts(container).map((port) => ({ ...port, sidecar: true }));
}

function containerPort(port: Fields): ContainerPort {
  return {
    name: word(text(port, 'name')),
    protocol: text(port, 'protocol') || 'TCP',
    port: number(port, 'containerPort'),
    sidecar: false,
  };
}

function podStatus(status: Fields) {
  const phase = text(status, 'phase');
  const ips = list(status, 'podIPs', (podIP) => text(podIP, 'ip'));
  const ip = text(status, 'podIP');
  const ready = readyCondition(status);
  return {
    terminal: phase === 'Succeeded' || phase === 'Failed',
    ready: ready?.status === 'True',
    readySince: ready?.since ?? null,
    ips: ips.length === 0 && ip !== '' ? [ip] : ips,
  };
}

/** The first condition of type Ready, as GetPodCondition of k8s.io/kubernetes/pkg/api/v1/pod. */
function readyCondition(status: Fields) {
  let ready: { status: string; since: number | null } | null = null;
  list(status, 'conditions', (condition) => {
    if (text(condition, 'type') !== 'Ready' || ready !== null) return;
    ready = { status: text(condition, 'status'), since: moment(condition, 'lastTransitionTime') };
  });
  return ready as { status: string; since: number | null } | null;
}

function equalTexts(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((text, index) => text === b[index]);
}

function readNode(raw: Fields, at: number): Node {
  const meta = within(raw, 'metadata', clusterMeta);
  const { labels } = meta;
  return within(raw, 'status', (status) => ({
    ...meta,
    at,
    zone: Object.hasOwn(labels, label.zone) ? word(labels[label.zone] ?? '') : '',
    ready: readyCondition(status)?.status === 'True',
    controlPlane: controlPlaneLabels.some((name) => Object.hasOwn(labels, name)),
    cpuMillis: within(status, 'allocatable', (allocatable) => quantity(allocatable, 'cpu')),
  }));
}

const controlPlaneLabels = [
  'node-role.kubernetes.io/control-plane',
  'node-role.kubernetes.io/master',
];

function readEndpoints(raw: Fields, at: number, known: Known): Endpoints {
  return {
    ...within(raw, 'metadata', namespacedMeta),
    at,
    annotations: within(raw, 'metadata', annotations),
    subsets: list(raw, 'subsets', endpointSubset),
    bytes: known.bytes ?? null,
  };
}

function endpointSubset(subset: Fields): EndpointSubset {
  const ready = list(subset, 'addresses', readyAddress);
  const notReady = list(subset, 'notReadyAddresses', notReadyAddress);
  return {
    ports: internedPorts(list(subset, 'ports', subsetPort)),
    addresses: notReady.length === 0 ? ready : [...ready, ...notReady],
    readyCount: ready.length,
  };
}

const readyAddress = (address: Fields) => endpointAddress(address, true);
const notReadyAddress = (address: Fields) => endpointAddress(address, false);

function endpointAddress(address: Fields, ready: boolean): EndpointAddress {
  return {
    ip: text(address, 'ip'),
    ready,
    node: optionalWord(address, 'nodeName'),
    hostname: text(address, 'hostname'),
    target: optional(address, 'targetRef', objectRef),
  };
}

function subsetPort(port: Fields): Port {
  return {
    name: word(text(port, 'name')),
    protocol: text(port, 'protocol') || 'TCP',
    port: number(port, 'port'),
    appProtocol: optionalWord(port, 'appProtocol'),
  };
}

function readEndpointSlice(raw: Fields, at: number, known: Known): EndpointSlice {
  const ports = internedPorts(list(raw, 'ports', slicePort));
  const owners = (metadata: Fields) => list(metadata, 'ownerReferences', ownerReference);
  const generation = (metadata: Fields) => integer(metadata, 'generation');
  return {
    ...within(raw, 'metadata', namespacedMeta),
    at,
    generation: within(raw, 'metadata', generation),
    annotations: within(raw, 'metadata', annotations),
    owners: within(raw, 'metadata', owners),
    addressType: addressType(raw),
    ports,
    portMap: word(portMapKey(ports)),
    // Whether it is v1beta1 is known where the object says so; the items of a list may not.
    endpoints: list(raw, 'endpoints', raw.apiVersion === sliceV1 ? endpoint : betaEndpoint),
    bytes: known.bytes ?? null,
  };
}

function addressType(slice: Fields): EndpointSlice['addressType'] {
  const type = text(slice, 'addressType');
  if (type === 'IPv4' || type === 'IPv6' || type === 'FQDN') return type;
  throw new WrongType('addressType', 'IPv4, IPv6 or FQDN', slice.addressType);
}

/** The API server fills in the protocol; a null name is left, for that is how it is then stored. */
function slicePort(port: Fields): Port {
  return {
    name: optionalWord(port, 'name'),
    protocol: text(port, 'protocol') || 'TCP',
    port: optionalNumber(port, 'port'),
    appProtocol: optionalWord(port, 'appProtocol'),
  };
}

function endpoint(endpoint: Fields): Endpoint {
  const conditions = within(endpoint, 'conditions', endpointConditions);
  const hints = within(endpoint, 'hints', endpointHints);
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

function endpointConditions(conditions: Fields) {
  return {
    ready: condition(conditions, 'ready'),
    serving: condition(conditions, 'serving'),
    terminating: condition(conditions, 'terminating'),
  };
}

function endpointHints(hints: Fields) {
  return {
    forZones: optionalList(hints, 'forZones', hintName),
    forNodes: optionalList(hints, 'forNodes', hintName),
  };
}

const hintName = (hint: Fields) => word(text(hint, 'name'));

// --- moments and quantities ---

const rfc3339 = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?(?:Z|([+-])(\d\d):(\d\d))$/;

/**
 * An RFC 3339 time as Unix seconds, with its fraction; null for anything else. Go's decoder would
 * refuse the object; but times serve to measure only, so a strange one is as good as none.
 */
export function unixSeconds(text: string): number | null {
  const match = rfc3339.exec(text);
  if (match === null) return null;
  const part = (index: number) => Number(match[index] ?? 0);
  const [year, month, day] = [part(1), part(2), part(3)];
  const [hour, minute, second] = [part(4), part(5), part(6)];
  // setUTCFullYear takes years below 100 as they are, which Date.UTC does not.
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return null;
  if (hour > 23 || minute > 59 || second > 59 || part(9) > 23 || part(10) > 59) return null;
  const offset = (match[8] === '-' ? -60 : 60) * (part(9) * 60 + part(10));
  return date.getTime() / 1000 + hour * 3600 + minute * 60 + second + part(7) - offset;
}

const quantityForm =
  /^([+-]?)(\d{0,40})(?:\.(\d{0,40}))?(?:([KMGTPE]i)|([numkMGTPE]?)|[eE]([+-]?\d{1,3}))$/;
const binarySuffixes = ['Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'];
const decimalSuffixes: Record<string, number> = {
  n: -9,
  u: -6,
  m: -3,
  k: 3,
  M: 6,
  G: 9,
  T: 12,
  P: 15,
  E: 18,
};

/**
 * A quantity as k8s.io/apimachinery@v0.36.3 pkg/api/resource reads it, in thousandths, rounded away
 * from zero as MilliValue does; 0 when absent.
 */
function quantity(fields: Fields, name: string): number {
  const value = fields[name];
  if (value === undefined || value === null) return 0;
  const form = typeof value === 'number' ? String(value) : value;
  const match = typeof form === 'string' ? quantityForm.exec(form) : null;
  const digits = (match?.[2] ?? '') + (match?.[3] ?? '');
  if (match === null || digits === '') throw new WrongType(name, 'a quantity', value);
  const [, sign = '', , fraction = '', binary, decimal = '', exponent] = match;
  const power = Number(exponent ?? decimalSuffixes[decimal] ?? 0) - fraction.length + 3;
  const factor = binary === undefined ? 1n : 1024n ** BigInt(binarySuffixes.indexOf(binary) + 1);
  const dividend = BigInt(digits) * factor * 10n ** BigInt(Math.max(power, 0));
  const divisor = 10n ** BigInt(Math.max(-power, 0));
  const thousandths = Number((dividend + divisor - 1n) / divisor);
  const bounded = Math.min(thousandths, Number.MAX_SAFE_INTEGER);
  return sign === '-' ? -bounded : bounded;
}

// --- what could not be read ---

function unreadable(resource: Resource, raw: unknown, error: WrongType): Unreadable {
  const metadata = isFields(raw) && isFields(raw.metadata) ? raw.metadata : noFields;
  const named = (value: unknown) => (typeof value === 'string' && value !== '' ? value : null);
  const namespace = resource === 'nodes' ? '' : named(metadata.namespace);
  const lost = { resource, namespace, name: named(metadata.name), labels: labelsOf(metadata) };
  return {
    object: objectText(lost),
    field: error.field === '' ? null : error.field,
    value: valueText(error.value),
    message: `Expected ${error.expected}`,
    lost,
  };
}

function labelsOf(metadata: Fields): Labels | null {
  try {
    return labelMap(metadata, 'labels');
  } catch {
    return null;
  }
}

/** An object as people name it: `Pod shop/web-1`, `Pod in shop`, `Pod`. */
export function objectText(lost: Lost): string {
  const { resource, namespace, name } = lost;
  const kind = kinds[resource];
  const place = namespace === null || namespace === '' ? '' : namespace;
  if (name === null) return place === '' ? kind : `${kind} in ${place}`;
  return place === '' ? `${kind} ${name}` : `${kind} ${place}/${name}`;
}
