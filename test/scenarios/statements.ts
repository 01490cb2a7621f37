// What the statements of a scenario do to the miniature API server: each line creates an object or
// changes the one of its name as far as it says, like `kubectl apply` with a terse manifest.
// README.md describes the notation; endpoints and slices, with their lists of addresses, are in
// addresses.ts.

import { parse as parseYaml } from 'yaml';

import { resourceOfKind } from '../../src/cluster/decode/json-objects.ts';
import type { Resource } from '../../src/model/objects.ts';
import { putEndpoints, putSlice } from './addresses.ts';
import type { Api, Condition, Container, Draft, ServicePort } from './api.ts';
import { timestamp } from './api.ts';
import { collectGarbage, syncEndpoints, syncMirror, syncSlices } from './controllers.ts';
import type { Scenario, Statement } from './parse.ts';
import { splitWords } from './parse.ts';
import type { Place } from './words.ts';
import { addressAfter, editMap, expandName, fail, pick, splitKey, splitWord } from './words.ts';

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
