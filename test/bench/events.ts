// The cost of one event when a whole fleet is cached and audited, by kind of event and by size of
// the Service that it concerns. Each event is measured alone, in three parts: JSON to raw object,
// raw object to model, and the audit (store and ledger).
//
// Events come in rounds as they do in a cluster: a pod changes, its slice follows, the Endpoints
// follow. All events of a block are read first, kind by kind; then the young generation is emptied,
// and they are applied one after the other. A sample is the mean of one kind over a block.

import type { Resource, WatchEvent } from '../../src/model/objects.ts';
import type { World } from './fleet.ts';
import { assertQuiet, eventOf } from './fleet.ts';
import type { Plan, Raw } from './generate.ts';
import { rawEndpoints, rawNode, rawPod, rawService, rawSlice, sliceOf, zones } from './generate.ts';
import { askingMicros, cpuMicros, sweep } from './measure.ts';

/** Microseconds per event, one sample per block. */
export interface Cost {
  readonly parse: number[];
  readonly project: number[];
  readonly audit: number[];
}

export type Costs = Record<string, Cost>;

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
