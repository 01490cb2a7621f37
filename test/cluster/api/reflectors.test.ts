import { expect, test } from 'vitest';

import type { ReflectorsOptions } from '../../../src/cluster/api/reflector.ts';
import { createGate, createReflectors } from '../../../src/cluster/api/reflector.ts';
import type { World } from '../../apiserver/life.ts';
import { createWorld } from '../../apiserver/life.ts';
import { type Asked, statusAnswer } from '../../apiserver/server.ts';

function start(world: World, options: Partial<ReflectorsOptions> = {}) {
  const controller = new AbortController();
  const reflectors = createReflectors({
    environment: world.environment,
    held: world.held,
    deliver: world.deliver,
    onProblem: () => undefined,
    endpoints: true,
    namespaces: null,
    watchList: true,
    raw: false,
    ...options,
  });
  const run = reflectors.run(controller.signal);
  const stop = async () => {
    controller.abort();
    await world.clock.runUntil(world.clock.now());
    await run;
  };
  return { reflectors, stop, run };
}

const pass = ({ clock }: World, seconds: number) => clock.runUntil(clock.now() + seconds);

const headers = ({ entries }: World) =>
  entries.flatMap((entry) => (entry.kind === 'header' ? [entry.kubernetes] : []));

const order = ['nodes', 'services', 'pods', 'endpointslices', 'endpoints'];

test('the gate lets one through at a time, in the order of asking', async () => {
  const enter = createGate();
  const order: string[] = [];
  const pass = async (name: string) => {
    const leave = await enter();
    order.push(`${name} in`);
    await Promise.resolve();
    order.push(`${name} out`);
    leave();
    leave();
  };
  await Promise.all([pass('a'), pass('b'), pass('c')]);
  expect(order).toEqual(['a in', 'a out', 'b in', 'b out', 'c in', 'c out']);
});

test('the version comes first, then every resource', async () => {
  const world = createWorld();
  const { reflectors, stop } = start(world);
  await pass(world, 1);
  expect(world.entries[0]).toMatchObject({
    kind: 'header',
    kubernetes: 'v1.36.3',
    resources: order,
  });
  expect([...reflectors.status].map(([resource, { state }]) => `${resource} ${state}`)).toEqual(
    order.map((resource) => `${resource} synced`),
  );
  await stop();
  expect(world.server.watches.size).toBe(0);
});

test.each([true, false])('one list at a time (WatchList %s)', async (watchList) => {
  const world = createWorld();
  const { ask } = world.server;
  let listing = 0;
  const lists: string[] = [];
  const environment = {
    ...world.environment,
    async ask(request: Parameters<typeof ask>[0]) {
      const isList = request.query.limit !== undefined || 'sendInitialEvents' in request.query;
      if (!isList) return ask(request);
      lists.push(request.path.split('/').at(-1) ?? '');
      expect(++listing).toBe(1);
      await world.clock.sleep(3);
      listing--;
      return ask(request);
    },
  };
  const { stop } = start(world, { environment, watchList });
  await pass(world, 60);
  expect(lists).toEqual(order);
  await stop();
});

test('Endpoints can be left out', async () => {
  const world = createWorld();
  const { reflectors, stop } = start(world, { endpoints: false });
  await pass(world, 1);
  expect(reflectors.status.has('endpoints')).toBe(false);
  expect(world.entries[0]).toMatchObject({ kind: 'watch', resource: 'endpoints', state: 'off' });
  expect(world.entries[1]).toMatchObject({ kind: 'header', resources: order.slice(0, 4) });
  expect(world.server.asked.some(({ resource }) => resource === 'endpoints')).toBe(false);
  await stop();
});

test('the version is asked for until there is an answer', async () => {
  const world = createWorld();
  const instead = ['reset', 'hang', statusAnswer(503, 'Unavailable')] as const;
  let next = 0;
  world.server.faults.before = () => instead[next++] ?? null;
  const { stop } = start(world);
  await pass(world, 10);
  expect(headers(world)).toEqual([]);
  await pass(world, 60);
  expect(headers(world)).toEqual(['v1.36.3']);
  await stop();
});

