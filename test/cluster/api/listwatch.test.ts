import { describe, expect, test } from 'vitest';

import { createConnectionState } from '../../../src/cluster/api/connection-state.ts';
import { pathOf } from '../../../src/cluster/api/listwatch.ts';
import { createGate, createReflector } from '../../../src/cluster/api/reflector.ts';
import type { LiveEntry } from '../../../src/cluster/decode/entry.ts';
import { resources } from '../../../src/model/objects.ts';
import type { World } from '../../apiserver/life.ts';
import { createWorld } from '../../apiserver/life.ts';

function prepared(count: number): World {
  const world = createWorld();
  for (let index = 0; index < count; index++) {
    const metadata = { name: `pod-${index}`, namespace: 'shop' };
    world.server.objects.put('pods', { metadata, spec: {}, status: {} });
  }
  return world;
}

async function reflect(world: World, options: object, during: () => void = () => undefined) {
  const controller = new AbortController();
  const reflector = createReflector({
    resource: 'pods',
    namespace: null,
    environment: world.environment,
    held: world.held('pods'),
    deliver: world.deliver,
    onProblem: () => undefined,
    enterGate: createGate(),
    watchList: false,
    raw: false,
    onLost: () => undefined,
    connection: createConnectionState(
      () => 0,
      () => undefined,
    ),
    ...options,
  });
  const run = reflector.run(controller.signal);
  await world.clock.runUntil(world.clock.now() + 1);
  during();
  await world.clock.runUntil(world.clock.now() + 1);
  controller.abort();
  await world.clock.runUntil(world.clock.now());
  await run;
  return reflector.status;
}

const events = ({ entries }: World) => entries.filter((entry) => entry.kind === 'event');

describe('raw objects', () => {
  test.each([true, false])('go with events where they are asked for (WatchList %s)', async (by) => {
    const world = prepared(1);
    await reflect(world, { raw: true, watchList: by }, () => {
      world.server.objects.remove('pods', 'shop/pod-0');
    });
    const raws = events(world).map(({ event }) => [event.type, event.raw]);
    const metadata = { name: 'pod-0', namespace: 'shop', uid: 'uid-1' };
    expect(raws).toMatchObject([
      ['added', { metadata: { ...metadata, resourceVersion: '101' } }],
      ['deleted', { metadata: { ...metadata, resourceVersion: '102' } }],
    ]);
  });

  test('and not where they are not', async () => {
    const world = prepared(1);
    await reflect(world, {});
    expect(events(world).map(({ event }) => 'raw' in event)).toEqual([false]);
  });
});

test('decoding gives way: no batch has more than is decoded in 8 ms', async () => {
  const world = prepared(300);
  const sizes: number[] = [];
  let now = 0;
  let turns = 0;
  const environment = {
    ...world.environment,
    // Every look at the clock costs a millisecond.
    monotonic: () => (now += 0.001),
    sleep(seconds: number, signal: AbortSignal) {
      if (seconds === 0) turns++;
      return world.clock.sleep(seconds, signal);
    },
  };
  const deliver = (entries: readonly LiveEntry[]) => {
    sizes.push(entries.length);
    world.deliver(entries);
  };
  await reflect(world, { environment, deliver });
  expect(Math.max(...sizes)).toBeLessThanOrEqual(10);
  expect(turns).toBeGreaterThan(300 / 10 - 1);
  expect(world.store.listers.pods.size).toBe(300);
});

test('nothing is read on before a batch is taken', async () => {
  const world = prepared(2);
  world.server.faults.chunks = (bytes) => {
    const half = Math.floor(bytes.length / 2);
    return [bytes.subarray(0, half), bytes.subarray(half)];
  };
  let inside = 0;
  const deliver = async (entries: readonly LiveEntry[]) => {
    expect(++inside).toBe(1);
    await world.clock.sleep(0.1);
    world.deliver(entries);
    inside--;
  };
  const { counters } = await reflect(world, { deliver });
  expect(counters.events).toBe(2);
});

test('every resource has a path', () => {
  expect(resources.map((resource) => pathOf(resource, null).split('/').at(-1))).toEqual(resources);
});
