// The recorded control plane at maximum speed: reading alone, auditing alone, and both as the
// program does it. The file is in memory, so the disk does not count, and arrives in chunks as
// from a disk.

import { createReadStream, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import type { ExplainTarget } from '../../src/audit/explain/explanation.ts';
import { podsOf } from '../../src/audit/service/cache.ts';
import type { Auditor } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { explainTarget } from '../../src/auditor/explanations.ts';
import { replay } from '../../src/auditor/replay.ts';
import type { RecordingEntry } from '../../src/cluster/files/recording.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import type { Pod, Resource, WatchEvent } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { auditorDefaults } from '../build.ts';
import type { Plan, Raw, Shape, World } from './generate.ts';
import {
  assertQuiet,
  createFleet,
  eventOf,
  rawEndpoints,
  rawNode,
  rawObjects,
  rawPod,
  rawService,
  rawSlice,
  sliceOf,
  zones,
} from './generate.ts';
import { askingMicros, cpuMicros, round, sweep } from './measure.ts';

const file = new URL('../recordings/shop.ndjson.gz', import.meta.url);
const chunkBytes = 64 * 1024;

/** Microseconds of CPU for the whole recording, and what that was spent on. */
interface ReplaySamples {
  readonly events: number;
  readonly lines: number;
  readonly bytes: number;
  readonly inflating: number[];
  readonly reading: number[];
  readonly auditing: number[];
  readonly together: number[];
  /** By the clock. */
  readonly elapsed: number[];
}

// oxlint-disable-next-line typescript/require-await -- a stream as a file's is one
async function* chunks(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.length; start += chunkBytes) {
    yield bytes.subarray(start, start + chunkBytes);
  }
}

function read(bytes: Uint8Array, previousPod: (key: string) => Pod | undefined) {
  const fail = (problem: unknown): never => {
    throw new Error(JSON.stringify(problem));
  };
  return readRecording({ name: file.pathname, bytes: chunks(bytes) }, fail, { previousPod });
}

/** Reads all entries, and knows the latest version of each pod as the store does. */
async function entriesOf(bytes: Uint8Array): Promise<RecordingEntry[]> {
  const pods = new Map<string, Pod>();
  const entries: RecordingEntry[] = [];
  for await (const entry of read(bytes, (key) => pods.get(key))) {
    entries.push(entry);
    if (entry.kind !== 'event' || entry.event.resource !== 'pods') continue;
    const { object, type } = entry.event;
    if (type === 'deleted') pods.delete(object.key);
    else pods.set(object.key, object as Pod);
  }
  return entries;
}

const newAuditor = (): Auditor => createAuditor({ ...auditorDefaults });

/** Runs the recording through, several times. */
export async function measureReplay(runs: number): Promise<ReplaySamples> {
  const packed = readFileSync(file);
  const plain = gunzipSync(packed);
  const entries = await entriesOf(plain);
  const samples: ReplaySamples = {
    events: entries.filter(({ kind }) => kind === 'event').length,
    lines: entries.length,
    bytes: plain.length,
    inflating: [],
    reading: [],
    auditing: [],
    together: [],
    elapsed: [],
  };
  for (let run = 0; run < runs; run++) {
    sweep();
    const begun = cpuMicros();
    gunzipSync(packed);
    const inflated = cpuMicros();
    await entriesOf(plain);
    const done = cpuMicros();
    const auditor = newAuditor();
    for (const entry of entries) auditor.take(entry);
    const audited = cpuMicros();
    samples.inflating.push(inflated - begun);
    samples.reading.push(done - inflated);
    samples.auditing.push(audited - done);
    sweep();
    await runTogether(packed, samples);
  }
  return samples;
}

async function runTogether(packed: Uint8Array, samples: ReplaySamples): Promise<void> {
  const auditor = newAuditor();
  const begun = cpuMicros();
  const began = performance.now();
  await replay(
    auditor,
    read(packed, (key) => auditor.store.listers.pods.get(key)),
    { speed: Infinity, until: null },
  );
  samples.elapsed.push((performance.now() - began) * 1000);
  samples.together.push(cpuMicros() - begun);
  if (auditor.serviceAuditor() === null) throw new Error('Expected a recording that is complete');
}

// The time of one explanation of every form: on the last state of the recording, whose nodes report
// their rules, and on a running server with 150,000 pods. CPU milliseconds of the process: of the
// first run, when nothing is warm, and the median and the most of the others.

