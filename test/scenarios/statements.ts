// The words of a statement: its place, keys and values, and shorthand for many objects (names
// `web-{1..1050}`, addresses `10.1.0.1+`, values that take turns `{a,b,c}`).

import { parse as parseYaml } from 'yaml';

import { resourceOfKind } from '../../src/cluster/decode/json-objects.ts';
import type { Resource } from '../../src/model/objects.ts';
import type {
  Api,
  Condition,
  Container,
  Draft,
  EndpointEntry,
  Owner,
  PortEntry,
  ServicePort,
  StringMap,
  Subset,
  Target,
} from './api.ts';
import { collectGarbage, syncEndpoints, syncMirror, syncSlices, timestamp } from './api.ts';
import type { Scenario, Statement } from './parse.ts';
import { ScenarioError, splitWords } from './parse.ts';

/** The place of a statement, and which of the objects it names is meant. */
export interface Place {
  readonly scenario: Scenario;
  readonly api: Api;
  readonly line: number;
  /** Position among the names that one statement expands to. */
  readonly index: number;
}

export function fail(place: Place, message: string): never {
  throw new ScenarioError(place.scenario.file, place.line, message);
}

/** `shop/web` in its parts. */
function splitKey(place: Place, key: string): { namespace: string; name: string } {
  const [namespace, name, more] = key.split('/');
  if (namespace === undefined || name === undefined || name === '' || more !== undefined) {
    fail(place, `Expected NAMESPACE/NAME: ${key}`);
  }
  return { namespace, name };
}

/** `key=value` at the first equals sign; a bare word has the value ''. */
export function splitWord(word: string): [string, string] {
  const equals = word.indexOf('=');
  return equals < 0 ? [word, ''] : [word.slice(0, equals), word.slice(equals + 1)];
}

/** Labels as `kubectl label` takes them: `key=value` sets, `key-` takes away. */
function editMap(before: StringMap | undefined, text: string): StringMap {
  const map = { ...before };
  for (const part of text.split(',')) {
    const [key, value] = splitWord(part);
    if (!part.includes('=') && part.endsWith('-')) Reflect.deleteProperty(map, part.slice(0, -1));
    else map[key] = value;
  }
  return map;
}

const range = /\{(?<first>\d+)\.\.(?<last>\d+)\}/;
const choice = /\{(?<choices>[^{}]*,[^{}]*)\}/;

/** `web-{1..3}` and `web-{a,b}` are several names; a name without braces is itself. */
export function expandName(name: string): string[] {
  const choices = choice.exec(name)?.groups?.choices;
  if (choices !== undefined) return choices.split(',').map((one) => name.replace(choice, one));
  const match = range.exec(name);
  if (match?.groups === undefined) return [name];
  const first = Number(match.groups.first);
  const last = Number(match.groups.last);
  return Array.from({ length: last - first + 1 }, (_, index) =>
    name.replace(range, String(first + index)),
  );
}

/** `10.0.0.1+` is the address that many places further; without plus it is itself. */
export function addressAfter(text: string, index: number): string {
  if (!text.endsWith('+')) return text;
  const start = text.slice(0, -1);
  if (start.includes(':')) {
    const colon = start.lastIndexOf(':');
    const group = Number.parseInt(start.slice(colon + 1) || '0', 16) + index;
    return `${start.slice(0, colon)}:${group.toString(16)}`;
  }
  let value = start.split('.').reduce((sum, octet) => sum * 256 + Number(octet), 0) + index;
  const octets: number[] = [];
  for (let count = 0; count < 4; count++) {
    octets.unshift(value % 256);
    value = Math.floor(value / 256);
  }
  return octets.join('.');
}

/** `{a,b,c}` in a value takes turns; a value without braces is itself. */
function pick(text: string, index: number): string {
  const choices = choice.exec(text)?.groups?.choices?.split(',');
  return choices === undefined ? text : text.replace(choice, choices[index % choices.length] ?? '');
}

