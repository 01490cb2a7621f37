// Which Services list an address, in every recorded world.

import { expect, test } from 'vitest';

import { servicesListing, entriesAt } from '../../../src/audit/explain/observed.ts';
import { canonicalIP } from '../../../src/model/ip.ts';
import { caseFiles, worldsOf } from '../../vectors/pairs.ts';
import type { World } from '../../vectors/world.ts';

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