/** The question, its input, and milliseconds: of the first run, the median and the maximum. */
type ExplainRow = readonly [string, string, number, number, number];

const runs = 21;

function measure(auditor: Auditor, subject: ExplainTarget): readonly [number, number, number] {
  if (auditor.serviceAuditor() === null) throw new Error('Nothing is audited');
  const spent: number[] = [];
  for (let run = 0; run < runs; run++) {
    const begun = cpuMicros();
    explainTarget(auditor, subject);
    spent.push((cpuMicros() - begun) / 1000);
  }
  const [first = 0, ...others] = spent;
  const sorted = others.sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)] ?? 0;
  return [round(first), round(median), round(sorted.at(-1) ?? 0)];
}

/** Every form of question, about the largest Service and one that selects nothing. */
function subjectsOf(auditor: Auditor): Record<string, ExplainTarget> {
  const audited = [...(auditor.serviceAuditor()?.audited.values() ?? [])].map(
    ({ record }) => record,
  );
  const largest = audited.reduce((a, b) => (b.members.size > a.members.size ? b : a));
  const empty = audited.find(
    (one) => one.service?.selector !== null && one.members.size === 0 && one.service !== null,
  );
  const { listers } = auditor.store;
  const [member] = podsOf(listers, largest);
  // Some nodes without rules come before the nodes that report their rules.
  const reporting = [...(auditor.nodes()?.verdicts.keys() ?? [])];
  const [node] = reporting.length > 0 ? reporting : [...listers.nodes.keys()];
  const front = audited.find(({ service }) => service?.clusterIP.includes('.') === true);
  if (member === undefined || empty === undefined || node === undefined || front === undefined) {
    throw new Error('The cluster lacks something to ask about');
  }
  const [service, pod] = [largest.key, member.key];
  return {
    'service: the largest': { kind: 'service', service },
    'service: one that selects nothing': { kind: 'service', service: empty.key },
    'pod of the largest Service': { kind: 'pod', pod },
    'pair of these two': { kind: 'pair', pod, service },
    'pair: the pod and the Service that selects nothing': {
      ...{ kind: 'pair', pod, service: empty.key },
    },
    'address of the pod': { kind: 'address', address: member.ips[0] ?? '' },
    'address of no pod': { kind: 'address', address: '192.0.2.1' },
    'node and a Service': { kind: 'node', node, service: front.key, port: null },
  };
}

const measureAll = (auditor: Auditor, input: string): ExplainRow[] =>
  Object.entries(subjectsOf(auditor)).map(([form, subject]) => [
    form,
    input,
    ...measure(auditor, subject),
  ]);

async function ofRecording(): Promise<Auditor> {
  const auditor = newAuditor();
  const path = join(import.meta.dirname, '../recordings/shop.ndjson.gz');
  const source = { name: path, bytes: createReadStream(path) };
  for await (const entry of readRecording(source, () => undefined)) auditor.take(entry);
  return auditor;
}

const begun = 1_795_260_000;

/** A fleet with one Service more, which selects nothing but nearly does. */
function ofFleet(shape: Shape): Auditor {
  const auditor = newAuditor();
  const fleet = createFleet(shape);
  auditor.take({ kind: 'header', at: begun, kubernetes: 'v1.36.3', resources });
  for (const resource of resources) {
    for (const raw of rawObjects(fleet, resource)) {
      const event = eventOf(auditor.store, resource, 'added', raw, 1000, begun);
      auditor.take({ kind: 'event', event });
    }
    auditor.take({ kind: 'synced', resource, at: begun });
  }
  const [service] = auditor.store.listers.services.values();
  if (service === undefined) throw new Error('The fleet has no Service');
  const [[key, value] = ['', '']] = Object.entries(service.selector ?? {});
  const name = `${service.name}-nobody`;
  const meant = { name, key: `${service.namespace}/${name}`, uid: name };
  const object = { ...service, ...meant, selector: { [key]: `${value}x` } };
  const event = { resource: 'services', type: 'added', object, at: begun } as const;
  auditor.take({ kind: 'event', event });
  return auditor;
}

/** Explanations on both inputs, the larger one of this shape. */
export async function measureExplain(shape: Shape): Promise<ExplainRow[]> {
  const recording = measureAll(await ofRecording(), 'recording');
  const auditor = ofFleet(shape);
  const pods = auditor.store.listers.pods.size.toLocaleString('en');
  return [...recording, ...measureAll(auditor, `${pods} pods`)];
}

