// Changes one field of one object that a controller wrote, at random, and asks whether the audit
// finds it. What it does not find must be legal by upstream's code: each rule has a name, says
// where upstream has it, and is counted.
//
//   npm run -s mutate -- [--count 100000] [--seed 1] [VECTORS...]
//   npm run -s mutate -- --pairs 2000 [--seed 1] [VECTORS...]     pairs of faults (pairs.ts)
//
// The bases are the states in test/vectors/data without a difference in any controller's output.
// The last line is JSON: {"mutations":…,"found":…,"legal":{RULE:…},"missed":…}. It ends with 1 if
// a mutation is missed, and with 2 for wrong usage or without a base.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { gunzipSync } from 'node:zlib';

import type { AuditContext } from '../../src/audit/service/cache.ts';
import { jsonBytes, project } from '../../src/cluster/decode/json-objects.ts';
import type { AnyObject, Key, Resource, Service } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { isSelected } from '../../src/shadow/endpoints.ts';
import { defaultMaxEndpointsPerSlice } from '../../src/shadow/endpointslice.ts';
import type { Release } from '../../src/shadow/release.ts';
import { newestRelease, releaseOf } from '../../src/shadow/release.ts';
import { chanceFrom } from '../apiserver/life.ts';
import { runPairs } from './pairs.ts';
import type { Cluster } from '../verify/cluster.ts';
import {
  createCluster,
  differencesOf,
  serviceKeys,
  stateOf,
  unknownText,
  viewOf,
} from '../verify/cluster.ts';

type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
type Fields = Record<string, Json>;

interface Base {
  readonly name: string;
  readonly release: Release;
  readonly objects: Readonly<Record<Resource, readonly Fields[]>>;
}

type Path = readonly (string | number)[];

/** One change of one field. */
export interface Mutation {
  readonly resource: 'endpoints' | 'endpointslices';
  readonly object: Fields;
  readonly path: Path;
  readonly before: Json | undefined;
  readonly after: Json | undefined;
}

const textOf = (value: Json | undefined): string => (typeof value === 'string' ? value : '');

/** The states of a vector file. */
export function* basesOf(path: string): Generator<Base> {
  const lines = gunzipSync(readFileSync(path)).toString('utf8').split('\n');
  let release = newestRelease;
  const nodes = new Map<number, Fields[]>();
  const cases: Fields[] = [];
  for (const line of lines) {
    if (line === '') continue;
    const fields = JSON.parse(line) as Fields;
    if (fields.kind === 'header') release = releaseOf(textOf(fields.version)) ?? newestRelease;
    if (fields.kind === 'nodes') nodes.set(Number(fields.step), fields.items as Fields[]);
    if (fields.kind === 'case') cases.push(fields);
  }
  for (const fields of cases) {
    const step = Number(fields.step);
    const objects = {
      nodes: nodes.get(step) ?? [],
      services: fields.services as Fields[],
      pods: fields.pods as Fields[],
      endpoints: fields.endpoints as Fields[],
      endpointslices: fields.endpointSlices as Fields[],
    };
    yield { name: `${textOf(fields.case)} step ${step}`, release, objects };
  }
}

function clusterOf({ objects }: Base): Cluster | null {
  const cluster = createCluster();
  for (const resource of resources) {
    cluster.complete.add(resource);
    for (const raw of objects[resource]) {
      const { object } = project(resource, raw, 0, { bytes: jsonBytes(raw) });
      if (object === undefined) return null;
      (cluster[resource] as Map<Key, AnyObject>).set(object.key, object);
      if ('zone' in object) cluster.zonesSeen.add(object.zone);
    }
  }
  return cluster;
}

