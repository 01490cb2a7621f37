// What really was the case, computed from the log of the store (store-log.ts): the spells in which
// a Service differed from what the controllers should have written, by the shadows and comparisons
// of the program, but from nothing for every version. Nothing is decided by when anything arrived.

import type { Output, Severity } from '../../../src/audit/finding/catalogue.ts';
import { catalogue } from '../../../src/audit/finding/catalogue.ts';
import type { Difference } from '../../../src/audit/finding/difference.ts';
import { buildIndex, entriesAt } from '../../../src/audit/service/address-index.ts';
import type { AuditContext, ServiceState } from '../../../src/audit/service/cache.ts';
import {
  createServiceState,
  keysNamed,
  setService,
  setSlice,
} from '../../../src/audit/service/cache.ts';
import { compareEndpoints, compareEndpointsAddress } from '../../../src/audit/service/endpoints.ts';
import {
  compareSlice,
  compareSlices,
  compareSlicesAddress,
} from '../../../src/audit/service/endpointslices.ts';
import { checkInput, checkInputAddress } from '../../../src/audit/service/input-checks.ts';
import { compareMirrored } from '../../../src/audit/service/mirroring.ts';
import type { Problem } from '../../../src/cluster/decode/problem.ts';
import { problemText } from '../../../src/cluster/decode/problem.ts';
import type { Source } from '../../../src/cluster/files/recording.ts';
import { readRecording } from '../../../src/cluster/files/recording.ts';
import { createStore } from '../../../src/cluster/store/store.ts';
import { canonicalIP } from '../../../src/model/ip.ts';
import type { Change, EndpointSlice, Key, Node } from '../../../src/model/objects.ts';
import { label, resources } from '../../../src/model/objects.ts';
import { defaultMaxEndpointsPerSlice } from '../../../src/shadow/endpointslice.ts';
import { newestRelease, releaseOf } from '../../../src/shadow/release.ts';
import type { Probe } from './store-log.ts';

/** A difference from one version of the store to another. */
export interface Spell {
  /** `namespace/name`. */
  readonly service: Key;
  readonly output: Output;
  /** The address, the slice, or the output as a whole. */
  readonly unit: string;
  readonly difference: Difference;
  readonly severity: Severity;
  /** The version with which it began; 0: with the log. */
  readonly start: number;
  /** The version with which it ended; null: it lasted to the end of the log. */
  readonly end: number | null;
}

/** A version of one object. */
export interface Stamp {
  readonly revision: number;
  /** When the log received it, in Unix seconds. */
  readonly at: number;
  /** `resource namespace/name`. */
  readonly object: string;
  /** `namespace/name` of the Service that a slice belongs to; of other objects their own. */
  readonly owner: Key;
  readonly isDeletion: boolean;
}

export interface History {
  readonly spells: readonly Spell[];
  /** In the order of their versions. */
  readonly stamps: readonly Stamp[];
  /** When every resource was listed, in Unix seconds. Nothing can be known before. */
  readonly begin: number;
  readonly end: number;
}

interface Located {
  readonly output: Output;
  readonly unit: string;
  readonly difference: Difference;
}

/** All differences of a Service, computed from nothing. */
function differencesOf(context: AuditContext, state: ServiceState): Located[] {
  const found: Located[] = [];
  const add = (output: Output, unit: string, differences: readonly Difference[]): void => {
    for (const difference of differences) found.push({ output, unit, difference });
  };
  const index = buildIndex(state, null);
  const members = [...state.members.keys()].flatMap(({ ips }) => ips.map(canonicalIP));
  for (const ip of new Set([...index.listings.keys(), ...index.slicings.keys(), ...members])) {
    const entries = entriesAt(context.listers, state, index, ip);
    add('endpoints', ip, compareEndpointsAddress(context, entries));
    add('endpointslices', ip, compareSlicesAddress(context, entries));
    add('input', ip, checkInputAddress(context, entries));
  }
  for (const slice of state.slices) {
    add('endpointslices', slice.name, compareSlice(context, state, slice));
  }
  add('mirrored', '', compareMirrored(context, state));
  add('endpoints', '', compareEndpoints(context, state));
  add('endpointslices', '', compareSlices(context, state));
  add('input', '', checkInput(context, state));
  return found;
}