// The cost of one event when a whole fleet is cached and audited, by kind of event and by size of
// the Service that it concerns. Each event is measured alone, in three parts: JSON to raw object,
// raw object to model, and the audit (store and service auditor).
//
// Events come in rounds as they do in a cluster: a pod changes, its slice follows, the Endpoints
// follow. All events of a block are read first, kind by kind; then the young generation is emptied,
// and they are applied one after the other. A sample is the mean of one kind over a block.

/** Microseconds per event, one sample per block. */
interface Cost {
  readonly parse: number[];
  readonly project: number[];
  readonly audit: number[];
}

type Costs = Record<string, Cost>;

export interface Effort {
  readonly blocks: number;
  /** Rounds of a block. */
  readonly rounds: number;
}

/** A change of a raw object, and as what kind of event it is counted; null: not at all. */
type Change = readonly [
  kind: string | null,
  resource: Resource,
  type: WatchEvent['type'],
  raw: Raw,
];

/** A change on its way from text to an event. */
interface Written {
  readonly kind: string | null;
  readonly resource: Resource;
  readonly type: WatchEvent['type'];
  readonly text: string;
  readonly at: number;
  event: WatchEvent | null;
}

interface Sum {
  parse: number;
  project: number;
  audit: number;
  events: number;
}

const asking = askingMicros();

/** Blocks that are forgotten, since the compiler is still at work. */
const warmUps = 2;

/** Reads all changes of one kind, one after the other. */
function readKind(world: World, changes: readonly Written[], sum: Sum): void {
  sweep();
  for (const change of changes) {
    const { resource, type, text, at } = change;
    const begun = cpuMicros();
    const raw: unknown = JSON.parse(text);
    const parsed = cpuMicros();
    change.event = eventOf(world.store, resource, type, raw, text.length, at);
    const projected = cpuMicros();
    sum.parse += parsed - begun - asking;
    sum.project += projected - parsed - asking;
    sum.events++;
  }
}

/** Applies the changes of one block and adds a sample of each of their kinds. */
function runBlock(world: World, changes: Iterable<Change>, costs: Costs): void {
  const block: Written[] = [];
  for (const [kind, resource, type, raw] of changes) {
    world.now += 0.01;
    block.push({ kind, resource, type, text: JSON.stringify(raw), at: world.now, event: null });
  }
  const sums = new Map<string | null, Sum>();
  for (const [kind, ofKind] of Map.groupBy(block, ({ kind }) => kind)) {
    const sum: Sum = { parse: 0, project: 0, audit: 0, events: 0 };
    sums.set(kind, sum);
    readKind(world, ofKind, sum);
  }
  sweep();
  for (const { kind, event } of block) {
    const begun = cpuMicros();
    const change = event === null ? null : world.store.apply(event);
    if (change !== null) world.serviceAuditor.apply(change);
    const audit = cpuMicros() - begun - asking;
    const sum = sums.get(kind);
    if (change === null || sum === undefined)
      throw new Error(`Expected news: ${kind ?? 'outputs'}`);
    sum.audit += audit;
  }
  for (const [kind, { parse, project, audit, events }] of sums) {
    if (kind === null) continue;
    const cost = (costs[kind] ??= { parse: [], project: [], audit: [] });
    cost.parse.push(parse / events);
    cost.project.push(project / events);
    cost.audit.push(audit / events);
  }
}

/** The outputs of a Service after a change of one of its pods. */
function* outputs(
  { fleet }: World,
  [plan, pod]: Picked,
  kinds: readonly [slice: string, endpoints: string] | null,
): Generator<Change> {
  const [ofSlice, ofEndpoints] = kinds ?? [null, null];
  yield [ofSlice, 'endpointslices', 'modified', rawSlice(fleet, plan, sliceOf(plan, pod))];
  yield [ofEndpoints, 'endpoints', 'modified', rawEndpoints(fleet, plan)];
}

/** The pod that a round is about: its Service and its number. */
type Picked = readonly [Plan, number];

/** Some Services of one size: how their events are named, and the pod of the next round. */
interface Group {
  readonly name: string;
  readonly pick: () => Picked;
}

function flip({ fleet }: World, [plan, pod]: Picked): Raw {
  fleet.ready[pod] = 1 - (fleet.ready[pod] ?? 0);
  return rawPod(fleet, plan, pod);
}