/** The differences of all Services, each as one text. */
function textsOf(cluster: Cluster, release: Release): Set<string> {
  const view = viewOf(cluster);
  const { listers } = view;
  const context: AuditContext = {
    listers,
    release,
    maxEndpointsPerSlice: defaultMaxEndpointsPerSlice,
  };
  const texts = new Set<string>();
  for (const key of serviceKeys(view)) {
    const state = stateOf(cluster, view, context, key);
    const unknown = unknownText(cluster, listers, state);
    for (const { output, unit, difference } of differencesOf(context, state, unknown)) {
      const { code, subject, expected, actual } = difference;
      texts.add(JSON.stringify([key, output, unit, code, subject, expected, actual]));
    }
  }
  return texts;
}

const writtenBy = (texts: Iterable<string>): string[] =>
  [...texts].filter((text) => (JSON.parse(text) as string[])[1] !== 'input');

/** All places below a value, with the value itself. */
function* placesIn(value: Json, path: Path = []): Generator<readonly [Path, Json]> {
  if (path.length > 0) yield [path, value];
  if (typeof value !== 'object' || value === null) return;
  for (const [key, inner] of Object.entries(value)) {
    yield* placesIn(inner, [...path, Array.isArray(value) ? Number(key) : key]);
  }
}

/** Another value of the same kind, or nothing. */
function otherValue(value: Json, random: () => number): Json | undefined {
  if (random() < 0.25) return undefined;
  if (typeof value === 'boolean') return !value;
  if (typeof value === 'number') return value + 1;
  if (value === null || typeof value === 'object') return undefined;
  if (/^\d+\.\d+\.\d+\.\d+$/.test(value)) return `10.99.${Math.floor(random() * 200)}.7`;
  if (/^[\da-f:]+:[\da-f:]*$/i.test(value)) return `fd00:99::${Math.floor(random() * 9000)}`;
  if (value === 'TCP') return 'UDP';
  return value.endsWith('x') ? `${value}y` : `${value}x`;
}

function mutate(base: Base, random: () => number): Mutation | null {
  const all = (['endpoints', 'endpointslices'] as const).flatMap((resource) =>
    base.objects[resource].map((raw) => ({ resource, raw })),
  );
  const one = all[Math.floor(random() * all.length)];
  if (one === undefined) return null;
  const object = structuredClone(one.raw);
  const places = [...placesIn(object)];
  const [path, before] = places[Math.floor(random() * places.length)] ?? [];
  if (path === undefined || before === undefined) return null;
  const after = otherValue(before, random);
  const last = path.at(-1) ?? '';
  let parent: Json = object;
  for (const step of path.slice(0, -1)) parent = (parent as Fields)[step] ?? null;
  if (Array.isArray(parent) && after === undefined) parent.splice(Number(last), 1);
  // oxlint-disable-next-line typescript/no-dynamic-delete -- a copy
  else if (after === undefined) delete (parent as Fields)[last];
  else (parent as Fields)[last] = after;
  return { resource: one.resource, object, path, before, after };
}

/** Why a mutation is no fault. Files without a module are of k8s.io/endpointslice@v0.36.3. */
interface Rule {
  readonly name: string;
  readonly applies: (mutation: Mutation, text: string, base: Base) => boolean;
}

const serviceOf = ({ object, resource }: Mutation, { objects }: Base): Service | null => {
  const { name = '', labels } = (object.metadata ?? {}) as Fields;
  const named = ((labels ?? {}) as Fields)['kubernetes.io/service-name'] ?? '';
  const wanted = resource === 'endpoints' ? name : named;
  const raw = objects.services.find((it) => (it.metadata as Fields).name === wanted);
  if (raw === undefined) return null;
  return project('services', raw, 0).object ?? null;
};

const managedBy = 'endpointslice.kubernetes.io/managed-by';

const isMirrored = ({ object }: Mutation): boolean =>
  ((object.metadata as Fields).labels as Fields | undefined)?.[managedBy] ===
  'endpointslicemirroring-controller.k8s.io';

/** Fields of the metadata that the API server writes. */
const byServer = [
  'uid',
  'resourceVersion',
  'creationTimestamp',
  'generation',
  'generateName',
  'deletionGracePeriodSeconds',
  'finalizers',
];