/** Keys by keys, both ways. */
function createRelation() {
  const bySource = new Map<Key, ReadonlySet<Key>>();
  const byTarget = new Map<Key, Set<Key>>();
  return {
    sourcesOf: (target: Key): ReadonlySet<Key> => byTarget.get(target) ?? new Set(),
    replace(source: Key, targets: ReadonlySet<Key>): void {
      for (const target of bySource.get(source) ?? []) byTarget.get(target)?.delete(source);
      bySource.set(source, targets);
      for (const target of targets) {
        const sources = byTarget.get(target) ?? new Set();
        byTarget.set(target, sources.add(source));
      }
    },
  };
}

/** The cluster as the store has it, and the spells so far. */
function createTruth() {
  const store = createStore(new Set(resources));
  const { listers } = store;
  const context: AuditContext = {
    listers,
    release: newestRelease,
    maxEndpointsPerSlice: defaultMaxEndpointsPerSlice,
  };
  return {
    store,
    context,
    /** Of slices the Services that they name, and of Services the addresses that they list. */
    named: createRelation(),
    listed: createRelation(),
    open: new Map<Key, Map<string, Spell>>(),
    ended: [] as Spell[],
  };
}

type Truth = ReturnType<typeof createTruth>;

function stateOf({ context, named }: Truth, key: Key): ServiceState {
  const { listers } = context;
  const state = createServiceState(key);
  const service = listers.services.get(key) ?? null;
  setService(context, state, service, listers.podsIn(state.namespace));
  state.endpoints = listers.endpoints.get(key) ?? null;
  for (const slice of named.sourcesOf(key)) {
    setSlice(state, slice, listers.slices.get(slice) ?? null);
  }
  return state;
}

function evaluate(truth: Truth, key: Key, revision: number): void {
  const { context, listed, open, ended } = truth;
  const state = stateOf(truth, key);
  const { listings, slicings } = buildIndex(state, null);
  listed.replace(key, new Set([...listings.keys(), ...slicings.keys()]));
  const before = open.get(key) ?? new Map<string, Spell>();
  const after = new Map<string, Spell>();
  for (const { output, unit, difference } of differencesOf(context, state)) {
    const { code, subject } = difference;
    const id = [output, unit, code, subject].join(' ');
    const severity = difference.severity ?? catalogue[code].severity;
    const fresh = { service: key, output, unit, difference, severity };
    after.set(id, before.get(id) ?? { ...fresh, start: revision, end: null });
  }
  for (const [id, spell] of before) if (!after.has(id)) ended.push({ ...spell, end: revision });
  open.set(key, after);
}

function evaluateAll(truth: Truth, revision: number): void {
  const { listers } = truth.context;
  const slices = [...listers.slices.values()];
  for (const slice of slices) truth.named.replace(slice.key, keysNamed(slice));
  const named = slices.flatMap((slice) => [...keysNamed(slice)]);
  const keys = [...listers.services.keys(), ...listers.endpoints.keys(), ...named];
  for (const key of new Set(keys)) evaluate(truth, key, revision);
}

/** The Services whose differences a change may affect, and perhaps others. */
function touchedBy(truth: Truth, { resource, before, after }: Change): Iterable<Key> {
  const { context, named, listed, open } = truth;
  const { listers } = context;
  const key = (after ?? before)?.key ?? '';
  if (resource === 'nodes') {
    if (isSameNode(before as Node | null, after as Node | null)) return [];
    return new Set([...listers.services.keys(), ...open.keys()]);
  }
  if (resource === 'endpoints') return [key];
  if (resource === 'endpointslices') {
    const [was, is] = [before, after] as [EndpointSlice | null, EndpointSlice | null];
    named.replace(key, keysNamed(is));
    return new Set([...keysNamed(was), ...keysNamed(is)]);
  }
  if (resource === 'services') {
    const slices = [...named.sourcesOf(key)].flatMap((slice) => listers.slices.get(slice) ?? []);
    return new Set([key, ...slices.flatMap((slice) => [...keysNamed(slice)])]);
  }
  const pods = [before, after].flatMap((pod) => (pod !== null && 'ips' in pod ? [pod] : []));
  const selecting = pods.flatMap((pod) => listers.servicesSelecting(pod.namespace, pod.labels));
  const ips = pods.flatMap((pod) => pod.ips.map(canonicalIP));
  const listing = ips.flatMap((ip) => [...listed.sourcesOf(ip)]);
  return new Set([...selecting.map((service) => service.key), ...listing]);
}