// Endpoints and EndpointSlices in scenarios: labels and owners first, then the list of addresses,
// then after a colon their ports.
//
//   endpoints shop/web  10.0.0.1(web-1), 10.0.0.2(web-2) not-ready : http 8080/TCP
//   slice shop/web-abc service=web  10.0.0.1(web-1), 10.0.0.2(web-2) not-ready : http 8080/TCP
//
// What an address does not say is taken from the pod in parentheses as it is now, so that a line
// names only what is special.

const serviceNameLabel = 'kubernetes.io/service-name';
const sliceManagedBy = 'endpointslice.kubernetes.io/managed-by';
const endpointsManagedBy = 'endpoints.kubernetes.io/managed-by';

const sliceManagers: Readonly<Record<string, string>> = {
  controller: 'endpointslice-controller.k8s.io',
  mirroring: 'endpointslicemirroring-controller.k8s.io',
};

/** One address with what is said about it. */
interface Entry {
  readonly address: string;
  readonly pod: string | null;
  /** Which pod of that name, counted from 1; null: the latest. */
  readonly life: number | null;
  readonly words: readonly string[];
}

/** Addresses and the ports after the colon; null where there is no colon. */
interface Group {
  readonly entries: readonly Entry[];
  readonly ports: PortEntry[] | null;
}

