// Redacts objects for a recording that leaves the company: names (of objects, namespaces, Nodes,
// zones, hosts), labels and selectors become hashes, and fields that the audit does not read are
// left out: images, commands, environments, most annotations.
//
// A text has the same hash everywhere in a recording, so that a selector still matches its pods.
// The key of the hash is not stored, so that names cannot be guessed. Words of Kubernetes stay:
// label keys under kubernetes.io and k8s.io, values that say who manages an object, phases and
// conditions. So do uids, versions, times, ports and IP addresses.

import { createHmac, randomBytes } from 'node:crypto';

import type { Labels, Resource } from '../../model/objects.ts';
import { annotation, label } from '../../model/objects.ts';
import { isFields } from '../decode/json-fields.ts';
import { kinds } from '../decode/json-objects.ts';

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
    const kept = shapes.get(type)?.filter(([field]) => value[field] !== undefined) ?? [];
    return Object.fromEntries(kept.map(([field, type]) => [field, redact(type, value[field])]));
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
    /** The hash of a name. */
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
  }).map(([type, fields]) => [type, fields.split(/\s+/).map(typedField)]),
);

function typedField(text: string): readonly [name: string, type: string] {
  const [name = '', type = 'plain'] = text.split(':');
  return [name, type];
}
