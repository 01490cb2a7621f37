// Which Services list an address, in every recorded world.

import { expect, test } from 'vitest';

import { observedEntries, servicesListing } from '../../../src/audit/explain/pod-in-service.ts';
import { canonicalIP } from '../../../src/model/ip.ts';
import { caseFiles, worldsOf } from '../../vectors/world.ts';
import type { World } from '../../vectors/world.ts';

/** Every address that is somewhere in a world, some of them at least. */
function addressesOf({ context: { listers } }: World): string[] {
  const all = [
    ...[...listers.pods.values()].flatMap(({ ips }) => ips),
    ...[...listers.endpoints.values()]
      .flatMap(({ subsets }) => subsets)
      .flatMap(({ addresses }) => addresses.map(({ ip }) => ip)),
    ...[...listers.slices.values()]
      .flatMap(({ endpoints: there }) => there)
      .flatMap(({ addresses }) => addresses),
  ].map(canonicalIP);
  const each = [...new Set(all)];
  const stride = Math.ceil(each.length / 12);
  return each.filter((_, index) => index % stride === 0);
}

/** Copies an endpoint of one slice of the world into another. */
function misplace(world: World, number: number): void {
  const { store, serviceAuditor } = world;
  const slices = [...store.listers.slices.values()];
  const one = slices[number % slices.length];
  const [stray] = slices[(number + 1) % slices.length]?.endpoints ?? [];
  if (one === undefined || stray === undefined) return;
  const object = { ...one, endpoints: [...one.endpoints, stray] };
  const at = world.steps * 10;
  const change = store.apply({ resource: 'endpointslices', type: 'modified', object, at });
  if (change !== null) serviceAuditor.apply(change);
}

test('the Services that list an address are those with an entry at it', async () => {
  let [listed, none, number] = [0, 0, 0];
  for (const name of caseFiles) {
    for await (const world of worldsOf(name)) {
      if (++number % 4 === 0) misplace(world, number);
      const { listers } = world.context;
      const audited = [...world.serviceAuditor.audited.values()];
      const addresses = audited.map(
        ({ record }) =>
          new Set(observedEntries(listers, record, () => true).map(({ address }) => address)),
      );
      for (const ip of [...addressesOf(world), '192.0.2.77']) {
        const want = audited.filter((_, index) => addresses[index]?.has(ip));
        const got = servicesListing(listers, audited, [ip]);
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
