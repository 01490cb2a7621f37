// Redacts objects of a recording that leaves the company: names (of objects, namespaces, Nodes,
// zones, hosts), labels and selectors become hashes, and fields that the audit does not read are
// left out. A text has the same hash everywhere in a recording, so that a selector still matches
// its pods. The key of the hash is not stored, so that names cannot be guessed. Words of Kubernetes
// stay, as do uids, versions, times and port numbers. Port names and IP addresses stay by default.

import { createHmac, randomBytes } from 'node:crypto';

import { annotation, kinds, label, type Labels, type Resource } from '../../model/objects.ts';
import { parseIP } from '../../model/ip.ts';
import { isFields } from '../decode/json-fields.ts';
import type { Problem } from '../decode/problem.ts';
import { createAddressRedactor } from './redact-address.ts';

/** What is hidden beside names. */
export interface RedactionOptions {
  readonly ports?: boolean;
  /** IP addresses; which of them share a prefix remains visible. */
  readonly ips?: boolean;
  /** Without one, a random key, which is not stored. */
  readonly key?: Uint8Array;
}

const isTime = (value: string): boolean => /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(value);

const oneOf =
  (...words: readonly string[]) =>
  (value: string): boolean =>
    words.includes(value.toLowerCase());

const isController = oneOf(
  'endpoint-controller',
  'endpointslice-controller.k8s.io',
  'endpointslicemirroring-controller.k8s.io',
);

const isTopologyMode = oneOf('auto', 'disabled');

/** The values of labels and annotations that are words of Kubernetes. */
const publicValues: ReadonlyMap<string, (value: string) => boolean> = new Map([
  [label.headless, oneOf('')],
  [label.sliceManagedBy, isController],
  [label.endpointsManagedBy, isController],
  [label.skipMirror, oneOf('true', 'false')],
  [annotation.triggerTime, isTime],
  [annotation.overCapacity, oneOf('truncated', 'warning')],
  [annotation.topologyMode, isTopologyMode],
  [annotation.topologyAwareHints, isTopologyMode],
]);

/** The keys that are shown: those that the audit reads. Others may have a name after the slash. */
const publicKeys: ReadonlySet<string> = new Set([
  ...[label.headless, label.serviceName, label.sliceManagedBy, label.endpointsManagedBy],
  ...[label.skipMirror, label.serviceProxyName, label.zone],
  ...[annotation.triggerTime, annotation.overCapacity, annotation.leader, annotation.lastApplied],
  ...[annotation.topologyMode, annotation.topologyAwareHints],
  'node-role.kubernetes.io/control-plane',
  'node-role.kubernetes.io/master',
]);

const publicProtocols: ReadonlySet<string> = new Set(
  ['h2c', 'ws', 'wss'].map((protocol) => `kubernetes.io/${protocol}`),
);

/** API groups whose kinds are those of Kubernetes. */
const isPublicGroup = (apiVersion: unknown): boolean =>
  typeof apiVersion === 'string' && /^(?:(?:apps|batch)\/)?v\d\w*$/.test(apiVersion);

const publicTargets: ReadonlySet<unknown> = new Set(['', ...Object.values(kinds)]);

/** Longer texts are no names, so they seldom repeat. */
const longestName = 254;

/** How each kind of text is hidden. */
function createWords({ ports = false, ips = false, key = randomBytes(32) }: RedactionOptions) {
  const known = new Map<string, string>();
  const remembered = (text: string, make: () => string): string => {
    // Annotations such as that of a leader are long, and new ones come for ever.
    if (text.length > longestName) return make();
    const before = known.get(text);
    if (before !== undefined) return before;
    const made = make();
    if (known.size < 1_000_000) known.set(text, made);
    return made;
  };
  const name = (text: string): string => {
    if (text === '') return '';
    // A letter first, so that it could be a name; short enough for a port.
    const hash = () => `r${createHmac('sha256', key).update(text).digest('hex').slice(0, 12)}`;
    return remembered(`n${text}`, hash);
  };
  const redactAddress = createAddressRedactor(key);
  return {
    hidden: name,
    ip: (text: string): string => {
      if (text === '' || text === 'None') return text;
      if (!ips) return parseIP(text) === null ? name(text) : text;
      return remembered(`a${text}`, () => redactAddress(text) ?? name(text));
    },
    port: ports ? name : (text: string): string => text,
    // A prefix that is not of Kubernetes is a domain name.
    protocol: (text: string): string =>
      ports || (text.includes('/') && !publicProtocols.has(text)) ? name(text) : text,
    target: (text: string): string => (publicTargets.has(text) ? text : name(text)),
  };
}

export type Redactor = ReturnType<typeof createRedactor>;

