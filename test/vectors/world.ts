// A case of a vector file as a settled cluster that is followed from step to step: the real store,
// the real ledger, with a settle window that every step outlasts. Within a step the input changes
// first and the outputs after it; in which order things really happened is not in the file.

import { createPendingFindings } from '../../src/audit/pending/pending.ts';
import type { ServiceAuditor } from '../../src/audit/service/auditor.ts';
import { createServiceAuditor } from '../../src/audit/service/auditor.ts';
import type { AuditContext } from '../../src/audit/service/cache.ts';
import { project } from '../../src/cluster/decode/json-objects.ts';
import type { Store } from '../../src/cluster/store/store.ts';
import { createStore } from '../../src/cluster/store/store.ts';
import type { AnyObject, Resource, WatchEvent } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { defaultMaxEndpointsPerSlice } from '../../src/shadow/endpointslice.ts';
import type { Release } from '../../src/shadow/release.ts';

export type Raw = Record<string, unknown>;

/** The raw objects of one step, as a LIST gives them. */
export type Step = Readonly<Record<Resource, readonly Raw[]>>;

export interface World {
  readonly store: Store;
  readonly serviceAuditor: ServiceAuditor;
  readonly context: AuditContext;
  /** Steps taken so far. */
  steps: number;
  /** The objects of the last step by resource and key, with their text. */
  readonly held: Map<string, { readonly text: string; readonly object: AnyObject }>;
  /** Keys of the objects that the last step changed. */
  changed: Set<string>;
}

export function createWorld(release: Release): World {
  const store = createStore(new Set(resources));
  const context: AuditContext = {
    listers: store.listers,
    release,
    maxEndpointsPerSlice: defaultMaxEndpointsPerSlice,
  };
  const settle = createPendingFindings({ window: 1, keep: 0 });
  const serviceAuditor = createServiceAuditor({ context, settle });
  return { store, serviceAuditor, context, steps: 0, held: new Map(), changed: new Set() };
}

/** Takes the world to its next step; throws when an object cannot be read. */
export function takeStep(world: World, step: Step): void {
  const at = world.steps * 10;
  const events = eventsOf(world, step, at);
  if (world.steps === 0) {
    for (const event of events) world.store.apply(event);
    world.serviceAuditor.begin(at);
  } else {
    for (const event of events) {
      const change = world.store.apply(event);
      if (change !== null) world.serviceAuditor.apply({ ...change, gap: true });
    }
  }
  world.steps++;
  world.serviceAuditor.settle.advance(at + 5);
}

function eventsOf(world: World, step: Step, at: number): WatchEvent[] {
  const events: WatchEvent[] = [];
  const seen = new Set<string>();
  world.changed = new Set();
  for (const resource of resources) {
    for (const raw of step[resource]) {
      const projection = project(resource, raw, at);
      if (projection.problem !== undefined) throw new Error(projection.problem.message);
      // Labelled corruptions keep the version of the object they corrupt, so versions show nothing.
      const object = { ...projection.object, resourceVersion: '' };
      const key = `${resource} ${object.key}`;
      const text = JSON.stringify(raw);
      const before = world.held.get(key);
      seen.add(key);
      if (before?.text === text) continue;
      world.held.set(key, { text, object });
      world.changed.add(key);
      events.push({ resource, type: before === undefined ? 'added' : 'modified', object, at });
    }
  }
  for (const [key, { object }] of world.held) {
    if (seen.has(key)) continue;
    world.held.delete(key);
    world.changed.add(key);
    const resource = key.slice(0, key.indexOf(' ')) as Resource;
    events.push({ resource, type: 'deleted', object, at });
  }
  const order = (event: WatchEvent): number => resources.indexOf(event.resource);
  return events.sort((a, b) => order(a) - order(b));
}
