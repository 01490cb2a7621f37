// Writes a live cluster's entries as the lines that recording.ts reads, without managedFields. An
// object that did not come as a whole is written with what the audit reads (object-writer.ts).
//
// A recording that leaves the company is redacted: names (of objects, namespaces, Nodes, zones,
// hosts), labels and selectors become hashes, and fields that the audit does not read are left out.
// A text has the same hash everywhere in a recording, so that a selector still matches its pods.
// The key of the hash is not stored, so that names cannot be guessed. Words of Kubernetes stay, as
// do uids, versions, times, ports and IP addresses.

import { createHmac, randomBytes } from 'node:crypto';

import { annotation, kinds, label, type Labels, type Resource } from '../../model/objects.ts';
import type { LiveEntry } from '../decode/entry.ts';
import { type Fields, isFields } from '../decode/json-fields.ts';
import { writeObject } from './object-writer.ts';

/** The recorder of one file. It begins with a header and the first lists, except of `complete`. */
export function createRecorder(redactor: Redactor | null, complete: readonly Resource[] = []) {
  const synced = new Set<Resource>(complete);
  let latest = 0;
  /** Whole milliseconds, in seconds. Streams are read in turn, but the time never decreases. */
  const timeOf = (at: number): number => (latest = Math.max(latest, Math.round(at * 1000) / 1000));
  const hide = (name: string | null) => (name === null ? null : (redactor?.name(name) ?? name));
  const fieldsOf = (entry: LiveEntry): Fields => {
    if (entry.kind === 'event') {
      const { resource, object, raw, gap } = entry.event;
      // A namespace is watched already while another is listed.
      const isFirst = !synced.has(resource) && entry.event.type !== 'deleted';
      const type = isFirst ? 'SYNC' : entry.event.type.toUpperCase();
      const { name, namespace, uid, resourceVersion, labels } = object;
      // A deletion that was not seen has no object: its name is enough, and what a reader requires.
      const addressType = 'addressType' in object ? object.addressType : undefined;
      const metadata = { name, namespace, uid, resourceVersion, labels };
      const isGone = raw === undefined && type === 'DELETED';
      const whole = raw ?? (isGone ? { metadata, addressType } : writeObject(resource, object));
      const bytes = raw === undefined && 'bytes' in object ? object.bytes : undefined;
      const shown =
        redactor === null ? withoutManagedFields(whole) : redactor.object(resource, whole);
      const at = timeOf(entry.event.at);
      const missed = gap === true || undefined;
      return { kind: 'object', at, resource, type, gap: missed, bytes, object: shown };
    }
    const at = timeOf(entry.at);
    switch (entry.kind) {
      case 'header': {
        const { kind, kubernetes, resources } = entry;
        return { kind, format: 1, at, kubernetes, resources };
      }
      case 'unreadable': {
        const { resource, labels, ...lost } = entry.lost;
        const type = entry.type?.toUpperCase() ?? null;
        const [namespace, name] = [hide(lost.namespace), hide(lost.name)];
        const shown = labels === null ? null : (redactor?.labels(labels) ?? labels);
        return { kind: entry.kind, at, resource, type, namespace, name, labels: shown };
      }
      case 'progress': {
        const { resource, resourceVersion } = entry;
        const object = { metadata: { resourceVersion } };
        return { kind: 'object', at, resource, type: 'BOOKMARK', object };
      }
      case 'synced':
        synced.add(entry.resource);
        return { ...entry, at };
      case 'watch':
        return { ...entry, at };
      case 'access':
        return { ...entry, at, namespace: hide(entry.namespace) };
    }
  };
  return {
    /** The time of the next line at the earliest. */
    timeOf,
    /** `extra` are fields that only a checkpoint has. */
    line: (entry: LiveEntry, extra: Fields = {}) =>
      `${JSON.stringify({ ...fieldsOf(entry), ...extra })}\n`,
    end: (at: number) => `${JSON.stringify({ kind: 'end', at: timeOf(at) })}\n`,
  };
}

function withoutManagedFields(raw: unknown): unknown {
  if (!isFields(raw) || !isFields(raw.metadata) || !('managedFields' in raw.metadata)) return raw;
  const metadata = { ...raw.metadata };
  delete metadata.managedFields;
  return { ...raw, metadata };
}

export type Redactor = ReturnType<typeof createRedactor>;

/** Labels and annotations whose values are words of Kubernetes. */
const publicValues: ReadonlySet<string> = new Set([
  label.headless,
  label.sliceManagedBy,
  label.endpointsManagedBy,
  label.skipMirror,
  annotation.triggerTime,
  annotation.overCapacity,
  annotation.topologyMode,
  annotation.topologyAwareHints,
]);

const isPublicKey = (key: string): boolean => /^(?:[\w.-]+\.)?(?:kubernetes|k8s)\.io\//.test(key);