const isSameNode = (a: Node | null, b: Node | null): boolean =>
  a !== null &&
  b !== null &&
  a.zone === b.zone &&
  a.ready === b.ready &&
  a.controlPlane === b.controlPlane &&
  a.cpuMillis === b.cpuMillis;

const serviceNameOf = ({ labels }: EndpointSlice): string => labels[label.serviceName] ?? '';

/**
 * Reads a recording; throws for an object that cannot be read. The log of a store is in the order
 * of its versions. In another recording, of five watches, the order of arrival counts: a version is
 * then the number of a line.
 */
export async function readHistory(source: Source, isStore: boolean): Promise<History> {
  let truth = createTruth();
  const stamps: Stamp[] = [];
  let begin = 0;
  let end = 0;
  const left = new Set<string>(resources);
  const onProblem = (problem: Problem): void => {
    if (problem.lost !== null) throw new Error(problemText(problem));
  };
  const previousPod = (key: string) => truth.store.listers.pods.get(key);
  for await (const entry of readRecording(source, onProblem, { previousPod })) {
    if (entry.kind === 'header') {
      const release = releaseOf(entry.kubernetes ?? '') ?? newestRelease;
      truth = { ...truth, context: { ...truth.context, release } };
    } else if (entry.kind === 'synced') {
      if (!left.delete(entry.resource) || left.size > 0) continue;
      begin = entry.at;
      evaluateAll(truth, 0);
    } else if (entry.kind === 'end') end = entry.at;
    else if (entry.kind === 'event') {
      const { event } = entry;
      const { resource, type, object, at } = event;
      const revision = isStore ? Number(object.resourceVersion) : stamps.length + 1;
      const change = truth.store.apply(event);
      if (left.size > 0) continue;
      const name = resource === 'endpointslices' ? serviceNameOf(object as EndpointSlice) : '';
      const owner = name === '' ? object.key : `${object.namespace}/${name}`;
      const isDeletion = type === 'deleted';
      stamps.push({ revision, at, object: `${resource} ${object.key}`, owner, isDeletion });
      if (change === null) continue;
      for (const key of touchedBy(truth, change)) evaluate(truth, key, revision);
    }
  }
  const open = [...truth.open.values()].flatMap((known) => [...known.values()]);
  return { spells: [...truth.ended, ...open], stamps, begin, end };
}

/** When versions were stored, or had arrived, in Unix seconds. */
export interface Times {
  /** The version was not stored before. */
  readonly earliest: (revision: number) => number;
  /** The version was stored by then. */
  readonly latest: (revision: number | null) => number;
}

/** The times that a log and its probes prove. */
export function timesOf({ stamps, begin, end }: History, probes: readonly Probe[]): Times {
  const sorted = probes.toSorted((a, b) => a.revision - b.revision);
  /** The first index of a list whose revision is at least this. */
  const indexOf = (list: readonly { readonly revision: number }[], revision: number): number => {
    let [low, high] = [0, list.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((list[middle]?.revision ?? 0) < revision) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return {
    earliest: (revision) =>
      revision === 0 ? -Infinity : (sorted[indexOf(sorted, revision + 1) - 1]?.from ?? begin),
    latest: (revision) =>
      revision === null
        ? end
        : Math.min(
            sorted[indexOf(sorted, revision)]?.to ?? end,
            stamps[indexOf(stamps, revision)]?.at ?? end,
          ),
  };
}

/** The times of arrival, which are what a replay goes by. */
export function arrivalsOf({ stamps, begin, end }: History): Times {
  const at = new Map(stamps.map((stamp) => [stamp.revision, stamp.at]));
  const timeOf = (revision: number): number => at.get(revision) ?? end;
  return {
    earliest: (revision) => (revision === 0 ? -Infinity : timeOf(revision)),
    latest: (revision) => (revision === null ? end : revision === 0 ? begin : timeOf(revision)),
  };
}