/** `10.0.0.1(web-1)`, `10.0.0.1(web-1#2)` or `10.0.0.1`; ranges and `+` mean many. */
function entriesOf(place: Place, words: readonly string[]): Entry[] {
  const [first = '', ...rest] = words;
  const match = /^(?<address>[^()]+)(?:\((?<pod>[^()#]+)(?:#(?<life>\d+))?\))?$/.exec(first);
  if (match?.groups === undefined) fail(place, `Expected an ADDRESS(POD): ${first}`);
  const { address = '', pod, life } = match.groups;
  const many = /^(?<start>.+\+)(?<count>\d+)$/.exec(address)?.groups;
  if (many !== undefined) return runOf(many.start ?? '', Number(many.count), rest);
  const names = pod === undefined ? [null] : expandName(pod);
  return names.map((name, index) => ({
    address: addressAfter(address, index),
    pod: name,
    life: life === undefined ? null : Number(life),
    words: rest,
  }));
}

/** `10.0.0.1+200`: 200 addresses in a row, of no pod. */
function runOf(start: string, count: number, words: readonly string[]): Entry[] {
  return Array.from({ length: count }, (_, index) => ({
    address: addressAfter(start, index),
    pod: null,
    life: null,
    words,
  }));
}

/** Splits words at commas, which end a word. */
function splitAtCommas(words: readonly string[]): string[][] {
  const parts: string[][] = [[]];
  for (const word of words) {
    const bare = word.endsWith(',') ? word.slice(0, -1) : word;
    if (bare !== '') parts.at(-1)?.push(bare);
    if (word.endsWith(',')) parts.push([]);
  }
  return parts.filter((part) => part.length > 0);
}

/** `http 8080/TCP`, `8080/TCP`, `grpc 9090/TCP (h2c)`. */
function portOf(place: Place, words: readonly string[]): PortEntry {
  const form = /^(?:(?<name>\S+) )?(?<port>\d+)\/(?<protocol>[A-Z]+)(?: \((?<app>\S+)\))?$/;
  const groups = form.exec(words.join(' '))?.groups;
  if (groups === undefined) fail(place, `Expected a port as \`http 8080/TCP\`: ${words.join(' ')}`);
  const { name = '', port, protocol = '', app } = groups;
  const made: PortEntry = { name, port: Number(port), protocol };
  if (app !== undefined) made.appProtocol = app;
  return made;
}

function groupOf(place: Place, words: readonly string[]): Group {
  const colon = words.indexOf(':');
  const addresses = colon < 0 ? words : words.slice(0, colon);
  return {
    entries: splitAtCommas(addresses).flatMap((part) => entriesOf(place, part)),
    ports:
      colon < 0 ? null : splitAtCommas(words.slice(colon + 1)).map((part) => portOf(place, part)),
  };
}

/** Splits the words into those about the object and groups of addresses; null: none are said. */
function splitContent(
  place: Place,
  words: readonly string[],
): { head: string[]; groups: Group[] | null } {
  const isContent = (word: string): boolean =>
    word === 'empty' || word === ':' || (!word.includes('=') && /[.:(]/.test(word));
  const start = words.findIndex(isContent);
  if (start < 0) return { head: [...words], groups: null };
  const head = words.slice(0, start);
  const content = words.slice(words[start] === 'empty' ? start + 1 : start);
  if (content.length === 0) return { head, groups: [] };
  const groups: string[][] = [[]];
  for (const word of content) {
    if (word === ';') groups.push([]);
    else groups.at(-1)?.push(word);
  }
  return { head, groups: groups.map((group) => groupOf(place, group)) };
}

function targetOf(place: Place, namespace: string, { pod, life }: Entry): Target | null {
  if (pod === null) return null;
  const uid = place.api.uid('pods', `${namespace}/${pod}`, life ?? undefined);
  if (uid === null) fail(place, `No pod of this name was ever made: ${namespace}/${pod}`);
  return { kind: 'Pod', namespace, name: pod, uid };
}

const podOf = (api: Api, namespace: string, { pod }: Entry) =>
  pod === null ? undefined : api.get('pods', `${namespace}/${pod}`);

// --- Endpoints ---

function subsetOf(place: Place, namespace: string, { entries, ports }: Group): Subset {
  const subset: Subset = {};
  for (const entry of entries) {
    const target = targetOf(place, namespace, entry);
    let node = podOf(place.api, namespace, entry)?.spec.nodeName;
    let hostname: string | undefined;
    let isReady = true;
    for (const word of entry.words) {
      const [key, value] = splitWord(word);
      if (word === 'ready' || word === 'not-ready') isReady = word === 'ready';
      else if (key === 'node') node = value === 'none' ? undefined : value;
      else if (key === 'hostname') hostname = value;
      else fail(place, `Unknown word of an address in Endpoints: ${word}`);
    }
    const address = {
      ip: entry.address,
      ...(node === undefined ? {} : { nodeName: node }),
      ...(hostname === undefined ? {} : { hostname }),
      ...(target === null ? {} : { targetRef: target }),
    };
    const list = isReady ? (subset.addresses ??= []) : (subset.notReadyAddresses ??= []);
    list.push(address);
  }
  if (ports !== null) subset.ports = ports.map(withoutEmptyName);
  return subset;
}

/** Endpoints leave the name of an unnamed port out. */
function withoutEmptyName(port: PortEntry): PortEntry {
  if (port.name !== '') return port;
  const unnamed = { ...port };
  delete unnamed.name;
  return unnamed;
}

function putEndpoints(place: Place, key: string, words: readonly string[]): void {
  const { namespace, name } = splitKey(place, key);
  const draft: Draft<'endpoints'> = structuredClone(place.api.get('endpoints', key)) ?? {
    apiVersion: 'v1',
    kind: 'Endpoints',
    metadata: { namespace, name },
  };
  const { metadata } = draft;
  const { head, groups } = splitContent(place, words);
  for (const word of head) {
    const [what, value] = splitWord(word);
    if (what === 'labels') metadata.labels = editMap(metadata.labels, value);
    else if (what === 'annotations') metadata.annotations = editMap(metadata.annotations, value);
    else if (what === 'managed-by') {
      const manager = value === 'controller' ? 'endpoint-controller' : value;
      const edit = value === 'none' ? '-' : `=${manager}`;
      metadata.labels = editMap(metadata.labels, `${endpointsManagedBy}${edit}`);
    } else fail(place, `Unknown word of Endpoints: ${word}`);
  }
  if (groups !== null) {
    draft.subsets = groups.map((group) => subsetOf(place, namespace, group));
    if (draft.subsets.length === 0) delete draft.subsets;
  }
  place.api.put('endpoints', draft);
}

// --- EndpointSlices ---

/** `service/web`, `endpoints/db`, `service/web#1` for an earlier life, or `none`. */
function ownersOf(place: Place, namespace: string, text: string): Owner[] {
  if (text === 'none') return [];
  const match = /^(?<kind>service|endpoints)\/(?<name>[^#]+)(?:#(?<life>\d+))?$/.exec(text);
  if (match?.groups === undefined) fail(place, `Expected service/NAME or endpoints/NAME: ${text}`);
  const { kind, name = '', life } = match.groups;
  const resource = kind === 'service' ? 'services' : 'endpoints';
  const wanted = life === undefined ? undefined : Number(life);
  const uid = place.api.uid(resource, `${namespace}/${name}`, wanted);
  if (uid === null) fail(place, `No such owner was ever made: ${text}`);
  const owner = { apiVersion: 'v1', kind: kind === 'service' ? 'Service' : 'Endpoints', name, uid };
  return [{ ...owner, controller: true }];
}

/** The conditions that a word means. */
const conditionWords: Readonly<Record<string, EndpointEntry['conditions']>> = {
  ready: { ready: true, serving: true, terminating: false },
  'not-ready': { ready: false, serving: false, terminating: false },
  terminating: { ready: false, serving: true, terminating: true },
  'terminating-not-serving': { ready: false, serving: false, terminating: true },
  'no-conditions': {},
};

/** Only the slice controller writes serving and terminating unless they are said. */
function conditionsOf(place: Place, entry: Entry, isOurs: boolean): EndpointEntry['conditions'] {
  const said = entry.words.find((word) => conditionWords[word] !== undefined) ?? 'ready';
  let conditions = { ...conditionWords[said] };
  if (!isOurs && !said.startsWith('terminating') && conditions.ready !== undefined) {
    conditions = { ready: conditions.ready };
  }
  for (const word of entry.words) {
    const [key, value] = splitWord(word);
    if (key !== 'ready' && key !== 'serving' && key !== 'terminating') continue;
    if (value === 'true' || value === 'false') conditions[key] = value === 'true';
    else if (value === 'absent') Reflect.deleteProperty(conditions, key);
    else if (value !== '') fail(place, `Expected true, false or absent: ${word}`);
  }
  return conditions;
}

const named = (text: string): { name: string }[] => text.split('+').map((name) => ({ name }));

function endpointOf(place: Place, namespace: string, entry: Entry, isOurs: boolean): EndpointEntry {
  const made: EndpointEntry = {
    addresses: [entry.address],
    conditions: conditionsOf(place, entry, isOurs),
  };
  const target = targetOf(place, namespace, entry);
  if (target !== null) made.targetRef = target;
  const node = podOf(place.api, namespace, entry)?.spec.nodeName;
  if (node !== undefined) made.nodeName = node;
  const labels = place.api.get('nodes', node ?? '')?.metadata.labels;
  const zone = labels?.['topology.kubernetes.io/zone'];
  if (zone !== undefined && isOurs) made.zone = zone;
  for (const word of entry.words) {
    const [key, value] = splitWord(word);
    if (conditionWords[word] !== undefined || /^(?:ready|serving|terminating)=/.test(word))
      continue;
    if (key === 'hints') made.hints = { ...made.hints, forZones: named(value) };
    else if (key === 'node-hints') made.hints = { ...made.hints, forNodes: named(value) };
    else if (key === 'also') made.addresses.push(value);
    else if (key === 'node') setOrDelete(made, 'nodeName', value);
    else if (key === 'zone') setOrDelete(made, 'zone', value);
    else if (key === 'hostname') setOrDelete(made, 'hostname', value);
    else fail(place, `Unknown word of an endpoint: ${word}`);
  }
  return made;
}

function setOrDelete(
  entry: EndpointEntry,
  field: 'nodeName' | 'zone' | 'hostname',
  value: string,
): void {
  if (value === 'none') Reflect.deleteProperty(entry, field);
  else entry[field] = value;
}

function editSlice(place: Place, draft: Draft<'endpointslices'>, word: string): void {
  const { metadata } = draft;
  const [what, value] = splitWord(word);
  const label = (name: string, of: string): void => {
    metadata.labels = editMap(metadata.labels, of === 'none' ? `${name}-` : `${name}=${of}`);
  };
  if (word === 'IPv4' || word === 'IPv6' || word === 'FQDN') draft.addressType = word;
  else if (what === 'service') label(serviceNameLabel, value);
  else if (what === 'managed-by') label(sliceManagedBy, sliceManagers[value] ?? value);
  else if (what === 'owner') {
    metadata.ownerReferences = ownersOf(place, metadata.namespace ?? '', value);
  } else if (what === 'labels') metadata.labels = editMap(metadata.labels, value);
  else if (what === 'annotations') metadata.annotations = editMap(metadata.annotations, value);
  else fail(place, `Unknown word of a slice: ${word}`);
}

/** What a new slice is unless it is said: the slice controller's, owned by its Service. */
function newSlice(place: Place, key: string, head: readonly string[]): Draft<'endpointslices'> {
  const { namespace, name } = splitKey(place, key);
  const said = new Map(head.map(splitWord));
  const service = said.get('service') ?? 'none';
  const managedBy = said.get('managed-by') ?? 'controller';
  const owner = managedBy === 'mirroring' ? `endpoints/${service}` : `service/${service}`;
  const isOwned = service !== 'none' && sliceManagers[managedBy] !== undefined;
  const draft: Draft<'endpointslices'> = {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { namespace, name },
    addressType: 'IPv4',
    ports: null,
    endpoints: null,
  };
  editSlice(place, draft, `managed-by=${managedBy}`);
  if (isOwned && !said.has('owner')) editSlice(place, draft, `owner=${owner}`);
  return draft;
}

function putSlice(place: Place, key: string, words: readonly string[]): void {
  const { head, groups } = splitContent(place, words);
  const before = place.api.get('endpointslices', key);
  const draft = structuredClone(before) ?? newSlice(place, key, head);
  const group = groups?.[0];
  if ((groups?.length ?? 0) > 1) fail(place, 'A slice has one list of ports: `;` in a slice');
  if (before === undefined && group?.entries[0]?.address.includes(':') === true) {
    draft.addressType = 'IPv6';
  }
  for (const word of head) editSlice(place, draft, word);
  const isOurs = draft.metadata.labels?.[sliceManagedBy] === sliceManagers.controller;
  if (groups !== null) {
    const { namespace } = splitKey(place, key);
    const entries = group?.entries ?? [];
    draft.endpoints = entries.map((entry) => endpointOf(place, namespace, entry, isOurs));
    draft.ports = group?.ports ?? null;
    if (draft.endpoints.length === 0) draft.endpoints = null;
  }
  place.api.put('endpointslices', draft);
}

// What the statements of a scenario do to the miniature API server: each line creates an object or
// changes the one of its name as far as it says, like `kubectl apply` with a terse manifest.
// README.md describes the notation; endpoints and slices, with their lists of addresses, are in
// addresses below.

/** The condition Ready; its transition time stays where the status stays. */
function readyCondition(place: Place, before: readonly Condition[], status: string): Condition[] {
  const same = before.find((one) => one.type === 'Ready' && one.status === status);
  if (status === 'absent') return [];
  const since = timestamp(place.api.now);
  return [same ?? { type: 'Ready', status, lastTransitionTime: since }];
}

// --- nodes ---

function putNode(place: Place, name: string, words: readonly string[]): void {
  const before = place.api.get('nodes', name);
  const draft: Draft<'nodes'> = structuredClone(before) ?? {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name },
    status: { allocatable: { cpu: '4' }, conditions: readyCondition(place, [], 'True') },
  };
  const { metadata, status } = draft;
  for (const word of words) {
    const [key, value] = splitWord(word);
    if (key === 'zone') {
      const edit = value === 'none' ? '-' : `=${pick(value, place.index)}`;
      metadata.labels = editMap(metadata.labels, `topology.kubernetes.io/zone${edit}`);
    } else if (key === 'labels') metadata.labels = editMap(metadata.labels, value);
    else if (key === 'cpu') status.allocatable = { cpu: value };
    else if (word === 'control-plane') {
      metadata.labels = editMap(metadata.labels, 'node-role.kubernetes.io/control-plane=');
    } else if (word === 'ready' || word === 'not-ready') {
      const wanted = word === 'ready' ? 'True' : 'False';
      status.conditions = readyCondition(place, status.conditions, wanted);
    } else fail(place, `Unknown word of a node: ${word}`);
  }
  place.api.put('nodes', draft);
}

// --- pods ---

/** `http:8080` or `dns:53/UDP`. */
function containerOf(place: Place, name: string, text: string): Container {
  const ports = text.split(',').map((port) => {
    const match = /^(?<name>[a-z0-9-]+):(?<number>\d+)(?:\/(?<protocol>[A-Z]+))?$/.exec(port);
    if (match?.groups === undefined) fail(place, `Expected NAME:NUMBER/PROTOCOL: ${port}`);
    const { name: portName = '', number: containerPort, protocol = 'TCP' } = match.groups;
    return { name: portName, containerPort: Number(containerPort), protocol };
  });
  return { name, ports };
}

function editPodStatus(place: Place, draft: Draft<'pods'>, word: string): boolean {
  const [key, value] = splitWord(word);
  const { status } = draft;
  if (key === 'ip') {
    if (value === 'none') {
      delete status.podIPs;
      delete status.podIP;
      return true;
    }
    const ips = value.split(',').map((ip) => ({ ip: addressAfter(ip, place.index) }));
    status.podIPs = ips;
    status.podIP = ips[0]?.ip ?? '';
  } else if (key === 'phase') status.phase = value;
  else if (word === 'ready' || word === 'not-ready') {
    const wanted = word === 'ready' ? 'True' : 'False';
    status.conditions = readyCondition(place, status.conditions ?? [], wanted);
  } else if (key === 'condition-ready') {
    status.conditions = readyCondition(place, status.conditions ?? [], value);
  } else return false;
  return true;
}

function editPod(place: Place, draft: Draft<'pods'>, word: string): void {
  const [key, value] = splitWord(word);
  const { metadata, spec } = draft;
  if (editPodStatus(place, draft, word)) return;
  if (key === 'node') spec.nodeName = pick(value, place.index);
  else if (key === 'labels') metadata.labels = editMap(metadata.labels, value);
  else if (key === 'hostname') spec.hostname = pick(value, place.index);
  else if (key === 'subdomain') spec.subdomain = value;
  else if (key === 'ports')
    spec.containers = [containerOf(place, 'main', pick(value, place.index))];
  else if (key === 'sidecar-ports') {
    const container = containerOf(place, 'sidecar', value);
    spec.initContainers = [{ ...container, restartPolicy: 'Always' }];
  } else if (word === 'hostNetwork') spec.hostNetwork = true;
  else if (word === 'terminating') {
    metadata.deletionTimestamp = timestamp(place.api.now + 30);
    metadata.deletionGracePeriodSeconds = 30;
  } else fail(place, `Unknown word of a pod: ${word}`);
}

function putPod(place: Place, key: string, words: readonly string[]): void {
  const before = place.api.get('pods', key);
  const says = (word: string): boolean =>
    word === 'ready' || word === 'not-ready' || word.startsWith('condition-ready=');
  if (before === undefined && !words.some(says)) {
    fail(place, `Expected \`ready\` or \`not-ready\` of a new pod: ${key}`);
  }
  const draft: Draft<'pods'> = structuredClone(before) ?? {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: splitKey(place, key),
    spec: { containers: [{ name: 'main' }] },
    status: { phase: 'Running', conditions: [] },
  };
  for (const word of words) editPod(place, draft, word);
  place.api.put('pods', draft);
}

// --- services ---

const portForm = new RegExp(
  [
    /^(?:(?<name>[a-z0-9-]+):)?(?<port>\d+)(?:->(?<target>[a-z0-9-]+))?/,
    /(?:\/(?<protocol>[A-Z]+))?(?:\((?<app>[^)]+)\))?$/,
  ]
    .map(({ source }) => source)
    .join(''),
);

/** `http:80->8080`, `dns:53/UDP`, `80->web(h2c)`: name, port, target, protocol, app protocol. */
function servicePort(place: Place, text: string): ServicePort {
  const groups = portForm.exec(text)?.groups;
  if (groups === undefined) fail(place, `Expected NAME:PORT->TARGET/PROTOCOL: ${text}`);
  const { name, port, target, protocol = 'TCP', app } = groups;
  const wanted = target ?? port ?? '';
  const made: ServicePort = {
    port: Number(port),
    targetPort: /^\d+$/.test(wanted) ? Number(wanted) : wanted,
    protocol,
  };
  if (name !== undefined) made.name = name;
  if (app !== undefined) made.appProtocol = app;
  return made;
}

function editServiceSpec(place: Place, spec: Draft<'services'>['spec'], word: string): boolean {
  const [key, value] = splitWord(word);
  if (key === 'selector') {
    if (value === 'none') delete spec.selector;
    else spec.selector = editMap({}, value);
  } else if (key === 'port') {
    spec.ports = value === 'none' ? [] : [...(spec.ports ?? []), servicePort(place, value)];
  } else if (key === 'type') spec.type = value;
  else if (key === 'externalName') spec.externalName = value;
  else if (key === 'clusterIP') spec.clusterIP = value;
  else if (key === 'ipFamilies') spec.ipFamilies = value.split(',');
  else if (word === 'headless') spec.clusterIP = 'None';
  else if (key === 'publishNotReadyAddresses') spec.publishNotReadyAddresses = value !== 'false';
  else if (key === 'trafficDistribution') {
    if (value === 'none') delete spec.trafficDistribution;
    else spec.trafficDistribution = value;
  } else return false;
  return true;
}

/** What the API server allots: families, and an address of the first one. */
function allot(place: Place, { spec }: Draft<'services'>): void {
  if (spec.type === 'ExternalName') {
    delete spec.clusterIP;
    delete spec.ipFamilies;
    return;
  }
  spec.ipFamilies ??= ['IPv4'];
  const count = place.api.serviceKeys.size + 1;
  spec.clusterIP ??= spec.ipFamilies[0] === 'IPv6' ? `fd00:96::${count}` : `10.96.0.${count}`;
}

function putService(place: Place, key: string, words: readonly string[]): void {
  const before = place.api.get('services', key);
  const draft: Draft<'services'> = structuredClone(before) ?? {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: splitKey(place, key),
    spec: { type: 'ClusterIP' },
  };
  const { metadata, spec } = draft;
  if (words.some((word) => word.startsWith('port='))) spec.ports = [];
  for (const word of words) {
    const [name, value] = splitWord(word);
    if (editServiceSpec(place, spec, word)) continue;
    if (name === 'labels') metadata.labels = editMap(metadata.labels, value);
    else if (name === 'annotations') metadata.annotations = editMap(metadata.annotations, value);
    else if (name === 'topology-mode') {
      const edit = value === 'none' ? '-' : `=${value}`;
      const annotation = `service.kubernetes.io/topology-mode${edit}`;
      metadata.annotations = editMap(metadata.annotations, annotation);
    } else fail(place, `Unknown word of a service: ${word}`);
  }
  allot(place, draft);
  place.api.put('services', draft);
}

// --- the rest ---

const nouns: Readonly<Record<string, Resource>> = {
  node: 'nodes',
  nodes: 'nodes',
  service: 'services',
  services: 'services',
  pod: 'pods',
  pods: 'pods',
  endpoints: 'endpoints',
  slice: 'endpointslices',
  slices: 'endpointslices',
};

const writers: Readonly<
  Record<Resource, (place: Place, key: string, words: readonly string[]) => void>
> = {
  nodes: putNode,
  services: putService,
  pods: putPod,
  endpoints: putEndpoints,
  endpointslices: putSlice,
};

function remove(place: Place, noun: string, names: readonly string[]): void {
  const resource = nouns[noun];
  if (resource === undefined) fail(place, `Unknown kind to delete: ${noun}`);
  if (names.length === 0) fail(place, 'Expected names to delete');
  for (const key of names.flatMap((name) => expandName(name))) {
    if (!place.api.remove(resource, key)) fail(place, `No such object: ${noun} ${key}`);
  }
}

/** `apply` with a manifest under it, for what the notation has no words for. */
function apply(place: Place, block: readonly string[]): void {
  let manifest: unknown;
  try {
    manifest = parseYaml(block.join('\n'));
  } catch (error) {
    fail(place, error instanceof Error ? error.message : String(error));
  }
  const { apiVersion, kind, metadata } = (manifest ?? {}) as Record<string, unknown>;
  const resource = resourceOfKind(apiVersion, kind);
  const named = (metadata ?? {}) as Record<string, unknown>;
  if (resource === null) fail(place, `Unknown kind: ${String(apiVersion)} ${String(kind)}`);
  if (typeof named.name !== 'string') fail(place, 'Expected metadata.name');
  place.api.put(resource, manifest as Draft<typeof resource>);
}

function sync(place: Place, who: string, names: readonly string[]): void {
  const { api, scenario } = place;
  const { minor } = scenario.release;
  const keys = names.length > 0 ? names : [...api.serviceKeys];
  for (const key of keys) {
    const { namespace, name } = splitKey(place, key);
    if (who === 'controllers' || who === 'endpoints-controller') {
      syncEndpoints(api, namespace, name, minor);
    }
    if (who === 'controllers' || who === 'endpointslice-controller') {
      syncSlices(api, namespace, name, minor);
    }
    if (who === 'controllers' || who === 'endpointslicemirroring-controller') {
      syncMirror(api, namespace, name);
    }
  }
  if (who === 'garbage-collector' || who === 'controllers') {
    collectGarbage(api);
  }
}

const syncers = [
  'controllers',
  'endpoints-controller',
  'endpointslice-controller',
  'endpointslicemirroring-controller',
  'garbage-collector',
];

/** Does one statement. */
export function perform(scenario: Scenario, api: Api, statement: Statement): void {
  const { line, words, block, under } = statement;
  const place: Place = { scenario, api, line, index: 0 };
  const [verb = '', second = '', ...rest] = words;
  if (verb === 'apply') {
    apply(place, block);
    return;
  }
  const more = under.flatMap(({ text }) => splitWords(text));
  if (syncers.includes(verb)) {
    if (second !== 'sync' && second !== 'syncs') fail(place, `Expected \`${verb} sync\``);
    sync(place, verb, [...rest, ...more]);
    return;
  }
  if (verb === 'delete') {
    remove(place, second, [...rest, ...more]);
    return;
  }
  const resource = nouns[verb];
  if (resource === undefined) fail(place, `Unknown statement: ${verb}`);
  if (second === '') fail(place, `Expected a name after ${verb}`);
  for (const [index, key] of expandName(second).entries()) {
    if (resource !== 'nodes') splitKey(place, key);
    writers[resource]({ ...place, index }, key, [...rest, ...more]);
  }
}
