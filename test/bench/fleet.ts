// Reads a whole fleet as a first list, then audits it: the cost of reading, caching and comparing.
// One run builds everything again; bench.ts starts each run in a process of its own, so that no run
// profits from code that another has warmed up or from strings that another has interned.

import { createPendingFindings } from '../../src/audit/pending/pending.ts';
import type { ServiceAuditor } from '../../src/audit/service/auditor.ts';
import { createServiceAuditor } from '../../src/audit/service/auditor.ts';
import type { AuditContext } from '../../src/audit/service/cache.ts';
import { project } from '../../src/cluster/decode/json-objects.ts';
import type { Store } from '../../src/cluster/store/store.ts';
import { createStore } from '../../src/cluster/store/store.ts';
import type { Resource, WatchEvent } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { defaultMaxEndpointsPerSlice } from '../../src/shadow/endpointslice.ts';
import { newestRelease } from '../../src/shadow/release.ts';
import type { Fleet, Raw } from './generate.ts';
import { rawEndpoints, rawNode, rawPod, rawService, rawSlice, slicesOf } from './generate.ts';
import { cpuMicros, heapBytes } from './measure.ts';

/** A fleet in the cache, audited, and the clock of the input in Unix seconds. */
export interface World {
  readonly fleet: Fleet;
  readonly store: Store;
  readonly serviceAuditor: ServiceAuditor;
  now: number;
}

/** CPU seconds, samples by name. */
export interface FleetSamples {
  readonly parsing: number[];
  readonly projecting: number[];
  readonly holding: number[];
  readonly auditing: number[];
  /** Heap bytes that each resource added, and the ledger. */
  readonly bytes: Record<string, number[]>;
  /** Bytes of the objects as JSON. */
  readonly json: number;
}

const settleSeconds = 30;
const begun = 1_795_260_000;
const batchSize = 1000;

/** All objects of a resource as the API server would show them. */
export function* rawObjects(fleet: Fleet, resource: Resource): Generator<Raw> {
  if (resource === 'nodes') {
    for (let node = 0; node < fleet.shape.nodes; node++) yield rawNode(fleet, node);
    return;
  }
  for (const plan of fleet.plans) {
    if (resource === 'services') yield rawService(fleet, plan);
    else if (resource === 'endpoints') yield rawEndpoints(fleet, plan);
    else if (resource === 'pods') {
      for (let pod = plan.first; pod < plan.first + plan.pods; pod++)
        yield rawPod(fleet, plan, pod);
    } else for (let slice = 0; slice < slicesOf(plan); slice++) yield rawSlice(fleet, plan, slice);
  }
}

/** What a door makes of the text of an object. */
export function eventOf(
  store: Store,
  resource: Resource,
  type: WatchEvent['type'],
  raw: unknown,
  bytes: number,
  at: number,
): WatchEvent {
  const previousPod = store.listers.pods.get.bind(store.listers.pods);
  const projection = project(resource, raw, at, { previousPod, bytes });
  if (projection.problem !== undefined) throw new Error(projection.problem.message);
  return { resource, type, object: projection.object, at };
}

interface Spent {
  parsing: number;
  projecting: number;
  holding: number;
  json: number;
}

/** Takes in one batch of a first list; only parsing, projecting and holding are measured. */
function takeBatch(
  world: Omit<World, 'serviceAuditor'>,
  resource: Resource,
  raws: Raw[],
  spent: Spent,
): void {
  const { store } = world;
  const texts = raws.map((raw) => JSON.stringify(raw));
  const asked = cpuMicros();
  const parsed = texts.map((text): unknown => JSON.parse(text));
  const read = cpuMicros();
  const events = parsed.map((raw, index) => {
    world.now += 0.0001;
    return eventOf(store, resource, 'added', raw, texts[index]?.length ?? 0, world.now);
  });
  const projected = cpuMicros();
  for (const event of events) store.apply(event);
  const held = cpuMicros();
  spent.parsing += (read - asked) / 1e6;
  spent.projecting += (projected - read) / 1e6;
  spent.holding += (held - projected) / 1e6;
  for (const text of texts) spent.json += text.length;
}

function takeAll(world: Omit<World, 'serviceAuditor'>, resource: Resource, spent: Spent): void {
  let batch: Raw[] = [];
  for (const raw of rawObjects(world.fleet, resource)) {
    if (batch.push(raw) < batchSize) continue;
    takeBatch(world, resource, batch, spent);
    batch = [];
  }
  takeBatch(world, resource, batch, spent);
}

/** Open findings above information. In a correct fleet each of them is a bug. */
export function assertQuiet({ serviceAuditor, now }: World): void {
  serviceAuditor.settle.advance(now + settleSeconds + 1);
  const loud = serviceAuditor.settle.open().filter(({ severity }) => severity !== 'info');
  const [first] = loud;
  if (first === undefined) return;
  throw new Error(`${String(loud.length)} findings, the first: ${JSON.stringify(first)}`);
}

/** A full audit of what the store holds. */
function audit(world: Omit<World, 'serviceAuditor'>, samples: FleetSamples): World {
  const context: AuditContext = {
    listers: world.store.listers,
    release: newestRelease,
    maxEndpointsPerSlice: defaultMaxEndpointsPerSlice,
  };
  const settle = createPendingFindings({ window: settleSeconds, keep: 0 });
  const serviceAuditor = createServiceAuditor({ context, settle });
  const asked = cpuMicros();
  serviceAuditor.begin(world.now);
  samples.auditing.push((cpuMicros() - asked) / 1e6);
  return Object.assign(world, { serviceAuditor });
}

/**
 * Builds a world and measures it on the way. The first audit is as a start of the program does it;
 * `again` more repeat it, each with a new auditor, and return the last one.
 */
export function buildWorld(fleet: Fleet, again: number): { world: World; samples: FleetSamples } {
  const spent: Spent = { parsing: 0, projecting: 0, holding: 0, json: 0 };
  const bytes: Record<string, number[]> = {};
  const world = { fleet, store: createStore(new Set(resources)), now: begun };
  let heap = heapBytes();
  const weigh = (name: string): void => {
    const before = heap;
    heap = heapBytes();
    bytes[name] = [heap - before];
  };
  for (const resource of ['nodes', 'services', 'pods', 'endpointslices', 'endpoints'] as const) {
    takeAll(world, resource, spent);
    weigh(resource);
  }
  const { parsing, projecting, holding, json } = spent;
  const samples: FleetSamples = {
    parsing: [parsing],
    projecting: [projecting],
    holding: [holding],
    auditing: [],
    bytes,
    json,
  };
  let audited = audit(world, samples);
  weigh('service audit');
  assertQuiet(audited);
  for (let count = 0; count < again; count++) audited = audit(world, samples);
  assertQuiet(audited);
  return { world: audited, samples };
}