/** A redactor with a key of its own, or with one that a test gives. */
export function createRedactor(key: Uint8Array = randomBytes(32)) {
  const known = new Map<string, string>();
  const name = (text: string): string => {
    if (text === '') return '';
    const before = known.get(text);
    if (before !== undefined) return before;
    // A letter first, so that it could be a name.
    const hash = `r${createHmac('sha256', key).update(text).digest('hex').slice(0, 12)}`;
    if (known.size < 1_000_000) known.set(text, hash);
    return hash;
  };
  const hidden = (value: unknown) => (typeof value === 'string' ? name(value) : value);
  const redactPair = ([key, value]: [string, unknown]): [string, unknown] => {
    // An annotation that kubectl writes has the whole object.
    if (key === annotation.lastApplied) return [key, ''];
    return [isPublicKey(key) ? key : name(key), publicValues.has(key) ? value : hidden(value)];
  };
  const redact = (type: string, value: unknown): unknown => {
    if (type === 'plain') return value;
    if (type === 'hidden') return hidden(value);
    if (Array.isArray(value) && type.endsWith('[]')) {
      // Of conditions only the one that is audited.
      const isKept = (item: unknown) =>
        type !== 'Condition[]' || (isFields(item) && item.type === 'Ready');
      return value.filter(isKept).map((item) => redact(type.slice(0, -'[]'.length), item));
    }
    if (!isFields(value)) return value;
    if (type === 'map') return Object.fromEntries(Object.entries(value).map(redactPair));
    const kept = shapes.get(type)?.filter(([field = '']) => value[field] !== undefined) ?? [];
    return Object.fromEntries(
      kept.map(([field = '', type = 'plain']) => [field, redact(type, value[field])]),
    );
  };
  return {
    /** The object without secret parts; null for a value that is not an object. */
    object(resource: Resource, raw: unknown): unknown {
      if (!isFields(raw)) return null;
      const { addressType } = raw;
      // Addresses of type FQDN are names.
      const isNamed =
        resource === 'endpointslices' && addressType !== 'IPv4' && addressType !== 'IPv6';
      return redact(isNamed ? 'NamedEndpointSlice' : kinds[resource], raw);
    },
    name,
    labels: (labels: Labels) => Object.fromEntries(Object.entries(labels).map(redactPair)),
  };
}

const object = 'apiVersion kind metadata:Metadata';
const endpoint = `conditions:Flags hostname:hidden nodeName:hidden zone:hidden topology:Topology
  targetRef:Reference hints:Hints`;

/** The fields that are kept, in this order, each with its type; `plain` if it has none. */
const shapes = new Map(
  Object.entries({
    Metadata: `name:hidden namespace:hidden uid resourceVersion generation creationTimestamp
    deletionTimestamp deletionGracePeriodSeconds labels:map annotations:map
    ownerReferences:Owner[]`,
    Owner: 'apiVersion kind name:hidden uid controller',
    Reference: 'kind namespace:hidden name:hidden uid',
    Port: 'name protocol port targetPort containerPort appProtocol',
    Condition: 'type status lastTransitionTime',
    Node: `${object} status:NodeStatus`,
    NodeStatus: 'allocatable:Allocatable conditions:Condition[]',
    Allocatable: 'cpu',
    Service: `${object} spec:ServiceSpec`,
    ServiceSpec: `type clusterIP selector:map publishNotReadyAddresses ipFamilies ports:Port[]
    trafficDistribution`,
    Pod: `${object} spec:PodSpec status:PodStatus`,
    PodSpec: `nodeName:hidden hostNetwork hostname:hidden subdomain:hidden containers:Container[]
    initContainers:Container[]`,
    Container: 'ports:Port[] restartPolicy',
    PodStatus: 'phase podIP podIPs:PodIP[] conditions:Condition[]',
    PodIP: 'ip',
    Endpoints: `${object} subsets:Subset[]`,
    Subset: 'addresses:Address[] notReadyAddresses:Address[] ports:Port[]',
    Address: 'ip hostname:hidden nodeName:hidden targetRef:Reference',
    EndpointSlice: `${object} addressType ports:Port[] endpoints:Endpoint[]`,
    Endpoint: `addresses ${endpoint}`,
    NamedEndpointSlice: `${object} addressType ports:Port[] endpoints:NamedEndpoint[]`,
    NamedEndpoint: `addresses:hidden[] ${endpoint}`,
    Flags: 'ready serving terminating',
    Topology: `kubernetes.io/hostname:hidden ${label.zone}:hidden`,
    Hints: 'forZones:Hint[] forNodes:Hint[]',
    Hint: 'name:hidden',
  }).map(([type, fields]) => [type, fields.split(/\s+/).map((field) => field.split(':'))]),
);
