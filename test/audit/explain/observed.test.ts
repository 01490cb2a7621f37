// What stands of a pod, whoever wrote it, and which differences are about it and not its neighbour.

import { expect, test } from 'vitest';

import {
  observedState,
  itemsAbout,
  managerText,
  servicesListing,
  entriesAt,
  entriesOfPod,
} from '../../../src/audit/explain/observed.ts';
import { canonicalIP } from '../../../src/model/ip.ts';
import {
  address,
  endpoint,
  endpoints,
  foreign,
  mirror,
  node,
  pod,
  service,
  slice,
  subset,
} from '../../build.ts';
import { caseFiles, worldsOf } from '../../vectors/pairs.ts';
import type { World } from '../../vectors/world.ts';
import { judged } from '../judge.ts';

const twin = pod({ name: 'web-2', uid: 'uid-web-2' });
const both = judged([service(), node(), pod(), twin, endpoints(), slice(), foreign(), mirror()]);

test('every entry of a pod is found, with who manages it', () => {
  const stands = entriesOfPod(both.context.snapshot, both.record, pod());
  expect(stands.map(({ object, place }) => `${object} ${String(place)}`)).toEqual([
    'Endpoints shop/web endpoints',
    'EndpointSlice shop/web-abcde IPv4',
    'EndpointSlice shop/web-foreign null',
    'EndpointSlice shop/web-mirror null',
  ]);
  expect(stands[0]?.text).toBe('10.0.0.1, ready, http 8080/TCP');
  expect(observedState(stands, 'endpoints')).toBe('ready');
  expect(observedState(stands, 'IPv6')).toBe('absent');
});

test('an entry at the address that names another pod is not one of the pod', () => {
  expect(entriesOfPod(both.context.snapshot, both.record, twin)).toEqual([]);
  expect(entriesAt(both.context.snapshot, both.record, '10.0.0.1')).toHaveLength(4);
});

test('differences are about the pod that they name', () => {
  const [audited] = both.ledger.audited.values();
  if (audited === undefined) throw new Error('Nothing audited');
  const codes = (of: typeof twin) =>
    itemsAbout(both.context.snapshot, audited, of, [])
      .filter(({ output }) => output !== 'input')
      .map(({ difference }) => difference.code);
  expect(codes(twin)).toContain('slice-endpoint-missing');
  expect(codes(pod())).not.toContain('slice-endpoint-missing');
});

test('conditions, hints and ports are told', () => {
  const wrong = endpoint({ ready: false, terminating: true, forZones: ['zone-b'] });
  const { context, record } = judged([service(), node(), pod(), slice({ endpoints: [wrong] })]);
  const [stand] = entriesOfPod(context.snapshot, record, pod());
  expect(stand?.text).toBe('10.0.0.1, not ready, terminating, http 8080/TCP, hint for zone zone-b');
  expect(stand?.state).toBe('not-ready');
});

test('an address without a pod is the pod’s that has it', () => {
  const bare = endpoints({ subsets: [subset([address({ target: null })], [])] });
  const { context, record } = judged([service(), node(), pod(), bare]);
  const [stand] = entriesOfPod(context.snapshot, record, pod());
  expect(stand?.state).toBe('no-ports');
  expect(stand?.pod).toBeNull();
});

test('managers', () => {
  expect(managerText('mirror', undefined)).toBe('mirrored from Endpoints');
  expect(managerText('foreign', foreign())).toBe('managed by example.com/controller');
  expect(managerText('foreign', slice({ labels: {} }))).toBe('managed by nobody');
});

/** Every address that is somewhere in a world, some of them at least. */
function addressesOf({ context: { snapshot } }: World): string[] {
  const all = [
    ...[...snapshot.pods.values()].flatMap(({ ips }) => ips),
    ...[...snapshot.endpoints.values()]
      .flatMap(({ subsets }) => subsets)
      .flatMap(({ addresses }) => addresses.map(({ ip }) => ip)),
    ...[...snapshot.slices.values()]
      .flatMap(({ endpoints: there }) => there)
      .flatMap(({ addresses }) => addresses),
  ].map(canonicalIP);
  const each = [...new Set(all)];
  const stride = Math.ceil(each.length / 12);
  return each.filter((_, index) => index % stride === 0);
}

/** A slice takes an address from another that stands in the same world. */
function misplace(world: World, number: number): void {
  const { store, ledger } = world;
  const slices = [...store.snapshot.slices.values()];
  const one = slices[number % slices.length];
  const [stray] = slices[(number + 1) % slices.length]?.endpoints ?? [];
  if (one === undefined || stray === undefined) return;
  const object = { ...one, endpoints: [...one.endpoints, stray] };
  const at = world.steps * 10;
  const change = store.apply({ resource: 'endpointslices', type: 'modified', object, at });
  if (change !== null) ledger.apply(change);
}

test('who lists an address is found as by a look at everything', async () => {
  let [listed, none, number] = [0, 0, 0];
  for (const name of caseFiles) {
    for await (const world of worldsOf(name)) {
      if (++number % 4 === 0) misplace(world, number);
      const { snapshot } = world.context;
      const audited = [...world.ledger.audited.values()];
      for (const ip of [...addressesOf(world), '192.0.2.77']) {
        const want = audited.filter(({ record }) => entriesAt(snapshot, record, ip).length > 0);
        const got = servicesListing(snapshot, audited, [ip]);
        expect(
          got.map(({ record }) => record.key),
          ip,
        ).toEqual(want.map(({ record }) => record.key));
        listed += want.length;
        none += audited.length - want.length;
      }
    }
  }
  expect(listed).toBeGreaterThan(5000);
  expect(none).toBeGreaterThan(5000);
});