export const rules: readonly Rule[] = [
  {
    // reconciler.go compares content and labels; the API server writes these fields.
    name: 'metadata of the API server',
    applies: (_, text) => {
      const [first = '', second = ''] = text.split('.');
      return ['apiVersion', 'kind'].includes(first) || byServer.includes(second);
    },
  },
  {
    // reconciler.go finalize: a slice has any name; a generated one is never compared.
    name: 'name of a slice',
    applies: ({ resource }, text) => resource === 'endpointslices' && text === 'metadata.name',
  },
  {
    // reconciler.go and endpoints_controller.go write the trigger time alone, and keep the others.
    name: 'annotations are not compared',
    applies: (mutation, text) => text.startsWith('metadata.annotations') && !isMirrored(mutation),
  },
  {
    // utils.go ownedBy compares kind, API version and uid.
    name: 'flags of owner references',
    applies: (_, text) =>
      /^metadata\.ownerReferences\.\d+\.(controller|blockOwnerDeletion|name)$/.test(text),
  },
  {
    // pkg/controller/endpointslicemirroring/reconciler.go of kubernetes@v1.36.3 asks only whether
    // an owner of the kind Endpoints and this name has another uid.
    name: 'kind and version of the owner of a mirrored slice',
    applies: (mutation, text) =>
      isMirrored(mutation) && /^metadata\.ownerReferences\.\d+\.(kind|apiVersion)$/.test(text),
  },
  {
    // endpoints_controller.go syncService and endpointslice_controller.go syncService return early.
    name: 'the Service has no selector or is an ExternalName',
    applies: (mutation, _, base) => {
      const service = serviceOf(mutation, base);
      if (isMirrored(mutation)) return false;
      return service === null || !isSelected(service);
    },
  },
  {
    // reconciler.go ManagedByController: a slice with another managed-by label is not the
    // controller's.
    name: 'the slice is of another manager',
    applies: ({ resource, object, path, before }) => {
      const { labels } = (object.metadata ?? {}) as { labels?: Fields };
      const manager = path.at(-1) === managedBy ? before : labels?.[managedBy];
      return resource === 'endpointslices' && !/^endpointslice(mirroring)?-/.test(textOf(manager));
    },
  },
  {
    // encoding/json of Go reads null like an absent field.
    name: 'null and an absent field are the same',
    applies: ({ before, after }) => before === null && after === undefined,
  },
  {
    // pkg/apis/core/v1/defaults.go SetDefaults_Endpoints, pkg/apis/discovery/v1/defaults.go.
    name: 'a port without a protocol is TCP',
    applies: ({ before, after }, text) =>
      text.endsWith('protocol') && before === 'TCP' && after === undefined,
  },
  {
    // pkg/api/v1/endpoints/util.go mapAddressByPort of kubernetes@v1.36.3: of entries with one IP
    // and uid, the first one gives the other fields.
    name: 'a later entry of the same address in Endpoints',
    applies: ({ resource, object, path }) => {
      if (resource !== 'endpoints' || path[0] !== 'subsets') return false;
      const entries = (object.subsets as Fields[]).flatMap((subset, index) =>
        ['addresses', 'notReadyAddresses'].flatMap((list) =>
          ((subset[list] ?? []) as Fields[]).map((entry, place) => ({ entry, index, list, place })),
        ),
      );
      const own = entries.findIndex(
        ({ index, list, place }) => index === path[1] && list === path[2] && place === path[3],
      );
      const idOf = ({ ip, targetRef }: Fields): string =>
        `${textOf(ip)} ${textOf((targetRef as Fields | undefined)?.uid)}`;
      const entry = entries[own]?.entry;
      return entry !== undefined && entries.findIndex((it) => idOf(it.entry) === idOf(entry)) < own;
    },
  },
];

function legalBy(mutation: Mutation, base: Base, allowed: readonly Rule[]): string | null {
  const text = mutation.path.join('.');
  return allowed.find((rule) => rule.applies(mutation, text, base))?.name ?? null;
}

interface Sound {
  readonly base: Base;
  readonly cluster: Cluster;
  readonly texts: ReadonlySet<string>;
}

