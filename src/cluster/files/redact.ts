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

export interface Redactor {
  /** The object without secret parts; null for a value that is not an object. */
  object(resource: Resource, raw: unknown): unknown;
  /** The hash of a name. */
  name(text: string): string;
  labels(labels: Readonly<Record<string, string>>): Record<string, string>;
}

type Read = (value: unknown) => unknown;

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
  const value = (key: string, text: string): string => (publicValues.has(key) ? text : name(text));
  const hidden: Read = (text) => (typeof text === 'string' ? name(text) : text);
  const map: Read = (fields) =>
    isFields(fields)
      ? Object.fromEntries(
          Object.entries(fields).map(([key, text]) => [
            isPublicKey(key) ? key : name(key),
            typeof text === 'string' ? value(key, text) : text,
          ]),
        )
      : fields;
  const readers = readersOf(hidden, map);
  return {
    object: (resource, raw) => (isFields(raw) ? readers[resource](raw) : null),
    name,
    labels: (labels) => map(labels) as Record<string, string>,
  };
}

// --- shapes ---

const plain: Read = (value) => value;

/** The fields that are named, each as it says; others are left out, and absent ones stay so. */
const shape =
  (fields: Readonly<Record<string, Read>>): Read =>
  (value) => {
    if (!isFields(value)) return value;
    const made: Record<string, unknown> = {};
    for (const [name, read] of Object.entries(fields)) {
      if (value[name] !== undefined) made[name] = read(value[name]);
    }
    return made;
  };

const each =
  (read: Read): Read =>
  (value) =>
    Array.isArray(value) ? value.map(read) : value;

/** Only the condition Ready. */
const conditions: Read = (value) =>
  Array.isArray(value)
    ? value
        .filter((item) => isFields(item) && item.type === 'Ready')
        .map(shape({ type: plain, status: plain, lastTransitionTime: plain }))
    : value;

/** An annotation that kubectl writes holds the whole object. */
const withoutCopies: Read = (value) => {
  if (!isFields(value) || !(annotation.lastApplied in value)) return value;
  return { ...value, [annotation.lastApplied]: '' };
};

function readersOf(hidden: Read, map: Read): Readonly<Record<Resource, Read>> {
  const target = shape({ kind: plain, namespace: hidden, name: hidden, uid: plain });
  const metadata = shape({
    name: hidden,
    namespace: hidden,
    uid: plain,
    resourceVersion: plain,
    generation: plain,
    creationTimestamp: plain,
    deletionTimestamp: plain,
    deletionGracePeriodSeconds: plain,
    labels: map,
    annotations: (value) => map(withoutCopies(value)),
    ownerReferences: each(
      shape({ apiVersion: plain, kind: plain, name: hidden, uid: plain, controller: plain }),
    ),
  });
  const port = shape({
    name: plain,
    protocol: plain,
    port: plain,
    targetPort: plain,
    containerPort: plain,
    appProtocol: plain,
  });
  const container = shape({ ports: each(port), restartPolicy: plain });
  const hints = shape({
    forZones: each(shape({ name: hidden })),
    forNodes: each(shape({ name: hidden })),
  });
  const address = shape({ ip: plain, hostname: hidden, nodeName: hidden, targetRef: target });
  const top = { apiVersion: plain, kind: plain, metadata };
  return {
    nodes: shape({
      ...top,
      status: shape({ allocatable: shape({ cpu: plain }), conditions }),
    }),
    services: shape({ ...top, spec: serviceSpec(map, port) }),
    pods: shape({
      ...top,
      spec: shape({
        nodeName: hidden,
        hostNetwork: plain,
        hostname: hidden,
        subdomain: hidden,
        containers: each(container),
        initContainers: each(container),
      }),
      status: shape({ phase: plain, podIP: plain, podIPs: each(shape({ ip: plain })), conditions }),
    }),
    endpoints: shape({
      ...top,
      subsets: each(
        shape({ addresses: each(address), notReadyAddresses: each(address), ports: each(port) }),
      ),
    }),
    endpointslices: sliceReader(top, port, hints, target, hidden),
  };
}

const serviceSpec = (map: Read, port: Read): Read =>
  shape({
    type: plain,
    clusterIP: plain,
    selector: map,
    publishNotReadyAddresses: plain,
    ipFamilies: plain,
    ports: each(port),
    trafficDistribution: plain,
  });

function sliceReader(
  top: Readonly<Record<string, Read>>,
  port: Read,
  hints: Read,
  targetRef: Read,
  hidden: Read,
): Read {
  // Addresses of type FQDN are names.
  const read = (isName: boolean): Read =>
    shape({
      ...top,
      addressType: plain,
      ports: each(port),
      endpoints: each(
        shape({
          addresses: isName ? each(hidden) : plain,
          conditions: shape({ ready: plain, serving: plain, terminating: plain }),
          hostname: hidden,
          nodeName: hidden,
          zone: hidden,
          topology: shape({ 'kubernetes.io/hostname': hidden, [label.zone]: hidden }),
          targetRef,
          hints,
        }),
      ),
    });
  const [ofNames, ofAddresses] = [read(true), read(false)];
  return (raw) =>
    isFields(raw) && raw.addressType !== 'IPv4' && raw.addressType !== 'IPv6'
      ? ofNames(raw)
      : ofAddresses(raw);
}
