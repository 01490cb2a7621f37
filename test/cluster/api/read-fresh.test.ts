import { expect, test } from 'vitest';

import { podsByPair, readServices } from '../../../src/cluster/api/read-fresh.ts';
import type { Resource } from '../../../src/model/objects.ts';
import type { World } from '../../apiserver/life.ts';
import { createWorld } from '../../apiserver/life.ts';
import { bodyOfText, statusAnswer } from '../../apiserver/server.ts';
import { pod } from '../../build.ts';

function shop(): World {
  const world = createWorld();
  const { put } = world.server.objects;
  const meta = (name: string, labels = {}) => ({ name, namespace: 'shop', labels });
  put('services', { metadata: meta('web'), spec: { selector: { app: 'web', tier: 'a' } } });
  put('services', { metadata: meta('plain'), spec: {} });
  put('services', { metadata: { ...meta('web'), namespace: 'bank' }, spec: {} });
  put('endpoints', { metadata: meta('web') });
  put('endpoints', { metadata: meta('plain') });
  for (const [name, of] of Object.entries({ 'web-1': 'web', 'web-2': 'web', other: 'plain' })) {
    const metadata = meta(name, { 'kubernetes.io/service-name': of });
    put('endpointslices', { metadata, addressType: 'IPv4', ports: [], endpoints: [] });
  }
  const pods = { a: { app: 'web', tier: 'a' }, b: { app: 'web', tier: 'b' }, c: { app: 'api' } };
  for (const [name, labels] of Object.entries(pods)) {
    put('pods', { metadata: meta(name, labels), spec: {}, status: {} });
  }
  return world;
}

/** Whether a resource may be read, where Endpoints or Pods may not be. */
const permit =
  (endpoints: boolean, pods = true) =>
  (resource: Resource): boolean =>
    (endpoints || resource !== 'endpoints') && (pods || resource !== 'pods');

async function read({ environment }: World, name: string, endpoints = true, pods = true) {
  const mayRead = permit(endpoints, pods);
  const reading = { environment, mayRead, previousPod: () => undefined };
  const { signal } = new AbortController();
  const found = (await readServices(reading, 'shop', [name], signal)).get(name);
  if (found === undefined) throw new Error('Nothing read');
  return found;
}

const names = (found: { objects: readonly { name: string }[] } | null) =>
  found?.objects.map(({ name }) => name) ?? null;

test.each([
  ['web', true, true, ['web', ['web'], ['web-1', 'web-2'], ['a']]],
  ['web', false, true, ['web', null, ['web-1', 'web-2'], ['a']]],
  ['web', true, false, ['web', ['web'], ['web-1', 'web-2'], null]],
  ['plain', true, true, ['plain', ['plain'], ['other'], null]],
  ['gone', true, true, [null, [], [], null]],
])('%s (Endpoints %s, pods %s)', async (name, endpoints, pods, want) => {
  const world = shop();
  const got = await read(world, name, endpoints, pods);
  const others = [got.endpoints, got.endpointslices, got.pods].map(names);
  expect([got.services.objects[0]?.name ?? null, ...others]).toEqual(want);
  expect(got.version).toBe(String(world.server.objects.version()));
  // Only the newest state will do.
  expect(world.server.asked.filter(({ request }) => 'resourceVersion' in request.query)).toEqual(
    [],
  );
});

test.each([true, false])(
  'all of a namespace at once say the same (Endpoints %s)',
  async (endpoints) => {
    const world = shop();
    const services = ['web', 'plain', 'gone'];
    const reading = {
      environment: world.environment,
      mayRead: permit(endpoints),
      previousPod: () => undefined,
    };
    const { signal } = new AbortController();
    const got = await readServices(reading, 'shop', services, signal);
    expect(world.server.asked.length).toBe(endpoints ? 4 : 3);
    for (const name of services) {
      expect(got.get(name)).toEqual(await read(world, name, endpoints));
    }
    world.server.faults.before = ({ resource }) => (resource === 'pods' ? 'reset' : null);
    const failing = readServices(reading, 'shop', services, signal);
    await expect(failing).rejects.toThrow('connection reset');
  },
);

test.each([
  ['a refusal', () => statusAnswer(403, 'Forbidden'), '/api/v1/namespaces/shop/pods: 403'],
  ['no connection', () => 'reset' as const, 'connection reset'],
])('%s is reported', async (_name, instead, message) => {
  const world = shop();
  world.server.faults.before = ({ resource }) => (resource === 'pods' ? instead() : null);
  await expect(read(world, 'web')).rejects.toThrow(message);
});

test('a list of another kind is no proof that there are no objects', async () => {
  const world = shop();
  const list = { kind: 'Status', metadata: { resourceVersion: '999' } };
  world.server.faults.before = ({ resource }) =>
    resource === 'pods'
      ? { ...statusAnswer(200, ''), body: bodyOfText(JSON.stringify(list)) }
      : null;
  await expect(read(world, 'web')).rejects.toThrow('An object cannot be read');
});

test('an object that cannot be decoded is reported', async () => {
  const world = shop();
  const metadata = { name: 'web', namespace: 'shop' };
  world.server.objects.put('services', { metadata, spec: { type: 7 } });
  const message = '/api/v1/namespaces/shop/services: An object cannot be read';
  await expect(read(world, 'web')).rejects.toThrow(message);
});

test('of many Services whose pods share a label, each is compared with its own pods', async () => {
  const world = createWorld();
  const all = Array.from({ length: 50 }, (_, n) => `web-${n}`);
  const labelsOf = (name: string) => ({ app: name, tier: 'a' });
  for (const name of all) {
    const [metadata, labels] = [{ name, namespace: 'shop' }, labelsOf(name)];
    world.server.objects.put('services', { metadata, spec: { selector: labels } });
    world.server.objects.put('pods', { metadata: { ...metadata, labels }, spec: {}, status: {} });
  }
  const { environment } = world;
  const reading = { environment, mayRead: permit(true), previousPod: () => undefined };
  const found = await readServices(reading, 'shop', all, new AbortController().signal);
  expect(all.map((name) => names(found.get(name)?.pods ?? null))).toEqual(all.map((it) => [it]));

  let looks = 0;
  const pods = all.map((name) => ({
    ...pod({ name }),
    get labels() {
      looks++;
      return labelsOf(name);
    },
  }));
  const podsOf = podsByPair(pods);
  expect(looks).toBe(50);
  const compared = all.map((name) => podsOf(labelsOf(name)).map((it) => it.name));
  expect(compared).toEqual(all.map((name) => [name]));
  expect(looks).toBe(100);
});
