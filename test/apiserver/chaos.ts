// A random life of a cluster and of the connection to it, from a seed: objects come, change, go and
// come again while everything goes wrong that can. Afterwards all faults cease.

import type { Resource } from '../../src/model/objects.ts';
import type { Raw, Saved } from './objects.ts';
import type { Asked, FakeServer, Instead, Spoil } from './server.ts';
import { statusAnswer, statusOf } from './server.ts';
import type { World } from './simulate.ts';

const resources: readonly Resource[] = ['pods', 'pods', 'endpointslices', 'services', 'nodes'];
const spoils: readonly Spoil[] = ['garbled', 'cut', 'twice', 'swapped'];

/** Seconds after which a ping that is not answered ends a connection. */
const pingSeconds = 43;

/** Time in which every wait of a reflector ends. */
const patience = 150;

export type Random = () => number;

export const below = (random: Random, count: number): number => Math.floor(random() * count);

export function oneOf<T>(random: Random, values: readonly T[]): T {
  const value = values[below(random, values.length)];
  if (value === undefined) throw new Error('Nothing to choose from');
  return value;
}

function draft(random: Random, resource: Resource): Raw {
  const name = `${resource}-${below(random, 6)}`;
  const labels = { app: `app-${below(random, 3)}` };
  switch (resource) {
    case 'nodes':
      return { metadata: { name, labels } };
    case 'pods': {
      const podIPs = random() < 0.5 ? [] : [{ ip: `10.0.0.${below(random, 200)}` }];
      return { metadata: { name, namespace: 'shop', labels }, spec: {}, status: { podIPs } };
    }
    case 'services':
      return { metadata: { name, namespace: 'shop' }, spec: { selector: labels } };
    default: {
      const content = { addressType: 'IPv4', ports: [], endpoints: [] };
      return { metadata: { name, namespace: 'shop', labels }, ...content };
    }
  }
}

function change(server: FakeServer, random: Random): void {
  const { objects } = server;
  const resource = oneOf(random, resources);
  const raw = draft(random, resource);
  const { namespace, name } = raw.metadata;
  const key = namespace === undefined ? name : `${namespace}/${name}`;
  const removed = random() < 0.4 && objects.remove(resource, key);
  if (!removed || random() < 0.3) objects.put(resource, raw);
}

/** What the next requests are answered with instead. */
export function refuse(server: FakeServer, random: Random, among = resources): void {
  let left = 1 + below(random, 3);
  const resource = oneOf(random, among);
  const instead = oneOf<(asked: Asked) => Instead>(random, [
    () => statusAnswer(429, 'TooManyRequests', 'slow down', { 'retry-after': '7' }),
    () => statusAnswer(500, 'InternalError'),
    () => statusAnswer(503, 'ServiceUnavailable'),
    () => statusAnswer(504, 'Timeout'),
    () => statusAnswer(401, 'Unauthorized'),
    () => statusAnswer(410, 'Expired'),
    ({ verb }) => (verb === 'watch' ? statusAnswer(422, 'Invalid') : null),
    ({ verb }) => (verb === 'list' ? statusAnswer(403, 'Forbidden') : null),
    ({ verb }) => (verb === 'list' ? cutAnswer() : null),
    () => 'hang',
    () => 'reset',
  ]);
  server.faults.before = (asked) =>
    asked.resource === resource && left-- > 0 ? instead(asked) : null;
}

const cutAnswer = (): Instead => ({
  status: 200,
  headers: { 'content-type': 'application/json' },
  body: (async function* () {
    await Promise.resolve();
    yield Buffer.from('{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"metadata":');
  })(),
});

/** Breaks, freezes or spoils one watch, or all. */
export function disturb(world: Pick<World, 'server' | 'clock' | 'pings'>, random: Random): void {
  const { server, clock } = world;
  const watches = [...server.watches];
  if (watches.length === 0) return;
  const watch = oneOf(random, watches);
  const faults: readonly (() => void)[] = [
    () => watch.stream.end(),
    () => watch.stream.fail(new Error('connection reset')),
    () => watch.refuse(statusOf(410, 'Expired')),
    () => watch.refuse(statusOf(500, 'InternalError')),
    () => watch.spoils.push(oneOf(random, spoils)),
    () => watch.spoils.push(oneOf(random, spoils), oneOf(random, spoils)),
    () => server.reset(),
    () => {
      watch.freeze();
      if (world.pings) clock.after(pingSeconds, () => watch.stream.fail(new Error('no pong')));
    },
  ];
  oneOf(random, faults)();
}

/** How a body is cut into chunks. */
export function* cut(random: Random, bytes: Uint8Array): Generator<Uint8Array> {
  for (let start = 0; start < bytes.length;) {
    const end = start + 1 + below(random, 120);
    yield bytes.subarray(start, end);
    start = end;
  }
}

/** No fault any more. */
export function heal(server: FakeServer): void {
  server.faults.before = () => null;
  for (const watch of server.watches) watch.heal();
  server.faults.forbidden.clear();
  server.faults.lag = { versions: 0, until: 0 };
}

export interface Chaos {
  /** Called before the server's history goes back. */
  readonly onRestore: () => void;
}

/** Lets a world live for some time, and then in peace until all must have recovered. */
export async function live(world: World, random: Random, chaos: Chaos): Promise<void> {
  const { server, clock } = world;
  let saved: Saved = server.objects.save();
  world.pings = random() < 0.7;
  server.watchList = random() < 0.5;
  server.bookmarkEvery = oneOf(random, [10, 60, 100_000]);
  server.faults.pageSize = oneOf(random, [1, 2, 500]);
  if (random() < 0.3) server.faults.chunks = (bytes) => cut(random, bytes);
  for (let steps = 5 + below(random, 25); steps > 0; steps--) {
    const chance = random();
    if (chance < 0.5) change(server, random);
    else if (chance < 0.75) disturb(world, random);
    else if (chance < 0.85) refuse(server, random);
    else if (chance < 0.9) server.objects.compact();
    else if (chance < 0.93) {
      server.faults.lag = { versions: 1 + below(random, 5), until: clock.now() + 4 };
    } else if (chance < 0.96) saved = server.objects.save();
    else if (saved.version < server.objects.version() && random() < 0.5) {
      heal(server);
      await clock.runUntil(clock.now()); // what was sent is read
      chaos.onRestore();
      server.objects.restore(saved);
      server.reset();
      await clock.runUntil(clock.now() + patience);
    } else heal(server);
    if (random() < 0.7) await clock.runUntil(clock.now() + random() * oneOf(random, [0, 2, 30]));
  }
  heal(server);
  await clock.runUntil(clock.now() + patience);
  change(server, random);
  await clock.runUntil(clock.now() + patience);
}
