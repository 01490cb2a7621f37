// A reflector's world in process: the fake API server, a clock that jumps, chance from a seed, and
// the real store behind. It keeps every entry and checks, as they come, what must always hold.

import type { Environment } from '../../src/cluster/api/transport/request.ts';
import type { CachedObjects } from '../../src/cluster/api/version-filter.ts';
import type { LiveEntry } from '../../src/cluster/decode/entry.ts';
import type { Store } from '../../src/cluster/store/store.ts';
import { createStore } from '../../src/cluster/store/store.ts';
import type { AnyObject, Resource } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import type { VirtualClock } from './clock.ts';
import { virtualClock } from './clock.ts';
import type { FakeServer } from './server.ts';
import { createServer } from './server.ts';

export interface World {
  readonly clock: VirtualClock;
  readonly server: FakeServer;
  readonly environment: Environment;
  readonly store: Store;
  readonly entries: LiveEntry[];
  readonly held: (resource: Resource) => CachedObjects;
  readonly deliver: (entries: readonly LiveEntry[]) => void;
  /** Whether the connection pings. */
  pings: boolean;
}

/** A generator of numbers from 0 to 1 (mulberry32). */
export function chanceFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export function heldIn(store: Store, resource: Resource): ReadonlyMap<string, AnyObject> {
  const { listers } = store;
  return resource === 'endpointslices' ? listers.slices : listers[resource];
}

export function createWorld(seed = 1): World {
  const clock = virtualClock();
  const server = createServer(clock);
  const random = chanceFrom(seed);
  const store = createStore(new Set(resources));
  const entries: LiveEntry[] = [];
  const world: World = {
    clock,
    server,
    store,
    entries,
    pings: true,
    environment: {
      now: () => clock.now(),
      monotonic: () => clock.now(),
      random,
      sleep: (seconds, signal) => clock.sleep(seconds, signal),
      ask: (request) => server.ask(request),
      pings: () => world.pings,
    },
    held: (resource) => heldIn(store, resource),
    deliver(batch) {
      for (const entry of batch) {
        entries.push(entry);
        if (entry.kind === 'event') store.apply(entry.event);
        if (entry.kind === 'synced') store.listed(entry.resource);
      }
    },
  };
  return world;
}

/** The objects of a resource on the server and in the cache, as `key uid version`. */
export function compared(world: World, resource: Resource): { got: string[]; want: string[] } {
  const want = world.server.objects
    .list(resource)
    .map(({ raw: { metadata }, key }) => `${key} ${metadata.uid} ${metadata.resourceVersion}`);
  const got = [...heldIn(world.store, resource).values()].map(
    ({ key, uid, resourceVersion }) => `${key} ${uid} ${resourceVersion}`,
  );
  return { got: got.sort(), want: want.sort() };
}