/** Whether the audit of the mutated state differs from that of the base. */
function isFound({ base, cluster, texts }: Sound, { resource, object, path }: Mutation): boolean {
  const { object: after } = project(resource, object, 0, { bytes: jsonBytes(object) });
  // An object that cannot be read makes its Service unknown.
  if (after === undefined) return true;
  const original = base.objects[resource].find(
    (raw) => (raw.metadata as Fields).uid === (object.metadata as Fields | undefined)?.uid,
  );
  const isNamed = path[0] !== 'metadata' || original === undefined;
  const changed = { ...cluster, [resource]: new Map<Key, AnyObject>(cluster[resource]) };
  const objects = changed[resource] as Map<Key, AnyObject>;
  const { namespace, name } = (original?.metadata ?? {}) as Record<string, string>;
  if (!isNamed) objects.delete(`${namespace ?? ''}/${name ?? ''}`);
  objects.set(after.key, after);
  const now = textsOf(changed, base.release);
  return [...now].some((text) => !texts.has(text));
}

/** Mutates states of these files until there are `count` mutations. */
export function run(paths: readonly string[], count: number, seed: number, allowed = rules) {
  const random = chanceFrom(seed);
  const sound: Sound[] = [];
  for (const base of paths.flatMap((path) => [...basesOf(path)])) {
    const cluster = clusterOf(base);
    const texts = cluster === null ? null : textsOf(cluster, base.release);
    if (cluster === null || texts === null || writtenBy(texts).length > 0) continue;
    sound.push({ base, cluster, texts });
  }
  const legal = new Map<string, number>();
  const missed: string[] = [];
  let found = 0;
  let mutations = 0;
  while (mutations < count && sound.length > 0) {
    const one = sound[Math.floor(random() * sound.length)];
    const mutation = one === undefined ? null : mutate(one.base, random);
    if (one === undefined || mutation === null) continue;
    mutations++;
    if (isFound(one, mutation)) {
      found++;
      continue;
    }
    const rule = legalBy(mutation, one.base, allowed);
    if (rule !== null) legal.set(rule, (legal.get(rule) ?? 0) + 1);
    else {
      const { resource, path, before, after } = mutation;
      const texts = [before, after].map((value) =>
        value === undefined ? 'absent' : JSON.stringify(value).slice(0, 80),
      );
      missed.push(`${one.base.name}: ${resource} ${path.join('.')}: ${texts.join(' -> ')}`);
    }
  }
  return { bases: sound.length, mutations, found, legal, missed };
}

const dataFolder = join(import.meta.dirname, 'data');

/** The files of states by default: for pairs also the samples of all releases. */
const isUsual = (name: string, arePairs: boolean): boolean =>
  (arePairs && name.endsWith('-oracle.ndjson.gz')) || /^v1.3\d.\d+-(core|zoneless)\./.test(name);

function main(): 0 | 1 | 2 {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      count: { type: 'string', default: '100000' },
      pairs: { type: 'string', default: '0' },
      seed: { type: 'string', default: '1' },
    },
  });
  const [count, pairs, seed] = [Number(values.count), Number(values.pairs), Number(values.seed)];
  const names = readdirSync(dataFolder).filter((name) => isUsual(name, pairs > 0));
  const usual = names.sort().map((name) => join(dataFolder, name));
  const paths = positionals.length > 0 ? positionals : usual;
  if (!(count > 0) || !(seed >= 0) || !(pairs >= 0)) {
    console.error('Expected numbers');
    return 2;
  }
  const { missed, legal, ...counts } =
    pairs > 0 ? runPairs(paths, pairs, seed) : run(paths, count, seed);
  for (const text of missed.slice(0, 40)) console.log(text);
  console.log(
    JSON.stringify({ ...counts, legal: Object.fromEntries(legal), missed: missed.length }),
  );
  if (counts.bases === 0) return 2;
  return missed.length === 0 ? 0 : 1;
}

if (import.meta.main) process.exitCode = main();
