// Which Services list an address, in every recorded world.

import { expect, test } from 'vitest';

import { servicesListing, entriesAt } from '../../../src/audit/explain/observed.ts';
import { canonicalIP } from '../../../src/model/ip.ts';
import { caseFiles, worldsOf } from '../../vectors/pairs.ts';
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

/** A slice takes an address from another that stands in the same world. */
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

test('who lists an address is found as by a look at everything', async () => {
  let [listed, none, number] = [0, 0, 0];
  for (const name of caseFiles) {
    for await (const world of worldsOf(name)) {
      if (++number % 4 === 0) misplace(world, number);
      const { listers } = world.context;
      const audited = [...world.serviceAuditor.audited.values()];
      for (const ip of [...addressesOf(world), '192.0.2.77']) {
        const want = audited.filter(({ record }) => entriesAt(listers, record, ip).length > 0);
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