/** A pod turns from ready to not ready or back. */
function* flips(world: World, { name, pick }: Group, rounds: number): Generator<Change> {
  for (let round = 0; round < rounds; round++) {
    const picked = pick();
    yield [`${name}: pod flips`, 'pods', 'modified', flip(world, picked)];
    yield* outputs(world, picked, [`${name}: its slice follows`, `${name}: its Endpoints follow`]);
  }
}

/** A pod is deleted, and another comes in its place. */
function* replacements(world: World, { name, pick }: Group, rounds: number): Generator<Change> {
  const { fleet } = world;
  for (let round = 0; round < rounds; round++) {
    const picked = pick();
    const [plan, pod] = picked;
    yield [`${name}: pod deleted`, 'pods', 'deleted', rawPod(fleet, plan, pod)];
    fleet.exists[pod] = 0;
    yield* outputs(world, picked, null);
    fleet.exists[pod] = 1;
    fleet.incarnation[pod] = ((fleet.incarnation[pod] ?? 0) + 1) % 64;
    yield [`${name}: pod added`, 'pods', 'added', rawPod(fleet, plan, pod)];
    yield* outputs(world, picked, null);
  }
}

/** Many pods of a Service flip before the first output follows, as when a zone fails. */
function* burst(world: World, { name, pick }: Group, rounds: number): Generator<Change> {
  const all = Array.from({ length: rounds }, pick);
  for (const picked of all) {
    yield [`${name}: pod flips in a burst`, 'pods', 'modified', flip(world, picked)];
  }
  for (const [plan, ofPlan] of Map.groupBy(all, ([plan]) => plan)) {
    for (const slice of new Set(ofPlan.map(([, pod]) => sliceOf(plan, pod)))) {
      yield [null, 'endpointslices', 'modified', rawSlice(world.fleet, plan, slice)];
    }
    yield [null, 'endpoints', 'modified', rawEndpoints(world.fleet, plan)];
  }
}

/** Updates a Service without a change for its pods, so that all of it is compared again. */
function* writings({ fleet }: World, { name, pick }: Group, rounds: number): Generator<Change> {
  for (let round = 0; round < rounds; round++) {
    yield [`${name}: Service written`, 'services', 'modified', rawService(fleet, pick()[0])];
  }
}

/** The kubelet writes the status of a Node, and nothing has changed. */
function* heartbeats({ fleet }: World, rounds: number): Generator<Change> {
  for (let round = 0; round < rounds; round++) {
    yield ['node heartbeat', 'nodes', 'modified', rawNode(fleet, round % fleet.shape.nodes)];
  }
}

/** A Node moves to another zone, and back before anything follows. */
function* moves({ fleet }: World, rounds: number): Generator<Change> {
  for (let round = 0; round < rounds; round++) {
    const node = (round * 7) % fleet.shape.nodes;
    const zone = fleet.zone[node] ?? 0;
    fleet.zone[node] = (zone + 1) % zones.length;
    yield ['node zone change', 'nodes', 'modified', rawNode(fleet, node)];
    fleet.zone[node] = zone;
    yield ['node zone change back', 'nodes', 'modified', rawNode(fleet, node)];
  }
}

/** Pods of all Services of a size in turn; of each Service only those among its first thousand. */
function groupOf(world: World, size: number): Group {
  const plans = world.fleet.plans.filter(({ pods }) => pods === size);
  let turn = 0;
  const pick = (): Picked => {
    const plan = plans[turn % plans.length];
    if (plan === undefined) throw new Error(`Expected Services of ${size} pods`);
    const pod = (37 * Math.floor(turn++ / plans.length)) % Math.min(size, 1000);
    return [plan, plan.first + pod];
  };
  return { name: `${size} pods`, pick };
}

/** Measures all kinds of events on Services of these sizes; ends as it began, with all well. */
export function measureEvents(world: World, effort: Effort, sizes: readonly number[]): Costs {
  const costs: Costs = {};
  const { blocks, rounds } = effort;
  const groups = sizes.map((size) => groupOf(world, size));
  for (let block = -warmUps; block < blocks; block++) {
    const kept = block < 0 ? {} : costs;
    for (const group of groups) {
      runBlock(world, flips(world, group, rounds), kept);
      runBlock(world, replacements(world, group, rounds >> 1), kept);
      runBlock(world, burst(world, group, 3 * rounds), kept);
      runBlock(world, writings(world, group, 2), kept);
    }
    runBlock(world, heartbeats(world, rounds), kept);
    runBlock(world, moves(world, rounds >> 1), kept);
  }
  assertQuiet(world);
  return costs;
}