/** A redactor with a key of its own, or with one that a test gives. */
export function createRedactor(options: RedactionOptions = {}) {
  const words = createWords(options);
  const wordsOf = new Map<string, (text: string) => string>(Object.entries(words));
  const { hidden: name, ip: address, port, protocol } = words;
  const pair = ([labelKey, value]: [string, unknown]): [string, unknown] => {
    // An annotation that kubectl writes has the whole object.
    if (labelKey === annotation.lastApplied) return [labelKey, ''];
    const shown = publicKeys.has(labelKey) ? labelKey : name(labelKey);
    if (typeof value !== 'string') return [shown, value];
    return [shown, publicValues.get(labelKey)?.(value) === true ? value : name(value)];
  };
  const hideLabels = (labels: Labels): Labels =>
    Object.fromEntries(Object.entries(labels).map(pair)) as Labels;
  const redact = (type: string, value: unknown): unknown => {
    if (type === 'plain') return value;
    const hide = wordsOf.get(type);
    if (hide !== undefined) return typeof value === 'string' ? hide(value) : value;
    if (Array.isArray(value) && type.endsWith('[]')) {
      // Of conditions only the one that is audited.
      const isKept = (item: unknown) =>
        type !== 'Condition[]' || (isFields(item) && item.type === 'Ready');
      return value.filter(isKept).map((item) => redact(type.slice(0, -'[]'.length), item));
    }
    if (!isFields(value)) return value;
    if (type === 'map') return Object.fromEntries(Object.entries(value).map(pair));
    const isForeign = type === 'Owner' && !isPublicGroup(value.apiVersion);
    const shape = shapes.get(isForeign ? 'ForeignOwner' : type) ?? [];
    const kept = shape.filter(([field = '']) => value[field] !== undefined);
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
    address,
    port,
    labels: hideLabels,
    protocol,
    problem: (problem: Problem) => redactProblem(problem, name, hideLabels),
  };
}

/** The problem without names: they have the hashes of the recording. Its value is left out. */
function redactProblem(
  problem: Problem,
  name: (text: string) => string,
  hideLabels: (labels: Labels) => Labels,
): Problem {
  const { lost, object, field } = problem;
  const hide = (word: string): string => (isKind(word) ? word : name(word));
  return {
    ...problem,
    source: lost?.resource ?? 'API server',
    object: object?.replace(/[^\s/]+/g, hide) ?? null,
    // A key of a map is a name, too.
    field: field?.replace(/\[(?!\d+\])[^\]]*\]/g, '[…]') ?? null,
    value: null,
    lost: lost && {
      ...lost,
      namespace: lost.namespace && name(lost.namespace),
      name: lost.name && name(lost.name),
      labels: lost.labels && hideLabels(lost.labels),
    },
  };
}

const isKind = (word: string): boolean => Object.values(kinds).includes(word);

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
    ForeignOwner: 'apiVersion:hidden kind:hidden name:hidden uid controller',
    Reference: 'kind:target namespace:hidden name:hidden uid',
    Port: 'name:port protocol port targetPort:port containerPort appProtocol:protocol',
    Condition: 'type status lastTransitionTime',
    Node: `${object} status:NodeStatus`,
    NodeStatus: 'allocatable:Allocatable conditions:Condition[]',
    Allocatable: 'cpu',
    Service: `${object} spec:ServiceSpec`,
    ServiceSpec: `type clusterIP:ip selector:map publishNotReadyAddresses ipFamilies ports:Port[]
    trafficDistribution`,
    Pod: `${object} spec:PodSpec status:PodStatus`,
    PodSpec: `nodeName:hidden hostNetwork hostname:hidden subdomain:hidden containers:Container[]
    initContainers:Container[]`,
    Container: 'ports:Port[] restartPolicy',
    PodStatus: 'phase podIP:ip podIPs:PodIP[] conditions:Condition[]',
    PodIP: 'ip:ip',
    Endpoints: `${object} subsets:Subset[]`,
    Subset: 'addresses:Address[] notReadyAddresses:Address[] ports:Port[]',
    Address: 'ip:ip hostname:hidden nodeName:hidden targetRef:Reference',
    EndpointSlice: `${object} addressType ports:Port[] endpoints:Endpoint[]`,
    Endpoint: `addresses:ip[] ${endpoint}`,
    NamedEndpointSlice: `${object} addressType ports:Port[] endpoints:NamedEndpoint[]`,
    NamedEndpoint: `addresses:hidden[] ${endpoint}`,
    Flags: 'ready serving terminating',
    Topology: `kubernetes.io/hostname:hidden ${label.zone}:hidden`,
    Hints: 'forZones:Hint[] forNodes:Hint[]',
    Hint: 'name:hidden',
  }).map(([type, fields]) => [type, fields.split(/\s+/).map((field) => field.split(':'))]),
);
