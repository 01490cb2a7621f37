// What really was the case, computed from the log of the store: the spells in which
// a Service differed from what the controllers should have written, by the shadows and comparisons
// of the program, but from nothing for every version. Nothing is decided by when anything arrived.

import { createWriteStream } from 'node:fs';
import { finished } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { createGzip } from 'node:zlib';

import type { Output, Severity } from '../../../src/audit/finding/catalogue.ts';
import { catalogue } from '../../../src/audit/finding/catalogue.ts';
import type { Difference } from '../../../src/audit/finding/difference.ts';
import { buildIndex, entriesAt } from '../../../src/audit/service/address-index.ts';
import type { AuditContext, ServiceState } from '../../../src/audit/service/cache.ts';
import {
  createServiceState,
  podsOf,
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
import type { Change, EndpointSlice, Key, Node, Resource } from '../../../src/model/objects.ts';
import { label, resources } from '../../../src/model/objects.ts';
import { defaultMaxEndpointsPerSlice } from '../../../src/shadow/endpointslice.ts';
import { newestRelease, releaseOf } from '../../../src/shadow/release.ts';

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
  const members = [...podsOf(context.listers, state)].flatMap(({ ips }) => ips.map(canonicalIP));
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

// Records what the API server stored, from etcd itself: every change of the five resources in the
// order of their resourceVersions, without a gap when the API server goes, and in the form of a
// recording, so that `replay` and `verify` read it. The API server must store JSON.
//
// A change arrives late on a busy machine. So empty writes to etcd, before and after which the
// clock is read, bound the time of every version from both sides (history.ts).

/** The API server's flag that this log needs. */
export const storeFlags = ['--storage-media-type=application/json'];

const folders: readonly (readonly [string, Resource])[] = [
  ['/registry/minions/', 'nodes'],
  ['/registry/services/specs/', 'services'],
  ['/registry/pods/', 'pods'],
  ['/registry/services/endpoints/', 'endpoints'],
  ['/registry/endpointslices/', 'endpointslices'],
];

/** Numbers are decimal texts, keys and values base64. */
interface KeyValue {
  readonly key: string;
  readonly value?: string;
  readonly mod_revision: string;
  readonly version?: string;
}

interface StoreEvent {
  readonly type?: 'DELETE';
  readonly kv: KeyValue;
  readonly prev_kv?: KeyValue;
}

interface WatchAnswer {
  readonly result?: {
    readonly events?: readonly StoreEvent[];
    readonly canceled?: boolean;
    readonly cancel_reason?: string;
  };
}

/** Between `from` and `to`, in Unix seconds, the store was at this revision. */
export interface Probe {
  readonly from: number;
  readonly to: number;
  readonly revision: number;
}

const encoded = (text: string): string => Buffer.from(text).toString('base64');
const decoded = (text: string): string => Buffer.from(text, 'base64').toString();
const all = { key: encoded('/registry/'), range_end: encoded('/registry0') };
const unixNow = (): number => Date.now() / 1000;

function resourceOf({ key }: KeyValue): Resource | undefined {
  const path = decoded(key);
  return folders.find(([folder]) => path.startsWith(folder))?.[1];
}

interface Stored {
  metadata: { resourceVersion?: string; managedFields?: unknown };
}

/** The object as the API server answers it: its version is the revision of the store. */
function objectOf(value: string, revision: string): Stored {
  const object = JSON.parse(decoded(value)) as Stored;
  delete object.metadata.managedFields;
  object.metadata.resourceVersion = revision;
  return object;
}

async function post(url: string, body: object): Promise<Response> {
  const response = await fetch(url, { method: 'POST', body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
  return response;
}

/** Drops the history of the store up to now. */
export async function compact(etcd: string): Promise<void> {
  const { revision } = await probe(etcd);
  await post(`${etcd}/v3/kv/compaction`, { revision: String(revision), physical: true });
}

async function probe(etcd: string): Promise<Probe> {
  const from = unixNow();
  const response = await post(`${etcd}/v3/kv/put`, { key: encoded('/chaos/probe'), value: '' });
  const { header } = (await response.json()) as { header: { revision: string } };
  return { from, to: unixNow(), revision: Number(header.revision) };
}

interface StoreLog {
  /** Ends the log when all that is stored now is in it; returns the probes. */
  readonly stop: () => Promise<readonly Probe[]>;
}

/** Milliseconds between two probes. */
const betweenProbes = 200;

/** Seconds after which an etcd that does not answer is gone for good. */
const patience = 60;

/** Answers of a watch, one a line, until the connection ends. */
async function* answersOf(response: Response): AsyncGenerator<WatchAnswer> {
  let rest = '';
  const decoder = new TextDecoder();
  for await (const bytes of response.body ?? []) {
    const lines = (rest + decoder.decode(bytes as Uint8Array, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line !== '') yield JSON.parse(line) as WatchAnswer;
  }
}

function lineOf({ type, kv, prev_kv: before }: StoreEvent): string {
  const resource = resourceOf(kv);
  const value = type === 'DELETE' ? before?.value : kv.value;
  if (resource === undefined || value === undefined) return '';
  const kind = type === 'DELETE' ? 'DELETED' : kv.version === '1' ? 'ADDED' : 'MODIFIED';
  const object = objectOf(value, kv.mod_revision);
  return `${JSON.stringify({ kind: 'object', at: unixNow(), resource, type: kind, object })}\n`;
}

/** The header and the objects that are there at the beginning; returns their revision too. */
async function firstLines(etcd: string, kubernetes: string): Promise<[string, number]> {
  const response = await post(`${etcd}/v3/kv/range`, all);
  const list = (await response.json()) as { header: { revision: string }; kvs?: KeyValue[] };
  const at = unixNow();
  const header = { kind: 'header', format: 1, at, kubernetes, resources };
  const lines: object[] = [header];
  for (const kv of list.kvs ?? []) {
    const resource = resourceOf(kv);
    if (resource === undefined) continue;
    const object = objectOf(kv.value ?? '', kv.mod_revision);
    lines.push({ kind: 'object', at, resource, type: 'SYNC', object });
  }
  for (const resource of resources) lines.push({ kind: 'synced', at, resource });
  const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
  return [text, Number(list.header.revision)];
}

/** A log that is being written. */
interface Writing {
  readonly etcd: string;
  readonly write: (text: string) => void;
  readonly probes: Probe[];
  /** Of the latest line. */
  revision: number;
  /** With which the log ends; Infinity until that is known. */
  last: number;
  error: Error | null;
  readonly end: AbortController;
}

/** Writes what one watch delivers. */
async function follow(log: Writing): Promise<void> {
  const { etcd, end } = log;
  const request = { ...all, start_revision: String(log.revision + 1), prev_kv: true };
  const body = JSON.stringify({ create_request: request });
  const options = { method: 'POST', body, signal: end.signal };
  const response = await fetch(`${etcd}/v3/watch`, options).catch(() => null);
  if (response === null) return;
  for await (const { result } of answersOf(response)) {
    if (result?.canceled === true) throw new Error(`etcd: ${result.cancel_reason ?? 'canceled'}`);
    for (const event of result?.events ?? []) {
      log.write(lineOf(event));
      log.revision = Number(event.kv.mod_revision);
    }
    if (log.revision >= log.last) return;
  }
}

/** etcd is restarted at times; what it stores does not get lost by that. */
async function followAll(log: Writing): Promise<void> {
  while (!log.end.signal.aborted && log.revision < log.last) {
    await follow(log).catch((thrown: unknown) => {
      if (String(thrown).includes('compact')) throw thrown;
    });
    await sleep(100);
  }
}

async function probeAll({ etcd, probes, end }: Writing, isLast: () => boolean): Promise<void> {
  let answered = performance.now();
  while (!end.signal.aborted && !isLast()) {
    const found = await probe(etcd).catch(() => null);
    if (found !== null) {
      probes.push(found);
      answered = performance.now();
    } else if (performance.now() - answered > patience * 1000) throw new Error('etcd is gone');
    await sleep(betweenProbes);
  }
}

/** Begins a log of the store of `etcd`, a URL, in a file that does not exist yet. */
export async function startStoreLog(
  etcd: string,
  path: string,
  kubernetes: string,
): Promise<StoreLog> {
  const gzip = createGzip({ level: 1 });
  const file = gzip.pipe(createWriteStream(path, { flags: 'wx' }));
  const [lines, revision] = await firstLines(etcd, kubernetes);
  gzip.write(lines);
  const write = (text: string): void => void gzip.write(text);
  const end = new AbortController();
  const log: Writing = { etcd, write, probes: [], revision, last: Infinity, error: null, end };
  const fail = (thrown: unknown): void => {
    const error = thrown instanceof Error ? thrown : new Error(String(thrown));
    if (!end.signal.aborted) log.error = error;
    end.abort();
  };
  const isLast = (): boolean => log.last < Infinity;
  const working = [followAll(log).catch(fail), probeAll(log, isLast).catch(fail)];
  return {
    async stop() {
      const timer = setTimeout(() => fail(new Error('The log did not end')), patience * 1000);
      const marker = { key: encoded('/registry/chaos/end'), value: '' };
      try {
        const response = await post(`${etcd}/v3/kv/put`, marker);
        const { header } = (await response.json()) as { header: { revision: string } };
        log.last = Number(header.revision);
      } catch (error) {
        fail(error);
      }
      await Promise.all(working);
      clearTimeout(timer);
      end.abort();
      gzip.end(`${JSON.stringify({ kind: 'end', at: unixNow() })}\n`);
      await finished(file);
      if (log.error !== null) throw log.error;
      return log.probes;
    },
  };
}