test('a version without an end is not read beyond 1 MiB', async () => {
  const world = createWorld();
  let chunks = 0;
  async function* spaces() {
    // Ends far beyond what is read, so that a reader of all of it fails the test.
    for (; chunks < 100; chunks++) yield await Promise.resolve(Buffer.alloc(64 * 1024, ' '));
  }
  world.server.faults.before = ({ resource }) => {
    if (resource !== null || chunks > 0) return null;
    const body = { hasMore: () => true, [Symbol.asyncIterator]: spaces };
    return { status: 200, headers: {}, body };
  };
  const { stop } = start(world);
  await pass(world, 60);
  expect(chunks).toBeLessThan(20);
  expect(headers(world)).toEqual(['v1.36.3']);
  await stop();
});

test.each([false, true])('a list that is always gone is retried slowly: %j', async (watchList) => {
  const world = createWorld();
  let answers = 0;
  // Ends at 500, so that a loop fails the test.
  world.server.faults.before = ({ verb, resource }) =>
    resource !== null && verb === (watchList ? 'watch' : 'list') && answers++ < 500
      ? statusAnswer(410, 'Expired', 'too old')
      : null;
  const { reflectors, stop } = start(world, { watchList });
  await pass(world, 60);
  expect(answers).toBeGreaterThan(10);
  expect(answers).toBeLessThan(100);
  if (!watchList) {
    expect(reflectors.connection.lost()?.message).toContain('410 Gone');
  }
  await stop();
});

/** Whether a request begins a WatchList. */
const isInitial = ({ request }: Asked): boolean => request.query.sendInitialEvents === 'true';

test('pages follow a WatchList that is always gone', async () => {
  const world = createWorld();
  world.server.faults.before = (request) =>
    isInitial(request) ? statusAnswer(410, 'Expired', 'too old') : null;
  const { reflectors, stop } = start(world, { watchList: true });
  await pass(world, 60);
  expect(reflectors.status.get('pods')?.state).toBe('synced');
  await stop();
});

test('an error event of a WatchList is a failure of the connection', async () => {
  const world = createWorld();
  const object = { kind: 'Status', apiVersion: 'v1', code: 410, reason: 'Expired', message: 'old' };
  const event = Buffer.from(`${JSON.stringify({ type: 'ERROR', object })}\n`);
  async function* events() {
    yield await Promise.resolve(event);
  }
  world.server.faults.before = (request) => {
    if (request.resource === null) return null;
    if (!isInitial(request)) return 'hang';
    const body = { hasMore: () => false, [Symbol.asyncIterator]: events };
    return { status: 200, headers: { 'content-type': 'application/json' }, body };
  };
  const { reflectors, stop } = start(world, { watchList: true });
  await pass(world, 1);
  expect(reflectors.connection.lost()?.message).toContain('410 Gone ("old")');
  await stop();
});

test('a server without a version works too', async () => {
  const world = createWorld();
  world.server.faults.before = ({ resource }) =>
    resource === null ? statusAnswer(403, 'Forbidden') : null;
  const { reflectors, stop } = start(world);
  await pass(world, 1);
  expect(headers(world)).toEqual([null]);
  expect(reflectors.status.get('pods')?.state).toBe('synced');
  await stop();
});

test('an upgrade is noticed when the connection was lost', async () => {
  const world = createWorld();
  const { stop } = start(world);
  await pass(world, 1);
  world.server.reset();
  await pass(world, 5);
  expect(headers(world)).toEqual(['v1.36.3']);
  world.server.version = 'v1.37.0';
  world.server.reset();
  await pass(world, 5);
  expect(headers(world)).toEqual(['v1.36.3', 'v1.37.0']);
  await stop();
});

test('one that cannot deliver ends them all', async () => {
  const world = createWorld();
  const { run } = start(world, {
    deliver(entries) {
      if (entries.some((entry) => entry.kind === 'synced')) throw new Error('full');
    },
  });
  const ended = expect(run).rejects.toThrow('not taken');
  await pass(world, 1);
  await ended;
  expect(world.server.watches.size).toBe(0);
});
