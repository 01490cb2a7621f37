// Redacts objects for a recording that leaves the company: names (of objects, namespaces, Nodes,
// zones, hosts), labels and selectors become hashes, and fields that the audit does not read are
// left out: images, commands, environments, most annotations.
//
// A text has the same hash everywhere in a recording, so that a selector still matches its pods.
// The key of the hash is not stored, so that names cannot be guessed. Words of Kubernetes stay:
// label keys under kubernetes.io and k8s.io, values that say who manages an object, phases and
// conditions. So do uids, versions, times, ports and IP addresses.

import { createHmac, randomBytes } from 'node:crypto';

import type { Resource } from '../../model/objects.ts';
import { annotation, label } from '../../model/objects.ts';
import { isFields } from '../decode/json-fields.ts';
import { kinds } from '../decode/json-objects.ts';

export interface Redactor {
  /** The object without secret parts; null for a value that is not an object. */
  object(resource: Resource, raw: unknown): unknown;
  /** The hash of a name. */
  name(text: string): string;
  labels(labels: Readonly<Record<string, string>>): Record<string, string>;
}

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
export function createRedactor(key: Uint8Array = randomBytes(32)): Redactor {
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
  const map: Read = (fields) =>
    isFields(fields)
      ? Object.fromEntries(
          Object.entries(fields).map(([key, text]) => [
            isPublicKey(key) ? key : name(key),
            typeof text === 'string' && !publicValues.has(key) ? name(text) : text,
          ]),
        )
      : fields;
  const read = readerOf({
    plain: (value) => value,
    hidden: (text) => (typeof text === 'string' ? name(text) : text),
    map,
    annotations: (value) => map(withoutCopies(value)),
    // Only the condition Ready.
    conditions: (value) =>
      Array.isArray(value)
        ? value
            .filter((item) => isFields(item) && item.type === 'Ready')
            .map((item) => read('Condition')(item))
        : value,
  });
  const readers = new Map(
    [...Object.values(kinds), 'NamedEndpointSlice'].map((kind) => [kind, read(kind)]),
  );
  return {
    object(resource, raw) {
      if (!isFields(raw)) return null;
      const { addressType } = raw;
      // Addresses of type FQDN are names.
      const isNamed =
        resource === 'endpointslices' && addressType !== 'IPv4' && addressType !== 'IPv6';
      return readers.get(isNamed ? 'NamedEndpointSlice' : kinds[resource])?.(raw);
    },
    name,
    labels: (labels) => map(labels) as Record<string, string>,
  };
}

// --- shapes ---

type Read = (value: unknown) => unknown;

const object = 'apiVersion kind metadata:Metadata';
const endpoint = `conditions:Flags hostname:hidden nodeName:hidden zone:hidden topology:Topology
  targetRef:Reference hints:Hints`;

/** The fields that are kept, in this order, each with its type; `plain` if it has none. */
const shapes: Readonly<Record<string, string>> = {
  Metadata: `name:hidden namespace:hidden uid resourceVersion generation creationTimestamp
    deletionTimestamp deletionGracePeriodSeconds labels:map annotations:annotations
    ownerReferences:Owner[]`,
  Owner: 'apiVersion kind name:hidden uid controller',
  Reference: 'kind namespace:hidden name:hidden uid',
  Port: 'name protocol port targetPort containerPort appProtocol',
  Condition: 'type status lastTransitionTime',
  Node: `${object} status:NodeStatus`,
  NodeStatus: 'allocatable:Allocatable conditions:conditions',
  Allocatable: 'cpu',
  Service: `${object} spec:ServiceSpec`,
  ServiceSpec: `type clusterIP selector:map publishNotReadyAddresses ipFamilies ports:Port[]
    trafficDistribution`,
  Pod: `${object} spec:PodSpec status:PodStatus`,
  PodSpec: `nodeName:hidden hostNetwork hostname:hidden subdomain:hidden containers:Container[]
    initContainers:Container[]`,
  Container: 'ports:Port[] restartPolicy',
  PodStatus: 'phase podIP podIPs:PodIP[] conditions:conditions',
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
};

/** What reads a value of a type: one of these, a shape, or a list of either. */
const readerOf = (leaves: Readonly<Record<string, Read>>): ((type: string) => Read) => {
  const reader = (type: string): Read => {
    const item = type.endsWith('[]') ? reader(type.slice(0, -2)) : null;
    if (item !== null) {
      return (value) => (Array.isArray(value) ? value.map((each) => item(each)) : value);
    }
    return leaves[type] ?? shapeReader((shapes[type] ?? '').split(/\s+/), reader);
  };
  return reader;
};

function shapeReader(words: readonly string[], readerOf: (type: string) => Read): Read {
  const fields = words.map((word) => {
    const [name = '', type = 'plain'] = word.split(':');
    return [name, readerOf(type)] as const;
  });
  return (value) =>
    isFields(value)
      ? Object.fromEntries(
          fields.flatMap(([name, read]) =>
            value[name] === undefined ? [] : [[name, read(value[name])]],
          ),
        )
      : value;
}

/** An annotation that kubectl writes holds the whole object. */
const withoutCopies: Read = (value) => {
  if (!isFields(value) || !(annotation.lastApplied in value)) return value;
  return { ...value, [annotation.lastApplied]: '' };
};
