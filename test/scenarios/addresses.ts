// Endpoints and EndpointSlices in scenarios: labels and owners first, then the list of addresses,
// then after a colon their ports.
//
//   endpoints shop/web  10.0.0.1(web-1), 10.0.0.2(web-2) not-ready : http 8080/TCP
//   slice shop/web-abc service=web  10.0.0.1(web-1), 10.0.0.2(web-2) not-ready : http 8080/TCP
//
// What an address does not say is taken from the pod in parentheses as it is now, so that a line
// names only what is special.

import type { Api, Draft, EndpointEntry, Owner, PortEntry, Subset, Target } from './api.ts';
import type { Place } from './words.ts';
import { addressAfter, editMap, expandName, fail, splitKey, splitWord } from './words.ts';

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
export function withoutEmptyName(port: PortEntry): PortEntry {
  if (port.name !== '') return port;
  const unnamed = { ...port };
  delete unnamed.name;
  return unnamed;
}

export function putEndpoints(place: Place, key: string, words: readonly string[]): void {
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

export function putSlice(place: Place, key: string, words: readonly string[]): void {
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
